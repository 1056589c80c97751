//! Who waits for the log to get somewhere.
//!
//! # Invariants
//!
//! * I1 Who advances the log publishes how far before it drains the waiters; who waits looks how
//!   far the log is after it has the latch, and only then enters itself. So either it sees the
//!   advance, or the drain sees it: no wake-up is lost.
//! * I2 An entry leaves the list exactly once and is then resolved. A wait that was withdrawn
//!   stays in the list until the log gets there, and is then resolved in vain.

use foxton_sync::latch::{Kind, Latched};
use foxton_sync::park::{Parker, Ticket, Verdict};
use foxton_sync::shim::Arc;
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::lsn::Lsn;

static SITE: Site = Site::new(Component::Log, Pattern::Cooperative, "log waiters");

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Handed to the operating system.
    Written,
    /// Safe from a power cut.
    Durable,
}

/// The log got there.
pub(crate) const REACHED: Verdict = Verdict::new(1);
/// It never will.
pub(crate) const FAILED: Verdict = Verdict::new(2);

#[derive(Debug)]
struct Waiter {
    reach: Reach,
    lsn: Lsn,
    parker: Arc<Parker>,
    ticket: Ticket,
}

/// The waiters of one log.
#[derive(Debug)]
pub(crate) struct Waiters {
    waiting: Latched<Vec<Waiter>>,
}

impl Waiters {
    pub(crate) fn new(kind: Kind) -> Self {
        Waiters {
            waiting: Latched::new(kind, &SITE, Vec::new()),
        }
    }

    /// Enters a wait, unless `is_over` says, under the latch (I1), that there is nothing left to
    /// wait for.
    pub(crate) fn enter(
        &self,
        worker: &Worker,
        reach: Reach,
        lsn: Lsn,
        is_over: impl FnOnce() -> bool,
    ) -> Option<(Arc<Parker>, Ticket)> {
        let parker = Arc::new(Parker::new());
        self.waiting.with(worker, |waiting| {
            if is_over() {
                return None;
            }
            let ticket = parker.arm();
            waiting.push(Waiter {
                reach,
                lsn,
                parker: parker.clone(),
                ticket,
            });
            Some((parker, ticket))
        })
    }

    /// Ends every wait that `far` has reached. To be called after that was published (I1).
    pub(crate) fn reached(&self, worker: &Worker, reach: Reach, far: Lsn) {
        self.resolve(worker, REACHED, |waiter| {
            waiter.reach == reach && waiter.lsn <= far
        });
    }

    /// Ends every wait, for the log will get no further.
    pub(crate) fn failed(&self, worker: &Worker) {
        self.resolve(worker, FAILED, |_| true);
    }

    fn resolve(&self, worker: &Worker, verdict: Verdict, is_over: impl Fn(&Waiter) -> bool) {
        let over = self.waiting.with(worker, |waiting| {
            if waiting.iter().all(&is_over) {
                return std::mem::take(waiting);
            }
            waiting.extract_if(.., |waiter| is_over(waiter)).collect()
        });
        // Waking costs a system call for each: not under the latch.
        for waiter in over {
            if let Some(wake) = waiter.parker.resolve(waiter.ticket, verdict) {
                wake.wake();
            }
        }
    }
}
