//! Scan tokens: the leaves that a reader has read, to find out later whether they have changed.
//!
//! # What a token proves
//!
//! A reader walks from a key to the next or the previous row, or to the end, and records each leaf
//! that it reads. If later every one of them is as it was read, then, at the moment when that check
//! began, no key was between. The reason: fences say which keys a leaf admits. The leaves that were
//! read cover everything from the start to the row in one piece. A leaf gives up a part of its
//! range only by a change of its own. A leaf that was evicted and read again is compared by its
//! LSN, which only grows.
//!
//! # Why an inserter cannot slip past a scanner
//!
//! The argument is that of the memory-resident index, with its claim and its cases. Gaps are locked
//! under the name of the next key, wherever that is stored. The scanner locks the gap and then
//! finds its token unchanged. The inserter holds an insert intention on the gap before the next key
//! that it expects. It latches the leaf of its key and then finds the leaves to the right, up to
//! that next key, unchanged. Usually there is none: the next key is in the same leaf, and the latch
//! covers the whole gap. The case to fear: two inserters latch two neighbouring leaves, and the
//! scanner sees the one's key but not the other's. Both sides write or read one leaf and then read
//! another, so they need a fence that all of them agree on: O5 of the page latch.

use smallvec::SmallVec;

use super::PagedTree;
use crate::paged::frame::order_scans;
use crate::paged::pool::SeenPage;

/// The leaves that a read went through.
#[derive(Debug, Clone, Default)]
pub struct ScanToken {
    leaves: SmallVec<[SeenPage; 2]>,
}

impl ScanToken {
    pub(super) fn clear(&mut self) {
        self.leaves.clear();
    }

    pub(super) fn push(&mut self, leaf: SeenPage) {
        self.leaves.push(leaf);
    }

    /// Number of leaves.
    pub fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    /// Returns the token without its first leaf.
    pub(super) fn behind_first(&self) -> &[SeenPage] {
        self.leaves.get(1..).unwrap_or(&[])
    }
}

impl PagedTree {
    /// True if, just now, no key was inserted or removed between the start of the read that gave
    /// `token` and its result. `false` means nothing: a leaf has changed elsewhere, is being
    /// changed, or was evicted. The caller then reads again.
    pub fn is_unchanged(&self, token: &ScanToken) -> bool {
        order_scans();
        self.are_unchanged(&token.leaves)
    }

    pub(super) fn are_unchanged(&self, leaves: &[SeenPage]) -> bool {
        leaves.iter().all(|leaf| self.pool.is_unchanged(leaf))
    }
}
