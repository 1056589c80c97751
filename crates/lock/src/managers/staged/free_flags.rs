//! Flags of the requests of a segment that are in use: bytes in words of eight, in two levels.
//!
//! # State
//!
//! ```text
//! branch    [ 1  1  0  1  1  1  1  1 ]      a byte for each leaf: 0 if the leaf is 0
//!             |     |
//! leaf 0    [ 1 ...  ]   leaf 2 [ 0 0 0 0 0 0 0 0 ]      a byte for each request
//! ```
//!
//! A thread that is done with a request clears its byte. If that was the last byte of its word, the
//! thread clears the byte of the word in the level above. The thread that clears the last byte of
//! the branch learns that the segment can be freed. So releases into a segment share no counter,
//! and no thread searches it.
//!
//! # Invariants
//!
//! * I1  A byte of the branch is 0 only if its leaf is 0.
//! * I2  Each byte is cleared once between two calls of `fill`.
//!
//! # Orderings
//!
//! * O1  `clear` (AcqRel, on both levels): a thread that finds a word all clear comes after
//!   everything that was done before any of its bytes was cleared.
//!
//! # Differences from the paper
//!
//! There a byte is stored, a fence follows, and the word is read: several threads may find it
//! clear, and clear the level above again, which does no harm. Here the byte is cleared by a
//! read-modify-write of its word, which costs no more than the fence and shows exactly one thread
//! that it was the last. Bytes that one caller clears in one word are cleared at once.

use foxton_sync::shim::{AtomicU64, Ordering};

/// Bytes of a word that are used, in each level.
pub(crate) const WIDTH: u32 = if cfg!(loom) { 2 } else { 8 };

/// All bytes in use.
const FULL: u64 = if cfg!(loom) {
    0x0101
} else {
    0x0101_0101_0101_0101
};

/// Flags of one segment.
#[derive(Debug)]
pub(crate) struct FreeFlags {
    leaves: [AtomicU64; WIDTH as usize],
    branch: AtomicU64,
}

/// Requests of one word that one caller is done with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DoneFlags(u64);

impl DoneFlags {
    /// Adds the request at `place` of its word.
    #[inline]
    pub(crate) fn add(&mut self, place: u32) {
        self.0 |= 1 << (place * 8);
    }
}

impl FreeFlags {
    /// Returns flags without any request in use.
    pub(crate) fn new() -> Self {
        Self {
            leaves: std::array::from_fn(|_| AtomicU64::new(0)),
            branch: AtomicU64::new(0),
        }
    }

    /// Marks all requests as in use. No other thread knows the segment.
    pub(crate) fn fill(&self) {
        // Relaxed: the ring or the shared segment, which synchronize, pass the segment on.
        for word in self.leaves.iter().chain([&self.branch]) {
            word.store(FULL, Ordering::Relaxed);
        }
    }

    /// Undoes `fill`. No other thread knows the segment.
    pub(crate) fn empty(&self) {
        for word in self.leaves.iter().chain([&self.branch]) {
            // Relaxed: as in `fill`.
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Clears the flags of `done` in word `leaf`, and returns true if the whole segment is clear
    /// now. Returns true to one caller only.
    #[inline]
    pub(crate) fn clear(&self, leaf: u32, done: DoneFlags) -> bool {
        clear_and_test(&self.leaves[leaf as usize], done.0)
            && clear_and_test(&self.branch, 1 << (leaf * 8)) // I1
    }

    /// True if no request is in use.
    pub(crate) fn is_clear(&self) -> bool {
        self.are(0)
    }

    /// True if all requests are in use.
    pub(crate) fn is_full(&self) -> bool {
        self.are(FULL)
    }

    fn are(&self, all: u64) -> bool {
        // Relaxed: the caller has the segment alone.
        let mut words = self.leaves.iter().chain([&self.branch]);
        words.all(|word| word.load(Ordering::Relaxed) == all)
    }
}

#[inline]
fn clear_and_test(word: &AtomicU64, bytes: u64) -> bool {
    let before = word.fetch_and(!bytes, Ordering::AcqRel); // O1
    assert_eq!(before & bytes, bytes, "I2: cleared twice");
    before == bytes
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_segment_is_told_so_and_nobody_else() {
        let flags = FreeFlags::new();
        flags.fill();
        assert!(flags.is_full());
        let mut reported = 0;
        for request in (0..WIDTH * WIDTH).rev() {
            let mut done = DoneFlags::default();
            done.add(request % WIDTH);
            reported += u32::from(flags.clear(request / WIDTH, done));
            assert_eq!(flags.is_clear(), reported == 1);
            assert!(!flags.is_full());
        }
        assert_eq!(reported, 1);
    }
}
