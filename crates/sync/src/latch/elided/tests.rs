//! Reactions to aborts, played by script; and no pass is lost where elided passes, passes that gave
//! up, and threads that take the real latch meet. The same on machines with the hardware and
//! without.

use super::Elided;
use super::model::{ModelElided, ModelTransactions, Script};
use super::policy::{ADAPTIVE_SKIPS, AfterAbort, ElisionPolicy, TakeReason};
use crate::htm::backend::{BUSY, NESTED_LATCH, TransactionBackend};
use crate::htm::{Abort, Cause, Elisions};
use crate::latch::Kind;
use crate::latch::parking::Parking;
use crate::latch::queue::QueueNode;
use crate::shim::{Arc, Mutex};
use crate::site::{Component, Pattern, Site};
use crate::worker::Workers;
use std::collections::VecDeque;

static SITE: Site = Site::new(Component::Latch, Pattern::Unbounded, "told");

/// Policies that try from the first pass on.
const POLICIES: [ElisionPolicy; 3] = [
    ElisionPolicy::Once,
    ElisionPolicy::Retry100,
    ElisionPolicy::Cooldown,
];
const ALL: [ElisionPolicy; 4] = [
    ElisionPolicy::Once,
    ElisionPolicy::Retry100,
    ElisionPolicy::Cooldown,
    ElisionPolicy::Adaptive,
];

/// Every cause, with and without a hint to retry.
fn aborts() -> impl Iterator<Item = Abort> {
    let because = Cause::ALL.into_iter().map(Abort::because);
    because.flat_map(|abort| [abort, abort.that_may_succeed()])
}

/// Results of `passes` passes with `script`.
fn played(policy: ElisionPolicy, script: Script, passes: u64) -> Elisions {
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    let value = ModelElided::new(policy.kind(), &ModelTransactions::new(script), 0);
    for _ in 0..passes {
        value.with(&worker, |value| *value += 1);
    }
    assert_eq!(value.into_inner(), passes);
    workers.elisions()
}

#[test]
fn a_pass_waits_for_a_held_latch_instead_of_taking_it() {
    for policy in POLICIES {
        for failures in [0, 1, 1_000] {
            let after = |abort| policy.after(abort, failures);
            assert_eq!(after(Abort::explicit(BUSY)), AfterAbort::WhenFree);
            assert_eq!(after(Abort::explicit(NESTED_LATCH)), AfterAbort::Take);
            assert_eq!(
                after(Abort::explicit(BUSY).inside_another()),
                AfterAbort::Take
            );
            assert_eq!(
                after(Abort::explicit(7).that_may_succeed()),
                AfterAbort::Take
            );
        }
    }
}

#[test]
fn a_hopeful_abort_is_retried_as_often_as_the_policy_says() {
    for (policy, retries) in POLICIES.into_iter().zip([0, 100, 2]) {
        let hopeful = Abort::because(Cause::Conflict).that_may_succeed();
        let again = (0..).find(|&failures| policy.after(hopeful, failures) != AfterAbort::Again);
        assert_eq!(again, Some(retries), "{policy:?}");
        let hopeless = Abort::because(Cause::Capacity);
        assert_eq!(policy.after(hopeless, 0), AfterAbort::Take, "{policy:?}");
    }
}

#[test]
fn where_all_commit_no_pass_takes_the_latch() {
    for policy in POLICIES {
        let done = played(policy, Script::Commit, 10);
        assert_eq!((done.committed, done.latched), (10, 0), "{policy:?}");
        assert_eq!((done.attempts(), done.busy), (10, 0), "{policy:?}");
        assert_eq!(
            (done.elided_share(), done.aborted_share()),
            (Some(1.0), Some(0.0))
        );
    }
}

#[test]
fn where_all_abort_every_pass_takes_the_latch() {
    for policy in POLICIES {
        for abort in aborts() {
            let done = played(policy, Script::Abort(abort), 10);
            assert_eq!(
                (done.committed, done.latched),
                (0, 10),
                "{policy:?}: {abort}"
            );
            // The cool-down leaves one pass of four to try.
            let tries = if policy == ElisionPolicy::Cooldown {
                3
            } else {
                10
            };
            let hope = abort.may_succeed() && abort.code().is_none();
            let each = match policy {
                ElisionPolicy::Retry100 if hope => 101,
                ElisionPolicy::Cooldown if hope => 3,
                _ => 1,
            };
            assert_eq!(done.attempts(), tries * each, "{policy:?}: {abort}");
            assert_eq!(
                done.aborted(abort.cause()),
                tries * each,
                "{policy:?}: {abort}"
            );
            assert_eq!(done.aborted_share(), Some(1.0));
        }
    }
}

#[test]
fn a_cool_down_ends_after_three_passes() {
    let script = Script::These(VecDeque::from([Abort::because(Cause::Other)]));
    let done = played(ElisionPolicy::Cooldown, script, 4);
    assert_eq!((done.committed, done.latched, done.attempts()), (0, 4, 1));
    let script = Script::These(VecDeque::from([Abort::because(Cause::Other)]));
    let done = played(ElisionPolicy::Cooldown, script, 6);
    assert_eq!((done.committed, done.latched, done.attempts()), (2, 4, 3));
}

#[test]
fn a_hopeful_abort_is_retried_and_commits() {
    let twice = VecDeque::from([Abort::because(Cause::Conflict).that_may_succeed(); 2]);
    for policy in [ElisionPolicy::Retry100, ElisionPolicy::Cooldown] {
        let done = played(policy, Script::These(twice.clone()), 1);
        assert_eq!((done.committed, done.latched), (1, 0), "{policy:?}");
        assert_eq!(done.aborted(Cause::Conflict), 2, "{policy:?}");
    }
    let done = played(ElisionPolicy::Once, Script::These(twice), 1);
    assert_eq!((done.committed, done.latched, done.attempts()), (0, 1, 1));
}

/// Against the lemming effect: a pass that found the latch held elides once it is free.
#[test]
fn a_latch_that_was_held_is_elided_again() {
    for policy in POLICIES {
        let workers = Workers::with_seed(1);
        let worker = workers.worker();
        let value = ModelElided::new(policy.kind(), &ModelTransactions::default(), 0);
        value.with_taken(|_| {
            assert_eq!(value.try_with(&worker, |value| *value), None);
        });
        let done = workers.elisions();
        assert_eq!((done.busy, done.aborted(Cause::Explicit)), (1, 1));
        assert_eq!((done.committed, done.latched), (0, 0));
        value.with(&worker, |value| *value += 1);
        let done = workers.elisions().since(&done);
        assert_eq!((done.committed, done.attempts(), done.latched), (1, 1, 0));
        assert_eq!(value.into_inner(), 1);
    }
}

/// Against the lemming effect: a thread that slept for the latch has it, and no later pass is made
/// to take it as well.
#[test]
fn sleeping_for_a_latch_adds_no_skipped_passes() {
    let world = ModelTransactions::default();
    let workers = Workers::with_seed(1);
    let value = ModelElided::new(Kind::ElidedCooldown, &world, 0);
    std::thread::scope(|scope| {
        value.with_taken(|_| {
            let (value, worker) = (&value, workers.worker());
            scope.spawn(move || {
                value.with(&worker, |value| *value += 1);
            });
            // The holder itself is the first.
            world.wait_for_takers(2);
        });
    });
    let slept = workers.elisions();
    assert_eq!((slept.latched, slept.committed, slept.busy), (1, 0, 1));
    let worker = workers.worker();
    for _ in 0..10 {
        value.with(&worker, |value| *value += 1);
    }
    let done = workers.elisions().since(&slept);
    assert_eq!((done.committed, done.latched), (10, 0), "{done:?}");
    assert_eq!(value.into_inner(), 11);
}

/// Skipping that other passes began continues while a thread sleeps.
#[test]
fn sleeping_for_a_latch_ends_no_skipped_passes() {
    for policy in [ElisionPolicy::Cooldown, ElisionPolicy::Adaptive] {
        for skips in 0..=ADAPTIVE_SKIPS {
            assert_eq!(policy.skips(skips, TakeReason::Waited), skips);
        }
    }
    assert_eq!(ElisionPolicy::Cooldown.skips(0, TakeReason::GaveUp), 3);
    assert_eq!(
        ElisionPolicy::Adaptive.skips(0, TakeReason::GaveUp),
        ADAPTIVE_SKIPS
    );
}

/// Five times the latch is held for a short while, is free, and is held by another thread when the
/// transaction checks. The spinning of one wait would not be enough for all of them.
#[test]
fn each_wait_for_a_latch_spins_anew() {
    for policy in [ElisionPolicy::Cooldown, ElisionPolicy::Adaptive] {
        let (held, free) = (false, true);
        let late = [held, held, held, held, free, held];
        let looks = late.repeat(5).into_iter().chain([free, free]).collect();
        let mut latch = Elided::with_backend(ModelTransactions::default(), policy, &SITE);
        latch.scripted = Some(Mutex::new(looks));
        let front = Parking::new(false);
        let (workers, node) = (Workers::with_seed(1), QueueNode::new());
        let worker = workers.worker();
        worker.elision_stats().begin_turn(latch.site(), -2); // So that the adaptive latch tries.
        // SAFETY: the node stays here until the release below.
        unsafe { latch.acquire(&front, &worker, &node) };
        let done = workers.elisions();
        assert_eq!(
            (done.committed, done.latched),
            (1, 0),
            "{policy:?}: {done:?}"
        );
        assert_eq!(done.busy, 5, "{policy:?}");
        // SAFETY: acquired above with this node.
        unsafe { latch.release(&front, worker.attempt_timer(), &node) };
    }
}

/// Results of passes of an adaptive latch with these costs, one in `waits` of which waits. Checks
/// that each pass is counted once while the latch is tried or elided, and none while it is calm.
fn adapts(script: Script, passes: u64, (taken, tried): (u64, u64), waits: u64) -> Elisions {
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    let world = ModelTransactions::costing(script, taken, tried);
    let value = ModelElided::new(Kind::ElidedAdaptive, &world, 0);
    let mut counted = 0;
    for pass in 0..passes {
        let loud = !value.is_calm();
        match pass % waits {
            0 => value.with_late(&worker, |value| *value += 1),
            _ => value.with(&worker, |value| *value += 1),
        }
        counted += u64::from(loud);
        let done = workers.elisions();
        assert_eq!(done.committed + done.latched, counted, "{pass}");
    }
    assert_eq!(value.into_inner(), passes);
    workers.elisions()
}

const PASSES: u64 = 1_000_000;
const OFTEN: u64 = 8;

#[test]
fn an_adaptive_latch_is_taken_where_that_is_faster() {
    let done = adapts(Script::Commit, PASSES, (1_500, 2_000), OFTEN);
    assert!(
        done.committed > 0 && done.committed * 25 < PASSES,
        "{done:?}"
    );
    // And is hardly ever anything but the latch underneath.
    assert!(done.latched * 25 < PASSES, "{done:?}");
}

#[test]
fn an_adaptive_latch_is_elided_where_that_is_faster() {
    let done = adapts(Script::Commit, PASSES, (9_000, 2_000), OFTEN);
    assert!(done.latched > 0 && done.latched * 20 < PASSES, "{done:?}");
    assert!(done.committed * 20 > PASSES * 19, "{done:?}");
}

/// As long as no thread waits, elision could save no wait.
#[test]
fn an_adaptive_latch_is_not_tried_where_no_thread_waits() {
    let done = adapts(Script::Commit, PASSES, (9_000, 2_000), PASSES / 10);
    assert_eq!((done.attempts(), done.latched), (0, 0), "{done:?}");
}

/// Each attempt takes less than a pass that takes the latch, but none commits.
#[test]
fn an_adaptive_latch_stops_eliding_where_transactions_abort() {
    for abort in aborts() {
        let done = adapts(Script::Abort(abort), PASSES, (3_000, 2_000), OFTEN);
        assert_eq!(done.committed, 0, "{abort}: {done:?}");
        // In each trial one pass in sixteen tries, three times at most.
        assert!(
            done.attempts() > 0 && done.attempts() * 100 < PASSES,
            "{abort}: {done:?}"
        );
        assert!(done.latched * 15 < PASSES, "{abort}: {done:?}");
    }
}

/// A try that is refused is no pass, and the wait that follows counts once.
#[test]
fn a_failed_try_is_not_counted_as_a_pass() {
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    let world = ModelTransactions::costing(Script::Commit, 9_000, 2_000);
    let value = ModelElided::new(Kind::ElidedAdaptive, &world, 0);
    let mut counted = 0;
    for _ in 0..20_000 {
        value.with_taken(|_| {
            assert_eq!(value.try_with(&worker, |value| *value), None);
        });
        counted += u64::from(!value.is_calm());
        value.with_late(&worker, |value| *value += 1);
        let done = workers.elisions();
        assert_eq!(done.committed + done.latched, counted, "{done:?}");
    }
    assert!(counted * 10 > 20_000 * 9, "{counted}");
}

/// A backend on which each begin finds a holder that makes the latch calm.
struct Calmed(Arc<Parking>);

impl TransactionBackend for Calmed {
    fn begin(&self, free: impl FnOnce() -> bool) -> Result<(), Abort> {
        assert!(
            !self.0.is_plain(),
            "what is calm is tried again, and would be for ever"
        );
        self.0.set_plain(true);
        assert!(!free());
        Err(Abort::explicit(BUSY))
    }

    unsafe fn end(&self) {
        unreachable!("nothing commits");
    }

    fn abort_enclosing(&self) {}
}

/// A pass that finds in its transaction that the latch has become calm takes it.
#[test]
fn a_latch_that_becomes_calm_during_an_attempt_is_taken() {
    let front = Arc::new(Parking::new(false));
    let latch = Elided::with_backend(Calmed(front.clone()), ElisionPolicy::Adaptive, &SITE);
    let (workers, node) = (Workers::with_seed(1), QueueNode::new());
    let worker = workers.worker();
    worker.elision_stats().begin_turn(latch.site(), -2);
    // SAFETY: the node stays here until the release below.
    unsafe { latch.acquire(&front, &worker, &node) };
    assert!(!front.is_free() && front.is_plain());
    // SAFETY: acquired above with this node.
    unsafe { latch.release(&front, worker.attempt_timer(), &node) };
    assert!(front.is_free());
}

/// Aborts drawn from a seed, of every cause, and a thread without elision: no pass is lost.
#[test]
fn elided_passes_and_holders_exclude_each_other() {
    const THREADS: u64 = 4;
    const PASSES: u64 = 3_000;
    const ABORTS: usize = 1_000;
    for (policy, seed) in ALL.into_iter().zip(1..) {
        let workers = Workers::with_seed(seed);
        let random = workers.worker();
        let all: Vec<Abort> = aborts().collect();
        let draw = |_| all[random.random_below(all.len() as u64) as usize];
        let world = ModelTransactions::new(Script::These((0..ABORTS).map(draw).collect()));
        let pair = ModelElided::new(policy.kind(), &world, (0u64, 0u64));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (pair, worker) = (&pair, workers.worker());
                let pass = |(one, other): &mut (u64, u64)| {
                    *one += 1;
                    std::hint::black_box(&mut *one);
                    *other += 1;
                    assert_eq!(one, other);
                };
                scope.spawn(move || {
                    for turn in 0..PASSES {
                        match (turn + thread) % 4 {
                            0 => pair.with_taken(pass),
                            1 => while pair.try_with(&worker, pass).is_none() {},
                            2 => pair.with_late(&worker, pass),
                            _ => pair.with(&worker, pass),
                        }
                    }
                });
            }
        });
        assert_eq!(pair.into_inner(), (THREADS * PASSES, THREADS * PASSES));
        let done = workers.elisions();
        let counted = done.committed + done.latched;
        match policy {
            // While it is calm it counts nothing.
            ElisionPolicy::Adaptive => assert!(counted > 0 && counted <= THREADS * PASSES * 3 / 4),
            _ => assert_eq!(counted, THREADS * PASSES * 3 / 4),
        }
        let scripted = done.attempts() - done.committed - done.busy;
        assert!(scripted <= ABORTS as u64, "{done:?}");
    }
}
