//! Rollback of a transaction.
//!
//! Old values are put back in the opposite order of the changes, under the locks that still protect
//! them. A key that was not there before becomes a ghost. The ghost is removed unless another
//! transaction holds its gap.

use super::bound::BoundTxn;
use super::changes::GhostIf;
use crate::engine::Counter;
use crate::testing::failpoint;
use crate::testing::injected_fault;

impl BoundTxn {
    /// Undoes every change and releases every lock.
    pub(crate) fn roll_back(&mut self) {
        self.withdraw();
        self.log_abandoned();
        if !self.txn.changes.is_empty() {
            self.ctx.worker.failpoints().pass(&failpoint::ROLLBACK);
            let faults = self.ctx.engine.faults();
            if faults.misbehaves(&injected_fault::UNLOCK_BEFORE_UNDO) {
                self.release_all();
            }
            // It logs nothing, so nothing fails.
            let _ = self.undo_since(0, false);
            self.remove_ghosts(GhostIf::RolledBack);
        }
        self.txn.changes.clear();
        self.release_all();
        self.ctx.count(Counter::Rollbacks);
    }

    /// Rolls back a transaction that is still open, and returns it to the pool.
    pub(crate) fn abandon(mut bound: Box<BoundTxn>) {
        if bound.txn.phase.is_open() {
            bound.roll_back();
        }
        BoundTxn::recycle(bound);
    }
}
