//! Intervals of the log, by a clock that the test sets.
#![cfg(feature = "hooks")]

mod support;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use foxton_log::device::fault::FaultDevice;
use foxton_sync::worker::Workers;

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
