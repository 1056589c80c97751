//! Taking everything back.
//!
//! Old values go back in the opposite order, under the locks that still protect them. A key that
//! was not there before becomes a ghost, and the ghost is removed if nobody else holds its gap.

use super::changes::GhostIf;
use super::state::State;
use crate::engine::Counter;
use crate::redo::record;
use crate::testing::failpoint;
use crate::testing::injected_fault::Fault;

impl State {
    /// Undoes every change and gives back every lock.
    pub(crate) fn roll_back(&mut self) {
        self.withdraw();
        if let Some(first) = self.changes.first_part {
            // Only to let restart forget the parts early; without it, it forgets them at the end.
            let first = first.bytes().to_le_bytes();
            let _ = self
                .engine
                .log
                .insert(&self.worker, record::ABANDONED, &[&first]);
        }
        if !self.changes.is_empty() {
            self.worker.failpoints().pass(&failpoint::ROLLBACK);
            if self.engine.options.planted().is(Fault::UnlockBeforeUndo) {
                self.release_all();
            }
            // Nothing is for the log, so nothing fails.
            let _ = self.put_back(0, false);
            self.remove_ghosts(GhostIf::RolledBack);
        }
        self.changes.clear();
        self.release_all();
        self.count(Counter::Rollbacks);
    }

    /// Gives back every lock that the transaction took.
    #[inline]
    pub(crate) fn release_all(&mut self) {
        let State {
            engine,
            worker,
            owner,
            tenure,
            ..
        } = self;
        tenure.release(&engine.locks, worker, owner);
    }
}
