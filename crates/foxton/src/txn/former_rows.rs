//! Rows that are garbage: those of a table that was converted, truncated or dropped, and those that
//! a killed or failed conversion has copied. So are the entries of a paged index that was dropped,
//! became stale or was not finished.
//!
//! No transaction uses such a table (`catalog::conversions`, I4). So its rows go without undo, some
//! at a time, each time under a lock on the whole table in an owner of its own, which is requested
//! without waiting. The call that made them garbage frees them when it is done. The background
//! thread frees those of indexes that became stale or were not finished, and those that an opening
//! finds. A kill in between leaves fewer.
//!
//! * Rows *in memory* are logged as deleted, in a record of their own, so that no checkpoint has
//!   them any more. Then they are removed.
//! * Rows *in pages* go with their leaves ([`FreeStep`]). A tree that may get rows again keeps an
//!   empty root; one that was dropped goes for good. A large value is marked before its row goes,
//!   and freed because no row has it ([`free_values`](super::paged)). Between the two no thread
//!   looks whether a row has it.
//!
//! No row records the tree of such an index. So an opening takes each tree of an index that no row
//! has for garbage. Its number is not used again before it is gone from the directory, and the file
//! was opened anew.

use std::ops::Bound;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use foxton_lock::manager::LockManager;
use foxton_lock::mode::Mode;
use foxton_lock::name::Name;
use foxton_store::memory::{Next, Record, RecordTable, VALUE};
use foxton_store::paged::btree::{FreeStep, PagedTree, ScanDirection, ScanRange, TreeError};
use foxton_store::paged::page::{LeafRows, RowFlags};
use foxton_store::paged::values::{LargeValue, MarkedRow, mark_key};
use foxton_sync::shim;
use foxton_sync::worker::Worker;

use super::begin::ALONE;
use super::paged::examine_marked;
use super::table_locks::request_now;
use crate::catalog::OpenTable;
use crate::catalog::conversions::RowsPlace;
use crate::catalog::resident_memory::counted_bytes;
use crate::catalog::table_store::{PagedRows, TableStore};
use crate::engine::Engine;
use crate::engine::large_values::LARGE_VALUES;
use crate::engine::page_store::{OpenPages, tree_number};
use crate::error::Result;
use crate::options::Locking;
use crate::redo::record::{self, Effect, RedoForm, RowChange};

/// Rows that go at once.
const STEP: usize = 256;
/// Pages that become free at once.
const STEP_PAGES: usize = 16;
/// Bytes of keys after which a step ends.
const STEP_BYTES: usize = 64 << 10;
/// Pause between two steps of the background thread.
const PAUSE: Duration = Duration::from_millis(1);
/// Pause if the table is locked.
const LONG_PAUSE: Duration = Duration::from_millis(20);

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowsLeft {
    /// There are none left, or none that can go.
    Done,
    /// Some are left.
    Partly,
    /// The table is locked.
    Locked,
    /// It is none whose rows may go.
    Used,
}

/// Frees all rows of a former table. Returns false if transactions have kept it locked for as long
/// as a request waits. With `is_alone` the caller has the only transaction, and nothing is locked.
///
/// # Errors
/// If the log takes nothing more, or a page cannot be read.
pub(crate) fn free_all(
    engine: &Arc<Engine>,
    worker: &Worker,
    table: &Arc<OpenTable>,
    is_alone: bool,
) -> Result<bool> {
    let mut begun = Instant::now();
    loop {
        let freed = match is_alone {
            true => free(engine, worker, table),
            false => step(engine, worker, table),
        };
        match freed? {
            RowsLeft::Partly => begun = Instant::now(),
            RowsLeft::Done | RowsLeft::Used => return Ok(true),
            RowsLeft::Locked if begun.elapsed() > engine.options.lock_wait => return Ok(false),
            RowsLeft::Locked => thread::sleep(PAUSE),
        }
    }
}

/// Makes the background thread free the rows of all former tables.
pub(crate) fn free_in_background(engine: &Arc<Engine>, worker: &Worker) {
    if engine.check_writable().is_err() {
        return;
    }
    for table in engine.catalog.former_tables() {
        free_later(engine, worker, table);
    }
    // Marks of large values that a kill has left.
    examine_marked(engine, worker, Vec::new());
}

/// Frees a former table now, and what is left of it in the background.
///
/// # Errors
/// As [`free_all`].
pub(crate) fn free_or_later(
    engine: &Arc<Engine>,
    worker: &Worker,
    table: &Arc<OpenTable>,
) -> Result<()> {
    if !free_all(engine, worker, table, false)? {
        free_later(engine, worker, table.clone());
    }
    Ok(())
}

/// Makes the background thread free the rows of a former table.
pub(crate) fn free_later(engine: &Arc<Engine>, worker: &Worker, table: Arc<OpenTable>) {
    let freed = Arc::downgrade(engine);
    let step = move |worker: &Worker| {
        let engine = freed.upgrade()?;
        match step(&engine, worker, &table) {
            Ok(RowsLeft::Partly) => Some(PAUSE),
            Ok(RowsLeft::Locked) => Some(LONG_PAUSE),
            // The rest stays until the next opening. The error is another operation's.
            Ok(RowsLeft::Done | RowsLeft::Used) | Err(_) => None,
        }
    };
    let background = &engine.background;
    background.repeat(worker, Duration::ZERO, Box::new(step));
}

/// Frees some rows of a table, if they are garbage and nothing has locked it.
fn step(engine: &Arc<Engine>, worker: &Worker, table: &Arc<OpenTable>) -> Result<RowsLeft> {
    engine.check()?;
    // First, as the freeing of large values takes it: see `txn/paged/free_values`.
    let _rest = rest(engine, worker);
    if engine.options.locking == Locking::Off {
        // Meanwhile no transaction begins.
        worker.account().passed(&ALONE);
        let is_open = shim::lock(&engine.open);
        return match *is_open {
            true => Ok(RowsLeft::Locked),
            false => free_at_rest(engine, worker, table),
        };
    }
    let mut owner = engine.locks.owner();
    let request = (Name::table(table.record.id), None, Mode::X);
    let freed = match request_now(engine, worker, &mut owner, request) {
        true => free_at_rest(engine, worker, table),
        false => Ok(RowsLeft::Locked),
    };
    engine.locks.release_all(worker, &mut owner);
    engine.locks.dismiss(worker, &mut owner);
    freed
}

/// Returns what a check of all locks, rows and pages holds, so that it finds none of them changing.
fn rest<'e>(engine: &'e Engine, worker: &Worker) -> Option<shim::MutexGuard<'e, ()>> {
    let pages = engine.pages()?;
    // Site: "large values": such a check holds it.
    worker.account().passed(&LARGE_VALUES);
    Some(shim::lock(&pages.values.freeing))
}

/// As [`step`], under the lock.
fn free(engine: &Arc<Engine>, worker: &Worker, table: &Arc<OpenTable>) -> Result<RowsLeft> {
    let _rest = rest(engine, worker);
    free_at_rest(engine, worker, table)
}

fn free_at_rest(engine: &Arc<Engine>, worker: &Worker, table: &Arc<OpenTable>) -> Result<RowsLeft> {
    match &table.store {
        _ if !table.place.is_garbage() => Ok(RowsLeft::Used),
        TableStore::Resident(rows) => free_resident(engine, worker, (table, rows)),
        TableStore::Paged(rows) => match engine.pages() {
            Some(pages) => free_paged(engine, worker, pages, (table, rows)),
            None => Ok(RowsLeft::Done),
        },
    }
}

fn free_resident(
    engine: &Engine,
    worker: &Worker,
    (table, rows): (&OpenTable, &RecordTable),
) -> Result<RowsLeft> {
    let guard = worker.pin();
    let mut cursor = rows.forward(&guard, Bound::Unbounded);
    let (mut batch, mut redo): (Vec<&Record>, Vec<u8>) = Default::default();
    let (mut hazard, mut counted) = (guard.hazard(), 0);
    while batch.len() < STEP
        && redo.len() < STEP_BYTES
        && let Some(record) = cursor.next_record()
    {
        if let Some(value) = record.value(&mut hazard) {
            counted += counted_bytes(record.key(), Some(value));
            RowChange {
                table: table.record.id,
                key: record.key(),
                effect: Effect::Delete,
            }
            .encode(&mut redo);
        }
        batch.push(record);
    }
    if batch.is_empty() {
        return Ok(RowsLeft::Done);
    }
    if engine.redo_form != RedoForm::Nothing
        && !redo.is_empty()
        && let Some(log) = engine.log()
    {
        let logged = log.insert(worker, record::COMMIT, &[&redo]);
        logged.map_err(|error| engine.log_failed(error))?;
    }
    for record in batch {
        worker.account().passed(&VALUE);
        if let Some(value) = record.swap(None, &guard) {
            value.retire(guard.participant());
        }
        let _ = rows.remove(&guard, record, Next::Any);
    }
    engine.catalog.resident.add(-counted, worker);
    Ok(RowsLeft::Partly)
}

fn free_paged(
    engine: &Arc<Engine>,
    worker: &Worker,
    pages: &OpenPages,
    (table, paged): (&OpenTable, &PagedRows),
) -> Result<RowsLeft> {
    pages.check()?;
    let failed = |error: TreeError| pages.failed(&error);
    let tree = match paged.tree.get() {
        Some(tree) => tree,
        None => match pages
            .directory
            .open(worker, tree_number(table))
            .map_err(failed)?
        {
            Some(tree) => paged.tree.get_or_init(|| Arc::new(tree)),
            None => return Ok(RowsLeft::Done),
        },
    };
    // Site: "page waits": a thread that shrinks the file moves pages of all trees.
    let Some(_still) = shim::try_lock(&pages.shrinking) else {
        return Ok(RowsLeft::Locked);
    };
    let job = TreeJob {
        worker,
        pages,
        tree,
    };
    let mut marked = Vec::new();
    let freed = job.free_some(table.place.is(RowsPlace::Dropped), &mut marked);
    if !marked.is_empty() {
        examine_marked(engine, worker, marked);
    }
    freed.map_err(failed)
}

/// A tree that is freed.
struct TreeJob<'j> {
    worker: &'j Worker,
    pages: &'j OpenPages,
    tree: &'j PagedTree,
}

impl TreeJob<'_> {
    /// Frees some pages, and adds the large values of their rows to `marked`.
    fn free_some(&self, is_dropped: bool, marked: &mut Vec<u64>) -> Result<RowsLeft, TreeError> {
        let (worker, directory) = (self.worker, &self.pages.directory);
        for _ in 0..STEP_PAGES {
            let step = match self.tree.next_free_step(worker) {
                // It is gone since it was opened.
                Err(TreeError::Dropped { .. }) => return Ok(RowsLeft::Done),
                step => step?,
            };
            match &step {
                FreeStep::Leaf(left, right) => {
                    for low in [left, right] {
                        self.mark_values(low, marked)?;
                    }
                }
                FreeStep::Last => {
                    let rows = self.mark_values(b"", marked)?;
                    match is_dropped {
                        true => _ = directory.free_last(worker, self.tree)?,
                        false => self.erase_all(&rows)?,
                    }
                    return Ok(RowsLeft::Done);
                }
                FreeStep::Join(..) | FreeStep::Root => {}
            }
            if !self.tree.free_page(worker, &step)? {
                return Ok(RowsLeft::Locked);
            }
        }
        Ok(RowsLeft::Partly)
    }

    /// Marks the large values of the leaf with the low fence `low`, and returns its rows.
    fn mark_values(&self, low: &[u8], marked: &mut Vec<u64>) -> Result<LeafRows, TreeError> {
        let mut rows = LeafRows::default();
        let range = ScanRange {
            direction: ScanDirection::Forward,
            from: Some(low),
            is_excluded: false,
            end: None,
            most: usize::MAX,
        };
        let mut visit = self.tree.visit(self.worker);
        visit.run(|visit| visit.scan(range, &mut rows))?;
        drop(visit);
        for row in 0..rows.len() {
            let flags = rows.flags(row);
            if flags.has(RowFlags::OVERFLOW)
                && let Some(value) = LargeValue::decode(rows.value(row))
                && let Some(values) = self.pages.values.tree.get()
            {
                let of_row = MarkedRow {
                    table: self.tree.table(),
                    key: rows.key(row),
                };
                let (mark, of_row) = (mark_key(value.number), of_row.encode());
                let mut visit = values.visit(self.worker);
                let _ = visit.run(|visit| visit.store(&mark, &of_row))?;
                marked.push(value.number);
            }
        }
        Ok(rows)
    }

    /// Erases the rows of the root, which is a leaf.
    fn erase_all(&self, rows: &LeafRows) -> Result<(), TreeError> {
        let mut visit = self.tree.visit(self.worker);
        for row in 0..rows.len() {
            let _ = visit.run(|visit| visit.erase(rows.key(row)))?;
        }
        Ok(())
    }
}
