//! Context of a worker: what a transaction reads, changes and locks with.
//!
//! A worker, an owner of locks, the tables used so far, and buffers. Between transactions it lies
//! in the [pool](crate::engine::context_pool), so in the steady state a transaction allocates
//! nothing.
//!
//! # Invariants
//!
//! * I1  In the pool: no locks, no changes, no wait, phase `Active`. Kept by a session: no locks
//!   but the session's.
//! * I2  While the owner has a request in a queue, nothing else is requested.

use std::collections::VecDeque;
use std::sync::Arc;

use foxton_lock::manager::LockManager;
use foxton_lock::owner::Owner;
use foxton_sync::admission::SlotClaim;
use foxton_sync::huge_pages::RegionTracker;
use foxton_sync::worker::Worker;

use super::index_plan::{CachedIndexLookup, CachedIndexes};
use crate::catalog::OpenTable;
use crate::engine::background::Timer;
use crate::engine::{Counter, Engine};
use crate::error::{Request, Result};
use crate::redo::record;
use crate::types::codec::{Key, TypeName, Value};
use crate::types::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use crate::types::table::Table;

/// Buffers above this size are freed after a transaction.
const KEPT_BYTES: usize = 256 << 10;
/// Tables cached from one transaction to the next.
const KEPT_TABLES: usize = 128;

/// See the [module](self).
pub(crate) struct WorkerContext {
    pub(crate) engine: Arc<Engine>,
    pub(crate) worker: Worker,
    pub(crate) owner: Owner,
    pub(crate) tables: Vec<CachedTable>,
    /// The indexes of cached tables, as this worker last read them from the catalog.
    pub(crate) indexes: Vec<CachedIndexes>,
    /// The indexes by which this worker has read.
    pub(crate) index_lookups: Vec<CachedIndexLookup>,
    /// The encoded key of the current operation.
    pub(crate) key: Vec<u8>,
    /// The encoded value of the current operation.
    pub(crate) value: Vec<u8>,
    /// Ghosts that could not be removed when a transaction left them: index of the table, and key.
    pub(crate) ghosts: VecDeque<(usize, Box<[u8]>)>,
    /// The memory region that new records come from.
    pub(crate) region: RegionTracker,
    /// Ends lock waits of transactions that run as a task.
    pub(crate) timer: Timer,
    /// Its claim to an admission slot.
    pub(crate) slot_claim: SlotClaim,
}

/// A table that this worker has used.
#[derive(Debug)]
pub(crate) struct CachedTable {
    name: &'static str,
    key_type: u64,
    value_type: u64,
    pub(crate) table: Arc<OpenTable>,
}

impl CachedTable {
    /// The entries of an index, which no operation opens by name.
    fn entries(table: Arc<OpenTable>) -> CachedTable {
        CachedTable {
            name: "",
            key_type: 0,
            value_type: 0,
            table,
        }
    }
}

impl WorkerContext {
    pub(super) fn new(engine: Arc<Engine>) -> WorkerContext {
        let worker = engine.workers.worker();
        let owner = engine.locks.owner();
        WorkerContext {
            engine,
            worker,
            owner,
            tables: Vec::new(),
            indexes: Vec::new(),
            index_lookups: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
            ghosts: VecDeque::new(),
            region: RegionTracker::default(),
            timer: Timer::default(),
            slot_claim: SlotClaim::default(),
        }
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.engine.counters.add(&self.worker, counter as usize, 1);
    }

    /// Returns the index of `table` among the cached tables, after checking its types.
    #[inline]
    pub(super) fn cached_table<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
    ) -> Result<usize> {
        let name = table.name();
        let same = |cached: &CachedTable| {
            std::ptr::eq(cached.name, name)
                && cached.key_type == K::TYPE.hash()
                && cached.value_type == V::TYPE.hash()
        };
        match self.tables.iter().position(same) {
            Some(index) => Ok(index),
            None => self.cache_table::<K, V>(name),
        }
    }

    #[cold]
    fn cache_table<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        name: &'static str,
    ) -> Result<usize> {
        let table = self.resolve(name, &K::TYPE, &V::TYPE)?;
        let (key_type, value_type) = (K::TYPE.hash(), V::TYPE.hash());
        self.tables.push(CachedTable {
            name,
            key_type,
            value_type,
            table,
        });
        Ok(self.tables.len() - 1)
    }

    /// Returns the index of an index's entries among the cached tables.
    pub(super) fn cached_entries(&mut self, entries: Arc<OpenTable>) -> usize {
        let is_it = |cached: &CachedTable| Arc::ptr_eq(&cached.table, &entries);
        self.tables.iter().position(is_it).unwrap_or_else(|| {
            self.tables.push(CachedTable::entries(entries));
            self.tables.len() - 1
        })
    }

    /// Returns the table called `name`; creates it if there is none.
    pub(crate) fn resolve(
        &self,
        name: &str,
        key_type: &TypeName,
        value_type: &TypeName,
    ) -> Result<Arc<OpenTable>> {
        let WorkerContext { engine, worker, .. } = self;
        engine
            .catalog
            .resolve(worker, name, key_type, value_type, |record| {
                let logged = engine
                    .log
                    .insert(worker, record::TABLE, &[&record.encode()]);
                logged.map(|_| ()).map_err(|error| engine.log_failed(error))
            })
    }

    /// Encodes the key of the current operation.
    #[inline]
    pub(crate) fn set_key<K: Key + ?Sized>(&mut self, key: &K) -> Result<()> {
        self.key.clear();
        key.encode(&mut self.key);
        check_key(&self.key)
    }

    /// Encodes the value of the current operation.
    #[inline]
    pub(crate) fn set_value<V: Value + ?Sized>(&mut self, value: &V) -> Result<()> {
        self.value.clear();
        value.encode(&mut self.value);
        match self.value.len() {
            0..=MAX_VALUE_BYTES => Ok(()),
            bytes => Err(Request::ValueTooLong { bytes }.into()),
        }
    }

    /// Frees memory that only an unusually large transaction needs.
    pub(super) fn shrink(&mut self) {
        self.key.shrink_to(KEPT_BYTES);
        self.value.shrink_to(KEPT_BYTES);
        if self.tables.len() > KEPT_TABLES {
            self.tables.clear();
            self.ghosts.clear();
            self.index_lookups.clear();
            self.indexes.clear();
        }
    }
}

/// Refuses a key that is too long.
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    match key.len() {
        0..=MAX_KEY_BYTES => Ok(()),
        bytes => Err(Request::KeyTooLong { bytes }.into()),
    }
}
