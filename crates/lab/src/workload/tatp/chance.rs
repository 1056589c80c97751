//! How likely each subscriber is to be drawn, exactly, and so what share of each transaction must
//! find what it looks for.
//!
//! The draw is `((U(0, A) | U(1, P)) mod P) + 1`. The pairs that give each number are counted, not
//! sampled. The *or* of a pair is within a mask exactly if both members are, so the counts within
//! each mask multiply. Undoing the sums over the bits gives the counts of each *or* itself.
//!
//! A few subscribers are drawn so often that their own rows decide. The share of a run that finds
//! an access info is that of *this* load weighted by the draw, and may differ a percent from the
//! 62.5 of an average load. So a run is compared with its own load.

use super::{
    Mix, START_TIMES, Shape, client,
    initial::{self, Facility},
    row::{END_TIME, IS_ACTIVE},
};
use crate::measure::outcome::{Outcome, Tally};

/// The probability of each subscriber; the first is that of subscriber 1. They add up to 1.
pub fn of_subscribers(shape: &Shape) -> Vec<f64> {
    let count = shape.subscribers as usize;
    if shape.uniform {
        return vec![1.0 / count as f64; count];
    }
    let a = shape.skew();
    let bits = (u64::from(shape.subscribers) | a).ilog2() + 1;
    let mut pairs = vec![0u64; 1 << bits];
    pairs[1..=count].fill(1);
    over_bits(&mut pairs, bits, |high, low| high + low);
    for (mask, pairs) in pairs.iter_mut().enumerate() {
        // A is one less than a power of two, so every number within the mask is one of 0..=A.
        *pairs <<= (mask as u64 & a).count_ones();
    }
    over_bits(&mut pairs, bits, |high, low| high - low);
    let all = (a + 1) as f64 * count as f64;
    let mut chances = vec![0.0; count];
    for (or, &pairs) in pairs.iter().enumerate() {
        chances[or % count] += pairs as f64 / all;
    }
    chances
}

/// Combines each number that has a bit with the one that lacks it, for one bit after the other.
fn over_bits(counts: &mut [u64], bits: u32, combine: impl Fn(u64, u64) -> u64) {
    for bit in 0..bits {
        for block in counts.chunks_mut(2 << bit) {
            let (low, high) = block.split_at_mut(1 << bit);
            for (low, high) in low.iter().zip(high) {
                *high = combine(*high, *low);
            }
        }
    }
}

/// The bounds of the share of `ok` for each type of transaction, by kind, in an endless run: the
/// share of the load, and the one that inserts and deletes tend to.
#[derive(Debug, Clone, Copy)]
pub struct Expected([(f64, f64); client::KINDS.len()]);

impl Expected {
    /// The shares of this load.
    pub fn of(shape: &Shape) -> Expected {
        let mut sum = Sum::default();
        for (index, chance) in of_subscribers(shape).into_iter().enumerate() {
            let id = index as u32 + 1;
            let infos = initial::access_infos(shape, id).len();
            sum.access += chance * infos as f64 / 4.0;
            for facility in initial::facilities(shape, id) {
                sum.add(chance / 4.0, &facility);
            }
        }
        let half = sum.facility / 2.0;
        let (begin, last) = (sum.destination, sum.active * LASTING_DESTINATION);
        let fixed = |share: f64| (share, share);
        // Without inserts, or without deletes, the rows run out or fill up; the other mixes write
        // none.
        let drift = |begin: f64, last: f64| match shape.mix {
            Mix::Full => (begin.min(last), begin.max(last)),
            Mix::Alone(client::INSERT | client::DELETE) => (0.0, begin),
            _ => fixed(begin),
        };
        Expected([
            fixed(1.0),
            drift(begin, last),
            fixed(sum.access),
            fixed(sum.facility),
            fixed(1.0),
            drift(sum.facility - sum.forwarding, half),
            drift(sum.forwarding, half),
        ])
    }

    /// The bounds for a kind of transaction.
    pub fn share(&self, kind: usize) -> (f64, f64) {
        self.0[kind]
    }

    /// Compares the clients' reports with the shares, with a tolerance of half a percent and of the
    /// random scatter of so few transactions.
    ///
    /// # Errors
    ///
    /// Which type of transaction found too much or too little.
    pub fn compare(&self, ended: &Tally) -> Result<(), String> {
        for (at, (low, high)) in self.0.into_iter().enumerate() {
            let [ok, miss, rule] = [Outcome::Ok, Outcome::Miss, Outcome::Rule]
                .map(|outcome| ended.of_kind(at, outcome) as f64);
            let all = ok + miss + rule;
            if all == 0.0 {
                continue;
            }
            let (share, middle) = (ok / all, (low + high) / 2.0);
            let scatter = (middle * (1.0 - middle) / all).sqrt();
            let slack = SLACK + DEVIATIONS * scatter;
            if share < low - slack || share > high + slack {
                let kind = client::KINDS[at];
                return Err(format!(
                    "{kind} found its rows in {:.2} % of {all} transactions, not in {:.2} to \
                     {:.2} %",
                    share * 100.0,
                    (low - slack) * 100.0,
                    (high + slack) * 100.0
                ));
            }
        }
        Ok(())
    }
}

/// The half of a percent that the benchmark allows.
const SLACK: f64 = 0.005;
/// Deviations of a sample that are still chance: the probability of more is one in two million.
const DEVIATIONS: f64 = 5.0;

/// The share of requests at an active facility that find a destination, with every start time taken
/// with probability one half and any end time. It is the mean over start times s and end times e of
/// 1 − Π over t ≤ s of (1 − ½·(24 − e) / 24).
const LASTING_DESTINATION: f64 = lasting_destination();

const fn lasting_destination() -> f64 {
    let (mut sum, mut end) = (0.0, 1);
    while end <= 24 {
        let missed = 1.0 - 0.5 * (24 - end) as f64 / 24.0;
        sum += 3.0 - missed - missed * missed - missed * missed * missed;
        end += 1;
    }
    sum / 72.0
}

/// Shares of draws, added up over the load.
#[derive(Default)]
struct Sum {
    access: f64,
    facility: f64,
    active: f64,
    forwarding: f64,
    destination: f64,
}

impl Sum {
    fn add(&mut self, chance: f64, facility: &Facility) {
        self.facility += chance;
        self.forwarding += chance * facility.forwardings.len() as f64 / 3.0;
        if facility.row[IS_ACTIVE] == 1 {
            self.active += chance;
            self.destination += chance * destinations(facility);
        }
    }
}

/// The share of requests for a destination at this facility that find one.
fn destinations(facility: &Facility) -> f64 {
    let found = |start: u8| {
        let began = facility
            .forwardings
            .iter()
            .filter(|(time, _)| *time <= start);
        // The latest end decides: it is after all end times below it.
        let latest = began.map(|(_, row)| row[END_TIME]).max();
        latest.map_or(0, |latest| u32::from(latest - 1))
    };
    let found: u32 = START_TIMES.into_iter().map(found).sum();
    f64::from(found) / 72.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{measure::outcome::Ended, random::Random};

    /// The share of draws of the most drawn percent of the subscribers, and of the first.
    fn hottest(subscribers: u32, percents: &[usize]) -> (Vec<f64>, f64) {
        let shape = Shape {
            subscribers,
            ..Shape::usual()
        };
        let mut chances = of_subscribers(&shape);
        let all: f64 = chances.iter().sum();
        assert!((all - 1.0).abs() < 1e-9, "{all}");
        chances.sort_unstable_by(|a, b| b.total_cmp(a));
        let on = |percent: &usize| chances[..chances.len() * percent / 100].iter().sum();
        (percents.iter().map(on).collect(), chances[0])
    }

    #[test]
    fn the_draw_favours_as_few_subscribers_as_the_benchmark_says() {
        let close = |found: &[f64], percents: &[f64]| {
            for (found, expected) in found.iter().zip(percents) {
                assert!(
                    (found * 100.0 - expected).abs() < 1.0,
                    "{found}, {expected}"
                );
            }
        };
        let (shares, first) = hottest(100_000, &[1, 5, 10, 20]);
        close(&shares, &[35.0, 62.0, 76.0, 88.0]);
        assert!((first * 100.0 - 0.65).abs() < 0.05, "{first}");
        let (shares, first) = hottest(640_000, &[1, 5, 20]);
        // Samples show more, because the rows drawn most in a sample include some favoured by
        // chance: 68 and 93 % after a million draws, 67 and 91 after four million.
        close(&shares, &[39.0, 66.0, 89.5]);
        assert!((first * 100.0 - 0.1).abs() < 0.05, "{first}");
    }

    #[test]
    fn draws_follow_the_chances() {
        for uniform in [false, true] {
            let shape = Shape {
                subscribers: 50,
                uniform,
                ..Shape::usual()
            };
            let chances = of_subscribers(&shape);
            let mut random = Random::seeded(&[9]);
            let mut counts = [0u32; 50];
            const DRAWS: u32 = 200_000;
            for _ in 0..DRAWS {
                counts[client::draw_subscriber(&mut random, &shape) as usize - 1] += 1;
            }
            for (id, (count, chance)) in counts.iter().zip(&chances).enumerate() {
                let expected = chance * f64::from(DRAWS);
                let off = (f64::from(*count) - expected).abs();
                assert!(
                    off < 5.0 * expected.sqrt() + 1.0,
                    "{}: {count}, {expected}",
                    id + 1
                );
            }
        }
    }

    #[test]
    fn the_shares_are_those_of_the_benchmark_if_every_subscriber_is_as_likely() {
        let shape = Shape {
            subscribers: 100_000,
            uniform: true,
            ..Shape::usual()
        };
        let expected = Expected::of(&shape);
        let computed = [1.0, 0.14788, 0.625, 0.625, 1.0, 0.3125, 0.3125];
        for (kind, computed) in computed.into_iter().enumerate() {
            let (low, high) = expected.share(kind);
            assert!(
                low - 0.003 < computed && computed < high + 0.003,
                "{kind}: {low}..{high}"
            );
        }
        let (begin, last) = expected.share(1);
        assert!(
            (begin - 0.14788).abs() < 0.002 && (last - 0.204).abs() < 0.002,
            "{begin}, {last}"
        );
    }

    #[test]
    fn a_share_that_is_off_is_named_and_chance_is_not() {
        let expected = Expected([(0.6, 0.6); client::KINDS.len()]);
        let tally = |ok: u64, miss: u64| {
            let mut tally = Tally::new(client::KINDS);
            let missed = Ended {
                outcome: Outcome::Miss,
                ..Ended::ok(2)
            };
            (0..ok).for_each(|_| tally.count(Ended::ok(2)));
            (0..miss).for_each(|_| tally.count(missed.clone()));
            tally
        };
        assert_eq!(expected.compare(&tally(0, 0)), Ok(()));
        assert_eq!(expected.compare(&tally(3, 0)), Ok(()));
        assert_eq!(expected.compare(&tally(60_200, 39_800)), Ok(()));
        let what = expected.compare(&tally(62_500, 37_500)).unwrap_err();
        assert!(
            what.contains("GetAccessData") && what.contains("62.50 %"),
            "{what}"
        );
    }
}
