//! Restart: every commit that was acknowledged as durable is there, and each transaction is whole
//! or absent, including large ones in parts.

use std::sync::Arc;

use foxton::{Database, Durability, Options, Table};
use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::FaultDevice;
use foxton_log::device::memory::MemoryDevice;

const NUMBERS: Table<u64, u64> = Table::new("numbers");
const TEXTS: Table<str, str> = Table::new("texts");

fn open(device: Arc<dyn Device>) -> Database {
    Database::open_on(device, Options::tiny()).unwrap()
}

fn numbers(db: &Database) -> Vec<(u64, u64)> {
    db.run(|tx| tx.range(&NUMBERS, ..).collect()).unwrap()
}

#[test]
fn everything_committed_is_there_again_in_its_last_version() {
    let device = Arc::new(MemoryDevice::new());
    {
        let db = open(device.clone());
        db.run(|tx| (0..10).try_for_each(|key| tx.put(&NUMBERS, &key, &key)))
            .unwrap();
        db.run(|tx| tx.put(&TEXTS, "a", "text")).unwrap();
        db.run(|tx| tx.put(&NUMBERS, &3, &33)).unwrap();
        db.run(|tx| tx.delete(&NUMBERS, &4)).unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&NUMBERS, &5, &55).unwrap();
        tx.rollback();
    }
    let db = open(device);
    let expected = [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 33),
        (5, 5),
        (6, 6),
        (7, 7),
        (8, 8),
        (9, 9),
    ];
    assert_eq!(numbers(&db), expected);
    assert_eq!(
        db.run(|tx| tx.get(&TEXTS, "a")).unwrap().as_deref(),
        Some("text")
    );
    assert_eq!(db.recovered().transactions, 4);
    db.verify();
}

#[test]
fn a_transaction_in_parts_is_there_whole_and_one_rolled_back_is_not() {
    let device = Arc::new(MemoryDevice::new());
    {
        let db = open(device.clone());
        // Two whose parts interleave, and one that never commits.
        let (mut one, mut other) = (db.begin().unwrap(), db.begin().unwrap());
        let mut never = db.begin().unwrap();
        for key in 0..100 {
            one.put(&NUMBERS, &key, &1).unwrap();
            other.put(&NUMBERS, &(1000 + key), &2).unwrap();
            never.put(&NUMBERS, &(2000 + key), &3).unwrap();
        }
        other.commit().unwrap();
        never.rollback();
        one.delete(&NUMBERS, &7).unwrap();
        one.commit().unwrap();
    }
    let db = open(device);
    let rows = numbers(&db);
    assert_eq!(rows.len(), 199);
    assert!(rows.iter().all(|(key, value)| *value == 1 + key / 1000));
    assert_eq!(db.recovered().transactions, 2);
}

#[test]
fn a_transaction_that_had_not_ended_never_happened() {
    let device = FaultDevice::new();
    let db = open(Arc::new(device.clone()));
    let mut open_ended = db.begin().unwrap();
    for key in 0..100 {
        open_ended.put(&NUMBERS, &key, &1).unwrap();
    }
    // Its parts are durable, because a later commit is.
    db.run(|tx| tx.put(&NUMBERS, &500, &5)).unwrap();
    let image = device.crash(Damage::DropAll, 1);
    drop((open_ended, db));
    assert_eq!(numbers(&open(Arc::new(image))), [(500, 5)]);
}

/// The power fails after every single change to the directory, with every kind of loss that the
/// device simulates.
#[test]
fn acknowledged_commits_survive_a_power_failure_anywhere() {
    let device = FaultDevice::new();
    let mut acknowledged = Vec::new();
    device.record();
    {
        let db = open(Arc::new(device.clone()));
        for round in 1..=8u64 {
            // Every other transaction is too large for one record.
            let keys = if round % 2 == 0 { 40 } else { 2 };
            let mut tx = db.begin().unwrap();
            for key in 0..keys {
                tx.put(&NUMBERS, &key, &round).unwrap();
            }
            tx.commit().unwrap();
            acknowledged.push((device.recorded(), round));
        }
    }
    let recording = device.recording().unwrap();
    for (cut, disk) in recording.disks().enumerate() {
        let promised = acknowledged
            .iter()
            .rev()
            .find(|(at, _)| *at <= cut)
            .map_or(0, |(_, round)| *round);
        for damage in [
            Damage::DropAll,
            Damage::Torn,
            Damage::Reordered,
            Damage::SizeOnly,
        ] {
            let image = disk.crash(damage, cut as u64);
            let db = open(Arc::new(image));
            let rows = numbers(&db);
            // Transactions wrote the first keys one after the other: all agree on the last one.
            let last = rows.first().map_or(0, |row| row.1);
            assert!(
                last >= promised,
                "cut {cut} {damage:?}: {promised} was promised, found {last}"
            );
            let expected = |key: u64| if key < 2 { last } else { last - last % 2 };
            assert!(
                rows.iter().all(|(key, value)| *value == expected(*key)),
                "cut {cut}: {rows:?}"
            );
            let count = if last == 0 {
                0
            } else if last == 1 {
                2
            } else {
                40
            };
            assert_eq!(rows.len(), count, "cut {cut} {damage:?}");
        }
    }
}

#[test]
fn each_durability_survives_a_power_failure_as_promised() {
    for (durability, damage, survives) in [
        (Durability::Sync, Damage::DropAll, true),
        (Durability::Buffered, Damage::KeepAll, true),
    ] {
        let device = FaultDevice::new();
        let mut options = Options::default();
        options.sync_interval = std::time::Duration::from_secs(3600);
        let db = Database::open_on(Arc::new(device.clone()), options).unwrap();
        let mut tx = db.begin().unwrap();
        tx.set_durability(durability);
        tx.put(&NUMBERS, &1, &1).unwrap();
        tx.commit().unwrap();
        let image = device.crash(damage, 3);
        drop(db);
        assert_eq!(
            !numbers(&open(Arc::new(image))).is_empty(),
            survives,
            "{durability}"
        );
    }
}
