//! Leaf hints: the frames of leaves, by table and key. A read of a key that was read before begins
//! at its leaf, without a descent.
//!
//! A hint is the number of a frame, or nothing, at a place that is computed from table and key. It
//! may be wrong at any time: other keys have the same place, the frame has another page now, or the
//! leaf was split. So a reader compares table, kind, level and fences of the page in the frame,
//! under the frame's version. Where they admit its key, the page is its leaf, whichever way leads
//! to it. Hints thus need neither latches nor care: a lost or a wrong one costs a descent.
//!
//! Keys that differ only in the lower half of their last byte share a place. Most often they are
//! neighbours and share a leaf.
//!
//! Everything is relaxed: a hint says nothing about other memory.

use foxton_sync::checksum::crc32c;
use foxton_sync::shim::{AtomicU32, Ordering};

use crate::paged::page::PageSize;

/// Bytes of a page for each hint.
const BYTES_PER_HINT: usize = 128;

/// Bytes of hints for each frame.
pub(super) fn bytes_per_frame(size: PageSize) -> usize {
    size.bytes() / BYTES_PER_HINT * size_of::<AtomicU32>()
}

pub(super) struct LeafHints {
    /// Numbers of frames, plus one; 0 if it is not known.
    frames: Box<[AtomicU32]>,
}

impl LeafHints {
    pub(super) fn new(frames: usize, size: PageSize) -> Self {
        let count = frames * (size.bytes() / BYTES_PER_HINT);
        Self {
            frames: (0..count).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Returns the frame that may have the leaf of `key`.
    #[inline]
    pub(super) fn get(&self, table: u64, key: &[u8]) -> Option<usize> {
        let hint = &self.frames[self.place(table, key)];
        (hint.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Records the frame of the leaf of `key`.
    #[inline]
    pub(super) fn set(&self, table: u64, key: &[u8], frame: usize) {
        let hint = &self.frames[self.place(table, key)];
        // Exact: frame numbers have 32 bits.
        hint.store(frame as u32 + 1, Ordering::Relaxed);
    }

    #[inline]
    fn place(&self, table: u64, key: &[u8]) -> usize {
        const LAST: u64 = !0xf;
        // The bytes that differ most are the least significant ones, as multiplication wants them.
        let (first, last) = match key.split_last_chunk() {
            Some((first, last)) => (first, u64::from_be_bytes(*last)),
            None => {
                let fold = |word, byte: &u8| (word << 8) | u64::from(*byte);
                (&[][..], key.iter().fold(0, fold))
            }
        };
        let mut word = (last & LAST) ^ table.rotate_left(40);
        if !first.is_empty() {
            word ^= u64::from(crc32c(0, first)).rotate_left(24);
        }
        // The upper half of a product depends on all bits of the word.
        let high = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((high * self.frames.len() as u64) >> 32) as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn neighbours_share_a_place_and_other_keys_spread() {
        let hints = LeafHints::new(1_000, PageSize::default());
        let keys = (0..16_000_u64).map(|key| (key << 4).to_be_bytes());
        let long = (0..16_000_u64).map(|key| {
            let key = format!("a key with a long beginning {key:08}");
            key.into_bytes()
        });
        let places: HashSet<usize> = keys.map(|key| hints.place(7, &key)).collect();
        assert!(places.len() > 10_000, "{} places", places.len());
        let places: HashSet<usize> = long.map(|key| hints.place(7, &key)).collect();
        assert!(
            (1_000..2_000).contains(&places.len()),
            "{} places: ten share one",
            places.len()
        );
        assert_eq!(hints.place(7, &[1, 0x50]), hints.place(7, &[1, 0x5f]));
        assert_ne!(hints.place(7, &[1, 0x50]), hints.place(8, &[1, 0x50]));
        hints.set(7, b"fox", 12);
        assert_eq!(hints.get(7, b"fox"), Some(12));
        assert_eq!(hints.get(7, b""), None);
    }
}
