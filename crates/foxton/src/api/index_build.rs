//! Index build: making, filling and dropping indexes.
//!
//! An index is made and filled under a lock on its table that readers share and writers do not
//! (SIX). It is dropped under locks on the whole of both (X). So three things hold:
//!
//! * While the set of indexes of a table changes, no transaction writes to the table (`catalog`,
//!   I3).
//! * While an index is being dropped, no transaction reads by it.
//! * A later writer reads the set of indexes after it has the table's lock, and before it writes.
//!
//! The row that records the index is written in the same transaction. The catalog changes when that
//! is certain to commit, before it releases its locks.
//!
//! Entries of a table in memory are not stored. Those of a paged table are in a tree, which is
//! filled under the same lock ([`paged_index_build`](super::paged_index_build)). Such an index
//! is as it was left when the database is opened again.
//!
//! Several threads fill an index: each takes the next few rows, extracts their index keys, and
//! inserts the entries. No transaction reads the index before it is complete.

use std::ops::Bound;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use foxton_lock::mode::Mode;
use foxton_lock::name::Name;
use foxton_store::memory::{NewRecord, Next, Record, RecordTable, VALUE};
use foxton_sync::epoch::Guard;
use foxton_sync::shim::{self, Mutex};
use foxton_sync::worker::Worker;

use crate::api::paged_index_build;
use crate::api::transaction::Transaction;
use crate::catalog::index_catalog::{INDEX_TREES, INDEXES, IndexName, IndexRecord};
use crate::catalog::resident_memory::{ResidentMemory, counted_bytes};
use crate::catalog::table_store::TableStore;
use crate::catalog::{NamedTable, OpenIndex, OpenTable, UnmaintainedIndex};
use crate::engine::Engine;
use crate::error::{IndexError, KeyTaken, Result, Storage};
use crate::options::progress::{OpenPhase, ProgressCall, ProgressMeter};
use crate::txn::bound::BoundTxn;
use crate::txn::context::WorkerContext;
use crate::txn::former_rows;
use crate::txn::index_plan::{extract, too_long};
use crate::txn::table_locks::TableLocks;
use crate::types::index::DeclaredIndex;
use crate::types::index_entry::ExtractedKeys;
use crate::types::limits::{MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES};
use crate::types::lock_options::LockWait;

/// Number of rows that a thread takes at once.
const BATCH: usize = 512;
/// Number of rows that justify another thread.
const ROWS_PER_THREAD: u64 = 4096;

/// Records which indexes exist, when a database is opened. None of them is declared yet.
pub(crate) fn recall(engine: &Arc<Engine>) -> Result<()> {
    let worker = engine.workers.worker();
    let trees = paged_index_build::recall(engine, &worker)?;
    let Some(table) = engine.catalog.find(INDEXES.name()) else {
        return Ok(());
    };
    let guard = worker.pin();
    let mut rows = table.resident().forward(&guard, Bound::Unbounded);
    while let Some(row) = rows.next_record() {
        let mut hazard = guard.hazard();
        let Some(value) = row.value(&mut hazard) else {
            continue;
        };
        let record = IndexRecord::decode(row.key(), value).map_err(|error| Storage::Damaged {
            place: format!("table {}", INDEXES.name()),
            what: error.to_string(),
        })?;
        let name = record.name.clone();
        match engine.catalog.find(&record.table) {
            Some(table) if record.is_unique() => {
                table.kept.change(|set| set.undeclared.push(name));
            }
            // Without a tree it is stale already.
            Some(table) if trees.contains_key(&name) => {
                let number = trees[&name];
                table
                    .kept
                    .change(|set| set.unmaintained.push(UnmaintainedIndex { name, number }));
            }
            _ => {}
        }
        engine.catalog.know(record, None);
    }
    Ok(())
}

/// Makes an index, unless it exists, and opens it. The caller must commit at once.
pub(crate) fn create(
    tx: &mut Transaction,
    declared: &DeclaredIndex,
    progress: Option<&ProgressCall>,
) -> Result<()> {
    let name = declared.name;
    if name.is_empty() || name.len() > MAX_TABLE_NAME_BYTES {
        return Err(IndexError::Name { bytes: name.len() }.into());
    }
    let (key_type, value_type) = &declared.table_types;
    let mut bound = tx.attach()?;
    let named = NamedTable {
        name: declared.table,
        key_type,
        value_type,
        component: declared.component,
    };
    let table = loop {
        let table = bound.block_on(LockWait::Default, |bound| {
            bound.make_table_step(named, LockWait::Default)
        })?;
        let table = table.expect("a request that waits is not skipped");
        lock_whole(&mut bound, &table, Mode::SIX)?;
        // It may have been converted during the wait.
        if !table.is_former() {
            break table;
        }
    };
    drop(bound);
    let record = IndexRecord {
        name: name.to_owned(),
        table: declared.table.to_owned(),
        key_type: (declared.key_type.to_string(), declared.key_type.hash()),
        kind: declared.kind,
        version: declared.version,
    };
    let stored = tx.get_for_update(&INDEXES, &IndexName(name))?;
    let is_new = stored.is_none();
    if let Some(row) = stored {
        let stored = IndexRecord::of_row(name.to_owned(), row);
        if !stored.agrees(&record) {
            return Err(stored.differs_from(&record).into());
        }
    }
    let set = table.kept.set(&tx.attach()?.ctx.worker);
    if set.open.iter().any(|open| open.record.name == name) {
        return Ok(());
    }
    let engine = tx.attach()?.ctx.engine.clone();
    let (open, unfinished) = match table.is_paged() {
        false => {
            let entries = engine.catalog.entries(&record, &table, None);
            entries.hide_from_snapshots();
            let open = OpenIndex::new(record, entries, declared.extract.clone());
            fill(&engine, &table, &open, progress)?;
            (open, None)
        }
        // One that has no tree is stale, or was declared for a table in memory, which was converted
        // since.
        true if is_new || tx.get(&INDEX_TREES, &IndexName(name))?.is_none() => {
            let extract = &declared.extract;
            let (open, new) = paged_index_build::make(tx, &table, extract, record, progress)?;
            (open, Some(new))
        }
        true => (paged_index_build::open(tx, &table, declared, record)?, None),
    };
    // One that was opened to be read has the index as long as it is open.
    if is_new && engine.check_writable().is_ok() {
        tx.put(&INDEXES, &IndexName(name), &open.record.to_row())?;
    }
    let open = Arc::new(open);
    tx.attach()?.txn.on_commit = Some(Box::new(move |catalog| {
        open.entries.show_to_snapshots(engine.persistence.front());
        catalog.know(open.record.clone(), Some(open.clone()));
        table.kept.change(|set| {
            set.forget(&open.record.name);
            set.open.push(open);
        });
        if let Some(unfinished) = unfinished {
            unfinished.finish();
        }
    }));
    Ok(())
}

/// Forgets an index, and returns it if it existed. The caller must commit at once.
pub(crate) fn forget(tx: &mut Transaction, name: &str) -> Result<Option<Forgotten>> {
    let engine = tx.attach()?.ctx.engine.clone();
    let Some(known) = engine.catalog.index(name) else {
        return Ok(None);
    };
    let table = loop {
        let table = engine.catalog.find(&known.record.table);
        if let Some(table) = &table {
            lock_whole(&mut *tx.attach()?, table, Mode::X)?;
            // It may have been converted during the wait.
            if table.is_former() {
                continue;
            }
        }
        break table;
    };
    // Another transaction may have dropped or declared the index during the wait for the lock.
    let open = match engine.catalog.index(name) {
        Some(now) if now.record.table == known.record.table => now.open,
        // The index is of another table, which is not locked: it was made after the one to drop had
        // been dropped.
        _ => return Ok(None),
    };
    if let Some(open) = &open {
        lock_whole(&mut *tx.attach()?, &open.entries, Mode::X)?;
    }
    tx.delete(&INDEXES, &IndexName(name))?;
    let tree = match table.as_ref().is_some_and(|table| table.is_paged()) {
        true => paged_index_build::forget(tx, name)?,
        false => None,
    };
    let forgotten = match &open {
        Some(open) => Some(open.entries.clone()),
        None => tree,
    };
    let (name, dropped) = (name.to_owned(), open);
    tx.attach()?.txn.on_commit = Some(Box::new(move |catalog| {
        if let Some(open) = dropped {
            open.set_dropped();
        }
        if let Some(table) = table {
            table.kept.change(|set| {
                set.forget(&name);
                set.open.retain(|open| open.record.name != name);
            });
        }
        catalog.forget(&name);
    }));
    Ok(Some(Forgotten(forgotten)))
}

/// The entries of an index that does not exist any more, if there are some.
pub(crate) struct Forgotten(pub(super) Option<Arc<OpenTable>>);

impl Forgotten {
    /// Frees the memory of the entries, or their pages. No transaction reads them any more; workers
    /// that have not used their table since still have a reference to it.
    ///
    /// # Errors
    /// If a page cannot be read, or the log takes nothing more. The next opening frees the rest.
    pub(crate) fn clear(self, engine: &Arc<Engine>, worker: &Worker) -> Result<()> {
        let Some(entries) = self.0 else { return Ok(()) };
        match &entries.store {
            TableStore::Resident(rows) => {
                clear_resident(rows, worker, &engine.catalog.resident);
                Ok(())
            }
            TableStore::Paged(_) => former_rows::free_or_later(engine, worker, &entries),
        }
    }
}

fn clear_resident(rows: &RecordTable, worker: &Worker, memory: &ResidentMemory) {
    loop {
        let guard = worker.pin();
        let mut cursor = rows.forward(&guard, Bound::Unbounded);
        let next = std::iter::from_fn(|| cursor.next_record());
        let batch: Vec<&Record> = next.take(BATCH).collect();
        if batch.is_empty() {
            return;
        }
        let mut counted = 0;
        for record in batch {
            worker.account().passed(&VALUE);
            if let Some(value) = record.swap(None, &guard) {
                counted += counted_bytes(record.key(), Some(&[]));
                value.retire(guard.participant());
            }
            // The record may have been removed already.
            let _ = rows.remove(&guard, record, Next::Any);
        }
        memory.add(-counted, worker);
    }
}

/// Locks the whole of a table, or of the entries of an index.
pub(crate) fn lock_whole(bound: &mut BoundTxn, table: &OpenTable, mode: Mode) -> Result<()> {
    bound.block_on(LockWait::Default, |bound| {
        let WorkerContext {
            engine,
            worker,
            owner,
            ..
        } = &mut bound.ctx;
        let mut locks = TableLocks::new(engine, worker, owner, table, LockWait::Default);
        locks.lock_table_name(Name::table(table.record.id), mode)
    })
}

/// Rows of a table that threads have taken.
enum RowsTaken {
    Nothing,
    UpTo(Vec<u8>),
    Everything,
}

/// Index that several threads fill.
struct IndexFill<'f> {
    table: &'f OpenTable,
    index: &'f OpenIndex,
    taken: Mutex<RowsTaken>,
    memory: &'f ResidentMemory,
    meter: ProgressMeter<'f>,
}

/// Inserts the entries of all rows into an empty index that no transaction reads, while no
/// transaction writes to the table.
pub(super) fn fill(
    engine: &Engine,
    table: &OpenTable,
    index: &OpenIndex,
    progress: Option<&ProgressCall>,
) -> Result<()> {
    let worker = engine.workers.worker();
    let rows = table.resident().len_estimate(&worker.pin());
    let fill = IndexFill {
        table,
        index,
        taken: Mutex::new(RowsTaken::Nothing),
        memory: &engine.catalog.resident,
        meter: ProgressMeter::new(progress, OpenPhase::Index, rows),
    };
    let useful = usize::try_from(rows / ROWS_PER_THREAD).unwrap_or(usize::MAX);
    let threads = engine.options.threads_for_restart().min(useful).max(1);
    let filled = thread::scope(|scope| {
        let fill = &fill;
        let start = |_| {
            let worker = engine.workers.worker();
            let name = "foxton-index".to_owned();
            let work = move || fill.work(&worker);
            // If no thread can be started, this one fills more.
            let spawned = thread::Builder::new().name(name).spawn_scoped(scope, work);
            spawned.ok()
        };
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let mut filled = fill.work(&worker);
        for other in others {
            let joined = other.join().unwrap_or_else(|panic| resume_unwind(panic));
            filled = filled.and(joined);
        }
        filled
    });
    fill.meter.end();
    filled
}

impl IndexFill<'_> {
    fn work(&self, worker: &Worker) -> Result<()> {
        let mut found = ExtractedKeys::default();
        loop {
            let guard = worker.pin();
            let batch = self.next(&guard);
            if batch.is_empty() {
                return Ok(());
            }
            let mut counted = 0;
            for row in &batch {
                let inserted = self.insert_entries(&guard, row, (&mut found, &mut counted));
                if let Err(error) = inserted {
                    // The other threads need not continue.
                    *shim::lock(&self.taken) = RowsTaken::Everything;
                    return Err(error);
                }
            }
            self.memory.add(counted, worker);
            self.meter.advance(batch.len() as u64);
        }
    }

    /// Returns the next rows; none, if threads have taken all.
    fn next<'g>(&'g self, guard: &'g Guard<'_>) -> Vec<&'g Record> {
        let mut taken = shim::lock(&self.taken);
        let from = match &*taken {
            RowsTaken::Nothing => Bound::Unbounded,
            RowsTaken::UpTo(key) => Bound::Excluded(&key[..]),
            RowsTaken::Everything => return Vec::new(),
        };
        let mut cursor = self.table.resident().forward(guard, from);
        let next = std::iter::from_fn(|| cursor.next_record());
        let batch: Vec<&Record> = next.take(BATCH).collect();
        *taken = match batch.last() {
            Some(last) => RowsTaken::UpTo(last.key().to_vec()),
            None => RowsTaken::Everything,
        };
        batch
    }

    /// Inserts the entries of one row.
    fn insert_entries(
        &self,
        guard: &Guard<'_>,
        row: &Record,
        (found, counted): (&mut ExtractedKeys, &mut i64),
    ) -> Result<()> {
        let (index, primary) = (self.index, row.key());
        extract(index, primary, row.value(&mut guard.hazard()), found)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for index_key in found.iter() {
            key.clear();
            value.clear();
            index.kind.write_key(index_key, primary, &mut key);
            if key.len() > MAX_KEY_BYTES {
                return Err(too_long(index, primary, key.len()).into());
            }
            index.kind.write_value(index_key.len(), primary, &mut value);
            let rows = index.entries.resident();
            let record = NewRecord::new(&key, Some(&value))?;
            *counted += counted_bytes(&key, Some(&[])); // As writes count it.
            if rows.insert(guard, record, Next::Any).is_err() {
                let mut hazard = guard.hazard();
                let there = rows.get(guard, &key);
                let there = there.and_then(|record| record.value(&mut hazard));
                let row = there.map(|value| index.kind.read(&key, value).1.to_vec());
                return Err(IndexError::KeyTaken(KeyTaken {
                    index: index.record.name.clone(),
                    table: index.record.table.clone(),
                    key: index_key.to_vec(),
                    row: row.unwrap_or_default(),
                    refused: primary.to_vec(),
                })
                .into());
            }
        }
        Ok(())
    }
}
