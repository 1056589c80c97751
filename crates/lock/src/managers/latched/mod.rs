//! A lock manager whose queues are changed under latches: what `global` and `bucket` share, which is
//! all but where the latches are.
//!
//! A call takes the latch of one bucket once. Under it the request is granted, or refused, or put
//! into the line and published; and whoever a release lets through is granted. What costs more (waking,
//! describing who stood in the way, walking the wait-for graph) happens after the latch is dropped.
//!
//! # Invariants
//!
//! * I1  A wait ends under the latch of the name it waits for, by whoever takes the waiter out of the
//!   line: so once. Who finds the waiter gone finds the verdict given.
//! * I2  `Owner::held` has exactly the granted requests of the owner, but for a grant that was not
//!   collected yet.
//! * I3  Where grants are *lent*, one that its owner has not seen can be taken back, under the latch of its
//!   name, by who is granted in its place. Then the waiter is in the line again, with the same ticket, and
//!   its wait is open: as if it had not been granted. One of the two wins (I4 of `park`), so nobody takes a lock from who
//!   knows that it has it. Nor from a wait that somebody has tried to end: it would go on, and nobody would come again.

/// The lock head: holders and waiters of one name.
pub(crate) mod head;

/// The entries of one bucket.
pub(crate) mod bucket_entries;

mod end_wait;
mod barging;
mod snapshot;
mod weights;

/// One latch over the whole table.
pub mod global;

/// A latch for each bucket.
pub mod bucket;

/// Either arrangement, with latches that can be elided.
pub mod elidable;

use super::latched::{
    bucket_entries::BucketEntries,
    head::{ConflictingRequest, HeadWaiter, LockHead, Millis},
};
use crate::{
    deadlock::{Detector, VictimPolicy, WaitEdges},
    inspect::{DeadlockCycle, LockSnapshot, LockStats},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::{
        LockSavepoint, Owner, PendingWait,
        lock_list::LockEntry,
        owner_table::{GRANTED, OwnerTable, WaitInfo, WaitTicket, Wakes},
    },
    request::{Blocker, OwnerId, RefusalReason, Reply, WaitMode},
};
use foxton_sync::{
    shim::Arc,
    site::{Component, Pattern, Site},
    worker::Worker,
};
use smallvec::SmallVec;
use std::{fmt, time::Duration};

/// Where the buckets are, and their latches.
pub(crate) trait Buckets: Send + Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// Calls `body` with the bucket at `index`, under its latch.
    fn with<R>(
        &self,
        worker: &Worker,
        index: usize,
        body: impl FnOnce(&mut BucketEntries) -> R,
    ) -> R;

    /// Has the processor fetch the bucket of `name`, whose hash this is, before it is needed.
    fn expect(&self, _name: &Name, _hash: u32) {}

    /// Calls `body` with the bucket of `name`, whose hash this is, under its latch.
    #[inline]
    fn with_name<R>(
        &self,
        worker: &Worker,
        _name: &Name,
        hash: u32,
        body: impl FnOnce(&mut BucketEntries) -> R,
    ) -> R {
        self.with(worker, hash as usize & (self.count() - 1), body)
    }

    /// Calls `body` with each of `locks` and its bucket, under the latches of one at a time.
    #[inline]
    fn with_each<'l>(
        &self,
        worker: &Worker,
        locks: impl Iterator<Item = &'l LockEntry>,
        mut body: impl FnMut(&'l LockEntry, &mut BucketEntries),
    ) {
        for lock in locks {
            self.with_name(worker, &lock.name, lock.hash, |heads| body(lock, heads));
        }
    }

    /// Memory of the empty table in bytes.
    fn memory_bytes(&self) -> usize;
}

/// Panics unless names can be spread over so many buckets.
pub(super) fn assert_suits(count: usize) {
    assert!(
        count.is_power_of_two() && count <= 1 << 31,
        "2^n buckets, at most 2^31"
    );
}

/// A waiter and whoever ends its wait: the record and the parker between them.
static WAIT: Site = Site::new(Component::Lock, Pattern::Fixed, "lock wait");

/// A manager over some arrangement of buckets.
pub struct LatchedQueues<B> {
    pub(super) buckets: B,
    pub(super) registry: Arc<OwnerTable>,
    pub(super) detector: Detector,
    /// For how long who sleeps may be passed, if grants are lent.
    lends: Option<Millis>,
    /// Whether who begins to wait goes before those for whom fewer wait.
    weighs: bool,
    #[cfg(feature = "planted")]
    lends_twice: bool,
}

impl<B: Buckets> fmt::Debug for LatchedQueues<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queued")
            .field("buckets", &self.buckets.count())
            .field("policy", &self.detector.policy())
            .field("lends", &self.lends)
            .finish_non_exhaustive()
    }
}

/// Somebody in the way, and who that is.
type OwnedConflict = (OwnerId, ConflictingRequest);

/// What became of a request that could not be granted at once.
enum BlockedOutcome {
    /// Only by somebody asleep, in whose place it was granted, in this slot.
    Asleep(u32),
    /// With those in the way, if that is to be told.
    Busy(Option<Box<SmallVec<[OwnedConflict; 4]>>>),
    Waiting(Box<(WaitInfo, PendingWait, WaitEdges)>),
}

/// A request on its way through a bucket.
struct BucketRequest<'o> {
    owner: &'o Owner,
    name: Name,
    hash: u32,
    /// What is to be held: for a conversion the supremum.
    mode: Mode,
    /// For a conversion, where the lock stands in the list of held ones.
    converts: Option<usize>,
    patience: WaitMode,
}

#[expect(
    private_bounds,
    reason = "where the latches are is not for outsiders to choose"
)]
impl<B: Buckets> LatchedQueues<B> {
    pub(crate) fn over(buckets: B, policy: VictimPolicy) -> Self {
        Self {
            buckets,
            registry: Arc::new(OwnerTable::new()),
            detector: Detector::new(policy),
            lends: None,
            weighs: false,
            #[cfg(feature = "planted")]
            lends_twice: false,
        }
    }

    pub(crate) fn registry(&self) -> &OwnerTable {
        &self.registry
    }

    #[inline]
    pub(super) fn with<R>(
        &self,
        worker: &Worker,
        name: &Name,
        hash: u32,
        body: impl FnOnce(&mut BucketEntries) -> R,
    ) -> R {
        self.buckets.with_name(worker, name, hash, body)
    }

    /// A request. If it begins to wait, `wait_began` looks after deadlocks.
    #[inline(always)]
    pub(super) fn ask(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        patience: WaitMode,
        wait_began: impl FnOnce(&WaitInfo, WaitEdges),
    ) -> Reply {
        owner.assert_usable(&self.registry);
        mode.assert_suits(&name);
        if !owner.has_room() {
            return owner.refuse_for_order(name, mode);
        }
        let hash = name.hash() as u32;
        if let Some(at) = owner.held.find(name, hash) {
            return self.request_again(worker, owner, at, mode, patience, wait_began);
        }
        self.request_new(worker, owner, (name, hash), mode, patience, wait_began)
    }

    /// A request for a name that `owner` does not hold.
    #[inline(always)]
    pub(super) fn request_new(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, hash): (Name, u32),
        mode: Mode,
        patience: WaitMode,
        wait_began: impl FnOnce(&WaitInfo, WaitEdges),
    ) -> Reply {
        // The result is two words: what a request that is granted does not need is in a box.
        let answer = self.with(worker, &name, hash, |heads| {
            let place = owner.id().place();
            // Without a head: who is passed over is not noticed.
            if patience == WaitMode::Skip && heads.obstructs(&name, place, mode) {
                return Err(BlockedOutcome::Busy(None));
            }
            let granted = heads.acquire(&name, place, mode);
            granted.map_err(|head| {
                let asked = BucketRequest {
                    owner,
                    name,
                    hash,
                    mode,
                    converts: None,
                    patience,
                };
                self.obstructed(head, &asked)
            })
        });
        match answer {
            Err(BlockedOutcome::Asleep(slot)) => {
                worker.account().passed(&WAIT);
                owner.held.push(name, hash, slot, mode);
                Reply::Granted
            }
            Ok(slot) => {
                owner.held.push(name, hash, slot, mode);
                Reply::Granted
            }
            Err(obstructed) => self.answer(worker, owner, obstructed, name, mode, wait_began),
        }
    }

    /// Whether somebody is in the way of a request for `name`, which `owner` does not hold.
    pub(super) fn is_obstructed(
        &self,
        worker: &Worker,
        owner: &Owner,
        (name, hash): (&Name, u32),
        mode: Mode,
    ) -> bool {
        let place = owner.id().place();
        self.with(worker, name, hash, |heads| {
            heads.obstructs(name, place, mode)
        })
    }

    /// Grants `name` to the owner at `place`, which does not hold it, if nobody is in its way. Who
    /// has the place need not know.
    pub(super) fn grant_to(
        &self,
        worker: &Worker,
        place: u32,
        name: Name,
        hash: u32,
        mode: Mode,
    ) -> Option<u32> {
        self.with(worker, &name, hash, |heads| {
            heads.acquire(&name, place, mode).ok()
        })
    }

    /// A request for the name held at `at`: nothing to do, or a conversion.
    #[inline(never)]
    pub(super) fn request_again(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        at: usize,
        mode: Mode,
        patience: WaitMode,
        wait_began: impl FnOnce(&WaitInfo, WaitEdges),
    ) -> Reply {
        let held = *owner.held.at(at);
        if held.mode.covers(mode) {
            owner.re_asks += 1;
            return Reply::Held;
        }
        let asked = BucketRequest {
            owner,
            name: held.name,
            hash: held.hash,
            mode: held.mode.supremum(mode),
            converts: Some(at),
            patience,
        };
        let BucketRequest { name, mode, .. } = asked;
        let obstructed = self.with(worker, &name, held.hash, |heads| {
            let converted = heads.convert(&name, held.slot, mode);
            converted.err().map(|head| self.obstructed(head, &asked))
        });
        match obstructed {
            None => {
                owner.held.set_mode(at, mode);
                Reply::Granted
            }
            Some(obstructed) => self.answer(worker, owner, obstructed, name, mode, wait_began),
        }
    }

    /// A request that could not be granted: what becomes of it. Under the latch.
    #[cold]
    #[inline(never)]
    fn obstructed(&self, head: &mut LockHead, asked: &BucketRequest<'_>) -> BlockedOutcome {
        let BucketRequest {
            owner,
            name,
            hash,
            mode,
            converts,
            ..
        } = *asked;
        let place = owner.id().place();
        if let Some(slot) = self.pass_asleep(head, asked) {
            return BlockedOutcome::Asleep(slot);
        }
        match asked.patience {
            WaitMode::Wait => {}
            WaitMode::Skip => return BlockedOutcome::Busy(None),
            WaitMode::Refuse => {
                let position = head.position_of_next(converts.is_some());
                let obstacles = self.identify(head.obstacles(place, mode, position));
                return BlockedOutcome::Busy(Some(Box::new(obstacles)));
            }
        }
        let waiting = owner.prepare_wait(name, mode);
        let held_slot = converts.map(|at| owner.held.at(at).slot);
        let waiter = head.enqueue(place, waiting.ticket, mode, held_slot);
        if self.weighs {
            self.weigh(head, asked);
        }
        let position = head
            .position(waiting.wait_ticket())
            .expect("it has just been put there");
        let reach = head.reach(position, place);
        let WaitInfo { ticket, since, .. } = waiting;
        let pending = PendingWait {
            name,
            hash,
            slot: waiter.slot,
            ticket,
            mode,
            converts,
            since,
        };
        BlockedOutcome::Waiting(Box::new((waiting, pending, reach)))
    }

    /// The rest of it, after the latch.
    #[cold]
    #[inline(never)]
    fn answer(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        obstructed: BlockedOutcome,
        name: Name,
        mode: Mode,
        wait_began: impl FnOnce(&WaitInfo, WaitEdges),
    ) -> Reply {
        match obstructed {
            BlockedOutcome::Asleep(_) => unreachable!("that is for new requests, and granted"),
            BlockedOutcome::Busy(None) => owner.pass_over(),
            BlockedOutcome::Busy(Some(obstacles)) => {
                owner.refuse_at_once(name, mode, self.blockers(*obstacles))
            }
            BlockedOutcome::Waiting(wait) => {
                let (waiting, pending, reach) = *wait;
                owner.pending = Some(pending);
                worker.account().passed(&WAIT);
                wait_began(&waiting, reach);
                Reply::Waiting
            }
        }
    }

    /// Who they are, as long as the latch says that they are there.
    fn identify<C: FromIterator<OwnedConflict>>(
        &self,
        obstacles: impl Iterator<Item = ConflictingRequest>,
    ) -> C {
        obstacles
            .map(|obstacle| (self.registry.record(obstacle.0).id(), obstacle))
            .collect()
    }

    fn blockers(&self, found: impl IntoIterator<Item = OwnedConflict>) -> Vec<Blocker> {
        let blocker = |(owner, (_, mode, waiting))| self.registry.blocker(owner, mode, waiting);
        found.into_iter().map(blocker).collect()
    }

    /// Grants all that can be granted now. Under the latch; the wakes are for after it.
    #[inline]
    pub(super) fn regrant<'m>(
        &'m self,
        worker: &Worker,
        head: &mut LockHead,
        wakes: &mut Wakes<'m>,
    ) {
        if head.is_awaited() {
            self.regrant_line(worker, head, wakes);
        }
    }

    #[inline(never)]
    fn regrant_line<'m>(&'m self, worker: &Worker, head: &mut LockHead, wakes: &mut Wakes<'m>) {
        let mut granted: SmallVec<[u32; 4]> = SmallVec::new();
        head.regrant(|HeadWaiter { place, ticket, .. }| {
            if self.weighs {
                granted.push(place);
            }
            worker.account().passed(&WAIT);
            let parker = &self.registry.record(place).parker;
            let wake = match self.lends() {
                true => parker.grant_revocable(ticket, GRANTED),
                false => parker.resolve(ticket, GRANTED),
            };
            debug_assert!(wake.is_some(), "I1: the wait had ended before");
            wakes.extend(wake);
        });
        for place in granted {
            self.registry
                .record(place)
                .is_awaited_by(head.line_length());
        }
    }

    #[inline]
    pub(super) fn give_back<'m>(
        &'m self,
        worker: &Worker,
        lock: &LockEntry,
        wakes: &mut Wakes<'m>,
    ) {
        self.with(worker, &lock.name, lock.hash, |heads| {
            self.give_back_in(worker, heads, lock, wakes);
        });
    }

    #[inline]
    fn give_back_in<'m>(
        &'m self,
        worker: &Worker,
        heads: &mut BucketEntries,
        lock: &LockEntry,
        wakes: &mut Wakes<'m>,
    ) {
        heads.release(&lock.name, lock.slot, |head| {
            self.regrant(worker, head, wakes);
        });
    }
}

impl<B: Buckets> LockManager for LatchedQueues<B> {
    fn owner(&self) -> Owner {
        Owner::new(&self.registry)
    }

    // A call of its own: its registers are better used for one manager than shared by all.
    #[inline(never)]
    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        self.ask(worker, owner, name, mode, patience, |waiting, reach| {
            self.detector.check(self, worker, waiting, reach);
        })
    }

    #[inline]
    fn expect(&self, name: Name) {
        self.buckets.expect(&name, name.hash() as u32);
    }

    fn cancel(&self, worker: &Worker, owner: &mut Owner) {
        let Some(pending) = owner.pending.take() else {
            return;
        };
        worker.account().passed(&WAIT);
        let wait = WaitTicket {
            place: owner.id().place(),
            ticket: pending.ticket,
        };
        let former = pending.converts.map(|at| owner.held.at(at).mode);
        let parker = &owner.record().parker;
        let mut wakes = Wakes::new();
        self.with(worker, &pending.name, pending.hash, |heads| {
            let verdict = parker.disarm(pending.ticket);
            // Refused: the request left its queue when it was (I1), and the name may be gone.
            if verdict.is_some_and(|verdict| verdict != GRANTED) {
                return;
            }
            heads.change(&pending.name, |head| {
                match (verdict, former) {
                    (None, _) => assert!(head.withdraw(wait), "I1: an open wait is in the line"),
                    (Some(_), None) => head.release(pending.slot),
                    (Some(_), Some(former)) => head.revert(pending.slot, former),
                }
                self.regrant(worker, head, &mut wakes);
            });
        });
        drop(wakes);
        owner.record().end_wait();
    }

    fn end_wait(&self, worker: &Worker, ticket: WaitTicket, reason: RefusalReason) -> bool {
        self.refuse(worker, ticket, reason, Vec::new())
    }

    fn release(&self, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
        owner.assert_usable(&self.registry);
        let Some(at) = owner.held.find(name, name.hash() as u32) else {
            return false;
        };
        let entry = owner.held.remove(at);
        let mut wakes = Wakes::new();
        let mut awaited_by = 0;
        self.with(worker, &entry.name, entry.hash, |heads| {
            heads.release(&entry.name, entry.slot, |head| {
                awaited_by = self.waiting_for(head, entry.mode);
                self.regrant(worker, head, &mut wakes);
            });
        });
        if awaited_by > 0 {
            worker.account().passed(&WAIT);
            owner.record().is_awaited_by_fewer(awaited_by);
        }
        true
    }

    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: LockSavepoint) {
        owner.assert_usable(&self.registry);
        let mut wakes = Wakes::new();
        while let Some(entry) = owner.held.pop_since(savepoint.order()) {
            self.give_back(worker, &entry, &mut wakes);
        }
    }

    #[inline]
    fn release_all(&self, worker: &Worker, owner: &mut Owner) {
        owner.assert_usable(&self.registry);
        // Woken together at the end: waking costs a system call each, and as long as it lasts the
        // rest would be held for nothing.
        let mut wakes = Wakes::new();
        let locks = owner.held.iter().rev();
        self.buckets.with_each(worker, locks, |lock, heads| {
            self.give_back_in(worker, heads, lock, &mut wakes);
        });
        owner.forget_held();
    }

    fn inspect(&self, worker: &Worker) -> LockSnapshot {
        LockSnapshot::new(self.queues(worker))
    }

    fn look(&self, worker: &Worker, most: usize) -> LockSnapshot {
        self.look_at(worker, most)
    }

    fn longest_wait(&self, _worker: &Worker) -> Option<Duration> {
        self.registry.longest_wait()
    }

    fn deadlocks(&self) -> Vec<DeadlockCycle> {
        self.detector.recent()
    }

    fn stats(&self, worker: &Worker) -> LockStats {
        let bytes_in = |index| {
            self.buckets
                .with(worker, index, |heads| heads.memory_bytes())
        };
        let heads: usize = (0..self.buckets.count()).map(bytes_in).sum();
        LockStats::sum(&self.registry, self.buckets.memory_bytes() + heads)
    }

    fn verify(&self, worker: &Worker) {
        for index in 0..self.buckets.count() {
            self.buckets.with(worker, index, |heads| heads.verify());
        }
    }
}
