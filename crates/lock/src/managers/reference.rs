//! Contract in its plainest form: one mutex, one map, and every rule a loop over a list.
//!
//! It is the oracle of the tests, and the place to read what a lock manager does. Nothing here is
//! fast: nothing is counted in advance, and the wait-for graph is recomputed whenever a wait
//! begins.

use crate::{
    deadlock::{BlockingMode, Detector, VictimPolicy, describe_cycle},
    inspect::{DeadlockCycle, LockSnapshot, LockStats, NameQueue, QueueRequest},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::{
        LockSavepoint, Owner, PendingWait,
        lock_list::LockSource,
        owner_table::{GRANTED, OwnerTable, WaitInfo, WaitTicket, Wakes},
    },
    request::{Blockers, DeadlockMember, MAX_BLOCKERS, RefusalReason, Reply, WaitMode},
};
use foxton_sync::{
    park::Ticket,
    shim::{Arc, Mutex, lock, try_lock},
    site::{Component, Pattern, Site},
    worker::Worker,
};
use std::{collections::BTreeMap, time::Duration};

static MAP: Site = Site::new(Component::Lock, Pattern::Unbounded, "reference lock map");

/// Holders and waiters of one name.
#[derive(Debug, Default)]
struct ReferenceQueue {
    holders: Vec<(u32, Mode)>,
    /// Waiters, first come first, but conversions before new requests.
    waiters: Vec<QueuedWaiter>,
}

#[derive(Debug, Clone, Copy)]
struct QueuedWaiter {
    owner_index: u32,
    ticket: Ticket,
    mode: Mode,
}

/// Conflicting request: owner index, mode, and whether it only waits.
type ReferenceConflict = (u32, Mode, bool);

impl ReferenceQueue {
    fn held_by(&self, owner_index: u32) -> Option<Mode> {
        self.holders
            .iter()
            .find(|holder| holder.0 == owner_index)
            .map(|holder| holder.1)
    }

    /// Returns the requests that block a request of `owner_index` for `mode` at `position` of the
    /// queue: holders and earlier waiters.
    fn conflicts(&self, owner_index: u32, mode: Mode, position: usize) -> Vec<ReferenceConflict> {
        let holders = self
            .holders
            .iter()
            .map(|&(other, held)| (other, held, false));
        let before = self.waiters[..position]
            .iter()
            .map(|other| (other.owner_index, other.mode, true));
        let is_conflict =
            |&(other, held, _): &ReferenceConflict| other != owner_index && !held.compatible(mode);
        holders.chain(before).filter(is_conflict).collect()
    }

    /// Returns the position of a request of `owner_index` in the queue: behind the conversions, or
    /// at the end.
    fn position_for(&self, owner_index: u32) -> usize {
        match self.held_by(owner_index) {
            Some(_) => self
                .waiters
                .iter()
                .filter(|w| self.held_by(w.owner_index).is_some())
                .count(),
            None => self.waiters.len(),
        }
    }

    fn position_of(&self, wait: WaitTicket) -> Option<usize> {
        let is_it = |w: &QueuedWaiter| w.owner_index == wait.owner_index && w.ticket == wait.ticket;
        self.waiters.iter().position(is_it)
    }

    fn grant(&mut self, owner_index: u32, mode: Mode) {
        self.holders.retain(|holder| holder.0 != owner_index);
        self.holders.push((owner_index, mode));
    }

    /// Grants the first waiter without conflicts, until there is none.
    fn grant_waiters(&mut self) -> Vec<QueuedWaiter> {
        let mut granted = Vec::new();
        let mut position = 0;
        while let Some(&waiter) = self.waiters.get(position) {
            if self
                .conflicts(waiter.owner_index, waiter.mode, position)
                .is_empty()
            {
                self.waiters.remove(position);
                self.grant(waiter.owner_index, waiter.mode);
                granted.push(waiter);
            } else {
                position += 1;
            }
        }
        granted
    }
}

type Map = BTreeMap<Name, ReferenceQueue>;

/// The plainest lock manager.
#[derive(Debug)]
pub struct Reference {
    map: Mutex<Map>,
    owners: Arc<OwnerTable>,
    detector: Detector,
}

impl Reference {
    /// Returns a manager without locks.
    pub fn new(policy: VictimPolicy) -> Self {
        Self {
            map: Mutex::default(),
            owners: Arc::new(OwnerTable::new()),
            detector: Detector::new(policy),
        }
    }

    pub(crate) fn owners(&self) -> &OwnerTable {
        &self.owners
    }

    fn locked<R>(&self, worker: &Worker, body: impl FnOnce(&mut Map) -> R) -> R {
        worker.account().passed(&MAP);
        let free = try_lock(&self.map);
        let mut map = free.unwrap_or_else(|| {
            worker.record_contention();
            lock(&self.map)
        });
        body(&mut map)
    }

    fn blockers(&self, conflicts: &[ReferenceConflict]) -> Blockers {
        let blocker = |&(owner_index, mode, waiting): &ReferenceConflict| {
            let owner = self.owners.record(owner_index).id();
            self.owners.blocker(owner, mode, waiting)
        };
        Blockers {
            listed: conflicts.iter().take(MAX_BLOCKERS).map(blocker).collect(),
            more: conflicts.len().saturating_sub(MAX_BLOCKERS),
        }
    }

    /// Grants all waiters that can be granted after `name` changed, and removes the name if it has
    /// no holder.
    fn settle<'m>(&'m self, map: &mut Map, name: Name, wakes: &mut Wakes<'m>) {
        let queue = map.get_mut(&name).expect("a name that was just changed");
        for waiter in queue.grant_waiters() {
            let parker = &self.owners.record(waiter.owner_index).parker;
            wakes.extend(parker.resolve(waiter.ticket, GRANTED));
        }
        if queue.holders.is_empty() {
            assert!(
                queue.waiters.is_empty(),
                "L4: the name has waiters and no holder"
            );
            map.remove(&name);
        }
    }

    /// Ends a wait with a refusal, if it has not ended.
    fn refuse<'m>(
        &'m self,
        map: &mut Map,
        wait: WaitTicket,
        reason: RefusalReason,
        cycle: Vec<DeadlockMember>,
        wakes: &mut Wakes<'m>,
    ) -> bool {
        let record = self.owners.record(wait.owner_index);
        let Some(waiting) = record.waiting() else {
            return false;
        };
        let Some(queue) = map.get_mut(&waiting.name) else {
            return false;
        };
        let Some(position) = queue.position_of(wait) else {
            return false;
        };
        let conflicts = queue.conflicts(wait.owner_index, waiting.mode, position);
        let refusal = waiting.refusal(reason, self.blockers(&conflicts), cycle);
        queue.waiters.remove(position);
        wakes.extend(record.refuse(wait.ticket, refusal));
        self.settle(map, waiting.name, wakes);
        true
    }

    /// Returns the wait of the owner at `owner_index`, if it waits, and the requests that block it.
    fn edges(&self, map: &Map, owner_index: u32) -> Option<(WaitInfo, Vec<ReferenceConflict>)> {
        let waiting = self.owners.record(owner_index).waiting()?;
        let queue = map.get(&waiting.name)?;
        let position = queue.position_of(waiting.wait_ticket())?;
        let conflicts = queue.conflicts(owner_index, waiting.mode, position);
        Some((waiting, conflicts))
    }

    /// Extends `path` along edges until it leads back to its first owner.
    fn close(
        &self,
        map: &Map,
        owner_index: u32,
        path: &mut Vec<(WaitInfo, BlockingMode)>,
        seen: &mut Vec<u32>,
    ) -> bool {
        let Some((waiting, conflicts)) = self.edges(map, owner_index) else {
            return false;
        };
        for (other, mode, waits) in conflicts {
            path.push((
                waiting.clone(),
                BlockingMode {
                    mode,
                    holds: !waits,
                },
            ));
            let first = path[0].0.id.index();
            if other == first {
                return true;
            }
            if !seen.contains(&other) {
                seen.push(other);
                if self.close(map, other, path, seen) {
                    return true;
                }
            }
            path.pop();
        }
        false
    }

    /// Ends every cycle that the owner at `owner_index` has closed by waiting.
    fn end_deadlocks<'m>(&'m self, map: &mut Map, owner_index: u32, wakes: &mut Wakes<'m>) {
        loop {
            let mut path = Vec::new();
            if !self.close(map, owner_index, &mut path, &mut vec![owner_index]) {
                return;
            }
            let (cycle, blocking_modes): (Vec<WaitInfo>, Vec<BlockingMode>) =
                path.into_iter().unzip();
            let victim = self.detector.policy().choose(&cycle);
            let members = describe_cycle(&self.owners, &cycle, &blocking_modes, victim);
            self.detector.record(members.clone());
            self.refuse(
                map,
                cycle[victim].wait_ticket(),
                RefusalReason::Deadlock,
                members,
                wakes,
            );
        }
    }

    fn release_lock<'m>(
        &'m self,
        map: &mut Map,
        name: Name,
        owner_index: u32,
        wakes: &mut Wakes<'m>,
    ) {
        let queue = map.get_mut(&name).expect("a held name has a queue");
        queue.holders.retain(|holder| holder.0 != owner_index);
        self.settle(map, name, wakes);
    }
}

impl LockManager for Reference {
    fn owner(&self) -> Owner {
        Owner::new(&self.owners)
    }

    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        owner.assert_usable(&self.owners);
        mode.assert_suits(&name);
        if !owner.has_free_order() {
            return owner.refuse_out_of_orders(name, mode);
        }
        let mut wakes = Wakes::new();
        self.locked(worker, |map| {
            let owner_index = owner.id().index();
            let queue = map.entry(name).or_default();
            let held = queue.held_by(owner_index);
            if held.is_some_and(|held| held.covers(mode)) {
                owner.re_asks += 1;
                return Reply::Held;
            }
            let mode = held.map_or(mode, |held| held.supremum(mode));
            let hash = name.hash() as u32;
            let converts = owner.locks.find(name, hash);
            let position = queue.position_for(owner_index);
            let conflicts = queue.conflicts(owner_index, mode, position);
            if conflicts.is_empty() {
                queue.grant(owner_index, mode);
                match converts {
                    Some(at) => owner.locks.set_mode(at, mode),
                    None => owner.locks.push(name, hash, 0, mode),
                }
                return Reply::Granted;
            }
            match wait_mode {
                WaitMode::Wait => {}
                WaitMode::Skip => return owner.skip(),
                WaitMode::Refuse => {
                    return owner.refuse_busy(name, mode, self.blockers(&conflicts));
                }
            }
            let WaitInfo { ticket, since, .. } = owner.prepare_wait(name, mode);
            queue.waiters.insert(
                position,
                QueuedWaiter {
                    owner_index,
                    ticket,
                    mode,
                },
            );
            owner.pending = Some(PendingWait {
                name,
                hash,
                slot: Some(0),
                ticket,
                mode,
                converts,
                source: LockSource::Request,
                since,
            });
            self.end_deadlocks(map, owner_index, &mut wakes);
            Reply::Waiting
        })
    }

    fn cancel(&self, worker: &Worker, owner: &mut Owner) {
        let Some(pending) = owner.pending.take() else {
            return;
        };
        let wait = WaitTicket {
            owner_index: owner.id().index(),
            ticket: pending.ticket,
        };
        let mut wakes = Wakes::new();
        self.locked(worker, |map| {
            let verdict = owner.record().parker.disarm(pending.ticket);
            if verdict.is_some_and(|verdict| verdict != GRANTED) {
                return;
            }
            let queue = map
                .get_mut(&pending.name)
                .expect("a name that is held or awaited");
            match (verdict, pending.converts) {
                (None, _) => {
                    let position = queue
                        .position_of(wait)
                        .expect("an open wait is in the queue");
                    queue.waiters.remove(position);
                }
                (Some(_), None) => queue.holders.retain(|holder| holder.0 != wait.owner_index),
                (Some(_), Some(at)) => queue.grant(wait.owner_index, owner.locks.at(at).mode),
            }
            self.settle(map, pending.name, &mut wakes);
        });
        owner.record().end_wait();
    }

    fn end_wait(&self, worker: &Worker, ticket: WaitTicket, reason: RefusalReason) -> bool {
        let mut wakes = Wakes::new();
        self.locked(worker, |map| {
            self.refuse(map, ticket, reason, Vec::new(), &mut wakes)
        })
    }

    fn release(&self, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
        owner.assert_usable(&self.owners);
        let Some(at) = owner.locks.find(name, name.hash() as u32) else {
            return false;
        };
        owner.locks.remove(at);
        let mut wakes = Wakes::new();
        self.locked(worker, |map| {
            self.release_lock(map, name, owner.id().index(), &mut wakes)
        });
        true
    }

    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: LockSavepoint) {
        owner.assert_usable(&self.owners);
        let mut wakes = Wakes::new();
        self.locked(worker, |map| {
            while let Some(entry) = owner.locks.pop_since(savepoint.order()) {
                self.release_lock(map, entry.name, owner.id().index(), &mut wakes);
            }
        });
    }

    fn release_all(&self, worker: &Worker, owner: &mut Owner) {
        owner.assert_usable(&self.owners);
        let mut wakes = Wakes::new();
        self.locked(worker, |map| {
            for entry in owner.locks.iter().rev() {
                self.release_lock(map, entry.name, owner.id().index(), &mut wakes);
            }
        });
        owner.clear_locks();
    }

    fn inspect(&self, worker: &Worker) -> LockSnapshot {
        self.locked(worker, |map| {
            let entry = |owner_index: u32, mode: Mode, waited: Duration| {
                QueueRequest::new(
                    &self.owners,
                    self.owners.record(owner_index).id(),
                    mode,
                    waited,
                )
            };
            let waited = |owner_index: u32| {
                let waiting = self.owners.record(owner_index).waiting();
                waiting.map_or(Duration::ZERO, |waiting| waiting.since.elapsed())
            };
            let queues = map.iter().map(|(&name, queue)| {
                let holders = queue.holders.iter();
                let waiters = queue.waiters.iter();
                NameQueue {
                    name,
                    holders: holders
                        .map(|&(p, mode)| entry(p, mode, Duration::ZERO))
                        .collect(),
                    waiters: waiters
                        .map(|w| entry(w.owner_index, w.mode, waited(w.owner_index)))
                        .collect(),
                }
            });
            LockSnapshot::new(queues.collect())
        })
    }

    fn deadlocks(&self) -> Vec<DeadlockCycle> {
        self.detector.recent()
    }

    fn stats(&self, worker: &Worker) -> LockStats {
        let bytes = self.locked(worker, |map| {
            let bytes_of = |queue: &ReferenceQueue| {
                size_of::<(Name, ReferenceQueue)>()
                    + queue.holders.capacity() * size_of::<(u32, Mode)>()
                    + queue.waiters.capacity() * size_of::<QueuedWaiter>()
            };
            map.values().map(bytes_of).sum()
        });
        LockStats::sum(&self.owners, bytes)
    }

    fn verify(&self, worker: &Worker) {
        self.locked(worker, |map| {
            for (name, queue) in map.iter() {
                assert!(
                    !queue.holders.is_empty(),
                    "L7: {name} has an entry and no holder"
                );
                for (at, holder) in queue.holders.iter().enumerate() {
                    for other in &queue.holders[..at] {
                        assert!(holder.0 != other.0, "two requests of one owner on {name}");
                        assert!(holder.1.compatible(other.1), "L1: {name}");
                    }
                }
                for (position, waiter) in queue.waiters.iter().enumerate() {
                    let conflicts = queue.conflicts(waiter.owner_index, waiter.mode, position);
                    assert!(
                        !conflicts.is_empty(),
                        "L4: a waiter could be granted {name}"
                    );
                }
            }
        });
    }
}
