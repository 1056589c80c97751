//! `foxton check`: damage of a database, and its place.

use std::process::ExitCode;

use foxton::check::{Report, check_with};
use foxton_lab::{progress::Audience, report::number::grouped};

use crate::{
    arguments::Check,
    output::{note, say},
    tables::plain,
};

/// Exit code if it could not be checked.
const UNKNOWN: u8 = 2;

/// Checks everything, and prints the result.
pub(crate) fn run(what: &Check) -> ExitCode {
    let Check { directory } = what;
    let (mut bar, mut shown) = (None, 0);
    let checked = check_with(directory, &mut |done, total| {
        let bar = bar.get_or_insert_with(|| Audience::here().bytes("check", total));
        bar.advance(done - shown);
        shown = done;
    });
    drop(bar);
    let report = match checked {
        Ok(report) => report,
        Err(error) => {
            note!("error: {error}");
            return ExitCode::from(UNKNOWN);
        }
    };
    for finding in &report.findings {
        say!("{}", plain(&finding.to_string()));
    }
    if !report.log.is_empty() {
        say!("log: {}", report.log);
    }
    say!("{}", extent(&report));
    let kind = match report.is_backup {
        true => "backup",
        false => "database",
    };
    match report.findings.len() {
        0 => {
            say!("{}: this {kind} has no damage", directory.display());
            ExitCode::SUCCESS
        }
        count => {
            say!(
                "{}: this {kind} is damaged in {}; nothing was changed. Restore it from a backup",
                directory.display(),
                counted(count as u64, "place")
            );
            ExitCode::FAILURE
        }
    }
}

/// The extent of the check.
fn extent(report: &Report) -> String {
    let rows = report.tables.iter().map(|(_, rows)| rows).sum::<u64>();
    let mut extent = format!(
        "checked: {} in {} of the checkpoint, {} in {} of the log",
        counted(report.entries, "row"),
        counted(report.layers, "file"),
        counted(report.records, "record"),
        counted(report.segments, "file")
    );
    if report.pages > 0 {
        extent += &format!(", {}", counted(report.pages, "page"));
    }
    if report.findings.is_empty() {
        let tables = counted(report.tables.len() as u64, "table");
        extent += &format!(", {} in {tables}", counted(rows, "row"));
    }
    extent
}

/// A count with its noun: `1 file`, `2,000 rows`.
fn counted(count: u64, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {what}{ending}", grouped(count as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let words = [0, 1, 2_000].map(|count| counted(count, "file"));
        assert_eq!(words, ["0 files", "1 file", "2,000 files"]);
    }
}
