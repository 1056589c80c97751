//! Writes at a snapshot of rows that have changed since.

use foxton_store::paged::row_versions::VersionedKey;

use crate::catalog::OpenTable;
use crate::engine::Engine;
use crate::engine::page_store::tree_number;
use crate::error::Result;
use crate::txn::overwritten::overwritten;
use crate::txn::snapshot_view::SnapshotView;

/// Refuses to write a row, or to read it under a lock, whose newest committed state is younger than
/// the snapshot. The transaction holds it locked.
#[inline]
pub(super) fn refuse_overwritten(
    view: Option<SnapshotView>,
    engine: &Engine,
    table: &OpenTable,
    key: &[u8],
) -> Result<()> {
    let Some(view) = view else {
        return Ok(());
    };
    let row = VersionedKey::new(tree_number(table), key);
    let newest = engine.snapshots.rows.newest_commit(&row);
    if !table.is_since(view.lsn) || newest.is_some_and(|newest| newest > view.lsn) {
        return Err(overwritten(engine, table, key));
    }
    // Asked last: what was looked at may be gone with the snapshot.
    let ended = engine.snapshots.ended(view.place);
    ended.map_or(Ok(()), |ended| Err(ended.into()))
}
