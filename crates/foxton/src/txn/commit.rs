//! Making it last.
//!
//! The record goes into the log while every lock is still held, so records that touch one key
//! stand there in the order of the changes. Then the transaction waits as long as its durability
//! says, still with its locks, so that nobody is told anything that a crash could take back. Then
//! ghosts go, locks go, and what was worked with goes back to the rack.

use std::future::poll_fn;
use std::task::{Context, Poll};

use foxton_log::{LogError, Lsn, Pending};

use super::changes::GhostIf;
use super::state::State;
use crate::engine::Count;
use crate::error::Result;
use crate::options::Durability;
use crate::point;
use crate::redo;

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
            .insert(worker, redo::PART, &[&first, &changes.redo]);
        let end = end.map_err(|error| engine.log_failed(error))?;
        changes.first_part.get_or_insert(end);
        changes.redo.clear();
        Ok(())
    }

    /// Commits; the thread sleeps until it is as durable as asked.
    pub(crate) fn commit(&mut self) -> Result<()> {
        self.check_active()?;
        if let Some(end) = self.log_changes()? {
            let State {
                engine,
                worker,
                durability,
                ..
            } = self;
            let reached = match *durability {
                Durability::Sync => engine.log.wait_durable(worker, end),
                Durability::Buffered => engine.log.wait_written(worker, end),
                Durability::None => Ok(()),
            };
            self.acknowledge(reached)?;
        }
        self.finish();
        Ok(())
    }

    /// Puts the changes into the log. `None` if there are none. After an error the transaction is
    /// rolled back: nothing that commits it is in the log.
    ///
    /// A transaction that only read is told of a failed log, too. A commit that failed has given
    /// its locks back and left its changes, so what was read may be what the next restart does not
    /// find.
    pub(crate) fn log_changes(&mut self) -> Result<Option<Lsn>> {
        if self.changes.is_empty() {
            return match self.engine.check() {
                Ok(()) => Ok(None),
                Err(error) => {
                    self.undo_all();
                    Err(error)
                }
            };
        }
        let State {
            engine,
            worker,
            changes,
            ..
        } = self;
        let end = match changes.first_part {
            None => engine.log.insert(worker, redo::COMMIT, &[&changes.redo]),
            Some(first) => {
                let first = first.bytes().to_le_bytes();
                engine
                    .log
                    .insert(worker, redo::LAST, &[&first, &changes.redo])
            }
        };
        match end {
            Ok(end) => {
                worker.hooks().pass(&point::LOGGED);
                Ok(Some(end))
            }
            Err(error) => {
                self.undo_all();
                Err(self.engine.log_failed(error))
            }
        }
    }

    /// As `commit`, for a task; the record ends at `end`.
    pub(crate) fn poll_logged(
        &mut self,
        pending: &mut Pending,
        end: Lsn,
        context: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        let State {
            engine,
            worker,
            durability,
            ..
        } = self;
        let reached = match *durability {
            Durability::Sync => engine.log.poll_durable(worker, pending, end, context),
            Durability::Buffered => engine.log.poll_written(worker, pending, end, context),
            Durability::None => Poll::Ready(Ok(())),
        };
        reached.map(|reached| self.acknowledge(reached))
    }

    /// What the wait for the log came to. If the log failed, the record may be in it or not: only
    /// the next restart can tell. The changes stay in memory until then, and nobody can commit
    /// anything on top of them: the failure is noted before the locks go.
    fn acknowledge(&mut self, reached: Result<(), LogError>) -> Result<()> {
        self.worker.hooks().pass(&point::DURABLE);
        reached.map_err(|error| {
            let error = self.engine.log_failed(error);
            self.finish();
            error
        })
    }

    /// Ends a transaction whose changes stay: ghosts, then locks.
    pub(crate) fn finish(&mut self) {
        let read_only = self.changes.is_empty();
        if !read_only {
            self.remove_ghosts(GhostIf::Committed);
            self.retire_old_values();
        }
        self.release_all();
        if !self.ghosts.is_empty() && !read_only {
            self.retry_ghosts();
        }
        self.changes.clear();
        let count = if read_only {
            Count::ReadOnlyCommits
        } else {
            Count::Commits
        };
        self.count(count);
    }

    fn retire_old_values(&mut self) {
        let State {
            worker, changes, ..
        } = self;
        let guard = worker.pin();
        for undo in &mut changes.undo {
            if let Some(old) = undo.old.take() {
                old.retire(&guard);
            }
        }
    }
}

/// Commits; the task yields until it is as durable as asked.
///
/// If the future is dropped before the record is in the log, the transaction is rolled back; if
/// after, it is committed, and the keeper ends it.
pub(crate) async fn commit(mut state: Box<State>) -> Result<()> {
    let end = match state.check_active().and_then(|()| state.log_changes()) {
        Ok(Some(end)) => end,
        Ok(None) => {
            state.finish();
            State::put_away(state);
            return Ok(());
        }
        Err(error) => {
            State::put_away(state);
            return Err(error);
        }
    };
    let mut logged = Logged {
        state: Some(state),
        end,
    };
    let mut pending = Pending::default();
    let reached = poll_fn(|context| {
        let state = logged.state.as_mut().expect("taken only below");
        state.poll_logged(&mut pending, end, context)
    })
    .await;
    let mut state = logged.state.take().expect("taken only here");
    if reached.is_ok() {
        state.finish();
    }
    State::put_away(state);
    reached
}

/// A transaction whose record is in the log.
struct Logged {
    state: Option<Box<State>>,
    end: Lsn,
}

impl Drop for Logged {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else {
            return;
        };
        let (engine, end) = (state.engine.clone(), self.end);
        engine.keeper.hand_over(Box::new(move || {
            let State {
                engine,
                worker,
                durability,
                ..
            } = &mut *state;
            let reached = match *durability {
                Durability::Sync => engine.log.wait_durable(worker, end),
                _ => engine.log.wait_written(worker, end),
            };
            // Nobody is there to be told of a failure; whoever comes next is.
            if state.acknowledge(reached).is_ok() {
                state.finish();
            }
            State::put_away(state);
        }));
    }
}
