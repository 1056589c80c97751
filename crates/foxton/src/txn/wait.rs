//! From attempts to operations: making an attempt again until it is done.
//!
//! A thread sleeps between attempts, a task yields. Either way an error that ends the transaction
//! rolls it back here, before the caller hears of it, so that whoever waits for its locks goes on
//! at once.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use foxton_lock::manager::LockManager;
use foxton_lock::request::Outcome;
use foxton_sync::admission::BLOCKED;
use foxton_sync::worker::Worker;

use super::attempt::AttemptResult;
use super::state::{Phase, State};
use crate::engine::{Counter, Engine};
use crate::error::{Conflict, ConflictReason, Error, Result};
use crate::testing::failpoint;
use crate::testing::injected_fault::Fault;
use crate::types::lock_options::LockWait;

impl State {
    /// Makes `attempt` until it is done; the thread sleeps in between.
    #[inline]
    pub(crate) fn block_on<T>(
        &mut self,
        wait: LockWait,
        mut attempt: impl FnMut(&mut State) -> Result<AttemptResult<T>>,
    ) -> Result<T> {
        self.check_active()?;
        loop {
            match attempt(self) {
                Ok(AttemptResult::Done(content)) => return Ok(content),
                Ok(AttemptResult::Wait) => self.sleep(wait).map_err(|error| self.failed(error))?,
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Makes `attempt` until it is done; the task yields in between. If the future is dropped, the
    /// request that waits is withdrawn.
    pub(crate) async fn yield_on<T>(
        &mut self,
        wait: LockWait,
        mut attempt: impl FnMut(&mut State) -> Result<AttemptResult<T>>,
    ) -> Result<T> {
        self.check_active()?;
        let operation = Operation(self);
        let state = &mut *operation.0;
        loop {
            match attempt(state) {
                Ok(AttemptResult::Done(content)) => return Ok(content),
                Ok(AttemptResult::Wait) => {
                    let granted = state.yield_once(wait).await;
                    granted.map_err(|error| state.failed(error))?;
                }
                Err(error) => return Err(state.failed(error)),
            }
        }
    }

    /// What withdraws a request that waits when it is dropped.
    pub(super) fn waiting(&mut self) -> Operation<'_> {
        Operation(self)
    }

    /// Yields until the request that waits has been answered.
    pub(super) async fn yield_once(&mut self, wait: LockWait) -> Result<()> {
        self.worker.failpoints().pass(&failpoint::WAIT_BEGIN);
        let _noted = self.note_wait();
        self.set_timer(wait);
        poll_fn(|context| self.poll_wait(context)).await
    }

    #[cold]
    pub(super) fn sleep(&mut self, wait: LockWait) -> Result<()> {
        self.worker.failpoints().pass(&failpoint::WAIT_BEGIN);
        // A wait too long for the clock never ends by time.
        let deadline = Instant::now().checked_add(self.patience(wait));
        let outcome = {
            let _noted = self.note_wait();
            let _blocked = Blocked::of(&self.engine, &self.worker);
            self.engine
                .locks
                .wait(&self.worker, &mut self.owner, deadline)
        };
        let planted = self.engine.options.planted();
        if planted.is(Fault::WakeUpLost) && self.worker.random().is_multiple_of(64) {
            thread::sleep(deadline.map_or(Duration::ZERO, |at| at.duration_since(Instant::now())));
        }
        self.waited(outcome)
    }

    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = self
            .engine
            .locks
            .poll_wait(&self.worker, &mut self.owner, context);
        outcome.map(|outcome| {
            self.timer.clear();
            self.waited(outcome)
        })
    }

    fn patience(&self, wait: LockWait) -> Duration {
        match wait {
            LockWait::AtMost(at_most) => at_most,
            _ => self.engine.options.lock_wait,
        }
    }

    /// Has the timer end the wait when its time is over.
    fn set_timer(&mut self, wait: LockWait) {
        let Some(ticket) = self.owner.wait_ticket() else {
            return;
        };
        let now = self.engine.workers.clock().now();
        if let Some(deadline) = now.checked_add(self.patience(wait)) {
            let State {
                engine,
                worker,
                timer,
                ..
            } = self;
            engine.keeper.time_out_at(worker, timer, ticket, deadline);
        }
    }

    fn waited(&mut self, outcome: Outcome) -> Result<()> {
        self.worker.failpoints().pass(&failpoint::WAIT_END);
        match outcome {
            Outcome::Granted | Outcome::Held => Ok(()),
            Outcome::Refused(refusal) => {
                let catalog = &self.engine.catalog;
                Err(Conflict::refused(*refusal, |table| catalog.name_of(table)).into())
            }
        }
    }

    /// Takes back what an operation began and will not finish: its request, the entries of indexes
    /// that it put in, and the gap that it locked for itself alone. An operation that is dropped does so itself; one that is forgotten
    /// cannot, so whatever comes next does it.
    pub(crate) fn withdraw(&mut self) {
        let State {
            engine,
            worker,
            owner,
            timer,
            ..
        } = self;
        if owner.is_waiting() {
            engine.locks.cancel(worker, owner);
            timer.clear();
        }
        self.abandon_index_plan();
        self.release_fresh_gap();
    }

    /// What an operation that came to `error` leaves behind: nothing in a queue, no gap locked for
    /// nothing, and no transaction if the error ended it.
    #[cold]
    fn failed(&mut self, error: Error) -> Error {
        self.abandon_index_plan();
        self.release_fresh_gap();
        if let Error::Conflict(conflict) = &error {
            match conflict.reason() {
                ConflictReason::Deadlock => {
                    self.count(Counter::Deadlocks);
                    self.roll_back();
                    self.phase = Phase::Ended;
                    self.ended_by = Some(conflict.ended());
                }
                ConflictReason::Cancelled if self.phase.is_open() => self.end_as_cancelled(),
                _ => {}
            }
        }
        error
    }
}

/// Is counted among those who are blocked as long as it lives.
struct Blocked<'a>(&'a Engine, &'a Worker);

impl<'a> Blocked<'a> {
    fn of(engine: &'a Engine, worker: &'a Worker) -> Self {
        if let Some(admission) = &engine.admission {
            worker.account().passed(&BLOCKED);
            admission.block();
        }
        Blocked(engine, worker)
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        if let Some(admission) = &self.0.admission {
            self.1.account().passed(&BLOCKED);
            admission.unblock();
        }
    }
}

/// An operation of a task, which may be dropped while it waits.
pub(super) struct Operation<'a>(pub(super) &'a mut State);

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}
