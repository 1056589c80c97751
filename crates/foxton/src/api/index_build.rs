//! Making, filling and dropping indexes.
//!
//! An index is made and filled under a lock on its table that readers share and writers do not (SIX), and
//! dropped under locks on the whole of both (X). So nobody writes to the table while which indexes are kept
//! with it changes (`catalog`, I3), nobody reads by an index that is being dropped, and a writer who comes
//! after looks before it writes. The row that says that the index exists is written in the same
//! transaction; the entries are stored nowhere.
//!
//! What is filled is read by several threads: each takes the next few rows, reads the keys off them, and
//! puts the entries in. Nobody looks at the index before it is whole.

use std::ops::Bound;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use foxton_lock::mode::Mode;
use foxton_lock::name::Name;
use foxton_store::memory::{NewRecord, Next, Record, VALUE};
use foxton_sync::epoch::Guard;
use foxton_sync::shim::{self, Mutex};
use foxton_sync::worker::Worker;

use crate::api::transaction::Transaction;
use crate::catalog::index_catalog::{INDEXES, IndexName, IndexRecord};
use crate::catalog::{OpenIndex, OpenTable};
use crate::engine::Engine;
use crate::error::{IndexError, KeyTaken, Result, Storage};
use crate::options::progress::{OpenPhase, ProgressCall, ProgressMeter};
use crate::txn::bound::BoundTxn;
use crate::txn::context::WorkerContext;
use crate::txn::index_plan::extract;
use crate::txn::table_locks::TableLocks;
use crate::types::codec::Undecodable;
use crate::types::index::DeclaredIndex;
use crate::types::index_entry::ExtractedKeys;
use crate::types::limits::{MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES};
use crate::types::lock_options::LockWait;

/// Rows that a thread takes at once.
const BATCH: usize = 512;
/// Rows for which another thread is worth its while.
const ROWS_PER_THREAD: u64 = 4096;

/// Takes down which indexes exist, when a database is opened. None of them is declared yet.
pub(crate) fn recall(engine: &Engine) -> Result<()> {
    let Some(table) = engine.catalog.find(INDEXES.name()) else {
        return Ok(());
    };
    let worker = engine.workers.worker();
    let guard = worker.pin();
    let mut rows = table.rows.forward(&guard, Bound::Unbounded);
    while let Some(row) = rows.next_record() {
        let mut hazard = guard.hazard();
        let Some(value) = row.value(&mut hazard) else {
            continue;
        };
        let record = IndexRecord::decode(row.key(), value).map_err(|error| Storage::Damaged {
            place: format!("table {}", INDEXES.name()),
            what: error.to_string(),
        })?;
        if let Some(table) = engine.catalog.find(&record.table)
            && record.is_unique()
        {
            let name = record.name.clone();
            table.kept.change(|set| set.undeclared.push(name));
        }
        engine.catalog.know(record, None);
    }
    Ok(())
}

/// Sees to it that an index exists and is open; to be committed by the caller, at once.
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
    let mut bound = tx.up()?;
    let table = bound.ctx.resolve(declared.table, key_type, value_type)?;
    lock_whole(&mut bound, &table, Mode::SIX)?;
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
    let set = table.kept.set(&tx.up()?.ctx.worker);
    if set.open.iter().any(|open| open.record.name == name) {
        return Ok(());
    }
    let engine = tx.up()?.ctx.engine.clone();
    let entries = engine.catalog.entries(&record, &table);
    let open = OpenIndex::new(record, entries, declared.extract.clone());
    fill(&engine, &table, &open, progress)?;
    if is_new {
        tx.put(&INDEXES, &IndexName(name), &open.record.to_row())?;
    }
    let open = Arc::new(open);
    engine.catalog.know(open.record.clone(), Some(open.clone()));
    table.kept.change(|set| {
        set.undeclared.retain(|undeclared| undeclared != name);
        set.open.push(open);
    });
    Ok(())
}

/// Forgets an index; to be committed by the caller, at once. Returns it, if it exists.
pub(crate) fn forget(tx: &mut Transaction, name: &str) -> Result<Option<Forgotten>> {
    let engine = tx.up()?.ctx.engine.clone();
    let Some(known) = engine.catalog.index(name) else {
        return Ok(None);
    };
    let table = engine.catalog.find(&known.record.table);
    if let Some(table) = &table {
        lock_whole(&mut *tx.up()?, table, Mode::X)?;
    }
    // Somebody may have dropped it, or declared it, while we waited for the lock.
    let open = match engine.catalog.index(name) {
        Some(now) if now.record.table == known.record.table => now.open,
        // Of another table, whose lock we do not have: it was made after the one that was to be dropped had gone.
        _ => return Ok(None),
    };
    if let Some(open) = &open {
        lock_whole(&mut *tx.up()?, &open.entries, Mode::X)?;
    }
    tx.delete(&INDEXES, &IndexName(name))?;
    if let Some(open) = &open {
        open.set_dropped();
    }
    if let Some(table) = &table {
        table.kept.change(|set| {
            set.undeclared.retain(|undeclared| undeclared != name);
            set.open.retain(|open| open.record.name != name);
        });
    }
    engine.catalog.forget(name);
    Ok(Some(Forgotten(open)))
}

/// An index that does not exist any more, and its entries.
pub(crate) struct Forgotten(Option<Arc<OpenIndex>>);

impl Forgotten {
    /// Gives back the memory of the entries. Nobody looks at them any more; workers that have not met
    /// their table since still know where they are.
    pub(crate) fn clear(self, worker: &Worker) {
        let Some(open) = self.0 else { return };
        let rows = &open.entries.rows;
        loop {
            let guard = worker.pin();
            let mut cursor = rows.forward(&guard, Bound::Unbounded);
            let next = std::iter::from_fn(|| cursor.next_record());
            let batch: Vec<&Record> = next.take(BATCH).collect();
            if batch.is_empty() {
                return;
            }
            for record in batch {
                worker.account().passed(&VALUE);
                if let Some(value) = record.swap(None, &guard) {
                    value.retire(guard.participant());
                }
                // If it is gone already, so much the better.
                let _ = rows.remove(&guard, record, Next::Any);
            }
        }
    }
}

/// Locks the whole of a table, or of an index.
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

/// How far the rows of a table have been given out.
enum Given {
    Nothing,
    UpTo(Vec<u8>),
    Everything,
}

/// What all threads that fill an index share.
struct Filling<'f> {
    table: &'f OpenTable,
    index: &'f OpenIndex,
    given: Mutex<Given>,
    meter: ProgressMeter<'f>,
}

/// Puts the entries of all rows into an index that is empty and that nobody looks at. Nobody writes to
/// the table meanwhile.
fn fill(
    engine: &Engine,
    table: &OpenTable,
    index: &OpenIndex,
    progress: Option<&ProgressCall>,
) -> Result<()> {
    let worker = engine.workers.worker();
    let rows = table.rows.len_estimate(&worker.pin());
    let filling = Filling {
        table,
        index,
        given: Mutex::new(Given::Nothing),
        meter: ProgressMeter::new(progress, OpenPhase::Index, rows),
    };
    let useful = usize::try_from(rows / ROWS_PER_THREAD).unwrap_or(usize::MAX);
    let threads = engine.options.threads_for_restart().min(useful).max(1);
    let filled = thread::scope(|scope| {
        let filling = &filling;
        let start = |_| {
            let worker = engine.workers.worker();
            let name = "foxton-index".to_owned();
            let work = move || filling.work(&worker);
            // Without a thread, this one does more.
            let spawned = thread::Builder::new().name(name).spawn_scoped(scope, work);
            spawned.ok()
        };
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let mut filled = filling.work(&worker);
        for other in others {
            let joined = other.join().unwrap_or_else(|panic| resume_unwind(panic));
            filled = filled.and(joined);
        }
        filled
    });
    filling.meter.end();
    filled
}

impl Filling<'_> {
    fn work(&self, worker: &Worker) -> Result<()> {
        let mut found = ExtractedKeys::default();
        loop {
            let guard = worker.pin();
            let batch = self.next(&guard);
            if batch.is_empty() {
                return Ok(());
            }
            for row in &batch {
                if let Err(error) = self.put_in(&guard, row, &mut found) {
                    // The others need not go on.
                    *shim::lock(&self.given) = Given::Everything;
                    return Err(error);
                }
            }
            self.meter.advance(batch.len() as u64);
        }
    }

    /// The next rows; none, if all are given out.
    fn next<'g>(&'g self, guard: &'g Guard<'_>) -> Vec<&'g Record> {
        let mut given = shim::lock(&self.given);
        let from = match &*given {
            Given::Nothing => Bound::Unbounded,
            Given::UpTo(key) => Bound::Excluded(&key[..]),
            Given::Everything => return Vec::new(),
        };
        let mut cursor = self.table.rows.forward(guard, from);
        let next = std::iter::from_fn(|| cursor.next_record());
        let batch: Vec<&Record> = next.take(BATCH).collect();
        *given = match batch.last() {
            Some(last) => Given::UpTo(last.key().to_vec()),
            None => Given::Everything,
        };
        batch
    }

    /// Puts in the entries of one row.
    fn put_in(&self, guard: &Guard<'_>, row: &Record, found: &mut ExtractedKeys) -> Result<()> {
        let (index, primary) = (self.index, row.key());
        extract(index, primary, row.value(&mut guard.hazard()), found)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for index_key in found.iter() {
            key.clear();
            value.clear();
            index.kind.write_key(index_key, primary, &mut key);
            if key.len() > MAX_KEY_BYTES {
                let (index, bytes) = (index.record.name.clone(), key.len());
                return Err(IndexError::KeyTooLong { index, bytes }.into());
            }
            index.kind.write_value(index_key.len(), primary, &mut value);
            let rows = &index.entries.rows;
            let record = NewRecord::new(&key, Some(&value))?;
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

/// Compares an open index with its table, under locks on the whole of both, and tells `note` what is
/// wrong: with which row or entry, and what.
pub(crate) fn compare(
    tx: &mut Transaction,
    index: &OpenIndex,
    mut note: impl FnMut(&[u8], &str),
) -> Result<()> {
    let bound = &mut *tx.up()?;
    let entries = &*index.entries;
    let table = entries.of.as_deref().expect("entries lead to a table");
    lock_whole(bound, table, Mode::S)?;
    lock_whole(bound, entries, Mode::S)?;
    if index.is_dropped() {
        return Ok(());
    }
    let mut found = ExtractedKeys::default();
    walk(&bound.ctx.worker, table, |guard, row| {
        extract(index, row.key(), row.value(&mut guard.hazard()), &mut found)?;
        for index_key in found.iter() {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            index.kind.write_key(index_key, row.key(), &mut key);
            index
                .kind
                .write_value(index_key.len(), row.key(), &mut value);
            let mut hazard = guard.hazard();
            let entry = entries.rows.get(guard, &key);
            match entry.and_then(|entry| entry.value(&mut hazard)) {
                None => note(row.key(), "it is not in the index"),
                Some(there) if there != value => {
                    note(row.key(), "the index leads to another row instead");
                }
                Some(_) => {}
            }
        }
        Ok(())
    })?;
    walk(&bound.ctx.worker, entries, |guard, entry| {
        let (mut of_entry, mut of_row) = (guard.hazard(), guard.hazard());
        let Some(value) = entry.value(&mut of_entry) else {
            return Ok(());
        };
        let (index_key, primary) = index.kind.read(entry.key(), value);
        let row = table.rows.get(guard, primary);
        let row = row.and_then(|row| row.value(&mut of_row));
        match row {
            None => note(primary, "the index leads to it, and it is not there"),
            Some(row) => {
                extract(index, primary, Some(row), &mut found)?;
                if !found.contains(index_key) {
                    note(primary, "the index has it by a key that it does not have");
                }
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Calls `look` with all records of a table that nobody changes.
fn walk(
    worker: &Worker,
    table: &OpenTable,
    mut look: impl FnMut(&Guard<'_>, &Record) -> Result<(), Undecodable>,
) -> Result<()> {
    let mut position: Option<Vec<u8>> = None;
    loop {
        let guard = worker.pin();
        let from = match &position {
            None => Bound::Unbounded,
            Some(key) => Bound::Excluded(&key[..]),
        };
        let mut cursor = table.rows.forward(&guard, from);
        let next = std::iter::from_fn(|| cursor.next_record());
        let batch: Vec<&Record> = next.take(BATCH).collect();
        let Some(last) = batch.last() else {
            return Ok(());
        };
        let past = last.key().to_vec();
        for record in batch {
            look(&guard, record)?;
        }
        position = Some(past);
    }
}
