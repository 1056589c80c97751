//! Memory of a lock manager: idle, and with many locks held by one transaction.
//!
//! Each manager is measured in a process of its own, because a manager would reuse memory that an
//! earlier one returned to the allocator. Without the program, as in tests, it is measured in this
//! process.

use std::{path::Path, process::Command};

use super::request::Request;
use crate::{
    bench::alone::{self, Alone},
    measure::usage::Usage,
    progress::Audience,
    system::System,
};

/// Memory of one manager, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Resident once the manager is made.
    pub idle: u64,
    /// Resident in addition, once the locks are held.
    pub held: u64,
    /// The manager's own count, with the locks.
    pub counted: u64,
}

impl Memory {
    /// Bytes of each of `locks` locks.
    pub fn each(&self, locks: usize) -> f64 {
        self.held as f64 / locks.max(1) as f64
    }
}

pub(super) fn memory(
    request: &Request,
    systems: &[System],
    locks: usize,
    audience: Audience,
) -> Vec<Result<Memory, String>> {
    let progress = audience.count("memory of locks held", systems.len() as u64, "managers");
    let measure = |system: &System| {
        let found = match &request.program {
            Some(program) => in_own_process(program, system, locks),
            None => Ok(in_this_process(system, locks)),
        };
        progress.advance(1);
        found
    };
    systems.iter().map(measure).collect()
}

/// Measures in this process: resident memory in addition to that before.
pub fn in_this_process(system: &System, locks: usize) -> Memory {
    let resident = || Usage::now().map_or(0, |usage| usage.resident_bytes);
    // The names are made first, because they are the caller's.
    let names = alone::names(0, locks);
    let before = resident();
    let mut alone = Alone::over(system.manager(), names);
    let idle = resident();
    alone.take(locks);
    let held = resident();
    Memory {
        idle: idle.saturating_sub(before),
        held: held.saturating_sub(idle),
        counted: alone.counted_bytes() as u64,
    }
}

fn in_own_process(program: &Path, system: &System, locks: usize) -> Result<Memory, String> {
    let mut command = Command::new(program);
    command.args(["bench", "lock-cost", "--held", &locks.to_string()]);
    command.args(["--locks", &system.manager_name()]);
    if system.latch_name() != "-" {
        command.args(["--latch", &system.latch_name()]);
    }
    let output = command
        .output()
        .map_err(|error| format!("this program could not be started again: {error}"))?;
    parse(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| format!("failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Parses three numbers: idle, held, counted.
fn parse(text: &str) -> Option<Memory> {
    let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
    Some(Memory {
        idle: numbers.next()??,
        held: numbers.next()??,
        counted: numbers.next()??,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_numbers_are_read_and_fewer_are_not() {
        let memory = parse("1 2000 3\n").expect("three numbers");
        assert_eq!((memory.idle, memory.counted), (1, 3));
        assert!((memory.each(10) - 200.0).abs() < 1e-9);
        assert_eq!(parse("1 2"), None);
    }
}
