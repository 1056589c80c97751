//! Slots: the public part of each participant, and the table of all.
//!
//! # State
//!
//! A slot's word is `epoch << 1 | pinned`. Beside it are the hazards of its participant: the
//! addresses of the objects it looks at, or null.
//!
//! Slots are in blocks that never move, and each block has a word with a bit for each slot that has
//! a participant. The heads of the blocks are in chunks that double in size. A new participant gets
//! the first slot that is free, so the occupied ones stay close together. `block_count` ends behind
//! the last block with one.
//!
//! ```text
//! block_count = 3          |  0                |  1                |  2             |  3
//! head: occupied, slots    |  11111111  ---.   |  00000000  ---.   |  00000100 --.  |  00000000
//!                                           \                   \                 \
//! slots                          word, hazards, ...         not looked at      one is looked at
//! ```
//!
//! So an iteration looks at the slots that have a participant, and at a word for 64 others.
//!
//! # Invariants
//!
//! Those of [`epoch`](super): I1 for the word, I5 for the table.
//!
//! # Orderings
//!
//! * O1  `unpin` and `announce` (Release) to `has_seen` (Acquire): a thread that sees a participant
//!   unpinned, or pinned again, comes after everything it read before. The second half matters: a
//!   plain store does not continue the release of an earlier one.
//! * O3  the fence in `announce`: a reader is seen pinned, or finds nothing that is retired. The
//!   argument is on the page of `epoch`.
//! * O4  `release`, clearing a bit and lowering `block_count` (Release), to `iter` (Acquire): a
//!   thread that does not find a slot any more comes after everything its participant read. Bits
//!   change by read-modify-writes, so this holds for all that were cleared before. The count is
//!   lowered under the mutex of the allocator, after the bits of all slots behind it were cleared.
//! * O5  `acquire`, raising `block_count` (Release), to `iter` (Acquire): a thread that looks at a
//!   block finds it whole. Blocks are made under the mutex and in their order, so each store of the
//!   count comes after the making of all blocks below it. Bits are set Relaxed: a thread that
//!   misses one has looked at an older table.
//!
//! The words of a slot's next participant come after those of the last one, because both went
//! through the mutex.

use crate::cache_line::CachePadded;
use crate::index_allocator::{IndexAllocator, bits_of};
use crate::shim::{AtomicPtr, AtomicU64, AtomicUsize, Mutex, Ordering, fence, lock};
use std::ptr::{self, NonNull};

const PINNED: u64 = 1;

/// Number of hazards of a participant: so many objects it can look at at once.
pub(super) const HAZARDS: usize = 4;

/// Slots of a block.
const BLOCK: usize = if cfg!(loom) { 1 } else { 64 };

/// Number of chunks of block heads; chunk c has 2^c. Enough for 2^32 slots.
const CHUNKS: usize = if cfg!(loom) { 3 } else { 27 };

/// Blocks in which each slot is alone on its cache lines. Slots of later blocks share a pair of
/// lines with one neighbour: so many threads do not run at once, and a peak of tasks costs less.
const PADDED_BLOCKS: usize = 8;

/// The public part of a participant.
#[repr(align(64))]
pub(super) struct ParticipantSlot {
    word: AtomicU64,
    hazards: [AtomicPtr<()>; HAZARDS],
    /// Number of objects that its participant retired and has not freed. Written by the participant
    /// alone.
    pub(super) retired: AtomicUsize,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<ParticipantSlot>() == 64);

impl ParticipantSlot {
    fn new() -> ParticipantSlot {
        ParticipantSlot {
            word: AtomicU64::new(0),
            hazards: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            retired: AtomicUsize::new(0),
        }
    }

    /// Writes the word so that everything read afterwards was there after the writing.
    #[inline]
    pub(super) fn announce(&self, epoch: u64) {
        let word = epoch << 1 | PINNED;
        self.word.store(word, Ordering::Release); // O1, I1
        fence(Ordering::SeqCst); // O3
    }

    /// The epoch of the pin. For the participant alone, while it is pinned.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        // Relaxed: the caller wrote it (I1).
        self.word.load(Ordering::Relaxed) >> 1
    }

    /// Announces that the participant looks at nothing any more.
    #[inline]
    pub(super) fn unpin(&self) {
        self.word.store(0, Ordering::Release); // O1, I1
    }

    /// True if its participant is not pinned, or pinned at `epoch`.
    pub(super) fn has_seen(&self, epoch: u64) -> bool {
        let word = self.word.load(Ordering::Acquire); // O1
        word & PINNED == 0 || word >> 1 == epoch
    }

    /// The hazards of its participant.
    #[inline]
    pub(super) fn hazards(&self) -> &[AtomicPtr<()>; HAZARDS] {
        &self.hazards
    }
}

/// Head of a block.
struct BlockHead {
    /// A bit for each slot that has a participant.
    occupied: AtomicU64,
    /// The slots, or null.
    slots: AtomicPtr<ParticipantSlot>,
}

/// Returns the distance between two slots of a block.
fn stride(block: usize) -> usize {
    match block < PADDED_BLOCKS {
        true => size_of::<CachePadded<u8>>() / 64,
        false => 1,
    }
}

/// Returns the chunk of a block, and the block's position there.
fn chunk_of(block: usize) -> (usize, usize) {
    let chunk = (block + 1).ilog2();
    (chunk as usize, block + 1 - (1 << chunk))
}

/// All slots.
pub(super) struct SlotTable {
    chunks: [AtomicPtr<BlockHead>; CHUNKS],
    block_count: AtomicUsize,
    indexes: Mutex<IndexAllocator>,
}

impl SlotTable {
    pub(super) fn new() -> SlotTable {
        SlotTable {
            chunks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            block_count: AtomicUsize::new(0),
            indexes: Mutex::default(),
        }
    }

    /// Returns the slots that have a participant.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ParticipantSlot> {
        let block_count = self.block_count.load(Ordering::Acquire); // O4, O5
        (0..block_count).flat_map(move |block| {
            let head = self.head(block);
            let occupied = head.occupied.load(Ordering::Acquire); // O4
            bits_of(occupied).map(move |at| self.slot(head, block, at))
        })
    }

    /// Returns a head of a block that exists: one below `block_count`, or one that the caller knows
    /// through the mutex.
    fn head(&self, block: usize) -> &BlockHead {
        let (chunk, at) = chunk_of(block);
        // Relaxed: made before the count was raised (O5).
        let heads = self.chunks[chunk].load(Ordering::Relaxed);
        // SAFETY: the chunk has 2^chunk heads, and `at` is below that.
        let head = unsafe { heads.add(at) };
        // SAFETY: it was made whole before (O5), and stays (I5).
        unsafe { &*head }
    }

    /// Returns a slot of a block whose slots exist: one that has, or had, a participant.
    fn slot<'s>(&'s self, head: &'s BlockHead, block: usize, at: usize) -> &'s ParticipantSlot {
        // Relaxed: made before the count was raised (O5).
        let slots = head.slots.load(Ordering::Relaxed);
        // SAFETY: the block has `BLOCK` slots at this distance, and `at` is below that.
        let slot = unsafe { slots.add(at * stride(block)) };
        // SAFETY: it was made whole before (O5), and stays (I5).
        unsafe { &*slot }
    }

    /// Returns the first free slot, for a new participant, and its index.
    pub(super) fn acquire(&self) -> (u32, NonNull<ParticipantSlot>) {
        let mut indexes = lock(&self.indexes);
        let index = indexes.acquire();
        let (block, at) = (index as usize / BLOCK, index as usize % BLOCK);
        self.make_block(block);
        let head = self.head(block);
        let slot = self.slot(head, block, at);
        head.occupied.fetch_or(1 << at, Ordering::Relaxed); // See O5.
        // Relaxed: written under the mutex.
        if self.block_count.load(Ordering::Relaxed) <= block {
            self.block_count.store(block + 1, Ordering::Release); // O5
        }
        (index, NonNull::from(slot))
    }

    /// Makes a block if there is none yet. The caller has the mutex, so no other thread makes one.
    fn make_block(&self, block: usize) {
        let (chunk, _) = chunk_of(block);
        // Relaxed, here and below: read under the mutex, or after O5.
        if self.chunks[chunk].load(Ordering::Relaxed).is_null() {
            let heads: Box<[BlockHead]> = (0..1 << chunk)
                .map(|_| BlockHead {
                    occupied: AtomicU64::new(0),
                    slots: AtomicPtr::new(ptr::null_mut()),
                })
                .collect();
            let heads = Box::into_raw(heads).cast();
            self.chunks[chunk].store(heads, Ordering::Relaxed);
        }
        let head = self.head(block);
        if head.slots.load(Ordering::Relaxed).is_null() {
            let count = BLOCK * stride(block);
            let slots: Box<[ParticipantSlot]> =
                (0..count).map(|_| ParticipantSlot::new()).collect();
            let slots = Box::into_raw(slots).cast();
            head.slots.store(slots, Ordering::Relaxed);
        }
    }

    /// Leaves the slot at `index` to the next participant. Its participant is not pinned, and has
    /// no hazards.
    pub(super) fn release(&self, index: u32) {
        let mut indexes = lock(&self.indexes);
        let (block, at) = (index as usize / BLOCK, index as usize % BLOCK);
        let occupied = &self.head(block).occupied;
        occupied.fetch_and(!(1 << at), Ordering::Release); // O4
        indexes.release(index);
        let block_count = indexes.bound().div_ceil(BLOCK);
        // Relaxed: written under the mutex.
        if block_count < self.block_count.load(Ordering::Relaxed) {
            self.block_count.store(block_count, Ordering::Release); // O4
        }
    }
}

impl Drop for SlotTable {
    fn drop(&mut self) {
        // Every participant keeps the domain, and the domain this table: no thread is left that has
        // a slot, or looks at one (I5).
        for (chunk, heads) in self.chunks.iter().enumerate() {
            let heads = heads.load(Ordering::Relaxed);
            if heads.is_null() {
                continue;
            }
            let count = 1 << chunk;
            // SAFETY: made from a box of so many heads, and freed once.
            let heads = unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(heads, count)) };
            for (at, head) in heads.iter().enumerate() {
                let slots = head.slots.load(Ordering::Relaxed);
                if !slots.is_null() {
                    let count = BLOCK * stride(count - 1 + at);
                    let slots = ptr::slice_from_raw_parts_mut(slots, count);
                    // SAFETY: made from a box of so many slots, and freed once.
                    drop(unsafe { Box::from_raw(slots) });
                }
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Number of slots, and of blocks, that an iteration looks at.
    fn visits(table: &SlotTable) -> (usize, usize) {
        let blocks = table.block_count.load(Ordering::Relaxed);
        (table.iter().count(), blocks)
    }

    #[test]
    fn an_iteration_looks_at_occupied_slots_only() {
        let table = SlotTable::new();
        let all: Vec<u32> = (0..10_000).map(|_| table.acquire().0).collect();
        assert_eq!(visits(&table), (10_000, 157));
        // One in the middle and one at the end stay.
        let stay = [5_000, 9_999];
        all.iter()
            .filter(|index| !stay.contains(index))
            .for_each(|&index| table.release(index));
        assert_eq!(visits(&table), (2, 157));
        // New ones come to the front, and leave the back free.
        let few: Vec<u32> = (0..3).map(|_| table.acquire().0).collect();
        assert_eq!(few, [0, 1, 2]);
        table.release(9_999);
        assert_eq!(visits(&table), (4, 79));
        table.release(5_000);
        assert_eq!(visits(&table), (3, 1));
        few.into_iter().for_each(|index| table.release(index));
        assert_eq!(visits(&table), (0, 0));
    }

    #[test]
    fn slots_of_threads_are_alone_on_their_lines_and_all_differ() {
        let table = SlotTable::new();
        let slots: Vec<usize> = (0..2_000)
            .map(|_| table.acquire().1.as_ptr().addr())
            .collect();
        let few = &slots[..PADDED_BLOCKS * BLOCK];
        for pair in few.windows(2) {
            assert!(pair[0].abs_diff(pair[1]) >= size_of::<CachePadded<u8>>());
        }
        let mut sorted = slots.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 64));
    }
}
