//! What every sweep over clients is told: systems, points, times, durability, places.

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

/// What is compared, at which points, for how long, where.
#[derive(Debug, Clone)]
pub struct Runs {
    /// What is compared.
    pub systems: Vec<System>,
    /// Numbers of clients.
    pub mpls: Vec<u32>,
    /// Times each point is measured.
    pub reps: u32,
    /// Time before each measurement.
    pub ramp: Duration,
    /// Time of each measurement.
    pub window: Duration,
    /// What a commit waits for.
    pub durability: Durability,
    /// Where the databases are made; the system's place for temporary files if `None`.
    pub directory: Option<PathBuf>,
    /// Where others may look into the databases while they are measured, if they may.
    pub observe: Option<PathBuf>,
    /// Run each point once more, sampled, and tell where the time went.
    pub split: bool,
    /// Go on with what earlier points have left, even where a workload's data grow.
    pub keep: bool,
    /// The command that does this again.
    pub command: String,
}

// Generous: behind an over-saturated queue latch, a thousand clients on two cores take a minute for
// the transactions they are in.
pub(crate) const GRACE: Duration = Duration::from_secs(300);
// A row beside its bytes: header, key, its share of the index, slack in the allocator.
const BYTES_BESIDE_A_ROW: u64 = 250;

/// Whether so many databases, of so many rows of so many bytes each, fit into the memory that is
/// `free`; where nobody knows that, they do.
///
/// # Errors
///
/// If they do not.
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

/// Whether databases of this size, one beside the other, fit into the memory that is free. `true`
/// where nobody knows how much is free.
pub fn has_room(databases: usize, size: Size) -> bool {
    let free = memory::available_bytes();
    room(databases, size.rows, size.row_bytes, free).is_ok()
}

impl Runs {
    /// The same with its points in order, or what is wrong with it. Each system's tables have so
    /// many rows of so many bytes.
    pub(super) fn tidied(&self, rows: u64, row_bytes: u64) -> Result<Runs, BenchError> {
        let mut runs = self.clone();
        runs.mpls.sort_unstable();
        runs.mpls.dedup();
        let refuse = |what: &str| Err(BenchError::Settings(what.to_owned()));
        let all_lock = runs.systems.iter().all(System::is_locking);
        if !all_lock && runs.mpls.first().is_none_or(|&least| least > 1) {
            return refuse("--locks none runs one client only: add 1 to --mpl, or leave none out");
        }
        if runs.window.is_zero() {
            return refuse("--seconds 0 measures nothing: say 0.1 or more");
        }
        room(
            runs.systems.len(),
            rows,
            row_bytes,
            memory::available_bytes(),
        )?;
        Ok(runs)
    }

    /// The directory in which the socket of the database of `system` is, if others may look: one
    /// for all if there is one system, or else one for each.
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

    /// How long each run takes.
    pub(crate) fn plan(&self) -> Plan {
        Plan {
            ramp: self.ramp,
            window: self.window,
            slice: Some(slice_of(self.window)),
            grace: GRACE,
        }
    }

    /// The settings for results. Whether data that grow were kept is for those to say who have
    /// some: [`Runs::kept`].
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

    /// For results: whether a point began with what earlier ones had left, where a workload's data
    /// grow.
    pub(crate) fn kept(&self) -> (&'static str, Value) {
        ("keep", json!(self.keep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_that_do_not_fit_are_refused_together_and_nobody_overflows() {
        let each = 1_000 * (100 + BYTES_BESIDE_A_ROW);
        assert!(room(2, 1_000, 100, Some(2 * each)).is_ok());
        assert!(room(2, u64::MAX, 100, None).is_ok());
        for (databases, rows) in [(3, 1_000), (1, u64::MAX)] {
            let refused = room(databases, rows, 100, Some(2 * each)).unwrap_err();
            assert!(matches!(refused, BenchError::Memory { free, .. } if free == 2 * each));
        }
    }
}
