//! Versions of a transaction at its end. They are stamped, and what they replaced is kept or
//! retired.
//!
//! See [`snapshots`](crate::engine::snapshots) for what is kept, and for how long.

use super::bound::BoundTxn;
use super::context::WorkerContext;
use super::txn::Txn;

impl BoundTxn {
    /// Stamps the versions of a transaction that has its commit LSN, and leaves what they replaced
    /// to be collected, if a snapshot may need it. Ends the transaction for readers at snapshots.
    /// The locks are still held.
    #[inline]
    pub(super) fn end_versions(&mut self) {
        if !self.txn.changes.undo.is_empty() && self.ctx.engine.snapshots.keeps() {
            self.keep_versions();
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
        let guard = worker.pin();
        let mut left = Vec::new();
        let old: Vec<_> = changes
            .undo
            .iter_mut()
            .map(|undo| undo.old.take())
            .collect();
        for (undo, old) in changes.undo.iter().zip(old) {
            let table = &tables[undo.table].table;
            let key = changes.key(undo);
            match table.resident().get(&guard, key) {
                Some(record) => {
                    let slots = &engine.snapshots.slots;
                    if let Some(kept) = record.settle(old, slots, own, stamp, &guard) {
                        left.push((table, key, kept));
                    }
                }
                // With an injected fault it may be gone.
                None => old
                    .into_iter()
                    .for_each(|old| old.retire(worker.participant())),
            }
        }
        engine.snapshots.leave(own.number(), left);
        commit_slot.has_left = true;
    }

    /// Collects what earlier commits have left, if that is much. The locks are released.
    #[inline]
    pub(super) fn collect_versions(&mut self) {
        if !std::mem::take(&mut self.ctx.commit_slot.has_left) {
            return;
        }
        if let Some(own) = &self.ctx.commit_slot.own {
            let engine = &self.ctx.engine;
            let front = || engine.persistence.front();
            engine
                .snapshots
                .collect_own(&self.ctx.worker, own.number(), front);
        }
    }
}
