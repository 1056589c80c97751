//! Commit of a transaction.
//!
//! # Steps
//!
//! * C1  *Check*: the transaction is still active.
//! * C2  *Log*: its record is written while every lock is held. So records that change one key are
//!   in the order of the changes.
//! * C3  *Decide* how long to wait: until the record is written, until it is durable, or not at
//!   all. A transaction that only read waits for the commits that it read from.
//! * C4  *Early release*: a commit that has to wait releases its locks first, where it
//!   [may](crate::engine::early_release).
//! * C5  *Wait* for the log.
//! * C6  *Acknowledge*: the result of the wait is the result of the commit.
//! * C7  *Finish*, unless C4 did: remove ghosts, then release locks.
//! * C8  *Wait for a checkpoint*, if the transaction wrote more than checkpoints can keep up with;
//!   and for the page cleaner, if it changed pages and too many are dirty.
//!
//! Two drivers run these steps. A thread sleeps in C5 and C8; a task yields. A task also yields
//! while it removes many ghosts and retires many values. If it is dropped after C2, the background
//! thread takes the remaining steps.
//!
//! A buffered commit of a thread tries to write the log itself between C3 and C4. It then needs no
//! early release, because writing is short.

use std::future::poll_fn;
use std::mem;
use std::task::{Context, Poll};

use foxton_lock::name::Name;
use foxton_log::{Log, LogError, LogWait, Lsn, PendingWakeups};
use foxton_store::paged::page_log::RowUndo;
use foxton_store::paged::pool::DirtyWait;
use foxton_sync::admission::SLOTS;

use super::bound::BoundTxn;
use super::changes::{GhostIf, Undo};
use super::context::WorkerContext;
use super::paged_changes::is_delete;
use super::txn::{Phase, Txn};
use crate::checkpoint::WriteStall;
use crate::engine::background;
use crate::engine::early_release::{self, CommitWait};
use crate::engine::page_store::OpenPages;
use crate::engine::persistence::Logged;
use crate::error::{Result, check_process};
use crate::options::Locking;
use crate::testing::failpoint;
use crate::testing::injected_fault;

impl BoundTxn {
    /// Commits; the thread sleeps until the commit is as durable as required.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let until = self.start_commit()?;
        self.ctx.count_commit();
        if until == CommitWait::Now {
            self.finish();
        } else if let Some(wakeups) = self.try_reach(until)? {
            self.ctx.worker.failpoints().pass(&failpoint::DURABLE);
            // A woken thread may take the processor, and should find none of our locks.
            self.finish();
            if let Some(log) = self.ctx.engine.log() {
                log.wake_waiters(&self.ctx.worker, wakeups);
            }
        } else {
            self.release_early(until);
            // So that other threads commit meanwhile, and one sync serves them all.
            self.ctx.free_slot();
            let reached = self.ctx.wait_for_log(until);
            self.end_commit(reached)?;
        }
        if self.txn.credit.is_ahead() {
            self.sleep_for_checkpoint();
        }
        if self.txn.has_changed_pages {
            self.sleep_for_cleaner();
        }
        Ok(())
    }

    /// As [`commit`](Self::commit), and returns the position of the commit among all commits.
    pub(crate) fn commit_at(&mut self) -> Result<Lsn> {
        self.fix_commit_lsn();
        self.commit().map(|()| self.txn.commit_lsn)
    }

    /// Sets the position among all commits of a transaction that is about to commit. If it has
    /// changes, their record replaces this position.
    pub(crate) fn fix_commit_lsn(&mut self) {
        // Every lock is held. A commit that we read from has its record before this position, and
        // one that changes what we read will have it behind. At a snapshot, the position is that of
        // the snapshot.
        let WorkerContext { engine, worker, .. } = &self.ctx;
        self.txn.commit_lsn = match self.txn.view {
            Some(view) if self.txn.changes.is_empty() => view.lsn,
            _ => engine.persistence.end(worker),
        };
    }

    /// Takes the position of a commit that has no record, because the database is in memory.
    fn take_position(&mut self) {
        let WorkerContext {
            engine,
            worker,
            commit_slot,
            ..
        } = &self.ctx;
        commit_slot.start_commit(worker);
        let end = engine.persistence.commit_position(worker, true);
        worker.failpoints().pass(&failpoint::PLACED);
        commit_slot.committed(end, self.txn.durability);
        self.txn.commit_lsn = end;
    }

    /// C1 to C3. After an error the transaction is rolled back, or that is pending, and the log has
    /// no record of it.
    fn start_commit(&mut self) -> Result<CommitWait> {
        self.check_active()?;
        if self.txn.uses_pages {
            if let Err(error) = self.check_pages() {
                self.end_by(Phase::Ended);
                return Err(error);
            }
            self.txn.has_changed_pages = self.txn.changes.paged.has_begun();
        }
        let faults = self.ctx.engine.faults();
        if faults.misbehaves(&injected_fault::UNLOCK_BEFORE_LOG) {
            self.release_all();
        }
        if self.txn.has_no_redo() {
            // A failed log refuses also a transaction that only read. A commit that failed has
            // released its locks and left its changes in memory, so the values read may be gone
            // after the next restart.
            return match self.ctx.engine.check() {
                Ok(()) => {
                    if self.txn.has_versions() {
                        self.take_position();
                    }
                    self.change_catalog();
                    Ok(self.wait_of_reads())
                }
                Err(error) => {
                    self.end_by(Phase::Ended);
                    Err(error)
                }
            };
        }
        // Changes of pages are in the log already, and a large transaction may be what keeps it.
        if !self.txn.page_transaction.has_begun()
            && self.txn.changes.first_part.is_none()
            && let Some(Err(error)) = self.ctx.engine.logged().map(Logged::check_kept_log)
        {
            self.end_by(Phase::Ended);
            return Err(error);
        }
        match self.log_commit() {
            Ok(end) => {
                self.ctx.worker.failpoints().pass(&failpoint::LOGGED);
                self.change_catalog();
                Ok(CommitWait::as_promised(self.txn.durability, end))
            }
            Err(error) => {
                self.end_by(Phase::Ended);
                Err(self.ctx.engine.write_failed(error))
            }
        }
    }

    /// Makes the change of the catalog that belongs to the commit, if there is one.
    #[inline]
    fn change_catalog(&mut self) {
        if let Some(change) = self.txn.on_commit.take() {
            change(&self.ctx.engine.catalog);
        }
    }

    /// C3 of a transaction that only read: mostly it does not wait.
    #[inline]
    fn wait_of_reads(&self) -> CommitWait {
        let (engine, txn) = (&self.ctx.engine, &self.txn);
        let newest = engine.early.newest([&txn.reads, &txn.scan.reads]);
        let Some(log) = engine.log() else {
            return CommitWait::Now;
        };
        newest.until(txn.durability, log.durable(), || log.written())
    }

    /// Writes the log up to where the commit waits for, if no other thread has to be waited for.
    fn try_reach(&mut self, until: CommitWait) -> Result<Option<PendingWakeups>> {
        let (CommitWait::Written(end), Some(log)) = (until, self.ctx.engine.log()) else {
            return Ok(None);
        };
        let wakeups = log.try_written(&self.ctx.worker, end);
        wakeups.map_err(|error| {
            let failed = self.acknowledge(Err(error));
            failed.expect_err("it got an error")
        })
    }

    /// C4. The record of the commit, if it has one, is in the log.
    fn release_early(&mut self, until: CommitWait) {
        if self.may_release_early(until) {
            self.finish();
            self.released();
        }
    }

    /// As [`release_early`](Self::release_early), for a task.
    async fn release_early_async(&mut self, until: CommitWait) {
        if self.may_release_early(until) {
            self.finish_async().await;
            self.released();
        }
    }

    /// True if C4 applies. Stamps the changes then.
    fn may_release_early(&mut self, until: CommitWait) -> bool {
        let options = &self.ctx.engine.options;
        let may = options.early_release && options.locking != Locking::Off;
        self.txn.changes.is_empty() || (may && self.stamp_changes(until))
    }

    fn released(&mut self) {
        self.txn.phase = Phase::Released;
        self.ctx.worker.failpoints().pass(&failpoint::RELEASED);
    }

    /// Records the end of this commit, and how long it waits, wherever another transaction could
    /// see its changes. Returns false if it must keep its locks instead.
    fn stamp_changes(&mut self, until: CommitWait) -> bool {
        let WorkerContext {
            engine,
            worker,
            tables,
            hint,
            ..
        } = &mut self.ctx;
        let changes = &self.txn.changes;
        let count = changes.counts().total();
        let is_large = count > early_release::MAX_STAMPED || !changes.paged.is_whole();
        let removes = |undo: &Undo| undo.ghost_if == GhostIf::Committed;
        let removes_paged = |(_, undo): (usize, RowUndo<'_>)| is_delete(undo.before);
        if is_large || changes.undo.iter().any(removes) || changes.paged.recent().any(removes_paged)
        {
            // All readers would wait for it, though it waits for less than a system call.
            let CommitWait::Durable(end) = until else {
                return false;
            };
            engine.early.stamp_all(worker, end);
        }
        if is_large {
            return true;
        }
        let (guard, durable) = (worker.pin(), engine.log().map_or(Lsn::ZERO, Log::durable));
        for undo in &changes.undo {
            let (rows, key) = (tables[undo.table].table.resident(), changes.key(undo));
            // Mostly the last row that the transaction has searched for.
            let located = rows.locate_again(&guard, key, hint);
            if let Some(record) = located.record(rows, &guard, key) {
                early_release::stamp(record, until, durable);
            }
        }
        let is_forgotten = engine.faults().misbehaves(&injected_fault::STAMP_FORGOTTEN);
        if let Some(OpenPages { stamps, .. }) = engine.pages().filter(|_| !is_forgotten) {
            for (table, undo) in changes.paged.recent() {
                let id = tables[table].table.record.id;
                let name = Name::key(id, undo.key, &engine.hasher);
                stamps.stamp(&name, until, durable);
            }
        }
        true
    }

    /// C6 and C7.
    fn end_commit(&mut self, reached: Result<(), LogError>) -> Result<()> {
        let acknowledged = self.acknowledge(reached);
        self.finish();
        acknowledged
    }

    /// C6. If the log failed, it may have the record or not: only the next restart can tell. The
    /// changes stay in memory until then. No other transaction can commit on top of them, because
    /// the failure is recorded before the locks are released.
    fn acknowledge(&mut self, reached: Result<(), LogError>) -> Result<()> {
        self.ctx.worker.failpoints().pass(&failpoint::DURABLE);
        reached.map_err(|error| self.ctx.engine.log_failed(error))
    }

    /// C8 of a thread whose commit is ahead of its checkpoint.
    fn sleep_for_checkpoint(&mut self) {
        self.ctx.free_slot();
        if let Some(stall) = self.stall() {
            stall.wait(&mut self.txn.credit);
        }
    }

    /// C8 of a thread that has changed pages.
    fn sleep_for_cleaner(&mut self) {
        self.ctx.free_slot();
        if let Some(wait) = self.stall_for_cleaner() {
            wait.wait();
        }
    }

    /// Returns the wait for the page cleaner, if there is one.
    fn stall_for_cleaner(&self) -> Option<DirtyWait> {
        let pages = self.ctx.engine.pages()?;
        pages.stall_commit(&self.ctx.worker)
    }

    /// Requests the checkpoint that is due, or returns the stall to wait for.
    fn stall(&mut self) -> Option<WriteStall> {
        let WorkerContext { engine, worker, .. } = &self.ctx;
        let Txn {
            credit, commit_lsn, ..
        } = &mut self.txn;
        let checkpoints = &engine.logged()?.checkpoints;
        checkpoints.pass(worker, credit, *commit_lsn)
    }
}

impl WorkerContext {
    /// Counts a commit among those by which the number of admission slots is judged.
    #[inline]
    fn count_commit(&mut self) {
        if let Some(admission) = &self.engine.admission {
            let passed = admission.record_commit(&mut self.slot_claim);
            self.worker.account().passed_many(&SLOTS, passed);
        }
    }

    /// C5 of a thread.
    fn wait_for_log(&self, until: CommitWait) -> Result<(), LogError> {
        let WorkerContext { engine, worker, .. } = self;
        let Some(log) = engine.log() else {
            return Ok(());
        };
        match until {
            CommitWait::Now => Ok(()),
            CommitWait::Written(end) => log.wait_written(worker, end),
            CommitWait::Durable(end) => log.wait_durable(worker, end),
        }
    }

    /// C5 of a task.
    fn poll_log(
        &mut self,
        pending: &mut LogWait,
        until: CommitWait,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), LogError>> {
        let WorkerContext { engine, worker, .. } = self;
        let Some(log) = engine.log() else {
            return Poll::Ready(Ok(()));
        };
        match until {
            CommitWait::Now => Poll::Ready(Ok(())),
            CommitWait::Written(end) => log.poll_written(worker, pending, end, context),
            CommitWait::Durable(end) => log.poll_durable(worker, pending, end, context),
        }
    }
}

/// Commits; the task yields until the commit is as durable as required. Returns its position among
/// all commits, if it changed something or [`BoundTxn::fix_commit_lsn`] was called before.
///
/// If the future is dropped before the record is in the log, the transaction is rolled back. If it
/// is dropped later, the transaction is committed, and the background thread finishes it.
pub(crate) async fn commit(bound: Box<BoundTxn>) -> Result<Lsn> {
    let mut task = CommitTask {
        bound: Some(bound),
        progress: CommitProgress::Open,
    };
    task.run().await
}

/// How far a commit of a task has come.
enum CommitProgress {
    /// Its record is not in the log.
    Open,
    /// Its record is in the log, and it takes C4 to C7.
    Logged(CommitWait),
    /// It has no changes and no locks.
    Finished,
}

/// A commit of a task. When it is dropped, the transaction returns to the pool, after the
/// background thread has finished it if need be.
struct CommitTask {
    /// Taken only when it is dropped.
    bound: Option<Box<BoundTxn>>,
    progress: CommitProgress,
}

impl CommitTask {
    async fn run(&mut self) -> Result<Lsn> {
        let bound = self.bound.as_mut().expect("taken only when dropped");
        let process = bound.process;
        check_process(&process)?;
        bound.settle().await?;
        bound.spend(1).await;
        check_process(&process)?;
        let until = match bound.start_commit() {
            Ok(until) => until,
            Err(error) => {
                bound.settle().await?;
                return Err(error);
            }
        };
        self.progress = CommitProgress::Logged(until);
        bound.ctx.count_commit();
        let commit_lsn = bound.txn.commit_lsn;
        let mut acknowledged = Ok(());
        if until != CommitWait::Now {
            bound.release_early_async(until).await;
            // So that other tasks commit meanwhile, and one sync serves them all.
            bound.ctx.free_slot();
            let mut pending = LogWait::default();
            let reached: Result<_> = poll_fn(|context| {
                check_process(&process)?;
                bound.ctx.poll_log(&mut pending, until, context).map(Ok)
            })
            .await;
            acknowledged = bound.acknowledge(reached?);
        }
        bound.finish_async().await;
        bound.ctx.free_slot();
        check_process(&process)?;
        self.progress = CommitProgress::Finished;
        acknowledged?;
        if bound.txn.credit.is_ahead()
            && let Some(stall) = bound.stall()
        {
            let waited: Result<()> = poll_fn(|context| {
                check_process(&process)?;
                stall.poll(&mut bound.txn.credit, context).map(Ok)
            })
            .await;
            waited?;
        }
        if bound.txn.has_changed_pages
            && let Some(wait) = bound.stall_for_cleaner()
        {
            let waited: Result<()> = poll_fn(|context| {
                check_process(&process)?;
                wait.poll(context).map(Ok)
            })
            .await;
            waited?;
        }
        Ok(commit_lsn)
    }
}

impl Drop for CommitTask {
    fn drop(&mut self) {
        let Some(mut bound) = self.bound.take() else {
            return;
        };
        if bound.process.is_inherited() {
            mem::forget(bound);
            return;
        }
        let until = match self.progress {
            CommitProgress::Open => return BoundTxn::abandon(bound),
            CommitProgress::Finished => return BoundTxn::recycle(bound),
            CommitProgress::Logged(until) => until,
        };
        // Dropped at the end. If it is the last share, this thread then waits for the job.
        let open = bound.open.take().expect("a program had the transaction");
        bound.ctx.worker.account().passed(&background::TASK_QUEUE);
        open.engine().background.submit(Box::new(move || {
            let reached = bound.ctx.wait_for_log(until);
            // The program does not learn of a failure here; its next transaction does.
            let _ = bound.end_commit(reached);
            if bound.txn.credit.is_ahead()
                && let Some(logged) = bound.ctx.engine.logged()
            {
                // No thread waits for the checkpoint.
                let checkpoints = &logged.checkpoints;
                checkpoints.ask(&bound.ctx.worker, bound.txn.commit_lsn);
            }
            BoundTxn::recycle(bound);
        }));
    }
}
