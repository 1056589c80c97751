//! Moments of the log: at named points, and by a clock that the test sets.

use std::io::ErrorKind;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::failpoint;
use foxton_log::format::record::framed_bytes;
use foxton_log::{BufferKind, Insertion, Log, LogError, LogWait, Lsn};
use foxton_sync::worker::{Worker, Workers};

use crate::support::{self, IDENTITY, open_as};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_buffered_commit_is_synced_when_the_interval_is_over_and_not_before() {
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

/// The flusher stops after it has kept its failure and before inserts are refused. Meanwhile an
/// insert may still succeed, but not of a thread that has got the failure.
#[test]
fn a_thread_that_got_the_failure_inserts_nothing_after_it() {
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
            // Long enough for the two threads to fail, if they could read the failure.
            thread::sleep(Duration::from_millis(20));
            stop.release();
        });
        let refused = log.insert(&worker, 1, &[b"more"]);
        assert!(matches!(refused, Err(LogError::Failed(_))), "{refused:?}");
    }
}

/// The flusher can never fulfil a request for more than was inserted.
#[test]
fn a_request_beyond_the_end_does_not_keep_the_flusher_busy() {
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
    // Time for whatever the flusher is about to do.
    thread::sleep(Duration::from_millis(50));
    let written = worker.failpoints().passages(&failpoint::WRITE);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(worker.failpoints().passages(&failpoint::WRITE), written);
}

/// Such a request does not count for later records either.
#[test]
fn a_request_beyond_the_end_does_not_count_for_later_records() {
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

/// The writer stops before it writes anything. So an insert that waited for space would wait for
/// ever.
#[test]
fn an_insert_whose_space_was_taken_does_not_wait_for_the_device() {
    for kind in BufferKind::ALL {
        let workers = Workers::new();
        let mut options = support::options();
        (options.buffer, options.workers) = (kind, Some(workers.clone()));
        let (log, ..) = open_as(Arc::new(FaultDevice::new()), options, IDENTITY).unwrap();
        let worker = workers.worker();
        let payload = [7; 1000];
        let bytes = framed_bytes(payload.len());
        for _ in 0..3 {
            let stop = worker.failpoints().stop(&failpoint::WRITE);
            let mut taken = 0;
            while log.try_take_space(&worker, bytes) {
                taken += 1;
                assert!(taken < 1000, "{kind}: the buffer has a size");
            }
            assert!(taken > 2, "{kind}: {taken} records fit");
            for left in (0..taken).rev() {
                log.insert(&worker, 1, &[&payload]).unwrap();
                log.give_back_space(bytes);
                assert!(left > 0 || !log.try_take_space(&worker, bytes), "{kind}");
            }
            thread::scope(|scope| {
                scope.spawn(|| {
                    let worker = workers.worker();
                    log.wait_for_space(&worker, bytes).unwrap();
                    assert!(log.try_take_space(&worker, bytes), "{kind}: it was written");
                    log.give_back_space(bytes);
                });
                stop.reached();
                stop.release();
            });
            let end = log.end(&worker);
            log.wait_durable(&worker, end).unwrap();
        }
        log.close(&worker).unwrap();
        assert!(matches!(
            log.insert(&worker, 1, &[&payload]),
            Err(LogError::Closed)
        ));
    }
}

/// The writer stops before it writes anything. An insert that waits for space would not return.
#[test]
fn an_insert_that_never_waits_returns_while_the_writer_is_stopped() {
    for kind in BufferKind::ALL {
        let workers = Workers::new();
        let mut options = support::options();
        (options.buffer, options.workers) = (kind, Some(workers.clone()));
        let (log, ..) = open_as(Arc::new(FaultDevice::new()), options, IDENTITY).unwrap();
        let worker = workers.worker();
        let stop = worker.failpoints().stop(&failpoint::WRITE);
        let insert = || log.insert_with(&worker, 1, &[&[7; 1000]], |_| {}).unwrap();
        let mut inserted = 0;
        while insert() != Insertion::NoSpace {
            inserted += 1;
            assert!(inserted < 1000, "{kind}: the buffer has a size");
        }
        assert!(inserted > 2, "{kind}: {inserted} records fit");
        let front = log.front();
        assert_eq!(insert(), Insertion::NoSpace, "{kind}");
        assert_eq!(log.front(), front, "{kind}");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| log.ensure_space(&workers.worker(), 1000));
            stop.reached();
            thread::sleep(Duration::from_millis(5));
            assert!(!waiting.is_finished(), "{kind}: there is no space yet");
            stop.release();
            waiting.join().unwrap().unwrap();
        });
        assert!(matches!(insert(), Insertion::Done(_)), "{kind}");
    }
}
