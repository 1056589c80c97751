//! What others may read of an owner: who it is, since when, what it waits for; and where it sleeps.
//!
//! Records live in an append-only list of the manager. A place is handed to the next owner when its
//! owner goes, and the generation in the [`OwnerId`] tells the two apart; so whoever walks from
//! queue to queue holds plain numbers and needs neither a lifetime nor unsafe code.
//!
//! # Invariants
//!
//! * I1  A record is written by its owner, with three exceptions: the verdict and the refusal of a
//!   wait are written by whoever removed the waiter from its queue, under that queue's latch; and
//!   what the place keeps (`inherited`) is taken out, under its mutex, by whoever needs it gone.
//! * I2  An owner's id changes only while it holds and awaits nothing but what its place keeps. So
//!   whoever finds a request in a queue, under its latch, finds that request's owner in the record.
//! * I3  The mutexes here are leaves: nobody takes a latch, or another of them, holding one. But
//!   that of what the place keeps is held until what is taken away from there has left its queue;
//!   so nobody takes it under a latch.

use crate::{
    mode::Mode,
    name::Name,
    owner::{
        inherited::InheritedLocks,
        memory_limits::{LockMemory, MemoryLimits},
        remembered::RememberedLocks,
        wait_stats::WaitStats,
    },
    request::{Blocker, CycleMember, OwnerId, OwnerLabel, Refusal, RefusalReason},
};
use foxton_sync::{
    cache_line::CachePadded,
    clock::{CoarseInstant, coarse_now},
    park::{Parker, Ticket, Verdict, Wake},
    shim::{Arc, AtomicU64, Mutex, Ordering, lock},
};
use smallvec::SmallVec;
use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// A wait ended with the lock.
pub(crate) const GRANTED: Verdict = Verdict::new(1);
/// A wait ended without it; the record has the refusal.
pub(crate) const REFUSED: Verdict = Verdict::new(2);

/// Those whose waits have ended, to be woken once no latch is held. Dropping wakes.
pub(crate) type Wakes<'r> = SmallVec<[Wake<'r>; 4]>;

/// One wait of one owner: for whoever may have to end it from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WaitTicket {
    pub(crate) owner_index: u32,
    pub(crate) ticket: Ticket,
}

/// What an owner waits for, as it stands in its record.
#[derive(Debug, Clone)]
pub(crate) struct WaitInfo {
    pub(crate) id: OwnerId,
    pub(crate) ticket: Ticket,
    pub(crate) name: Name,
    /// What it would hold if granted.
    pub(crate) mode: Mode,
    pub(crate) since: Instant,
    pub(crate) lock_count: usize,
    /// When its transaction began, on the registry's clock.
    pub(crate) begun: Duration,
    /// How often its work gave way before.
    pub(crate) defeats: u32,
}

impl WaitInfo {
    pub(crate) fn wait_ticket(&self) -> WaitTicket {
        WaitTicket {
            owner_index: self.id.index(),
            ticket: self.ticket,
        }
    }

    /// What becomes of it if it does not end with the lock.
    pub(crate) fn refusal(
        &self,
        reason: RefusalReason,
        blockers: Vec<Blocker>,
        cycle: Vec<CycleMember>,
    ) -> Box<Refusal> {
        let mut refusal = Refusal::new(reason, self.name, self.mode);
        refusal.waited = self.since.elapsed();
        refusal.blockers = blockers;
        refusal.cycle = cycle;
        Box::new(refusal)
    }

    /// What would be lost if it gave way: its locks, and one more, so that who holds none (and
    /// stands in others' way by its place in a queue) grows with its defeats, too.
    pub(crate) fn lost_work(&self) -> u64 {
        let work = self.lock_count as u64 + 1;
        work.saturating_mul(1 << self.defeats.min(63))
    }
}

#[derive(Debug, Default)]
struct WaitState {
    waiting: Option<WaitInfo>,
    refusal: Option<Box<Refusal>>,
}

/// Buckets of the histogram of wait times: bucket `i` counts waits of less than 2^i microseconds
/// that are not in an earlier one; the last also everything longer.
pub const WAIT_BUCKETS: usize = 32;

/// What one place counted over all its owners. Written by the owner alone (I1).
#[derive(Debug, Default)]
pub(crate) struct OwnerCounters {
    pub(crate) acquisitions: AtomicU64,
    pub(crate) re_asks: AtomicU64,
    pub(crate) refusals: [AtomicU64; RefusalReason::COUNT],
    pub(crate) inheritance: [AtomicU64; 6],
    pub(crate) wait_micros: AtomicU64,
    pub(crate) waits: [AtomicU64; WAIT_BUCKETS],
}

/// Adds to a counter that nobody else writes.
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

    pub(crate) fn count_wait(&self, waited: Duration) {
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        add(&self.waits[bucket.min(WAIT_BUCKETS - 1)], 1);
        add(&self.wait_micros, micros);
    }
}

/// Requests set aside for the owner of one place: numbers from `next` up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReservedRequests {
    pub(crate) next: u32,
    pub(crate) end: u32,
}

/// The shared part of one owner.
#[derive(Debug)]
pub(crate) struct OwnerRecord {
    id: AtomicU64,
    reserved: AtomicU64,
    /// When the running transaction first asked for something, where a manager wants to know; on
    /// that manager's own clock. `u64::MAX`: none runs.
    active_since: AtomicU64,
    begun_nanos: AtomicU64,
    /// About how many wait for it, where a manager wants to know.
    waiter_count: AtomicU64,
    pub(crate) parker: Parker,
    wait: Mutex<WaitState>,
    label: Mutex<(OwnerId, OwnerLabel)>,
    pub(crate) inherited: Mutex<InheritedLocks>,
    pub(crate) counters: OwnerCounters,
    pub(crate) memory: LockMemory,
    /// What its waits cost; made by the first.
    wait_stats: Mutex<Option<Box<WaitStats>>>,
    remembered: OnceLock<Arc<RememberedLocks>>,
}

impl OwnerRecord {
    fn new(owner_index: u32) -> Self {
        let id = OwnerId::new(owner_index, 0);
        Self {
            id: AtomicU64::new(id.number()),
            reserved: AtomicU64::new(0),
            active_since: AtomicU64::new(u64::MAX),
            begun_nanos: AtomicU64::new(0),
            waiter_count: AtomicU64::new(0),
            parker: Parker::new(),
            wait: Mutex::default(),
            label: Mutex::new((id, OwnerLabel::default())),
            inherited: Mutex::default(),
            counters: OwnerCounters::default(),
            memory: LockMemory::default(),
            wait_stats: Mutex::default(),
            remembered: OnceLock::new(),
        }
    }

    /// When the running transaction began. `u64::MAX`: none runs.
    pub(crate) fn active_since(&self) -> u64 {
        // Relaxed, here and below: it says how long to be patient. What keeps anybody from harm is
        // the epoch.
        self.active_since.load(Ordering::Relaxed)
    }

    /// A transaction runs, from `now` on if none did.
    pub(crate) fn mark_active(&self, now: impl FnOnce() -> u64) {
        if self.active_since() == u64::MAX {
            self.active_since.store(now(), Ordering::Relaxed);
        }
    }

    /// None runs.
    pub(crate) fn mark_idle(&self) {
        self.active_since.store(u64::MAX, Ordering::Relaxed);
    }

    /// About how many wait for it.
    pub(crate) fn waiter_count(&self) -> u32 {
        // Relaxed, here and below: plain counting, and what comes of it is an order.
        u32::try_from(self.waiter_count.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    /// So many more wait for it.
    pub(crate) fn add_waiters(&self, more: usize) {
        self.waiter_count.fetch_add(more as u64, Ordering::Relaxed);
    }

    /// So many fewer wait for it.
    pub(crate) fn remove_waiters(&self, fewer: usize) {
        let less = |count: u64| Some(count.saturating_sub(fewer as u64));
        let _ = self
            .waiter_count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Nobody waits for it.
    pub(crate) fn clear_waiters(&self) {
        self.waiter_count.store(0, Ordering::Relaxed);
    }

    /// Who has the place. Exact for whoever found a request of the place under its latch (I2): the
    /// latch that the request came through made the id visible.
    pub(crate) fn id(&self) -> OwnerId {
        // Relaxed: see above; for everybody else it is a hint.
        OwnerId::from_number(self.id.load(Ordering::Relaxed))
    }

    pub(crate) fn owner_index(&self) -> u32 {
        self.id().index()
    }

    /// What the last owner of the place left.
    pub(crate) fn take_reserved(&self) -> ReservedRequests {
        // Relaxed, here and below: owners of one place follow each other through the registry's
        // mutex.
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

    /// The list of remembered locks, for a manager that remembers; made when the place is first
    /// claimed there.
    pub(crate) fn remembered_or_init(&self) -> Arc<RememberedLocks> {
        self.remembered.get_or_init(Arc::default).clone()
    }

    /// The list of remembered locks, if there is one.
    #[inline]
    pub(crate) fn remembered(&self) -> Option<&RememberedLocks> {
        self.remembered.get().map(|list| &**list)
    }

    pub(crate) fn set_label(&self, id: OwnerId, label: OwnerLabel) {
        *lock(&self.label) = (id, label);
    }

    /// The label that `id` has or had; empty if none, or if the next owner already has its own.
    pub(crate) fn label_of(&self, id: OwnerId) -> OwnerLabel {
        let label = lock(&self.label);
        if label.0 == id {
            label.1.clone()
        } else {
            OwnerLabel::default()
        }
    }

    pub(crate) fn publish(&self, waiting: WaitInfo) {
        *lock(&self.wait) = WaitState {
            waiting: Some(waiting),
            refusal: None,
        };
    }

    /// Whether the place has `name` without any transaction of it having it.
    pub(crate) fn has_inherited(&self, name: Name) -> bool {
        lock(&self.inherited).contains(name)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        lock(&self.wait).waiting.is_some()
    }

    fn waiting_since(&self) -> Option<Instant> {
        lock(&self.wait)
            .waiting
            .as_ref()
            .map(|waiting| waiting.since)
    }

    pub(crate) fn waiting(&self) -> Option<WaitInfo> {
        lock(&self.wait).waiting.clone()
    }

    /// Ends the wait with a refusal. Under the latch of the queue that the waiter was removed from.
    pub(crate) fn refuse(&self, ticket: Ticket, refusal: Box<Refusal>) -> Option<Wake<'_>> {
        lock(&self.wait).refusal = Some(refusal);
        self.parker.resolve(ticket, REFUSED)
    }

    /// Notes what a wait, or a hold after one, has cost.
    pub(crate) fn update_wait_stats(&self, update: impl FnOnce(&mut WaitStats)) {
        update(lock(&self.wait_stats).get_or_insert_default());
    }

    /// Shows what the waits have cost, if there were any.
    pub(crate) fn read_wait_stats(&self, reader: impl FnOnce(&WaitStats)) {
        if let Some(wait_stats) = lock(&self.wait_stats).as_deref() {
            reader(wait_stats);
        }
    }

    /// Clears what was published of a wait that has ended.
    pub(crate) fn end_wait(&self) -> Option<Box<Refusal>> {
        std::mem::take(&mut *lock(&self.wait)).refusal
    }
}

/// Places of the first chunk; each further chunk has twice as many as the one before.
const FIRST_CHUNK: u32 = if cfg!(loom) { 2 } else { 64 };
const CHUNKS: usize = 19;

/// Records, each shared with its owner.
type RecordChunk = Box<[Arc<CachePadded<OwnerRecord>>]>;

/// All records of one manager.
#[derive(Debug)]
pub(crate) struct OwnerTable {
    start: CoarseInstant,
    chunks: [OnceLock<RecordChunk>; CHUNKS],
    indexes: Mutex<IndexAllocator>,
    /// The list of those who remember nothing.
    empty: Arc<RememberedLocks>,
    /// Set once, before there is an owner.
    limits: OnceLock<MemoryLimits>,
}

#[derive(Debug, Default)]
struct IndexAllocator {
    /// Places that were ever handed out.
    count: u32,
    free: Vec<u32>,
}

impl OwnerTable {
    pub(crate) fn new() -> Self {
        let chunks = std::array::from_fn(|_| OnceLock::new());
        Self {
            start: coarse_now(),
            chunks,
            indexes: Mutex::default(),
            empty: Arc::default(),
            limits: OnceLock::new(),
        }
    }

    /// Bounds the room of the locks of owners that are made from now on.
    pub(crate) fn limit(&self, limits: MemoryLimits) {
        self.limits.get_or_init(|| limits);
    }

    #[inline]
    pub(crate) fn limits(&self) -> &MemoryLimits {
        self.limits.get().unwrap_or(&MemoryLimits::NONE)
    }

    /// Which manager's it is, in one word: no two that are there have the same.
    pub(crate) fn address(this: &Arc<Self>) -> usize {
        std::ptr::from_ref(&**this).addr()
    }

    /// A list for an owner at a manager that does not remember: all share it, and nobody writes it.
    pub(crate) fn empty_list(&self) -> Arc<RememberedLocks> {
        self.empty.clone()
    }

    /// A place for a new owner.
    pub(crate) fn allocate_index(&self) -> u32 {
        let mut indexes = lock(&self.indexes);
        if let Some(owner_index) = indexes.free.pop() {
            return owner_index;
        }
        let owner_index = indexes.count;
        let (chunk, _) = chunk_of(owner_index);
        assert!(chunk < CHUNKS, "sixteen million owners at once");
        let size = FIRST_CHUNK << chunk;
        let first = size - FIRST_CHUNK;
        self.chunks[chunk].get_or_init(|| {
            (first..first + size)
                .map(|owner_index| Arc::new(CachePadded::new(OwnerRecord::new(owner_index))))
                .collect()
        });
        indexes.count += 1;
        owner_index
    }

    /// Gives a place back. Its owner holds and awaits nothing.
    pub(crate) fn free_index(&self, owner_index: u32) {
        lock(&self.indexes).free.push(owner_index);
    }

    pub(crate) fn record(&self, owner_index: u32) -> &OwnerRecord {
        self.shared_record(owner_index)
    }

    /// The record of a place for its owner, who needs it in every transaction.
    pub(crate) fn shared_record(&self, owner_index: u32) -> &Arc<CachePadded<OwnerRecord>> {
        let (chunk, index) = chunk_of(owner_index);
        let records = self.chunks[chunk]
            .get()
            .expect("a place is handed out after its chunk");
        &records[index]
    }

    /// Places that were ever handed out; every place in a queue is below this.
    pub(crate) fn owner_count(&self) -> u32 {
        lock(&self.indexes).count
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &OwnerRecord> {
        (0..self.owner_count()).map(|owner_index| self.record(owner_index))
    }

    /// What everybody waits for who does, in no order.
    pub(crate) fn waits_unsorted(&self) -> Vec<WaitInfo> {
        self.records().filter_map(OwnerRecord::waiting).collect()
    }

    /// The same, the longest wait first.
    pub(crate) fn waits(&self) -> Vec<WaitInfo> {
        let mut waits = self.waits_unsorted();
        waits.sort_by_key(|waiting| waiting.since);
        waits
    }

    /// What is known of one wait, if it has not ended.
    pub(crate) fn waiting(&self, wait: WaitTicket) -> Option<WaitInfo> {
        let waiting = self.record(wait.owner_index).waiting();
        waiting.filter(|waiting| waiting.ticket == wait.ticket)
    }

    /// When the longest of all waits began.
    pub(crate) fn longest_wait(&self) -> Option<Duration> {
        let began = self.records().filter_map(OwnerRecord::waiting_since).min();
        began.map(|since| since.elapsed())
    }

    /// The coarse time since the registry was made.
    pub(crate) fn now(&self) -> Duration {
        coarse_now().since(self.start)
    }

    /// Notes that the place of `record` has a new transaction.
    #[inline]
    pub(crate) fn begin(&self, record: &OwnerRecord, id: OwnerId) {
        // Relaxed: whoever needs them exactly comes through a latch that the owner took later (I2).
        record
            .begun_nanos
            .store(self.now().as_nanos() as u64, Ordering::Relaxed);
        record.id.store(id.number(), Ordering::Relaxed);
    }

    /// Somebody who stands in the way, for people.
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

    /// Label and age of an owner that was seen a moment ago.
    pub(crate) fn describe(&self, id: OwnerId) -> (OwnerLabel, Duration) {
        let record = self.record(id.index());
        let begun = record.begun();
        let age = self.now().saturating_sub(begun);
        (
            record.label_of(id),
            if record.id() == id {
                age
            } else {
                Duration::ZERO
            },
        )
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let records: usize = self
            .chunks
            .iter()
            .filter_map(OnceLock::get)
            .map(|c| c.len())
            .sum();
        let lists = self.records().filter_map(OwnerRecord::remembered);
        let lists: usize = lists.map(RememberedLocks::memory_bytes).sum();
        records * size_of::<CachePadded<OwnerRecord>>() + lists
    }
}

/// The chunk of a place, and its index there.
fn chunk_of(owner_index: u32) -> (usize, usize) {
    let shifted = owner_index + FIRST_CHUNK;
    let chunk = shifted.ilog2() - FIRST_CHUNK.ilog2();
    (chunk as usize, (shifted - (FIRST_CHUNK << chunk)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(owners.owner_count(), 1000);
    }

    #[test]
    fn a_label_belongs_to_one_transaction() {
        let owners = OwnerTable::new();
        let owner_index = owners.allocate_index();
        let id = OwnerId::new(owner_index, 0);
        let record = owners.record(owner_index);
        record.set_label(id, "first".into());
        owners.begin(record, id.next());
        assert_eq!(record.label_of(id), "first");
        assert_eq!(record.label_of(id.next()), "");
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
