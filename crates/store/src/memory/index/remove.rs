//! Removal of records.

use super::descend::{Target, try_descend};
use super::insert::{Next, is_next};
use super::shrink;
use crate::failpoint;
use crate::memory::node::Pinned;
use crate::memory::record::Record;
use crate::memory::search_key::SearchKey;
use foxton_sync::backoff::Backoff;
use std::fmt;

/// Reason why a record was not removed. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveRefused {
    /// It is not in the table (any more).
    NotLinked,
    /// It has a value; only ghosts are removed.
    NotGhost,
    /// The record behind it is not the expected one.
    NextChanged,
}

impl fmt::Display for RemoveRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotLinked => "the record is not in the table",
            Self::NotGhost => "the record has a value",
            Self::NextChanged => "the record after it is not the expected one",
        })
    }
}

impl std::error::Error for RemoveRefused {}

/// Takes `record` out of the tree.
pub(crate) fn remove<const N: usize>(
    tree: Pinned<'_, N>,
    record: &Record,
    next: Next<'_>,
) -> Result<(), RemoveRefused> {
    let mut backoff = Backoff::new();
    loop {
        match try_remove(tree, record, next) {
            Some(Ok(LeafState::Empty)) => {
                tree.failpoints().pass(&failpoint::SHRINK);
                shrink::shrink(tree, record.key());
                return Ok(());
            }
            Some(result) => return result.map(|_| ()),
            None => backoff.snooze(),
        }
    }
}

/// State of a leaf after the removal.
enum LeafState {
    Empty,
    InUse,
}

/// `None` if another thread interfered.
fn try_remove<const N: usize>(
    tree: Pinned<'_, N>,
    record: &Record,
    next: Next<'_>,
) -> Option<Result<LeafState, RemoveRefused>> {
    let search_key = SearchKey::new(record.key());
    let step = try_descend(tree, Target::Key(search_key), |_| {})?;
    let leaf = step.node;
    let position = leaf.position(&search_key);
    let there = position.found && leaf.pointer(position.index)?.is(record);
    if !there {
        let sure = leaf.latch().unchanged_since(step.version);
        return sure.then_some(Err(RemoveRefused::NotLinked));
    }
    tree.failpoints().pass(&failpoint::REMOVE);
    let mut write_guard = tree.try_latch(leaf, step.version)?;
    if !record.is_ghost() {
        return Some(Err(RemoveRefused::NotGhost));
    }
    if !is_next(&write_guard, position.index + 1, next)? {
        return Some(Err(RemoveRefused::NextChanged));
    }
    write_guard.remove_record(position.index);
    Some(Ok(if leaf.count() == 0 {
        LeafState::Empty
    } else {
        LeafState::InUse
    }))
}
