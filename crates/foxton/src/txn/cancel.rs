//! Cancellation of a transaction by its [token](crate::engine::cancel_token).

use super::bound::BoundTxn;
use super::txn::Phase;
use crate::engine::Counter;
use crate::engine::cancel_token::{CANCEL_TOKEN, WaitRecord};

impl BoundTxn {
    /// Makes the cancel token end the wait that begins, until the returned record is dropped.
    pub(super) fn record_wait(&self) -> Option<WaitRecord> {
        let cancel_token = self.txn.cancel_token.as_ref()?;
        let ticket = self.ctx.owner.wait_ticket()?;
        // Once now, and once when the record is dropped.
        self.ctx.worker.account().passed_many(&CANCEL_TOKEN, 2);
        Some(cancel_token.record_wait(&self.ctx.engine.locks, &self.ctx.engine.workers, ticket))
    }

    #[cold]
    pub(super) fn end_as_cancelled(&mut self) {
        self.end_by(Phase::Cancelled);
        self.ctx.count(Counter::Cancelled);
    }
}
