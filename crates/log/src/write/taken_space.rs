//! Taken space: bytes of the buffer for records that threads are about to insert.
//!
//! A thread that must not wait while it inserts takes the space of its record before. The bytes
//! that are taken are counted, and no more are taken than fit the buffer together with what it
//! holds. The number binds only those that take space: an insert without taken space does not look
//! at it, so that it costs such inserts nothing. It may therefore use up what others have taken,
//! and their inserts wait.
//!
//! # Invariants
//!
//! * I1  The number is the sum of what threads have taken and not given back.
//! * I2  When a thread takes bytes, they and all that were taken before fit behind the end of the
//!   log at some moment after that. The end only grows, and bytes are counted until after their
//!   insert. So if all threads took their space, no insert would wait.
//! * I3  A thread that waits writes the buffer out, or another thread does so for it. So it waits
//!   for a device only, and not for threads that have taken space: those may be descheduled.
//!
//! # Orderings
//!
//! None: the number leads to no memory.

use foxton_sync::shim::Ordering::Relaxed;
use foxton_sync::worker::Worker;

use super::group_commit::LogCore;
use crate::format::error::LogError;

impl LogCore {
    /// See [`Log::try_take_space`](crate::Log::try_take_space).
    pub(crate) fn try_take_space(&self, bytes: u64) -> bool {
        // Site: "log buffer", passed by the insert that follows.
        let before = self.taken.fetch_add(bytes, Relaxed);
        let fits = !self.buffer.fits(bytes) || self.buffer.has_space(before + bytes);
        if !fits {
            self.give_back_space(bytes);
        }
        fits
    }

    /// See [`Log::give_back_space`](crate::Log::give_back_space).
    pub(crate) fn give_back_space(&self, bytes: u64) {
        // Site: "log buffer", passed by the insert before.
        let before = self.taken.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "space is given back once"); // I1
    }

    /// See [`Log::wait_for_space`](crate::Log::wait_for_space).
    pub(crate) fn wait_for_space(&self, worker: &Worker, bytes: u64) -> Result<(), LogError> {
        // A committer comes by here for each record, so that the usual case is three loads.
        if self.buffer.is_refusing() {
            return self.refusal(worker);
        }
        if !self.buffer.fits(bytes) {
            return Ok(());
        }
        // More than half of the buffer may never be free at one moment (I3).
        let most = (self.buffer.capacity() / 2).max(bytes);
        let wanted = (self.taken.load(Relaxed) + bytes).min(most);
        let mut was_woken = false;
        let result = loop {
            if self.buffer.has_space(wanted) {
                break Ok(());
            }
            match self.make_space(worker, wanted, was_woken) {
                Ok(woken) => was_woken |= woken,
                Err(error) => break Err(error),
            }
            if self.buffer.is_refusing() {
                break self.refusal(worker);
            }
        };
        if was_woken {
            self.space.wake_one(worker);
        }
        result
    }

    /// Returns the error of a log that refuses inserts.
    #[cold]
    fn refusal(&self, worker: &Worker) -> Result<(), LogError> {
        let failure = self.writer.waiters.check(worker);
        failure.and(Err(LogError::Closed))
    }
}
