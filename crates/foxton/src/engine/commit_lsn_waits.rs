//! Waits of readers at snapshots for commit LSNs.
//!
//! A thread that meets a version whose writer is about to learn its commit LSN waits for that. It
//! is rare, so all threads share these counters. A task yields instead, and is not counted.

use std::time::Duration;

use foxton_sync::shim::{AtomicU64, Ordering};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

static WAITS: Site = Site::new(
    Component::Transaction,
    Pattern::Unbounded,
    "waits for commit LSNs",
);

/// Number of classes of lengths: each has waits twice as long as the one before.
const CLASSES: usize = 32;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct WaitCounters {
    by_length: [AtomicU64; CLASSES],
    nanos: AtomicU64,
    longest: AtomicU64,
}

/// Waits of threads at snapshots for commit LSNs: see
/// [`VersionStats::lsn_waits`](crate::VersionStats::lsn_waits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CommitLsnWaits {
    /// Number of waits.
    pub count: u64,
    /// Their sum.
    pub waited: Duration,
    /// The longest.
    pub longest: Duration,
    /// Their number by length: place n has those from 2ⁿ up to 2ⁿ⁺¹ ns, the last also all longer.
    pub by_length: [u64; CLASSES],
}

impl WaitCounters {
    /// Counts a wait.
    pub(crate) fn record(&self, worker: &Worker, waited: Duration) {
        let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX).max(1);
        let class = (nanos.ilog2() as usize).min(CLASSES - 1);
        worker.account().passed(&WAITS);
        // Relaxed: counted for people. Site: "waits for commit LSNs".
        self.by_length[class].fetch_add(1, Ordering::Relaxed);
        // Site: "waits for commit LSNs".
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        // Site: "waits for commit LSNs".
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Returns the waits so far.
    pub(crate) fn read(&self) -> CommitLsnWaits {
        let nanos = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
        let by_length: [u64; CLASSES] =
            std::array::from_fn(|class| self.by_length[class].load(Ordering::Relaxed));
        CommitLsnWaits {
            count: by_length.iter().sum(),
            waited: nanos(&self.nanos),
            longest: nanos(&self.longest),
            by_length,
        }
    }
}

impl CommitLsnWaits {
    /// Returns a bound that a share of `reads` reads did not exceed; those that did not wait count
    /// as zero. It is at most twice the exact quantile.
    ///
    /// ```
    /// use foxton::CommitLsnWaits;
    /// use std::time::Duration;
    ///
    /// let waits = CommitLsnWaits::default();
    /// assert_eq!(waits.quantile(0.9999, 1_000_000), Duration::ZERO);
    /// ```
    pub fn quantile(&self, share: f64, reads: u64) -> Duration {
        let mut beyond = ((1.0 - share) * reads as f64) as u64;
        for (class, &count) in self.by_length.iter().enumerate().rev() {
            if count > beyond {
                let bound = match class + 1 < CLASSES {
                    true => Duration::from_nanos(2 << class),
                    false => Duration::MAX,
                };
                return bound.min(self.longest);
            }
            beyond -= count;
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use foxton_sync::worker::Workers;

    use super::*;

    #[test]
    fn a_quantile_is_over_all_reads_and_not_over_those_that_waited() {
        let (worker, counters) = (Workers::new().worker(), WaitCounters::default());
        let micros = Duration::from_micros;
        (0..9).for_each(|_| counters.record(&worker, micros(10)));
        counters.record(&worker, micros(3_000));
        let waits = counters.read();
        assert_eq!((waits.count, waits.longest), (10, micros(3_000)));
        assert_eq!(waits.waited, micros(3_090));
        // One of a thousand is the long one, and ten of a thousand waited at all.
        assert_eq!(waits.quantile(1.0, 1_000), micros(3_000));
        let most = waits.quantile(0.998, 1_000);
        assert!(most >= micros(10) && most < micros(20), "{most:?}");
        assert_eq!(waits.quantile(0.98, 1_000), Duration::ZERO);
        counters.record(&worker, Duration::from_secs(100));
        assert_eq!(counters.read().quantile(1.0, 10), Duration::from_secs(100));
    }
}
