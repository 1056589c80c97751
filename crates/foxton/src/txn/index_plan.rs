//! What a worker knows of indexes, and the write at hand that keeps them.

use std::ops::Range;
use std::sync::Arc;

use crate::catalog::{IndexSet, OpenIndex};
use crate::error::{IndexError, Result};
use crate::types::codec::Undecodable;
use crate::types::index_entry::ExtractedKeys;
use crate::types::limits::MAX_KEY_BYTES;

/// Buffers above this are given back after a write.
const KEPT_BYTES: usize = 64 << 10;

/// The indexes that a worker keeps with a table.
#[derive(Debug)]
pub(crate) struct CachedIndexes {
    /// The place of the table among those met.
    pub(super) table: usize,
    /// Which of the table's sets of indexes this is.
    pub(super) changes: u32,
    pub(super) set: Arc<IndexSet>,
    /// For each open index of the set, the place of its entries among the tables met.
    pub(super) places: Vec<usize>,
}

/// An index that a worker has read by.
#[derive(Debug)]
pub(crate) struct CachedIndexLookup {
    pub(super) name: &'static str,
    pub(super) types: [u64; 3],
    pub(super) index: Arc<OpenIndex>,
}

/// One entry that comes or goes with a row.
#[derive(Debug)]
pub(super) struct Entry {
    /// Which of the table's open indexes it is in.
    pub(super) index: usize,
    /// The place of the index's entries among the tables met.
    pub(super) place: usize,
    key: Range<usize>,
    /// How much of the key is the index key.
    pub(super) index_bytes: usize,
    pub(super) change: EntryChange,
}

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryChange {
    /// It goes.
    Remove,
    /// It comes; if there is a ghost of it, that gets a value at the end.
    Add,
    /// It has come, as a new record.
    Added,
}

/// A write to a table with indexes, from when it is known what it changes until that is done.
#[derive(Debug, Default)]
pub(crate) struct IndexPlan {
    /// Whether it is known what it changes.
    pub(super) is_planned: bool,
    /// Whether the key had a value.
    pub(super) existed: bool,
    /// The place of its table's indexes among those tended.
    pub(super) cached_indexes: usize,
    pub(super) entries: Vec<Entry>,
    bytes: Vec<u8>,
    before: ExtractedKeys,
    after: ExtractedKeys,
    /// The value of the entry at hand.
    pub(super) value: Vec<u8>,
}

impl IndexPlan {
    /// Begins anew.
    pub(super) fn clear(&mut self) {
        self.is_planned = false;
        self.entries.clear();
        self.bytes.clear();
    }

    /// Forgets a write that is done.
    pub(super) fn end(&mut self) {
        self.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.value.shrink_to(KEPT_BYTES);
        self.entries.shrink_to(KEPT_BYTES / size_of::<Entry>());
        self.before.shrink(KEPT_BYTES);
        self.after.shrink(KEPT_BYTES);
    }

    /// The key of an entry.
    pub(super) fn key(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.key.clone()]
    }

    /// Plans what becomes of the entries of `key` in an index when its value `old` becomes `new`.
    pub(super) fn plan(
        &mut self,
        (at, place): (usize, usize),
        index: &OpenIndex,
        key: &[u8],
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<()> {
        extract(index, key, old, &mut self.before)?;
        extract(index, key, new, &mut self.after)?;
        let IndexPlan {
            before,
            after,
            entries,
            bytes,
            ..
        } = self;
        let mut push = |index_key: &[u8], change| {
            let start = bytes.len();
            index.kind.write_key(index_key, key, bytes);
            entries.push(Entry {
                index: at,
                place,
                key: start..bytes.len(),
                index_bytes: index_key.len(),
                change,
            });
            bytes.len() - start
        };
        for gone in before.iter().filter(|&key| !after.contains(key)) {
            push(gone, EntryChange::Remove);
        }
        for come in after.iter().filter(|&key| !before.contains(key)) {
            let bytes = push(come, EntryChange::Add);
            if bytes > MAX_KEY_BYTES {
                let index = index.record.name.clone();
                return Err(IndexError::KeyTooLong { index, bytes }.into());
            }
        }
        Ok(())
    }
}

/// The keys of a row in an index, in order.
pub(crate) fn extract(
    index: &OpenIndex,
    key: &[u8],
    value: Option<&[u8]>,
    into: &mut ExtractedKeys,
) -> Result<(), Undecodable> {
    into.clear();
    if let Some(value) = value {
        (index.extract)(key, value, into)?;
        into.sort();
    }
    Ok(())
}
