//! How far the log has got, and who waits for it to get further.
//!
//! # State
//!
//! `written` and `durable`, which only grow, and the list of those who wait.
//!
//! # Invariants
//!
//! * I1 Who advances the log publishes how far before it drains the waiters; who waits looks how
//!   far the log is after it has the latch, and only then enters itself. So either it sees the
//!   advance, or the drain sees it: no wake-up is lost.
//! * I2 An entry leaves the list exactly once and is then resolved. A wait that was withdrawn
//!   stays in the list until the log gets there, and is then resolved in vain.
//!
//! # Orderings
//!
//! None. `written` and `durable` say how far the *device* has got, and lead to no memory: who reads
//! them needs nothing but the number. Where an old number would mean a lost wake-up, the latch orders
//! it (I1).

use foxton_sync::cache_line::CachePadded;
use foxton_sync::latch::{Kind, Latched};
use foxton_sync::park::{Parker, Ticket, Verdict, WAKING};
use foxton_sync::shim::{Arc, AtomicU64, Ordering::Relaxed};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::format::lsn::Lsn;

static SITE: Site = Site::new(Component::Log, Pattern::Cooperative, "log waiters");

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Milestone {
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
struct LogWaiter {
    milestone: Milestone,
    lsn: Lsn,
    parker: Arc<Parker>,
    ticket: Ticket,
}

/// How far one log has got, and its waiters.
#[derive(Debug)]
pub(crate) struct Waiters {
    written: AtomicU64,
    /// Apart from the rest: every transaction that only reads looks at it, and nothing else.
    durable: CachePadded<AtomicU64>,
    waiting: Latched<Vec<LogWaiter>>,
}

impl Waiters {
    /// Of a log that is durable up to `end`.
    pub(crate) fn new(kind: Kind, end: Lsn) -> Self {
        Waiters {
            written: AtomicU64::new(end.bytes()),
            durable: CachePadded::new(AtomicU64::new(end.bytes())),
            waiting: Latched::new(kind, &SITE, Vec::new()),
        }
    }

    /// How far the log is.
    #[inline]
    pub(crate) fn position(&self, milestone: Milestone) -> Lsn {
        Lsn::new(self.counter(milestone).load(Relaxed)) // Relaxed: leads to no memory.
    }

    fn counter(&self, milestone: Milestone) -> &AtomicU64 {
        match milestone {
            Milestone::Written => &self.written,
            Milestone::Durable => &self.durable,
        }
    }

    /// Enters a wait, unless the log is there already, or `is_over` says, under the latch (I1), that
    /// it never will be.
    pub(crate) fn enqueue(
        &self,
        worker: &Worker,
        milestone: Milestone,
        lsn: Lsn,
        is_over: impl FnOnce() -> bool,
    ) -> Option<(Arc<Parker>, Ticket)> {
        let parker = Arc::new(Parker::new());
        self.waiting.with(worker, |waiting| {
            if self.position(milestone) >= lsn || is_over() {
                return None;
            }
            let ticket = parker.arm();
            waiting.push(LogWaiter {
                milestone,
                lsn,
                parker: parker.clone(),
                ticket,
            });
            Some((parker, ticket))
        })
    }

    /// Publishes that the log is at `far`, further than before. For one caller at a time, who then
    /// calls [`reached`](Self::reached) (I1).
    pub(crate) fn advance(&self, milestone: Milestone, far: Lsn) {
        self.counter(milestone).store(far.bytes(), Relaxed); // Relaxed: leads to no memory.
    }

    /// Ends every wait that `far` has reached. To be called after that was published (I1). Says how far those wait who
    /// wait for more.
    pub(crate) fn complete_waits(
        &self,
        worker: &Worker,
        milestone: Milestone,
        far: Lsn,
    ) -> Option<Lsn> {
        let is_over = |waiter: &LogWaiter| waiter.milestone == milestone && waiter.lsn <= far;
        let (over, left) = self.waiting.with(worker, |waiting| {
            let over = Waiters::take(waiting, is_over);
            let left = waiting
                .iter()
                .filter(|waiter| waiter.milestone == milestone);
            (over, left.map(|waiter| waiter.lsn).max())
        });
        self.resolve(worker, REACHED, over);
        left
    }

    /// Ends every wait, for the log will get no further.
    pub(crate) fn fail_waits(&self, worker: &Worker) {
        let over = self.waiting.with(worker, std::mem::take);
        self.resolve(worker, FAILED, over);
    }

    fn take(waiting: &mut Vec<LogWaiter>, is_over: impl Fn(&LogWaiter) -> bool) -> Vec<LogWaiter> {
        if waiting.iter().all(&is_over) {
            return std::mem::take(waiting);
        }
        waiting.extract_if(.., |waiter| is_over(waiter)).collect()
    }

    /// Waking costs a system call for each: not under the latch.
    fn resolve(&self, worker: &Worker, verdict: Verdict, over: Vec<LogWaiter>) {
        for waiter in over {
            worker.account().passed(&WAKING);
            if let Some(wake) = waiter.parker.resolve(waiter.ticket, verdict) {
                wake.wake();
            }
        }
    }
}
