//! Eviction: frames of clean pages become free.

use foxton_log::Lsn;
use foxton_sync::shim::Ordering;
use foxton_sync::worker::Worker;
use smallvec::smallvec;

use super::{BufferPool, PAGE_TRANSLATION};
use crate::paged::PageId;
use crate::paged::frame::{Frame, PAGE_LATCH};

/// Candidates that a thread tries one after the other.
const MOST_CANDIDATES: usize = 512;

/// Result of an attempt to evict the page of a frame.
pub(super) enum EvictOutcome {
    /// The thread owns the frame now.
    Evicted(PageId, Lsn),
    /// The page is dirty, fixed or latched.
    InUse,
}

impl BufferPool {
    /// Evicts a page that is clean and not in use. Returns its frame, which the caller owns.
    pub(super) fn evict_one(&self, worker: &Worker) -> Option<usize> {
        // In a small pool each frame is a candidate about twice, if none can be evicted. In a large
        // one the next call goes on where this ends.
        for _ in 0..MOST_CANDIDATES.min(2 * self.frames.len()) {
            let candidate = self.replacement(worker, |replacement| {
                replacement.candidate(&self.frames[..])
            })?;
            let index = candidate.frame();
            match self.try_evict(worker, index) {
                EvictOutcome::Evicted(page, lsn) => {
                    self.replacement(worker, |replacement| {
                        replacement.evicted(candidate, page, lsn);
                    });
                    self.evictions.fetch_add(1, Ordering::Relaxed);
                    return Some(index);
                }
                EvictOutcome::InUse => {
                    self.replacement(worker, |replacement| replacement.retain(candidate));
                }
            }
        }
        None
    }

    /// Evicts all pages that are clean and not in use.
    #[cfg(test)]
    pub(in crate::paged) fn evict_all(&self, worker: &Worker) {
        while let Some(frame) = self.evict_one(worker) {
            self.free_frames(worker).give(&mut smallvec![frame]);
        }
    }

    pub(super) fn try_evict(&self, worker: &Worker, index: usize) -> EvictOutcome {
        let frame: &Frame = &self.frames[index];
        if frame.is_dirty() || frame.fixes() > 0 {
            return EvictOutcome::InUse;
        }
        worker.account().passed(&PAGE_LATCH);
        // Site: "page latch".
        if !frame.latch().try_lock() {
            return EvictOutcome::InUse;
        }
        // Another thread may have emptied the frame, and even filled it again, since it became a
        // candidate. The page that is evicted is the one that is found now.
        let Some(page) = frame.page() else {
            frame.latch().unlock_unchanged(&self.latch_waiters);
            return EvictOutcome::InUse;
        };
        let lsn = frame.read().lsn();
        worker.account().passed(&PAGE_TRANSLATION);
        let home = self.table.latch_home(page);
        let evicted = frame.begin_evict();
        if evicted {
            home.remove(index);
        }
        drop(home);
        match evicted {
            true => {
                frame.latch().unlock(&self.latch_waiters);
                EvictOutcome::Evicted(page, lsn)
            }
            false => {
                frame.latch().unlock_unchanged(&self.latch_waiters);
                EvictOutcome::InUse
            }
        }
    }

    /// Evicts pages until the threads that wait for frames have them, or no page can be evicted.
    pub(super) fn serve_waiters(&self, worker: &Worker) {
        while self.free_frames(worker).shortage() > 0 {
            let Some(frame) = self.evict_one(worker) else {
                self.cleaner_wakeup.notify();
                return;
            };
            self.free_frames(worker).give(&mut smallvec![frame]);
        }
    }

    /// Evicts pages until as many frames are free as [`reserve_target`](Self::reserve_target) says,
    /// and waiting threads have theirs. Empties the frames beyond the limit. Returns the number of
    /// the other pages that were evicted.
    pub fn provide_frames(&self, worker: &Worker) -> usize {
        self.empty_surplus(worker);
        let mut count = 0;
        while self.free.count() < self.reserve_target() || self.free.shortage() > 0 {
            let Some(frame) = self.evict_one(worker) else {
                self.cleaner_wakeup.notify();
                break;
            };
            count += 1;
            self.free_frames(worker).give(&mut smallvec![frame]);
        }
        count
    }
}
