//! Truncating and dropping tables, and dropping indexes: in memory and in pages.
//!
//! A model has the rows. After each of these calls, each restart and each cut the table has all
//! rows, or none, or does not exist. Pages of rows that are gone are free again: the call has freed
//! them, or the next opening does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use foxton::TableComponent::{Paged, Resident};
use foxton::error::ConflictReason;
use foxton::{Database, Error, Index, Locking, Options, Table, TableComponent, backup};
use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::FaultDevice;
use foxton_log::device::memory::MemoryDevice;

use crate::common::paged::tiny_pages;
use crate::common::random::Random;

const ROWS: Table<u64, [u8]> = Table::new("rows");
const OTHER: Table<u64, [u8]> = Table::new("other");
const BY_FIRST: Index<u8, u64, [u8]> = Index::new("by_first", &ROWS, |_, value, keys| {
    if let Some(first) = value.first() {
        keys.add(first);
    }
});
/// Each row by its key in reverse, which no other row has.
const BY_REVERSE: Index<u64, u64, [u8]> = Index::unique("by_reverse", &ROWS, |key, _, keys| {
    keys.add(&key.reverse_bits());
});

type Rows = BTreeMap<u64, Vec<u8>>;

fn options(component: TableComponent) -> Options {
    let mut options = tiny_pages(Options::tiny(), 32);
    options.component = component;
    options
}

fn with_indexes(component: TableComponent) -> Options {
    let mut options = options(component);
    options.indexes.add(&BY_FIRST).add(&BY_REVERSE);
    options
}

fn open(device: &FaultDevice, options: Options) -> Database {
    Database::open_on(Arc::new(device.clone()), options).unwrap()
}

/// Component of the table; `None` if there is none.
fn component(db: &Database) -> Option<TableComponent> {
    let tables = db.stats().tables;
    let mut named = tables.iter().filter(|table| table.name == "rows");
    let found = named.next().map(|table| table.component);
    assert!(named.next().is_none(), "a twin is not listed");
    found
}

fn contents(db: &Database, table: &Table<u64, [u8]>) -> Rows {
    let rows = db.run(|tx| tx.range(table, ..).collect()).unwrap();
    rows.into_iter().collect()
}

/// Checks the rows, as the table has them and as each index has them.
fn check(db: &Database, expected: &Rows, place: &str) {
    assert!(contents(db, &ROWS) == *expected, "{place}: other rows");
    let count = db.run(|tx| tx.range(&ROWS, ..).count()).unwrap();
    assert_eq!(count, expected.len() as u64, "{place}");
    assert_eq!(db.check_indexes().unwrap(), [], "{place}");
    for index in db.indexes().iter().filter(|index| index.is_open) {
        let found = match &*index.name {
            "by_reverse" => db.run(|tx| tx.range_by(&BY_REVERSE, ..).count()).unwrap(),
            _ => db.run(|tx| tx.range_by(&BY_FIRST, ..).count()).unwrap(),
        };
        let with_first = expected.values().filter(|value| !value.is_empty()).count();
        let all = match &*index.name {
            "by_reverse" => expected.len(),
            _ => with_first,
        };
        assert_eq!(found, all as u64, "{place}: {}", index.name);
    }
    db.verify();
}

fn change(db: &Database, random: &mut Random, rows: &mut Rows) {
    let changed = db.run(|tx| {
        let mut new = rows.clone();
        for _ in 0..1 + random.below(60) {
            let key = random.below(400);
            if random.below(4) == 0 {
                tx.delete(&ROWS, &key)?;
                new.remove(&key);
            } else {
                // Some do not fit their leaves.
                let most = [100, 100, 100, 3_000][random.below(4) as usize];
                let value = vec![random.below(20) as u8; random.below(most) as usize];
                tx.put(&ROWS, &key, &value)?;
                new.insert(key, value);
            }
        }
        Ok(new)
    });
    *rows = changed.unwrap();
}

fn used_pages(db: &Database) -> u64 {
    let pages = db.stats().pages.unwrap();
    pages.file_pages - pages.free_pages
}

/// Waits until the background thread has freed what it can.
fn wait_for_used(db: &Database, most: u64, place: &str) {
    for _ in 0..2_000 {
        if used_pages(db) <= most {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("{place}: {} used pages, not {most}", used_pages(db));
}

#[test]
fn rows_indexes_and_large_values_go_and_others_come() {
    for seed in 0..6 {
        let mut random = Random(seed);
        let device = FaultDevice::new();
        let first = [Resident, Paged][seed as usize % 2];
        let mut db = open(&device, with_indexes(first));
        let mut rows = Rows::new();
        let mut kept = Rows::new();
        for round in 0..14 {
            for _ in 0..5 {
                change(&db, &mut random, &mut rows);
            }
            let step = random.below(7);
            let place = format!("seed {seed}, round {round}, step {step}");
            match step {
                0 | 1 => {
                    let before = component(&db);
                    db.truncate(&ROWS).unwrap();
                    assert_eq!(component(&db), before, "{place}");
                    rows.clear();
                }
                2 | 3 => {
                    db.drop_table("rows").unwrap();
                    rows.clear();
                    assert_eq!(component(&db), None, "{place}");
                    assert!(db.indexes().is_empty(), "{place}");
                    assert_eq!(contents(&db, &ROWS), rows, "a read makes nothing");
                    assert_eq!(component(&db), None, "{place}");
                    assert!(db.run(|tx| tx.get_by(&BY_REVERSE, &1)).is_err(), "{place}");
                    if random.below(2) == 0 {
                        change(&db, &mut random, &mut rows);
                        check(&db, &rows, &place);
                    }
                    db.create_index(&BY_FIRST).unwrap();
                    db.create_index(&BY_REVERSE).unwrap();
                }
                4 => {
                    assert!(db.drop_index("by_first").unwrap(), "{place}");
                    check(&db, &rows, &place);
                    change(&db, &mut random, &mut rows);
                    db.create_index(&BY_FIRST).unwrap();
                }
                5 => {
                    let to = match component(&db) {
                        Some(Paged) => Resident,
                        _ => Paged,
                    };
                    assert!(db.convert(&ROWS, to).unwrap().is_converted, "{place}");
                }
                _ => {
                    db.run(|tx| tx.put(&OTHER, &round, &[7; 2_000])).unwrap();
                    kept.insert(round, vec![7; 2_000]);
                }
            }
            check(&db, &rows, &place);
            if random.below(3) == 0 {
                db.checkpoint().unwrap();
            }
            if random.below(2) == 0 {
                drop(db);
                db = open(&device, with_indexes(first));
                check(&db, &rows, &format!("{place}, opened again"));
            }
        }
        assert_eq!(contents(&db, &OTHER), kept);
        drop(db);
        let found = foxton::check::check_on(&device).unwrap();
        assert!(found.findings.is_empty(), "{:?}", found.findings);
        let counted = found.tables.iter().filter(|(name, _)| name == "rows");
        assert!(counted.eq([&("rows".to_owned(), rows.len() as u64)]));
    }
}

#[test]
fn the_name_is_free_for_another_table() {
    const NAMES: Table<str, u64> = Table::new("rows");
    for first in [Resident, Paged] {
        let device = FaultDevice::new();
        let mut db = open(&device, options(first));
        db.run(|tx| tx.put(&ROWS, &1, &[1; 300])).unwrap();
        let refused = db.run(|tx| tx.put(&NAMES, "one", &1)).unwrap_err();
        assert_eq!(refused.code(), "table_types");
        for round in 0..5 {
            db.drop_table("rows").unwrap();
            let other = match round % 2 {
                0 => NAMES.paged(),
                _ => NAMES.resident(),
            };
            assert_eq!(db.run(|tx| tx.get(&other, "one")).unwrap(), None);
            db.run(|tx| tx.put(&other, "one", &round)).unwrap();
            let refused = db.run(|tx| tx.put(&ROWS, &1, &[1])).unwrap_err();
            assert_eq!(refused.code(), "table_types");
            if round % 2 == 0 {
                db.convert(&other, Resident).unwrap();
            }
            drop(db);
            db = open(&device, options(first));
            assert_eq!(db.run(|tx| tx.get(&NAMES, "one")).unwrap(), Some(round));
        }
    }
}

#[test]
fn what_cannot_be_done_is_an_error_that_says_why() {
    let db = Database::in_memory(options(Resident)).unwrap();
    for name in ["rows", "", "foxton:twin"] {
        assert_eq!(db.drop_table(name).unwrap_err().code(), "no_such_table");
    }
    assert_eq!(db.truncate(&ROWS).unwrap_err().code(), "no_such_table");
    db.run(|tx| tx.put(&ROWS, &1, &[1])).unwrap();
    for own in ["foxton:indexes", "foxton:conversions", "foxton:twin-of-0"] {
        assert_eq!(db.drop_table(own).unwrap_err().code(), "reserved_table");
    }
    let other: Table<str, u64> = Table::new("rows");
    assert_eq!(db.truncate(&other).unwrap_err().code(), "table_types");
    let paged = ROWS.paged();
    assert_eq!(db.truncate(&paged).unwrap_err().code(), "table_component");

    // A transaction that has used the table is open.
    let mut short = options(Resident);
    short.lock_wait = Duration::from_millis(20);
    let device = FaultDevice::new();
    let db = open(&device, short);
    let mut tx = db.begin().unwrap();
    tx.put(&ROWS, &1, &[1]).unwrap();
    assert_eq!(db.truncate(&ROWS).unwrap_err().code(), "lock_timeout");
    assert_eq!(db.drop_table("rows").unwrap_err().code(), "lock_timeout");
    tx.commit().unwrap();
    assert_eq!(contents(&db, &ROWS).len(), 1);
    drop(db);
    let mut read_only = options(Resident);
    read_only.read_only = true;
    let db = open(&device, read_only);
    let refused = db.drop_table("rows").unwrap_err();
    assert_eq!(refused.code(), "opened_read_only");
    assert_eq!(db.truncate(&ROWS).unwrap_err().code(), "opened_read_only");
}

#[test]
fn without_locking_both_work() {
    for first in [Resident, Paged] {
        let mut options = with_indexes(first);
        options.locking = Locking::Off;
        let db = Database::in_memory(options).unwrap();
        let (mut random, mut rows) = (Random(5), Rows::new());
        for _ in 0..3 {
            change(&db, &mut random, &mut rows);
            db.truncate(&ROWS).unwrap();
            rows.clear();
            check(&db, &rows, "truncated");
            change(&db, &mut random, &mut rows);
            db.drop_table("rows").unwrap();
            rows.clear();
            change(&db, &mut random, &mut rows);
            check(&db, &rows, "dropped");
        }
    }
}

/// Writers and readers of all tables go on. A transaction finds all its rows or none, and only one
/// that meets the drop itself is run again.
#[test]
fn transactions_go_on_while_a_table_goes() {
    for first in [Resident, Paged] {
        let db = Database::open_on(Arc::new(FaultDevice::new()), options(first)).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for client in 0..2_u64 {
                let (db, stop) = (&db, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        // Both rows in one transaction.
                        db.run(|tx| {
                            tx.put(&ROWS, &(2 * client), &[1; 400])?;
                            tx.put(&ROWS, &(2 * client + 1), &[2; 50])
                        })
                        .unwrap();
                        db.run(|tx| {
                            let keys: Vec<u64> = tx
                                .range(&ROWS, ..)
                                .collect()?
                                .into_iter()
                                .map(|row| row.0)
                                .collect();
                            for key in [0, 2] {
                                assert_eq!(keys.contains(&key), keys.contains(&(key + 1)));
                            }
                            Ok(())
                        })
                        .unwrap();
                    }
                });
            }
            for round in 0..60 {
                let done = match round % 3 {
                    0 => db.drop_table("rows"),
                    _ => db.truncate(&ROWS),
                };
                match done {
                    Err(error) if error.code() == "no_such_table" => thread::yield_now(),
                    done => done.unwrap(),
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        db.verify();
    }
}

#[test]
fn a_transaction_that_waits_for_a_dropped_table_is_run_again() {
    let db = Database::in_memory(options(Paged)).unwrap();
    db.run(|tx| tx.put(&ROWS, &1, &[1])).unwrap();
    let mut holder = db.begin().unwrap();
    holder.put(&ROWS, &2, &[2]).unwrap();
    thread::scope(|scope| {
        let dropping = scope.spawn(|| db.drop_table("rows"));
        let waits_for = |count: usize| {
            while db.waits().len() < count {
                thread::sleep(Duration::from_millis(1));
            }
        };
        waits_for(1);
        let waiting = scope.spawn(|| {
            let mut tx = db.begin().unwrap();
            let ended = tx.put(&ROWS, &3, &[3]).unwrap_err();
            let after = tx.put(&OTHER, &3, &[3]).unwrap_err();
            (ended, after)
        });
        let rerun = scope.spawn(|| db.run(|tx| tx.put(&ROWS, &4, &[4])));
        waits_for(3);
        holder.commit().unwrap();
        dropping.join().unwrap().unwrap();
        rerun.join().unwrap().unwrap();
        let (ended, after) = waiting.join().unwrap();
        let Error::Conflict(conflict) = &ended else {
            panic!("{ended}")
        };
        // It may have found the table that the other one has made since.
        assert_eq!(conflict.reason(), ConflictReason::TableDropped);
        assert!(ended.is_retryable());
        assert_eq!(after.code(), "ended_by_conflict");
    });
    assert!(contents(&db, &ROWS).into_keys().eq([4]));
}

/// A call whose writes are cut, and what the table is afterwards.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Call {
    Truncate,
    DropTable,
    DropIndex,
    Convert,
}

/// The power is cut at every write. The table is as it was, or all of it has gone. In the end no
/// page of what has gone is used.
#[test]
fn a_cut_at_any_write_leaves_all_or_nothing() {
    let damages: Vec<Damage> = Damage::ALL
        .into_iter()
        .filter(|damage| !damage.harms_durable())
        .collect();
    let mut random = Random(3);
    for (first, call) in [
        (Resident, Call::Truncate),
        (Resident, Call::DropTable),
        (Paged, Call::Truncate),
        (Paged, Call::DropTable),
        (Paged, Call::DropIndex),
        (Paged, Call::Convert),
    ] {
        let device = FaultDevice::new();
        let db = open(&device, options(first));
        // The trees of another table and of large values stay.
        db.run(|tx| tx.put(&OTHER.paged(), &1, &[1; 3_000]))
            .unwrap();
        let other = contents(&db, &OTHER);
        drop(db);
        let db = open(&device, options(first));
        let without = used_pages(&db);
        drop(db);
        let db = open(&device, with_indexes(first));
        let mut rows = Rows::new();
        for _ in 0..12 {
            change(&db, &mut random, &mut rows);
        }
        db.checkpoint().unwrap();
        device.record();
        match call {
            Call::Truncate => db.truncate(&ROWS).unwrap(),
            Call::DropTable => db.drop_table("rows").unwrap(),
            Call::DropIndex => assert!(db.drop_index("by_reverse").unwrap()),
            Call::Convert => drop(db.convert(&ROWS, Resident).unwrap()),
        }
        let recording = device.recording().unwrap();
        let step = recording.len() / 40 + 1;
        let last = recording.len().saturating_sub(8);
        let mut seen = [0; 2];
        for (cut, disk) in recording.disks().enumerate() {
            if cut % step != 0 && cut < last {
                continue;
            }
            let damage = damages[random.below(damages.len() as u64) as usize];
            let place = format!("{first:?}, {call:?}, cut {cut}, {damage}");
            let image = FaultDevice::holding(&disk.crash(damage, random.next()));
            let report = foxton::check::check_on(&image).unwrap();
            assert!(report.findings.is_empty(), "{place}: {:?}", report.findings);
            let copy = open(&image, options(first));
            copy.verify();
            let indexes = copy.indexes().len();
            let is_done = match (call, component(&copy)) {
                (Call::Truncate, _) => contents(&copy, &ROWS).is_empty(),
                (Call::DropTable, found) => found.is_none(),
                (Call::DropIndex, _) => indexes == 1,
                (Call::Convert, found) => found == Some(Resident),
            };
            seen[usize::from(is_done)] += 1;
            let empties = matches!(call, Call::Truncate | Call::DropTable);
            let mut now = match is_done && empties {
                true => Rows::new(),
                false => rows.clone(),
            };
            let expected = match call {
                Call::DropTable if is_done => 0,
                Call::DropIndex if is_done => 1,
                _ => 2,
            };
            assert_eq!(indexes, expected, "{place}");
            assert!(contents(&copy, &ROWS) == now, "{place}");
            assert!(contents(&copy, &OTHER) == other, "{place}");
            // The rest goes in the background, and once more after a restart.
            drop(copy);
            let copy = open(&image, with_indexes(first));
            check(&copy, &now, &place);
            change(&copy, &mut Random(cut as u64), &mut now);
            check(&copy, &now, &place);
            copy.drop_table("rows").unwrap();
            drop(copy);
            let copy = open(&image, options(first));
            // The tree of large values may have another shape. Three trees are gone, each of two
            // pages at least.
            wait_for_used(&copy, without + 3, &place);
            copy.verify();
            assert!(contents(&copy, &OTHER) == other, "{place}");
        }
        assert!(seen.iter().all(|&count| count > 0), "{call:?} {seen:?}");
    }
}

/// A table that is dropped, or truncated, gives all its pages to the next one.
#[test]
fn the_file_does_not_grow_for_as_many_rows_again() {
    let device = FaultDevice::new();
    let db = open(&device, with_indexes(Paged));
    db.run(|tx| tx.put(&OTHER, &1, &[1; 3_000])).unwrap();
    let fill = || {
        for part in 0..10 {
            db.run(|tx| {
                for key in part * 100..(part + 1) * 100 {
                    let bytes = if key % 40 == 0 { 4_000 } else { 200 };
                    tx.put(&ROWS, &key, &vec![key as u8; bytes])?;
                }
                Ok(())
            })
            .unwrap();
        }
    };
    fill();
    let (pages, used) = (db.stats().pages.unwrap().file_pages, used_pages(&db));
    assert!(used > 400, "{used}");
    for round in 0..4 {
        match round % 2 {
            0 => db.truncate(&ROWS).unwrap(),
            _ => db.drop_table("rows").unwrap(),
        }
        // Large values go in the background.
        for _ in 0..1_000 {
            if used_pages(&db) < used / 10 {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        if round % 2 == 1 {
            db.create_index(&BY_FIRST).unwrap();
            db.create_index(&BY_REVERSE).unwrap();
        }
        fill();
        // One that was truncated keeps the root of a twin.
        assert!(used_pages(&db) <= used + 8, "{} {used}", used_pages(&db));
        let now = db.stats().pages.unwrap().file_pages;
        assert!(now <= pages + 16, "round {round}: {now} pages, not {pages}");
    }
    let shrunk = db.drop_table("rows").and_then(|()| db.shrink()).unwrap();
    assert!(shrunk.bytes_after * 8 < shrunk.bytes_before);
    db.verify();
}

/// Backups that are made meanwhile have the table with all rows, or without.
#[test]
fn a_backup_meanwhile_has_all_or_nothing() {
    let db = open(&FaultDevice::new(), with_indexes(Paged));
    let mut random = Random(9);
    let mut seen = [0; 2];
    for round in 0..6 {
        let mut rows = Rows::new();
        for _ in 0..8 {
            change(&db, &mut random, &mut rows);
        }
        let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let (backed_up, dropper) = (target.clone(), &db);
        thread::scope(|scope| {
            let going = scope.spawn(move || {
                match round % 2 {
                    0 => dropper.truncate(&ROWS),
                    _ => dropper.drop_table("rows"),
                }
                .unwrap();
            });
            db.backup_on(&backed_up, &mut |_, _| {
                thread::sleep(Duration::from_micros(200));
            })
            .unwrap();
            going.join().unwrap();
        });
        let restored: Arc<dyn Device> = Arc::new(FaultDevice::new());
        backup::restore_between(&*target, &restored, None, &mut |_, _| {}).unwrap();
        let copy = Database::open_on(restored, with_indexes(Paged)).unwrap();
        let found = contents(&copy, &ROWS);
        seen[usize::from(found.is_empty())] += 1;
        assert!(found.is_empty() || found == rows, "round {round}");
        check(&copy, &found, &format!("round {round}"));
        if round % 2 == 1 {
            db.create_index(&BY_FIRST).unwrap();
            db.create_index(&BY_REVERSE).unwrap();
        }
    }
    assert_eq!(seen[0] + seen[1], 6);
}

/// The tree of an index that was refused goes in the background.
#[test]
fn the_tree_of_a_refused_index_goes() {
    const BY_LENGTH: Index<u64, u64, [u8]> = Index::unique("by_length", &ROWS, |_, value, keys| {
        keys.add(&(value.len() as u64));
    });
    let device = FaultDevice::new();
    let db = open(&device, options(Paged));
    db.run(|tx| (0..300).try_for_each(|key| tx.put(&ROWS, &key, &vec![1; key as usize % 299])))
        .unwrap();
    drop(db);
    let db = open(&device, options(Paged));
    let before = used_pages(&db);
    for _ in 0..3 {
        assert_eq!(
            db.create_index(&BY_LENGTH).unwrap_err().code(),
            "index_key_exists"
        );
    }
    wait_for_used(&db, before, "refused");
    db.run(|tx| tx.delete(&ROWS, &299)).unwrap();
    db.create_index(&BY_LENGTH).unwrap();
    assert_eq!(db.check_indexes().unwrap(), []);
    db.verify();
}
