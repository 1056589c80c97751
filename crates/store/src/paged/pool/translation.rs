//! Page translation: from the name of a page to its frame, in one cache line.
//!
//! # State
//!
//! A bucket is a cache line. A page's *home* bucket follows from the hash of its name, and the page
//! is in the home bucket or, if that was full, in the next that was not.
//!
//! ```text
//!   latch | number of pages that were placed beyond this bucket | 6 entries
//!   entry   bits 0..32 frame + 1, or 0; bits 32..64 tag: the other half of the hash
//! ```
//!
//! # Invariants
//!
//! * I1  The latch of its home bucket is held while the entry of a page is added or removed. So a
//!   page has one entry at most.
//! * I2  Between the home bucket of a page and the bucket with its entry, each bucket counts that
//!   page as placed beyond it. So a search ends at the first bucket that counts none.
//! * I3  An entry may be outdated when a reader without the latch sees it. The header of the frame
//!   decides. Such a reader may also miss an entry; it then searches again under the latch.
//!
//! Everything but the latch is relaxed: I3 makes readers independent of order, and I1 orders the
//! others. Entries of other homes are added to a bucket by compare-and-exchange.

use foxton_sync::latch::VersionLatch;
use foxton_sync::shim::{AtomicU64, Ordering};

use crate::paged::PageId;

const ENTRIES: usize = 6;
/// Pages for which a bucket is meant.
const PAGES_PER_BUCKET: usize = 3;

/// Bytes of the table for each frame.
pub(super) const BYTES_PER_FRAME: usize = size_of::<TranslationBucket>().div_ceil(PAGES_PER_BUCKET);

#[repr(align(64))]
#[derive(Default)]
struct TranslationBucket {
    latch: VersionLatch,
    beyond: AtomicU64,
    entries: [AtomicU64; ENTRIES],
}

/// The table of all frames of a pool.
pub(super) struct TranslationTable {
    buckets: Box<[TranslationBucket]>,
}

/// Home bucket and tag of a page.
#[derive(Clone, Copy)]
struct PageHash {
    home: usize,
    tag: u64,
}

impl PageHash {
    fn entry(self, frame: usize) -> u64 {
        self.tag << 32 | (frame as u64 + 1)
    }
}

/// The home bucket of a page, latched: no other thread adds or removes the page.
pub(super) struct HomeGuard<'t> {
    table: &'t TranslationTable,
    hash: PageHash,
}

impl Drop for HomeGuard<'_> {
    fn drop(&mut self) {
        self.table.buckets[self.hash.home].latch.unlock();
    }
}

impl TranslationTable {
    pub(super) fn new(frames: usize) -> Self {
        assert!(frames < u32::MAX as usize, "frame numbers have 32 bits");
        let buckets = frames / PAGES_PER_BUCKET + 1;
        Self {
            buckets: (0..buckets).map(|_| TranslationBucket::default()).collect(),
        }
    }

    fn hash(&self, page: PageId) -> PageHash {
        let mut hash = page.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        hash ^= hash >> 31;
        let home = (u128::from(hash) * self.buckets.len() as u128) >> 64;
        PageHash {
            // Exact: it is below the number of buckets.
            home: home as usize,
            tag: hash & 0xffff_ffff,
        }
    }

    /// Returns the first frame with an entry that may be the page's and for which `is_it` says so.
    #[inline]
    fn search(&self, hash: PageHash, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let mut at = hash.home;
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            for entry in &bucket.entries {
                let entry = entry.load(Ordering::Relaxed);
                let frame = (entry as u32).checked_sub(1);
                if let Some(frame) = frame
                    && entry >> 32 == hash.tag
                    && is_it(frame as usize)
                {
                    return Some(frame as usize);
                }
            }
            if bucket.beyond.load(Ordering::Relaxed) == 0 {
                return None;
            }
            at = (at + 1) % self.buckets.len();
        }
        None
    }

    /// Returns the frame of `page` without a latch (I3).
    #[inline]
    pub(super) fn lookup(&self, page: PageId, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        self.search(self.hash(page), is_it)
    }

    /// Latches the home bucket of `page`.
    pub(super) fn latch_home(&self, page: PageId) -> HomeGuard<'_> {
        let hash = self.hash(page);
        // Site: "page translation".
        self.buckets[hash.home].latch.lock();
        HomeGuard { table: self, hash }
    }
}

impl HomeGuard<'_> {
    /// Returns the frame of the page.
    pub(super) fn lookup(&self, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        self.table.search(self.hash, is_it)
    }

    /// Adds the page, which has no entry.
    pub(super) fn insert(&self, frame: usize) {
        let buckets = &self.table.buckets;
        let new = self.hash.entry(frame);
        let mut at = self.hash.home;
        loop {
            for entry in &buckets[at].entries {
                // Site: "page translation".
                let added = entry.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
                if added.is_ok() {
                    return;
                }
            }
            // Site: "page translation".
            buckets[at].beyond.fetch_add(1, Ordering::Relaxed);
            // There are twice as many entries as frames, so this ends.
            at = (at + 1) % buckets.len();
        }
    }

    /// Removes the page's entry with `frame`.
    pub(super) fn remove(&self, frame: usize) {
        let buckets = &self.table.buckets;
        let old = self.hash.entry(frame);
        let mut at = self.hash.home;
        loop {
            let mut entries = buckets[at].entries.iter();
            if let Some(entry) = entries.find(|entry| entry.load(Ordering::Relaxed) == old) {
                entry.store(0, Ordering::Relaxed);
                return;
            }
            // Site: "page translation".
            let beyond = buckets[at].beyond.fetch_sub(1, Ordering::Relaxed);
            assert!(beyond > 0, "the page has an entry");
            at = (at + 1) % buckets.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn the_table_answers_as_a_map_does() {
        let frames = 64;
        let table = TranslationTable::new(frames);
        let mut map: HashMap<PageId, usize> = HashMap::new();
        let mut pages: Vec<Option<PageId>> = vec![None; frames];
        let mut state = 1_u64;
        for step in 0..100_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            let page = PageId(state >> 33 & 127);
            let home = table.latch_home(page);
            let found = home.lookup(|frame| pages[frame] == Some(page));
            assert_eq!(found, map.get(&page).copied(), "step {step}");
            match found {
                Some(frame) => {
                    home.remove(frame);
                    map.remove(&page);
                    pages[frame] = None;
                }
                None => {
                    if let Some(frame) = pages.iter().position(Option::is_none) {
                        home.insert(frame);
                        map.insert(page, frame);
                        pages[frame] = Some(page);
                    }
                }
            }
        }
        let empty = |page: PageId| table.latch_home(page).remove(map[&page]);
        map.keys().copied().for_each(empty);
        for bucket in &table.buckets {
            assert_eq!(bucket.beyond.load(Ordering::Relaxed), 0);
        }
    }
}
