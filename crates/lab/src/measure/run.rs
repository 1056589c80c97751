//! Measurements of one run of a closed loop.

use std::time::Duration;

use super::{latency::Latency, memory::Shortage, outcome::Tally, usage::Usage};

/// Measurements of a run.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// Outcomes of the transactions that ended in the window.
    pub tally: Tally,
    /// Their latencies, by type of transaction, in the order of the tally's.
    pub latencies: Vec<Latency>,
    /// Length of the window.
    pub window: Duration,
    /// Why the window is shorter than planned, if it is.
    pub cut: Option<Shortage>,
    /// Transactions committed in each slice of the window.
    pub slices: Vec<u64>,
    /// Resources used in the window, if the system reports them.
    pub usage: Option<Usage>,
}

impl Run {
    /// Committed transactions per second of the window.
    pub fn tps(&self) -> f64 {
        self.tally.committed() as f64 / self.window.as_secs_f64().max(1e-9)
    }

    /// The latencies of all types of transaction.
    pub fn latency(&self) -> Latency {
        let mut sum = Latency::default();
        self.latencies.iter().for_each(|of_kind| sum.add(of_kind));
        sum
    }

    /// Adds the measurements of another client of the same run.
    pub fn add(&mut self, other: &Run) {
        self.tally.add(&other.tally);
        if self.latencies.len() < other.latencies.len() {
            self.latencies
                .resize_with(other.latencies.len(), Latency::default);
        }
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.add(theirs);
        }
        if self.slices.len() < other.slices.len() {
            self.slices.resize(other.slices.len(), 0);
        }
        for (mine, theirs) in self.slices.iter_mut().zip(&other.slices) {
            *mine += theirs;
        }
    }
}
