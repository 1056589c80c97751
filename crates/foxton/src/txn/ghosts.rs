//! Ghosts: records without a value, and their removal.
//!
//! The transaction that leaves a ghost removes it at its very end. By then its changes are in the
//! log or undone, and its locks are still held. It holds the key exclusively, and requests the gap
//! before the key as well, without waiting.
//!
//! # Why the gap before the ghost, and no other
//!
//! Let `p < k < n` be neighbours and `k` the ghost. Removing it makes the gap `(p, n)`, named `n`.
//!
//! * A transaction that has read over `(p, k)` holds the gap named `k`, and would lose it. So we
//!   must hold the gap exclusively; if we do not get it, the ghost stays.
//! * A transaction that has read over `(k, n)` holds the gap named `n`, which grows. It loses
//!   nothing.
//! * A transaction that has read over `k` itself holds the key, so we would not have it.
//! * A transaction that inserts a key into `(p, k)` holds an intention on the gap named `k`: as in
//!   the first case, we do not get the gap.
//! * A transaction that waits for `k` gets it when we release it. It finds that the record is gone,
//!   and searches again.
//!
//! Ghosts of paged tables are put on a list of their own. They are purged after the locks were
//! released, with locks of their own: see `txn/paged/purge.rs`.
//!
//! A ghost that stays is put on a list. Later writing transactions of the worker try it again at
//! their end. They lock the key for that purpose, without waiting.

use std::collections::VecDeque;
use std::sync::Arc;

use foxton_lock::manager::LockManager;
use foxton_lock::mode::{GapPart, KeyPart, Mode};
use foxton_lock::name::Name;
use foxton_lock::owner::Owner;
use foxton_log::Lsn;
use foxton_store::memory::{Begin, Next, Record};
use foxton_sync::epoch::Guard;
use foxton_sync::worker::Worker;

use super::bound::BoundTxn;
use super::changes::GhostIf;
use super::context::{PagedGhost, WorkerContext};
use super::paged_changes::is_delete;
use super::table_locks::request_now;
use super::txn::Txn;
use crate::catalog::OpenTable;
use crate::catalog::deleted_rows::DeletedRows;
use crate::engine::{Counter, Engine};
use crate::options::Locking;
use crate::testing::{failpoint, injected_fault};

pub(super) const KEY_AND_GAP: Mode = Mode::key(KeyPart::X, GapPart::X);
/// Number of listed ghosts tried at the end of one transaction.
const RETRIES: usize = 4;
/// Maximum number of listed ghosts; further ones stay until the database is opened again.
const REMEMBERED: usize = 4096;

impl BoundTxn {
    /// Removes the ghosts that this transaction leaves, while its locks are still held. Visits at
    /// most so many changes and ghosts, and returns true once it has visited all.
    pub(crate) fn remove_ghosts(&mut self, ended: GhostIf, most: usize) -> bool {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    ghosts,
                    paged_ghosts,
                    commit_slot,
                    ..
                },
            txn: Txn { changes, .. },
            ..
        } = self;
        let own = commit_slot.number();
        let (first, resident) = (changes.swept, changes.undo.len());
        let count = resident + changes.paged.recent_count();
        let end = count.min(first.saturating_add(most));
        let mut remove_one = |index: usize, key: &[u8]| {
            if engine.faults().misbehaves(&injected_fault::GHOSTS_LEFT) {
                return;
            }
            let table = &*tables[index].table;
            let rows = table.resident();
            // It may have a value again, or be gone already. No other transaction changes that.
            let guard = worker.pin();
            let record = rows.get(&guard, key);
            let Some(ghost) = record.filter(|record| record.is_ghost()) else {
                return;
            };
            let name = Name::key(table.record.id, key, &engine.hasher);
            let gap_is_ours = engine.options.locking == Locking::Off || {
                let request = (name, Some(ghost.anchor()), KEY_AND_GAP);
                request_now(engine, worker, owner, request)
            };
            if gap_is_ours && unanchor(engine, worker, owner, name) {
                remove(engine, worker, &tables[index].table, own, (&guard, ghost));
            } else if ghosts.len() < REMEMBERED {
                ghosts.push_back((index, key.into()));
                engine.counters.add(worker, Counter::GhostsLeft as usize, 1);
            }
        };
        for undo in &changes.undo[first.min(resident)..end.min(resident)] {
            if undo.ghost_if == ended {
                remove_one(undo.table, changes.key(undo));
            }
        }
        // A rollback has listed those that it leaves.
        let paged = first.saturating_sub(resident)..end.saturating_sub(resident);
        for (table, undo) in changes.paged.recent_in(paged) {
            if ended == GhostIf::Committed && is_delete(undo.before) {
                list_paged_ghost(paged_ghosts, table, undo.key);
            }
        }
        changes.swept = end;
        let mut rest = most - (end - first);
        while rest > 0
            && let Some((index, key)) = changes.left.pop_first()
        {
            remove_one(index, &key);
            rest -= 1;
        }
        end == count && changes.left.is_empty()
    }

    /// Tries to remove some listed ghosts, after the locks of the transaction were released.
    pub(crate) fn retry_ghosts(&mut self) {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    ghosts,
                    commit_slot,
                    ..
                },
            txn: Txn { lock_scope, .. },
            ..
        } = self;
        let own = commit_slot.number();
        for _ in 0..RETRIES.min(ghosts.len()) {
            // From the front, so that a ghost that stays does not block the others.
            let Some((index, key)) = ghosts.pop_front() else {
                return;
            };
            let table = &*tables[index].table;
            let id = table.record.id;
            let name = Name::key(id, &key, &engine.hasher);
            let guard = worker.pin();
            let Some(record) = table.resident().get(&guard, &key) else {
                continue; // Another transaction has removed it.
            };
            let parent = (Name::table(id), None, KEY_AND_GAP.parent_mode());
            let request = (name, Some(record.anchor()), KEY_AND_GAP);
            let mut is_locked = |request| request_now(engine, worker, owner, request);
            if is_locked(parent) && is_locked(request) && unanchor(engine, worker, owner, name) {
                remove(engine, worker, &tables[index].table, own, (&guard, record));
            } else {
                ghosts.push_back((index, key));
            }
            drop(guard);
            lock_scope.release(&engine.locks, worker, owner);
        }
    }
}

/// Lists a ghost of a paged table for a purge, which finds out if it is one.
pub(super) fn list_paged_ghost(ghosts: &mut VecDeque<PagedGhost>, table: usize, key: &[u8]) {
    if ghosts.len() < REMEMBERED {
        ghosts.push_back(PagedGhost {
            table,
            key: key.into(),
            is_old: false,
        });
    }
}

/// Moves the lock on `name` away from the anchor of its record, which is about to be removed.
/// Returns false if the record has to stay.
fn unanchor(engine: &Engine, worker: &Worker, owner: &mut Owner, name: Name) -> bool {
    worker.failpoints().misbehaves(&injected_fault::ANCHOR_KEPT)
        || engine.locks.unanchor(worker, owner, name)
}

/// Copies the versions of a record that is about to be removed to the deleted rows, where readers
/// at snapshots search last. If the version is gone that the deletion ended, an empty one tells
/// writers of the deletion. The context with the commit slot `own` leaves it to be collected.
#[cold]
fn keep_deleted(
    engine: &Engine,
    worker: &Worker,
    table: &Arc<OpenTable>,
    own: u32,
    (guard, record): (&Guard<'_>, &Record),
) {
    let deleted = table
        .deleted
        .get_or_init(|| DeletedRows::new(worker.workers().domain()));
    let slots = &engine.snapshots.slots;
    let lsn = |begin: Begin| begin.committed().map_or(Lsn::ZERO, |(lsn, _)| lsn);
    // Where the record lost its value, if a commit stamped that.
    let mut deletion = None;
    let mut versions: Vec<(Lsn, Lsn, Vec<u8>)> = Vec::new();
    let keeps_walk = engine.faults().misbehaves(&injected_fault::WALK_KEPT);
    record.visit_versions(guard, slots, |begin, end, value| {
        let Some(end) = end else {
            // The newest. If versions are pruned meanwhile, the walk begins again, and those that
            // are left may reach to where one ended that is gone.
            deletion = Some(lsn(begin)).filter(|&lsn| lsn > Lsn::ZERO && value.is_none());
            if !keeps_walk {
                versions.clear();
            }
            return;
        };
        if let Some(value) = value {
            versions.push((lsn(begin), end, value.to_vec()));
            worker.failpoints().pass(&failpoint::COPYING);
        }
    });
    for (begin, end, value) in &versions {
        deletion = deletion.filter(|deletion| deletion != end);
        deleted.insert(guard, record.key(), (*begin, *end), value);
    }
    let is_forgotten = engine
        .faults()
        .misbehaves(&injected_fault::DELETION_FORGOTTEN);
    if let Some(deletion) = deletion.filter(|_| !is_forgotten) {
        deleted.insert(guard, record.key(), (deletion, deletion), &[]);
        engine.snapshots.leave(own, |left| {
            left.push(table, record.key(), (deletion, 0));
        });
    }
}

/// Removes `record` from its table, if it is a ghost. The caller holds the key and its gap
/// exclusively, and not by the record's anchor.
fn remove(
    engine: &Engine,
    worker: &Worker,
    table: &Arc<OpenTable>,
    own: Option<u32>,
    (guard, record): (&Guard<'_>, &Record),
) {
    worker.failpoints().pass(&failpoint::PURGE);
    if let Some(own) = own.filter(|_| engine.snapshots.keeps()) {
        keep_deleted(engine, worker, table, own, (guard, record));
    }
    if record.is_linked()
        && record.is_ghost()
        && table.resident().remove(guard, record, Next::Any).is_ok()
    {
        engine
            .counters
            .add(worker, Counter::GhostsPurged as usize, 1);
    }
}
