//! Locks at `Snapshot` on rows that may have changed since the snapshot.

use foxton_lock::name::Name;
use foxton_log::Lsn;
use foxton_store::memory::Record;
use foxton_sync::epoch::Guard;

use super::attempt::AttemptResult;
use super::bound::BoundTxn;
use super::snapshot_view::SnapshotView;
use crate::catalog::OpenTable;
use crate::engine::Engine;
use crate::error::{Conflict, Error, Result};
use crate::testing::injected_fault;
use crate::types::lock_options::{Lock, LockOptions, LockWait};

impl BoundTxn {
    /// Refuses to write a row whose newest committed version is younger than the snapshot. The
    /// transaction holds it locked.
    #[inline(always)]
    pub(super) fn refuse_overwritten(
        view: Option<SnapshotView>,
        engine: &Engine,
        guard: &Guard<'_>,
        table: &OpenTable,
        (key, record): (&[u8], Option<&Record>),
    ) -> Result<()> {
        match view {
            None => Ok(()),
            Some(view) => check_overwritten(view, engine, guard, table, (key, record)),
        }
    }

    /// Locks a row that was found at a snapshot, for a read with more than a shared lock. Returns
    /// false if the read skips it.
    #[inline]
    pub(super) fn lock_found(
        &mut self,
        table: usize,
        options: LockOptions,
        key: &[u8],
    ) -> Result<AttemptResult<bool>> {
        if options.lock == Lock::Shared {
            return Ok(AttemptResult::Done(true));
        }
        let locked = match self.ctx.tables[table].table.is_paged() {
            false => self.lock_resident(table, options, key),
            true => self.lock_paged(table, options, key),
        };
        match locked {
            Err(error) if options.wait == LockWait::Skip && error.is_busy() => {
                Ok(AttemptResult::Done(false))
            }
            locked => locked,
        }
    }
}

#[cold]
fn check_overwritten(
    view: SnapshotView,
    engine: &Engine,
    guard: &Guard<'_>,
    table: &OpenTable,
    (key, record): (&[u8], Option<&Record>),
) -> Result<()> {
    if !table.is_since(view.lsn) {
        return Err(overwritten(engine, table, key));
    }
    let mut newest = None;
    if let Some(record) = record {
        record.visit_versions(guard, &engine.snapshots.slots, |begin, _, _| {
            newest.get_or_insert(begin.committed().map_or(Lsn::ZERO, |(lsn, _)| lsn));
        });
    }
    let read_view = engine.snapshots.read_view(view.place);
    let is_later = |at: Lsn| match &read_view {
        None => at > view.lsn,
        Some(view) => !view.sees(at),
    };
    let is_unchecked = engine
        .faults()
        .misbehaves(&injected_fault::DELETED_UNCHECKED);
    let was_removed = || {
        let deleted = table.deleted.get().filter(|_| !is_unchecked);
        deleted.is_some_and(|deleted| match read_view {
            None => deleted.newest_end(guard, key).is_some_and(is_later),
            Some(_) => {
                let mut versions = deleted.versions(guard, key).into_iter();
                versions.any(|(_, end)| is_later(end))
            }
        })
    };
    if newest.is_some_and(is_later) || was_removed() {
        return Err(overwritten(engine, table, key));
    }
    // Asked last: what was looked at may be gone with the snapshot.
    let ended = engine.snapshots.ended(view.place);
    ended.map_or(Ok(()), |ended| Err(ended.into()))
}

/// Returns the refusal of a row of `table`, or of an entry of an index.
#[cold]
pub(super) fn overwritten(engine: &Engine, table: &OpenTable, key: &[u8]) -> Error {
    let name = Name::key(table.record.id, key, &engine.hasher);
    Conflict::overwritten(name, &table.record.name).into()
}
