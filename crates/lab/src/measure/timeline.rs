//! Samples during a run: throughput, memory and processor time by slices.

use std::time::Duration;

use super::{
    spread::Spread,
    usage::{Split, Usage},
};

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

/// Length of the slices of a window: a second, or a twentieth of a shorter window, unless that is
/// too short to show anything.
pub fn slice_of(window: Duration) -> Duration {
    (window / 20).clamp(Duration::from_millis(100), Duration::from_secs(1))
}

/// Steadiness of a run, and the most memory that it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steadiness {
    /// The least throughput of any slice ÷ the median of all; 0 if that is 0.
    pub worst_to_median: f64,
    /// Length of a slice.
    pub slice: Duration,
    /// Largest resident memory at the end of any slice.
    pub most_resident_bytes: u64,
}

impl Steadiness {
    /// That of these samples; `None` if there are too few to compare.
    pub fn of(samples: &[Sample]) -> Option<Steadiness> {
        let [first, _, ..] = samples else { return None };
        let rates = Spread::new(samples.iter().map(|sample| sample.tps));
        let resident = samples.iter().map(|sample| sample.resident_bytes);
        Some(Steadiness {
            worst_to_median: match rates.median() {
                0.0 => 0.0,
                median => rates.min() / median,
            },
            slice: first.at,
            most_resident_bytes: resident.max()?,
        })
    }
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

    #[test]
    fn the_worst_slice_is_compared_with_the_median() {
        let sample = |(second, tps)| Sample {
            at: Duration::from_secs(second),
            tps,
            resident_bytes: 100 - second,
            ..Sample::default()
        };
        let samples = [(1, 100.0), (2, 110.0), (3, 40.0), (4, 90.0), (5, 100.0)].map(sample);
        let steadiness = Steadiness::of(&samples).unwrap();
        assert!((steadiness.worst_to_median - 0.4).abs() < 1e-9);
        assert_eq!(steadiness.slice, Duration::from_secs(1));
        assert_eq!(steadiness.most_resident_bytes, 99);
        assert_eq!(Steadiness::of(&samples[..1]), None);
        assert_eq!(slice_of(Duration::from_secs(3_600)), Duration::from_secs(1));
        assert_eq!(
            slice_of(Duration::from_secs(10)),
            Duration::from_millis(500)
        );
    }
}
