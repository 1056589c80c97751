//! Versions: when the values of a row began, for readers that lock nothing.
//!
//! Each value block begins with its *begin timestamp* and a pointer to the version before it. A
//! reader *at S* follows the chain, newest first, to the version that was committed at or below S.
//!
//! # State
//!
//! The begin timestamp of a version is one word ([`Begin`]):
//!
//! * 0: it was there before the first commit, or its writer keeps no versions;
//! * a commit LSN, with the promise of the commit: the version is *stamped*;
//! * a reference (slot, generation) to the [`CommitSlot`] of its writer.
//!
//! A commit slot belongs to one writing worker at a time. Its generation grows at the end of each
//! transaction. Its state is one word:
//!
//! ```text
//! active ──▶ committing(e) ──▶ committed(c) ──▶ active, in the next generation
//!   ▲              │
//!   └──────────────┘  the log has refused the record, or had no space for it
//! ```
//!
//! # Invariants
//!
//! * I1  A version that refers to a generation still running is not committed, unless the state
//!   is *committed*. Then its commit LSN is c.
//! * I2  A writer whose commit may be above a snapshot stamps its versions before it ends the
//!   generation. So a version that refers to a generation that has ended, is not stamped, and is in
//!   its record, was committed below every snapshot that is active or will be.
//! * I3  The writer stores *committing(e)*, where e is the front of the log, before it asks the log
//!   for its place. So c is above e, and a reader whose S is at or above c finds *committing* or a
//!   later state.
//! * I4  The block behind `older` of a version that refers to a running generation belongs to the
//!   undo of that generation. It is retired after the generation has ended. The block behind
//!   `older` of a stamped version belongs to the chain, until it is unlinked.
//!
//! * I5  A generation below the *past generation* of its slot ended before the *past epoch*. A
//!   writer takes a sample of both at the end of a transaction that finds another epoch than the
//!   last sample, behind a fence. It publishes the sample when it takes the next one.
//!
//! I5 tells when no thread reads any more what only a running generation led to, for the price of
//! a comparison in each transaction ([`inline_slot`](super::inline_slot)).
//!
//! I2 makes commits cheap while nobody reads at a snapshot: such a commit visits no row again. Its
//! versions keep their references for good, and a reader takes them for older than itself.
//!
//! # Why a reader gives one answer
//!
//! A reader at S that finds *active* decides that the version is invisible. By I3 its writer had
//! not stored *committing* when the reader loaded the word. So its place in the log comes after the
//! load of the front that gave S (O1), and c is above S. *committing(e)* with S at or below e
//! is invisible for the same reason. With S above e nobody can tell yet, and the reader waits: to
//! take the version for invisible would give two answers at one snapshot.
//!
//! # Orderings
//!
//! * O1  store of *committing* (Release), then exchange of the front of the log (Release), to the
//!   load of the front (Acquire) that gave S, then the load of the state.
//! * O2  *committed* (Release) to the reader (Acquire): it sees the change whole.
//! * O3  stamping, then the new generation (Release), to the load of the generation (Acquire), then
//!   the second load of the begin timestamp. A reader that finds the generation over finds the
//!   stamp, if there is one.
//! * O4  the new generation (Release), then *active* (Release), to the load of the state (Acquire),
//!   then the second load of the generation. A reader never takes the state of the next
//!   transaction for that of this one.
//! * O5  the epoch of a sample (Relaxed), then its generation (Release), to the load of the
//!   generation (Acquire), then that of the epoch. A thread that finds the generation finds that
//!   epoch, or a later one.

use std::fmt;
use std::task::{Context, Waker};

use foxton_log::Lsn;
use foxton_sync::cache_line::CachePadded;
use foxton_sync::epoch::{Participant, Stamp};
use foxton_sync::failpoint::Failpoints;
use foxton_sync::index_allocator::IndexAllocator;
use foxton_sync::shim::{self, AtomicU64, Mutex, Ordering};
use foxton_sync::site::{Component, Pattern, Site};

/// Begin timestamp of a version: a commit LSN, or a reference to a commit slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Begin(u64);

/// Promise of a commit, once it was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Nothing.
    Nothing = 0,
    /// That its record is with the operating system.
    Written = 1,
    /// That its record is durable.
    Durable = 2,
}

/// Ends of commits that readers at snapshots wait for. A slot knows no worker, so its callers count
/// it.
pub static COMMIT_SLOT: Site = Site::new(Component::Transaction, Pattern::Fixed, "commit slot");

const REFERENCE: u64 = 1;
const SLOT_BITS: u32 = 20;
const SLOT_SHIFT: u32 = 1;
const GENERATION_SHIFT: u32 = SLOT_SHIFT + SLOT_BITS;
const LSN_SHIFT: u32 = 3;
const PROMISE_SHIFT: u32 = 1;

impl fmt::Debug for Begin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.reference(), self.committed()) {
            (Some((slot, generation)), _) => write!(f, "slot {slot} in generation {generation}"),
            (None, Some((lsn, promise))) => write!(f, "{lsn:?}, {promise:?}"),
            (None, None) => f.write_str("always"),
        }
    }
}

impl Begin {
    /// Of a version that was there before all snapshots.
    pub const ALWAYS: Begin = Begin(0);

    /// Of a version whose commit record ends at `lsn`.
    ///
    /// # Panics
    ///
    /// If the LSN has more than 59 bits: a log of 500 petabytes.
    pub fn at(lsn: Lsn, promise: Promise) -> Begin {
        assert_eq!(
            lsn.bytes() >> (64 - STATE_LSN_SHIFT),
            0,
            "the log is too long"
        );
        Begin(lsn.bytes() << LSN_SHIFT | (promise as u64) << PROMISE_SHIFT)
    }

    pub(super) fn from_word(word: u64) -> Begin {
        Begin(word)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    fn of_slot(slot: u32, generation: u64) -> Begin {
        Begin(generation << GENERATION_SHIFT | u64::from(slot) << SLOT_SHIFT | REFERENCE)
    }

    fn reference(self) -> Option<(u32, u64)> {
        let slot = (self.0 >> SLOT_SHIFT) as u32 & ((1 << SLOT_BITS) - 1);
        (self.0 & REFERENCE != 0).then_some((slot, self.0 >> GENERATION_SHIFT))
    }

    #[inline]
    pub(super) fn is_reference(self) -> bool {
        self.0 & REFERENCE != 0
    }

    /// Returns the commit LSN and the promise, if the version is stamped.
    pub fn committed(self) -> Option<(Lsn, Promise)> {
        let is_stamped = self.0 & REFERENCE == 0 && self.0 != 0;
        is_stamped.then(|| {
            let promise = match self.0 >> PROMISE_SHIFT & 3 {
                0 => Promise::Nothing,
                1 => Promise::Written,
                _ => Promise::Durable,
            };
            (Lsn::new(self.0 >> LSN_SHIFT), promise)
        })
    }
}

/// Writes versions of one transaction.
#[derive(Debug, Clone, Copy)]
pub struct VersionWriter<'s> {
    pub(super) slots: &'s CommitSlots,
    pub(super) begin: Begin,
}

/// Number of epochs after which no thread can be reading.
const SAFE_AGE: u64 = 2;

const STATE_MASK: u64 = 3;
const ACTIVE: u64 = 0;
const COMMITTING: u64 = 1;
const COMMITTED: u64 = 2;
/// Set while a reader waits for the end of *committing*.
const AWAITED: u64 = 4;
const STATE_PROMISE_SHIFT: u32 = 3;
const STATE_LSN_SHIFT: u32 = 5;

/// The state of one worker's commit: see the [module](self).
#[derive(Default)]
#[repr(align(64))]
struct CommitSlot {
    generation: AtomicU64,
    state: AtomicU64,
    past_generation: AtomicU64,
    past_epoch: AtomicU64,
    /// Those that wait for the end of *committing*.
    waiting: Mutex<Vec<Waker>>,
}

/// The commit slots of a database.
///
/// ```
/// use foxton_log::Lsn;
/// use foxton_store::memory::{CommitSlots, Promise, Visibility};
///
/// let slots = CommitSlots::new();
/// let mut writer = slots.acquire();
/// let begin = slots.begin(&writer);
/// assert_eq!(slots.visibility(begin, Lsn::new(70)), Visibility::Invisible);
/// slots.start_commit(&writer, Lsn::new(60));
/// assert_eq!(slots.visibility(begin, Lsn::new(60)), Visibility::Invisible);
/// assert_eq!(slots.visibility(begin, Lsn::new(70)), Visibility::Unresolved);
/// slots.committed(&writer, Lsn::new(70), Promise::Written);
/// assert_eq!(slots.visibility(begin, Lsn::new(69)), Visibility::Invisible);
/// assert!(matches!(slots.visibility(begin, Lsn::new(70)), Visibility::Visible(_)));
/// slots.end(&mut writer, &foxton_sync::epoch::Domain::new().participant());
/// assert_eq!(slots.visibility(begin, Lsn::new(70)), Visibility::Ended);
/// ```
pub struct CommitSlots {
    /// Segment n has `FIRST_SEGMENT << n` slots, each [`stride`] from the next.
    segments: [std::sync::OnceLock<Box<[CommitSlot]>>; SEGMENTS],
    free: Mutex<IndexAllocator>,
    failpoints: Failpoints,
}

const SEGMENTS: usize = 14;
/// Segments whose slots are padded. Later ones are those of a peak, and stay after it.
const PADDED_SEGMENTS: usize = 4;
/// Few under the model checker, which counts each word.
const FIRST_SEGMENT: usize = if cfg!(loom) { 2 } else { 64 };

/// A worker's commit slot, by number.
#[derive(Debug)]
pub struct OwnSlot {
    number: u32,
    generation: u64,
    /// The last sample: epoch and generation (I5).
    sample: (u64, u64),
}

/// Epoch of the sample of a worker that has taken none. It never passes.
const NO_SAMPLE: u64 = u64::MAX;

impl OwnSlot {
    /// Returns its number. Those of all slots in use are small.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Whether a reader at S sees a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Visible. The begin timestamp says where its commit ends.
    Visible(Begin),
    /// Committed above S, or not committed.
    Invisible,
    /// Its writer is about to learn its commit LSN; the reader waits ([`CommitSlots::poll`]).
    Unresolved,
    /// The transaction of its writer has ended. The reader loads the begin timestamp again. If that
    /// is the same and the version is still in its record, the version is visible (I2).
    Ended,
}

impl fmt::Debug for CommitSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitSlots").finish_non_exhaustive()
    }
}

impl Default for CommitSlots {
    fn default() -> Self {
        Self::new()
    }
}

impl CommitSlots {
    /// Returns slots that no worker has.
    pub fn new() -> CommitSlots {
        CommitSlots::with_failpoints(Failpoints::default())
    }

    /// As [`new`](Self::new), with points where a test intervenes.
    pub fn with_failpoints(failpoints: Failpoints) -> CommitSlots {
        CommitSlots {
            segments: Default::default(),
            free: Mutex::default(),
            failpoints,
        }
    }

    #[inline(always)]
    pub(super) fn failpoints(&self) -> &Failpoints {
        &self.failpoints
    }

    /// Returns a slot for a worker that writes.
    ///
    /// # Panics
    ///
    /// If a million workers have one.
    pub fn acquire(&self) -> OwnSlot {
        // Site: "commit slot".
        let number = shim::lock(&self.free).acquire();
        assert!(number < 1 << SLOT_BITS, "too many workers write at once");
        let (segment, _) = place(number);
        self.segments[segment].get_or_init(|| {
            let count = (FIRST_SEGMENT << segment) * stride(segment);
            (0..count).map(|_| CommitSlot::default()).collect()
        });
        // Relaxed: the mutex orders its owners.
        let generation = self.slot(number).generation.load(Ordering::Relaxed);
        OwnSlot {
            number,
            generation,
            sample: (NO_SAMPLE, 0),
        }
    }

    /// Gives the slot back. Its transactions must have ended.
    pub fn release(&self, own: OwnSlot) {
        // Site: "commit slot".
        shim::lock(&self.free).release(own.number);
    }

    fn slot(&self, number: u32) -> &CommitSlot {
        let (segment, index) = place(number);
        let slots = self.segments[segment].get().expect("a slot was acquired");
        &slots[index * stride(segment)]
    }

    /// Returns the begin timestamp of versions that the worker writes now.
    #[inline]
    pub fn begin(&self, own: &OwnSlot) -> Begin {
        Begin::of_slot(own.number, own.generation)
    }

    /// Returns what writes versions for the worker.
    #[inline]
    pub fn writer(&self, own: &OwnSlot) -> VersionWriter<'_> {
        VersionWriter {
            slots: self,
            begin: self.begin(own),
        }
    }

    /// Records that the worker asks for its place in the log next, whose front is `front` (I3).
    #[inline]
    pub fn start_commit(&self, own: &OwnSlot, front: Lsn) {
        let state = front.bytes() << STATE_LSN_SHIFT | COMMITTING;
        self.slot(own.number).state.store(state, Ordering::Release); // O1
    }

    /// Records that the worker got no place.
    pub fn stop_commit(&self, own: &OwnSlot) {
        self.resolve(own, ACTIVE);
    }

    /// Records where the commit record ends, and wakes those who wait for it.
    #[inline]
    pub fn committed(&self, own: &OwnSlot, end: Lsn, promise: Promise) {
        let promise = (promise as u64) << STATE_PROMISE_SHIFT;
        self.resolve(own, end.bytes() << STATE_LSN_SHIFT | promise | COMMITTED);
    }

    #[inline]
    fn resolve(&self, own: &OwnSlot, state: u64) {
        let slot = self.slot(own.number);
        // Site: "commit slot".
        let before = slot.state.swap(state, Ordering::AcqRel); // O2
        if before & AWAITED != 0 {
            Self::wake(slot);
        }
    }

    #[cold]
    fn wake(slot: &CommitSlot) {
        // Site: "commit slot".
        let waiting = std::mem::take(&mut *shim::lock(&slot.waiting));
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ends the transaction. Its versions are stamped, or were committed below every snapshot, or
    /// are out of their records (I2). `participant` is the worker's, in the epoch domain of the
    /// records.
    #[inline]
    pub fn end(&self, own: &mut OwnSlot, participant: &Participant) {
        let slot = self.slot(own.number);
        own.generation += 1;
        slot.generation.store(own.generation, Ordering::Release); // O3, O4
        slot.state.store(ACTIVE, Ordering::Release); // O4
        if participant.recent_stamp().epoch() != own.sample.0 {
            self.take_sample(own, participant);
        }
    }

    #[cold]
    fn take_sample(&self, own: &mut OwnSlot, participant: &Participant) {
        let slot = self.slot(own.number);
        let (epoch, generation) = own.sample;
        slot.past_epoch.store(epoch, Ordering::Relaxed); // O5
        slot.past_generation.store(generation, Ordering::Release); // O5
        own.sample = (participant.stamp().epoch(), own.generation); // I5
    }

    /// True if the transaction that `begin` refers to ended so long before `now` that no thread is
    /// left that has found it running. False means nothing.
    #[inline]
    pub(super) fn has_passed(&self, begin: Begin, now: Stamp) -> bool {
        begin.reference().is_some_and(|(number, generation)| {
            let slot = self.slot(number);
            let past = slot.past_generation.load(Ordering::Acquire); // O5
            let epoch = slot.past_epoch.load(Ordering::Relaxed); // O5
            generation < past && epoch.saturating_add(SAFE_AGE) <= now.epoch()
        })
    }

    /// True if the transaction that `begin` refers to has ended, or `begin` refers to none.
    #[inline]
    pub fn has_ended(&self, begin: Begin) -> bool {
        begin.reference().is_none_or(|(number, generation)| {
            // Acquire: what it left comes before (O3).
            self.slot(number).generation.load(Ordering::Acquire) != generation
        })
    }

    /// Returns what a reader at `snapshot` makes of a version that began at `begin`.
    #[inline]
    pub fn visibility(&self, begin: Begin, snapshot: Lsn) -> Visibility {
        let Some((number, generation)) = begin.reference() else {
            return match begin.0 >> LSN_SHIFT <= snapshot.bytes() {
                true => Visibility::Visible(begin),
                false => Visibility::Invisible,
            };
        };
        let slot = self.slot(number);
        let is_over = || slot.generation.load(Ordering::Acquire) != generation; // O3
        if is_over() {
            return Visibility::Ended;
        }
        let state = slot.state.load(Ordering::Acquire); // O1, O2, O4
        if is_over() {
            return Visibility::Ended;
        }
        let lsn = state >> STATE_LSN_SHIFT;
        match state & STATE_MASK {
            COMMITTED if lsn <= snapshot.bytes() => {
                let promise = state >> STATE_PROMISE_SHIFT & 3;
                Visibility::Visible(Begin(lsn << LSN_SHIFT | promise << PROMISE_SHIFT))
            }
            COMMITTING if lsn < snapshot.bytes() => Visibility::Unresolved,
            _ => Visibility::Invisible,
        }
    }

    /// True if a reader at `snapshot` has to wait for the writer of `begin`.
    pub fn is_unresolved(&self, begin: Begin, snapshot: Lsn) -> bool {
        self.visibility(begin, snapshot) == Visibility::Unresolved
    }

    /// Registers the waker for the end of *committing* of the writer of `begin`. Returns false if
    /// there is nothing to wait for any more.
    pub fn poll(&self, begin: Begin, context: &Context<'_>) -> bool {
        let Some((number, generation)) = begin.reference() else {
            return false;
        };
        let slot = self.slot(number);
        // Site: "commit slot".
        let mut waiting = shim::lock(&slot.waiting);
        let state = slot.state.load(Ordering::Acquire); // O2
        let is_running = slot.generation.load(Ordering::Acquire) == generation; // O3
        if !is_running || state & STATE_MASK != COMMITTING {
            return false;
        }
        // If the state has changed, the wait is over; if not, the writer finds the bit.
        // Site: "commit slot".
        let marked = slot.state.compare_exchange(
            state,
            state | AWAITED,
            Ordering::AcqRel, // O2
            Ordering::Relaxed,
        );
        if marked.is_ok() {
            waiting.push(context.waker().clone());
        }
        marked.is_ok()
    }
}

/// Returns the segment of a slot, and its place there.
#[inline]
fn place(number: u32) -> (usize, usize) {
    let shifted = number as usize + FIRST_SEGMENT;
    let segment = (shifted.ilog2() - FIRST_SEGMENT.ilog2()) as usize;
    (segment, shifted - (FIRST_SEGMENT << segment))
}

/// Returns the distance between two slots of a segment. The model checker needs no padding.
#[inline]
fn stride(segment: usize) -> usize {
    match segment < PADDED_SEGMENTS && !cfg!(loom) {
        true => size_of::<CachePadded<u8>>().div_ceil(size_of::<CommitSlot>()),
        false => 1,
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod models;
