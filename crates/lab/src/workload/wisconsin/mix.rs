//! Percentages of T1 to T5.

use std::{fmt, str::FromStr};

use super::operation::Operation;
use crate::random::Random;

/// The types of transaction, as they are named in results.
pub const KINDS: &[&str] = &[
    "t1-scan",
    "t2-scan-tenth",
    "t3-index",
    "t4-index-tenth",
    "t5-single",
];

/// Percentages of T1 to T5, which add up to 100.
///
/// ```
/// use foxton_lab::workload::wisconsin::mix::Mix;
///
/// assert_eq!("0,0,0,0,100".parse::<Mix>().unwrap().to_string(), "0,0,0,0,100");
/// assert!("20,20,20".parse::<Mix>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix([u32; Operation::TYPES.len()]);

impl Mix {
    /// All alike.
    pub const EVEN: Mix = Mix([20; Operation::TYPES.len()]);

    /// The share of each, in per cent.
    pub fn shares(self) -> [u32; Operation::TYPES.len()] {
        self.0
    }

    /// Draws the place of one among [`Operation::TYPES`].
    pub fn draw(self, random: &mut Random) -> usize {
        let mut left = random.uniform(0, 99) as u32;
        for (at, &share) in self.0.iter().enumerate() {
            match left.checked_sub(share) {
                Some(rest) => left = rest,
                None => return at,
            }
        }
        unreachable!("shares come to 100")
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [t1, t2, t3, t4, t5] = self.0;
        write!(f, "{t1},{t2},{t3},{t4},{t5}")
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(words: &str) -> Result<Mix, String> {
        let refuse = || {
            format!(
                "\"{words}\" is not five percentages of T1 to T5 that add up to 100; give 20,20,20,20,20 \
                 or 0,0,0,0,100"
            )
        };
        let shares: Result<Vec<u32>, _> =
            words.split(',').map(|word| word.trim().parse()).collect();
        let shares: [u32; Operation::TYPES.len()] = shares
            .map_err(|_| refuse())?
            .try_into()
            .map_err(|_| refuse())?;
        // In 64 bits five of them cannot overflow.
        let all: u64 = shares.iter().map(|&share| u64::from(share)).sum();
        match all {
            100 => Ok(Mix(shares)),
            _ => Err(refuse()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_its_share() {
        let mix: Mix = "5, 0,15,30,50".parse().unwrap();
        let (mut random, mut counts) = (Random::seeded(&[3]), [0_u32; 5]);
        (0..20_000).for_each(|_| counts[mix.draw(&mut random)] += 1);
        for (count, share) in counts.into_iter().zip(mix.shares()) {
            assert!(count.abs_diff(share * 200) < 300, "{counts:?}");
        }
        assert_eq!(counts[1], 0);
    }

    #[test]
    fn what_is_not_five_shares_of_100_is_refused_with_what_to_say() {
        for words in [
            "",
            "100",
            "20,20,20,20,21",
            "a,b,c,d,e",
            "-1,21,40,20,20",
            "4294967295,4294967295,1,1,1",
        ] {
            let what = words.parse::<Mix>().unwrap_err();
            assert!(what.contains("20,20,20,20,20"), "{what}");
        }
    }
}
