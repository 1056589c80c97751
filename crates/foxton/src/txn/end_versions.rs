//! Versions of a transaction at its end. They are stamped, and what they replaced is kept or
//! retired.
//!
//! See [`snapshots`](crate::engine::snapshots) for what is kept, and for how long.

use std::mem;
use std::sync::Arc;

use foxton_store::memory::Begin;
use foxton_store::paged::row_versions::ROW_VERSIONS;
use foxton_sync::worker::Worker;

use super::bound::BoundTxn;
use super::context::WorkerContext;
use super::paged::examine_marked;
use super::txn::Txn;
use crate::engine::Engine;
use crate::engine::page_store::OpenPages;
use crate::testing::injected_fault;

impl BoundTxn {
    /// Stamps the versions of a transaction that has its commit LSN, and leaves what they replaced
    /// to be collected, if a snapshot may need it. Ends the transaction for readers at snapshots.
    /// The locks are still held.
    #[inline]
    pub(super) fn end_versions(&mut self) {
        if self.txn.has_versions() {
            let keeps = self.ctx.commit_slot.keeps(&self.ctx.worker);
            if keeps && !self.txn.changes.undo.is_empty() {
                self.keep_versions();
            }
            if !self.txn.row_versions.is_empty() {
                self.end_row_versions(keeps);
            }
        }
        self.ctx.commit_slot.end(&self.ctx.worker);
    }

    #[cold]
    fn keep_versions(&mut self) {
        let WorkerContext {
            engine,
            worker,
            tables,
            commit_slot,
            hint,
            ..
        } = &mut self.ctx;
        let Txn {
            changes,
            commit_lsn,
            durability,
            ..
        } = &mut self.txn;
        let Some(own) = &commit_slot.own else {
            return;
        };
        let stamp = commit_slot.stamp(*commit_lsn, *durability);
        let (guard, slots) = (worker.pin(), &engine.snapshots.slots);
        let is_unstamped = engine.faults().misbehaves(&injected_fault::ENTRY_UNSTAMPED);
        let has_left_much = engine.snapshots.leave(own.number(), |left| {
            for number in 0..changes.undo.len() {
                let table = &tables[changes.undo[number].table].table;
                if is_unstamped && table.of.is_some() {
                    continue; // It is retired with the transaction.
                }
                let old = changes.undo[number].old.take();
                let (rows, key) = (table.resident(), changes.key(&changes.undo[number]));
                // Mostly the last row that the transaction has searched for.
                let located = rows.locate_again(&guard, key, hint);
                match located.record(rows, &guard, key) {
                    Some(record) => {
                        if let Some(kept) = record.settle(old, slots, own, stamp, &guard) {
                            left.push(table, key, kept);
                        }
                    }
                    // With an injected fault it may be gone.
                    None => old
                        .into_iter()
                        .for_each(|old| old.retire(worker.participant())),
                }
            }
        });
        commit_slot.has_left_much |= has_left_much;
    }

    /// As [`end_versions`](Self::end_versions), of rows of paged tables.
    fn end_row_versions(&mut self, keeps: bool) {
        let WorkerContext {
            engine,
            worker,
            tables,
            commit_slot,
            ..
        } = &mut self.ctx;
        let Txn {
            row_versions,
            commit_lsn,
            durability,
            ..
        } = &mut self.txn;
        let (Some(own), Some(begin)) = (&commit_slot.own, commit_slot.begin()) else {
            return;
        };
        let snapshots = &engine.snapshots;
        worker.account().passed(&ROW_VERSIONS);
        if !keeps {
            snapshots
                .rows
                .commit(row_versions, begin, None, |_, _, _| {});
            return;
        }
        let (lsn, promise) = commit_slot.stamp(*commit_lsn, *durability);
        let stamp = Some(Begin::at(lsn, promise));
        let has_left_much = snapshots.leave(own.number(), |left| {
            snapshots
                .rows
                .commit(row_versions, begin, stamp, |table, key, version| {
                    left.push(&tables[table].table, key, version);
                });
        });
        commit_slot.has_left_much |= has_left_much;
    }

    /// Takes back the versions of rows of paged tables, once their changes are undone. The locks
    /// are still held.
    #[inline]
    pub(super) fn take_versions_back(&mut self) {
        if self.txn.row_versions.is_empty() {
            return;
        }
        let WorkerContext {
            engine,
            worker,
            commit_slot,
            ..
        } = &self.ctx;
        let (rows, owned) = (&engine.snapshots.rows, &mut self.txn.row_versions);
        worker.account().passed(&ROW_VERSIONS);
        match commit_slot.begin() {
            Some(own) if !engine.pages().is_some_and(OpenPages::has_failed) => {
                rows.roll_back(owned, own);
            }
            // The pages may have the changes still.
            _ => rows.abandon(owned),
        }
    }

    /// Collects what earlier commits have left, if that is much. The locks are released.
    #[inline]
    pub(super) fn collect_versions(&mut self) {
        if !mem::take(&mut self.ctx.commit_slot.has_left_much) {
            return;
        }
        if let Some(own) = &self.ctx.commit_slot.own {
            let engine = &self.ctx.engine;
            let front = || engine.persistence.front();
            engine
                .snapshots
                .collect_own(&self.ctx.worker, own.number(), front);
            examine_released(engine, &self.ctx.worker);
        }
    }
}

/// Examines large values that a version had which is gone.
pub(super) fn examine_released(engine: &Arc<Engine>, worker: &Worker) {
    let released = engine.snapshots.take_released();
    if !released.is_empty() {
        examine_marked(engine, worker, released);
    }
}
