//! Ratio of two repeated measurements, with its interval.
//!
//! The ratio is that of the medians. Its interval is a bootstrap: as many repetitions as there were
//! are drawn from each side with replacement, and their medians are divided, `RESAMPLES` times. The
//! interval lies between the 2.5th and the 97.5th percentile of these ratios. The generator has a
//! fixed seed, so that the same files always give the same verdict.
//!
//! # Limits of the interval
//!
//! The interval shows how repetitions of one run differ from each other, and not how one run
//! differs from the next. A machine that was slow during one whole run causes a difference that is
//! not one of the programs. Points that take turns in one run do not have this problem.
//!
//! With few repetitions the interval is too narrow, because no drawing has values that were not
//! measured. Of two samples of the same quantity, three repetitions each, one pair in ten does not
//! overlap; so below `ENOUGH` there is no verdict. The test
//! `of_runs_that_do_not_differ_few_are_called_different` checks the rate of wrong verdicts.

use super::spread::Spread;
use crate::random::Random;

/// Drawings of the bootstrap.
pub const RESAMPLES: usize = 2_000;
/// Repetitions that each side needs for a verdict.
pub const ENOUGH: usize = 5;
const SEED: u64 = 2_026;

/// A ratio of medians with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The median of the second ÷ that of the first.
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// True if there were enough repetitions for a verdict.
    pub enough: bool,
}

/// The verdict on a ratio of throughputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The second has more, beyond the spread of repetitions.
    Faster,
    /// The second has less, beyond the spread of repetitions.
    Slower,
    /// The interval includes one.
    NoDifference,
    /// Too few repetitions on one side.
    TooFew,
}

impl Verdict {
    /// The words.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::NoDifference => "no difference shown",
            Verdict::TooFew => "too few passes",
        }
    }
}

impl Ratio {
    /// The ratio of these repetitions; `None` if either side has none or the first has a median of
    /// zero.
    pub fn of(first: &[f64], second: &[f64]) -> Option<Ratio> {
        let ratio = |first: Vec<f64>, second: Vec<f64>| {
            let below = Spread::new(first).median();
            (below > 0.0).then(|| Spread::new(second).median() / below)
        };
        if first.is_empty() || second.is_empty() {
            return None;
        }
        let middle = ratio(first.to_vec(), second.to_vec())?;
        let mut random = Random::seeded(&[SEED, first.len() as u64, second.len() as u64]);
        let mut drawn = |all: &[f64]| -> Vec<f64> {
            let one = |_| all[random.uniform(0, all.len() as u64 - 1) as usize];
            (0..all.len()).map(one).collect()
        };
        let mut ratios: Vec<f64> = (0..RESAMPLES)
            .filter_map(|_| ratio(drawn(first), drawn(second)))
            .collect();
        ratios.sort_by(f64::total_cmp);
        let at = |share: f64| ratios[(share * (ratios.len() - 1) as f64).round() as usize];
        // A first side with zeros in half of its repetitions may leave no ratio; then there is no
        // verdict.
        if ratios.is_empty() {
            return None;
        }
        Some(Ratio {
            ratio: middle,
            low: at(0.025),
            high: at(0.975),
            enough: first.len().min(second.len()) >= ENOUGH,
        })
    }

    /// Returns the verdict.
    pub fn verdict(&self) -> Verdict {
        match self {
            _ if !self.enough => Verdict::TooFew,
            _ if self.low > 1.0 => Verdict::Faster,
            _ if self.high < 1.0 => Verdict::Slower,
            _ => Verdict::NoDifference,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About normally distributed around one, with a deviation of a twentieth: the mean of twelve
    /// uniform draws.
    fn noisy(random: &mut Random, count: usize) -> Vec<f64> {
        let one = |random: &mut Random| {
            let sum: f64 = (0..12).map(|_| random.unit()).sum();
            1.0 + (sum - 6.0) * 0.05
        };
        (0..count).map(|_| one(random)).collect()
    }

    /// Shows that the interval is about as accurate as it claims. Of pairs of equal runs one in
    /// twenty may be called different; of 100 pairs a few more by chance (three standard deviations
    /// are 6.5 in a hundred). It also shows that runs that differ by a fifth are told apart.
    #[test]
    fn of_runs_that_do_not_differ_few_are_called_different() {
        let mut random = Random::seeded(&[7]);
        for count in [ENOUGH, 2 * ENOUGH] {
            let trials = 100;
            let mut called = [0; 2];
            for _ in 0..trials {
                let first = noisy(&mut random, count);
                let second = noisy(&mut random, count);
                let better: Vec<f64> = second.iter().map(|value| value * 1.2).collect();
                let verdict = |second| Ratio::of(&first, second).unwrap().verdict();
                called[0] += usize::from(verdict(&second) != Verdict::NoDifference);
                called[1] += usize::from(verdict(&better) == Verdict::Faster);
            }
            let [wrongly, rightly] = called.map(|count| count as f64 / f64::from(trials));
            assert!(
                wrongly <= 0.05 + 0.065,
                "{count} repetitions: {wrongly} called different"
            );
            assert!(
                rightly >= 0.9,
                "{count} repetitions: {rightly} called faster"
            );
        }
    }

    #[test]
    fn the_same_numbers_give_the_same_interval_and_few_give_no_verdict() {
        let (first, second) = (
            [100.0, 101.0, 99.0, 100.0, 102.0],
            [50.0, 51.0, 49.0, 50.0, 52.0],
        );
        let ratio = Ratio::of(&first, &second).unwrap();
        assert_eq!(Some(ratio), Ratio::of(&first, &second));
        assert_eq!((ratio.ratio, ratio.verdict()), (0.5, Verdict::Slower));
        assert!(ratio.low <= 0.5 && ratio.high >= 0.5 && ratio.low < ratio.high);
        assert_eq!(
            Ratio::of(&second, &first).unwrap().verdict(),
            Verdict::Faster
        );
        let few = Ratio::of(&first[..3], &second[..3]).unwrap();
        assert_eq!(few.verdict(), Verdict::TooFew);
        assert_eq!(Ratio::of(&[], &second), None);
        assert_eq!(Ratio::of(&[0.0; 5], &second), None);
    }
}
