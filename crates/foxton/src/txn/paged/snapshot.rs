//! Reads of paged tables at a snapshot.
//!
//! A reader copies the row from its page, and then looks for its [versions]. It locks nothing. It
//! waits for pages, as every attempt does, and for a commit that is about to learn its LSN. The
//! argument why one snapshot gives one answer is with the versions.
//!
//! # Scans
//!
//! A scan copies a part of a leaf, ghosts included, and looks for the versions of each key. A key
//! that was purged is not on a page any more. So the scan then searches the same part of the
//! [deleted rows](crate::catalog::deleted_rows), to which a purge adds the key before it removes
//! the ghost. A key that is in both is taken once. Rows that were read stay right at the snapshot.
//! So the scan keeps them across waits, and needs the pages of one tree at a time.
//!
//! # Large values
//!
//! A version that a snapshot needs keeps its large value ([`free_values`](super::free_values)). So
//! its parts are read as under a lock. If one is missing, the snapshot was ended to free memory, or
//! the table is gone.
//!
//! [versions]: foxton_store::paged::row_versions

use std::mem;
use std::ops::{Bound, ControlFlow};

use foxton_lock::name::Name;
use foxton_log::Lsn;
use foxton_store::memory::Begin;
use foxton_store::paged::btree::TreeAttempt;
use foxton_store::paged::page::RowFlags;
use foxton_store::paged::row_versions::{ROW_VERSIONS, VersionLookup, VersionedKey};
use foxton_sync::worker::Worker;

use super::access::PageAccess;
use super::index_write::is_there;
use crate::catalog::OpenTable;
use crate::engine::Engine;
use crate::engine::early_release::ReadDependencies;
use crate::engine::page_store::{OpenPages, tree_number};
use crate::error::Result;
use crate::testing::{failpoint, injected_fault};
use crate::txn::attempt::{AttemptResult, done};
use crate::txn::bound::BoundTxn;
use crate::txn::context::WorkerContext;
use crate::txn::index_read::{EncodedRow, check_open};
use crate::txn::read::KeyList;
use crate::txn::scan_state::Progress;
use crate::txn::snapshot::{check_current, check_readable};
use crate::txn::snapshot_view::{SnapshotView, ViewRow, ViewRows};
use crate::txn::txn::Txn;
use crate::txn::work_budget::BYTES_PER_UNIT;
use crate::types::lock_options::LockOptions;

/// Rows that a scan copies at least, because invisible ones do not count.
const LEAST_ROWS: usize = 16;

/// A row at a snapshot.
enum RowAt {
    Absent,
    /// Its value was copied. True if it is what the row has instead of a large one.
    Value(bool),
    Unresolved(Begin),
}

/// Looks for the versions of rows of one tree.
struct RowLookup<'a> {
    engine: &'a Engine,
    worker: &'a Worker,
    pages: &'a OpenPages,
    table: &'a OpenTable,
    view: SnapshotView,
    own: Option<Begin>,
    reads: &'a ReadDependencies,
    /// True if a state was taken from a page, and counts if no rollback came between.
    uses_page: bool,
}

impl RowLookup<'_> {
    fn rollbacks(&self) -> u64 {
        self.engine
            .snapshots
            .rows
            .rollbacks(tree_number(self.table))
    }

    /// True if a state that was taken from a page may have been rolled back since `rollbacks` was
    /// loaded, before the page was read.
    fn is_outdated(&self, rollbacks: u64) -> bool {
        let faults = self.engine.faults();
        self.uses_page
            && self.rollbacks() != rollbacks
            && !faults.misbehaves(&injected_fault::ROLLBACK_MISSED)
    }

    /// Finds the row of `key`, of which its page has `flags` and `value`.
    fn find(&mut self, key: &[u8], flags: Option<RowFlags>, value: &mut Vec<u8>) -> RowAt {
        let snapshots = &self.engine.snapshots;
        let row = VersionedKey::new(tree_number(self.table), key);
        self.worker.account().passed(&ROW_VERSIONS);
        let (slots, lsn) = (&snapshots.slots, self.view.lsn);
        let found = snapshots.rows.read(&row, slots, self.own, lsn, value);
        let (flags, begin) = match found {
            VersionLookup::Newest(begin) => {
                self.uses_page = true;
                (flags.filter(|_| is_there(flags)), begin)
            }
            VersionLookup::Older(flags, begin) => (Some(flags), Some(begin)),
            VersionLookup::Absent(begin) => (None, Some(begin)),
            VersionLookup::Unresolved(begin) => return RowAt::Unresolved(begin),
        };
        match begin.filter(|begin| begin.committed().is_some()) {
            Some(begin) => self.reads.record_begin(begin),
            // It is older than all snapshots, but its commit may not be durable yet.
            None => {
                let name = Name::key(self.table.record.id, key, &self.engine.hasher);
                self.reads.record_paged(&self.pages.stamps, &name);
            }
        }
        match flags {
            None => RowAt::Absent,
            Some(flags) => RowAt::Value(flags.has(RowFlags::OVERFLOW)),
        }
    }
}

impl BoundTxn {
    /// As [`get_at`](Self::get_at), of a paged table.
    pub(in crate::txn) fn get_paged_at<R>(
        &mut self,
        index: usize,
        view: SnapshotView,
        read: &mut impl FnMut(&[u8]) -> R,
    ) -> Result<AttemptResult<Option<R>>> {
        let key = mem::take(&mut self.ctx.key);
        let found = self.read_paged_at((index, view), &key, None, read);
        self.ctx.key = key;
        found
    }

    /// As [`get_many_at`](Self::get_many_at), of a paged table.
    pub(in crate::txn) fn get_many_paged_at(
        &mut self,
        index: usize,
        view: SnapshotView,
        keys: &KeyList,
        next: &mut usize,
        read: &mut impl FnMut(usize, Option<&[u8]>),
    ) -> Result<AttemptResult<()>> {
        while *next < keys.len() {
            if self.ctx.budget.is_spent() {
                return Ok(AttemptResult::Pause);
            }
            self.check_active()?;
            let (place, mut bytes) = (*next, 0);
            let found = done!(self.read_paged_at(
                (index, view),
                keys.key(place),
                Some((keys, place + 1)),
                &mut |value| {
                    bytes = value.len();
                    read(place, Some(value));
                }
            ));
            if found.is_none() {
                read(place, None);
            }
            self.forget_large();
            *next += 1;
            self.ctx.budget.charge(1 + bytes / BYTES_PER_UNIT);
        }
        Ok(AttemptResult::Done(()))
    }

    /// Passes the value that `key` has at the snapshot to `read`, if it has one. `following` are
    /// the keys that are read next.
    fn read_paged_at<R>(
        &mut self,
        (index, view): (usize, SnapshotView),
        key: &[u8],
        following: Option<(&KeyList, usize)>,
        read: &mut impl FnMut(&[u8]) -> R,
    ) -> Result<AttemptResult<Option<R>>> {
        loop {
            done!(check_readable(
                &self.ctx.engine,
                &self.ctx.tables[index].table,
                view
            ));
            done!(self.open_tree(index));
            done!(self.read_large_at(index, view));
            let found = done!(self.find_at(index, view, key, following));
            done!(self.check_read(index, view));
            let ctx = &mut self.ctx;
            match found {
                RowAt::Absent => return Ok(AttemptResult::Done(None)),
                RowAt::Unresolved(begin) => done!(self.wait_for_lsn(view, begin)),
                RowAt::Value(false) => {
                    return Ok(AttemptResult::Done(Some(read(&ctx.page_value))));
                }
                RowAt::Value(true) => {
                    let large = ctx.large.get_or_insert_default();
                    if let Some(value) = large.bytes_of(&ctx.page_value)? {
                        return Ok(AttemptResult::Done(Some(read(value))));
                    }
                }
            }
        }
    }

    /// Finds the row that `key` has at the snapshot.
    fn find_at(
        &mut self,
        index: usize,
        view: SnapshotView,
        key: &[u8],
        following: Option<(&KeyList, usize)>,
    ) -> Result<AttemptResult<RowAt>> {
        let own = self.own_begin(view);
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    tables,
                    page_wait,
                    page_value: value,
                    ..
                },
            txn: Txn { reads, .. },
            ..
        } = self;
        let cached = &tables[index];
        let mut access = PageAccess::of_table(engine.pages(), cached, worker, page_wait);
        let mut lookup = RowLookup {
            engine,
            worker,
            pages: access.pages,
            table: &cached.table,
            view,
            own,
            reads,
            uses_page: false,
        };
        loop {
            let rollbacks = lookup.rollbacks();
            lookup.uses_page = false;
            let flags = done!(access.attempt(|visit| {
                let attempt = visit.get(key, value);
                if let (Ok(TreeAttempt::Wait), Some((keys, next))) = (&attempt, following) {
                    visit.name_leaves((next..keys.len()).map(|place| keys.key(place)));
                }
                attempt
            }));
            worker.failpoints().pass(&failpoint::PAGE_READ);
            let found = lookup.find(key, flags, value);
            if !lookup.is_outdated(rollbacks) {
                return Ok(AttemptResult::Done(found));
            }
        }
    }

    /// Refuses what was read, if the snapshot was ended meanwhile. Makes the attempt again if the
    /// table was converted. Its index is checked by the caller.
    fn check_read(&self, index: usize, view: SnapshotView) -> Result<AttemptResult<()>> {
        self.check_view(view)?;
        let table = &*self.ctx.tables[index].table;
        match table.of {
            None => check_current(table),
            Some(_) => Ok(AttemptResult::Done(())),
        }
    }

    /// As [`read_large`](Self::read_large), of a value that a snapshot keeps.
    fn read_large_at(&mut self, index: usize, view: SnapshotView) -> Result<AttemptResult<()>> {
        let read = self.read_large();
        let large = self.ctx.large.as_ref();
        let is_gone = large.and_then(|large| large.read.as_ref());
        if read.is_err() || is_gone.is_some_and(|read| read.is_gone) {
            done!(self.check_read(index, view));
        }
        read
    }

    /// As [`scan_at`](Self::scan_at), of a paged table.
    pub(in crate::txn) fn scan_paged_at(
        &mut self,
        index: usize,
        view: SnapshotView,
        take: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<AttemptResult<()>> {
        loop {
            done!(check_readable(
                &self.ctx.engine,
                &self.ctx.tables[index].table,
                view
            ));
            done!(self.open_tree(index));
            done!(self.read_large_at(index, view));
            let Some(row) = done!(self.next_at(index, view)) else {
                return Ok(AttemptResult::Done(()));
            };
            let options = self.txn.scan.lock;
            match self.lock_found(index, options, &row.key) {
                Ok(AttemptResult::Done(true)) => {}
                Ok(AttemptResult::Done(false)) => {
                    self.ctx.budget.charge(1);
                    continue;
                }
                unfinished => {
                    self.txn.scan.view_rows.rows.push_front(row);
                    done!(unfinished);
                    continue;
                }
            }
            let is_read = row.is_large && !self.txn.scan.is_of_keys;
            let ctx = &mut self.ctx;
            let value = match is_read {
                false => &row.value[..],
                true => match ctx.large.get_or_insert_default().bytes_of(&row.value)? {
                    Some(value) => value,
                    None => {
                        self.txn.scan.view_rows.rows.push_front(row);
                        continue;
                    }
                },
            };
            let taken = take(&row.key, value);
            ctx.budget.charge(1 + value.len() / BYTES_PER_UNIT);
            ctx.large = None;
            self.txn.scan.remaining.update(|remaining| remaining - 1);
            if taken.is_break() {
                return Ok(AttemptResult::Done(()));
            }
        }
    }

    /// As [`scan_by_at`](Self::scan_by_at), of a paged table. `places` are those of its entries and
    /// of the table among the cached tables.
    pub(in crate::txn) fn scan_by_paged_at(
        &mut self,
        by: usize,
        [entries, rows]: [usize; 2],
        view: SnapshotView,
        take: &mut impl FnMut(EncodedRow<'_>) -> ControlFlow<()>,
    ) -> Result<AttemptResult<()>> {
        let kind = self.ctx.index_lookups[by].index.kind;
        loop {
            check_open(&self.ctx.index_lookups[by].index)?;
            done!(check_readable(
                &self.ctx.engine,
                &self.ctx.tables[entries].table,
                view
            ));
            done!(self.open_tree(entries));
            let Some(entry) = done!(self.next_at(entries, view)) else {
                return Ok(AttemptResult::Done(()));
            };
            let (index_key, key) = kind.read(&entry.key, &entry.value);
            let options = self.txn.scan.lock;
            match self.lock_found(rows, options, key) {
                Ok(AttemptResult::Done(true)) => {}
                Ok(AttemptResult::Done(false)) => {
                    self.ctx.budget.charge(1);
                    continue;
                }
                unfinished => {
                    self.txn.scan.view_rows.rows.push_front(entry);
                    done!(unfinished);
                    continue;
                }
            }
            let mut row = |value: &[u8]| {
                take(EncodedRow {
                    index_key,
                    key,
                    value,
                })
            };
            let found = match self.read_paged_at((rows, view), key, None, &mut row) {
                Ok(AttemptResult::Done(found)) => found,
                unfinished => {
                    self.txn.scan.view_rows.rows.push_front(entry);
                    done!(unfinished);
                    continue;
                }
            };
            self.ctx.large = None;
            self.ctx.budget.charge(1);
            if let Some(taken) = found {
                self.txn.scan.remaining.update(|remaining| remaining - 1);
                if taken.is_break() {
                    return Ok(AttemptResult::Done(()));
                }
            }
        }
    }

    /// As [`get_by_at`](Self::get_by_at), of a paged table. `places` are as for a scan.
    pub(in crate::txn) fn get_by_paged_at<R>(
        &mut self,
        by: usize,
        [entries, rows]: [usize; 2],
        (view, options): (SnapshotView, LockOptions),
        read: &mut impl FnMut(EncodedRow<'_>) -> R,
    ) -> Result<AttemptResult<Option<Option<R>>>> {
        let index = &self.ctx.index_lookups[by].index;
        check_open(index)?;
        let kind = index.kind;
        if !self.txn.scan.entry.is_set {
            let entry = mem::take(&mut self.ctx.key);
            let mut copy = |value: &[u8]| value.to_vec();
            let found = self.read_paged_at((entries, view), &entry, None, &mut copy);
            self.ctx.key = entry;
            let Some(value) = done!(found) else {
                return Ok(AttemptResult::Done(None));
            };
            let (index_key, key) = kind.read(&self.ctx.key, &value);
            self.txn.scan.entry.set((index_key, key), true);
        }
        let entry = mem::take(&mut self.txn.scan.entry);
        let mut row = |value: &[u8]| {
            Some(read(EncodedRow {
                index_key: &entry.index_key,
                key: &entry.key,
                value,
            }))
        };
        let found = match self.lock_found(rows, options, &entry.key) {
            Ok(AttemptResult::Done(true)) => {
                self.read_paged_at((rows, view), &entry.key, None, &mut row)
            }
            Ok(AttemptResult::Done(false)) => Ok(AttemptResult::Done(Some(None))),
            Ok(AttemptResult::Wait) => Ok(AttemptResult::Wait),
            Ok(AttemptResult::Pause) => Ok(AttemptResult::Pause),
            Err(error) => Err(error),
        };
        self.txn.scan.entry = entry;
        // An unfinished read goes on with the row.
        let is_unfinished = matches!(found, Ok(AttemptResult::Wait | AttemptResult::Pause));
        self.txn.scan.entry.is_set = is_unfinished;
        found
    }

    /// Returns the next row of the scan, or `None` at its end.
    fn next_at(
        &mut self,
        index: usize,
        view: SnapshotView,
    ) -> Result<AttemptResult<Option<ViewRow>>> {
        loop {
            let scan = &mut self.txn.scan;
            let is_over = scan.remaining.get() == 0 || scan.is_finished();
            let next = scan.view_rows.rows.pop_front().filter(|_| !is_over);
            if next.is_some() {
                return Ok(AttemptResult::Done(next));
            }
            if is_over || scan.view_rows.has_end {
                scan.view_rows.clear();
                scan.progress = Progress::Finished;
                return Ok(AttemptResult::Done(None));
            }
            if self.ctx.budget.is_spent() {
                return Ok(AttemptResult::Pause);
            }
            self.check_active()?;
            let unresolved = done!(self.read_part_at(index, view));
            done!(self.check_read(index, view));
            if let Some(begin) = unresolved {
                done!(self.wait_for_lsn(view, begin));
            }
        }
    }

    /// Reads rows from the position of the scan on. Returns the writer of the row behind them, if
    /// it is about to learn its commit LSN.
    fn read_part_at(
        &mut self,
        index: usize,
        view: SnapshotView,
    ) -> Result<AttemptResult<Option<Begin>>> {
        let own = self.own_begin(view);
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    tables,
                    page_wait,
                    page_rows,
                    page_value,
                    ..
                },
            txn: Txn { reads, scan, .. },
            ..
        } = self;
        let cached = &tables[index];
        let mut access = PageAccess::of_table(engine.pages(), cached, worker, page_wait);
        let mut lookup = RowLookup {
            engine,
            worker,
            pages: access.pages,
            table: &cached.table,
            view,
            own,
            reads,
            uses_page: false,
        };
        let mut above_high = Vec::new();
        let mut range = scan.leaf_range(&mut above_high);
        range.most = range.most.max(LEAST_ROWS);
        let mut part = ViewRows::default();
        let (last, unresolved) = loop {
            part.clear();
            let (mut last, mut unresolved) = (None, None);
            let rollbacks = lookup.rollbacks();
            lookup.uses_page = false;
            done!(access.attempt(|visit| {
                visit.set_scan_ahead(scan.ahead.get());
                let attempt = visit.scan(range, page_rows);
                scan.ahead.set(visit.scan_ahead());
                attempt
            }));
            worker.failpoints().pass(&failpoint::PAGE_READ);
            part.has_end = page_rows.is_empty();
            for at in 0..page_rows.len() {
                let key = page_rows.key(at);
                if scan.is_outside(key) {
                    part.has_end = true;
                    break;
                }
                page_value.clear();
                page_value.extend_from_slice(page_rows.value(at));
                match lookup.find(key, Some(page_rows.flags(at)), page_value) {
                    RowAt::Unresolved(begin) => {
                        unresolved = Some(begin);
                        break;
                    }
                    RowAt::Absent => {}
                    RowAt::Value(is_large) => part.rows.push_back(ViewRow {
                        key: key.to_vec(),
                        value: page_value.clone(),
                        is_large,
                    }),
                }
                last = Some(at);
            }
            if !lookup.is_outdated(rollbacks) {
                break (last, unresolved);
            }
        };
        let last = last.map(|at| page_rows.key(at));
        let faults = engine.faults();
        let deleted = cached.table.deleted.get();
        let deleted = deleted.filter(|_| !faults.misbehaves(&injected_fault::DELETED_ROWS_MISSED));
        if let Some(deleted) = deleted
            && (last.is_some() || part.has_end)
        {
            let to = match (part.has_end, last) {
                (false, Some(last)) => Bound::Included(last),
                _ => scan.to(),
            };
            let range = match scan.reversed {
                false => (scan.from(), to),
                true => (to, scan.from()),
            };
            let guard = worker.pin();
            let sees = |begin: Lsn, end: Lsn| begin <= view.lsn && view.lsn < end;
            for row in deleted.range(&guard, range, sees) {
                // It had a value at the snapshot, so its version is there.
                let RowAt::Value(is_large) = lookup.find(&row.key, None, page_value) else {
                    continue;
                };
                part.rows.push_back(ViewRow {
                    key: row.key,
                    value: page_value.clone(),
                    is_large,
                });
            }
            part.sort(scan.reversed);
        }
        let last = last.map(<[u8]>::to_vec);
        scan.view_rows = part;
        if let Some(last) = last {
            scan.record_key(&last);
        }
        Ok(AttemptResult::Done(unresolved))
    }
}

impl ViewRows {
    /// Sorts the rows in the order of the scan, and keeps one of each key.
    fn sort(&mut self, reversed: bool) {
        let mut rows: Vec<ViewRow> = mem::take(&mut self.rows).into();
        rows.sort_by(|left, right| match reversed {
            false => left.key.cmp(&right.key),
            true => right.key.cmp(&left.key),
        });
        rows.dedup_by(|left, right| left.key == right.key);
        self.rows = rows.into();
    }
}
