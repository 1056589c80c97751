//! Throttle: commits that write faster than a checkpoint can be made wait for it.
//!
//! # The idea
//!
//! A checkpoint follows the log ([`pacing`](super::pacing)). But if more log is written than a
//! checkpoint at full speed can absorb, each checkpoint has more to read than the previous one and
//! takes longer. The log would grow until the disk is full, and the next restart would take as
//! long. So the throttle makes the log follow the checkpoint. While one is being made,
//! [`LogBudget`] limits how much log may be written, and raises the limit as the checkpoint
//! proceeds. A commit whose record ends beyond the limit waits until the limit has reached it. It
//! waits after it has become as durable as required, holding neither locks nor an admission slot.
//!
//! This is flow control by a window of bytes, not by a rate. It measures nothing in seconds, so it
//! works for fast and slow devices, for one writer and for a thousand. Waiting commits leave the
//! processors to the checkpoint.
//!
//! A released commit gets a credit of several bytes, for itself and for later commits, because
//! sleeping and waking cost more than most commits. So a few threads write for a while, and then
//! others.
//!
//! A transaction that changes pages writes log before its commit, and so does its rollback. It
//! requests the checkpoint that is due, and does not wait for it, because it holds locks.
//!
//! InnoDB makes its writers wait when its log is full, and RocksDB when compaction falls behind.
//! PostgreSQL does not, and its `max_wal_size` is no bound.
//!
//! # State
//!
//! * `threshold`: a commit whose record ends here or further has something to do: request a
//!   checkpoint, or wait. Other commits pay only this comparison.
//! * The gate: whether a checkpoint is being made, the LSN that the log may reach (`limit`), how
//!   much of that is granted (`granted`), and the waiting commits in order of arrival.
//! * The [`WriteCredit`] of each writer: its remaining bytes, and the round in which they are
//!   valid. A round is the time from one opening of the gate to the next.
//!
//! # Invariants
//!
//! * I1  No commit waits while no checkpoint is being made. The thread that ends a checkpoint, with
//!   whatever result, opens the gate under its mutex and releases all waiters. A commit checks the
//!   gate under the mutex before it waits.
//! * I2  While commits wait, there is no space for the first of them. The thread that raises
//!   `limit` and a commit that arrives both check this under the same mutex.
//! * I3  Making a checkpoint waits for no commit: it takes no lock of transactions, and the log's
//!   flusher takes none either. So with I1 every wait ends.
//! * I4  `granted` is at least the end of the last arrival's record, and grows by the credit of
//!   each released commit; a credit is valid in its round only. So at most one commit per thread is
//!   written beyond `limit`.
//! * I5  No thread takes the mutex while it holds a lock. While it commits it only reads
//!   `threshold`; it does the rest when it holds nothing. So a thread that is descheduled here
//!   delays only writers that have reached the threshold.
//!
//! # Orderings
//!
//! None: `threshold` and the round guard no memory and are only hints. A thread that reads too
//! small a threshold checks again under the mutex. A thread that reads too old a round uses a
//! credit that was valid a moment ago.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use foxton_log::Lsn;
use foxton_sync::park::{Parker, Ticket, Verdict, WAKING};
use foxton_sync::process::ProcessStamp;
use foxton_sync::shim::{self, AtomicU64, Mutex, Ordering::Relaxed};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

/// Commits that request a checkpoint or are to wait for one, and the thread that makes it.
static GATE: Site = Site::new(Component::Message, Pattern::Unbounded, "checkpoint due");

/// Verdict: the commit gets a credit.
const CREDIT: Verdict = Verdict::new(1);
/// Verdict: the gate is open, so the commit needs no credit.
const OPEN: Verdict = Verdict::new(2);

/// The credit of a released commit is the log between two checkpoints divided by this.
const CREDIT_DIVISOR: u64 = 256;
/// Maximum credit, in bytes.
const MAX_CREDIT: u64 = 64 << 10;

/// How much log may be written while a checkpoint is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogBudget {
    /// Bytes allowed when it begins.
    at_once: u64,
    /// Further bytes allowed until it is done.
    meanwhile: u64,
}

impl LogBudget {
    /// Returns the budget of a checkpoint of `left` bytes of log, where one is due every `every`
    /// bytes, which rewrites `older` bytes of existing layers.
    ///
    /// It allows half of `every` at once, and `every` in the course of the checkpoint. So the next
    /// checkpoint reads at most half as much again as it would without throttling. A checkpoint
    /// with more to read allows half of that, so the next one has about half as much to read. A
    /// checkpoint that rewrites a large database takes long and is rare, and allows an eighth of
    /// that: at restart, loading the rewritten bytes takes longer than replaying so much log.
    pub(super) fn new(every: u64, left: u64, older: u64) -> LogBudget {
        LogBudget {
            at_once: every / 2,
            meanwhile: every.max(left / 2).max(older / 8),
        }
    }

    /// Returns the bytes allowed when a share of the checkpoint is done.
    pub(super) fn at(self, done: f64) -> u64 {
        let meanwhile = (self.meanwhile as f64 * done.clamp(0.0, 1.0)) as u64;
        self.at_once.saturating_add(meanwhile)
    }
}

/// Numbers of commits that wait or have waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct StallCounts {
    pub(super) now: u64,
    /// Commits that have waited or wait.
    pub(super) begun: u64,
    /// Total time of completed waits.
    pub(super) waited: Duration,
}

/// The next step of a commit beyond the threshold.
#[derive(Debug)]
pub(super) enum StallDecision {
    /// Nothing: it may continue, or another commit has made the request.
    Nothing,
    /// Request a checkpoint; it is the first.
    Ask,
    /// Wait.
    Wait(WriteStall),
}

/// Bytes that a writer may write before it waits again; kept from one transaction to the next.
#[derive(Debug, Default)]
pub(crate) struct WriteCredit {
    /// Bytes of log left.
    credit: u64,
    /// The round in which they are valid.
    round: u64,
    /// Whether the current commit is beyond the threshold without credit.
    is_ahead: bool,
    /// Where the log ended when its open transaction last requested a checkpoint.
    asked_at: Lsn,
}

impl WriteCredit {
    /// True if the current commit has something to do when it holds nothing.
    #[inline]
    pub(crate) fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// Ends the current commit.
    #[inline]
    pub(crate) fn done(&mut self) {
        self.is_ahead = false;
    }
}

/// A wait for credit.
#[derive(Debug)]
pub(crate) struct WriteStall {
    credit: u64,
    parker: Arc<Parker>,
    ticket: Ticket,
    process: ProcessStamp,
}

impl WriteStall {
    /// Sleeps until the commit gets a credit or needs none.
    pub(crate) fn wait(&self, write_credit: &mut WriteCredit) {
        let verdict = self.parker.wait(self.ticket, None);
        self.take(
            write_credit,
            verdict.expect("a wait without a deadline ends with a verdict"),
        );
    }

    /// Like `wait`, for a task.
    pub(crate) fn poll(
        &self,
        write_credit: &mut WriteCredit,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let verdict = ready!(self.parker.poll(self.ticket, context));
        self.take(write_credit, verdict);
        Poll::Ready(())
    }

    fn take(&self, write_credit: &mut WriteCredit, verdict: Verdict) {
        if verdict == CREDIT {
            write_credit.credit = self.credit;
        }
    }
}

impl Drop for WriteStall {
    fn drop(&mut self) {
        // If a task is dropped early, its entry stays in the queue and later gets a credit that
        // goes unused.
        if !self.process.is_inherited() {
            self.parker.disarm(self.ticket);
        }
    }
}

/// The throttle; see the [module](self).
#[derive(Debug)]
pub(super) struct Throttle {
    /// The credit of a released commit.
    credit: u64,
    threshold: AtomicU64,
    /// Number of times the gate was opened.
    round: AtomicU64,
    gate: Mutex<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    /// LSN that the log may reach, while a checkpoint is being made.
    limit: Option<Lsn>,
    /// LSN up to which that is granted.
    granted: Lsn,
    waiting: VecDeque<StalledCommit>,
    waits: u64,
    waited: Duration,
}

#[derive(Debug)]
struct StalledCommit {
    parker: Arc<Parker>,
    ticket: Ticket,
    since: Instant,
}

impl Throttle {
    /// Creates a throttle. The first checkpoint is due at `due`, later ones every `every` bytes.
    pub(super) fn new(due: Lsn, every: u64) -> Throttle {
        Throttle {
            credit: (every / CREDIT_DIVISOR).clamp(1, MAX_CREDIT),
            threshold: AtomicU64::new(due.bytes()),
            round: AtomicU64::new(0),
            gate: Mutex::default(),
        }
    }

    /// Records that a log record of `bytes` bytes ends at `end`.
    #[inline]
    pub(super) fn note(&self, write_credit: &mut WriteCredit, end: Lsn, bytes: u64) {
        if end.bytes() >= self.threshold.load(Relaxed) {
            self.spend(write_credit, bytes);
        }
    }

    #[cold]
    fn spend(&self, write_credit: &mut WriteCredit, bytes: u64) {
        match write_credit.credit > 0 && write_credit.round == self.round.load(Relaxed) {
            true => write_credit.credit = write_credit.credit.saturating_sub(bytes),
            false => write_credit.is_ahead = true,
        }
    }

    /// True if an open transaction, whose last record ends at `end`, should find out whether a
    /// checkpoint is [due](Self::asks). It does so once for as many bytes of log as a credit has,
    /// because a large transaction would otherwise pass the gate for each of its changes.
    #[inline]
    pub(super) fn may_be_due(&self, write_credit: &mut WriteCredit, end: Lsn) -> bool {
        let is_due = end.bytes() >= self.threshold.load(Relaxed)
            && end >= write_credit.asked_at.plus(self.credit);
        if is_due {
            write_credit.asked_at = end;
        }
        is_due
    }

    /// Decides what a commit whose record ends at `end` must do, now that it holds nothing.
    pub(super) fn pass(
        &self,
        worker: &Worker,
        write_credit: &mut WriteCredit,
        end: Lsn,
    ) -> StallDecision {
        worker.account().passed(&GATE);
        let mut gate = shim::lock(&self.gate);
        let Some(limit) = gate.limit else {
            // I1
            return match self.is_first(end) {
                true => StallDecision::Ask,
                false => StallDecision::Nothing,
            };
        };
        // A waiter is released before the gate opens, or when it opens.
        write_credit.round = self.round.load(Relaxed);
        gate.granted = gate.granted.max(end); // I4
        if gate.waiting.is_empty() && gate.granted.plus(self.credit) <= limit {
            // I2
            gate.granted = gate.granted.plus(self.credit);
            write_credit.credit = self.credit;
            return StallDecision::Nothing;
        }
        let parker = Arc::new(Parker::new());
        let ticket = parker.arm();
        gate.waiting.push_back(StalledCommit {
            parker: parker.clone(),
            ticket,
            since: Instant::now(),
        });
        gate.waits += 1;
        worker.account().passed(&WAKING);
        StallDecision::Wait(WriteStall {
            credit: self.credit,
            parker,
            ticket,
            process: ProcessStamp::new(),
        })
    }

    /// True if a commit whose record ends at `end`, and which cannot wait, must request a
    /// checkpoint.
    pub(super) fn asks(&self, worker: &Worker, end: Lsn) -> bool {
        worker.account().passed(&GATE);
        let gate = shim::lock(&self.gate);
        gate.limit.is_none() && self.is_first(end)
    }

    /// Under the mutex, while no checkpoint is being made: returns true once when a checkpoint is
    /// due.
    fn is_first(&self, end: Lsn) -> bool {
        let is_due = end.bytes() >= self.threshold.load(Relaxed);
        if is_due {
            self.threshold.store(u64::MAX, Relaxed);
        }
        is_due
    }

    /// Records that a checkpoint is being made and that the log may reach `limit`. The limit only
    /// grows during a checkpoint.
    pub(super) fn allow(&self, worker: &Worker, limit: Lsn) {
        worker.account().passed(&GATE);
        let gone = {
            let mut gate = shim::lock(&self.gate);
            gate.limit = Some(limit);
            self.threshold.store(limit.bytes(), Relaxed);
            // I2
            let credits = limit.since(gate.granted) / self.credit;
            let count = credits.min(gate.waiting.len() as u64);
            gate.granted = gate.granted.plus(count * self.credit);
            gate.release(count as usize)
        };
        Throttle::wake(worker, gone, CREDIT);
    }

    /// Closes the gate from the first call of [`allow`](Self::allow) until the guard is dropped.
    pub(super) fn guard<'t>(&'t self, worker: &'t Worker) -> ThrottleGuard<'t> {
        ThrottleGuard {
            throttle: self,
            worker,
            due: Lsn::MAX,
        }
    }

    /// Opens the gate after a checkpoint; the next one is due at `due`.
    fn open(&self, worker: &Worker, due: Lsn) {
        worker.account().passed(&GATE);
        let gone = {
            let mut gate = shim::lock(&self.gate);
            gate.limit = None;
            gate.granted = Lsn::ZERO;
            // Credits of this round end here.
            self.round.fetch_add(1, Relaxed);
            self.threshold.store(due.bytes(), Relaxed);
            let all = gate.waiting.len();
            gate.release(all)
        };
        Throttle::wake(worker, gone, OPEN);
    }

    /// Wakes waiters outside the mutex, because each wake-up costs a system call.
    fn wake(worker: &Worker, gone: Vec<StalledCommit>, verdict: Verdict) {
        for waiter in gone {
            worker.account().passed(&WAKING);
            if let Some(wake) = waiter.parker.resolve(waiter.ticket, verdict) {
                wake.wake();
            }
        }
    }

    /// Returns the counts of waits.
    pub(super) fn waits(&self) -> StallCounts {
        let gate = shim::lock(&self.gate);
        StallCounts {
            now: gate.waiting.len() as u64,
            begun: gate.waits,
            waited: gate.waited,
        }
    }
}

/// A closed gate. Dropping it opens the gate (I1), even in a panic.
#[derive(Debug)]
pub(super) struct ThrottleGuard<'t> {
    throttle: &'t Throttle,
    worker: &'t Worker,
    due: Lsn,
}

impl ThrottleGuard<'_> {
    /// Sets the LSN at which the next checkpoint is due.
    pub(super) fn set_due(&mut self, due: Lsn) {
        self.due = due;
    }

    /// Returns that LSN.
    pub(super) fn due(&self) -> Lsn {
        self.due
    }
}

impl Drop for ThrottleGuard<'_> {
    fn drop(&mut self) {
        self.throttle.open(self.worker, self.due);
    }
}

impl Gate {
    /// Removes the first `count` waiters.
    fn release(&mut self, count: usize) -> Vec<StalledCommit> {
        let gone = self.waiting.drain(..count).collect::<Vec<_>>();
        let waited = gone.iter().map(|waiter| waiter.since.elapsed());
        self.waited += waited.sum::<Duration>();
        gone
    }
}

#[cfg(test)]
mod tests;
