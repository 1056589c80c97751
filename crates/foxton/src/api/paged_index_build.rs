//! Indexes of paged tables: making and opening them.
//!
//! # Making an index
//!
//! The index gets a number that the directory of trees does not have, and a tree of this number.
//! The transaction that holds the table's lock then reads the rows and sorts their entries, as many
//! as fit a bound. The first of them are [loaded](foxton_store::paged::btree::BulkLoad) as full
//! leaves. If there are more, each further lot is sorted and inserted, so that the inserts go
//! through the tree from left to right.
//!
//! The entries are of no transaction: no other one can find them before the commit. Its record also
//! has the rows that record the index (`catalog/index_catalog`), and is behind the entries in the
//! log. If it does not commit, the tree is in no row, and is freed in the background.
//!
//! # Dropping one
//!
//! The rows that record it are deleted. After that commit its tree is freed
//! ([`former_rows`](crate::txn::former_rows)). After a kill the next opening frees the trees that
//! are in no row.

use std::collections::{HashMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use foxton_store::paged::page::{PageSize, RowFlags};
use foxton_sync::worker::Worker;

use crate::api::sorted_entries::SortedEntries;
use crate::api::transaction::Transaction;
use crate::catalog::conversions::RowsPlace;
use crate::catalog::index_catalog::{INDEX_TREES, IndexName, IndexRecord};
use crate::catalog::table_store::TableStore;
use crate::catalog::{OpenIndex, OpenTable};
use crate::engine::Engine;
use crate::engine::page_store::tree_number;
use crate::error::{IndexError, KeyTaken, Request, Result, Storage};
use crate::options::progress::{OpenPhase, ProgressCall, ProgressMeter};
use crate::testing::failpoint;
use crate::txn::bound::BoundTxn;
use crate::txn::former_rows;
use crate::txn::index_plan::{extract, too_long};
use crate::types::codec::{Key, Value};
use crate::types::index::{DeclaredIndex, Extract};
use crate::types::index_entry::ExtractedKeys;
use crate::types::isolation::Isolation;
use crate::types::limits::{FIRST_PAGED_INDEX, MAX_KEY_BYTES};
use crate::types::lock_options::LockWait;

/// Rows that are read at once.
const BATCH_ROWS: u64 = 1024;
/// Maximum bytes of entries that are sorted at once, beside a quarter of the memory for pages.
const MOST_SORT_BYTES: usize = 48 << 20;

/// Index keys of a row, and key and value of an entry.
type EntryBuffers = (ExtractedKeys, Vec<u8>, Vec<u8>);

/// Returns the error for a number of an index that cannot be one.
fn damaged(what: String) -> Storage {
    let place = format!("table {}", INDEX_TREES.name());
    Storage::Damaged { place, what }
}

/// Records which numbers indexes have, when a database is opened, and returns them by name. Trees
/// that no index has are freed.
pub(super) fn recall(engine: &Arc<Engine>, worker: &Worker) -> Result<HashMap<String, u32>> {
    let mut numbers = HashMap::new();
    if let Some(table) = engine.catalog.find(INDEX_TREES.name()) {
        let guard = worker.pin();
        let mut rows = table.resident().forward(&guard, Bound::Unbounded);
        while let Some(row) = rows.next_record() {
            let mut hazard = guard.hazard();
            if let Some(value) = row.value(&mut hazard) {
                let name = IndexName::decode(row.key());
                let name = name.map_err(|error| damaged(error.to_string()))?;
                let number = <u64 as Value>::decode(value);
                let number = number.map_err(|error| damaged(error.to_string()))?;
                let number = checked_number(number)?;
                engine.catalog.know_paged_index(number);
                numbers.insert(name, number);
            }
        }
    }
    let Some(pages) = engine.pages().filter(|pages| !pages.is_read_only()) else {
        return Ok(numbers);
    };
    let used: HashSet<u32> = numbers.values().copied().collect();
    let of_indexes = u64::from(FIRST_PAGED_INDEX) + 1..=u64::from(u32::MAX);
    let trees = pages.directory.numbers(worker, of_indexes);
    for tree in trees.map_err(|error| pages.failed(&error))? {
        let number = checked_number(tree - 1)?;
        // So no new index gets it.
        engine.catalog.know_paged_index(number);
        if !used.contains(&number) {
            let entries = engine.catalog.dropped_entries(number);
            former_rows::free_later(engine, worker, entries);
        }
    }
    Ok(numbers)
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

/// An index that is being made. Unless it is finished, its tree is freed.
pub(super) struct UnfinishedIndex {
    engine: Arc<Engine>,
    /// The entries, which no other thread knows.
    entries: Option<Arc<OpenTable>>,
}

impl UnfinishedIndex {
    /// Records that the transaction with the index is certain to commit.
    pub(super) fn finish(mut self) {
        self.entries = None;
    }
}

impl Drop for UnfinishedIndex {
    fn drop(&mut self) {
        if let Some(entries) = self.entries.take() {
            entries.place.set(RowsPlace::Dropped);
            let worker = self.engine.workers.worker();
            former_rows::free_later(&self.engine, &worker, entries);
        }
    }
}

/// Makes the tree of a new index of `table`, which is locked, with the entries of all rows.
pub(super) fn make(
    tx: &mut Transaction,
    table: &Arc<OpenTable>,
    extract: &Arc<Extract>,
    record: IndexRecord,
    progress: Option<&ProgressCall>,
) -> Result<(OpenIndex, UnfinishedIndex)> {
    let engine = tx.attach()?.ctx.engine.clone();
    engine.check_writable()?;
    let entries = make_tree(&engine, &tx.attach()?.ctx.worker, table, &record)?;
    let unfinished = UnfinishedIndex {
        engine,
        entries: Some(entries.clone()),
    };
    let number = u64::from(entries.record.id);
    let open = OpenIndex::new(record, entries, extract.clone());
    tx.put(&INDEX_TREES, &IndexName(&open.record.name), &number)?;
    let bound = &mut *tx.attach()?;
    let meter = ProgressMeter::new(progress, OpenPhase::Index, 0);
    IndexLoad::new(bound, &open).fill(bound, table, &meter)?;
    meter.end();
    Ok((open, unfinished))
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

/// Entries of an index that no other transaction knows, on their way into its tree.
struct IndexLoad<'i> {
    index: &'i OpenIndex,
    /// Place of the index among the cached tables.
    place: usize,
    entries: SortedEntries,
    /// True if no entries were stored yet.
    is_empty: bool,
    size: PageSize,
}

impl<'i> IndexLoad<'i> {
    fn new(bound: &mut BoundTxn, index: &'i OpenIndex) -> IndexLoad<'i> {
        let memory = bound.ctx.engine.options.page_memory / 4;
        let pages = bound.ctx.engine.pages().expect("the table is paged");
        IndexLoad {
            index,
            size: pages.pool().page_size(),
            place: bound.ctx.cached_entries(index.entries.clone()),
            entries: SortedEntries::new(memory.min(MOST_SORT_BYTES)),
            is_empty: true,
        }
    }

    /// Stores the entries of all rows of `table`.
    fn fill(
        mut self,
        bound: &mut BoundTxn,
        table: &Arc<OpenTable>,
        meter: &ProgressMeter<'_>,
    ) -> Result<()> {
        let place = bound.ctx.cached_entries(table.clone());
        let mut found = EntryBuffers::default();
        bound.txn.scan.begin::<[u8]>(&.., |_, _| Ok(()))?;
        while !bound.txn.scan.is_finished() {
            let (mut rows, mut added) = (0, Ok(()));
            without_locks(bound, |bound| {
                bound.block_on(LockWait::Default, |bound| {
                    bound.scan_step(place, &mut |primary, row| {
                        rows += 1;
                        added = self.add_entries(primary, row, &mut found);
                        match added.is_ok() && rows < BATCH_ROWS && !self.entries.is_full() {
                            true => ControlFlow::Continue(()),
                            false => ControlFlow::Break(()),
                        }
                    })
                })
            })?;
            added?;
            meter.advance(rows);
            if self.entries.is_full() {
                self.store(bound)?;
            }
        }
        self.store(bound)
    }

    /// Adds the entries of one row.
    fn add_entries(
        &mut self,
        primary: &[u8],
        row: &[u8],
        (found, key, value): &mut EntryBuffers,
    ) -> Result<()> {
        let index = self.index;
        extract(index, primary, Some(row), found)?;
        for index_key in found.iter() {
            key.clear();
            value.clear();
            index.kind.write_key(index_key, primary, key);
            if key.len() > MAX_KEY_BYTES {
                return Err(too_long(index, primary, key.len()).into());
            }
            index.kind.write_value(index_key.len(), primary, value);
            let (bytes, most) = (key.len() + value.len(), self.size.max_row_bytes());
            if key.len() > self.size.max_key_bytes() || bytes > most {
                let most = most.min(self.size.max_key_bytes());
                return Err(Request::RowTooLong { bytes, most }.into());
            }
            self.entries.push(key, value);
        }
        Ok(())
    }

    /// Sorts and stores the entries that were added.
    fn store(&mut self, bound: &mut BoundTxn) -> Result<()> {
        self.entries.sort();
        for at in 1..self.entries.len() {
            let (before, (key, value)) = (self.entries.entry(at - 1), self.entries.entry(at));
            if before.0 == key {
                return Err(self.taken(key, before.1, value).into());
            }
        }
        let mut load = match self.is_empty {
            true => bound.block_on(LockWait::Default, |bound| bound.begin_load_step(self.place))?,
            false => None,
        };
        self.is_empty = false;
        for at in 0..self.entries.len() {
            bound.ctx.worker.failpoints().pass(&failpoint::INSERTING);
            let (key, value) = self.entries.entry(at);
            let Some(load) = &mut load else {
                let there = bound.block_on(LockWait::Default, |bound| {
                    bound.add_entry_step(self.place, (key, value))
                })?;
                if let Some(there) = there {
                    return Err(self.taken(key, &there, value).into());
                }
                continue;
            };
            load.push(key, value.to_vec(), RowFlags::NONE);
            if load.is_due() {
                bound.block_on(LockWait::Default, |bound| bound.load_step(self.place, load))?;
            }
        }
        if let Some(load) = &mut load {
            let place = self.place;
            bound.block_on(LockWait::Default, |bound| {
                bound.store_load_step(place, load)
            })?;
        }
        self.entries.clear();
        Ok(())
    }

    /// Returns the error for an entry whose key another one has, given by their values.
    fn taken(&self, key: &[u8], there: &[u8], refused: &[u8]) -> IndexError {
        let index = self.index;
        let (index_key, row) = index.kind.read(key, there);
        IndexError::KeyTaken(KeyTaken {
            index: index.record.name.clone(),
            table: index.record.table.clone(),
            key: index_key.to_vec(),
            row: row.to_vec(),
            refused: index.kind.read(key, refused).1.to_vec(),
        })
    }
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
