//! Inheritance, over any manager: a transaction leaves hot locks on tables to the next transaction at
//! its place, instead of giving them back for the next to ask for again.
//!
//! Nearly all transactions ask for the table in compatible modes, so nobody would have minded had the
//! lock been held all the time. What this saves is not the lock but the meeting: each request and
//! each release of the one name that all transactions have in common.
//!
//! # State
//!
//! A lock that is left behind stays in its queue as granted to the place. Its entry moves from the
//! owner's held locks to the place's estate (`inherited`), where it belongs to no transaction: the next
//! one at the place takes it over when it asks for the name, and anybody who needs it gone takes it
//! out and releases it, whether the place sleeps or runs.
//!
//! A table has a cell, by its number; tables that share one share its verdicts.
//!
//! | in the cell | |
//! |---|---|
//! | heat | rises by `HEAT_STEP` with a request that met somebody inside, falls by one with any other |
//! | wanted | how many transactions had to wait for the table, or are about to ask for it against what is kept |
//! | kept modes | a superset of the modes in which somebody keeps a table of the cell |
//!
//! # Invariants
//!
//! * I1  Nobody leaves a lock behind while its cell is wanted. Who wants first raises `wanted`, then
//!   takes the mutex of each estate; who leaves looks at `wanted` under the mutex of its own. So the
//!   lock is either not left, or found: whichever critical section comes second sees the other's.
//! * I2  Who waits, waits for no lock that is left behind: it wanted, and looked for them, after it
//!   came to stand in the queue.
//! * I3  A transaction never converts what it took over unasked: a lock in another mode than is
//!   asked for is given back first (but IX serves for IS). A conversion would go before requests that came earlier, and two
//!   of them could wait for each other for nothing.
//! * I4  What is taken away from a place is in its estate for as long as it is in its queue, to all but who takes it away. Else
//!   it would look as if the place's transaction had it, which may wait for who waits for it: a deadlock that is none.
//!
//! # Differences from the paper
//!
//! Johnson, Pandis and Ailamaki (2013, section 5.2; in full: "Improving OLTP scalability using
//! speculative lock inheritance", 2009) keep the inherited request in its queue with a status that
//! both sides change by compare-and-swap. Here both sides take the mutex of the place instead, which
//! nobody else touches as long as nobody wants the table, and the queues need not know: so any manager
//! can be under it. A lock that a transaction did not ask for is not given up at once but after
//! `MAX_UNUSED` transactions, for a lock that lies idle costs nobody anything.

use crate::{
    inspect::{self, LockSnapshot, LockStats},
    manager::{LockManager, forward},
    mode::{Mode, Set},
    name::{Class, Name},
    owner::{
        LockSavepoint, Owner, Scan,
        lock_list::LockEntry,
        owner_table::{OwnerRecord, OwnerTable, add},
    },
    request::{Reply, WaitMode},
};
use foxton_sync::{
    cache_line::CachePadded,
    shim::{Arc, AtomicU32, Ordering, lock},
    site::{Component, Pattern, Site},
    worker::Worker,
};
use smallvec::SmallVec;
use std::sync::OnceLock;

/// When locks are inherited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Inheritance {
    /// Never.
    #[default]
    Off,
    /// When they are hot.
    Hot,
    /// Always, hot or not, and only in the very mode asked for: so nothing of it shows. For tests.
    Always,
}

foxton_sync::named_enum! {
    Inheritance, "inheritance":
    Off = "off",
    Hot = "hot",
    Always = "always",
}

/// What lies in an estate, looked at by its place and by whoever needs it gone.
static INHERITED: Site = Site::new(Component::Lock, Pattern::Fixed, "inherited locks");
/// A cell that has to be changed.
static CELL: Site = Site::new(Component::Lock, Pattern::Unbounded, "inheritance cell");

const CELLS: usize = if cfg!(loom) { 1 } else { 64 };
/// A lock is hot from this heat on: from one meeting in so many requests.
const HOT: u32 = 64;
/// What one meeting adds.
const HEAT_STEP: u32 = 64;
/// So that what was hot for long cools down within so many requests.
const MAX_HEAT: u32 = 4 * HOT;
/// One in so many hot locks is released nevertheless, to be measured again: while it is inherited
/// nobody asks.
const RENEW_ONE_IN: u64 = 1024;
/// Transactions that may end without asking for what was left to them.
const MAX_UNUSED: u32 = 8;
/// Locks that one place keeps at most.
const MAX_INHERITED: usize = 8;
/// Transactions with more locks than this leave nothing behind: to them a table lock is nothing.
const MAX_LOCKS: usize = 256;

/// Places in `OwnerCounters::inheritance`.
#[derive(Debug, Clone, Copy)]
enum InheritanceOutcome {
    Cold,
    Wanted,
    Renewed,
    Kept,
    Used,
    Discarded,
}

/// See the [module](self).
#[derive(Debug, Default)]
struct HeatCell {
    /// Wanted, and below it the kept modes.
    state: AtomicU32,
    heat: AtomicU32,
}

const ONE_CONFLICT: u32 = 1 << 8;
const MODES: u32 = ONE_CONFLICT - 1;

impl HeatCell {
    #[inline]
    fn inherited_modes(&self) -> Set {
        // Relaxed, here and below: one word says it all, and what is left behind is behind a mutex (I1).
        Set::from_bits((self.state.load(Ordering::Relaxed) & MODES) as u8)
    }

    fn has_conflict(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= ONE_CONFLICT
    }

    /// Says that `mode` may be kept. `false` if somebody wants it gone.
    fn announce(&self, worker: &Worker, mode: Mode) -> bool {
        let with_it = |state: u32| {
            let announced = state | u32::from(mode.set().bits());
            (state < ONE_CONFLICT).then_some(announced)
        };
        let state = self.state.load(Ordering::Relaxed);
        if with_it(state) == Some(state) {
            return true;
        }
        worker.account().passed(&CELL);
        let announced = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_it);
        announced.is_ok()
    }

    fn add_conflict(&self, worker: &Worker) {
        worker.account().passed(&CELL);
        self.state.fetch_add(ONE_CONFLICT, Ordering::Relaxed);
    }

    fn remove_conflict(&self, worker: &Worker) {
        worker.account().passed(&CELL);
        self.state.fetch_sub(ONE_CONFLICT, Ordering::Relaxed);
    }

    /// What is kept was looked through, and only this is left. By somebody who wants.
    fn set_inherited_modes(&self, worker: &Worker, modes: Set) {
        worker.account().passed(&CELL);
        let with_them = |state: u32| Some(state & !MODES | u32::from(modes.bits()));
        let set = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_them);
        debug_assert!(set.is_ok_and(|state| state >= ONE_CONFLICT), "I1");
    }

    /// Counts a request to the queue of the table.
    #[inline]
    fn record_request(&self, contended: bool) {
        // Relaxed, and not one read-modify-write: of two changes at once one may be lost, and what is
        // neither hot nor met is not written at all.
        let heat = self.heat.load(Ordering::Relaxed);
        if contended {
            self.heat
                .store((heat + HEAT_STEP).min(MAX_HEAT), Ordering::Relaxed);
        } else if heat > 0 {
            self.heat.store(heat - 1, Ordering::Relaxed);
        }
    }

    fn is_hot(&self) -> bool {
        self.heat.load(Ordering::Relaxed) >= HOT
    }
}

/// Whether a lock may be left behind: a table's, held to read it, or to use some of its keys.
fn is_inheritable(entry: &LockEntry) -> bool {
    entry.name.class() == Class::Table && matches!(entry.mode, Mode::IS | Mode::IX | Mode::S)
}

/// A manager whose transactions inherit.
#[derive(Debug)]
pub struct Inherit<M> {
    inner: M,
    always: bool,
    /// That of `inner`, once it has made an owner.
    owners: OnceLock<Arc<OwnerTable>>,
    cells: Box<[CachePadded<HeatCell>]>,
}

impl<M: LockManager> Inherit<M> {
    /// Inheritance over `inner`: of hot locks, or of all.
    pub fn new(inner: M, always: bool) -> Self {
        Self {
            inner,
            always,
            owners: OnceLock::new(),
            cells: (0..CELLS).map(|_| CachePadded::default()).collect(),
        }
    }

    /// What decides who holds what is not inherited.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    fn owners(&self) -> &Arc<OwnerTable> {
        let made = self.owners.get();
        made.expect("an owner of another manager: this one has made none")
    }

    fn cell_index(name: Name) -> usize {
        name.space() as usize % CELLS
    }

    fn cell_of(&self, name: Name) -> &HeatCell {
        &self.cells[Self::cell_index(name)]
    }

    /// Gives back what lay in the estate of `record`.
    #[cold]
    fn release_inherited(&self, worker: &Worker, record: &OwnerRecord, entry: LockEntry) {
        let mut holder = Owner::proxy(self.owners(), record.id(), entry);
        let released = self.inner.release(worker, &mut holder, entry.name);
        assert!(released, "what is kept is held");
    }

    /// Takes away all that is kept of `name` and in the way of `mode`. By somebody who wants (I1).
    #[cold]
    fn revoke(&self, worker: &Worker, name: Name, mode: Mode) {
        let index = Self::cell_index(name);
        let mut left = Set::NONE;
        for record in self.owners().records() {
            worker.account().passed(&INHERITED);
            let mut inherited = lock(&record.inherited);
            let revoked = inherited.revoke(name, mode);
            left = left.union(inherited.modes(|name| Self::cell_index(name) == index));
            // Under the mutex (I4).
            if let Some(entry) = revoked {
                self.release_inherited(worker, record, entry);
            }
        }
        self.cells[index].set_inherited_modes(worker, left);
    }

    /// Takes over what an earlier transaction of the place left, if it suits what is asked for.
    fn take_inherited(&self, worker: &Worker, owner: &mut Owner, name: Name, mode: Mode) -> bool {
        worker.account().passed(&INHERITED);
        let (left, taken) = {
            let mut inherited = lock(&owner.record().inherited);
            let taken = inherited.remove(name);
            (inherited.len(), taken)
        };
        owner.inherited_count = left as u32;
        let Some(entry) = taken else {
            return false;
        };
        // The intention to write keeps no more transactions out than that to read, but for those that
        // lock whole tables; S in place of IS would keep out every writer.
        let intention = !self.always && entry.mode == Mode::IX && mode == Mode::IS;
        let suits = entry.mode == mode || intention;
        if suits {
            owner
                .locks
                .push(entry.name, entry.hash, entry.slot, entry.mode);
            count(owner, InheritanceOutcome::Used);
        } else {
            self.release_inherited(worker, owner.record(), entry); // I3
            count(owner, InheritanceOutcome::Discarded);
        }
        suits
    }

    /// A request for a table.
    fn request_table(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        owner.assert_usable(self.owners());
        mode.assert_suits(&name);
        if !owner.has_free_order() {
            return owner.refuse_out_of_orders(name, mode);
        }
        self.remove_conflict(worker, owner);
        let held = owner.held_mode(name);
        let may_be_left = owner.inherited_count > 0 && held.is_none();
        if may_be_left && self.take_inherited(worker, owner, name, mode) {
            return Reply::Granted;
        }
        let cell = self.cell_of(name);
        let target = held.map_or(mode, |held| held.supremum(mode));
        let conflicts = cell.inherited_modes().intersects(target.conflicts());
        if conflicts {
            cell.add_conflict(worker);
            self.revoke(worker, name, target);
        }
        let before = worker.contentions();
        let reply = self.inner.request(worker, owner, name, mode, wait_mode);
        cell.record_request(worker.contentions() != before);
        if matches!(reply, Reply::Waiting) {
            if !conflicts {
                cell.add_conflict(worker);
            }
            owner.conflict_cell = Some(Self::cell_index(name) as u32);
            self.revoke(worker, name, target); // I2
        } else if conflicts {
            cell.remove_conflict(worker);
        }
        reply
    }

    /// Until the transaction that had to wait asks for another table, or ends.
    fn remove_conflict(&self, worker: &Worker, owner: &mut Owner) {
        if let Some(cell) = owner.conflict_cell.take() {
            self.cells[cell as usize].remove_conflict(worker);
        }
    }

    /// Takes what is to be left behind out of the held locks.
    fn collect_inheritable(
        &self,
        worker: &Worker,
        owner: &mut Owner,
    ) -> SmallVec<[LockEntry; MAX_INHERITED]> {
        let mut inheritable = SmallVec::new();
        if owner.lock_count() > MAX_LOCKS {
            return inheritable;
        }
        let names: SmallVec<[Name; MAX_INHERITED]> = owner
            .locks
            .iter()
            .filter(|entry| is_inheritable(entry))
            .take(MAX_INHERITED)
            .map(|entry| entry.name)
            .collect();
        for name in names {
            let cell = self.cell_of(name);
            let outcome = if !self.always && !cell.is_hot() {
                InheritanceOutcome::Cold
            } else if cell.has_conflict() {
                InheritanceOutcome::Wanted
            } else if !self.always && worker.random_below(RENEW_ONE_IN) == 0 {
                InheritanceOutcome::Renewed
            } else {
                let found = owner.locks.find(name, name.hash() as u32);
                let at = found.expect("a lock that is held");
                inheritable.push(owner.locks.remove(at));
                continue;
            };
            count(owner, outcome);
        }
        inheritable
    }

    /// Leaves `collect_inheritable` behind, and gives back those that somebody wants and what was passed over.
    fn store_inherited(&self, worker: &Worker, owner: &mut Owner, inheritable: &[LockEntry]) {
        worker.account().passed(&INHERITED);
        let mut refused: SmallVec<[LockEntry; MAX_INHERITED]> = SmallVec::new();
        let mut expired: SmallVec<[LockEntry; MAX_INHERITED]> = SmallVec::new();
        let left = {
            let mut inherited = lock(&owner.record().inherited);
            expired.extend(inherited.expire(MAX_UNUSED));
            for &entry in inheritable {
                // Under the mutex (I1).
                if inherited.len() < MAX_INHERITED
                    && self.cell_of(entry.name).announce(worker, entry.mode)
                {
                    inherited.insert(entry);
                } else {
                    refused.push(entry);
                }
            }
            inherited.len()
        };
        owner.inherited_count = left as u32;
        for _ in 0..inheritable.len() - refused.len() {
            count(owner, InheritanceOutcome::Kept);
        }
        for entry in expired {
            count(owner, InheritanceOutcome::Discarded);
            self.release_inherited(worker, owner.record(), entry);
        }
        for entry in refused {
            count(owner, InheritanceOutcome::Wanted);
            self.release_inherited(worker, owner.record(), entry);
        }
    }
}

impl<M> Inherit<M> {
    /// Nobody has to wait for what is kept, so nobody holds it.
    fn without_inherited(&self, mut snapshot: LockSnapshot) -> LockSnapshot {
        let Some(owners) = self.owners.get() else {
            return snapshot;
        };
        snapshot.retain_holders(|name, holder| {
            name.class() != Class::Table || !owners.record(holder.owner.index()).has_inherited(name)
        });
        snapshot
    }
}

fn count(owner: &Owner, outcome: InheritanceOutcome) {
    add(&owner.record().counters.inheritance[outcome as usize], 1);
}

impl<M: LockManager> LockManager for Inherit<M> {
    fn owner(&self) -> Owner {
        let mut owner = self.inner.owner();
        self.owners.get_or_init(|| owner.owners().clone());
        // What the last at this place left is there for this one.
        let left = lock(&owner.record().inherited).len();
        owner.inherited_count = left as u32;
        owner
    }

    #[inline]
    fn request(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        match name.class() {
            Class::Table => self.request_table(worker, owner, name, mode, wait_mode),
            _ => self.inner.request(worker, owner, name, mode, wait_mode),
        }
    }

    #[inline]
    fn request_in_scan(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        scan: &mut Scan,
        name: Name,
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        match name.class() {
            Class::Table => self.request_table(worker, owner, name, mode, wait_mode),
            _ => {
                let inner = &self.inner;
                inner.request_in_scan(worker, owner, scan, name, mode, wait_mode)
            }
        }
    }

    #[inline]
    fn lock_range(&self, worker: &Worker, owner: &mut Owner, first: Name, last: Name) -> bool {
        self.inner.lock_range(worker, owner, first, last)
    }

    fn cancel(&self, worker: &Worker, owner: &mut Owner) {
        self.inner.cancel(worker, owner);
        self.remove_conflict(worker, owner);
    }

    fn release_since(&self, worker: &Worker, owner: &mut Owner, savepoint: LockSavepoint) {
        owner.assert_usable(self.owners());
        self.remove_conflict(worker, owner);
        self.inner.release_since(worker, owner, savepoint);
    }

    fn release_all(&self, worker: &Worker, owner: &mut Owner) {
        owner.assert_usable(self.owners());
        self.remove_conflict(worker, owner);
        let inheritable = self.collect_inheritable(worker, owner);
        self.inner.release_all(worker, owner);
        if !inheritable.is_empty() || owner.inherited_count > 0 {
            self.store_inherited(worker, owner, &inheritable);
        }
    }

    fn inspect(&self, worker: &Worker) -> LockSnapshot {
        self.without_inherited(self.inner.inspect(worker))
    }

    fn inspect_limited(&self, worker: &Worker, most: usize) -> LockSnapshot {
        self.without_inherited(self.inner.inspect_limited(worker, most))
    }

    fn stats(&self, worker: &Worker) -> LockStats {
        let mut stats = self.inner.stats(worker);
        stats.memory_bytes += size_of_val(&self.cells[..]);
        stats
    }

    fn verify(&self, worker: &Worker) {
        self.inner.verify(worker);
        let mut held = None;
        let records = self.owners.get().into_iter();
        for record in records.flat_map(|owners| owners.records()) {
            for inherited in lock(&record.inherited).iter() {
                let held = held.get_or_insert_with(|| self.inner.inspect(worker));
                let name = inherited.entry.name;
                let holders = held.queue(name).map_or(&[][..], |queue| &queue.holders);
                let is_it = |holder: &inspect::QueueEntry| {
                    holder.owner.index() == record.id().index()
                        && holder.mode == inherited.entry.mode
                };
                assert!(holders.iter().any(is_it), "{name} is kept and not held");
                let modes = self.cell_of(name).inherited_modes();
                assert_eq!(modes.union(inherited.entry.mode.set()), modes, "kept modes");
            }
        }
    }

    forward! { (inner) prefetch end_wait wait poll_wait release longest_wait deadlocks }
}
