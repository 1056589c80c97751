//! Lock owner: a transaction as the lock manager sees it.
//!
//! The list of held locks, the wait in progress and the counters belong to the owner alone, so
//! asking again for a held lock touches no shared memory. The part that other threads read is in
//! the owner's record (`owner_table`).
//!
//! # Invariants
//!
//! * I1  While a wait is in progress the owner requests, releases and begins nothing; `finish_wait`
//!   or a cancellation ends the wait first.

/// Wait statistics by table, by label and by name.
pub(crate) mod wait_stats;

/// The list of locks that one owner holds.
pub(crate) mod lock_list;

/// Locks that a worker keeps between two transactions.
pub(crate) mod inherited;

/// Locks that an owner only remembers.
pub(crate) mod remembered;

/// Locks of one owner whose words are beside the data.
pub(crate) mod anchored_locks;

/// An owner's index of the locks that it remembers.
pub(crate) mod remembered_index;

/// Limits on the memory that locks may take.
pub(crate) mod memory_limits;

/// The table of owners: what other threads may read of an owner, and where it sleeps.
pub(crate) mod owner_table;

/// Memory limits of an owner, and its escalations.
mod escalation_state;

/// Orders of acquisition: savepoints, and locks retained from one transaction to the next.
mod lock_order;

use crate::{
    mode::Mode,
    name::{KeyBlock, Name},
    owner::{
        anchored_locks::AnchoredLocks,
        lock_list::{LockEntry, LockList, LockSource},
        memory_limits::MemoryLimits,
        owner_table::{
            GRANTED, OwnerDetails, OwnerRecord, OwnerTable, ReservedRequests, SharedDetails,
            SharedRecord, WaitInfo, add,
        },
        remembered::{BlockPosition, RememberedLocks},
        remembered_index::RememberedIndex,
    },
    request::{Blocker, Blockers, Outcome, OwnerLabel, Refusal, RefusalReason, Reply},
};
use foxton_sync::{
    clock::now,
    park::{Ticket, Verdict},
    shim::Arc,
};
use std::{
    fmt,
    time::{Duration, Instant},
};

use escalation_state::EscalationState;

pub use crate::owner::owner_table::WaitTicket;
pub use crate::request::OwnerId;

/// Request that waits in a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingWait {
    pub(crate) name: Name,
    pub(crate) hash: u32,
    /// Slot of its request; `None` if the record has it once the request is granted.
    pub(crate) slot: Option<u32>,
    pub(crate) ticket: Ticket,
    pub(crate) mode: Mode,
    /// For a conversion, the lock's position in the list of held locks.
    pub(crate) converts: Option<usize>,
    /// For a new lock, how it will have come into its queue.
    pub(crate) source: LockSource,
    pub(crate) since: Instant,
}

/// Moment in a transaction, for `release_since`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockSavepoint(u32);

impl LockSavepoint {
    /// The moment before the first lock.
    pub const START: Self = Self(0);

    pub(crate) const fn order(self) -> u32 {
        self.0
    }
}

/// State of a scan from one key to the next, which makes requests for neighbouring keys cheap: see
/// `LockManager::request_in_scan`. It may be dropped, or used for another scan, at any time.
#[derive(Debug, Clone)]
pub struct Scan {
    pub(crate) position: BlockPosition,
    /// Hash of the block.
    pub(crate) hash: u32,
}

impl Default for Scan {
    fn default() -> Self {
        Self::new()
    }
}

impl Scan {
    /// Returns a scan that has not begun.
    pub const fn new() -> Self {
        Self {
            position: BlockPosition::NONE,
            hash: 0,
        }
    }

    /// Records that the scan has come to a block, which has the entry at `index` in the list.
    pub(crate) fn enter(&mut self, index: u32, block: KeyBlock, hash: u32) {
        self.position = BlockPosition { index, block };
        self.hash = hash;
    }
}

/// State of one transaction in the lock manager. `LockManager::owner` makes it, and it is used for
/// one transaction after the other. It may move between threads.
///
/// An owner that is dropped while it holds or waits for a lock goes on holding it, because a
/// release needs a worker: call `release_all` first.
///
/// ```
/// fn assert_send<T: Send>() {}
/// assert_send::<foxton_lock::owner::Owner>();
/// ```
pub struct Owner {
    owners: Arc<OwnerTable>,
    record: SharedRecord,
    details: SharedDetails,
    id: OwnerId,
    pub(crate) locks: LockList,
    pub(crate) anchored: AnchoredLocks,
    pub(crate) pending: Option<PendingWait>,
    pub(crate) re_asks: u64,
    /// Number of locks left for its next transaction to inherit; other owners may have revoked some
    /// of them.
    pub(crate) inherited_count: u32,
    /// Cell of the inheritance manager in which this owner is counted as conflicting.
    pub(crate) conflict_cell: Option<u32>,
    /// True if it only releases an inherited lock of another owner.
    is_proxy: bool,
    defeats: u32,
    /// List of remembered locks. An owner of a manager that does not remember has a shared list
    /// that is always empty.
    list: Arc<RememberedLocks>,
    remembers: bool,
    /// Requests reserved for this owner index, by managers that allocate them in bulk.
    pub(crate) reserved: ReservedRequests,
    /// The owner's private index of that list.
    pub(crate) lookup: RememberedIndex,
    /// Escalations so far.
    escalated: EscalationState,
}

/// View of an owner for other threads: its transaction, for people.
#[derive(Debug, Clone)]
pub struct OwnerObserver {
    owners: Arc<OwnerTable>,
    owner_index: u32,
}

impl OwnerObserver {
    /// Returns id, label and age of the transaction that the owner runs, about: another may begin
    /// meanwhile. After the owner was dropped it may be another owner's.
    pub fn describe(&self) -> (OwnerId, OwnerLabel, Duration) {
        let id = self.owners.record(self.owner_index).id();
        let (label, age) = self.owners.describe(id);
        (id, label, age)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner")
            .field("id", &self.id)
            .field("locks", &self.locks.len())
            .field("waiting", &self.pending.map(|pending| pending.name))
            .finish_non_exhaustive()
    }
}

impl Owner {
    pub(crate) fn new(owners: &Arc<OwnerTable>) -> Self {
        let owner_index = owners.allocate_index();
        let record = owners.shared_record(owner_index);
        let details = record.details_or_init();
        let id = record.id().next();
        owners.begin(&record, id);
        let reserved = record.take_reserved();
        Self {
            owners: owners.clone(),
            record,
            details,
            id,
            locks: LockList::default(),
            anchored: AnchoredLocks::default(),
            pending: None,
            re_asks: 0,
            inherited_count: 0,
            conflict_cell: None,
            is_proxy: false,
            defeats: 0,
            list: owners.empty_list(),
            remembers: false,
            reserved,
            lookup: RememberedIndex::default(),
            escalated: EscalationState::none(id, owners.limits()),
        }
    }

    /// Returns an owner with the id `id` that holds `entry` and nothing else: it releases a lock
    /// for an owner that is elsewhere.
    pub(crate) fn proxy(owners: &Arc<OwnerTable>, id: OwnerId, entry: LockEntry) -> Self {
        let mut locks = LockList::default();
        locks.push(entry.name, entry.hash, entry.slot, entry.mode);
        let record = owners.shared_record(id.index());
        let details = record.details();
        Self {
            owners: owners.clone(),
            record,
            // Inherited locks keep the details; in a test there may be none.
            details: details.unwrap_or_else(|| OwnerDetails::shared(id)),
            id,
            locks,
            anchored: AnchoredLocks::default(),
            pending: None,
            re_asks: 0,
            inherited_count: 0,
            conflict_cell: None,
            is_proxy: true,
            defeats: 0,
            list: owners.empty_list(),
            remembers: false,
            reserved: ReservedRequests::default(),
            lookup: RememberedIndex::default(),
            escalated: EscalationState::none(id, &MemoryLimits::NONE),
        }
    }

    pub(crate) fn owners(&self) -> &Arc<OwnerTable> {
        &self.owners
    }

    /// Returns an owner of a manager that remembers locks; with `fast_path`, its fast path is
    /// enabled.
    pub(crate) fn remembering(owners: &Arc<OwnerTable>, fast_path: bool) -> Self {
        let mut owner = Self::new(owners);
        owner.list = owner.details().remembered_or_init();
        owner.remembers = true;
        if fast_path {
            owner.lookup.enable_fast_path(OwnerTable::address(owners));
        }
        owner
    }

    /// Returns a view of this owner for other threads. It outlives the owner.
    pub fn observer(&self) -> OwnerObserver {
        OwnerObserver {
            owners: self.owners.clone(),
            owner_index: self.id.index(),
        }
    }

    /// Begins the next transaction: a new id, age zero, no label, no defeats.
    ///
    /// # Panics
    ///
    /// If the owner holds or waits for a lock.
    #[inline]
    pub fn begin(&mut self) -> OwnerId {
        self.assert_idle();
        assert!(
            self.holds_nothing(),
            "begin with locks held: release_all comes first"
        );
        self.defeats = 0;
        self.escalated.begin();
        self.id = self.id.next();
        self.owners.begin(&self.record, self.id);
        self.id
    }

    /// Returns the id, which the next `begin` changes.
    #[inline]
    pub fn id(&self) -> OwnerId {
        self.id
    }

    /// Sets the transaction's label, which refusals, reports and `inspect` show. Holds that have
    /// ended are counted under the earlier label.
    pub fn set_label(&mut self, label: impl Into<OwnerLabel>) {
        if self.locks.has_ended() {
            self.count_ended_holds();
        }
        self.details.set_label(self.id, label.into());
    }

    /// Returns the transaction's label; empty if it has none.
    pub fn label(&self) -> OwnerLabel {
        self.details.label_of(self.id)
    }

    /// Sets how often this transaction was the victim of a deadlock before. The more often, the
    /// later it is chosen again ([`VictimPolicy`](crate::deadlock::VictimPolicy)).
    pub fn set_defeats(&mut self, defeats: u32) {
        self.defeats = defeats;
    }

    #[inline]
    fn holds_nothing(&self) -> bool {
        self.locks.len() == 0 && self.remembered().is_none_or(RememberedLocks::is_empty)
    }

    /// Returns the held locks: first the remembered ones, mostly in the order of acquisition, then
    /// in that order those in queues.
    pub fn held(&self) -> impl DoubleEndedIterator<Item = (Name, Mode)> {
        let list = self.remembered().into_iter();
        let indices = list.flat_map(|list| (0..list.len()).map(move |index| (list, index)));
        let remembered = indices.flat_map(|(list, index)| list.locks(index));
        remembered.chain(self.locks.iter().map(|entry| (entry.name, entry.mode)))
    }

    /// Returns the number of held locks.
    pub fn lock_count(&self) -> usize {
        let list = self.remembered().into_iter();
        let remembered =
            list.flat_map(|list| (0..list.len()).map(|index| list.locks(index).count()));
        self.locks.len() + remembered.sum::<usize>()
    }

    /// Returns the memory of the lists of held locks, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.locks.memory_bytes() + self.lookup.memory_bytes() + self.anchored.memory_bytes()
    }

    /// Returns the mode in which `name` is held.
    pub fn held_mode(&self, name: Name) -> Option<Mode> {
        match self.locks.find(name, name.hash() as u32) {
            Some(at) => Some(self.locks.at(at).mode),
            None => self
                .remembered()
                .and_then(|list| self.lookup.mode_of(list, name)),
        }
    }

    /// Returns the number of acquisitions so far; a block of neighbours that a scan came to counts
    /// as one.
    #[inline]
    pub(crate) fn acquired(&self) -> u32 {
        self.locks.acquired() + self.lookup.acquired()
    }

    /// True if a request of this owner is in a queue, or has left it and its outcome was not
    /// collected.
    pub fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns the wait in progress, for a thread that may have to end it, such as a timer.
    pub fn wait_ticket(&self) -> Option<WaitTicket> {
        let ticket = self.pending?.ticket;
        Some(WaitTicket {
            owner_index: self.id.index(),
            ticket,
        })
    }

    /// Returns the list of remembered locks, at a manager that remembers.
    #[inline]
    pub(crate) fn remembered(&self) -> Option<&RememberedLocks> {
        self.remembers.then_some(&*self.list)
    }

    /// Returns the list, which is empty at a manager that does not remember, and the owner's index
    /// of it.
    #[inline(always)]
    pub(crate) fn list_and_lookup(&mut self) -> (&RememberedLocks, &mut RememberedIndex) {
        (&self.list, &mut self.lookup)
    }

    /// Returns the list, which is empty at a manager that does not remember.
    #[inline(always)]
    pub(crate) fn list(&self) -> &RememberedLocks {
        &self.list
    }

    #[inline]
    pub(crate) fn record(&self) -> &OwnerRecord {
        &self.record
    }

    #[inline]
    pub(crate) fn details(&self) -> &OwnerDetails {
        &self.details
    }

    /// True if the manager with `owners` made this owner.
    #[inline(always)]
    pub(crate) fn belongs_to(&self, owners: &Arc<OwnerTable>) -> bool {
        Arc::ptr_eq(&self.owners, owners)
    }

    /// Panics unless the manager with `owners` made this owner and I1 allows a request or a
    /// release.
    #[inline]
    pub(crate) fn assert_usable(&self, owners: &Arc<OwnerTable>) {
        assert!(self.belongs_to(owners), "an owner of another manager");
        self.assert_idle();
    }

    #[inline]
    fn assert_idle(&self) {
        assert!(
            self.pending.is_none(),
            "a wait is in progress: wait for it or cancel it first"
        );
    }

    /// Publishes a wait that is about to enter a queue.
    pub(crate) fn prepare_wait(&self, name: Name, mode: Mode) -> WaitInfo {
        let record = self.record();
        let waiting = WaitInfo {
            id: self.id,
            ticket: record.parker.arm(),
            name,
            mode,
            since: now(),
            // Keys that were traded for tables would be lost, too.
            lock_count: self.lock_count() + self.traded() as usize,
            begun: record.begun(),
            defeats: self.defeats,
        };
        record.publish(waiting.clone());
        waiting
    }

    /// Collects the outcome of a wait that has ended.
    pub(crate) fn finish_wait(&mut self, verdict: Verdict) -> Outcome {
        let pending = self.pending.take().expect("a wait is in progress");
        let refusal = self.record().end_wait();
        let now = now();
        self.count_wait(&pending, now, refusal.as_deref());
        if verdict != GRANTED {
            let refusal = refusal.expect("a refusal is stored before its verdict");
            self.details.counters.count_refusal(refusal.reason);
            self.mark_idle();
            return Outcome::Refused(refusal);
        }
        let at = self.insert_granted(&pending);
        self.locks.start_timing(at, now);
        Outcome::Granted
    }

    fn count_wait(&self, pending: &PendingWait, now: Instant, refusal: Option<&Refusal>) {
        let details = &self.details;
        let waited = now.saturating_duration_since(pending.since);
        details.counters.count_wait(waited);
        let (label, reason) = (
            details.label_of(self.id),
            refusal.map(|refusal| refusal.reason),
        );
        details.update_wait_stats(|stats| stats.count_wait(pending.name, label, waited, reason));
    }

    /// Records the hold times of all locks that were waited for.
    #[cold]
    fn count_holds(&mut self) {
        let details = self.details.clone();
        let label = details.label_of(self.id);
        let holds = self.locks.take_timed();
        details.update_wait_stats(|stats| {
            holds.for_each(|(name, held)| stats.count_hold(name, label.clone(), held));
        });
    }

    /// Records the hold times of those that were released early.
    #[cold]
    fn count_ended_holds(&mut self) {
        let ended = self.locks.take_ended();
        let label = self.details.label_of(self.id);
        self.details.update_wait_stats(|stats| {
            let holds = ended.into_iter();
            holds.for_each(|(name, held)| stats.count_hold(name, label.clone(), held));
        });
    }

    /// Adds a granted lock to the list, and returns its position.
    fn insert_granted(&mut self, pending: &PendingWait) -> usize {
        let slot = pending.slot.unwrap_or_else(|| self.record().granted_slot());
        match pending.converts {
            Some(at) => {
                self.locks.set_mode(at, pending.mode);
                self.locks.set_slot(at, slot);
                at
            }
            None => {
                self.locks
                    .push(pending.name, pending.hash, slot, pending.mode);
                let at = self.locks.last();
                self.locks.set_source(at, pending.source);
                at
            }
        }
    }

    /// Refuses a request that is not to wait, and counts it.
    pub(crate) fn refuse_busy(&self, name: Name, mode: Mode, blockers: Blockers) -> Reply {
        self.refuse(Refusal::new(RefusalReason::Busy, name, mode).blocked_by(blockers))
    }

    /// Skips a blocked request, and counts it.
    pub(crate) fn skip(&self) -> Reply {
        self.details.counters.count_refusal(RefusalReason::Busy);
        Reply::Skipped
    }

    /// Refuses a request for which there is no memory, and counts it.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse_full(&self, name: Name, mode: Mode, blockers: Vec<Blocker>) -> Reply {
        self.refuse(Refusal::new(RefusalReason::Full, name, mode).blocked_by(blockers.into()))
    }

    /// Refuses a request because this owner has used up all orders.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse_out_of_orders(&self, name: Name, mode: Mode) -> Reply {
        let mut own = self.owners.blocker(self.id, mode, false);
        own.locks = self.lock_count();
        self.refuse_full(name, mode, vec![own])
    }

    fn refuse(&self, refusal: Refusal) -> Reply {
        self.details.counters.count_refusal(refusal.reason);
        self.mark_idle();
        Reply::Refused(Box::new(refusal))
    }

    /// Adds the owner's counts to the shared counters, and empties the lists.
    pub(crate) fn clear_locks(&mut self) {
        if self.locks.is_timed() {
            self.count_holds();
        }
        let acquired = u64::from(self.locks.acquired());
        self.locks.clear();
        self.clear_remembered(acquired);
    }

    /// Empties the list of remembered locks, and counts them with `others` more.
    #[inline(always)]
    pub(crate) fn clear_remembered(&mut self, others: u64) {
        let acquired = others + u64::from(self.lookup.acquired_keys());
        self.lookup.clear();
        self.count_acquired(acquired);
    }

    /// As [`clear_remembered`](Self::clear_remembered), if no other lock was held and the fast path
    /// is open.
    #[inline(always)]
    pub(crate) fn clear_remembered_fast(&mut self) {
        let acquired = u64::from(self.lookup.acquired_keys());
        self.lookup.clear_fast();
        self.count_acquired(acquired);
    }

    #[inline(always)]
    fn count_acquired(&mut self, acquired: u64) {
        let counters = &self.details.counters;
        add(&counters.acquisitions, acquired);
        if self.re_asks > 0 {
            add(&counters.re_asks, std::mem::take(&mut self.re_asks));
        }
        if self.escalated.published {
            self.withdraw_memory();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // The index of an owner that is still in some queue must not be given to another owner.
        if self.holds_nothing() && self.pending.is_none() && !self.is_proxy {
            self.record().store_reserved(self.reserved);
            self.owners.free_index(self.id.index());
        }
    }
}
