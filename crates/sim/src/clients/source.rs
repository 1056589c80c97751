//! Source of reads: a transaction, or a handle of a snapshot.

use super::{GROUPS, NAMES, Row};
use crate::history::{By, Scan};
use foxton::{Lock, LockOptions, Result, Snapshot, Table, Transaction};

/// See the [module](self). A handle takes no locks. Its ranges are told to, all the same: locks
/// that they took would stay, and stall the others.
pub(super) enum Source<'a> {
    Transaction(&'a mut Transaction),
    Snapshot(&'a Snapshot),
}

/// A row that a range has found: by which key, name or group, its own key, and the row.
pub(super) type Found = (u64, u64, Row);

impl Source<'_> {
    pub(super) fn get(
        &mut self,
        table: &Table<u64, Row>,
        key: u64,
        lock: LockOptions,
    ) -> Result<Option<Row>> {
        match self {
            Source::Transaction(tx) => tx.get_locked(table, &key, lock),
            Source::Snapshot(snapshot) => snapshot.get(table, &key),
        }
    }

    pub(super) fn get_many(
        &mut self,
        table: &Table<u64, Row>,
        keys: &[u64],
        lock: LockOptions,
    ) -> Result<Vec<Option<Row>>> {
        match self {
            Source::Transaction(tx) => tx.get_many_locked(table, keys, lock),
            Source::Snapshot(snapshot) => snapshot.get_many(table, keys),
        }
    }

    pub(super) fn get_by(&mut self, name: u64, lock: LockOptions) -> Result<Option<(u64, Row)>> {
        match self {
            Source::Transaction(tx) => tx.get_by_locked(&NAMES, &name, lock),
            Source::Snapshot(snapshot) => snapshot.get_by(&NAMES, &name),
        }
    }

    /// Reads the rows of `scan`.
    pub(super) fn rows(
        &mut self,
        tables: &[Table<u64, Row>],
        scan: &Scan,
        lock: LockOptions,
    ) -> Result<Vec<Found>> {
        let ends = scan.from..=scan.to;
        let found = match scan.by {
            By::Key => return self.rows_by_key(tables, scan, lock),
            By::Name => NAMES,
            By::Group => GROUPS,
        };
        let range = match self {
            Source::Transaction(tx) => tx.range_by(&found, ends).locked(lock),
            Source::Snapshot(snapshot) => snapshot.range_by(&found, ends)?.locked(Lock::Exclusive),
        };
        let range = range.limit(scan.limit);
        match scan.reversed {
            true => range.reversed().collect(),
            false => range.collect(),
        }
    }
    /// Reads the rows of a range of keys, of all tables as if they were one.
    fn rows_by_key(
        &mut self,
        tables: &[Table<u64, Row>],
        scan: &Scan,
        lock: LockOptions,
    ) -> Result<Vec<Found>> {
        let ends = scan.from..=scan.to;
        let mut found = Vec::new();
        for table in tables {
            let range = match self {
                Source::Transaction(tx) => tx.range(table, ends.clone()).locked(lock),
                Source::Snapshot(snapshot) => {
                    let range = snapshot.range(table, ends.clone())?;
                    range.locked(Lock::Exclusive)
                }
            };
            let range = range.limit(scan.limit);
            let rows = match scan.reversed {
                true => range.reversed().collect()?,
                false => range.collect()?,
            };
            found.extend(rows.into_iter().map(|(key, row)| (key, key, row)));
        }
        if tables.len() > 1 {
            found.sort_unstable_by_key(|(key, ..)| *key);
            if scan.reversed {
                found.reverse();
            }
            found.truncate(usize::try_from(scan.limit).unwrap_or(usize::MAX));
        }
        Ok(found)
    }
}
