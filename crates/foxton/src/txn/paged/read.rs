//! Reads of one key of a paged table.
//!
//! The key is locked by its name, and then its leaf is read. While the lock is held the row does
//! not change, so nothing has to be checked afterwards. If the value is [large](super::large), its
//! parts are read next, and then the row once more.
//!
//! A read of many keys that misses a page names the leaves of the next keys, which are read ahead.

use foxton_lock::name::{KeyHasher, Name};
use foxton_store::paged::btree::TreeAttempt;
use foxton_store::paged::page::RowFlags;
use foxton_sync::failpoint::Failpoints;

use super::access::PageAccess;
use super::overwritten::refuse_overwritten;
use crate::catalog::OpenTable;
use crate::engine::Engine;
use crate::engine::cancel_token::is_not_cancelled;
use crate::engine::early_release::ReadDependencies;
use crate::error::{Conflict, Result};
use crate::testing::injected_fault;
use crate::txn::attempt::{AttemptResult, done};
use crate::txn::bound::BoundTxn;
use crate::txn::context::WorkerContext;
use crate::txn::large_state::LargeState;
use crate::txn::read::KeyList;
use crate::txn::short_lock::ShortLock;
use crate::txn::snapshot_view::SnapshotView;
use crate::txn::table_locks::TableLocks;
use crate::txn::txn::{OperationLocks, Txn};
use crate::txn::work_budget::BYTES_PER_UNIT;
use crate::types::isolation::LockDuration;
use crate::types::lock_options::{LockOptions, LockWait};

/// Reads keys of one paged table.
struct PagedReader<'a> {
    access: PageAccess<'a>,
    locks: TableLocks<'a>,
    table: &'a OpenTable,
    options: LockOptions,
    duration: LockDuration,
    hasher: &'a KeyHasher,
    faults: &'a Failpoints,
    reads: &'a ReadDependencies,
    view: Option<SnapshotView>,
    engine: &'a Engine,
    short_lock: &'a ShortLock,
    value: &'a mut Vec<u8>,
    large: &'a mut Option<Box<LargeState>>,
    /// The keys that are read next, from this one on.
    following: Option<(&'a KeyList, usize)>,
}

/// Result of a read.
enum PagedFound<R> {
    /// There is no such row.
    Absent,
    /// The result of the read.
    Read(R),
    /// The value is large, and its parts are to be read.
    Large,
}

impl PagedReader<'_> {
    /// Locks a key, and refuses it if it has changed since the snapshot.
    fn lock(&mut self, key: &[u8], short_lock: Option<&ShortLock>) -> Result<AttemptResult<()>> {
        let (table, mode) = (self.table.record.id, self.options.lock.key_mode());
        let name = Name::key(table, key, self.hasher);
        let locks = &mut self.locks;
        done!(locks.lock(Name::table(table), mode.parent_mode()));
        if self.table.is_former() {
            return Ok(AttemptResult::Pause);
        }
        done!(locks.lock_for(short_lock, name, None, mode));
        refuse_overwritten(self.view, self.engine, self.table, key)?;
        Ok(AttemptResult::Done(()))
    }

    /// Locks a key, and passes its value to `read`, if it is there.
    fn read<R>(
        &mut self,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<AttemptResult<PagedFound<R>>> {
        let short_lock = (self.duration == LockDuration::Short).then_some(self.short_lock);
        match self.lock(key, short_lock) {
            Ok(AttemptResult::Done(())) => {}
            Ok(AttemptResult::Wait) => return Ok(AttemptResult::Wait),
            Ok(AttemptResult::Pause) => return Ok(AttemptResult::Pause),
            Err(error) if self.options.wait == LockWait::Skip && error.is_busy() => {
                return Ok(AttemptResult::Done(PagedFound::Absent));
            }
            Err(error) => return Err(error),
        }
        let name = Name::key(self.table.record.id, key, self.hasher);
        let locks = &mut self.locks;
        let value = &mut *self.value;
        let following = self.following;
        let flags = done!(self.access.attempt(|visit| {
            let attempt = visit.get(key, value);
            if let (Ok(TreeAttempt::Wait), Some((keys, next))) = (&attempt, following) {
                visit.name_leaves((next..keys.len()).map(|place| keys.key(place)));
            }
            attempt
        }));
        self.reads.record_paged(&self.access.pages.stamps, &name);
        let is_there = flags.is_some_and(|flags| !flags.has(RowFlags::GHOST));
        let found = match is_there {
            false => PagedFound::Absent,
            true if flags.is_some_and(|flags| flags.has(RowFlags::OVERFLOW)) => {
                match self.large.get_or_insert_default().bytes_of(value)? {
                    Some(value) => PagedFound::Read(read(value)),
                    // The locks stay until the value is there.
                    None => return Ok(AttemptResult::Done(PagedFound::Large)),
                }
            }
            true => PagedFound::Read(read(value)),
        };
        if !is_there && self.faults.misbehaves(&injected_fault::MISS_UNLOCKED) {
            locks.release_shared(name);
        }
        if short_lock.is_some() {
            locks.release_short(self.short_lock);
        }
        Ok(AttemptResult::Done(found))
    }
}

impl BoundTxn {
    /// As [`get_step`](Self::get_step), of a paged table.
    pub(in crate::txn) fn get_paged_step<R>(
        &mut self,
        index: usize,
        options: LockOptions,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Result<AttemptResult<Option<R>>> {
        done!(self.open_tree(index));
        loop {
            done!(self.read_large());
            let (mut reader, key) = self.paged_reader(index, options);
            let take = |value: &[u8]| read.take().map(|read| read(value));
            match done!(reader.read(key, take)) {
                PagedFound::Absent => return Ok(AttemptResult::Done(None)),
                PagedFound::Read(found) => return Ok(AttemptResult::Done(found)),
                PagedFound::Large => {}
            }
        }
    }

    /// Locks the row `key` of a paged table, as a read of it does, which is there at the snapshot.
    pub(in crate::txn) fn lock_paged(
        &mut self,
        index: usize,
        options: LockOptions,
        key: &[u8],
    ) -> Result<AttemptResult<bool>> {
        done!(self.open_tree(index));
        let (mut reader, _) = self.paged_reader(index, options);
        done!(reader.lock(key, None));
        Ok(AttemptResult::Done(true))
    }

    /// As [`get_many_step`](Self::get_many_step), of a paged table.
    pub(in crate::txn) fn get_many_paged_step(
        &mut self,
        index: usize,
        options: LockOptions,
        keys: &KeyList,
        next: &mut usize,
        read: &mut impl FnMut(usize, Option<&[u8]>),
    ) -> Result<AttemptResult<()>> {
        done!(self.open_tree(index));
        while *next < keys.len() {
            if self.ctx.budget.is_spent() {
                return Ok(AttemptResult::Pause);
            }
            if !is_not_cancelled(&self.txn.cancel_token) {
                return Err(Conflict::CANCELLED.into());
            }
            done!(self.read_large());
            let (place, mut bytes) = (*next, 0);
            let found = {
                let (mut reader, _) = self.paged_reader(index, options);
                reader.following = Some((keys, place + 1));
                done!(reader.read(keys.key(place), |value| {
                    bytes = value.len();
                    read(place, Some(value));
                }))
            };
            match found {
                PagedFound::Absent => read(place, None),
                PagedFound::Read(()) => {}
                PagedFound::Large => continue,
            }
            self.forget_large();
            *next += 1;
            self.ctx.budget.charge(1 + bytes / BYTES_PER_UNIT);
        }
        Ok(AttemptResult::Done(()))
    }

    /// Returns a reader, and the encoded key.
    #[inline(always)]
    fn paged_reader(&mut self, index: usize, options: LockOptions) -> (PagedReader<'_>, &[u8]) {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    key,
                    page_wait,
                    page_value,
                    large,
                    ..
                },
            txn:
                Txn {
                    reads,
                    view,
                    isolation,
                    operation_locks: OperationLocks { short_lock, .. },
                    ..
                },
            ..
        } = self;
        let cached = &tables[index];
        let table = &*cached.table;
        let faults = engine.faults();
        let duration = injected_fault::read_duration(faults, isolation.hold(options), options.lock);
        let access = PageAccess::of_table(engine.pages(), cached, worker, page_wait);
        let locks = TableLocks::new(engine, worker, owner, table, options.wait);
        let reader = PagedReader {
            access,
            locks: locks.with_duration(duration),
            table,
            options,
            duration,
            hasher: &engine.hasher,
            faults,
            reads,
            view: *view,
            engine,
            short_lock,
            value: page_value,
            large,
            following: None,
        };
        (reader, key)
    }
}
