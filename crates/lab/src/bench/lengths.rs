//! Lengths of log records: all the same, or short and long ones mixed.

use std::{fmt, str::FromStr};

use serde_json::{Value, json};

use crate::report::number::grouped;

/// Length of records, in bytes of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// All of this length.
    Same(u32),
    /// Nine of fourteen have 40 bytes and five have 264: 120 on average, as in document 002 [002
    /// §8.5]. The document does not give its system's distribution; this one has small and larger
    /// records with the same mean.
    Mixed,
}

/// The longest length that is accepted.
const LONGEST: u32 = 1 << 20;
const SHORT: u32 = 40;
const LONG: u32 = 264;
/// The lengths of fourteen records, one after the other, as evenly mixed as they can be.
const CYCLE: [u32; 14] = [
    SHORT, LONG, SHORT, SHORT, LONG, SHORT, SHORT, LONG, SHORT, LONG, SHORT, SHORT, LONG, SHORT,
];
const MIXED: &str = "mixed";

impl Length {
    /// The mean length.
    pub fn mean(self) -> u32 {
        match self {
            Length::Same(bytes) => bytes,
            Length::Mixed => CYCLE.iter().sum::<u32>() / CYCLE.len() as u32,
        }
    }

    /// The longest length.
    pub fn longest(self) -> u32 {
        match self {
            Length::Same(bytes) => bytes,
            Length::Mixed => LONG,
        }
    }

    /// The length of record `nth` in a thread's batch.
    pub fn of(self, nth: usize) -> u32 {
        match self {
            Length::Same(bytes) => bytes,
            Length::Mixed => CYCLE[nth % CYCLE.len()],
        }
    }

    /// The largest number of records up to `most`, and at least 1, whose mean is this length.
    pub fn whole(self, most: u64) -> u64 {
        match self {
            Length::Same(_) => most.max(1),
            Length::Mixed => (most / CYCLE.len() as u64).max(1) * CYCLE.len() as u64,
        }
    }

    /// Words for a person.
    pub fn words(self) -> String {
        match self {
            Length::Same(bytes) => format!("{} bytes", grouped(f64::from(bytes))),
            Length::Mixed => format!("{SHORT} and {LONG} bytes"),
        }
    }

    /// For programs: a number, or the word.
    pub fn to_json(self) -> Value {
        match self {
            Length::Same(bytes) => json!(bytes),
            Length::Mixed => json!(MIXED),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::Same(bytes) => bytes.fmt(f),
            Length::Mixed => f.write_str(MIXED),
        }
    }
}

impl FromStr for Length {
    type Err = String;
    fn from_str(text: &str) -> Result<Length, String> {
        let bytes = text
            .parse()
            .ok()
            .filter(|bytes| (1..=LONGEST).contains(bytes));
        match (text, bytes) {
            (MIXED, _) => Ok(Length::Mixed),
            (_, Some(bytes)) => Ok(Length::Same(bytes)),
            _ => Err(format!(
                "give a number of bytes from 1 to {LONGEST}, or {MIXED}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_records_are_120_bytes_on_average_nine_short_and_five_long() {
        let batch = Length::Mixed.whole(100);
        assert_eq!(batch, 98);
        let lengths: Vec<u32> = (0..batch as usize)
            .map(|nth| Length::Mixed.of(nth))
            .collect();
        assert_eq!(lengths.iter().sum::<u32>(), 120 * batch as u32);
        assert_eq!(Length::Mixed.mean(), 120);
        let long = lengths.iter().filter(|&&length| length == LONG).count();
        assert_eq!(long * 14, lengths.len() * 5);
        assert!(lengths.iter().all(|length| [SHORT, LONG].contains(length)));
        assert_eq!(Length::Same(7).whole(0), 1);
    }

    #[test]
    fn a_length_is_parsed_as_it_is_written() {
        for length in [Length::Same(1), Length::Same(65_536), Length::Mixed] {
            assert_eq!(length.to_string().parse(), Ok(length));
        }
        for wrong in ["0", "1048577", "some"] {
            let words = wrong.parse::<Length>().unwrap_err();
            assert!(words.contains("or mixed"), "{words}");
        }
    }
}
