//! Versions at a snapshot, and rows that were deleted since.
//!
//! # Rows that were deleted
//!
//! A reader looks into the table first, and then among the table's
//! [deleted rows](crate::catalog::deleted_rows). The thread that removes a record has copied its
//! versions there before. So a row that moves between the two looks is found at least once. A scan
//! reads a part of the table, and then the same part of the deleted rows; both together are in
//! order, and a row that is in both is taken once.

use std::ops::Bound;
use std::sync::Arc;

use foxton_log::Lsn;
use foxton_store::memory::{Begin, CommitSlots, Record, SnapshotRead, VersionReader};
use foxton_sync::epoch::Guard;

use super::context::WorkerContext;
use super::snapshot_view::SnapshotView;
use crate::catalog::OpenTable;
use crate::catalog::deleted_rows::{DeletedRow, DeletedRows};
use crate::engine::Engine;
use crate::engine::early_release::ReadDependencies;
use crate::engine::read_views::ReadView;
use crate::error::Result;
use crate::testing::{failpoint, injected_fault};

/// Reads versions for one attempt.
pub(super) struct ViewReader<'a> {
    engine: &'a Engine,
    view: SnapshotView,
    pub(super) own: Option<Begin>,
    /// In the place of the position, if snapshots are read views.
    read_view: Option<Arc<ReadView>>,
    reads: &'a ReadDependencies,
}

/// Result of one look for a version.
pub(super) enum ViewRead<R> {
    Row(R),
    Absent,
    Unresolved(Begin),
}

impl<'a> ViewReader<'a> {
    pub(super) fn new(
        ctx: &'a WorkerContext,
        reads: &'a ReadDependencies,
        view: SnapshotView,
    ) -> ViewReader<'a> {
        ViewReader {
            engine: &ctx.engine,
            view,
            own: own_begin(ctx, view),
            read_view: ctx.engine.snapshots.read_view(view.place),
            reads,
        }
    }
}

impl ViewReader<'_> {
    pub(super) fn slots(&self) -> &CommitSlots {
        &self.engine.snapshots.slots
    }

    /// Refuses a read whose snapshot was ended, to free memory or because it was idle. Called with
    /// the version in a hazard, before the program sees it.
    pub(super) fn check(&self) -> Result<()> {
        match self.engine.snapshots.ended(self.view.place) {
            None => Ok(()),
            Some(ended) => Err(ended.into()),
        }
    }

    /// Returns the deleted rows of `table`, if it has some.
    fn deleted<'t>(&self, table: &'t OpenTable) -> Option<&'t DeletedRows> {
        let faults = self.engine.faults();
        let is_missed = faults.misbehaves(&injected_fault::DELETED_ROWS_MISSED);
        table.deleted.get().filter(|_| !is_missed)
    }

    /// True if `table` has deleted rows, or had some. Asked after a look into the table.
    #[inline]
    pub(super) fn has_deleted(&self, table: &OpenTable) -> bool {
        self.engine.faults().pass(&failpoint::SEARCHED_ONCE);
        self.deleted(table).is_some()
    }

    /// True if an injected fault makes a reader go past the deletion that began at `begin`.
    #[inline]
    fn skips_tombstone(&self, begin: Begin) -> bool {
        let faults = self.engine.faults();
        faults.misbehaves(&injected_fault::TOMBSTONE_SKIPPED) && begin.committed().is_some()
    }

    /// Passes the newest version of `record` that is no deletion to `take`: an injected fault.
    fn before_tombstone<R>(
        &self,
        guard: &Guard<'_>,
        record: &Record,
        take: impl FnOnce(&[u8]) -> R,
    ) -> ViewRead<R> {
        let mut found = None;
        record.visit_versions(guard, self.slots(), |begin, _, bytes| {
            let lsn = begin.committed().map_or(Lsn::ZERO, |(lsn, _)| lsn);
            if lsn <= self.view.lsn && found.is_none() {
                found = bytes.map(<[u8]>::to_vec);
            }
        });
        found.map_or(ViewRead::Absent, |bytes| ViewRead::Row(take(&bytes)))
    }

    /// Passes the version of `record` to `take`, unless the snapshot was ended.
    pub(super) fn read<R>(
        &self,
        guard: &Guard<'_>,
        reader: &mut VersionReader<'_>,
        record: &Record,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<ViewRead<R>> {
        let mut ended = Ok(());
        let found = self.read_unchecked(guard, reader, record, |bytes| {
            ended = self.check();
            ended.is_ok().then(|| take(bytes))
        });
        ended?;
        Ok(match found {
            ViewRead::Row(row) => row.map_or(ViewRead::Absent, ViewRead::Row),
            ViewRead::Absent => ViewRead::Absent,
            ViewRead::Unresolved(begin) => ViewRead::Unresolved(begin),
        })
    }

    /// As [`read`](Self::read), for a caller that asks afterwards whether the snapshot was ended.
    #[inline]
    pub(super) fn read_unchecked<R>(
        &self,
        guard: &Guard<'_>,
        reader: &mut VersionReader<'_>,
        record: &Record,
        take: impl FnOnce(&[u8]) -> R,
    ) -> ViewRead<R> {
        let found = match &self.read_view {
            None => reader.read(record, self.view.lsn),
            Some(view) => reader.read_where(record, |begin| view.visibility(self.slots(), begin)),
        };
        let found = match found {
            SnapshotRead::Unresolved(begin)
                if self
                    .engine
                    .faults()
                    .misbehaves(&injected_fault::UNRESOLVED_TAKEN_FOR_INVISIBLE) =>
            {
                SnapshotRead::Absent(begin)
            }
            found => found,
        };
        match found {
            SnapshotRead::Unresolved(begin) => ViewRead::Unresolved(begin),
            SnapshotRead::Absent(begin) if self.skips_tombstone(begin) => {
                self.before_tombstone(guard, record, take)
            }
            SnapshotRead::Absent(_) => ViewRead::Absent,
            SnapshotRead::Value(bytes, begin) => {
                match self.read_view {
                    None => self.reads.record_version(record, begin),
                    Some(_) => self.reads.record(record),
                }
                ViewRead::Row(take(bytes))
            }
        }
    }

    /// True if the reader sees a deleted row that was valid from `begin` to `end`.
    fn sees(&self, begin: Lsn, end: Lsn) -> bool {
        match &self.read_view {
            None => begin <= self.view.lsn && self.view.lsn < end,
            Some(view) => view.sees(begin) && !view.sees(end),
        }
    }

    /// Returns the version of `key` among the deleted rows.
    fn find_deleted(
        &self,
        deleted: &DeletedRows,
        guard: &Guard<'_>,
        key: &[u8],
    ) -> Option<DeletedRow> {
        match self.read_view {
            None => deleted.get(guard, key, self.view.lsn),
            Some(_) => {
                let mut versions = deleted.versions(guard, key).into_iter();
                let seen = versions.find(|(row, end)| self.sees(row.begin, *end));
                seen.map(|(row, _)| row)
            }
        }
    }

    /// True if an injected fault makes a reader search the deleted rows first.
    #[inline]
    pub(super) fn is_reversed(&self) -> bool {
        let faults = self.engine.faults();
        faults.misbehaves(&injected_fault::DELETED_ROWS_FIRST)
    }

    /// Reads `key` among the deleted rows of `table`.
    fn get_deleted(&self, guard: &Guard<'_>, table: &OpenTable, key: &[u8]) -> Option<DeletedRow> {
        let reversed = self.is_reversed();
        if !reversed {
            self.engine.faults().pass(&failpoint::SEARCHED_ONCE);
        }
        let found = self.find_deleted(self.deleted(table)?, guard, key);
        if reversed {
            self.engine.faults().pass(&failpoint::SEARCHED_ONCE);
        }
        found
    }

    /// Returns the deleted rows of `table` in a range.
    pub(super) fn deleted_range(
        &self,
        guard: &Guard<'_>,
        table: &OpenTable,
        range: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let reversed = self.is_reversed();
        if !reversed {
            self.engine.faults().pass(&failpoint::SEARCHED_ONCE);
        }
        let deleted = self.deleted(table);
        let sees = |begin, end| self.sees(begin, end);
        let rows = deleted.map(|deleted| deleted.range(guard, range, sees));
        if reversed {
            self.engine.faults().pass(&failpoint::SEARCHED_ONCE);
        }
        let rows = rows.into_iter().flatten();
        rows.map(|row| (row.key, row.value)).collect()
    }

    /// Reads `key` in the table, and then among its deleted rows.
    pub(super) fn get<R>(
        &self,
        guard: &Guard<'_>,
        table: &OpenTable,
        key: &[u8],
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<ViewRead<R>> {
        let mut versions = VersionReader::new(guard, self.slots(), self.own);
        if !self.is_reversed() {
            let record = table.resident().get(guard, key);
            return self.get_located(guard, &mut versions, table, (key, record), take);
        }
        let deleted = self.get_deleted(guard, table, key);
        let mut take = Some(take);
        let mut take = |bytes: &[u8]| take.take().map(|take| take(bytes));
        if let Some(record) = table.resident().get(guard, key) {
            match self.read(guard, &mut versions, record, &mut take)? {
                ViewRead::Row(Some(row)) => return Ok(ViewRead::Row(row)),
                ViewRead::Unresolved(begin) => return Ok(ViewRead::Unresolved(begin)),
                _ => {}
            }
        }
        let row = deleted.and_then(|row| take(&row.value));
        Ok(row.map_or(ViewRead::Absent, ViewRead::Row))
    }

    /// Reads `key`, which has this record in the table, or none, and then looks among the deleted
    /// rows.
    pub(super) fn get_located<R>(
        &self,
        guard: &Guard<'_>,
        versions: &mut VersionReader<'_>,
        table: &OpenTable,
        (key, record): (&[u8], Option<&Record>),
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<ViewRead<R>> {
        let mut take = Some(take);
        let mut take = |bytes: &[u8]| take.take().map(|take| take(bytes));
        if let Some(record) = record {
            match self.read(guard, versions, record, &mut take)? {
                ViewRead::Row(Some(row)) => return Ok(ViewRead::Row(row)),
                ViewRead::Unresolved(begin) => return Ok(ViewRead::Unresolved(begin)),
                _ => {}
            }
        }
        let deleted = self.get_deleted(guard, table, key);
        self.check()?;
        let row = deleted.and_then(|row| take(&row.value));
        Ok(row.map_or(ViewRead::Absent, ViewRead::Row))
    }
}

/// Returns the begin of the context's own versions, which its transaction sees.
pub(super) fn own_begin(ctx: &WorkerContext, view: SnapshotView) -> Option<Begin> {
    let own = view.is_own.then(|| ctx.commit_slot.begin()).flatten();
    let faults = ctx.engine.faults();
    own.filter(|_| !faults.misbehaves(&injected_fault::OWN_VERSION_MISSED))
}
