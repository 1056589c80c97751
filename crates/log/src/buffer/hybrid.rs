//! Hybrid buffer: allocation by one word, and by groups where it is contended; copied outside.
//!
//! A thread allocates by one compare-and-exchange, so a descheduled thread delays no other
//! inserter. If that fails because other threads were faster, the thread joins a group, and one
//! member allocates for all. So the more threads insert, the less often each of them exchanges the
//! word. Two threads that are far from each other's caches take turns instead (`contention`).
//!
//! # State
//!
//! * the [`SharedAllocator`](foxton_sync::ring::SharedAllocator) of a ring, whose front is the
//!   word;
//! * the groups;
//! * `turn_taking`: what inserters have measured about each other (`contention`);
//! * `group_allocating`, a hint: whether some group is allocating. As long as it is set, the first
//!   member of a group keeps its group open, for a bounded time, because more members may join.
//!
//! # Invariants
//!
//! * I1  `group_allocating` affects nothing but how large groups become.
//! * I2  A group is closed by its first member or, if that takes too long, by any other member.
//!   Between closing and publishing there is one exchange, and nothing to wait for.
//! * I3  The refusal is stored before the allocator is closed, so a thread that finds the allocator
//!   closed finds the refusal.
//!
//! # Orderings
//!
//! None of its own. The word gives out numbers, the group (O1) orders members behind the member
//! that allocated, the ring (O1 to O3) orders inserters and drainer, a mutex orders the refusal.
//! Exchanging the word (O4 of the ring) orders inserters and threads that load the front. In a
//! group, joining and closing (O3 of the group) lie before the exchange.
//!
//! # Differences from the document
//!
//! There the hybrid has a latch around allocation, and a thread delegates its completion to its
//! predecessor. Here the latch has shrunk to the word, so no thread can be descheduled while it
//! holds it. Completion is as in [`decoupled`](super::decoupled).

use foxton_sync::backoff::Backoff;
use foxton_sync::cache_line::CachePadded;
use foxton_sync::consolidation::{GroupShare, Groups};
use foxton_sync::counter::WorkerCounters;
use foxton_sync::ring::{
    AllocationRefused, Bypass, Reservation, Ring, RingAllocator, SharedAllocator,
};
use foxton_sync::shim::{Arc, AtomicBool, Mutex, Ordering::Relaxed, lock};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use super::consolidated::{FULL, REFUSED};
use super::contention::{Advice, TurnTaking};
use super::latched_allocator::keep_first_failure;
use super::{InsertOutcome, InsertStrategy, PendingRecord, RecordWriter};
use crate::format::error::LogError;
use crate::format::lsn::Lsn;

static SITE: Site = Site::new(Component::Log, Pattern::Cooperative, "log buffer, one word");
static GROUP: Site = Site::new(
    Component::Log,
    Pattern::Cooperative,
    "log buffer, group at the word",
);

/// Number of attempts that a thread makes alone.
const ATTEMPTS: u32 = 4;
/// Slots for groups.
const SLOTS: usize = 8;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Hybrid {
    allocator: SharedAllocator,
    groups: Groups,
    group_allocating: CachePadded<AtomicBool>,
    turn_taking: TurnTaking,
    refusal: Mutex<Option<LogError>>,
    records: WorkerCounters<1>,
}

impl Hybrid {
    pub(super) fn new(allocator: RingAllocator, ring: Arc<Ring>) -> Self {
        Hybrid {
            allocator: allocator.into(),
            groups: Groups::new(ring, SLOTS),
            group_allocating: CachePadded::new(AtomicBool::new(false)),
            turn_taking: TurnTaking::default(),
            refusal: Mutex::new(None),
            records: WorkerCounters::new(),
        }
    }

    /// Allocates for a thread that failed once, or that has to wait for its turn.
    #[cold]
    #[inline(never)]
    fn allocate_contended(
        &self,
        worker: &Worker,
        length: u64,
    ) -> Result<Reservation<'_>, AllocationRefused> {
        let reservation = match self.turn_taking.wait(worker, &self.allocator, length) {
            Advice::Alone => self.allocator.reserve(length, ATTEMPTS),
            Advice::Group => Err(AllocationRefused::Contended),
        };
        match reservation {
            Err(AllocationRefused::Contended) => self.allocate_in_group(worker, length),
            reservation => reservation,
        }
    }

    #[inline]
    fn fill(
        &self,
        worker: &Worker,
        writer: &RecordWriter,
        reservation: Reservation<'_>,
        record: &PendingRecord<'_>,
    ) -> InsertOutcome {
        self.records.add(worker, 0, 1);
        writer.fill(worker, reservation, record)
    }

    fn allocate_in_group(
        &self,
        worker: &Worker,
        length: u64,
    ) -> Result<Reservation<'_>, AllocationRefused> {
        worker.record_contention();
        worker.account().passed(&GROUP);
        let from = worker.id() as usize;
        let Some(share) = self.groups.join(from, length) else {
            return self.allocator.reserve(length, u32::MAX);
        };
        self.allocate_for_group(&share);
        share.wait().map_err(|reason| match reason {
            REFUSED => AllocationRefused::Closed,
            _ => AllocationRefused::Full,
        })
    }

    /// Ensures that some member allocates for the group.
    fn allocate_for_group(&self, share: &GroupShare<'_>) {
        let mut backoff = Backoff::new();
        // Relaxed: a hint (I1).
        let waits = || match share.is_first() {
            true => self.group_allocating.load(Relaxed),
            false => !share.is_settled(),
        };
        while waits() && !backoff.is_yielding() {
            backoff.snooze();
        }
        let Some(group) = share.close() else {
            return; // I2: another member does.
        };
        self.group_allocating.store(true, Relaxed); // Relaxed: a hint (I1).
        let outcome = self.allocator.reserve(group.length(), u32::MAX);
        group.publish(outcome.map_err(|denied| match denied {
            AllocationRefused::Closed => REFUSED,
            _ => FULL,
        }));
        self.group_allocating.store(false, Relaxed); // Relaxed: a hint (I1).
    }

    fn refused(&self) -> LogError {
        let refusal = lock(&self.refusal).clone();
        refusal.expect("the refusal is kept before the allocator is closed (I3)")
    }
}

impl InsertStrategy for Hybrid {
    fn insert(
        &self,
        worker: &Worker,
        writer: &RecordWriter,
        record: &PendingRecord<'_>,
    ) -> InsertOutcome {
        worker.account().passed(&SITE);
        // The common path by itself: a result that both paths store in one variable is copied three
        // times.
        if self.turn_taking.is_free(worker, &self.allocator)
            && let Ok(reservation) = self.allocator.reserve(record.framed, 1)
        {
            return self.fill(worker, writer, reservation, record);
        }
        match self.allocate_contended(worker, record.framed) {
            Ok(reservation) => self.fill(worker, writer, reservation, record),
            Err(AllocationRefused::Closed) => InsertOutcome::Refused(self.refused()),
            Err(_) => InsertOutcome::Full,
        }
    }

    fn bypass(&self, worker: &Worker, length: u64) -> Result<Bypass, LogError> {
        worker.account().passed(&SITE);
        let bypass = self.allocator.skip(length).ok_or_else(|| self.refused())?;
        self.records.add(worker, 0, 1);
        Ok(bypass)
    }

    fn refuse(&self, _worker: &Worker, error: LogError) {
        keep_first_failure(&mut lock(&self.refusal), error);
        self.allocator.close();
    }

    fn end(&self, _worker: &Worker) -> (Lsn, u64) {
        (Lsn::new(self.allocator.next()), self.records.sum(0))
    }
}
