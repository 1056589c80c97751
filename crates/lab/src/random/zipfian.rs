//! Ranks drawn by Zipf's law: rank r with a probability of about `(r + 1)^-theta / zeta(count,
//! theta)`.
//!
//! The method is that of Gray et al. ("Quickly generating billion-record synthetic databases",
//! 1994), as YCSB uses it: the first two ranks have exactly their shares, and the others follow one
//! power, which is close to the law. It needs `zeta(count, theta)`, the sum of `i^-theta`, for a
//! number of ranks. YCSB computes the sum, and extends it as ranks are added. Here the
//! Euler-Maclaurin formula gives it at once for any number, so that a growing number costs nothing.
//!
//! Three choices of a record are made of it:
//!
//! | | the most frequent | for |
//! |---|---|---|
//! | `Zipfian` | the first | |
//! | `Scrambled` | anywhere, and the same however many there are | records by number |
//! | `Latest` | the last | records that are added |

use super::Random;

/// Below this the sum is made term by term; from here on the formula is right to ten digits.
const SUMMED: u64 = 100;

/// `zeta(count, theta)` for one theta and any count.
#[derive(Debug, Clone, Copy)]
struct Zeta {
    theta: f64,
    /// The constant of the formula: the same for every count.
    constant: f64,
}

impl Zeta {
    fn new(theta: f64) -> Zeta {
        assert!(
            0.0 < theta && theta < 1.0,
            "the method is for exponents between 0 and 1, not {theta}"
        );
        let zeta = Zeta {
            theta,
            constant: 0.0,
        };
        Zeta {
            constant: zeta.sum(SUMMED) - zeta.smooth(SUMMED),
            ..zeta
        }
    }

    fn of(self, count: u64) -> f64 {
        match count < SUMMED {
            true => self.sum(count),
            false => self.smooth(count) + self.constant,
        }
    }

    fn sum(self, count: u64) -> f64 {
        (1..=count).map(|i| (i as f64).powf(-self.theta)).sum()
    }

    /// The terms of the formula that depend on `count`.
    fn smooth(self, count: u64) -> f64 {
        let (n, theta) = (count as f64, self.theta);
        let last = n.powf(-theta);
        last * n / (1.0 - theta) + last / 2.0 - theta * last / n / 12.0
    }
}

/// Ranks from 0, the lowest the most frequent.
#[derive(Debug, Clone, Copy)]
pub struct Zipfian {
    count: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// Ranks below `count`, by the exponent `theta`.
    ///
    /// # Panics
    ///
    /// If `count` is 0, or `theta` is not between 0 and 1.
    pub fn new(count: u64, theta: f64) -> Zipfian {
        Zipfian::of(Zeta::new(theta), count)
    }

    fn of(zeta: Zeta, count: u64) -> Zipfian {
        assert!(count > 0, "there is nothing to draw from");
        let (n, theta, all) = (count as f64, zeta.theta, zeta.of(count));
        let beyond_two = 1.0 - zeta.sum(2) / all;
        Zipfian {
            count,
            theta,
            zeta: all,
            // With two ranks there are no others.
            eta: match count > 2 {
                true => (1.0 - (2.0 / n).powf(1.0 - theta)) / beyond_two,
                false => 0.0,
            },
        }
    }

    /// Draws a rank.
    pub fn rank(&self, random: &mut Random) -> u64 {
        let u = random.unit();
        let share = u * self.zeta;
        let rank = if share < 1.0 {
            0
        } else if share < 1.0 + 0.5f64.powf(self.theta) {
            1
        } else {
            let power = 1.0 / (1.0 - self.theta);
            (self.count as f64 * (self.eta * (u - 1.0) + 1.0).powf(power)) as u64
        };
        // A product may be rounded up to the count itself.
        rank.min(self.count - 1)
    }
}

/// YCSB's exponent.
const THETA: f64 = 0.99;
/// Ranks that are drawn before they are scattered. YCSB's constant for their zeta is for this
/// number, although its source pairs it with 10^16.
const RANKS: u64 = 10_000_000_000;

/// Numbers from 0, of which the frequent ones are anywhere: a rank of 10^10, hashed. The count of
/// numbers has no influence on the skew.
#[derive(Debug, Clone, Copy)]
pub struct Scrambled(Zipfian);

impl Default for Scrambled {
    fn default() -> Scrambled {
        Scrambled(Zipfian::new(RANKS, THETA))
    }
}

impl Scrambled {
    /// Draws a number below `count`.
    ///
    /// # Panics
    ///
    /// If `count` is 0.
    pub fn draw(&self, random: &mut Random, count: u64) -> u64 {
        scatter(self.0.rank(random)) % count
    }
}

/// Numbers from 0, of which the last are the most frequent.
#[derive(Debug, Clone, Copy)]
pub struct Latest(Zeta);

impl Default for Latest {
    fn default() -> Latest {
        Latest(Zeta::new(THETA))
    }
}

impl Latest {
    /// Draws a number below `count`, which may be another each time.
    ///
    /// # Panics
    ///
    /// If `count` is 0.
    pub fn draw(&self, random: &mut Random, count: u64) -> u64 {
        count - 1 - Zipfian::of(self.0, count).rank(random)
    }
}

/// YCSB's hash of a number: FNV-1a of 64 bits over its bytes, the lowest first, without its sign.
pub fn scatter(number: u64) -> u64 {
    let hash = number
        .to_le_bytes()
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    hash.cast_signed().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 200_000;

    /// The share of draws for which `is` holds.
    fn share(mut draw: impl FnMut() -> u64, is: impl Fn(u64) -> bool) -> f64 {
        let hits = (0..DRAWS).filter(|_| is(draw())).count();
        hits as f64 / f64::from(DRAWS)
    }

    #[test]
    fn zeta_of_ten_billion_is_the_constant_that_ycsb_states() {
        let zeta = Zeta::new(THETA);
        assert!((zeta.of(RANKS) - 26.469_028_201_78).abs() < 1e-8);
        for count in [1, 2, SUMMED - 1, SUMMED, 1_000, 100_000] {
            let (formula, sum) = (zeta.of(count), zeta.sum(count));
            assert!((formula - sum).abs() < 1e-9, "{count}: {formula} and {sum}");
        }
    }

    #[test]
    fn ranks_have_the_shares_of_the_law() {
        for count in [2, 3, 50, 1_000, 1_000_000] {
            let (zipfian, zeta) = (Zipfian::new(count, THETA), Zeta::new(THETA));
            let all = zeta.of(count);
            for below in [1, 2, 10, 100, 1_000, 100_000] {
                let below = below.min(count);
                let mut random = Random::seeded(&[count, below]);
                let found = share(|| zipfian.rank(&mut random), |rank| rank < below);
                let law = zeta.of(below) / all;
                // The first two are exact; between them and the last the method is a little off.
                let off = if below <= 2 || below == count {
                    0.004
                } else {
                    0.02
                };
                assert!(
                    (found - law).abs() < off,
                    "{count}, {below}: {found}, {law}"
                );
            }
        }
    }

    #[test]
    fn no_rank_lies_beyond_the_last() {
        for count in [1, 2, 3, 7] {
            let (zipfian, mut random) = (Zipfian::new(count, THETA), Random::seeded(&[5]));
            assert!((0..20_000).all(|_| zipfian.rank(&mut random) < count));
        }
    }

    #[test]
    fn scrambled_the_frequent_numbers_are_where_their_ranks_hash_to() {
        let scrambled = Scrambled::default();
        for count in [1_000, 1_000_000] {
            let mut random = Random::seeded(&[count]);
            let hottest = [scatter(0) % count, scatter(1) % count];
            let found =
                hottest.map(|hot| share(|| scrambled.draw(&mut random, count), |n| n == hot));
            // 1/26.469 and 0.5^0.99/26.469, and the other ranks that hash to the number.
            let others = 1.0 / count as f64;
            assert!((found[0] - 0.03778 - others).abs() < 0.002, "{found:?}");
            assert!((found[1] - 0.01902 - others).abs() < 0.002, "{found:?}");
            // The others are spread over all: half of them in the lower half.
            let low = share(|| scrambled.draw(&mut random, count), |n| n < count / 2);
            assert!((0.4..0.6).contains(&low), "{low}");
        }
    }

    #[test]
    fn the_latest_number_is_the_most_frequent_however_many_there_are() {
        let (latest, zeta) = (Latest::default(), Zeta::new(THETA));
        let mut random = Random::seeded(&[3]);
        for count in [1, 2, 1_000, 1_001, 500_000] {
            let found = share(|| latest.draw(&mut random, count), |n| n == count - 1);
            let law = 1.0 / zeta.of(count);
            assert!((found - law).abs() < 0.004, "{count}: {found}, {law}");
            let highest = (0..1_000)
                .map(|_| latest.draw(&mut random, count))
                .max()
                .unwrap();
            assert!(highest < count);
        }
    }

    #[test]
    fn the_hash_is_that_of_the_published_algorithm() {
        // FNV-1a of eight zero bytes, by hand: the offset basis times the prime, eight times.
        let by_hand = (0..8).fold(0xcbf2_9ce4_8422_2325_u64, |hash, _| {
            hash.wrapping_mul(1_099_511_628_211)
        });
        assert_eq!(scatter(0), by_hand.cast_signed().unsigned_abs());
        // The low byte comes first: it goes through the most multiplications.
        assert_ne!(scatter(1), scatter(1 << 56));
        let mut seen: Vec<u64> = (0..10_000).map(scatter).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 10_000);
        assert!(seen.iter().all(|&hash| hash <= i64::MAX as u64));
    }
}
