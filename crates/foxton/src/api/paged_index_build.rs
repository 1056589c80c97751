//! Indexes of paged tables: making, opening and comparing them.
//!
//! # Making an index
//!
//! The index gets a number that the directory of trees does not have, and a tree of this number.
//! The transaction that holds the table's lock then reads the rows and inserts their entries, as
//! changes of its own. Its commit record also has the rows that record the index
//! (`catalog/index_catalog`). If it does not commit, its entries are undone, by a rollback or by
//! the next restart. An empty tree stays, which the next opening frees.
//!
//! # Dropping one
//!
//! The rows that record it are deleted. After that commit its tree is freed
//! ([`former_rows`](crate::txn::former_rows)), and after a kill the next opening frees it.

use std::collections::HashSet;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use foxton_sync::worker::Worker;

use crate::api::transaction::Transaction;
use crate::catalog::index_catalog::{INDEX_TREES, IndexName, IndexRecord};
use crate::catalog::table_store::TableStore;
use crate::catalog::{OpenIndex, OpenTable};
use crate::engine::Engine;
use crate::engine::page_store::tree_number;
use crate::error::{IndexError, KeyTaken, Result, Storage};
use crate::options::progress::{OpenPhase, ProgressCall, ProgressMeter};
use crate::testing::failpoint;
use crate::txn::bound::BoundTxn;
use crate::txn::former_rows;
use crate::txn::index_plan::{extract, too_long};
use crate::types::codec::Value;
use crate::types::index::{DeclaredIndex, Extract};
use crate::types::index_entry::ExtractedKeys;
use crate::types::isolation::Isolation;
use crate::types::limits::{FIRST_PAGED_INDEX, MAX_KEY_BYTES};
use crate::types::lock_options::{LockOptions, LockWait};

/// Bytes of rows that are copied before their entries are inserted.
const BATCH_BYTES: usize = 64 << 10;

/// Returns the error for a number of an index that cannot be one.
fn damaged(what: String) -> Storage {
    let place = format!("table {}", INDEX_TREES.name());
    Storage::Damaged { place, what }
}

/// Records which numbers indexes have, when a database is opened. Trees that no index has are
/// freed.
pub(super) fn recall(engine: &Arc<Engine>, worker: &Worker) -> Result<()> {
    let mut numbers = HashSet::new();
    if let Some(table) = engine.catalog.find(INDEX_TREES.name()) {
        let guard = worker.pin();
        let mut rows = table.resident().forward(&guard, Bound::Unbounded);
        while let Some(row) = rows.next_record() {
            let mut hazard = guard.hazard();
            if let Some(value) = row.value(&mut hazard) {
                let number = <u64 as Value>::decode(value);
                let number = number.map_err(|error| damaged(error.to_string()))?;
                let number = checked_number(number)?;
                engine.catalog.know_paged_index(number);
                numbers.insert(number);
            }
        }
    }
    let Some(pages) = engine.pages().filter(|pages| !pages.is_read_only()) else {
        return Ok(());
    };
    let of_indexes = u64::from(FIRST_PAGED_INDEX) + 1..=u64::from(u32::MAX);
    let trees = pages.directory.numbers(worker, of_indexes);
    for tree in trees.map_err(|error| pages.failed(&error))? {
        let number = checked_number(tree - 1)?;
        // So no new index gets it.
        engine.catalog.know_paged_index(number);
        if !numbers.contains(&number) {
            let entries = engine.catalog.dropped_entries(number);
            former_rows::free_later(engine, worker, entries);
        }
    }
    Ok(())
}

/// Deletes the row with the tree of an index. Returns the entries, if it had a tree.
pub(super) fn forget(tx: &mut Transaction, name: &str) -> Result<Option<Arc<OpenTable>>> {
    let Some(number) = tx.get(&INDEX_TREES, &IndexName(name))? else {
        return Ok(None);
    };
    tx.delete(&INDEX_TREES, &IndexName(name))?;
    let number = checked_number(number)?;
    Ok(Some(
        tx.attach()?.ctx.engine.catalog.dropped_entries(number),
    ))
}

/// Returns a stored number as that of an index.
fn checked_number(number: u64) -> Result<u32, Storage> {
    let index = u32::try_from(number).ok();
    let index = index.filter(|index| (FIRST_PAGED_INDEX..u32::MAX).contains(index));
    index.ok_or_else(|| damaged(format!("{number} is no number of an index")))
}

/// Makes the tree of a new index of `table`, which is locked, and inserts the entries of all rows.
pub(super) fn make(
    tx: &mut Transaction,
    table: &Arc<OpenTable>,
    extract: &Arc<Extract>,
    record: IndexRecord,
    progress: Option<&ProgressCall>,
) -> Result<OpenIndex> {
    let engine = tx.attach()?.ctx.engine.clone();
    engine.check_writable()?;
    let entries = make_tree(&engine, &tx.attach()?.ctx.worker, table, &record)?;
    let number = u64::from(entries.record.id);
    let open = OpenIndex::new(record, entries, extract.clone());
    tx.put(&INDEX_TREES, &IndexName(&open.record.name), &number)?;
    let bound = &mut *tx.attach()?;
    let meter = ProgressMeter::new(progress, OpenPhase::Index, 0);
    fill(bound, table, &open, &meter)?;
    meter.end();
    Ok(open)
}

/// Returns the entries of a new index, with an empty tree.
fn make_tree(
    engine: &Engine,
    worker: &Worker,
    table: &Arc<OpenTable>,
    record: &IndexRecord,
) -> Result<Arc<OpenTable>> {
    let pages = engine.pages().expect("the table is paged");
    let directory = &pages.directory;
    loop {
        let number = engine.catalog.new_paged_index();
        let entries = engine.catalog.entries(record, table, Some(number));
        let number = tree_number(&entries);
        let found = directory.open(worker, number);
        if found.map_err(|error| pages.failed(&error))?.is_some() {
            continue; // Of an index that was not finished.
        }
        let tree = directory.create(worker, number);
        let tree = tree.map_err(|error| pages.failed(&error))?;
        if let TableStore::Paged(rows) = &entries.store {
            let _ = rows.tree.set(Arc::new(tree));
        }
        return Ok(entries);
    }
}

/// Opens an index of `table` that exists.
pub(super) fn open(
    tx: &mut Transaction,
    table: &Arc<OpenTable>,
    declared: &DeclaredIndex,
    record: IndexRecord,
) -> Result<OpenIndex> {
    let number = tx.get(&INDEX_TREES, &IndexName(declared.name))?;
    let number = number.ok_or_else(|| damaged(format!("\"{}\" is missing", declared.name)))?;
    let number = checked_number(number)?;
    let engine = tx.attach()?.ctx.engine.clone();
    let entries = engine.catalog.entries(&record, table, Some(number));
    Ok(OpenIndex::new(record, entries, declared.extract.clone()))
}

/// Inserts the entries of all rows into an index that no other transaction knows.
fn fill(
    bound: &mut BoundTxn,
    table: &Arc<OpenTable>,
    index: &OpenIndex,
    meter: &ProgressMeter<'_>,
) -> Result<()> {
    let place = bound.ctx.cached_entries(index.entries.clone());
    let (mut found, mut key, mut value) = (ExtractedKeys::default(), Vec::new(), Vec::new());
    for_each(bound, table, |bound, primary, row| {
        extract(index, primary, Some(row), &mut found)?;
        for index_key in found.iter() {
            key.clear();
            value.clear();
            index.kind.write_key(index_key, primary, &mut key);
            if key.len() > MAX_KEY_BYTES {
                return Err(too_long(index, primary, key.len()).into());
            }
            index.kind.write_value(index_key.len(), primary, &mut value);
            bound.ctx.worker.failpoints().pass(&failpoint::INSERTING);
            let taken = bound.block_on(LockWait::Default, |bound| {
                bound.build_entry_step(place, (&key, &value))
            })?;
            if let Some(taken) = taken {
                return Err(IndexError::KeyTaken(KeyTaken {
                    index: index.record.name.clone(),
                    table: index.record.table.clone(),
                    key: index_key.to_vec(),
                    row: index.kind.read(&key, &taken).1.to_vec(),
                    refused: primary.to_vec(),
                })
                .into());
            }
        }
        meter.advance(1);
        Ok(())
    })
}

/// As [`compare`](super::index_build::compare), of a paged table. Both are locked.
pub(super) fn compare(
    bound: &mut BoundTxn,
    index: &OpenIndex,
    mut report: impl FnMut(&[u8], &str),
) -> Result<()> {
    let entries = &index.entries;
    let table = entries.of.as_ref().expect("entries lead to a table");
    let [of_entries, of_rows] =
        [entries, table].map(|table| bound.ctx.cached_entries(table.clone()));
    let (mut found, mut key, mut value) = (ExtractedKeys::default(), Vec::new(), Vec::new());
    for_each(bound, table, |bound, primary, row| {
        extract(index, primary, Some(row), &mut found)?;
        for index_key in found.iter() {
            key.clear();
            value.clear();
            index.kind.write_key(index_key, primary, &mut key);
            index.kind.write_value(index_key.len(), primary, &mut value);
            match get(bound, of_entries, &key)? {
                None => report(primary, "it is not in the index"),
                Some(there) if there != value => {
                    report(primary, "the index leads to another row instead");
                }
                Some(_) => {}
            }
        }
        Ok(())
    })?;
    let mut found = ExtractedKeys::default();
    for_each(bound, entries, |bound, key, value| {
        let (index_key, primary) = index.kind.read(key, value);
        match get(bound, of_rows, primary)? {
            None => report(primary, "the index leads to it, and it is not there"),
            Some(row) => {
                extract(index, primary, Some(&row), &mut found)?;
                if !found.contains(index_key) {
                    report(primary, "the index has it by a key that it does not have");
                }
            }
        }
        Ok(())
    })
}

/// Returns the value of a key of a table that is locked as a whole, by its place among the cached
/// tables.
fn get(bound: &mut BoundTxn, place: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
    bound.ctx.key.clear();
    bound.ctx.key.extend_from_slice(key);
    without_locks(bound, |bound| {
        bound.block_on(LockWait::Default, |bound| {
            bound.get_step(place, LockOptions::default(), &mut Some(<[u8]>::to_vec))
        })
    })
}

/// Calls `visit` with each row of a table that is locked as a whole.
fn for_each(
    bound: &mut BoundTxn,
    table: &Arc<OpenTable>,
    mut visit: impl FnMut(&mut BoundTxn, &[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let place = bound.ctx.cached_entries(table.clone());
    let mut batch: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    bound.txn.scan.begin::<[u8]>(&.., |_, _| Ok(()))?;
    while !bound.txn.scan.is_finished() {
        let mut bytes = 0;
        without_locks(bound, |bound| {
            bound.block_on(LockWait::Default, |bound| {
                bound.scan_step(place, &mut |key, value| {
                    bytes += key.len() + value.len();
                    batch.push((key.to_vec(), value.to_vec()));
                    match bytes < BATCH_BYTES {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    }
                })
            })
        })?;
        for (key, value) in batch.drain(..) {
            visit(bound, &key, &value)?;
        }
    }
    Ok(())
}

/// Reads without locks: the transaction has the whole table.
pub(super) fn without_locks<T>(
    bound: &mut BoundTxn,
    read: impl FnOnce(&mut BoundTxn) -> Result<T>,
) -> Result<T> {
    let isolation = std::mem::replace(&mut bound.txn.isolation, Isolation::ReadUncommitted);
    let result = read(bound);
    bound.txn.isolation = isolation;
    result
}
