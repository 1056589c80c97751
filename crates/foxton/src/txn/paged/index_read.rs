//! Reads of rows of a paged table by an index.
//!
//! The protocol is that of [`index_read`](crate::txn::index_read). A reader looks at an entry,
//! locks the row that it names, and looks at the entry again. A scan does so by the token of the
//! leaf of entries that it has copied.
//!
//! # Waits
//!
//! The entry and its row are in two trees. Once the row is locked and the entry was looked at
//! again, the entry stays, and the attempt keeps it as the transaction's [`LockedEntry`]. So an
//! attempt that continues after a wait for the page of the row begins with that page, and needs no
//! other first.

use std::cell::Cell;
use std::ops::ControlFlow;

use foxton_lock::mode::{GapPart, Mode};
use foxton_lock::name::Name;
use foxton_store::paged::page::RowFlags;

use super::access::PageAccess;
use super::index_write::is_there;
use super::scan::{PagedScan, PagedVisit, RowStep};
use crate::catalog::OpenTable;
use crate::engine::Engine;
use crate::error::Result;
use crate::testing::{failpoint, injected_fault};
use crate::txn::attempt::{AttemptResult, done};
use crate::txn::bound::BoundTxn;
use crate::txn::context::WorkerContext;
use crate::txn::index_read::{EncodedRow, check_open, table_of};
use crate::txn::large_state::LargeState;
use crate::txn::scan_state::{GAP, LockedEntry, ScanState};
use crate::txn::short_lock::ShortLock;
use crate::txn::table_locks::TableLocks;
use crate::txn::txn::{OperationLocks, Txn};
use crate::types::index_entry::EntryKind;
use crate::types::isolation::LockDuration;
use crate::types::lock_options::LockOptions;

/// Locks the rows that entries name, and reads them.
struct EntryVisit<'a, F> {
    engine: &'a Engine,
    kind: EntryKind,
    table: &'a OpenTable,
    row_mode: Mode,
    /// The tree of the rows.
    rows: PageAccess<'a>,
    value: &'a mut Vec<u8>,
    large: &'a mut Option<Box<LargeState>>,
    take: &'a mut F,
}

impl<F> EntryVisit<'_, F> {
    /// Locks the row that an entry names.
    fn lock_row(
        &self,
        locks: &mut TableLocks<'_>,
        key: &[u8],
        short_lock: Option<&ShortLock>,
    ) -> Result<AttemptResult<()>> {
        let id = self.table.record.id;
        self.engine.faults().pass(&failpoint::ENTRY_READ);
        done!(locks.lock_table_name(Name::table(id), self.row_mode.parent_mode()));
        let name = Name::key(id, key, &self.engine.hasher);
        locks.lock_for(short_lock, name, None, self.row_mode)
    }
}

impl<F: FnMut(EncodedRow<'_>) -> ControlFlow<()>> EntryVisit<'_, F> {
    /// Reads and takes the row of a locked entry. Returns `None` if it is not there, as it may be
    /// without locks.
    fn read_row(&mut self, scan: &mut ScanState) -> Result<AttemptResult<Option<ControlFlow<()>>>> {
        let LockedEntry { index_key, key, .. } = &scan.entry;
        let (rows, value) = (&mut self.rows, &mut *self.value);
        let flags = done!(rows.attempt(|visit| visit.get(key, value)));
        let name = Name::key(self.table.record.id, key, &self.engine.hasher);
        scan.reads.record_paged(&rows.pages.stamps, &name);
        let value = match is_large(flags) {
            false => &value[..],
            true => match self.large.get_or_insert_default().bytes_of(value)? {
                Some(bytes) => bytes,
                // The entry stays set. The next attempt reads the value first.
                None => return Ok(AttemptResult::Pause),
            },
        };
        let flow = is_there(flags).then(|| {
            (self.take)(EncodedRow {
                index_key,
                key,
                value,
            })
        });
        *self.large = None;
        scan.entry.is_set = false;
        Ok(AttemptResult::Done(flow))
    }
}

impl<F: FnMut(EncodedRow<'_>) -> ControlFlow<()>> PagedVisit for EntryVisit<'_, F> {
    const BY_NAME: bool = false;

    fn lock(
        &mut self,
        locks: &mut TableLocks<'_>,
        (key, value): (&[u8], Option<&[u8]>),
        name: Name,
        mode: Mode,
    ) -> Result<AttemptResult<()>> {
        let Some(value) = value else {
            return locks.lock_in_scan(name, None, mode);
        };
        done!(self.lock_row(locks, self.kind.read(key, value).1, None));
        let faults = self.engine.faults();
        match mode.gap_part() {
            GapPart::None => Ok(AttemptResult::Done(())),
            _ if faults.misbehaves(&injected_fault::ENTRY_GAP_UNLOCKED) => {
                Ok(AttemptResult::Done(()))
            }
            _ => locks.lock_in_scan(name, None, GAP),
        }
    }

    fn lock_alone(
        &mut self,
        locks: &mut TableLocks<'_>,
        (key, value): (&[u8], Option<&[u8]>),
        (name, mode): (Name, Mode),
        short_lock: Option<&ShortLock>,
    ) -> Result<AttemptResult<()>> {
        match value {
            Some(value) => self.lock_row(locks, self.kind.read(key, value).1, short_lock),
            None => locks.lock_for(short_lock, name, None, mode),
        }
    }

    fn take(
        &mut self,
        scan: &mut ScanState,
        (key, value): (&[u8], Option<&[u8]>),
        is_last: bool,
    ) -> Result<AttemptResult<Option<ControlFlow<()>>>> {
        let Some(value) = value else {
            return Ok(AttemptResult::Done(None));
        };
        scan.entry.set(self.kind.read(key, value), is_last);
        self.read_row(scan)
    }
}

/// True if a row with these flags has a large value.
fn is_large(flags: Option<RowFlags>) -> bool {
    is_there(flags) && flags.is_some_and(|flags| flags.has(RowFlags::OVERFLOW))
}

impl BoundTxn {
    /// As [`get_by_step`](Self::get_by_step), of a paged table. `places` are those of its entries
    /// and of the table among the cached tables.
    pub(in crate::txn) fn get_by_paged_step<R>(
        &mut self,
        by: usize,
        places: [usize; 2],
        options: LockOptions,
        read: &mut impl FnMut(EncodedRow<'_>) -> R,
    ) -> Result<AttemptResult<Option<R>>> {
        for place in places {
            done!(self.open_tree(place));
        }
        done!(self.read_large());
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    index_lookups,
                    key,
                    page_wait,
                    page_value: value,
                    large,
                    ..
                },
            txn:
                Txn {
                    reads,
                    isolation,
                    scan: ScanState { entry, .. },
                    operation_locks: OperationLocks { short_lock, .. },
                    ..
                },
            ..
        } = self;
        let index = &*index_lookups[by].index;
        let [entries, rows] = places.map(|place| &tables[place]);
        let (id, row_id) = (entries.table.record.id, rows.table.record.id);
        let (duration, mode) = (isolation.hold(options), options.lock.key_mode());
        let locks = TableLocks::new(engine, worker, owner, &entries.table, options.wait);
        let mut locks = locks.with_duration(duration);
        // The table first, as in operations that create, check and drop indexes.
        done!(locks.lock_table_name(Name::table(row_id), mode.parent_mode()));
        done!(locks.lock_table_name(Name::table(id), mode.parent_mode()));
        check_open(index)?;
        let name = Name::key(id, key, &engine.hasher);
        let until = (duration == LockDuration::Short).then_some(&*short_lock);
        let faults = engine.faults();
        if !entry.is_set {
            let mut access = PageAccess::of_table(engine.pages(), entries, worker, page_wait);
            loop {
                let flags = done!(access.attempt(|visit| visit.get(key, value)));
                if is_there(flags) {
                    entry.set((key, value), true);
                    entry.is_set = false;
                    faults.pass(&failpoint::ENTRY_READ);
                    let row_name = Name::key(row_id, value, &engine.hasher);
                    done!(locks.lock_for(until, row_name, None, mode));
                    let flags = done!(access.attempt(|visit| visit.get(key, value)));
                    if locks.looks_once() || is_there(flags) && *value == entry.key {
                        entry.is_set = true;
                        reads.record_paged(&access.pages.stamps, &name);
                        break;
                    }
                    locks.release_short(short_lock);
                    continue;
                }
                done!(locks.lock_for(until, name, None, mode));
                let flags = done!(access.attempt(|visit| visit.flags(key)));
                if !is_there(flags) {
                    reads.record_paged(&access.pages.stamps, &name);
                    if faults.misbehaves(&injected_fault::NAME_MISS_UNLOCKED) {
                        locks.release_shared(name);
                    }
                    locks.release_short(short_lock);
                    return Ok(AttemptResult::Done(None));
                }
                locks.release_short(short_lock);
            }
        }
        let mut access = PageAccess::of_table(engine.pages(), rows, worker, page_wait);
        let flags = done!(access.attempt(|visit| visit.get(&entry.key, value)));
        let row_name = Name::key(row_id, &entry.key, &engine.hasher);
        reads.record_paged(&access.pages.stamps, &row_name);
        let value = match is_large(flags) {
            false => &value[..],
            true => match large.get_or_insert_default().bytes_of(value)? {
                Some(bytes) => bytes,
                // The entry stays set. The next attempt reads the value first.
                None => return Ok(AttemptResult::Pause),
            },
        };
        entry.is_set = false;
        let found = is_there(flags).then(|| {
            read(EncodedRow {
                index_key: key,
                key: &entry.key,
                value,
            })
        });
        locks.release_short(short_lock);
        Ok(AttemptResult::Done(found))
    }

    /// As [`scan_by_step`](Self::scan_by_step), of a paged table.
    pub(in crate::txn) fn scan_by_paged_step(
        &mut self,
        by: usize,
        places: [usize; 2],
        take: &mut impl FnMut(EncodedRow<'_>) -> ControlFlow<()>,
    ) -> Result<AttemptResult<()>> {
        for place in places {
            done!(self.open_tree(place));
        }
        done!(self.read_large());
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    index_lookups,
                    budget,
                    page_wait,
                    page_rows,
                    page_value,
                    large,
                    paged_ghosts,
                    ..
                },
            txn: Txn {
                scan, isolation, ..
            },
            ..
        } = self;
        let index = &*index_lookups[by].index;
        let [entries, rows] = places.map(|place| &tables[place]);
        scan.duration = isolation.hold(scan.lock);
        let locks = TableLocks::new(engine, worker, owner, &entries.table, scan.lock.wait);
        let mut locks = locks.with_duration(scan.duration);
        let (row_mode, range_mode) = (scan.lock.lock.key_mode(), scan.lock.lock.range_mode());
        let names = [table_of(&entries.table), &entries.table].map(|table| table.record.id);
        for id in names {
            done!(locks.lock_table_name(Name::table(id), range_mode.parent_mode()));
        }
        check_open(index)?;
        let wait = Cell::from_mut(page_wait);
        let access = |cached| PageAccess::of_one(engine.pages(), cached, worker, wait);
        // The first one has the pages for which the last attempt has waited.
        let (of_entries, of_rows) = match scan.entry.is_set {
            true => {
                let of_rows = access(rows);
                (access(entries), of_rows)
            }
            false => (access(entries), access(rows)),
        };
        let mut attempt = PagedScan {
            access: of_entries,
            locks,
            table: &entries.table,
            hasher: &engine.hasher,
            worker,
            key_mode: row_mode,
            range_mode,
            visit: EntryVisit {
                engine,
                kind: index.kind,
                table: &rows.table,
                row_mode,
                rows: of_rows,
                value: page_value,
                large,
                take,
            },
            large: None,
            ghosts: Vec::new(),
            scan,
        };
        if attempt.scan.entry.is_set {
            let is_last = attempt.scan.entry.is_last;
            let flow = done!(attempt.visit.read_row(attempt.scan));
            if let RowStep::End = attempt.after_row(flow, is_last) {
                return Ok(AttemptResult::Done(()));
            }
        }
        let walked = attempt.walk(page_rows, budget);
        attempt.list_ghosts(places[0], paged_ghosts);
        walked
    }
}
