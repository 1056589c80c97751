//! Conversion of a table between memory and pages, while the database is used. A
//! [truncation](super::drop_table) is one without steps 3 and to the same component.
//!
//! # Steps
//!
//! 1. A transaction locks the row of the table in the table of conversions, so that no other one
//!    converts it, and the table S. Writers wait from here on, and readers do not.
//! 2. It empties a twin of the table (`catalog::conversions`), or makes one.
//! 3. The rows are copied in key order, in batches. Each batch is a transaction of its own, so
//!    neither memory nor the log bounds the table. Rows that go to pages are
//!    [loaded](foxton_store::paged::btree::BulkLoad) as full leaves, which nothing undoes.
//! 4. The indexes that the program has declared are made anew, by the transaction of step 1.
//! 5. It locks the table X, which waits for its readers, and writes the row that says which table
//!    has the rows. The commit of this row is the switch. The catalog follows before the locks are
//!    released; operations that have waited find the twin (`txn/converted`).
//! 6. The rows of the former table are freed (`txn/former_rows`).
//!
//! A kill before the switch leaves a twin with some rows, and one after it a former table with
//! some. The next opening frees both in the background.
//!
//! # Deadlocks
//!
//! A transaction that has read the table and then writes to it waits for step 1's lock, and step 5
//! waits for that transaction. One of both has to end. It is never the conversion, because that
//! claims more defeats than any transaction has, unless the victim is the
//! [requester](crate::VictimPolicy::Requester).
//!
//! With locking off one transaction is open at a time, so it does all of it in one.

use std::ops::Bound;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foxton_lock::mode::Mode;
use foxton_store::paged::btree::BulkLoad;
use foxton_sync::worker::Worker;

use crate::api::database::Database;
use crate::api::index_build::{self, Forgotten, lock_whole};
use crate::api::paged_index_build::{self, UnfinishedIndex, without_locks};
use crate::api::transaction::Transaction;
use crate::catalog::conversions::{CONVERSIONS, RowsPlace};
use crate::catalog::index_catalog::{INDEX_TREES, IndexName, is_index_table};
use crate::catalog::{IndexSet, NamedTable, OpenIndex, OpenTable};
use crate::engine::Engine;
use crate::error::{Conflict, IndexError, Result};
use crate::options::progress::{OpenPhase, ProgressCall, ProgressMeter};
use crate::options::{Durability, Locking};
use crate::redo::record::{self, TableRecord};
use crate::txn::bound::BoundTxn;
use crate::txn::former_rows;
use crate::txn::write::Write;
use crate::types::codec::{Key, Value};
use crate::types::component::TableComponent;
use crate::types::lock_options::LockWait;
use crate::types::table::Table;

/// Bytes of rows that are copied in one transaction.
const BATCH_BYTES: usize = 256 << 10;
/// Defeats that a conversion claims, so that it is no victim.
pub(super) const DEFEATS: u32 = 63;

/// Summary of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Conversion {
    /// True if the table was converted; false if it was in that component already, or does not
    /// exist.
    pub is_converted: bool,
    /// Rows copied.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Declared indexes that were made anew.
    pub indexes: usize,
    /// Time during which transactions could not write to the table.
    pub locked: Duration,
    /// Time taken.
    pub time: Duration,
}

impl Database {
    /// Moves the rows of `table` to memory or to pages, with its indexes. Meanwhile other
    /// transactions may read the table, and wait if they write to it, at most as long as
    /// [`Options::lock_wait`](crate::Options::lock_wait) says. At the end readers wait for a
    /// moment, too. A kill at any time leaves the table as it was, or converted.
    ///
    /// The component that `table` itself declares does not matter. From then on tables that are
    /// declared as what it was are refused with `table_component`.
    ///
    /// While rows are copied the table takes its space twice. The rows of before are freed when it
    /// is done, and after a kill in the background.
    ///
    /// ```
    /// use foxton::{Database, Options, Table, TableComponent};
    /// const EVENTS: Table<u64, str> = Table::new("events");
    ///
    /// let db = Database::in_memory(Options::default())?;
    /// db.run(|tx| tx.put(&EVENTS, &1, "opened"))?;
    /// let done = db.convert(&EVENTS, TableComponent::Paged)?;
    /// assert!(done.is_converted && done.rows == 1);
    /// assert_eq!(db.stats().tables[0].component, TableComponent::Paged);
    /// assert_eq!(db.run(|tx| tx.get(&EVENTS, &1))?.as_deref(), Some("opened"));
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// A conflict if a lock was not granted. A request error if the table has other types, or if
    /// the database was opened to be read. `row_too_long` or `resident_room`, if a row does not fit
    /// a page or memory. A storage error if a device fails.
    /// After an error the table is as it was before.
    pub fn convert<K, V>(&self, table: &Table<K, V>, to: TableComponent) -> Result<Conversion>
    where
        K: Key + ?Sized,
        V: Value + ?Sized,
    {
        self.convert_named(table.name(), (&K::TYPE, &V::TYPE), to, None)
    }

    /// Like [`convert`](Self::convert); `progress` receives the number of rows copied.
    ///
    /// # Errors
    /// As for [`convert`](Self::convert).
    pub fn convert_with<K, V>(
        &self,
        table: &Table<K, V>,
        to: TableComponent,
        progress: &ProgressCall,
    ) -> Result<Conversion>
    where
        K: Key + ?Sized,
        V: Value + ?Sized,
    {
        self.convert_named(table.name(), (&K::TYPE, &V::TYPE), to, Some(progress))
    }

    fn convert_named(
        &self,
        name: &str,
        (key_type, value_type): (&crate::codec::TypeName, &crate::codec::TypeName),
        to: TableComponent,
        progress: Option<&ProgressCall>,
    ) -> Result<Conversion> {
        let engine = self.share().engine().clone();
        engine.check()?;
        engine.check_writable()?;
        if is_index_table(name) {
            return Err(IndexError::ReservedTable.into());
        }
        let begun = Instant::now();
        let worker = engine.workers.worker();
        let named = NamedTable {
            name,
            key_type,
            value_type,
            component: None,
        };
        match engine.catalog.look_up(&worker, named)? {
            Some(table) if table.record.component != to => {}
            _ => return Ok(Conversion::default()),
        }
        if to == TableComponent::Paged {
            engine.make_pages()?;
        }
        let mut job = TableConversion {
            db: self,
            engine: engine.clone(),
            worker,
            to: Some(to),
            progress,
            copied: None,
        };
        let done = self.run_busy(|tx| job.convert(tx, name));
        let copied = job.copied.take();
        let mut done = match (&done, copied) {
            (Ok(()), Some(copied)) => copied.finish(&engine, &job.worker)?,
            // Rows that were copied go, if there are any.
            (_, copied) => {
                drop(copied);
                former_rows::free_in_background(&engine, &job.worker);
                return done.map(|()| Conversion::default());
            }
        };
        done.time = begun.elapsed();
        Ok(done)
    }
}

/// A conversion of one table, or its truncation.
pub(super) struct TableConversion<'d> {
    pub(super) db: &'d Database,
    pub(super) engine: Arc<Engine>,
    pub(super) worker: Worker,
    /// The component that the table is converted to; `None` truncates it.
    pub(super) to: Option<TableComponent>,
    pub(super) progress: Option<&'d ProgressCall>,
    /// The copy, until the transaction has committed.
    pub(super) copied: Option<Copied>,
}

/// A table whose rows are copied to its twin.
pub(super) struct Copied {
    table: Arc<OpenTable>,
    target: Arc<OpenTable>,
    /// The indexes of `table`.
    old_indexes: Vec<Arc<OpenIndex>>,
    /// Entries of its paged indexes that are not declared.
    old_trees: Vec<Arc<OpenTable>>,
    done: Conversion,
    locked_since: Instant,
}

impl Drop for Copied {
    fn drop(&mut self) {
        if self.target.place.is(RowsPlace::Target) {
            self.target.place.set(RowsPlace::Former);
        }
    }
}

impl Copied {
    /// Frees what the table had, after the switch.
    pub(super) fn finish(mut self, engine: &Arc<Engine>, worker: &Worker) -> Result<Conversion> {
        self.done.locked = self.locked_since.elapsed();
        self.done.is_converted = true;
        let indexes = self
            .old_indexes
            .drain(..)
            .map(|index| index.entries.clone());
        for entries in indexes.chain(self.old_trees.drain(..)) {
            Forgotten(Some(entries)).clear(engine, worker)?;
        }
        former_rows::free_or_later(engine, worker, &self.table)?;
        Ok(self.done)
    }
}

impl TableConversion<'_> {
    /// Steps 1 to 5, without the commit. Nothing is copied if the table is converted already.
    pub(super) fn convert(&mut self, tx: &mut Transaction, name: &str) -> Result<()> {
        self.copied = None; // Of an attempt that a deadlock ended.
        tx.attach()?.ctx.owner.set_defeats(DEFEATS);
        tx.get_for_update(&CONVERSIONS, &IndexName(name))?;
        let engine = self.engine.clone();
        let Some(table) = engine.catalog.find(name) else {
            return Ok(());
        };
        let mode = match self.to {
            Some(to) if table.record.component == to => return Ok(()),
            Some(_) => Mode::S,
            None => Mode::X,
        };
        lock_whole(&mut *tx.attach()?, &table, mode)?;
        let locked_since = Instant::now();
        let target = self.empty_twin(&table)?;
        target.place.set(RowsPlace::Target);
        let mut copied = Copied {
            old_trees: Vec::new(),
            old_indexes: table.kept.set(&self.worker).open.clone(),
            table,
            target,
            done: Conversion::default(),
            locked_since,
        };
        if self.to.is_some() {
            self.copy(tx, &mut copied)?;
        }
        let indexes = self.make_indexes(tx, &copied)?;
        copied.done.indexes = indexes.len();
        lock_whole(&mut *tx.attach()?, &copied.table, Mode::X)?;
        self.prepare_switch(tx, &mut copied, indexes)?;
        self.copied = Some(copied);
        Ok(())
    }

    /// Returns a twin of a table, without rows, in the component that the rows will be in.
    fn empty_twin(&self, table: &OpenTable) -> Result<Arc<OpenTable>> {
        let (engine, worker) = (&self.engine, &self.worker);
        let to = self.to.unwrap_or(table.record.component);
        let mut twins = engine.catalog.twins(table).into_iter();
        if let Some(twin) = twins.find(|twin| twin.record.component == to) {
            let is_alone = engine.options.locking == Locking::Off;
            return match former_rows::free_all(engine, worker, &twin, is_alone)? {
                true => Ok(twin),
                false => Err(Conflict::PASSED_OVER.into()),
            };
        }
        engine
            .catalog
            .make_twin(worker, (table, to), |record: &TableRecord| {
                let Some(log) = engine.log() else {
                    return Ok(()); // Nothing is kept.
                };
                let logged = log.insert(worker, record::TABLE, &[&record.encode()]);
                logged.map(drop).map_err(|error| engine.log_failed(error))
            })
    }

    /// Step 3.
    fn copy(&self, main: &mut Transaction, copied: &mut Copied) -> Result<()> {
        let engine = &self.engine;
        let rows = match copied.table.is_paged() {
            true => 0,
            false => copied.table.resident().len_estimate(&self.worker.pin()),
        };
        let meter = ProgressMeter::new(self.progress, OpenPhase::Convert, rows);
        let mut batch = RowBatch::default();
        while !batch.is_last {
            let before = batch.rows;
            if engine.options.locking == Locking::Off {
                batch.copy(&mut *main.attach()?, copied)?;
            } else {
                let mut tx = self.db.begin_busy()?;
                batch.copy(&mut *tx.attach()?, copied)?;
                // The commit of the switch is behind it in the log.
                tx.attach()?.txn.durability = Durability::None;
                tx.commit()?;
            }
            meter.advance(batch.rows - before);
        }
        meter.end();
        (copied.done.rows, copied.done.bytes) = (batch.rows, batch.bytes);
        Ok(())
    }

    /// Step 4. Indexes that the program has not declared are made when it declares them.
    fn make_indexes(&self, tx: &mut Transaction, copied: &Copied) -> Result<Vec<NewIndex>> {
        let (engine, target) = (&self.engine, &copied.target);
        let make = |old: &Arc<OpenIndex>| {
            let (record, extract) = (old.record.clone(), &old.extract);
            if target.is_paged() {
                let made = paged_index_build::make(tx, target, extract, record, self.progress);
                return made.map(|(new, unfinished)| (Arc::new(new), Some(unfinished)));
            }
            let entries = engine.catalog.entries(&record, target, None);
            entries.hide_from_snapshots();
            let new = OpenIndex::new(record, entries, extract.clone());
            index_build::fill(engine, target, &new, self.progress)?;
            Ok((Arc::new(new), None))
        };
        copied.old_indexes.iter().map(make).collect()
    }

    /// Writes what switches, and makes the catalog follow at the commit.
    fn prepare_switch(
        &self,
        tx: &mut Transaction,
        copied: &mut Copied,
        new: Vec<NewIndex>,
    ) -> Result<()> {
        let (table, target) = (copied.table.clone(), copied.target.clone());
        let name = table.record.name.clone();
        let is_twin = self.engine.catalog.origin(&target) != target.record.id;
        match is_twin {
            true => {
                let number = u64::from(target.record.id);
                tx.put(&CONVERSIONS, &IndexName(&name), &number)?;
            }
            false => _ = tx.delete(&CONVERSIONS, &IndexName(&name))?,
        }
        let mut undeclared = Vec::new();
        for known in self.engine.catalog.indexes() {
            if known.record.table != name {
                continue;
            }
            // Others are made anew when they are declared.
            if known.open.is_none() && known.record.is_unique() {
                undeclared.push(known.record.name.clone());
            }
            match &known.open {
                // Its row has the new tree by now.
                Some(_) if target.is_paged() => {}
                Some(_) => _ = tx.delete(&INDEX_TREES, &IndexName(&known.record.name))?,
                // It is made anew when it is declared.
                None => {
                    let tree = paged_index_build::forget(tx, &known.record.name)?;
                    copied.old_trees.extend(tree);
                }
            }
        }
        let old = copied.old_indexes.clone();
        copied.target.hide_from_snapshots();
        let engine = self.engine.clone();
        tx.attach()?.txn.on_commit = Some(Box::new(move |catalog| {
            let (indexes, unfinished): (Vec<_>, Vec<_>) = new.into_iter().unzip();
            let front = engine.persistence.front();
            target.show_to_snapshots(front);
            for index in &indexes {
                index.entries.show_to_snapshots(front);
                catalog.know(index.record.clone(), Some(index.clone()));
            }
            target.kept.change(|set| {
                *set = IndexSet {
                    open: indexes,
                    undeclared,
                    unmaintained: Vec::new(),
                };
            });
            for index in unfinished.into_iter().flatten() {
                index.finish();
            }
            table.kept.change(|set| *set = IndexSet::default());
            catalog.switch(&table, &target);
            for index in old {
                index.set_dropped();
            }
        }));
        Ok(())
    }
}

/// An index of the target. One that is paged is unfinished until the switch.
type NewIndex = (Arc<OpenIndex>, Option<UnfinishedIndex>);

/// Rows that are copied together, and what was copied before.
#[derive(Default)]
struct RowBatch {
    rows: u64,
    bytes: u64,
    /// The last key that was copied.
    position: Option<Vec<u8>>,
    is_last: bool,
    content: Vec<(Vec<u8>, Vec<u8>)>,
    /// Load of a paged target; `None` if it is not begun, or the tree does not admit one.
    load: Option<BulkLoad>,
}

impl RowBatch {
    /// Copies the next rows, in the transaction of `bound`. The table is locked.
    fn copy(&mut self, bound: &mut BoundTxn, copied: &Copied) -> Result<()> {
        lock_whole(bound, &copied.target, Mode::X)?;
        let tables = [&copied.table, &copied.target];
        let [from, to] = tables.map(|table| bound.ctx.cached_entries(table.clone()));
        let low = match &self.position {
            None => Bound::Unbounded,
            Some(key) => Bound::Excluded(&key[..]),
        };
        let encode = |key: &[u8], bytes: &mut Vec<u8>| {
            bytes.extend_from_slice(key);
            Ok(())
        };
        bound
            .txn
            .scan
            .begin::<[u8]>(&(low, Bound::Unbounded), encode)?;
        let (mut bytes, content) = (0, &mut self.content);
        bound.forget_large();
        without_locks(bound, |bound| {
            bound.block_on(LockWait::Default, |bound| {
                bound.scan_step(from, &mut |key, value| {
                    bytes += key.len() + value.len();
                    content.push((key.to_vec(), value.to_vec()));
                    match bytes < BATCH_BYTES {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    }
                })
            })
        })?;
        self.is_last = bound.txn.scan.is_finished();
        self.bytes += bytes as u64;
        self.rows += content.len() as u64;
        if self.position.is_none() && copied.target.is_paged() {
            self.load = bound.block_on(LockWait::Default, |bound| bound.begin_load_step(to))?;
        }
        for (key, value) in content.drain(..) {
            bound.forget_large();
            bound.ctx.key.clear();
            bound.ctx.key.extend_from_slice(&key);
            bound.ctx.value = value;
            match &mut self.load {
                Some(load) => {
                    let add = |bound: &mut BoundTxn| bound.add_to_load_step(to, load);
                    bound.block_on(LockWait::Default, add)?;
                    if load.is_due() {
                        let store = |bound: &mut BoundTxn| bound.load_step(to, load);
                        bound.block_on(LockWait::Default, store)?;
                    }
                }
                None => {
                    let write = |bound: &mut BoundTxn| bound.write_step(to, Write::Put);
                    bound.block_on(LockWait::Default, write)?;
                    bound.after_write()?;
                }
            }
            self.position = Some(key);
        }
        // The marks of large values are examined once the transaction has ended, and by then the
        // rows have to be there.
        if let Some(load) = &mut self.load {
            let store = |bound: &mut BoundTxn| bound.store_load_step(to, load);
            bound.block_on(LockWait::Default, store)?;
        }
        Ok(())
    }
}
