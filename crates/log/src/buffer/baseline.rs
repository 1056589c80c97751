//! Baseline buffer: one latch around allocate and copy, the traditional log buffer.
//!
//! An insert holds the latch for as long as it takes to copy the record. Other designs avoid that
//! cost. Work that can be done before, the checksum of the payload, is done before.
//!
//! # State
//!
//! An [allocator](super::latched_allocator) behind a latch of the kind in the options,
//! and a ring whose records are completed in turn.
//!
//! # Invariants
//!
//! * I1  The holder of the latch completes its record before it releases the latch. So it is its
//!   turn already, and it never waits, except behind a bypass that is not written yet.
//!
//! # Orderings
//!
//! None of its own. The latch orders inserters, the ring orders inserters and drainer (O1, O3), and
//! inserters and threads that load the front (O4): it is stored under the latch.

use foxton_sync::latch::Kind;
use foxton_sync::ring::{Bypass, RingAllocator};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use super::latched_allocator::LatchedAllocator;
use super::{InsertOutcome, InsertStrategy, PendingRecord, RecordWriter};
use crate::format::error::LogError;
use crate::format::lsn::Lsn;

static SITE: Site = Site::new(Component::Log, Pattern::Unbounded, "log buffer");

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Baseline {
    allocator: LatchedAllocator,
}

impl Baseline {
    pub(super) fn new(kind: Kind, allocator: RingAllocator) -> Self {
        Baseline {
            allocator: LatchedAllocator::new(kind, &SITE, allocator),
        }
    }
}

impl InsertStrategy for Baseline {
    fn insert(
        &self,
        worker: &Worker,
        writer: &RecordWriter,
        record: &PendingRecord<'_>,
    ) -> InsertOutcome {
        self.allocator.with(worker, |state| {
            match state.allocate(&writer.ring, record.framed, 1) {
                Ok(reservation) => writer.fill(worker, reservation, record),
                Err(outcome) => outcome,
            }
        })
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
