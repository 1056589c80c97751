//! Samples during a run: throughput, memory and processor time by slices.

use std::time::Duration;

use super::usage::{Split, Usage};

/// One slice of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// The end of the slice, since the window began.
    pub at: Duration,
    /// Committed transactions per second in the slice.
    pub tps: f64,
    /// Resident memory at its end.
    pub resident_bytes: u64,
    /// How the processors spent the slice.
    pub split: Split,
}

/// The samples of one variant of the engine.
#[derive(Debug, Clone)]
pub struct Timeline {
    /// The name of the system for a person.
    pub label: String,
    /// The samples, in order.
    pub samples: Vec<Sample>,
}

/// Length of the slices of a window: a twentieth of it, unless that is too short to show anything
/// or too long to wait for.
pub fn slice_of(window: Duration) -> Duration {
    (window / 20).clamp(Duration::from_millis(100), Duration::from_secs(5))
}

/// Samples the process's resources at regular times during a run.
#[derive(Debug)]
pub struct Sampler {
    slice: Duration,
    offset: Duration,
    /// Number of slices; a window whose end is noticed late has no more.
    most: usize,
    taken: Vec<Option<Usage>>,
}

impl Sampler {
    /// Samples every `slice` of a window that begins `offset` after the clients were started.
    pub fn new(slice: Duration, offset: Duration, window: Duration) -> Sampler {
        Sampler {
            slice,
            offset,
            most: (window.as_nanos() / slice.as_nanos().max(1)) as usize,
            taken: Vec::new(),
        }
    }

    /// Takes the samples that are due `elapsed` after the clients were started. Call often.
    pub fn tick(&mut self, elapsed: Duration) {
        let Some(elapsed) = elapsed.checked_sub(self.offset) else {
            return;
        };
        while self.taken.len() <= self.most && elapsed >= self.slice * self.taken.len() as u32 {
            self.taken.push(Usage::now());
        }
    }

    /// The samples, joined with the transactions that the driver counted by slice.
    pub fn finish(self, slices: &[u64], cores: usize) -> Vec<Sample> {
        let seconds = self.slice.as_secs_f64();
        (1..self.taken.len())
            .map(|index| {
                let (before, now) = (self.taken[index - 1], self.taken[index]);
                let used = now.zip(before).map(|(now, before)| now.since(before));
                let used = used.unwrap_or_default();
                Sample {
                    at: self.slice * index as u32,
                    tps: slices.get(index - 1).copied().unwrap_or(0) as f64 / seconds,
                    resident_bytes: used.resident_bytes,
                    split: Split::of(used, self.slice, cores),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_belongs_to_the_slice_that_just_ended() {
        let slice = Duration::from_millis(100);
        let mut sampler = Sampler::new(slice, slice / 2, 3 * slice);
        // The end is noticed late.
        for millis in (0..=1_000).step_by(25) {
            sampler.tick(Duration::from_millis(millis));
        }
        let samples = sampler.finish(&[10, 20, 30], 2);
        assert_eq!(samples.len(), 3);
        assert_eq!(samples[0].at, slice);
        assert!((samples[2].tps - 300.0).abs() < 1e-9);
    }
}
