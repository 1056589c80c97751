//! End of a transaction: its locks are released, and its context returns to the pool.
//!
//! *The* place where the locks of a commit or a rollback are released. A committed transaction
//! first removes its ghosts, because their removal needs the locks; it retires old values
//! afterwards, because that may take long.

use std::ops::Range;

use foxton_sync::admission::SLOTS;
use foxton_sync::shim;

use super::begin::ALONE;
use super::bound::BoundTxn;
use super::changes::GhostIf;
use super::context::WorkerContext;
use super::lock_scope::LockScope;
use super::txn::{Phase, Txn};
use super::work_budget::UNITS;
use crate::engine::Counter;
use crate::engine::context_pool;
use crate::engine::page_store::OpenPages;
use crate::engine::slot::SESSION_SLOT;
use crate::testing::{failpoint, injected_fault};

impl BoundTxn {
    /// Ends a transaction whose changes stay, unless that was done early: removes ghosts, then
    /// releases locks.
    pub(super) fn finish(&mut self) {
        if self.txn.phase == Phase::Released {
            return;
        }
        let read_only = self.txn.changes.is_empty();
        let faults = self.ctx.worker.failpoints();
        if faults.misbehaves(&injected_fault::STAMPED_LATE) {
            self.release_all();
            self.ctx.worker.failpoints().pass(&failpoint::RELEASED);
        }
        if !read_only {
            self.end_versions();
            self.remove_ghosts(GhostIf::Committed, usize::MAX);
        }
        self.release_all();
        if !read_only {
            // After the locks, because this worker may free what all others have retired.
            self.retire_old_values(0..self.txn.changes.undo.len());
        }
        self.finished(read_only);
    }

    /// As [`finish`](Self::finish); the task yields in between. If the future is dropped, `finish`
    /// does the rest.
    pub(super) async fn finish_async(&mut self) {
        let count = self.txn.changes.count();
        if count <= UNITS {
            self.ctx.budget.charge(count);
            return self.finish();
        }
        if self.txn.phase == Phase::Released {
            return;
        }
        self.end_versions();
        while !self.remove_ghosts(GhostIf::Committed, UNITS) {
            self.pause().await;
            if self.process.is_inherited() {
                return; // The rest is the parent's.
            }
        }
        self.release_all();
        let count = self.txn.changes.undo.len();
        for first in (0..count).step_by(UNITS) {
            self.pause().await;
            if self.process.is_inherited() {
                return;
            }
            self.retire_old_values(first..count.min(first + UNITS));
        }
        self.finished(false);
        self.ctx.budget.charge(UNITS);
    }

    /// Ends a transaction that holds no locks any more.
    fn finished(&mut self, read_only: bool) {
        if !read_only && !self.ctx.ghosts.is_empty() {
            self.retry_ghosts();
        }
        if !read_only && !self.ctx.paged_ghosts.is_empty() {
            self.purge_some();
        }
        if !read_only {
            self.ctx.record_growth(self.txn.changes.growth());
            self.ctx.record_counted(self.txn.changes.counted);
        }
        self.txn.changes.clear();
        self.collect_versions();
        let counter = if read_only {
            Counter::ReadOnlyCommits
        } else {
            Counter::Commits
        };
        self.ctx.count(counter);
    }

    /// Releases every lock of the transaction.
    #[inline]
    pub(super) fn release_all(&mut self) {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    ..
                },
            txn: Txn { lock_scope, .. },
            ..
        } = self;
        lock_scope.release(&engine.locks, worker, owner);
    }

    fn retire_old_values(&mut self, changes: Range<usize>) {
        for undo in &mut self.txn.changes.undo[changes] {
            if let Some(old) = undo.old.take() {
                old.retire(self.ctx.worker.participant());
            }
        }
    }

    /// Returns a transaction without changes and locks to the pool, or to its session.
    pub(crate) fn recycle(mut bound: Box<BoundTxn>) {
        if !bound.txn.marked_values.is_empty() {
            bound.hand_over_marked();
        }
        bound.end_view();
        let BoundTxn { ctx, txn, .. } = &mut *bound;
        // A change was about to be made, and was not.
        if txn.page_transaction.only_keeps_space()
            && let Some(recovery) = ctx.engine.pages().and_then(OpenPages::recovery)
        {
            recovery.release_undo_space(&ctx.worker, &mut txn.page_transaction);
        }
        txn.reset(&ctx.engine.options);
        ctx.free_slot();
        ctx.shrink();
        ctx.budget.set_of_task(false);
        let Some(bound) = BoundTxn::for_pool(bound) else {
            return;
        };
        // The one way to the pool, so every end of a transaction pays for it. A closed pool gives
        // the box back, and it is freed.
        drop(context_pool::put(
            bound,
            |bound| &bound.cell,
            |bound, site| bound.ctx.worker.account().passed(site),
        ));
    }

    /// Returns the box if it goes to the pool; one of a session goes to its slot.
    #[inline(always)]
    fn for_pool(bound: Box<BoundTxn>) -> Option<Box<BoundTxn>> {
        match bound.txn.lock_scope {
            LockScope::Transaction => Some(bound),
            LockScope::Unlocked => {
                bound.ctx.worker.account().passed(&ALONE);
                *shim::lock(&bound.ctx.engine.open) = false;
                Some(bound)
            }
            LockScope::Session(_) => {
                BoundTxn::return_to_session(bound);
                None
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn return_to_session(mut bound: Box<BoundTxn>) {
        let BoundTxn {
            ctx,
            txn: Txn { lock_scope, .. },
            session_slot: Some(slot),
            ..
        } = &mut *bound
        else {
            return;
        };
        if let LockScope::Session(session) = lock_scope {
            ctx.owner.set_label(session.label.clone());
        }
        ctx.worker.account().passed(&SESSION_SLOT);
        let slot = slot.clone();
        if let Some(bound) = slot.put(bound, None) {
            BoundTxn::leave_session(bound);
        }
    }

    /// Releases everything that the session holds, and returns the box to the pool.
    #[cold]
    pub(crate) fn leave_session(mut bound: Box<BoundTxn>) {
        bound.withdraw();
        bound.txn.lock_scope = LockScope::Transaction;
        bound.session_slot = None;
        bound.release_all();
        BoundTxn::recycle(bound);
    }
}

impl WorkerContext {
    /// Frees the admission slot, once the transaction has no locks any more.
    #[inline]
    pub(super) fn free_slot(&mut self) {
        self.needs_slot = false;
        if let Some(admission) = &self.engine.admission
            && admission.release(&mut self.slot_claim)
        {
            self.worker.account().passed(&SLOTS);
        }
    }
}
