//! Contract of the log buffers (`buffer/mod.rs`): a test for each clause, run on every buffer.
//!
//! The tests insert from many threads and read the stream back afterwards.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::memory::MemoryDevice;
use foxton_log::{BufferKind, Log, LogError, LogOptions, Lsn};
use foxton_sync::worker::{Worker, Workers};

use crate::support::{self, IDENTITY, Random, open_as, read};

fn options(buffer: BufferKind) -> LogOptions {
    let mut options = support::options();
    options.buffer = buffer;
    options.segment_bytes = 1 << 20;
    options
}

/// Returns payload `number` of thread `thread`; it names both, and can be checked.
fn payload(thread: u32, number: u32, length: usize) -> Vec<u8> {
    let mut payload = [thread.to_le_bytes(), number.to_le_bytes()].concat();
    payload.extend((0..length).map(|at| (at as u32 ^ thread ^ number) as u8));
    payload
}

/// Inserts from many threads at once, with a random size for each record, and reads the stream
/// back. Every record must be found once, whole, at its position, in the order of its thread,
/// without holes.
fn storm(
    options: LogOptions,
    threads: u32,
    each: u32,
    size: impl Fn(&mut Random) -> usize + Sync,
    also: impl Fn(&Log, &Worker, u32, Lsn) + Sync,
) {
    let what = format!("{} with {} bytes", options.buffer, options.buffer_bytes);
    let device = Arc::new(MemoryDevice::new());
    let workers = Workers::new();
    let (log, ..) = open_as(device.clone(), options, IDENTITY).unwrap();
    let mut expected = HashMap::new();
    let mut bytes = 0;
    std::thread::scope(|scope| {
        let (log, size, also) = (&log, &size, &also);
        let spawn = |thread: u32| {
            let worker = workers.worker();
            scope.spawn(move || {
                let mut random = Random(u64::from(thread));
                let insert = |number: u32| {
                    let payload = payload(thread, number, size(&mut random));
                    let (head, tail) = payload.split_at(payload.len() / 3);
                    let end = log.insert(&worker, 1, &[head, tail]).unwrap();
                    also(log, &worker, number, end);
                    (end, payload)
                };
                (0..each).map(insert).collect::<Vec<_>>()
            })
        };
        let running: Vec<_> = (0..threads).map(spawn).collect();
        for thread in running {
            let inserted = thread.join().unwrap();
            assert!(
                inserted.is_sorted_by(|a, b| a.0 < b.0),
                "{what}: in its order"
            );
            bytes += inserted
                .iter()
                .map(|(_, payload)| (24 + payload.len() as u64).next_multiple_of(8))
                .sum::<u64>();
            expected.extend(inserted);
        }
    });
    let worker = workers.worker();
    let stats = log.stats(&worker);
    assert_eq!(stats.records, u64::from(threads * each), "{what}");
    assert_eq!(stats.bytes, bytes, "{what}");
    log.close(&worker).unwrap();
    let (summary, found) = read(&*device).unwrap();
    assert_eq!(summary.records, u64::from(threads * each), "{what}");
    let mut at = Lsn::ZERO;
    for entry in found {
        let inserted = expected.remove(&entry.end);
        assert!(
            inserted.as_ref() == Some(&entry.payload),
            "{what}: another record ends at {}",
            entry.end
        );
        at = at.plus((24 + entry.payload.len() as u64).next_multiple_of(8));
        assert_eq!(at, entry.end, "{what}: a hole");
    }
    assert!(expected.is_empty(), "{what}: lost");
}

#[test]
fn b1_records_of_all_sizes_follow_each_other_whole_and_in_order() {
    for buffer in BufferKind::ALL {
        // The smallest buffer is full all the time, and wraps after every few records.
        let mut options = options(buffer);
        options.buffer_bytes = 8 << 10;
        let size = |random: &mut Random| match random.below(40) {
            0 => random.below(20_000),
            1..4 => 0,
            _ => random.below(600),
        };
        storm(options, 16, 300, size, |log, worker, number, end| {
            if number.is_multiple_of(64) {
                log.wait_written(worker, end).unwrap();
                assert!(log.written() >= end);
            }
        });
    }
}

/// Long records store their length in another way, and leave more to be cleared before the next
/// lap.
#[test]
fn b1_long_records_among_short_ones() {
    for buffer in BufferKind::ALL {
        let mut options = options(buffer);
        options.buffer_bytes = 32 << 10;
        let size = |random: &mut Random| match random.below(3) {
            0 => random.below(300),
            1 => 2000 + random.below(60),
            _ => random.below(8000),
        };
        storm(options, 8, 300, size, |_, _, _, _| {});
    }
}

#[test]
fn b1_many_threads_in_a_buffer_with_space() {
    for buffer in BufferKind::ALL {
        let mut options = options(buffer);
        options.buffer_bytes = 256 << 10;
        let size = |random: &mut Random| random.below(240);
        storm(options, 64, 200, size, |log, worker, number, end| {
            if number.is_multiple_of(50) {
                log.wait_durable(worker, end).unwrap();
                assert!(log.durable() >= end);
            }
        });
    }
}

#[test]
fn b2_an_inserted_record_is_written_without_its_thread() {
    for buffer in BufferKind::ALL {
        let device = Arc::new(MemoryDevice::new());
        let workers = Workers::new();
        let (log, ..) = open_as(device, options(buffer), IDENTITY).unwrap();
        let insert = || log.insert(&workers.worker(), 1, &[b"and gone"]).unwrap();
        let end = std::thread::scope(|scope| scope.spawn(insert).join().unwrap());
        log.wait_durable(&workers.worker(), end).unwrap();
        assert_eq!(log.durable(), end, "{buffer}");
    }
}

#[test]
fn b3_a_refused_insert_leaves_no_trace() {
    for buffer in BufferKind::ALL {
        let device = Arc::new(MemoryDevice::new());
        let worker = Workers::new().worker();
        let (log, ..) = open_as(device.clone(), options(buffer), IDENTITY).unwrap();
        log.insert(&worker, 1, &[b"the last"]).unwrap();
        log.close(&worker).unwrap();
        let stats = log.stats(&worker);
        for size in [8, 100_000] {
            let refused = log.insert(&worker, 1, &[&vec![1; size]]);
            assert!(matches!(refused, Err(LogError::Closed)), "{buffer}");
        }
        assert_eq!(log.stats(&worker).records, stats.records, "{buffer}");
        assert_eq!(log.stats(&worker).bytes, stats.bytes, "{buffer}");
        let (summary, found) = read(&*device).unwrap();
        assert_eq!((summary.records, found.len()), (1, 1), "{buffer}");
    }
}

/// Threads insert until they are refused; exactly the accepted records are in the log.
#[test]
fn b4_a_log_that_closes_has_the_records_it_accepted_and_no_more() {
    for buffer in BufferKind::ALL {
        let device = Arc::new(MemoryDevice::new());
        let workers = Workers::new();
        let mut options = options(buffer);
        options.buffer_bytes = 16 << 10;
        let (log, ..) = open_as(device.clone(), options, IDENTITY).unwrap();
        let accepted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let (log, worker, accepted) = (&log, workers.worker(), &accepted);
                scope.spawn(move || {
                    while log.insert(&worker, 1, &[&[7; 120]]).is_ok() {
                        accepted.fetch_add(1, Relaxed);
                    }
                });
            }
            while accepted.load(Relaxed) < 1000 {
                std::thread::yield_now();
            }
            log.close(&workers.worker()).unwrap();
        });
        let (summary, _) = read(&*device).unwrap();
        assert_eq!(summary.records, accepted.load(Relaxed), "{buffer}");
    }
}

/// Every thread that waits for space, or is about to, gets the error; no thread hangs.
#[test]
fn b4_a_log_that_fails_ends_every_wait_with_the_error() {
    for buffer in BufferKind::ALL {
        let device = FaultDevice::new();
        let workers = Workers::new();
        let mut options = options(buffer);
        options.buffer_bytes = 8 << 10;
        let (log, ..) = open_as(Arc::new(device.clone()), options, IDENTITY).unwrap();
        let inserted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..32 {
                let (log, worker, inserted) = (&log, workers.worker(), &inserted);
                scope.spawn(move || {
                    loop {
                        match log.insert(&worker, 1, &[&[7; 500]]) {
                            Ok(_) => inserted.fetch_add(1, Relaxed),
                            Err(LogError::Failed(_)) => return,
                            Err(error) => panic!("{buffer}: {error}"),
                        };
                    }
                });
            }
            while inserted.load(Relaxed) < 500 {
                std::thread::yield_now();
            }
            device.fail(Call::Write, 1, Times::ForEver, std::io::ErrorKind::Other);
        });
        assert!(matches!(log.check(), Err(LogError::Failed(_))), "{buffer}");
    }
}

#[test]
fn b5_small_records_are_inserted_beside_large_ones() {
    for buffer in BufferKind::ALL {
        let mut options = options(buffer);
        options.buffer_bytes = 32 << 10;
        let large = AtomicBool::new(false);
        // Now and then, one thread in four chooses a record larger than the whole buffer.
        let size = |random: &mut Random| match random.below(30) {
            0 => {
                large.store(true, Relaxed);
                60_000
            }
            _ => random.below(300),
        };
        storm(options, 8, 150, size, |_, _, _, _| {});
        assert!(large.load(Relaxed));
    }
}

/// More threads than a machine has cores, all at a buffer that is full. If they only spun, this
/// would take minutes.
#[test]
fn five_hundred_threads_at_a_full_buffer() {
    for buffer in [
        BufferKind::Baseline,
        BufferKind::Decoupled,
        BufferKind::Hybrid,
    ] {
        let mut options = options(buffer);
        options.buffer_bytes = 16 << 10;
        let size = |random: &mut Random| random.below(200);
        storm(options, 500, 20, size, |_, _, _, _| {});
    }
}
