//! Shrinking of the page file: the file is shorter, the rows are as before, whoever writes
//! meanwhile and whenever the power is cut.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use foxton::device::MemoryDevice;
use foxton::shrink::{ShrinkPhase, ShrinkSummary};
use foxton::{Database, Durability, Index, Options, Table, Transaction};
use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};

use crate::common::paged::tiny_pages;
use crate::common::random::Random;
use crate::common::scratch::Directory;

const PAGED: Table<u64, [u8]> = Table::new("paged").paged();
const LATER: Table<u64, [u8]> = Table::new("later").paged();
const RESIDENT: Table<u64, [u8]> = Table::new("resident").resident();
const BY_FIRST: Index<u8, u64, [u8]> = Index::new("by_first", &PAGED, |_, value, keys| {
    if let Some(first) = value.first() {
        keys.add(first);
    }
});

type Rows = BTreeMap<u64, Vec<u8>>;

fn rows_of(db: &Database, table: &Table<u64, [u8]>) -> Rows {
    let rows = db.run(|tx| tx.range(table, ..).collect()).unwrap();
    rows.into_iter().collect()
}

/// Puts rows in transactions of a hundred.
fn put_all(db: &Database, table: &Table<u64, [u8]>, rows: &[(u64, Vec<u8>)]) {
    for some in rows.chunks(100) {
        db.run(|tx| {
            some.iter()
                .try_for_each(|(key, value)| tx.put(table, key, value))
        })
        .unwrap();
    }
}

fn delete_all(db: &Database, table: &Table<u64, [u8]>, keys: &[u64]) {
    for some in keys.chunks(100) {
        db.run(|tx| {
            some.iter()
                .try_for_each(|key| tx.delete(table, key).map(drop))
        })
        .unwrap();
    }
}

/// Values of each size: short ones, and some that do not fit a leaf.
fn value(random: &mut Random, most: u64) -> Vec<u8> {
    let most = if random.below(20) == 0 {
        10 * most
    } else {
        most
    };
    vec![random.next() as u8; random.below(most) as usize]
}

/// Fills tables, and deletes nine rows of ten. The second table is at the end of the file.
fn emptied(db: &Database, count: u64, most: u64) -> [Rows; 2] {
    let mut random = Random(7);
    db.create_index(&BY_FIRST).unwrap();
    let rows: Vec<_> = (0..count)
        .map(|key| (key, value(&mut random, most)))
        .collect();
    put_all(db, &PAGED, &rows);
    let later: Vec<_> = (0..count / 20)
        .map(|key| (key, value(&mut random, most)))
        .collect();
    put_all(db, &LATER, &later);
    let keys: Vec<_> = (0..count).filter(|key| key % 10 > 0).collect();
    delete_all(db, &PAGED, &keys);
    let mut rows: Rows = rows.into_iter().collect();
    rows.retain(|key, _| key % 10 == 0);
    [rows, later.into_iter().collect()]
}

fn check(db: &Database, rows: &[Rows; 2]) {
    assert!(rows_of(db, &PAGED) == rows[0] && rows_of(db, &LATER) == rows[1]);
    db.create_index(&BY_FIRST).unwrap();
    let found = db.run(|tx| tx.range_by(&BY_FIRST, ..).collect()).unwrap();
    let with_bytes = rows[0].values().filter(|value| !value.is_empty());
    assert_eq!(found.len(), with_bytes.count());
    assert!(db.check_indexes().unwrap().is_empty());
    db.verify();
}

fn options() -> Options {
    tiny_pages(Options::tiny(), 64)
}

fn length(device: &dyn Device) -> u64 {
    device.open("rows").unwrap().len().unwrap()
}

#[test]
fn deleted_rows_give_their_space_back() {
    let directory = Directory::new("shrink");
    let device = Arc::new(MemoryDevice::new());
    let on_disk = || Database::open_with(&directory.0, options());
    let on_device = || Database::open_on(device.clone(), options());
    let on_device: &dyn Fn() -> foxton::Result<Database> = &on_device;
    for open in [&on_disk as &dyn Fn() -> foxton::Result<Database>, on_device] {
        let db = open().unwrap();
        let rows = emptied(&db, 6_000, 150);
        let shrunk = db.shrink().unwrap();
        assert!(shrunk.is_complete && shrunk.pages_moved > 100, "{shrunk:?}");
        assert!(shrunk.bytes_after * 5 < shrunk.bytes_before, "{shrunk:?}");
        check(&db, &rows);
        let again = db.shrink().unwrap();
        assert!(again.is_complete && again.bytes_after <= shrunk.bytes_after);
        db.close().unwrap();
        let db = open().unwrap();
        check(&db, &rows);
        // Rows come again.
        let more: Vec<_> = (10_000..13_000).map(|key| (key, vec![3; 100])).collect();
        put_all(&db, &PAGED, &more);
        let mut rows = rows;
        rows[0].extend(more);
        check(&db, &rows);
        db.close().unwrap();
        check(&open().unwrap(), &rows);
    }
    let on_disk = std::fs::metadata(directory.0.join("rows")).unwrap().len();
    assert_eq!(on_disk % 1024, 0);
    assert!(on_disk < 2_000_000 && length(&*device) < 2_000_000);
}

#[test]
fn the_file_is_as_long_as_the_summary_says() {
    let device = Arc::new(MemoryDevice::new());
    let db = Database::open_on(device.clone(), options()).unwrap();
    emptied(&db, 3_000, 150);
    let before = length(&*device);
    let shrunk = db.shrink().unwrap();
    assert_eq!(
        (shrunk.bytes_before, shrunk.bytes_after),
        (before, length(&*device))
    );
    let in_memory = Database::in_memory(options()).unwrap();
    let rows = emptied(&in_memory, 3_000, 150);
    let shrunk = in_memory.shrink().unwrap();
    assert!(shrunk.bytes_after * 5 < shrunk.bytes_before, "{shrunk:?}");
    check(&in_memory, &rows);
}

#[test]
fn rows_that_were_replaced_ten_times_leave_a_file_of_their_size() {
    let device = Arc::new(MemoryDevice::new());
    let mut options = Options::tiny();
    options.page_memory = 64 << 20;
    options.durability = Durability::None;
    let db = Database::open_on(device.clone(), options).unwrap();
    let (count, bytes) = (20_000, 200);
    let mut random = Random(3);
    let mut keys: Vec<u64> = (0..count).collect();
    for round in 0..11_u64 {
        for at in (1..keys.len()).rev() {
            keys.swap(at, random.below(at as u64 + 1) as usize);
        }
        if round % 2 == 1 {
            delete_all(&db, &PAGED, &keys);
        }
        let rows: Vec<_> = keys
            .iter()
            .map(|key| (*key, vec![round as u8; bytes]))
            .collect();
        put_all(&db, &PAGED, &rows);
    }
    // A row has its key, its value and a slot of 16 bytes.
    let live = count * (16 + 8 + bytes as u64);
    let shrunk = db.shrink().unwrap();
    let [before, after] = [shrunk.bytes_before, shrunk.bytes_after];
    println!("{live} bytes of rows: {before}, then {after} bytes");
    assert!(after * 10 <= live * 11, "{after} bytes for {live}");
    assert_eq!(rows_of(&db, &PAGED).len() as u64, count);
    db.verify();
}

#[test]
fn a_database_without_pages_and_one_to_be_read() {
    let device = Arc::new(MemoryDevice::new());
    let db = Database::open_on(device.clone(), options()).unwrap();
    db.run(|tx| tx.put(&RESIDENT, &1, &[1])).unwrap();
    let shrunk = db.shrink().unwrap();
    assert_eq!((shrunk.bytes_before, shrunk.is_complete), (0, true));
    db.run(|tx| tx.put(&PAGED, &1, &[1])).unwrap();
    db.close().unwrap();
    let mut read_only = options();
    read_only.read_only = true;
    let db = Database::open_on(device, read_only).unwrap();
    assert_eq!(db.shrink().unwrap_err().code(), "opened_read_only");
}

#[test]
fn a_shrinking_that_is_stopped_anywhere_changes_no_row() {
    let device = Arc::new(MemoryDevice::new());
    let db = Database::open_on(device.clone(), options()).unwrap();
    let rows = emptied(&db, 2_000, 150);
    let phases = [
        ShrinkPhase::Free,
        ShrinkPhase::Fill,
        ShrinkPhase::Move,
        ShrinkPhase::Cut,
    ];
    for phase in phases {
        let mut calls = 0;
        let shrunk = db
            .shrink_with(|progress| {
                assert!(progress.done <= progress.total);
                calls += u32::from(progress.phase == phase);
                match calls {
                    0 => ControlFlow::Continue(()),
                    1.. if calls < 10 && phase != ShrinkPhase::Cut => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            })
            .unwrap();
        assert!(!shrunk.is_complete, "{phase:?}");
        assert_eq!(shrunk.bytes_before, shrunk.bytes_after);
        check(&db, &rows);
    }
    assert!(db.shrink().unwrap().is_complete);
    check(&db, &rows);
}

#[test]
fn locked_rows_keep_their_space_and_are_there_after_a_rollback() {
    let db = Database::in_memory(options()).unwrap();
    let rows = emptied(&db, 2_000, 150);
    let mut open = db.begin().unwrap();
    for key in rows[0].keys() {
        open.delete(&PAGED, key).unwrap();
    }
    for key in 0..50 {
        open.put(&LATER, &key, &[]).unwrap();
    }
    assert!(db.shrink().unwrap().is_complete);
    open.rollback();
    check(&db, &rows);
}

/// Changes rows of both components in the same way.
fn change(tx: &mut Transaction, random: &mut Random) -> foxton::Result<()> {
    for _ in 0..1 + random.below(6) {
        let key = random.below(3_000);
        match random.below(3) {
            0 => {
                let existed = tx.delete(&PAGED, &key)?;
                assert_eq!(tx.delete(&RESIDENT, &key)?, existed);
            }
            _ => {
                let value = value(random, 100);
                tx.put(&PAGED, &key, &value)?;
                tx.put(&RESIDENT, &key, &value)?;
            }
        }
    }
    Ok(())
}

fn write_and_shrink(threads: u64, transactions: u64, frames: usize) -> ShrinkSummary {
    let device = Arc::new(MemoryDevice::new());
    let mut options = tiny_pages(Options::tiny(), frames);
    options.durability = Durability::None;
    options.run_attempts = u32::MAX;
    options.lock_wait = std::time::Duration::MAX;
    let db = Database::open_on(device.clone(), options.clone()).unwrap();
    db.create_index(&BY_FIRST).unwrap();
    let is_over = AtomicBool::new(false);
    let mut last = ShrinkSummary::default();
    thread::scope(|scope| {
        let shrinking = scope.spawn(|| {
            let mut shrunk = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                shrunk.push(db.shrink().unwrap());
            }
            shrunk
        });
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                let db = &db;
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for _ in 0..transactions {
                        let before = random.0;
                        db.run(|tx| {
                            random.0 = before;
                            change(tx, &mut random)
                        })
                        .unwrap();
                        if random.below(10) == 0 {
                            let from = random.below(3_000);
                            let range = from..from + 50;
                            db.run(|tx| {
                                let paged = tx.range(&PAGED, range.clone()).collect()?;
                                assert_eq!(paged, tx.range(&RESIDENT, range.clone()).collect()?);
                                Ok(())
                            })
                            .unwrap();
                        }
                    }
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(|thread| thread.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
        let shrunk = shrinking.join().unwrap();
        println!("{} times", shrunk.len());
        last.pages_moved = shrunk.iter().map(|shrunk| shrunk.pages_moved).sum();
    });
    let rows = rows_of(&db, &RESIDENT);
    assert!(rows_of(&db, &PAGED) == rows);
    assert!(db.check_indexes().unwrap().is_empty());
    db.verify();
    assert!(db.shrink().unwrap().is_complete);
    db.close().unwrap();
    let db = Database::open_on(device, options).unwrap();
    assert!(rows_of(&db, &PAGED) == rows && rows_of(&db, &RESIDENT) == rows);
    db.verify();
    last
}

#[test]
fn many_threads_write_while_the_file_is_shrunk() {
    for (threads, transactions, frames) in [(8, 400, 2_000), (12, 200, 64)] {
        let shrunk = write_and_shrink(threads, transactions, frames);
        assert!(shrunk.pages_moved > 0);
    }
}

/// Opens an image of a crash and compares its rows.
fn restart(image: MemoryDevice, rows: &[Rows; 2], cut: &str, damage: Damage) -> MemoryDevice {
    let device = FaultDevice::holding(&image);
    let db = Database::open_on(Arc::new(device.clone()), options());
    let db = db.unwrap_or_else(|error| panic!("{cut}: {error}"));
    let is_same = rows_of(&db, &PAGED) == rows[0] && rows_of(&db, &LATER) == rows[1];
    assert!(is_same, "{cut}: other rows");
    db.verify();
    device.crash(damage, 1)
}

#[test]
fn a_crash_while_the_file_is_shrunk_loses_nothing() {
    let damages: Vec<_> = Damage::ALL
        .into_iter()
        .filter(|damage| !damage.harms_durable())
        .collect();
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    let rows = emptied(&db, 800, 150);
    device.record();
    let shrunk = db.shrink().unwrap();
    assert!(shrunk.bytes_after * 3 < shrunk.bytes_before, "{shrunk:?}");
    // Rows again, in pages that were cut off.
    let more: Vec<_> = (1_000..1_300).map(|key| (key, vec![4; 100])).collect();
    let recording = device.recording().unwrap();
    let count = recording.disks().count();
    let step = (count / 150).max(1);
    println!("{count} cuts, each {step}th");
    let mut random = Random(9);
    for (at, disk) in recording.disks().enumerate() {
        // The end of the file moves at the end.
        if at % step > 0 && at + 40 < count {
            continue;
        }
        let damage = damages[random.below(damages.len() as u64) as usize];
        let cut = format!("cut {at} of {count}, {damage}");
        let again = restart(disk.crash(damage, random.next()), &rows, &cut, damage);
        if at % 5 == 0 {
            restart(again, &rows, &format!("{cut}, and again"), damage);
        }
    }
    put_all(&db, &PAGED, &more);
    let mut rows = rows;
    rows[0].extend(more);
    for damage in damages {
        let image = device.crash(damage, random.next());
        let again = restart(image, &rows, "grown again", damage);
        // Shrinking goes on after the crash.
        let db = Database::open_on(Arc::new(again), options()).unwrap();
        assert!(db.shrink().unwrap().is_complete);
        check(&db, &rows);
    }
}

#[test]
fn a_restart_needs_no_page_that_was_cut_off() {
    // The only checkpoints are those of this test, and of shrinking.
    let options = || tiny_pages(Options::default(), 4_000);
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    let mut rows = emptied(&db, 2_000, 150);
    db.checkpoint().unwrap();
    // Changes of the last pages, whose redo needs the pages as they were.
    for value in rows[1].values_mut() {
        value.fill(9);
    }
    let changed: Vec<_> = rows[1].clone().into_iter().collect();
    put_all(&db, &LATER, &changed);
    let shrunk = db.shrink().unwrap();
    assert!(shrunk.is_complete && shrunk.pages_moved > 50, "{shrunk:?}");
    for damage in [Damage::DropAll, Damage::KeepAll] {
        let image = Arc::new(device.crash(damage, 1));
        let db = Database::open_on(image.clone(), options()).unwrap();
        check(&db, &rows);
        db.close().unwrap();
        assert_eq!(length(&*image), shrunk.bytes_after, "{damage}");
    }
}

#[test]
fn a_file_that_grows_over_a_map_again_is_whole_after_a_crash() {
    // All pages stay resident, and the cleaner has nothing to do.
    let options = || tiny_pages(Options::default(), 60_000);
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    // A map has the bits of 4,096 pages.
    let map = 4_096 << 10;
    let large: Vec<_> = (0..250).map(|key| (key, vec![key as u8; 20_000])).collect();
    put_all(&db, &PAGED, &large);
    assert!(length(&device) > map);
    let keys: Vec<_> = (10..250).collect();
    delete_all(&db, &PAGED, &keys);
    let shrunk = db.shrink().unwrap();
    assert!(
        shrunk.is_complete && length(&device) < map / 2,
        "{shrunk:?}"
    );
    let mut rows: Rows = large[..10].iter().cloned().collect();
    let mut key = 1_000;
    let mut crossed = 0;
    // So many that pages of the second map are used.
    while crossed < 24 {
        let value = vec![key as u8; 20_000];
        put_all(&db, &PAGED, &[(key, value.clone())]);
        rows.insert(key, value);
        key += 1;
        if length(&device) > map {
            crossed += 1;
        }
        if crossed % 6 == 1 {
            db.sync().unwrap();
            for damage in [Damage::DropAll, Damage::KeepAll] {
                let image = device.crash(damage, 1);
                let db = Database::open_on(Arc::new(image), options()).unwrap();
                assert!(rows_of(&db, &PAGED) == rows, "{damage}: other rows");
                db.verify();
            }
        }
    }
}

#[test]
fn a_file_that_cannot_be_cut_is_an_error_and_loses_nothing() {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    let rows = emptied(&db, 1_000, 150);
    device.fail(Call::SetLen, 1, Times::Once, std::io::ErrorKind::Other);
    let refused = db.shrink().unwrap_err();
    assert_eq!(refused.code(), "io", "{refused}");
    check(&db, &rows);
    let shrunk = db.shrink().unwrap();
    assert!(shrunk.is_complete && shrunk.bytes_after < shrunk.bytes_before);
    check(&db, &rows);
}

#[test]
fn backups_that_are_made_meanwhile_are_whole() {
    let (from, to) = (Directory::new("shrink-from"), Directory::new("shrink-to"));
    let db = Database::open_with(&from.0, options()).unwrap();
    let rows = emptied(&db, 1_500, 150);
    std::fs::create_dir_all(&to.0).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let shrinking = scope.spawn(|| {
            let (mut random, mut moved, mut cut) = (Random(1), 0, 0);
            // If a backup fails, this ends too.
            for _ in 0..200 {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let new: Vec<_> = (5_000..5_400)
                    .map(|key| (key, value(&mut random, 150)))
                    .collect();
                put_all(&db, &PAGED, &new);
                let keys: Vec<_> = new.iter().map(|row| row.0).collect();
                delete_all(&db, &PAGED, &keys);
                let shrunk = db.shrink().unwrap();
                moved += shrunk.pages_moved;
                cut += u32::from(shrunk.bytes_after < shrunk.bytes_before);
            }
            (moved, cut)
        });
        for round in 0..6 {
            let (backup, restored) = (to.0.join(format!("b{round}")), to.0.join("restored"));
            db.backup_to(&backup).unwrap();
            foxton::backup::restore(&backup, &restored, None, &mut |_, _| ()).unwrap();
            let db = Database::open_with(&restored, options()).unwrap();
            let mut found = rows_of(&db, &PAGED);
            found.retain(|key, _| *key < 5_000);
            assert!(found == rows[0] && rows_of(&db, &LATER) == rows[1]);
            db.verify();
            drop(db);
            std::fs::remove_dir_all(&restored).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        let (moved, cut) = shrinking.join().unwrap();
        println!("{moved} pages were moved, the file was cut {cut} times");
        assert!(moved > 0 && cut > 0);
    });
}
