use std::task::Waker;
use std::thread;

use foxton_sync::worker::Workers;

use super::*;

const KIB: u64 = 1 << 10;

fn worker() -> Worker {
    Workers::new().background_worker()
}

/// A checkpoint every 256 KiB, so a credit is 1 KiB.
fn throttle() -> Throttle {
    Throttle::new(Lsn::new(256 * KIB), 256 * KIB)
}

/// Records a commit of a hundred bytes that ends at `end`. Returns whether it has something to do.
fn commits(throttle: &Throttle, write_credit: &mut WriteCredit, end: u64) -> bool {
    write_credit.done();
    throttle.note(write_credit, Lsn::new(end), 100);
    write_credit.is_ahead()
}

fn pass(throttle: &Throttle, write_credit: &mut WriteCredit, end: u64) -> StallDecision {
    throttle.pass(&worker(), write_credit, Lsn::new(end))
}

#[test]
fn the_budget_grows_with_the_checkpoint() {
    let at = |budget: LogBudget| [-1.0, 0.0, 0.5, 1.0, 7.0].map(|done| budget.at(done));
    // The usual budget, one with much to read, and one that rewrites a large database.
    assert_eq!(at(LogBudget::new(100, 100, 0)), [50, 50, 100, 150, 150]);
    assert_eq!(at(LogBudget::new(100, 1_000, 700)), [50, 50, 300, 550, 550]);
    assert_eq!(
        at(LogBudget::new(100, 100, 8_000)),
        [50, 50, 550, 1_050, 1_050]
    );
    assert_eq!(LogBudget::new(u64::MAX, 5, 5).at(1.0), u64::MAX);
}

#[test]
fn one_commit_requests_a_checkpoint_and_none_waits_before_it_begins() {
    let throttle = throttle();
    let mut write_credit = WriteCredit::default();
    assert!(!commits(&throttle, &mut write_credit, 256 * KIB - 1));
    assert!(matches!(
        pass(&throttle, &mut write_credit, 1),
        StallDecision::Nothing
    ));
    assert!(commits(&throttle, &mut write_credit, 256 * KIB));
    assert!(matches!(
        pass(&throttle, &mut write_credit, 256 * KIB),
        StallDecision::Ask
    ));
    // Another commit checks too, and finds that the request was made.
    assert!(matches!(
        pass(&throttle, &mut write_credit, 256 * KIB),
        StallDecision::Nothing
    ));
    assert!(!commits(&throttle, &mut write_credit, 10_000 * KIB));
    assert_eq!(throttle.waits(), StallCounts::default());
}

#[test]
fn commits_wait_for_credit_in_order_of_arrival_and_use_it_for_a_while() {
    let (throttle, worker) = (throttle(), worker());
    let guard = throttle.guard(&worker);
    throttle.allow(&worker, Lsn::new(300 * KIB));
    let mut credits = [(); 4].map(|()| WriteCredit::default());
    assert!(!commits(&throttle, &mut credits[0], 300 * KIB - 1));
    let mut at = 0;
    let stall = credits.each_mut().map(|write_credit| {
        at += 100;
        assert!(commits(&throttle, write_credit, 300 * KIB + at));
        match pass(&throttle, write_credit, 300 * KIB + at) {
            StallDecision::Wait(stall) => stall,
            passed => panic!("{passed:?}"),
        }
    });
    let mut context = Context::from_waker(Waker::noop());
    let mut is_let_go = |credits: &mut [WriteCredit; 4], which: usize| {
        stall[which]
            .poll(&mut credits[which], &mut context)
            .is_ready()
    };
    // Their own records take 400 bytes; then there is space for one, and for two more.
    throttle.allow(&worker, Lsn::new(301 * KIB + 399));
    assert!(!is_let_go(&mut credits, 0));
    throttle.allow(&worker, Lsn::new(301 * KIB + 400));
    assert!(is_let_go(&mut credits, 0) && !is_let_go(&mut credits, 1));
    throttle.allow(&worker, Lsn::new(303 * KIB + 400));
    assert!(is_let_go(&mut credits, 1) && is_let_go(&mut credits, 2));
    assert!(!is_let_go(&mut credits, 3));
    // The second has credit for eleven commits of a hundred bytes, and then waits again.
    for nth in 0..11 {
        assert!(!commits(&throttle, &mut credits[1], 400 * KIB), "{nth}");
    }
    assert!(commits(&throttle, &mut credits[1], 400 * KIB));
    // When the checkpoint is over all waiters are released, and remaining credit is void.
    drop(guard);
    assert!(is_let_go(&mut credits, 3));
    let _shut = throttle.guard(&worker);
    throttle.allow(&worker, Lsn::new(300 * KIB));
    for which in [2, 3] {
        assert!(
            commits(&throttle, &mut credits[which], 400 * KIB),
            "{which}"
        );
    }
    assert_eq!((credits[2].credit, credits[3].credit), (KIB, 0));
}

#[test]
fn remaining_credit_does_not_prevent_the_next_request() {
    let (throttle, worker) = (throttle(), worker());
    let mut write_credit = WriteCredit::default();
    let mut guard = throttle.guard(&worker);
    throttle.allow(&worker, Lsn::new(302 * KIB));
    assert!(matches!(
        pass(&throttle, &mut write_credit, 300 * KIB),
        StallDecision::Nothing
    ));
    assert_eq!(write_credit.credit, KIB, "there is credit at once");
    assert!(!commits(&throttle, &mut write_credit, 303 * KIB));
    guard.set_due(Lsn::new(500 * KIB));
    drop(guard);
    assert!(commits(&throttle, &mut write_credit, 500 * KIB));
    assert!(matches!(
        pass(&throttle, &mut write_credit, 500 * KIB),
        StallDecision::Ask
    ));
}

#[test]
fn a_dropped_task_takes_its_credit_along_and_delays_no_other() {
    let (throttle, worker) = (throttle(), worker());
    let _shut = throttle.guard(&worker);
    throttle.allow(&worker, Lsn::new(300 * KIB));
    let mut credits = [(); 2].map(|()| WriteCredit::default());
    let [gone, stays] =
        credits.each_mut().map(
            |write_credit| match pass(&throttle, write_credit, 301 * KIB) {
                StallDecision::Wait(stall) => stall,
                passed => panic!("{passed:?}"),
            },
        );
    let mut context = Context::from_waker(Waker::noop());
    assert!(stays.poll(&mut credits[1], &mut context).is_pending());
    drop(gone);
    throttle.allow(&worker, Lsn::new(303 * KIB));
    assert!(stays.poll(&mut credits[1], &mut context).is_ready());
    assert_eq!(credits.map(|write_credit| write_credit.credit), [0, KIB]);
}

/// A log of numbers, and a thread that makes slow checkpoints of it.
#[test]
fn threads_respect_the_limit_and_none_sleeps_for_ever() {
    const THREADS: u64 = 16;
    const COMMITS: u64 = 4_000;
    const BYTES: u64 = 100;
    let throttle = Throttle::new(Lsn::new(KIB), 16 * KIB);
    let credit = throttle.credit;
    let (end, left) = (AtomicU64::new(0), AtomicU64::new(THREADS));
    // Beyond the limit there are only commits in flight.
    let slack = THREADS * (credit + 2 * BYTES);
    thread::scope(|scope| {
        let builder = worker();
        // Before any of them runs, so that they have to wait.
        let mut guard = throttle.guard(&builder);
        throttle.allow(&builder, Lsn::new(0));
        for _ in 0..THREADS {
            scope.spawn(|| {
                let (worker, mut write_credit) = (worker(), WriteCredit::default());
                for _ in 0..COMMITS {
                    let end = Lsn::new(end.fetch_add(BYTES, Relaxed) + BYTES);
                    write_credit.done();
                    throttle.note(&mut write_credit, end, BYTES);
                    if write_credit.is_ahead()
                        && let StallDecision::Wait(stall) =
                            throttle.pass(&worker, &mut write_credit, end)
                    {
                        stall.wait(&mut write_credit);
                    }
                }
                left.fetch_sub(1, Relaxed);
            });
        }
        for round in 0.. {
            if left.load(Relaxed) == 0 {
                break;
            }
            // From here on no writer is unlimited, and the test measures how far they get.
            throttle.allow(&builder, Lsn::new(end.load(Relaxed)));
            let from = end.load(Relaxed);
            for step in 0..8 {
                let until = from + (step + 1) * 2 * KIB;
                throttle.allow(&builder, Lsn::new(until));
                thread::yield_now();
                let end = end.load(Relaxed);
                assert!(end <= until + slack, "{end} {until} {round}");
            }
            guard.set_due(Lsn::new(end.load(Relaxed) + KIB));
            drop(guard);
            guard = throttle.guard(&builder);
        }
    });
    let waits = throttle.waits();
    assert!(waits.begun > 0 && waits.now == 0 && !waits.waited.is_zero());
    assert_eq!(end.load(Relaxed), THREADS * COMMITS * BYTES);
}
