//! What a session asks for itself, between its transactions.
//!
//! A request of its own waits as any other. If it is refused, nothing else is: there is no transaction that
//! a deadlock could end, so the session is told, holds what it held, and can let go of some of it.

use std::mem;
use std::sync::Arc;

use foxton_lock::manager::LockManager;
use foxton_lock::name::Name;
use foxton_lock::owner::LockSavepoint;
use foxton_lock::request::OwnerLabel as Label;

use super::attempt::AttemptResult;
use super::explicit_lock::LockRequest;
use super::lock_scope::{Membership, Tenure};
use super::state::State;
use crate::engine::cancel_token::CancelToken;
use crate::engine::session_slot::Berth;
use crate::error::{Conflict, Result};

impl State {
    /// Belongs to a session from now on.
    pub(crate) fn join_session(&mut self, berth: Arc<Berth<State>>) {
        self.tenure = Tenure::Session(Box::new(Membership {
            berth,
            label: Label::default(),
            cancel_token: None,
            held: Vec::new(),
            kept: LockSavepoint::START,
        }));
    }

    fn membership(&mut self) -> &mut Membership<State> {
        match &mut self.tenure {
            Tenure::Session(membership) => membership,
            _ => unreachable!("only a session asks"),
        }
    }

    /// Names the session, and its transactions unless they say otherwise.
    pub(crate) fn label_session(&mut self, label: Label) {
        self.membership().label = label.clone();
        self.owner.set_label(label);
    }

    /// Has `cancel_token` end what the session waits for, and its transactions unless they are given another.
    pub(crate) fn set_session_cancel_token(&mut self, cancel_token: &CancelToken) {
        self.membership().cancel_token = Some(cancel_token.clone());
    }

    /// Begins a transaction, or what a session asks for itself.
    pub(crate) fn begin_in_session(&mut self) {
        let Membership {
            held,
            kept,
            label,
            cancel_token,
            ..
        } = self.membership();
        let (is_free, kept, label) = (held.is_empty(), *kept, label.clone());
        if let Some(cancel_token) = cancel_token.clone() {
            self.set_cancel_token(&cancel_token);
        }
        match is_free {
            true => drop(self.owner.begin()),
            false => self.owner.begin_retaining(kept),
        }
        self.owner.set_label(label);
    }

    /// Begins what a session asks for itself.
    ///
    /// # Errors
    /// That nothing is wanted any more.
    fn begin_asking(&mut self) -> Result<()> {
        self.begin_in_session();
        match self.is_cancelled() {
            true => Err(Conflict::CANCELLED.into()),
            false => Ok(()),
        }
    }

    /// Asks for a number for the session; the thread sleeps until it is had.
    pub(crate) fn lock_for_session(&mut self, request: LockRequest) -> Result<bool> {
        self.begin_asking()?;
        loop {
            match self.lock_step(request) {
                Ok(AttemptResult::Done(had)) => return Ok(self.note_number(request, had)),
                Ok(AttemptResult::Wait) => self
                    .sleep(request.wait)
                    .map_err(|error| error.of_session())?,
                Err(error) => return Err(error.of_session()),
            }
        }
    }

    /// The same, where the task yields. If the future is dropped, the request is withdrawn.
    pub(crate) async fn lock_for_session_async(&mut self, request: LockRequest) -> Result<bool> {
        self.begin_asking()?;
        let waits = self.waiting();
        let state = &mut *waits.0;
        loop {
            match state.lock_step(request) {
                Ok(AttemptResult::Done(had)) => return Ok(state.note_number(request, had)),
                Ok(AttemptResult::Wait) => {
                    let waited = state.yield_once(request.wait).await;
                    waited.map_err(|error| error.of_session())?;
                }
                Err(error) => return Err(error.of_session()),
            }
        }
    }

    fn note_number(&mut self, request: LockRequest, had: bool) -> bool {
        if had {
            let kept = self.owner.retain();
            let membership = self.membership();
            membership.kept = kept;
            let held = &mut membership.held;
            match held.iter_mut().find(|(held, _)| *held == request.number()) {
                Some((_, times)) => *times += 1,
                None => held.push((request.number(), 1)),
            }
        }
        had
    }

    /// Takes back one time that the session locked `number`, and lets go of it at the last. `false` if it was
    /// not locked.
    pub(crate) fn unlock_number(&mut self, number: u64) -> bool {
        let held = &mut self.membership().held;
        let Some(at) = held.iter().position(|(held, _)| *held == number) else {
            return false;
        };
        held[at].1 -= 1;
        if held[at].1 == 0 {
            held.swap_remove(at);
            match held.is_empty() {
                true => self.release_all(), // I2
                false => {
                    let State {
                        engine,
                        worker,
                        owner,
                        ..
                    } = self;
                    engine.locks.release(worker, owner, Name::advisory(number));
                }
            }
        }
        true
    }

    /// Lets go of every number, however often the session locked it, and says which they were.
    pub(crate) fn unlock_numbers(&mut self) -> Vec<u64> {
        let held = mem::take(&mut self.membership().held);
        self.release_all();
        held.into_iter().map(|(number, _)| number).collect()
    }
}
