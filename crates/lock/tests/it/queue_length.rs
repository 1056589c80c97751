//! Steps in a queue cost the same whatever its length, in every manager.
//!
//! Each step is timed in a short queue and in one that is four hundred times as long, in turn, and
//! the fastest round of each counts. A step that visits each waiter takes fifty times as long there
//! or more, so a factor of twelve leaves space for caches and for other work on the machine.

use foxton_lock::{
    any::{AnyManager, Inheritance, ManagerKind, Options},
    inspect::NameQueue,
    manager::LockManager,
    mode::Mode,
    name::Name,
    owner::Owner,
    request::{Outcome, RefusalReason, Reply, WaitMode},
};
use foxton_sync::worker::{Worker, Workers};
use std::{
    collections::VecDeque,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

const SHORT: usize = 10;
const LONG: usize = 4_000;
/// Rounds; the fastest counts.
const ROUNDS: usize = 30;
/// Steps of a round.
const STEPS: usize = 10;
/// A step may take so many times as long in the long queue.
const ALLOWED: u32 = 12;
/// Times below this are as good as nothing.
const GRAIN: Duration = Duration::from_micros(2);

const HOT: Name = Name::advisory(1);
const OTHER: Name = Name::advisory(2);

/// A hot name with a holder and a queue. The holder waits for another name, whose holder runs, so
/// each new waiter has to look for a deadlock.
struct Line {
    locks: AnyManager,
    worker: Worker,
    runs: Owner,
    holder: Owner,
    waiters: VecDeque<Owner>,
    /// The waiter that is timed out next.
    next: usize,
    /// An owner that others wait for, and one more.
    late: Owner,
    fan: Owner,
    _workers: Workers,
}

/// Modes of the waiters: each its turn.
type Modes = &'static [Mode];

impl Line {
    fn new(options: &Options, length: usize, modes: Modes) -> Self {
        let (locks, workers) = (AnyManager::new(options), Workers::with_seed(1));
        let worker = workers.worker();
        let owner = || locks.owner();
        let (mut runs, mut holder, mut late, mut fan) = (owner(), owner(), owner(), owner());
        let wanted = Name::advisory(3);
        assert!(locks.try_lock(&worker, &mut runs, OTHER, Mode::X).is_held());
        assert!(locks.try_lock(&worker, &mut holder, HOT, Mode::X).is_held());
        assert!(
            locks
                .try_lock(&worker, &mut late, wanted, Mode::X)
                .is_held()
        );
        waits(&locks, &worker, &mut fan, wanted, Mode::X);
        waits(&locks, &worker, &mut holder, OTHER, Mode::X);
        let mut waiters: VecDeque<Owner> = (0..length).map(|_| locks.owner()).collect();
        for (waiter, &mode) in waiters.iter_mut().zip(modes.iter().cycle()) {
            waits(&locks, &worker, waiter, HOT, mode);
        }
        Self {
            locks,
            worker,
            runs,
            holder,
            waiters,
            next: length / 3,
            late,
            fan,
            _workers: workers,
        }
    }

    /// One more comes, and gives up.
    fn join_and_leave(&mut self, mode: Mode) {
        waits(&self.locks, &self.worker, &mut self.late, HOT, mode);
        self.locks.cancel(&self.worker, &mut self.late);
    }

    /// One in the middle is timed out, and comes again.
    fn time_out(&mut self, mode: Mode) {
        self.next = (self.next + 1) % self.waiters.len();
        let waiter = &mut self.waiters[self.next];
        let ticket = waiter.wait_ticket().expect("it waits");
        let reason = RefusalReason::TimedOut;
        assert!(self.locks.end_wait(&self.worker, ticket, reason));
        let outcome = collect(&self.locks, &self.worker, waiter);
        let refusal = outcome.refusal().expect("it was timed out");
        assert!(refusal.to_string().len() < 4_000);
        waits(&self.locks, &self.worker, waiter, HOT, mode);
    }

    /// One asks and does not want to wait.
    fn refuse(&mut self, mode: Mode) {
        for wait_mode in [WaitMode::Refuse, WaitMode::Skip] {
            let late = &mut self.late;
            let reply = self.locks.request(&self.worker, late, HOT, mode, wait_mode);
            match reply {
                Reply::Refused(refusal) => {
                    let listed = refusal.blockers.len();
                    assert!(listed <= 16 && refusal.to_string().len() < 4_000);
                    let all = listed + refusal.more_blockers;
                    assert!(mode != Mode::X || all == self.waiters.len() + 1, "{all}");
                }
                Reply::Skipped => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The holder gives the lock to the first waiter, and becomes the last.
    fn turn(&mut self) {
        self.locks.cancel(&self.worker, &mut self.holder);
        self.locks.release_all(&self.worker, &mut self.holder);
        let mut next = self.waiters.pop_front().expect("there are waiters");
        assert!(collect(&self.locks, &self.worker, &mut next).is_held());
        std::mem::swap(&mut self.holder, &mut next);
        waits(&self.locks, &self.worker, &mut next, HOT, Mode::X);
        self.waiters.push_back(next);
        waits(&self.locks, &self.worker, &mut self.holder, OTHER, Mode::X);
    }

    fn end(self) {
        let Self {
            locks,
            worker,
            runs,
            holder,
            waiters,
            late,
            fan,
            ..
        } = self;
        let (locks, worker) = (&locks, &worker);
        locks.verify(worker);
        let others = [fan, late, holder, runs];
        for owner in &mut waiters.into_iter().rev().chain(others) {
            let owner = &mut { owner };
            locks.cancel(worker, owner);
            locks.release_all(worker, owner);
        }
        assert!(locks.inspect(worker).queues.is_empty(), "L7");
    }
}

fn waits(locks: &AnyManager, worker: &Worker, owner: &mut Owner, name: Name, mode: Mode) {
    let reply = locks.request(worker, owner, name, mode, WaitMode::Wait);
    assert!(matches!(reply, Reply::Waiting), "{reply:?}");
}

fn collect(locks: &AnyManager, worker: &Worker, owner: &mut Owner) -> Outcome {
    let mut context = Context::from_waker(Waker::noop());
    match locks.poll_wait(worker, owner, &mut context) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("its wait has ended"),
    }
}

/// Managers for programs. `reference` is for reading, and `staged:paper` and `staged:oldest` keep
/// waiters in the chains, as their paper does.
fn managers() -> impl Iterator<Item = Options> {
    let plain = [
        ManagerKind::Reference,
        ManagerKind::StagedPaper,
        ManagerKind::StagedOldest,
    ];
    let kinds = ManagerKind::ALL
        .into_iter()
        .filter(move |kind| !plain.contains(kind));
    let inherit = |kind| match kind {
        ManagerKind::Bucket => Inheritance::Hot,
        _ => Inheritance::Off,
    };
    kinds.map(move |kind| {
        let mut options = Options::default();
        (options.kind, options.inherit, options.bucket_count) = (kind, inherit(kind), 64);
        options
    })
}

/// Compares a step in a short and in a long queue, over every manager.
fn compare(what: &str, modes: Modes, step: impl Fn(&mut Line)) {
    for options in managers() {
        let mut lines = [SHORT, LONG].map(|length| Line::new(&options, length, modes));
        let mut best = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for (line, best) in lines.iter_mut().zip(&mut best) {
                let began = Instant::now();
                (0..STEPS).for_each(|_| step(line));
                *best = (*best).min(began.elapsed());
            }
        }
        let [short, long] = best.map(|time| time.max(GRAIN));
        println!(
            "{what} {:?} {:?}: {short:?}, {long:?}",
            options.kind, options.inherit
        );
        assert!(
            long < short * ALLOWED,
            "{what}, {:?} {:?}: {long:?} in a long queue, {short:?} in a short one",
            options.kind,
            options.inherit
        );
        lines.into_iter().for_each(Line::end);
    }
}

const WRITERS: Modes = &[Mode::X];
const MIXED: Modes = &[Mode::S, Mode::X, Mode::IX];

#[test]
fn joining_and_leaving_a_queue_of_writers() {
    compare("join", WRITERS, |line| line.join_and_leave(Mode::X));
}

#[test]
fn joining_and_leaving_a_queue_of_readers_and_writers() {
    compare("join", MIXED, |line| {
        let modes = [Mode::IS, Mode::S, Mode::X];
        modes.into_iter().for_each(|mode| line.join_and_leave(mode));
    });
}

#[test]
fn a_time_out_in_the_middle() {
    compare("time out", WRITERS, |line| line.time_out(Mode::X));
    compare("time out", MIXED, |line| line.time_out(Mode::S));
}

#[test]
fn a_refusal_at_once() {
    compare("refuse", WRITERS, |line| line.refuse(Mode::X));
    compare("refuse", MIXED, |line| line.refuse(Mode::S));
}

#[test]
fn a_turn_of_the_lock() {
    compare("turn", WRITERS, Line::turn);
}

/// The wait-for graph of a long queue, as a snapshot shows it.
#[test]
fn a_snapshot_names_few_blockers_of_each_waiter_and_counts_the_others() {
    const MOST: usize = 5;
    for options in managers() {
        for modes in [
            WRITERS,
            MIXED,
            &[Mode::IX, Mode::IS, Mode::IX, Mode::IS, Mode::S],
        ] {
            let line = Line::new(&options, 200, modes);
            let snapshot = line.locks.inspect(&line.worker);
            let queue = snapshot.queue(HOT).expect("it is held");
            let mut seen = 0;
            for (blocked, waiter) in queue.blocked(MOST).zip(&queue.waiters) {
                assert_eq!(blocked.waiter, waiter);
                let all: Vec<_> = snapshot
                    .edges()
                    .filter(|edge| edge.waiter == waiter.owner)
                    .map(|edge| (edge.blocker, edge.holds))
                    .collect();
                assert_eq!(blocked.blockers.len() + blocked.more, all.len());
                let (holders, mut ahead): (Vec<_>, Vec<_>) =
                    all.into_iter().partition(|&(_, holds)| holds);
                ahead.reverse();
                let expected: Vec<_> = holders.into_iter().chain(ahead).take(MOST).collect();
                let named = blocked.blockers.iter();
                let named: Vec<_> = named.map(|b| (b.request.owner, b.holds)).collect();
                assert_eq!(named, expected);
                seen += 1;
            }
            assert_eq!(seen, 200);
            let few = line.locks.inspect_limited(&line.worker, 50);
            let size = |queue: &NameQueue| queue.holders.len() + queue.waiters.len();
            assert!(few.truncated, "{:?}", options.kind);
            assert!(few.queues.iter().map(size).sum::<usize>() <= 60);
            assert!(few.queues.iter().any(|queue| !queue.waiters.is_empty()));
            line.end();
        }
    }
}
