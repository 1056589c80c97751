//! Speculative lock inheritance, over any manager: a transaction leaves hot table locks to the next
//! transaction with its owner index, which need not request them again.
//!
//! Nearly all transactions request a table in compatible modes, so it would block no other
//! transaction if the lock were held all the time. Inheritance does not save the lock but the
//! communication: each request and each release of the one name that all transactions have in
//! common.
//!
//! # State
//!
//! A lock that is left stays in its queue as granted to the owner index. Its entry moves from the
//! owner's list to the inherited locks of its record, where it belongs to no transaction. The next
//! transaction with this index takes it over when it requests the name. Any other thread that needs
//! it released removes and releases it, whether or not a transaction with this index runs.
//!
//! Each table has a cell, chosen by its number; tables with the same cell share its state.
//!
//! | in the cell | |
//! |---|---|
//! | heat | rises by `HEAT_STEP` with a contended request, falls by one with any other |
//! | conflicts | transactions that wait for the table, or are about to request it in conflict |
//! | inherited modes | a superset of the modes of inherited locks on tables of the cell |
//!
//! # Invariants
//!
//! * I1  No lock is left while its cell has a conflict. A conflicting request first counts a
//!   conflict in the cell, then takes the mutex of every owner's inherited locks. An owner that
//!   leaves a lock checks for conflicts under its own mutex. So the lock is either not left, or
//!   found: the critical section that comes second sees the other's effect.
//! * I2  A waiter waits for no inherited lock, because it counted a conflict and looked for
//!   inherited locks after it had entered the queue.
//! * I3  A transaction never converts a lock that it inherited in another mode than it requests; it
//!   releases that lock first (but IX serves for IS). A conversion would go before earlier
//!   requests, and two conversions could wait for each other for nothing.
//! * I4  A lock that is being revoked counts as inherited for as long as it is in its queue, to all
//!   but the thread that revokes it. Otherwise it would look as if the running transaction of that
//!   owner held it. That transaction may wait for the owner that waits for the lock, and the
//!   detector would find a deadlock that does not exist.
//!
//! # Differences from the paper
//!
//! Johnson, Pandis and Ailamaki (2013, section 5.2; in full: "Improving OLTP scalability using
//! speculative lock inheritance", 2009) keep the inherited request in its queue with a status that
//! both sides change by compare-and-swap. Here both sides take the mutex of the owner's record
//! instead. Other threads leave it alone as long as no request conflicts. The queues need not know
//! of inheritance, so it works over any manager. A lock that a transaction did not request is
//! released only after `MAX_UNUSED` transactions, because an idle lock costs nothing.
//!
//! A worker also keeps the cached table (number, indexes, types) from one transaction to the next.
//! It never becomes invalid, because tables are not dropped.
//!
//! `staged` reports contention when it must retry an exchange. `staged:paper` exchanges once, so it
//! seldom reports any.

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
    anchor::LockAnchor,
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
    /// Always, hot or not, and only in the requested mode, so that inheritance has no visible
    /// effect. For tests.
    Always,
}

foxton_sync::named_enum! {
    Inheritance, "inheritance":
    Off = "off",
    Hot = "hot",
    Always = "always",
}

/// Inherited locks of a record: their owner and a revoking thread meet there.
static INHERITED: Site = Site::new(Component::Lock, Pattern::Fixed, "inherited locks");
/// A cell that has to be changed.
static CELL: Site = Site::new(Component::Lock, Pattern::Unbounded, "inheritance cell");

const CELLS: usize = if cfg!(loom) { 1 } else { 64 };
/// Heat from which on a lock is hot: one contended request in so many.
const HOT: u32 = 64;
/// Heat added by one contended request.
const HEAT_STEP: u32 = 64;
/// Limits the heat, so that a formerly hot lock cools down within so many requests.
const MAX_HEAT: u32 = 4 * HOT;
/// One in so many hot locks is released anyway, to be measured again, because an inherited lock is
/// not requested.
const RENEW_ONE_IN: u64 = 1024;
/// Number of transactions that may end without requesting an inherited lock.
const MAX_UNUSED: u32 = 8;
/// Most inherited locks of one owner index.
const MAX_INHERITED: usize = 8;
/// Number of locks above which a transaction leaves none, because one table lock does not matter to
/// it.
const MAX_LOCKS: usize = 256;

/// Indexes in `OwnerCounters::inheritance`.
#[derive(Debug, Clone, Copy)]
enum InheritanceOutcome {
    Cold,
    Wanted,
    Renewed,
    Kept,
    Used,
    Discarded,
}

/// State of the tables with one cell; see the [module](self).
#[derive(Debug, Default)]
struct HeatCell {
    /// Number of conflicts, and below it the inherited modes.
    state: AtomicU32,
    heat: AtomicU32,
}

const ONE_CONFLICT: u32 = 1 << 8;
const MODES: u32 = ONE_CONFLICT - 1;

impl HeatCell {
    #[inline]
    fn inherited_modes(&self) -> Set {
        // Relaxed, here and below: one word has the whole state, and a mutex protects the inherited
        // locks (I1).
        Set::from_bits((self.state.load(Ordering::Relaxed) & MODES) as u8)
    }

    fn has_conflict(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= ONE_CONFLICT
    }

    /// Announces that a lock in `mode` may be inherited. Returns false if there is a conflict.
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

    /// Sets the inherited modes after a search through all inherited locks. Called by an owner with
    /// a conflict.
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
        // Relaxed, and not one read-modify-write: of two changes at once one may be lost, and a
        // request that is neither hot nor contended writes nothing.
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

/// True if a lock may be inherited: a table lock held to read the table, or to use some of its
/// keys.
fn is_inheritable(entry: &LockEntry) -> bool {
    entry.name.class() == Class::Table && matches!(entry.mode, Mode::IS | Mode::IX | Mode::S)
}

/// Manager whose transactions inherit.
#[derive(Debug)]
pub struct Inherit<M> {
    inner: M,
    always: bool,
    /// Table of owners of `inner`, once it has made an owner.
    owners: OnceLock<Arc<OwnerTable>>,
    cells: Box<[CachePadded<HeatCell>]>,
}

impl<M: LockManager> Inherit<M> {
    /// Returns inheritance over `inner`: of hot locks, or of all.
    pub fn new(inner: M, always: bool) -> Self {
        Self {
            inner,
            always,
            owners: OnceLock::new(),
            cells: (0..CELLS).map(|_| CachePadded::default()).collect(),
        }
    }

    /// Returns the manager below, which decides all conflicts.
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

    /// Releases a lock that was among the inherited locks of `record`.
    #[cold]
    fn release_inherited(&self, worker: &Worker, record: &OwnerRecord, entry: LockEntry) {
        let mut holder = Owner::proxy(self.owners(), record.id(), entry);
        let released = self.inner.release(worker, &mut holder, entry.name);
        assert!(released, "what is kept is held");
    }

    /// Revokes all inherited locks on `name` that conflict with `mode`. Called by an owner with a
    /// conflict (I1).
    #[cold]
    fn revoke(&self, worker: &Worker, name: Name, mode: Mode) {
        let index = Self::cell_index(name);
        let mut left = Set::NONE;
        for record in self.owners().records() {
            let Some(details) = record.details() else {
                continue;
            };
            worker.account().passed(&INHERITED);
            let mut inherited = lock(&details.inherited);
            let revoked = inherited.revoke(name, mode);
            left = left.union(inherited.modes(|name| Self::cell_index(name) == index));
            // Under the mutex (I4).
            if let Some(entry) = revoked {
                self.release_inherited(worker, record, entry);
            }
        }
        self.cells[index].set_inherited_modes(worker, left);
    }

    /// Takes over an inherited lock, if its mode suits the request.
    fn take_inherited(&self, worker: &Worker, owner: &mut Owner, name: Name, mode: Mode) -> bool {
        worker.account().passed(&INHERITED);
        let (left, taken) = {
            let mut inherited = lock(&owner.details().inherited);
            let taken = inherited.remove(name);
            (inherited.len(), taken)
        };
        owner.inherited_count = left as u32;
        let Some(entry) = taken else {
            return false;
        };
        // An intention to write keeps out no more transactions than an intention to read, except
        // those that lock whole tables. S in place of IS would keep out every writer.
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

    /// Requests a table.
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

    /// Removes the conflict of a transaction that had to wait, when it requests another table or
    /// ends.
    fn remove_conflict(&self, worker: &Worker, owner: &mut Owner) {
        if let Some(cell) = owner.conflict_cell.take() {
            self.cells[cell as usize].remove_conflict(worker);
        }
    }

    /// Removes the locks to be inherited from the list of held locks.
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

    /// Stores inheritable locks, and releases those with a conflict and those that were not used.
    fn store_inherited(&self, worker: &Worker, owner: &mut Owner, inheritable: &[LockEntry]) {
        worker.account().passed(&INHERITED);
        let mut refused: SmallVec<[LockEntry; MAX_INHERITED]> = SmallVec::new();
        let mut expired: SmallVec<[LockEntry; MAX_INHERITED]> = SmallVec::new();
        let left = {
            let mut inherited = lock(&owner.details().inherited);
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
    /// Removes inherited locks from a snapshot, because no request has to wait for them.
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
    add(&owner.details().counters.inheritance[outcome as usize], 1);
}

impl<M: LockManager> LockManager for Inherit<M> {
    fn owner(&self) -> Owner {
        let mut owner = self.inner.owner();
        self.owners.get_or_init(|| owner.owners().clone());
        // Locks that the last owner with this index left are there for this one.
        let left = lock(&owner.details().inherited).len();
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
        (name, anchor): (Name, Option<&LockAnchor>),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        match name.class() {
            Class::Table => self.request_table(worker, owner, name, mode, wait_mode),
            _ => {
                let inner = &self.inner;
                inner.request_in_scan(worker, owner, scan, (name, anchor), mode, wait_mode)
            }
        }
    }

    #[inline]
    fn request_anchored(
        &self,
        worker: &Worker,
        owner: &mut Owner,
        target: (Name, &LockAnchor),
        mode: Mode,
        wait_mode: WaitMode,
    ) -> Reply {
        self.inner
            .request_anchored(worker, owner, target, mode, wait_mode)
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

    fn dismiss(&self, worker: &Worker, owner: &mut Owner) {
        owner.assert_usable(self.owners());
        self.remove_conflict(worker, owner);
        let inherited: SmallVec<[LockEntry; MAX_INHERITED]> = {
            worker.account().passed(&INHERITED);
            lock(&owner.details().inherited).take_all().collect()
        };
        owner.inherited_count = 0;
        for entry in inherited {
            count(owner, InheritanceOutcome::Discarded);
            self.release_inherited(worker, owner.record(), entry);
        }
        self.inner.dismiss(worker, owner);
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
            let Some(details) = record.details() else {
                continue;
            };
            for inherited in lock(&details.inherited).iter() {
                let held = held.get_or_insert_with(|| self.inner.inspect(worker));
                let name = inherited.entry.name;
                let holders = held.queue(name).map_or(&[][..], |queue| &queue.holders);
                let is_it = |holder: &inspect::QueueRequest| {
                    holder.owner.index() == record.id().index()
                        && holder.mode == inherited.entry.mode
                };
                assert!(holders.iter().any(is_it), "{name} is kept and not held");
                let modes = self.cell_of(name).inherited_modes();
                assert_eq!(modes.union(inherited.entry.mode.set()), modes, "kept modes");
            }
        }
    }

    forward! { (inner) prefetch unanchor trim end_wait wait poll_wait release longest_wait deadlocks }
}
