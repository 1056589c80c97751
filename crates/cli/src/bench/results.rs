//! Results of a benchmark: shown, written, and judged by the exit code.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use foxton_lab::{
    bench::error::BenchError,
    measure::machine::Machine,
    report::{self, findings::Findings, terminal},
};

use crate::output::{note, say, show};

/// Shows the findings, writes them, and returns the exit code.
pub(crate) fn finish(
    workload: &str,
    out: Option<PathBuf>,
    findings: Result<Findings, BenchError>,
) -> Result<ExitCode, String> {
    let findings = &findings.map_err(|error| error.to_string())?;
    let directory = out.unwrap_or_else(|| fresh_directory(workload, findings));
    // Written first: a table that cannot be printed must not lose an hour's results.
    let written = report::write(findings, &directory);
    show(&terminal::text(findings));
    list_written(written, &directory)?;
    Ok(verdict(findings))
}

/// The command line, quoted so that it can be typed again.
pub(crate) fn command_line() -> String {
    let words = std::env::args()
        .skip(1)
        .map(|word| match word.contains([' ', '\'', '"', '\\']) {
            true => format!("'{}'", word.replace('\'', "'\\''")),
            false => word,
        });
    std::iter::once("foxton".to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

fn fresh_directory(workload: &str, findings: &Findings) -> PathBuf {
    let mut name = format!(
        "{workload}-{}-{}",
        findings.variant,
        moment(&findings.machine)
    );
    name = name.trim_matches('-').replace("--", "-");
    Path::new("results").join(name)
}

/// The time of the run's beginning, as part of a file's name.
pub(crate) fn moment(machine: &Machine) -> String {
    machine.started.replace([':', '-'], "").replace(' ', "-")
}

/// Lists the files written.
pub(crate) fn list_written(
    written: io::Result<Vec<PathBuf>>,
    directory: &Path,
) -> Result<(), String> {
    let written = written.map_err(|error| {
        format!(
            "the results cannot be written to {} ({error}); name another directory with --out",
            directory.display()
        )
    })?;
    say!("\nWritten:");
    for path in written {
        say!("  {}", path.display());
    }
    Ok(())
}

fn verdict(findings: &Findings) -> ExitCode {
    judged(&findings.machine, findings.failure())
}

/// Returns the exit code for a result, and prints why numbers must not be kept.
pub(crate) fn judged(machine: &Machine, failure: Option<String>) -> ExitCode {
    if !machine.optimised {
        note!("note: built without optimisation, so do not compare these numbers; use --release");
    }
    match failure {
        None => ExitCode::SUCCESS,
        Some(what) => {
            note!("error: a check failed, so do not keep these numbers: {what}");
            ExitCode::FAILURE
        }
    }
}
