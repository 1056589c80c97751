//! Index plan: which index entries one write inserts and removes.

use std::ops::Range;
use std::sync::Arc;

use super::changes::SavepointMark;
use super::table_cache::Identified;
use crate::catalog::resident_memory::counted_bytes;
use crate::catalog::{IndexSet, OpenIndex};
use crate::error::{IndexError, Result};
use crate::types::codec::Undecodable;
use crate::types::index_entry::{EntryKind, ExtractedKeys};
use crate::types::limits::MAX_KEY_BYTES;

/// Buffers above this size are freed after a write.
const KEPT_BYTES: usize = 64 << 10;

/// The indexes of a table, as a worker last read them from the catalog.
#[derive(Debug)]
pub(crate) struct CachedIndexes {
    /// Number of changes to the table's indexes before this set.
    pub(super) changes: u32,
    pub(super) set: Arc<IndexSet>,
    /// For each open index of the set, the index of its entries among the cached tables.
    pub(super) places: Vec<usize>,
}

/// An index by which a worker has read.
#[derive(Debug)]
pub(crate) struct CachedIndexLookup {
    pub(super) identity: IndexIdentity,
    pub(super) index: Arc<OpenIndex>,
    /// Of a paged table: indices of the entries and of the table among the cached tables.
    pub(super) places: Option<[usize; 2]>,
}

/// An index as a program writes it: addresses and lengths of its name and of its table's, the
/// hashes of its types, and its declaration.
pub(crate) type IndexIdentity = ([(usize, usize); 2], [u64; 3], (EntryKind, u32));

impl Identified for CachedIndexLookup {
    type Identity = IndexIdentity;

    #[inline(always)]
    fn identity(&self) -> IndexIdentity {
        self.identity
    }
}

/// One entry that is inserted or removed with a row.
#[derive(Debug)]
pub(super) struct Entry {
    /// Number of its index among the open indexes of the table.
    pub(super) index: usize,
    /// Index of its entries among the cached tables.
    pub(super) place: usize,
    key: Range<usize>,
    /// Bytes of the key that are the index key.
    pub(super) index_bytes: usize,
    pub(super) change: EntryChange,
}

/// Change of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryChange {
    /// It loses its value.
    Remove,
    /// It gets a value. If it has a ghost, the ghost gets it at the end.
    Add,
    /// It was inserted as a new record, or a new row of a paged tree.
    Added,
}

/// Progress of a write of a paged table. An attempt continues here after a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanProgress {
    /// This entry is the next to be locked, and to be inserted if it is a new one.
    Lock(usize),
    /// The row is to be written.
    Row,
    /// This entry is the next to be changed.
    Change(usize),
}

impl Default for PlanProgress {
    fn default() -> PlanProgress {
        PlanProgress::Lock(0)
    }
}

/// The index changes of one write, from planning until they are made.
#[derive(Debug, Default)]
pub(crate) struct IndexPlan {
    /// True once the changes are known.
    pub(super) is_planned: bool,
    /// True if the key had a value.
    pub(super) existed: bool,
    /// Place of the table's indexes among the cached ones.
    pub(super) indexes: usize,
    pub(super) entries: Vec<Entry>,
    /// Of a paged table: how far the write has come.
    pub(super) progress: PlanProgress,
    /// Of a paged table: the changes before the write, to which it returns if it is refused.
    pub(super) mark: Option<SavepointMark>,
    bytes: Vec<u8>,
    before: ExtractedKeys,
    after: ExtractedKeys,
    /// The value of the current entry.
    pub(super) value: Vec<u8>,
}

impl IndexPlan {
    /// Forgets all changes, to plan another write.
    pub(super) fn clear(&mut self) {
        self.is_planned = false;
        self.progress = PlanProgress::default();
        self.mark = None;
        self.entries.clear();
        self.bytes.clear();
    }

    /// Forgets a finished write, and frees large buffers.
    pub(super) fn end(&mut self) {
        self.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.value.shrink_to(KEPT_BYTES);
        self.entries.shrink_to(KEPT_BYTES / size_of::<Entry>());
        self.before.shrink(KEPT_BYTES);
        self.after.shrink(KEPT_BYTES);
    }

    /// Returns the key of an entry.
    pub(super) fn key(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.key.clone()]
    }

    /// Returns the bytes for which the entries will count more than before, in memory.
    pub(super) fn counted_growth(&self) -> i64 {
        let growth = |entry: &Entry| {
            let bytes = counted_bytes(self.key(entry), Some(&[]));
            match entry.change {
                EntryChange::Remove => -bytes,
                EntryChange::Add | EntryChange::Added => bytes,
            }
        };
        self.entries.iter().map(growth).sum()
    }

    /// Plans the changes in one index when the value `old` of `key` becomes `new`.
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
                return Err(too_long(index, key, bytes).into());
            }
        }
        Ok(())
    }
}

/// Returns the error for the row `key`, whose entry takes so many bytes.
#[cold]
pub(crate) fn too_long(index: &OpenIndex, key: &[u8], bytes: usize) -> IndexError {
    IndexError::KeyTooLong {
        index: index.record.name.clone(),
        table: index.record.table.clone(),
        row: key.to_vec(),
        bytes,
    }
}

/// Extracts the keys of a row in an index, in order.
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
