//! The engines, and how each is asked to be as good as it can be at this.

/// Durability of a transaction's changes.
mod durability;

/// Ours.
mod foxton;

/// LMDB, by heed.
pub(crate) mod lmdb;

/// SQLite.
mod sqlite;

/// redb.
mod redb;

/// fjall, both kinds.
mod fjall;

/// Berkeley DB's functions.
#[cfg(feature = "berkeley")]
mod berkeley_calls;

/// Berkeley DB with transactions.
#[cfg(feature = "berkeley")]
mod berkeley;

/// RocksDB's TransactionDB.
#[cfg(feature = "rocksdb")]
mod rocks;

/// Lock managers alone, over an array.
mod locks;

use super::contract::Store;
use crate::Outcome;
use std::path::Path;

pub(crate) use durability::Durability;
use foxton::{Foxton, Reading};

/// An engine as it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Foxton,
    FoxtonMany,
    FoxtonSnapshot,
    #[cfg(feature = "berkeley")]
    Berkeley,
    #[cfg(feature = "rocksdb")]
    Rocks,
    #[cfg(feature = "rocksdb")]
    RocksSnapshot,
    Lmdb,
    Sqlite,
    Redb,
    Fjall,
    FjallOptimistic,
    FoxtonLocks,
    FoxtonBucket,
    #[cfg(feature = "berkeley")]
    BerkeleyLocks,
    LockDb,
}

impl Engine {
    pub(crate) const ALL: &[Engine] = &[
        Engine::Foxton,
        Engine::FoxtonMany,
        Engine::FoxtonSnapshot,
        #[cfg(feature = "berkeley")]
        Engine::Berkeley,
        #[cfg(feature = "rocksdb")]
        Engine::Rocks,
        #[cfg(feature = "rocksdb")]
        Engine::RocksSnapshot,
        Engine::Lmdb,
        Engine::Sqlite,
        Engine::Redb,
        Engine::Fjall,
        Engine::FjallOptimistic,
        Engine::FoxtonLocks,
        Engine::FoxtonBucket,
        #[cfg(feature = "berkeley")]
        Engine::BerkeleyLocks,
        Engine::LockDb,
    ];

    /// Those that are not built in.
    pub(crate) const MISSING: &[&str] = &[
        #[cfg(not(feature = "berkeley"))]
        "berkeley, berkeley-lock",
        #[cfg(not(feature = "rocksdb"))]
        "rocksdb, rocksdb-snapshot",
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Engine::Foxton => "foxton",
            Engine::FoxtonMany => "foxton-many",
            Engine::FoxtonSnapshot => "foxton-snapshot",
            #[cfg(feature = "berkeley")]
            Engine::Berkeley => "berkeley",
            #[cfg(feature = "rocksdb")]
            Engine::Rocks => "rocksdb",
            #[cfg(feature = "rocksdb")]
            Engine::RocksSnapshot => "rocksdb-snapshot",
            Engine::Lmdb => "lmdb",
            Engine::Sqlite => "sqlite",
            Engine::Redb => "redb",
            Engine::Fjall => "fjall",
            Engine::FjallOptimistic => "fjall-optimistic",
            Engine::FoxtonLocks => "foxton-lock",
            Engine::FoxtonBucket => "foxton-lock-bucket",
            #[cfg(feature = "berkeley")]
            Engine::BerkeleyLocks => "berkeley-lock",
            Engine::LockDb => "lock-db",
        }
    }

    /// Whether it is a lock manager alone, measured beside its like.
    pub(crate) fn is_locks(self) -> bool {
        match self {
            Engine::FoxtonLocks | Engine::FoxtonBucket | Engine::LockDb => true,
            #[cfg(feature = "berkeley")]
            Engine::BerkeleyLocks => true,
            _ => false,
        }
    }

    /// Whether it is of this repository.
    pub(crate) fn is_ours(self) -> bool {
        matches!(
            self,
            Engine::Foxton
                | Engine::FoxtonMany
                | Engine::FoxtonSnapshot
                | Engine::FoxtonLocks
                | Engine::FoxtonBucket
        )
    }

    /// Opens it in `folder`, which is empty, and loads the rows.
    pub(crate) fn open(self, folder: &Path, durability: Durability) -> Outcome<Box<dyn Store>> {
        Ok(match self {
            Engine::Foxton => Box::new(Foxton::load(folder, durability, Reading::OneByOne)?),
            Engine::FoxtonMany => Box::new(Foxton::load(folder, durability, Reading::Many)?),
            Engine::FoxtonSnapshot => {
                Box::new(Foxton::load(folder, durability, Reading::Snapshot)?)
            }
            #[cfg(feature = "berkeley")]
            Engine::Berkeley => Box::new(berkeley::Berkeley::load(folder, durability)?),
            #[cfg(feature = "rocksdb")]
            Engine::Rocks => Box::new(rocks::Rocks::load(folder, durability, false)?),
            #[cfg(feature = "rocksdb")]
            Engine::RocksSnapshot => Box::new(rocks::Rocks::load(folder, durability, true)?),
            Engine::Lmdb => Box::new(lmdb::Lmdb::load(folder, durability)?),
            Engine::Sqlite => Box::new(sqlite::Sqlite::load(folder, durability)?),
            Engine::Redb => Box::new(redb::Redb::load(folder, durability)?),
            Engine::Fjall => Box::new(fjall::SingleWriter::load(folder, durability)?),
            Engine::FjallOptimistic => Box::new(fjall::Optimistic::load(folder, durability)?),
            Engine::FoxtonLocks => Box::new(locks::Guarded::new(locks::Ours::new(false))),
            Engine::FoxtonBucket => Box::new(locks::Guarded::new(locks::Ours::new(true))),
            #[cfg(feature = "berkeley")]
            Engine::BerkeleyLocks => Box::new(locks::Guarded::new(berkeley::Locks::open(folder)?)),
            Engine::LockDb => Box::new(locks::Guarded::new(locks::LockDb::new())),
        })
    }

    /// Version and settings, in one line.
    pub(crate) fn settings(self, durability: Durability) -> String {
        match self {
            Engine::Foxton => foxton::settings(durability, Reading::OneByOne),
            Engine::FoxtonMany => foxton::settings(durability, Reading::Many),
            Engine::FoxtonSnapshot => foxton::settings(durability, Reading::Snapshot),
            #[cfg(feature = "berkeley")]
            Engine::Berkeley => berkeley::settings(durability),
            #[cfg(feature = "rocksdb")]
            Engine::Rocks => rocks::settings(durability, false),
            #[cfg(feature = "rocksdb")]
            Engine::RocksSnapshot => rocks::settings(durability, true),
            Engine::Lmdb => lmdb::settings(durability),
            Engine::Sqlite => sqlite::settings(durability),
            Engine::Redb => redb::settings(durability),
            Engine::Fjall => fjall::settings(durability, false),
            Engine::FjallOptimistic => fjall::settings(durability, true),
            Engine::FoxtonLocks => locks::Ours::settings(false),
            Engine::FoxtonBucket => locks::Ours::settings(true),
            #[cfg(feature = "berkeley")]
            Engine::BerkeleyLocks => berkeley::lock_settings(),
            Engine::LockDb => locks::LockDb::settings(),
        }
    }
}
