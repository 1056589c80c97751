//! Table of owners: what other threads may read of an owner, and where its thread or task sleeps.
//!
//! Records are in an append-only list of the manager. When an owner is dropped, its index is given
//! to a new owner, and the generation in the [`OwnerId`] distinguishes the two. So a thread that
//! walks from queue to queue holds plain numbers, and needs neither a lifetime nor unsafe code.
//!
//! A record is small, because it stays for good. The *details* of an owner, which take more memory,
//! go with the owner, and their counts are added to those of all owners that are gone. The smallest
//! free index is given first, and a walk over all owners visits only those that exist. So little is
//! left of a peak of owners.
//!
//! # Invariants
//!
//! * I1  A record is written by its owner, with two exceptions. The verdict and the refusal of a
//!   wait, and the slot of a request that had waited, are written by the thread that removed the
//!   waiter from its queue, under that queue's latch. Inherited locks are removed, under their
//!   mutex, by any thread that needs them released.
//! * I2  An owner's id changes only while the owner holds and waits for nothing but its inherited
//!   locks. So a thread that finds a request in a queue, under its latch, finds that request's
//!   owner in the record.
//! * I3  The mutexes here are leaves: a thread that holds one takes no latch and no other mutex of
//!   them, with two exceptions. The mutex of inherited locks is held until a revoked lock has left
//!   its queue. So no thread takes that mutex under a latch. And freeing an index takes the mutexes
//!   of the indexes, of the record's wait or details, and of the parts of the details, in this
//!   order.
//! * I4  A walk visits every owner that was made before the walk began and has not been dropped.
//!   It visits every index with inherited locks, too: the index of an owner that leaves some stays
//!   in use until the next owner gets it. The mutex of the indexes orders making, walking and
//!   dropping.

use crate::{
    mode::Mode,
    name::Name,
    owner::{
        inherited::InheritedLocks,
        memory_limits::{EscalationCounts, LockMemory, MemoryLimits},
        remembered::RememberedLocks,
        wait_stats::WaitStats,
    },
    request::{Blocker, Blockers, DeadlockMember, OwnerId, OwnerLabel, Refusal, RefusalReason},
};
use foxton_sync::{
    anchor::MAX_OWNERS,
    cache_line::CachePadded,
    clock::{CoarseInstant, coarse_now},
    index_allocator::{IndexAllocator, set_bits},
    park::{Parker, Ticket, Verdict, Wake},
    shim::{Arc, AtomicU32, AtomicU64, Mutex, Ordering, lock},
};
use smallvec::SmallVec;
use std::{
    ops::Deref,
    sync::OnceLock,
    time::{Duration, Instant},
};

/// Verdict of a wait that ended with the lock.
pub(crate) const GRANTED: Verdict = Verdict::new(1);
/// Verdict of a wait that ended without it; the record has the refusal.
pub(crate) const REFUSED: Verdict = Verdict::new(2);

/// Threads and tasks whose waits have ended, to be woken once no latch is held. Dropping this wakes
/// them.
pub(crate) type Wakes<'r> = SmallVec<[Wake<'r>; 4]>;

/// One wait of one owner, for a thread that may have to end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WaitTicket {
    pub(crate) owner_index: u32,
    pub(crate) ticket: Ticket,
}

/// Wait of an owner, as its record shows it.
#[derive(Debug, Clone)]
pub(crate) struct WaitInfo {
    pub(crate) id: OwnerId,
    pub(crate) ticket: Ticket,
    pub(crate) name: Name,
    /// Mode that it will hold once granted.
    pub(crate) mode: Mode,
    pub(crate) since: Instant,
    pub(crate) lock_count: usize,
    /// When its transaction began, on the clock of the owner table.
    pub(crate) begun: Duration,
    /// Number of times that it was a victim before.
    pub(crate) defeats: u32,
}

impl WaitInfo {
    pub(crate) fn wait_ticket(&self) -> WaitTicket {
        WaitTicket {
            owner_index: self.id.index(),
            ticket: self.ticket,
        }
    }

    /// Returns the refusal for a wait that ends without the lock.
    pub(crate) fn refusal(
        &self,
        reason: RefusalReason,
        blockers: Blockers,
        cycle: Vec<DeadlockMember>,
    ) -> Box<Refusal> {
        let mut refusal = Refusal::new(reason, self.name, self.mode).blocked_by(blockers);
        refusal.waited = self.since.elapsed();
        refusal.cycle = cycle;
        Box::new(refusal)
    }

    /// Returns the work lost if this transaction is the victim: its locks plus one, doubled for
    /// each earlier defeat. The one more lets the value grow for an owner that holds no lock and
    /// blocks others only by its position in a queue.
    pub(crate) fn lost_work(&self) -> u64 {
        let work = self.lock_count as u64 + 1;
        work.saturating_mul(1 << self.defeats.min(63))
    }
}

/// The last wait of an owner.
#[derive(Debug)]
struct WaitState {
    info: WaitInfo,
    /// True until it has ended.
    is_open: bool,
    refusal: Option<Box<Refusal>>,
}

/// Number of buckets of the histogram of wait times. Bucket `i` counts waits of less than 2^i
/// microseconds that are in no earlier bucket; the last one also counts all longer waits.
pub const WAIT_BUCKETS: usize = 32;

/// Counts of all owners with one index. Written by the owner alone (I1).
#[derive(Debug, Default)]
pub(crate) struct OwnerCounters {
    pub(crate) acquisitions: AtomicU64,
    pub(crate) re_asks: AtomicU64,
    pub(crate) refusals: [AtomicU64; RefusalReason::COUNT],
    pub(crate) inheritance: [AtomicU64; 6],
    pub(crate) wait_micros: AtomicU64,
    pub(crate) waits: [AtomicU64; WAIT_BUCKETS],
}

/// Adds to a counter that has one writer.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    // Relaxed, and no read-modify-write: plain counting by one writer.
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(count),
        Ordering::Relaxed,
    );
}

impl OwnerCounters {
    pub(crate) fn count_refusal(&self, reason: RefusalReason) {
        add(&self.refusals[reason as usize], 1);
    }

    /// Adds the counts of an owner that is gone. Called under a mutex, so there is one writer.
    fn absorb(&self, gone: &OwnerCounters) {
        for (sum, count) in self.all().zip(gone.all()) {
            add(sum, count.load(Ordering::Relaxed));
        }
    }

    fn all(&self) -> impl Iterator<Item = &AtomicU64> {
        let Self {
            acquisitions,
            re_asks,
            refusals,
            inheritance,
            wait_micros,
            waits,
        } = self;
        let single = [acquisitions, re_asks, wait_micros];
        single
            .into_iter()
            .chain(refusals)
            .chain(inheritance)
            .chain(waits)
    }

    pub(crate) fn count_wait(&self, waited: Duration) {
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        add(&self.waits[bucket.min(WAIT_BUCKETS - 1)], 1);
        add(&self.wait_micros, micros);
    }
}

/// Requests reserved for one owner index: the numbers from `next` up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReservedRequests {
    pub(crate) next: u32,
    pub(crate) end: u32,
}

/// Part of an owner that goes with it, except that the next owner with its index gets the locks
/// that it left to be inherited.
#[derive(Debug)]
pub(crate) struct OwnerDetails {
    label: Mutex<(OwnerId, OwnerLabel)>,
    pub(crate) inherited: Mutex<InheritedLocks>,
    pub(crate) counters: OwnerCounters,
    pub(crate) escalations: EscalationCounts,
    /// Wait statistics; created by the first wait.
    wait_stats: Mutex<Option<Box<WaitStats>>>,
    remembered: OnceLock<Arc<RememberedLocks>>,
}

/// Details, shared by their owner and its record; the owner writes there in every transaction.
pub(crate) type SharedDetails = Arc<CachePadded<OwnerDetails>>;

impl OwnerDetails {
    pub(crate) fn shared(id: OwnerId) -> SharedDetails {
        Arc::new(CachePadded::new(Self::new(id)))
    }

    fn new(id: OwnerId) -> Self {
        Self {
            label: Mutex::new((id, OwnerLabel::default())),
            inherited: Mutex::default(),
            counters: OwnerCounters::default(),
            escalations: EscalationCounts::default(),
            wait_stats: Mutex::default(),
            remembered: OnceLock::new(),
        }
    }

    /// Returns the list of remembered locks, for a manager that remembers.
    pub(crate) fn remembered_or_init(&self) -> Arc<RememberedLocks> {
        self.remembered.get_or_init(Arc::default).clone()
    }

    pub(crate) fn set_label(&self, id: OwnerId, label: OwnerLabel) {
        *lock(&self.label) = (id, label);
    }

    /// Returns the label that `id` has or had; empty if it had none, or if the next owner has set
    /// its own.
    pub(crate) fn label_of(&self, id: OwnerId) -> OwnerLabel {
        let label = lock(&self.label);
        if label.0 == id {
            label.1.clone()
        } else {
            OwnerLabel::default()
        }
    }

    /// Records the cost of a wait, or of a hold after one.
    pub(crate) fn update_wait_stats(&self, update: impl FnOnce(&mut WaitStats)) {
        update(lock(&self.wait_stats).get_or_insert_default());
    }

    /// Shows the wait statistics, if there are any.
    pub(crate) fn read_wait_stats(&self, reader: impl FnOnce(&WaitStats)) {
        if let Some(wait_stats) = lock(&self.wait_stats).as_deref() {
            reader(wait_stats);
        }
    }

    /// Adds the counts of an owner that is gone.
    fn absorb(&self, gone: &OwnerDetails) {
        self.counters.absorb(&gone.counters);
        let (sums, counts) = (&self.escalations, &gone.escalations);
        let escalations = [
            (&sums.done, &counts.done),
            (&sums.refused, &counts.refused),
            (&sums.traded, &counts.traded),
        ];
        for (sum, count) in escalations {
            add(sum, count.load(Ordering::Relaxed));
        }
        lock(&self.inherited).revoked += lock(&gone.inherited).revoked;
        gone.read_wait_stats(|of_gone| self.update_wait_stats(|stats| stats.absorb(of_gone)));
    }
}

/// Part of an owner that stays for the next owner with its index.
#[derive(Debug)]
pub(crate) struct OwnerRecord {
    id: AtomicU64,
    reserved: AtomicU64,
    /// When the running transaction made its first request, on the manager's own clock, if the
    /// manager tracks that. `u64::MAX`: no transaction runs.
    active_since: AtomicU64,
    begun_nanos: AtomicU64,
    /// Number of owners that wait for this one, about, if the manager tracks that.
    waiter_count: AtomicU32,
    /// Slot of the latest granted request that had waited, if the manager chose it at the grant.
    granted_slot: AtomicU32,
    pub(crate) parker: Parker,
    /// Made by the first wait, and used again by the next ones.
    wait: Mutex<Option<Box<WaitState>>>,
    pub(crate) memory: LockMemory,
    /// Details of the owner, if there is one.
    details: Mutex<Option<SharedDetails>>,
}

// A hundred thousand of them take 13 MB, and up to twice as much with the rest of their chunk.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<CachePadded<OwnerRecord>>() <= 128);

impl OwnerRecord {
    fn new(owner_index: u32) -> Self {
        let id = OwnerId::new(owner_index, 0);
        Self {
            id: AtomicU64::new(id.number()),
            reserved: AtomicU64::new(0),
            active_since: AtomicU64::new(u64::MAX),
            begun_nanos: AtomicU64::new(0),
            waiter_count: AtomicU32::new(0),
            granted_slot: AtomicU32::new(0),
            parker: Parker::new(),
            wait: Mutex::default(),
            memory: LockMemory::default(),
            details: Mutex::default(),
        }
    }

    /// Returns the details of the owner, if there is one.
    pub(crate) fn details(&self) -> Option<SharedDetails> {
        lock(&self.details).clone()
    }

    /// Returns the details for a new owner: those of the last one, if it left them.
    pub(crate) fn details_or_init(&self) -> SharedDetails {
        let mut details = lock(&self.details);
        let new = || OwnerDetails::shared(self.id());
        details.get_or_insert_with(new).clone()
    }

    /// Returns the list of remembered locks, if any are remembered.
    pub(crate) fn remembered(&self) -> Option<Arc<RememberedLocks>> {
        let details = lock(&self.details);
        let list = details.as_ref()?.remembered.get()?;
        (!list.is_empty()).then(|| list.clone())
    }

    /// Returns when the running transaction began. `u64::MAX`: no transaction runs.
    pub(crate) fn active_since(&self) -> u64 {
        // Relaxed, here and below: it only sets how long memory is held back. Epochs make its reuse
        // safe.
        self.active_since.load(Ordering::Relaxed)
    }

    /// Records that a transaction runs, since `now` unless one was running.
    pub(crate) fn mark_active(&self, now: impl FnOnce() -> u64) {
        if self.active_since() == u64::MAX {
            self.active_since.store(now(), Ordering::Relaxed);
        }
    }

    /// Records that no transaction runs.
    pub(crate) fn mark_idle(&self) {
        self.active_since.store(u64::MAX, Ordering::Relaxed);
    }

    /// Returns about how many owners wait for this one.
    pub(crate) fn waiter_count(&self) -> u32 {
        // Relaxed, here and below: plain counting, which only decides an order.
        self.waiter_count.load(Ordering::Relaxed)
    }

    /// Counts more owners that wait for this one.
    pub(crate) fn add_waiters(&self, more: usize) {
        self.waiter_count.fetch_add(more as u32, Ordering::Relaxed);
    }

    /// Counts fewer owners that wait for this one.
    pub(crate) fn remove_waiters(&self, fewer: usize) {
        let less = |count: u32| Some(count.saturating_sub(fewer as u32));
        let _ = self
            .waiter_count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Sets the number of owners that wait for this one to zero.
    pub(crate) fn clear_waiters(&self) {
        self.waiter_count.store(0, Ordering::Relaxed);
    }

    /// Returns the id of the current owner with this index. Exact for a thread that found a request
    /// of the index under its latch (I2), because the latch through which the request came made the
    /// id visible.
    pub(crate) fn id(&self) -> OwnerId {
        // Relaxed: see above; for every other thread it is a hint.
        OwnerId::from_number(self.id.load(Ordering::Relaxed))
    }

    pub(crate) fn owner_index(&self) -> u32 {
        self.id().index()
    }

    /// Takes the requests that the last owner with this index had reserved.
    pub(crate) fn take_reserved(&self) -> ReservedRequests {
        // Relaxed, here and below: owners with one index follow each other through the mutex of the
        // table.
        let word = self.reserved.load(Ordering::Relaxed);
        self.reserved.store(0, Ordering::Relaxed);
        ReservedRequests {
            next: word as u32,
            end: (word >> 32) as u32,
        }
    }

    pub(crate) fn store_reserved(&self, reserved: ReservedRequests) {
        let word = u64::from(reserved.end) << 32 | u64::from(reserved.next);
        self.reserved.store(word, Ordering::Relaxed);
    }

    pub(crate) fn begun(&self) -> Duration {
        // Relaxed: as for the id.
        Duration::from_nanos(self.begun_nanos.load(Ordering::Relaxed))
    }

    pub(crate) fn publish(&self, info: WaitInfo) {
        let state = WaitState {
            info,
            is_open: true,
            refusal: None,
        };
        match &mut *lock(&self.wait) {
            Some(last) => **last = state,
            none => *none = Some(Box::new(state)),
        }
    }

    /// True if `name` is an inherited lock, which no running transaction holds.
    pub(crate) fn has_inherited(&self, name: Name) -> bool {
        let details = self.details();
        details.is_some_and(|details| lock(&details.inherited).contains(name))
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.with_wait(|_| ()).is_some()
    }

    fn waiting_since(&self) -> Option<Instant> {
        self.with_wait(|info| info.since)
    }

    pub(crate) fn waiting(&self) -> Option<WaitInfo> {
        self.with_wait(WaitInfo::clone)
    }

    /// Returns what `read` returns of the wait, if there is one.
    fn with_wait<R>(&self, read: impl FnOnce(&WaitInfo) -> R) -> Option<R> {
        let wait = lock(&self.wait);
        wait.as_ref()
            .filter(|wait| wait.is_open)
            .map(|wait| read(&wait.info))
    }

    /// Stores the slot of a request that is about to be granted to a waiter, under the latch of its
    /// queue.
    pub(crate) fn store_granted_slot(&self, slot: u32) {
        // Relaxed, here and below: the verdict that follows makes it visible (O1 of `park`), and a
        // thread that revokes the grant and gives another has the latch in between.
        self.granted_slot.store(slot, Ordering::Relaxed);
    }

    /// Returns the slot of the request that was granted to the waiter, for the owner that has seen
    /// the final verdict, or under the latch of the queue.
    pub(crate) fn granted_slot(&self) -> u32 {
        self.granted_slot.load(Ordering::Relaxed)
    }

    /// Ends the wait with a refusal. Called under the latch of the queue that the waiter was
    /// removed from.
    pub(crate) fn refuse(&self, ticket: Ticket, refusal: Box<Refusal>) -> Option<Wake<'_>> {
        if let Some(wait) = &mut *lock(&self.wait) {
            wait.refusal = Some(refusal);
        }
        self.parker.resolve(ticket, REFUSED)
    }

    /// Clears the published wait after it has ended.
    pub(crate) fn end_wait(&self) -> Option<Box<Refusal>> {
        let mut wait = lock(&self.wait);
        let wait = wait.as_mut()?;
        wait.is_open = false;
        wait.refusal.take()
    }
}

/// Records in the first chunk; each further chunk has twice as many as the one before.
const FIRST_CHUNK: u32 = if cfg!(loom) { 2 } else { 64 };
const CHUNKS: usize = 18;

// An anchor has space for every index.
const _: () = assert!((FIRST_CHUNK as u64) << CHUNKS <= MAX_OWNERS as u64);

/// Records, shared with their owners. No model needs the count, and theirs has no slices.
type RecordChunk = std::sync::Arc<[CachePadded<OwnerRecord>]>;

/// A record in shared ownership, for its owner.
#[derive(Debug, Clone)]
pub(crate) struct SharedRecord {
    chunk: RecordChunk,
    at: usize,
}

impl Deref for SharedRecord {
    type Target = OwnerRecord;

    #[inline(always)]
    fn deref(&self) -> &OwnerRecord {
        &self.chunk[self.at]
    }
}

/// All owner records of one manager.
#[derive(Debug)]
pub(crate) struct OwnerTable {
    start: CoarseInstant,
    chunks: [OnceLock<RecordChunk>; CHUNKS],
    indexes: Mutex<OwnerIndexes>,
    /// Counts of all owners that are gone.
    gone: OwnerDetails,
    /// Empty list, shared by all owners that remember nothing.
    empty: Arc<RememberedLocks>,
    /// Set once, before the first owner is made.
    limits: OnceLock<MemoryLimits>,
}

#[derive(Debug, Default)]
struct OwnerIndexes {
    /// Indexes of owners that exist, or have left locks to be inherited.
    used: IndexAllocator,
    /// Indexes of owners that are gone and have left locks to be inherited.
    inherited: Vec<u32>,
}

impl OwnerTable {
    pub(crate) fn new() -> Self {
        let chunks = std::array::from_fn(|_| OnceLock::new());
        Self {
            start: coarse_now(),
            chunks,
            indexes: Mutex::default(),
            gone: OwnerDetails::new(OwnerId::new(0, 0)),
            empty: Arc::default(),
            limits: OnceLock::new(),
        }
    }

    /// Limits the memory of the locks of owners that are made from now on.
    pub(crate) fn limit(&self, limits: MemoryLimits) {
        self.limits.get_or_init(|| limits);
    }

    #[inline]
    pub(crate) fn limits(&self) -> &MemoryLimits {
        self.limits.get().unwrap_or(&MemoryLimits::NONE)
    }

    /// Returns the table's address, which identifies the manager.
    pub(crate) fn address(this: &Arc<Self>) -> usize {
        std::ptr::from_ref(&**this).addr()
    }

    /// Returns the list for an owner of a manager that does not remember: all such owners share it,
    /// and none writes it.
    pub(crate) fn empty_list(&self) -> Arc<RememberedLocks> {
        self.empty.clone()
    }

    /// Returns an index for a new owner.
    pub(crate) fn allocate_index(&self) -> u32 {
        let mut indexes = lock(&self.indexes);
        if let Some(owner_index) = indexes.inherited.pop() {
            return owner_index;
        }
        let owner_index = indexes.used.acquire();
        let (chunk, _) = chunk_of(owner_index);
        assert!(chunk < CHUNKS, "sixteen million owners at once");
        let size = FIRST_CHUNK << chunk;
        let first = size - FIRST_CHUNK;
        self.chunks[chunk].get_or_init(|| {
            (first..first + size)
                .map(|owner_index| CachePadded::new(OwnerRecord::new(owner_index)))
                .collect()
        });
        owner_index
    }

    /// Frees an index. Its owner holds and waits for nothing but inherited locks.
    pub(crate) fn free_index(&self, owner_index: u32) {
        let record = self.record(owner_index);
        // Not under the other mutexes: a thread that revokes an inherited lock takes those of the
        // record while it has this one. Only the owner adds inherited locks.
        let has_inherited = |details: SharedDetails| lock(&details.inherited).len() > 0;
        let keeps = record.details().is_some_and(has_inherited);
        let mut indexes = lock(&self.indexes);
        if keeps {
            return indexes.inherited.push(owner_index); // I4
        }
        let wait = lock(&record.wait).take();
        let details = lock(&record.details).take();
        if let Some(gone) = &details {
            self.gone.absorb(gone);
        }
        indexes.used.release(owner_index);
        drop(indexes);
        drop((wait, details)); // Freed outside of the mutex.
    }

    #[inline]
    pub(crate) fn record(&self, owner_index: u32) -> &OwnerRecord {
        let (chunk, at) = chunk_of(owner_index);
        &self.chunk(chunk)[at]
    }

    /// Returns a record in shared ownership, because its owner needs it in every transaction.
    pub(crate) fn shared_record(&self, owner_index: u32) -> SharedRecord {
        let (chunk, at) = chunk_of(owner_index);
        SharedRecord {
            chunk: self.chunk(chunk).clone(),
            at,
        }
    }

    #[inline]
    fn chunk(&self, chunk: usize) -> &RecordChunk {
        let records = self.chunks[chunk].get();
        records.expect("a place is handed out after its chunk")
    }

    /// Returns the number above all indexes in use; about every index in a queue is below it.
    pub(crate) fn index_bound(&self) -> usize {
        lock(&self.indexes).used.bound()
    }

    /// Returns the records of all owners that exist (I4).
    pub(crate) fn records(&self) -> impl Iterator<Item = &OwnerRecord> {
        let words = SmallVec::<[u64; 8]>::from_slice(lock(&self.indexes).used.words());
        set_bits(words).map(|owner_index| self.record(owner_index as u32))
    }

    /// Returns the details of all owners that exist. Another call has the counts of all others.
    pub(crate) fn details(&self) -> impl Iterator<Item = SharedDetails> {
        self.records().filter_map(OwnerRecord::details)
    }

    /// Returns the counts of all owners that are gone.
    pub(crate) fn gone(&self) -> &OwnerDetails {
        &self.gone
    }

    /// Returns all waits, in no order.
    pub(crate) fn waits_unsorted(&self) -> Vec<WaitInfo> {
        self.records().filter_map(OwnerRecord::waiting).collect()
    }

    /// Returns all waits, the longest first.
    pub(crate) fn waits(&self) -> Vec<WaitInfo> {
        let mut waits = self.waits_unsorted();
        waits.sort_by_key(|waiting| waiting.since);
        waits
    }

    /// Returns one wait, if it has not ended.
    pub(crate) fn waiting(&self, wait: WaitTicket) -> Option<WaitInfo> {
        let waiting = self.record(wait.owner_index).waiting();
        waiting.filter(|waiting| waiting.ticket == wait.ticket)
    }

    /// Returns the time since the longest wait began.
    pub(crate) fn longest_wait(&self) -> Option<Duration> {
        let began = self.records().filter_map(OwnerRecord::waiting_since).min();
        began.map(|since| since.elapsed())
    }

    /// Returns the coarse time since the table was made.
    pub(crate) fn now(&self) -> Duration {
        coarse_now().since(self.start)
    }

    /// Records that the owner of `record` begins a transaction.
    #[inline]
    pub(crate) fn begin(&self, record: &OwnerRecord, id: OwnerId) {
        // Relaxed: a thread that needs them exactly comes through a latch that the owner took later
        // (I2).
        record
            .begun_nanos
            .store(self.now().as_nanos() as u64, Ordering::Relaxed);
        record.id.store(id.number(), Ordering::Relaxed);
    }

    /// Describes a blocking owner, for people.
    pub(crate) fn blocker(&self, owner: OwnerId, mode: Mode, waiting: bool) -> Blocker {
        let (label, age) = self.describe(owner);
        Blocker {
            owner,
            label,
            mode,
            age,
            waiting,
            locks: 0,
        }
    }

    /// Returns the label of an owner that was seen a moment ago.
    pub(crate) fn label_of(&self, id: OwnerId) -> OwnerLabel {
        let details = self.record(id.index()).details();
        details.map_or_else(OwnerLabel::default, |details| details.label_of(id))
    }

    /// Returns label and age of an owner that was seen a moment ago.
    pub(crate) fn describe(&self, id: OwnerId) -> (OwnerLabel, Duration) {
        let record = self.record(id.index());
        let begun = record.begun();
        let age = self.now().saturating_sub(begun);
        (
            self.label_of(id),
            if record.id() == id {
                age
            } else {
                Duration::ZERO
            },
        )
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let records = self.chunks.iter().filter_map(OnceLock::get);
        let records: usize = records.map(|chunk| chunk.len()).sum();
        let details: usize = self
            .details()
            .map(|details| {
                let list = details.remembered.get();
                size_of::<OwnerDetails>() + list.map_or(0, |list| list.memory_bytes())
            })
            .sum();
        records * size_of::<CachePadded<OwnerRecord>>() + details
    }
}

/// Returns the chunk of an owner index, and the index within the chunk.
fn chunk_of(owner_index: u32) -> (usize, usize) {
    let shifted = owner_index + FIRST_CHUNK;
    let chunk = shifted.ilog2() - FIRST_CHUNK.ilog2();
    (chunk as usize, (shifted - (FIRST_CHUNK << chunk)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::lock_list::LockEntry;

    #[test]
    fn places_fill_chunks_of_doubling_size() {
        assert_eq!(chunk_of(0), (0, 0));
        assert_eq!(chunk_of(FIRST_CHUNK - 1), (0, FIRST_CHUNK as usize - 1));
        assert_eq!(chunk_of(FIRST_CHUNK), (1, 0));
        assert_eq!(chunk_of(3 * FIRST_CHUNK), (2, 0));
    }

    #[test]
    fn a_place_keeps_its_record_and_is_handed_out_again() {
        let owners = OwnerTable::new();
        let indexes: Vec<u32> = (0..1000).map(|_| owners.allocate_index()).collect();
        for &owner_index in &indexes {
            assert_eq!(
                owners.record(owner_index).id(),
                OwnerId::new(owner_index, 0)
            );
        }
        owners.free_index(17);
        assert_eq!(owners.allocate_index(), 17);
        assert_eq!(owners.index_bound(), 1000);
    }

    #[test]
    fn a_walk_visits_owners_that_exist_and_counts_of_others_stay() {
        let owners = OwnerTable::new();
        let indexes: Vec<u32> = (0..10_000).map(|_| owners.allocate_index()).collect();
        for &owner_index in &indexes {
            let details = owners.record(owner_index).details_or_init();
            add(&details.counters.acquisitions, 2);
            details.remembered_or_init();
        }
        assert_eq!(owners.records().count(), 10_000);
        let at_peak = owners.memory_bytes();
        let stay = [3, 9_999];
        let gone = indexes.iter().filter(|index| !stay.contains(index));
        gone.for_each(|&owner_index| owners.free_index(owner_index));
        let visited: Vec<u32> = owners.records().map(OwnerRecord::owner_index).collect();
        assert_eq!(visited, stay);
        let acquisitions = &owners.gone().counters.acquisitions;
        assert_eq!(acquisitions.load(Ordering::Relaxed), 2 * 9_998);
        let left = owners.memory_bytes();
        assert!(left < at_peak / 10, "{left} of {at_peak} bytes");
        owners.free_index(9_999);
        assert_eq!(owners.index_bound(), 4);
    }

    #[test]
    fn an_index_with_inherited_locks_stays_visible_and_is_given_first() {
        let owners = OwnerTable::new();
        let [_, heir, other] = [(); 3].map(|()| owners.allocate_index());
        let details = owners.record(heir).details_or_init();
        let entry = LockEntry::detached(Name::table(1), 0, 0, Mode::IS);
        lock(&details.inherited).insert(entry);
        owners.free_index(other);
        owners.free_index(heir);
        assert_eq!(owners.records().count(), 2);
        assert_eq!(owners.allocate_index(), heir);
        let details = owners.record(heir).details_or_init();
        assert!(lock(&details.inherited).contains(Name::table(1)));
    }

    #[test]
    fn a_label_belongs_to_one_transaction() {
        let owners = OwnerTable::new();
        let owner_index = owners.allocate_index();
        let id = OwnerId::new(owner_index, 0);
        let record = owners.record(owner_index);
        let details = record.details_or_init();
        details.set_label(id, "first".into());
        owners.begin(record, id.next());
        assert_eq!(details.label_of(id), "first");
        assert_eq!(details.label_of(id.next()), "");
    }

    #[test]
    fn waits_are_counted_by_powers_of_two() {
        let counters = OwnerCounters::default();
        for micros in [0, 1, 2, 3, 1 << 40] {
            counters.count_wait(Duration::from_micros(micros));
        }
        let counted: Vec<u64> = counters
            .waits
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect();
        assert_eq!(counted[..3], [1, 1, 2]);
        assert_eq!(counted[WAIT_BUCKETS - 1], 1);
    }
}
