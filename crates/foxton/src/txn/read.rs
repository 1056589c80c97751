//! Reads of one key, and of several keys of one table.
//!
//! The lock on the name of a key protects the key whether or not it is there: a transaction that
//! inserts it must lock it exclusively under the same name. So a read that finds nothing needs no
//! lock on the gap around the key. Two transactions that miss neighbouring keys do not conflict.

use std::mem;

use foxton_lock::name::{KeyHasher, Name};
use foxton_store::memory::{Located, RecordHint, RecordTable};
use foxton_sync::epoch::Guard;
use foxton_sync::worker::Worker;
use smallvec::SmallVec;

use super::attempt::{AttemptResult, done};
use super::bound::BoundTxn;
use super::changes::Changes;
use super::context::WorkerContext;
use super::short_lock::ShortLock;
use super::snapshot_view::SnapshotView;
use super::table_locks::TableLocks;
use super::txn::{OperationLocks, Txn};
use super::work_budget::{BYTES_PER_UNIT, WorkBudget};
use crate::catalog::OpenTable;
use crate::catalog::table_store::TableStore;
use crate::engine::Engine;
use crate::engine::cancel_token::{CancelToken, is_not_cancelled};
use crate::engine::early_release::ReadDependencies;
use crate::error::{Conflict, Result};
use crate::testing::injected_fault;
use crate::types::codec::{Key, Value};
use crate::types::isolation::LockDuration;
use crate::types::lock_options::{Lock, LockOptions, LockWait};
use crate::types::table::Table;

/// Reads keys of one table.
struct Reader<'a> {
    worker: &'a Worker,
    locks: TableLocks<'a>,
    table: &'a OpenTable,
    rows: &'a RecordTable,
    index: usize,
    options: LockOptions,
    duration: LockDuration,
    hasher: &'a KeyHasher,
    reads: &'a mut ReadDependencies,
    view: Option<SnapshotView>,
    engine: &'a Engine,
    short_lock: &'a ShortLock,
    changes: &'a Changes,
    cancel_token: &'a Option<CancelToken>,
}

/// A key that was located, and is neither locked nor read yet.
struct LocatedKey<'g> {
    name: Name,
    located: Located<'g>,
}

impl<'a> Reader<'a> {
    /// Returns a reader, the encoded key, the hint and the work budget.
    #[inline(always)]
    fn new(
        bound: &'a mut BoundTxn,
        index: usize,
        options: LockOptions,
    ) -> (Reader<'a>, &'a [u8], &'a mut RecordHint, &'a mut WorkBudget) {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    key,
                    hint,
                    budget,
                    ..
                },
            txn:
                Txn {
                    reads,
                    isolation,
                    changes,
                    view,
                    cancel_token,
                    operation_locks: OperationLocks { short_lock, .. },
                    ..
                },
            ..
        } = bound;
        let table = &*tables[index].table;
        let faults = engine.faults();
        let duration = injected_fault::read_duration(faults, isolation.hold(options), options.lock);
        let locks = TableLocks::new(engine, worker, owner, table, options.wait);
        let reader = Reader {
            worker,
            locks: locks.with_duration(duration),
            table,
            rows: table.resident(),
            index,
            options,
            duration,
            hasher: &engine.hasher,
            reads,
            view: *view,
            engine,
            short_lock,
            changes,
            cancel_token,
        };
        (reader, key, hint, budget)
    }

    /// Locates a key before it is locked, and prefetches its lock and its record.
    #[inline(always)]
    fn locate<'g>(&self, guard: &'g Guard<'_>, key: &[u8]) -> LocatedKey<'g>
    where
        'a: 'g,
    {
        let name = Name::key(self.table.record.id, key, self.hasher);
        self.locks.prefetch(name);
        let located = self.rows.locate(guard, key);
        LocatedKey { name, located }
    }

    /// As [`locate`](Self::locate), for a read that is to be followed by a write of the row.
    #[inline(always)]
    fn locate_to_write<'g>(
        &self,
        guard: &'g Guard<'_>,
        key: &[u8],
        hint: &mut RecordHint,
    ) -> LocatedKey<'g>
    where
        'a: 'g,
    {
        let name = Name::key(self.table.record.id, key, self.hasher);
        self.locks.prefetch(name);
        let located = self.rows.locate_again(guard, key, hint);
        LocatedKey { name, located }
    }

    /// Locks a key, and passes its value to `read`, if it is there.
    #[inline(always)]
    fn read<'g, R>(
        &mut self,
        guard: &'g Guard<'_>,
        LocatedKey { name, located }: LocatedKey<'g>,
        key: &[u8],
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Result<AttemptResult<Option<R>>>
    where
        'a: 'g,
    {
        let Reader {
            options, duration, ..
        } = *self;
        let locks = &mut self.locks;
        let mode = options.lock.key_mode();
        let short_lock = (duration == LockDuration::Short).then_some(self.short_lock);
        let locked = match locks.lock(Name::table(self.table.record.id), mode.parent_mode()) {
            Ok(AttemptResult::Done(())) if self.table.is_former() => Ok(AttemptResult::Pause),
            Ok(AttemptResult::Done(())) => {
                let places = (self.rows, guard);
                locks.lock_located(short_lock, (name, key, mode), located, places)
            }
            Ok(_) => Ok(AttemptResult::Wait),
            Err(error) => Err(error),
        };
        let record = match locked {
            Ok(AttemptResult::Done(record)) => record,
            Ok(AttemptResult::Wait) => return Ok(AttemptResult::Wait),
            Ok(AttemptResult::Pause) => return Ok(AttemptResult::Pause),
            Err(error) if options.wait == LockWait::Skip && error.is_busy() => {
                return Ok(AttemptResult::Done(None));
            }
            Err(error) => return Err(error),
        };
        let row = (key, record);
        BoundTxn::refuse_overwritten(self.view, self.engine, guard, self.table, row)?;
        let mut hazard = guard.hazard();
        let found = record.and_then(|record| {
            self.reads.record(record);
            record.value(&mut hazard)
        });
        let own = || self.changes.first_old(self.index, key);
        let faults = self.worker.failpoints();
        let found = match faults.misbehaves(&injected_fault::OWN_WRITE_MISSED) {
            true => own().or(found),
            false => found,
        };
        if faults.misbehaves(&injected_fault::MISS_UNLOCKED) && found.is_none() {
            locks.release_shared(name);
        }
        let found = found.and_then(|value| Some(read.take()?(value)));
        if duration == LockDuration::Short {
            locks.release_short(self.short_lock);
        }
        Ok(AttemptResult::Done(found))
    }
}

impl BoundTxn {
    /// Passes the value of the encoded key to `read`, if the key is there.
    #[inline]
    pub(crate) fn get_step<R>(
        &mut self,
        table: usize,
        options: LockOptions,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Result<AttemptResult<Option<R>>> {
        let table = match table < self.ctx.tables.len() {
            true => table,
            false => match done!(self.absent_or_view(options)) {
                Some(table) => table,
                None => return Ok(AttemptResult::Done(None)),
            },
        };
        if let TableStore::Paged(_) = &self.ctx.tables[table].table.store {
            return match self.view(options.lock)? {
                None => self.get_paged_step(table, options, read),
                Some(view) => self.get_at(table, view, read),
            };
        }
        if let Some(view) = self.view(options.lock)? {
            return self.get_at(table, view, read);
        }
        let (mut reader, key, hint, _) = Reader::new(self, table, options);
        let guard = reader.worker.pin();
        let found = match options.lock {
            Lock::Shared => reader.locate(&guard, key),
            Lock::Update | Lock::Exclusive => reader.locate_to_write(&guard, key, hint),
        };
        reader.read(&guard, found, key, read)
    }

    /// Locks the row `key` of a table in memory, as a read of it does. Returns true if it is there.
    pub(super) fn lock_resident(
        &mut self,
        table: usize,
        options: LockOptions,
        key: &[u8],
    ) -> Result<AttemptResult<bool>> {
        let (mut reader, ..) = Reader::new(self, table, options);
        let guard = reader.worker.pin();
        let found = reader.locate(&guard, key);
        let found = done!(reader.read(&guard, found, key, &mut Some(|_: &[u8]| ())));
        Ok(AttemptResult::Done(found.is_some()))
    }

    /// Passes the values of `keys`, from the one at `next` on, to `read`, with their places.
    /// Several keys are located before the first is locked, so that their cache misses overlap.
    /// `next` is where to continue after a wait.
    pub(crate) fn get_many_step(
        &mut self,
        table: usize,
        options: LockOptions,
        keys: &KeyList,
        next: &mut usize,
        read: &mut impl FnMut(usize, Option<&[u8]>),
    ) -> Result<AttemptResult<()>> {
        let table = match table < self.ctx.tables.len() {
            true => table,
            false => match done!(self.absent_or_view(options)) {
                Some(table) => table,
                None => {
                    (mem::take(next)..keys.len()).for_each(|place| read(place, None));
                    return Ok(AttemptResult::Done(()));
                }
            },
        };
        if let TableStore::Paged(_) = &self.ctx.tables[table].table.store {
            return match self.view(options.lock)? {
                None => self.get_many_paged_step(table, options, keys, next, read),
                Some(view) => self.get_many_at(table, view, keys, next, read),
            };
        }
        if let Some(view) = self.view(options.lock)? {
            return self.get_many_at(table, view, keys, next, read);
        }
        let (mut reader, _, _, budget) = Reader::new(self, table, options);
        while *next < keys.len() {
            if budget.is_spent() {
                return Ok(AttemptResult::Pause);
            }
            let end = keys.len().min(*next + AHEAD);
            budget.charge(end - *next);
            let mut bytes = 0;
            let guard = reader.worker.pin();
            let mut ahead: SmallVec<[LocatedKey<'_>; AHEAD]> = SmallVec::new();
            ahead.extend((*next..end).map(|place| reader.locate(&guard, keys.key(place))));
            // By now the records are being fetched.
            ahead.iter().for_each(|found| found.located.fetch_value());
            for found in ahead {
                if !is_not_cancelled(reader.cancel_token) {
                    return Err(Conflict::CANCELLED.into());
                }
                let place = *next;
                let mut take = Some(|value: &[u8]| {
                    bytes += value.len();
                    read(place, Some(value));
                });
                if done!(reader.read(&guard, found, keys.key(place), &mut take)).is_none() {
                    read(place, None);
                }
                *next += 1;
            }
            budget.charge(bytes / BYTES_PER_UNIT);
        }
        Ok(AttemptResult::Done(()))
    }

    /// As [`prepare_get`](Self::prepare_get), for many keys.
    pub(crate) fn prepare_get_many<'k, K: Key + ?Sized + 'k, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
    ) -> Result<(usize, KeyList)> {
        let table = self.open_table(table)?;
        let mut encoded = KeyList::default();
        for key in keys {
            self.ctx.set_key(key)?;
            encoded.push(&self.ctx.key);
        }
        self.txn.operation_locks.short_lock.clear();
        Ok((table, encoded))
    }

    /// Checks and encodes what a read needs. Returns the table's index.
    #[inline(always)]
    pub(crate) fn prepare_get<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<usize> {
        let table = self.open_table(table)?;
        self.ctx.set_key(key)?;
        self.txn.operation_locks.short_lock.clear();
        Ok(table)
    }
}

/// Number of keys that are located at once. With more, the first may have left the caches before it
/// is read.
pub(super) const AHEAD: usize = 16;

/// Encoded keys.
#[derive(Debug, Default)]
pub(crate) struct KeyList {
    bytes: SmallVec<[u8; 128]>,
    ends: SmallVec<[usize; AHEAD]>,
}

impl KeyList {
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn key(&self, place: usize) -> &[u8] {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[place]]
    }
}
