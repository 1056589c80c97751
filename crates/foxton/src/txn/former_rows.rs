//! Rows that a conversion has left: those of the table that was converted, and those that a killed
//! or failed conversion has copied.
//!
//! No transaction uses such a table (`catalog::conversions`, I4). So its rows go without undo, some
//! at a time, each time under a lock on the whole table in an owner of its own, which is requested
//! without waiting. The conversion frees them when it is done, and the background thread after an
//! opening that finds some. A kill in between leaves fewer.
//!
//! * Rows *in memory* are logged as deleted, in a record of their own, so that no checkpoint has
//!   them any more. Then they are removed.
//! * Rows *in pages* are erased, each in a record that no transaction undoes; trees give back their
//!   empty pages. The last row of a tree becomes a ghost. A large value is marked before its row
//!   goes, and freed because no row has it ([`free_values`](super::paged)).

use std::ops::Bound;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use foxton_lock::manager::LockManager;
use foxton_lock::mode::Mode;
use foxton_lock::name::Name;
use foxton_store::memory::{Next, Record, RecordTable, VALUE};
use foxton_store::paged::btree::{PurgeReply, ScanDirection, ScanRange, TreeError};
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

/// Progress in a former table.
#[derive(Debug, Default)]
pub(crate) struct FormerRows {
    /// Key behind which a paged table is read on.
    position: Option<Vec<u8>>,
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
    let mut rows = FormerRows::default();
    let mut begun = Instant::now();
    loop {
        let freed = match is_alone {
            true => rows.free(engine, worker, table),
            false => rows.step(engine, worker, table),
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
        let (freed, mut rows) = (Arc::downgrade(engine), FormerRows::default());
        let step = move |worker: &Worker| {
            let engine = freed.upgrade()?;
            match rows.step(&engine, worker, &table) {
                Ok(RowsLeft::Partly) => Some(PAUSE),
                Ok(RowsLeft::Locked) => Some(LONG_PAUSE),
                // The rest stays until the next opening. The error is another operation's.
                Ok(RowsLeft::Done | RowsLeft::Used) | Err(_) => None,
            }
        };
        let background = &engine.background;
        background.repeat(worker, Duration::ZERO, Box::new(step));
    }
}

impl FormerRows {
    /// Frees some rows of a table, if it is a former one and nothing has locked it.
    fn step(
        &mut self,
        engine: &Arc<Engine>,
        worker: &Worker,
        table: &Arc<OpenTable>,
    ) -> Result<RowsLeft> {
        engine.check()?;
        if engine.options.locking == Locking::Off {
            // Meanwhile no transaction begins.
            worker.account().passed(&ALONE);
            let is_open = shim::lock(&engine.open);
            return match *is_open {
                true => Ok(RowsLeft::Locked),
                false => self.free(engine, worker, table),
            };
        }
        let mut owner = engine.locks.owner();
        let request = (Name::table(table.record.id), None, Mode::X);
        let freed = match request_now(engine, worker, &mut owner, request) {
            true => self.free(engine, worker, table),
            false => Ok(RowsLeft::Locked),
        };
        engine.locks.release_all(worker, &mut owner);
        engine.locks.dismiss(worker, &mut owner);
        freed
    }

    /// As [`step`](Self::step), under the lock.
    fn free(
        &mut self,
        engine: &Arc<Engine>,
        worker: &Worker,
        table: &Arc<OpenTable>,
    ) -> Result<RowsLeft> {
        match &table.store {
            _ if !table.place.is(RowsPlace::Former) => Ok(RowsLeft::Used),
            TableStore::Resident(rows) => self.free_resident(engine, worker, (table, rows)),
            TableStore::Paged(rows) => match engine.pages() {
                Some(pages) => self.free_paged(engine, worker, pages, (table, rows)),
                None => Ok(RowsLeft::Done),
            },
        }
    }

    fn free_resident(
        &mut self,
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
        &mut self,
        engine: &Arc<Engine>,
        worker: &Worker,
        pages: &OpenPages,
        (table, paged): (&OpenTable, &PagedRows),
    ) -> Result<RowsLeft> {
        pages.check()?;
        let failed = |error: TreeError| pages.failed(&error);
        let number = tree_number(table);
        let tree = match paged.tree.get() {
            Some(tree) => tree,
            None => match pages.directory.open(worker, number).map_err(failed)? {
                Some(tree) => paged.tree.get_or_init(|| Arc::new(tree)),
                None => return Ok(RowsLeft::Done),
            },
        };
        // Site: "large values": a check of all pages finds them at rest.
        worker.account().passed(&LARGE_VALUES);
        let rest = shim::lock(&pages.values.freeing);
        let mut rows = LeafRows::default();
        let range = ScanRange {
            direction: ScanDirection::Forward,
            from: self.position.as_deref(),
            is_excluded: self.position.is_some(),
            end: None,
            most: STEP,
        };
        let mut visit = tree.visit(worker);
        visit
            .run(|visit| visit.scan(range, &mut rows))
            .map_err(failed)?;
        if rows.is_empty() {
            return Ok(RowsLeft::Done);
        }
        let mut marked = Vec::new();
        for row in 0..rows.len().min(STEP) {
            let (key, flags) = (rows.key(row), rows.flags(row));
            if flags.has(RowFlags::OVERFLOW)
                && let Some(value) = LargeValue::decode(rows.value(row))
                && let Some(values) = pages.values.tree.get()
            {
                let of_row = MarkedRow { table: number, key };
                let (mark, of_row) = (mark_key(value.number), of_row.encode());
                let mut visit = values.visit(worker);
                let stored = visit.run(|visit| visit.store(&mark, &of_row));
                let _ = stored.map_err(failed)?;
                marked.push(value.number);
            }
            let erased = visit.run(|visit| visit.erase(key)).map_err(failed)?;
            if erased == PurgeReply::OnlyRow {
                visit.run(|visit| visit.hide(key)).map_err(failed)?;
            }
        }
        self.position = Some(rows.key(rows.len().min(STEP) - 1).to_vec());
        drop(rest);
        if !marked.is_empty() {
            examine_marked(engine, worker, marked);
        }
        Ok(RowsLeft::Partly)
    }
}
