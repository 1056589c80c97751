//! Failures: every call to the device fails at its n-th time, for every n, once or from then on.
//!
//! A small run is repeated with the first call of a kind failing, then the second, and so on, until
//! the run is over before the failure. Whatever fails:
//!
//! * nothing panics, and the error is typed;
//! * nothing more is accepted after it;
//! * everything acknowledged as durable is found by the next process, and after a power cut;
//! * the records found are a prefix.
//!
//! A failure prints the call, its number, and whether it failed for ever.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::format::record::framed_bytes;
use foxton_log::{BufferKind, Log, LogEnd, LogError, LogOptions, Lsn, OpenError};
use foxton_sync::worker::{Worker, Workers};

use crate::support::{self, Entry, Random, Refused, open, open_as, read};

/// Promises that the log has made before something failed.
#[derive(Default)]
struct Promised {
    inserted: Vec<Entry>,
    durable: Lsn,
}

impl Promised {
    /// Checks that the records found keep the promises.
    fn check(&self, found: &[Entry], say: &dyn Fn() -> String) {
        assert!(
            found.len() <= self.inserted.len(),
            "more than was inserted: {}",
            say()
        );
        assert_eq!(found, &self.inserted[..found.len()], "{}", say());
        let end = found.last().map_or(Lsn::ZERO, |entry| entry.end);
        assert!(
            end >= self.durable,
            "{} was durable, found {end}: {}",
            self.durable,
            say()
        );
    }
}

/// Inserts and commits, until something fails or all is done.
fn commit_some(log: &Log, worker: &Worker, promised: &mut Promised) -> Result<(), LogError> {
    let mut random = Random(1);
    for step in 0..40 {
        let length = if step == 20 { 9000 } else { random.below(900) };
        let payload = random.bytes(length);
        let end = log.insert(worker, 1, &[&payload])?;
        promised.inserted.push(Entry {
            end,
            kind: 1,
            payload,
        });
        match step % 3 {
            0 => {
                log.wait_durable(worker, end)?;
                promised.durable = end;
            }
            1 => log.wait_written(worker, end)?,
            _ => {}
        }
    }
    log.close(worker)?;
    promised.durable = log.end(worker);
    // The caller did not insert the closing record.
    promised.durable = promised
        .inserted
        .last()
        .map_or(promised.durable, |entry| entry.end);
    Ok(())
}

/// Runs two sessions, the first of which is not closed. Returns the error that ended them, if any.
fn run(device: &FaultDevice, worker: &Worker, promised: &mut Promised) -> Option<String> {
    for _ in 0..2 {
        let (log, opened, found) = match open(Arc::new(device.clone())) {
            Ok(opened) => opened,
            Err(error) => return Some(typed(error)),
        };
        // Records that were inserted and never written are gone.
        promised.inserted.truncate(found.len());
        assert_eq!(found, promised.inserted);
        assert!(opened.summary.end >= promised.durable);
        if let Err(error) = commit_some(&log, worker, promised) {
            refuses_everything(&log, worker, &error);
            return Some(error.to_string());
        }
    }
    None
}

/// Only the device may be named as the cause.
fn typed(error: Refused) -> String {
    match &error {
        OpenError::Device(failure) => assert!(!failure.file.is_empty()),
        other => panic!("{other:?}"),
    }
    error.to_string()
}

fn refuses_everything(log: &Log, worker: &Worker, error: &LogError) {
    assert!(matches!(error, LogError::Failed(_)), "{error:?}");
    let durable = log.durable();
    for _ in 0..2 {
        assert!(matches!(
            log.insert(worker, 1, &[b"more"]),
            Err(LogError::Failed(_))
        ));
        assert!(matches!(
            log.wait_durable(worker, Lsn::MAX),
            Err(LogError::Failed(_))
        ));
        assert!(matches!(
            log.wait_written(worker, Lsn::MAX),
            Err(LogError::Failed(_))
        ));
        assert!(matches!(log.check(), Err(LogError::Failed(_))));
        log.wait_durable(worker, durable)
            .expect("what is durable stays acknowledged");
    }
    assert!(log.close(worker).is_err());
    assert_eq!(
        log.durable(),
        durable,
        "nothing is acknowledged after a failure"
    );
}

fn fail_each(call: Call, times: Times, kind: ErrorKind) -> u64 {
    let worker = Workers::new().worker();
    for nth in 1.. {
        let say = || format!("call {nth} of {call:?} fails with {kind:?}, {times:?}");
        let device = FaultDevice::new();
        device.fail(call, nth, times, kind);
        let mut promised = Promised::default();
        let error = run(&device, &worker, &mut promised);
        if device.calls(call) < nth {
            assert_eq!(error, None, "{}", say());
            return nth - 1;
        }
        let error = error.unwrap_or_else(|| panic!("it went unnoticed: {}", say()));
        assert!(error.contains("could not"), "{error}: {}", say());
        device.heal();
        // The power fails, with every kind of damage.
        for damage in Damage::ALL
            .into_iter()
            .filter(|damage| !damage.harms_durable())
        {
            let image = device.crash(damage, nth);
            let (_, found) = read(&image).unwrap_or_else(|e| panic!("{e}: {damage}, {}", say()));
            promised.check(&found, &|| format!("{damage}, {}", say()));
        }
        // Another process opens the same device. It sees bytes that may never have reached the
        // disk, and must not append to them.
        let (log, _, found) =
            open(Arc::new(device.clone())).unwrap_or_else(|e| panic!("{e}: {}", say()));
        promised.check(&found, &say);
        let end = log.insert(&worker, 2, &[b"after"]).unwrap();
        log.wait_durable(&worker, end).unwrap();
        promised.inserted.truncate(found.len());
        promised.inserted.push(Entry {
            end,
            kind: 2,
            payload: b"after".to_vec(),
        });
        promised.durable = end;
        let (_, found) = read(&device.crash(Damage::DropAll, nth)).unwrap();
        promised.check(&found, &say);
    }
    unreachable!("the run makes finitely many calls");
}

fn fail_each_once_and_for_ever(call: Call, kind: ErrorKind) {
    let once = fail_each(call, Times::Once, kind);
    let for_ever = fail_each(call, Times::ForEver, kind);
    println!("{call:?}: {once} places, {for_ever} of them for ever");
    assert!(once > 0 && for_ever > 0);
}

#[test]
fn any_write_may_fail() {
    fail_each_once_and_for_ever(Call::Write, ErrorKind::Other);
}

#[test]
fn any_sync_may_fail() {
    fail_each_once_and_for_ever(Call::Sync, ErrorKind::Other);
}

#[test]
fn any_making_of_a_file_may_fail() {
    fail_each_once_and_for_ever(Call::Create, ErrorKind::PermissionDenied);
}

#[test]
fn any_reserving_of_space_may_fail() {
    fail_each_once_and_for_ever(Call::Allocate, ErrorKind::Other);
}

#[test]
fn any_sync_of_the_directory_may_fail() {
    fail_each_once_and_for_ever(Call::SyncDir, ErrorKind::Other);
}

#[test]
fn any_cutting_of_a_file_may_fail() {
    fail_each_once_and_for_ever(Call::SetLen, ErrorKind::Other);
}

#[test]
fn any_read_listing_or_opening_may_fail() {
    fail_each_once_and_for_ever(Call::Read, ErrorKind::Other);
    fail_each_once_and_for_ever(Call::List, ErrorKind::Other);
    fail_each_once_and_for_ever(Call::Open, ErrorKind::PermissionDenied);
}

#[test]
fn any_rename_of_a_segment_may_fail() {
    fail_each_once_and_for_ever(Call::Rename, ErrorKind::Other);
}

/// A restart renames and removes files after the log was not closed.
#[test]
fn any_rename_or_removal_in_a_restart_may_fail() {
    let worker = Workers::new().worker();
    let run = FaultDevice::new();
    run.record();
    let (log, ..) = open(Arc::new(run.clone())).unwrap();
    commit_some(&log, &worker, &mut Promised::default()).unwrap();
    let mut struck = 0;
    for disk in run.recording().unwrap().disks() {
        for (call, damage) in [
            (Call::Rename, Damage::Torn),
            (Call::Remove, Damage::SizeOnly),
        ] {
            let image = disk.crash(damage, 5);
            let before = read(&image).unwrap().1;
            let device = FaultDevice::holding(&image);
            device.fail(call, 1, Times::Once, ErrorKind::Other);
            if let Err(error) = open(Arc::new(device.clone())) {
                typed(error);
                struck += 1;
            }
            let (_, _, found) = open(Arc::new(device)).unwrap();
            assert_eq!(found, before);
        }
    }
    println!("{struck} restarts struck");
    assert!(struck > 50);
}

/// Kinds of errors after which a request for space or for a file may be repeated.
const FOR_NOW: [ErrorKind; 5] = [
    ErrorKind::StorageFull,
    ErrorKind::QuotaExceeded,
    ErrorKind::OutOfMemory,
    ErrorKind::WouldBlock,
    ErrorKind::Interrupted,
];

/// Inserts records of 500 bytes until one is refused; returns the refusal.
fn insert_until_refused(log: &Log, worker: &Worker, inserted: &mut Vec<Entry>) -> LogError {
    for _ in 0..1_000 {
        let payload = vec![inserted.len() as u8; 500];
        match log.insert(worker, 1, &[&payload]) {
            Ok(end) => inserted.push(Entry {
                end,
                kind: 1,
                payload,
            }),
            Err(error) => return error,
        }
    }
    panic!("nothing was refused");
}

fn is_refused_for_now(error: &LogError) {
    assert!(matches!(error, LogError::NotInserted(_)), "{error:?}");
    assert!(error.to_string().contains("try again"), "{error}");
}

#[test]
fn space_that_is_refused_for_now_refuses_the_next_record_and_nothing_else() {
    let worker = Workers::new().worker();
    for call in [Call::Create, Call::Allocate] {
        for kind in FOR_NOW {
            let device = FaultDevice::new();
            let (log, ..) = open(Arc::new(device.clone())).unwrap();
            let mut inserted = Vec::new();
            for _ in 0..3 {
                device.fail(call, 1, Times::ForEver, kind);
                is_refused_for_now(&insert_until_refused(&log, &worker, &mut inserted));
                let large = log.insert(&worker, 1, &[&[7; 20_000]]);
                is_refused_for_now(&large.unwrap_err());
                // All that was accepted becomes durable, and the log takes more when there is
                // space.
                log.check().unwrap();
                let end = inserted.last().expect("there was space at first").end;
                log.wait_written(&worker, end).unwrap();
                log.wait_durable(&worker, end).unwrap();
                is_refused_for_now(&insert_until_refused(&log, &worker, &mut inserted));
                device.heal();
                let payload = vec![9; 20_000];
                let end = log.insert(&worker, 2, &[&payload]).unwrap();
                log.wait_durable(&worker, end).unwrap();
                inserted.push(Entry {
                    end,
                    kind: 2,
                    payload,
                });
            }
            for damage in Damage::ALL {
                if !damage.harms_durable() {
                    assert_eq!(read(&device.crash(damage, 1)).unwrap().1, inserted);
                }
            }
            device.fail(call, 1, Times::ForEver, kind);
            is_refused_for_now(&insert_until_refused(&log, &worker, &mut inserted));
            // There is space for the closing record.
            log.close(&worker).unwrap();
            let (summary, found) = read(&device).unwrap();
            assert_eq!((summary.ended, found), (LogEnd::Closed, inserted));
            let names = device.list().unwrap();
            let is_unfinished = |name: &String| name.ends_with(".new");
            assert!(!names.iter().any(is_unfinished), "{names:?}");
            // Nor does opening need space.
            let (log, opened, _) = open(Arc::new(device.clone())).unwrap();
            assert_eq!(opened.summary.ended, LogEnd::Closed);
            log.close(&worker).unwrap();
        }
    }
}

#[test]
fn kept_space_takes_records_that_a_full_device_refuses_and_no_others() {
    let worker = Workers::new().worker();
    for buffer in BufferKind::ALL {
        let device = FaultDevice::new();
        let mut options = support::options();
        options.buffer = buffer;
        let (log, ..) = open_as(Arc::new(device.clone()), options, support::IDENTITY).unwrap();
        let (mut inserted, undo) = (Vec::new(), [5; 77]);
        for round in 1..=3 {
            let framed = framed_bytes(undo.len());
            // More than a segment has, so that it goes on in files that are not made yet.
            let count = 40 * round;
            log.keep_space(&worker, count * framed).unwrap();
            // While there is space, none of it is used.
            let (end, used) = log.insert_kept(&worker, 3, &[&undo], framed).unwrap();
            let of_undo = |end| Entry {
                end,
                kind: 3,
                payload: undo.to_vec(),
            };
            inserted.push(of_undo(end));
            assert_eq!(used, 0);
            for call in [Call::Create, Call::Allocate] {
                device.fail(call, 1, Times::ForEver, ErrorKind::StorageFull);
            }
            is_refused_for_now(&insert_until_refused(&log, &worker, &mut inserted));
            is_refused_for_now(&log.keep_space(&worker, 1 << 20).unwrap_err());
            // A little space may be left for shorter records.
            let refused = loop {
                match log.insert_kept(&worker, 3, &[&undo], framed - 1) {
                    Ok((end, _)) => inserted.push(of_undo(end)),
                    Err(refused) => break refused,
                }
            };
            is_refused_for_now(&refused);
            for _ in 0..count {
                is_refused_for_now(&log.insert(&worker, 1, &[&undo]).unwrap_err());
                let (end, used) = log.insert_kept(&worker, 3, &[&undo], framed).unwrap();
                assert_eq!(used, framed);
                inserted.push(of_undo(end));
            }
            let end = inserted.last().expect("one").end;
            log.wait_durable(&worker, end).unwrap();
            device.heal();
        }
        let end = log.insert(&worker, 1, &[&[8; 300]]).unwrap();
        inserted.push(Entry {
            end,
            kind: 1,
            payload: vec![8; 300],
        });
        log.close(&worker).unwrap();
        assert_eq!(read(&device).unwrap().1, inserted, "{buffer:?}");
    }
}

#[test]
fn every_thread_gets_the_refusal_and_none_waits_for_ever() {
    for buffer in BufferKind::ALL {
        let (device, workers) = (FaultDevice::new(), Workers::new());
        let mut options = support::options();
        options.buffer = buffer;
        let (log, ..) = open_as(Arc::new(device.clone()), options, support::IDENTITY).unwrap();
        for _ in 0..10 {
            device.fail(Call::Create, 1, Times::ForEver, ErrorKind::StorageFull);
            std::thread::scope(|scope| {
                for _ in 0..6 {
                    let (log, worker) = (&log, workers.worker());
                    scope.spawn(move || {
                        is_refused_for_now(&insert_until_refused(log, &worker, &mut Vec::new()));
                    });
                }
            });
            device.heal();
            std::thread::scope(|scope| {
                for _ in 0..6 {
                    let (log, worker) = (&log, workers.worker());
                    scope.spawn(move || {
                        for _ in 0..50 {
                            log.insert(&worker, 1, &[&[1; 700]]).unwrap();
                        }
                    });
                }
            });
        }
        let worker = workers.worker();
        let records = log.stats(&worker).records;
        log.close(&worker).unwrap();
        assert_eq!(read(&device).unwrap().0.records, records, "{buffer}");
    }
}

/// A log asks for as much space as it has had, so 500 small databases are small together.
#[test]
fn a_short_log_has_a_short_file_and_a_long_one_grows_by_doubling() {
    let (device, worker) = (FaultDevice::new(), Workers::new().worker());
    let open_log = || {
        let options = LogOptions::default();
        open_as(Arc::new(device.clone()), options, support::IDENTITY).unwrap()
    };
    let reserved = || -> u64 {
        let names = device.list().unwrap();
        let logs = names.iter().filter(|name| name.starts_with("log-"));
        logs.map(|name| device.open(name).unwrap().len().unwrap())
            .sum()
    };
    let (log, ..) = open_log();
    assert_eq!(reserved(), 64 << 10);
    let end = log.insert(&worker, 1, &[&[1; 1_000]]).unwrap();
    log.wait_durable(&worker, end).unwrap();
    assert_eq!(reserved(), 64 << 10);
    for _ in 0..5_000 {
        log.insert(&worker, 1, &[&[2; 1_000]]).unwrap();
    }
    let end = log.insert(&worker, 1, &[&[3; 3 << 20]]).unwrap();
    log.wait_durable(&worker, end).unwrap();
    let calls = device.calls(Call::Allocate);
    assert!(reserved() <= 3 * end.bytes(), "{} for {end}", reserved());
    assert!(calls <= 20, "{calls} requests for {end} bytes");
    log.close(&worker).unwrap();
    assert!(reserved() < end.bytes() + (16 << 10));
    let (log, opened, found) = open_log();
    assert_eq!((opened.summary.segments, found.len()), (1, 5_002));
    log.close(&worker).unwrap();
}

#[test]
fn a_failed_sync_ends_every_wait_with_the_error() {
    let device = FaultDevice::new();
    let workers = Workers::new();
    let (log, ..) = open(Arc::new(device.clone())).unwrap();
    device.slow_sync(std::time::Duration::from_millis(20));
    device.fail(Call::Sync, 2, Times::Once, ErrorKind::Other);
    let told = std::thread::scope(|scope| {
        let committers: Vec<_> = (0..16)
            .map(|_| {
                let (log, worker) = (&log, workers.worker());
                scope.spawn(move || {
                    (0..100).any(|_| {
                        let end = log.insert(&worker, 1, &[b"x"]);
                        end.and_then(|end| log.wait_durable(&worker, end)).is_err()
                    })
                })
            })
            .collect();
        committers.into_iter().all(|thread| thread.join().unwrap())
    });
    assert!(told, "somebody was not told");
}

/// The operating system reports a failed sync once. If the segment of another thread ends just
/// then, that thread syncs the same file, gets success, and must not rely on it.
#[test]
fn a_sync_that_fails_while_a_segment_ends_is_not_made_up_for() {
    for nth in 1..12 {
        let device = FaultDevice::new();
        let workers = Workers::new();
        let (log, ..) = open(Arc::new(device.clone())).unwrap();
        device.slow_sync(std::time::Duration::from_millis(2));
        device.fail(Call::Sync, nth, Times::Once, ErrorKind::Other);
        let ends = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (log, ends, worker) = (&log, &ends, workers.worker());
                scope.spawn(move || {
                    for _ in 0..200 {
                        let Ok(end) = log.insert(&worker, 1, &[&[thread; 400]]) else {
                            break;
                        };
                        ends.lock().unwrap().push(end);
                        let waited = match thread {
                            0 => log.wait_durable(&worker, end),
                            _ => log.wait_written(&worker, end),
                        };
                        if waited.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        assert!(log.check().is_err());
        let (summary, _) = read(&device.crash(Damage::DropAll, 0)).unwrap();
        let durable = log.durable();
        let lost = ends
            .lock()
            .unwrap()
            .iter()
            .any(|end| *end <= durable && *end > summary.end);
        assert!(!lost, "sync {nth}: {durable} was durable, found {summary}");
    }
}
