//! Ranges at a snapshot, of a table in memory and of its indexes.
//!
//! A range is read in parts, each under one pin: rows of the table, and then the deleted rows of
//! the same stretch.
//!
//! As long as the table has had no deleted row, and nothing is locked, a transaction passes rows on
//! under the pin as it reads them. Before each, and at the end, the reader looks for deleted rows
//! again. A row that the cursor has not met was removed before, and the thread that removed it had
//! made the deleted rows earlier still. So if there are none, the cursor has met all rows up to
//! here.
//!
//! A handle of a snapshot copies its rows, because its program may wait for long at one: a dump
//! does for its reader. With a pin nothing would be freed meanwhile.
//!
//! A scan borrows its table from the context and counts no reference, because the count would be a
//! line that all scans of the table write.

use std::mem;
use std::ops::{Bound, ControlFlow};

use foxton_store::memory::{Begin, VersionReader};

use super::attempt::{AttemptResult, done};
use super::bound::BoundTxn;
use super::context::WorkerContext;
use super::index_read::{EncodedRow, check_open, table_of};
use super::scan_state::{Progress, STEPS_PER_PIN, ScanState, bound};
use super::snapshot::{check_current, check_readable};
use super::snapshot_view::{RangePart, SnapshotView};
use super::view_reader::{ViewRead, ViewReader};
use crate::catalog::OpenTable;
use crate::error::Result;
use crate::types::lock_options::Lock;

impl BoundTxn {
    /// Passes the rows of the range that are visible at the snapshot to `take`, from the position
    /// of the scan on, until it breaks or the range ends.
    #[cold]
    pub(super) fn scan_at(
        &mut self,
        index: usize,
        view: SnapshotView,
        take: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<AttemptResult<()>> {
        if self.ctx.tables[index].table.is_paged() {
            return self.scan_paged_at(index, view, take);
        }
        let options = self.txn.scan.lock;
        let is_direct = view.is_own && options.lock == Lock::Shared;
        if is_direct && done!(self.pass_rows(index, view, take)) {
            return Ok(AttemptResult::Done(()));
        }
        self.scan_parts(
            |ctx| &ctx.tables[index].table,
            view,
            &mut |bound, key, value| {
                let is_taken = done!(bound.lock_found(index, options, key));
                Ok(AttemptResult::Done(is_taken.then(|| take(key, value))))
            },
        )
    }

    /// As [`scan_at`](Self::scan_at), for the rows that the index `by` finds.
    #[cold]
    pub(super) fn scan_by_at(
        &mut self,
        by: usize,
        view: SnapshotView,
        take: &mut impl FnMut(EncodedRow<'_>) -> ControlFlow<()>,
    ) -> Result<AttemptResult<()>> {
        if let Some(places) = self.ctx.index_lookups[by].places {
            return self.scan_by_paged_at(by, places, view, take);
        }
        let index = &self.ctx.index_lookups[by].index;
        check_open(index)?;
        let (kind, options) = (index.kind, self.txn.scan.lock);
        let rows = self.rows_to_lock(by, options.lock);
        self.scan_parts(
            |ctx| &ctx.index_lookups[by].index.entries,
            view,
            &mut |bound, entry, value| {
                let (index_key, key) = kind.read(entry, value);
                if let Some(rows) = rows
                    && !done!(bound.lock_found(rows, options, key))
                {
                    return Ok(AttemptResult::Done(None));
                }
                let row = &mut |value: &[u8]| {
                    take(EncodedRow {
                        index_key,
                        key,
                        value,
                    })
                };
                let table = table_of(&bound.ctx.index_lookups[by].index.entries);
                let found = done!(bound.read_at(table, view, key, row));
                Ok(AttemptResult::Done(found))
            },
        )
    }

    /// Returns the number of the table that the index `by` leads to, if a read with `lock` locks
    /// its rows.
    pub(super) fn rows_to_lock(&mut self, by: usize, lock: Lock) -> Option<usize> {
        (lock != Lock::Shared).then(|| {
            let table = table_of(&self.ctx.index_lookups[by].index.entries).clone();
            self.ctx.cached_entries(table)
        })
    }

    /// Passes rows to `take` as it reads them, and returns true if the scan ends with that. Returns
    /// false if the table has deleted rows.
    fn pass_rows(
        &mut self,
        index: usize,
        view: SnapshotView,
        take: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<AttemptResult<bool>> {
        loop {
            let table = &*self.ctx.tables[index].table;
            done!(check_readable(&self.ctx.engine, table, view));
            match self.pass_part(index, view, take)? {
                PartEnd::Range => {
                    self.txn.scan.progress = Progress::Finished;
                    return Ok(AttemptResult::Done(true));
                }
                PartEnd::Break => return Ok(AttemptResult::Done(true)),
                PartEnd::DeletedRows => return Ok(AttemptResult::Done(false)),
                PartEnd::Former => return Ok(AttemptResult::Pause),
                PartEnd::Unresolved(begin) => done!(self.wait_for_lsn(view, begin)),
                PartEnd::Pin => self.ctx.budget.charge(STEPS_PER_PIN as usize),
            }
            if self.ctx.budget.is_spent() {
                return Ok(AttemptResult::Pause);
            }
            self.check_active()?;
        }
    }

    /// Passes rows to `take` under one pin.
    fn pass_part(
        &mut self,
        index: usize,
        view: SnapshotView,
        take: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<PartEnd> {
        let BoundTxn { ctx, txn, .. } = self;
        let (scan, reader) = (&mut txn.scan, ViewReader::new(ctx, &txn.reads, view));
        if reader.is_reversed() {
            return Ok(PartEnd::DeletedRows);
        }
        let table = &*ctx.tables[index].table;
        let guard = ctx.worker.pin();
        let mut versions = VersionReader::new(&guard, reader.slots(), reader.own);
        let rows = table.resident();
        let mut cursor = match scan.reversed {
            false => rows.forward(&guard, scan.from()).until(scan.to()),
            true => rows.backward(&guard, scan.from()).until(scan.to()),
        };
        // After a read, and before the program sees the row.
        let stop = || -> Result<Option<PartEnd>> {
            reader.check()?;
            Ok(match reader.has_deleted(table) {
                true => Some(PartEnd::DeletedRows),
                false => table.is_former().then_some(PartEnd::Former),
            })
        };
        let (mut last, mut steps) = (None, 0);
        let end = loop {
            if scan.remaining.get() == 0 {
                break Ok(PartEnd::Range);
            }
            if steps == STEPS_PER_PIN {
                break Ok(PartEnd::Pin);
            }
            steps += 1;
            let Some(record) = cursor.next_record() else {
                break stop().map(|stopped| stopped.unwrap_or(PartEnd::Range));
            };
            let found = reader.read_unchecked(&guard, &mut versions, record, |value| {
                Ok(match stop()? {
                    None => Ok(take(record.key(), value)),
                    Some(stopped) => Err(stopped),
                })
            });
            let passed = match found {
                ViewRead::Row(passed) => passed.map(|passed| passed.map(Some)),
                ViewRead::Absent => stop().map(|stopped| stopped.map_or(Ok(None), Err)),
                ViewRead::Unresolved(begin) => Ok(Err(PartEnd::Unresolved(begin))),
            };
            let taken = match passed {
                Ok(Ok(taken)) => taken,
                Ok(Err(stopped)) => break Ok(stopped),
                Err(error) => break Err(error),
            };
            last = Some(record);
            if let Some(taken) = taken {
                scan.remaining.update(|remaining| remaining - 1);
                if taken.is_break() {
                    break Ok(PartEnd::Break);
                }
            }
        };
        if let Some(last) = last {
            scan.record_key(last.key());
        }
        end
    }

    /// Reads the range of the scan in parts, each under one pin, and passes what it finds to
    /// `take`. `table` is the one that is scanned.
    fn scan_parts(
        &mut self,
        table: impl Fn(&WorkerContext) -> &OpenTable,
        view: SnapshotView,
        take: &mut impl FnMut(&mut BoundTxn, &[u8], &[u8]) -> Result<AttemptResult<Taken>>,
    ) -> Result<AttemptResult<()>> {
        let mut part = mem::take(&mut self.ctx.view_part);
        let result = loop {
            match self.scan_part(&table, view, &mut part, take) {
                Ok(AttemptResult::Done(false)) => {}
                Ok(AttemptResult::Done(true)) => break Ok(AttemptResult::Done(())),
                Ok(AttemptResult::Wait) => break Ok(AttemptResult::Wait),
                Ok(AttemptResult::Pause) => break Ok(AttemptResult::Pause),
                Err(error) => break Err(error),
            }
        };
        part.clear();
        self.ctx.view_part = part;
        result
    }

    /// Reads the next part of the range and passes it on. Returns true if the scan ends there, or
    /// its caller broke off.
    fn scan_part(
        &mut self,
        table: &impl Fn(&WorkerContext) -> &OpenTable,
        view: SnapshotView,
        part: &mut RangePart,
        take: &mut impl FnMut(&mut BoundTxn, &[u8], &[u8]) -> Result<AttemptResult<Taken>>,
    ) -> Result<AttemptResult<bool>> {
        let table = table(&self.ctx);
        done!(check_readable(&self.ctx.engine, table, view));
        self.read_part(table, view, part)?;
        done!(check_current(table));
        for number in 0..part.len() {
            if self.txn.scan.remaining.get() == 0 {
                break;
            }
            let (key, value) = part.row(number);
            let taken = done!(take(self, key, value));
            let scan = &mut self.txn.scan;
            scan.record_key(key);
            let Some(taken) = taken else {
                continue;
            };
            scan.remaining.update(|remaining| remaining - 1);
            if taken.is_break() {
                return Ok(AttemptResult::Done(true));
            }
        }
        let scan = &mut self.txn.scan;
        if part.has_end || scan.remaining.get() == 0 {
            scan.progress = Progress::Finished;
            return Ok(AttemptResult::Done(true));
        }
        if let Some(last) = part.last() {
            scan.record_key(last);
        }
        match part.unresolved {
            Some(begin) => done!(self.wait_for_lsn(view, begin)),
            None => self.ctx.budget.charge(STEPS_PER_PIN as usize),
        }
        if self.ctx.budget.is_spent() {
            return Ok(AttemptResult::Pause);
        }
        self.check_active()?;
        Ok(AttemptResult::Done(false))
    }

    /// Reads a part of the range under one pin.
    fn read_part(&self, table: &OpenTable, view: SnapshotView, part: &mut RangePart) -> Result<()> {
        let (reader, scan) = (self.view_reader(view), &self.txn.scan);
        let guard = self.ctx.worker.pin();
        part.clear();
        part.has_end = true;
        let early = reader.is_reversed().then(|| {
            let whole = match scan.reversed {
                false => (scan.from(), scan.to()),
                true => (scan.to(), scan.from()),
            };
            reader.deleted_range(&guard, table, whole)
        });
        let mut versions = VersionReader::new(&guard, reader.slots(), reader.own);
        let rows = table.resident();
        let mut cursor = match scan.reversed {
            false => rows.forward(&guard, scan.from()).until(scan.to()),
            true => rows.backward(&guard, scan.from()).until(scan.to()),
        };
        let most = scan.remaining.get().min(STEPS_PER_PIN.into());
        let mut steps = 0;
        let mut last = None;
        while let Some(record) = cursor.next_record() {
            if steps == STEPS_PER_PIN || part.len() as u64 >= most {
                part.has_end = false;
                break;
            }
            steps += 1;
            let found = reader.read_unchecked(&guard, &mut versions, record, |value| {
                part.push(record.key(), value);
            });
            if let ViewRead::Unresolved(begin) = found {
                part.unresolved = Some(begin);
                part.has_end = false;
                break;
            }
            last = Some(record);
        }
        drop(versions);
        if let Some(last) = last {
            part.set_last(last.key());
        }
        let is_nothing = last.is_none() && !part.has_end;
        if !is_nothing {
            let to = match (part.has_end, last) {
                (false, Some(last)) => Bound::Included(last.key()),
                _ => scan.to(),
            };
            let range = match scan.reversed {
                false => (scan.from(), to),
                true => (to, scan.from()),
            };
            let mut rows = early.unwrap_or_else(|| reader.deleted_range(&guard, table, range));
            rows.retain(|(key, _)| match range {
                (_, Bound::Included(high)) if !scan.reversed => &key[..] <= high,
                (Bound::Included(low), _) if scan.reversed => &key[..] >= low,
                _ => true,
            });
            part.merge(rows, scan.reversed);
        }
        // Of all rows at once, before the program sees the first.
        reader.check()
    }
}

/// Why a part of a range ends.
enum PartEnd {
    /// The range ends, or has as many rows as were asked for.
    Range,
    /// The caller broke off.
    Break,
    /// The epoch has been pinned for long enough.
    Pin,
    /// Rows may be among the deleted ones.
    DeletedRows,
    /// The table was converted.
    Former,
    /// The commit LSN of the next version's writer is not known.
    Unresolved(Begin),
}

/// Result of a row that was passed on; `None` if the read skips it, and does not count it.
type Taken = Option<ControlFlow<()>>;

impl ScanState {
    /// True if `key` is past the end of the range, in the order of the scan.
    pub(super) fn is_outside(&self, key: &[u8]) -> bool {
        match (self.to(), self.reversed) {
            (Bound::Unbounded, _) => false,
            (Bound::Included(end), false) => key > end,
            (Bound::Excluded(end), false) => key >= end,
            (Bound::Included(end), true) => key < end,
            (Bound::Excluded(end), true) => key <= end,
        }
    }

    /// Returns the end of the range, in the order of the scan.
    pub(super) fn to(&self) -> Bound<&[u8]> {
        match self.reversed {
            false => bound(self.high_end, &self.high),
            true => bound(self.low_end, &self.low),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Database, Options, Table};

    const ROWS: Table<u64, u64> = Table::new("rows");

    /// A program may wait for long at a row of a handle, and what others retire is freed meanwhile.
    #[test]
    fn rows_of_a_handle_are_passed_on_without_a_pin() {
        let db = Database::in_memory(Options::default()).unwrap();
        db.run(|tx| (0..10).try_for_each(|key| tx.put(&ROWS, &key, &key)))
            .unwrap();
        let snapshot = db.snapshot().unwrap();
        let other = db.share().engine().workers.worker();
        let passes = || {
            let stamp = other.participant().stamp();
            (0..1_000).any(|_| {
                other.participant().advance();
                std::thread::yield_now();
                other.participant().has_passed(stamp)
            })
        };
        let mut rows = 0;
        let range = snapshot.range(&ROWS, ..).unwrap();
        range
            .for_each_bytes(|_, _| {
                assert!(passes(), "the scan pins its epoch");
                rows += 1;
            })
            .unwrap();
        assert_eq!(rows, 10);
    }
}
