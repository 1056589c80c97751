//! Value blocks: the immutable bytes a record points to.
//!
//! # State
//!
//! ```text
//!   block -> +-------------+----------------------+
//!            | length: u32 | bytes, never changed |
//!            +-------------+----------------------+
//! ```
//!
//! A block is an allocation of its own, or inside its record (see `record.rs`), where it may be
//! rewritten once no thread looks (`inline_slot.rs`).
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
//! I3 is why a [`ValueBlock`] remembers its origin. One that its holder made and never put into a
//! record may be dropped. One that came out of a record may still be read, so it must be put back
//! or [retired](ValueBlock::retire); dropped, it is leaked, which is safe, if wasteful. The block
//! inside a record is not memory of its own: its `ValueBlock` owns only the right to put it back,
//! for as long as the record allows it, and may be dropped.

use super::inline_slot::VacateStamp;
use crate::{MAX_VALUE_BYTES, TooLong};
use foxton_sync::epoch::Participant;
use foxton_sync::shim::{AtomicU32, Ordering};
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

pub(super) type Block = NonNull<BlockHeader>;

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = size_of::<BlockHeader>();

/// Set in a record's pointer to a block that is an allocation of its own.
const OUTSIDE: usize = 1;
const _: () = assert!(align_of::<BlockHeader>() > OUTSIDE);

/// Returns a record's pointer to a block that is not behind its key. The lowest bit of the address
/// is set, so that readers of loaded rows see by that bit that they need no hazard.
#[inline]
pub(super) fn mark_outside(block: Block) -> Block {
    block.map_addr(|address| address | OUTSIDE)
}

/// True if a record's pointer leads to a block that is not behind its key.
#[inline]
pub(super) fn is_outside(found: Block) -> bool {
    found.addr().get() & OUTSIDE != 0
}

/// Returns the block that a record's pointer leads to.
#[inline]
pub(super) fn block_of(found: Block) -> Block {
    let address = found.addr().get() & !OUTSIDE;
    found.with_addr(NonZero::new(address).expect("blocks are aligned"))
}

/// Returns the layout of a block of `length` bytes in an allocation of its own.
pub(super) fn layout(length: usize) -> Layout {
    let size = size_of::<BlockHeader>() + length;
    Layout::from_size_align(size, align_of::<BlockHeader>()).expect("values have a maximum")
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
    // SAFETY: allocated with this layout in `ValueBlock::new`.
    unsafe { dealloc(block.cast::<u8>().as_ptr(), layout(length)) };
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
        let layout = layout(length);
        // SAFETY: the layout has a header and so is not empty.
        let place = unsafe { alloc(layout) };
        let Some(place) = NonNull::new(place) else {
            handle_alloc_error(layout)
        };
        // SAFETY: just allocated with this very layout.
        let block = unsafe { make_block(place, length) };
        // SAFETY: just made.
        let content = unsafe { content(block) };
        // SAFETY: the block has space for them, and was just allocated: the two do not overlap.
        unsafe { content.copy_from_nonoverlapping(NonNull::from(bytes).cast(), length) };
        Ok(Self {
            block,
            origin: Origin::Fresh,
        })
    }

    /// Returns the bytes. `None` for a value that was behind its record's key, whose memory belongs
    /// to the record: read it from the record, before exchanging it.
    pub fn bytes(&self) -> Option<&[u8]> {
        let own = !matches!(self.origin, Origin::Inline { .. });
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
            let (block, _) = self.into_parts();
            // SAFETY: whole until it is freed.
            let length = unsafe { bytes(block) }.len();
            // As a hazard names it: as it was in the record.
            let address = mark_outside(block).as_ptr().cast();
            // SAFETY: we own it (I2) and no record points to it, so no later reader finds it; an
            // earlier one protects it by a hazard of this very domain (I3).
            unsafe { participant.retire_hazard_protected(address, length, free_retired) };
        }
    }

    /// Returns the parts of the handle, without dropping it.
    pub(super) fn into_parts(self) -> (Block, Origin) {
        let this = std::mem::ManuallyDrop::new(self);
        (this.block, this.origin)
    }

    /// # Safety
    ///
    /// The caller owns the block (I2), and `origin` is true.
    pub(super) unsafe fn from_parts(block: Block, origin: Origin) -> Self {
        Self { block, origin }
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
