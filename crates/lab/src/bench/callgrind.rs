//! Instructions of this program, counted by valgrind's callgrind.

use std::{path::Path, process::Command};

use super::error::BenchError;

/// Rounds of the two runs whose difference is counted.
const SHORT: u64 = 1_000;
const LONG: u64 = 11_000;

/// Returns the instructions of one round: `arguments` are those of `program` for so many rounds.
/// `otherwise` says how to do without.
///
/// # Errors
///
/// If callgrind cannot be run.
pub(super) fn a_round(
    program: &Path,
    arguments: impl Fn(u64) -> Vec<String>,
    otherwise: &str,
) -> Result<f64, BenchError> {
    let short = count(program, &arguments(SHORT), otherwise)?;
    let long = count(program, &arguments(LONG), otherwise)?;
    Ok((long - short) / (LONG - SHORT) as f64)
}

fn count(program: &Path, arguments: &[String], otherwise: &str) -> Result<f64, BenchError> {
    let refuse = |what: String| {
        BenchError::Settings(format!(
            "instructions cannot be counted; install valgrind, or {otherwise}. {what}"
        ))
    };
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(arguments)
        .output()
        .map_err(|error| refuse(format!("It could not be started: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(refuse(format!("The program failed under it:\n{said}")));
    }
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    collected
        .and_then(|(_, number)| number.trim().parse().ok())
        .ok_or_else(|| refuse(format!("Its output could not be parsed:\n{said}")))
}
