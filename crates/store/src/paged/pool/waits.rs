//! Operations on trees, and their waits.
//!
//! Each worker counts for itself, so no line is shared: once when an operation ends, and twice for
//! a wait, at its beginning and at its end. The difference is the number of those that wait now.

use foxton_sync::counter::WorkerCounters;
use foxton_sync::worker::Worker;

/// Reason of a wait, beside a page cleaner that has fallen behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(in crate::paged) enum WaitReason {
    /// Pages that are not in memory.
    Pages,
    /// The latch of a page.
    Latch,
    /// Space in the page file or in the log.
    Space,
    /// Frames for pages that are in memory or new, so that they stay. It is no miss.
    Frames,
}

/// Number of reasons.
const REASONS: usize = 4;
/// Counter of operations that ended, behind those of waits that began and that ended.
const LOOKUPS: usize = 2 * REASONS;

/// Number of threads that wait now, by what they wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageWaiters {
    /// For pages that are not in memory, or for frames.
    pub pages: u64,
    /// For the latch of a page.
    pub latches: u64,
    /// For space in the page file or in the log.
    pub space: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct TreeCounters(WorkerCounters<{ LOOKUPS + 1 }>);

impl TreeCounters {
    /// Counts an operation that ended.
    #[inline]
    pub(super) fn count_lookup(&self, worker: &Worker) {
        self.0.add(worker, LOOKUPS, 1);
    }

    /// Number of operations that ended.
    pub(super) fn lookups(&self) -> u64 {
        self.0.sum(LOOKUPS)
    }

    /// Number of waits for pages that have ended, or last.
    pub(super) fn page_waits(&self) -> u64 {
        self.0.sum(WaitReason::Pages as usize)
    }

    /// Counts a wait, until the result is dropped.
    pub(super) fn wait<'c>(&'c self, worker: &'c Worker, reason: WaitReason) -> CountedWait<'c> {
        self.0.add(worker, reason as usize, 1);
        CountedWait {
            counters: self,
            worker,
            reason,
        }
    }

    pub(super) fn waiters(&self) -> PageWaiters {
        let now = |reason: WaitReason| {
            // Those that ended are read first, so they are no more than those that began.
            let ended = self.0.sum(REASONS + reason as usize);
            self.0.sum(reason as usize).saturating_sub(ended)
        };
        PageWaiters {
            pages: now(WaitReason::Pages) + now(WaitReason::Frames),
            latches: now(WaitReason::Latch),
            space: now(WaitReason::Space),
        }
    }
}

/// A wait that lasts.
#[derive(Debug)]
#[must_use = "a wait lasts until this is dropped"]
pub(in crate::paged) struct CountedWait<'c> {
    counters: &'c TreeCounters,
    worker: &'c Worker,
    reason: WaitReason,
}

impl Drop for CountedWait<'_> {
    fn drop(&mut self) {
        let counters = &self.counters.0;
        counters.add(self.worker, REASONS + self.reason as usize, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxton_sync::worker::Workers;

    #[test]
    fn a_wait_counts_until_it_ends_and_only_waits_for_pages_are_misses() {
        let workers = Workers::new();
        let (one, other) = (workers.worker(), workers.worker());
        let counters = TreeCounters::default();
        let pages = counters.wait(&one, WaitReason::Pages);
        let latch = counters.wait(&other, WaitReason::Latch);
        let expected = PageWaiters {
            pages: 1,
            latches: 1,
            space: 0,
        };
        assert_eq!(counters.waiters(), expected);
        drop((pages, latch));
        drop(counters.wait(&other, WaitReason::Space));
        drop(counters.wait(&other, WaitReason::Frames));
        counters.count_lookup(&one);
        counters.count_lookup(&other);
        assert_eq!(counters.waiters(), PageWaiters::default());
        assert_eq!((counters.lookups(), counters.page_waits()), (2, 1));
    }
}
