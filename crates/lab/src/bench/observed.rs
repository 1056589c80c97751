//! Clients in a closed loop, and counters sampled each second while they run.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use crate::{
    bench::{error::BenchError, runs::GRACE},
    driver::{self, Client, Plan},
    measure::{
        latency::Latency,
        memory::{self, Guard},
        outcome::Outcome,
        run::Run,
        spread::Spread,
        timeline::slice_of,
        usage::Usage,
    },
    progress::Progress,
};

/// Counters at one moment of a run.
#[derive(Debug, Clone)]
struct CounterSample {
    at: Instant,
    resident_bytes: u64,
    counters: Vec<u64>,
}

/// A run and its samples.
#[derive(Debug)]
pub(super) struct Observed {
    /// Measurements of the clients.
    pub(super) run: Run,
    samples: Vec<CounterSample>,
    /// Bytes of the latencies of all clients.
    latency_bytes: u64,
}

/// Times of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) ramp: Duration,
    pub(super) window: Duration,
}

impl Times {
    /// Both together.
    pub(super) fn whole(&self) -> Duration {
        self.ramp + self.window
    }

    /// Runs the clients. Reads `counters` when the window begins, each second of it, and at its
    /// end; in short windows more often.
    ///
    /// # Errors
    ///
    /// If threads cannot be started, a transaction failed, clients hang, or memory runs short.
    pub(super) fn observe(
        self,
        kinds: &'static [&'static str],
        clients: Vec<Box<dyn Client>>,
        counters: &dyn Fn() -> Vec<u64>,
        progress: &Progress,
    ) -> Result<Observed, BenchError> {
        let slice = slice_of(self.window);
        let plan = Plan {
            ramp: self.ramp,
            window: self.window,
            slice: None,
            grace: GRACE,
        };
        let begun = progress.steps();
        let (mut samples, mut due) = (Vec::new(), self.ramp);
        let latencies = clients.len() * kinds.len();
        let mut guard = Guard::new(memory::available_bytes);
        let watch = |elapsed: Duration| {
            progress.reach(begun + elapsed.as_millis() as u64);
            if elapsed >= due.min(self.whole()) {
                due = elapsed + slice;
                samples.push(CounterSample {
                    at: Instant::now(),
                    resident_bytes: Usage::now().map_or(0, |usage| usage.resident_bytes),
                    counters: counters(),
                });
            }
            match guard.look(elapsed) {
                ControlFlow::Break(shortage) => ControlFlow::Break(shortage),
                ControlFlow::Continue(()) => ControlFlow::Continue(()),
            }
        };
        let run = driver::run(&plan, kinds, clients, watch);
        let run = run.map_err(|error| BenchError::Failed(error.to_string()))?;
        progress.reach(begun + self.whole().as_millis() as u64);
        if let Some(shortage) = run.cut {
            return Err(BenchError::Failed(shortage.to_string()));
        }
        let errors = run.tally.of(Outcome::Error);
        if errors > 0 {
            let first = run.tally.failure.as_deref().unwrap_or("without words");
            let what = format!("{errors} transactions failed, the first: {first}");
            return Err(BenchError::Failed(what));
        }
        Ok(Observed {
            run,
            samples,
            latency_bytes: (latencies * Latency::default().bytes()) as u64,
        })
    }
}

impl Observed {
    /// Growth of a counter per second of the window.
    pub(super) fn rate(&self, counter: usize) -> f64 {
        match (self.samples.first(), self.samples.last()) {
            (Some(first), Some(last)) => rate(first, last, counter),
            _ => 0.0,
        }
    }

    /// Growth of a counter in the window.
    pub(super) fn growth(&self, counter: usize) -> u64 {
        let at = |sample: Option<&CounterSample>| sample.map_or(0, |one| one.counters[counter]);
        at(self.samples.last()) - at(self.samples.first())
    }

    /// A counter at the end of the window; 0 without samples.
    pub(super) fn last(&self, counter: usize) -> u64 {
        let last = self.samples.last();
        last.map_or(0, |sample| sample.counters[counter])
    }

    /// A counter in the middle of the window; 0 without samples.
    pub(super) fn middle(&self, counter: usize) -> u64 {
        let middle = self.samples.get(self.samples.len() / 2);
        middle.map_or(0, |sample| sample.counters[counter])
    }

    /// The smallest growth per second of a counter in any second ÷ the median; 0 if there was none.
    pub(super) fn worst_second(&self, counter: usize) -> f64 {
        // The last sample comes after a part of a second, which may be very short.
        let whole = self
            .samples
            .len()
            .saturating_sub(1)
            .max(2.min(self.samples.len()));
        let pairs = self.samples[..whole].windows(2);
        let rates = Spread::new(pairs.map(|pair| rate(&pair[0], &pair[1], counter)));
        match rates.median() {
            0.0 => 0.0,
            median => rates.min() / median,
        }
    }

    /// Largest resident memory of the process in the window.
    pub(super) fn resident_bytes(&self) -> u64 {
        let resident = self.samples.iter().map(|sample| sample.resident_bytes);
        resident.max().unwrap_or(0)
    }

    /// The same without the latencies of the clients, which are the measurement's.
    pub(super) fn engine_bytes(&self) -> u64 {
        self.resident_bytes().saturating_sub(self.latency_bytes)
    }
}

fn rate(first: &CounterSample, last: &CounterSample, counter: usize) -> f64 {
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    let growth = last.counters[counter] - first.counters[counter];
    growth as f64 / seconds.max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{measure::outcome::Ended, progress::Audience};
    use foxton_sync::shim::{Arc, AtomicU64, Ordering::Relaxed};

    #[test]
    fn the_worst_second_is_compared_with_the_median_and_the_last_part_of_one_is_left_out() {
        let began = Instant::now();
        let sample = |(tenths, count)| CounterSample {
            at: began + Duration::from_millis(100 * tenths),
            resident_bytes: tenths,
            counters: vec![count],
        };
        // 10, 10, 5 and 10 in a second, then none in a tenth.
        let samples = [(0, 0), (10, 10), (20, 20), (30, 25), (40, 35), (41, 35)];
        let observed = Observed {
            run: Run::default(),
            samples: samples.into_iter().map(sample).collect(),
            latency_bytes: 11,
        };
        assert!((observed.worst_second(0) - 0.5).abs() < 1e-9);
        assert!((observed.rate(0) - 35.0 / 4.1).abs() < 1e-9);
        assert_eq!((observed.growth(0), observed.resident_bytes()), (35, 41));
        assert_eq!(observed.engine_bytes(), 30);
        assert_eq!((observed.middle(0), observed.last(0)), (25, 35));
    }

    #[test]
    fn counters_are_read_in_the_window_alone() {
        struct Counts(Arc<AtomicU64>);
        impl Client for Counts {
            fn transaction(&mut self) -> Ended {
                std::thread::sleep(Duration::from_millis(1));
                self.0.fetch_add(1, Relaxed);
                Ended::ok(0)
            }
        }
        let count = Arc::new(AtomicU64::new(0));
        let times = Times {
            ramp: Duration::from_millis(200),
            window: Duration::from_millis(300),
        };
        let progress = Audience::Nobody.clock("", times.whole());
        let clients: Vec<Box<dyn Client>> = vec![Box::new(Counts(count.clone()))];
        let counters = || vec![count.load(Relaxed)];
        let observed = times.observe(&["count"], clients, &counters, &progress);
        let observed = observed.unwrap();
        let (whole, window) = (count.load(Relaxed), observed.growth(0));
        assert!(window > 0 && window < whole * 9 / 10, "{window} of {whole}");
        assert!(observed.rate(0) > 0.0 && observed.worst_second(0) > 0.0);
        assert_eq!(progress.steps(), 500);
    }
}
