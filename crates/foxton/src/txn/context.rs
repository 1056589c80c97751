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

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use foxton_lock::manager::LockManager;
use foxton_lock::name::Name;
use foxton_lock::owner::Owner;
use foxton_store::memory::{Begin, RecordHint};
use foxton_store::paged::page::LeafRows;
use foxton_store::paged::pool::PageHint;
use foxton_sync::admission::SlotClaim;
use foxton_sync::huge_pages::RegionTracker;
use foxton_sync::worker::Worker;

use super::commit_slot::WriterSlot;
use super::index_plan::{CachedIndexLookup, CachedIndexes};
use super::large_state::LargeState;
use super::page_wait::PageWait;
use super::snapshot_view::RangePart;
use super::table_cache::{Identified, TableCache};
use super::work_budget::{BYTES_PER_UNIT, WorkBudget};
use crate::catalog::{NamedTable, OpenTable};
use crate::engine::background::Timer;
use crate::engine::free_memory::{self, LOT, return_free};
use crate::engine::page_writers::PageWriterEntry;
use crate::engine::{Counter, Engine};
use crate::error::{Request, Result};
use crate::types::codec::{Key, TypeName, Value};
use crate::types::component::TableComponent;
use crate::types::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES, TABLE_NAMES};
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
    /// Its commit slot, which the versions that it writes refer to.
    pub(crate) commit_slot: WriterSlot,
    pub(crate) tables: TableCache<CachedTable>,
    /// The table of the current operation, if it was absent when the operation was prepared.
    pub(crate) absent: Option<AbsentTable>,
    /// The indexes of cached tables, as this worker last read them from the catalog.
    pub(crate) indexes: Vec<CachedIndexes>,
    /// The indexes by which this worker has read.
    pub(crate) index_lookups: TableCache<CachedIndexLookup>,
    /// The encoded key of the current operation.
    pub(crate) key: Vec<u8>,
    /// The encoded value of the current operation.
    pub(crate) value: Vec<u8>,
    /// Ghosts that could not be removed when a transaction left them: index of the table, and key.
    pub(crate) ghosts: VecDeque<(usize, Box<[u8]>)>,
    /// Ghosts of paged tables, which a purge removes after the locks of the transaction.
    pub(crate) paged_ghosts: VecDeque<PagedGhost>,
    /// Its entry among the page writers.
    pub(super) page_writer: PageWriterEntry,
    /// The wait of the last attempt on a paged table, with the pages that it keeps.
    pub(super) page_wait: Option<PageWait>,
    /// The version whose commit LSN the last attempt lacks. Its task waits for it before the next.
    pub(super) awaited_commit: Cell<Option<Begin>>,
    /// The value of a row of a paged table, copied out of its page.
    pub(super) page_value: Vec<u8>,
    /// Large values of the current operation.
    pub(super) large: Option<Box<LargeState>>,
    /// The leaf where this worker has been last in the tree of large values.
    pub(super) values_leaf: Cell<Option<PageHint>>,
    /// Rows of a paged table that a scan has copied.
    pub(super) page_rows: LeafRows,
    /// Rows of a table in memory that a scan at a snapshot reads at once.
    pub(super) view_part: RangePart,
    /// The row that was read last to be written, which the write need not search for again.
    pub(super) hint: RecordHint,
    /// The memory region that new records come from.
    pub(crate) region: RegionTracker,
    /// Ends lock waits of transactions that run as a task.
    pub(crate) timer: Timer,
    /// Its claim to an admission slot.
    pub(crate) slot_claim: SlotClaim,
    /// True for a task whose transaction has not passed admission yet; its first operation does.
    pub(crate) needs_slot: bool,
    /// True while it counts as blocked.
    pub(super) is_blocked: bool,
    /// Bytes by which rows have grown since it last reported them; negative if they have shrunk.
    growth: isize,
    /// Bytes for which committed rows count more than it last reported.
    pub(super) counted: i64,
    /// Work that a task may do before it yields.
    pub(crate) budget: WorkBudget,
    /// Number of tables that were dropped, when the cached tables were looked up.
    drops: u32,
}

/// A ghost of a paged table.
#[derive(Debug)]
pub(crate) struct PagedGhost {
    /// Index of the table.
    pub(super) table: usize,
    pub(super) key: Box<[u8]>,
    /// True if a purge has tried to remove it, or a scan has found it.
    pub(super) is_old: bool,
}

/// A table that this worker has used.
#[derive(Debug)]
pub(crate) struct CachedTable {
    pub(super) name: &'static str,
    key_type: u64,
    value_type: u64,
    /// The component that the program requires.
    pub(super) component: Option<TableComponent>,
    pub(crate) table: Arc<OpenTable>,
    /// Place of the table's indexes among the cached ones.
    pub(super) indexes: Option<usize>,
    /// Of a paged table: the leaf where this worker has been last.
    pub(super) leaf: Cell<Option<PageHint>>,
}

/// Index of a table that is not among the cached tables, because it does not exist.
pub(crate) const ABSENT: usize = usize::MAX;

/// Why an operation with an absent table has its name.
pub(super) const PREPARED: &str = "preparing the operation has recorded the table";

/// A table that did not exist when an operation on it was prepared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AbsentTable {
    pub(super) name: &'static str,
    pub(super) key_type: TypeName,
    pub(super) value_type: TypeName,
    pub(super) component: Option<TableComponent>,
}

impl AbsentTable {
    pub(super) fn named(&self) -> NamedTable<'_> {
        NamedTable {
            name: self.name,
            key_type: &self.key_type,
            value_type: &self.value_type,
            component: self.component,
        }
    }

    fn identity(&self) -> TableIdentity {
        let value_type = self.value_type.hash() ^ component_mark(self.component);
        (address(self.name), self.key_type.hash(), value_type)
    }
}

/// Returns what the identity of a table has of its component. So declarations of one table that
/// differ there are several entries of the cache, and each is checked when it is made.
#[inline(always)]
const fn component_mark(component: Option<TableComponent>) -> u64 {
    match component {
        None => 0,
        Some(TableComponent::Resident) => 1 << 62,
        Some(TableComponent::Paged) => 1 << 63,
    }
}

/// A table as a program writes it: the address and length of its name, and the hashes of its types.
/// The entries of an index, which no operation opens by name, have an empty name and their number.
pub(crate) type TableIdentity = ((usize, usize), u64, u64);

impl CachedTable {
    /// True if its twin has the rows that an operation of the program looks for. Tables without a
    /// name are those of indexes and conversions, which use what they have opened.
    #[inline(always)]
    pub(super) fn is_former(&self) -> bool {
        self.table.is_former() && !self.name.is_empty()
    }
}

impl Identified for CachedTable {
    type Identity = TableIdentity;

    #[inline(always)]
    fn identity(&self) -> TableIdentity {
        (address(self.name), self.key_type, self.value_type)
    }
}

/// Returns the address and length of a name. Comparing them is cheaper than comparing names; a
/// constant that has another address is another entry of the cache, for the same table.
#[inline(always)]
pub(super) fn address(name: &'static str) -> (usize, usize) {
    (name.as_ptr().addr(), name.len())
}

impl WorkerContext {
    pub(super) fn new(engine: Arc<Engine>) -> WorkerContext {
        let worker = engine.workers.worker();
        let owner = engine.locks.owner();
        let drops = engine.catalog.drops();
        let commit_slot = WriterSlot::acquire(&engine);
        WorkerContext {
            drops,
            commit_slot,
            engine,
            worker,
            owner,
            tables: TableCache::new(),
            absent: None,
            indexes: Vec::new(),
            index_lookups: TableCache::new(),
            key: Vec::new(),
            value: Vec::new(),
            ghosts: VecDeque::new(),
            paged_ghosts: VecDeque::new(),
            page_writer: PageWriterEntry::default(),
            page_wait: None,
            awaited_commit: Cell::new(None),
            page_value: Vec::new(),
            large: None,
            values_leaf: Cell::default(),
            page_rows: LeafRows::default(),
            view_part: RangePart::default(),
            hint: RecordHint::default(),
            region: RegionTracker::default(),
            timer: Timer::default(),
            slot_claim: SlotClaim::default(),
            needs_slot: false,
            is_blocked: false,
            growth: 0,
            counted: 0,
            budget: WorkBudget::default(),
        }
    }

    /// Returns the number of its place for a snapshot. Without locks it has none.
    pub(crate) fn place(&self) -> Option<u32> {
        self.commit_slot.number()
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.engine.counters.add(&self.worker, counter as usize, 1);
    }

    /// Returns the index of `table` among the cached tables, after checking its types, or
    /// [`ABSENT`].
    #[inline]
    pub(super) fn cached_table<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
    ) -> Result<usize> {
        let name = table.name();
        let value_type = V::TYPE.hash() ^ component_mark(table.component());
        let same = |cached: &CachedTable| {
            std::ptr::eq(cached.name, name)
                && cached.key_type == K::TYPE.hash()
                && cached.value_type == value_type
        };
        match self.tables.find_first(same) {
            Some(index) => Ok(index),
            None => self.cache_table(table),
        }
    }

    #[cold]
    #[inline(never)]
    fn cache_table<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
    ) -> Result<usize> {
        let table = AbsentTable {
            name: table.name(),
            key_type: K::TYPE,
            value_type: V::TYPE,
            component: table.component(),
        };
        if let Some(index) = self.tables.find(table.identity()) {
            return Ok(index);
        }
        self.absent = Some(table);
        Ok(self.open_absent()?.unwrap_or(ABSENT))
    }

    /// Returns the index of the recorded absent table among the cached tables, if it exists by now.
    pub(super) fn open_absent(&mut self) -> Result<Option<usize>> {
        let absent = self.absent.expect(PREPARED);
        let identity = absent.identity();
        if let Some(index) = self.tables.find(identity) {
            return Ok(Some(index));
        }
        let catalog = &self.engine.catalog;
        let table = catalog.look_up(&self.worker, absent.named())?;
        let (_, key_type, value_type) = identity;
        Ok(table.map(|table| {
            self.tables.push(CachedTable {
                name: absent.name,
                key_type,
                value_type,
                component: absent.component,
                table,
                indexes: None,
                leaf: Cell::default(),
            })
        }))
    }

    /// Returns the lock name of the name of the recorded absent table.
    pub(super) fn absent_name(&self) -> Name {
        let name = self.absent.expect(PREPARED).name;
        Name::key(TABLE_NAMES, name.as_bytes(), &self.engine.hasher)
    }

    /// Returns the index of an index's entries, or of a table that has an index, among the cached
    /// tables.
    pub(crate) fn cached_entries(&mut self, entries: Arc<OpenTable>) -> usize {
        let number = u64::from(entries.record.id);
        let found = self.tables.find((address(""), number, 0));
        found.unwrap_or_else(|| {
            self.tables.push(CachedTable {
                name: "",
                key_type: number,
                value_type: 0,
                component: None,
                table: entries,
                indexes: None,
                leaf: Cell::default(),
            })
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
            0..=BYTES_PER_UNIT => Ok(()),
            bytes @ ..=MAX_VALUE_BYTES => {
                self.budget.charge_bytes(bytes);
                Ok(())
            }
            bytes => Err(Request::ValueTooLong { bytes }.into()),
        }
    }

    /// Records that rows have grown by so many bytes, or shrunk if it is negative.
    #[inline]
    pub(super) fn record_growth(&mut self, growth: isize) {
        self.growth += growth;
        if self.growth.unsigned_abs() >= LOT {
            self.report_growth();
        }
    }

    /// Records that the rows of a committed transaction count for so many bytes more, or less if it
    /// is negative.
    #[inline]
    pub(super) fn record_counted(&mut self, counted: i64) {
        self.counted += counted;
        if self.counted.unsigned_abs() >= LOT as u64 {
            let counted = mem::take(&mut self.counted);
            self.engine.catalog.resident.add(counted, &self.worker);
        }
    }

    #[cold]
    #[inline(never)]
    fn report_growth(&mut self) {
        let engine = &self.engine;
        let growth = mem::take(&mut self.growth);
        if let Some(mut job) = engine.freed.record(growth, &self.worker) {
            let locks = engine.locks.clone();
            let look = move |worker: &Worker| job.look(|| return_free(&locks, worker));
            let (worker, look) = (&self.worker, Box::new(look));
            engine.background.repeat(worker, free_memory::PERIOD, look);
        }
    }

    /// Frees memory that only an unusually large transaction needs.
    pub(super) fn shrink(&mut self) {
        self.key.shrink_to(KEPT_BYTES);
        self.value.shrink_to(KEPT_BYTES);
        self.page_value.shrink_to(KEPT_BYTES);
        self.page_rows.shrink_to(KEPT_BYTES);
        if self.tables.len() > KEPT_TABLES {
            self.forget_tables();
        }
    }

    fn forget_tables(&mut self) {
        self.tables.clear();
        self.ghosts.clear();
        self.paged_ghosts.clear();
        self.index_lookups.clear();
        self.indexes.clear();
    }

    /// Forgets the cached tables, if one was dropped since they were looked up. Only before a
    /// transaction begins.
    #[inline]
    pub(super) fn forget_dropped(&mut self) {
        let drops = self.engine.catalog.drops();
        if self.drops != drops {
            self.drops = drops;
            self.forget_tables();
            self.hint = RecordHint::default();
        }
    }
}

impl Drop for WorkerContext {
    fn drop(&mut self) {
        // A forked child may find any mutex locked for ever. An owner that waits or holds locks,
        // which only a panic leaves, keeps what it has.
        if !self.engine.is_inherited() && !self.owner.is_waiting() && self.owner.lock_count() == 0 {
            self.engine.locks.dismiss(&self.worker, &mut self.owner);
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
