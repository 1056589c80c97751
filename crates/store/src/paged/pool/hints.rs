//! Child hints: the frames of a branch's children, beside the frame of the branch.
//!
//! A hint is the number of a frame, or nothing. It may be wrong at any time, because the branch or
//! the frame has another page now, or children have moved between slots. So a reader compares the
//! header of the frame with the page that it wants, under the frame's version. A descent through
//! resident pages thus follows pointers, and eviction need not find the parent.
//!
//! Arrays of hints are made when a frame first has a branch. At most a sixteenth of the frames has
//! one, so that hints take about a hundredth of the memory of the frames. Branches in other frames
//! are followed by the translation table.
//!
//! Everything is relaxed: a hint says nothing about other memory.

use std::sync::OnceLock;

use foxton_sync::shim::{AtomicU32, AtomicUsize, Ordering};

use crate::paged::page::PageSize;

/// Bytes of a page for each child, at least: slot and page number.
const CHILD_BYTES: usize = 24;
/// Frames for each array of hints.
const FRAMES_PER_ARRAY: usize = 16;

/// Bytes of hints for each frame, on average.
pub(super) fn bytes_per_frame(size: PageSize) -> usize {
    let array = size.bytes() / CHILD_BYTES * size_of::<AtomicU32>();
    size_of::<OnceLock<HintArray>>() + array.div_ceil(FRAMES_PER_ARRAY)
}

pub(super) struct ChildHints {
    arrays: Box<[OnceLock<HintArray>]>,
    /// Number of arrays that may still be made.
    left: AtomicUsize,
    /// Hints of an array.
    count: usize,
}

/// For each slot the frame of its child, plus one; 0 if it is not known.
type HintArray = Box<[AtomicU32]>;

impl ChildHints {
    pub(super) fn new(frames: usize, size: PageSize) -> Self {
        Self {
            arrays: (0..frames).map(|_| OnceLock::new()).collect(),
            left: AtomicUsize::new(frames.div_ceil(FRAMES_PER_ARRAY)),
            count: size.bytes() / CHILD_BYTES,
        }
    }

    /// Returns the frame that may have the child in slot `slot` of the branch in frame `branch`.
    #[inline]
    pub(super) fn get(&self, branch: usize, slot: usize) -> Option<usize> {
        let hint = self.arrays[branch].get()?.get(slot)?;
        (hint.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Records the frame of a child.
    pub(super) fn set(&self, branch: usize, slot: usize, frame: usize) {
        if self.arrays[branch].get().is_none() && !self.make(branch) {
            return;
        }
        let hint = self.arrays[branch].get().and_then(|array| array.get(slot));
        if let Some(hint) = hint {
            // Exact: frame numbers have 32 bits.
            hint.store(frame as u32 + 1, Ordering::Relaxed);
        }
    }

    /// Makes the array of a frame, if one is left.
    fn make(&self, branch: usize) -> bool {
        let take = |left: usize| left.checked_sub(1);
        // Site: "page frame": once for an array.
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_ok() {
            let array = (0..self.count).map(|_| AtomicU32::new(0)).collect();
            // If another thread was first, its array stays, and this one is not counted again.
            drop(self.arrays[branch].set(array));
        }
        taken.is_ok()
    }
}
