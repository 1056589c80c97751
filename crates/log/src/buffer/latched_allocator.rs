//! Latched allocator: the allocator of the ring behind one latch, for the buffers that have a
//! latch.
//!
//! # Invariants
//!
//! * I1  Only the holder of the latch allocates, so records follow each other and none is counted
//!   twice.
//!
//! # Orderings
//!
//! None of its own. The front of the ring is stored under the latch (O4 of the ring). A thread that
//! finds it behind a record sees what the holder of the latch saw when it allocated: what the
//! inserter did before and, by the latch, what all earlier inserters did.

use foxton_sync::latch::{Kind, Latched};
use foxton_sync::ring::{Bypass, Reservation, Ring, RingAllocator};
use foxton_sync::site::Site;
use foxton_sync::worker::Worker;

use super::InsertOutcome;
use crate::format::error::LogError;
use crate::format::lsn::Lsn;

/// State behind the latch.
#[derive(Debug)]
pub(super) struct AllocatorState {
    allocator: RingAllocator,
    records: u64,
    refusal: Option<LogError>,
}

impl AllocatorState {
    /// Allocates `records` records of `length` bytes together, or returns why not.
    #[inline]
    pub(super) fn allocate<'r>(
        &mut self,
        ring: &'r Ring,
        length: u64,
        records: u64,
    ) -> Result<Reservation<'r>, InsertOutcome> {
        if let Some(refusal) = &self.refusal {
            return Err(InsertOutcome::Refused(refusal.clone()));
        }
        let reservation = self
            .allocator
            .reserve(ring, length)
            .ok_or(InsertOutcome::Full)?;
        self.records += records;
        Ok(reservation)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct LatchedAllocator(Latched<AllocatorState>);

impl LatchedAllocator {
    pub(super) fn new(kind: Kind, site: &'static Site, allocator: RingAllocator) -> Self {
        let state = AllocatorState {
            allocator,
            records: 0,
            refusal: None,
        };
        LatchedAllocator(Latched::new(kind, site, state))
    }

    #[inline]
    pub(super) fn with<R>(
        &self,
        worker: &Worker,
        body: impl FnOnce(&mut AllocatorState) -> R,
    ) -> R {
        self.0.with(worker, body)
    }

    #[inline]
    pub(super) fn try_with<R>(
        &self,
        worker: &Worker,
        body: impl FnOnce(&mut AllocatorState) -> R,
    ) -> Option<R> {
        self.0.try_with(worker, body)
    }

    pub(super) fn bypass(&self, worker: &Worker, length: u64) -> Result<Bypass, LogError> {
        self.0.with(worker, |state| {
            if let Some(refusal) = &state.refusal {
                return Err(refusal.clone());
            }
            state.records += 1;
            Ok(state.allocator.skip(length))
        })
    }

    pub(super) fn refuse(&self, worker: &Worker, error: LogError) {
        self.0.with(worker, |state| {
            keep_first_failure(&mut state.refusal, error)
        });
    }

    /// Returns the error with which a group was refused.
    #[cold]
    pub(super) fn refusal(&self, worker: &Worker) -> LogError {
        let refusal = self.0.with(worker, |state| state.refusal.clone());
        refusal.expect("a refusal stays")
    }

    pub(super) fn end(&self, worker: &Worker) -> (Lsn, u64) {
        self.0.with(worker, |state| {
            (Lsn::new(state.allocator.next()), state.records)
        })
    }
}

/// Stores a refusal: a failure stays, and replaces an earlier `Closed`.
pub(super) fn keep_first_failure(refusal: &mut Option<LogError>, error: LogError) {
    match refusal {
        Some(LogError::Failed(_)) => {}
        _ => *refusal = Some(error),
    }
}
