//! Reads at snapshots: their cost, and what a snapshot that does not end costs others.
//!
//! Variants take turns within a pass, and the numbers are ratios with their spread. The variants
//! are transactions at the levels serializable and snapshot. If there are several methods by which
//! snapshots are taken, each has its own database. After each run the rows must be as the committed
//! updates left them.

/// Clients that read at a level and update.
mod client;

/// A database of loaded rows.
mod place;

/// Short transactions, and transactions in a hot spot, at both levels.
mod levels;

/// Workloads beside short snapshots.
mod beside_short;

/// Updates beside a snapshot that does not end.
mod stalled;

/// Updates beside an auditor without a pause.
mod auditor;

/// A queue beside a snapshot that does not end.
mod stalled_queue;

/// Reads of rows that were updated many times since.
mod old_versions;

/// Waits of readers for commit LSNs.
mod commit_waits;

/// Instructions of a short transaction.
pub mod instructions;

use std::{path::PathBuf, time::Duration};

use foxton::{Durability, LogBufferKind, SnapshotMethod};

use super::{error::BenchError, measured::Measured, observed::Times, rows::LEAST_ROW_BYTES};
use crate::{
    progress::Audience,
    system::{Locks, System},
};

/// Kind of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Experiment {
    /// Begin, one read and end, by clients, without updates and with.
    Short,
    /// Ten rows a transaction, by clients.
    Reads,
    /// Ten rows a transaction in a hot spot where a fifth of the transactions write.
    Hotspot,
    /// Workloads that use no snapshot, beside short snapshots.
    Beside,
    /// Updates beside a snapshot that does not end: throughput and memory.
    Stalled,
    /// Updates beside an auditor that adds up all rows without a pause.
    Auditor,
    /// Jobs of a queue beside a snapshot that does not end.
    Queue,
    /// Reads of rows that were updated a thousand times since.
    Old,
    /// Waits of readers for commit LSNs, by log buffer.
    Waits,
    /// Instructions of begin, one read and end.
    Instructions,
}

foxton_sync::named_enum! {
    Experiment, "experiment":
    Short = "short",
    Reads = "reads",
    Hotspot = "hotspot",
    Beside = "beside",
    Stalled = "stalled",
    Auditor = "auditor",
    Queue = "queue",
    Old = "old",
    Waits = "waits",
    Instructions = "instructions",
}

/// Settings of an experiment.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Parent directory of the databases; if `None`, the system's directory for temporary files.
    pub directory: Option<PathBuf>,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of a row; at least 16.
    pub row_bytes: usize,
    /// Numbers of clients; experiments with one number use the largest.
    pub mpls: Vec<u32>,
    /// Methods of snapshots to compare; experiments with one use the first.
    pub methods: Vec<SnapshotMethod>,
    /// Log buffers to compare in [`Experiment::Waits`].
    pub log_buffers: Vec<LogBufferKind>,
    /// Time of each run before its window.
    pub ramp: Duration,
    /// Time that is measured.
    pub window: Duration,
    /// Number of times that everything is measured.
    pub passes: u32,
    /// Durability of commits.
    pub durability: Durability,
    /// Seed of the keys.
    pub seed: u64,
    /// This program, in which instructions are counted; `None` if it is not known.
    pub program: Option<PathBuf>,
    /// The command that repeats it.
    pub command: String,
}

/// Fewest rows: every experiment has some to choose from in its hot spot.
const LEAST_ROWS: u64 = 1_000;

impl Settings {
    fn times(&self) -> Times {
        Times {
            ramp: self.ramp,
            window: self.window,
        }
    }

    /// The largest number of clients.
    fn most_clients(&self) -> u32 {
        self.mpls.iter().copied().max().unwrap_or(1)
    }

    /// The engine's default, with each of the methods.
    fn systems(&self) -> Vec<System> {
        let usual = vec![System::new(Locks::Default, None)];
        System::with_snapshot_methods(usual, &self.methods)
    }

    fn sound(&self) -> Result<(), BenchError> {
        let refuse = |what: &str| Err(BenchError::Settings(what.to_owned()));
        if self.row_bytes < LEAST_ROW_BYTES {
            return refuse("--row-bytes must be at least 16, for a key and a counter");
        }
        if self.rows < LEAST_ROWS {
            return refuse(
                "with so few rows everything is a hot spot; give 1000 or more with --rows",
            );
        }
        if self.mpls.is_empty() || self.mpls.contains(&0) {
            return refuse("there are no clients; give 1 or more with --mpl");
        }
        if self.methods.is_empty() || self.log_buffers.is_empty() {
            return refuse(
                "there is nothing to compare; name one with --snapshots or --log-buffer",
            );
        }
        if self.window.is_zero() || self.passes == 0 {
            return refuse("nothing is measured; give --seconds and --passes above 0");
        }
        Ok(())
    }
}

/// Measures.
///
/// # Errors
///
/// If the settings contradict each other, memory is too small, the engine refuses, or the data are
/// wrong.
pub fn run(
    experiment: Experiment,
    settings: &Settings,
    audience: Audience,
) -> Result<Measured, BenchError> {
    settings.sound()?;
    match experiment {
        Experiment::Short => levels::run(&levels::SHORT, settings, audience),
        Experiment::Reads => levels::run(&levels::READS, settings, audience),
        Experiment::Hotspot => levels::run(&levels::HOTSPOT, settings, audience),
        Experiment::Beside => beside_short::run(settings, audience),
        Experiment::Stalled => stalled::run(settings, audience),
        Experiment::Auditor => auditor::run(settings, audience),
        Experiment::Queue => stalled_queue::run(settings, audience),
        Experiment::Old => old_versions::run(settings, audience),
        Experiment::Waits => commit_waits::run(settings, audience),
        Experiment::Instructions => match &settings.program {
            Some(program) => instructions::run(settings, program, audience),
            None => Err(BenchError::Settings(
                "the program could not find its own file, whose instructions are counted"
                    .to_owned(),
            )),
        },
    }
}

#[cfg(test)]
mod tests;
