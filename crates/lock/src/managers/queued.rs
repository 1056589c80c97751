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

use super::{
    head::{Head, Obstacle, Waiter},
    heads::Heads,
};
use crate::{
    held,
    inspect::{DeadlockReport, Entry, Queue, Snapshot, Stats},
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::{Owner, Pending, Savepoint},
    registry::{GRANTED, Registry, WaitTicket, Waiting, Wakes},
    request::{Blocker, Member, OwnerId, Patience, Reason, Refusal, Reply},
    waits::{Detector, Graph, Reach, VictimPolicy, Way},
};
use foxton_sync::{
    shim::Arc,
    site::{Component, Pattern, Site},
    worker::Worker,
};
use smallvec::SmallVec;
use std::{collections::HashSet, fmt, time::Duration};

/// Where the buckets are, and their latches.
pub(crate) trait Buckets: Send + Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// Calls `body` with the bucket at `index`, under its latch.
    fn with<R>(&self, worker: &Worker, index: usize, body: impl FnOnce(&mut Heads) -> R) -> R;

    /// Calls `body` with the bucket of `name`, whose hash this is, under its latch.
    #[inline]
    fn with_name<R>(
        &self,
        worker: &Worker,
        _name: &Name,
        hash: u32,
        body: impl FnOnce(&mut Heads) -> R,
    ) -> R {
        self.with(worker, hash as usize & (self.count() - 1), body)
    }

    /// Calls `body` with each of `locks` and its bucket, under the latches of one at a time.
    #[inline]
    fn with_each<'l>(
        &self,
        worker: &Worker,
        locks: impl Iterator<Item = &'l held::Entry>,
        mut body: impl FnMut(&'l held::Entry, &mut Heads),
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
pub struct Queued<B> {
    pub(super) buckets: B,
    pub(super) registry: Arc<Registry>,
    pub(super) detector: Detector,
}

impl<B: Buckets> fmt::Debug for Queued<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queued")
            .field("buckets", &self.buckets.count())
            .field("policy", &self.detector.policy())
            .finish_non_exhaustive()
    }
}

/// What became of a request that could not be granted at once.
enum Obstructed {
    Busy(Box<SmallVec<[(OwnerId, Obstacle); 4]>>),
    Waiting(Box<(Waiting, Pending, Reach)>),
}

/// One queue, in numbers.
struct Seen {
    name: Name,
    holders: Vec<(OwnerId, Obstacle)>,
    line: Vec<(OwnerId, Obstacle)>,
}

/// A request on its way through a bucket.
struct Asked<'o> {
    owner: &'o Owner,
    name: Name,
    hash: u32,
    /// What is to be held: for a conversion the supremum.
    mode: Mode,
    /// For a conversion, where the lock stands in the list of held ones.
    converts: Option<usize>,
    patience: Patience,
}

#[expect(
    private_bounds,
    reason = "where the latches are is not for outsiders to choose"
)]
impl<B: Buckets> Queued<B> {
    pub(crate) fn over(buckets: B, policy: VictimPolicy) -> Self {
        Self {
            buckets,
            registry: Arc::new(Registry::new()),
            detector: Detector::new(policy),
        }
    }

    #[inline]
    pub(super) fn with<R>(
        &self,
        worker: &Worker,
        name: &Name,
        hash: u32,
        body: impl FnOnce(&mut Heads) -> R,
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
        patience: Patience,
        wait_began: impl FnOnce(&Waiting, Reach),
    ) -> Reply {
        owner.assert_usable(&self.registry);
        mode.assert_suits(&name);
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
        patience: Patience,
        wait_began: impl FnOnce(&Waiting, Reach),
    ) -> Reply {
        // The result is two words: what a request that is granted does not need is in a box.
        let answer = self.with(worker, &name, hash, |heads| {
            let granted = heads.acquire(&name, owner.id().place(), mode);
            granted.map_err(|head| {
                let asked = Asked {
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
            Ok(slot) => {
                owner.held.push(name, hash, slot, mode);
                Reply::Granted
            }
            Err(obstructed) => self.answer(worker, owner, obstructed, name, mode, wait_began),
        }
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

    /// Every queue, in no particular order.
    pub(super) fn queues(&self, worker: &Worker) -> Vec<Queue> {
        let mut queues = Vec::new();
        for index in 0..self.buckets.count() {
            self.show_bucket(worker, index, usize::MAX, &mut queues);
        }
        queues
    }

    /// A request for the name held at `at`: nothing to do, or a conversion.
    #[inline(never)]
    pub(super) fn request_again(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        at: usize,
        mode: Mode,
        patience: Patience,
        wait_began: impl FnOnce(&Waiting, Reach),
    ) -> Reply {
        let held = *owner.held.at(at);
        if held.mode.covers(mode) {
            owner.re_asks += 1;
            return Reply::Held;
        }
        let asked = Asked {
            owner,
            name: held.name,
            hash: held.hash,
            mode: held.mode.supremum(mode),
            converts: Some(at),
            patience,
        };
        let Asked { name, mode, .. } = asked;
        let obstructed = self.with(worker, &name, held.hash, |heads| {
            heads.change(&name, |head| {
                let converted = head.convert(held.slot, mode);
                (!converted).then(|| self.obstructed(head, &asked))
            })
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
    fn obstructed(&self, head: &mut Head, asked: &Asked<'_>) -> Obstructed {
        let Asked {
            owner,
            name,
            hash,
            mode,
            converts,
            ..
        } = *asked;
        let place = owner.id().place();
        if asked.patience == Patience::Refuse {
            let position = head.position_of_next(converts.is_some());
            let obstacles = self.identify(head.obstacles(place, mode, position));
            return Obstructed::Busy(Box::new(obstacles));
        }
        let waiting = owner.prepare_wait(name, mode);
        let held_slot = converts.map(|at| owner.held.at(at).slot);
        let waiter = head.enqueue(place, waiting.ticket, mode, held_slot);
        let position = head
            .position(waiting.wait_ticket())
            .expect("it has just been put there");
        let reach = head.reach(position, place);
        let Waiting { ticket, since, .. } = waiting;
        let pending = Pending {
            name,
            hash,
            slot: waiter.slot,
            ticket,
            mode,
            converts,
            since,
        };
        Obstructed::Waiting(Box::new((waiting, pending, reach)))
    }

    /// The rest of it, after the latch.
    #[cold]
    #[inline(never)]
    fn answer(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        obstructed: Obstructed,
        name: Name,
        mode: Mode,
        wait_began: impl FnOnce(&Waiting, Reach),
    ) -> Reply {
        match obstructed {
            Obstructed::Busy(obstacles) => {
                let mut refusal = Box::new(Refusal::new(Reason::Busy, name, mode));
                refusal.blockers = self.blockers(*obstacles);
                Reply::Refused(owner.refused_at_once(refusal))
            }
            Obstructed::Waiting(wait) => {
                let (waiting, pending, reach) = *wait;
                owner.pending = Some(pending);
                worker.account().passed(&WAIT);
                wait_began(&waiting, reach);
                Reply::Waiting
            }
        }
    }

    /// Who they are, as long as the latch says that they are there.
    fn identify<C: FromIterator<(OwnerId, Obstacle)>>(
        &self,
        obstacles: impl Iterator<Item = Obstacle>,
    ) -> C {
        obstacles
            .map(|obstacle| (self.registry.record(obstacle.0).id(), obstacle))
            .collect()
    }

    fn blockers(&self, found: impl IntoIterator<Item = (OwnerId, Obstacle)>) -> Vec<Blocker> {
        let describe = |(owner, (_, mode, waiting))| {
            let (label, age) = self.registry.describe(owner);
            Blocker {
                owner,
                label,
                mode,
                age,
                waiting,
            }
        };
        found.into_iter().map(describe).collect()
    }

    /// Grants all that can be granted now. Under the latch; the wakes are for after it.
    #[inline]
    pub(super) fn regrant<'m>(&'m self, worker: &Worker, head: &mut Head, wakes: &mut Wakes<'m>) {
        if head.is_awaited() {
            self.regrant_line(worker, head, wakes);
        }
    }

    #[inline(never)]
    fn regrant_line<'m>(&'m self, worker: &Worker, head: &mut Head, wakes: &mut Wakes<'m>) {
        head.regrant(|Waiter { place, ticket, .. }| {
            worker.account().passed(&WAIT);
            let wake = self.registry.record(place).parker.resolve(ticket, GRANTED);
            debug_assert!(wake.is_some(), "I1: the wait had ended before");
            wakes.extend(wake);
        });
    }

    /// The queues of one bucket, until they have so many holders and waiters. Plain numbers under
    /// the latch, words after it.
    fn show_bucket(&self, worker: &Worker, index: usize, most: usize, into: &mut Vec<Queue>) {
        let seen: Vec<Seen> = self.buckets.with(worker, index, |heads| {
            let mut room = most;
            let heads = heads.iter().take_while(|head| {
                let goes_on = room > 0;
                room = room.saturating_sub(head.holders().count());
                goes_on
            });
            heads.map(|head| self.see(&head)).collect()
        });
        into.extend(seen.into_iter().map(|seen| self.told(seen)));
    }

    /// The queue of one name.
    fn show(&self, worker: &Worker, name: Name) -> Option<Queue> {
        let seen = self.with(worker, &name, name.hash() as u32, |heads| {
            heads.get(&name).map(|head| self.see(&*head))
        });
        seen.map(|seen| self.told(seen))
    }

    fn see(&self, head: &Head) -> Seen {
        let holders = head.holders().map(|(place, mode)| (place, mode, false));
        let line = head.line().map(|waiter| (waiter.place, waiter.mode, true));
        Seen {
            name: head.name(),
            holders: self.identify(holders),
            line: self.identify(line),
        }
    }

    fn told(&self, seen: Seen) -> Queue {
        let entry = |(owner, (place, mode, waits)): (OwnerId, Obstacle)| {
            let waiting = self.registry.record(place).waiting().filter(|_| waits);
            let waited = waiting.filter(|waiting| waiting.id == owner);
            let waited = waited.map_or(Duration::ZERO, |waiting| waiting.since.elapsed());
            Entry::new(&self.registry, owner, mode, waited)
        };
        Queue {
            name: seen.name,
            holders: seen.holders.into_iter().map(entry).collect(),
            waiters: seen.line.into_iter().map(entry).collect(),
        }
    }

    #[inline]
    pub(super) fn give_back<'m>(
        &'m self,
        worker: &Worker,
        lock: &held::Entry,
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
        heads: &mut Heads,
        lock: &held::Entry,
        wakes: &mut Wakes<'m>,
    ) {
        heads.change(&lock.name, |head| {
            head.release(lock.slot);
            self.regrant(worker, head, wakes);
        });
    }

    /// Ends a wait with a refusal, if it has not ended (I1).
    fn refuse(
        &self,
        worker: &Worker,
        wait: WaitTicket,
        reason: Reason,
        cycle: Vec<Member>,
    ) -> bool {
        let record = self.registry.record(wait.place);
        worker.account().passed(&WAIT);
        let Some(waiting) = record
            .waiting()
            .filter(|waiting| waiting.ticket == wait.ticket)
        else {
            return false;
        };
        let mut wakes = Wakes::new();
        let (name, hash) = (waiting.name, waiting.name.hash() as u32);
        self.with(worker, &name, hash, |heads| {
            self.refuse_in(worker, heads, &waiting, reason, cycle, &mut wakes)
        })
    }

    /// The same with the bucket of the name at hand, under its latch or with the world stopped.
    pub(super) fn refuse_in<'m>(
        &'m self,
        worker: &Worker,
        heads: &mut Heads,
        waiting: &Waiting,
        reason: Reason,
        cycle: Vec<Member>,
        wakes: &mut Wakes<'m>,
    ) -> bool {
        let wait = waiting.wait_ticket();
        let position = heads
            .get(&waiting.name)
            .and_then(|head| head.position(wait));
        let Some(position) = position else {
            return false;
        };
        heads.change(&waiting.name, |head| {
            let obstacles = head.obstacles(wait.place, waiting.mode, position);
            let obstacles: Vec<(OwnerId, Obstacle)> = self.identify(obstacles);
            head.withdraw(wait);
            let mut refusal = Refusal::new(reason, waiting.name, waiting.mode);
            refusal.waited = waiting.since.elapsed();
            refusal.blockers = self.blockers(obstacles);
            refusal.cycle = cycle;
            let record = self.registry.record(wait.place);
            wakes.extend(record.refuse(wait.ticket, Box::new(refusal)));
            self.regrant(worker, head, wakes);
        });
        true
    }
}

impl<B: Buckets> LockManager for Queued<B> {
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
        patience: Patience,
    ) -> Reply {
        self.ask(worker, owner, name, mode, patience, |waiting, reach| {
            self.detector.check(self, worker, waiting, reach);
        })
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

    fn end_wait(&self, worker: &Worker, ticket: WaitTicket, reason: Reason) -> bool {
        self.refuse(worker, ticket, reason, Vec::new())
    }

    fn release(&self, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
        owner.assert_usable(&self.registry);
        let Some(at) = owner.held.find(name, name.hash() as u32) else {
            return false;
        };
        let entry = owner.held.remove(at);
        let mut wakes = Wakes::new();
        self.give_back(worker, &entry, &mut wakes);
        true
    }

    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: Savepoint) {
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

    fn inspect(&self, worker: &Worker) -> Snapshot {
        Snapshot::new(self.queues(worker))
    }

    fn look(&self, worker: &Worker, most: usize) -> Snapshot {
        let mut queues: Vec<Queue> = Vec::new();
        let mut entries = 0;
        let awaited = self
            .registry
            .waits()
            .into_iter()
            .map(|waiting| waiting.name);
        let mut seen = HashSet::new();
        for name in awaited.filter(|name| seen.insert(*name)) {
            if entries >= most {
                break;
            }
            queues.extend(self.show(worker, name));
            let shown = queues
                .last()
                .map(|queue| queue.holders.len() + queue.waiters.len());
            entries += shown.unwrap_or(0);
        }
        let mut bucket = 0;
        while entries < most && bucket < self.buckets.count() {
            let first = queues.len();
            self.show_bucket(worker, bucket, most - entries, &mut queues);
            let fresh = queues.split_off(first);
            let fresh = fresh
                .into_iter()
                .filter(|queue| !seen.contains(&queue.name));
            queues.extend(fresh);
            entries += queues[first..]
                .iter()
                .map(|queue| queue.holders.len())
                .sum::<usize>();
            bucket += 1;
        }
        let mut snapshot = Snapshot::new(queues);
        snapshot.left_out = entries >= most;
        snapshot
    }

    fn longest_wait(&self, _worker: &Worker) -> Option<Duration> {
        self.registry.longest_wait()
    }

    fn deadlocks(&self) -> Vec<DeadlockReport> {
        self.detector.recent()
    }

    fn stats(&self, worker: &Worker) -> Stats {
        let bytes_in = |index| {
            self.buckets
                .with(worker, index, |heads| heads.memory_bytes())
        };
        let heads: usize = (0..self.buckets.count()).map(bytes_in).sum();
        Stats::sum(&self.registry, self.buckets.memory_bytes() + heads)
    }

    fn verify(&self, worker: &Worker) {
        for index in 0..self.buckets.count() {
            self.buckets.with(worker, index, |heads| heads.verify());
        }
    }
}

impl<B: Buckets> Graph for Queued<B> {
    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn reach(&self, worker: &Worker, waiting: &Waiting, target: u32) -> Option<Reach> {
        self.with(worker, &waiting.name, waiting.name.hash() as u32, |heads| {
            let head = heads.get(&waiting.name)?;
            let position = head.position(waiting.wait_ticket())?;
            Some(head.reach(position, target))
        })
    }

    fn in_the_way(&self, worker: &Worker, waiting: &Waiting, blocker: u32) -> Option<Way> {
        self.with(worker, &waiting.name, waiting.name.hash() as u32, |heads| {
            heads
                .get(&waiting.name)?
                .in_the_way(waiting.wait_ticket(), blocker)
        })
    }

    fn condemn(&self, worker: &Worker, victim: WaitTicket, cycle: Vec<Member>) -> bool {
        self.refuse(worker, victim, Reason::Deadlock, cycle)
    }
}
