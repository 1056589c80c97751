//! Version chains: reading at a snapshot, stamping, and unlinking versions that nobody needs.
//!
//! `version.rs` says what a version is, and which one a reader at S takes. Here is why no version
//! is freed while a thread looks at it. That rests on hazards alone: an error in a snapshot could
//! give a wrong answer, and never touch freed memory.
//!
//! # Invariants
//!
//! * I7  One thread at a time unlinks versions of a record: it has set `pruning`. A thread that
//!   finds it set leaves the record alone, so that no thread waits for a descheduled one.
//! * I8  A version is unlinked in this order: the word `older` of it is marked and taken, the
//!   version that leads to it leads on, and it is retired.
//! * I9  A thread goes from version N to the version O behind it only if a hazard names O, and N
//!   led to O after that. If N is of a transaction that is not stamped, that transaction was also
//!   still running after that.
//!
//! # Why no thread looks at a freed version
//!
//! The first version is found by the pointer of the record, as any value (`record.rs`).
//!
//! *N is stamped.* The chain owns O (I4 of `version.rs`). It is retired after N leads on, or, if N
//! leaves the chain, after N's word is marked (I8). The reader has found N leading to O after its
//! hazard named O (I9), so the freeing thread finds that hazard: the argument of
//! `foxton_sync::epoch::hazard`, with N's word as the source.
//!
//! *N refers to a running generation.* O belongs to the undo of that generation, which retires it
//! after the generation has ended. The reader found it running after its hazard named O. A
//! rollback puts O back into the record first, and takes the word `older` from N; from then on the
//! first case holds.
//!
//! *O is the inline slot.* It is memory of the record, which is borrowed. It is not overwritten:
//! see "a kept value" in `inline_slot.rs`.
//!
//! # Orderings
//!
//! Those of `Hazard::protect`, with `older` in the place of the record's pointer, and O3 of
//! `version.rs` for the generation. Beside these:
//!
//! * O5  marking or changing `older` (Release) to the second load of `Hazard::protect` (Acquire): a
//!   reader that goes on finds the version whole that it goes to.
//! * O6  the end of pruning (Release) to its begin in another thread (Acquire).
//! * O7  the exchange of the record's value (Release) to the load of it (Acquire) that tells
//!   whether a version is still in its record.

use std::fmt;
use std::mem;
use std::ptr::NonNull;

use foxton_log::Lsn;
use foxton_sync::backoff::Backoff;
use foxton_sync::epoch::{Guard, Hazard, Participant};
use foxton_sync::shim::Ordering;

use super::Record;
use crate::memory::value::{
    self, Block, BlockHeader, Origin, UNLINKED, ValueBlock, block_of, is_outside, is_tombstone,
    take_older,
};
use crate::memory::version::{Begin, CommitSlots, Visibility};

/// Reads records at a snapshot.
///
/// ```
/// use foxton_log::Lsn;
/// use foxton_store::memory::{
///     CommitSlots, NewRecord, Next, Promise, RecordTable, SnapshotRead, VersionReader,
/// };
/// use foxton_sync::worker::Workers;
///
/// let workers = Workers::new();
/// let table = RecordTable::new(workers.domain());
/// let worker = workers.worker();
/// let guard = worker.pin();
/// let record = NewRecord::new(b"boat", Some(b"narrow"))?;
/// let record = table.insert(&guard, record, Next::Any).expect("a new key");
///
/// let slots = CommitSlots::new();
/// let mut own = slots.acquire();
/// let since = guard.participant().stamp();
/// let old = record.replace(Some(b"wide"), &guard, since, Some(slots.writer(&own)))?;
///
/// let mut reader = VersionReader::new(&guard, &slots, None);
/// let read = |reader: &mut VersionReader<'_>, lsn| match reader.read(record, Lsn::new(lsn)) {
///     SnapshotRead::Value(bytes, _) => bytes.to_vec(),
///     _ => unreachable!("it has a value"),
/// };
/// assert_eq!(read(&mut reader, 50), b"narrow");
///
/// slots.start_commit(&own, Lsn::new(60));
/// slots.committed(&own, Lsn::new(90), Promise::Nothing);
/// let kept = record.settle(old, &slots, &own, (Lsn::new(90), Promise::Nothing), &guard);
/// slots.end(&mut own, guard.participant());
/// assert_eq!(kept.map(|(begin, _)| begin), Some(Lsn::ZERO));
/// assert_eq!(read(&mut reader, 89), b"narrow");
/// assert_eq!(read(&mut reader, 90), b"wide");
/// # slots.release(own);
/// # Ok::<(), foxton_store::TooLong>(())
/// ```
pub struct VersionReader<'g> {
    slots: &'g CommitSlots,
    own: Option<Begin>,
    current: Hazard<'g>,
    next: Hazard<'g>,
}

/// Result of a read at a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotRead<'a> {
    /// The value, and where it began.
    Value(&'a [u8], Begin),
    /// There is none. It was removed where the timestamp says, or was not there before.
    Absent(Begin),
    /// The writer of the version that began so is about to learn its commit LSN. The reader waits
    /// without a pin, and reads again.
    Unresolved(Begin),
}

/// Result of unlinking versions that nobody needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PruneResult {
    /// True if another thread is at it; nothing was done.
    pub is_busy: bool,
    /// Number of versions unlinked.
    pub versions: usize,
    /// Their bytes.
    pub bytes: usize,
    /// True if older versions are left.
    pub is_rest: bool,
}

impl fmt::Debug for VersionReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionReader").finish_non_exhaustive()
    }
}

/// Version to which a word led.
enum Step {
    To(Block),
    End,
    /// The version has left its chain.
    Lost,
    /// Its begin timestamp has changed, or its writer has ended.
    Again,
}

impl<'g> VersionReader<'g> {
    /// Returns a reader, to which the versions that began at `own` are visible. It takes two
    /// hazards of the guard's participant.
    ///
    /// # Panics
    ///
    /// If the participant has more than two hazards in use.
    pub fn new(
        guard: &'g Guard<'_>,
        slots: &'g CommitSlots,
        own: Option<Begin>,
    ) -> VersionReader<'g> {
        VersionReader {
            slots,
            own,
            current: guard.hazard(),
            next: guard.hazard(),
        }
    }

    /// Reads `record` at `snapshot`. The bytes stay as they are for as long as the reader is
    /// borrowed.
    ///
    /// # Panics
    ///
    /// If the record is of another epoch domain.
    #[inline]
    pub fn read<'a>(&'a mut self, record: &'a Record, snapshot: Lsn) -> SnapshotRead<'a> {
        let slots = self.slots;
        self.read_where(record, |begin| slots.visibility(begin, snapshot))
    }

    /// As [`read`](Self::read), for a reader that decides by `visibility` which versions it sees.
    ///
    /// # Panics
    ///
    /// If the record is of another epoch domain.
    pub fn read_where<'a>(
        &'a mut self,
        record: &'a Record,
        visibility: impl Fn(Begin) -> Visibility,
    ) -> SnapshotRead<'a> {
        assert_eq!(
            self.current.domain(),
            record.header.domain,
            "a version is read by a hazard of its table's domain"
        );
        // A collector that is descheduled in the middle of unlinking needs the processor.
        let mut backoff = Backoff::new();
        'first: loop {
            let Some(first) = NonNull::new(self.current.protect(&record.header.value)) else {
                return SnapshotRead::Absent(Begin::ALWAYS);
            };
            let mut at = first;
            loop {
                // SAFETY: the hazard protects it (I9), or it is memory of the record.
                let words = unsafe { record.words(at) };
                let begin = words.begin();
                if self.own == Some(begin) {
                    return Self::found(at, Begin::ALWAYS);
                }
                match visibility(begin) {
                    Visibility::Visible(begin) => return Self::found(at, begin),
                    Visibility::Unresolved => return SnapshotRead::Unresolved(begin),
                    Visibility::Ended if words.begin() != begin => continue,
                    Visibility::Ended => {
                        let is_first = at == first;
                        let now = record.header.value.load(Ordering::Acquire); // O7
                        if is_first && now != at.as_ptr() {
                            continue 'first; // It was rolled back, or written again.
                        }
                        return Self::found(at, Begin::ALWAYS);
                    }
                    Visibility::Invisible => {}
                }
                match step(record, at, self.slots, &mut self.next) {
                    Step::To(older) => at = older,
                    Step::End => return SnapshotRead::Absent(Begin::ALWAYS),
                    Step::Lost => {
                        backoff.snooze();
                        continue 'first;
                    }
                    Step::Again => continue,
                }
                mem::swap(&mut self.current, &mut self.next);
            }
        }
    }

    fn found<'a>(at: Block, begin: Begin) -> SnapshotRead<'a> {
        if is_tombstone(at) {
            return SnapshotRead::Absent(begin);
        }
        // SAFETY: `read` returns it borrowed from the reader, whose hazard protects it, and from
        // the record.
        SnapshotRead::Value(unsafe { value::bytes(block_of(at)) }, begin)
    }
}

/// Goes from the version `at` to the one before it, by the rule I9.
fn step(record: &Record, at: Block, slots: &CommitSlots, next: &mut Hazard<'_>) -> Step {
    // SAFETY: the caller's hazard protects it, or it is memory of the record.
    let words = unsafe { record.words(at) };
    let begin = words.begin();
    let older = NonNull::new(next.protect(&words.older));
    if older == Some(UNLINKED) {
        return Step::Lost;
    }
    if begin.is_reference() && slots.has_ended(begin) {
        return Step::Again;
    }
    older.map_or(Step::End, Step::To)
}

impl Record {
    /// Stamps the newest version with the commit `stamp` of the transaction that owns it, and gives
    /// the previous value `old`, which [`Record::replace`] has returned to that transaction, to the
    /// chain. Returns where the version began that the chain keeps from now on, and its bytes. A
    /// version that the transaction itself has written and replaced is retired.
    ///
    /// The caller holds the record locked exclusively.
    ///
    /// # Panics
    ///
    /// If the guard is of another epoch domain than the table.
    pub fn settle(
        &self,
        old: Option<ValueBlock>,
        slots: &CommitSlots,
        own: &crate::memory::OwnSlot,
        (end, promise): (Lsn, crate::memory::Promise),
        guard: &Guard<'_>,
    ) -> Option<(Lsn, usize)> {
        self.assert_pinned(guard);
        let own = slots.begin(own);
        let mut hazard = guard.hazard();
        if let Some(newest) = NonNull::new(hazard.protect(&self.header.value)) {
            // SAFETY: the hazard protects it, or it is memory of the record.
            let words = unsafe { self.words(newest) };
            if words.begin() == own {
                words.set_begin(Begin::at(end, promise));
            }
        }
        let old = old?;
        let words = old.words().unwrap_or(&self.header.inline_words);
        if words.begin() == own {
            if let Origin::Inline { vacated, .. } = old.origin() {
                self.header
                    .inline_slot
                    .give_up(vacated, guard.participant());
            }
            old.retire(guard.participant());
            return None;
        }
        let begin = words.begin().committed().map_or(Lsn::ZERO, |(lsn, _)| lsn);
        let bytes = old.kept_bytes();
        // The chain has it from now on (I4 of `version.rs`).
        let _ = old.into_parts();
        Some((begin, bytes))
    }

    /// Unlinks the versions whose interval of validity, from its begin up to its end, is not
    /// `needed`. Those of transactions that are not stamped stay.
    ///
    /// # Panics
    ///
    /// If the guard is of another epoch domain than the table, or its participant has more than
    /// two hazards in use.
    pub fn prune(
        &self,
        guard: &Guard<'_>,
        slots: &CommitSlots,
        needed: &impl Fn(Lsn, Lsn) -> bool,
    ) -> PruneResult {
        self.assert_pinned(guard);
        let mut result = PruneResult::default();
        // Site: "record value".
        if self.header.pruning.swap(true, Ordering::Acquire) {
            // O6, I7
            result.is_busy = true;
            return result;
        }
        while !self.prune_once(guard, slots, needed, &mut result) {}
        self.header.pruning.store(false, Ordering::Release); // O6
        result
    }

    /// Returns false if a version has left the chain meanwhile.
    fn prune_once(
        &self,
        guard: &Guard<'_>,
        slots: &CommitSlots,
        needed: &impl Fn(Lsn, Lsn) -> bool,
        result: &mut PruneResult,
    ) -> bool {
        let (mut current, mut next) = (guard.hazard(), guard.hazard());
        let kept_slot = self.header.inline_slot.kept();
        result.is_rest = false;
        let Some(first) = NonNull::new(current.protect(&self.header.value)) else {
            return true;
        };
        let (mut at, mut has_inline) = (first, false);
        loop {
            has_inline |= !is_outside(at);
            let older = match step(self, at, slots, &mut next) {
                Step::To(older) => older,
                Step::End => break,
                Step::Lost => return false,
                Step::Again => {
                    // SAFETY: the hazard protects it, or it is memory of the record.
                    let words = unsafe { self.words(at) };
                    if words.begin().is_reference() {
                        break; // It was committed below every snapshot: nothing is behind it.
                    }
                    continue;
                }
            };
            // SAFETY: as above.
            let words = unsafe { self.words(at) };
            // SAFETY: as above, by the other hazard.
            let behind = unsafe { self.words(older) };
            let start = behind.begin().committed().map_or(Lsn::ZERO, |(lsn, _)| lsn);
            let end = words.begin().committed();
            if end.is_some_and(|(end, _)| !needed(start, end)) {
                result.versions += 1;
                result.bytes += self.unlink(words, older, guard.participant());
                continue;
            }
            result.is_rest |= end.is_some();
            at = older;
            mem::swap(&mut current, &mut next);
        }
        // SAFETY: the hazard protects it, or it is memory of the record; if it is not the first any
        // more, its words still are.
        if let (Some(kept), false) = (kept_slot, has_inline || result.is_rest) {
            self.give_up_unlinked(first, kept, guard, slots);
        }
        true
    }

    /// Makes the inline slot vacant, which no version leads to, if its keeper has ended.
    fn give_up_unlinked(
        &self,
        first: Block,
        kept: crate::memory::inline_slot::VacateStamp,
        guard: &Guard<'_>,
        slots: &CommitSlots,
    ) {
        let mut hazard = guard.hazard();
        // Acquire in `protect`: as any reader.
        if hazard.protect(&self.header.value) != first.as_ptr() {
            return;
        }
        // SAFETY: the hazard protects it, or it is memory of the record.
        let begin = unsafe { self.words(first) }.begin();
        if slots.has_ended(begin) {
            self.header.inline_slot.give_up(kept, guard.participant());
        }
    }

    /// Unlinks `older`, to which the stamped version with `words` leads. Returns its bytes.
    fn unlink(
        &self,
        words: &crate::memory::value::VersionWords,
        older: Block,
        participant: &Participant,
    ) -> usize {
        // SAFETY: the caller's hazard protects it, or it is memory of the record.
        let behind = unsafe { self.words(older) };
        let rest = take_older(behind); // I8
        // Site: "record value".
        let linked = words.older.compare_exchange(
            older.as_ptr(),
            rest,
            Ordering::AcqRel, // O5
            Ordering::Relaxed,
        );
        if linked.is_err() {
            // The version in front was retired with its chain, but for this part of it.
            // SAFETY: taken from a version, so it is ours.
            unsafe { value::retire_chain(rest, participant) };
            return 0;
        }
        // SAFETY: whole until it is freed.
        let bytes = kept_bytes(older);
        if is_outside(older) {
            // SAFETY: the chain owned it, and no version leads to it any more (I8).
            unsafe { value::retire_chain(older.as_ptr(), participant) };
        } else if let Some(kept) = self.header.inline_slot.kept() {
            self.header.inline_slot.give_up(kept, participant);
        }
        bytes
    }

    /// Calls `visit` with each version that is committed, newest first: its begin timestamp, its
    /// end, and its value, or `None` for a deletion. The end of the newest is `None`.
    ///
    /// Meant for a caller that holds the record locked exclusively. If versions are pruned
    /// meanwhile, others are visited once more.
    pub fn visit_versions(
        &self,
        guard: &Guard<'_>,
        slots: &CommitSlots,
        mut visit: impl FnMut(Begin, Option<Lsn>, Option<&[u8]>),
    ) {
        let (mut current, mut next) = (guard.hazard(), guard.hazard());
        let mut backoff = Backoff::new();
        'first: loop {
            let Some(mut at) = NonNull::new(current.protect(&self.header.value)) else {
                return;
            };
            let mut end = None;
            loop {
                // SAFETY: the hazard protects it, or it is memory of the record.
                let words = unsafe { self.words(at) };
                let begin = words.begin();
                let is_ended = slots.has_ended(begin);
                if is_ended && words.begin() != begin {
                    continue;
                }
                if is_ended {
                    // SAFETY: as above.
                    let bytes = (!is_tombstone(at)).then(|| unsafe { value::bytes(block_of(at)) });
                    visit(begin, end, bytes);
                    end = begin.committed().map(|(lsn, _)| lsn);
                    if begin.is_reference() {
                        return;
                    }
                }
                match step(self, at, slots, &mut next) {
                    Step::To(older) => at = older,
                    Step::End => return,
                    // A collector prunes without the lock. Versions behind may be needed.
                    Step::Lost => {
                        backoff.snooze();
                        continue 'first;
                    }
                    Step::Again => continue,
                }
                mem::swap(&mut current, &mut next);
            }
        }
    }

    /// Frees the value and the versions behind it.
    ///
    /// # Safety
    ///
    /// No thread looks at the record any more, and `first` is its pointer.
    pub(super) unsafe fn free_chain(&self, first: Option<Block>) {
        // SAFETY: as the caller says.
        unsafe { self.free_from(first) };
        // An inline version that was taken out before may still have some.
        let rest = NonNull::new(take_older(&self.header.inline_words));
        // SAFETY: as the caller says; it was taken, so no other thread frees it.
        unsafe { self.free_from(rest) };
    }

    /// As [`free_chain`](Self::free_chain), from any version on.
    unsafe fn free_from(&self, first: Option<Block>) {
        let mut next = first;
        while let Some(found) = next {
            // SAFETY: the chain owns it, and no thread looks.
            let words = unsafe { self.words(found) };
            let older = NonNull::new(take_older(words));
            if is_outside(found) {
                // SAFETY: as above; used once.
                unsafe { value::free(block_of(found)) };
            }
            next = older;
        }
    }
}

/// Returns the bytes that a version takes in a chain.
fn kept_bytes(found: Block) -> usize {
    // SAFETY: the caller has it protected.
    let length = unsafe { value::bytes(block_of(found)) }.len();
    length + size_of::<BlockHeader>() + 16
}

impl ValueBlock {
    /// Returns the bytes that it takes in a chain.
    fn kept_bytes(&self) -> usize {
        self.bytes().map_or(0, <[u8]>::len) + size_of::<BlockHeader>() + 16
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod models;
