//! Consolidated buffer: one latch around allocate and copy, for all threads that wait at once.
//!
//! A thread that finds the latch held joins a group. The first member waits for the latch, and
//! meanwhile others join. Then it allocates once for all members, and they copy side by side. The
//! first member holds the latch until the last one is done.
//!
//! # State
//!
//! An [allocator](super::latched_allocator) behind a latch of the kind in the options;
//! the [`Groups`](foxton_sync::consolidation::Groups); a ring with delegated completion, because
//! members of a group finish in any order.
//!
//! # Invariants
//!
//! * I1  A group is closed by its first member, which holds the latch until all have copied. So at
//!   most one thread or one group copies at any time.
//!
//! # Orderings
//!
//! None of its own. The latch orders allocations, the group (O1) orders members behind the first
//! one, the ring (O1, O2) orders inserters and drainer. The first member stores the front under the
//! latch (O4 of the ring), after what the others did before they joined (O3 of the group).

use foxton_sync::consolidation::{GroupShare, Groups, RefusalReason};
use foxton_sync::latch::Kind;
use foxton_sync::ring::{Bypass, Ring, RingAllocator};
use foxton_sync::shim::Arc;
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use super::latched_allocator::{AllocatorState, LatchedAllocator};
use super::{InsertOutcome, InsertStrategy, PendingRecord, RecordWriter};
use crate::format::error::LogError;
use crate::format::lsn::Lsn;

static SITE: Site = Site::new(
    Component::Log,
    Pattern::Cooperative,
    "log buffer, consolidated",
);
static GROUP: Site = Site::new(
    Component::Log,
    Pattern::Cooperative,
    "log buffer, group at the latch",
);

/// Slots for groups: one copies, one waits for the latch, the others are for the moments between.
const SLOTS: usize = 4;
/// Reasons why a group allocated nothing: there was no space; the log refused it.
pub(super) const FULL: RefusalReason = 0;
pub(super) const REFUSED: RefusalReason = 1;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Consolidated {
    allocator: LatchedAllocator,
    groups: Groups,
}

impl Consolidated {
    pub(super) fn new(kind: Kind, allocator: RingAllocator, ring: Arc<Ring>) -> Self {
        Consolidated {
            allocator: LatchedAllocator::new(kind, &SITE, allocator),
            groups: Groups::new(ring, SLOTS),
        }
    }

    /// Allocates for the whole group, and copies beside the other members while it holds the latch.
    fn lead(
        &self,
        worker: &Worker,
        state: &mut AllocatorState,
        share: &mut GroupShare<'_>,
        writer: &RecordWriter,
        record: &PendingRecord<'_>,
    ) -> InsertOutcome {
        let group = share.close().expect("only the first closes a group");
        match state.allocate(&writer.ring, group.length(), group.shares()) {
            Ok(reservation) => group.publish(Ok(reservation)),
            Err(outcome) => {
                group.publish(Err(reason(&outcome)));
                // The first member knows more than a number.
                let _ = share.take_part();
                return outcome;
            }
        }
        let outcome = self.copy(worker, share, writer, record);
        share.wait_for_others();
        outcome
    }

    /// Waits for this member's part of the group's allocation and fills it. A member whose group
    /// was deserted finds no space, and tries again.
    fn copy(
        &self,
        worker: &Worker,
        share: &mut GroupShare<'_>,
        writer: &RecordWriter,
        record: &PendingRecord<'_>,
    ) -> InsertOutcome {
        match share.take_part() {
            Ok(reservation) => writer.fill(worker, reservation, record),
            // The first member has the latch for a moment only: it waits for no refused member.
            Err(REFUSED) => InsertOutcome::Refused(self.allocator.refusal(worker)),
            Err(_) => InsertOutcome::Full,
        }
    }
}

/// Returns the reason that the members of a group get.
fn reason(outcome: &InsertOutcome) -> RefusalReason {
    match outcome {
        InsertOutcome::Refused(_) => REFUSED,
        _ => FULL,
    }
}

impl InsertStrategy for Consolidated {
    fn insert(
        &self,
        worker: &Worker,
        writer: &RecordWriter,
        record: &PendingRecord<'_>,
    ) -> InsertOutcome {
        let alone =
            |state: &mut AllocatorState| match state.allocate(&writer.ring, record.framed, 1) {
                Ok(reservation) => writer.fill(worker, reservation, record),
                Err(outcome) => outcome,
            };
        if let Some(outcome) = self.allocator.try_with(worker, alone) {
            return outcome;
        }
        worker.record_contention();
        worker.account().passed(&GROUP);
        let Some(mut share) = self.groups.join(0, record.framed) else {
            return self.allocator.with(worker, alone);
        };
        if share.is_first() {
            self.allocator.with(worker, |state| {
                self.lead(worker, state, &mut share, writer, record)
            })
        } else {
            self.copy(worker, &mut share, writer, record)
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
