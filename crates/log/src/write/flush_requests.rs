//! Requests to the flusher, the thread that syncs.
//!
//! # State
//!
//! Behind a mutex there are these: up to where the log shall be written and synced at least, and
//! when records committed *buffered* must be synced. Also, whether space shall be made for further
//! records, whether the flusher shall stop, and whether it sleeps.
//!
//! # Why no request is lost
//!
//! A request is noted under the mutex. Under the same mutex the flusher looks for requests before
//! it sleeps, and notes that it sleeps. Waking it costs a system call, so only a thread that finds
//! it asleep does that.
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

/// Threads that request something, and the flusher that looks for requests.
pub(crate) static FLUSHER: Site = Site::new(Component::Log, Pattern::Cooperative, "log flusher");

#[derive(Debug, Default)]
struct RequestState {
    written: Lsn,
    durable: Lsn,
    /// When records committed *buffered* must be synced, if there are any.
    due: Option<Instant>,
    /// True if space shall be made.
    space: bool,
    stop: bool,
    /// True if the flusher sleeps, so that a request has to wake it.
    asleep: bool,
}

/// Next task of the flusher; the log gets to the LSN at least.
pub(crate) enum FlushTask {
    /// Reserves space for further records on the device.
    MakeSpace,
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
    /// Requests that the log gets to `lsn`.
    pub(crate) fn request(&self, worker: &Worker, milestone: Milestone, lsn: Lsn) {
        self.update(worker, |state| {
            let requested = state.requested_mut(milestone);
            *requested = lsn.max(*requested);
        });
    }

    /// Requests a sync at `due`.
    pub(crate) fn request_sync_by(&self, worker: &Worker, due: Instant) {
        self.update(worker, |state| state.due = Some(due));
    }

    /// Requests space for further records.
    pub(crate) fn request_space(&self, worker: &Worker) {
        self.update(worker, |state| state.space = true);
    }

    /// Requests that the flusher stops.
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
        // A flusher that is awake looks for requests again before it sleeps.
        if asleep {
            self.requested.notify_one();
        }
    }

    /// Returns the next task of the flusher, and sleeps until there is one. `position` returns how
    /// far the log is. `end` returns where it ends: a request for more is met when the log gets
    /// there.
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
            if std::mem::take(&mut state.space) {
                return FlushTask::MakeSpace;
            }
            let now = clock.now();
            let wants =
                |to: Lsn, milestone| to > position(milestone) && end() > position(milestone);
            let is_due = state.due.is_some_and(|due| due <= now);
            if is_due || wants(state.durable, Milestone::Durable) {
                // The sync covers all records that were due.
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

    /// Returns up to where the log shall be written.
    #[cfg(loom)]
    pub(crate) fn requested_write(&self) -> Lsn {
        lock(&self.state).written // Site: "log flusher".
    }
}

impl RequestState {
    fn requested_mut(&mut self, milestone: Milestone) -> &mut Lsn {
        match milestone {
            Milestone::Written => &mut self.written,
            Milestone::Durable => &mut self.durable,
        }
    }
}
