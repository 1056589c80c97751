//! `foxton results`: documents rendered from the records of published numbers.

use std::process::ExitCode;

use foxton_lab::results::{collection::ResultCollection, error::ResultsError, render};

use crate::{
    arguments::{Render, Results},
    output::{note, say},
};

/// Renders the documents, or checks that they are as rendered.
pub(crate) fn run(results: &Results) -> Result<ExitCode, String> {
    let Results::Render(arguments) = results;
    render(arguments).map_err(|error| error.to_string())
}

fn render(arguments: &Render) -> Result<ExitCode, ResultsError> {
    let collection = ResultCollection::read(&arguments.dir)?;
    let documents = render::documents(&collection, &arguments.dir, &arguments.readme)?;
    let mut code = ExitCode::SUCCESS;
    for document in documents.iter().filter(|document| !document.is_current) {
        let path = document.path.display();
        if arguments.check {
            note!("error: {path} differs from the records: run `foxton results render`");
            code = ExitCode::FAILURE;
        } else {
            document.write()?;
            say!("written: {path}");
        }
    }
    if documents.iter().all(|document| document.is_current) {
        say!(
            "{} records; every document is up to date",
            collection.records.len()
        );
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn commands_of_records_are_understood_today() {
        let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let collection = ResultCollection::read(&records).unwrap();
        let mut tried = 0;
        for record in &collection.records {
            let lines = record.command.iter().flat_map(|command| command.lines());
            for line in lines.filter(|line| line.starts_with("foxton ")) {
                let parsed = Arguments::try_parse_from(line.split_whitespace());
                assert!(
                    parsed.is_ok(),
                    "{}: {line}: {}",
                    record.id,
                    parsed.unwrap_err()
                );
                tried += 1;
            }
        }
        assert!(tried > 20, "{tried} commands");
    }
}
