//! Snapshots: which are active, and what is kept for them.
//!
//! A snapshot is a position of the log. A reader at S sees every commit that ends at or below S,
//! and no other. `foxton_store::memory::version` says what a
//! version is, and why a reader gives one answer. This module decides how long versions are kept.
//!
//! # State
//!
//! One word of the database: the *stage*, and the *watermark*, below which no snapshot is
//! registered from now on.
//!
//! ```text
//! off ──▶ starting ──▶ on ──▶ closing ──▶ off
//!            ▲                   │
//!            └───────────────────┘ a reader comes
//! ```
//!
//! And for each worker context a [`SnapshotPlace`]: the snapshot that it has registered, and the
//! replaced versions that its commits left to be collected.
//!
//! * *Off, closing*: to a reader these are the same. It makes the stage *starting*.
//! * *Starting*: a reader has made it so, and passes the heavy fence. Any other reader passes the
//!   heavy fence itself before it takes its position, so that it need not wait for the first.
//! * *Off*: a commit retires the versions that it replaced at once, and stamps nothing. In every
//!   other stage it stamps its versions, and leaves the replaced ones to be collected.
//!
//! # Invariants
//!
//! * I1  While the stage is off, no registered snapshot lies below a commit that retired what it
//!   replaced at once. (I6 of the design; I2 of `version` rests on it.)
//! * I2  A version that a registered snapshot needs is in the chain of its record, or among the
//!   deleted rows of its table. Of a paged table it is on its page, or among the replaced states of
//!   [`row_versions`](foxton_store::paged::row_versions).
//! * I3  A registered snapshot changes only to *none*, or to *ended*: by the collector, or by the
//!   idle timeout, if nobody reads at it.
//! * I4  The newest version of a deleted row is among the deleted rows, or its table has the ghost,
//!   as long as a registered snapshot of a transaction is older than the deletion. So a write at
//!   the snapshot hears of a row that came and went since, though no snapshot sees it.
//!
//! # Why I1 holds
//!
//! A committer takes its commit LSN from the front of the log, passes the light fence, and loads
//! the stage. The first reader stores *starting*, passes the heavy fence, and takes S from the
//! front. If the committer found *off*, its place was taken before the reader loaded the front, so
//! its commit LSN is at or below S. Otherwise it finds a later stage.
//!
//! A reader may be slow between its two looks at the stage, and find it on at both, though it was
//! off in between. So the collector counts, while the stage is *closing*, each time before it is
//! off. A reader whose two looks find another count gives S up. It loads the count before the
//! stage, and in the second look after it. If its first count has a closing that is not over, it
//! finds that stage, or a later one that began with a reader.
//!
//! # Why a collector misses no snapshot
//!
//! A reader stores S in its place, passes the light fence, and loads the watermark again. The
//! collector stores the watermark, passes the heavy fence, and loads the places. Either it finds S,
//! or the reader finds the new watermark. S below it is given up, and a new position taken, which
//! is at or above it. Versions whose end is above the watermark are left for the next collection.
//!
//! # What waits, and what that takes
//!
//! Each context collects what its own commits left, whenever that is [`BATCH_BYTES`], so no thread
//! depends on another. A version that a snapshot needs is put on the list of that snapshot, and
//! looked at again when the snapshot ends. The background thread collects what contexts leave that
//! have nothing to commit, and ends the stage [`LINGER`] after the last snapshot.
//!
//! # Read views
//!
//! With [`ReadViews`] the stage is always on, so a commit always stamps and keeps. Numbers are in
//! the place of positions, here and in the lists of what is kept. The oldest view is the holder of
//! all that is kept.
//!
//! # Orderings
//!
//! * O1  the stage, the watermark and the closings (Release) to their loads (Acquire), with the
//!   fences of the two arguments above.
//! * O2  a snapshot in its place (Release) to the collector (Acquire), and *ended* (Release) to the
//!   reader (Acquire), with the fence that both pass in between.
//! * O3  the flag of the background thread and the stage are in one order (SeqCst): either the
//!   thread finds the stage on, or the reader finds the flag clear.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use foxton_lock::owner::OwnerObserver;
use foxton_log::Lsn;
use foxton_store::memory::CommitSlots;
use foxton_store::paged::row_versions::{RowVersions, VersionedKey};
use foxton_store::paged::values::LargeValue;
use foxton_sync::asymmetric::Asymmetric;
use foxton_sync::cache_line::CachePadded;
use foxton_sync::epoch::Guard;
use foxton_sync::failpoint::Failpoints;
use foxton_sync::shim::{self, AtomicBool, AtomicU64, Mutex, Ordering};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::catalog::OpenTable;
use crate::catalog::table_store::TableStore;
use crate::engine::commit_lsn_waits::WaitCounters;
use crate::engine::left_versions::LeftVersions;
use crate::engine::read_views::{ReadView, ReadViews, TRANSACTION_SYSTEM};
use crate::error::Conflict;
use crate::options::LINGER;
use crate::options::snapshot_method::SnapshotMethod;
use crate::testing::{failpoint, injected_fault};

/// The stage and the watermark: read by every commit, and written by collectors.
static STAGE: Site = Site::new(Component::Transaction, Pattern::Unbounded, "snapshot stage");
/// Lists of what snapshots keep.
static KEPT: Site = Site::new(Component::Transaction, Pattern::Unbounded, "kept versions");

/// Bytes of replaced versions after which a context collects.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes of replaced versions of all contexts above which each collects what it has.
const MOST_WAITING: u64 = 32 << 20;
/// Bytes that a context leaves before it reports them.
const REPORTED_BYTES: usize = 16 << 10;

const OFF: u64 = 0;
const STARTING: u64 = 1;
const ON: u64 = 2;
const CLOSING: u64 = 3;
const STAGE_MASK: u64 = 3;
pub(super) const LSN_SHIFT: u32 = 2;

/// In a place: no snapshot; one that is registered; one that was ended to free memory.
const NONE: u64 = 0;
pub(super) const REGISTERED: u64 = 1;
pub(super) const ENDED: u64 = 2;
/// In a place: a snapshot that was ended because it was idle.
const IDLE: u64 = 3;

/// See the [module](self).
pub(crate) struct Snapshots {
    pub(crate) slots: CommitSlots,
    /// Views in the place of positions, if the options say so.
    pub(crate) read_views: Option<Box<ReadViews>>,
    /// Versions of rows of paged tables.
    pub(crate) rows: RowVersions,
    /// How long the stage stays on after the last snapshot, and the time between two sweeps.
    pub(crate) linger: Duration,
    state: CachePadded<AtomicU64>,
    /// Times that the stage was about to be off.
    closings: CachePadded<AtomicU64>,
    fence: Asymmetric,
    /// Segment n has `FIRST << n` places; their numbers are those of the commit slots.
    places: [OnceLock<Box<[CachePadded<SnapshotPlace>]>>; SEGMENTS],
    /// Versions by the smallest snapshot that needs them.
    pub(super) kept: Mutex<BTreeMap<u64, LeftVersions>>,
    /// Bytes of replaced versions that wait to be collected, about.
    waiting: AtomicU64,
    /// Bytes of the versions that are kept.
    pub(crate) retained: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) pruned: AtomicU64,
    pub(crate) lsn_waits: WaitCounters,
    /// True from a warning until much less is kept.
    pub(super) has_warned: AtomicBool,
    /// True while the background thread collects.
    is_swept: AtomicBool,
    /// When the background thread last found a snapshot.
    last_seen: Mutex<Option<Instant>>,
}

const FIRST: usize = 64;
const SEGMENTS: usize = 15;

/// The snapshot of a worker context, and what its commits left.
#[derive(Default)]
pub(super) struct SnapshotPlace {
    pub(super) snapshot: AtomicU64,
    /// True if the snapshot is of a transaction, which may write.
    may_write: AtomicBool,
    /// In memory of its own, because most contexts have none, and there may be many.
    batch: Mutex<Option<Box<LeftVersions>>>,
    /// The read view, if that is what a snapshot is.
    read_view: Mutex<Option<Arc<ReadView>>>,
    /// Shows the transaction of the context, for people.
    pub(super) owner: Mutex<Option<OwnerObserver>>,
}

/// Registered snapshots.
#[derive(Default)]
struct Registered {
    /// In order.
    all: Vec<u64>,
    /// The oldest one of a transaction that may write.
    oldest_writer: Option<u64>,
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots").finish_non_exhaustive()
    }
}

impl Default for Snapshots {
    fn default() -> Self {
        Snapshots {
            slots: CommitSlots::new(),
            read_views: None,
            rows: RowVersions::new(),
            linger: LINGER,
            state: CachePadded::new(AtomicU64::new(OFF)),
            closings: CachePadded::default(),
            fence: Asymmetric::new(),
            places: Default::default(),
            kept: Mutex::default(),
            waiting: AtomicU64::new(0),
            retained: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            pruned: AtomicU64::new(0),
            lsn_waits: WaitCounters::default(),
            has_warned: AtomicBool::new(false),
            is_swept: AtomicBool::new(false),
            last_seen: Mutex::default(),
        }
    }
}

impl Snapshots {
    /// Returns the snapshots of a database that takes them by `method`.
    pub(crate) fn new(
        method: SnapshotMethod,
        linger: Duration,
        failpoints: Failpoints,
    ) -> Snapshots {
        let snapshots = Snapshots {
            slots: CommitSlots::with_failpoints(failpoints),
            linger,
            ..Snapshots::default()
        };
        match method {
            SnapshotMethod::Lsn => snapshots,
            SnapshotMethod::ReadViews => Snapshots {
                read_views: Some(Box::default()),
                state: CachePadded::new(AtomicU64::new(ON)),
                ..snapshots
            },
        }
    }

    #[inline]
    pub(super) fn place(&self, number: u32) -> &SnapshotPlace {
        let shifted = number as usize + FIRST;
        let segment = (shifted.ilog2() - FIRST.ilog2()) as usize;
        let places = self.places[segment].get_or_init(|| {
            let places = (0..FIRST << segment).map(|_| CachePadded::default());
            places.collect()
        });
        &places[shifted - (FIRST << segment)]
    }

    pub(super) fn all_places(&self) -> impl Iterator<Item = (u32, &SnapshotPlace)> {
        let segments = self.places.iter().enumerate();
        segments.flat_map(|(segment, places)| {
            let first = (FIRST << segment) - FIRST;
            let places = places.get().map(|places| &places[..]).unwrap_or_default();
            let numbered = places.iter().enumerate();
            numbered.map(move |(at, place)| ((first + at) as u32, &**place))
        })
    }

    /// Makes `owner` the one that is shown for the place `number`: that of its context.
    pub(crate) fn set_owner(&self, number: u32, owner: OwnerObserver) {
        // Site: "kept versions": once for a context.
        *shim::lock(&self.place(number).owner) = Some(owner);
    }

    /// Registers a snapshot in the place `number`, and returns its position. `may_write` says that
    /// it is of a transaction that may write, too. `front` loads the front of the log. Returns true
    /// beside it if the stage was off before.
    pub(crate) fn register(
        &self,
        worker: &Worker,
        (number, may_write): (u32, bool),
        front: impl Fn() -> Lsn,
    ) -> (Lsn, bool) {
        if let Some(views) = &self.read_views {
            return self.open_view(views, worker, number, front());
        }
        let place = self.place(number);
        // Relaxed: the store of the snapshot comes after it.
        place.may_write.store(may_write, Ordering::Relaxed);
        let mut has_started = false;
        loop {
            let closings = self.closings.load(Ordering::Acquire); // O1
            let state = self.state.load(Ordering::Acquire); // O1
            match state & STAGE_MASK {
                ON => {}
                // Its heavy fence may not be passed yet, so this thread passes its own. If a
                // collector has raised the watermark meanwhile, the next reader makes it *on*.
                STARTING => {
                    self.fence.heavy();
                    let _ = self.change_stage(state, ON);
                }
                _ => {
                    worker.account().passed(&STAGE);
                    if self.change_stage(state, STARTING) {
                        has_started = true;
                        self.fence.heavy();
                        let _ = self.change_stage(state & !STAGE_MASK | STARTING, ON);
                    }
                    continue;
                }
            }
            let snapshot = front();
            worker.failpoints().pass(&failpoint::REGISTERING);
            let word = snapshot.bytes() << LSN_SHIFT | REGISTERED;
            place.snapshot.store(word, Ordering::Release); // O2
            self.fence.light();
            let state = self.state.load(Ordering::Acquire); // O1
            let is_kept = matches!(state & STAGE_MASK, STARTING | ON)
                && self.closings.load(Ordering::Acquire) == closings; // O1
            let is_trusted = worker
                .failpoints()
                .misbehaves(&injected_fault::SECOND_LOOK_SKIPPED);
            if is_trusted || is_kept && snapshot.bytes() >= state >> LSN_SHIFT {
                return (snapshot, has_started);
            }
            place.snapshot.store(NONE, Ordering::Release); // O2
        }
    }

    /// As [`register`](Self::register), of a read view.
    #[cold]
    fn open_view(
        &self,
        views: &ReadViews,
        worker: &Worker,
        number: u32,
        front: Lsn,
    ) -> (Lsn, bool) {
        let place = self.place(number);
        worker.account().passed(&TRANSACTION_SYSTEM);
        let view = views.open();
        let word = view.number << LSN_SHIFT | REGISTERED;
        // Site: "kept versions".
        *shim::lock(&place.read_view) = Some(view);
        place.snapshot.store(word, Ordering::Release); // O2
        // Relaxed: the flag is exchanged before the thread is started.
        (front, !self.is_swept.load(Ordering::Relaxed))
    }

    /// Returns the read view in the place `number`, if snapshots are views.
    #[inline]
    pub(crate) fn read_view(&self, number: u32) -> Option<Arc<ReadView>> {
        match self.read_views {
            None => None,
            // Site: "kept versions".
            Some(_) => shim::lock(&self.place(number).read_view).clone(),
        }
    }

    /// Closes the read view in the place `number`.
    #[cold]
    fn close_view(&self, views: &ReadViews, number: u32) {
        // Site: "kept versions".
        if let Some(view) = shim::lock(&self.place(number).read_view).take() {
            views.close(view.number);
        }
    }

    /// Exchanges the stage, if the word still is `state`.
    fn change_stage(&self, state: u64, stage: u64) -> bool {
        let new = state & !STAGE_MASK | stage;
        // Site: "snapshot stage".
        let changed = self.state.compare_exchange(
            state,
            new,
            Ordering::AcqRel,  // O1
            Ordering::Acquire, // O1
        );
        changed.is_ok()
    }

    /// Ends the snapshot in the place `number`. The versions that it kept are collected later.
    pub(crate) fn deregister(&self, number: u32) {
        self.place(number).snapshot.store(NONE, Ordering::Release); // O2
        if let Some(views) = &self.read_views {
            self.close_view(views, number);
        }
    }

    /// Returns why the snapshot in the place `number` was ended, if it was. A reader asks after
    /// each row that it has read.
    #[inline]
    pub(crate) fn ended(&self, number: u32) -> Option<Conflict> {
        self.fence.light();
        let state = self.place(number).snapshot.load(Ordering::Acquire) & 3; // O2
        match state {
            ENDED => Some(Conflict::SNAPSHOT_ENDED),
            IDLE => Some(Conflict::IDLE),
            _ => None,
        }
    }

    /// Ends the snapshot at `lsn` in the place `number`, because nobody reads at it. The caller
    /// keeps its owner from deregistering it meanwhile.
    pub(crate) fn end_idle(&self, number: u32, lsn: Lsn) {
        self.end(number, lsn, IDLE);
    }

    /// Ends a snapshot, unless that was done. Returns true if this has ended it.
    pub(super) fn end(&self, number: u32, lsn: Lsn, how: u64) -> bool {
        let word = lsn.bytes() << LSN_SHIFT;
        // Site: "kept versions".
        let exchanged = self.place(number).snapshot.compare_exchange(
            word | REGISTERED,
            word | how,
            Ordering::AcqRel, // O2
            Ordering::Relaxed,
        );
        if exchanged.is_ok() {
            self.fence.heavy(); // I3: from now on each reader finds it ended.
        }
        exchanged.is_ok()
    }

    /// True if a commit must keep what it replaced. For a committer that has its commit LSN.
    #[inline]
    pub(crate) fn keeps(&self) -> bool {
        self.fence.light(); // See "Why I1 holds".
        self.state.load(Ordering::Acquire) & STAGE_MASK != OFF // O1
    }

    /// Adds what `fill` leaves to the versions of the context `number` that wait to be collected.
    /// Returns true if those are so many that the context has to collect them.
    pub(crate) fn leave(&self, number: u32, fill: impl FnOnce(&mut LeftVersions)) -> bool {
        // Site: "kept versions".
        let mut batch = shim::lock(&self.place(number).batch);
        let batch = batch.get_or_insert_default();
        fill(batch);
        if batch.unreported >= REPORTED_BYTES {
            let reported = std::mem::take(&mut batch.unreported) as u64;
            // Relaxed: a hint. Site: "kept versions".
            self.waiting.fetch_add(reported, Ordering::Relaxed);
        }
        batch.bytes >= BATCH_BYTES
            || batch.bytes >= REPORTED_BYTES && self.waiting.load(Ordering::Relaxed) > MOST_WAITING
    }

    /// Collects what the context `number` has left. Meant for after its locks.
    pub(crate) fn collect_own(&self, worker: &Worker, number: u32, front: impl Fn() -> Lsn) {
        // Site: "kept versions".
        let left = shim::lock(&self.place(number).batch).take();
        if let Some(left) = left {
            self.collect(worker, *left, &front);
        }
    }

    /// Takes a batch, with what it has reported.
    fn subtract_waiting(&self, batch: &LeftVersions) {
        let reported = (batch.bytes - batch.unreported) as u64;
        let less = |waiting: u64| Some(waiting.saturating_sub(reported));
        // Relaxed: a hint. Site: "kept versions".
        let _ = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Moves the watermark to the front, and returns it with the active snapshots.
    fn active(&self, worker: &Worker, front: &impl Fn() -> Lsn) -> (Lsn, Registered) {
        if let Some(views) = &self.read_views {
            worker.account().passed(&TRANSACTION_SYSTEM);
            let registered = Registered {
                all: views.numbers(),
                oldest_writer: None,
            };
            return (front(), registered);
        }
        let faults = worker.failpoints();
        if faults.misbehaves(&injected_fault::WATERMARK_LATE) {
            let active = self.registered();
            faults.pass(&failpoint::COLLECTING);
            return (self.raise_watermark(worker, front()), active);
        }
        let line = self.raise_watermark(worker, front());
        faults.pass(&failpoint::COLLECTING);
        (line, self.registered())
    }

    /// Raises the watermark to `line`, passes the heavy fence, and returns the watermark.
    fn raise_watermark(&self, worker: &Worker, line: Lsn) -> Lsn {
        worker.account().passed(&STAGE);
        let raise = |state: u64| {
            let old = state >> LSN_SHIFT;
            Some(state & STAGE_MASK | old.max(line.bytes()) << LSN_SHIFT)
        };
        let raised = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, raise); // O1
        let before = raised.unwrap_or_default() >> LSN_SHIFT;
        self.fence.heavy();
        Lsn::new(line.bytes().max(before))
    }

    /// Returns the registered snapshots.
    fn registered(&self) -> Registered {
        let mut registered = Registered::default();
        for (_, place) in self.all_places() {
            let word = place.snapshot.load(Ordering::Acquire); // O2
            if word & 3 != REGISTERED {
                continue;
            }
            let snapshot = word >> LSN_SHIFT;
            registered.all.push(snapshot);
            // Relaxed: it was stored before the snapshot, or is of a later one.
            if place.may_write.load(Ordering::Relaxed) {
                let oldest = registered.oldest_writer.get_or_insert(snapshot);
                *oldest = snapshot.min(*oldest);
            }
        }
        registered.all.sort_unstable();
        registered.all.dedup();
        registered
    }

    /// Collects versions: unlinks those that no snapshot needs, and lists the others.
    fn collect(&self, worker: &Worker, batch: LeftVersions, front: &impl Fn() -> Lsn) {
        self.subtract_waiting(&batch);
        let (line, active) = self.active(worker, front);
        let oldest = self.read_views.as_ref().map(|views| views.oldest());
        let mut kept: BTreeMap<u64, LeftVersions> = BTreeMap::new();
        let guard = worker.pin();
        let mut pruned = 0;
        let is_excluded = worker
            .failpoints()
            .misbehaves(&injected_fault::BEGIN_EXCLUDED);
        let is_forgotten = worker
            .failpoints()
            .misbehaves(&injected_fault::DELETION_FORGOTTEN);
        let writer = active.oldest_writer.filter(|_| !is_forgotten);
        for (table, key, entry) in batch.iter() {
            let holder = |begin: Lsn, end: Lsn| {
                if let Some(oldest) = &oldest {
                    return (!oldest.sees(end)).then_some(oldest.number);
                }
                let begin = begin.bytes() + u64::from(is_excluded);
                let at = active.all.partition_point(|&snapshot| snapshot < begin);
                match active.all.get(at) {
                    Some(&snapshot) if snapshot < end.bytes() => Some(snapshot),
                    // It is looked at again in the next collection.
                    _ => (end > line).then_some(line.bytes()),
                }
            };
            let writer = |end: Lsn| writer.filter(|&oldest| oldest < end.bytes());
            let found = self.prune(&guard, (table, key), entry.begin, (&holder, &writer));
            pruned += found.pruned;
            if let Some(snapshot) = found.holder {
                let version = (entry.begin, entry.bytes as usize);
                let batch = kept.entry(snapshot).or_default();
                batch.push(table, key, version);
            }
        }
        // Relaxed: counted for people.
        self.pruned.fetch_add(pruned, Ordering::Relaxed);
        if kept.is_empty() {
            return;
        }
        worker.account().passed(&KEPT);
        let mut all = shim::lock(&self.kept);
        for (snapshot, batch) in kept {
            self.retained
                .fetch_add(batch.bytes as u64, Ordering::Relaxed);
            let of_snapshot = all.entry(snapshot).or_default();
            for (table, key, entry) in batch.iter() {
                of_snapshot.push(table, key, (entry.begin, entry.bytes as usize));
            }
        }
    }

    /// Unlinks the versions of a row that have no holder. Of a deleted row the newest one stays if
    /// it has a `writer`, too. Returns the holder of the one that began at `begin`, if it is still
    /// there.
    fn prune(
        &self,
        guard: &Guard<'_>,
        (table, key): (&Arc<OpenTable>, &[u8]),
        begin: Lsn,
        (holder, writer): (
            &impl Fn(Lsn, Lsn) -> Option<u64>,
            &impl Fn(Lsn) -> Option<u64>,
        ),
    ) -> Pruned {
        let of_entry = std::cell::Cell::new(None);
        let is_held = |at: Lsn, holder: Option<u64>| {
            if at == begin {
                of_entry.set(holder);
            }
            holder.is_some()
        };
        let needed = |at: Lsn, end: Lsn| is_held(at, holder(at, end));
        let as_newest = |at: Lsn, end: Lsn| is_held(at, holder(at, end).or_else(|| writer(end)));
        let mut pruned = 0;
        match &table.store {
            TableStore::Resident(rows) => {
                let record = rows.get(guard, key);
                let result = record.map(|record| record.prune(guard, &self.slots, &needed));
                let result = result.unwrap_or_default();
                pruned += result.versions as u64;
                if result.is_busy {
                    // Another thread is at it, for its own entry. This one comes again.
                    of_entry.set(Some(0));
                }
            }
            TableStore::Paged(_) => {
                let row = VersionedKey::new(table.tree_number(), key);
                pruned += self.rows.prune(&row, &needed) as u64;
            }
        }
        if let Some(deleted) = table.deleted.get() {
            pruned += deleted.prune(guard, key, &needed, &as_newest);
        }
        Pruned {
            pruned,
            holder: of_entry.get(),
        }
    }

    /// Returns the large values that a row had in a version that is gone. They may be free now.
    pub(crate) fn take_released(&self) -> Vec<u64> {
        let released = self.rows.take_large().into_iter();
        let value = |bytes: Box<[u8]>| LargeValue::decode(&bytes);
        released
            .filter_map(value)
            .map(|value| value.number)
            .collect()
    }

    /// Collects what contexts have left that do not commit any more, and what ended snapshots
    /// kept. Ends the stage if there was no snapshot for long. Returns false once it is off.
    pub(crate) fn sweep(&self, worker: &Worker, front: impl Fn() -> Lsn, now: Instant) -> bool {
        for (_, place) in self.all_places() {
            // Site: "kept versions".
            let batch = place.batch.try_lock();
            let batch = batch.map(|mut batch| batch.take());
            if let Ok(Some(batch)) = batch.map_err(|_| ())
                && !batch.is_empty()
            {
                self.collect(worker, *batch, &front);
            }
        }
        let (_, active) = self.active(worker, &front);
        self.collect_released(worker, &active.all, &front);
        if self.read_views.is_some() {
            return true; // The stage is always on.
        }
        // Site: "kept versions".
        let mut last_seen = shim::lock(&self.last_seen);
        if !active.all.is_empty() || last_seen.is_none() {
            *last_seen = Some(now);
            return true;
        }
        let idle_since = last_seen.unwrap_or(now);
        if now.saturating_duration_since(idle_since) < self.linger {
            return true;
        }
        let closed = self.close(worker, &front);
        if closed {
            *last_seen = None;
        }
        !closed
    }

    /// True if the background thread sweeps already. From now on it does.
    pub(crate) fn is_being_swept(&self) -> bool {
        // Site: "snapshot stage".
        self.is_swept.swap(true, Ordering::SeqCst) // O3
    }

    /// Sweeps once; returns whether the background thread has to come again.
    pub(crate) fn goes_on(&self, worker: &Worker, front: impl Fn() -> Lsn, now: Instant) -> bool {
        if self.sweep(worker, front, now) {
            return true;
        }
        self.is_swept.store(false, Ordering::SeqCst); // O3
        // A reader that came meanwhile has relied on this thread, or will find the flag.
        let is_off = self.state.load(Ordering::SeqCst) & STAGE_MASK == OFF; // O3
        // Site: "snapshot stage".
        !is_off && !self.is_swept.swap(true, Ordering::SeqCst) // O3
    }

    /// Collects again what snapshots kept that are not active.
    fn collect_released(&self, worker: &Worker, active: &[u64], front: &impl Fn() -> Lsn) {
        let released: Vec<LeftVersions> = {
            worker.account().passed(&KEPT);
            let mut kept = shim::lock(&self.kept);
            let over: Vec<u64> = kept
                .keys()
                .copied()
                .filter(|snapshot| active.binary_search(snapshot).is_err())
                .collect();
            over.iter().filter_map(|at| kept.remove(at)).collect()
        };
        for mut batch in released {
            self.retained
                .fetch_sub(batch.bytes as u64, Ordering::Relaxed);
            batch.unreported = batch.bytes;
            self.collect(worker, batch, front);
        }
    }

    /// Leads the stage from *on* to *off*, if no snapshot comes meanwhile.
    fn close(&self, worker: &Worker, front: &impl Fn() -> Lsn) -> bool {
        let state = self.state.load(Ordering::Acquire); // O1
        match state & STAGE_MASK {
            OFF => return true,
            ON => {}
            _ => return false,
        }
        worker.account().passed(&STAGE);
        if !self.change_stage(state, CLOSING) {
            return false;
        }
        let (_, active) = self.active(worker, front);
        let is_free = active.all.is_empty();
        if is_free {
            self.collect_released(worker, &active.all, front);
            worker.account().passed(&STAGE);
            // Before the exchange: see "Why I1 holds". Site: "snapshot stage".
            self.closings.fetch_add(1, Ordering::AcqRel); // O1
        }
        let state = self.state.load(Ordering::Acquire); // O1
        if state & STAGE_MASK != CLOSING {
            return false; // A reader has come.
        }
        let stage = if is_free { OFF } else { ON };
        self.change_stage(state, stage) && is_free
    }
}

/// Result of [`Snapshots::prune`].
struct Pruned {
    pruned: u64,
    holder: Option<u64>,
}

#[cfg(test)]
mod tests {
    use foxton_sync::worker::Workers;

    use super::*;

    fn front() -> Lsn {
        Lsn::new(100)
    }

    /// Sweeps until the stage is off, with a clock that moves by the time that it lingers.
    fn is_off_after(
        snapshots: &Snapshots,
        (worker, now): (&Worker, &mut Instant),
        sweeps: u32,
    ) -> bool {
        (0..sweeps).any(|_| {
            *now += LINGER;
            !snapshots.sweep(worker, front, *now)
        })
    }

    #[test]
    fn the_stage_is_off_again_after_the_last_snapshot() {
        let (worker, mut now) = (Workers::new().worker(), Instant::now());
        let snapshots = Snapshots::default();
        assert!(!snapshots.keeps());
        assert_eq!(
            snapshots.register(&worker, (70, false), front),
            (front(), true)
        );
        assert_eq!(
            snapshots.register(&worker, (3, false), front),
            (front(), false)
        );
        snapshots.deregister(3);
        let clock = (&worker, &mut now);
        assert!(snapshots.keeps() && !is_off_after(&snapshots, clock, 5));
        snapshots.deregister(70);
        assert!(is_off_after(&snapshots, (&worker, &mut now), 1) && !snapshots.keeps());
    }

    /// A reader takes its position, and is slow. Meanwhile the stage is off, a commit retires what
    /// it replaced, and another reader begins the stage anew.
    #[test]
    fn a_position_from_before_the_stage_was_off_is_given_up() {
        let (worker, now) = (Workers::new().worker(), Instant::now());
        let snapshots = Snapshots::default();
        snapshots.register(&worker, (0, false), front);
        snapshots.deregister(0);
        let (taken, clock) = (std::cell::Cell::new(0), std::cell::Cell::new(now));
        let slow = || {
            taken.set(taken.get() + 1);
            if taken.get() > 1 {
                return Lsn::new(120);
            }
            let mut now = clock.get();
            assert!(is_off_after(&snapshots, (&worker, &mut now), 5));
            clock.set(now);
            // The commit ends at 120, and finds the stage off.
            assert!(!snapshots.keeps());
            snapshots.register(&worker, (2, false), || Lsn::new(120));
            front()
        };
        let (lsn, _) = snapshots.register(&worker, (1, false), slow);
        assert_eq!((lsn, taken.get()), (Lsn::new(120), 2));
    }

    /// The reader that began the stage lost its exchange, because the watermark was raised.
    #[test]
    fn a_stage_that_began_beside_a_collector_ends_as_any_other() {
        let (worker, mut now) = (Workers::new().worker(), Instant::now());
        let snapshots = Snapshots::default();
        snapshots.state.store(STARTING, Ordering::Relaxed);
        snapshots.register(&worker, (0, false), front);
        snapshots.deregister(0);
        let clock = (&worker, &mut now);
        assert!(is_off_after(&snapshots, clock, 3), "it never ends");
    }

    #[test]
    fn a_snapshot_that_keeps_nothing_is_not_ended() {
        let worker = Workers::new().worker();
        let snapshots = Snapshots::default();
        snapshots.register(&worker, (0, false), front);
        snapshots.retained.store(1000, Ordering::Relaxed);
        assert!(!snapshots.end_largest(999) && snapshots.ended(0).is_none());
        let mut batch = LeftVersions::default();
        batch.bytes = 1000;
        shim::lock(&snapshots.kept).insert(front().bytes(), batch);
        assert!(!snapshots.end_largest(1000) && snapshots.ended(0).is_none());
        assert!(snapshots.end_largest(999) && snapshots.ended(0).is_some());
    }
}
