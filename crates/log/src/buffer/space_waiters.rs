//! Who waits for room.
//!
//! Waking everybody who waits when some room is made would have hundreds of threads run for a moment,
//! find the buffer full again and sleep. So whoever makes room wakes a few, the oldest first, and each
//! who was woken and got a place wakes one more. Those who wait stay asleep while those who run keep
//! the buffer full, and each is woken in its turn.
//!
//! # Invariants
//!
//! * I1  Who makes room releases it before it looks for sleepers; who finds no room looks again after
//!   it has the latch, and only then enters itself. So either it sees the room, or it is seen.
//! * I2  Who was woken wakes one more once it has a place, or does not need one any more. So a release
//!   reaches everybody, one after the other.

use std::collections::VecDeque;

use foxton_sync::latch::{Kind, Latched};
use foxton_sync::park::{Parker, Ticket, Verdict, WAKING};
use foxton_sync::shim::Arc;
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

static SITE: Site = Site::new(Component::Log, Pattern::Cooperative, "log buffer, room");

/// There may be room now.
const RETRY: Verdict = Verdict::new(1);

/// How many are woken for each part of the buffer that becomes free: enough to keep the cores busy
/// that a buffer can keep busy.
const WOKEN_AT_ONCE: usize = 2;

/// A wait for room.
#[derive(Debug)]
pub(crate) struct SpaceWait {
    parker: Arc<Parker>,
    ticket: Ticket,
}

impl SpaceWait {
    /// Sleeps until there may be room.
    pub(crate) fn wait(self) {
        self.parker.wait(self.ticket, None);
    }

    /// Ends the wait from its own side. Returns whether it had been ended before, and so whether
    /// somebody else is to be woken in its place (I2).
    pub(crate) fn cancel(self) -> bool {
        self.parker.disarm(self.ticket).is_some()
    }
}

/// The threads that wait for room in one buffer, the oldest first.
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

    /// Enters a wait, unless `is_over` says, under the latch (I1), that there is room or will never be.
    /// Who was woken before goes before everybody else.
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

    /// Wakes a few, because there is room.
    pub(crate) fn wake_some(&self, worker: &Worker) {
        self.wake(worker, WOKEN_AT_ONCE);
    }

    /// Wakes one more (I2).
    pub(crate) fn wake_one(&self, worker: &Worker) {
        self.wake(worker, 1);
    }

    /// Wakes everybody: there will never be room.
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
            // Who has withdrawn does not count.
            if let Some(wake) = next.parker.resolve(next.ticket, RETRY) {
                wake.wake();
                woken += 1;
            }
        }
    }
}
