//! From the log to the tables: what was committed, in the order it was committed, and nothing else.
//!
//! Restart reads the log once, from its beginning. Parts of large transactions are put aside until
//! the record that commits them; parts without one never happened. Nobody else uses the tables yet,
//! so nothing is locked.

use std::collections::HashMap;
use std::fmt;

use foxton_log::{Lsn, RecordView};
use foxton_store::memory::{NewRecord, Next, ValueBlock};
use foxton_sync::worker::Worker;

use crate::catalog::{Catalog, OpenTable};
use crate::codec::{Undecodable, Value};
use crate::error::{Error, Result};
use crate::redo::{self, Change, TableRecord, next_change};

/// What restart has read and not applied yet.
pub(crate) struct Restart<'a> {
    worker: &'a Worker,
    catalog: &'a Catalog,
    tables: Vec<std::sync::Arc<OpenTable>>,
    /// By the LSN at which the first part ends.
    parts: HashMap<u64, Vec<u8>>,
    pub(crate) transactions: u64,
    pub(crate) changes: u64,
}

/// A record whose check is good and whose content makes no sense: written by a program that does
/// not agree with this one.
#[derive(Debug)]
pub(crate) struct Senseless(pub(crate) &'static str);

impl fmt::Display for Senseless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl From<Undecodable> for Senseless {
    fn from(undecodable: Undecodable) -> Senseless {
        Senseless(undecodable.expected)
    }
}

impl<'a> Restart<'a> {
    pub(crate) fn new(worker: &'a Worker, catalog: &'a Catalog) -> Restart<'a> {
        let (tables, parts) = (Vec::new(), HashMap::new());
        Restart {
            worker,
            catalog,
            tables,
            parts,
            transactions: 0,
            changes: 0,
        }
    }

    /// Takes in one record.
    pub(crate) fn visit(&mut self, record: RecordView<'_>) -> Result<(), Senseless> {
        let mut payload = record.payload;
        match record.kind {
            redo::TABLE => {
                if !self.catalog.restore(TableRecord::decode(payload)?) {
                    return Err(Senseless("a table with a number and a name of its own"));
                }
                self.tables = self.catalog.tables();
            }
            redo::COMMIT => self.apply(payload)?,
            redo::PART => {
                let first = match u64::decode_part(&mut payload)? {
                    0 => record.end.bytes(),
                    first => first,
                };
                self.parts
                    .entry(first)
                    .or_default()
                    .extend_from_slice(payload);
            }
            redo::LAST => {
                let first = u64::decode_part(&mut payload)?;
                let Some(parts) = self.parts.remove(&first) else {
                    return Err(Senseless(
                        "the last part of a transaction whose first is known",
                    ));
                };
                self.apply_all(&parts)?;
                self.apply(payload)?;
            }
            redo::ABANDONED => {
                self.parts.remove(&u64::decode_part(&mut payload)?);
            }
            _ => return Err(Senseless("a kind of record that is known")),
        }
        Ok(())
    }

    fn apply(&mut self, changes: &[u8]) -> Result<(), Senseless> {
        self.transactions += 1;
        self.apply_all(changes)
    }

    fn apply_all(&mut self, mut changes: &[u8]) -> Result<(), Senseless> {
        while !changes.is_empty() {
            let change = next_change(&mut changes)?;
            let Some(table) = self.tables.get(change.table as usize) else {
                return Err(Senseless("a change to a table that is known"));
            };
            redo_change(self.worker, table, change)?;
            self.changes += 1;
        }
        Ok(())
    }
}

fn redo_change(worker: &Worker, table: &OpenTable, change: Change<'_>) -> Result<(), Senseless> {
    const TOO_LONG: Senseless = Senseless("a key and a value within their limits");
    let guard = worker.pin();
    let rows = &table.rows;
    let Some(record) = rows.get(&guard, change.key) else {
        if change.value.is_some() {
            let record = NewRecord::new(change.key, change.value).map_err(|_| TOO_LONG)?;
            let inserted = rows.insert(&guard, record, Next::Any);
            assert!(
                inserted.is_ok(),
                "nobody else uses the table, and the key is not there"
            );
        }
        return Ok(());
    };
    let new = change
        .value
        .map(ValueBlock::new)
        .transpose()
        .map_err(|_| TOO_LONG)?;
    let ghost = new.is_none();
    if let Some(old) = record.swap(new) {
        old.retire(&guard);
    }
    if ghost {
        let removed = rows.remove(&guard, record, Next::Any);
        assert!(
            removed.is_ok(),
            "nobody else uses the table, and the record is a ghost"
        );
    }
    Ok(())
}

/// What opening a database found in its log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Recovered {
    /// Transactions that were committed.
    pub transactions: u64,
    /// Changes they made.
    pub changes: u64,
    /// Where the log ends, in bytes.
    pub log_end: Lsn,
    /// How the log ended, and what was done about it, for people.
    pub log: String,
}

impl Error {
    pub(crate) fn senseless(lsn: Lsn, senseless: &Senseless) -> Error {
        crate::error::Storage::Damaged {
            place: format!("log record at LSN {lsn}"),
            what: format!("it does not hold {senseless}"),
        }
        .into()
    }
}
