//! What a transaction has to do with its [canceller](crate::engine::cancel_token).

use super::state::{Phase, State};
use crate::engine::Counter;
use crate::engine::cancel_token::{CANCELLER, CancelToken, Noted, is_not_cancelled};

impl State {
    /// Ends as soon as `cancel_token` says so.
    pub(crate) fn set_cancel_token(&mut self, cancel_token: &CancelToken) {
        if self.phase.is_open() {
            self.cancel_token = Some(cancel_token.clone());
            self.phase = Phase::Watched;
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        !is_not_cancelled(&self.cancel_token)
    }

    /// Has the wait that begins ended if the canceller says so, as long as what is returned is kept.
    pub(super) fn note_wait(&self) -> Option<Noted> {
        let cancel_token = self.cancel_token.as_ref()?;
        let ticket = self.owner.wait_ticket()?;
        // Here, and when the wait is over.
        self.worker.account().passed_many(&CANCELLER, 2);
        Some(cancel_token.note(&self.engine.locks, &self.engine.workers, ticket))
    }

    #[cold]
    pub(super) fn end_as_cancelled(&mut self) {
        self.roll_back();
        self.phase = Phase::Cancelled;
        self.count(Counter::Cancelled);
    }
}
