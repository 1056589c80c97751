//! Waits between attempts: an operation repeats its attempt until it is done.
//!
//! A thread sleeps between attempts, a task yields. An error that ends the transaction rolls it
//! back here, before the caller gets the error. So its locks are released without the caller's
//! help.

use std::future::poll_fn;
use std::mem;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use foxton_lock::manager::LockManager;
use foxton_lock::request::Outcome;
use foxton_store::memory::Begin;
use foxton_sync::admission::BLOCKED;

use super::attempt::AttemptResult;
use super::bound::BoundTxn;
use super::context::WorkerContext;
use super::txn::Phase;
use crate::engine::Counter;
use crate::error::{Conflict, ConflictReason, Error, Result};
use crate::testing::failpoint;
use crate::testing::injected_fault;
use crate::types::lock_options::LockWait;

impl BoundTxn {
    /// Repeats `attempt` until it is done; the thread sleeps in between.
    #[inline]
    pub(crate) fn block_on<T>(
        &mut self,
        wait: LockWait,
        mut attempt: impl FnMut(&mut BoundTxn) -> Result<AttemptResult<T>>,
    ) -> Result<T> {
        self.check_active()?;
        loop {
            match attempt(self) {
                Ok(AttemptResult::Done(content)) => return Ok(content),
                Ok(AttemptResult::Wait) => self.sleep(wait).map_err(|error| self.failed(error))?,
                Ok(AttemptResult::Pause) => {
                    self.ctx.budget.refill();
                    let found = self.find_converted();
                    found.map_err(|error| self.failed(error))?;
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Repeats `attempt` until it is done; the task yields in between, for a lock or because its
    /// budget is spent. If the future is dropped, the waiting request is withdrawn.
    pub(crate) async fn yield_on<T>(
        &mut self,
        wait: LockWait,
        mut attempt: impl FnMut(&mut BoundTxn) -> Result<AttemptResult<T>>,
    ) -> Result<T> {
        self.check_process()?;
        self.settle().await?;
        self.spend(1).await;
        let operation = Operation(self);
        let bound = &mut *operation.0;
        if bound.ctx.needs_slot {
            poll_fn(|context| bound.poll_slot(context)).await?;
        }
        bound.check_process()?;
        if let Err(refused) = bound.check_active() {
            bound.settle().await?;
            return Err(refused);
        }
        loop {
            // Nothing is awaited in the match, whose result would have to be `Send`.
            let unfinished = match attempt(bound) {
                Ok(AttemptResult::Done(content)) => return Ok(content),
                Ok(AttemptResult::Wait) => Ok(Unfinished::Waits),
                Ok(AttemptResult::Pause) => Ok(Unfinished::Pauses),
                Err(error) => Err(error),
            };
            let continued = match unfinished {
                Ok(Unfinished::Waits) => bound.yield_once(wait).await,
                Ok(Unfinished::Pauses) => {
                    bound.pause().await;
                    bound
                        .check_process()
                        .and_then(|()| bound.check_active())
                        .and_then(|()| bound.find_converted())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = continued {
                let error = bound.failed(error);
                bound.settle().await?;
                return Err(error);
            }
        }
    }

    /// Does work for `units`; the task yields first if its budget is spent.
    pub(crate) async fn spend(&mut self, units: usize) {
        if self.ctx.budget.is_spent() {
            self.pause().await;
        }
        self.ctx.budget.charge(units);
    }

    /// Yields the task once, or until a commit LSN is known that it awaits, and fills its budget.
    /// The future may be dropped at any time.
    pub(crate) async fn pause(&mut self) {
        self.ctx.budget.refill();
        match self.ctx.awaited_commit.take() {
            Some(begin) => self.await_lsn(begin).await,
            None => yield_once().await,
        }
    }

    /// Yields until the commit LSN of the writer of `begin` may be known.
    async fn await_lsn(&mut self, begin: Begin) {
        let (began, mut was_polled) = (Instant::now(), false);
        let slots = &self.ctx.engine.snapshots.slots;
        poll_fn(|context| {
            match mem::replace(&mut was_polled, true) || !slots.poll(begin, context) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        let WorkerContext { engine, worker, .. } = &self.ctx;
        engine.snapshots.lsn_waits.record(worker, began.elapsed());
    }

    /// Returns a guard that withdraws a waiting request when it is dropped.
    pub(super) fn operation(&mut self) -> Operation<'_> {
        Operation(self)
    }

    /// Yields until the waiting request is granted or refused.
    pub(super) async fn yield_once(&mut self, wait: LockWait) -> Result<()> {
        if self.waits_for_pages() {
            self.yield_for_pages().await?;
            return self.check_active();
        }
        self.ctx.worker.failpoints().pass(&failpoint::WAIT_BEGIN);
        let _record = self.record_wait();
        self.set_timer(wait);
        self.ctx.block();
        poll_fn(|context| self.poll_wait(context)).await
    }

    /// True if the last attempt lacks pages, and not a lock. An attempt that waits for a lock may
    /// not have needed the pages that it had waited for: another thread was faster. It gives them
    /// back, because nothing stays fixed through a wait for a lock.
    fn waits_for_pages(&mut self) -> bool {
        if self.ctx.owner.is_waiting() {
            self.ctx.page_wait = None;
        }
        self.ctx.page_wait.is_some()
    }

    #[cold]
    pub(super) fn sleep(&mut self, wait: LockWait) -> Result<()> {
        // A callback may have forked.
        self.check_process()?;
        if self.waits_for_pages() {
            self.sleep_for_pages()?;
            return self.check_active();
        }
        self.ctx.worker.failpoints().pass(&failpoint::WAIT_BEGIN);
        // A wait too long for the clock never ends by time.
        let deadline = Instant::now().checked_add(self.wait_limit(wait));
        let outcome = {
            let _record = self.record_wait();
            self.ctx.block();
            self.ctx
                .engine
                .locks
                .wait(&self.ctx.worker, &mut self.ctx.owner, deadline)
        };
        self.ctx.unblock();
        let faults = self.ctx.engine.faults();
        if faults.misbehaves(&injected_fault::WAKE_UP_LOST)
            && self.ctx.worker.random().is_multiple_of(64)
        {
            thread::sleep(deadline.map_or(Duration::ZERO, |at| at.duration_since(Instant::now())));
        }
        self.waited(outcome)
    }

    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.check_process()?;
        let outcome =
            self.ctx
                .engine
                .locks
                .poll_wait(&self.ctx.worker, &mut self.ctx.owner, context);
        outcome.map(|outcome| {
            self.ctx.timer.clear();
            self.ctx.unblock();
            self.waited(outcome)
        })
    }

    fn poll_slot(&mut self, context: &Context<'_>) -> Poll<Result<()>> {
        self.check_process()?;
        self.ctx.poll_slot(context).map(Ok)
    }

    fn wait_limit(&self, wait: LockWait) -> Duration {
        match wait {
            LockWait::AtMost(at_most) => at_most,
            _ => self.ctx.engine.options.lock_wait,
        }
    }

    /// Makes the timer end the wait at its deadline.
    fn set_timer(&mut self, wait: LockWait) {
        let Some(ticket) = self.ctx.owner.wait_ticket() else {
            return;
        };
        let now = self.ctx.engine.workers.clock().now();
        if let Some(deadline) = now.checked_add(self.wait_limit(wait)) {
            let WorkerContext {
                engine,
                worker,
                timer,
                ..
            } = &mut self.ctx;
            engine
                .background
                .time_out_at(worker, timer, ticket, deadline);
        }
    }

    fn waited(&mut self, outcome: Outcome) -> Result<()> {
        self.ctx.worker.failpoints().pass(&failpoint::WAIT_END);
        match outcome {
            Outcome::Granted | Outcome::Held => Ok(()),
            Outcome::Refused(refusal) => {
                let catalog = &self.ctx.engine.catalog;
                Err(Conflict::refused(*refusal, |table| catalog.name_of(table)).into())
            }
        }
    }

    /// Takes back an operation that was begun and will not finish: its place in the queue for
    /// admission, its request, its pages, the index entries that it inserted, and its fresh gap. A
    /// dropped operation calls this itself. A forgotten one cannot, so the next operation does it.
    pub(crate) fn withdraw(&mut self) {
        let WorkerContext {
            engine,
            worker,
            owner,
            timer,
            slot_claim,
            ..
        } = &mut self.ctx;
        if owner.is_waiting() {
            engine.locks.cancel(worker, owner);
            timer.clear();
        }
        if let Some(admission) = &engine.admission {
            admission.cancel(slot_claim);
        }
        self.ctx.page_wait = None;
        self.ctx.unblock();
        self.abandon_index_plan();
        self.release_fresh_gap();
    }

    /// Cleans up after an operation that failed with `error`: it releases the fresh gap, and rolls
    /// back a transaction that the error ends.
    #[cold]
    fn failed(&mut self, error: Error) -> Error {
        if self.process.is_inherited() {
            return error;
        }
        self.ctx.page_wait = None;
        self.abandon_index_plan();
        self.release_fresh_gap();
        if let Error::Conflict(conflict) = &error {
            match conflict.reason() {
                ConflictReason::SnapshotEnded if self.txn.is_view_lent() => {}
                ConflictReason::TableDropped
                | ConflictReason::Overwritten
                | ConflictReason::SnapshotEnded => {
                    self.end_by(Phase::Ended);
                    self.txn.ended_by = Some(conflict.ended());
                }
                ConflictReason::Deadlock => {
                    self.ctx.count(Counter::Deadlocks);
                    self.end_by(Phase::Ended);
                    self.txn.ended_by = Some(conflict.ended());
                }
                ConflictReason::Cancelled if self.txn.phase.is_open() => self.end_as_cancelled(),
                _ => {}
            }
        }
        error
    }
}

/// Why an attempt of a task is not done.
enum Unfinished {
    Waits,
    Pauses,
}

/// Lets every other task that is ready run once.
pub(crate) async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| {
        if mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

impl WorkerContext {
    /// Counts it as blocked until [`unblock`](Self::unblock).
    pub(super) fn block(&mut self) {
        if let Some(admission) = &self.engine.admission
            && !mem::replace(&mut self.is_blocked, true)
        {
            self.worker.account().passed(&BLOCKED);
            admission.block();
        }
    }

    pub(super) fn unblock(&mut self) {
        if mem::take(&mut self.is_blocked)
            && let Some(admission) = &self.engine.admission
        {
            self.worker.account().passed(&BLOCKED);
            admission.unblock();
        }
    }
}

/// An operation of a task, which may be dropped while it waits.
pub(super) struct Operation<'a>(pub(super) &'a mut BoundTxn);

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        if !self.0.process.is_inherited() {
            self.0.withdraw();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use crate::{AsyncTransaction, Database, Options, Table};

    const ROWS: Table<u32, u32> = Table::new("rows");

    /// Polls once a write of the row; true if it is done. The future is dropped, or forgotten.
    fn writes(tx: &mut AsyncTransaction, forgets: bool) -> bool {
        let mut write = Box::pin(tx.put(&ROWS, &1, &1));
        let context = &mut Context::from_waker(Waker::noop());
        let is_ready = write.as_mut().poll(context).is_ready();
        if forgets {
            mem::forget(write);
        }
        is_ready
    }

    #[test]
    fn a_task_counts_as_blocked_while_it_waits_for_a_lock() {
        let db = Database::in_memory(Options::default()).unwrap();
        let blocked = || db.engine().admission.as_ref().unwrap().blocked();
        db.run(|tx| tx.put(&ROWS, &1, &0)).unwrap();
        let mut holder = db.begin_async().unwrap();
        assert!(writes(&mut holder, false));
        let [mut dropped, mut forgotten, mut waiting] = [(); 3].map(|()| db.begin_async().unwrap());
        assert!(!writes(&mut dropped, false));
        assert_eq!(blocked(), 0, "its operation was dropped");
        assert!(!writes(&mut forgotten, true));
        assert_eq!(blocked(), 1);
        {
            let context = &mut Context::from_waker(Waker::noop());
            let mut write = pin!(waiting.put(&ROWS, &1, &2));
            assert!(write.as_mut().poll(context).is_pending());
            assert_eq!(blocked(), 2);
            drop(forgotten);
            assert_eq!(blocked(), 1);
            drop(holder);
            assert!(write.poll(context).is_ready());
        }
        assert_eq!(blocked(), 0);
    }
}
