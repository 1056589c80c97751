//! Every failpoint of the engine: as a failure where it can fail, and as a power cut everywhere.
//!
//! The load passes each point; a first run counts how often. Then, for passages spread over the
//! run, the point fails once, or the disk is copied at that moment as a power cut would leave it.
//! Opened again, the database must have everything acknowledged by then, and no half of anything
//! else.

use foxton::{Database, Durability, Error, Table, failpoint};
use foxton_log::device::{disk::Damage, fault::FaultDevice, memory::MemoryDevice};
use foxton_sim::{
    crash::open,
    ledger::{Expectations, Scale, check, is_abandoned},
    load,
};
use foxton_sync::failpoint::Failpoint;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::{io, thread};

const SEED: u64 = 7;
const SCALE: Scale = Scale {
    branches: 1,
    tellers: 2,
    accounts: 20,
    note_bytes: 0,
};
const COUNT: u64 = 24;
/// Number of passages of one point that are tested.
const FIRED: u64 = 12;
const DAMAGES: [Damage; 4] = [
    Damage::DropAll,
    Damage::KeepAll,
    Damage::Torn,
    Damage::Reordered,
];
const PADDING: Table<u64, [u8]> = Table::new("padding");
const ROWS: Table<u64, u64> = Table::new("rows");

/// Work beside the load, so that every point is passed: leaves that split and disappear, ghosts, a
/// rollback, a wait.
fn beside(db: &Database, n: u64) -> foxton::Result<()> {
    db.run(|tx| tx.put(&PADDING, &n, &[n as u8; 20_000]))?;
    db.run(|tx| (0..100).try_for_each(|key| tx.put(&ROWS, &key, &n)))?;
    db.run(|tx| tx.range(&ROWS, 10..20).count())?;
    let mut abandoned = db.begin()?;
    abandoned.put(&ROWS, &1, &0)?;
    let waiting = {
        let db = db.clone();
        thread::spawn(move || db.run(|tx| tx.get(&ROWS, &1)))
    };
    while !waiting.is_finished() && db.waits().is_empty() {
        thread::yield_now();
    }
    abandoned.rollback();
    waiting.join().expect("no panic")?;
    db.run(|tx| (0..100).try_for_each(|key| tx.delete(&ROWS, &key).map(|_| ())))
}

type Shared = Arc<Mutex<Expectations>>;

/// Runs the load until something fails.
fn run(db: &Database, expected: &Shared) -> Result<(), Error> {
    let client = |change: &dyn Fn(&mut foxton_sim::ledger::Expectation)| {
        change(expected.lock().unwrap().clients.entry(0).or_default());
    };
    load::load(db, SCALE)?;
    expected.lock().unwrap().loaded = true;
    for n in 1..=COUNT {
        client(&|client| client.may.extend((!is_abandoned(n)).then_some(n)));
        load::run(db, SEED, (0, n), SCALE, Durability::Sync)?;
        client(&|client| {
            client.may.clear();
            client.must.extend((!is_abandoned(n)).then_some(n));
        });
        if n.is_multiple_of(6) {
            beside(db, n)?;
        }
    }
    Ok(())
}

fn found(what: &str, device: MemoryDevice, expected: &Expectations) {
    let db = open(device, SEED).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = load::read(&db).expect("a database that opened can be read");
    check(SEED, SCALE, expected, &found)
        .unwrap_or_else(|faults| panic!("{what}: {}", faults.join("\n")));
}

/// Returns how often a run passes each point.
fn passages() -> BTreeMap<&'static str, u64> {
    let db = open(FaultDevice::new(), SEED).unwrap();
    run(&db, &Shared::default()).unwrap();
    failpoint::everywhere()
        .map(|point| (point.name(), db.failpoints().passages(&point)))
        .collect()
}

/// Returns the passages of `point` that are tested.
fn fired(passages: &BTreeMap<&'static str, u64>, point: &Failpoint) -> impl Iterator<Item = u64> {
    let count = passages[point.name()];
    assert!(count > 0, "the load does not pass {point}");
    println!("{point}: passed {count} times");
    (1..=count).step_by(count.div_ceil(FIRED) as usize)
}

#[test]
fn a_power_cut_at_any_point_takes_nothing_acknowledged() {
    let passages = passages();
    for point in failpoint::everywhere() {
        for nth in fired(&passages, &point) {
            let device = FaultDevice::new();
            let expected = Shared::default();
            let images = Arc::new(Mutex::new(Vec::new()));
            let db = open(device.clone(), SEED).unwrap();
            let (then, taken) = (expected.clone(), images.clone());
            db.failpoints().set(&point, move |passage| {
                if passage == nth {
                    let expected = then.lock().unwrap().clone();
                    let image = DAMAGES.map(|damage| (device.crash(damage, nth), expected.clone()));
                    taken.lock().unwrap().extend(image);
                }
                Ok(())
            });
            run(&db, &expected).unwrap();
            drop(db);
            let images = std::mem::take(&mut *images.lock().unwrap());
            for ((image, expected), damage) in images.into_iter().zip(DAMAGES) {
                found(
                    &format!("{point}, passage {nth}, {damage:?}"),
                    image,
                    &expected,
                );
            }
        }
    }
}

#[test]
fn a_failure_at_any_point_ends_the_database_and_takes_nothing_acknowledged() {
    let passages = passages();
    for point in failpoint::everywhere().filter(Failpoint::fails) {
        for nth in fired(&passages, &point) {
            let device = FaultDevice::new();
            let expected = Shared::default();
            let db = open(device.clone(), SEED).unwrap();
            db.failpoints()
                .set(&point, move |passage| match passage == nth {
                    true => Err(io::Error::other("fired")),
                    false => Ok(()),
                });
            let what = format!("{point}, passage {nth}");
            let Err(error) = run(&db, &expected) else {
                // The flusher decides how often it writes.
                let passed = db.failpoints().passages(&point);
                assert!(
                    passed < nth,
                    "{what}: the point failed, but the load did not"
                );
                continue;
            };
            assert!(
                ["io", "poisoned"].contains(&error.code()),
                "{what}: {error}"
            );
            for _ in 0..3 {
                // The database has failed, and says so every time.
                let error = load::run(&db, SEED, (9, 1), SCALE, Durability::Sync).unwrap_err();
                assert_eq!(error.code(), "poisoned", "{what}: {error}");
            }
            drop(db);
            let expected = expected.lock().unwrap().clone();
            for damage in DAMAGES {
                found(
                    &format!("{what}, {damage:?}"),
                    device.crash(damage, nth),
                    &expected,
                );
            }
        }
    }
}
