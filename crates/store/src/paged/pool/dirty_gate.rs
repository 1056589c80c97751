//! Dirty gate: threads wait while too many pages are dirty.
//!
//! The cleaner writes pages from an eighth of the frames dirty on. If threads make pages dirty
//! faster than it writes them, they wait for it before no frame is left for readers:
//!
//! | dirty frames | wait |
//! |--------------|------|
//! | a half | commits that changed pages, once they hold nothing |
//! | seven eighths | threads that would make one more page dirty, before their first latch |
//!
//! A change of a page that is dirty already does not wait. A rollback waits at neither bound,
//! because it releases locks that others wait for. Readers wait for reads only.
//!
//! # Invariants
//!
//! * I1  A thread that waits here holds no latch. A commit holds nothing. Another thread may hold
//!   the locks of its transaction, and the pages of its reservation: the cleaner writes them as
//!   others.
//! * I2  The cleaner needs nothing that a thread may hold that waits here. It waits for the log and
//!   the device, and skips pages that are latched.
//! * I3  A thread begins to wait only while a cleaner runs, nothing has failed, and its bound is
//!   reached. It checks this under the mutex. The thread that makes pages clean, that records a
//!   failure, or that ends the cleaner, looks for waiters under the mutex afterwards. So with I2
//!   the first waiter is woken.
//! * I4  Waiters are woken in order, as many as pages may become dirty. Each thread that passes the
//!   gate wakes one more while there is room, and the cleaner looks again after each sleep. So the
//!   last waiter is woken too, also if the woken ones make no page dirty.
//!
//! # Orderings
//!
//! None: the number of dirty pages and the numbers of waiters are hints, which are checked again
//! under the mutex.

use foxton_sync::park::WAKING;
use foxton_sync::shim::Ordering::Relaxed;
use foxton_sync::worker::Worker;

use super::{BufferPool, FREE_FRAMES, PoolError};
use crate::paged::dirty_waits::{DirtyBound, DirtyWait};

impl BufferPool {
    /// True if a change that makes a page dirty need not wait. `is_dirty`: its page is dirty
    /// already. Never waits.
    #[inline]
    pub(in crate::paged) fn admits_change(&self, worker: &Worker, is_dirty: bool) -> bool {
        // Also a change of a dirty page wakes a waiter (I4).
        let is_due = !is_dirty || self.dirty_gate.has_waiters(DirtyBound::Change);
        !is_due || self.admits(worker, DirtyBound::Change) || is_dirty
    }

    /// True if fewer pages are dirty than `bound` says. Wakes a waiter then (I4).
    fn admits(&self, worker: &Worker, bound: DirtyBound) -> bool {
        let room = self.room(bound);
        if room > 0 && self.dirty_gate.has_waiters(bound) {
            self.wake_dirty_waiters(worker, bound, 1);
        }
        room > 0 || !self.dirty_gate.has_cleaner.load(Relaxed)
    }

    /// Number of pages that may become dirty.
    fn room(&self, bound: DirtyBound) -> usize {
        bound
            .pages(self.frame_limit())
            .saturating_sub(self.dirty_count())
    }

    /// Begins to wait until fewer pages are dirty than `bound` says. `None`: there is nothing to
    /// wait for. The caller holds no latch (I1).
    pub fn wait_for_clean(&self, worker: &Worker, bound: DirtyBound) -> Option<DirtyWait> {
        if self.admits(worker, bound) {
            return None;
        }
        worker.account().passed(&FREE_FRAMES);
        let wait = self.dirty_gate.enqueue(bound, || {
            self.room(bound) == 0
                && self.dirty_gate.has_cleaner.load(Relaxed)
                && self.failure().is_none()
        })?;
        worker.account().passed(&WAKING);
        self.cleaner_wakeup.notify();
        Some(wait)
    }

    /// Waits until a page may become dirty; the thread sleeps.
    ///
    /// # Errors
    ///
    /// If nothing is written any more.
    pub(in crate::paged) fn await_clean(&self, worker: &Worker) -> Result<(), PoolError> {
        if let Some(wait) = self.wait_for_clean(worker, DirtyBound::Change) {
            wait.wait();
        }
        self.failure().map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Wakes as many waiters as pages may become dirty; all of them after a failure, or once no
    /// cleaner runs.
    pub(super) fn serve_dirty_waiters(&self, worker: &Worker) {
        for bound in DirtyBound::ALL {
            let ends = !self.dirty_gate.has_cleaner.load(Relaxed) || self.failure().is_some();
            let most = if ends { usize::MAX } else { self.room(bound) };
            self.wake_dirty_waiters(worker, bound, most);
        }
    }

    fn wake_dirty_waiters(&self, worker: &Worker, bound: DirtyBound, most: usize) {
        worker.account().passed(&FREE_FRAMES);
        let wakes = || worker.account().passed(&WAKING);
        self.dirty_gate.wake(bound, most, wakes);
    }

    /// Records that a cleaner runs, or that none does any more.
    pub(in crate::paged) fn set_cleaner(&self, worker: &Worker, runs: bool) {
        self.dirty_gate.has_cleaner.store(runs, Relaxed);
        self.serve_dirty_waiters(worker);
    }
}
