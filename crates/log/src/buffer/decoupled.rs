//! Decoupled buffer: one latch around allocate; records are copied outside it.
//!
//! The latch is held for a few instructions, however large the record is, and copies overlap. Still
//! records must become complete in the order of the stream: see
//! [`Completion`](foxton_sync::ring::Completion) for the two ways. The page of [`buffer`](super)
//! says which threads a descheduled thread delays.
//!
//! # State
//!
//! An [allocator](super::latched_allocator) behind a latch of the kind in the options,
//! and a ring.
//!
//! # Orderings
//!
//! None of its own. The latch orders allocations, the ring orders inserters and drainer (O1 to O3),
//! and inserters and threads that load the front (O4): it is stored under the latch.
//!
//! # Differences from the document
//!
//! There a thread that would wait for its predecessor delegates its completion to it. Here it
//! delegates to the thread that takes the bytes, by a mark that no other thread writes. So an
//! insert makes one exchange, that of the latch, and there is no queue to walk or to leave.

use foxton_sync::latch::Kind;
use foxton_sync::ring::{Bypass, RingAllocator};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use super::latched_allocator::LatchedAllocator;
use super::{InsertOutcome, InsertStrategy, PendingRecord, RecordWriter};
use crate::format::error::LogError;
use crate::format::lsn::Lsn;

static SITE: Site = Site::new(
    Component::Log,
    Pattern::Unbounded,
    "log buffer, allocation only",
);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Decoupled {
    allocator: LatchedAllocator,
}

impl Decoupled {
    pub(super) fn new(kind: Kind, allocator: RingAllocator) -> Self {
        Decoupled {
            allocator: LatchedAllocator::new(kind, &SITE, allocator),
        }
    }
}

impl InsertStrategy for Decoupled {
    fn insert(
        &self,
        worker: &Worker,
        writer: &RecordWriter,
        record: &PendingRecord<'_>,
    ) -> InsertOutcome {
        let reservation = self.allocator.with(worker, |state| {
            state.allocate(&writer.ring, record.framed, 1)
        });
        match reservation {
            Ok(reservation) => writer.fill(worker, reservation, record),
            Err(outcome) => outcome,
        }
    }

    fn bypass(&self, worker: &Worker, length: u64) -> Result<Bypass, LogError> {
        self.allocator.bypass(worker, length)
    }

    fn refuse(&self, worker: &Worker, error: LogError) {
        self.allocator.refuse(worker, error);
    }

    fn end(&self, worker: &Worker) -> (Lsn, u64) {
        self.allocator.end(worker)
    }
}
