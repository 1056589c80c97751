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

use std::collections::HashMap;
use std::sync::Arc;

use foxton_store::memory;
use foxton_sync::epoch::Domain;
use foxton_sync::shim::{self, Mutex};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::codec::TypeName;
use crate::error::{Request, Result, TableTypes};
use crate::limits::{MAX_TABLE_NAME_BYTES, MAX_TABLES};
use crate::redo::TableRecord;

static LIST: Site = Site::new(Component::Metadata, Pattern::Unbounded, "catalog");

/// A table: what it is called, what it maps, and its rows.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub(crate) record: TableRecord,
    pub(crate) rows: memory::Table,
}

#[derive(Debug, Default)]
struct List {
    tables: Vec<Arc<OpenTable>>,
    by_name: HashMap<String, u32>,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Catalog {
    list: Mutex<List>,
    domain: Domain,
}

impl Catalog {
    /// No tables yet; the memory of their rows is reclaimed in `domain`.
    pub(crate) fn new(domain: Domain) -> Catalog {
        Catalog {
            list: Mutex::new(List::default()),
            domain,
        }
    }

    /// All tables, by number.
    pub(crate) fn tables(&self) -> Vec<Arc<OpenTable>> {
        shim::lock(&self.list).tables.clone()
    }

    /// What the table with a number is called.
    pub(crate) fn name_of(&self, id: u32) -> String {
        let table = self.by_id(id);
        table.map_or(String::new(), |table| table.record.name.clone())
    }

    /// The table with a number.
    fn by_id(&self, id: u32) -> Option<Arc<OpenTable>> {
        shim::lock(&self.list).tables.get(id as usize).cloned()
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

impl List {
    fn add(&mut self, record: TableRecord, domain: &Domain) -> Arc<OpenTable> {
        self.by_name.insert(record.name.clone(), record.id);
        let table = Arc::new(OpenTable {
            record,
            rows: memory::Table::new(domain),
        });
        self.tables.push(table.clone());
        table
    }
}

fn check_types(record: &TableRecord, key_type: &TypeName, value_type: &TypeName) -> Result<()> {
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
