//! Who writes faster than a checkpoint can be made waits for it.
//!
//! # The idea
//!
//! A checkpoint goes with the log ([`pacing`](super::pacing)). But if more log comes than one can be made of, however fast it
//! goes, each has more to read than the one before it, and takes longer: the log would grow until the disk is full, and
//! the next restart would take as long. So the log goes with the checkpoint then. While one is being made, so
//! much log may come as [`LogBudget`] say, more the further it is, and a commit whose record ends behind that waits, once it
//! is as durable as was asked and holds neither locks nor a seat, until the checkpoint has come so far that it
//! may. It is flow control as by a window of bytes, and not a rate: nothing is measured in seconds, so it holds for a fast
//! device and a slow one, for one writer and for a thousand; and who waits leaves the processors to the checkpoint.
//!
//! Who is let go has room for so many bytes, of this commit and those after it, since to sleep and be woken for each commit would cost more than
//! most of them. So a few write for a while, and then others do.
//!
//! InnoDB lets its writers wait where its log is full, and RocksDB where merging is behind. PostgreSQL does not, and its
//! `max_wal_size` is no bound.
//!
//! # State
//!
//! * `line`: a commit whose record ends here or further has something to do: to ask for a checkpoint, or to wait.
//!   That comparison is all that others pay.
//! * The gate: whether a checkpoint is being made, up to where the log may come (`until`), how much of that is taken (`taken`), and
//!   who waits, in the order in which they came.
//! * The [`WriteCredit`] of whoever writes: how much room it has left, and of which round, which is the time from one opening of the
//!   gate to the next.
//!
//! # Invariants
//!
//! * I1  Nobody waits while no checkpoint is being made: who ends one, whatever came of it, opens the gate under its mutex and lets
//!   all go, and who is to wait looks there first.
//! * I2  While anybody waits, there is no room for the first of them: who raises `until`, and who comes, looks under the same
//!   mutex.
//! * I3  Making a checkpoint waits for no commit: it takes no lock of transactions, and the log's flusher none either. So
//!   with I1 every wait ends.
//! * I4  `taken` is at least where the record of the last who came ends, and grows by the room of whoever is let go; and room is good for its round only. So
//!   no more than one commit of each thread is written behind `until`.
//! * I5  Nobody passes the mutex with a lock: while it commits it only looks at `line`, and what follows from that is done when it holds nothing. So
//!   whoever loses the processor here stops nobody but those who write, too, and have come to the line.
//!
//! # Orderings
//!
//! None: `line` and the round lead to no memory and are only hints. Who finds the one too small looks again under the mutex; who finds the
//! round too old has room that was good a moment ago.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use foxton_log::Lsn;
use foxton_sync::park::{Parker, Ticket, Verdict, WAKING};
use foxton_sync::shim::{self, AtomicU64, Mutex, Ordering::Relaxed};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

/// Commits that ask for a checkpoint, or are to wait for one, and whoever makes it.
static GATE: Site = Site::new(Component::Message, Pattern::Unbounded, "checkpoint due");

/// There is room for it.
const ROOM: Verdict = Verdict::new(1);
/// Nobody needs room any more.
const OPEN: Verdict = Verdict::new(2);

/// A share of the log between two checkpoints is the room of one that is let go.
const SHARE: u64 = 256;
/// But no more than so many bytes.
const MOST: u64 = 64 << 10;

/// How much log may come while a checkpoint is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogBudget {
    /// As soon as it begins.
    at_once: u64,
    /// And until it is done.
    meanwhile: u64,
}

impl LogBudget {
    /// While one is made of `left` bytes of log, which comes `every` so many bytes, and rewrites `older` bytes of what there is.
    ///
    /// Half of `every`, and the whole of it, so that the next reads at most half as much again as it would if no more came than it is made
    /// for. One that has more to read lets half of that come, so the next has about half as much to read. And one that rewrites a
    /// large database, which takes long and comes seldom, lets an eighth of that come: loading what was rewritten takes a restart longer
    /// than replaying so much.
    pub(super) fn new(every: u64, left: u64, older: u64) -> LogBudget {
        LogBudget {
            at_once: every / 2,
            meanwhile: every.max(left / 2).max(older / 8),
        }
    }

    /// Where a share of it is done.
    pub(super) fn at(self, done: f64) -> u64 {
        let meanwhile = (self.meanwhile as f64 * done.clamp(0.0, 1.0)) as u64;
        self.at_once.saturating_add(meanwhile)
    }
}

/// Commits that wait, or have waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct StallCounts {
    pub(super) now: u64,
    /// Those that have waited, and those that do.
    pub(super) begun: u64,
    /// How long those that have waited did, together.
    pub(super) waited: Duration,
}

/// What a commit that has passed the line is to do.
#[derive(Debug)]
pub(super) enum StallDecision {
    /// Nothing: it may go on by now, or another has asked.
    Nothing,
    /// Ask for a checkpoint; it is the first.
    Ask,
    /// Wait.
    Wait(WriteStall),
}

/// What whoever writes may write before it waits again, kept from one transaction to the next.
#[derive(Debug, Default)]
pub(crate) struct WriteCredit {
    /// Bytes of the log.
    room: u64,
    /// The round in which they are good.
    round: u64,
    /// Whether the commit at hand has passed the line, without room.
    is_ahead: bool,
}

impl WriteCredit {
    /// Whether the commit at hand has something to do when it holds nothing.
    #[inline]
    pub(crate) fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// The commit at hand is over.
    #[inline]
    pub(crate) fn done(&mut self) {
        self.is_ahead = false;
    }
}

/// A wait for room.
#[derive(Debug)]
pub(crate) struct WriteStall {
    room: u64,
    parker: Arc<Parker>,
    ticket: Ticket,
}

impl WriteStall {
    /// Sleeps until there is room, or none is needed any more.
    pub(crate) fn wait(&self, write_credit: &mut WriteCredit) {
        let verdict = self.parker.wait(self.ticket, None);
        self.take(
            write_credit,
            verdict.expect("a wait without a deadline ends with a verdict"),
        );
    }

    /// The same, for a task.
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
        if verdict == ROOM {
            write_credit.room = self.room;
        }
    }
}

impl Drop for WriteStall {
    fn drop(&mut self) {
        // Of a task that goes before, the entry stays until there is room, which is then given in vain.
        self.parker.disarm(self.ticket);
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Throttle {
    /// The room of one that is let go.
    room: u64,
    line: AtomicU64,
    /// How often the gate was opened.
    round: AtomicU64,
    gate: Mutex<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    /// Up to where the log may come, while a checkpoint is being made.
    until: Option<Lsn>,
    /// Up to where that is taken.
    taken: Lsn,
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
    /// The first checkpoint is due at `due`, and then every so many bytes.
    pub(super) fn new(due: Lsn, every: u64) -> Throttle {
        Throttle {
            room: (every / SHARE).clamp(1, MOST),
            line: AtomicU64::new(due.bytes()),
            round: AtomicU64::new(0),
            gate: Mutex::default(),
        }
    }

    /// Notes that a record of so many bytes has come, which ends at `end`.
    #[inline]
    pub(super) fn note(&self, write_credit: &mut WriteCredit, end: Lsn, bytes: u64) {
        if end.bytes() >= self.line.load(Relaxed) {
            self.spend(write_credit, bytes);
        }
    }

    #[cold]
    fn spend(&self, write_credit: &mut WriteCredit, bytes: u64) {
        match write_credit.room > 0 && write_credit.round == self.round.load(Relaxed) {
            true => write_credit.room = write_credit.room.saturating_sub(bytes),
            false => write_credit.is_ahead = true,
        }
    }

    /// What whoever has a record that ends at `end` is to do, now that it holds nothing.
    pub(super) fn pass(
        &self,
        worker: &Worker,
        write_credit: &mut WriteCredit,
        end: Lsn,
    ) -> StallDecision {
        worker.account().passed(&GATE);
        let mut gate = shim::lock(&self.gate);
        let Some(until) = gate.until else {
            // I1
            return match self.is_first(end) {
                true => StallDecision::Ask,
                false => StallDecision::Nothing,
            };
        };
        // Who waits leaves before the gate is opened, or when it is.
        write_credit.round = self.round.load(Relaxed);
        gate.taken = gate.taken.max(end); // I4
        if gate.waiting.is_empty() && gate.taken.plus(self.room) <= until {
            // I2
            gate.taken = gate.taken.plus(self.room);
            write_credit.room = self.room;
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
            room: self.room,
            parker,
            ticket,
        })
    }

    /// Whether whoever has a record that ends at `end`, and does not wait, is to ask for a checkpoint.
    pub(super) fn asks(&self, worker: &Worker, end: Lsn) -> bool {
        worker.account().passed(&GATE);
        let gate = shim::lock(&self.gate);
        gate.until.is_none() && self.is_first(end)
    }

    /// Under the mutex, while none is being made: whether one is due that nobody has asked for; then somebody has.
    fn is_first(&self, end: Lsn) -> bool {
        let is_due = end.bytes() >= self.line.load(Relaxed);
        if is_due {
            self.line.store(u64::MAX, Relaxed);
        }
        is_due
    }

    /// A checkpoint is being made, and the log may come to `until`; further than before, if it has not just begun.
    pub(super) fn allow(&self, worker: &Worker, until: Lsn) {
        worker.account().passed(&GATE);
        let gone = {
            let mut gate = shim::lock(&self.gate);
            gate.until = Some(until);
            self.line.store(until.bytes(), Relaxed);
            // I2
            let rooms = until.since(gate.taken) / self.room;
            let count = rooms.min(gate.waiting.len() as u64);
            gate.taken = gate.taken.plus(count * self.room);
            gate.release(count as usize)
        };
        Throttle::wake(worker, gone, ROOM);
    }

    /// Shuts the gate, from when [`allow`](Self::allow) is called first until what is returned goes.
    pub(super) fn shut<'t>(&'t self, worker: &'t Worker) -> ThrottleGuard<'t> {
        ThrottleGuard {
            throttle: self,
            worker,
            due: Lsn::MAX,
        }
    }

    /// It is over, and the next is due at `due`.
    fn open(&self, worker: &Worker, due: Lsn) {
        worker.account().passed(&GATE);
        let gone = {
            let mut gate = shim::lock(&self.gate);
            gate.until = None;
            gate.taken = Lsn::ZERO;
            // Whoever has room left has none in the next round.
            self.round.fetch_add(1, Relaxed);
            self.line.store(due.bytes(), Relaxed);
            let all = gate.waiting.len();
            gate.release(all)
        };
        Throttle::wake(worker, gone, OPEN);
    }

    /// Waking costs a system call for each: not under the mutex.
    fn wake(worker: &Worker, gone: Vec<StalledCommit>, verdict: Verdict) {
        for waiter in gone {
            worker.account().passed(&WAKING);
            if let Some(wake) = waiter.parker.resolve(waiter.ticket, verdict) {
                wake.wake();
            }
        }
    }

    /// Who has waited.
    pub(super) fn waits(&self) -> StallCounts {
        let gate = shim::lock(&self.gate);
        StallCounts {
            now: gate.waiting.len() as u64,
            begun: gate.waits,
            waited: gate.waited,
        }
    }
}

/// A gate that is shut: I1, whatever becomes of whoever shut it.
#[derive(Debug)]
pub(super) struct ThrottleGuard<'t> {
    throttle: &'t Throttle,
    worker: &'t Worker,
    due: Lsn,
}

impl ThrottleGuard<'_> {
    /// The next checkpoint is due at `due`.
    pub(super) fn until(&mut self, due: Lsn) {
        self.due = due;
    }

    /// When it is.
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
    /// Takes out the first so many.
    fn release(&mut self, count: usize) -> Vec<StalledCommit> {
        let gone = self.waiting.drain(..count).collect::<Vec<_>>();
        let waited = gone.iter().map(|waiter| waiter.since.elapsed());
        self.waited += waited.sum::<Duration>();
        gone
    }
}

#[cfg(test)]
mod tests;
