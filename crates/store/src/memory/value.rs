//! Value blocks: the immutable bytes a record points to.
//!
//! # State
//!
//! ```text
//!                              block -> +-------------+----------------------+
//!                                       | length: u32 | bytes, never changed |
//!                                       +-------------+----------------------+
//!   +------------+------------+
//!   | begin: u64 | older: u64 |  the words of the version: see `version.rs`
//!   +------------+------------+
//! ```
//!
//! A block is an allocation of its own, right behind its words. Or it is inside its record, whose
//! header has the words (see `record.rs`); there it may be rewritten once no thread looks
//! (`inline_slot.rs`). A *tombstone* is a block of its own without bytes, for a deletion.
//!
//! # Invariants
//!
//! * I1  A block is written before any other thread can reach it, and not changed while one can.
//! * I2  At any time a block has exactly one owner: a [`ValueBlock`], the pointer of one record, or
//!   the epoch domain that will free it. Ownership moves by value and by atomic exchange, never by
//!   copy.
//! * I3  A block that readers could reach is freed only when no hazard of their domain names it, or
//!   together with a record that is freed by the epoch. One that they could not reach is freed at
//!   once.
//!
//! # Orderings
//!
//! * O1  a begin timestamp (Release) to its load (Acquire): O3 of `version.rs`.
//! * O2  taking the word `older` (Release) to the load of a hazard (Acquire): O5 of
//!   `record/chain.rs`.
//!
//! # Handles
//!
//! I3 is why a [`ValueBlock`] remembers its origin. One that its holder made and never put into a
//! record may be dropped. One that came out of a record may still be read, so it must be put back
//! or [retired](ValueBlock::retire); dropped, it is leaked, which is safe, if wasteful. The block
//! inside a record is not memory of its own: its `ValueBlock` owns only the right to put it back,
//! for as long as the record allows it, and may be dropped.

use super::inline_slot::VacateStamp;
use super::version::Begin;
use crate::{MAX_VALUE_BYTES, TooLong};
use foxton_sync::epoch::Participant;
use foxton_sync::shim::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::num::NonZero;
use std::ptr::NonNull;

/// The header of a block, before its bytes.
///
/// The length is atomic only for the model checker: a plain number would look published to it
/// whether it is or not. It is written after the block is made and read relaxed, which costs
/// nothing.
#[repr(C)]
pub(super) struct BlockHeader {
    length: AtomicU32,
}

/// The words of a version, before its bytes.
#[repr(C)]
pub(super) struct VersionWords {
    /// A [`Begin`].
    begin: AtomicU64,
    /// The version before this one, as a record points to it; its second lowest bit is set once
    /// this version is unlinked, and leads nowhere any more.
    pub(super) older: AtomicPtr<BlockHeader>,
}

impl VersionWords {
    pub(super) fn new() -> VersionWords {
        VersionWords {
            begin: AtomicU64::new(Begin::ALWAYS.word()),
            older: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    #[inline]
    pub(super) fn begin(&self) -> Begin {
        Begin::from_word(self.begin.load(Ordering::Acquire)) // O1
    }

    #[inline]
    pub(super) fn set_begin(&self, begin: Begin) {
        self.begin.store(begin.word(), Ordering::Release); // O1
    }
}

pub(super) type Block = NonNull<BlockHeader>;

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = size_of::<BlockHeader>();

/// Set in a record's pointer to a block that is an allocation of its own.
const OUTSIDE: usize = 1;
/// Set in a record's pointer to a tombstone, beside `OUTSIDE`.
const TOMBSTONE: usize = 2;
const TAGS: usize = OUTSIDE | TOMBSTONE;
const _: () = assert!(align_of::<BlockHeader>() > TAGS);

/// Returns a record's pointer to a block that is not behind its key. The lowest bit of the address
/// is set, so that readers of loaded rows see by that bit that they need no hazard.
#[inline]
pub(super) fn mark_outside(block: Block, is_tombstone: bool) -> Block {
    let tags = if is_tombstone { TAGS } else { OUTSIDE };
    block.map_addr(|address| address | tags)
}

/// True if a record's pointer leads to a tombstone.
#[inline]
pub(super) fn is_tombstone(found: Block) -> bool {
    found.addr().get() & TOMBSTONE != 0
}

/// True if a record's pointer leads to a block that is not behind its key.
#[inline]
pub(super) fn is_outside(found: Block) -> bool {
    found.addr().get() & OUTSIDE != 0
}

/// Returns the block that a record's pointer leads to.
#[inline]
pub(super) fn block_of(found: Block) -> Block {
    let address = found.addr().get() & !TAGS;
    found.with_addr(NonZero::new(address).expect("blocks are aligned"))
}

/// Returns the layout of a block of `length` bytes, without the words of its version.
pub(super) fn layout(length: usize) -> Layout {
    let size = size_of::<BlockHeader>() + length;
    Layout::from_size_align(size, align_of::<BlockHeader>()).expect("values have a maximum")
}

const WORDS_BYTES: usize = size_of::<VersionWords>();
const _: () = assert!(align_of::<BlockHeader>() <= align_of::<VersionWords>());

/// Returns the layout of a block of `length` bytes in an allocation of its own.
fn outside_layout(length: usize) -> Layout {
    let size = WORDS_BYTES + size_of::<BlockHeader>() + length;
    Layout::from_size_align(size, align_of::<VersionWords>()).expect("values have a maximum")
}

/// Returns the words of a block in an allocation of its own.
///
/// # Safety
///
/// The block is whole, in an allocation of its own, and stays for as long as `'a`.
#[inline]
pub(super) unsafe fn words<'a>(block: Block) -> &'a VersionWords {
    // SAFETY: the words are right before it in the same allocation.
    let words = unsafe { block.cast::<u8>().sub(WORDS_BYTES) };
    // SAFETY: they were made with the block; the caller says that it stays.
    unsafe { words.cast::<VersionWords>().as_ref() }
}

/// Makes a block at `place`, whose `length` bytes the caller writes next.
///
/// # Safety
///
/// `place` is aligned for [`BlockHeader`], with space for [`layout`]`(length)`, and no other thread
/// looks.
pub(super) unsafe fn make_block(place: NonNull<u8>, length: usize) -> Block {
    let block = place.cast::<BlockHeader>();
    let header = BlockHeader {
        length: AtomicU32::new(0),
    };
    let length_field = u32::try_from(length).expect("values have a maximum");
    // Relaxed: publishing the block publishes this with it.
    header.length.store(length_field, Ordering::Relaxed);
    // SAFETY: aligned and large enough, says the caller.
    unsafe { block.write(header) };
    block
}

/// Rewrites a block.
///
/// # Safety
///
/// There is a block whose memory has space for as many bytes, and no other thread looks at it.
/// `bytes` are elsewhere.
pub(super) unsafe fn overwrite(block: Block, bytes: &[u8]) {
    // SAFETY: the caller says that there is a block.
    let header = unsafe { block.as_ref() };
    let length = u32::try_from(bytes.len()).expect("values have a maximum");
    // Relaxed: as in `make_block`.
    header.length.store(length, Ordering::Relaxed);
    // SAFETY: there is a block.
    let content = unsafe { content(block) };
    // SAFETY: there is space, no thread looks, and the two do not overlap, says the caller.
    unsafe { content.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
}

/// Returns the address of a block's bytes.
///
/// # Safety
///
/// There is a block.
#[inline]
pub(super) unsafe fn content(block: Block) -> NonNull<u8> {
    // SAFETY: one past the header is inside the allocation, or its end.
    unsafe { block.add(1) }.cast()
}

/// Returns the bytes of a block.
///
/// # Safety
///
/// The block is whole, and stays so for as long as `'a`.
#[inline]
pub(super) unsafe fn bytes<'a>(block: Block) -> &'a [u8] {
    // SAFETY: the caller says that the block is whole.
    let header = unsafe { block.as_ref() };
    // Relaxed: see `BlockHeader`; a thread that reached the block came after its making.
    let length = header.length.load(Ordering::Relaxed) as usize;
    // SAFETY: the block is whole.
    let content = unsafe { content(block) };
    // SAFETY: `length` bytes were written there (I1), and stay, says the caller.
    unsafe { std::slice::from_raw_parts(content.as_ptr(), length) }
}

/// Frees a block in an allocation of its own.
///
/// # Safety
///
/// The caller owns the block (I2), it was made by [`ValueBlock`], and no thread looks at it any
/// more.
pub(super) unsafe fn free(block: Block) {
    // SAFETY: whole until now.
    let length = unsafe { bytes(block) }.len();
    if cfg!(debug_assertions) {
        // A reader that comes too late finds this instead of the bytes it expects.
        // SAFETY: the block is whole.
        let content = unsafe { content(block) };
        // SAFETY: no thread looks, says the caller.
        unsafe { content.write_bytes(0xDD, length) };
    }
    // SAFETY: owned, and used once.
    unsafe { block.drop_in_place() };
    // SAFETY: the words before it are of the same allocation.
    let start = unsafe { block.cast::<u8>().sub(WORDS_BYTES) };
    // SAFETY: they were made with the block, and are used once.
    unsafe { start.cast::<VersionWords>().drop_in_place() };
    // SAFETY: allocated with this layout in `allocate`.
    unsafe { dealloc(start.as_ptr(), outside_layout(length)) };
}

/// Returns a new block of `length` bytes, which the caller writes next, in an allocation of its
/// own.
fn allocate(length: usize) -> Block {
    let layout = outside_layout(length);
    // SAFETY: the layout has a header and so is not empty.
    let start = unsafe { alloc(layout) };
    let Some(start) = NonNull::new(start) else {
        handle_alloc_error(layout)
    };
    // SAFETY: the layout begins with the words, aligned.
    unsafe { start.cast::<VersionWords>().write(VersionWords::new()) };
    // SAFETY: the block follows in the same allocation.
    let place = unsafe { start.add(WORDS_BYTES) };
    // SAFETY: just allocated with this very layout.
    unsafe { make_block(place, length) }
}

/// Retires the chain of versions that begins with `found`, a record's pointer that was taken out of
/// the word `older` of a stamped version.
///
/// # Safety
///
/// The chain is the caller's (I4 of `version.rs`). Inline blocks are left to their record.
pub(super) unsafe fn retire_chain(found: *mut BlockHeader, participant: &Participant) {
    let mut next = found;
    while let Some(found) = NonNull::new(next).filter(|&found| found != UNLINKED) {
        if !is_outside(found) {
            return;
        }
        let block = block_of(found);
        // SAFETY: the caller owns it.
        let words = unsafe { words(block) };
        next = take_older(words);
        // SAFETY: whole until it is freed.
        let length = unsafe { bytes(block) }.len();
        let address = found.as_ptr().cast();
        // SAFETY: the caller owns it, and no version leads to it any more.
        unsafe { participant.retire_hazard_protected(address, length, free_retired) };
    }
}

/// In the word `older` of a version that is unlinked. No block has this address.
pub(super) const UNLINKED: Block = NonNull::without_provenance(NonZero::new(4).unwrap());

/// Takes the chain behind a version that leaves its own chain. Null if it has none that is its own.
#[inline]
pub(super) fn take_older(words: &VersionWords) -> *mut BlockHeader {
    // Relaxed: the exchange decides, and only the owner of the version gives it a chain.
    let has_chain = !words.older.load(Ordering::Relaxed).is_null();
    if !has_chain || words.begin().committed().is_none() {
        return std::ptr::null_mut();
    }
    // Site: "record value".
    match words.older.swap(UNLINKED.as_ptr(), Ordering::AcqRel) {
        // O2
        unlinked if unlinked == UNLINKED.as_ptr() => std::ptr::null_mut(),
        older => older,
    }
}

/// As [`free`], for the epoch domain.
///
/// # Safety
///
/// That of [`free`]; `address` is a record's pointer to the block.
unsafe fn free_retired(address: *mut ()) {
    let found = NonNull::new(address.cast::<BlockHeader>()).expect("only blocks are retired");
    // SAFETY: passed on.
    unsafe { free(block_of(found)) };
}

/// The origin of a block, which decides what may be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Made by its holder; no reader ever saw it.
    Fresh,
    /// Taken out of the record at address `home`, in the epoch domain `domain`.
    Taken { home: usize, domain: u32 },
    /// The block inside the record at address `home`, whose slot was vacated with this stamp.
    Inline { home: usize, vacated: VacateStamp },
}

/// A value outside of any record: one that will be put into a record, or one that was there and may
/// be put back.
///
/// ```
/// use foxton_store::memory::ValueBlock;
///
/// let block = ValueBlock::new(b"forty-two")?;
/// drop(block); // No thread saw it: its memory is free again.
/// # Ok::<(), foxton_store::TooLong>(())
/// ```
#[must_use = "a block that came out of a record is put back or retired"]
pub struct ValueBlock {
    block: Block,
    is_tombstone: bool,
    origin: Origin,
}

// SAFETY: a block is bytes that no thread changes (I1), with one owner (I2): it may move to any
// thread.
unsafe impl Send for ValueBlock {}
// SAFETY: a shared `ValueBlock` gives access only to bytes that no thread changes (I1).
unsafe impl Sync for ValueBlock {}

impl fmt::Debug for ValueBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueBlock")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl ValueBlock {
    /// Returns a block with a copy of `bytes`.
    ///
    /// # Errors
    ///
    /// If there are more than [`MAX_VALUE_BYTES`].
    pub fn new(bytes: &[u8]) -> Result<Self, TooLong> {
        let length = bytes.len();
        if length > MAX_VALUE_BYTES {
            return Err(TooLong::Value { bytes: length });
        }
        let block = allocate(length);
        // SAFETY: just made.
        let content = unsafe { content(block) };
        // SAFETY: the block has space for them, and was just allocated: the two do not overlap.
        unsafe { content.copy_from_nonoverlapping(NonNull::from(bytes).cast(), length) };
        Ok(Self {
            block,
            is_tombstone: false,
            origin: Origin::Fresh,
        })
    }

    /// Returns a new tombstone.
    pub(super) fn tombstone() -> Self {
        Self {
            block: allocate(0),
            is_tombstone: true,
            origin: Origin::Fresh,
        }
    }

    /// Returns the bytes. `None` for a deletion, and for a value that was behind its record's key,
    /// whose memory belongs to the record: read it from the record, before exchanging it.
    pub fn bytes(&self) -> Option<&[u8]> {
        let own = !matches!(self.origin, Origin::Inline { .. }) && !self.is_tombstone;
        // SAFETY: whole, and ours (I2) for as long as we are borrowed.
        own.then(|| unsafe { bytes(self.block) })
    }

    /// Returns its origin.
    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// Gives up the block. If readers may have seen it, it is freed once no hazard protects it;
    /// if not, at once.
    ///
    /// # Panics
    ///
    /// If the block came out of a record of another epoch domain than the participant's.
    pub fn retire(self, participant: &Participant) {
        if let Origin::Taken { domain, .. } = self.origin {
            assert_eq!(
                domain,
                participant.domain().id(),
                "a block is retired where it was read"
            );
            let (found, _) = self.into_parts();
            let block = block_of(found);
            // SAFETY: it is ours, in an allocation of its own.
            let older = take_older(unsafe { words(block) });
            // SAFETY: it was taken from a version that leads nowhere any more.
            unsafe { retire_chain(older, participant) };
            // SAFETY: whole until it is freed.
            let length = unsafe { bytes(block) }.len();
            // As a hazard names it: as it was in the record.
            let address = found.as_ptr().cast();
            // SAFETY: we own it (I2) and no record points to it, so no later reader finds it; an
            // earlier one protects it by a hazard of this very domain (I3).
            unsafe { participant.retire_hazard_protected(address, length, free_retired) };
        }
    }

    /// Returns the parts of the handle, without dropping it: the pointer as it is in a record, and
    /// the origin.
    pub(super) fn into_parts(self) -> (Block, Origin) {
        let this = std::mem::ManuallyDrop::new(self);
        (this.found(), this.origin)
    }

    /// Returns the pointer as it is in a record.
    fn found(&self) -> Block {
        match self.origin {
            Origin::Inline { .. } => self.block,
            Origin::Fresh | Origin::Taken { .. } => mark_outside(self.block, self.is_tombstone),
        }
    }

    /// Returns the words of the version. `None` if its record has them.
    pub(super) fn words(&self) -> Option<&VersionWords> {
        let own = !matches!(self.origin, Origin::Inline { .. });
        // SAFETY: whole, in an allocation of its own, and ours (I2) while we are borrowed.
        own.then(|| unsafe { words(self.block) })
    }

    /// # Safety
    ///
    /// The caller owns the block (I2) to which a record's pointer `found` leads, and `origin` is
    /// true.
    pub(super) unsafe fn from_parts(found: Block, origin: Origin) -> Self {
        Self {
            block: block_of(found),
            is_tombstone: is_tombstone(found),
            origin,
        }
    }
}

impl Drop for ValueBlock {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: we own it (I2) and no thread ever saw it (I3).
            Origin::Fresh => unsafe { free(self.block) },
            // A thread may still read it and there is no guard at hand: leaked, as documented.
            Origin::Taken { .. } => {}
            // Memory of its record.
            Origin::Inline { .. } => {}
        }
    }
}
