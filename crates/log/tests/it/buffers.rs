//! Contract of the log buffers (`buffer/mod.rs`): a test for each clause, run on every buffer.
//!
//! The tests insert from many threads and read the stream back afterwards.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::memory::MemoryDevice;
use foxton_log::{BufferKind, Insertion, Log, LogError, LogOptions, Lsn, MAX_PAYLOAD};
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
    let insert =
        |log: &Log, worker: &Worker, parts: &[&[u8]]| log.insert(worker, 1, parts).unwrap();
    storm_with(options, threads, each, size, insert, also);
}

/// As `storm`, with another way to insert.
fn storm_with(
    options: LogOptions,
    threads: u32,
    each: u32,
    size: impl Fn(&mut Random) -> usize + Sync,
    insert: impl Fn(&Log, &Worker, &[&[u8]]) -> Lsn + Sync,
    also: impl Fn(&Log, &Worker, u32, Lsn) + Sync,
) {
    let what = format!("{} with {} bytes", options.buffer, options.buffer_bytes);
    let device = Arc::new(MemoryDevice::new());
    let workers = Workers::new();
    let (log, ..) = open_as(device.clone(), options, IDENTITY).unwrap();
    let mut expected = HashMap::new();
    let mut bytes = 0;
    std::thread::scope(|scope| {
        let (log, size, insert_parts, also) = (&log, &size, &insert, &also);
        let spawn = |thread: u32| {
            let worker = workers.worker();
            scope.spawn(move || {
                let mut random = Random(u64::from(thread));
                let insert = |number: u32| {
                    let payload = payload(thread, number, size(&mut random));
                    let (head, tail) = payload.split_at(payload.len() / 3);
                    let end = insert_parts(log, &worker, &[head, tail]);
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

/// Inserts as a committer does: ensures space, and then inserts without waiting for any. Checks
/// what is announced, and when.
fn insert_announced(log: &Log, worker: &Worker, parts: &[&[u8]]) -> Lsn {
    let bytes = parts.iter().map(|part| part.len()).sum();
    loop {
        log.ensure_space(worker, bytes).unwrap();
        let (front, announced) = (log.front(), Cell::new(None));
        let on_reserved = |end| {
            assert_eq!(announced.replace(Some(end)), None, "announced once");
            assert!(
                log.written() < end && end <= log.front(),
                "reserved, not written"
            );
        };
        match log.insert_with(worker, 1, parts, on_reserved).unwrap() {
            Insertion::NoSpace => assert_eq!(announced.get(), None),
            Insertion::Done(end) => {
                assert_eq!(announced.get(), Some(end));
                assert!(front < end && end <= log.front());
                return end;
            }
        }
    }
}

/// The smallest buffer is full all the time. One record in twenty goes another way.
#[test]
fn b6_many_threads_announce_each_record_once_before_it_is_written() {
    for buffer in BufferKind::ALL {
        let mut options = options(buffer);
        options.buffer_bytes = 8 << 10;
        let size = |random: &mut Random| match random.below(20) {
            0 => 2000 + random.below(9000),
            _ => random.below(400),
        };
        storm_with(
            options,
            64,
            40,
            size,
            insert_announced,
            |log, worker, number, end| {
                if number.is_multiple_of(16) {
                    log.wait_written(worker, end).unwrap();
                }
            },
        );
    }
}

/// The device has no space, so that the log has none until it is healed.
#[test]
fn b3_an_insert_without_space_returns_at_once_and_leaves_no_trace() {
    for buffer in BufferKind::ALL {
        let device = FaultDevice::new();
        let worker = Workers::new().worker();
        let (log, ..) = open_as(Arc::new(device.clone()), options(buffer), IDENTITY).unwrap();
        for call in [Call::Create, Call::Allocate] {
            device.fail(call, 1, Times::ForEver, ErrorKind::StorageFull);
        }
        let insert = || {
            let is_announced = Cell::new(false);
            let on_reserved = |_| is_announced.set(true);
            let inserted = log.insert_with(&worker, 1, &[&[7; 500]], on_reserved);
            (inserted.unwrap(), is_announced.get())
        };
        let mut inserted = 0;
        loop {
            match log.ensure_space(&worker, 500) {
                Ok(()) => assert!(matches!(insert(), (Insertion::Done(_), true)), "{buffer}"),
                Err(error) => {
                    assert!(
                        matches!(error, LogError::NotInserted(_)),
                        "{buffer}: {error}"
                    );
                    break;
                }
            }
            inserted += 1;
        }
        assert!(inserted > 10, "{buffer}: {inserted} records");
        let (front, stats) = (log.front(), log.stats(&worker));
        for _ in 0..3 {
            assert_eq!(insert(), (Insertion::NoSpace, false), "{buffer}");
        }
        // A large record has no position either.
        let large = log.insert_with(&worker, 1, &[&[7; 5000]], |_| panic!("announced"));
        assert!(
            matches!(large, Err(LogError::NotInserted(_))),
            "{buffer}: {large:?}"
        );
        assert_eq!(
            (log.front(), log.stats(&worker).records),
            (front, stats.records)
        );
        device.heal();
        log.ensure_space(&worker, 500).unwrap();
        assert!(matches!(insert(), (Insertion::Done(_), true)), "{buffer}");
        log.close(&worker).unwrap();
        let (summary, _) = read(&device).unwrap();
        assert_eq!(summary.records, inserted + 1, "{buffer}");
    }
}

#[test]
fn b6_a_refused_insert_announces_nothing() {
    for buffer in BufferKind::ALL {
        for is_closed in [false, true] {
            let device = FaultDevice::new();
            let worker = Workers::new().worker();
            let (log, ..) = open_as(Arc::new(device.clone()), options(buffer), IDENTITY).unwrap();
            let refused = |parts: &[&[u8]]| {
                let announced = |_| panic!("{buffer}: announced");
                log.insert_with(&worker, 1, parts, announced).unwrap_err()
            };
            let third = vec![0; MAX_PAYLOAD / 3 + 1];
            let error = refused(&[&third[..]; 3]);
            assert!(
                matches!(error, LogError::TooLarge { .. }),
                "{buffer}: {error}"
            );
            let error = log.ensure_space(&worker, MAX_PAYLOAD + 1).unwrap_err();
            assert!(
                matches!(error, LogError::TooLarge { .. }),
                "{buffer}: {error}"
            );
            let end = log.insert(&worker, 1, &[b"the last"]).unwrap();
            if is_closed {
                log.close(&worker).unwrap();
            } else {
                device.fail(Call::Write, 1, Times::ForEver, ErrorKind::Other);
                assert!(log.wait_written(&worker, end).is_err());
            }
            for size in [8, 5000] {
                let errors = [
                    refused(&[&vec![1; size]]),
                    log.ensure_space(&worker, size).unwrap_err(),
                ];
                for error in errors {
                    let is_expected = match is_closed {
                        true => matches!(error, LogError::Closed),
                        false => matches!(error, LogError::Failed(_)),
                    };
                    assert!(is_expected, "{buffer}: {error}");
                }
            }
            assert_eq!(log.front(), end, "{buffer}");
        }
    }
}

/// Threads that load the front while others insert, and compare it with what had been inserted.
#[test]
fn b7_the_front_only_grows_and_includes_what_was_inserted_before() {
    for buffer in BufferKind::ALL {
        let workers = Workers::new();
        let mut options = options(buffer);
        options.buffer_bytes = 16 << 10;
        let (log, ..) = open_as(Arc::new(MemoryDevice::new()), options, IDENTITY).unwrap();
        assert_eq!(log.front(), Lsn::ZERO, "{buffer}");
        let (inserted, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let look = || {
                let mut last = Lsn::ZERO;
                while !is_over.load(Relaxed) {
                    let before = Lsn::new(inserted.load(Relaxed));
                    let front = log.front();
                    assert!(front >= before && front >= last, "{buffer}: {front}");
                    last = front;
                }
            };
            let lookers = [scope.spawn(look), scope.spawn(look)];
            let inserting = [(); 4].map(|()| {
                let (log, inserted, worker) = (&log, &inserted, workers.worker());
                scope.spawn(move || {
                    for number in 0..500 {
                        let size = if number % 50 == 0 { 6000 } else { number };
                        let end = insert_announced(log, &worker, &[&vec![1; size]]);
                        inserted.fetch_max(end.bytes(), Relaxed);
                    }
                })
            });
            let ended = inserting.map(|thread| thread.join().is_ok());
            is_over.store(true, Relaxed);
            assert_eq!(ended, [true; 4], "{buffer}");
            assert!(lookers.map(|thread| thread.join().is_ok()) == [true; 2]);
        });
        let worker = workers.worker();
        let last = Lsn::new(inserted.load(Relaxed));
        assert_eq!((log.front(), log.end(&worker)), (last, last), "{buffer}");
        log.close(&worker).unwrap();
    }
}

/// The place of a record whose inserter panicked can never be filled, so the log ends. No thread
/// waits for ever, and nothing behind that place is read back.
#[test]
fn b6_a_caller_that_panics_fails_the_log() {
    for buffer in BufferKind::ALL {
        for size in [100, 5000] {
            let what = format!("{buffer} with {size} bytes");
            let device = Arc::new(MemoryDevice::new());
            let workers = Workers::new();
            let mut options = options(buffer);
            options.buffer_bytes = 16 << 10;
            let (log, ..) = open_as(device.clone(), options, IDENTITY).unwrap();
            let worker = workers.worker();
            let written = log.insert(&worker, 1, &[b"written"]).unwrap();
            log.wait_durable(&worker, written).unwrap();
            let inserted = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    let (log, inserted, worker) = (&log, &inserted, workers.worker());
                    scope.spawn(move || {
                        loop {
                            let durable = log
                                .insert(&worker, 2, &[&[1; 200]])
                                .and_then(|end| log.wait_durable(&worker, end));
                            match durable {
                                Ok(()) => inserted.fetch_add(1, Relaxed),
                                Err(LogError::Failed(_)) => return,
                                Err(error) => panic!("{error}"),
                            };
                        }
                    });
                }
                while inserted.load(Relaxed) < 20 {
                    std::thread::yield_now();
                }
                let panicking = AssertUnwindSafe(|| {
                    loop {
                        let record = [3; 5000];
                        let panics = |_| panic!("as a test wants");
                        let _ = log.insert_with(&worker, 3, &[&record[..size]], panics);
                    }
                });
                assert!(catch_unwind(panicking).is_err(), "{what}");
            });
            let error = log.check().unwrap_err();
            assert!(error.to_string().contains("panicked"), "{what}: {error}");
            assert!(matches!(
                log.insert(&worker, 1, &[b"more"]),
                Err(LogError::Failed(_))
            ));
            drop(log);
            let (_, found) = read(&*device).unwrap();
            assert!(found.len() as u64 > inserted.load(Relaxed), "{what}");
            assert!(found.iter().all(|entry| entry.kind != 3), "{what}");
        }
    }
}
