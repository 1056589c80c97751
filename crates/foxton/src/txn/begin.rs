//! From the rack and back into it.

use std::mem;
use std::sync::Arc;

use foxton_sync::admission::SLOTS;
use foxton_sync::shim;
use foxton_sync::site::{Component, Pattern, Site};

use super::lock_scope::Tenure;
use super::state::{Phase, State};
use crate::engine::Engine;
use crate::engine::context_pool::{self, Rack};
use crate::engine::session_slot::BERTH;
use crate::error::{Request, Result};
use crate::options::Locking;

/// With locking off: whether another transaction is open.
static ALONE: Site = Site::new(Component::Transaction, Pattern::Unbounded, "locking off");

/// The list of places where transactions may be idle: each worker's once.
static IDLERS: Site = Site::new(Component::Transaction, Pattern::Unbounded, "idle places");

impl State {
    /// What a new transaction works with.
    pub(crate) fn acquire(engine: &Arc<Engine>, rack: &Rack<State>) -> Result<Box<State>> {
        engine.check()?;
        if engine.options.locking == Locking::Off {
            // A mutex, so that a transaction sees all that the one before it did.
            if mem::replace(&mut *shim::lock(&engine.open), true) {
                return Err(Request::OneAtATime.into());
            }
        }
        let mut state = match rack.take() {
            Ok((state, site)) => {
                state.worker.account().passed(site);
                state
            }
            Err(home) => {
                let state = Box::new(State::new(engine.clone(), home));
                state.worker.account().passed(&context_pool::OVERFLOW);
                if let Some(rest) = &state.rest {
                    state.worker.account().passed(&IDLERS);
                    engine.idlers.note(rest);
                }
                state
            }
        };
        if engine.options.locking == Locking::Off {
            state.worker.account().passed(&ALONE);
        }
        state.owner.begin();
        Ok(state)
    }

    /// Waits for a seat, where there are seats. It holds nothing yet.
    #[inline]
    pub(crate) fn enter(&mut self) {
        if let Some(admission) = &self.engine.admission {
            let passed = admission.acquire(&mut self.claim);
            self.worker.account().passed_many(&SLOTS, passed);
        }
    }

    /// Counts among the commits by which seats are judged.
    #[inline]
    pub(super) fn note_commit(&mut self) {
        if let Some(admission) = &self.engine.admission {
            let passed = admission.record_commit(&mut self.claim);
            self.worker.account().passed_many(&SLOTS, passed);
        }
    }

    /// Gives its seat to others: it has no locks any more.
    #[inline]
    pub(super) fn leave(&mut self) {
        if let Some(admission) = &self.engine.admission
            && admission.release(&mut self.claim)
        {
            self.worker.account().passed(&SLOTS);
        }
    }

    /// Ends a transaction that has neither changes nor locks any more.
    pub(crate) fn recycle(mut state: Box<State>) {
        if state.phase != Phase::Active {
            state.phase = Phase::Active;
            state.ended_by = None;
            state.cancel_token = None;
        }
        state.durability = state.engine.options.durability;
        state.isolation = state.engine.options.isolation;
        state.write_credit.done();
        state.leave();
        state.marks.forget();
        state.dependencies.forget();
        state.scan.dependencies.forget();
        state.shrink();
        let Some(state) = State::for_pool(state) else {
            return;
        };
        // The one way to the rack, and so a part of what every transaction ends with. A closed rack gives
        // it back, and it goes.
        drop(context_pool::put(
            state,
            |state| &state.home,
            |state, site| state.worker.account().passed(site),
        ));
    }

    /// What goes to the rack, if it does not go back to its session.
    #[inline(always)]
    fn for_pool(state: Box<State>) -> Option<Box<State>> {
        match state.tenure {
            Tenure::Usual => Some(state),
            Tenure::Alone => {
                state.worker.account().passed(&ALONE);
                *shim::lock(&state.engine.open) = false;
                Some(state)
            }
            Tenure::Session(_) => {
                State::back_to_session(state);
                None
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn back_to_session(mut state: Box<State>) {
        let Tenure::Session(membership) = &state.tenure else {
            return;
        };
        let (berth, label) = (membership.berth.clone(), membership.label.clone());
        state.owner.set_label(label);
        state.worker.account().passed(&BERTH);
        if let Some(state) = berth.put(state) {
            State::leave_session(state);
        }
    }

    /// Gives back everything that the session holds, and belongs to nobody.
    #[cold]
    pub(crate) fn leave_session(mut state: Box<State>) {
        state.withdraw();
        state.tenure = Tenure::Usual;
        state.release_all();
        State::recycle(state);
    }

    /// Rolls back what has not ended, and ends it.
    pub(crate) fn abandon(mut state: Box<State>) {
        if state.phase.is_open() {
            state.roll_back();
        }
        State::recycle(state);
    }
}
