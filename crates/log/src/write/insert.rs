//! Inserting: a record goes into the buffer, and its thread makes space if there is none.
//!
//! A record that is too large for the buffer is written from the caller's memory instead, by its
//! own thread.
//!
//! # Invariants
//!
//! Those of [`group_commit`](super::group_commit): I4 and I6 are kept here.
//!
//! # Why no thread waits for ever for space
//!
//! A thread that finds no space tries to acquire the writer lock and makes space itself. If the
//! lock is taken, it enters the list of `space`, tries again, requests space from the flusher, and
//! then sleeps. The flusher serves the request later than that. It reserves space if it can,
//! releases the lock, and wakes a few threads of the list, whether or not it succeeded. A woken
//! thread tries by itself, and gets the error if there is one. Whether it inserts or gives up, it
//! wakes one more. A thread that lacks memory of the buffer requests a write, too, which wakes it
//! as well.
//!
//! # A caller that panics
//!
//! The function that is called with the end of a record belongs to the caller, and may panic. The
//! record is reserved then and will never be complete, so the log fails as after a write that
//! failed. Its error says that a thread panicked.
//!
//! # Orderings
//!
//! None: mutexes and the buffer order everything here.

use std::mem;

use foxton_sync::worker::Worker;

use super::group_commit::{LogCore, WriteState, panicked};
use crate::buffer::{InsertOutcome, PendingRecord};
use crate::device::FailureKind;
use crate::failpoint;
use crate::format::error::{Failure, LogError};
use crate::format::lsn::Lsn;
use crate::write::segment_writer::SegmentWriter;
use crate::write::waiters::Milestone;

/// Ends the log if the caller's code panics before its record is complete.
pub(super) struct PanicGuard<'a> {
    pub(super) core: &'a LogCore,
    pub(super) worker: &'a Worker,
}

impl Drop for PanicGuard<'_> {
    #[cold]
    fn drop(&mut self) {
        self.core.fail(self.worker, panicked());
    }
}

impl LogCore {
    /// Inserts the record; waits for space in the buffer if there is none.
    pub(crate) fn insert(
        &self,
        worker: &Worker,
        record: &PendingRecord<'_>,
    ) -> Result<Lsn, LogError> {
        self.pass_failpoint(worker, &failpoint::INSERT)?;
        if !self.buffer.fits(record.framed) {
            return self.insert_large(worker, record);
        }
        match self.buffer.insert(worker, record) {
            InsertOutcome::Done { begin, end } => Ok(self.inserted(worker, begin, end)),
            InsertOutcome::Full => self.insert_after_waiting(worker, record),
            InsertOutcome::Refused(error) => Err(error),
        }
    }

    /// Inserts the record, unless there is no space in the buffer.
    pub(crate) fn insert_with(
        &self,
        worker: &Worker,
        record: &PendingRecord<'_>,
    ) -> Result<Option<Lsn>, LogError> {
        self.pass_failpoint(worker, &failpoint::INSERT)?;
        let guard = PanicGuard { core: self, worker };
        let inserted = self.insert_at_once(worker, record);
        mem::forget(guard);
        inserted
    }

    /// Inserts the record; `None` if there is no space in the buffer.
    #[inline(always)]
    fn insert_at_once(
        &self,
        worker: &Worker,
        record: &PendingRecord<'_>,
    ) -> Result<Option<Lsn>, LogError> {
        if !self.buffer.fits(record.framed) {
            return self.insert_large(worker, record).map(Some);
        }
        match self.buffer.insert(worker, record) {
            InsertOutcome::Done { begin, end } => Ok(Some(self.inserted(worker, begin, end))),
            InsertOutcome::Full => Ok(None),
            InsertOutcome::Refused(error) => Err(error),
        }
    }

    #[inline(always)]
    fn inserted(&self, worker: &Worker, begin: Lsn, end: Lsn) -> Lsn {
        if self.buffer.is_due(begin, end) {
            self.request(worker, Milestone::Written, end);
        }
        end
    }

    #[cold]
    fn insert_after_waiting(
        &self,
        worker: &Worker,
        record: &PendingRecord<'_>,
    ) -> Result<Lsn, LogError> {
        let mut was_woken = false;
        let result = loop {
            match self.make_space(worker, record.framed, was_woken) {
                Ok(woken) => was_woken |= woken,
                Err(error) => break Err(error),
            }
            match self.insert_at_once(worker, record) {
                Ok(None) => {}
                Ok(Some(end)) => break Ok(end),
                Err(error) => break Err(error),
            }
        };
        if was_woken {
            self.space.wake_one(worker);
        }
        result
    }

    /// Makes space, or sleeps until another thread has done so. Returns true if it slept in `space`
    /// and was woken.
    pub(super) fn make_space(
        &self,
        worker: &Worker,
        framed: u64,
        was_woken: bool,
    ) -> Result<bool, LogError> {
        if self.try_to_make_space(worker, framed)? {
            return Ok(false);
        }
        let waiters = &self.writer.waiters;
        let is_over = || self.buffer.has_space(framed) || waiters.is_over(worker);
        let Some(waiting) = self.space.enqueue(worker, was_woken, is_over) else {
            return Ok(false);
        };
        // The holder may have released the writer lock before this thread was visible as a waiter.
        match self.try_to_make_space(worker, framed) {
            Ok(false) => {
                self.request(worker, Milestone::Written, self.written().plus(1));
                self.writer.requests.request_space(worker);
                waiting.wait();
                Ok(true)
            }
            other => {
                let was_woken = waiting.cancel();
                if other.is_err() && was_woken {
                    self.space.wake_one(worker);
                }
                other.map(|_| was_woken)
            }
        }
    }

    /// Makes space for a record, unless another thread holds the writer lock.
    fn try_to_make_space(&self, worker: &Worker, framed: u64) -> Result<bool, LogError> {
        let Some(mut state) = self.writer.try_acquire(worker) else {
            return Ok(false);
        };
        if self.buffer.has_space(framed) {
            return Ok(true);
        }
        // The bytes that fill the buffer begin here.
        let upto = state.segments.at().plus(1);
        self.write_up_to(worker, &mut state, upto)?;
        if !self.buffer.has_space(framed) {
            let upto = self.end(worker).plus(framed);
            self.reserve(worker, &mut state, upto)?;
        }
        Ok(true)
    }

    /// Reserves space on the device for records up to `upto`, and lets the buffer accept them (I6).
    fn reserve(&self, worker: &Worker, state: &mut WriteState, upto: Lsn) -> Result<(), LogError> {
        let WriteState { drainer, segments } = state;
        let reserved = segments.reserve(upto);
        // Some of it may be there in spite of an error.
        drainer.set_bound(segments.accepted().bytes());
        reserved.map_err(|failure| self.not_reserved(worker, failure))
    }

    /// Ends the log, unless the device has only no space for now.
    pub(super) fn not_reserved(&self, worker: &Worker, failure: Failure) -> LogError {
        match FailureKind::of(&failure.source) {
            FailureKind::Broken => self.fail(worker, failure),
            FailureKind::Full | FailureKind::NoResources => LogError::NotInserted(failure.into()),
        }
    }

    /// Reserves space before it is needed, and wakes threads that sleep because there is none.
    pub(super) fn make_space_ahead(&self, worker: &Worker) -> Result<(), LogError> {
        let mut state = self.writer.acquire(worker);
        let mut made = self.writer.waiters.check(worker);
        if made.is_ok() && self.is_space_low(&state.segments) {
            let next_record = self.end(worker).plus(self.buffer.part());
            let ahead = state.segments.at().plus(self.low_space(&state.segments));
            made = self.reserve(worker, &mut state, next_record.max(ahead));
        }
        drop(state);
        self.space.wake_some(worker);
        match made {
            // The thread that needs space asks again, and gets the error.
            Err(LogError::NotInserted(_)) => Ok(()),
            made => made,
        }
    }

    /// Number of reserved bytes below which more are reserved, before a thread needs them.
    fn low_space(&self, segments: &SegmentWriter) -> u64 {
        (segments.growth() / 4).min(self.buffer.capacity())
    }

    pub(super) fn is_space_low(&self, segments: &SegmentWriter) -> bool {
        segments.reserved_ahead() < self.low_space(segments)
    }
}
