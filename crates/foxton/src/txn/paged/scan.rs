//! Scans of a range of a paged table, in either direction, without phantoms.
//!
//! # Protocol
//!
//! That of [`scan`](crate::txn::scan): each key is locked with the gap before it, and so is the gap
//! in which the range ends. A gap is named by its right neighbour, wherever that is stored.
//!
//! The scan copies the rows of a leaf at once. For each row it requests the lock, and then asks
//! whether the leaf is still as it was copied. If it is, the row has this value, and no key has
//! come between it and the row before. If it is not, the scan reads again from the last row that it
//! has taken; it keeps its locks. So nothing of a leaf is used that was copied before a wait.
//!
//! The first rows of the next leaf are read together with the end of this one, as one step whose
//! token has both leaves. Otherwise a key could come at the end of this leaf unseen.
//!
//! A range that the lock manager locks [as a whole](crate::txn::scan_locked_range) is read without
//! these checks. Nothing comes, goes or changes there once all of it is locked.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use foxton_lock::mode::Mode;
use foxton_lock::name::{KeyHasher, Name};
use foxton_store::paged::btree::{ScanDirection, ScanRange, ScanToken};
use foxton_store::paged::page::{LeafRows, RowFlags};
use foxton_sync::worker::Worker;

use super::access::PageAccess;
use crate::catalog::OpenTable;
use crate::error::Result;
use crate::testing::{failpoint, injected_fault};
use crate::txn::attempt::{AttemptResult, done};
use crate::txn::bound::BoundTxn;
use crate::txn::context::{PagedGhost, WorkerContext};
use crate::txn::large_state::LargeState;
use crate::txn::scan::was_granted;
use crate::txn::scan_state::{GAP, Progress, RangeEnd, ScanState};
use crate::txn::short_lock::ShortLock;
use crate::txn::table_locks::TableLocks;
use crate::txn::txn::Txn;
use crate::txn::work_budget::WorkBudget;
use crate::types::isolation::LockDuration;
use crate::types::lock_options::LockWait;

/// Scans list no ghosts beyond this number. They find the others again.
const NOTED_GHOSTS: usize = 64;

/// Locks and takes what a scan reaches: rows, or the entries of an index.
pub(super) trait PagedVisit {
    /// True if locking a row locks its name and nothing else.
    const BY_NAME: bool;

    /// Locks a row, or a ghost if it has no value, which has `name`, in `mode`.
    fn lock(
        &mut self,
        locks: &mut TableLocks<'_>,
        row: (&[u8], Option<&[u8]>),
        name: Name,
        mode: Mode,
    ) -> Result<AttemptResult<()>>;

    /// As [`lock`](Self::lock), without the gap, and released after the read if `short_lock`
    /// records it.
    fn lock_alone(
        &mut self,
        locks: &mut TableLocks<'_>,
        row: (&[u8], Option<&[u8]>),
        request: (Name, Mode),
        short_lock: Option<&ShortLock>,
    ) -> Result<AttemptResult<()>>;

    /// Takes a row, if it has a value. Returns `None` if it has none; it then does not count. After
    /// a wait the scan does not reach the row again.
    fn take(
        &mut self,
        scan: &mut ScanState,
        row: (&[u8], Option<&[u8]>),
        is_last: bool,
    ) -> Result<AttemptResult<Option<ControlFlow<()>>>>;
}

/// Reads rows.
struct PagedRowVisit<'t, F>(&'t mut F);

impl<F: FnMut(&[u8], &[u8]) -> ControlFlow<()>> PagedVisit for PagedRowVisit<'_, F> {
    const BY_NAME: bool = true;

    #[inline]
    fn lock(
        &mut self,
        locks: &mut TableLocks<'_>,
        _row: (&[u8], Option<&[u8]>),
        name: Name,
        mode: Mode,
    ) -> Result<AttemptResult<()>> {
        locks.lock_in_scan(name, None, mode)
    }

    #[inline]
    fn lock_alone(
        &mut self,
        locks: &mut TableLocks<'_>,
        _row: (&[u8], Option<&[u8]>),
        (name, mode): (Name, Mode),
        short_lock: Option<&ShortLock>,
    ) -> Result<AttemptResult<()>> {
        locks.lock_for(short_lock, name, None, mode)
    }

    #[inline]
    fn take(
        &mut self,
        _scan: &mut ScanState,
        (key, value): (&[u8], Option<&[u8]>),
        _is_last: bool,
    ) -> Result<AttemptResult<Option<ControlFlow<()>>>> {
        Ok(AttemptResult::Done(value.map(|value| (self.0)(key, value))))
    }
}

/// One attempt of a scan.
pub(super) struct PagedScan<'a, V> {
    pub(super) access: PageAccess<'a>,
    pub(super) locks: TableLocks<'a>,
    pub(super) scan: &'a mut ScanState,
    pub(super) table: &'a OpenTable,
    pub(super) hasher: &'a KeyHasher,
    pub(super) worker: &'a Worker,
    pub(super) key_mode: Mode,
    pub(super) range_mode: Mode,
    pub(super) visit: V,
    /// None for entries of an index, which are not large.
    pub(super) large: Option<&'a mut Option<Box<LargeState>>>,
    /// Ghosts that were found.
    pub(super) ghosts: Vec<Box<[u8]>>,
}

/// Continuation of a scan after some rows.
pub(super) enum RowStep {
    /// The next row.
    Next,
    /// The rows from the position on, read again.
    Again,
    /// The scan ends, or its caller broke off.
    End,
}

impl BoundTxn {
    /// As [`scan_step`](Self::scan_step), of a paged table.
    pub(in crate::txn) fn scan_paged_step(
        &mut self,
        index: usize,
        take: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<AttemptResult<()>> {
        done!(self.open_tree(index));
        done!(self.read_large());
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    budget,
                    page_wait,
                    page_rows,
                    large,
                    paged_ghosts,
                    ..
                },
            txn: Txn {
                scan, isolation, ..
            },
            ..
        } = self;
        let cached = &tables[index];
        let table = &*cached.table;
        let options = scan.lock;
        let duration = isolation.hold(options);
        scan.duration = injected_fault::read_duration(engine.faults(), duration, options.lock);
        let locks = TableLocks::new(engine, worker, owner, table, options.wait);
        let locks = locks.with_duration(scan.duration);
        if !locks.is_on() && cached.is_former() {
            return Ok(AttemptResult::Pause);
        }
        let mut attempt = PagedScan {
            access: PageAccess::of_table(engine.pages(), cached, worker, page_wait),
            locks,
            scan,
            table,
            hasher: &engine.hasher,
            worker,
            key_mode: options.lock.key_mode(),
            range_mode: options.lock.range_mode(),
            visit: PagedRowVisit(take),
            large: Some(large),
            ghosts: Vec::new(),
        };
        let walked = attempt.walk(page_rows, budget);
        attempt.list_ghosts(index, paged_ghosts);
        match walked {
            Err(error) if options.wait == LockWait::Skip && error.is_busy() => {
                attempt.scan.progress = Progress::Finished;
                Ok(AttemptResult::Done(()))
            }
            walked => walked,
        }
    }
}

impl<V: PagedVisit> PagedScan<'_, V> {
    /// Walks on until the scan ends, or breaks off, or the attempt has to wait.
    pub(super) fn walk(
        &mut self,
        rows: &mut LeafRows,
        budget: &mut WorkBudget,
    ) -> Result<AttemptResult<()>> {
        loop {
            match done!(self.walk_batch(rows)) {
                (RowStep::End, _) => return Ok(AttemptResult::Done(())),
                (_, rows) => budget.charge(1 + rows),
            }
            if budget.is_spent() {
                return Ok(AttemptResult::Pause);
            }
        }
    }

    /// Adds the ghosts that were found to those that a purge removes. `index` is that of the table.
    pub(super) fn list_ghosts(&mut self, index: usize, listed: &mut VecDeque<PagedGhost>) {
        let ghosts = std::mem::take(&mut self.ghosts);
        if !self.access.pages.is_read_only() {
            let space = NOTED_GHOSTS.saturating_sub(listed.len());
            listed.extend(ghosts.into_iter().take(space).map(|key| PagedGhost {
                table: index,
                key,
                is_old: true,
            }));
        }
    }

    fn name(&self, key: &[u8]) -> Name {
        Name::key(self.table.record.id, key, self.hasher)
    }

    fn locks_ranges(&self) -> bool {
        self.locks.is_on() && self.scan.duration == LockDuration::Range
    }

    /// True if no key has come or gone where `token` was read.
    fn is_unchanged(&self, token: &ScanToken) -> bool {
        self.locks.looks_once() || self.access.is_unchanged(token)
    }

    fn finish(&mut self) -> RowStep {
        self.scan.progress = Progress::Finished;
        RowStep::End
    }

    /// Copies some rows from the position on to `rows`, and takes them. Returns their number.
    fn walk_batch(&mut self, rows: &mut LeafRows) -> Result<AttemptResult<(RowStep, usize)>> {
        if self.scan.remaining.get() == 0 || self.scan.is_finished() {
            return Ok(AttemptResult::Done((self.finish(), 0)));
        }
        let is_covered = match self.locks.is_on() {
            true => done!(self.lock_beginning()),
            false => false,
        };
        let token = done!(self.read_batch(rows));
        let last_inside = self.name(self.scan.last());
        for count in 0..rows.len() {
            self.worker.failpoints().pass(&failpoint::SCAN_FOUND);
            let (key, flags) = (rows.key(count), rows.flags(count));
            let name = self.name(key);
            let beyond = self.scan.beyond(key, &name, &last_inside);
            if beyond.is_gt() {
                let step = done!(self.close_end(Some(name), &token));
                return Ok(AttemptResult::Done((step, count)));
            }
            let is_last = beyond.is_eq();
            if is_covered && key.len() != self.scan.low.len() {
                // The lock on the range does not cover it.
                self.scan.covered = Some(false);
                return Ok(AttemptResult::Done((RowStep::Again, count)));
            }
            let is_ghost = flags.has(RowFlags::GHOST);
            let value = (!is_ghost).then(|| rows.value(count));
            if self.locks.is_on() && !is_covered {
                match done!(self.lock_row((key, value), name, is_last, &token)) {
                    RowLock::Held => {}
                    RowLock::Skipped => {
                        self.scan.record_key(key);
                        continue;
                    }
                    RowLock::Changed => {
                        return Ok(AttemptResult::Done((RowStep::Again, count)));
                    }
                }
            }
            let is_read = !is_ghost && !self.scan.is_of_keys;
            let is_large = is_read && flags.has(RowFlags::OVERFLOW);
            let read = match self.large.as_deref_mut().filter(|_| is_large) {
                None => None,
                Some(large) => {
                    let large = large.get_or_insert_default();
                    if large.bytes_of(rows.value(count))?.is_none() {
                        // The locks stay until the value is there. The next attempt reads it first.
                        return Ok(AttemptResult::Pause);
                    }
                    large.read.take()
                }
            };
            let value = read.as_ref().map_or(value, |read| Some(&read.bytes));
            let step = done!(self.take_row((key, value), name, is_last));
            if !matches!(step, RowStep::Next) {
                return Ok(AttemptResult::Done((step, count)));
            }
        }
        match rows.len() {
            0 => {
                let step = done!(self.close_end(None, &token));
                Ok(AttemptResult::Done((step, 0)))
            }
            count => Ok(AttemptResult::Done((RowStep::Next, count))),
        }
    }

    /// Locks the table, and what has to be locked before the first row. Returns true if the range
    /// is locked as a whole.
    fn lock_beginning(&mut self) -> Result<AttemptResult<bool>> {
        let (id, hasher) = (self.table.record.id, self.hasher);
        let name = |key: &[u8]| Name::key(id, key, hasher);
        if V::BY_NAME {
            let guard = self.worker.pin();
            if done!(
                self.scan
                    .lock_range(self.table, &guard, &mut self.locks, &name)
            ) {
                return Ok(AttemptResult::Done(true));
            }
        }
        let parent_mode = self.range_mode.parent_mode();
        done!(self.locks.lock_table_name(Name::table(id), parent_mode));
        if self.table.is_former() {
            return Ok(AttemptResult::Pause);
        }
        if self.scan.reversed && !self.scan.closed_above && self.locks_ranges() {
            done!(self.close_above());
            self.scan.closed_above = true;
        }
        Ok(AttemptResult::Done(false))
    }

    /// Copies rows from the position on, at least one unless there is none. Returns the leaves from
    /// the position to the last of them, or to the end of the table.
    fn read_batch(&mut self, rows: &mut LeafRows) -> Result<AttemptResult<ScanToken>> {
        let (scan, mut above_high) = (&*self.scan, Vec::new());
        let range = scan.leaf_range(&mut above_high);
        done!(self.access.attempt(|visit| {
            visit.set_scan_ahead(scan.ahead.get());
            let attempt = visit.scan(range, rows);
            scan.ahead.set(visit.scan_ahead());
            attempt
        }));
        Ok(AttemptResult::Done(self.access.token()))
    }

    /// Locks a row that was copied with `token`.
    fn lock_row(
        &mut self,
        row: (&[u8], Option<&[u8]>),
        name: Name,
        is_last: bool,
        token: &ScanToken,
    ) -> Result<AttemptResult<RowLock>> {
        let (key_mode, range_mode) = (self.key_mode, self.range_mode);
        let is_ghost = row.1.is_none();
        if !self.locks_ranges() {
            let short_lock =
                (self.scan.duration == LockDuration::Short).then_some(&self.scan.short_lock);
            let request = (name, key_mode);
            let locked = self
                .visit
                .lock_alone(&mut self.locks, row, request, short_lock);
            if self.scan.lock.wait == LockWait::Skip {
                if is_ghost || !was_granted(locked)? {
                    return Ok(AttemptResult::Done(RowLock::Skipped));
                }
            } else {
                done!(locked);
            }
            if !self.access.is_unchanged(token) {
                self.locks.release_short(&self.scan.short_lock);
                return Ok(AttemptResult::Done(RowLock::Changed));
            }
            return Ok(AttemptResult::Done(RowLock::Held));
        }
        let scan = &*self.scan;
        let is_gap_unread = match scan.reversed {
            false => {
                scan.progress == Progress::Start
                    && scan.low_end == RangeEnd::Included
                    && name == self.name(&scan.low)
            }
            true => scan.remaining.get() == 1 || is_last,
        };
        let mode = if is_gap_unread { key_mode } else { range_mode };
        done!(self.visit.lock(&mut self.locks, row, name, mode));
        self.worker.failpoints().pass(&failpoint::SCAN_LOCKED);
        if !self.is_unchanged(token) {
            return Ok(AttemptResult::Done(RowLock::Changed));
        }
        if self.scan.reversed && is_gap_unread && !is_last && is_ghost {
            // It does not count towards the limit, so the scan reads the gap below too.
            done!(self.locks.lock_in_scan(name, None, range_mode));
        }
        Ok(AttemptResult::Done(RowLock::Held))
    }

    /// Takes a row that is locked, or need not be. A ghost has no value.
    fn take_row(
        &mut self,
        (key, value): (&[u8], Option<&[u8]>),
        name: Name,
        is_last: bool,
    ) -> Result<AttemptResult<RowStep>> {
        self.scan.record_key(key);
        let stamps = &self.access.pages.stamps;
        self.scan.reads.record_paged(stamps, &name);
        if value.is_none() && self.ghosts.len() < NOTED_GHOSTS {
            self.ghosts.push(key.into());
        }
        let flow = done!(self.visit.take(self.scan, (key, value), is_last));
        Ok(AttemptResult::Done(self.after_row(flow, is_last)))
    }

    /// Continues after a row that was taken; `None` if it had no value.
    pub(super) fn after_row(&mut self, flow: Option<ControlFlow<()>>, is_last: bool) -> RowStep {
        self.locks.release_short(&self.scan.short_lock);
        if flow.is_some() {
            self.scan.remaining.update(|remaining| remaining - 1);
        }
        match flow {
            _ if is_last || self.scan.remaining.get() == 0 => self.finish(),
            Some(ControlFlow::Break(())) => RowStep::End,
            _ => RowStep::Next,
        }
    }

    /// Ends the range before the key `next`, or at the end of the table: locks the gap there.
    fn close_end(
        &mut self,
        next: Option<Name>,
        token: &ScanToken,
    ) -> Result<AttemptResult<RowStep>> {
        if !self.locks_ranges() {
            return Ok(AttemptResult::Done(self.finish()));
        }
        if !self.scan.reversed {
            let next = next.unwrap_or(Name::end(self.table.record.id));
            done!(self.locks.lock_in_scan(next, None, GAP));
        }
        self.worker.failpoints().pass(&failpoint::SCAN_LOCKED);
        Ok(AttemptResult::Done(match self.is_unchanged(token) {
            true => self.finish(),
            false => RowStep::Again,
        }))
    }

    /// Of a scan downwards: locks the gap above the range, unless the range begins with a key that
    /// is there.
    fn close_above(&mut self) -> Result<AttemptResult<()>> {
        let (end, high) = (self.scan.high_end, self.scan.high.clone());
        loop {
            if end == RangeEnd::Open {
                // No key follows the end, so its gap needs no check.
                let last = Name::end(self.table.record.id);
                return self.locks.lock(last, GAP);
            }
            if end == RangeEnd::Included && V::BY_NAME {
                let found = done!(self.access.attempt(|visit| visit.flags(&high)));
                if found.is_some() {
                    let name = self.name(&high);
                    done!(self.locks.lock(name, self.key_mode));
                    // From now on a row that is there stays.
                    let found = done!(self.access.attempt(|visit| visit.flags(&high)));
                    if found.is_some() {
                        return Ok(AttemptResult::Done(()));
                    }
                    continue;
                }
            }
            let inclusive = end == RangeEnd::Excluded;
            let next = done!(
                self.access
                    .attempt(|visit| visit.successor(&high, inclusive))
            );
            let token = self.access.token();
            let name = match &next {
                Some(key) => self.name(key),
                None => Name::end(self.table.record.id),
            };
            done!(self.locks.lock(name, GAP));
            if self.access.is_unchanged(&token) {
                return Ok(AttemptResult::Done(()));
            }
        }
    }
}

impl ScanState {
    /// Returns the rows from the position on, to be copied. `above_high` gets a bound that is not
    /// among those of the scan.
    pub(super) fn leaf_range<'s>(&'s self, above_high: &'s mut Vec<u8>) -> ScanRange<'s> {
        let most = usize::try_from(self.remaining.get()).unwrap_or(usize::MAX);
        match self.reversed {
            false => {
                let (from, is_excluded) = match (self.progress, self.low_end) {
                    (Progress::Start, RangeEnd::Open) => (None, false),
                    (Progress::Start, end) => (Some(&self.low[..]), end == RangeEnd::Excluded),
                    _ => (Some(&self.position[..]), true),
                };
                ScanRange {
                    direction: ScanDirection::Forward,
                    from,
                    is_excluded,
                    end: (self.high_end != RangeEnd::Open).then_some(&self.high),
                    most,
                }
            }
            true => {
                let from = match (self.progress, self.high_end) {
                    (Progress::Start, RangeEnd::Open) => None,
                    (Progress::Start, RangeEnd::Excluded) => Some(&self.high[..]),
                    (Progress::Start, RangeEnd::Included) => {
                        // No key is between a key and itself with a zero behind.
                        *above_high = [&self.high[..], &[0]].concat();
                        Some(&above_high[..])
                    }
                    _ => Some(&self.position[..]),
                };
                ScanRange {
                    direction: ScanDirection::Backward,
                    from,
                    is_excluded: false,
                    end: (self.low_end != RangeEnd::Open).then_some(&self.low),
                    most,
                }
            }
        }
    }
}

/// Result of a request for a row.
enum RowLock {
    Held,
    /// Another transaction has it, and the scan skips it.
    Skipped,
    /// Something has changed where it was read.
    Changed,
}
