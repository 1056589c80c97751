//! Failpoints: a test's action happens there, in one database and not in another.

use foxton_sync::failpoint::Failpoint;
use foxton_sync::shim::{Arc, AtomicU64, Ordering::SeqCst};
use foxton_sync::worker::Workers;
use std::{io, thread};

const PASSED: Failpoint = Failpoint::passing("test/passed");
const FAILING: Failpoint = Failpoint::failing("test/failing");
const FAULT: Failpoint = Failpoint::fault("test/fault");

#[test]
fn an_armed_fault_is_in_one_database_until_it_is_cleared() {
    let (workers, others) = (Workers::new(), Workers::new());
    workers.failpoints().arm(&FAULT);
    let (worker, other) = (workers.worker(), others.worker());
    assert!(worker.failpoints().misbehaves(&FAULT));
    assert!(
        !worker
            .failpoints()
            .misbehaves(&Failpoint::fault("test/other fault"))
    );
    assert!(!other.failpoints().misbehaves_anywhere());
    workers.failpoints().clear(&FAULT);
    assert!(!worker.failpoints().misbehaves_anywhere());
}

#[test]
fn an_error_is_returned_at_the_requested_passage() {
    let (workers, others) = (Workers::new(), Workers::new());
    let fails = |passage| match passage {
        2 => Err(io::Error::other("asked for")),
        _ => Ok(()),
    };
    workers.failpoints().set(&FAILING, fails);
    let (worker, other) = (workers.worker(), others.worker());
    let came = [(); 3].map(|()| worker.failpoints().try_pass(&FAILING).is_err());
    assert_eq!(came, [false, true, false]);
    assert!((0..3).all(|_| other.failpoints().try_pass(&FAILING).is_ok()));
    assert_eq!(workers.failpoints().passages(&FAILING), 3);
    workers.failpoints().clear(&FAILING);
    assert!((0..3).all(|_| worker.failpoints().try_pass(&FAILING).is_ok()));
}

#[test]
fn an_action_may_pass_its_own_point() {
    let workers = Workers::new();
    let again = workers.failpoints().clone();
    workers
        .failpoints()
        .once(&PASSED, move || again.pass(&PASSED));
    let worker = workers.worker();
    worker.pin().failpoints().pass(&PASSED);
    assert_eq!(workers.failpoints().passages(&PASSED), 2);
}

#[test]
#[should_panic(expected = "nothing can fail at test/passed")]
fn an_error_at_an_infallible_point_panics() {
    let workers = Workers::new();
    let fails = |_| Err(io::Error::other("asked for"));
    workers.failpoints().set(&PASSED, fails);
    workers.worker().failpoints().pass(&PASSED);
}

#[test]
fn a_thread_stops_at_a_point_until_it_is_released() {
    let workers = Workers::new();
    let stop = workers.failpoints().stop(&PASSED);
    let steps = Arc::new(AtomicU64::new(0));
    let thread = {
        let (worker, steps) = (workers.worker(), steps.clone());
        thread::spawn(move || {
            steps.store(1, SeqCst);
            worker.failpoints().pass(&PASSED);
            steps.store(2, SeqCst);
        })
    };
    stop.reached();
    assert_eq!(steps.load(SeqCst), 1);
    // Only one thread stops.
    workers.worker().failpoints().pass(&PASSED);
    drop(stop);
    thread.join().unwrap();
    assert_eq!(steps.load(SeqCst), 2);
}
