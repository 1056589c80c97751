//! Points: what a test asks for happens there, in one database and not in another.
#![cfg(feature = "hooks")]

use foxton_sync::failpoint::Point;
use foxton_sync::shim::{Arc, AtomicU64, Ordering::SeqCst};
use foxton_sync::worker::Workers;
use std::{io, thread};

const PASSED: Point = Point::passing("test/passed");
const FAILING: Point = Point::failing("test/failing");

#[test]
fn an_error_comes_back_at_the_passage_it_was_asked_for() {
    let (workers, others) = (Workers::new(), Workers::new());
    let fails = |passage| match passage {
        2 => Err(io::Error::other("asked for")),
        _ => Ok(()),
    };
    workers.hooks().at(&FAILING, fails);
    let (worker, other) = (workers.worker(), others.worker());
    let came = [(); 3].map(|()| worker.hooks().fail(&FAILING).is_err());
    assert_eq!(came, [false, true, false]);
    assert!((0..3).all(|_| other.hooks().fail(&FAILING).is_ok()));
    assert_eq!(workers.hooks().passed(&FAILING), 3);
    workers.hooks().leave(&FAILING);
    assert!((0..3).all(|_| worker.hooks().fail(&FAILING).is_ok()));
}

#[test]
fn an_action_may_pass_its_own_point() {
    let workers = Workers::new();
    let again = workers.hooks().clone();
    workers.hooks().once(&PASSED, move || again.pass(&PASSED));
    let worker = workers.worker();
    worker.pin().hooks().pass(&PASSED);
    assert_eq!(workers.hooks().passed(&PASSED), 2);
}

#[test]
#[should_panic(expected = "nothing can fail at test/passed")]
fn an_error_where_none_can_come_is_a_panic() {
    let workers = Workers::new();
    let fails = |_| Err(io::Error::other("asked for"));
    workers.hooks().at(&PASSED, fails);
    workers.worker().hooks().pass(&PASSED);
}

#[test]
fn a_thread_stops_where_it_was_asked_to_until_it_is_let_go() {
    let workers = Workers::new();
    let stop = workers.hooks().stop(&PASSED);
    let steps = Arc::new(AtomicU64::new(0));
    let thread = {
        let (worker, steps) = (workers.worker(), steps.clone());
        thread::spawn(move || {
            steps.store(1, SeqCst);
            worker.hooks().pass(&PASSED);
            steps.store(2, SeqCst);
        })
    };
    stop.reached();
    assert_eq!(steps.load(SeqCst), 1);
    // Only one stops.
    workers.worker().hooks().pass(&PASSED);
    drop(stop);
    thread.join().unwrap();
    assert_eq!(steps.load(SeqCst), 2);
}
