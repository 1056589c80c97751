//! The manager: requests in chains, waiters in lines.
//!
//! # State
//!
//! Chains with everybody who holds something, reached without a latch. In front of them lines with
//! everybody who waits, a latch over the lines of each 1/256 of the chains. The index from which requests
//! come. The registry of owners and the detector of deadlocks, shared with the other managers.
//!
//! # Invariants
//!
//! * I1  A wait ends under the latch of its line, by whoever takes the waiter out of it: so once.
//! * I2  `Owner::held` has exactly the granted requests of the owner, but for a grant that was not
//!   collected yet.
//! * I3  What is awaited in front of a chain is announced there (C3, C4), under the latch, before
//!   anybody in it is left waiting.
//! * I4  When the latch is dropped nobody in the line can be granted; but for holders that have marked
//!   their requests obsolete and are on their way to the latch.
//!
//! # Why L3, L4 and L5 hold
//!
//! Whoever cannot pass a chain takes the latch of its line. Under it, requests of one name are decided
//! one after the other: announce, look at the holders, then be granted, refused or put in the line. So
//! among those who wait, the order is that of the latch; and nobody passes them who is in their way,
//! for the announcement is seen by everybody who comes without the latch, and he then takes it.
//! Conversions stand before new requests and behind earlier conversions. A request refused was in the
//! line, or in none: what it announced is taken back, and whoever was sent here by it decides under the
//! latch, by what is really there (L3). Whatever takes an obstacle away looks at the line afterwards: who
//! releases learns by C4 that somebody waits, and who leaves the line is under its latch (L4).

use super::{
    chains::{Asked, Chains, Holder, Holders},
    index::{Index, Retired, Rule},
    line::{Line, Lines, Obstacle, Waiter, obstacles},
};
use crate::{
    held,
    inspect::{DeadlockReport, Entry, Queue, Snapshot, Stats},
    manager::LockManager,
    mode::{Mode, Set},
    name::Name,
    owner::{Owner, Pending, Savepoint},
    registry::{GRANTED, Registry, WaitTicket, Waiting, Wakes},
    request::{Blocker, Member, OwnerId, Patience, Reason, Reply},
    waits::{Detector, Graph, Reach, VictimPolicy, Way},
};
use foxton_sync::{
    cache_line::CachePadded,
    latch::{Kind, Latched},
    shim::{Arc, Ordering},
    site::{Component, Pattern, Site},
    worker::Worker,
};
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    time::Duration,
};

/// The lines: for those who must wait, and those who release what is awaited.
static LINE: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock line");
/// A waiter and whoever ends its wait: the record and the parker between them.
static WAIT: Site = Site::new(Component::Lock, Pattern::Fixed, "lock wait");

/// Latches over lines.
const STRIPES: usize = if cfg!(loom) { 1 } else { 256 };

/// A manager over chains of either form.
pub struct Staged<C> {
    chains: C,
    lines: Box<[CachePadded<Latched<Lines>>]>,
    index: Index,
    registry: Arc<Registry>,
    detector: Detector,
}

impl<C> fmt::Debug for Staged<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staged")
            .field("index", &self.index)
            .field("policy", &self.detector.policy())
            .finish_non_exhaustive()
    }
}

/// What became of a request that could not be granted at once.
enum Decided {
    Granted,
    Busy(Vec<Obstacle>),
    Waiting(Box<(Waiting, Reach)>),
}

#[expect(
    private_bounds,
    reason = "what chains look like is not for outsiders to choose"
)]
impl<C: Chains> Staged<C> {
    /// A manager of `count` chains, a power of two up to 2^31, over latches of `kind`.
    pub(crate) fn over(count: usize, kind: Kind, policy: VictimPolicy, rule: Rule) -> Self {
        assert!(
            count.is_power_of_two() && count <= 1 << 31,
            "2^n chains, at most 2^31"
        );
        let registry = Arc::new(Registry::new());
        let line = |_| CachePadded::new(Latched::new(kind, &LINE, Lines::default()));
        Self {
            chains: C::new(count),
            lines: (0..count.min(STRIPES)).map(line).collect(),
            index: Index::new(rule, registry.clone()),
            registry,
            detector: Detector::new(policy),
        }
    }

    /// Calls `body` with the lines in front of a chain, under their latch and pinned.
    fn with<R>(&self, worker: &Worker, hash: u32, body: impl FnOnce(&mut Lines) -> R) -> R {
        let stripe = hash as usize & (self.lines.len() - 1);
        self.lines[stripe].with(worker, |lines| {
            let _pinned = self.index.pin(worker);
            body(lines)
        })
    }

    /// What is awaited in front of one chain.
    fn awaited(&self, lines: &Lines, hash: u32) -> Set {
        let mask = self.chains.count() as u32 - 1;
        lines.awaited(|other| (other ^ hash) & mask == 0)
    }

    fn set_awaited(&self, lines: &Lines, hash: u32) {
        self.chains.set_awaited(hash, self.awaited(lines, hash));
    }

    /// A request for the name held at `at`: nothing to do, or a conversion.
    #[inline(never)]
    fn request_again(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        at: usize,
        mode: Mode,
        patience: Patience,
    ) -> Reply {
        let held = *owner.held.at(at);
        if held.mode.covers(mode) {
            owner.re_asks += 1;
            return Reply::Held;
        }
        let asked = Asked {
            name: held.name,
            hash: held.hash,
            owner: owner.id(),
            mode: held.mode.supremum(mode),
            replaces: Some(held.slot),
        };
        match self
            .chains
            .acquire(&self.index, worker, &asked, &mut owner.spare)
        {
            Ok(request) => {
                owner.held.set_mode(at, asked.mode);
                owner.held.set_slot(at, request);
                Reply::Granted
            }
            Err(request) => self.contend(worker, owner, asked, Some(at), request, patience),
        }
    }

    /// A request that could not be granted without the latch.
    #[cold]
    #[inline(never)]
    fn contend(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        asked: Asked,
        converts: Option<usize>,
        request: u32,
        patience: Patience,
    ) -> Reply {
        let mut wakes = Wakes::new();
        let decided = self.with(worker, asked.hash, |lines| {
            self.decide(worker, owner, lines, &asked, request, patience, &mut wakes)
        });
        drop(wakes);
        match decided {
            Decided::Granted => {
                match converts {
                    Some(at) => {
                        owner.held.set_mode(at, asked.mode);
                        owner.held.set_slot(at, request);
                    }
                    None => owner.held.push(asked.name, asked.hash, request, asked.mode),
                }
                Reply::Granted
            }
            Decided::Busy(obstacles) => {
                owner.refuse_at_once(asked.name, asked.mode, self.blockers(obstacles))
            }
            Decided::Waiting(wait) => {
                let (waiting, reach) = *wait;
                let Asked {
                    name, hash, mode, ..
                } = asked;
                owner.pending = Some(Pending {
                    name,
                    hash,
                    slot: request,
                    ticket: waiting.ticket,
                    mode,
                    converts,
                    since: waiting.since,
                });
                worker.account().passed(&WAIT);
                self.detector.check(self, worker, &waiting, reach);
                Reply::Waiting
            }
        }
    }

    /// Under the latch: announce, look, decide.
    #[expect(clippy::too_many_arguments, reason = "one step of one story")]
    fn decide<'m>(
        &'m self,
        worker: &Worker,
        owner: &Owner,
        lines: &mut Lines,
        asked: &Asked,
        request: u32,
        patience: Patience,
        wakes: &mut Wakes<'m>,
    ) -> Decided {
        let Asked {
            name, hash, mode, ..
        } = *asked;
        let converts = asked.replaces.is_some();
        self.chains.announce(hash, mode.set());
        let holders = self.chains.holders(&self.index, hash, &name);
        let line = lines.get(&name);
        let ahead = line.map_or(Set::NONE, |line| line.ahead_of_next(converts));
        if !ahead.meets(mode.conflicts()) && !are_in_the_way(&holders, asked.owner, mode) {
            let awaited = self.awaited(lines, hash);
            self.chains.grant(&self.index, asked, request, awaited);
            return Decided::Granted;
        }
        if patience == Patience::Refuse {
            let obstacles = match line {
                Some(line) => {
                    let position = line.position_of_next(converts);
                    line.obstacles(&holders, asked.owner, mode, position)
                }
                None => obstacles(&holders, asked.owner, mode),
            };
            let mut retired = self.index.retire(worker);
            self.chains
                .withdraw(&self.index, hash, request, &mut retired);
            self.set_awaited(lines, hash);
            self.regrant(worker, lines, &name, wakes);
            return Decided::Busy(obstacles);
        }
        let waiting = owner.prepare_wait(name, mode);
        let line = lines.enqueue(asked, request, waiting.ticket);
        let position = line.position(waiting.wait_ticket());
        let position = position.expect("it has just been put there");
        let reach = line.reach(&holders, position, asked.owner.place());
        // Whoever saw this request and not yet that it would wait may be in the line for it.
        self.regrant(worker, lines, &name, wakes);
        Decided::Waiting(Box::new((waiting, reach)))
    }

    /// Grants all in the line of `name` who now can be, first come first. Under the latch; the wakes
    /// are for after it.
    fn regrant<'m>(
        &'m self,
        worker: &Worker,
        lines: &mut Lines,
        name: &Name,
        wakes: &mut Wakes<'m>,
    ) {
        let Some(line) = lines.get(name) else { return };
        let hash = line.hash();
        let mut holders = self.chains.holders(&self.index, hash, name);
        let mut ahead = Set::NONE;
        let mut position = 0;
        while let Some(waiter) = lines.get(name).and_then(|line| line.at(position)) {
            let line = lines.get_mut(name).expect("somebody is in it");
            if ahead.meets(waiter.mode.conflicts())
                || are_in_the_way(&holders, waiter.owner, waiter.mode)
            {
                ahead = ahead.union(waiter.mode.set());
                position += 1;
                let granted = holders
                    .iter()
                    .fold(Set::NONE, |all, holder| all.union(holder.mode.set()));
                if line.rest_is_blocked(position, granted, ahead) {
                    break;
                }
            } else {
                line.leave(position);
                self.grant(worker, lines, name, hash, &waiter, &mut holders, wakes);
            }
        }
        lines.tidy(name);
    }

    #[expect(clippy::too_many_arguments, reason = "one step of one story")]
    fn grant<'m>(
        &'m self,
        worker: &Worker,
        lines: &Lines,
        name: &Name,
        hash: u32,
        waiter: &Waiter,
        holders: &mut Holders,
        wakes: &mut Wakes<'m>,
    ) {
        let asked = Asked {
            name: *name,
            hash,
            owner: waiter.owner,
            mode: waiter.mode,
            replaces: waiter.replaces,
        };
        let awaited = self.awaited(lines, hash);
        self.chains
            .grant(&self.index, &asked, waiter.request, awaited);
        holders.retain(|holder| Some(holder.request) != waiter.replaces);
        holders.push(Holder {
            owner: waiter.owner,
            mode: waiter.mode,
            request: waiter.request,
        });
        worker.account().passed(&WAIT);
        let record = self.registry.record(waiter.owner.place());
        let wake = record.parker.resolve(waiter.ticket, GRANTED);
        debug_assert!(wake.is_some(), "I1: the wait had ended before");
        wakes.extend(wake);
    }

    /// Who has the place of `owner` now. A lock that is inherited outlives the transaction that took it.
    fn present(&self, owner: OwnerId) -> OwnerId {
        self.registry.record(owner.place()).id()
    }

    fn blockers(&self, found: Vec<Obstacle>) -> Vec<Blocker> {
        let blocker = |(owner, mode, waiting)| {
            let owner = self.present(owner);
            self.registry.blocker(owner, mode, waiting)
        };
        found.into_iter().map(blocker).collect()
    }

    #[inline]
    fn give_back<'m>(
        &'m self,
        worker: &Worker,
        lock: &held::Entry,
        retired: &mut Retired<'_>,
        wakes: &mut Wakes<'m>,
    ) {
        if self
            .chains
            .release(&self.index, worker, lock.hash, lock.slot, retired)
        {
            self.regrant_after(worker, lock, wakes);
        }
    }

    #[cold]
    #[inline(never)]
    fn regrant_after<'m>(&'m self, worker: &Worker, lock: &held::Entry, wakes: &mut Wakes<'m>) {
        self.with(worker, lock.hash, |lines| {
            self.regrant(worker, lines, &lock.name, wakes);
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
        worker.account().passed(&WAIT);
        let Some(waiting) = self.registry.waiting(wait) else {
            return false;
        };
        let hash = waiting.name.hash() as u32;
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        self.with(worker, hash, |lines| {
            let Some(line) = lines.get_mut(&waiting.name) else {
                return false;
            };
            let Some(position) = line.position(wait) else {
                return false;
            };
            let holders = self.chains.holders(&self.index, hash, &waiting.name);
            let obstacles = line.obstacles(&holders, waiting.id, waiting.mode, position);
            let waiter = line.leave(position);
            self.leave_line(
                worker,
                lines,
                &waiter,
                &waiting.name,
                &mut retired,
                &mut wakes,
            );
            let refusal = waiting.refusal(reason, self.blockers(obstacles), cycle);
            let record = self.registry.record(wait.place);
            wakes.extend(record.refuse(wait.ticket, refusal));
            true
        })
    }

    /// What is to be done when somebody has left the line ungranted.
    fn leave_line<'m>(
        &'m self,
        worker: &Worker,
        lines: &mut Lines,
        waiter: &Waiter,
        name: &Name,
        retired: &mut Retired<'_>,
        wakes: &mut Wakes<'m>,
    ) {
        let hash = name.hash() as u32;
        lines.tidy(name);
        self.chains
            .withdraw(&self.index, hash, waiter.request, retired);
        self.set_awaited(lines, hash);
        self.regrant(worker, lines, name, wakes);
    }

    /// Gives a conversion back that was granted after its owner had lost interest.
    fn revert(&self, worker: &Worker, owner: &mut Owner, pending: &Pending, at: usize) {
        let former = owner.held.at(at).mode;
        let asked = Asked {
            name: pending.name,
            hash: pending.hash,
            owner: owner.id(),
            mode: former,
            replaces: Some(pending.slot),
        };
        let request = self.index.take(worker, &mut owner.spare);
        self.chains.write(&self.index, &asked, request);
        let mut wakes = Wakes::new();
        self.with(worker, pending.hash, |lines| {
            let awaited = self.awaited(lines, pending.hash);
            self.chains.grant(&self.index, &asked, request, awaited);
            self.regrant(worker, lines, &pending.name, &mut wakes);
        });
        owner.held.set_slot(at, request);
    }

    /// The queues of these chains, one after the other, until they have so many holders and waiters.
    fn see(&self, worker: &Worker, chains: impl Iterator<Item = usize>, most: usize) -> Snapshot {
        let (mut queues, mut entries, mut left_out): (Vec<Queue>, _, _) = (Vec::new(), 0, false);
        for at in chains.filter(|&at| !self.chains.is_empty(at)) {
            left_out = entries >= most;
            if left_out {
                break;
            }
            let found = self.queues(worker, at);
            queues.extend(found.into_iter().map(|(name, holders, waiters)| {
                let entry = |(owner, mode, waits): Obstacle| {
                    let owner = self.present(owner);
                    let record = self.registry.record(owner.place());
                    let waiting = record.waiting().filter(|_| waits);
                    let waited = waiting.filter(|waiting| waiting.id == owner);
                    let waited = waited.map_or(Duration::ZERO, |waiting| waiting.since.elapsed());
                    Entry::new(&self.registry, owner, mode, waited)
                };
                let (holders, waiters) = (holders.into_iter(), waiters.into_iter());
                let queue = Queue {
                    name,
                    holders: holders.map(entry).collect(),
                    waiters: waiters.map(entry).collect(),
                };
                entries += queue.holders.len() + queue.waiters.len();
                queue
            }));
        }
        let mut snapshot = Snapshot::new(queues);
        snapshot.left_out = left_out;
        snapshot
    }

    fn queues(&self, worker: &Worker, at: usize) -> Vec<(Name, Vec<Obstacle>, Vec<Obstacle>)> {
        let mut queues: BTreeMap<Name, (Vec<Obstacle>, Vec<Obstacle>)> = BTreeMap::new();
        self.with(worker, at as u32, |lines| {
            self.chains.all(&self.index, at, &mut |name, holder| {
                let holders = &mut queues.entry(*name).or_default().0;
                if holders.iter().all(|(owner, ..)| *owner != holder.owner) {
                    holders.push((holder.owner, holder.mode, false));
                }
            });
            let mask = self.chains.count() - 1;
            for line in lines
                .iter()
                .filter(|line| line.hash() as usize & mask == at)
            {
                let waiters = line.iter().map(|waiter| (waiter.owner, waiter.mode, true));
                queues.entry(line.name()).or_default().1.extend(waiters);
            }
        });
        let queues = queues.into_iter();
        queues
            .map(|(name, (holders, waiters))| (name, holders, waiters))
            .collect()
    }
}

/// Whether one of `holders` keeps `owner` from `mode`.
fn are_in_the_way(holders: &[Holder], owner: OwnerId, mode: Mode) -> bool {
    let conflicts = mode.conflicts();
    holders
        .iter()
        .any(|holder| holder.mode.set().meets(conflicts) && holder.owner.place() != owner.place())
}

impl<C: Chains> LockManager for Staged<C> {
    fn owner(&self) -> Owner {
        Owner::new(&self.registry)
    }

    #[inline(never)]
    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        patience: Patience,
    ) -> Reply {
        owner.assert_usable(&self.registry);
        mode.assert_suits(&name);
        let hash = name.hash() as u32;
        if let Some(at) = owner.held.find(name, hash) {
            return self.request_again(worker, owner, at, mode, patience);
        }
        let asked = Asked {
            name,
            hash,
            owner: owner.id(),
            mode,
            replaces: None,
        };
        if self.index.asks_who_runs() && owner.held.len() == 0 {
            let since = &owner.record().active_since;
            // Relaxed: what keeps anybody from harm is the epoch.
            since.store(self.index.moment(), Ordering::Relaxed);
        }
        match self
            .chains
            .acquire(&self.index, worker, &asked, &mut owner.spare)
        {
            Ok(request) => {
                owner.held.push(name, hash, request, mode);
                Reply::Granted
            }
            Err(request) => self.contend(worker, owner, asked, None, request, patience),
        }
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
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        let verdict = self.with(worker, pending.hash, |lines| {
            let verdict = owner.record().parker.disarm(pending.ticket);
            if verdict.is_none() {
                let line = lines.get_mut(&pending.name);
                let found = line.and_then(|line| Some(line.leave(line.position(wait)?)));
                let waiter = found.expect("I1: an open wait is in the line");
                self.leave_line(
                    worker,
                    lines,
                    &waiter,
                    &pending.name,
                    &mut retired,
                    &mut wakes,
                );
            }
            verdict
        });
        drop(wakes);
        if verdict == Some(GRANTED) {
            match pending.converts {
                Some(at) => self.revert(worker, owner, &pending, at),
                None => {
                    let (hash, slot) = (pending.hash, pending.slot);
                    if self
                        .chains
                        .release(&self.index, worker, hash, slot, &mut retired)
                    {
                        let mut wakes = Wakes::new();
                        self.with(worker, hash, |lines| {
                            self.regrant(worker, lines, &pending.name, &mut wakes);
                        });
                    }
                }
            }
        }
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
        let mut retired = self.index.retire(worker);
        self.give_back(worker, &entry, &mut retired, &mut wakes);
        true
    }

    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: Savepoint) {
        owner.assert_usable(&self.registry);
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        while let Some(entry) = owner.held.pop_since(savepoint.order()) {
            self.give_back(worker, &entry, &mut retired, &mut wakes);
        }
    }

    #[inline]
    fn release_all(&self, worker: &Worker, owner: &mut Owner) {
        owner.assert_usable(&self.registry);
        // Woken together at the end, and given back in bulk.
        let mut wakes = Wakes::new();
        let mut retired = self.index.retire(worker);
        for entry in owner.held.iter().rev() {
            self.give_back(worker, entry, &mut retired, &mut wakes);
        }
        if self.index.asks_who_runs() {
            let since = &owner.record().active_since;
            // Relaxed: as when it was set.
            since.store(u64::MAX, Ordering::Relaxed);
        }
        owner.forget_held();
    }

    fn inspect(&self, worker: &Worker) -> Snapshot {
        self.see(worker, 0..self.chains.count(), usize::MAX)
    }

    fn look(&self, worker: &Worker, most: usize) -> Snapshot {
        let mask = self.chains.count() - 1;
        let awaited = self.registry.waits().into_iter();
        let awaited = awaited.map(|waiting| waiting.name.hash() as usize & mask);
        let mut seen = HashSet::new();
        let order = awaited.chain(0..=mask).filter(|&at| seen.insert(at));
        self.see(worker, order, most).shortened(most)
    }

    fn longest_wait(&self, _worker: &Worker) -> Option<Duration> {
        self.registry.longest_wait()
    }

    fn deadlocks(&self) -> Vec<DeadlockReport> {
        self.detector.recent()
    }

    fn stats(&self, worker: &Worker) -> Stats {
        let lines = self.lines.iter();
        let lines = lines.map(|lines| lines.with(worker, |lines| lines.memory_bytes()));
        let bytes = lines.sum::<usize>()
            + size_of_val(&self.lines[..])
            + self.chains.memory_bytes()
            + self.index.memory_bytes();
        Stats::sum(&self.registry, bytes)
    }

    fn verify(&self, worker: &Worker) {
        for at in 0..self.chains.count() {
            self.with(worker, at as u32, |lines| {
                let awaited = self.awaited(lines, at as u32);
                self.chains.verify(&self.index, at, awaited);
                lines.iter().for_each(Line::verify);
            });
        }
    }
}

impl<C: Chains> Graph for Staged<C> {
    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn reach(&self, worker: &Worker, waiting: &Waiting, target: u32) -> Option<Reach> {
        let hash = waiting.name.hash() as u32;
        self.with(worker, hash, |lines| {
            let line = lines.get(&waiting.name)?;
            let position = line.position(waiting.wait_ticket())?;
            let holders = self.chains.holders(&self.index, hash, &waiting.name);
            Some(line.reach(&holders, position, target))
        })
    }

    fn in_the_way(&self, worker: &Worker, waiting: &Waiting, blocker: u32) -> Option<Way> {
        let hash = waiting.name.hash() as u32;
        self.with(worker, hash, |lines| {
            let line = lines.get(&waiting.name)?;
            let holders = self.chains.holders(&self.index, hash, &waiting.name);
            line.in_the_way(&holders, waiting.wait_ticket(), blocker)
        })
    }

    fn condemn(&self, worker: &Worker, victim: WaitTicket, cycle: Vec<Member>) -> bool {
        self.refuse(worker, victim, Reason::Deadlock, cycle)
    }
}
