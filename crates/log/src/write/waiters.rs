//! Waiters: how far the log is written and durable, and the threads and tasks that wait for
//! more.
//!
//! # State
//!
//! * `written` and `durable`, which only grow;
//! * the list of waits;
//! * why the log will get no further: the failure that ended it, or that it was closed.
//!
//! # Invariants
//!
//! * I1 A thread that advances the log publishes the new position before it takes waits off the
//!   list. A thread that waits acquires the latch, then reads the position, and only then enters
//!   the list. So either it sees the advance, or the advancing thread sees its wait: no wake-up is
//!   lost. The same holds for `closed` and the failure, which are published before all waits are
//!   ended.
//! * I2 A wait leaves the list exactly once and is then resolved. A wait that was cancelled stays
//!   in the list until the log gets there; resolving it has no effect then.
//!
//! # Orderings
//!
//! None. `written` and `durable` say how far the *device* has got, and lead to no memory: a reader
//! needs nothing but the number. Where an old number would lose a wake-up, the latch orders it
//! (I1).

use std::sync::Arc as StdArc;

use foxton_sync::cache_line::CachePadded;
use foxton_sync::latch::{Kind, Latched};
use foxton_sync::park::{Parker, Ticket, Verdict, WAKING};
use foxton_sync::shim::{Arc, AtomicBool, AtomicU64, Mutex, Ordering::Relaxed, lock};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::format::error::{Failure, LogError};
use crate::format::lsn::Lsn;

static SITE: Site = Site::new(Component::Log, Pattern::Cooperative, "log waiters");

/// Reading whether the log has failed: with the writer lock, the sync, or the latch of the waiters.
static FAILURE: Site = Site::new(Component::Log, Pattern::Fixed, "log failure");

/// State of the log that a thread can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Milestone {
    /// Handed to the operating system.
    Written,
    /// Safe from a power cut.
    Durable,
}

/// The log has reached the LSN.
pub(crate) const REACHED: Verdict = Verdict::new(1);
/// The log will never reach the LSN.
pub(crate) const FAILED: Verdict = Verdict::new(2);

#[derive(Debug)]
struct LogWaiter {
    milestone: Milestone,
    lsn: Lsn,
    parker: Arc<Parker>,
    ticket: Ticket,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct LogWaiters {
    written: AtomicU64,
    /// On a cache line of its own: a transaction that only reads needs this number and no other.
    durable: CachePadded<AtomicU64>,
    waiting: Latched<Vec<LogWaiter>>,
    failure: Mutex<Option<StdArc<Failure>>>,
    /// True if nothing will be written or synced any more, because the log was closed.
    closed: AtomicBool,
}

impl LogWaiters {
    /// `end`: the log is written and durable up to here.
    pub(crate) fn new(kind: Kind, end: Lsn) -> Self {
        LogWaiters {
            written: AtomicU64::new(end.bytes()),
            durable: CachePadded::new(AtomicU64::new(end.bytes())),
            waiting: Latched::new(kind, &SITE, Vec::new()),
            failure: Mutex::new(None),
            closed: AtomicBool::new(false),
        }
    }

    /// Returns how far the log is written or durable.
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

    /// Enters a wait into the list. Returns `None` if the log is at `lsn`, or will get no further;
    /// both are read under the latch (I1).
    pub(crate) fn enqueue(
        &self,
        worker: &Worker,
        milestone: Milestone,
        lsn: Lsn,
    ) -> Option<(Arc<Parker>, Ticket)> {
        let parker = Arc::new(Parker::new());
        self.waiting.with(worker, |waiting| {
            if self.position(milestone) >= lsn || self.is_over(worker) {
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

    /// Returns the result of a wait: an error if the log failed or was closed before it got there.
    pub(crate) fn wait_result(&self, worker: &Worker, is_reached: bool) -> Result<(), LogError> {
        match is_reached {
            true => Ok(()),
            false => self.check(worker).and(Err(LogError::Closed)),
        }
    }

    /// Publishes that the log is at `position`, further than before. One thread at a time calls it,
    /// and then calls [`complete_waits`](Self::complete_waits) (I1).
    pub(crate) fn advance(&self, milestone: Milestone, position: Lsn) {
        // Relaxed: leads to no memory.
        self.counter(milestone).store(position.bytes(), Relaxed);
    }

    /// Completes every wait for `position` or less, after that was published (I1). Returns the
    /// largest LSN that is still waited for.
    pub(crate) fn complete_waits(
        &self,
        worker: &Worker,
        milestone: Milestone,
        position: Lsn,
    ) -> Option<Lsn> {
        let is_over = |waiter: &LogWaiter| waiter.milestone == milestone && waiter.lsn <= position;
        let (over, left) = self.waiting.with(worker, |waiting| {
            let over = LogWaiters::dequeue(waiting, is_over);
            let left = waiting
                .iter()
                .filter(|waiter| waiter.milestone == milestone);
            (over, left.map(|waiter| waiter.lsn).max())
        });
        self.resolve(worker, REACHED, over);
        left
    }

    fn dequeue(
        waiting: &mut Vec<LogWaiter>,
        is_over: impl Fn(&LogWaiter) -> bool,
    ) -> Vec<LogWaiter> {
        if waiting.iter().all(&is_over) {
            return std::mem::take(waiting);
        }
        waiting.extract_if(.., |waiter| is_over(waiter)).collect()
    }

    /// Not under the latch, because each wake-up costs a system call.
    fn resolve(&self, worker: &Worker, verdict: Verdict, over: Vec<LogWaiter>) {
        for waiter in over {
            worker.account().passed(&WAKING);
            if let Some(wake) = waiter.parker.resolve(waiter.ticket, verdict) {
                wake.wake();
            }
        }
    }

    // The end of the log.

    /// Keeps the first failure, and returns it as the error that every caller gets from now on.
    /// `refuse` makes the buffer refuse inserts; it is called before the failure can be read.
    pub(crate) fn set_failure(
        &self,
        worker: &Worker,
        failure: Failure,
        refuse: impl FnOnce(&LogError),
    ) -> LogError {
        worker.account().passed(&FAILURE);
        let mut kept = lock(&self.failure);
        let failure = kept.get_or_insert_with(|| StdArc::new(failure));
        let error = LogError::Failed(failure.clone());
        refuse(&error);
        error
    }

    /// Ends every wait because the log was closed: nothing more will be written or synced.
    pub(crate) fn close(&self, worker: &Worker) {
        self.closed.store(true, Relaxed); // Relaxed: see `is_over`.
        self.fail_waits(worker);
    }

    /// Ends every wait because the log will get no further.
    pub(crate) fn fail_waits(&self, worker: &Worker) {
        let over = self.waiting.with(worker, std::mem::take);
        self.resolve(worker, FAILED, over);
    }

    /// True if nothing will be written or synced any more.
    pub(crate) fn is_over(&self, worker: &Worker) -> bool {
        worker.account().passed(&FAILURE);
        // Relaxed: read under the latch of the waiters, which `close` acquires after it sets this.
        self.closed.load(Relaxed) || lock(&self.failure).is_some()
    }

    /// Returns the failure, if there was one.
    pub(crate) fn check(&self, worker: &Worker) -> Result<(), LogError> {
        worker.account().passed(&FAILURE);
        self.failure()
    }

    /// As [`check`](Self::check), where the caller has no worker to count with.
    pub(crate) fn failure(&self) -> Result<(), LogError> {
        // Site: "log failure".
        match &*lock(&self.failure) {
            Some(failure) => Err(LogError::Failed(failure.clone())),
            None => Ok(()),
        }
    }
}
