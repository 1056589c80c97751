//! What a transaction has to do with its [canceller](crate::engine::cancel_token).

use super::state::{Phase, State};
use crate::engine::Count;
use crate::engine::cancel_token::{CANCELLER, Canceller, Noted, is_wanted};

impl State {
    /// Ends as soon as `canceller` says so.
    pub(crate) fn be_cancelled_by(&mut self, canceller: &Canceller) {
        if self.phase.is_open() {
            self.canceller = Some(canceller.clone());
            self.phase = Phase::Watched;
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        !is_wanted(&self.canceller)
    }

    /// Has the wait that begins ended if the canceller says so, as long as what is returned is kept.
    pub(super) fn note_wait(&self) -> Option<Noted> {
        let canceller = self.canceller.as_ref()?;
        let ticket = self.owner.wait_ticket()?;
        // Here, and when the wait is over.
        self.worker.account().passed_many(&CANCELLER, 2);
        Some(canceller.note(&self.engine.locks, &self.engine.workers, ticket))
    }

    #[cold]
    pub(super) fn end_as_cancelled(&mut self) {
        self.undo_all();
        self.phase = Phase::Cancelled;
        self.count(Count::Cancelled);
    }
}
