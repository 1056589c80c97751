//! Locks of a session, which it requests and releases between its transactions.
//!
//! Such a request waits as any other. If it is refused, the session keeps the locks that it held:
//! there is no transaction that a deadlock could end. The session can then release some of them.

use std::mem;
use std::sync::Arc;

use foxton_lock::manager::LockManager;
use foxton_lock::name::Name;
use foxton_lock::request::OwnerLabel;

use super::attempt::AttemptResult;
use super::bound::BoundTxn;
use super::context::WorkerContext;
use super::explicit_lock::LockRequest;
use super::lock_scope::{LockScope, SessionLocks};
use super::txn::Txn;
use crate::engine::cancel_token::CancelToken;
use crate::engine::slot::BoxSlot;
use crate::error::{Conflict, Result};

impl Txn {
    fn session_locks(&mut self) -> &mut SessionLocks {
        match &mut self.lock_scope {
            LockScope::Session(session) => session,
            _ => unreachable!("only sessions call this"),
        }
    }

    /// Makes `cancel_token` able to end waits of the session, and its transactions unless they are
    /// given another token.
    pub(crate) fn set_session_cancel_token(&mut self, cancel_token: &CancelToken) {
        self.session_locks().cancel_token = Some(cancel_token.clone());
    }
}

impl BoundTxn {
    /// Makes it belong to a session, which has `slot`.
    pub(crate) fn join_session(&mut self, slot: Arc<BoxSlot<BoundTxn>>) {
        self.txn.lock_scope = LockScope::Session(Box::new(SessionLocks::new()));
        self.session_slot = Some(slot);
    }

    /// Names the session, and its transactions unless they have names of their own.
    pub(crate) fn label_session(&mut self, label: OwnerLabel) {
        self.txn.session_locks().label = label.clone();
        self.ctx.owner.set_label(label);
    }

    /// Begins a transaction, or a lock request of the session itself.
    pub(crate) fn begin_in_session(&mut self) {
        self.ctx.forget_dropped();
        let session = self.txn.session_locks();
        let (is_free, kept) = (session.held.is_empty(), session.kept);
        let label = session.label.clone();
        if let Some(cancel_token) = session.cancel_token.clone() {
            self.txn.set_cancel_token(&cancel_token);
        }
        match is_free {
            true => drop(self.ctx.owner.begin()),
            false => self.ctx.owner.begin_retaining(kept),
        }
        self.ctx.owner.set_label(label);
    }

    /// Begins a lock request of the session itself.
    ///
    /// # Errors
    /// `cancelled`, if the session's cancel token is cancelled.
    fn begin_request(&mut self) -> Result<()> {
        self.check_process()?;
        self.begin_in_session();
        match self.txn.is_cancelled() {
            true => Err(Conflict::CANCELLED.into()),
            false => Ok(()),
        }
    }

    /// Locks a number for the session; the thread sleeps until it is granted.
    pub(crate) fn lock_for_session(&mut self, request: LockRequest) -> Result<bool> {
        self.begin_request()?;
        loop {
            match self.lock_step(request) {
                Ok(AttemptResult::Done(had)) => return Ok(self.record_number(request, had)),
                Ok(_) => self
                    .sleep(request.wait)
                    .map_err(|error| error.of_session())?,
                Err(error) => return Err(error.of_session()),
            }
        }
    }

    /// Locks a number for the session; the task yields until it is granted. If the future is
    /// dropped, the request is withdrawn.
    pub(crate) async fn lock_for_session_async(&mut self, request: LockRequest) -> Result<bool> {
        if self.ctx.budget.is_empty() {
            self.pause().await;
        }
        self.ctx.budget.charge(1);
        self.begin_request()?;
        let operation = self.operation();
        let bound = &mut *operation.0;
        loop {
            match bound.lock_step(request) {
                Ok(AttemptResult::Done(had)) => return Ok(bound.record_number(request, had)),
                Ok(_) => {
                    let waited = bound.yield_once(request.wait).await;
                    waited.map_err(|error| error.of_session())?;
                }
                Err(error) => return Err(error.of_session()),
            }
        }
    }

    fn record_number(&mut self, request: LockRequest, had: bool) -> bool {
        if had {
            let kept = self.ctx.owner.retain();
            let session = self.txn.session_locks();
            session.kept = kept;
            let held = &mut session.held;
            match held.iter_mut().find(|(held, _)| *held == request.number()) {
                Some((_, times)) => *times += 1,
                None => held.push((request.number(), 1)),
            }
        }
        had
    }

    /// Takes back one of the times that the session locked `number`, and releases it after the
    /// last. Returns false if it was not locked.
    pub(crate) fn unlock_number(&mut self, number: u64) -> bool {
        let held = &mut self.txn.session_locks().held;
        let Some(at) = held.iter().position(|(held, _)| *held == number) else {
            return false;
        };
        held[at].1 -= 1;
        if held[at].1 == 0 {
            held.swap_remove(at);
            match held.is_empty() {
                true => self.release_all(), // I2
                false => {
                    let WorkerContext {
                        engine,
                        worker,
                        owner,
                        ..
                    } = &mut self.ctx;
                    engine.locks.release(worker, owner, Name::advisory(number));
                }
            }
        }
        true
    }

    /// Releases every number, however often the session locked it, and returns them.
    pub(crate) fn unlock_numbers(&mut self) -> Vec<u64> {
        let held = mem::take(&mut self.txn.session_locks().held);
        self.release_all();
        held.into_iter().map(|(number, _)| number).collect()
    }
}
