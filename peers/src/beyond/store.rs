//! The two engines, with rows beyond memory.

use std::{fs, fs::File, path::Path};

use foxton::{Database, Options, Table, TableComponent};
use rustix::fs::{Advice, fadvise};

use crate::{
    Outcome,
    rows::mix,
    speed::{
        contract::{ROW_BYTES, counter, increment, mark, row},
        engines::{Durability, lmdb::Lmdb},
    },
};

const TABLE: Table<u64, [u8]> = Table::new("rows");
/// Rows of one transaction while loading.
const AT_ONCE: u64 = 1_000;

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BeyondEngine {
    /// Paged tables with a limit of memory.
    Foxton { page_memory: usize },
    /// LMDB, which has the page cache.
    Lmdb,
}

/// An engine that is open.
pub(super) enum BeyondStore {
    Foxton(Database),
    Lmdb(Box<Lmdb>),
}

impl BeyondEngine {
    pub(super) fn name(self) -> &'static str {
        match self {
            BeyondEngine::Foxton { .. } => "foxton",
            BeyondEngine::Lmdb => "lmdb",
        }
    }

    /// Opens its files in the folder, or makes them.
    pub(super) fn open(self, folder: &Path) -> Outcome<BeyondStore> {
        Ok(match self {
            BeyondEngine::Foxton { page_memory } => {
                let mut options: Options = Durability::Buffered.options();
                options.component = TableComponent::Paged;
                options.page_memory = page_memory;
                BeyondStore::Foxton(Database::open_with(folder, options)?)
            }
            BeyondEngine::Lmdb => {
                BeyondStore::Lmdb(Box::new(Lmdb::open(folder, Durability::Buffered)?))
            }
        })
    }
}

impl BeyondStore {
    pub(super) fn fill(&self, rows: u64, progress: &mut dyn FnMut(u64)) -> Outcome {
        match self {
            BeyondStore::Lmdb(lmdb) => lmdb.fill(rows, progress),
            BeyondStore::Foxton(db) => {
                for first in (0..rows).step_by(AT_ONCE as usize) {
                    db.run(|tx| {
                        let mut keys = first..rows.min(first + AT_ONCE);
                        keys.try_for_each(|key| tx.put(&TABLE, &key, &row(key)[..]))
                    })?;
                    progress(first);
                }
                Ok(())
            }
        }
    }

    /// Reads a row, and adds one to its counter if it is to be updated. Returns its mark, or `None`
    /// if another transaction had to go first.
    pub(super) fn touch(&self, key: u64, updates: bool) -> Outcome<Option<u64>> {
        let db = match self {
            BeyondStore::Lmdb(lmdb) => return lmdb.touch(key, updates).map(Some),
            BeyondStore::Foxton(db) => db,
        };
        if !updates {
            let found = db.run(|tx| tx.get_with(&TABLE, &key, mark))?;
            return Ok(Some(found.unwrap_or(0)));
        }
        let found = db.run(|tx| {
            let Some(mut row) = tx.get_for_update(&TABLE, &key)? else {
                return Ok(0);
            };
            increment(&mut row);
            tx.put(&TABLE, &key, &row[..])?;
            Ok(mark(&row))
        })?;
        Ok(Some(found))
    }

    /// Sum of the counters of all rows, which must be as they were loaded otherwise.
    pub(super) fn increments(&self, rows: u64) -> Outcome<u64> {
        let (mut count, mut sum, mut wrong) = (0, 0, None);
        let mut see = |key: u64, row: &[u8]| {
            if row.len() != ROW_BYTES || mark(row) != mix(key) || key != count {
                wrong = wrong.or(Some(key));
            }
            count += 1;
            sum += counter(row);
        };
        match self {
            BeyondStore::Lmdb(lmdb) => crate::speed::contract::Store::each(&**lmdb, &mut see)?,
            BeyondStore::Foxton(db) => {
                for first in (0..rows).step_by(AT_ONCE as usize) {
                    let keys = first..rows.min(first + AT_ONCE);
                    let mut tx = db.begin()?;
                    tx.range(&TABLE, keys)
                        .for_each(|key, row: Vec<u8>| see(key, &row))?;
                    tx.commit()?;
                }
            }
        }
        match wrong {
            Some(key) => Err(format!("row {key} is not what was loaded").into()),
            None if count != rows => Err(format!("{count} rows instead of {rows}").into()),
            None => Ok(sum),
        }
    }
}

/// Removes the files of a folder from the page cache; the engine is closed.
pub(super) fn forget(folder: &Path) -> Outcome {
    for entry in fs::read_dir(folder)? {
        let file = File::open(entry?.path())?;
        if file.metadata()?.is_file() {
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
