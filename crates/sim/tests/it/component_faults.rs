//! A device that fails under resident and paged tables: every call at its n-th time, once and for
//! ever, while the database runs, rolls back, restarts and closes.
//!
//! Each failure ends in a typed error or in right rows, and in no panic and no endless wait. Opened
//! again on a device that works, the database has every commit that it acknowledged and nothing
//! else. Quick tests take some of the n; those that are ignored take each.

use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_sim::components::load::{Commits, Trouble, play};
use foxton_sim::components::{Rows, Setting, read};
use std::io::ErrorKind;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Error codes of a database whose device fails.
const CODES: [&str; 4] = ["io", "device_full", "page_room", "poisoned"];
/// A scenario that takes longer waits for ever.
const MOST: Duration = Duration::from_secs(120);

fn setting(seed: u64) -> Setting {
    Setting {
        seed,
        steps: 100,
        fault: None,
        is_failing: true,
    }
}

/// A directory, and the rows in it.
struct Before {
    device: FaultDevice,
    rows: Rows,
}

impl Before {
    fn empty() -> Before {
        Before {
            device: FaultDevice::new(),
            rows: Rows::new(),
        }
    }

    /// Returns a database whose process ended while transactions were open and pages dirty.
    fn abandoned(setting: Setting) -> Before {
        let device = FaultDevice::new();
        let db = setting.open(device.clone()).expect("a device that works");
        let mut commits = Commits::new(Rows::new());
        play(&db, &device, setting, &mut commits).expect("a device that works");
        db.sync().expect("a device that works");
        let mut open = db.begin().expect("a device that works");
        for table in [
            &foxton::Table::<[u8], [u8]>::new("paged"),
            &foxton::Table::new("resident"),
        ] {
            for key in 0..60_u8 {
                open.put(table, &[b'0', key], &[key; 90])
                    .expect("a device that works");
            }
        }
        let device = FaultDevice::holding(&device.crash(Damage::KeepAll, 0));
        let rows = commits.last().clone();
        Before { device, rows }
    }
}

#[derive(Debug, Clone, Copy)]
struct Fault {
    call: Call,
    nth: u64,
    times: Times,
    kind: ErrorKind,
}

/// Checks the code of an error that a failing call led to.
fn check(fault: Fault, doing: &str, error: &foxton::Error) {
    let (code, is_known) = (error.code(), CODES.contains(&error.code()));
    assert!(is_known, "{fault:?}, {doing}: {code} ({error})");
}

/// Opens what is left on a device that works, and compares its rows.
fn reopen(
    fault: Fault,
    setting: Setting,
    device: FaultDevice,
    expected: &[Rows],
    how: &str,
) -> Rows {
    let db = setting
        .open(device)
        .unwrap_or_else(|error| panic!("{fault:?}, {how}: {error}"));
    let rows = read(&db).unwrap_or_else(|error| panic!("{fault:?}, {how}: {error}"));
    assert!(
        expected.contains(&rows),
        "{fault:?}, {how}: other rows, of {} states",
        expected.len()
    );
    db.verify();
    rows
}

/// Runs one scenario. Returns true if the fault happened.
fn fail(before: &Before, setting: Setting, fault: Fault) -> bool {
    let device = FaultDevice::holding(&before.device.crash(Damage::KeepAll, 0));
    device.record();
    let Fault {
        call,
        nth,
        times,
        kind,
    } = fault;
    device.fail(call, nth, times, kind);
    let mut commits = Commits::new(before.rows.clone());
    match setting.open(device.clone()) {
        Err(error) => check(fault, "opening", &error),
        Ok(db) => {
            match play(&db, &device, setting, &mut commits) {
                Ok(()) => {}
                Err(Trouble::Database(error)) => check(fault, "running", &error),
                Err(Trouble::Wrong(what)) => panic!("{fault:?}: {what}"),
            }
            // A commit that failed may be visible or not.
            match read(&db) {
                Ok(rows) => {
                    let possible = commits.expected(usize::MAX);
                    assert!(
                        possible.contains(&rows),
                        "{fault:?}: other rows while it runs"
                    );
                }
                Err(error) => check(fault, "reading", &error),
            }
            if let Err(error) = db.close() {
                check(fault, "closing", &error);
            }
        }
    }
    let came = device.calls(call) >= nth;
    device.heal();
    let expected = commits.expected(usize::MAX);
    for damage in [
        Damage::DropAll,
        Damage::KeepAll,
        Damage::Torn,
        Damage::Reordered,
    ] {
        let image = FaultDevice::holding(&device.crash(damage, nth));
        reopen(fault, setting, image, expected, &damage.to_string());
    }
    // The same directory is opened again without a power cut. The page cache shows more than the
    // disk has, and everything that is found there must be made durable before a reader sees it.
    let found = reopen(fault, setting, device.clone(), expected, "again");
    let image = FaultDevice::holding(&device.crash(Damage::DropAll, nth));
    reopen(fault, setting, image, &[found], "again, and a power cut");
    came
}

/// Fails the call at every `step`-th of its times.
fn fail_everywhere(call: Call, kind: ErrorKind, step: u64) {
    let mut failed = 0;
    for seed in [1, 2] {
        let setting = setting(seed);
        for (what, before) in [
            ("new", Before::empty()),
            ("abandoned", Before::abandoned(setting)),
        ] {
            for times in [Times::Once, Times::ForEver] {
                let first = 1 + seed % step;
                let mut count = 0;
                for nth in (first..).step_by(step as usize) {
                    let fault = Fault {
                        call,
                        nth,
                        times,
                        kind,
                    };
                    let came = within(fault, || fail(&before, setting, fault));
                    if !came {
                        break;
                    }
                    count += 1;
                }
                println!("{what}: {call:?} {times:?}: failed at {count} calls");
                failed += count;
            }
        }
    }
    let seldom = matches!(call, Call::Remove | Call::Rename | Call::SetLen);
    assert!(failed > 0 || seldom, "the load makes no call {call:?}");
}

/// Runs a scenario, which must end.
fn within(fault: Fault, body: impl FnOnce() -> bool + Send) -> bool {
    thread::scope(|scope| {
        let (done, ended) = channel();
        scope.spawn(move || {
            let body = std::panic::AssertUnwindSafe(body);
            let _ = done.send(std::panic::catch_unwind(body));
        });
        match ended.recv_timeout(MOST) {
            Ok(Ok(came)) => came,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => {
                // The thread would be waited for.
                eprintln!("{fault:?}: no end after {MOST:?}");
                std::process::abort();
            }
        }
    })
}

/// Calls, the kind of their error, and a step for quick tests.
const ALL: [(Call, ErrorKind, u64); 11] = [
    (Call::Write, ErrorKind::StorageFull, 29),
    (Call::Sync, ErrorKind::Other, 11),
    (Call::Allocate, ErrorKind::StorageFull, 2),
    (Call::Read, ErrorKind::Other, 23),
    (Call::Create, ErrorKind::Other, 3),
    (Call::Open, ErrorKind::Other, 5),
    (Call::List, ErrorKind::Other, 3),
    (Call::Rename, ErrorKind::Other, 2),
    (Call::Remove, ErrorKind::Other, 2),
    (Call::SyncDir, ErrorKind::Other, 3),
    (Call::SetLen, ErrorKind::Other, 1),
];

#[test]
fn failing_writes_and_syncs_end_well() {
    ALL[..2]
        .iter()
        .for_each(|&(call, kind, step)| fail_everywhere(call, kind, step));
}

#[test]
fn failing_reads_and_allocations_end_well() {
    ALL[2..4]
        .iter()
        .for_each(|&(call, kind, step)| fail_everywhere(call, kind, step));
}

#[test]
fn other_failing_calls_end_well() {
    ALL[4..]
        .iter()
        .for_each(|&(call, kind, step)| fail_everywhere(call, kind, step));
}

#[test]
#[ignore = "takes minutes: cargo test --release -p foxton-sim --test it component_faults:: -- --ignored"]
fn every_failing_call_ends_well() {
    ALL.iter()
        .for_each(|&(call, kind, _)| fail_everywhere(call, kind, 1));
}
