//! The tables of a database, by name and by number.
//!
//! # State
//!
//! An append-only list; a table's number is its place in it and names it in locks and in the log.
//! Visited when a worker meets a table for the first time, and remembered by the worker from then
//! on.
//!
//! # Invariants
//!
//! * I1  A table's record is in the log before the first change to the table: `resolve` writes it
//!   while it holds the list.
//! * I2  Numbers are dense and never change.
//! * I3  Which indexes are kept with a table changes only under a lock on the whole table that nobody
//!   shares who writes to it; whoever writes looks after it has its own lock on the table.
//! * I4  A table keeps its indexes, and the entries of an index lead to their table. That circle is cut when the
//!   index is dropped, or else when the catalog is, so that nothing of a database outlives it.

/// Catalog of secondary indexes.
pub(crate) mod index_catalog;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use foxton_store::memory;
use foxton_sync::epoch::Domain;
use foxton_sync::shim::{self, AtomicBool, AtomicU32, Mutex, Ordering};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::error::{IndexError, Request, Result, TableTypes};
use crate::redo::record::TableRecord;
use crate::types::codec::TypeName;
use crate::types::index::Extract;
use crate::types::index_entry::EntryKind;
use crate::types::limits::{FIRST_INDEX, MAX_TABLE_NAME_BYTES, MAX_TABLES};
use index_catalog::IndexRecord;

/// Which indexes are kept with a table: asked by whoever finds that it has changed.
static KEPT: Site = Site::new(
    Component::Metadata,
    Pattern::Unbounded,
    "indexes of a table",
);

static LIST: Site = Site::new(Component::Metadata, Pattern::Unbounded, "catalog");

/// A table: what it is called, what it maps, and its rows.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub(crate) record: TableRecord,
    pub(crate) rows: memory::Table,
    pub(crate) kept: TableIndexes,
    /// If these are the entries of an index: the table that it leads to.
    pub(crate) of: Option<Arc<OpenTable>>,
}

/// Which indexes are kept with a table (I3).
#[derive(Debug, Default)]
pub(crate) struct TableIndexes {
    /// How often that has changed; 0 if there is nothing to keep and never was.
    changes: AtomicU32,
    set: Mutex<Arc<IndexSet>>,
}

/// The indexes of one table.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexSet {
    pub(crate) open: Vec<Arc<OpenIndex>>,
    /// Unique indexes that exist and were not declared: nobody can keep them.
    pub(crate) undeclared: Vec<String>,
}

/// An index that was declared, with its entries.
pub(crate) struct OpenIndex {
    pub(crate) kind: EntryKind,
    /// What the entries are locked by and undone in.
    pub(crate) entries: Arc<OpenTable>,
    pub(crate) extract: Arc<Extract>,
    pub(crate) record: IndexRecord,
    dropped: AtomicBool,
}

impl OpenIndex {
    pub(crate) fn new(
        record: IndexRecord,
        entries: Arc<OpenTable>,
        extract: Arc<Extract>,
    ) -> OpenIndex {
        OpenIndex {
            kind: record.kind,
            entries,
            extract,
            record,
            dropped: AtomicBool::new(false),
        }
    }

    /// Whether it was dropped. For the holder of a lock on the whole of it.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        // Relaxed: ordered by the lock.
        self.dropped.load(Ordering::Relaxed)
    }

    /// Notes that it was dropped. For the holder of the exclusive lock on the whole of it.
    pub(crate) fn set_dropped(&self) {
        // Relaxed: see `is_dropped`.
        self.dropped.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for OpenIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenIndex")
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

impl OpenTable {
    fn new(record: TableRecord, domain: &Domain, of: Option<Arc<OpenTable>>) -> OpenTable {
        OpenTable {
            record,
            rows: memory::Table::new(domain),
            kept: TableIndexes::default(),
            of,
        }
    }

    /// What the table or index with the number `space` is called, if it is this one or the one that
    /// it leads to.
    pub(crate) fn call(&self, space: u32) -> String {
        match &self.of {
            Some(table) if table.record.id == space => table.record.name.clone(),
            _ => self.record.name.clone(),
        }
    }
}

impl TableIndexes {
    /// Whether nothing is kept and nothing ever was.
    #[inline]
    pub(crate) fn is_nothing(&self) -> bool {
        self.changes() == 0
    }

    /// How often it has changed.
    #[inline]
    pub(crate) fn changes(&self) -> u32 {
        // Relaxed: ordered by the lock on the table (I3).
        self.changes.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, worker: &Worker) -> Arc<IndexSet> {
        worker.account().passed(&KEPT);
        shim::lock(&self.set).clone()
    }

    /// Changes it. For the holder of the lock on the table (I3).
    pub(crate) fn change(&self, change: impl FnOnce(&mut IndexSet)) {
        let mut set = shim::lock(&self.set);
        let mut new = IndexSet::clone(&set);
        change(&mut new);
        *set = Arc::new(new);
        // Relaxed: see `changes`.
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct CatalogEntries {
    tables: Vec<Arc<OpenTable>>,
    by_name: HashMap<String, u32>,
    /// Every index that exists.
    indexes: BTreeMap<String, KnownIndex>,
    /// What the indexes are called that were opened, by their numbers less [`FIRST_INDEX`].
    index_names: Vec<String>,
}

/// An index that exists.
#[derive(Debug, Clone)]
pub(crate) struct KnownIndex {
    pub(crate) record: IndexRecord,
    /// If it is declared.
    pub(crate) open: Option<Arc<OpenIndex>>,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Catalog {
    list: Mutex<CatalogEntries>,
    domain: Domain,
}

impl Catalog {
    /// No tables yet; the memory of their rows is reclaimed in `domain`.
    pub(crate) fn new(domain: Domain) -> Catalog {
        Catalog {
            list: Mutex::new(CatalogEntries::default()),
            domain,
        }
    }

    /// All tables, by number.
    pub(crate) fn tables(&self) -> Vec<Arc<OpenTable>> {
        shim::lock(&self.list).tables.clone()
    }

    /// What the table or index with a number is called.
    pub(crate) fn name_of(&self, id: u32) -> String {
        if let Some(index) = id.checked_sub(FIRST_INDEX) {
            let list = shim::lock(&self.list);
            let name = list.index_names.get(index as usize);
            return name.cloned().unwrap_or_default();
        }
        let table = self.by_id(id);
        table.map_or(String::new(), |table| table.record.name.clone())
    }

    /// The table with a number.
    fn by_id(&self, id: u32) -> Option<Arc<OpenTable>> {
        shim::lock(&self.list).tables.get(id as usize).cloned()
    }

    /// The table called `name`, if there is one.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<OpenTable>> {
        let list = shim::lock(&self.list);
        let id = list.by_name.get(name)?;
        Some(list.tables[*id as usize].clone())
    }

    /// All indexes that exist, by name.
    pub(crate) fn indexes(&self) -> Vec<KnownIndex> {
        shim::lock(&self.list).indexes.values().cloned().collect()
    }

    /// The index called `name`, if it exists.
    pub(crate) fn index(&self, name: &str) -> Option<KnownIndex> {
        shim::lock(&self.list).indexes.get(name).cloned()
    }

    /// The index that `declared` says, if it is open and was declared so.
    pub(crate) fn open_index(
        &self,
        worker: &Worker,
        declared: &IndexRecord,
    ) -> Result<Arc<OpenIndex>> {
        worker.account().passed(&LIST);
        let known = self.index(&declared.name);
        if let Some(known) = &known
            && !known.record.agrees(declared)
        {
            return Err(known.record.differs_from(declared).into());
        }
        known.and_then(|known| known.open).ok_or_else(|| {
            let index = declared.name.clone();
            IndexError::NotOpen { index }.into()
        })
    }

    /// Takes down that an index exists, and whether it is open.
    pub(crate) fn know(&self, record: IndexRecord, open: Option<Arc<OpenIndex>>) {
        let name = record.name.clone();
        let known = KnownIndex { record, open };
        shim::lock(&self.list).indexes.insert(name, known);
    }

    /// Takes down that there is no index called `name` any more.
    pub(crate) fn forget(&self, name: &str) {
        shim::lock(&self.list).indexes.remove(name);
    }

    /// A place for the entries of an index that leads to `table`, with a number of its own.
    pub(crate) fn entries(&self, record: &IndexRecord, table: &Arc<OpenTable>) -> Arc<OpenTable> {
        let mut list = shim::lock(&self.list);
        let number = u32::try_from(list.index_names.len()).expect("indexes are few");
        list.index_names.push(record.name.clone());
        let none = || (String::new(), 0);
        let record = TableRecord {
            id: FIRST_INDEX + number,
            name: record.name.clone(),
            key_type: none(),
            value_type: none(),
        };
        Arc::new(OpenTable::new(record, &self.domain, Some(table.clone())))
    }

    /// The table called `name`, if it has these types; made if there is none, after `log` has put
    /// its record into the log (I1).
    pub(crate) fn resolve(
        &self,
        worker: &Worker,
        name: &str,
        key_type: &TypeName,
        value_type: &TypeName,
        log: impl FnOnce(&TableRecord) -> Result<()>,
    ) -> Result<Arc<OpenTable>> {
        worker.account().passed(&LIST);
        if index_catalog::is_reserved(name, key_type) {
            return Err(IndexError::ReservedTable.into());
        }
        let mut list = shim::lock(&self.list);
        if let Some(&id) = list.by_name.get(name) {
            let table = list.tables[id as usize].clone();
            drop(list);
            check_types(&table.record, key_type, value_type)?;
            return Ok(table);
        }
        if name.is_empty() || name.len() > MAX_TABLE_NAME_BYTES {
            return Err(Request::TableName { bytes: name.len() }.into());
        }
        if list.tables.len() >= MAX_TABLES {
            return Err(Request::TooManyTables.into());
        }
        let (key_type, value_type) = (key_type.for_new_table(), value_type.for_new_table());
        let record = TableRecord {
            id: u32::try_from(list.tables.len()).expect("MAX_TABLES fits"),
            name: name.to_owned(),
            key_type: (key_type.to_string(), key_type.hash()),
            value_type: (value_type.to_string(), value_type.hash()),
        };
        log(&record)?;
        Ok(list.add(record, &self.domain))
    }

    /// Adds a table read from the log. False if it cannot be: its number or name is taken, or a
    /// number is missing.
    pub(crate) fn restore(&self, record: TableRecord) -> bool {
        let mut list = shim::lock(&self.list);
        let fits =
            record.id as usize == list.tables.len() && !list.by_name.contains_key(&record.name);
        if fits {
            list.add(record, &self.domain);
        }
        fits
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        for table in self.tables() {
            *shim::lock(&table.kept.set) = Arc::default(); // I4
        }
    }
}

impl CatalogEntries {
    fn add(&mut self, record: TableRecord, domain: &Domain) -> Arc<OpenTable> {
        self.by_name.insert(record.name.clone(), record.id);
        let table = Arc::new(OpenTable::new(record, domain, None));
        self.tables.push(table.clone());
        table
    }
}

pub(crate) fn check_types(
    record: &TableRecord,
    key_type: &TypeName,
    value_type: &TypeName,
) -> Result<()> {
    if key_type.fits(record.key_type.1) && value_type.fits(record.value_type.1) {
        return Ok(());
    }
    Err(Request::TableTypes(Box::new(TableTypes {
        table: record.name.clone(),
        stored: (record.key_type.0.clone(), record.value_type.0.clone()),
        used: (key_type.to_string(), value_type.to_string()),
    }))
    .into())
}
