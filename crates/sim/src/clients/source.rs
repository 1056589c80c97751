//! Source of reads: a transaction, or a handle of a snapshot.

use super::{GROUPS, NAMES, ROWS, Row};
use crate::history::{By, Scan};
use foxton::{Lock, LockOptions, Result, Snapshot, Transaction};

/// See the [module](self). A handle takes no locks. Its ranges are told to, all the same: locks
/// that they took would stay, and stall the others.
pub(super) enum Source<'a> {
    Transaction(&'a mut Transaction),
    Snapshot(&'a Snapshot),
}

/// A row that a range has found: by which key, name or group, its own key, and the row.
pub(super) type Found = (u64, u64, Row);

impl Source<'_> {
    pub(super) fn get(&mut self, key: u64, lock: LockOptions) -> Result<Option<Row>> {
        match self {
            Source::Transaction(tx) => tx.get_locked(&ROWS, &key, lock),
            Source::Snapshot(snapshot) => snapshot.get(&ROWS, &key),
        }
    }

    pub(super) fn get_many(&mut self, keys: &[u64], lock: LockOptions) -> Result<Vec<Option<Row>>> {
        match self {
            Source::Transaction(tx) => tx.get_many_locked(&ROWS, keys, lock),
            Source::Snapshot(snapshot) => snapshot.get_many(&ROWS, keys),
        }
    }

    pub(super) fn get_by(&mut self, name: u64, lock: LockOptions) -> Result<Option<(u64, Row)>> {
        match self {
            Source::Transaction(tx) => tx.get_by_locked(&NAMES, &name, lock),
            Source::Snapshot(snapshot) => snapshot.get_by(&NAMES, &name),
        }
    }

    /// Reads the rows of `scan`.
    pub(super) fn rows(&mut self, scan: &Scan, lock: LockOptions) -> Result<Vec<Found>> {
        let ends = scan.from..=scan.to;
        let found = match scan.by {
            By::Key => {
                let range = match self {
                    Source::Transaction(tx) => tx.range(&ROWS, ends).locked(lock),
                    Source::Snapshot(snapshot) => {
                        snapshot.range(&ROWS, ends)?.locked(Lock::Exclusive)
                    }
                };
                let range = range.limit(scan.limit);
                let rows = match scan.reversed {
                    true => range.reversed().collect()?,
                    false => range.collect()?,
                };
                return Ok(rows.into_iter().map(|(key, row)| (key, key, row)).collect());
            }
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
}
