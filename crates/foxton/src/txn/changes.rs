//! What a transaction has changed: how to undo it, and how to do it again.
//!
//! Changes are made in place, under exclusive locks. Undo is the value blocks that were replaced,
//! in order; redo is a private buffer that becomes one log record at commit.

use std::collections::BTreeSet;

use foxton_log::Lsn;
use foxton_store::memory::ValueBlock;
use foxton_sync::epoch::{Guard, Stamp};

use crate::redo::record::{Change, Effect};

/// Storage above this is given back after a large transaction.
const KEPT_BYTES: usize = 256 << 10;
const KEPT_UNDO: usize = 4096;

/// One change, to be undone by putting `old` back.
#[derive(Debug)]
pub(crate) struct Undo {
    /// Index of the table in the transaction's own list.
    pub(crate) table: usize,
    key_start: usize,
    key_end: usize,
    /// Whether it is in the redo.
    pub(super) is_logged: bool,
    /// What was there; `None` was a ghost, or nothing at all.
    pub(crate) old: Option<ValueBlock>,
    /// Whether the key may be left without a value: if the transaction commits, or if it rolls
    /// back.
    pub(crate) ghost_if: GhostIf,
}

/// When a change leaves a ghost behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GhostIf {
    /// Never: there was a value and there is one.
    Never,
    /// If it is rolled back: it put a value where there was none.
    RolledBack,
    /// If it is committed: it took the value away.
    Committed,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) undo: Vec<Undo>,
    keys: Vec<u8>,
    pub(crate) redo: Vec<u8>,
    /// The first part that went to the log, once the transaction has become too large for one.
    pub(crate) first_part: Option<Lsn>,
    /// Keys that were put in and have no value after going back to a savepoint, or after a write that was
    /// refused: the table's index in the transaction's own list, and the key.
    pub(super) left: BTreeSet<(usize, Box<[u8]>)>,
    /// Parts that have gone to the log.
    pub(crate) parts: u64,
    kept_since: Option<Stamp>,
}

impl Changes {
    /// Notes a change that has just been made: of the key `(number of its table, key)` from `before` to
    /// `new`. With `patches`, it may be written as what is different.
    pub(crate) fn note(
        &mut self,
        table: usize,
        (id, key): (u32, &[u8]),
        (before, new): (Option<&[u8]>, Option<&[u8]>),
        old: Option<ValueBlock>,
        patches: bool,
    ) {
        let ghost_if = match (before, new) {
            (_, None) => GhostIf::Committed,
            (None, Some(_)) => GhostIf::RolledBack,
            (Some(_), Some(_)) => GhostIf::Never,
        };
        match new {
            None => {
                let effect = Effect::Delete;
                Change {
                    table: id,
                    key,
                    effect,
                }
                .encode(&mut self.redo);
            }
            Some(new) => {
                Change::encode_update((id, key), (before, new), patches, &mut self.redo);
            }
        }
        let key_start = self.keys.len();
        self.keys.extend_from_slice(key);
        let key_end = self.keys.len();
        self.undo.push(Undo {
            table,
            key_start,
            key_end,
            is_logged: true,
            old,
            ghost_if,
        });
    }

    /// Notes a change that is not in the log, since it follows from one that is. Its own copy of what `note`
    /// does: sharing it costs every put seven instructions.
    pub(crate) fn note_unlogged(
        &mut self,
        table: usize,
        key: &[u8],
        old: Option<ValueBlock>,
        ghost_if: GhostIf,
    ) {
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

    /// Since when what is replaced is kept to be put back: not after the first change that is to be undone.
    pub(crate) fn kept_since(&mut self, guard: &Guard<'_>) -> Stamp {
        if self.undo.is_empty() {
            self.kept_since = None;
        }
        *self
            .kept_since
            .get_or_insert_with(|| guard.participant().recent_stamp())
    }

    /// Whether nothing of it is for the log.
    pub(crate) fn has_no_redo(&self) -> bool {
        self.redo.is_empty() && self.first_part.is_none()
    }

    pub(crate) fn key(&self, undo: &Undo) -> &[u8] {
        &self.keys[undo.key_start..undo.key_end]
    }

    /// What `key` had before this transaction, if it has changed that.
    #[cold]
    pub(crate) fn first_old(&self, table: usize, key: &[u8]) -> Option<&[u8]> {
        let mut undo = self.undo.iter();
        let first = undo.find(|undo| undo.table == table && self.key(undo) == key);
        first?.old.as_ref()?.bytes()
    }

    /// Whether nothing was changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.undo.is_empty() && self.left.is_empty()
    }

    /// Forgets the changes from `from` on, but not what is in the redo. The undo must have been used.
    pub(super) fn forget_since(&mut self, from: usize) {
        if let Some(first) = self.undo.get(from) {
            self.keys.truncate(first.key_start);
            self.undo.truncate(from);
        }
    }

    /// Forgets everything. The undo must have been used or retired.
    pub(crate) fn clear(&mut self) {
        self.undo.clear();
        self.keys.clear();
        self.left.clear();
        self.redo.clear();
        self.undo.shrink_to(KEPT_UNDO);
        self.keys.shrink_to(KEPT_BYTES);
        self.redo.shrink_to(KEPT_BYTES);
        self.first_part = None;
        self.parts = 0;
    }
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
                changes.note_unlogged(0, b"key", None, GhostIf::Never);
                participant.advance();
            }
            changes.clear();
        }
        assert_eq!(changes.kept_since(&participant.pin()).epoch(), 4);
        changes.note_unlogged(0, b"key", None, GhostIf::Never);
        participant.advance();
        changes.forget_since(0);
        assert_eq!(changes.kept_since(&participant.pin()).epoch(), 5);
    }
}
