//! Records: a key at a fixed address, and a pointer to its value.
//!
//! # State
//!
//! One allocation, aligned to 16 so that the index has four bits of each pointer for a tag:
//!
//! ```text
//!   0       8       16             24      32       36            40           44          46
//!   +-------+-------+--------------+-------+--------+-------------+------------+-----------+----
//!   | begin | older | commit stamp | value | domain | inline slot | tail bytes | key bytes | ..
//!   +-------+-------+--------------+-------+--------+-------------+------------+-----------+----
//!                                      |
//!   46       47         48       52    |  53     56
//!   +--------+----------+--------+---------+------+-----+------+-------+
//!   | linked | has slot | anchor | pruning | free | key | pad4 | block | <-- first here, if it
//!   +--------+----------+--------+---------+------+-----+------+-------+     was made with a value
//! ```
//!
//! The pointer `value` is null for a ghost that never had a value. Its lowest bit is set if it
//! leads to a block elsewhere, and the next one if that is a tombstone: the record is a ghost, too.
//! The words `begin` and `older` are those of the version in the inline slot.
//!
//! The first value is behind the key, so that reading a loaded row touches adjacent cache lines and
//! costs one allocation. The next one is elsewhere, because readers may still be there; then the
//! space behind the key is used again (`inline_slot.rs`). It is freed with the record.
//!
//! # Invariants
//!
//! * I1  Key, domain and the length of the tail never change once the record is in a table.
//! * I2  A `&Record` is only ever borrowed from a pinned guard of the domain in which the record
//!   will be retired, and from the table. So while it exists, the record is not freed.
//! * I3  `value` owns the block it points to (I2 of `value.rs`): putting one in takes the
//!   `ValueBlock`, taking one out makes a `ValueBlock`, both by one exchange.
//! * I4  A block that came out of a record goes back into that record or nowhere.
//! * I6  A record whose anchor is held is never freed, but leaked: its lock manager still has its
//!   address. No thread can take the anchor of a record that is being freed (I2, I5).
//! * I5  A record is freed once: by `NewRecord` if it never was in a table, otherwise by the thread
//!   that took it out of its slot, through the epoch, or by the table's drop.
//!
//! # Why nothing is freed too early, whatever callers do
//!
//! A reader finds the pointer `value` to block B by a hazard of the domain, which protects B from
//! then on, and is pinned meanwhile (I2). B leaves the record only into a `ValueBlock` that knows
//! it was `Taken` (I3), and from there:
//!
//! * dropped: leaked. Retired: hazard-protected in the same domain, so freed after our reader has
//!   released its hazard.
//! * put back into the record (I4): as before.
//! * put into another record: cannot be; the addresses differ, and `swap` panics. They may be
//!   equal, if the record was freed and another made in its place. But it was freed after every
//!   reader of it was gone, and so was every reader of B, which left it earlier.
//!
//! If B is freed together with the record, the record was retired (or the table dropped), and our
//! reader still borrows it, so neither has happened (I2).
//!
//! The inline block is named by the address of the record and the stamp with which its slot was
//! vacated. It is put back only into a record at that address whose slot was vacated with that
//! stamp. Its memory is that record's own, so the pointer is good even if it is another record than
//! the one the handle came from.
//!
//! Two writers that do not lock lose updates. They cannot lose memory: each block that went in
//! comes out into exactly one `ValueBlock` (I3).
//!
//! # Orderings
//!
//! * O3  taking the word `older` of a version that was rolled back: O5 of `record/chain.rs`.
//! * O1  exchange in `swap` (Release) to the second load of `Hazard::protect` (Acquire): a thread
//!   that finds a block sees its bytes.
//! * O2  exchange in `swap` (Release) to the exchange in a later `swap` (Acquire): a thread that
//!   takes a block out comes after its making, and so knows what it frees. (Putting it back would
//!   not need that: every change after the first is an exchange, and exchanges continue each
//!   other's release.)

use super::inline_slot::InlineSlot;
use super::value::VersionWords;
use super::value::{self, Block, Origin, ValueBlock, block_of, is_outside, is_tombstone};
use super::version::{Begin, VersionWriter};
use crate::{TooLong, failpoint};
use foxton_sync::anchor::LockAnchor;
use foxton_sync::cache_line;
use foxton_sync::epoch::{Guard, Hazard, Stamp};
use foxton_sync::shim::{AtomicBool, AtomicPtr, AtomicU64, Ordering, unmodelled::UnsafeCell};
use foxton_sync::site::{Component, Pattern, Site};
use std::alloc::{Layout, dealloc};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

mod chain;
mod new;

pub use chain::{PruneResult, SnapshotRead, VersionReader};
pub use new::NewRecord;

/// Site: exchange of a value. A writer of a row meets the previous writer there. A record knows no
/// worker, so the caller of [`Record::swap`] or [`Record::put`] counts it.
///
/// ```
/// use foxton_sync::worker::Workers;
///
/// let worker = Workers::new().worker();
/// worker.account().passed(&foxton_store::memory::VALUE);
/// ```
pub static VALUE: Site = Site::new(Component::Latch, Pattern::Unbounded, "record value");

/// The header of a record, before its key.
#[repr(C)]
struct MemoryRecordHeader {
    /// Of the version in the inline slot.
    inline_words: VersionWords,
    commit_stamp: AtomicU64,
    value: AtomicPtr<value::BlockHeader>,
    domain: u32,
    inline_slot: InlineSlot,
    tail_bytes: u32,
    key_bytes: u16,
    linked: AtomicBool,
    has_inline_slot: bool,
    anchor: LockAnchor,
    /// True while a thread unlinks versions (I7 of `chain.rs`).
    pruning: AtomicBool,
}

// Reads touch the end of it, right before the key.
#[cfg(not(loom))]
const _: () = assert!(size_of::<MemoryRecordHeader>() == 56);

/// Alignment of a record: the low four bits of its address are zero.
pub(super) const ALIGN: usize = 16;

/// A key with its value, at an address that does not change while it is in its table.
///
/// References found in a [`RecordTable`](super::RecordTable) are borrowed from the guard that was
/// pinned.
#[repr(C, align(16))]
pub struct Record {
    header: MemoryRecordHeader,
    /// The key, which never changes, and the block, which changes only while no thread looks.
    tail: UnsafeCell<[u8]>,
}

// SAFETY: the key in its tail never changes (I1), and the block only while no other thread can look
// (`inline_slot.rs`); all else is `Sync`.
unsafe impl Sync for Record {}

const _: () = assert!(align_of::<MemoryRecordHeader>() <= ALIGN);

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("key", &self.key())
            .field("linked", &self.is_linked())
            .finish_non_exhaustive()
    }
}

impl Record {
    /// Returns the key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let start = self.tail.get().cast::<u8>();
        // SAFETY: the tail begins with the key, which is never written again (I1).
        unsafe { slice::from_raw_parts(start, self.header.key_bytes.into()) }
    }

    /// Returns the value, or `None` for a ghost: a record whose key counts as absent, and which
    /// exists only so that it can be locked, or until it is removed.
    ///
    /// The bytes stay as they are for as long as the hazard is borrowed, whatever replaces them.
    ///
    /// # Panics
    ///
    /// If the hazard is of another epoch domain than the table.
    #[inline]
    pub fn value<'a>(&'a self, hazard: &'a mut Hazard<'_>) -> Option<&'a [u8]> {
        let found = NonNull::new(self.header.value.load(Ordering::Acquire))?; // O1
        if is_outside(found) {
            return self.value_outside(hazard);
        }
        // SAFETY: it is memory of the record, which is borrowed, and so is whole and stays.
        Some(unsafe { value::bytes(found) })
    }

    /// Returns the value, which was outside of the record a moment ago.
    fn value_outside<'a>(&'a self, hazard: &'a mut Hazard<'_>) -> Option<&'a [u8]> {
        assert_eq!(
            hazard.domain(),
            self.header.domain,
            "a value is read by a hazard of its table's domain"
        );
        let found = NonNull::new(hazard.protect(&self.header.value))?; // O1
        if is_tombstone(found) {
            return None;
        }
        // SAFETY: the record is borrowed, and the hazard protects its former block under it, so
        // that is whole and stays (see "Why nothing is freed too early").
        Some(unsafe { value::bytes(block_of(found)) })
    }

    /// True if there is no value, as [`Record::value`] says, without reading one.
    #[inline]
    pub fn is_ghost(&self) -> bool {
        // Relaxed: nothing is read through it.
        let found = NonNull::new(self.header.value.load(Ordering::Relaxed));
        found.is_none_or(is_tombstone)
    }

    /// Replaces the value by `new`, and returns the previous one. `None` is a ghost.
    ///
    /// Meant for a caller that holds the record locked exclusively. Without, updates can be lost,
    /// but never memory.
    ///
    /// # Panics
    ///
    /// If `new` came out of another record, or its memory was used since, which requires another
    /// writer; and if the guard is of another epoch domain than the table.
    #[inline]
    pub fn swap(&self, new: Option<ValueBlock>, guard: &Guard<'_>) -> Option<ValueBlock> {
        self.assert_pinned(guard);
        let new = new.map_or(ptr::null_mut(), |block| self.adopt(block));
        self.exchange(new, guard)
    }

    /// Replaces the value by a copy of `bytes`, and returns the previous one. The copy is made
    /// behind the key, if it fits there and no thread can be reading, or in memory of its own.
    /// Values in the record at `kept_since` or later may be restored, and are not overwritten: a
    /// caller that undoes its changes gives a stamp from before the first.
    ///
    /// Otherwise as [`Record::swap`].
    ///
    /// # Errors
    ///
    /// If there are more than [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES).
    ///
    /// # Panics
    ///
    /// If the guard is of another epoch domain than the table.
    ///
    /// ```
    /// use foxton_store::memory::{NewRecord, Next, RecordTable};
    /// use foxton_sync::worker::Workers;
    ///
    /// let workers = Workers::new();
    /// let table = RecordTable::new(workers.domain());
    /// let worker = workers.worker();
    /// let guard = worker.pin();
    /// let record = NewRecord::new(b"boat", Some(b"narrow"))?;
    /// let record = table.insert(&guard, record, Next::Any).expect("a new key");
    ///
    /// let old = record.put(b"wide", &guard, worker.participant().stamp())?;
    /// assert_eq!(record.value(&mut guard.hazard()), Some(&b"wide"[..]));
    /// record.swap(old, &guard).expect("a value").retire(guard.participant());
    /// assert_eq!(record.value(&mut guard.hazard()), Some(&b"narrow"[..]));
    /// # Ok::<(), foxton_store::TooLong>(())
    /// ```
    #[inline]
    pub fn put(
        &self,
        bytes: &[u8],
        guard: &Guard<'_>,
        kept_since: Stamp,
    ) -> Result<Option<ValueBlock>, TooLong> {
        self.assert_pinned(guard);
        guard.participant().tick();
        let inline_slot = self
            .inline_block()
            .filter(|_| bytes.len() <= self.inline_bytes())
            .filter(|_| {
                self.header
                    .inline_slot
                    .claim(guard.participant(), kept_since)
            });
        let new = match inline_slot {
            Some(block) => {
                // SAFETY: the slot is ours (I6 of `inline_slot.rs`) and no thread looks (I8); there
                // is a block, and it has space.
                unsafe { value::overwrite(block, bytes) };
                self.header.inline_words.set_begin(Begin::ALWAYS);
                // Relaxed: the exchange publishes it.
                let older = &self.header.inline_words.older;
                older.store(ptr::null_mut(), Ordering::Relaxed);
                block.as_ptr()
            }
            None => self.adopt(ValueBlock::new(bytes)?),
        };
        Ok(self.exchange(new, guard))
    }

    /// Replaces the value by a copy of `bytes`, or by a tombstone, as a version of `writer`, and
    /// returns the previous one. The new version leads to the newest one of another transaction.
    ///
    /// Without a writer, as [`Record::put`], and as [`Record::swap`] for a deletion. Then no
    /// snapshot reader finds the previous value.
    ///
    /// # Errors
    ///
    /// As [`Record::put`].
    ///
    /// # Panics
    ///
    /// If the guard is of another epoch domain than the table, or its participant has more than
    /// three hazards.
    #[inline]
    pub fn replace(
        &self,
        bytes: Option<&[u8]>,
        guard: &Guard<'_>,
        kept_since: Stamp,
        writer: Option<VersionWriter<'_>>,
    ) -> Result<Option<ValueBlock>, TooLong> {
        let Some(writer) = writer else {
            return match bytes {
                Some(bytes) => self.put(bytes, guard, kept_since),
                None => Ok(self.swap(None, guard)),
            };
        };
        self.assert_pinned(guard);
        guard.participant().tick();
        let mut hazard = guard.hazard();
        let mut found = hazard.protect(&self.header.value); // O1
        let fitting = self
            .inline_block()
            .zip(bytes)
            .filter(|(_, bytes)| bytes.len() <= self.inline_bytes());
        let is_ours = match NonNull::new(found).filter(|&found| is_outside(found)) {
            Some(current) => self.take_kept_slot(current, fitting.is_some(), guard, writer),
            None => false,
        };
        let inline_slot = fitting.filter(|_| {
            let slot = &self.header.inline_slot;
            is_ours || slot.claim(guard.participant(), kept_since)
        });
        let new = match (inline_slot, bytes) {
            (Some((block, bytes)), _) => {
                // SAFETY: as in `put`.
                unsafe { value::overwrite(block, bytes) };
                block
            }
            (None, Some(bytes)) => self.adopt_fresh(ValueBlock::new(bytes)?),
            (None, None) => self.adopt_fresh(ValueBlock::tombstone()),
        };
        // SAFETY: the new block is ours, and no other thread has it.
        let words = unsafe { self.words(new) };
        words.set_begin(writer.begin);
        loop {
            let older = match NonNull::new(found) {
                None => found,
                Some(current) => {
                    // SAFETY: the hazard protects it, or it is in the record.
                    let current = unsafe { self.words(current) };
                    match current.begin() == writer.begin {
                        // Relaxed: it was published with the version that has it.
                        true => current.older.load(Ordering::Relaxed),
                        false => found,
                    }
                }
            };
            // Relaxed: the exchange publishes it.
            words.older.store(older, Ordering::Relaxed);
            // Site: "record value".
            let exchanged = self.header.value.compare_exchange(
                found,
                new.as_ptr(),
                Ordering::AcqRel, // O1, O2
                Ordering::Relaxed,
            );
            if exchanged.is_ok() {
                break;
            }
            // Only without locks.
            found = hazard.protect(&self.header.value);
        }
        let Some(old) = NonNull::new(found) else {
            return Ok(None);
        };
        let home = self.address();
        let origin = match is_outside(old) {
            false => Origin::Inline {
                home,
                vacated: self.header.inline_slot.keep(guard.participant()),
            },
            true => Origin::Taken {
                home,
                domain: self.header.domain,
            },
        };
        // SAFETY: it was the record's and is now ours (I3).
        Ok(Some(unsafe { ValueBlock::from_parts(old, origin) }))
    }

    /// Takes the inline slot to write into it, if `is_wanted`, and only the version before
    /// `current` has kept it, and no reader is left that follows `current` to it. If a reader may
    /// be left and none comes any more, makes it vacant. Returns whether it was taken.
    #[inline]
    fn take_kept_slot(
        &self,
        current: Block,
        is_wanted: bool,
        guard: &Guard<'_>,
        writer: VersionWriter<'_>,
    ) -> bool {
        let slot = &self.header.inline_slot;
        let Some(kept) = slot.kept() else {
            return false;
        };
        // SAFETY: the caller's hazard protects it.
        let begin = unsafe { self.words(current) }.begin();
        let now = guard.participant().recent_stamp();
        let faults = writer.slots.failpoints();
        let is_early = faults.misbehaves(&failpoint::VACATED_EARLY);
        if is_early {
            // Or the chain would become a circle.
            // SAFETY: as above.
            let older = unsafe { &self.words(current).older };
            older.store(ptr::null_mut(), Ordering::Release); // O3
        }
        let has_passed = writer.slots.has_passed(begin, now) || is_early;
        let is_ours = is_wanted && has_passed && slot.restore(kept);
        if is_ours || begin.is_reference() && writer.slots.has_ended(begin) {
            let rest = value::take_older(&self.header.inline_words);
            // SAFETY: taken from a version that no version leads to any more, so it is ours.
            unsafe { value::retire_chain(rest, guard.participant()) };
            if !is_ours {
                slot.give_up(kept, guard.participant());
            }
        }
        is_ours
    }

    /// Returns the words of the version to which a record's pointer leads.
    ///
    /// # Safety
    ///
    /// The version is in this record, or is protected by a hazard, or is the caller's.
    #[inline]
    unsafe fn words(&self, found: Block) -> &VersionWords {
        match is_outside(found) {
            // SAFETY: as the caller says, it stays.
            true => unsafe { value::words(block_of(found)) },
            false => &self.header.inline_words,
        }
    }

    fn assert_pinned(&self, guard: &Guard<'_>) {
        assert_eq!(
            guard.domain().id(),
            self.header.domain,
            "a value is replaced under a guard of its table's domain"
        );
    }

    /// Replaces the value by `new`, which belongs to the record.
    #[inline]
    fn exchange(&self, new: *mut value::BlockHeader, guard: &Guard<'_>) -> Option<ValueBlock> {
        // Site: "record value".
        let old = self.header.value.swap(new, Ordering::AcqRel); // O1, O2
        let old = NonNull::new(old)?;
        let home = self.address();
        let origin = match is_outside(old) {
            false => Origin::Inline {
                home,
                vacated: self.header.inline_slot.vacate(guard.participant()),
            },
            true => Origin::Taken {
                home,
                domain: self.header.domain,
            },
        };
        // SAFETY: it was the record's and is now ours (I3).
        let old = unsafe { ValueBlock::from_parts(old, origin) };
        let words = old.words().unwrap_or(&self.header.inline_words);
        if words.begin().is_reference() {
            // A reader that is there begins again at the record. With null it would find that the
            // row was not there before, while the writer's generation is still running.
            words
                .older
                .store(value::UNLINKED.as_ptr(), Ordering::Release); // O3
        }
        Some(old)
    }

    /// True if the record is in its table. Once it is not, it never is again; its key may be in the
    /// table as another record.
    #[inline]
    pub fn is_linked(&self) -> bool {
        // Relaxed: a thread that relies on it holds a lock on the key, as does one that removes it;
        // the lock orders the two.
        self.header.linked.load(Ordering::Relaxed)
    }

    /// A word for the table's user: `foxton` keeps a log position there. Starts at 0; the table
    /// leaves it alone.
    #[inline]
    pub fn commit_stamp(&self) -> &AtomicU64 {
        &self.header.commit_stamp
    }

    /// Returns the address, which no other record has while this one exists.
    #[inline]
    pub(super) fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// The word of the locks on the key, for a lock manager. It is queued in a new record, and dead
    /// once the record is out of its table.
    #[inline]
    pub fn anchor(&self) -> &LockAnchor {
        &self.header.anchor
    }

    pub(super) fn set_unlinked(&self) {
        // Relaxed: see `is_linked`.
        self.header.linked.store(false, Ordering::Relaxed);
        // If an owner holds the anchor, which the contract of lock managers forbids, `free` leaks
        // the record.
        self.header.anchor.retire();
    }

    /// True if `block` may go into this record: it is new, or came from here, and its memory was
    /// not used since.
    pub fn may_take(&self, block: &ValueBlock) -> bool {
        let here = self.address();
        match block.origin() {
            Origin::Fresh => true,
            Origin::Taken { home, .. } => home == here,
            Origin::Inline { home, vacated } => {
                home == here && self.header.inline_slot.is_as_left(vacated)
            }
        }
    }

    /// Returns the pointer that becomes the value, if the block may go into this record.
    fn adopt(&self, block: ValueBlock) -> *mut value::BlockHeader {
        let (found, origin) = block.into_parts();
        let own = match origin {
            Origin::Fresh => Some(found),
            Origin::Taken { home, .. } => (home == self.address()).then_some(found),
            // Not the handle's pointer: the record's own (see the first page).
            Origin::Inline { home, vacated } => self
                .inline_block()
                .filter(|_| home == self.address() && self.header.inline_slot.restore(vacated)),
        };
        // A foreign block is leaked by the panic, which is safe (I3 of `value.rs`).
        own.expect("a block goes back into the record it came from, as it was")
            .as_ptr()
    }

    /// Returns the pointer of a block that no record had.
    #[inline]
    fn adopt_fresh(&self, block: ValueBlock) -> Block {
        block.into_parts().0
    }

    /// Returns the block behind the key, if the record was made with a value.
    #[inline]
    fn inline_block(&self) -> Option<Block> {
        if !self.header.has_inline_slot {
            return None;
        }
        let offset = inline_offset(self.header.key_bytes.into()) - size_of::<MemoryRecordHeader>();
        NonNull::new(self.tail.get().cast::<u8>().wrapping_add(offset).cast())
    }

    /// Maximum bytes of a value behind the key, if there is a block.
    #[inline]
    fn inline_bytes(&self) -> usize {
        let end = size_of::<MemoryRecordHeader>() + self.header.tail_bytes as usize;
        end - inline_offset(self.header.key_bytes.into()) - value::HEADER_BYTES
    }

    /// Panics if pointer and slot do not agree. No thread may change the record meanwhile.
    pub(super) fn verify(&self) {
        // Relaxed: no other thread is here.
        let value = NonNull::new(self.header.value.load(Ordering::Relaxed));
        let is_inside = value.is_some_and(|value| !is_outside(value));
        let in_use = self.header.inline_slot.is_in_use();
        assert_eq!(
            is_inside,
            self.header.has_inline_slot && in_use,
            "the room behind the key has the value, or was left"
        );
    }
}

/// Returns the offset of the block behind a key of `key_bytes`.
#[inline]
const fn inline_offset(key_bytes: usize) -> usize {
    (size_of::<MemoryRecordHeader>() + key_bytes).next_multiple_of(align_of::<value::BlockHeader>())
}

/// Returns the layout of a record with `tail_bytes` behind its header.
fn layout(tail_bytes: usize) -> Layout {
    let size = (size_of::<MemoryRecordHeader>() + tail_bytes).next_multiple_of(ALIGN);
    Layout::from_size_align(size, ALIGN).expect("keys and values have a maximum")
}

/// Returns the bytes that a record takes, without a value outside of it: that was mostly taken out
/// before the record is removed.
pub(super) fn bytes(record: &Record) -> usize {
    layout(record.header.tail_bytes as usize).size()
}

/// Frees a record and the value it owns.
///
/// # Safety
///
/// `address` is a record that the caller may free (I5), and no thread looks at it any more.
pub(super) unsafe fn free(address: *mut ()) {
    let raw = NonNull::new(address.cast::<u8>()).expect("only records are freed");
    // SAFETY: a record that exists until the end of this function.
    let record = unsafe { as_record(raw) };
    if !record.header.anchor.is_unheld() {
        return; // A lock manager would release it after the record is gone.
    }
    // Relaxed: freeing comes after all uses.
    let value = NonNull::new(record.header.value.load(Ordering::Relaxed));
    let has_inline_slot = record.inline_block();
    let layout = layout(record.header.tail_bytes as usize);
    // SAFETY: the record owns its chain (I3), and a thread that could read it borrowed the record.
    unsafe { record.free_chain(value) };
    if let Some(block) = has_inline_slot {
        // SAFETY: made in `NewRecord::new`; its memory is the record's.
        unsafe { block.drop_in_place() };
    }
    // SAFETY: no thread looks, says the caller.
    unsafe { raw.cast::<MemoryRecordHeader>().drop_in_place() };
    if cfg!(debug_assertions) {
        // A reader that comes too late finds this instead of the bytes it expects.
        // SAFETY: no thread looks, says the caller.
        unsafe { raw.write_bytes(0xDD, layout.size()) };
    }
    // SAFETY: allocated with this layout in `NewRecord::new`.
    unsafe { dealloc(raw.as_ptr(), layout) };
}

/// Returns the record at `raw`.
///
/// # Safety
///
/// There is a record, and it stays for as long as `'a`.
#[inline]
unsafe fn as_record<'a>(raw: NonNull<u8>) -> &'a Record {
    // SAFETY: a record begins with its header, which exists, says the caller.
    let tail_bytes = unsafe { raw.cast::<MemoryRecordHeader>().as_ref() }.tail_bytes as usize;
    let whole = ptr::slice_from_raw_parts(raw.as_ptr(), tail_bytes) as *const Record;
    // SAFETY: the allocation has a header and `tail_bytes` behind it, rounded up to the alignment.
    unsafe { &*whole }
}

/// A record that was found, and not touched yet.
#[derive(Clone, Copy)]
pub(super) struct RecordPointer<'g> {
    raw: NonNull<u8>,
    borrowed: PhantomData<&'g Record>,
}

impl<'g> RecordPointer<'g> {
    /// # Safety
    ///
    /// There is a record at `raw` that stays for as long as `'g` (I2).
    #[inline]
    pub(super) unsafe fn new(raw: NonNull<u8>) -> Self {
        Self {
            raw,
            borrowed: PhantomData,
        }
    }

    /// Returns the record. The first access to its memory.
    #[inline]
    pub(super) fn record(self) -> &'g Record {
        // SAFETY: by the contract of `new`.
        unsafe { as_record(self.raw) }
    }

    /// True if it is `record`, without touching it.
    #[inline]
    pub(super) fn is(self, record: &Record) -> bool {
        self.raw.addr().get() == record.address()
    }

    pub(super) fn raw(self) -> NonNull<u8> {
        self.raw
    }

    /// Asks the processor to fetch the first cache lines of the record, and does not wait.
    #[inline]
    pub(super) fn prefetch(self) {
        cache_line::prefetch(self.raw.as_ptr());
    }

    /// Asks for the first cache lines of its value, if that is not behind its key, and returns
    /// whether it did. Touches the record.
    #[inline]
    pub(super) fn prefetch_value(self) -> bool {
        if cfg!(loom) {
            return false; // One more load is many more schedules, and none of them differs.
        }
        // Relaxed: nothing is read through it.
        let found = self.record().header.value.load(Ordering::Relaxed);
        let is_elsewhere = NonNull::new(found).is_some_and(is_outside);
        if is_elsewhere {
            cache_line::prefetch(found.cast());
        }
        is_elsewhere
    }
}

impl fmt::Debug for RecordPointer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.raw)
    }
}
