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

use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::{Log, LogError, Lsn, OpenError};
use foxton_sync::worker::{Worker, Workers};

use crate::support::{Entry, Random, Refused, open, read};

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
    fail_each_once_and_for_ever(Call::Write, ErrorKind::StorageFull);
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
    fail_each_once_and_for_ever(Call::Allocate, ErrorKind::StorageFull);
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

/// A log renames and removes files only when it is opened after it was not closed.
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

#[test]
fn a_full_disk_shows_when_a_segment_is_made_and_says_what_to_do() {
    let device = FaultDevice::new();
    let worker = Workers::new().worker();
    let (log, ..) = open(Arc::new(device.clone())).unwrap();
    device.fail(Call::Allocate, 1, Times::Once, ErrorKind::StorageFull);
    let error = loop {
        let end = log.insert(&worker, 1, &[&[7; 500]]).unwrap();
        if let Err(error) = log.wait_durable(&worker, end) {
            break error.to_string();
        }
    };
    assert!(
        error.contains("could not reserve space for `log-0000000000001000`"),
        "{error}"
    );
    assert!(
        error.contains("Repair the device and open the database again"),
        "{error}"
    );
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
