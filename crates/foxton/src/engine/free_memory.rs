//! Free memory, returned to the system in the background after much was freed.
//!
//! Allocators keep what is freed, because programs mostly need it again. That is right for rows
//! that come and go, and wrong after a peak of transactions or when most rows of a table were
//! deleted. Returning memory takes milliseconds, so it is worth while only if much was freed for
//! good.
//!
//! # State
//!
//! The *balance* is the number of bytes by which committed rows have shrunk, less those by which
//! they have grown since; never below 0. Rows that are deleted as fast as others are inserted keep
//! it near 0. Worker contexts report in lots, so a transaction mostly writes nothing shared. At
//! [`RETURNED_BYTES`] a job is scheduled. It looks at the balance once in a [`PERIOD`]. When it
//! finds that nothing changes any more, or has looked [`LOOKS`] times, it returns free memory and
//! sets the balance to 0. It ends when it finds less than [`LEFT_BYTES`].
//!
//! # Orderings
//!
//! * O1  A context adds to the balance and then reads whether a job is scheduled. A job that ends
//!   says so and then reads the balance again. All four are `SeqCst`, so one of them sees the
//!   other, and what was freed meanwhile does not stay.

use std::time::Duration;

use foxton_lock::any::AnyManager;
use foxton_lock::manager::LockManager;
use foxton_sync::memory;
use foxton_sync::shim::{Arc, AtomicBool, AtomicU64, Ordering};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

/// The balance: once for each lot.
pub(crate) static BALANCE: Site = Site::new(Component::Metadata, Pattern::Unbounded, "freed bytes");

/// Bytes that a context collects before it reports them.
pub(crate) const LOT: usize = 64 << 10;
/// Balance at which memory is returned: more than most programs notice.
const RETURNED_BYTES: u64 = 16 << 20;
/// Balance that is left alone after that.
const LEFT_BYTES: u64 = 1 << 20;
/// Time between two looks at the balance.
pub(crate) const PERIOD: Duration = Duration::from_millis(500);
/// Looks after which memory is returned though the balance still changes.
const LOOKS: u32 = 8;
/// Tries to advance the epoch, so that what was retired can be freed.
const COLLECTIONS: usize = 3;

/// See the [module](self).
#[derive(Debug, Clone, Default)]
pub(crate) struct FreedBytes(Arc<FreedBytesInner>);

#[derive(Debug, Default)]
struct FreedBytesInner {
    balance: AtomicU64,
    is_scheduled: AtomicBool,
}

impl FreedBytesInner {
    /// Records that a job is scheduled; returns false if one was.
    fn schedule(&self) -> bool {
        !self.is_scheduled.swap(true, Ordering::SeqCst) // O1
    }
}

impl FreedBytes {
    /// Records that rows have grown by so many bytes, or shrunk. Returns the job if it has to be
    /// scheduled: call it after [`PERIOD`] in the background, and as often as it says.
    pub(crate) fn record(&self, growth: isize, worker: &Worker) -> Option<FreedBytesJob> {
        worker.account().passed(&BALANCE);
        let bytes = growth.unsigned_abs() as u64;
        let inner = &*self.0;
        // Relaxed, except for O1: numbers, which lead to no memory.
        if growth >= 0 {
            let less = |balance: u64| Some(balance.saturating_sub(bytes));
            let _ = (inner.balance).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            return None;
        }
        let balance = inner.balance.fetch_add(bytes, Ordering::SeqCst) + bytes; // O1
        let is_due = balance >= RETURNED_BYTES && inner.schedule();
        is_due.then(|| FreedBytesJob {
            freed: self.clone(),
            seen: 0,
            looks: 0,
        })
    }
}

/// Returns memory when the balance does not change any more.
pub(crate) struct FreedBytesJob {
    freed: FreedBytes,
    /// Balance at the last look.
    seen: u64,
    /// Number of looks since memory was last returned.
    looks: u32,
}

impl FreedBytesJob {
    /// Looks at the balance, and calls `return_free` if it is time. Returns how long to wait until
    /// the next look, if there is one.
    pub(crate) fn look(&mut self, return_free: impl FnOnce()) -> Option<Duration> {
        let inner = &*self.freed.0;
        let balance = inner.balance.load(Ordering::Relaxed);
        if balance < LEFT_BYTES {
            inner.is_scheduled.store(false, Ordering::SeqCst); // O1
            let balance = inner.balance.load(Ordering::SeqCst); // O1
            let goes_on = balance >= RETURNED_BYTES && inner.schedule();
            return goes_on.then_some(PERIOD);
        }
        self.looks += 1;
        if balance == self.seen || self.looks == LOOKS {
            inner.balance.store(0, Ordering::Relaxed);
            (self.seen, self.looks) = (0, 0);
            return_free();
        } else {
            self.seen = balance;
        }
        Some(PERIOD)
    }
}

/// Frees what no thread needs any more, and returns free memory to the system.
pub(crate) fn return_free(locks: &AnyManager, worker: &Worker) {
    for _ in 0..COLLECTIONS {
        worker.collect();
    }
    locks.trim(worker);
    memory::release_free();
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxton_sync::worker::Workers;

    #[test]
    fn memory_is_returned_once_for_many_bytes_that_are_not_used_again() {
        let worker = Workers::new().worker();
        let freed = FreedBytes::default();
        let lot = LOT as isize;
        let lots = RETURNED_BYTES as isize / lot;
        for _ in 0..10 * lots {
            assert!(freed.record(lot, &worker).is_none(), "rows grow");
        }
        for _ in 0..10 * lots {
            assert!(freed.record(-lot, &worker).is_none(), "as many come and go");
            assert!(freed.record(lot, &worker).is_none());
        }
        for _ in 0..2 {
            let mut jobs = (0..lots).filter_map(|_| freed.record(-lot, &worker));
            let mut job = jobs.next().expect("much was freed");
            assert!(jobs.next().is_none(), "scheduled once");
            let (mut looks, mut returns) = (0, 0);
            // More is freed during the first looks.
            while job.look(|| returns += 1).is_some() {
                looks += 1;
                if looks < 20 {
                    assert!(freed.record(-lot * 16, &worker).is_none());
                }
            }
            assert_eq!((looks, returns), (21, 3));
        }
    }
}
