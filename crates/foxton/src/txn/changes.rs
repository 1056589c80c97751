//! Changes of a transaction: undo, redo and savepoints.
//!
//! Changes are made in place, under exclusive locks. Undo is the value blocks that were replaced,
//! in order; redo is a private buffer that becomes one log record at commit. Changes of paged
//! tables are in the log already, and have a list of their own ([`PagedChanges`]). A row is in one
//! component, so the order between both lists does not matter.
//!
//! # Invariants
//!
//! * I1  Savepoints are in order: each has as many changes as the one before it, or more, and a
//!   greater number.
//! * I2  A savepoint's length of redo is valid only while as many parts have gone to the log as
//!   when it was taken.

use std::collections::BTreeSet;

use foxton_log::Lsn;
use foxton_store::memory::ValueBlock;
use foxton_sync::epoch::{Guard, Stamp};

use super::paged_changes::PagedChanges;
use crate::catalog::resident_memory::counted_bytes;
use crate::redo::record::{Effect, RedoForm, RowChange};

/// Buffers above this size are freed after a large transaction.
const KEPT_BYTES: usize = 256 << 10;
const KEPT_UNDO: usize = 4096;
/// Memory that a row counts for beyond its key and its value. More than it takes, because its page
/// is free only after the last row on it.
const ROW_BYTES: usize = 512;

/// One change of a table in memory; putting `old` back undoes it.
#[derive(Debug)]
pub(crate) struct Undo {
    /// Index of the table among the cached tables.
    pub(crate) table: usize,
    key_start: usize,
    key_end: usize,
    /// True if it is in the redo.
    pub(super) is_logged: bool,
    /// The value before it; `None` if the key had none.
    pub(crate) old: Option<ValueBlock>,
    /// Which end of the transaction may leave the key without a value.
    pub(crate) ghost_if: GhostIf,
}

/// When a change leaves a ghost behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GhostIf {
    /// Never: the key had a value and has one.
    Never,
    /// If it is rolled back: it gave a value to a key that had none.
    RolledBack,
    /// If it is committed: it removed the value.
    Committed,
}

/// Number of changes of a transaction, by component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ChangeCounts {
    pub(super) resident: usize,
    pub(super) paged: usize,
}

impl ChangeCounts {
    pub(super) fn total(self) -> usize {
        self.resident + self.paged
    }
}

/// A moment in a transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct SavepointMark {
    pub(super) number: u64,
    /// Number of changes before it.
    pub(super) changes: ChangeCounts,
    /// Bytes of redo that were not in the log.
    pub(super) redo: usize,
    /// Number of parts in the log.
    pub(super) parts: u64,
    /// Bytes for which its rows counted more than before it.
    pub(super) counted: i64,
}

/// The savepoints that a transaction can roll back to.
#[derive(Debug, Default)]
pub(super) struct SavepointStack {
    pub(super) open: Vec<SavepointMark>,
    /// Number of savepoints taken so far by all transactions of the worker. In a session two
    /// transactions have one owner, so the second must not accept a savepoint of the first.
    pub(super) taken: u64,
}

impl SavepointStack {
    /// Forgets all savepoints, when the transaction has ended.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) undo: Vec<Undo>,
    keys: Vec<u8>,
    pub(crate) redo: Vec<u8>,
    /// End of the first part in the log, once the transaction has become too large for one record.
    pub(crate) first_part: Option<Lsn>,
    /// Keys that were inserted and have no value after a rollback to a savepoint, or after a write
    /// that was refused: index of the table among the cached tables, and key.
    pub(super) left: BTreeSet<(usize, Box<[u8]>)>,
    /// Changes of paged tables.
    pub(super) paged: PagedChanges,
    /// Number of parts in the log.
    pub(crate) parts: u64,
    kept_since: Option<Stamp>,
    /// Bytes by which its rows and index entries have grown, about; negative if they have shrunk.
    growth: isize,
    /// Bytes for which its rows and index entries count more than before it, without those that
    /// are undone.
    pub(super) counted: i64,
    pub(super) savepoints: SavepointStack,
    /// Number of changes of tables in memory, of the last ones, that are undone already.
    pub(super) undone: usize,
    /// Number of changes whose undo is in memory, of the first ones, whose ghosts are removed or
    /// recorded already. Those of paged tables come last.
    pub(super) swept: usize,
}

impl Changes {
    /// Records a change that has just been made: of the key `(number of its table, key)` from
    /// `before` to `new`.
    pub(crate) fn record(
        &mut self,
        table: usize,
        (id, key): (u32, &[u8]),
        (before, new): (Option<&[u8]>, Option<&[u8]>),
        old: Option<ValueBlock>,
        redo: RedoForm,
    ) {
        let ghost_if = match (before, new) {
            (_, None) => GhostIf::Committed,
            (None, Some(_)) => GhostIf::RolledBack,
            (Some(_), Some(_)) => GhostIf::Never,
        };
        self.growth += row_bytes(key, new) - row_bytes(key, before);
        self.counted += counted_bytes(key, new) - counted_bytes(key, before);
        match new {
            _ if redo == RedoForm::Nothing => {}
            None => {
                let effect = Effect::Delete;
                RowChange {
                    table: id,
                    key,
                    effect,
                }
                .encode(&mut self.redo);
            }
            Some(new) => {
                let patches = redo == RedoForm::Patches;
                RowChange::encode_update((id, key), (before, new), patches, &mut self.redo);
            }
        }
        let key_start = self.keys.len();
        self.keys.extend_from_slice(key);
        let key_end = self.keys.len();
        self.undo.push(Undo {
            table,
            key_start,
            key_end,
            is_logged: redo != RedoForm::Nothing,
            old,
            ghost_if,
        });
    }

    /// Records a change that is not logged, because it follows from one that is. It repeats code of
    /// `record`, because sharing it costs every put seven instructions.
    pub(crate) fn record_unlogged(
        &mut self,
        table: usize,
        key: &[u8],
        old: Option<ValueBlock>,
        ghost_if: GhostIf,
    ) {
        let sign = match ghost_if {
            GhostIf::Never => 0,
            GhostIf::RolledBack => 1,
            GhostIf::Committed => -1,
        };
        self.growth += sign * row_bytes(key, Some(&[]));
        self.counted += sign as i64 * counted_bytes(key, Some(&[]));
        let key_start = self.keys.len();
        self.keys.extend_from_slice(key);
        let key_end = self.keys.len();
        self.undo.push(Undo {
            table,
            key_start,
            key_end,
            is_logged: false,
            old,
            ghost_if,
        });
    }

    /// Returns the present moment, with the number of the savepoint that was taken last.
    pub(super) fn mark(&self) -> SavepointMark {
        SavepointMark {
            number: self.savepoints.taken,
            changes: self.counts(),
            redo: self.redo.len(),
            parts: self.parts,
            counted: self.counted,
        }
    }

    /// Returns the epoch since which replaced values are kept to be put back: that of the first
    /// change that may be undone, or an earlier one.
    pub(crate) fn kept_since(&mut self, guard: &Guard<'_>) -> Stamp {
        if self.undo.is_empty() {
            self.kept_since = None;
        }
        *self
            .kept_since
            .get_or_insert_with(|| guard.participant().recent_stamp())
    }

    /// True if the commit record has no changes of tables in memory.
    pub(crate) fn has_no_redo(&self) -> bool {
        self.redo.is_empty() && self.first_part.is_none()
    }

    pub(crate) fn key(&self, undo: &Undo) -> &[u8] {
        &self.keys[undo.key_start..undo.key_end]
    }

    /// Returns the value that `key` had before this transaction, if it changed the key.
    #[cold]
    pub(crate) fn first_old(&self, table: usize, key: &[u8]) -> Option<&[u8]> {
        let mut undo = self.undo.iter();
        let first = undo.find(|undo| undo.table == table && self.key(undo) == key);
        first?.old.as_ref()?.bytes()
    }

    /// True if nothing was changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.undo.is_empty() && self.left.is_empty() && !self.paged.has_begun()
    }

    /// Number of changes and ghosts that an end of the transaction has to visit.
    pub(crate) fn count(&self) -> usize {
        self.counts().total() + self.left.len()
    }

    /// Number of changes that are not forgotten as undone.
    pub(super) fn counts(&self) -> ChangeCounts {
        ChangeCounts {
            resident: self.undo.len(),
            paged: self.paged.count(),
        }
    }

    /// True if all changes but the first `from` are undone.
    pub(super) fn is_undone(&self, from: ChangeCounts) -> bool {
        from.resident + self.undone >= self.undo.len() && self.paged.count() <= from.paged
    }

    /// Returns the bytes by which its rows have grown, about; negative if they have shrunk. Of
    /// changes that a rollback to a savepoint has undone they stay included.
    pub(super) fn growth(&self) -> isize {
        self.growth
    }

    /// Forgets the changes of tables in memory from `from` on, but not their redo. They must have
    /// been undone.
    pub(super) fn truncate(&mut self, from: usize) {
        (self.undone, self.swept) = (0, 0);
        if let Some(first) = self.undo.get(from) {
            self.keys.truncate(first.key_start);
            self.undo.truncate(from);
        }
    }

    /// Forgets all changes. They must have been undone, or their old values retired.
    pub(crate) fn clear(&mut self) {
        (self.undone, self.swept) = (0, 0);
        self.undo.clear();
        self.keys.clear();
        self.left.clear();
        self.paged.clear();
        self.redo.clear();
        self.undo.shrink_to(KEPT_UNDO);
        self.keys.shrink_to(KEPT_BYTES);
        self.redo.shrink_to(KEPT_BYTES);
        self.first_part = None;
        self.parts = 0;
        self.growth = 0;
        self.counted = 0;
    }
}

/// Returns the memory that a row with this value takes, about, in bytes.
#[inline(always)]
fn row_bytes(key: &[u8], value: Option<&[u8]>) -> isize {
    value.map_or(0, |value| (ROW_BYTES + key.len() + value.len()) as isize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxton_sync::epoch::Domain;

    #[test]
    fn values_are_kept_from_the_first_change_to_the_end_and_no_longer() {
        let domain = Domain::new();
        let participant = domain.participant();
        let mut changes = Changes::default();
        for first in [0, 2] {
            for epoch in [first, first + 1] {
                assert_eq!(domain.epoch(), epoch);
                let kept_since = changes.kept_since(&participant.pin());
                assert_eq!(kept_since.epoch(), first);
                changes.record_unlogged(0, b"key", None, GhostIf::Never);
                participant.advance();
            }
            changes.clear();
        }
        assert_eq!(changes.kept_since(&participant.pin()).epoch(), 4);
        changes.record_unlogged(0, b"key", None, GhostIf::Never);
        participant.advance();
        changes.truncate(0);
        assert_eq!(changes.kept_since(&participant.pin()).epoch(), 5);
    }
}
