//! Truncating and dropping tables, while the database is used.
//!
//! Both lock the table X, which waits for the transactions that have used it and keeps others out.
//! Then they write one row in the table of conversions (`catalog::conversions`), and the commit of
//! this row is the switch: before it the table has all its rows, and behind it none.
//!
//! * A *truncation* is a [conversion](super::convert) that copies nothing, to a twin in the same
//!   component. So declared indexes are made anew, without entries. Others are made when they are
//!   declared.
//! * A table that is *dropped* is absent from then on, and so are its indexes. The first write to a
//!   table of that name makes another one, of any type and component, with another number.
//!
//! Its rows are freed afterwards, in steps (`txn/former_rows`): by the call, and after a kill in
//! the background of the next opening.

use std::sync::Arc;

use foxton_lock::mode::Mode;
use foxton_sync::worker::Worker;

use crate::api::convert::{DEFEATS, TableConversion};
use crate::api::database::Database;
use crate::api::index_build::{Forgotten, lock_whole};
use crate::api::paged_index_build;
use crate::api::transaction::Transaction;
use crate::catalog::conversions::{CONVERSIONS, DROPPED, is_twin_name};
use crate::catalog::index_catalog::{INDEXES, IndexName, is_index_table};
use crate::catalog::{IndexSet, NamedTable, OpenTable};
use crate::engine::Engine;
use crate::error::{IndexError, Request, Result};
use crate::txn::former_rows;
use crate::types::codec::{Key, Value};
use crate::types::table::Table;

fn no_such_table(name: &str) -> Request {
    let table = name.to_owned();
    Request::NoSuchTable { table }
}

impl Database {
    /// Removes all rows of `table`. The table stays, with its types and its indexes. It waits for
    /// all transactions that have used the table, and others wait for it. A kill at any time leaves
    /// the table with all its rows, or with none.
    ///
    /// Deleting the rows one by one takes a lock, a log record and undo for each. This writes one
    /// row, and then frees memory and pages in steps; after a kill in the background.
    ///
    /// ```
    /// use foxton::{Database, Options, Table};
    /// const EVENTS: Table<u64, str> = Table::new("events");
    ///
    /// let db = Database::in_memory(Options::default())?;
    /// db.run(|tx| tx.put(&EVENTS, &1, "opened"))?;
    /// db.truncate(&EVENTS)?;
    /// assert_eq!(db.run(|tx| tx.range(&EVENTS, ..).count())?, 0);
    /// db.run(|tx| tx.put(&EVENTS, &2, "opened again"))?;
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// `no_such_table`, if it does not exist; `table_types` or `table_component`, if it is another;
    /// `opened_read_only`. A conflict, if a lock was not granted: a transaction that has used the
    /// table was open for longer than [`Options::lock_wait`](crate::Options::lock_wait), perhaps
    /// one of this thread. Then the table has all its rows. A storage error if a device fails.
    pub fn truncate<K, V>(&self, table: &Table<K, V>) -> Result<()>
    where
        K: Key + ?Sized,
        V: Value + ?Sized,
    {
        let (engine, worker) = self.begin_drop(table.name())?;
        let named = NamedTable {
            name: table.name(),
            key_type: &K::TYPE,
            value_type: &V::TYPE,
            component: table.component(),
        };
        if engine.catalog.look_up(&worker, named)?.is_none() {
            return Err(no_such_table(table.name()).into());
        }
        let mut job = TableConversion {
            db: self,
            engine: engine.clone(),
            worker,
            to: None,
            progress: None,
            copied: None,
        };
        let done = self.run_busy(|tx| job.convert(tx, table.name()));
        match (done, job.copied.take()) {
            (Ok(()), Some(emptied)) => emptied.finish(&engine, &job.worker).map(drop),
            // Another thread has dropped it.
            (Ok(()), None) => Err(no_such_table(table.name()).into()),
            (Err(error), _) => Err(error),
        }
    }

    /// Drops the table called `name`, with its rows and its indexes. It waits for all transactions
    /// that have used the table. A kill at any time leaves the table as it was, or none. A
    /// transaction that waits for the table meanwhile is rolled back, and [`run`](Self::run) runs
    /// it again.
    ///
    /// The name is free for another table, of other types or in the other component. A database has
    /// at most [`MAX_TABLES`](crate::MAX_TABLES) tables, dropped ones included: to empty a table
    /// again and again, [`truncate`](Self::truncate) it.
    ///
    /// ```
    /// use foxton::{Database, Options, Table};
    /// const EVENTS: Table<u64, str> = Table::new("events");
    /// const COUNTS: Table<str, u64> = Table::new("events");
    ///
    /// let db = Database::in_memory(Options::default())?;
    /// db.run(|tx| tx.put(&EVENTS, &1, "opened"))?;
    /// db.drop_table(EVENTS.name())?;
    /// assert_eq!(db.drop_table("events").unwrap_err().code(), "no_such_table");
    /// db.run(|tx| tx.put(&COUNTS, "opened", &1))?;
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// `no_such_table`, if it does not exist; `reserved_table`, if it is the database's own;
    /// `opened_read_only`. A conflict, if a lock was not granted: a transaction that has used the
    /// table was open for longer than [`Options::lock_wait`](crate::Options::lock_wait), perhaps
    /// one of this thread. Then the table is as it was. A storage error if a device fails.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let (engine, worker) = self.begin_drop(name)?;
        let garbage = self.run_busy(|tx| drop_in(tx, name))?;
        for entries in garbage.entries {
            Forgotten(Some(entries)).clear(&engine, &worker)?;
        }
        for table in garbage.tables {
            former_rows::free_or_later(&engine, &worker, &table)?;
        }
        Ok(())
    }

    fn begin_drop(&self, name: &str) -> Result<(Arc<Engine>, Worker)> {
        let engine = self.share().engine().clone();
        engine.check()?;
        engine.check_writable()?;
        if is_index_table(name) || is_twin_name(name) {
            return Err(IndexError::ReservedTable.into());
        }
        let worker = engine.workers.worker();
        Ok((engine, worker))
    }
}

/// The rows of a dropped table.
struct DroppedTable {
    /// The table and its twins.
    tables: Vec<Arc<OpenTable>>,
    /// The entries of its indexes.
    entries: Vec<Arc<OpenTable>>,
}

/// Drops a table. The caller must commit at once.
fn drop_in(tx: &mut Transaction, name: &str) -> Result<DroppedTable> {
    tx.attach()?.ctx.owner.set_defeats(DEFEATS);
    // So no other thread converts, truncates or drops it.
    tx.get_for_update(&CONVERSIONS, &IndexName(name))?;
    let engine = tx.attach()?.ctx.engine.clone();
    let Some(table) = engine.catalog.find(name) else {
        return Err(no_such_table(name).into());
    };
    lock_whole(&mut *tx.attach()?, &table, Mode::X)?;
    let number = DROPPED | u64::from(engine.catalog.origin(&table));
    tx.put(&CONVERSIONS, &IndexName(name), &number)?;
    let mut tables = engine.catalog.twins(&table);
    tables.push(table.clone());
    let (mut entries, mut indexes) = (Vec::new(), Vec::new());
    for known in engine.catalog.indexes() {
        if known.record.table != name {
            continue;
        }
        tx.delete(&INDEXES, &IndexName(&known.record.name))?;
        let tree = paged_index_build::forget(tx, &known.record.name)?;
        match &known.open {
            Some(open) => {
                lock_whole(&mut *tx.attach()?, &open.entries, Mode::X)?;
                entries.push(open.entries.clone());
            }
            None => entries.extend(tree),
        }
        indexes.push(known);
    }
    tx.attach()?.txn.on_commit = Some(Box::new(move |catalog| {
        for known in indexes {
            if let Some(open) = known.open {
                open.set_dropped();
            }
            catalog.forget(&known.record.name);
        }
        table.kept.change(|set| *set = IndexSet::default());
        catalog.drop_table(&table);
    }));
    Ok(DroppedTable { tables, entries })
}
