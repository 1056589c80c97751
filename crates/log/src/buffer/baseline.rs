//! One latch around allocate and copy: the traditional log buffer.
//!
//! Inserting holds the latch for as long as it takes to copy the record. That is the cost other
//! designs attack; what can be done before (the checksum of the payload) is done before.
//!
//! # State
//!
//! A [`Turn`](super::latched_allocator::Turn) behind a latch of the kind in the options, and a ring whose places are
//! completed in turn.
//!
//! # Invariants
//!
//! * I1  Who has the latch completes its place before it gives the latch back. So whoever completes has
//!   the turn already and never waits for it, but behind a gap that is not met yet.
//!
//! # Orderings
//!
//! None of its own: the latch orders inserters, the ring (O1, O3) inserters and taker.

use foxton_sync::latch::Kind;
use foxton_sync::ring::{Front, Gap};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use super::latched_allocator::Turns;
use super::{Draft, Insert, Paper, Placed};
use crate::format::error::LogError;
use crate::format::lsn::Lsn;

static SITE: Site = Site::new(Component::Log, Pattern::Unbounded, "log buffer");

/// See the page.
#[derive(Debug)]
pub(super) struct Baseline {
    turns: Turns,
}

impl Baseline {
    pub(super) fn new(kind: Kind, front: Front) -> Self {
        Baseline {
            turns: Turns::new(kind, &SITE, front),
        }
    }
}

impl Insert for Baseline {
    fn insert(&self, worker: &Worker, paper: &Paper, draft: &Draft<'_>) -> Placed {
        self.turns.with(worker, |turn| {
            match turn.allocate(&paper.ring, draft.framed, 1) {
                Ok(place) => paper.fill(worker, place, draft),
                Err(placed) => placed,
            }
        })
    }

    fn reserve(&self, worker: &Worker, length: u64) -> Result<Gap, LogError> {
        self.turns.reserve(worker, length)
    }

    fn refuse(&self, worker: &Worker, error: LogError) {
        self.turns.refuse(worker, error);
    }

    fn end(&self, worker: &Worker) -> (Lsn, u64) {
        self.turns.end(worker)
    }
}
