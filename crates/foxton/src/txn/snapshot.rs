//! Reads at a snapshot: of one key, of several, and of a range.
//!
//! A plain read of a transaction at [`Isolation::Snapshot`] takes no lock and waits for no writer.
//! It takes the version that was committed at or below the position of the snapshot, or the
//! transaction's own. It waits in one case only: the writer of a version is about to learn its
//! commit LSN. A thread then sleeps, without a pin; a task yields.
//!
//! Of a paged table the rows are on pages, and their versions in memory: see `paged/snapshot.rs`.
//!
//! # Writes
//!
//! They lock as at every level. A write, or a locking read, of a row whose newest committed version
//! is younger than the snapshot is refused (`overwritten`), so no update is lost.
//!
//! A range with more than a shared lock, and such a read by an index, find their rows at the
//! snapshot too, and then lock each as a read of its key does. So they return what is there at the
//! snapshot and still is when they lock it. If a unique index has no such entry, the read locks the
//! absent one, as at the other levels.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Instant;

use foxton_store::memory::{Begin, Located, VersionReader};
use foxton_sync::shim::hint::spin_loop;
use foxton_sync::shim::thread::{self, Thread};
use smallvec::SmallVec;

use super::attempt::{AttemptResult, done};
use super::bound::BoundTxn;
use super::context::WorkerContext;
use super::index_read::{EncodedRow, check_open, table_of};
use super::overwritten::overwritten;
use super::read::{AHEAD, KeyList};
use super::snapshot_view::SnapshotView;
use super::txn::Txn;
use super::view_reader::{ViewRead, ViewReader, own_begin};
use crate::catalog::OpenTable;
use crate::catalog::table_store::TableStore;
use crate::engine::Engine;
use crate::error::{IndexError, Request, Result};
use crate::options::Locking;
use crate::types::isolation::Isolation;
use crate::types::lock_options::{Lock, LockOptions};

/// Rounds that a reader waits actively for a commit LSN.
const SPINS: u32 = 32;

impl BoundTxn {
    /// Returns the position at which a read with `lock` reads, if the level reads at a snapshot.
    #[inline(always)]
    pub(crate) fn view(&mut self, lock: Lock) -> Result<Option<SnapshotView>> {
        match self.txn.isolation == Isolation::Snapshot && lock == Lock::Shared {
            false => {
                self.txn.has_read = true;
                Ok(None)
            }
            // Without locking there is no other transaction, so every read is of one moment.
            true if self.ctx.place().is_none() => Ok(None),
            true => self.take_view().map(Some),
        }
    }

    /// As [`view`](Self::view), of a range or a read by an index, which find rows at the snapshot
    /// whatever they lock.
    #[inline(always)]
    pub(super) fn view_of_found(&mut self, lock: Lock) -> Result<Option<SnapshotView>> {
        let found = self.view(lock)?;
        match self.txn.isolation == Isolation::Snapshot && found.is_none() {
            false => Ok(found),
            true => self.view(Lock::Shared),
        }
    }

    /// Changes the level of later reads. All reads before and after a change to or from `Snapshot`
    /// would not be of one moment, so there must be none before.
    pub(crate) fn set_isolation(&mut self, isolation: Isolation) -> Result<()> {
        let is_at_snapshot = self.txn.isolation == Isolation::Snapshot;
        let changes = is_at_snapshot != (isolation == Isolation::Snapshot);
        if changes && (self.txn.has_read || self.txn.view.is_some()) {
            return Err(Request::LevelTooLate.into());
        }
        self.txn.isolation = isolation;
        Ok(())
    }

    /// As [`absent_to_read`](Self::absent_to_read), for reads at every level. At a snapshot a table
    /// that does not exist has no rows, and nothing is locked.
    pub(super) fn absent_or_view(
        &mut self,
        options: LockOptions,
    ) -> Result<AttemptResult<Option<usize>>> {
        match self.view(options.lock)? {
            None => self.absent_to_read(options),
            Some(_) => Ok(AttemptResult::Done(None)),
        }
    }

    /// Registers the snapshot of the transaction with its first read.
    #[cold]
    fn take_view(&mut self) -> Result<SnapshotView> {
        if let Some(view) = self.txn.view {
            return Ok(view);
        }
        let view = self.register(true)?;
        self.txn.view = Some(view);
        Ok(view)
    }

    /// Registers a snapshot in the place of the context. `may_write` says that it is of a
    /// transaction, which may write, too.
    #[inline]
    pub(crate) fn register(&mut self, may_write: bool) -> Result<SnapshotView> {
        let WorkerContext {
            engine,
            worker,
            owner,
            commit_slot,
            ..
        } = &mut self.ctx;
        let Some(place) = commit_slot.number() else {
            return Err(Request::SnapshotWithoutLocks.into());
        };
        // With its first snapshot, because most contexts of a peak have none.
        if !std::mem::replace(&mut commit_slot.shows_owner, true) {
            engine.snapshots.set_owner(place, owner.observer());
        }
        debug_assert_eq!(engine.options.locking, Locking::On);
        let front = || engine.persistence.front();
        let (lsn, has_started) = engine.snapshots.register(worker, (place, may_write), front);
        if has_started {
            self.start_sweeps();
        }
        let is_own = true;
        Ok(SnapshotView { lsn, place, is_own })
    }

    /// Ends the snapshot that the transaction has registered.
    #[inline]
    pub(crate) fn end_view(&mut self) {
        if let Some(view) = self.txn.view.take()
            && view.is_own
        {
            self.ctx.engine.snapshots.deregister(view.place);
        }
    }

    /// Waits until the commit LSN of the writer of `begin` is known, or returns that the task has
    /// to yield first.
    #[cold]
    pub(super) fn wait_for_lsn(
        &self,
        view: SnapshotView,
        begin: Begin,
    ) -> Result<AttemptResult<()>> {
        let snapshots = &self.ctx.engine.snapshots;
        let (slots, began) = (&snapshots.slots, Instant::now());
        for _ in 0..SPINS {
            if !slots.is_unresolved(begin, view.lsn) {
                snapshots
                    .lsn_waits
                    .record(&self.ctx.worker, began.elapsed());
                return Ok(AttemptResult::Done(()));
            }
            spin_loop();
        }
        if self.ctx.budget.is_of_task() {
            self.ctx.awaited_commit.set(Some(begin));
            return Ok(AttemptResult::Pause);
        }
        let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
        if slots.poll(begin, &Context::from_waker(&waker)) {
            while slots.is_unresolved(begin, view.lsn) {
                thread::park();
            }
        }
        snapshots
            .lsn_waits
            .record(&self.ctx.worker, began.elapsed());
        Ok(AttemptResult::Done(()))
    }

    /// Passes the value that the encoded key has at the snapshot to `read`, if it has one.
    #[cold]
    pub(super) fn get_at<R>(
        &mut self,
        table: usize,
        view: SnapshotView,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Result<AttemptResult<Option<R>>> {
        let read = &mut |value: &[u8]| Some(read.take()?(value));
        if self.ctx.tables[table].table.is_paged() {
            let found = done!(self.get_paged_at(table, view, read));
            return Ok(AttemptResult::Done(found.flatten()));
        }
        let table = &*self.ctx.tables[table].table;
        let found = done!(self.read_at(table, view, &self.ctx.key, read));
        Ok(AttemptResult::Done(found.flatten()))
    }

    /// As [`get_at`](Self::get_at), for `keys` from `next` on.
    #[cold]
    pub(super) fn get_many_at(
        &mut self,
        table: usize,
        view: SnapshotView,
        keys: &KeyList,
        next: &mut usize,
        read: &mut impl FnMut(usize, Option<&[u8]>),
    ) -> Result<AttemptResult<()>> {
        if self.ctx.tables[table].table.is_paged() {
            return self.get_many_paged_at(table, view, keys, next, read);
        }
        while *next < keys.len() {
            if self.ctx.budget.is_spent() {
                return Ok(AttemptResult::Pause);
            }
            let end = keys.len().min(*next + AHEAD);
            self.ctx.budget.charge(end - *next);
            self.check_active()?;
            if let Some(begin) = done!(self.get_some_at(table, view, keys, (next, end), read)) {
                done!(self.wait_for_lsn(view, begin));
            }
        }
        Ok(AttemptResult::Done(()))
    }

    /// Reads `keys` from `next` to `end` under one pin. They are located before the first is read,
    /// so that their cache misses overlap. Returns early if the commit LSN of a version's writer is
    /// not known.
    fn get_some_at(
        &self,
        table: usize,
        view: SnapshotView,
        keys: &KeyList,
        (next, end): (&mut usize, usize),
        read: &mut impl FnMut(usize, Option<&[u8]>),
    ) -> Result<AttemptResult<Option<Begin>>> {
        let table = &*self.ctx.tables[table].table;
        done!(check_readable(&self.ctx.engine, table, view));
        let (reader, guard) = (self.view_reader(view), self.ctx.worker.pin());
        let mut ahead: SmallVec<[Located<'_>; AHEAD]> = SmallVec::new();
        let rows = table.resident();
        ahead.extend((*next..end).map(|place| rows.locate(&guard, keys.key(place))));
        ahead.iter().for_each(Located::fetch_value);
        let mut versions = VersionReader::new(&guard, reader.slots(), reader.own);
        for located in ahead {
            let (place, key) = (*next, keys.key(*next));
            let row = (key, located.found());
            let found = reader.get_located(&guard, &mut versions, table, row, |value| {
                let is_current = !table.is_former();
                is_current.then(|| read(place, Some(value)))
            });
            match found? {
                ViewRead::Row(Some(())) => {}
                ViewRead::Row(None) => return Ok(AttemptResult::Pause),
                ViewRead::Absent => {
                    done!(check_current(table));
                    read(place, None);
                }
                ViewRead::Unresolved(begin) => return Ok(AttemptResult::Done(Some(begin))),
            }
            *next += 1;
        }
        Ok(AttemptResult::Done(None))
    }

    /// Passes the value that `key` has at the snapshot to `read`, if it has one.
    pub(super) fn read_at<R>(
        &self,
        table: &OpenTable,
        view: SnapshotView,
        key: &[u8],
        read: &mut impl FnMut(&[u8]) -> R,
    ) -> Result<AttemptResult<Option<R>>> {
        let reader = self.view_reader(view);
        loop {
            done!(check_readable(&self.ctx.engine, table, view));
            let guard = self.ctx.worker.pin();
            // Asked after the read, and before the program sees the row.
            let found = reader.get(&guard, table, key, |value| {
                let is_current = !table.is_former();
                is_current.then(|| read(value))
            })?;
            drop(guard);
            match found {
                ViewRead::Row(Some(row)) => return Ok(AttemptResult::Done(Some(row))),
                ViewRead::Row(None) => return Ok(AttemptResult::Pause),
                ViewRead::Absent => {
                    done!(check_current(table));
                    return Ok(AttemptResult::Done(None));
                }
                ViewRead::Unresolved(begin) => done!(self.wait_for_lsn(view, begin)),
            }
        }
    }

    /// Returns what reads versions for one attempt.
    pub(super) fn view_reader(&self, view: SnapshotView) -> ViewReader<'_> {
        ViewReader::new(&self.ctx, &self.txn.reads, view)
    }

    /// Returns the begin of the transaction's own versions, which it sees.
    pub(super) fn own_begin(&self, view: SnapshotView) -> Option<Begin> {
        own_begin(&self.ctx, view)
    }

    /// Refuses a read whose snapshot was ended.
    pub(super) fn check_view(&self, view: SnapshotView) -> Result<()> {
        match self.ctx.engine.snapshots.ended(view.place) {
            None => Ok(()),
            Some(ended) => Err(ended.into()),
        }
    }

    /// Passes the row that the unique index `by` has under the encoded key at the snapshot to
    /// `read`.
    #[cold]
    pub(super) fn get_by_at<R>(
        &mut self,
        by: usize,
        view: SnapshotView,
        options: LockOptions,
        read: &mut impl FnMut(EncodedRow<'_>) -> R,
    ) -> Result<AttemptResult<Option<R>>> {
        let places = self.ctx.index_lookups[by].places;
        let found = match places {
            Some(places) => self.get_by_paged_at(by, places, (view, options), read),
            None => self.get_by_resident_at(by, (view, options), read),
        };
        let found = done!(found);
        if found.is_some() || options.lock == Lock::Shared {
            return Ok(AttemptResult::Done(found.flatten()));
        }
        // Locks the absent entry.
        let younger = done!(match places {
            Some(places) => self.get_by_paged_step(by, places, options, &mut |_| ()),
            None => self.try_get_by(by, options, &mut |_| ()),
        });
        match younger {
            None => Ok(AttemptResult::Done(None)),
            Some(()) => {
                let entries = &self.ctx.index_lookups[by].index.entries;
                Err(overwritten(&self.ctx.engine, entries, &self.ctx.key))
            }
        }
    }

    /// As [`get_by_at`](Self::get_by_at), of a table in memory. Returns `Some(None)` for a row that
    /// it skips.
    fn get_by_resident_at<R>(
        &mut self,
        by: usize,
        (view, options): (SnapshotView, LockOptions),
        read: &mut impl FnMut(EncodedRow<'_>) -> R,
    ) -> Result<AttemptResult<Option<Option<R>>>> {
        let index = &self.ctx.index_lookups[by].index;
        check_open(index)?;
        let kind = index.kind;
        let rows = self.rows_to_lock(by, options.lock);
        let entry = std::mem::take(&mut self.ctx.key);
        let index = &self.ctx.index_lookups[by].index;
        let found = self.read_at(&index.entries, view, &entry, &mut |value| value.to_vec());
        let result = match found {
            Ok(AttemptResult::Done(Some(value))) => {
                let (index_key, key) = kind.read(&entry, &value);
                let row = &mut |value: &[u8]| {
                    Some(read(EncodedRow {
                        index_key,
                        key,
                        value,
                    }))
                };
                let locked = rows.map(|rows| self.lock_found(rows, options, key));
                match locked.unwrap_or(Ok(AttemptResult::Done(true))) {
                    Ok(AttemptResult::Done(true)) => {
                        let table = table_of(&self.ctx.index_lookups[by].index.entries);
                        self.read_at(table, view, key, row)
                    }
                    Ok(AttemptResult::Done(false)) => Ok(AttemptResult::Done(Some(None))),
                    Ok(AttemptResult::Wait) => Ok(AttemptResult::Wait),
                    Ok(AttemptResult::Pause) => Ok(AttemptResult::Pause),
                    Err(error) => Err(error),
                }
            }
            Ok(AttemptResult::Done(None)) => Ok(AttemptResult::Done(None)),
            Ok(AttemptResult::Wait) => Ok(AttemptResult::Wait),
            Ok(_) => Ok(AttemptResult::Pause),
            Err(error) => Err(error),
        };
        self.ctx.key = entry;
        result
    }
}

/// Refuses tables that have no versions at the snapshot.
pub(super) fn check_readable(
    engine: &Engine,
    table: &OpenTable,
    view: SnapshotView,
) -> Result<AttemptResult<()>> {
    if table.of.is_none() {
        done!(check_current(table));
    }
    if let TableStore::Paged(_) = &table.store
        && engine.snapshots.read_views.is_some()
    {
        return Err(Request::ReadViewOfPages.into());
    }
    match (table.is_since(view.lsn), &table.of) {
        (true, _) => Ok(AttemptResult::Done(())),
        (false, None) => Err(Request::YoungerThanSnapshot.into()),
        (false, Some(_)) => {
            let index = table.record.name.clone();
            Err(IndexError::Younger { index }.into())
        }
    }
}

/// Makes the attempt again if the table was converted. A reader asks again after it has read,
/// because the former rows are freed without regard to snapshots.
pub(super) fn check_current(table: &OpenTable) -> Result<AttemptResult<()>> {
    match table.is_former() {
        false => Ok(AttemptResult::Done(())),
        true => Ok(AttemptResult::Pause),
    }
}

/// Wakes a thread that waits for a commit LSN.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Txn {
    /// True if it reads at a snapshot that another handle has registered.
    pub(crate) fn is_view_lent(&self) -> bool {
        self.view.is_some_and(|view| !view.is_own)
    }
}
