//! The contract in its plainest form: one mutex, one map, and every rule a loop over a list.
//!
//! The oracle of the tests, and the place to read what a lock manager does. Nothing here is fast:
//! nothing is counted in advance, and the wait-for graph is recomputed whenever somebody waits.

use crate::{
    deadlock::{BlockingMode, Detector, VictimPolicy, describe},
    inspect::{DeadlockCycle, LockQueue, LockSnapshot, LockStats, QueueEntry},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::{
        LockSavepoint, Owner, PendingWait,
        owner_table::{GRANTED, OwnerTable, WaitInfo, WaitTicket, Wakes},
    },
    request::{Blocker, CycleMember, RefusalReason, Reply, WaitMode},
};
use foxton_sync::{
    park::Ticket,
    shim::{Arc, Mutex, lock, try_lock},
    site::{Component, Pattern, Site},
    worker::Worker,
};
use std::{collections::BTreeMap, time::Duration};

static MAP: Site = Site::new(Component::Lock, Pattern::Unbounded, "reference lock map");

/// One name.
#[derive(Debug, Default)]
struct NameQueue {
    holders: Vec<(u32, Mode)>,
    /// Who waits, first come first, but conversions before new requests.
    line: Vec<QueuedWaiter>,
}

#[derive(Debug, Clone, Copy)]
struct QueuedWaiter {
    place: u32,
    ticket: Ticket,
    mode: Mode,
}

/// Who stands in the way: place, mode, and whether it only waits itself.
type ReferenceConflict = (u32, Mode, bool);

impl NameQueue {
    fn held_by(&self, place: u32) -> Option<Mode> {
        self.holders
            .iter()
            .find(|holder| holder.0 == place)
            .map(|holder| holder.1)
    }

    /// Who is in the way of a request of `place` for `mode` at `position` of the line: holders, and
    /// whoever is before it.
    fn obstacles(&self, place: u32, mode: Mode, position: usize) -> Vec<ReferenceConflict> {
        let holders = self
            .holders
            .iter()
            .map(|&(other, held)| (other, held, false));
        let before = self.line[..position]
            .iter()
            .map(|other| (other.place, other.mode, true));
        let in_the_way =
            |&(other, held, _): &ReferenceConflict| other != place && !held.compatible(mode);
        holders.chain(before).filter(in_the_way).collect()
    }

    /// Where a request of `place` would stand: behind the conversions, or behind everybody.
    fn position_for(&self, place: u32) -> usize {
        match self.held_by(place) {
            Some(_) => self
                .line
                .iter()
                .filter(|w| self.held_by(w.place).is_some())
                .count(),
            None => self.line.len(),
        }
    }

    fn position_of(&self, wait: WaitTicket) -> Option<usize> {
        let is_it = |w: &QueuedWaiter| w.place == wait.place && w.ticket == wait.ticket;
        self.line.iter().position(is_it)
    }

    fn grant(&mut self, place: u32, mode: Mode) {
        self.holders.retain(|holder| holder.0 != place);
        self.holders.push((place, mode));
    }

    /// Grants the first in the line whom nobody is in the way of, until there is none.
    fn regrant(&mut self) -> Vec<QueuedWaiter> {
        let mut granted = Vec::new();
        let mut position = 0;
        while let Some(&waiter) = self.line.get(position) {
            if self
                .obstacles(waiter.place, waiter.mode, position)
                .is_empty()
            {
                self.line.remove(position);
                self.grant(waiter.place, waiter.mode);
                granted.push(waiter);
            } else {
                position += 1;
            }
        }
        granted
    }
}

type Map = BTreeMap<Name, NameQueue>;

/// The plainest lock manager.
#[derive(Debug)]
pub struct Reference {
    map: Mutex<Map>,
    registry: Arc<OwnerTable>,
    detector: Detector,
}

impl Reference {
    /// A manager without locks.
    pub fn new(policy: VictimPolicy) -> Self {
        Self {
            map: Mutex::default(),
            registry: Arc::new(OwnerTable::new()),
            detector: Detector::new(policy),
        }
    }

    pub(crate) fn registry(&self) -> &OwnerTable {
        &self.registry
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

    fn blockers(&self, obstacles: &[ReferenceConflict]) -> Vec<Blocker> {
        let blocker = |&(place, mode, waiting): &ReferenceConflict| {
            let owner = self.registry.record(place).id();
            self.registry.blocker(owner, mode, waiting)
        };
        obstacles.iter().map(blocker).collect()
    }

    /// Grants whoever can be granted after `name` changed, and forgets it if nobody holds it.
    fn settle<'m>(&'m self, map: &mut Map, name: Name, wakes: &mut Wakes<'m>) {
        let queue = map.get_mut(&name).expect("a name that was just changed");
        for waiter in queue.regrant() {
            let parker = &self.registry.record(waiter.place).parker;
            wakes.extend(parker.resolve(waiter.ticket, GRANTED));
        }
        if queue.holders.is_empty() {
            assert!(
                queue.line.is_empty(),
                "L4: nobody holds the name, and somebody waits"
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
        cycle: Vec<CycleMember>,
        wakes: &mut Wakes<'m>,
    ) -> bool {
        let record = self.registry.record(wait.place);
        let Some(waiting) = record.waiting() else {
            return false;
        };
        let Some(queue) = map.get_mut(&waiting.name) else {
            return false;
        };
        let Some(position) = queue.position_of(wait) else {
            return false;
        };
        let obstacles = queue.obstacles(wait.place, waiting.mode, position);
        let refusal = waiting.refusal(reason, self.blockers(&obstacles), cycle);
        queue.line.remove(position);
        wakes.extend(record.refuse(wait.ticket, refusal));
        self.settle(map, waiting.name, wakes);
        true
    }

    /// Whom the owner at `place` waits for, if it waits: its wait, and who is in its way.
    fn edges(&self, map: &Map, place: u32) -> Option<(WaitInfo, Vec<ReferenceConflict>)> {
        let waiting = self.registry.record(place).waiting()?;
        let queue = map.get(&waiting.name)?;
        let position = queue.position_of(waiting.wait_ticket())?;
        let obstacles = queue.obstacles(place, waiting.mode, position);
        Some((waiting, obstacles))
    }

    /// A path along edges from `path`'s last owner back to its first.
    fn close(
        &self,
        map: &Map,
        place: u32,
        path: &mut Vec<(WaitInfo, BlockingMode)>,
        seen: &mut Vec<u32>,
    ) -> bool {
        let Some((waiting, obstacles)) = self.edges(map, place) else {
            return false;
        };
        for (other, mode, waits) in obstacles {
            path.push((
                waiting.clone(),
                BlockingMode {
                    mode,
                    holds: !waits,
                },
            ));
            let first = path[0].0.id.place();
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

    /// Ends every cycle that the owner at `place` has closed by waiting.
    fn end_deadlocks<'m>(&'m self, map: &mut Map, place: u32, wakes: &mut Wakes<'m>) {
        loop {
            let mut path = Vec::new();
            if !self.close(map, place, &mut path, &mut vec![place]) {
                return;
            }
            let (cycle, ways): (Vec<WaitInfo>, Vec<BlockingMode>) = path.into_iter().unzip();
            let victim = self.detector.policy().choose(&cycle);
            let members = describe(&self.registry, &cycle, &ways, victim);
            self.detector.remember(members.clone());
            self.refuse(
                map,
                cycle[victim].wait_ticket(),
                RefusalReason::Deadlock,
                members,
                wakes,
            );
        }
    }

    fn give_back<'m>(&'m self, map: &mut Map, name: Name, place: u32, wakes: &mut Wakes<'m>) {
        let queue = map.get_mut(&name).expect("a held name has a queue");
        queue.holders.retain(|holder| holder.0 != place);
        self.settle(map, name, wakes);
    }
}

impl LockManager for Reference {
    fn owner(&self) -> Owner {
        Owner::new(&self.registry)
    }

    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        patience: WaitMode,
    ) -> Reply {
        owner.assert_usable(&self.registry);
        mode.assert_suits(&name);
        if !owner.has_room() {
            return owner.refuse_for_order(name, mode);
        }
        let mut wakes = Wakes::new();
        self.locked(worker, |map| {
            let place = owner.id().place();
            let queue = map.entry(name).or_default();
            let held = queue.held_by(place);
            if held.is_some_and(|held| held.covers(mode)) {
                owner.re_asks += 1;
                return Reply::Held;
            }
            let mode = held.map_or(mode, |held| held.supremum(mode));
            let hash = name.hash() as u32;
            let converts = owner.held.find(name, hash);
            let position = queue.position_for(place);
            let obstacles = queue.obstacles(place, mode, position);
            if obstacles.is_empty() {
                queue.grant(place, mode);
                match converts {
                    Some(at) => owner.held.set_mode(at, mode),
                    None => owner.held.push(name, hash, 0, mode),
                }
                return Reply::Granted;
            }
            match patience {
                WaitMode::Wait => {}
                WaitMode::Skip => return owner.pass_over(),
                WaitMode::Refuse => {
                    return owner.refuse_at_once(name, mode, self.blockers(&obstacles));
                }
            }
            let WaitInfo { ticket, since, .. } = owner.prepare_wait(name, mode);
            queue.line.insert(
                position,
                QueuedWaiter {
                    place,
                    ticket,
                    mode,
                },
            );
            owner.pending = Some(PendingWait {
                name,
                hash,
                slot: 0,
                ticket,
                mode,
                converts,
                since,
            });
            self.end_deadlocks(map, place, &mut wakes);
            Reply::Waiting
        })
    }

    fn cancel(&self, worker: &Worker, owner: &mut Owner) {
        let Some(pending) = owner.pending.take() else {
            return;
        };
        let wait = WaitTicket {
            place: owner.id().place(),
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
                        .expect("an open wait is in the line");
                    queue.line.remove(position);
                }
                (Some(_), None) => queue.holders.retain(|holder| holder.0 != wait.place),
                (Some(_), Some(at)) => queue.grant(wait.place, owner.held.at(at).mode),
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
        owner.assert_usable(&self.registry);
        let Some(at) = owner.held.find(name, name.hash() as u32) else {
            return false;
        };
        owner.held.remove(at);
        let mut wakes = Wakes::new();
        self.locked(worker, |map| {
            self.give_back(map, name, owner.id().place(), &mut wakes)
        });
        true
    }

    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: LockSavepoint) {
        owner.assert_usable(&self.registry);
        let mut wakes = Wakes::new();
        self.locked(worker, |map| {
            while let Some(entry) = owner.held.pop_since(savepoint.order()) {
                self.give_back(map, entry.name, owner.id().place(), &mut wakes);
            }
        });
    }

    fn release_all(&self, worker: &Worker, owner: &mut Owner) {
        owner.assert_usable(&self.registry);
        let mut wakes = Wakes::new();
        self.locked(worker, |map| {
            for entry in owner.held.iter().rev() {
                self.give_back(map, entry.name, owner.id().place(), &mut wakes);
            }
        });
        owner.forget_held();
    }

    fn inspect(&self, worker: &Worker) -> LockSnapshot {
        self.locked(worker, |map| {
            let entry = |place: u32, mode: Mode, waited: Duration| {
                QueueEntry::new(
                    &self.registry,
                    self.registry.record(place).id(),
                    mode,
                    waited,
                )
            };
            let waited = |place: u32| {
                let waiting = self.registry.record(place).waiting();
                waiting.map_or(Duration::ZERO, |waiting| waiting.since.elapsed())
            };
            let queues = map.iter().map(|(&name, queue)| {
                let holders = queue.holders.iter();
                let waiters = queue.line.iter();
                LockQueue {
                    name,
                    holders: holders
                        .map(|&(p, mode)| entry(p, mode, Duration::ZERO))
                        .collect(),
                    waiters: waiters
                        .map(|w| entry(w.place, w.mode, waited(w.place)))
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
            let bytes_of = |queue: &NameQueue| {
                size_of::<(Name, NameQueue)>()
                    + queue.holders.capacity() * size_of::<(u32, Mode)>()
                    + queue.line.capacity() * size_of::<QueuedWaiter>()
            };
            map.values().map(bytes_of).sum()
        });
        LockStats::sum(&self.registry, bytes)
    }

    fn verify(&self, worker: &Worker) {
        self.locked(worker, |map| {
            for (name, queue) in map.iter() {
                assert!(
                    !queue.holders.is_empty(),
                    "L7: {name} is remembered, and nobody holds it"
                );
                for (at, holder) in queue.holders.iter().enumerate() {
                    for other in &queue.holders[..at] {
                        assert!(holder.0 != other.0, "two requests of one owner on {name}");
                        assert!(holder.1.compatible(other.1), "L1: {name}");
                    }
                }
                for (position, waiter) in queue.line.iter().enumerate() {
                    let obstacles = queue.obstacles(waiter.place, waiter.mode, position);
                    assert!(
                        !obstacles.is_empty(),
                        "L4: somebody could be granted {name}"
                    );
                }
            }
        });
    }
}
