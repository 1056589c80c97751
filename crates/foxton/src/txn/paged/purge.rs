//! Purge of ghosts of paged tables.
//!
//! A ghost keeps its space while a transaction may still need it for its undo. So the transaction
//! that leaves a ghost does not remove it under its own locks, which it would find granted. It
//! releases all locks first, and then requests key and gap anew, without waiting. Its owner holds
//! nothing else then, so it is as good as another owner. The argument why the gap before the ghost
//! suffices is in [`ghosts`](crate::txn::ghosts).
//!
//! A purge waits for nothing. If a lock is not free or a page is not there, the ghost stays on the
//! list, and a later writing transaction of the worker tries it again. Pages that it lacks are read
//! meanwhile by another thread. Scans put a few ghosts on
//! the list that they find, so none is forgotten for good.
//!
//! A ghost may have versions that a reader at a snapshot needs. They stay in memory, by key. But a
//! scan finds keys on pages, so the key is first added to the deleted rows of the table, where a
//! scan at a snapshot searches last.

use foxton_lock::name::Name;
use foxton_log::Lsn;
use foxton_store::paged::btree::{PurgeReply, TreeAttempt};
use foxton_store::paged::row_versions::{ROW_VERSIONS, VersionedKey};
use foxton_sync::worker::Worker;

use crate::catalog::OpenTable;
use crate::catalog::deleted_rows::DeletedRows;
use crate::catalog::table_store::TableStore;
use crate::engine::page_store::tree_number;
use crate::engine::page_waits::PageNeed;
use crate::engine::{Counter, Engine};
use crate::options::Locking;
use crate::testing::{failpoint, injected_fault};
use crate::txn::bound::BoundTxn;
use crate::txn::context::{PagedGhost, WorkerContext};
use crate::txn::ghosts::KEY_AND_GAP;
use crate::txn::table_locks::request_now;
use crate::txn::txn::Txn;
use crate::txn::work_budget::UNITS;

/// Adds the key of a ghost that is about to be removed to the deleted rows, once for each version
/// that a reader at a snapshot may need. The versions stay where they are.
fn keep_deleted(engine: &Engine, worker: &Worker, table: &OpenTable, key: &[u8]) {
    if engine.faults().misbehaves(&injected_fault::PURGE_UNCOPIED) {
        return;
    }
    let row = VersionedKey::new(tree_number(table), key);
    let mut needed: Vec<(Lsn, Lsn)> = Vec::new();
    let rows = &engine.snapshots.rows;
    rows.visit_rows(&row, |begin, end| needed.push((begin, end)));
    if needed.is_empty() {
        return;
    }
    worker.account().passed(&ROW_VERSIONS);
    let deleted = table
        .deleted
        .get_or_init(|| DeletedRows::new(worker.workers().domain()));
    let guard = worker.pin();
    for interval in needed {
        deleted.insert(&guard, key, interval, &[]);
    }
}

impl BoundTxn {
    /// Tries to purge listed ghosts, once each, after the locks of the transaction were released.
    pub(in crate::txn) fn purge_some(&mut self) {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    paged_ghosts,
                    ..
                },
            txn: Txn { lock_scope, .. },
            ..
        } = self;
        let pages = engine.pages();
        let Some(pages) = pages.filter(|pages| !pages.is_read_only() && !pages.has_failed()) else {
            return;
        };
        for _ in 0..UNITS.min(paged_ghosts.len()) {
            let Some(ghost) = paged_ghosts.pop_front() else {
                return;
            };
            let table = &*tables[ghost.table].table;
            let TableStore::Paged(rows) = &table.store else {
                continue;
            };
            let (Some(tree), id) = (rows.tree.get(), table.record.id) else {
                continue;
            };
            let name = Name::key(id, &ghost.key, &engine.hasher);
            let parent = (Name::table(id), None, KEY_AND_GAP.parent_mode());
            let mut is_locked = |request| {
                engine.options.locking == Locking::Off
                    || engine.faults().misbehaves(&injected_fault::PURGE_UNLOCKED)
                    || request_now(engine, worker, owner, request)
            };
            let mode = injected_fault::purge_mode(engine.faults(), KEY_AND_GAP);
            let mut stays = true;
            if is_locked(parent) && is_locked((name, None, mode)) {
                worker.failpoints().pass(&failpoint::PURGE);
                keep_deleted(engine, worker, table, &ghost.key);
                let mut visit = tree.visit(worker);
                stays = match visit.purge(&ghost.key) {
                    Ok(TreeAttempt::Done(PurgeReply::Removed)) => {
                        let counter = Counter::GhostsPurged as usize;
                        engine.counters.add(worker, counter, 1);
                        false
                    }
                    // The last row of a leaf stays for good, and a damaged page is another
                    // operation's error.
                    Ok(TreeAttempt::Done(_)) | Err(_) => false,
                    Ok(TreeAttempt::Wait) => {
                        let need = PageNeed::Pages(visit.detach(tree));
                        drop(pages.waits.submit(worker, need));
                        true
                    }
                };
            }
            if stays {
                if !ghost.is_old {
                    let counter = Counter::GhostsLeft as usize;
                    engine.counters.add(worker, counter, 1);
                }
                paged_ghosts.push_back(PagedGhost {
                    is_old: true,
                    ..ghost
                });
            }
            lock_scope.release(&engine.locks, worker, owner);
        }
    }
}
