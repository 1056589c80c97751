//! The contention-aware order: the order of arrival while weights are equal; otherwise the waiter
//! that the most owners wait for goes first, and none is last for ever.

use foxton_lock::{
    any::{AnyManager, ManagerKind, Options},
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::Owner,
    request::{Outcome, RefusalReason, Reply, WaitMode},
};
use foxton_sync::worker::{Worker, Workers};
use std::{
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

/// Records that it was woken.
struct Woken(Arc<AtomicBool>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

struct Table {
    locks: AnyManager,
    worker: Worker,
    _workers: Workers,
}

impl Table {
    fn new(kind: ManagerKind) -> Self {
        let mut options = Options::tiny();
        options.kind = kind;
        Self::with(&options)
    }

    fn with(options: &Options) -> Self {
        let workers = Workers::with_seed(1);
        Self {
            locks: AnyManager::new(options),
            worker: workers.worker(),
            _workers: workers,
        }
    }

    /// Returns a table over `sharded`, whose thread reorders queues later than a new waiter checks
    /// them.
    fn of_its_own_thread() -> Self {
        let mut options = Options::tiny();
        (options.kind, options.own_threads) = (ManagerKind::Sharded, true);
        Self::with(&options)
    }

    fn owner(&self, label: &'static str) -> Owner {
        let mut owner = self.locks.owner();
        owner.set_label(label);
        owner
    }

    fn granted(&self, owner: &mut Owner, name: Name, mode: Mode) {
        let outcome = self.locks.try_lock(&self.worker, owner, name, mode);
        assert!(outcome.is_held());
    }

    fn waits(&self, owner: &mut Owner, name: Name, mode: Mode) {
        let reply = self
            .locks
            .request(&self.worker, owner, name, mode, WaitMode::Wait);
        assert!(matches!(reply, Reply::Waiting));
        self.locks.verify(&self.worker);
    }

    /// Returns the waiters for `name`, in order.
    fn line(&self, name: Name) -> Vec<String> {
        let snapshot = self.locks.inspect(&self.worker);
        let queue = snapshot.queue(name).expect("somebody holds it");
        let labels = queue.waiters.iter().map(|waiter| waiter.label.to_string());
        labels.collect()
    }

    fn is_granted(&self, owner: &mut Owner) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let polled = self.locks.poll_wait(&self.worker, owner, &mut context);
        matches!(polled, Poll::Ready(Outcome::Granted))
    }

    /// Begins to sleep in a wait, and shows later whether it was woken.
    fn sleeps(&self, owner: &mut Owner) -> Arc<AtomicBool> {
        let woken = Arc::new(AtomicBool::new(false));
        let waker = Waker::from(Arc::new(Woken(woken.clone())));
        let mut context = Context::from_waker(&waker);
        let polled = self.locks.poll_wait(&self.worker, owner, &mut context);
        assert!(polled.is_pending());
        woken
    }

    fn is_victim(&self, owner: &mut Owner) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let polled = self.locks.poll_wait(&self.worker, owner, &mut context);
        let Poll::Ready(Outcome::Refused(refusal)) = polled else {
            return false;
        };
        refusal.reason == RefusalReason::Deadlock
    }

    fn end(&self, owner: &mut Owner) {
        self.locks.cancel(&self.worker, owner);
        self.locks.release_all(&self.worker, owner);
    }
}

const HOT: Name = Name::advisory(1);
const READ: Mode = Mode::key(KeyPart::S, GapPart::None);

/// `late` comes last to the hot name and holds another that `behind` others wait for; one of those
/// holds a third that one more waits for.
fn lines(kind: ManagerKind) -> (Vec<String>, bool) {
    let table = Table::new(kind);
    let t = &table;
    let mut holder = t.owner("holder");
    let (mut first, mut second) = (t.owner("first"), t.owner("second"));
    let (mut late, mut one, mut two) = (t.owner("late"), t.owner("one"), t.owner("two"));
    t.granted(&mut holder, HOT, Mode::X);
    t.granted(&mut late, Name::advisory(2), Mode::X);
    t.granted(&mut second, Name::advisory(3), Mode::X);
    t.granted(&mut one, Name::advisory(4), Mode::X);
    t.waits(&mut first, HOT, Mode::X);
    t.waits(&mut second, HOT, Mode::X);
    t.waits(&mut late, HOT, Mode::X);
    assert_eq!(t.line(HOT), ["first", "second", "late"], "nobody weighs");
    t.waits(&mut one, Name::advisory(2), Mode::S);
    t.waits(&mut two, Name::advisory(4), Mode::S);
    let line = t.line(HOT);
    t.end(&mut holder);
    let late_is_next = t.is_granted(&mut late);
    for owner in [&mut late, &mut first, &mut second, &mut one, &mut two] {
        t.end(owner);
    }
    assert!(t.locks.inspect(&t.worker).queues.is_empty());
    (line, late_is_next)
}

#[test]
fn the_waiter_that_most_wait_for_goes_first() {
    let (line, late_is_next) = lines(ManagerKind::Sharded);
    assert_eq!(line, ["late", "first", "second"]);
    assert!(late_is_next);
    let (line, late_is_next) = lines(ManagerKind::ShardedFifo);
    assert_eq!(line, ["first", "second", "late"]);
    assert!(!late_is_next);
}

/// The weight of a new waiter is known before any copy is made.
#[test]
fn a_new_waiter_goes_first_if_others_wait_for_it() {
    let table = Table::of_its_own_thread();
    let t = &table;
    let (mut holder, mut first) = (t.owner("holder"), t.owner("first"));
    let (mut late, mut behind) = (t.owner("late"), t.owner("behind"));
    t.granted(&mut holder, HOT, Mode::X);
    t.waits(&mut first, HOT, Mode::X);
    t.granted(&mut late, Name::advisory(2), Mode::X);
    t.waits(&mut behind, Name::advisory(2), Mode::X);
    t.waits(&mut late, HOT, Mode::X);
    assert_eq!(t.line(HOT), ["late", "first"]);
    t.end(&mut late);
    // No owner waits for its next transaction.
    late.begin();
    late.set_label("late");
    t.waits(&mut late, HOT, Mode::X);
    assert_eq!(t.line(HOT), ["first", "late"]);
    t.end(&mut late);
    assert!(t.is_granted(&mut behind));
    for owner in [&mut holder, &mut first, &mut behind] {
        t.end(owner);
    }
    assert!(t.locks.inspect(&t.worker).queues.is_empty());
}

/// A released lock has no waiters, even if its owner retains others, as a session does between two
/// transactions.
#[test]
fn releasing_what_others_wait_for_ends_the_weight() {
    let table = Table::of_its_own_thread();
    let t = &table;
    let (mut holder, mut first) = (t.owner("holder"), t.owner("first"));
    let (mut late, mut behind) = (t.owner("late"), t.owner("behind"));
    t.granted(&mut holder, HOT, Mode::X);
    t.waits(&mut first, HOT, Mode::X);
    t.granted(&mut late, Name::advisory(2), Mode::X);
    let kept = late.savepoint();
    t.granted(&mut late, Name::advisory(3), Mode::X);
    t.waits(&mut behind, Name::advisory(3), Mode::X);
    t.locks.release_since(&t.worker, &mut late, kept);
    assert!(t.is_granted(&mut behind));
    t.waits(&mut late, HOT, Mode::X);
    assert_eq!(t.line(HOT), ["first", "late"]);
    for owner in [&mut holder, &mut first, &mut late, &mut behind] {
        t.end(owner);
    }
    assert!(t.locks.inspect(&t.worker).queues.is_empty());
}

/// A lock that is released by itself has no weight any more; a lock held beside it has.
#[test]
fn releasing_one_lock_keeps_the_weight_of_the_others() {
    let table = Table::of_its_own_thread();
    let t = &table;
    let (mut holder, mut light) = (t.owner("holder"), t.owner("light"));
    let (mut first, mut late) = (t.owner("first"), t.owner("late"));
    let mut behind = ["one", "two", "three"].map(|label| t.owner(label));
    let names = [2, 3, 4].map(Name::advisory);
    t.granted(&mut holder, HOT, Mode::X);
    t.granted(&mut first, names[0], Mode::X);
    t.granted(&mut late, names[1], Mode::X);
    t.granted(&mut late, names[2], Mode::X);
    for (owner, name) in behind.iter_mut().zip(names) {
        t.waits(owner, name, Mode::X);
    }
    t.waits(&mut light, HOT, Mode::X);
    t.waits(&mut first, HOT, Mode::X);
    assert!(t.locks.release(&t.worker, &mut late, names[2]));
    assert!(t.is_granted(&mut behind[2]));
    t.waits(&mut late, HOT, Mode::X);
    assert_eq!(t.line(HOT), ["first", "late", "light"]);
    for owner in [&mut late, &mut first, &mut light, &mut holder] {
        t.end(owner);
    }
    behind.iter_mut().for_each(|owner| t.end(owner));
    assert!(t.locks.inspect(&t.worker).queues.is_empty());
}

/// A holder of the same name that does not conflict gets no weight.
#[test]
fn only_conflicting_holders_get_weight_from_a_waiter() {
    let table = Table::of_its_own_thread();
    let t = &table;
    let (mut holder, mut first) = (t.owner("holder"), t.owner("first"));
    let (mut late, mut other) = (t.owner("late"), t.owner("other"));
    let mut behind = t.owner("behind");
    t.granted(&mut holder, HOT, Mode::X);
    t.waits(&mut first, HOT, Mode::X);
    t.granted(&mut late, Name::table(1), Mode::IS);
    t.granted(&mut other, Name::table(1), Mode::IX);
    t.waits(&mut behind, Name::table(1), Mode::S);
    t.waits(&mut late, HOT, Mode::X);
    t.waits(&mut other, HOT, Mode::X);
    assert_eq!(t.line(HOT), ["other", "first", "late"]);
    for owner in [&mut holder, &mut first, &mut late, &mut other, &mut behind] {
        t.end(owner);
    }
    assert!(t.locks.inspect(&t.worker).queues.is_empty());
}

/// When a waiter is granted, the rest of the queue waits for it: all of them, and so more than one
/// waiter elsewhere.
#[test]
fn a_grant_adds_the_weight_of_the_queue() {
    let table = Table::of_its_own_thread();
    let t = &table;
    let (mut holder, mut first) = (t.owner("holder"), t.owner("first"));
    let (mut late, mut other) = (t.owner("late"), t.owner("other"));
    let mut behind = ["one", "two", "three"].map(|label| t.owner(label));
    let (side, of_first) = (Name::advisory(2), Name::advisory(3));
    t.granted(&mut holder, HOT, Mode::X);
    t.granted(&mut first, of_first, Mode::X);
    t.waits(&mut behind[0], of_first, Mode::X);
    t.waits(&mut first, HOT, Mode::X);
    t.granted(&mut other, side, Mode::X);
    t.waits(&mut late, side, Mode::X);
    t.waits(&mut behind[1], side, Mode::X);
    t.waits(&mut behind[2], side, Mode::X);
    t.end(&mut other);
    assert!(t.is_granted(&mut late));
    t.waits(&mut late, HOT, Mode::X);
    assert_eq!(t.line(HOT), ["late", "first"]);
    for owner in [&mut holder, &mut first, &mut late] {
        t.end(owner);
    }
    behind.iter_mut().for_each(|owner| t.end(owner));
    assert!(t.locks.inspect(&t.worker).queues.is_empty());
}

/// A reader with weight need not wait for a writer that waits for readers.
#[test]
fn a_waiter_that_goes_first_without_conflicts_is_granted_at_once() {
    let table = Table::of_its_own_thread();
    let t = &table;
    let (mut reader, mut writer) = (t.owner("reader"), t.owner("writer"));
    let (mut late, mut behind) = (t.owner("late"), t.owner("behind"));
    t.granted(&mut reader, HOT, Mode::S);
    t.waits(&mut writer, HOT, Mode::X);
    t.granted(&mut late, Name::advisory(2), Mode::X);
    t.waits(&mut behind, Name::advisory(2), Mode::X);
    t.waits(&mut late, HOT, Mode::S);
    assert!(t.is_granted(&mut late));
    assert_eq!(t.line(HOT), ["writer"]);
    for owner in [&mut late, &mut reader, &mut writer, &mut behind] {
        t.end(owner);
    }
    assert!(t.locks.inspect(&t.worker).queues.is_empty());
}

/// A reader that many wait for is moved before a writer, and can be granted at once with the
/// readers that hold the name.
#[test]
fn a_waiter_moved_to_the_front_is_granted_if_it_can_be() {
    let table = Table::new(ManagerKind::Sharded);
    let t = &table;
    let (mut reader, mut writer) = (t.owner("reader"), t.owner("writer"));
    let (mut late, mut behind) = (t.owner("late"), t.owner("behind"));
    t.granted(&mut reader, HOT, Mode::S);
    t.granted(&mut late, Name::advisory(2), Mode::X);
    t.waits(&mut writer, HOT, Mode::X);
    t.waits(&mut late, HOT, Mode::S);
    let woken = t.sleeps(&mut late);
    t.waits(&mut behind, Name::advisory(2), Mode::X);
    assert!(woken.load(Relaxed), "it sleeps on");
    assert!(t.is_granted(&mut late));
    assert_eq!(t.line(HOT), ["writer"]);
    for owner in [&mut late, &mut reader, &mut writer, &mut behind] {
        t.end(owner);
    }
}

/// A request that closes a cycle has ended it before it sleeps, whether or not a thread keeps the
/// order.
#[test]
fn a_deadlock_is_over_when_the_request_returns_that_closed_it() {
    for kind in [ManagerKind::Sharded, ManagerKind::ShardedFifo] {
        let mut options = Options::tiny();
        (options.kind, options.own_threads) = (kind, true);
        let table = Table::with(&options);
        let t = &table;
        let (mut one, mut two) = (t.owner("one"), t.owner("two"));
        let (a, b) = (Name::advisory(1), Name::advisory(2));
        t.granted(&mut one, a, Mode::X);
        t.granted(&mut two, b, Mode::X);
        t.granted(&mut two, Name::advisory(3), Mode::X);
        t.waits(&mut one, b, Mode::X);
        let woken = t.sleeps(&mut one);
        t.waits(&mut two, a, Mode::X);
        assert_eq!(t.locks.deadlocks().len(), 1, "{kind}");
        // The one that holds less is the victim, and sleeps.
        assert!(woken.load(Relaxed), "{kind}: it sleeps on");
        assert!(t.is_victim(&mut one), "{kind}");
        t.end(&mut one);
        assert!(t.is_granted(&mut two), "{kind}");
        t.end(&mut two);
    }
}

/// A waiter that is moved to the front blocks others from then on. Here that closes a cycle.
///
/// ```text
/// key   held by reader (key) and scanner (gap)      writer (key), inserter (gap), late (both) wait
/// side  held by inserter                            reader waits
///
/// late moves before inserter:   inserter -> late -> writer -> reader -> inserter
/// ```
///
/// The inserter and the writer do not conflict. Nor would `late` wait for the writer, if that had
/// not been passed up to its maximum.
#[test]
fn a_cycle_that_a_reordering_closes_is_found() {
    for kind in [ManagerKind::Sharded, ManagerKind::ShardedGlobalLatch] {
        let table = Table::new(kind);
        let t = &table;
        let hasher = KeyHasher::new(1);
        let name = |number: u32| Name::key(1, &number.to_be_bytes(), &hasher);
        let (key, side) = (name(0), name(1));
        let (mut reader, mut scanner) = (t.owner("reader"), t.owner("scanner"));
        let (mut writer, mut inserter) = (t.owner("writer"), t.owner("inserter"));
        t.granted(&mut reader, key, READ);
        t.granted(&mut scanner, key, Mode::key(KeyPart::None, GapPart::S));
        t.waits(&mut writer, key, Mode::key(KeyPart::X, GapPart::None));
        for number in 10..10 + kind.max_overtaken() {
            let (mut passes, mut behind) = (t.owner("passes"), t.owner("behind"));
            t.granted(&mut passes, name(number), Mode::X);
            t.waits(&mut passes, key, READ);
            t.waits(&mut behind, name(number), Mode::X);
            assert!(t.is_granted(&mut passes), "{kind}");
            t.end(&mut behind);
            t.end(&mut passes);
        }
        t.granted(&mut inserter, side, Mode::X);
        t.waits(
            &mut inserter,
            key,
            Mode::key(KeyPart::None, GapPart::InsertIntention),
        );
        // Two are moved at once, and only the second closes the cycle.
        let (mut early, mut late) = (t.owner("early"), t.owner("late"));
        t.granted(&mut early, name(9), READ);
        t.granted(&mut late, name(9), READ);
        t.waits(&mut reader, side, READ);
        t.waits(&mut early, key, READ);
        t.waits(&mut late, key, Mode::key(KeyPart::S, GapPart::S));
        // Two owners wait for the inserter.
        let mut behind = ["one", "two", "three"].map(|label| t.owner(label));
        t.waits(&mut behind[0], name(9), Mode::X);
        t.waits(&mut behind[1], name(9), Mode::X);
        let line = ["writer", "inserter", "early", "late"];
        assert_eq!(t.line(key), line, "{kind}");
        assert_eq!(t.locks.deadlocks().len(), 0, "{kind}");
        t.waits(&mut behind[2], name(9), Mode::X);
        let queues = t.locks.inspect(&t.worker);
        assert_eq!(t.locks.deadlocks().len(), 1, "{kind}: {queues}");
        for owner in [&mut early, &mut late, &mut inserter] {
            t.end(owner);
        }
        for owner in [&mut writer, &mut scanner, &mut reader] {
            t.end(owner);
        }
        behind.iter_mut().for_each(|owner| t.end(owner));
        assert!(t.locks.inspect(&t.worker).queues.is_empty());
    }
}

/// The same cycle, closed by a request with weight that moves to the front itself, before any copy
/// shows it.
#[test]
fn a_cycle_that_a_new_waiter_closes_by_moving_forward_is_found() {
    let table = Table::of_its_own_thread();
    let t = &table;
    let hasher = KeyHasher::new(1);
    let name = |number: u32| Name::key(1, &number.to_be_bytes(), &hasher);
    let (key, side) = (name(0), name(1));
    let (mut reader, mut scanner) = (t.owner("reader"), t.owner("scanner"));
    let (mut writer, mut inserter) = (t.owner("writer"), t.owner("inserter"));
    let mut late = t.owner("late");
    t.granted(&mut reader, key, READ);
    t.granted(&mut scanner, key, Mode::key(KeyPart::None, GapPart::S));
    t.waits(&mut writer, key, Mode::key(KeyPart::X, GapPart::None));
    for number in 10..10 + ManagerKind::Sharded.max_overtaken() {
        let (mut passes, mut behind) = (t.owner("passes"), t.owner("behind"));
        t.granted(&mut passes, name(number), Mode::X);
        t.waits(&mut behind, name(number), Mode::X);
        t.waits(&mut passes, key, READ);
        assert!(t.is_granted(&mut passes));
        t.end(&mut behind);
        t.end(&mut passes);
    }
    t.granted(&mut inserter, side, Mode::X);
    let intention = Mode::key(KeyPart::None, GapPart::InsertIntention);
    t.waits(&mut inserter, key, intention);
    t.granted(&mut late, name(9), Mode::X);
    // More than the two that the inserter may be moved before.
    let mut behind: Vec<Owner> = (0..8).map(|_| t.owner("behind")).collect();
    for owner in &mut behind {
        t.waits(owner, name(9), Mode::X);
    }
    t.waits(&mut reader, side, READ);
    assert_eq!(t.locks.deadlocks().len(), 0);
    t.waits(&mut late, key, Mode::key(KeyPart::S, GapPart::S));
    // If the thread's copy was first, the thread searches.
    let until = Instant::now() + Duration::from_secs(10);
    while t.locks.deadlocks().is_empty() {
        let queues = t.locks.inspect(&t.worker);
        assert!(Instant::now() < until, "nobody saw the circle: {queues}");
        thread::yield_now();
    }
    for owner in [&mut late, &mut inserter, &mut writer, &mut scanner] {
        t.end(owner);
    }
    t.end(&mut reader);
    behind.iter_mut().for_each(|owner| t.end(owner));
    assert!(t.locks.inspect(&t.worker).queues.is_empty());
}

/// A deadlock among sleeping threads ends soon; in the form of the paper the detector's thread ends
/// it.
#[test]
fn a_deadlock_of_sleeping_threads_ends_soon() {
    for kind in [
        ManagerKind::Sharded,
        ManagerKind::ShardedFifo,
        ManagerKind::ShardedGlobalLatch,
    ] {
        let mut options = Options::tiny();
        (options.kind, options.own_threads) = (kind, true);
        let locks = AnyManager::new(&options);
        let workers = Workers::with_seed(1);
        let both = Barrier::new(2);
        let slowest = Mutex::new(Duration::ZERO);
        thread::scope(|scope| {
            for (mine, yours) in [(1, 2), (2, 1)] {
                let (locks, both, slowest) = (&locks, &both, &slowest);
                let worker = workers.worker();
                scope.spawn(move || {
                    let mut owner = locks.owner();
                    for _ in 0..100 {
                        owner.begin();
                        let name = Name::advisory(mine);
                        let taken = locks.lock(&worker, &mut owner, name, Mode::X, None);
                        assert!(taken.is_held());
                        both.wait();
                        let began = Instant::now();
                        let name = Name::advisory(yours);
                        let _ = locks.lock(&worker, &mut owner, name, Mode::X, None);
                        let mut slowest = slowest.lock().unwrap();
                        *slowest = began.elapsed().max(*slowest);
                        drop(slowest);
                        locks.release_all(&worker, &mut owner);
                        both.wait();
                    }
                });
            }
        });
        let worker = workers.worker();
        assert_eq!(locks.stats(&worker).deadlocks, 100, "one victim for each");
        println!("{kind}: the slowest of 100 in {:?}", slowest.into_inner());
    }
}

/// The thread starts when it is needed and ends with its manager, however many managers there are.
#[test]
fn a_manager_and_its_thread_come_and_go() {
    for round in 0..200 {
        let mut options = Options::tiny();
        (options.kind, options.own_threads) = (ManagerKind::Sharded, true);
        let workers = Workers::with_seed(round);
        let (locks, worker) = (AnyManager::new(&options), workers.worker());
        let (mut one, mut two) = (locks.owner(), locks.owner());
        let (a, b) = (Name::advisory(1), Name::advisory(2));
        assert!(locks.try_lock(&worker, &mut one, a, Mode::X).is_held());
        assert!(locks.try_lock(&worker, &mut two, b, Mode::X).is_held());
        let first = locks.request(&worker, &mut one, b, Mode::X, WaitMode::Wait);
        let second = locks.request(&worker, &mut two, a, Mode::X, WaitMode::Wait);
        assert!(matches!((first, second), (Reply::Waiting, Reply::Waiting)));
        drop(locks);
        assert!(one.is_waiting() && two.is_waiting());
    }
}

/// Returns how often shards were latched together so far: by new waiters in `sharded`, by the
/// thread in the form of the paper.
#[cfg(feature = "account")]
fn latched_together(workers: &Workers) -> u64 {
    let (by_callers, by_thread) = (workers.account(), workers.background_account());
    let sites = by_callers.sites().iter().chain(by_thread.sites());
    sites
        .filter(|passages| passages.site.name == "lock cycle")
        .map(|passages| passages.count)
        .sum()
}

/// One thread plays all owners, so nothing changes between the search that found a cycle and the
/// check that ends it. So nearly every time that shards are latched together, a deadlock ends. Not
/// each time, because a new waiter may move forward in its queue, by a weight that depends on the
/// clock, and so undo the cycle it has found.
#[cfg(feature = "account")]
#[test]
fn shards_are_latched_together_for_deadlocks_that_stand() {
    for kind in [
        ManagerKind::Sharded,
        ManagerKind::ShardedFifo,
        ManagerKind::ShardedGlobalLatch,
    ] {
        let mut options = Options::tiny();
        (options.kind, options.bucket_count) = (kind, 64);
        let (locks, workers) = (AnyManager::new(&options), Workers::with_seed(1));
        let worker = workers.worker();
        let mut owners: Vec<Owner> = (0..64).map(|_| locks.owner()).collect();
        for _ in 0..50_000 {
            let owner = &mut owners[worker.random_below(64) as usize];
            let refused = if owner.is_waiting() {
                let polled =
                    locks.poll_wait(&worker, owner, &mut Context::from_waker(Waker::noop()));
                matches!(polled, Poll::Ready(Outcome::Refused(_)))
            } else if owner.lock_count() < 3 {
                let name = Name::advisory(worker.random_below(20));
                let mode = [Mode::S, Mode::X][worker.random_below(2) as usize];
                let reply = locks.request(&worker, owner, name, mode, WaitMode::Wait);
                matches!(reply, Reply::Refused(_))
            } else {
                true
            };
            if refused {
                locks.release_all(&worker, owner);
                owner.begin();
            }
        }
        let deadlocks = locks.stats(&worker).deadlocks;
        let together = latched_together(&workers);
        println!("{kind}: {together} times for {deadlocks} deadlocks, by one thread");
        assert!(deadlocks > 100, "{kind}: {deadlocks} show little");
        assert!(together >= deadlocks, "{kind}: one ended without");
        assert!(together <= deadlocks * 5 / 4, "{kind}: for nothing");
    }
}

/// With many threads some of the cycles found are gone at the check, and shards were latched
/// together for nothing. No deadlock ends without.
///
/// `cargo test --release -p foxton-lock --features account --test it contention:: -- --nocapture`
/// prints it.
#[cfg(feature = "account")]
#[test]
fn among_many_threads_no_deadlock_ends_but_by_latching_shards_together() {
    const THREADS: u64 = 64;
    for kind in [ManagerKind::Sharded, ManagerKind::ShardedGlobalLatch] {
        let mut options = Options::default();
        options.kind = kind;
        let (locks, workers) = (AnyManager::new(&options), Workers::with_seed(1));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                let (locks, worker) = (&locks, workers.worker());
                scope.spawn(move || {
                    let mut owner = locks.owner();
                    for _ in 0..200 {
                        owner.begin();
                        for _ in 0..3 {
                            let name = Name::advisory(worker.random_below(20));
                            let mode = [Mode::S, Mode::X][worker.random_below(2) as usize];
                            if !locks.lock(&worker, &mut owner, name, mode, None).is_held() {
                                break;
                            }
                            std::thread::yield_now();
                        }
                        locks.release_all(&worker, &mut owner);
                    }
                });
            }
        });
        let deadlocks = locks.stats(&workers.worker()).deadlocks;
        let cycles = latched_together(&workers);
        println!("{kind}: shards latched together {cycles} times for {deadlocks} deadlocks");
        assert!(deadlocks > 0 && cycles >= deadlocks);
    }
}
