//! Moments of the log: at named points, and by a clock that the test sets.
#![cfg(feature = "hooks")]

mod support;

use std::io::ErrorKind;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::failpoint;
use foxton_log::{BufferKind, Log, LogError, LogWait, Lsn};
use foxton_sync::worker::{Worker, Workers};

use support::{IDENTITY, open_as};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn what_was_committed_buffered_is_synced_when_the_interval_is_over_and_not_before() {
    let workers = Workers::new();
    let worker = workers.worker();
    let mut options = support::options();
    options.sync_interval = HOUR;
    options.workers = Some(workers.clone());
    let (log, ..) = open_as(Arc::new(FaultDevice::new()), options, IDENTITY).unwrap();
    for _ in 0..3 {
        let before = log.durable();
        let end = log.insert(&worker, 1, &[b"buffered"]).unwrap();
        log.wait_written(&worker, end).unwrap();
        workers.clock().advance(HOUR - Duration::from_secs(60));
        for _ in 0..20 {
            thread::yield_now();
            assert_eq!(log.durable(), before, "an hour is not over");
        }
        workers.clock().advance(Duration::from_secs(60));
        while log.durable() < end {
            thread::yield_now();
        }
    }
}

/// The thread that syncs stops between noting its failure and having inserts refused. Meanwhile whoever inserts may still
/// succeed, but nobody who has been told.
#[test]
fn who_has_been_told_of_a_failure_inserts_nothing_after_it() {
    for kind in BufferKind::ALL {
        let workers = Workers::new();
        let mut options = support::options();
        (options.buffer, options.workers) = (kind, Some(workers.clone()));
        let device = FaultDevice::new();
        let (log, ..) = open_as(Arc::new(device.clone()), options, IDENTITY).unwrap();
        let worker = workers.worker();
        let end = log.insert(&worker, 1, &[b"lost"]).unwrap();
        device.fail(Call::Sync, 1, Times::Once, ErrorKind::Other);
        let stop = worker.failpoints().stop(&failpoint::FAILED);
        log.flush_to(&worker, end);
        stop.reached();
        thread::scope(|scope| {
            let after_it_was_told = |told: fn(&Log, &Worker, Lsn) -> bool| {
                let (log, worker) = (&log, workers.worker());
                scope.spawn(move || {
                    while !told(log, &worker, Lsn::MAX) {
                        thread::yield_now();
                    }
                    let refused = log.insert(&worker, 1, &[b"more"]);
                    assert!(matches!(refused, Err(LogError::Failed(_))), "{refused:?}");
                });
            };
            after_it_was_told(|log, worker, lsn| log.wait_durable(worker, lsn).is_err());
            after_it_was_told(|log, worker, lsn| log.wait_written(worker, lsn).is_err());
            after_it_was_told(|log, _, _| log.check().is_err());
            // Long enough for them to go wrong, were anything to be read.
            thread::sleep(Duration::from_millis(20));
            stop.release();
        });
        let refused = log.insert(&worker, 1, &[b"more"]);
        assert!(matches!(refused, Err(LogError::Failed(_))), "{refused:?}");
    }
}

/// What was never inserted is nothing that the flusher could be done with.
#[test]
fn who_asks_for_more_than_there_is_keeps_nobody_busy() {
    let workers = Workers::new();
    let worker = workers.worker();
    let mut options = support::options();
    (options.sync_interval, options.workers) = (HOUR, Some(workers.clone()));
    let (log, ..) = open_as(Arc::new(FaultDevice::new()), options, IDENTITY).unwrap();
    let end = log.insert(&worker, 1, &[b"all there is"]).unwrap();
    let (mut pending, context) = (LogWait::default(), &mut Context::from_waker(Waker::noop()));
    let wait = &mut log.poll_durable(&worker, &mut pending, Lsn::MAX, context);
    assert!(wait.is_pending());
    while log.durable() < end {
        thread::yield_now();
    }
    // Whatever it was about to do.
    thread::sleep(Duration::from_millis(50));
    let written = worker.failpoints().passages(&failpoint::WRITE);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(worker.failpoints().passages(&failpoint::WRITE), written);
}

/// Nor is it asked for ever after.
#[test]
fn who_asked_for_more_than_there_was_has_not_asked_for_what_came_later() {
    let workers = Workers::new();
    let worker = workers.worker();
    let mut options = support::options();
    (options.sync_interval, options.workers) = (HOUR, Some(workers.clone()));
    let (log, ..) = open_as(Arc::new(FaultDevice::new()), options, IDENTITY).unwrap();
    let insert = || log.insert(&worker, 1, &[b"a record"]).unwrap();
    let end = insert();
    log.flush_to(&worker, Lsn::MAX);
    while log.durable() < end {
        thread::yield_now();
    }
    // The flusher writes for tasks, and has no reason to sync before the hour is over.
    let (mut pending, context) = (LogWait::default(), &mut Context::from_waker(Waker::noop()));
    let later = insert();
    while log
        .poll_written(&worker, &mut pending, later, context)
        .is_pending()
    {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(50));
    assert_eq!(log.durable(), end);
}
