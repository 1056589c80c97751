//! Lock manager whose queues are protected by latches: everything that `global` and `bucket` share,
//! which is all but the position of the latches.
//!
//! A call takes the latch of one bucket once. Under it the request is granted, refused, or enqueued
//! and published, and a release grants the waiters that it unblocks. The expensive steps come after
//! the latch: waking, describing blockers, searching the wait-for graph.
//!
//! # Invariants
//!
//! * I1  A wait ends under the latch of the name it waits for, by the thread that dequeues the
//!   waiter, and so only once. A thread that finds the waiter gone finds the verdict given.
//! * I2  `Owner::locks` has exactly the granted requests of the owner, except a grant that was not
//!   collected yet.
//! * I3  With barging, grants to waiters are *revocable*: a grant that its owner has not seen can
//!   be revoked, under the latch of its name, by the request that is granted instead. Then the
//!   waiter is in the queue again, with the same ticket, and its wait is open, as if it had not
//!   been granted. Either the revocation or the owner wins (I4 of `park`), so no lock is revoked
//!   whose owner knows of the grant. Nor is a grant revoked after another thread tried to end its
//!   wait, because the wait would go on, and no thread would try again.

/// Lock head: holders and waiters of one name.
pub(crate) mod head;

/// Entries of one bucket.
pub(crate) mod bucket_entries;

/// End of a wait by another thread, and the wait-for graph.
mod end_wait;

/// Barging past sleeping waiters.
mod barging;

/// Snapshots of the queues.
mod snapshot;

/// Weights of waiters.
mod weights;

/// One latch over the whole table.
pub mod global;

/// A latch for each bucket.
pub mod bucket;

/// Either arrangement, laid out for elided latches.
pub mod elidable;

use super::latched::{
    bucket_entries::BucketEntries,
    head::{ConflictingRequests, LockHead, Millis},
};
use crate::{
    deadlock::{Detector, VictimPolicy, WaitEdges},
    inspect::{DeadlockCycle, LockSnapshot, LockStats},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::{
        LockSavepoint, Owner, PendingWait,
        lock_list::{LockEntry, LockSource},
        owner_table::{GRANTED, OwnerTable, WaitInfo, WaitTicket, Wakes},
    },
    request::{Blockers, OwnerId, RefusalReason, Reply, WaitMode},
};
use foxton_sync::{
    shim::Arc,
    site::{Component, Pattern, Site},
    worker::Worker,
};
use smallvec::SmallVec;
use std::{fmt, time::Duration};

/// Arrangement of buckets and their latches.
pub(crate) trait Buckets: Send + Sync {
    /// Returns the number of buckets.
    fn count(&self) -> usize;

    /// Calls `body` with the bucket at `index`, under its latch.
    fn with<R>(
        &self,
        worker: &Worker,
        index: usize,
        body: impl FnOnce(&mut BucketEntries) -> R,
    ) -> R;

    /// Prefetches the bucket of `name`, which has this hash.
    fn prefetch(&self, _name: &Name, _hash: u32) {}

    /// Calls `body` with the bucket of `name`, which has this hash, under its latch.
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

    /// Calls `body` with each of `locks` and its bucket, under one latch at a time.
    #[inline]
    fn with_each<'l>(
        &self,
        worker: &Worker,
        locks: impl Iterator<Item = &'l LockEntry>,
        mut body: impl FnMut(&'l LockEntry, &mut BucketEntries),
    ) {
        for lock in locks {
            self.with_name(worker, &lock.name, lock.hash, |entries| body(lock, entries));
        }
    }

    /// Returns the memory of the empty table, in bytes.
    fn memory_bytes(&self) -> usize;
}

/// Panics unless `count` is a possible number of buckets.
pub(super) fn assert_suits(count: usize) {
    assert!(
        count.is_power_of_two() && count <= 1 << 31,
        "2^n buckets, at most 2^31"
    );
}

/// A waiter and the thread that ends its wait meet at the record and its parker.
static WAIT: Site = Site::new(Component::Lock, Pattern::Fixed, "lock wait");

/// Lock manager over some arrangement of buckets.
pub struct LatchedQueues<B> {
    pub(super) buckets: B,
    pub(super) owners: Arc<OwnerTable>,
    pub(super) detector: Detector,
    /// With barging, how long requests may barge past a sleeping waiter.
    barging_window: Option<Millis>,
    /// True if a new waiter goes before waiters that fewer owners wait for.
    uses_weights: bool,
}

impl<B: Buckets> fmt::Debug for LatchedQueues<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queued")
            .field("buckets", &self.buckets.count())
            .field("policy", &self.detector.policy())
            .field("barging_window", &self.barging_window)
            .finish_non_exhaustive()
    }
}

/// In the place of a slot: the request was not needed.
const NOT_NEEDED: u32 = u32::MAX;

/// Conflicting requests, and the ids of their owners.
struct OwnedConflicts {
    owners: SmallVec<[OwnerId; 4]>,
    requests: ConflictingRequests,
}

/// Outcome of a request that could not be granted at once.
enum BlockedOutcome {
    /// Granted ahead of a sleeping waiter, in this slot.
    Barged(u32),
    /// Blocked, with the conflicting requests, if they are to be reported.
    Busy(Option<Box<OwnedConflicts>>),
    Waiting(Box<(WaitInfo, PendingWait, WaitEdges)>),
}

/// Request on its way through a bucket.
struct BucketRequest<'o> {
    owner: &'o Owner,
    name: Name,
    hash: u32,
    /// Mode that will be held: for a conversion, the supremum.
    mode: Mode,
    /// For a conversion, the lock's position in the list of held locks.
    converts: Option<usize>,
    wait_mode: WaitMode,
}

#[expect(
    private_bounds,
    reason = "where the latches are is not for outsiders to choose"
)]
impl<B: Buckets> LatchedQueues<B> {
    pub(crate) fn over(buckets: B, policy: VictimPolicy) -> Self {
        Self {
            buckets,
            owners: Arc::new(OwnerTable::new()),
            detector: Detector::new(policy),
            barging_window: None,
            uses_weights: false,
        }
    }

    pub(crate) fn owners(&self) -> &OwnerTable {
        &self.owners
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

    /// Requests a lock. If a wait begins, `wait_began` looks for deadlocks.
    #[inline(always)]
    pub(super) fn acquire(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
        wait_began: impl FnOnce(&WaitInfo, WaitEdges),
    ) -> Reply {
        owner.assert_usable(&self.owners);
        mode.assert_suits(&name);
        if !owner.has_free_order() {
            return owner.refuse_out_of_orders(name, mode);
        }
        let hash = name.hash() as u32;
        if let Some(at) = owner.locks.find(name, hash) {
            return self.request_held(worker, owner, at, mode, wait_mode, wait_began);
        }
        self.request_new(worker, owner, (name, hash), mode, wait_mode, wait_began)
    }

    /// Requests a name that `owner` does not hold.
    #[inline(always)]
    pub(super) fn request_new(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, hash): (Name, u32),
        mode: Mode,
        wait_mode: WaitMode,
        wait_began: impl FnOnce(&WaitInfo, WaitEdges),
    ) -> Reply {
        let is_needed = |_: &mut BucketEntries| true;
        let (request, how) = ((name, hash), (mode, wait_mode));
        let reply = self.request_if(worker, owner, request, how, is_needed, wait_began);
        reply.expect("it is needed")
    }

    /// As [`request_new`](Self::request_new), if `is_needed` returns true under the latch.
    #[inline(always)]
    pub(super) fn request_if(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        (name, hash): (Name, u32),
        (mode, wait_mode): (Mode, WaitMode),
        is_needed: impl FnOnce(&mut BucketEntries) -> bool,
        wait_began: impl FnOnce(&WaitInfo, WaitEdges),
    ) -> Option<Reply> {
        // The result is two words: data that a granted request does not need is in a box.
        let outcome = self.with(worker, &name, hash, |entries| {
            if !is_needed(entries) {
                return Ok(NOT_NEEDED);
            }
            let owner_index = owner.id().index();
            // A skipped request needs no head, because it is not enqueued.
            if wait_mode == WaitMode::Skip && entries.blocks(&name, mode) {
                return Err(BlockedOutcome::Busy(None));
            }
            let granted = entries.acquire(&name, owner_index, mode);
            granted.map_err(|head| {
                let request = BucketRequest {
                    owner,
                    name,
                    hash,
                    mode,
                    converts: None,
                    wait_mode,
                };
                self.handle_blocked(worker, head, &request)
            })
        });
        Some(match outcome {
            Err(BlockedOutcome::Barged(slot)) => {
                worker.account().passed(&WAIT);
                owner.locks.push(name, hash, slot, mode);
                Reply::Granted
            }
            Ok(NOT_NEEDED) => return None,
            Ok(slot) => {
                owner.locks.push(name, hash, slot, mode);
                Reply::Granted
            }
            Err(blocked) => self.reply_blocked(worker, owner, blocked, name, mode, wait_began),
        })
    }

    /// True if a request for `name`, of an owner that does not hold it, is blocked.
    pub(super) fn is_blocked(
        &self,
        worker: &Worker,
        (name, hash): (&Name, u32),
        mode: Mode,
    ) -> bool {
        self.with(worker, name, hash, |entries| entries.blocks(name, mode))
    }

    /// Grants `name` to `owner_index`, which does not hold it, if no request conflicts. The owner
    /// need not know.
    pub(super) fn grant_to(
        &self,
        worker: &Worker,
        owner_index: u32,
        name: Name,
        hash: u32,
        mode: Mode,
    ) -> Option<u32> {
        self.with(worker, &name, hash, |entries| {
            entries.acquire(&name, owner_index, mode).ok()
        })
    }

    /// Requests the name held at `at`: nothing to do, or a conversion.
    #[inline(never)]
    pub(super) fn request_held(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        at: usize,
        mode: Mode,
        wait_mode: WaitMode,
        wait_began: impl FnOnce(&WaitInfo, WaitEdges),
    ) -> Reply {
        let held = *owner.locks.at(at);
        if held.mode.covers(mode) {
            owner.re_asks += 1;
            return Reply::Held;
        }
        let request = BucketRequest {
            owner,
            name: held.name,
            hash: held.hash,
            mode: held.mode.supremum(mode),
            converts: Some(at),
            wait_mode,
        };
        let BucketRequest { name, mode, .. } = request;
        let blocked = self.with(worker, &name, held.hash, |entries| {
            let converted = entries.convert(&name, held.slot, mode);
            converted
                .err()
                .map(|head| self.handle_blocked(worker, head, &request))
        });
        match blocked {
            None => {
                owner.locks.set_mode(at, mode);
                Reply::Granted
            }
            Some(blocked) => self.reply_blocked(worker, owner, blocked, name, mode, wait_began),
        }
    }

    /// Handles a request that could not be granted. Under the latch.
    #[cold]
    #[inline(never)]
    fn handle_blocked(
        &self,
        worker: &Worker,
        head: &mut LockHead,
        request: &BucketRequest<'_>,
    ) -> BlockedOutcome {
        let BucketRequest {
            owner,
            name,
            hash,
            mode,
            converts,
            ..
        } = *request;
        let owner_index = owner.id().index();
        if let Some(slot) = self.barge(worker, head, request) {
            return BlockedOutcome::Barged(slot);
        }
        match request.wait_mode {
            WaitMode::Wait => {}
            WaitMode::Skip => return BlockedOutcome::Busy(None),
            WaitMode::Refuse => {
                let order = head.order_of_next(converts.is_some());
                let conflicting = self.identify(head.conflicting(owner_index, mode, order));
                return BlockedOutcome::Busy(Some(Box::new(conflicting)));
            }
        }
        let waiting = owner.prepare_wait(name, mode);
        let held_slot = converts.map(|at| owner.locks.at(at).slot);
        head.enqueue(owner_index, waiting.ticket, mode, held_slot);
        if self.uses_weights {
            self.add_weight(head, request);
        }
        let wait_edges = head
            .wait_edges(waiting.wait_ticket(), owner_index)
            .expect("it has just been put there");
        let WaitInfo { ticket, since, .. } = waiting;
        let pending = PendingWait {
            name,
            hash,
            slot: held_slot,
            ticket,
            mode,
            converts,
            source: LockSource::Request,
            since,
        };
        BlockedOutcome::Waiting(Box::new((waiting, pending, wait_edges)))
    }

    /// Answers a blocked request, after the latch is dropped.
    #[cold]
    #[inline(never)]
    fn reply_blocked(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        blocked: BlockedOutcome,
        name: Name,
        mode: Mode,
        wait_began: impl FnOnce(&WaitInfo, WaitEdges),
    ) -> Reply {
        match blocked {
            BlockedOutcome::Barged(_) => unreachable!("that is for new requests, and granted"),
            BlockedOutcome::Busy(None) => owner.skip(),
            BlockedOutcome::Busy(Some(conflicting)) => {
                owner.refuse_busy(name, mode, self.blockers(*conflicting))
            }
            BlockedOutcome::Waiting(wait) => {
                let (waiting, pending, wait_edges) = *wait;
                owner.pending = Some(pending);
                worker.account().passed(&WAIT);
                wait_began(&waiting, wait_edges);
                Reply::Waiting
            }
        }
    }

    /// Adds the owners' ids, which are exact while the latch is held.
    fn identify(&self, requests: ConflictingRequests) -> OwnedConflicts {
        let ids = requests.listed.iter();
        let ids = ids.map(|&(owner_index, ..)| self.owners.record(owner_index).id());
        OwnedConflicts {
            owners: ids.collect(),
            requests,
        }
    }

    fn blockers(&self, found: OwnedConflicts) -> Blockers {
        let listed = found.owners.into_iter().zip(found.requests.listed);
        let listed =
            listed.map(|(owner, (_, mode, waits))| self.owners.blocker(owner, mode, waits));
        Blockers {
            listed: listed.collect(),
            more: found.requests.more,
        }
    }

    /// Grants all waiters that can be granted now. Under the latch; `wakes` is for after it.
    #[inline]
    pub(super) fn grant_waiters<'m>(
        &'m self,
        worker: &Worker,
        head: &mut LockHead,
        wakes: &mut Wakes<'m>,
    ) {
        if head.has_waiters() {
            self.grant_waiters_slow(worker, head, wakes);
        }
    }

    #[inline(never)]
    fn grant_waiters_slow<'m>(
        &'m self,
        worker: &Worker,
        head: &mut LockHead,
        wakes: &mut Wakes<'m>,
    ) {
        let mut granted: SmallVec<[u32; 4]> = SmallVec::new();
        head.grant_waiters(|waiter, slot| {
            let owner_index = waiter.owner_index;
            if self.uses_weights {
                granted.push(owner_index);
            }
            worker.account().passed(&WAIT);
            let record = self.owners.record(owner_index);
            record.store_granted_slot(slot);
            let wake = match self.allows_barging() {
                true => record.parker.grant_revocable(waiter.ticket, GRANTED),
                false => record.parker.resolve(waiter.ticket, GRANTED),
            };
            debug_assert!(wake.is_some(), "I1: the wait had ended before");
            wakes.extend(wake);
        });
        for owner_index in granted {
            self.owners
                .record(owner_index)
                .add_waiters(head.queue_length());
        }
    }

    #[inline]
    pub(super) fn release_lock<'m>(
        &'m self,
        worker: &Worker,
        lock: &LockEntry,
        wakes: &mut Wakes<'m>,
    ) {
        self.with(worker, &lock.name, lock.hash, |entries| {
            self.release_lock_in(worker, entries, lock, wakes);
        });
    }

    #[inline]
    pub(in crate::managers) fn release_lock_in<'m>(
        &'m self,
        worker: &Worker,
        entries: &mut BucketEntries,
        lock: &LockEntry,
        wakes: &mut Wakes<'m>,
    ) {
        entries.release(&lock.name, lock.slot, |head| {
            self.grant_waiters(worker, head, wakes);
        });
    }
}

impl<B: Buckets> LockManager for LatchedQueues<B> {
    fn owner(&self) -> Owner {
        Owner::new(&self.owners)
    }

    // Not inlined, because one manager uses the registers better than all managers together.
    #[inline(never)]
    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        self.acquire(
            worker,
            owner,
            name,
            mode,
            wait_mode,
            |waiting, wait_edges| {
                self.detector.check(self, worker, waiting, wait_edges);
            },
        )
    }

    #[inline]
    fn prefetch(&self, name: Name) {
        self.buckets.prefetch(&name, name.hash() as u32);
    }

    fn cancel(&self, worker: &Worker, owner: &mut Owner) {
        let Some(pending) = owner.pending.take() else {
            return;
        };
        worker.account().passed(&WAIT);
        let wait = WaitTicket {
            owner_index: owner.id().index(),
            ticket: pending.ticket,
        };
        let former = pending.converts.map(|at| owner.locks.at(at).mode);
        let parker = &owner.record().parker;
        let mut wakes = Wakes::new();
        self.with(worker, &pending.name, pending.hash, |entries| {
            let verdict = parker.disarm(pending.ticket);
            // Refused: the request left its queue then (I1), and the name may be gone.
            if verdict.is_some_and(|verdict| verdict != GRANTED) {
                return;
            }
            entries.change(&pending.name, |head| {
                let slot = || owner.record().granted_slot();
                match (verdict, former) {
                    (None, _) => assert!(head.withdraw(wait), "I1: an open wait is in the queue"),
                    (Some(_), None) => head.release(slot()),
                    (Some(_), Some(former)) => head.revert(slot(), former),
                }
                self.grant_waiters(worker, head, &mut wakes);
            });
        });
        drop(wakes);
        owner.record().end_wait();
    }

    fn end_wait(&self, worker: &Worker, ticket: WaitTicket, reason: RefusalReason) -> bool {
        self.refuse(worker, ticket, reason, Vec::new())
    }

    fn release(&self, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
        owner.assert_usable(&self.owners);
        let Some(at) = owner.locks.find(name, name.hash() as u32) else {
            return false;
        };
        let entry = owner.locks.remove(at);
        let mut wakes = Wakes::new();
        let mut blocked_count = 0;
        self.with(worker, &entry.name, entry.hash, |entries| {
            entries.release(&entry.name, entry.slot, |head| {
                blocked_count = match self.uses_weights {
                    true => head.blocked_waiters(entry.mode),
                    false => 0,
                };
                self.grant_waiters(worker, head, &mut wakes);
            });
        });
        if blocked_count > 0 {
            worker.account().passed(&WAIT);
            owner.record().remove_waiters(blocked_count);
        }
        true
    }

    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: LockSavepoint) {
        owner.assert_usable(&self.owners);
        let mut wakes = Wakes::new();
        while let Some(entry) = owner.locks.pop_since(savepoint.order()) {
            self.release_lock(worker, &entry, &mut wakes);
        }
    }

    #[inline]
    fn release_all(&self, worker: &Worker, owner: &mut Owner) {
        owner.assert_usable(&self.owners);
        // Waiters are woken together at the end, because each wake-up costs a system call, during
        // which the remaining locks would be held for nothing.
        let mut wakes = Wakes::new();
        let locks = owner.locks.iter().rev();
        self.buckets.with_each(worker, locks, |lock, entries| {
            self.release_lock_in(worker, entries, lock, &mut wakes);
        });
        owner.clear_locks();
    }

    fn trim(&self, worker: &Worker) {
        for index in 0..self.buckets.count() {
            // Freed after the latch is dropped.
            drop(self.buckets.with(worker, index, BucketEntries::take_unused));
        }
    }

    fn inspect(&self, worker: &Worker) -> LockSnapshot {
        LockSnapshot::new(self.queues(worker))
    }

    fn inspect_limited(&self, worker: &Worker, most: usize) -> LockSnapshot {
        self.snapshot_limited(worker, most)
    }

    fn longest_wait(&self, _worker: &Worker) -> Option<Duration> {
        self.owners.longest_wait()
    }

    fn deadlocks(&self) -> Vec<DeadlockCycle> {
        self.detector.recent()
    }

    fn stats(&self, worker: &Worker) -> LockStats {
        let bytes_in = |index| {
            self.buckets
                .with(worker, index, |entries| entries.memory_bytes())
        };
        let entries: usize = (0..self.buckets.count()).map(bytes_in).sum();
        LockStats::sum(&self.owners, self.buckets.memory_bytes() + entries)
    }

    fn verify(&self, worker: &Worker) {
        for index in 0..self.buckets.count() {
            self.buckets.with(worker, index, |entries| entries.verify());
        }
    }
}
