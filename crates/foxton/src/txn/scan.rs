//! Scans of a range of keys, in either direction, without phantoms.
//!
//! # Protocol
//!
//! The gap between two neighbouring keys is locked under the name of its right neighbour. A scan
//! locks each key that it reaches, and the gap before it. Then it asks the index whether a key
//! between this one and the one before has come or gone since it searched. If so, it searches
//! again; its useless locks stay until the end, which does no harm. The argument that no insert
//! slips past is in `foxton_store::memory`.
//!
//! * *Upwards*, the gap before the next key past the range is locked as well, so that the range is
//!   closed. This is not done if the range ends with a key that is there.
//! * *Downwards*, the gap above the first key found is named by its right neighbour, which lies
//!   outside the range. That gap is locked first. This is not done if the range begins with a key
//!   that is there.
//! * The first key of a range that includes it, and the last key of a limit, are locked without the
//!   gap beyond, because nothing was read there.
//! * A ghost is locked like a key, because a transaction that gives it a value again must lock it
//!   exclusively.
//!
//! # Races
//!
//! * *The key goes while we wait for it.* We then hold the name of an absent key. The index reports
//!   the change, and we search again.
//! * *A key comes while we wait.* As above.
//! * *Downwards, the neighbour above goes.* It does not, because its removal takes its gap, which
//!   we hold.
//!
//! A short range of keys of one length may be locked as a whole before it is read: see
//! [`scan_locked_range`](super::scan_locked_range).
//!
//! At [isolation levels](crate::Isolation) that hold no ranges, a scan locks keys and no gaps. Once
//! a key is locked, it only checks that the record is still in the index. A ghost is locked there
//! too, because the transaction that left it may roll back. A scan that skips locked keys
//! (`skip_locked`) does not lock ghosts: it locks only what it returns.

use std::ops::{Bound, ControlFlow, RangeBounds};

use foxton_lock::mode::Mode;
use foxton_lock::name::Name;
use foxton_store::memory::Record;
use foxton_sync::epoch::{Guard, Hazard};

use super::attempt::{AttemptResult, done};
use super::bound::BoundTxn;
use super::context::{WorkerContext, check_key};
use super::scan_state::{GAP, Progress, RangeEnd, STEPS_PER_PIN, ScanState, WalkEnd, bound};
use super::short_lock::ShortLock;
use super::table_locks::TableLocks;
use super::txn::Txn;
use crate::catalog::OpenTable;
use crate::catalog::table_store::TableStore;
use crate::error::Result;
use crate::testing::{failpoint, injected_fault};
use crate::types::codec::{Key, Value};
use crate::types::isolation::LockDuration;
use crate::types::lock_options::LockWait;
use crate::types::table::Table;

/// Locks and reads the records that a scan reaches: rows, or the entries of an index.
pub(super) trait Visit<'g> {
    /// True if locking a record locks its name and nothing else.
    const BY_NAME: bool;

    /// Locks `record`, which has `name`, in `mode`.
    fn lock(
        &mut self,
        locks: &mut TableLocks<'_>,
        record: &'g Record,
        name: Name,
        mode: Mode,
    ) -> Result<AttemptResult<()>>;

    /// As [`lock`](Self::lock), without the gap, and released after the read if `short_lock`
    /// records it.
    fn lock_alone(
        &mut self,
        locks: &mut TableLocks<'_>,
        record: &'g Record,
        request: (Name, Mode),
        short_lock: Option<&ShortLock>,
    ) -> Result<AttemptResult<()>>;

    /// True if the last lock is still the right one for `record`.
    fn is_locked(&mut self, record: &'g Record) -> bool;

    /// Takes a record, if it has a value. Returns `None` if it has none; it then does not count.
    fn take(&mut self, record: &'g Record) -> Option<ControlFlow<()>>;
}

/// Reads rows.
struct RowVisit<'g, 't, F> {
    hazard: Hazard<'g>,
    take: &'t mut F,
}

impl<'g, F: FnMut(&[u8], &[u8]) -> ControlFlow<()>> Visit<'g> for RowVisit<'g, '_, F> {
    const BY_NAME: bool = true;

    #[inline]
    fn lock(
        &mut self,
        locks: &mut TableLocks<'_>,
        record: &'g Record,
        name: Name,
        mode: Mode,
    ) -> Result<AttemptResult<()>> {
        locks.lock_in_scan(name, Some(record.anchor()), mode)
    }

    #[inline]
    fn lock_alone(
        &mut self,
        locks: &mut TableLocks<'_>,
        record: &'g Record,
        (name, mode): (Name, Mode),
        short_lock: Option<&ShortLock>,
    ) -> Result<AttemptResult<()>> {
        locks.lock_for(short_lock, name, Some(record.anchor()), mode)
    }

    #[inline]
    fn is_locked(&mut self, _record: &'g Record) -> bool {
        true
    }

    #[inline]
    fn take(&mut self, record: &'g Record) -> Option<ControlFlow<()>> {
        let value = record.value(&mut self.hazard)?;
        Some((self.take)(record.key(), value))
    }
}

impl BoundTxn {
    /// Passes keys and values to `take`, from the position of the scan on, until it breaks or the
    /// range ends.
    #[inline]
    pub(crate) fn scan_step(
        &mut self,
        index: usize,
        take: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<AttemptResult<()>> {
        let index = match index < self.ctx.tables.len() {
            true => index,
            false => match done!(self.absent_or_view(self.txn.scan.lock)) {
                Some(index) => index,
                None => {
                    self.txn.scan.progress = Progress::Finished;
                    return Ok(AttemptResult::Done(()));
                }
            },
        };
        if let Some(view) = self.view_of_found(self.txn.scan.lock.lock)? {
            return self.scan_at(index, view, take);
        }
        if let TableStore::Paged(_) = &self.ctx.tables[index].table.store {
            return self.scan_paged_step(index, take);
        }
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    budget,
                    ..
                },
            txn: Txn {
                scan, isolation, ..
            },
            ..
        } = self;
        let table = &*tables[index].table;
        let faults = engine.faults();
        scan.duration =
            injected_fault::read_duration(faults, isolation.hold(scan.lock), scan.lock.lock);
        let locks = TableLocks::new(engine, worker, owner, table, scan.lock.wait);
        let mut locks = locks.with_duration(scan.duration);
        let name = |key: &[u8]| Name::key(table.record.id, key, &engine.hasher);
        loop {
            let guard = worker.pin();
            let mut last = None;
            let walked = match locks.is_on() {
                true => match scan.lock_range(table, &guard, &mut locks, &name) {
                    Ok(AttemptResult::Done(true)) => {
                        scan.walk_locked_range(table, &guard, &mut last, &mut locks, &name, take)
                    }
                    Ok(AttemptResult::Done(false)) => {
                        let hazard = guard.hazard();
                        let mut visit = RowVisit { hazard, take };
                        scan.walk(table, &guard, &mut last, &mut locks, name, &mut visit)
                    }
                    Ok(AttemptResult::Wait) => Ok(AttemptResult::Wait),
                    Ok(_) => Ok(AttemptResult::Pause),
                    Err(error) => Err(error),
                },
                false if tables[index].is_former() => Ok(AttemptResult::Pause),
                false => {
                    let suits = |_: &[u8]| true;
                    let walked = scan.walk_without_locks(table, &guard, &mut last, suits, take);
                    Ok(AttemptResult::Done(walked))
                }
            };
            // However the walk ended, the next one continues behind the last record that was taken.
            if scan.progress != Progress::Finished {
                scan.record_position(last);
            }
            return match walked {
                Ok(AttemptResult::Done(WalkEnd::Unpin)) => {
                    budget.charge(STEPS_PER_PIN as usize);
                    match budget.is_spent() {
                        true => Ok(AttemptResult::Pause),
                        false => continue,
                    }
                }
                Ok(AttemptResult::Done(WalkEnd::Finished)) => Ok(AttemptResult::Done(())),
                Ok(AttemptResult::Wait) => Ok(AttemptResult::Wait),
                Ok(AttemptResult::Pause) => Ok(AttemptResult::Pause),
                Err(error) if scan.lock.wait == LockWait::Skip && error.is_busy() => {
                    scan.progress = Progress::Finished;
                    Ok(AttemptResult::Done(()))
                }
                Err(error) => Err(error),
            };
        }
    }
}

impl ScanState {
    /// Walks along the range until it ends, `visit` breaks, a lock is not free, or the epoch has
    /// been pinned for long enough.
    #[inline]
    pub(super) fn walk<'g, V: Visit<'g>>(
        &mut self,
        table: &'g OpenTable,
        guard: &'g Guard<'_>,
        last: &mut Option<&'g Record>,
        locks: &mut TableLocks<'_>,
        name: impl Fn(&[u8]) -> Name,
        visit: &mut V,
    ) -> Result<AttemptResult<WalkEnd>> {
        let end = Name::end(table.record.id);
        let last_inside = name(self.last());
        let rows = table.resident();
        let skip = self.lock.wait == LockWait::Skip;
        let ranges = self.duration == LockDuration::Range;
        let (key_mode, range_mode) = (self.lock.lock.key_mode(), self.lock.lock.range_mode());
        done!(locks.lock_table_name(Name::table(table.record.id), range_mode.parent_mode()));
        if table.is_former() {
            return Ok(AttemptResult::Pause);
        }
        let mut until_unpin = STEPS_PER_PIN;
        'seek: loop {
            if self.remaining.get() == 0 {
                return self.finish();
            }
            if self.reversed && !self.closed_above && ranges {
                done!(self.close_above(table, guard, locks, V::BY_NAME, &name));
            }
            let mut cursor = {
                let from = last.map_or(self.from(), |record| Bound::Excluded(record.key()));
                match self.reversed {
                    false => rows.forward(guard, from),
                    true => rows.backward(guard, from),
                }
            };
            loop {
                if until_unpin == 0 {
                    return Ok(AttemptResult::Done(WalkEnd::Unpin));
                }
                until_unpin -= 1;
                let place = cursor.advance();
                guard.failpoints().pass(&failpoint::SCAN_FOUND);
                let found = place.record.map(|record| (record, name(record.key())));
                let inside = found.and_then(|(record, name)| {
                    let beyond = self.beyond(record.key(), &name, &last_inside);
                    beyond.is_le().then_some((record, name, beyond))
                });
                let Some((record, key_name, beyond)) = inside else {
                    if !ranges {
                        return self.finish();
                    }
                    if !self.reversed {
                        let next = found.map_or(end, |(_, name)| name);
                        let anchor = found.map(|(record, _)| record.anchor());
                        done!(locks.lock_in_scan(next, anchor, GAP));
                    }
                    guard.failpoints().pass(&failpoint::SCAN_LOCKED);
                    if !locks.looks_once() && !rows.unchanged(&place.token) {
                        continue 'seek;
                    }
                    return self.finish();
                };
                let at_start = last.is_none() && self.progress == Progress::Start;
                let gap_unread = match self.reversed {
                    false => at_start && self.begins_with(record.key()),
                    true => self.remaining.get() == 1 || beyond.is_eq(),
                };
                if !ranges {
                    let short_lock =
                        (self.duration == LockDuration::Short).then_some(&self.short_lock);
                    let request = (key_name, key_mode);
                    if skip {
                        let is_free = !record.is_ghost()
                            && was_granted(visit.lock_alone(locks, record, request, short_lock))?;
                        if !is_free {
                            *last = Some(record);
                            continue;
                        }
                    } else {
                        done!(visit.lock_alone(locks, record, request, short_lock));
                    }
                    if !record.is_linked() || !visit.is_locked(record) {
                        locks.release_short(&self.short_lock);
                        continue 'seek;
                    }
                } else {
                    let mode = if gap_unread { key_mode } else { range_mode };
                    done!(visit.lock(locks, record, key_name, mode));
                    guard.failpoints().pass(&failpoint::SCAN_LOCKED);
                    let is_same = locks.looks_once() || rows.unchanged(&place.token);
                    if !is_same || !visit.is_locked(record) {
                        continue 'seek;
                    }
                    if self.reversed && gap_unread && beyond.is_lt() && record.is_ghost() {
                        // It does not count towards the limit, so the scan reads the gap below too.
                        let anchor = Some(record.anchor());
                        done!(locks.lock_in_scan(key_name, anchor, range_mode));
                    }
                }
                *last = Some(record);
                self.reads.record(record);
                let flow = visit.take(record);
                locks.release_short(&self.short_lock);
                if let Some(flow) = flow {
                    self.remaining.update(|remaining| remaining - 1);
                    if beyond.is_eq() || self.remaining.get() == 0 {
                        return self.finish();
                    }
                    if flow.is_break() {
                        return Ok(AttemptResult::Done(WalkEnd::Finished));
                    }
                } else if beyond.is_eq() {
                    return self.finish();
                }
            }
        }
    }

    /// Of a scan downwards: locks the gap above the first key found, unless the range begins with a
    /// key that is there.
    fn close_above(
        &mut self,
        table: &OpenTable,
        guard: &Guard<'_>,
        locks: &mut TableLocks<'_>,
        by_name: bool,
        name: &impl Fn(&[u8]) -> Name,
    ) -> Result<AttemptResult<()>> {
        let rows = table.resident();
        loop {
            let from = bound(self.high_end, &self.high);
            let first = rows.backward(guard, from).advance().record;
            if let Some(record) = first
                && by_name
                && self.begins_with(record.key())
            {
                let (name, anchor) = (name(record.key()), Some(record.anchor()));
                done!(locks.lock_at(name, anchor, self.lock.lock.key_mode()));
                if record.is_linked() {
                    break;
                }
                continue;
            }
            let (next, token) = match self.high_end {
                // No key follows the end, so its gap needs no check.
                RangeEnd::Open => (None, None),
                end => {
                    let place = rows.successor(guard, &self.high, end == RangeEnd::Excluded);
                    (place.record, Some(place.token))
                }
            };
            let anchor = next.map(Record::anchor);
            let next = next.map_or(Name::end(table.record.id), |record| name(record.key()));
            done!(locks.lock_at(next, anchor, GAP));
            if token.is_none_or(|token| rows.unchanged(&token)) {
                break;
            }
        }
        self.closed_above = true;
        Ok(AttemptResult::Done(()))
    }
}

/// True if a request that does not wait got its lock.
pub(super) fn was_granted(locked: Result<AttemptResult<()>>) -> Result<bool> {
    match locked {
        Ok(_) => Ok(true),
        Err(error) if error.is_busy() => Ok(false),
        Err(error) => Err(error),
    }
}

impl BoundTxn {
    /// Checks and encodes what a scan needs. Returns the table's index.
    pub(crate) fn prepare_range<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        range: &impl RangeBounds<K>,
    ) -> Result<usize> {
        let table = self.open_table(table)?;
        self.txn.scan.begin(range, |key, bytes| {
            key.encode(bytes);
            check_key(bytes)
        })?;
        Ok(table)
    }
}
