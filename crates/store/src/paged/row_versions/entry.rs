//! Entries of rows: what they have, and their lists.

use std::ptr;

use foxton_log::Lsn;
use smallvec::SmallVec;

use crate::memory::Begin;
use crate::paged::page::{KeyBytes, RowFlags};

/// Versions of one row.
pub(super) struct VersionEntry {
    pub(super) next: Option<Box<VersionEntry>>,
    pub(super) hash: u64,
    pub(super) tree: u64,
    /// Begin of the state that the page has.
    pub(super) head: Begin,
    pub(super) key: KeyBytes,
    /// The oldest first.
    pub(super) older: SmallVec<[ReplacedRow; 1]>,
}

/// A state that another one has replaced.
pub(super) struct ReplacedRow {
    pub(super) begin: Begin,
    /// `None`: there was no row.
    pub(super) row: Option<(RowFlags, Vec<u8>)>,
}

/// Name of a row among versions.
#[derive(Debug, Clone, Copy)]
pub struct VersionedKey<'k> {
    pub(super) tree: u64,
    pub(super) key: &'k [u8],
    pub(super) hash: u64,
}

impl<'k> VersionedKey<'k> {
    /// Returns the name of the row of `key` in the tree with this number.
    pub fn new(tree: u64, key: &'k [u8]) -> VersionedKey<'k> {
        let hash = hash_of(tree, key);
        VersionedKey { tree, key, hash }
    }
}

impl VersionEntry {
    pub(super) fn is_of(&self, row: &VersionedKey<'_>) -> bool {
        self.hash == row.hash && self.tree == row.tree && self.key[..] == *row.key
    }

    pub(super) fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Calls `visit` with each replaced state, the newest first, and where the next one began.
    pub(super) fn visit(&self, mut visit: impl FnMut(&ReplacedRow, Begin)) {
        let mut end = self.head;
        for old in self.older.iter().rev() {
            visit(old, end);
            end = old.begin;
        }
    }
}

/// Entries of one bucket.
pub(super) type Chain = Option<Box<VersionEntry>>;

/// Returns the entry of a row.
pub(super) fn find<'c>(mut chain: &'c Chain, row: &VersionedKey<'_>) -> Option<&'c VersionEntry> {
    while let Some(entry) = chain {
        if entry.is_of(row) {
            return Some(entry);
        }
        chain = &entry.next;
    }
    None
}

/// Returns the first entry for which `is_it` is true.
pub(super) fn find_mut(
    mut chain: &mut Chain,
    is_it: impl Fn(&VersionEntry) -> bool,
) -> Option<&mut VersionEntry> {
    while let Some(entry) = chain {
        if is_it(entry) {
            return Some(entry);
        }
        chain = &mut entry.next;
    }
    None
}

/// Takes the first entry out for which `is_it` is true.
pub(super) fn unlink(mut chain: &mut Chain, is_it: impl Fn(&VersionEntry) -> bool) -> Chain {
    while chain.as_ref().is_some_and(|entry| !is_it(entry)) {
        chain = &mut chain.as_mut()?.next;
    }
    let mut entry = chain.take()?;
    *chain = entry.next.take();
    Some(entry)
}

/// Returns the commit LSN; 0 is before all snapshots.
pub(super) fn committed(begin: Begin) -> Lsn {
    begin.committed().map_or(Lsn::ZERO, |(lsn, _)| lsn)
}

impl ReplacedRow {
    /// Returns what the row had instead of a value that is outside its leaf.
    pub(super) fn large(&self) -> Option<&[u8]> {
        let (flags, value) = self.row.as_ref()?;
        flags.has(RowFlags::OVERFLOW).then_some(&value[..])
    }
}

impl VersionEntry {
    /// Returns an entry of no row.
    pub(super) fn vacant() -> Box<VersionEntry> {
        Box::new(VersionEntry {
            next: None,
            hash: 0,
            tree: 0,
            head: Begin::ALWAYS,
            key: KeyBytes::new(),
            older: SmallVec::new(),
        })
    }
}

fn hash_of(tree: u64, key: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(ODD);
        product as u64 ^ (product >> 64) as u64
    };
    let (words, rest) = key.as_chunks::<8>();
    let mut hash = mix(ODD, tree ^ (key.len() as u64) << 32);
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(hash, u64::from_le_bytes(last)), ODD)
}
