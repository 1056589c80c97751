//! Reading a range of keys, either way, so that nothing can appear in it until the end.
//!
//! # Protocol
//!
//! The gap between two neighbouring keys is locked under the name of its right neighbour. A scan
//! locks each key it comes to and the gap before it, then asks the index whether anything has come
//! or gone between this key and the one before since it looked; if so it looks again, and what it
//! locked for nothing stays locked until the end, which is only too much. The argument that no
//! insert slips past is in `foxton_store::memory`.
//!
//! * *Upwards*, past the last key in the range the gap before the next key is locked, so that the
//!   range is closed. Not if the range ends with a key that is there.
//! * *Downwards*, the gap above the first key found is named by its right neighbour, which lies
//!   outside the range: that gap is locked first. Not if the range begins with a key that is there.
//! * The first key of a range that includes it, and the last one that a limit asks for, are locked
//!   without the gap beyond: nothing there was read.
//! * A ghost is locked like a key: to get a value again it must be locked exclusively.
//!
//! # Races
//!
//! * *The key goes while we wait for it.* We then hold a name that nobody has; the index says that
//!   something changed, and we look again.
//! * *A key comes while we wait.* As above.
//! * *Downwards, the neighbour above goes.* It does not: removing it takes its gap, which we hold.
//!
//! A short range of keys of one length may be locked as a whole before it is read: see
//! [`scan_locked_range`](super::scan_locked_range).
//!
//! Where [no ranges are held](crate::Isolation), keys are locked and no gaps, and it is only asked that the
//! record still is in the index once it is locked. A ghost is locked there too, since whoever left it may
//! roll back; but not in passing over locked keys (`skip_locked`), which locks what it returns.

use std::ops::{Bound, ControlFlow, RangeBounds};

use foxton_lock::mode::Mode;
use foxton_lock::name::Name;
use foxton_store::memory::Record;
use foxton_sync::epoch::{Guard, Hazard};

use super::attempt::{AttemptResult, done};
use super::scan_state::{End, GAP, Progress, STEPS_PER_PIN, ScanState, Walked, bound};
use super::short_lock::ShortLock;
use super::state::{State, TableLocks, check_key};
use crate::catalog::OpenTable;
use crate::error::Result;
use crate::testing::failpoint;
use crate::types::codec::{Key, Value};
use crate::types::isolation::LockDuration;
use crate::types::lock_options::LockWait;
use crate::types::table::Table;

/// What a scan does with a record that it comes to. It reads rows, or the entries of an index.
pub(super) trait Visit<'g> {
    /// Whether the names of records are what is locked for them, and nothing else.
    const BY_NAME: bool;

    /// Locks what is read of `record`, called `name`, in `mode`.
    fn lock(
        &mut self,
        locks: &mut TableLocks<'_>,
        record: &'g Record,
        name: Name,
        mode: Mode,
    ) -> Result<AttemptResult<()>>;

    /// As [`lock`](Self::lock), without the gap; to be let go of, if it is noted in `short_lock`.
    fn lock_alone(
        &mut self,
        locks: &mut TableLocks<'_>,
        record: &'g Record,
        request: (Name, Mode),
        short_lock: Option<&ShortLock>,
    ) -> Result<AttemptResult<()>>;

    /// Whether what was locked last is what is to be locked for `record`.
    fn is_locked(&mut self, record: &'g Record) -> bool;

    /// Takes a record, if it has a value. `None`: there was nothing to take, and it does not count.
    fn take(&mut self, record: &'g Record) -> Option<ControlFlow<()>>;
}

/// Reads rows.
struct Plain<'g, 't, F> {
    hazard: Hazard<'g>,
    take: &'t mut F,
}

impl<'g, F: FnMut(&[u8], &[u8]) -> ControlFlow<()>> Visit<'g> for Plain<'g, '_, F> {
    const BY_NAME: bool = true;

    #[inline]
    fn lock(
        &mut self,
        locks: &mut TableLocks<'_>,
        _record: &'g Record,
        name: Name,
        mode: Mode,
    ) -> Result<AttemptResult<()>> {
        locks.lock_in_scan(name, mode)
    }

    #[inline]
    fn lock_alone(
        &mut self,
        locks: &mut TableLocks<'_>,
        _record: &'g Record,
        (name, mode): (Name, Mode),
        short_lock: Option<&ShortLock>,
    ) -> Result<AttemptResult<()>> {
        locks.lock_for(short_lock, name, mode)
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

impl State {
    /// Gives keys and values to `take`, from where the scan is, until it breaks or the range ends.
    #[inline]
    pub(crate) fn scan_step(
        &mut self,
        index: usize,
        take: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<AttemptResult<()>> {
        let State {
            engine,
            worker,
            owner,
            tables,
            scan,
            isolation,
            ..
        } = self;
        let table = &*tables[index].table;
        let planted = engine.options.planted();
        scan.hold = planted.hold(isolation.hold(scan.lock), scan.lock.lock);
        let locks = TableLocks::new(engine, worker, owner, table, scan.lock.wait);
        let mut locks = locks.with_duration(scan.hold);
        let name = |key: &[u8]| Name::key(table.record.id, key, &engine.hasher);
        loop {
            let guard = worker.pin();
            let mut last = None;
            let walked = match locks.is_on() {
                true => match scan.cover(table, &guard, &mut locks, &name) {
                    Ok(AttemptResult::Done(true)) => {
                        scan.walk_remembered(table, &guard, &mut last, &mut locks, &name, take)
                    }
                    Ok(AttemptResult::Done(false)) => {
                        let hazard = guard.hazard();
                        let mut visit = Plain { hazard, take };
                        scan.walk(table, &guard, &mut last, &mut locks, name, &mut visit)
                    }
                    Ok(AttemptResult::Wait) => Ok(AttemptResult::Wait),
                    Err(error) => Err(error),
                },
                false => {
                    let suits = |_: &[u8]| true;
                    let walked = scan.walk_covered(table, &guard, &mut last, suits, take);
                    Ok(AttemptResult::Done(walked))
                }
            };
            // However the walk ended, the next one goes on behind what was dealt with.
            if scan.progress != Progress::Finished {
                scan.stand(last);
            }
            return match walked {
                Ok(AttemptResult::Done(Walked::Rests)) => continue,
                Ok(AttemptResult::Done(Walked::Enough)) => Ok(AttemptResult::Done(())),
                Ok(AttemptResult::Wait) => Ok(AttemptResult::Wait),
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
    /// Walks along the range until it ends, `visit` breaks, a lock must be waited for, or the epoch
    /// has been pinned for long enough.
    #[inline]
    pub(super) fn walk<'g, V: Visit<'g>>(
        &mut self,
        table: &'g OpenTable,
        guard: &'g Guard<'_>,
        last: &mut Option<&'g Record>,
        locks: &mut TableLocks<'_>,
        name: impl Fn(&[u8]) -> Name,
        visit: &mut V,
    ) -> Result<AttemptResult<Walked>> {
        let end = Name::end(table.record.id);
        let last_inside = name(self.last());
        let rows = &table.rows;
        let skip = self.lock.wait == LockWait::Skip;
        let ranges = self.hold == LockDuration::Range;
        let (key_mode, range_mode) = (self.lock.lock.key_mode(), self.lock.lock.range_mode());
        done!(locks.lock_table_name(Name::table(table.record.id), range_mode.parent_mode()));
        let mut until_rest = STEPS_PER_PIN;
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
                if until_rest == 0 {
                    return Ok(AttemptResult::Done(Walked::Rests));
                }
                until_rest -= 1;
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
                        done!(locks.lock_in_scan(next, GAP));
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
                    let short_lock = (self.hold == LockDuration::Short).then_some(&self.short_lock);
                    let request = (key_name, key_mode);
                    if skip {
                        let is_free = !record.is_ghost()
                            && took(visit.lock_alone(locks, record, request, short_lock))?;
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
                        // It does not count against the limit, so the gap below is read after all.
                        done!(locks.lock_in_scan(key_name, range_mode));
                    }
                }
                *last = Some(record);
                self.dependencies.note(record);
                let flow = visit.take(record);
                locks.release_short(&self.short_lock);
                if let Some(flow) = flow {
                    self.remaining.update(|remaining| remaining - 1);
                    if beyond.is_eq() || self.remaining.get() == 0 {
                        return self.finish();
                    }
                    if flow.is_break() {
                        return Ok(AttemptResult::Done(Walked::Enough));
                    }
                } else if beyond.is_eq() {
                    return self.finish();
                }
            }
        }
    }

    /// Downwards: locks the gap above the first key found, unless the range begins with a key that
    /// is there.
    fn close_above(
        &mut self,
        table: &OpenTable,
        guard: &Guard<'_>,
        locks: &mut TableLocks<'_>,
        by_name: bool,
        name: &impl Fn(&[u8]) -> Name,
    ) -> Result<AttemptResult<()>> {
        let rows = &table.rows;
        loop {
            let from = bound(self.high_end, &self.high);
            let first = rows.backward(guard, from).advance().record;
            if let Some(record) = first
                && by_name
                && self.begins_with(record.key())
            {
                done!(locks.lock(name(record.key()), self.lock.lock.key_mode()));
                if record.is_linked() {
                    break;
                }
                continue;
            }
            let (next, token) = match self.high_end {
                // Nothing can follow the end: its gap needs no look.
                End::Open => (None, None),
                end => {
                    let place = rows.successor(guard, &self.high, end == End::Excluded);
                    (place.record, Some(place.token))
                }
            };
            let next = next.map_or(Name::end(table.record.id), |record| name(record.key()));
            done!(locks.lock(next, GAP));
            if token.is_none_or(|token| rows.unchanged(&token)) {
                break;
            }
        }
        self.closed_above = true;
        Ok(AttemptResult::Done(()))
    }
}

/// Whether a request that does not wait got its lock.
fn took(asked: Result<AttemptResult<()>>) -> Result<bool> {
    match asked {
        Ok(_) => Ok(true),
        Err(error) if error.is_busy() => Ok(false),
        Err(error) => Err(error),
    }
}

impl State {
    /// Checks and encodes what a scan needs. Returns the table's index.
    pub(crate) fn prepare_range<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        range: &impl RangeBounds<K>,
    ) -> Result<usize> {
        let table = self.open_table(table)?;
        self.scan.begin(range, |key, bytes| {
            key.encode(bytes);
            check_key(bytes)
        })?;
        Ok(table)
    }
}
