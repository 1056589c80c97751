//! Settings of every sweep over clients: systems, points, times, durability, directories.

use std::{path::PathBuf, time::Duration};

use foxton::Durability;
use serde_json::{Value, json};

use super::error::BenchError;
use crate::{
    driver::Plan,
    measure::{memory, timeline::slice_of},
    system::System,
    workload::contract::Size,
};

/// Systems, points, times, durability and directories of a sweep.
#[derive(Debug, Clone)]
pub struct Runs {
    /// The systems to compare.
    pub systems: Vec<System>,
    /// Numbers of clients.
    pub mpls: Vec<u32>,
    /// Number of times each point is measured.
    pub reps: u32,
    /// Time before each measurement.
    pub ramp: Duration,
    /// Time of each measurement.
    pub window: Duration,
    /// Durability of commits.
    pub durability: Durability,
    /// Parent directory of the databases; if `None`, the system's directory for temporary files.
    pub directory: Option<PathBuf>,
    /// Directory of the sockets by which the databases can be observed; `None` for none.
    pub observe: Option<PathBuf>,
    /// Run each point once more with sampling, and report where the time went.
    pub split: bool,
    /// Keep the data of earlier points, even if a workload's data grow.
    pub keep: bool,
    /// The command that repeats it.
    pub command: String,
}

// Generous: with an over-saturated queue latch, a thousand clients on two cores take a minute to
// finish their transactions.
pub(crate) const GRACE: Duration = Duration::from_secs(300);
// Memory of a row in addition to its bytes: header, key, its share of the index, slack in the
// allocator.
const BYTES_BESIDE_A_ROW: u64 = 250;

/// Checks that this many databases fit into the memory `free`; they do if that is unknown.
///
/// # Errors
///
/// If they do not fit.
pub(super) fn room(
    databases: usize,
    rows: u64,
    row_bytes: u64,
    free: Option<u64>,
) -> Result<(), BenchError> {
    let each = rows.saturating_mul(row_bytes + BYTES_BESIDE_A_ROW);
    match free {
        Some(free) if each.saturating_mul(databases as u64) > free => Err(BenchError::Memory {
            databases,
            each,
            free,
        }),
        _ => Ok(()),
    }
}

/// True if this many databases of this size fit into the free memory at once, or if that is
/// unknown.
pub fn has_room(databases: usize, size: Size) -> bool {
    let free = memory::available_bytes();
    room(databases, size.rows, size.row_bytes, free).is_ok()
}

impl Runs {
    /// Returns the same runs with their points in order, or what is wrong with them. Each system's
    /// tables have `rows` rows of `row_bytes` bytes.
    pub(super) fn tidied(&self, rows: u64, row_bytes: u64) -> Result<Runs, BenchError> {
        let mut runs = self.clone();
        runs.mpls.sort_unstable();
        runs.mpls.dedup();
        let refuse = |what: &str| Err(BenchError::Settings(what.to_owned()));
        let all_lock = runs.systems.iter().all(System::is_locking);
        if !all_lock && runs.mpls.first().is_none_or(|&least| least > 1) {
            return refuse(
                "--locks none runs one client only; add 1 to --mpl, or remove `none` from --locks",
            );
        }
        if runs.window.is_zero() {
            return refuse("--seconds 0 measures nothing; give 0.1 or more");
        }
        // Rows of paged tables take no more memory than their pages may.
        let paged: u64 = runs.systems.iter().map(System::page_memory).sum();
        let resident = runs.systems.iter().filter(|system| !system.is_paged());
        let free = memory::available_bytes().map(|free| free.saturating_sub(paged));
        room(resident.count(), rows, row_bytes, free)?;
        Ok(runs)
    }

    /// Directory of the socket of `system`'s database, if it can be observed: one for all if there
    /// is one system, otherwise one for each.
    pub fn watched(&self, system: &System) -> Option<PathBuf> {
        let directory = self.observe.as_ref()?;
        if self.systems.len() == 1 {
            return Some(directory.clone());
        }
        let plain = |c: char| {
            if c.is_alphanumeric() || "+.".contains(c) {
                c
            } else {
                '-'
            }
        };
        let name: String = system.to_string().chars().map(plain).collect();
        Some(directory.join(name))
    }

    /// Times of each run.
    pub(crate) fn plan(&self) -> Plan {
        Plan {
            ramp: self.ramp,
            window: self.window,
            slice: Some(slice_of(self.window)),
            grace: GRACE,
        }
    }

    /// The settings for results. Workloads with growing data add [`Runs::kept`].
    pub(crate) fn listed(&self) -> Vec<(&'static str, Value)> {
        let directory = self.directory.clone().unwrap_or_else(std::env::temp_dir);
        vec![
            ("directory", json!(directory.display().to_string())),
            ("observed", json!(self.observe.is_some())),
            ("durability", json!(self.durability.to_string())),
            ("ramp_seconds", json!(self.ramp.as_secs_f64())),
            ("seconds", json!(self.window.as_secs_f64())),
            ("reps", json!(self.reps)),
        ]
    }

    /// For results of workloads whose data grow: whether a point began with the data of earlier
    /// ones.
    pub(crate) fn kept(&self) -> (&'static str, Value) {
        ("keep", json!(self.keep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_that_do_not_fit_are_refused_and_their_sum_does_not_overflow() {
        let each = 1_000 * (100 + BYTES_BESIDE_A_ROW);
        assert!(room(2, 1_000, 100, Some(2 * each)).is_ok());
        assert!(room(2, u64::MAX, 100, None).is_ok());
        for (databases, rows) in [(3, 1_000), (1, u64::MAX)] {
            let refused = room(databases, rows, 100, Some(2 * each)).unwrap_err();
            assert!(matches!(refused, BenchError::Memory { free, .. } if free == 2 * each));
        }
    }
}
