//! Administration of the secondary indexes of a database.

use crate::admin::check::Finding;
use crate::api::database::Database;
use crate::api::index_build;
use crate::api::table_check;
use crate::catalog::index_catalog::{INDEX_TREES, IndexName};
use crate::catalog::table_store::TableStore;
use crate::error::Result;
use crate::options::progress::ProgressCall;
use crate::types::codec::{Key, Value};
use crate::types::index::Index;

/// Maximum number of findings per index; further ones are only counted.
const TOLD: usize = 100;

/// One secondary index.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexStats {
    /// Name of the index.
    pub name: String,
    /// Name of its table.
    pub table: String,
    /// Name of the type of its keys.
    pub key_type: String,
    /// True if each key belongs to at most one row.
    pub is_unique: bool,
    /// The version it was declared with.
    pub version: u32,
    /// True if the program has declared it. Otherwise the database does not maintain it. If it is
    /// unique, the table then accepts no writes.
    pub is_open: bool,
    /// True if it will be built when it is declared again. An index of a table in memory always is,
    /// and one of a paged table if a write has come while it was not declared.
    pub is_stale: bool,
    /// Number of entries, estimated as [`TableStats::keys`](crate::inspect::TableStats::keys) is; 0
    /// if it is not open, or its table is paged.
    pub entries: u64,
}

impl Database {
    /// Creates `index` if it does not exist, and maintains it from now on. It is filled from the
    /// rows of its table, on several threads. Until that is done, other transactions may read the
    /// table but not write to it. If the index is open already, this does nothing.
    ///
    /// An index that the database knows from an earlier opening is filled in the same way, unless
    /// its table is paged: then its entries are in the database, if it is not
    /// [stale](IndexStats::is_stale). An index of a paged table is filled by one thread, which
    /// sorts the entries.
    ///
    /// ```
    /// use foxton::{Database, Index, Options, Table};
    /// const USERS: Table<u64, str> = Table::new("users");
    /// const BY_NAME: Index<str, u64, str> =
    ///     Index::unique("by_name", &USERS, |_, name, keys| keys.add(name));
    ///
    /// let db = Database::in_memory(Options::default())?;
    /// db.run(|tx| tx.put(&USERS, &1, "ada"))?;
    /// db.create_index(&BY_NAME)?;
    /// let user = db.run(|tx| tx.get_by(&BY_NAME, "ada"))?;
    /// assert_eq!(user, Some((1, "ada".to_owned())));
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// A request error if two rows have one key of a unique index (it names both), if the index
    /// exists with a different declaration, or if its name is too long. A conflict if the table's
    /// lock was not granted. A storage error if the log accepts no more. After an error the index
    /// is as it was before.
    pub fn create_index<I, K, V>(&self, index: &Index<I, K, V>) -> Result<()>
    where
        I: Key + ?Sized + 'static,
        K: Key + ?Sized + 'static,
        V: Value + ?Sized + 'static,
    {
        self.engine().check_writable()?;
        let declared = index.declared();
        self.run_busy(|tx| index_build::create(tx, &declared, None))
    }

    /// Like [`create_index`](Self::create_index); `progress` receives the number of rows read.
    ///
    /// ```
    /// # use foxton::{Database, Index, Options, Table, progress::ProgressCall};
    /// # const USERS: Table<u64, str> = Table::new("users");
    /// # const BY_NAME: Index<str, u64, str> =
    /// #     Index::unique("by_name", &USERS, |_, name, keys| keys.add(name));
    /// # let db = Database::in_memory(Options::default())?;
    /// db.create_index_with(&BY_NAME, &ProgressCall::new(|progress| {
    ///     eprintln!("{} of about {} rows", progress.done, progress.total);
    /// }))?;
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`create_index`](Self::create_index).
    pub fn create_index_with<I, K, V>(
        &self,
        index: &Index<I, K, V>,
        progress: &ProgressCall,
    ) -> Result<()>
    where
        I: Key + ?Sized + 'static,
        K: Key + ?Sized + 'static,
        V: Value + ?Sized + 'static,
    {
        self.engine().check_writable()?;
        let declared = index.declared();
        self.run_busy(|tx| index_build::create(tx, &declared, Some(progress)))
    }

    /// Drops the index called `name`, whether it is declared or not. Returns true if it existed.
    /// The rows stay. It waits for all transactions that have used the table or the index. Then its
    /// memory is freed, or its pages are; after a kill the next opening frees the rest of them.
    ///
    /// # Errors
    /// A conflict if a lock was not granted; a storage error if the log accepts no more.
    pub fn drop_index(&self, name: &str) -> Result<bool> {
        self.engine().check_writable()?;
        let forgotten = self.run_busy(|tx| index_build::forget(tx, name))?;
        let Some(forgotten) = forgotten else {
            return Ok(false);
        };
        let engine = self.share().engine().clone();
        forgotten.clear(&engine, &engine.workers.worker())?;
        Ok(true)
    }

    /// Returns all existing indexes, by name.
    pub fn indexes(&self) -> Vec<IndexStats> {
        let engine = self.engine();
        if engine.is_inherited() {
            return Vec::new();
        }
        let worker = engine.workers.background_worker();
        let guard = worker.pin();
        let trees = engine.catalog.find(INDEX_TREES.name());
        let has_tree = |name: &str| {
            let (mut key, mut hazard) = (Vec::new(), guard.hazard());
            IndexName(name).encode(&mut key);
            let record = trees
                .as_ref()
                .and_then(|trees| trees.resident().get(&guard, &key));
            record.is_some_and(|record| record.value(&mut hazard).is_some())
        };
        let stats = |known: crate::catalog::KnownIndex| IndexStats {
            is_unique: known.record.is_unique(),
            is_stale: known.open.is_none() && !has_tree(&known.record.name),
            name: known.record.name,
            table: known.record.table,
            key_type: known.record.key_type.0,
            version: known.record.version,
            is_open: known.open.is_some(),
            entries: known.open.map_or(0, |open| match &open.entries.store {
                TableStore::Resident(rows) => rows.len_estimate(&guard),
                TableStore::Paged(_) => 0,
            }),
        };
        engine.catalog.indexes().into_iter().map(stats).collect()
    }

    /// Compares all open indexes with their tables: each row must be found by each of its keys, and
    /// each entry must lead to a row that has its key. Each index is read at a durable
    /// [snapshot](Database::snapshot_at), so transactions go on. If its table cannot be read at a
    /// snapshot, as one that was just converted, they cannot write to that table meanwhile.
    ///
    /// # Errors
    /// A conflict if a lock was not granted; a request error if a row does not match the table's
    /// types; a storage error if the log has failed. A defect of an index is a finding, not an
    /// error.
    pub fn check_indexes(&self) -> Result<Vec<Finding>> {
        self.engine().check_process()?;
        let mut findings = Vec::new();
        for known in self.engine().catalog.indexes() {
            let Some(index) = known.open else { continue };
            let place = format!(
                "index {} of table {}",
                known.record.name, known.record.table
            );
            let found = table_check::compare(self, &index, TOLD)?;
            for (row, what) in &found.rows {
                let what = format!("row 0x{}: {what}", hex(row));
                findings.push(Finding::new(place.clone(), what));
            }
            if found.count > TOLD {
                let what = format!("{} more such findings", found.count - TOLD);
                findings.push(Finding::new(place, what));
            }
        }
        Ok(findings)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
