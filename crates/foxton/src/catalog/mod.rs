//! The catalog: the tables of a database, by name and by number.
//!
//! # State
//!
//! An append-only list. A table's number is its position in the list; locks and the log refer to
//! the table by it. A worker consults the catalog when it first uses a table, and caches the
//! result. The first write to a table makes it; a read of a table that does not exist makes nothing
//! (`txn::absent_table`).
//!
//! # Invariants
//!
//! * I1  A table's record is in the log before the first change to the table: `make` writes it
//!   while it holds the list's mutex.
//! * I2  Numbers are dense and never change.
//! * I3  The set of indexes of a table changes only under a lock on the whole table that conflicts
//!   with every writer's lock. A writer reads the set after it has locked the table. Only an index
//!   that is not declared becomes stale under a writer's lock: no transaction uses it, and each
//!   writer makes sure of it before its first change.
//! * I4  A table refers to its indexes, and the entries of an index refer to their table. This
//!   cycle is cut when the index is dropped, or else when the catalog is. So no memory outlives the
//!   database.

/// Deleted rows that a snapshot may need.
pub(crate) mod deleted_rows;

/// Rows of a table, in memory or in pages.
pub(crate) mod table_store;

/// Catalog of secondary indexes.
pub(crate) mod index_catalog;

/// Memory of the rows that are in memory, and its limit.
pub(crate) mod resident_memory;

/// Conversions: which component has the rows of a table that was converted.
pub(crate) mod conversions;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};

use foxton_log::Lsn;
use foxton_store::memory;
use foxton_sync::epoch::Domain;
use foxton_sync::shim::{self, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::error::{ComponentMismatch, IndexError, Request, Result, TableTypes};
use crate::redo::record::TableRecord;
use crate::types::codec::TypeName;
use crate::types::component::TableComponent;
use crate::types::index::Extract;
use crate::types::index_entry::EntryKind;
use crate::types::limits::{
    FIRST_INDEX, FIRST_PAGED_INDEX, MAX_TABLE_NAME_BYTES, MAX_TABLES, TABLE_NAMES,
};
use conversions::{PlaceWord, RowsPlace};
use deleted_rows::DeletedRows;
use index_catalog::IndexRecord;
use resident_memory::ResidentMemory;
use table_store::TableStore;

/// The indexes of a table; read by workers that find that they have changed.
static KEPT: Site = Site::new(
    Component::Metadata,
    Pattern::Unbounded,
    "indexes of a table",
);

static LIST: Site = Site::new(Component::Metadata, Pattern::Unbounded, "catalog");

/// A table: its name, its types and its rows.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub(crate) record: TableRecord,
    pub(crate) store: TableStore,
    pub(crate) kept: TableIndexes,
    /// Whether it has the rows that its name stands for.
    pub(crate) place: PlaceWord,
    /// If these are the entries of an index: the table whose rows it finds.
    pub(crate) of: Option<Arc<OpenTable>>,
    /// Deleted rows that a snapshot may need.
    pub(crate) deleted: OnceLock<DeletedRows>,
    /// Position of the log from which on snapshots find its rows: of an index, or of a table that
    /// was converted, the end of its making.
    since: AtomicU64,
}

/// The indexes of a table (I3).
#[derive(Debug, Default)]
pub(crate) struct TableIndexes {
    /// Number of changes; 0 if the table has no indexes and never had any.
    changes: AtomicU32,
    set: Mutex<Arc<IndexSet>>,
}

/// The indexes of one table.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexSet {
    pub(crate) open: Vec<Arc<OpenIndex>>,
    /// Unique indexes that exist and are not declared, so the database cannot maintain them.
    pub(crate) undeclared: Vec<String>,
    /// Other indexes of a paged table that are not declared, and that have the entries of all rows.
    /// The first write makes them stale.
    pub(crate) unmaintained: Vec<UnmaintainedIndex>,
}

/// An index of a paged table that the program has not declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnmaintainedIndex {
    pub(crate) name: String,
    /// Its number, which is also that of its tree.
    pub(crate) number: u32,
}

impl IndexSet {
    /// Removes an index from those that are not declared.
    pub(crate) fn forget(&mut self, name: &str) {
        self.undeclared.retain(|undeclared| undeclared != name);
        self.unmaintained
            .retain(|unmaintained| unmaintained.name != name);
    }
}

/// A declared index, with its entries.
pub(crate) struct OpenIndex {
    pub(crate) kind: EntryKind,
    /// The table of the entries, which locks and undo refer to.
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

    /// True if the index was dropped. Only for holders of a lock on the whole index.
    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        // Relaxed: ordered by the lock.
        self.dropped.load(Ordering::Relaxed)
    }

    /// Records that the index was dropped. Only for the holder of an exclusive lock on the whole
    /// index.
    pub(crate) fn set_dropped(&self) {
        // Relaxed: see `is_dropped`.
        self.dropped.store(true, Ordering::Relaxed);
        if self.entries.is_paged() {
            self.entries.place.set(RowsPlace::Dropped);
        }
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
            store: TableStore::new(record.component, domain),
            record,
            kept: TableIndexes::default(),
            place: PlaceWord::default(),
            of,
            deleted: OnceLock::new(),
            since: AtomicU64::new(0),
        }
    }

    /// True if its twin has the rows. Only a holder of a lock on the table may rely on the answer.
    #[inline(always)]
    pub(crate) fn is_former(&self) -> bool {
        !self.place.is(RowsPlace::Current)
    }

    /// True if snapshots at `snapshot` find its rows.
    #[inline]
    pub(crate) fn is_since(&self, snapshot: Lsn) -> bool {
        // Relaxed: the log orders it. A later snapshot has loaded the front later.
        self.since.load(Ordering::Relaxed) <= snapshot.bytes()
    }

    /// Makes snapshots not find its rows, which are being copied or indexed.
    pub(crate) fn hide_from_snapshots(&self) {
        self.since.store(u64::MAX, Ordering::Relaxed); // As `is_since`.
    }

    /// Makes snapshots from `front` on find its rows, after the commit that ends its making.
    pub(crate) fn show_to_snapshots(&self, front: Lsn) {
        self.since.store(front.bytes(), Ordering::Relaxed); // As `is_since`.
    }

    /// Returns the rows of a table or of an index that is in memory.
    ///
    /// # Panics
    ///
    /// If it is paged.
    #[inline]
    pub(crate) fn resident(&self) -> &memory::RecordTable {
        match &self.store {
            TableStore::Resident(rows) => rows,
            TableStore::Paged(_) => unreachable!("the caller has looked"),
        }
    }

    /// True if it is paged. The indexes of a paged table are paged, and no others.
    #[inline]
    pub(crate) fn is_paged(&self) -> bool {
        matches!(self.store, TableStore::Paged(_))
    }

    /// Returns its number among the trees, of which number 0 is the directory.
    #[inline]
    pub(crate) fn tree_number(&self) -> u64 {
        u64::from(self.record.id) + 1
    }

    /// Returns the name of the table or index with the number `space`, if it is this one or its
    /// table.
    pub(crate) fn call(&self, space: u32) -> String {
        match &self.of {
            Some(table) if table.record.id == space => table.record.name.clone(),
            _ => self.record.name.clone(),
        }
    }
}

impl TableIndexes {
    /// True if the table has no indexes and never had any.
    #[inline]
    pub(crate) fn is_nothing(&self) -> bool {
        self.changes() == 0
    }

    /// Returns the number of changes.
    #[inline]
    pub(crate) fn changes(&self) -> u32 {
        // Relaxed: ordered by the lock on the table (I3).
        self.changes.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, worker: &Worker) -> Arc<IndexSet> {
        worker.account().passed(&KEPT);
        shim::lock(&self.set).clone()
    }

    /// Makes indexes stale that the program has not declared, after `log` has appended that. For a
    /// writer, before its first change (I3). Returns them.
    pub(crate) fn make_stale(
        &self,
        worker: &Worker,
        log: impl FnOnce(&[UnmaintainedIndex]) -> Result<()>,
    ) -> Result<Vec<UnmaintainedIndex>> {
        worker.account().passed(&KEPT);
        let mut set = shim::lock(&self.set);
        if set.unmaintained.is_empty() {
            return Ok(Vec::new());
        }
        log(&set.unmaintained)?;
        let mut new = IndexSet::clone(&set);
        let stale = std::mem::take(&mut new.unmaintained);
        *set = Arc::new(new);
        // Relaxed: see `changes`.
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(stale)
    }

    /// Changes the set. Only for the holder of the lock on the table (I3).
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
    /// Numbers of tables, by the numbers of their twins.
    origins: HashMap<u32, u32>,
    /// Every existing index.
    indexes: BTreeMap<String, KnownIndex>,
    /// Names of the indexes that were opened, by their numbers.
    index_names: BTreeMap<u32, String>,
    /// Number of the next index of a paged table, minus [`FIRST_PAGED_INDEX`].
    next_paged: u32,
}

/// An existing index.
#[derive(Debug, Clone)]
pub(crate) struct KnownIndex {
    pub(crate) record: IndexRecord,
    /// The open index, if it is declared.
    pub(crate) open: Option<Arc<OpenIndex>>,
}

/// The catalog; see the [module](self).
#[derive(Debug)]
pub(crate) struct Catalog {
    list: Mutex<CatalogEntries>,
    domain: Domain,
    /// Number of tables that were dropped.
    drops: AtomicU32,
    /// Memory of all resident rows and index entries.
    pub(crate) resident: ResidentMemory,
}

impl Catalog {
    /// Creates an empty catalog. The memory of rows is reclaimed in `domain`, and takes at most
    /// `resident_memory` bytes.
    pub(crate) fn new(domain: Domain, resident_memory: u64) -> Catalog {
        Catalog {
            list: Mutex::new(CatalogEntries::default()),
            domain,
            drops: AtomicU32::new(0),
            resident: ResidentMemory::new(resident_memory),
        }
    }

    /// Returns all tables, by number.
    pub(crate) fn tables(&self) -> Vec<Arc<OpenTable>> {
        shim::lock(&self.list).tables.clone()
    }

    /// Returns the name of the table or index with a number.
    pub(crate) fn name_of(&self, id: u32) -> String {
        if id == TABLE_NAMES {
            return "foxton:tables".to_owned();
        }
        if id >= FIRST_INDEX {
            let list = shim::lock(&self.list);
            return list.index_names.get(&id).cloned().unwrap_or_default();
        }
        let table = self.by_id(id);
        table.map_or(String::new(), |table| table.record.name.clone())
    }

    /// Returns the table with a number.
    fn by_id(&self, id: u32) -> Option<Arc<OpenTable>> {
        shim::lock(&self.list).tables.get(id as usize).cloned()
    }

    /// Returns the table called `name`, if it exists.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<OpenTable>> {
        let list = shim::lock(&self.list);
        let id = list.by_name.get(name)?;
        Some(list.tables[*id as usize].clone())
    }

    /// Returns all existing indexes, by name.
    pub(crate) fn indexes(&self) -> Vec<KnownIndex> {
        shim::lock(&self.list).indexes.values().cloned().collect()
    }

    /// Returns the index called `name`, if it exists.
    pub(crate) fn index(&self, name: &str) -> Option<KnownIndex> {
        shim::lock(&self.list).indexes.get(name).cloned()
    }

    /// Returns the index of `declared`, if it is open with the same declaration.
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

    /// Adds an index, or replaces its entry.
    pub(crate) fn know(&self, record: IndexRecord, open: Option<Arc<OpenIndex>>) {
        let name = record.name.clone();
        let known = KnownIndex { record, open };
        shim::lock(&self.list).indexes.insert(name, known);
    }

    /// Removes the index called `name`.
    pub(crate) fn forget(&self, name: &str) {
        shim::lock(&self.list).indexes.remove(name);
    }

    /// Returns a number for an index of a paged table that it has returned to no other index.
    pub(crate) fn new_paged_index(&self) -> u32 {
        let mut list = shim::lock(&self.list);
        list.next_paged += 1;
        FIRST_PAGED_INDEX + list.next_paged - 1
    }

    /// Records that an index of a paged table has `number`.
    pub(crate) fn know_paged_index(&self, number: u32) {
        let mut list = shim::lock(&self.list);
        list.next_paged = list.next_paged.max(number - FIRST_PAGED_INDEX + 1);
    }

    /// Returns the entries of a paged index that no transaction knows any more.
    pub(crate) fn dropped_entries(&self, number: u32) -> Arc<OpenTable> {
        let none = || (String::new(), 0);
        let record = TableRecord {
            id: number,
            name: String::new(),
            key_type: none(),
            value_type: none(),
            component: TableComponent::Paged,
        };
        let mut entries = OpenTable::new(record, &self.domain, None);
        entries.place = PlaceWord::new(RowsPlace::Dropped);
        Arc::new(entries)
    }

    /// Creates the table for the entries of an index on `table`. `number` is that of an index of a
    /// paged table; others get one here.
    pub(crate) fn entries(
        &self,
        record: &IndexRecord,
        table: &Arc<OpenTable>,
        number: Option<u32>,
    ) -> Arc<OpenTable> {
        let mut list = shim::lock(&self.list);
        let number = number.unwrap_or_else(|| {
            let mut resident = list.index_names.range(..FIRST_PAGED_INDEX);
            resident
                .next_back()
                .map_or(FIRST_INDEX, |(last, _)| last + 1)
        });
        list.index_names.insert(number, record.name.clone());
        let none = || (String::new(), 0);
        let record = TableRecord {
            id: number,
            name: record.name.clone(),
            key_type: none(),
            value_type: none(),
            component: table.record.component,
        };
        Arc::new(OpenTable::new(record, &self.domain, Some(table.clone())))
    }

    /// True if a table is paged.
    pub(crate) fn has_paged_tables(&self) -> bool {
        let list = shim::lock(&self.list);
        let is_paged = |table: &Arc<OpenTable>| table.record.component == TableComponent::Paged;
        list.tables.iter().any(is_paged)
    }

    /// Returns the table of `named`, if it exists. Refuses other types and another component than
    /// it has, and a name that no table can have.
    pub(crate) fn look_up(
        &self,
        worker: &Worker,
        named: NamedTable<'_>,
    ) -> Result<Option<Arc<OpenTable>>> {
        let NamedTable { name, key_type, .. } = named;
        worker.account().passed(&LIST);
        if index_catalog::is_reserved(name, key_type) || conversions::is_twin_name(name) {
            return Err(IndexError::ReservedTable.into());
        }
        match self.find(name) {
            Some(table) => {
                named.check(&table.record)?;
                Ok(Some(table))
            }
            None if name.is_empty() || name.len() > MAX_TABLE_NAME_BYTES => {
                Err(Request::TableName { bytes: name.len() }.into())
            }
            None => Ok(None),
        }
    }

    /// Makes the table of `named`, which [`look_up`](Self::look_up) has not found, in `component`,
    /// after `log` has appended its record (I1). If another thread was faster, returns its table.
    pub(crate) fn make(
        &self,
        worker: &Worker,
        named: NamedTable<'_>,
        component: TableComponent,
        log: impl FnOnce(&TableRecord) -> Result<()>,
    ) -> Result<Arc<OpenTable>> {
        worker.account().passed(&LIST);
        let NamedTable {
            name,
            key_type,
            value_type,
            ..
        } = named;
        let mut list = shim::lock(&self.list);
        if let Some(&id) = list.by_name.get(name) {
            let table = list.tables[id as usize].clone();
            drop(list);
            named.check(&table.record)?;
            return Ok(table);
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
            component,
        };
        log(&record)?;
        Ok(list.add(record, &self.domain))
    }

    /// Adds a table read from the log. Returns false if its number is taken, a number is missing,
    /// or it is the twin of no table. If its name is taken, the table before was dropped.
    pub(crate) fn restore(&self, record: TableRecord) -> bool {
        let mut list = shim::lock(&self.list);
        if record.id as usize != list.tables.len() {
            return false;
        }
        let fits = match conversions::twin_of(&record.name) {
            Some(table) => {
                (table as usize) < list.tables.len() && !list.origins.contains_key(&table)
            }
            None => true,
        };
        if fits {
            list.add(record, &self.domain);
        }
        fits
    }

    /// Returns the number of the table of which `table` is a twin, or its own.
    pub(crate) fn origin(&self, table: &OpenTable) -> u32 {
        shim::lock(&self.list).origin(table.record.id)
    }

    /// Returns the table and its twins, but not `table` itself.
    pub(crate) fn twins(&self, table: &OpenTable) -> Vec<Arc<OpenTable>> {
        let list = shim::lock(&self.list);
        let mut twins = list.family(list.origin(table.record.id));
        twins.retain(|twin| twin.record.id != table.record.id);
        twins
    }

    /// Makes a twin of a table in `component`, after `log` has appended its record (I1).
    pub(crate) fn make_twin(
        &self,
        worker: &Worker,
        (table, component): (&OpenTable, TableComponent),
        log: impl FnOnce(&TableRecord) -> Result<()>,
    ) -> Result<Arc<OpenTable>> {
        worker.account().passed(&LIST);
        let mut list = shim::lock(&self.list);
        if list.tables.len() >= MAX_TABLES {
            return Err(Request::TooManyTables.into());
        }
        let record = TableRecord {
            id: u32::try_from(list.tables.len()).expect("MAX_TABLES fits"),
            name: conversions::twin_name(list.origin(table.record.id)),
            component,
            ..table.record.clone()
        };
        log(&record)?;
        Ok(list.add(record, &self.domain))
    }

    /// Makes a table and its twins absent. Only for the holder of an exclusive lock on the one that
    /// has the rows, or while no transaction runs.
    pub(crate) fn drop_table(&self, table: &OpenTable) {
        let mut list = shim::lock(&self.list);
        let origin = list.origin(table.record.id);
        list.drop_family(origin);
        // Relaxed: a worker that reads it late finds by its lock that the table is dropped.
        self.drops.fetch_add(1, Ordering::Relaxed); // Site: "catalog", passed by its readers.
    }

    /// Returns the number of tables that were dropped.
    #[inline]
    pub(crate) fn drops(&self) -> u32 {
        // Relaxed: see `drop_table`.
        self.drops.load(Ordering::Relaxed)
    }

    /// Makes a table the one that its name stands for.
    fn set_current(&self, table: &OpenTable) {
        let mut list = shim::lock(&self.list);
        list.by_name
            .insert(table.record.name.clone(), table.record.id);
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
    fn origin(&self, id: u32) -> u32 {
        self.origins.get(&id).copied().unwrap_or(id)
    }

    /// Returns a table and its twins.
    fn family(&self, origin: u32) -> Vec<Arc<OpenTable>> {
        let tables = self.tables.iter();
        let family = tables.filter(|table| self.origin(table.record.id) == origin);
        family.cloned().collect()
    }

    /// Makes a table and its twins absent.
    fn drop_family(&mut self, origin: u32) {
        for table in self.family(origin) {
            table.place.set(RowsPlace::Dropped);
            let name = &table.record.name;
            if self.by_name.get(name) == Some(&table.record.id) {
                self.by_name.remove(name);
            }
        }
    }

    /// Adds the table of a record. A twin gets the name of its table, for which it may come to
    /// stand.
    fn add(&mut self, mut record: TableRecord, domain: &Domain) -> Arc<OpenTable> {
        let id = record.id;
        let place = match conversions::twin_of(&record.name) {
            Some(table) => {
                self.origins.insert(id, table);
                record.name = self.tables[table as usize].record.name.clone();
                RowsPlace::Former
            }
            None => {
                if let Some(&before) = self.by_name.get(&record.name) {
                    // Only a table that was dropped has left its name to another.
                    self.drop_family(self.origin(before));
                }
                self.by_name.insert(record.name.clone(), id);
                RowsPlace::Current
            }
        };
        let mut table = OpenTable::new(record, domain, None);
        table.place = PlaceWord::new(place);
        let table = Arc::new(table);
        self.tables.push(table.clone());
        table
    }
}

/// A table as a program names it: with types, and with a component or without.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedTable<'n> {
    pub(crate) name: &'n str,
    pub(crate) key_type: &'n TypeName,
    pub(crate) value_type: &'n TypeName,
    pub(crate) component: Option<TableComponent>,
}

impl NamedTable<'_> {
    /// Refuses other types and another component than those of `record`.
    pub(crate) fn check(&self, record: &TableRecord) -> Result<()> {
        let (key_type, value_type) = (self.key_type, self.value_type);
        if !(key_type.fits(record.key_type.1) && value_type.fits(record.value_type.1)) {
            return Err(Request::TableTypes(Box::new(TableTypes {
                table: record.name.clone(),
                stored: (record.key_type.0.clone(), record.value_type.0.clone()),
                used: (key_type.to_string(), value_type.to_string()),
            }))
            .into());
        }
        match self.component {
            Some(used) if used != record.component => {
                Err(Request::TableComponent(Box::new(ComponentMismatch {
                    table: record.name.clone(),
                    stored: record.component,
                    used,
                }))
                .into())
            }
            _ => Ok(()),
        }
    }
}
