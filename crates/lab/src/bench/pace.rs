//! Settings of a sweep over threads without a database: numbers of threads, repetitions, times.

use std::time::Duration;

use serde_json::{Value, json};

use super::{error::BenchError, runs::GRACE, sweep::Sweep};
use crate::{driver::Plan, measure::timeline::slice_of};

/// Numbers of threads, repetitions and times.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Numbers of threads, in any order.
    pub threads: Vec<u32>,
    /// Number of times each point is measured.
    pub reps: u32,
    /// Time before each measurement.
    pub ramp: Duration,
    /// Time of each measurement.
    pub window: Duration,
    /// The command that repeats it.
    pub command: String,
}

impl Pace {
    /// The sweep, with its points in order.
    pub(super) fn sweep(&self) -> Result<Sweep, BenchError> {
        if self.window.is_zero() {
            let what = "--seconds 0 measures nothing; give 0.01 or more";
            return Err(BenchError::Settings(what.to_owned()));
        }
        let mut mpls = self.threads.clone();
        mpls.sort_unstable();
        mpls.dedup();
        Ok(Sweep {
            mpls,
            reps: self.reps,
            plan: Plan {
                ramp: self.ramp,
                window: self.window,
                slice: Some(slice_of(self.window)),
                grace: GRACE,
            },
            split: false,
        })
    }

    /// The settings for results.
    pub(super) fn listed(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("ramp_seconds", json!(self.ramp.as_secs_f64())),
            ("seconds", json!(self.window.as_secs_f64())),
            ("reps", json!(self.reps)),
        ]
    }
}
