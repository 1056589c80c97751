//! Latched allocator: the front of the ring behind one latch, for the buffers that have a latch.
//!
//! # Invariants
//!
//! * I1  Only the holder of the latch allocates, so records follow each other and none is counted
//!   twice.

use foxton_sync::latch::{Kind, Latched};
use foxton_sync::ring::{Bypass, Reservation, Ring, RingAllocator};
use foxton_sync::site::Site;
use foxton_sync::worker::Worker;

use super::InsertOutcome;
use crate::format::error::LogError;
use crate::format::lsn::Lsn;

/// State behind the latch.
#[derive(Debug)]
pub(super) struct Allocator {
    front: RingAllocator,
    records: u64,
    refusal: Option<LogError>,
}

impl Allocator {
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
        let place = self
            .front
            .reserve(ring, length)
            .ok_or(InsertOutcome::Full)?;
        self.records += records;
        Ok(place)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct LatchedAllocator(Latched<Allocator>);

impl LatchedAllocator {
    pub(super) fn new(kind: Kind, site: &'static Site, front: RingAllocator) -> Self {
        let turn = Allocator {
            front,
            records: 0,
            refusal: None,
        };
        LatchedAllocator(Latched::new(kind, site, turn))
    }

    #[inline]
    pub(super) fn with<R>(&self, worker: &Worker, body: impl FnOnce(&mut Allocator) -> R) -> R {
        self.0.with(worker, body)
    }

    #[inline]
    pub(super) fn try_with<R>(
        &self,
        worker: &Worker,
        body: impl FnOnce(&mut Allocator) -> R,
    ) -> Option<R> {
        self.0.try_with(worker, body)
    }

    pub(super) fn reserve(&self, worker: &Worker, length: u64) -> Result<Bypass, LogError> {
        self.0.with(worker, |allocator| {
            if let Some(refusal) = &allocator.refusal {
                return Err(refusal.clone());
            }
            allocator.records += 1;
            Ok(allocator.front.skip(length))
        })
    }

    pub(super) fn refuse(&self, worker: &Worker, error: LogError) {
        self.0.with(worker, |allocator| {
            keep_first_failure(&mut allocator.refusal, error)
        });
    }

    pub(super) fn end(&self, worker: &Worker) -> (Lsn, u64) {
        self.0.with(worker, |allocator| {
            (Lsn::new(allocator.front.next()), allocator.records)
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
