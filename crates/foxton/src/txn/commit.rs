//! Making it last.
//!
//! The record goes into the log while every lock is still held, so records that touch one key
//! stand there in the order of the changes. Then ghosts go and locks go, and the transaction waits as
//! long as its durability says; or it waits first, where it does not let go [early](crate::engine::early_release). Where more
//! is written than a checkpoint can keep up with, it then waits for that. Then what was worked with goes back to the rack.

use std::future::poll_fn;
use std::task::{Context, Poll};

use foxton_log::{LogError, LogWait, Lsn, PendingWakeups};

use super::changes::{GhostIf, Undo};
use super::state::{Phase, State};
use crate::checkpoint::WriteStall;
use crate::engine::Counter;
use crate::engine::background;
use crate::engine::early_release::{self, CommitWait};
use crate::error::Result;
use crate::options::Locking;
use crate::redo::record;
use crate::testing::failpoint;
use crate::testing::injected_fault::Fault;

impl State {
    /// Puts what has changed into the log if it has become much: a transaction of any size needs
    /// memory for its undo, but not twice.
    pub(crate) fn spill(&mut self) -> Result<()> {
        if self.changes.redo.len() < self.engine.options.redo_part_bytes {
            return Ok(());
        }
        let State {
            engine,
            worker,
            changes,
            ..
        } = self;
        let first = changes.first_part.map_or(0, Lsn::bytes).to_le_bytes();
        let end = engine
            .log
            .insert(worker, record::PART, &[&first, &changes.redo]);
        let end = end.map_err(|error| engine.log_failed(error))?;
        changes.first_part.get_or_insert(end);
        changes.parts += 1;
        changes.redo.clear();
        Ok(())
    }

    /// Commits; the thread sleeps until it is as durable as asked.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let committed = self.commit_as_asked();
        if self.write_credit.is_ahead() && committed.is_ok() {
            self.leave();
            if let Some(held) = self.pass() {
                held.wait(&mut self.write_credit);
            }
        }
        committed
    }

    fn commit_as_asked(&mut self) -> Result<()> {
        self.check_active()?;
        if self.engine.options.planted().is(Fault::UnlockBeforeLog) {
            self.release_all();
        }
        let until = self.log_changes()?;
        self.note_commit();
        if until == CommitWait::Now {
            self.finish();
            return Ok(());
        }
        if let Some(untold) = self.reach_at_once(until)? {
            self.acknowledge(Ok(()))?;
            // Who is told may take the processor, and should find no lock of ours.
            self.finish();
            self.engine.log.wake_waiters(&self.worker, untold);
            return Ok(());
        }
        self.release_early(until);
        // Many are to wait for one sync together.
        self.leave();
        let reached = self.wait(until);
        self.acknowledge(reached)?;
        self.finish();
        Ok(())
    }

    /// Reaches what is to be waited for, if it can without waiting for others.
    fn reach_at_once(&mut self, until: CommitWait) -> Result<Option<PendingWakeups>> {
        let CommitWait::Written(end) = until else {
            return Ok(None);
        };
        let untold = self.engine.log.try_written(&self.worker, end);
        untold.map_err(|error| {
            let failed = self.acknowledge(Err(error));
            failed.expect_err("it was told of one")
        })
    }

    /// As [`commit`](Self::commit), and says where it stands among all commits.
    pub(crate) fn commit_at(&mut self) -> Result<Lsn> {
        self.fix_commit_lsn();
        self.commit().map(|()| self.place)
    }

    /// Takes its place among all commits, for a transaction that is about to commit and may have changed nothing.
    pub(crate) fn fix_commit_lsn(&mut self) {
        // Every lock is held: whose changes it saw has its record before this place, and who changes
        // what it read will have it behind.
        self.place = self.engine.log.end(&self.worker);
    }

    fn wait(&self, until: CommitWait) -> Result<(), LogError> {
        match until {
            CommitWait::Now => Ok(()),
            CommitWait::Written(end) => self.engine.log.wait_written(&self.worker, end),
            CommitWait::Durable(end) => self.engine.log.wait_durable(&self.worker, end),
        }
    }

    /// Puts the changes into the log, and says what is to be waited for. After an error the
    /// transaction is rolled back: nothing that commits it is in the log.
    ///
    /// A transaction that only read is told of a failed log, too. A commit that failed has given
    /// its locks back and left its changes, so what was read may be what the next restart does not
    /// find.
    pub(crate) fn log_changes(&mut self) -> Result<CommitWait> {
        if self.changes.has_no_redo() {
            return match self.engine.check() {
                Ok(()) => Ok(self.wait_for_dependencies()),
                Err(error) => {
                    self.roll_back();
                    Err(error)
                }
            };
        }
        let State {
            engine,
            worker,
            changes,
            place,
            write_credit,
            ..
        } = self;
        let end = match changes.first_part {
            None => engine.log.insert(worker, record::COMMIT, &[&changes.redo]),
            Some(first) => {
                let first = first.bytes().to_le_bytes();
                engine
                    .log
                    .insert(worker, record::LAST, &[&first, &changes.redo])
            }
        };
        match end {
            Ok(end) => {
                *place = end;
                let parts = changes.parts as usize * engine.options.redo_part_bytes;
                let bytes = (parts + changes.redo.len()) as u64;
                engine.checkpoints.note(write_credit, end, bytes);
                worker.failpoints().pass(&failpoint::LOGGED);
                Ok(CommitWait::as_promised(self.durability, end))
            }
            Err(error) => {
                self.roll_back();
                Err(self.engine.log_failed(error))
            }
        }
    }

    /// As `wait`, for a task.
    pub(crate) fn poll_logged(
        &mut self,
        pending: &mut LogWait,
        until: CommitWait,
        context: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        let State { engine, worker, .. } = self;
        let reached = match until {
            CommitWait::Now => Poll::Ready(Ok(())),
            CommitWait::Written(end) => engine.log.poll_written(worker, pending, end, context),
            CommitWait::Durable(end) => engine.log.poll_durable(worker, pending, end, context),
        };
        reached.map(|reached| self.acknowledge(reached))
    }

    /// For a commit that is ahead of its checkpoint: asks for the next, or says what to wait for.
    fn pass(&mut self) -> Option<WriteStall> {
        let State {
            engine,
            worker,
            write_credit,
            place,
            ..
        } = self;
        engine.checkpoints.pass(worker, write_credit, *place)
    }

    /// What a transaction that only read waits for: mostly nothing.
    #[inline]
    fn wait_for_dependencies(&self) -> CommitWait {
        let newest = self
            .engine
            .early
            .newest([&self.dependencies, &self.scan.dependencies]);
        let log = &self.engine.log;
        newest.until(self.durability, log.durable(), || log.written())
    }

    /// Gives the locks back before the acknowledgement, if that is how it is done. The record of the
    /// commit, if it has one, is in the log.
    fn release_early(&mut self, until: CommitWait) {
        if !self.changes.is_empty() {
            let options = &self.engine.options;
            if !options.early_release
                || options.locking == Locking::Off
                || !self.stamp_changes(until)
            {
                return;
            }
        }
        self.finish();
        self.phase = Phase::Released;
        self.worker.failpoints().pass(&failpoint::RELEASED);
    }

    /// Notes where this commit ends, and what it waits for, wherever somebody could see what it did; says whether it
    /// could.
    fn stamp_changes(&self, until: CommitWait) -> bool {
        let State {
            engine,
            worker,
            tables,
            changes,
            ..
        } = self;
        let is_large = changes.undo.len() > early_release::GONE_THROUGH;
        let removes = |undo: &Undo| undo.ghost_if == GhostIf::Committed;
        if is_large || changes.undo.iter().any(removes) {
            // Everybody would wait for it, and it waits for less than a system call.
            let CommitWait::Durable(end) = until else {
                return false;
            };
            engine.early.stamp_all(worker, end);
        }
        if is_large {
            return true;
        }
        let (guard, durable) = (worker.pin(), engine.log.durable());
        for undo in &changes.undo {
            let rows = &tables[undo.table].table.rows;
            if let Some(record) = rows.get(&guard, changes.key(undo)) {
                early_release::stamp(record, until, durable);
            }
        }
        true
    }

    /// What the wait for the log came to. If the log failed, the record may be in it or not: only
    /// the next restart can tell. The changes stay in memory until then, and nobody can commit
    /// anything on top of them: the failure is noted before the locks go.
    fn acknowledge(&mut self, reached: Result<(), LogError>) -> Result<()> {
        self.worker.failpoints().pass(&failpoint::DURABLE);
        reached.map_err(|error| {
            let error = self.engine.log_failed(error);
            self.finish();
            error
        })
    }

    /// Ends a transaction whose changes stay, unless that was done early: ghosts, then locks.
    pub(crate) fn finish(&mut self) {
        if self.phase == Phase::Released {
            return;
        }
        let read_only = self.changes.is_empty();
        if !read_only {
            self.remove_ghosts(GhostIf::Committed);
        }
        self.release_all();
        if !read_only {
            // After the locks: it may be this one that frees what everybody has retired.
            self.retire_old_values();
            if !self.ghosts.is_empty() {
                self.retry_ghosts();
            }
        }
        self.changes.clear();
        let count = if read_only {
            Counter::ReadOnlyCommits
        } else {
            Counter::Commits
        };
        self.count(count);
    }

    fn retire_old_values(&mut self) {
        let State {
            worker, changes, ..
        } = self;
        for undo in &mut changes.undo {
            if let Some(old) = undo.old.take() {
                old.retire(worker.participant());
            }
        }
    }
}

/// Commits; the task yields until it is as durable as asked. Says where the transaction stands among all
/// commits, if it changed something or [`State::fix_commit_lsn`] was called before.
///
/// If the future is dropped before the record is in the log, the transaction is rolled back; if
/// after, it is committed, and the keeper ends it.
pub(crate) async fn commit(mut state: Box<State>) -> Result<Lsn> {
    let logged = state.check_active().and_then(|()| state.log_changes());
    let place = state.place;
    let until = match logged {
        Ok(CommitWait::Now) => {
            state.finish();
            wait_for_checkpoint(state).await;
            return Ok(place);
        }
        Ok(until) => until,
        Err(error) => {
            State::recycle(state);
            return Err(error);
        }
    };
    state.release_early(until);
    let mut logged = Logged {
        state: Some(state),
        until,
    };
    let mut pending = LogWait::default();
    let reached = poll_fn(|context| {
        let state = logged.state.as_mut().expect("taken only below");
        state.poll_logged(&mut pending, until, context)
    })
    .await;
    let mut state = logged.state.take().expect("taken only here");
    match reached {
        Ok(()) => {
            state.finish();
            wait_for_checkpoint(state).await;
        }
        Err(_) => State::recycle(state),
    }
    reached.map(|()| place)
}

/// Waits, where its commit is ahead of what a checkpoint can keep up with, and puts the transaction away.
async fn wait_for_checkpoint(state: Box<State>) {
    let mut done = Done(Some(state));
    let state = done.0.as_mut().expect("taken only when dropped");
    if state.write_credit.is_ahead()
        && let Some(held) = state.pass()
    {
        poll_fn(|context| held.poll(&mut state.write_credit, context)).await;
    }
}

/// A transaction that has committed and is acknowledged. It goes to the rack, also when its task is dropped.
struct Done(Option<Box<State>>);

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(state) = self.0.take() {
            State::recycle(state);
        }
    }
}

/// A transaction that commits, and is not acknowledged.
struct Logged {
    state: Option<Box<State>>,
    until: CommitWait,
}

impl Drop for Logged {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else {
            return;
        };
        let (engine, until) = (state.engine.clone(), self.until);
        state.worker.account().passed(&background::TASK_QUEUE);
        engine.keeper.submit(Box::new(move || {
            let reached = state.wait(until);
            // Nobody is there to be told of a failure; whoever comes next is.
            if state.acknowledge(reached).is_ok() {
                state.finish();
            }
            if state.write_credit.is_ahead() {
                // Nobody is there to be held up.
                state.engine.checkpoints.ask(&state.worker, state.place);
            }
            State::recycle(state);
        }));
    }
}
