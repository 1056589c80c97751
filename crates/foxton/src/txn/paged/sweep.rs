//! Sweep of ghosts: purge of all that a tree has, for a thread that shrinks the page file.
//!
//! Workers keep bounded lists of ghosts ([`purge`](super::purge)), so some are on no list until a
//! scan finds them. A sweep looks at every leaf. It requests key and gap of each ghost without
//! waiting, in an owner of its own, and leaves those that it does not get. It also leaves those
//! that have versions which a snapshot may need. So it never waits for a transaction, and it holds
//! no lock while it waits for a page or for log space.

use foxton_lock::manager::LockManager;
use foxton_lock::name::Name;
use foxton_lock::owner::Owner;
use foxton_store::paged::btree::{
    PagedTree, PurgeReply, ScanDirection, ScanRange, TreeAttempt, TreeError,
};
use foxton_store::paged::page::{LeafRows, RowFlags};
use foxton_store::paged::row_versions::VersionedKey;
use foxton_sync::shim;
use foxton_sync::worker::Worker;

use crate::engine::{Counter, Engine};
use crate::options::Locking;
use crate::testing::{failpoint, injected_fault};
use crate::txn::ghosts::KEY_AND_GAP;
use crate::txn::table_locks::request_now;

/// Attempts to purge one ghost.
const ATTEMPTS: usize = 8;

/// Purges the ghosts of the first leaf behind `from`. Returns the last key that it has looked at,
/// or `None` at the end of the tree.
pub(crate) fn sweep_leaf(
    engine: &Engine,
    worker: &Worker,
    tree: &PagedTree,
    from: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, TreeError> {
    let range = ScanRange {
        direction: ScanDirection::Forward,
        from,
        is_excluded: from.is_some(),
        end: None,
        most: usize::MAX,
    };
    let mut rows = LeafRows::default();
    tree.visit(worker)
        .run(|visit| visit.scan(range, &mut rows))?;
    // The trees of tables, and of their indexes, are numbered behind that of the directory.
    let id = tree.table().checked_sub(1).map(u32::try_from);
    if let Some(Ok(id)) = id {
        for row in (0..rows.len()).filter(|row| rows.flags(*row).has(RowFlags::GHOST)) {
            purge(engine, worker, (tree, id), rows.key(row))?;
        }
    }
    let last = rows.len().checked_sub(1);
    Ok(last.map(|last| rows.key(last).to_vec()))
}

/// Purges the ghost of `key`, unless it is locked or is the only row of its leaf.
fn purge(
    engine: &Engine,
    worker: &Worker,
    (tree, id): (&PagedTree, u32),
    key: &[u8],
) -> Result<(), TreeError> {
    let mut visit = tree.visit(worker);
    for _ in 0..ATTEMPTS {
        let mut owner = engine.locks.owner();
        // Site: "large values": without locking, a thread that maintains pages. Meanwhile no
        // transaction begins.
        let open = (engine.options.locking == Locking::Off).then(|| shim::lock(&engine.open));
        let is_free = match &open {
            Some(is_open) => !**is_open,
            None => is_locked(engine, worker, &mut owner, (id, key)),
        };
        // A scan at a snapshot finds the versions of the row by the ghost.
        let versioned = VersionedKey::new(tree.table(), key);
        let is_free = is_free && !engine.snapshots.rows.has_rows(&versioned);
        let purged = is_free.then(|| {
            worker.failpoints().pass(&failpoint::PURGE);
            visit.purge(key)
        });
        engine.locks.release_all(worker, &mut owner);
        engine.locks.dismiss(worker, &mut owner);
        drop(open);
        match purged.transpose()? {
            Some(TreeAttempt::Wait) => visit.wait()?,
            Some(TreeAttempt::Done(PurgeReply::Removed)) => {
                let counter = Counter::GhostsPurged as usize;
                engine.counters.add(worker, counter, 1);
                break;
            }
            Some(TreeAttempt::Done(_)) | None => break,
        }
    }
    Ok(())
}

fn is_locked(engine: &Engine, worker: &Worker, owner: &mut Owner, (id, key): (u32, &[u8])) -> bool {
    let name = Name::key(id, key, &engine.hasher);
    let parent = (Name::table(id), None, KEY_AND_GAP.parent_mode());
    let mode = injected_fault::purge_mode(engine.faults(), KEY_AND_GAP);
    request_now(engine, worker, owner, parent)
        && request_now(engine, worker, owner, (name, None, mode))
}
