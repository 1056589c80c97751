//! Freeing large values that no row has.
//!
//! A value with a mark may be in use or not, and its row says which, once no transaction is left
//! that may change that. The background thread finds out: it requests the name of the value without
//! waiting, in an owner of its own, and reads the row under that lock. If the row has the value,
//! the mark goes. Otherwise the parts go, and then the mark.
//!
//! # Why the row says it
//!
//! A transaction changes whether a row has a value only while it holds the name of the value, which
//! it locks before it writes the mark ([`large`](super::large)). So whoever holds the name sees the
//! row as a transaction has left it: committed, or undone. After a kill that is the restart, whose
//! undo comes before this thread. A value is not stored under a number twice, so one that is not in
//! use stays so. Between two steps the lock may be released.
//!
//! A version that a reader at a snapshot may need keeps its value, too. The mark then stays. The
//! value is examined again when the version is gone ([`Snapshots`](crate::engine::snapshots)).
//!
//! Without locking one transaction is open at a time, and then nothing is freed.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use foxton_lock::manager::LockManager;
use foxton_lock::name::Name;
use foxton_lock::owner::Owner;
use foxton_store::paged::btree::{PagedTree, ScanDirection, ScanRange, TableDirectory, TreeError};
use foxton_store::paged::page::{LeafRows, RowFlags};
use foxton_store::paged::row_versions::VersionedKey;
use foxton_store::paged::values::{LargeValue, MarkedRow, mark_key, part_key};
use foxton_sync::shim;
use foxton_sync::worker::Worker;

use crate::engine::Engine;
use crate::engine::page_store::OpenPages;
use crate::options::Locking;
use crate::testing::injected_fault;
use crate::txn::bound::BoundTxn;
use crate::txn::large_state::value_name;
use crate::txn::table_locks::request_now;
use crate::txn::write::KEY;

/// Parts that are erased before the background thread does something else.
const STEP: usize = 64;
/// Pause between two steps.
const PAUSE: Duration = Duration::from_millis(1);
/// Pause if transactions are in the way.
const LONG_PAUSE: Duration = Duration::from_millis(20);

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freed {
    /// The mark is gone.
    Done,
    /// Parts are left.
    Partly,
    /// A transaction may still change the row.
    Locked,
    /// A reader at a snapshot may need it. It is examined again when its version is pruned.
    Kept,
}

impl BoundTxn {
    /// Hands over the values that the transaction has marked. It has released its locks.
    #[cold]
    pub(in crate::txn) fn hand_over_marked(&mut self) {
        let numbers = mem::take(&mut self.txn.marked_values);
        examine_marked(&self.ctx.engine, &self.ctx.worker, numbers);
    }
}

/// Adds values with marks to those that the background thread examines.
pub(in crate::txn) fn examine_marked(engine: &Arc<Engine>, worker: &Worker, numbers: Vec<u64>) {
    let Some(pages) = engine.pages().filter(|pages| !pages.is_read_only()) else {
        return;
    };
    if !pages.values.add_marked(numbers) {
        return;
    }
    let examined = Arc::downgrade(engine);
    let examine = move |worker: &Worker| {
        let engine = examined.upgrade()?;
        let pages = engine.pages()?;
        let number = pages.values.take_marked()?;
        // Site: "large values": no other thread passes it but in tests.
        let _one = shim::lock(&pages.values.freeing);
        let freed = match pages.has_failed() {
            true => return None,
            false => free(&engine, worker, pages, number),
        };
        match freed {
            Ok(Freed::Done) => Some(Duration::ZERO),
            Ok(Freed::Partly) => {
                pages.values.put_back(number);
                Some(PAUSE)
            }
            Ok(Freed::Locked) => {
                pages.values.put_back(number);
                Some(LONG_PAUSE)
            }
            Ok(Freed::Kept) => Some(PAUSE),
            // The mark stays, and the next opening finds it. The page is another operation's error.
            Err(_) => Some(PAUSE),
        }
    };
    let background = &engine.background;
    background.repeat(worker, Duration::ZERO, Box::new(examine));
}

/// Frees value `number`, if no row has it, or a part of it.
fn free(
    engine: &Engine,
    worker: &Worker,
    pages: &OpenPages,
    number: u64,
) -> Result<Freed, TreeError> {
    let Some(tree) = pages.values.tree.get() else {
        return Ok(Freed::Done);
    };
    let (key, mut row) = (mark_key(number), Vec::new());
    let marked = tree.visit(worker).run(|visit| visit.get(&key, &mut row))?;
    let Some(row) = MarkedRow::decode(&row).filter(|_| marked.is_some()) else {
        return Ok(Freed::Done);
    };
    if engine.options.locking == Locking::Off {
        // Site: "large values": the background thread. Meanwhile no transaction begins.
        let is_open = shim::lock(&engine.open);
        return match *is_open {
            true => Ok(Freed::Locked),
            false => free_unlocked(engine, worker, (pages, tree), number, row),
        };
    }
    let Some(table) = table_of(row) else {
        return Ok(Freed::Done);
    };
    let mut owner = engine.locks.owner();
    let parent = (Name::table(table), None, KEY.parent_mode());
    let name = value_name(table, number, &engine.hasher);
    let mut is_locked = |request| request_now(engine, worker, &mut owner, request);
    let freed = match is_locked(parent) && is_locked((name, None, KEY)) {
        true => free_unlocked(engine, worker, (pages, tree), number, row),
        false => Ok(Freed::Locked),
    };
    release(engine, worker, owner);
    freed
}

/// Returns the table of a marked row; `None` if a damaged mark names no table.
fn table_of(row: MarkedRow<'_>) -> Option<u32> {
    u32::try_from(row.table.checked_sub(1)?).ok()
}

fn release(engine: &Engine, worker: &Worker, mut owner: Owner) {
    engine.locks.release_all(worker, &mut owner);
    engine.locks.dismiss(worker, &mut owner);
}

/// As [`free`], under the lock of the value.
fn free_unlocked(
    engine: &Engine,
    worker: &Worker,
    (pages, tree): (&OpenPages, &PagedTree),
    number: u64,
    row: MarkedRow<'_>,
) -> Result<Freed, TreeError> {
    if !is_in_use(worker, &pages.directory, number, row)? {
        let is_it =
            |bytes: &[u8]| LargeValue::decode(bytes).map(|value| value.number) == Some(number);
        let versioned = VersionedKey::new(row.table, row.key);
        let is_kept = engine.snapshots.rows.has_large(&versioned, is_it);
        if is_kept
            && !engine
                .faults()
                .misbehaves(&injected_fault::KEPT_VALUE_FREED)
        {
            return Ok(Freed::Kept);
        }
        let mut rows = LeafRows::default();
        let (first, last) = (part_key(number, 0), part_key(number, u32::MAX));
        for erased in 0.. {
            let range = ScanRange {
                direction: ScanDirection::Forward,
                from: Some(&first),
                is_excluded: false,
                end: Some(&last),
                most: 1,
            };
            let mut visit = tree.visit(worker);
            visit.run(|visit| visit.scan(range, &mut rows))?;
            let part = (!rows.is_empty()).then(|| rows.key(0));
            let Some(part) = part.filter(|key| key.starts_with(&first[..8])) else {
                break;
            };
            if erased == STEP {
                return Ok(Freed::Partly);
            }
            let _ = visit.run(|visit| visit.erase(part))?;
        }
    }
    let key = mark_key(number);
    let _ = tree.visit(worker).run(|visit| visit.erase(&key))?;
    Ok(Freed::Done)
}

/// True if the row has the value.
fn is_in_use(
    worker: &Worker,
    directory: &TableDirectory,
    number: u64,
    row: MarkedRow<'_>,
) -> Result<bool, TreeError> {
    let Some(tree) = directory.open(worker, row.table)? else {
        return Ok(false);
    };
    let mut value = Vec::new();
    let flags = tree
        .visit(worker)
        .run(|visit| visit.get(row.key, &mut value))?;
    let has_large =
        flags.is_some_and(|flags| flags.has(RowFlags::OVERFLOW) && !flags.has(RowFlags::GHOST));
    Ok(has_large && LargeValue::decode(&value).is_some_and(|value| value.number == number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_mark_names_no_table() {
        let table = |table| table_of(MarkedRow { table, key: b"" });
        assert_eq!((table(1), table(1 << 32)), (Some(0), Some(u32::MAX)));
        for damaged in [0, (1 << 32) + 1, u64::MAX] {
            assert_eq!(table(damaged), None);
        }
    }
}
