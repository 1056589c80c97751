//! Time of transactions, from the first attempt to the acknowledged end.
//!
//! Two significant digits: a client's histogram then has about 15 KiB, so that a thousand clients
//! do not displace the database from the processor's caches.

use std::time::Duration;

use hdrhistogram::Histogram;

const LOWEST_NANOS: u64 = 64;
const HIGHEST_NANOS: u64 = 1 << 40; // eighteen minutes
const DIGITS: u8 = 2;

/// A distribution of durations, accurate to about one percent.
#[derive(Debug, Clone)]
pub struct Latency(Histogram<u32>);

impl Default for Latency {
    fn default() -> Latency {
        Latency(
            Histogram::new_with_bounds(LOWEST_NANOS, HIGHEST_NANOS, DIGITS)
                .expect("constant bounds are valid"),
        )
    }
}

impl Latency {
    /// Counts one transaction.
    pub fn record(&mut self, took: Duration) {
        self.0
            .saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Latency>() + self.0.distinct_values() * size_of::<u32>()
    }

    /// Adds another client's transactions.
    pub fn add(&mut self, other: &Latency) {
        self.0
            .add(&other.0)
            .expect("all histograms have the same bounds");
    }

    /// The duration, in microseconds, that `share` (0..=1) of the transactions did not exceed; 0
    /// if there were none.
    pub fn quantile_us(&self, share: f64) -> f64 {
        if self.0.is_empty() {
            0.0
        } else {
            self.0.value_at_quantile(share) as f64 / 1e3
        }
    }

    /// The longest duration, in microseconds.
    pub fn max_us(&self) -> f64 {
        self.quantile_us(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_true_to_about_a_percent() {
        let mut latency = Latency::default();
        (1..=1000).for_each(|micros| latency.record(Duration::from_micros(micros)));
        assert!((latency.quantile_us(0.5) / 500.0 - 1.0).abs() < 0.02);
        assert!((latency.quantile_us(0.99) / 990.0 - 1.0).abs() < 0.02);
        assert!(Latency::default().max_us() == 0.0);
        assert!((10_000..20_000).contains(&latency.bytes()));
    }
}
