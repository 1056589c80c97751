//! `foxton inspect`: what is in a database.

use std::{fs, path::Path, process::ExitCode};

use foxton::{Database, inspect::TableStats};
use foxton_lab::report::{
    number::{bytes, grouped},
    table::Table,
};

use crate::output::{say, show};

/// Opens the database and says what it has.
pub(crate) fn run(directory: &Path) -> Result<ExitCode, String> {
    // Opening would make a database of a directory that is not there.
    let nothing = |what: &str| {
        format!(
            "{} {what}: name the directory of a database",
            directory.display()
        )
    };
    let mut entries =
        fs::read_dir(directory).map_err(|error| nothing(&format!("cannot be read ({error})")))?;
    if entries.next().is_none() {
        return Err(nothing("is empty"));
    }
    let db = Database::open(directory).map_err(|error| error.to_string())?;
    let stats = db.stats();
    say!("{}\n", directory.display());
    match stats.tables {
        tables if tables.is_empty() => say!("  no tables"),
        tables => show(&table_of(tables).render()),
    }
    let recovered = db.recovered();
    say!("\nLog: {}", recovered.log);
    say!(
        "     {} committed transactions with {} changes are in it",
        grouped(recovered.transactions as f64),
        grouped(recovered.changes as f64)
    );
    say!("\nFiles:\n");
    show(&files(directory)?.render());
    Ok(ExitCode::SUCCESS)
}

/// Tables with their types and sizes.
pub(crate) fn table_of(tables: Vec<TableStats>) -> Table {
    let mut table = Table::new(["table", "key", "value", "rows"]);
    for known in tables {
        table.row([
            known.name,
            known.key_type,
            known.value_type,
            grouped(known.keys as f64),
        ]);
    }
    table
}

fn files(directory: &Path) -> Result<Table, String> {
    let unread = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(unread)? {
        let entry = entry.map_err(unread)?;
        let size = entry.metadata().map_err(unread)?.len();
        files.push((entry.file_name().to_string_lossy().into_owned(), size));
    }
    files.sort();
    let mut table = Table::new(["file", "size"]);
    let total = files.iter().map(|(_, size)| size).sum();
    files
        .into_iter()
        .for_each(|(name, size)| table.row([name, bytes(size)]));
    table.row(["together".to_owned(), bytes(total)]);
    Ok(table)
}
