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
use crate::write::waiters::Reach;

/// Whoever asks for something, and who looks whether it has been asked for.
pub(crate) static DEMAND: Site = Site::new(Component::Log, Pattern::Cooperative, "log flusher");

#[derive(Debug, Default)]
struct Demand {
    written: Lsn,
    durable: Lsn,
    /// When what was committed *buffered* must be synced, if anything was.
    due: Option<Instant>,
    stop: bool,
    /// Whether the flusher sleeps, and must be woken to hear of anything.
    asleep: bool,
}

/// To where at least.
pub(crate) enum Task {
    Write(Lsn),
    Sync(Lsn),
    Stop,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Desk {
    demand: Mutex<Demand>,
    wanted: Condvar,
}

impl Desk {
    /// Asks for the log to be brought to `lsn`.
    pub(crate) fn ask_for(&self, worker: &Worker, reach: Reach, lsn: Lsn) {
        self.ask(worker, |demand| {
            let far = match reach {
                Reach::Written => &mut demand.written,
                Reach::Durable => &mut demand.durable,
            };
            *far = lsn.max(*far);
        });
    }

    /// Asks for a sync at `due`.
    pub(crate) fn sync_by(&self, worker: &Worker, due: Instant) {
        self.ask(worker, |demand| demand.due = Some(due));
    }

    /// Asks for the end.
    pub(crate) fn stop(&self, worker: &Worker) {
        self.ask(worker, |demand| demand.stop = true);
    }

    fn ask(&self, worker: &Worker, change: impl FnOnce(&mut Demand)) {
        worker.account().passed(&DEMAND);
        let asleep = {
            let mut demand = lock(&self.demand);
            change(&mut demand);
            std::mem::take(&mut demand.asleep)
        };
        // A flusher at work looks again before it sleeps.
        if asleep {
            self.wanted.notify_one();
        }
    }

    /// What is to be done next, for the flusher; sleeps until there is something. `far`: how far the log is; `end`: where
    /// it ends, since it would never be done with more.
    pub(crate) fn next(
        &self,
        worker: &Worker,
        far: impl Fn(Reach) -> Lsn,
        end: impl Fn() -> Lsn,
    ) -> Task {
        worker.account().passed(&DEMAND);
        let clock = worker.workers().clock();
        let mut demand = lock(&self.demand);
        loop {
            if demand.stop {
                return Task::Stop;
            }
            let now = clock.now();
            let wants = |to: Lsn, reach| to > far(reach) && end() > far(reach);
            let is_due = demand.due.is_some_and(|due| due <= now);
            if is_due || wants(demand.durable, Reach::Durable) {
                // The sync covers whatever was due.
                demand.due = None;
                return Task::Sync(demand.durable);
            }
            if wants(demand.written, Reach::Written) {
                return Task::Write(demand.written);
            }
            demand.asleep = true;
            demand = match demand.due {
                None => self
                    .wanted
                    .wait(demand)
                    .unwrap_or_else(|broken| broken.into_inner()),
                Some(due) => {
                    let waited = self.wanted.wait_timeout(demand, clock.nap(due - now));
                    waited.unwrap_or_else(|broken| broken.into_inner()).0
                }
            };
            demand.asleep = false;
        }
    }
}
