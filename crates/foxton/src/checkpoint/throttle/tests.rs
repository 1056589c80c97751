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
fn as_much_comes_as_the_terms_say() {
    let at = |terms: LogBudget| [-1.0, 0.0, 0.5, 1.0, 7.0].map(|done| terms.at(done));
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
fn one_asks_for_a_checkpoint_and_nobody_waits_before_it_is_made() {
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
fn who_is_ahead_waits_for_room_in_the_order_they_came_and_has_it_for_a_while() {
    let (throttle, worker) = (throttle(), worker());
    let shut = throttle.shut(&worker);
    throttle.allow(&worker, Lsn::new(300 * KIB));
    let mut permits = [(); 4].map(|()| WriteCredit::default());
    assert!(!commits(&throttle, &mut permits[0], 300 * KIB - 1));
    let mut at = 0;
    let held = permits.each_mut().map(|write_credit| {
        at += 100;
        assert!(commits(&throttle, write_credit, 300 * KIB + at));
        match pass(&throttle, write_credit, 300 * KIB + at) {
            StallDecision::Wait(held) => held,
            passed => panic!("{passed:?}"),
        }
    });
    let mut context = Context::from_waker(Waker::noop());
    let mut is_let_go = |permits: &mut [WriteCredit; 4], which: usize| {
        held[which]
            .poll(&mut permits[which], &mut context)
            .is_ready()
    };
    // Their own records take 400 bytes; then there is space for one, and for two more.
    throttle.allow(&worker, Lsn::new(301 * KIB + 399));
    assert!(!is_let_go(&mut permits, 0));
    throttle.allow(&worker, Lsn::new(301 * KIB + 400));
    assert!(is_let_go(&mut permits, 0) && !is_let_go(&mut permits, 1));
    throttle.allow(&worker, Lsn::new(303 * KIB + 400));
    assert!(is_let_go(&mut permits, 1) && is_let_go(&mut permits, 2));
    assert!(!is_let_go(&mut permits, 3));
    // The second has credit for eleven commits of a hundred bytes, and then waits again.
    for nth in 0..11 {
        assert!(!commits(&throttle, &mut permits[1], 400 * KIB), "{nth}");
    }
    assert!(commits(&throttle, &mut permits[1], 400 * KIB));
    // When the checkpoint is over all waiters are released, and remaining credit is void.
    drop(shut);
    assert!(is_let_go(&mut permits, 3));
    let _shut = throttle.shut(&worker);
    throttle.allow(&worker, Lsn::new(300 * KIB));
    for which in [2, 3] {
        assert!(
            commits(&throttle, &mut permits[which], 400 * KIB),
            "{which}"
        );
    }
    assert_eq!((permits[2].room, permits[3].room), (KIB, 0));
}

#[test]
fn room_left_does_not_keep_anybody_from_asking_for_the_next() {
    let (throttle, worker) = (throttle(), worker());
    let mut write_credit = WriteCredit::default();
    let mut shut = throttle.shut(&worker);
    throttle.allow(&worker, Lsn::new(302 * KIB));
    assert!(matches!(
        pass(&throttle, &mut write_credit, 300 * KIB),
        StallDecision::Nothing
    ));
    assert_eq!(write_credit.room, KIB, "there is room at once");
    assert!(!commits(&throttle, &mut write_credit, 303 * KIB));
    shut.until(Lsn::new(500 * KIB));
    drop(shut);
    assert!(commits(&throttle, &mut write_credit, 500 * KIB));
    assert!(matches!(
        pass(&throttle, &mut write_credit, 500 * KIB),
        StallDecision::Ask
    ));
}

#[test]
fn a_task_that_is_dropped_takes_its_room_with_it_and_holds_up_nobody() {
    let (throttle, worker) = (throttle(), worker());
    let _shut = throttle.shut(&worker);
    throttle.allow(&worker, Lsn::new(300 * KIB));
    let mut permits = [(); 2].map(|()| WriteCredit::default());
    let [gone, stays] =
        permits.each_mut().map(
            |write_credit| match pass(&throttle, write_credit, 301 * KIB) {
                StallDecision::Wait(held) => held,
                passed => panic!("{passed:?}"),
            },
        );
    let mut context = Context::from_waker(Waker::noop());
    assert!(stays.poll(&mut permits[1], &mut context).is_pending());
    drop(gone);
    throttle.allow(&worker, Lsn::new(303 * KIB));
    assert!(stays.poll(&mut permits[1], &mut context).is_ready());
    assert_eq!(permits.map(|write_credit| write_credit.room), [0, KIB]);
}

/// A log of numbers, and a thread that makes slow checkpoints of it.
#[test]
fn threads_keep_to_what_may_come_and_none_sleeps_for_ever() {
    const THREADS: u64 = 16;
    const COMMITS: u64 = 4_000;
    const BYTES: u64 = 100;
    let throttle = Throttle::new(Lsn::new(KIB), 16 * KIB);
    let room = throttle.room;
    let (end, left) = (AtomicU64::new(0), AtomicU64::new(THREADS));
    // Beyond the limit there are only commits in flight.
    let slack = THREADS * (room + 2 * BYTES);
    thread::scope(|scope| {
        let maker = worker();
        // Before any of them runs, so that they have to wait.
        let mut shut = throttle.shut(&maker);
        throttle.allow(&maker, Lsn::new(0));
        for _ in 0..THREADS {
            scope.spawn(|| {
                let (worker, mut write_credit) = (worker(), WriteCredit::default());
                for _ in 0..COMMITS {
                    let end = Lsn::new(end.fetch_add(BYTES, Relaxed) + BYTES);
                    write_credit.done();
                    throttle.note(&mut write_credit, end, BYTES);
                    if write_credit.is_ahead()
                        && let StallDecision::Wait(held) =
                            throttle.pass(&worker, &mut write_credit, end)
                    {
                        held.wait(&mut write_credit);
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
            throttle.allow(&maker, Lsn::new(end.load(Relaxed)));
            let from = end.load(Relaxed);
            for step in 0..8 {
                let until = from + (step + 1) * 2 * KIB;
                throttle.allow(&maker, Lsn::new(until));
                thread::yield_now();
                let end = end.load(Relaxed);
                assert!(end <= until + slack, "{end} {until} {round}");
            }
            shut.until(Lsn::new(end.load(Relaxed) + KIB));
            drop(shut);
            shut = throttle.shut(&maker);
        }
    });
    let waits = throttle.waits();
    assert!(waits.begun > 0 && waits.now == 0 && !waits.waited.is_zero());
    assert_eq!(end.load(Relaxed), THREADS * COMMITS * BYTES);
}
