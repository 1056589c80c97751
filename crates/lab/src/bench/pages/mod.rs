//! Paged tables whose data are larger than their memory: reads, updates, backups, conversions.
//!
//! Each experiment loads rows into one paged table, closes it, and measures whole passes. Variants
//! take turns within a pass. After the last pass every row is read, and the counters in the rows
//! must add up to the committed updates. The numbers are ratios with their spread.

/// A directory that counts and records what is written.
mod metered;

/// The bare device.
mod bare;

/// A loaded directory, and databases opened in it.
mod place;

/// Reads of data beyond memory.
mod beyond;

/// Recorded writes, repeated on other files.
mod replay;

/// Updates at the bound of dirty pages.
mod update_storm;

/// Bytes written, and the cost of the doublewrite buffer.
mod written;

/// Throughput beside a backup.
mod beside_backup;

/// Conversion between components, and loading with indexes.
mod conversion;

/// Critical sections of operations.
mod sections;

use std::{path::PathBuf, time::Duration};

use foxton::Durability;

use super::{error::BenchError, measured::Measured, observed::Times, rows::LEAST_ROW_BYTES};
use crate::progress::Audience;

/// Kind of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Experiment {
    /// Uniform point reads: page reads beside those of the bare device, rows by clients, memory.
    Beyond,
    /// Updates at the bound of dirty pages: the worst second, and latencies of reads.
    Storm,
    /// Bytes written ÷ bytes changed, and throughput with a doublewrite buffer and without.
    Written,
    /// Throughput while backups run ÷ without.
    Backup,
    /// Rows a second of conversions and of loading with indexes.
    Convert,
    /// Unbounded critical sections of operations; needs a program that counts.
    Sections,
}

foxton_sync::named_enum! {
    Experiment, "experiment":
    Beyond = "beyond",
    Storm = "storm",
    Written = "written",
    Backup = "backup",
    Convert = "convert",
    Sections = "sections",
}

/// Settings of an experiment.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Parent directory of the database; if `None`, the system's directory for temporary files.
    pub directory: Option<PathBuf>,
    /// Bytes of all rows with their keys.
    pub data: u64,
    /// Bytes of memory for pages; `None`: a tenth of the data.
    pub page_memory: Option<usize>,
    /// Bytes of a row; at least 16.
    pub row_bytes: usize,
    /// Numbers of clients; experiments with one number use the largest.
    pub mpls: Vec<u32>,
    /// Clients of a storm that read.
    pub readers: u32,
    /// Time of each run before its window.
    pub ramp: Duration,
    /// Time that is measured.
    pub window: Duration,
    /// Number of times that everything is measured.
    pub passes: u32,
    /// Reads and writes of pages go through the page cache.
    pub is_cached: bool,
    /// Durability of commits.
    pub durability: Durability,
    /// Seed of the keys.
    pub seed: u64,
    /// The command that repeats it.
    pub command: String,
}

impl Settings {
    fn times(&self) -> Times {
        Times {
            ramp: self.ramp,
            window: self.window,
        }
    }

    fn page_memory(&self) -> usize {
        self.page_memory.unwrap_or((self.data / 10) as usize)
    }

    /// The largest number of clients.
    fn most_clients(&self) -> u32 {
        self.mpls.iter().copied().max().unwrap_or(1)
    }

    fn sound(&self) -> Result<(), BenchError> {
        let refuse = |what: &str| Err(BenchError::Settings(what.to_owned()));
        if self.row_bytes < LEAST_ROW_BYTES {
            return refuse("--row-bytes must be at least 16, for a key and a counter");
        }
        if self.mpls.is_empty() || self.mpls.contains(&0) {
            return refuse("there are no clients; give 1 or more with --mpl");
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
/// If the settings contradict each other, the disk or memory is too small, the engine refuses, or
/// the data are wrong.
pub fn run(
    experiment: Experiment,
    settings: &Settings,
    audience: Audience,
) -> Result<Measured, BenchError> {
    settings.sound()?;
    match experiment {
        Experiment::Beyond => beyond::run(settings, audience),
        Experiment::Storm => update_storm::run(settings, audience),
        Experiment::Written => written::run(settings, audience),
        Experiment::Backup => beside_backup::run(settings, audience),
        Experiment::Convert => conversion::run(settings, audience),
        Experiment::Sections => sections::run(settings, audience),
    }
}

#[cfg(test)]
mod tests;
