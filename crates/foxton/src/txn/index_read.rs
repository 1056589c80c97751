//! Reads of rows by an index.
//!
//! # Protocol
//!
//! A reader reads an entry before it locks anything; the entry names its row. Then it locks the
//! *row*, and reads the entry again. As long as the row is locked, the entry stays, because its
//! removal takes the row exclusively (`index_write`). So an entry with a row needs no lock of its
//! own. Readers by an index and writers both lock the row first, so a reader holds no lock on an
//! entry that a writer requests next.
//!
//! An *absent* entry needs locks in the index, as an absent row does in a table:
//!
//! * the gap before each entry that a scan reaches, and the gap past its end, named in the index;
//! * the name of a key that a unique index does not have;
//! * the name of a ghost, with its gap, because it could get a value again.
//!
//! # Names
//!
//! An index has a number of its own. Its entries and gaps are names below that number, with
//! intentions on the whole of it. A lock on the table does not cover them, and a lock on the index
//! covers no rows. So a transaction that escalates to the whole of one gets no rights in the other,
//! and a lock manager knows nothing of indexes. Dropping an index takes both.
//!
//! At [isolation levels](crate::Isolation) that hold no ranges, the row is locked for as long as
//! the level says, and no gap. The entry is read again under that lock, so the row read was
//! committed and has the index key.
//!
//! # Races
//!
//! * *The entry goes, or gets another row, before its row is locked.* The reader reads it again,
//!   and then searches again. The useless lock on the row stays, which does no harm.
//! * *A ghost gets a value while we wait for its name*, because its removal was rolled back. Then
//!   we hold a name in the index and request a row, in the other order. The wait-for graph contains
//!   this wait, so a deadlock is found as any other.

use std::ops::{ControlFlow, RangeBounds};
use std::sync::Arc;

use foxton_lock::mode::{GapPart, Mode};
use foxton_lock::name::Name;
use foxton_store::memory::Record;
use foxton_sync::epoch::{Guard, Hazard};
use smallvec::SmallVec;

use super::attempt::{AttemptResult, done};
use super::bound::BoundTxn;
use super::context::{WorkerContext, address, check_key};
use super::index_plan::CachedIndexLookup;
use super::scan::Visit;
use super::scan_state::{GAP, Progress, STEPS_PER_PIN, WalkEnd};
use super::short_lock::ShortLock;
use super::table_locks::TableLocks;
use super::txn::{OperationLocks, Txn};
use crate::catalog::index_catalog::IndexRecord;
use crate::catalog::{NamedTable, OpenIndex, OpenTable};
use crate::engine::Engine;
use crate::engine::early_release::ReadDependencies;
use crate::error::{IndexError, Result};
use crate::testing::failpoint;
use crate::testing::injected_fault;
use crate::types::codec::{Key, Value};
use crate::types::index::Index;
use crate::types::index_entry::EntryKind;
use crate::types::isolation::LockDuration;
use crate::types::lock_options::{LockOptions, LockWait};

/// A row read by an index.
pub(crate) struct EncodedRow<'f> {
    pub(crate) index_key: &'f [u8],
    pub(crate) key: &'f [u8],
    pub(crate) value: &'f [u8],
}

/// Reads entries of an index, and the rows that they name.
struct IndexLookup<'g, 'a, F> {
    engine: &'a Engine,
    guard: &'g Guard<'g>,
    kind: EntryKind,
    table: &'g OpenTable,
    row_mode: Mode,
    reads: &'a ReadDependencies,
    /// Hazard pointers that protect the value of the entry and that of the row.
    hazards: [Hazard<'g>; 2],
    /// The value that the entry had when its row was locked; `None` if it was a ghost.
    locked: Option<EntryValue>,
    /// The record of the row that was locked.
    row: Option<&'g Record>,
    take: F,
}

/// The value of an entry: at most two keys, mostly short.
type EntryValue = SmallVec<[u8; 32]>;

impl<'g, F> IndexLookup<'g, '_, F> {
    #[inline(always)]
    /// Locks the row that an entry names. Returns false if the entry is a ghost.
    fn lock_row(
        &mut self,
        locks: &mut TableLocks<'_>,
        record: &'g Record,
        short_lock: Option<&ShortLock>,
    ) -> Result<AttemptResult<bool>> {
        let value = record.value(&mut self.hazards[0]);
        self.locked = value.map(EntryValue::from_slice);
        let Some(value) = &self.locked else {
            return Ok(AttemptResult::Done(false));
        };
        let (_, key) = self.kind.read(record.key(), value);
        self.guard.failpoints().pass(&failpoint::ENTRY_READ);
        let id = self.table.record.id;
        done!(locks.lock_table_name(Name::table(id), self.row_mode.parent_mode()));
        let name = Name::key(id, key, &self.engine.hasher);
        let row = (name, key, self.row_mode);
        self.row = done!(locks.lock_key(short_lock, row, (self.table.resident(), self.guard)));
        Ok(AttemptResult::Done(true))
    }

    /// True if the entry still names the row that was locked.
    fn names_locked_row(&mut self, record: &Record) -> bool {
        record.value(&mut self.hazards[0]) == self.locked.as_deref()
    }

    /// Returns the locked row that an entry names; `None` if one of the two has no value.
    fn find<'f>(&'f mut self, record: &'f Record) -> Option<(EncodedRow<'f>, &'f mut F)> {
        let [of_entry, of_row] = &mut self.hazards;
        let (index_key, key) = self.kind.read(record.key(), record.value(of_entry)?);
        let known = self.row.filter(|row| row.is_linked() && row.key() == key);
        let row = known.or_else(|| self.table.resident().get(self.guard, key))?;
        self.reads.record(record);
        self.reads.record(row);
        let value = row.value(of_row)?;
        let found = EncodedRow {
            index_key,
            key,
            value,
        };
        Some((found, &mut self.take))
    }
}

impl<'g, F: FnMut(EncodedRow<'_>) -> ControlFlow<()>> Visit<'g> for IndexLookup<'g, '_, F> {
    const BY_NAME: bool = false;

    fn lock(
        &mut self,
        locks: &mut TableLocks<'_>,
        record: &'g Record,
        name: Name,
        mode: Mode,
    ) -> Result<AttemptResult<()>> {
        let faults = self.engine.faults();
        let skips_gap = faults.misbehaves(&injected_fault::ENTRY_GAP_UNLOCKED);
        match (done!(self.lock_row(locks, record, None)), mode.gap_part()) {
            (true, GapPart::None) => Ok(AttemptResult::Done(())),
            (true, _) if skips_gap => Ok(AttemptResult::Done(())),
            (true, _) => locks.lock_in_scan(name, Some(record.anchor()), GAP),
            (false, _) => locks.lock_in_scan(name, Some(record.anchor()), mode),
        }
    }

    fn lock_alone(
        &mut self,
        locks: &mut TableLocks<'_>,
        record: &'g Record,
        (name, mode): (Name, Mode),
        short_lock: Option<&ShortLock>,
    ) -> Result<AttemptResult<()>> {
        match done!(self.lock_row(locks, record, short_lock)) {
            true => Ok(AttemptResult::Done(())),
            false => locks.lock_for(short_lock, name, Some(record.anchor()), mode),
        }
    }

    fn is_locked(&mut self, record: &'g Record) -> bool {
        self.names_locked_row(record)
    }

    fn take(&mut self, record: &'g Record) -> Option<ControlFlow<()>> {
        // Without locks, a reader may find an entry before its row exists, or after it is gone.
        let (found, take) = self.find(record)?;
        Some(take(found))
    }
}

impl BoundTxn {
    /// Passes the row that the unique index `by` has under the encoded key to `read`, if there is
    /// one.
    pub(crate) fn get_by_step<R>(
        &mut self,
        by: usize,
        options: LockOptions,
        read: &mut impl FnMut(EncodedRow<'_>) -> R,
    ) -> Result<AttemptResult<Option<R>>> {
        let view = self.view_of_found(options.lock)?;
        let got = match self.ctx.index_lookups[by].places {
            _ if let Some(view) = view => self.get_by_at(by, view, options, read),
            None => self.try_get_by(by, options, read),
            Some(places) => self.get_by_paged_step(by, places, options, read),
        };
        match got {
            Err(_) if self.reopen_index(by) => Ok(AttemptResult::Pause),
            Err(error) if options.wait == LockWait::Skip && error.is_busy() => {
                Ok(AttemptResult::Done(None))
            }
            got => got,
        }
    }

    pub(super) fn try_get_by<R>(
        &mut self,
        by: usize,
        options: LockOptions,
        read: &mut impl FnMut(EncodedRow<'_>) -> R,
    ) -> Result<AttemptResult<Option<R>>> {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    index_lookups,
                    key,
                    ..
                },
            txn:
                Txn {
                    reads,
                    isolation,
                    operation_locks: OperationLocks { short_lock, .. },
                    ..
                },
            ..
        } = self;
        let index = &*index_lookups[by].index;
        let entries = &*index.entries;
        let id = entries.record.id;
        let (duration, mode) = (isolation.hold(options), options.lock.key_mode());
        let locks = TableLocks::new(engine, worker, owner, entries, options.wait);
        let mut locks = locks.with_duration(duration);
        // The table first, as in operations that create, check and drop indexes.
        let table = Name::table(table_of(entries).record.id);
        done!(locks.lock_table_name(table, mode.parent_mode()));
        done!(locks.lock_table_name(Name::table(id), mode.parent_mode()));
        check_open(index)?;
        let name = Name::key(id, key, &engine.hasher);
        let until = (duration == LockDuration::Short).then_some(&*short_lock);
        let guard = worker.pin();
        let mut lookup = IndexLookup {
            engine,
            guard: &guard,
            kind: index.kind,
            table: table_of(entries),
            row_mode: mode,
            reads,
            hazards: [guard.hazard(), guard.hazard()],
            locked: None,
            row: None,
            take: &mut *read,
        };
        let found = loop {
            let record = entries.resident().get(&guard, key);
            if let Some(record) = record
                && done!(lookup.lock_row(&mut locks, record, until))
            {
                if lookup.names_locked_row(record) && record.is_linked() {
                    break lookup.find(record).map(|(found, read)| read(found));
                }
                locks.release_short(short_lock);
                continue;
            }
            let record =
                done!(locks.lock_key(until, (name, key, mode), (entries.resident(), &guard)));
            if record.is_none_or(Record::is_ghost) {
                record.inspect(|record| reads.record(record));
                break None;
            }
            locks.release_short(short_lock);
        };
        let faults = engine.faults();
        if faults.misbehaves(&injected_fault::NAME_MISS_UNLOCKED) && found.is_none() {
            locks.release_shared(name);
        }
        locks.release_short(short_lock);
        Ok(AttemptResult::Done(found))
    }

    /// Passes rows to `take`, in the order of the index `by`, from the position of the scan on,
    /// until it breaks or the range ends.
    pub(crate) fn scan_by_step(
        &mut self,
        by: usize,
        take: &mut impl FnMut(EncodedRow<'_>) -> ControlFlow<()>,
    ) -> Result<AttemptResult<()>> {
        let view = self.view_of_found(self.txn.scan.lock.lock)?;
        let scanned = match self.ctx.index_lookups[by].places {
            _ if let Some(view) = view => self.scan_by_at(by, view, take),
            None => self.try_scan_by(by, take),
            Some(places) => self.scan_by_paged_step(by, places, take),
        };
        match scanned {
            Err(_) if self.reopen_index(by) => Ok(AttemptResult::Pause),
            Err(error) if self.txn.scan.lock.wait == LockWait::Skip && error.is_busy() => {
                self.txn.scan.progress = Progress::Finished;
                Ok(AttemptResult::Done(()))
            }
            scanned => scanned,
        }
    }

    fn try_scan_by(
        &mut self,
        by: usize,
        take: &mut impl FnMut(EncodedRow<'_>) -> ControlFlow<()>,
    ) -> Result<AttemptResult<()>> {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    index_lookups,
                    budget,
                    ..
                },
            txn:
                Txn {
                    scan,
                    reads,
                    isolation,
                    ..
                },
            ..
        } = self;
        let index = &*index_lookups[by].index;
        let entries = &*index.entries;
        scan.duration = isolation.hold(scan.lock);
        let locks = TableLocks::new(engine, worker, owner, entries, scan.lock.wait);
        let mut locks = locks.with_duration(scan.duration);
        let name = |key: &[u8]| Name::key(entries.record.id, key, &engine.hasher);
        let (row_mode, range_mode) = (scan.lock.lock.key_mode(), scan.lock.lock.range_mode());
        let table = Name::table(table_of(entries).record.id);
        done!(locks.lock_table_name(table, range_mode.parent_mode()));
        done!(locks.lock_table_name(Name::table(entries.record.id), range_mode.parent_mode()));
        check_open(index)?;
        loop {
            let guard = worker.pin();
            let mut lookup = IndexLookup {
                engine,
                guard: &guard,
                kind: index.kind,
                table: table_of(entries),
                row_mode,
                reads,
                hazards: [guard.hazard(), guard.hazard()],
                locked: None,
                row: None,
                take: &mut *take,
            };
            let mut last = None;
            let walked = scan.walk(entries, &guard, &mut last, &mut locks, name, &mut lookup);
            // However the walk ended, the next one continues behind the last entry that was taken.
            if scan.progress != Progress::Finished {
                scan.record_position(last);
            }
            match done!(walked) {
                WalkEnd::Unpin => {
                    // An entry, and its row.
                    budget.charge(2 * STEPS_PER_PIN as usize);
                    if budget.is_spent() {
                        return Ok(AttemptResult::Pause);
                    }
                }
                WalkEnd::Finished => return Ok(AttemptResult::Done(())),
            }
        }
    }

    /// Returns the kind of entries of an open index.
    pub(crate) fn kind_of(&self, by: usize) -> EntryKind {
        self.ctx.index_lookups[by].index.kind
    }

    /// Opens the index of a read, and encodes its key. Returns its place in `index_lookups`.
    pub(crate) fn prepare_get_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        key: &I,
    ) -> Result<usize> {
        let by = self.open_index(index)?;
        self.ctx.set_key(key)?;
        self.txn.operation_locks.short_lock.clear();
        self.txn.scan.entry.is_set = false;
        Ok(by)
    }

    /// Opens the index of a scan, and encodes its bounds. Returns its place in `index_lookups`.
    pub(crate) fn prepare_range_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        range: &impl RangeBounds<I>,
    ) -> Result<usize> {
        let by = self.open_index(index)?;
        let kind = index.kind();
        self.txn.scan.begin(range, |key: &I, bytes| {
            match kind {
                EntryKind::Unique => key.encode(bytes),
                EntryKind::Shared => key.encode_part(bytes),
            }
            check_key(bytes)
        })?;
        if kind == EntryKind::Shared {
            self.txn.scan.bound_beginnings();
        }
        Ok(by)
    }

    /// Returns the place of an index in `index_lookups`, after checking its declaration.
    fn open_index<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
    ) -> Result<usize> {
        self.check_active()?;
        let identity = (
            [address(index.name()), address(index.table())],
            [I::TYPE.hash(), K::TYPE.hash(), V::TYPE.hash()],
            (index.kind(), index.own_version()),
        );
        let cached = &mut self.ctx.index_lookups;
        match cached.find(identity) {
            Some(by) if !cached[by].index.is_dropped() => return Ok(by),
            _ => cached.retain(|cached| !cached.index.is_dropped()),
        }
        let declared = IndexRecord {
            name: index.name().to_owned(),
            table: index.table().to_owned(),
            key_type: (I::TYPE.to_string(), I::TYPE.hash()),
            kind: index.kind(),
            version: index.own_version(),
        };
        let open = self
            .ctx
            .engine
            .catalog
            .open_index(&self.ctx.worker, &declared)?;
        let record = &table_of(&open.entries).record;
        let named = NamedTable {
            name: &record.name,
            key_type: &K::TYPE,
            value_type: &V::TYPE,
            component: None,
        };
        named.check(record)?;
        let places = self.ctx.index_places(&open);
        Ok(self.ctx.index_lookups.push(CachedIndexLookup {
            identity,
            index: open,
            places,
        }))
    }
}

/// Refuses an index that was dropped since it was opened.
pub(super) fn check_open(index: &OpenIndex) -> Result<()> {
    match index.is_dropped() {
        false => Ok(()),
        true => {
            let index = index.record.name.clone();
            Err(IndexError::NotOpen { index }.into())
        }
    }
}

/// Returns the table of the rows that entries name.
pub(super) fn table_of(entries: &OpenTable) -> &Arc<OpenTable> {
    entries.of.as_ref().expect("entries lead to a table")
}
