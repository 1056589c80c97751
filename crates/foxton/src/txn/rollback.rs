//! Rollback of a transaction.
//!
//! Old values are put back in the opposite order of the changes, under the locks that still protect
//! them. A key that was not there before becomes a ghost. The ghost is removed unless another
//! transaction holds its gap.
//!
//! A thread does all of it at once. A task does it in steps and yields in between: what is left is
//! *pending*, and says how far it has come. If the task is dropped meanwhile, the transaction keeps
//! it. If a task drops a transaction that is large, or whose pages are not in memory, the
//! background thread rolls it back, because dropping cannot yield.
//!
//! Changes of paged tables are undone first, because their undo may have to wait: for a page, or
//! for undo that the transaction has [forgotten](super::paged_changes) and reads from the log.

use std::mem;

use super::bound::BoundTxn;
use super::changes::{ChangeCounts, GhostIf};
use super::lock_scope::LockScope;
use super::txn::{PendingUndo, Phase};
use super::work_budget::UNITS;
use crate::engine::{Counter, background};
use crate::error::Result;
use crate::testing::failpoint;
use crate::testing::injected_fault;

impl BoundTxn {
    /// Undoes every change and releases every lock.
    pub(crate) fn roll_back(&mut self) {
        self.begin_rollback();
        while !self.roll_back_some(usize::MAX) {
            self.sleep_for_undo();
        }
    }

    /// Rolls back and refuses further operations. Of a transaction of a task that is large, or
    /// whose pages are not in memory, the driver of the operation does the rest: see
    /// [`settle`](Self::settle).
    pub(super) fn end_by(&mut self, phase: Phase) {
        match self.ctx.budget.is_of_task() {
            true => _ = self.roll_back_at_once(),
            false => self.roll_back(),
        }
        self.txn.phase = phase;
    }

    /// Begins to roll back a transaction of a task, and completes that unless it would hold an
    /// executor for long or has to wait for pages. Returns true if it is complete.
    fn roll_back_at_once(&mut self) -> bool {
        let is_large = self.txn.changes.count() > UNITS;
        self.begin_rollback();
        !is_large && self.roll_back_some(usize::MAX)
    }

    /// Begins to roll back, which is pending from then on.
    fn begin_rollback(&mut self) {
        self.withdraw();
        self.log_abandoned();
        if !self.txn.changes.is_empty() {
            self.ctx.worker.failpoints().pass(&failpoint::ROLLBACK);
            let faults = self.ctx.engine.faults();
            if faults.misbehaves(&injected_fault::UNLOCK_BEFORE_UNDO) {
                self.release_all();
            }
            // Of a savepoint: what is undone stays undone, and nothing is recorded as a ghost yet
            // that will not be visited again.
            self.txn.changes.swept = 0;
        }
        self.txn.pending = PendingUndo::Rollback;
    }

    /// Visits at most so many changes of a pending rollback; returns true at its end.
    fn roll_back_some(&mut self, most: usize) -> bool {
        let (from, mut left) = (ChangeCounts::default(), most);
        // It logs nothing of tables in memory, so nothing fails.
        let _ = self.undo_since(from, false, &mut left);
        if !self.txn.changes.is_undone(from) || !self.remove_ghosts(GhostIf::RolledBack, left) {
            return false;
        }
        // First what it took, and then what is free again.
        let growth = self.txn.changes.growth();
        self.ctx.record_growth(growth);
        self.ctx.record_growth(-growth);
        self.txn.changes.clear();
        self.end_page_transaction();
        self.txn.pending = PendingUndo::Nothing;
        // A panic may have left the commit without its place, and readers that wait for it.
        self.ctx.commit_slot.stop_commit();
        self.take_versions_back();
        self.ctx.commit_slot.end(&self.ctx.worker);
        self.release_all();
        self.purge_some();
        self.ctx.count(Counter::Rollbacks);
        true
    }

    /// Completes the undo that is pending; the task yields in between.
    ///
    /// # Errors
    /// A storage error, if the log has failed, or in a forked child.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        let (from, logs) = match self.txn.pending {
            PendingUndo::Nothing => return Ok(()),
            PendingUndo::Savepoint { from, log } => (from, log),
            PendingUndo::Rollback => (ChangeCounts::default(), false),
        };
        self.check_process()?;
        let count = self.txn.changes.count().saturating_sub(from.total());
        while !self.settle_some(UNITS) {
            self.yield_for_undo().await;
            self.check_process()?;
        }
        self.ctx.budget.charge(count);
        match logs {
            true => self.ctx.engine.check(),
            false => Ok(()),
        }
        .and(self.check_pages())
    }

    /// Visits at most so many changes of the undo that is pending; returns true at its end.
    pub(super) fn settle_some(&mut self, most: usize) -> bool {
        match self.txn.pending {
            PendingUndo::Nothing => true,
            // A log that fails is known to the engine.
            PendingUndo::Savepoint { from, log } => {
                matches!(self.roll_back_to_some(from, log, most), Ok(true) | Err(_))
            }
            PendingUndo::Rollback => self.roll_back_some(most),
        }
    }

    /// Rolls back a transaction that is still open, and returns it to the pool. The background
    /// thread does that for a large transaction of a task.
    pub(crate) fn abandon(mut bound: Box<BoundTxn>) {
        if bound.process.is_inherited() {
            mem::forget(bound); // All of it is the parent's.
            return;
        }
        if bound.txn.phase.is_open() || bound.txn.pending != PendingUndo::Nothing {
            // A session, and a database without locking, would be busy meanwhile.
            let may_last = matches!(bound.txn.lock_scope, LockScope::Transaction);
            if may_last && bound.ctx.budget.is_of_task() {
                if bound.roll_back_at_once() {
                    return BoundTxn::recycle(bound);
                }
                bound.ctx.worker.account().passed(&background::TASK_QUEUE);
                // Dropped at the end. If it is the last share, this thread then waits for the job.
                let open = bound.open.take().expect("a program had the transaction");
                open.engine().background.submit(Box::new(move || {
                    bound.roll_back();
                    BoundTxn::recycle(bound);
                }));
                return;
            }
            bound.roll_back();
        }
        BoundTxn::recycle(bound);
    }
}

/// Rolls back; the task yields in between. If the future is dropped, the rest is done as if the
/// transaction had been dropped.
pub(crate) async fn roll_back(bound: Box<BoundTxn>) {
    let mut task = RollbackTask(Some(bound));
    let bound = task.0.as_mut().expect("taken only when dropped");
    if bound.txn.phase.is_open() && !bound.process.is_inherited() {
        bound.end_by(Phase::Ended);
    }
    // A rollback writes to the log only what restart can do without.
    let _ = bound.settle().await;
}

/// A rollback of a task. When it is dropped, the transaction returns to the pool.
struct RollbackTask(Option<Box<BoundTxn>>);

impl Drop for RollbackTask {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(BoundTxn::abandon);
    }
}
