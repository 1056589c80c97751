//! Paged tables after a crash: every committed row of both components is there, and no other.
//!
//! The power is cut at any moment of a run, with each damage that harms no durable byte. The
//! restart is cut, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use foxton::device::MemoryDevice;
use foxton::{Database, Options, Table, Transaction};
use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::FaultDevice;

use crate::common::paged::tiny_pages;
use crate::common::random::Random;

const PAGED: Table<u64, [u8]> = Table::new("paged").paged();
const OTHER: Table<u64, [u8]> = Table::new("other").paged();
const RESIDENT: Table<u64, [u8]> = Table::new("resident").resident();
const TABLES: [Table<u64, [u8]>; 3] = [PAGED, OTHER, RESIDENT];

type Rows = BTreeMap<(usize, u64), Vec<u8>>;

fn options() -> Options {
    tiny_pages(Options::tiny(), 16)
}

fn damages() -> Vec<Damage> {
    let all = Damage::ALL.into_iter();
    all.filter(|damage| !damage.harms_durable()).collect()
}

fn contents(db: &Database) -> Rows {
    let mut rows = Rows::new();
    for (table, declared) in TABLES.iter().enumerate() {
        let found = db.run(|tx| tx.range(declared, ..).collect()).unwrap();
        rows.extend(found.into_iter().map(|(key, value)| ((table, key), value)));
    }
    rows
}

/// Makes one random change.
fn change(tx: &mut Transaction, random: &mut Random, rows: &mut Rows) {
    let (table, key) = (random.below(3) as usize, random.below(120));
    if random.below(4) == 0 {
        tx.delete(&TABLES[table], &key).unwrap();
        rows.remove(&(table, key));
    } else {
        // Some do not fit their leaves.
        let most = [120, 120, 120, 3_000][random.below(4) as usize];
        let value = vec![random.next() as u8; random.below(most) as usize];
        tx.put(&TABLES[table], &key, &value).unwrap();
        rows.insert((table, key), value);
    }
}

/// Opens a crashed database, compares it with `expected`, and cuts it again: its restart.
fn restart(image: MemoryDevice, expected: &Rows, cut: &str, damage: Damage) -> MemoryDevice {
    let device = FaultDevice::holding(&image);
    let db = Database::open_on(Arc::new(device.clone()), options());
    let db = db.unwrap_or_else(|error| panic!("{cut}: {error}"));
    assert!(contents(&db) == *expected, "{cut}: other rows");
    db.verify();
    device.crash(damage, 1)
}

#[test]
fn a_crash_loses_no_committed_row_and_keeps_no_other() {
    let damages = damages();
    for seed in 0..3 {
        let mut random = Random(seed);
        let device = FaultDevice::new();
        let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
        let mut committed = Rows::new();
        for step in 0..60 {
            let mut rows = committed.clone();
            let mut tx = db.begin().unwrap();
            for _ in 0..1 + random.below(30) {
                change(&mut tx, &mut random, &mut rows);
                if random.below(8) == 0 {
                    let (savepoint, before) = (tx.savepoint().unwrap(), rows.clone());
                    for _ in 0..random.below(6) {
                        change(&mut tx, &mut random, &mut rows);
                    }
                    tx.rollback_to(&savepoint).unwrap();
                    rows = before;
                }
            }
            if step % 16 == 15 {
                db.checkpoint().unwrap();
            }
            let damage = damages[random.below(damages.len() as u64) as usize];
            let cut = format!("seed {seed}, step {step}, {damage}");
            if step % 2 == 0 {
                // The transaction is open.
                let cut = format!("{cut}, open");
                restart(
                    device.crash(damage, random.next()),
                    &committed,
                    &cut,
                    damage,
                );
            }
            match random.below(4) {
                0 => tx.rollback(),
                _ => {
                    tx.commit().unwrap();
                    committed = rows;
                }
            }
            let image = device.crash(damage, random.next());
            let again = restart(image, &committed, &cut, damage);
            restart(again, &committed, &format!("{cut}, and again"), damage);
        }
        db.close().unwrap();
        let image = device.crash(Damage::DropAll, 1);
        restart(image, &committed, "closed", Damage::DropAll);
    }
}

#[test]
fn checkpoints_remove_log_that_neither_component_needs() {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    let first = || {
        let names = device.list().unwrap().into_iter();
        names.filter(|name| name.starts_with("log-")).min().unwrap()
    };
    let write = |from: u64| {
        for key in from..from + 400 {
            let value = [key as u8; 200];
            db.run(|tx| tx.put(&PAGED, &(key % 50), &value)).unwrap();
        }
    };
    write(0);
    let begun = first();
    // A transaction on pages keeps the log from its first record on.
    let mut open = db.begin().unwrap();
    open.put(&OTHER, &1, b"open").unwrap();
    write(400);
    db.checkpoint().unwrap();
    let kept = first();
    write(800);
    db.checkpoint().unwrap();
    assert_eq!(first(), kept);
    open.rollback();
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    assert!(first() > kept && kept >= begun, "{} {kept}", first());
    let image = device.crash(Damage::DropAll, 1);
    let db = Database::open_on(Arc::new(image), options()).unwrap();
    let rows = db.run(|tx| tx.range(&PAGED, ..).collect()).unwrap();
    assert_eq!(rows.len(), 50);
    assert!(rows.iter().all(|(_, value)| value.len() == 200));
    assert_eq!(db.run(|tx| tx.get(&OTHER, &1)).unwrap(), None);
}

#[test]
fn a_commit_of_parts_and_pages_is_one() {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    let write = |tx: &mut Transaction| {
        for key in 0..100 {
            for table in &TABLES {
                tx.put(table, &key, &[7; 100]).unwrap();
            }
        }
    };
    let mut tx = db.begin().unwrap();
    write(&mut tx);
    db.sync().unwrap();
    let open = device.crash(Damage::KeepAll, 1);
    restart(open, &Rows::new(), "open", Damage::KeepAll);
    // The parts are before the checkpoint, and the commit is behind it.
    db.checkpoint().unwrap();
    tx.commit().unwrap();
    let expected = contents(&db);
    assert_eq!(expected.len(), 300);
    let cut = |cut: &str| {
        let image = device.crash(Damage::DropAll, 1);
        restart(image, &expected, cut, Damage::DropAll);
    };
    cut("committed");
    db.checkpoint().unwrap();
    cut("checkpoint");
}

#[test]
fn pages_without_the_position_of_their_checkpoint_are_refused() {
    let device = Arc::new(MemoryDevice::new());
    let db = Database::open_on(device.clone(), options()).unwrap();
    db.run(|tx| tx.put(&PAGED, &7, &b"new"[..])).unwrap();
    db.close().unwrap();
    device.remove("pages").unwrap();
    let refused = Database::open_on(device.clone(), options()).unwrap_err();
    assert_eq!(refused.code(), "damaged");
    assert!(refused.to_string().contains("pages: the file"), "{refused}");
}
