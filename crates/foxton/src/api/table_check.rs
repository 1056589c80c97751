//! Checks of what tables have: of each row, and of an index against its table.
//!
//! # Index and table
//!
//! Each row must be found by its keys, and each entry must lead to its row. Both are read at one
//! snapshot, so transactions write meanwhile. If the snapshot cannot read them, a transaction locks
//! both as a whole, and its reads lock nothing further. [`is_refused`] decides.
//!
//! # Dropped meanwhile
//!
//! An index that is dropped meanwhile loses its entries without regard to snapshots. It counts as
//! dropped before that, so what was found until then is forgotten.

use std::ops::ControlFlow;
use std::sync::Arc;

use foxton_lock::mode::Mode;

use crate::api::database::Database;
use crate::api::index_build::lock_whole;
use crate::api::paged_index_build::without_locks;
use crate::api::snapshot::SnapshotAt;
use crate::catalog::{OpenIndex, OpenTable};
use crate::error::{ConflictReason, Error, IndexError, Request, Result};
use crate::txn::bound::BoundTxn;
use crate::txn::index_plan::extract;
use crate::types::index_entry::ExtractedKeys;
use crate::types::lock_options::{LockOptions, LockWait};

/// Bytes of rows that are copied before they are compared.
const BATCH_BYTES: usize = 64 << 10;

/// Differences between an index and its table.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// The keys of rows, each with a description; the first ones only.
    pub(crate) rows: Vec<(Vec<u8>, &'static str)>,
    /// Number of all.
    pub(crate) count: usize,
}

impl Differences {
    fn add(&mut self, row: &[u8], what: &'static str, most: usize) {
        self.count += 1;
        if self.count <= most {
            self.rows.push((row.to_vec(), what));
        }
    }
}

/// Compares an open index with its table. Lists at most `most` of the differences.
pub(crate) fn compare(db: &Database, index: &OpenIndex, most: usize) -> Result<Differences> {
    match compare_at_snapshot(db, index, most) {
        Err(error) if is_refused(&error) => {}
        compared => return compared,
    }
    db.run_busy(|tx| {
        let bound = &mut *tx.attach()?;
        lock_whole(bound, table_of(index), Mode::S)?;
        lock_whole(bound, &index.entries, Mode::S)?;
        if index.is_dropped() {
            return Ok(Differences::default());
        }
        without_locks(bound, |bound| compare_rows(bound, index, most))
    })
}

fn compare_at_snapshot(db: &Database, index: &OpenIndex, most: usize) -> Result<Differences> {
    let snapshot = db.snapshot_at(SnapshotAt::Durable)?;
    let differences = snapshot.read(|bound| compare_rows(bound, index, most))?;
    snapshot.end()?;
    Ok(match index.is_dropped() {
        true => Differences::default(),
        false => differences,
    })
}

/// Rows of a table that were looked at.
#[derive(Debug, Default)]
pub(crate) struct CheckedRows {
    pub(crate) rows: u64,
    /// The first defect.
    pub(crate) defect: Option<String>,
}

/// Checks that the rows of a table are in order, and that each is found by its key. Returns `None`
/// if the table is dropped, truncated or converted meanwhile.
///
/// If a snapshot does not read it, each row is read as it is now, without a lock. Another
/// transaction may then change it before it is looked for by its key, so that is left out.
pub(crate) fn check_rows(db: &Database, table: &Arc<OpenTable>) -> Result<Option<CheckedRows>> {
    let checked = match check_rows_at_snapshot(db, table) {
        Err(error) if is_refused(&error) && !table.is_former() => db.run_busy(|tx| {
            let bound = &mut *tx.attach()?;
            without_locks(bound, |bound| check_each(bound, table, false))
        }),
        checked => checked,
    };
    match checked {
        _ if table.is_former() => Ok(None),
        checked => checked.map(Some),
    }
}

fn check_rows_at_snapshot(db: &Database, table: &Arc<OpenTable>) -> Result<CheckedRows> {
    let snapshot = db.snapshot_at(SnapshotAt::Durable)?;
    let checked = snapshot.read(|bound| check_each(bound, table, true))?;
    snapshot.end()?;
    Ok(checked)
}

fn check_each(
    bound: &mut BoundTxn,
    table: &Arc<OpenTable>,
    is_at_snapshot: bool,
) -> Result<CheckedRows> {
    let (mut checked, mut last) = (CheckedRows::default(), None::<Vec<u8>>);
    for_each(bound, table, |bound, key, value| {
        checked.rows += 1;
        if checked.defect.is_none() && last.as_deref().is_some_and(|last| last >= key) {
            checked.defect = Some(format!("key {key:?} is not in order"));
        }
        if is_at_snapshot && checked.defect.is_none() {
            let found = get(bound, table, key)?;
            if found.as_deref() != Some(value) {
                checked.defect = Some(format!("key {key:?} is not found by the index"));
            }
        }
        last = Some(key.to_vec());
        Ok(())
    })?;
    Ok(checked)
}

/// True if a snapshot does not read the table or the index, so that both have to be locked.
fn is_refused(error: &Error) -> bool {
    match error {
        Error::Request(Request::Index(error)) => matches!(**error, IndexError::Younger { .. }),
        Error::Request(request) => matches!(
            request,
            Request::ReadViewOfPages | Request::YoungerThanSnapshot | Request::SnapshotWithoutLocks
        ),
        Error::Conflict(conflict) => matches!(
            conflict.reason(),
            ConflictReason::SnapshotEnded | ConflictReason::TableDropped
        ),
        Error::Storage(_) => false,
    }
}

fn table_of(index: &OpenIndex) -> &Arc<OpenTable> {
    let table = index.entries.of.as_ref();
    table.expect("entries lead to a table")
}

/// Compares both as the transaction reads them, which locks nothing.
fn compare_rows(bound: &mut BoundTxn, index: &OpenIndex, most: usize) -> Result<Differences> {
    let (entries, table) = (&index.entries, table_of(index));
    let mut differences = Differences::default();
    let (mut found, mut key, mut value) = (ExtractedKeys::default(), Vec::new(), Vec::new());
    for_each(bound, table, |bound, primary, row| {
        extract(index, primary, Some(row), &mut found)?;
        for index_key in found.iter() {
            key.clear();
            value.clear();
            index.kind.write_key(index_key, primary, &mut key);
            index.kind.write_value(index_key.len(), primary, &mut value);
            match get(bound, entries, &key)? {
                None => differences.add(primary, "it is not in the index", most),
                Some(there) if there != value => {
                    differences.add(primary, "the index leads to another row instead", most);
                }
                Some(_) => {}
            }
        }
        Ok(())
    })?;
    for_each(bound, entries, |bound, key, value| {
        let (index_key, primary) = index.kind.read(key, value);
        match get(bound, table, primary)? {
            None => {
                let what = "the index leads to it, and it is not there";
                differences.add(primary, what, most);
            }
            Some(row) => {
                extract(index, primary, Some(&row), &mut found)?;
                if !found.contains(index_key) {
                    let what = "the index has it by a key that it does not have";
                    differences.add(primary, what, most);
                }
            }
        }
        Ok(())
    })?;
    Ok(differences)
}

/// Refuses a table that was converted, truncated or dropped. Nothing would make the attempt find
/// the new one, because it was not opened by its name.
fn check_current(table: &OpenTable) -> Result<()> {
    match table.is_former() {
        true => Err(Request::YoungerThanSnapshot.into()),
        false => Ok(()),
    }
}

/// Returns the value of a key.
fn get(bound: &mut BoundTxn, table: &Arc<OpenTable>, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let place = bound.ctx.cached_entries(table.clone());
    bound.ctx.key.clear();
    bound.ctx.key.extend_from_slice(key);
    bound.block_on(LockWait::Default, |bound| {
        check_current(table)?;
        bound.get_step(place, LockOptions::default(), &mut Some(<[u8]>::to_vec))
    })
}

/// Calls `visit` with each row of a table.
fn for_each(
    bound: &mut BoundTxn,
    table: &Arc<OpenTable>,
    mut visit: impl FnMut(&mut BoundTxn, &[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let mut batch: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    bound.txn.scan.begin::<[u8]>(&.., |_, _| Ok(()))?;
    while !bound.txn.scan.is_finished() {
        let place = bound.ctx.cached_entries(table.clone());
        let mut bytes = 0;
        bound.block_on(LockWait::Default, |bound| {
            check_current(table)?;
            bound.scan_step(place, &mut |key, value| {
                bytes += key.len() + value.len();
                batch.push((key.to_vec(), value.to_vec()));
                match bytes < BATCH_BYTES {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })
        })?;
        for (key, value) in batch.drain(..) {
            visit(bound, &key, &value)?;
        }
    }
    Ok(())
}
