//! Threads that wait for space in the buffer.
//!
//! If all waiting threads were woken when some space is freed, hundreds of them would run for a
//! moment, find the buffer full again and sleep. So a thread that frees space wakes a few, the
//! oldest first. Each woken thread that has inserted wakes one more. Waiting threads stay asleep
//! while running threads keep the buffer full, and each is woken in its turn.
//!
//! # Invariants
//!
//! * I1  A thread that frees space does so before it looks for waiters. A thread that finds no
//!   space looks again under the latch, and only then enters the list. So either it sees the space,
//!   or it is seen.
//! * I2  A woken thread wakes one more once it has inserted, or no longer wants to. So a release of
//!   space reaches all waiting threads, one after the other.

use std::collections::VecDeque;

use foxton_sync::latch::{Kind, Latched};
use foxton_sync::park::{Parker, Ticket, Verdict, WAKING};
use foxton_sync::shim::Arc;
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

static SITE: Site = Site::new(Component::Log, Pattern::Cooperative, "log buffer, room");

/// There may be space now.
const RETRY: Verdict = Verdict::new(1);

/// Number of threads woken for each part of the buffer that becomes free: enough to fill the buffer
/// again.
const WOKEN_AT_ONCE: usize = 2;

/// A wait for space.
#[derive(Debug)]
pub(crate) struct SpaceWait {
    parker: Arc<Parker>,
    ticket: Ticket,
}

impl SpaceWait {
    /// Sleeps until there may be space.
    pub(crate) fn wait(self) {
        self.parker.wait(self.ticket, None);
    }

    /// Cancels the wait. Returns true if it had been ended before; then another thread has to be
    /// woken in its place (I2).
    pub(crate) fn cancel(self) -> bool {
        self.parker.disarm(self.ticket).is_some()
    }
}

/// The threads that wait for space in one buffer, the oldest first.
#[derive(Debug)]
pub(crate) struct SpaceWaiters {
    waiting: Latched<VecDeque<SpaceWait>>,
}

impl SpaceWaiters {
    pub(crate) fn new(kind: Kind) -> Self {
        SpaceWaiters {
            waiting: Latched::new(kind, &SITE, VecDeque::new()),
        }
    }

    /// Enters a wait into the list. Returns `None` if `is_over` says, under the latch (I1), that
    /// there is space or will never be. A thread that was woken before goes to the front.
    pub(crate) fn enqueue(
        &self,
        worker: &Worker,
        was_woken: bool,
        is_over: impl FnOnce() -> bool,
    ) -> Option<SpaceWait> {
        let parker = Arc::new(Parker::new());
        let ticket = parker.arm();
        let entry = SpaceWait {
            parker: parker.clone(),
            ticket,
        };
        self.waiting.with(worker, |waiting| {
            if is_over() {
                return None;
            }
            match was_woken {
                true => waiting.push_front(entry),
                false => waiting.push_back(entry),
            }
            Some(SpaceWait { parker, ticket })
        })
    }

    /// Wakes a few threads, because there is space.
    pub(crate) fn wake_some(&self, worker: &Worker) {
        self.wake(worker, WOKEN_AT_ONCE);
    }

    /// Wakes one more thread (I2).
    pub(crate) fn wake_one(&self, worker: &Worker) {
        self.wake(worker, 1);
    }

    /// Wakes all threads, because there will never be space.
    pub(crate) fn wake_all(&self, worker: &Worker) {
        self.wake(worker, usize::MAX);
    }

    fn wake(&self, worker: &Worker, most: usize) {
        let mut woken = 0;
        while woken < most {
            let Some(next) = self.waiting.with(worker, VecDeque::pop_front) else {
                return;
            };
            worker.account().passed(&WAKING);
            // A cancelled wait does not count.
            if let Some(wake) = next.parker.resolve(next.ticket, RETRY) {
                wake.wake();
                woken += 1;
            }
        }
    }
}
