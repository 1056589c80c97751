//! Insertion of records.

use super::descend::{Target, try_descend};
use super::{split, walk};
use crate::failpoint;
use crate::memory::node::{NodeWriteGuard, Pinned};
use crate::memory::record::{NewRecord, Record};
use crate::memory::search_key::SearchKey;
use foxton_sync::backoff::Backoff;
use std::fmt;

/// The caller's knowledge of the record behind the position where it inserts or removes.
#[derive(Debug, Clone, Copy)]
pub enum Next<'r> {
    /// Nothing: any record will do.
    Any,
    /// It is this record.
    Is(&'r Record),
    /// There is no record.
    End,
}

impl<'r> From<Option<&'r Record>> for Next<'r> {
    /// The record, or the end.
    fn from(record: Option<&'r Record>) -> Self {
        record.map_or(Self::End, Self::Is)
    }
}

/// Reason why a record was not inserted. Nothing was changed, and the record is returned.
pub enum InsertRefused<'g> {
    /// The key is in the table: as this record, which may be a ghost.
    Exists(&'g Record, NewRecord),
    /// The record behind the key is not the expected one.
    NextChanged(NewRecord),
}

impl fmt::Debug for InsertRefused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exists(..) => "Exists",
            Self::NextChanged(_) => "NextChanged",
        })
    }
}

impl fmt::Display for InsertRefused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exists(..) => "the key is in the table already",
            Self::NextChanged(_) => "the record after the key is not the expected one",
        })
    }
}

/// Puts `record` into the tree.
pub(crate) fn insert<'g, const N: usize>(
    tree: Pinned<'g, N>,
    record: NewRecord,
    next: Next<'_>,
) -> Result<&'g Record, InsertRefused<'g>> {
    let mut record = record;
    let mut backoff = Backoff::new();
    loop {
        match try_insert(tree, record, next) {
            InsertAttempt::Done(result) => return result,
            InsertAttempt::Again(back) => record = back,
            InsertAttempt::Full(back) => {
                record = back;
                tree.failpoints().pass(&failpoint::SPLIT);
                split::make_room(tree, &SearchKey::new(record.key()));
                continue;
            }
        }
        backoff.snooze();
    }
}

enum InsertAttempt<'g> {
    Done(Result<&'g Record, InsertRefused<'g>>),
    /// Another thread interfered.
    Again(NewRecord),
    /// The leaf is full.
    Full(NewRecord),
}

fn try_insert<'g, const N: usize>(
    tree: Pinned<'g, N>,
    record: NewRecord,
    next: Next<'_>,
) -> InsertAttempt<'g> {
    let search_key = SearchKey::new(record.key());
    let Some(step) = try_descend(tree, Target::Key(search_key), |_| {}) else {
        return InsertAttempt::Again(record);
    };
    let leaf = step.node;
    let position = leaf.position(&search_key);
    if position.found {
        let pointer = leaf.pointer(position.index);
        return match pointer.filter(|_| leaf.latch().unchanged_since(step.version)) {
            Some(there) => InsertAttempt::Done(Err(InsertRefused::Exists(there.record(), record))),
            None => InsertAttempt::Again(record),
        };
    }
    if leaf.is_full() {
        return InsertAttempt::Full(record);
    }
    tree.failpoints().pass(&failpoint::INSERT);
    let Some(mut write_guard) = tree.try_latch(leaf, step.version) else {
        return InsertAttempt::Again(record);
    };
    match is_next(&write_guard, position.index, next) {
        Some(true) => InsertAttempt::Done(Ok(write_guard
            .insert_record(position.index, record)
            .record())),
        Some(false) => InsertAttempt::Done(Err(InsertRefused::NextChanged(record))),
        None => InsertAttempt::Again(record),
    }
}

/// True if the record in slot `index` of the held leaf, or the first behind the leaf if it has no
/// such slot, is the expected one. `None` if another thread interfered.
pub(crate) fn is_next<const N: usize>(
    write_guard: &NodeWriteGuard<'_, N>,
    index: usize,
    next: Next<'_>,
) -> Option<bool> {
    let expected = match next {
        Next::Any => return Some(true),
        Next::Is(record) => Some(record),
        Next::End => None,
    };
    let leaf = write_guard.node();
    let found = if index < leaf.count() {
        leaf.pointer(index)
    } else {
        walk::first_right_of(leaf)?
    };
    Some(match (found, expected) {
        (Some(found), Some(expected)) => found.is(expected),
        (None, None) => true,
        _ => false,
    })
}
