//! Ranges at a snapshot, of a table in memory and of its indexes.
//!
//! A range is read in parts, each under one pin: rows of the table, and then the deleted rows of
//! the same stretch.

use std::ops::{Bound, ControlFlow};

use foxton_store::memory::{Begin, VersionReader};

use super::attempt::{AttemptResult, done};
use super::bound::BoundTxn;
use super::index_read::{EncodedRow, check_open, table_of};
use super::scan_state::{Progress, STEPS_PER_PIN, ScanState, bound};
use super::snapshot::{ViewRead, check_current, check_readable};
use super::snapshot_view::SnapshotView;
use crate::catalog::OpenTable;
use crate::error::Result;

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
        let table = self.ctx.tables[index].table.clone();
        if table.is_paged() {
            return self.scan_paged_at(index, view, take);
        }
        let options = self.txn.scan.lock;
        self.scan_parts(&table, view, &mut |bound, key, value| {
            let is_taken = done!(bound.lock_found(index, options, key));
            Ok(AttemptResult::Done(is_taken.then(|| take(key, value))))
        })
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
        let index = self.ctx.index_lookups[by].index.clone();
        check_open(&index)?;
        let table = table_of(&index.entries).clone();
        let (rows, options) = (self.ctx.cached_entries(table.clone()), self.txn.scan.lock);
        self.scan_parts(&index.entries, view, &mut |bound, entry, value| {
            let (index_key, key) = index.kind.read(entry, value);
            if !done!(bound.lock_found(rows, options, key)) {
                return Ok(AttemptResult::Done(None));
            }
            let row = &mut |value: &[u8]| {
                take(EncodedRow {
                    index_key,
                    key,
                    value,
                })
            };
            let found = done!(bound.read_at(&table, view, key, row));
            Ok(AttemptResult::Done(found))
        })
    }

    /// Reads the range of the scan in parts, each under one pin, and passes what it finds to
    /// `take`.
    fn scan_parts(
        &mut self,
        table: &OpenTable,
        view: SnapshotView,
        take: &mut impl FnMut(&mut BoundTxn, &[u8], &[u8]) -> Result<AttemptResult<Taken>>,
    ) -> Result<AttemptResult<()>> {
        loop {
            done!(check_readable(&self.ctx.engine, table, view));
            let part = self.read_part(table, view)?;
            done!(check_current(table));
            for (key, value) in &part.rows {
                let scan = &self.txn.scan;
                if scan.remaining.get() == 0 {
                    break;
                }
                let taken = done!(take(self, key, value));
                let scan = &mut self.txn.scan;
                scan.record_key(key);
                let Some(taken) = taken else {
                    continue;
                };
                scan.remaining.update(|remaining| remaining - 1);
                if taken.is_break() {
                    return Ok(AttemptResult::Done(()));
                }
            }
            let scan = &mut self.txn.scan;
            if part.has_end || scan.remaining.get() == 0 {
                scan.progress = Progress::Finished;
                return Ok(AttemptResult::Done(()));
            }
            if let Some(last) = &part.last {
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
        }
    }

    /// Reads a part of the range under one pin.
    fn read_part(&self, table: &OpenTable, view: SnapshotView) -> Result<Part> {
        let (reader, scan) = (self.view_reader(view), &self.txn.scan);
        let guard = self.ctx.worker.pin();
        let mut part = Part {
            has_end: true,
            ..Part::default()
        };
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
            false => rows.forward(&guard, scan.from()),
            true => rows.backward(&guard, scan.from()),
        };
        let most = scan.remaining.get().min(STEPS_PER_PIN.into());
        let mut steps = 0;
        while let Some(record) = cursor.next_record() {
            if scan.is_outside(record.key()) {
                break;
            }
            if steps == STEPS_PER_PIN || part.rows.len() as u64 >= most {
                part.has_end = false;
                break;
            }
            steps += 1;
            let found = reader.read(&guard, &mut versions, record, |value| {
                part.rows.push((record.key().into(), value.into()));
            })?;
            if let ViewRead::Unresolved(begin) = found {
                part.unresolved = Some(begin);
                part.has_end = false;
                break;
            }
            part.last = Some(record.key().into());
        }
        drop(versions);
        let is_nothing = part.last.is_none() && !part.has_end;
        if !is_nothing {
            let to = match (part.has_end, &part.last) {
                (false, Some(last)) => Bound::Included(&last[..]),
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
            part.add(rows, scan.reversed);
        }
        reader.check()?;
        Ok(part)
    }
}

/// Result of a row that was passed on; `None` if the read skips it, and does not count it.
type Taken = Option<ControlFlow<()>>;

/// Rows of a part of a range.
#[derive(Default)]
struct Part {
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// True if the range ends with it.
    has_end: bool,
    /// Writer of the next version, if its commit LSN is not known.
    unresolved: Option<Begin>,
    /// The last key of the table that was looked at.
    last: Option<Vec<u8>>,
}

impl Part {
    /// Adds rows that are in the order of the keys.
    fn add(&mut self, rows: Vec<(Vec<u8>, Vec<u8>)>, reversed: bool) {
        if rows.is_empty() {
            return;
        }
        self.rows.extend(rows);
        self.rows.sort_by(|(left, _), (right, _)| match reversed {
            false => left.cmp(right),
            true => right.cmp(left),
        });
        self.rows.dedup_by(|(left, _), (right, _)| left == right);
    }
}

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
