//! Who writes faster than a checkpoint can be made waits for it.
//!
//! # The idea
//!
//! A checkpoint goes with the log ([`pace`](super::pace)). But if more log comes than one can be made of, however fast it
//! goes, each has more to read than the one before it, and takes longer: the log would grow until the disk is full, and
//! the next restart would take as long. So the log goes with the checkpoint then. While one is being made, so
//! much log may come as [`Terms`] say, more the further it is, and a commit whose record ends behind that waits, once it
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
//! * The [`Permit`] of whoever writes: how much room it has left.
//!
//! # Invariants
//!
//! * I1  Nobody waits while no checkpoint is being made: who ends one, whatever came of it, opens the gate under its mutex and lets
//!   all go, and who is to wait looks there first.
//! * I2  While anybody waits, there is no room for the first of them: who raises `until`, and who comes, looks under the same
//!   mutex.
//! * I3  Making a checkpoint waits for no commit: it takes no lock of transactions, and the log's flusher none either. So
//!   with I1 every wait ends.
//! * I4  `taken` is at least where the record of the last who came ends, and grows by the room of whoever is let go. So what is written behind
//!   `until` is no more than one commit of each thread, and what room is left from before.
//!
//! # Orderings
//!
//! None: `line` leads to no memory and is only a hint, which is looked at again under the mutex.

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
pub(super) struct Terms {
    /// As soon as it begins.
    at_once: u64,
    /// And until it is done.
    meanwhile: u64,
}

impl Terms {
    /// While one is made of `left` bytes of log, which comes `every` so many bytes, and rewrites `older` bytes of what there is.
    ///
    /// Half of `every`, and the whole of it, so that the next reads at most half as much again as it would if no more came than it is made
    /// for. One that has more to read lets half of that come, so the next has about half as much to read. And one that rewrites a
    /// large database, which takes long and comes seldom, lets an eighth of that come: loading what was rewritten takes a restart longer
    /// than replaying so much.
    pub(super) fn new(every: u64, left: u64, older: u64) -> Terms {
        Terms {
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
pub(super) struct Waits {
    pub(super) now: u64,
    /// Those that have waited, and those that do.
    pub(super) begun: u64,
    /// How long those that have waited did, together.
    pub(super) waited: Duration,
}

/// What a commit that has passed the line is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    /// Nothing now; its permit says whether it is to wait.
    Nothing,
    /// Ask for a checkpoint; it is the first.
    Ask,
}

/// What whoever writes may write before it waits again, kept from one transaction to the next.
#[derive(Debug, Default)]
pub(crate) struct Permit {
    /// Bytes of the log.
    room: u64,
    /// Whether the commit at hand is to wait.
    is_ahead: bool,
}

impl Permit {
    /// Whether the commit at hand is to wait, when it holds nothing.
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

/// The wait of a task.
#[derive(Debug, Default)]
pub(crate) struct Held(Option<(Arc<Parker>, Ticket)>);

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((parker, ticket)) = self.0.take() {
            // Its entry stays until there is room, which is then given in vain.
            parker.disarm(ticket);
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Throttle {
    /// The room of one that is let go.
    room: u64,
    line: AtomicU64,
    gate: Mutex<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    /// Up to where the log may come, while a checkpoint is being made.
    until: Option<Lsn>,
    /// Up to where that is taken.
    taken: Lsn,
    waiting: VecDeque<Waiter>,
    waits: u64,
    waited: Duration,
}

#[derive(Debug)]
struct Waiter {
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
            gate: Mutex::default(),
        }
    }

    /// Whether a commit whose record ends at `end` has something to do.
    #[inline]
    pub(super) fn is_passed(&self, end: Lsn) -> bool {
        end.bytes() >= self.line.load(Relaxed)
    }

    /// What that is, for whoever has `permit` and a record of so many bytes there.
    pub(super) fn passed(
        &self,
        worker: &Worker,
        permit: &mut Permit,
        end: Lsn,
        bytes: u64,
    ) -> Passed {
        if permit.room > 0 {
            // If it is left from before, somebody else asks for the next checkpoint, or it does a moment later.
            permit.room = permit.room.saturating_sub(bytes);
            return Passed::Nothing;
        }
        worker.account().passed(&GATE);
        let gate = shim::lock(&self.gate);
        match gate.until {
            Some(until) if end > until => {
                permit.is_ahead = true;
                Passed::Nothing
            }
            Some(_) => Passed::Nothing,
            // Another may have asked since it looked.
            None if end.bytes() < self.line.load(Relaxed) => Passed::Nothing,
            None => {
                self.line.store(u64::MAX, Relaxed);
                Passed::Ask
            }
        }
    }

    /// Waits until there is room for whoever has a record that ends at `end`.
    pub(super) fn wait(&self, worker: &Worker, permit: &mut Permit, end: Lsn) {
        if let Some((parker, ticket)) = self.enter(worker, permit, end) {
            let verdict = parker.wait(ticket, None);
            self.let_go(
                permit,
                verdict.expect("a wait without a deadline ends with a verdict"),
            );
        }
    }

    /// As [`wait`](Self::wait), for a task.
    pub(super) fn poll(
        &self,
        worker: &Worker,
        permit: &mut Permit,
        held: &mut Held,
        end: Lsn,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if held.0.is_none() {
            held.0 = self.enter(worker, permit, end);
        }
        match &held.0 {
            None => Poll::Ready(()),
            Some((parker, ticket)) => {
                let verdict = ready!(parker.poll(*ticket, context));
                self.let_go(permit, verdict);
                Poll::Ready(())
            }
        }
    }

    fn let_go(&self, permit: &mut Permit, verdict: Verdict) {
        if verdict == ROOM {
            permit.room = self.room;
        }
    }

    fn enter(
        &self,
        worker: &Worker,
        permit: &mut Permit,
        end: Lsn,
    ) -> Option<(Arc<Parker>, Ticket)> {
        worker.account().passed(&GATE);
        let mut gate = shim::lock(&self.gate);
        let until = gate.until?; // I1
        gate.taken = gate.taken.max(end); // I4
        if gate.waiting.is_empty() && gate.taken.plus(self.room) <= until {
            // I2
            gate.taken = gate.taken.plus(self.room);
            permit.room = self.room;
            return None;
        }
        let parker = Arc::new(Parker::new());
        let waiter = Waiter {
            parker: parker.clone(),
            ticket: parker.arm(),
            since: Instant::now(),
        };
        let ticket = waiter.ticket;
        gate.waiting.push_back(waiter);
        gate.waits += 1;
        worker.account().passed(&WAKING);
        Some((parker, ticket))
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
    pub(super) fn shut<'t>(&'t self, worker: &'t Worker) -> Shut<'t> {
        Shut {
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
            self.line.store(due.bytes(), Relaxed);
            let all = gate.waiting.len();
            gate.release(all)
        };
        Throttle::wake(worker, gone, OPEN);
    }

    /// Waking costs a system call for each: not under the mutex.
    fn wake(worker: &Worker, gone: Vec<Waiter>, verdict: Verdict) {
        for waiter in gone {
            worker.account().passed(&WAKING);
            if let Some(wake) = waiter.parker.resolve(waiter.ticket, verdict) {
                wake.wake();
            }
        }
    }

    /// Who has waited.
    pub(super) fn waits(&self) -> Waits {
        let gate = shim::lock(&self.gate);
        Waits {
            now: gate.waiting.len() as u64,
            begun: gate.waits,
            waited: gate.waited,
        }
    }
}

/// A gate that is shut: I1, whatever becomes of whoever shut it.
#[derive(Debug)]
pub(super) struct Shut<'t> {
    throttle: &'t Throttle,
    worker: &'t Worker,
    due: Lsn,
}

impl<'t> Shut<'t> {
    /// Who shut it.
    pub(super) fn worker(&self) -> &'t Worker {
        self.worker
    }

    /// The next checkpoint is due at `due`.
    pub(super) fn until(&mut self, due: Lsn) {
        self.due = due;
    }

    /// When it is.
    pub(super) fn due(&self) -> Lsn {
        self.due
    }
}

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        self.throttle.open(self.worker, self.due);
    }
}

impl Gate {
    /// Takes out the first so many.
    fn release(&mut self, count: usize) -> Vec<Waiter> {
        let gone = self.waiting.drain(..count).collect::<Vec<_>>();
        let waited = gone.iter().map(|waiter| waiter.since.elapsed());
        self.waited += waited.sum::<Duration>();
        gone
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64 as Plain, Ordering::SeqCst};
    use std::task::Waker;
    use std::thread;

    use foxton_sync::worker::Workers;

    use super::*;

    const KIB: u64 = 1 << 10;

    fn worker() -> Worker {
        Workers::new().background_worker()
    }

    /// A checkpoint every 256 KiB: the room is 1 KiB.
    fn throttle() -> Throttle {
        Throttle::new(Lsn::new(256 * KIB), 256 * KIB)
    }

    fn passed(throttle: &Throttle, permit: &mut Permit, end: u64) -> Passed {
        permit.done();
        match throttle.is_passed(Lsn::new(end)) {
            true => throttle.passed(&worker(), permit, Lsn::new(end), 100),
            false => Passed::Nothing,
        }
    }

    #[test]
    fn as_much_comes_as_the_terms_say() {
        let at = |terms: Terms| [-1.0, 0.0, 0.5, 1.0, 7.0].map(|done| terms.at(done));
        // The usual one, one that has much to read, and one that rewrites a large database.
        assert_eq!(at(Terms::new(100, 100, 0)), [50, 50, 100, 150, 150]);
        assert_eq!(at(Terms::new(100, 1_000, 700)), [50, 50, 300, 550, 550]);
        assert_eq!(at(Terms::new(100, 100, 8_000)), [50, 50, 550, 1_050, 1_050]);
        assert_eq!(Terms::new(u64::MAX, 5, 5).at(1.0), u64::MAX);
    }

    #[test]
    fn one_asks_for_a_checkpoint_and_nobody_waits_before_it_is_made() {
        let throttle = throttle();
        let mut permit = Permit::default();
        assert_eq!(
            passed(&throttle, &mut permit, 256 * KIB - 1),
            Passed::Nothing
        );
        assert_eq!(passed(&throttle, &mut permit, 256 * KIB), Passed::Ask);
        for end in [256 * KIB, 10_000 * KIB] {
            assert_eq!(passed(&throttle, &mut permit, end), Passed::Nothing);
            assert!(!permit.is_ahead());
        }
        // It was ahead when it was looked at, and no longer.
        throttle.wait(&worker(), &mut permit, Lsn::new(10_000 * KIB));
        assert_eq!(throttle.waits(), Waits::default());
    }

    #[test]
    fn who_is_ahead_waits_for_room_in_the_order_they_came_and_has_it_for_a_while() {
        let (throttle, worker) = (throttle(), worker());
        let shut = throttle.shut(&worker);
        throttle.allow(&worker, Lsn::new(300 * KIB));
        let mut permits = [(); 4].map(|()| Permit::default());
        assert_eq!(
            passed(&throttle, &mut permits[0], 300 * KIB),
            Passed::Nothing
        );
        assert!(!permits[0].is_ahead(), "it may come so far");
        let mut held = [(); 4].map(|()| Held::default());
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = |permits: &mut [Permit; 4], held: &mut [Held; 4]| {
            let mut at = 0;
            [(); 4].map(|()| {
                at += 1;
                let end = Lsn::new(300 * KIB + at as u64 * 100);
                let (permit, held) = (&mut permits[at - 1], &mut held[at - 1]);
                throttle
                    .poll(&worker, permit, held, end, &mut context)
                    .is_ready()
            })
        };
        for (permit, end) in permits.iter_mut().zip([100, 200, 300, 400]) {
            assert_eq!(passed(&throttle, permit, 300 * KIB + end), Passed::Nothing);
            assert!(permit.is_ahead());
        }
        assert_eq!(poll(&mut permits, &mut held), [false; 4]);
        // What they have written themselves takes 400 bytes; then there is room for one, and for two more.
        throttle.allow(&worker, Lsn::new(301 * KIB + 399));
        assert_eq!(poll(&mut permits, &mut held), [false; 4]);
        throttle.allow(&worker, Lsn::new(301 * KIB + 400));
        assert_eq!(poll(&mut permits, &mut held)[0..2], [true, false]);
        throttle.allow(&worker, Lsn::new(303 * KIB + 400));
        held[0] = Held::default();
        let (first, rest) = (permits[0].room, poll(&mut permits, &mut held));
        assert_eq!((first, rest[1..].to_vec()), (KIB, vec![true, true, false]));
        // The second has room for eleven commits of a hundred bytes, and then waits again.
        for nth in 0..11 {
            assert_eq!(
                passed(&throttle, &mut permits[1], 400 * KIB),
                Passed::Nothing
            );
            assert!(!permits[1].is_ahead(), "{nth}");
        }
        assert_eq!(
            passed(&throttle, &mut permits[1], 400 * KIB),
            Passed::Nothing
        );
        assert!(permits[1].is_ahead());
        // When it is over everybody goes on, with no room for the next time.
        drop(shut);
        assert!(poll(&mut permits, &mut held)[3]);
        assert_eq!(permits[3].room, 0);
    }

    #[test]
    fn a_task_that_is_dropped_takes_its_room_with_it_and_holds_up_nobody() {
        let (throttle, worker) = (throttle(), worker());
        let _shut = throttle.shut(&worker);
        throttle.allow(&worker, Lsn::new(300 * KIB));
        let end = Lsn::new(301 * KIB);
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = |permit: &mut Permit, held: &mut Held| {
            throttle.poll(&worker, permit, held, end, &mut context)
        };
        let (mut first, mut second) = (Permit::default(), Permit::default());
        let (mut gone, mut stays) = (Held::default(), Held::default());
        assert!(poll(&mut first, &mut gone).is_pending());
        assert!(poll(&mut second, &mut stays).is_pending());
        drop(gone);
        throttle.allow(&worker, Lsn::new(303 * KIB));
        assert!(pin!(poll(&mut second, &mut stays)).is_ready());
        assert_eq!((first.room, second.room), (0, KIB));
    }

    /// A log of numbers, and somebody who makes checkpoints of it at his leisure.
    #[test]
    fn threads_keep_to_what_may_come_and_none_sleeps_for_ever() {
        const THREADS: u64 = 16;
        const COMMITS: u64 = 4_000;
        const BYTES: u64 = 100;
        let throttle = Throttle::new(Lsn::new(KIB), 16 * KIB);
        let room = throttle.room;
        let (end, left) = (Plain::new(0), Plain::new(THREADS));
        // Behind what may come there is only what is in flight.
        let slack = THREADS * (room + 2 * BYTES);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let (worker, mut permit) = (worker(), Permit::default());
                    for _ in 0..COMMITS {
                        let end = Lsn::new(end.fetch_add(BYTES, SeqCst) + BYTES);
                        permit.done();
                        if throttle.is_passed(end) {
                            throttle.passed(&worker, &mut permit, end, BYTES);
                        }
                        if permit.is_ahead() {
                            throttle.wait(&worker, &mut permit, end);
                        }
                    }
                    left.fetch_sub(1, SeqCst);
                });
            }
            let worker = worker();
            for round in 0.. {
                if left.load(SeqCst) == 0 {
                    break;
                }
                let mut shut = throttle.shut(&worker);
                let from = end.load(SeqCst);
                for step in 0..8 {
                    let until = from + (step + 1) * 2 * KIB;
                    throttle.allow(&worker, Lsn::new(until));
                    thread::yield_now();
                    let end = end.load(SeqCst);
                    // Before it was shut, all went as they liked.
                    assert!(step == 0 || end <= until + slack, "{end} {until} {round}");
                }
                shut.until(Lsn::new(end.load(SeqCst) + KIB));
            }
        });
        let waits = throttle.waits();
        assert!(waits.begun > 0 && waits.now == 0 && !waits.waited.is_zero());
        assert_eq!(end.load(SeqCst), THREADS * COMMITS * BYTES);
    }
}
