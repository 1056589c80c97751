//! `foxton check`: what is wrong with a database, and where.

use std::process::ExitCode;

use foxton::check::{Report, check};
use foxton_lab::report::number::grouped;

use crate::{
    arguments::{Check, Repair},
    output::say,
    tables::plain,
};

/// It could not be checked.
const UNKNOWN: u8 = 2;

/// Looks at everything, and says what it found.
pub(crate) fn run(what: &Check) -> ExitCode {
    let Check {
        directory,
        repair: Repair::None,
    } = what;
    let report = match check(directory) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(UNKNOWN);
        }
    };
    for finding in &report.findings {
        say!("{}", plain(&finding.to_string()));
    }
    if !report.log.is_empty() {
        say!("log: {}", report.log);
    }
    say!("{}", seen(&report));
    let kind = match report.is_backup {
        true => "backup",
        false => "database",
    };
    match report.findings.len() {
        0 => {
            say!("{}: nothing is wrong with this {kind}", directory.display());
            ExitCode::SUCCESS
        }
        count => {
            say!(
                "{}: this {kind} is damaged in {}; nothing was changed. Restore it from a backup",
                directory.display(),
                match count {
                    1 => "1 place".to_owned(),
                    count => format!("{count} places"),
                }
            );
            ExitCode::FAILURE
        }
    }
}

/// How much was looked at.
fn seen(report: &Report) -> String {
    let rows = report.tables.iter().map(|(_, rows)| rows).sum::<u64>();
    let mut seen = format!(
        "looked at: {} rows in {} files of the checkpoint, {} records in {} files of the log",
        grouped(report.entries as f64),
        report.layers,
        grouped(report.records as f64),
        report.segments
    );
    if report.findings.is_empty() {
        let tables = report.tables.len();
        seen += &format!(", {} rows in {tables} tables", grouped(rows as f64));
    }
    seen
}
