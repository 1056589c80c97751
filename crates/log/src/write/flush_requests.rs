//! What the flusher is asked for.
//!
//! # State
//!
//! To where the log is to be written and synced at least, by when what was committed *buffered* is, whether the flusher is
//! to end, and whether it sleeps: behind a mutex.
//!
//! # Why no wish is lost
//!
//! Who wishes for something puts it down under the mutex, and the flusher looks under the same mutex before it sleeps, and
//! says there that it does. Waking costs a system call: only who finds it asleep does.
//!
//! # Orderings
//!
//! None: the mutex orders everything.

use std::time::Instant;

use foxton_sync::shim::{Condvar, Mutex, lock};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::format::lsn::Lsn;
use crate::write::waiters::Milestone;

/// Whoever asks for something, and who looks whether it has been asked for.
pub(crate) static FLUSHER: Site = Site::new(Component::Log, Pattern::Cooperative, "log flusher");

#[derive(Debug, Default)]
struct RequestState {
    written: Lsn,
    durable: Lsn,
    /// When what was committed *buffered* must be synced, if anything was.
    due: Option<Instant>,
    stop: bool,
    /// Whether the flusher sleeps, and must be woken to hear of anything.
    asleep: bool,
}

/// To where at least.
pub(crate) enum FlushTask {
    Write(Lsn),
    Sync(Lsn),
    Stop,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct FlushRequests {
    state: Mutex<RequestState>,
    requested: Condvar,
}

impl FlushRequests {
    /// Asks for the log to be brought to `lsn`.
    pub(crate) fn request(&self, worker: &Worker, milestone: Milestone, lsn: Lsn) {
        self.update(worker, |state| {
            let position = match milestone {
                Milestone::Written => &mut state.written,
                Milestone::Durable => &mut state.durable,
            };
            *position = lsn.max(*position);
        });
    }

    /// Asks for a sync at `due`.
    pub(crate) fn request_sync_by(&self, worker: &Worker, due: Instant) {
        self.update(worker, |state| state.due = Some(due));
    }

    /// Asks for the end.
    pub(crate) fn stop(&self, worker: &Worker) {
        self.update(worker, |state| state.stop = true);
    }

    fn update(&self, worker: &Worker, change: impl FnOnce(&mut RequestState)) {
        worker.account().passed(&FLUSHER);
        let asleep = {
            let mut state = lock(&self.state);
            change(&mut state);
            std::mem::take(&mut state.asleep)
        };
        // A flusher at work looks again before it sleeps.
        if asleep {
            self.requested.notify_one();
        }
    }

    /// What is to be done next, for the flusher; sleeps until there is something. `position`: how far the log is; `end`: where
    /// it ends, since it would never be done with more.
    pub(crate) fn next_task(
        &self,
        worker: &Worker,
        position: impl Fn(Milestone) -> Lsn,
        end: impl Fn() -> Lsn,
    ) -> FlushTask {
        worker.account().passed(&FLUSHER);
        let clock = worker.workers().clock();
        let mut state = lock(&self.state);
        loop {
            if state.stop {
                return FlushTask::Stop;
            }
            let now = clock.now();
            let wants =
                |to: Lsn, milestone| to > position(milestone) && end() > position(milestone);
            let is_due = state.due.is_some_and(|due| due <= now);
            if is_due || wants(state.durable, Milestone::Durable) {
                // The sync covers whatever was due.
                state.due = None;
                return FlushTask::Sync(state.durable);
            }
            if wants(state.written, Milestone::Written) {
                return FlushTask::Write(state.written);
            }
            state.asleep = true;
            state = match state.due {
                None => self
                    .requested
                    .wait(state)
                    .unwrap_or_else(|broken| broken.into_inner()),
                Some(due) => {
                    let waited = self
                        .requested
                        .wait_timeout(state, clock.sleep_time(due - now));
                    waited.unwrap_or_else(|broken| broken.into_inner()).0
                }
            };
            state.asleep = false;
        }
    }
}
