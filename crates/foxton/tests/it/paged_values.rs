//! Large values of paged tables: values that do not fit their leaves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use foxton::device::MemoryDevice;
use foxton::{Database, Index, Options, Table, Transaction};
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::FaultDevice;

use crate::common::paged::tiny_pages;
use crate::common::random::Random;

const PAGED: Table<u64, [u8]> = Table::new("paged").paged();
const OTHER: Table<u64, [u8]> = Table::new("other").paged();

type Rows = BTreeMap<u64, Vec<u8>>;

fn options() -> Options {
    tiny_pages(Options::tiny(), 32)
}

/// Lengths around those at which a value gets another part, and others.
fn value(random: &mut Random) -> Vec<u8> {
    let around = [0, 248, 896, 1792, 8 * 896][random.below(5) as usize];
    let length = match random.below(3) {
        0 => around + random.below(3),
        1 => around.saturating_sub(random.below(9)),
        _ => random.below(6000),
    };
    (0..length).map(|_| random.next() as u8).collect()
}

fn contents(db: &Database) -> Rows {
    let rows = db.run(|tx| tx.range(&PAGED, ..).collect()).unwrap();
    rows.into_iter().collect()
}

fn used_pages(db: &Database) -> u64 {
    let pages = db.stats().pages.expect("it has paged tables");
    pages.file_pages - pages.free_pages
}

/// Waits until values that no row has are freed: until so many pages are used.
fn wait_for_used_pages(db: &Database, expected: u64, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while used_pages(db) != expected {
        let used = used_pages(db);
        assert!(
            Instant::now() < deadline,
            "{what}: {used} instead of {expected} pages"
        );
        thread::sleep(Duration::from_millis(2));
    }
}

/// Makes one random change.
fn change(tx: &mut Transaction, random: &mut Random, rows: &mut Rows) {
    let key = random.below(40);
    match random.below(5) {
        0 => {
            let was_there = tx.delete(&PAGED, &key).unwrap();
            assert_eq!(was_there, rows.remove(&key).is_some());
        }
        1 => {
            let value = value(random);
            let inserted = tx.insert(&PAGED, &key, &value);
            match rows.contains_key(&key) {
                true => assert_eq!(inserted.unwrap_err().code(), "key_exists"),
                false => {
                    inserted.unwrap();
                    rows.insert(key, value);
                }
            }
        }
        _ => {
            let value = value(random);
            tx.put(&PAGED, &key, &value).unwrap();
            rows.insert(key, value);
        }
    }
    assert_eq!(tx.get(&PAGED, &key).unwrap(), rows.get(&key).cloned());
}

fn run(db: &Database, seed: u64) {
    let mut random = Random(seed);
    db.run(|tx| tx.put(&PAGED, &0, &[][..])).unwrap();
    // The tree of large values stays.
    db.run(|tx| tx.put(&PAGED, &1, &[1; 5000][..])).unwrap();
    db.run(|tx| tx.delete(&PAGED, &1)).unwrap();
    let mut committed: Rows = contents(db);
    for step in 0..150 {
        let mut rows = committed.clone();
        let mut tx = db.begin().unwrap();
        for _ in 0..1 + random.below(8) {
            change(&mut tx, &mut random, &mut rows);
            if random.below(5) == 0 {
                let (savepoint, before) = (tx.savepoint().unwrap(), rows.clone());
                for _ in 0..random.below(4) {
                    change(&mut tx, &mut random, &mut rows);
                }
                tx.rollback_to(&savepoint).unwrap();
                rows = before;
            }
        }
        let back: Rows = tx
            .range(&PAGED, ..)
            .reversed()
            .collect()
            .unwrap()
            .into_iter()
            .collect();
        assert!(back == rows, "step {step}");
        let keys: Vec<_> = (0..40).collect();
        let found = tx.get_many(&PAGED, &keys).unwrap();
        assert!(
            found
                .into_iter()
                .eq(keys.iter().map(|key| rows.get(key).cloned()))
        );
        match random.below(3) {
            0 => tx.rollback(),
            _ => {
                tx.commit().unwrap();
                committed = rows;
            }
        }
        assert!(contents(db) == committed, "step {step}");
    }
}

/// Deletes all rows, and waits until only the pages are used that stay in any case.
fn empty(db: &Database) {
    db.run(|tx| {
        (0..40).try_for_each(|key| tx.delete(&PAGED, &key).map(drop))?;
        tx.put(&PAGED, &0, &[][..])
    })
    .unwrap();
    // Fixed pages: 3. Directory, its entries and trees: the root of each, and the path to one leaf.
    let deadline = Instant::now() + Duration::from_secs(60);
    while used_pages(db) > 3 + 2 * 4 + 2 {
        // Each transaction purges some ghosts.
        db.run(|tx| tx.put(&PAGED, &0, &[][..])).unwrap();
        let used = used_pages(db);
        assert!(Instant::now() < deadline, "{used} pages are used");
        thread::sleep(Duration::from_millis(1));
    }
    db.verify();
}

#[test]
fn values_of_any_length_are_written_read_and_freed() {
    for seed in 0..2 {
        let db = Database::in_memory(options()).unwrap();
        run(&db, seed);
        empty(&db);
        let device: Arc<dyn foxton_log::device::Device> = Arc::new(MemoryDevice::new());
        let db = Database::open_on(device.clone(), options()).unwrap();
        run(&db, seed + 10);
        let rows = contents(&db);
        db.close().unwrap();
        let db = Database::open_on(device, options()).unwrap();
        assert!(contents(&db) == rows);
        run(&db, seed + 20);
        empty(&db);
    }
}

#[test]
fn a_value_may_have_many_mebibytes() {
    let db = Database::in_memory(tiny_pages(Options::tiny(), 64)).unwrap();
    let mut random = Random(1);
    let long: Vec<u8> = (0..5 << 20).map(|_| random.next() as u8).collect();
    db.run(|tx| tx.put(&PAGED, &7, &long)).unwrap();
    assert!(db.run(|tx| tx.get(&PAGED, &7)).unwrap() == Some(long));
    let most = vec![1; foxton::MAX_VALUE_BYTES + 1];
    let refused = db.run(|tx| tx.put(&PAGED, &7, &most)).unwrap_err();
    assert_eq!(refused.code(), "value_too_long");
}

#[test]
fn a_crash_leaks_no_part_of_a_value() {
    let damages = Damage::ALL
        .into_iter()
        .filter(|damage| !damage.harms_durable());
    let damages: Vec<_> = damages.collect();
    for seed in 0..6 {
        let mut random = Random(seed);
        let device = FaultDevice::new();
        let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
        let mut rows = Rows::new();
        for key in 0..10 {
            let value = value(&mut random);
            db.run(|tx| tx.put(&PAGED, &key, &value)).unwrap();
            rows.insert(key, value);
        }
        let mut tx = db.begin().unwrap();
        let mut open = rows.clone();
        for _ in 0..10 {
            change(&mut tx, &mut random, &mut open);
        }
        tx.put(&OTHER, &1, &[7; 20_000]).unwrap();
        if seed % 2 == 0 {
            db.sync().unwrap();
        }
        let damage = damages[random.below(damages.len() as u64) as usize];
        let image = device.crash(damage, random.next());
        drop(tx);
        let db = Database::open_on(Arc::new(image), options()).unwrap();
        assert!(contents(&db) == rows, "seed {seed}, {damage}");
        empty(&db);
    }
}

#[test]
fn readers_and_writers_of_large_values_see_whole_ones() {
    let db = Database::in_memory(tiny_pages(Options::default(), 64)).unwrap();
    db.run(|tx| (0..4).try_for_each(|key| tx.put(&PAGED, &key, &[0; 4000])))
        .unwrap();
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let db = &db;
            scope.spawn(move || {
                let mut random = Random(thread);
                for _ in 0..100 {
                    let key = random.below(4);
                    if thread % 2 == 0 {
                        let long = vec![random.next() as u8; 1000 + random.below(5000) as usize];
                        db.run(|tx| tx.put(&PAGED, &key, &long)).unwrap();
                    } else {
                        let found = db.run(|tx| tx.range(&PAGED, ..).collect()).unwrap();
                        assert_eq!(found.len(), 4);
                        for (_, value) in found {
                            assert!(value.iter().all(|byte| *byte == value[0]));
                        }
                    }
                }
            });
        }
    });
    db.run(|tx| (0..4).try_for_each(|key| tx.put(&PAGED, &key, &[][..])))
        .unwrap();
    empty(&db);
    wait_for_used_pages(&db, used_pages(&db), "nothing more goes");
}

#[test]
fn large_values_are_found_by_their_indexes() {
    const BY_FIRST: Index<u64, u64, [u8]> = Index::new("by first", &PAGED, |_, value, keys| {
        keys.add(&u64::from(*value.first().unwrap_or(&0)));
    });
    let db = Database::in_memory(options()).unwrap();
    let mut random = Random(5);
    let mut rows = Rows::new();
    let long = |random: &mut Random| vec![random.below(5) as u8; random.below(4000) as usize];
    // Some rows are there before the index is.
    for key in 0..10 {
        let value = long(&mut random);
        db.run(|tx| tx.put(&PAGED, &key, &value)).unwrap();
        rows.insert(key, value);
    }
    db.create_index(&BY_FIRST).unwrap();
    for step in 0..150 {
        let key = random.below(20);
        let value = long(&mut random);
        let mut tx = db.begin().unwrap();
        let before = rows.clone();
        match random.below(3) {
            0 => {
                tx.delete(&PAGED, &key).unwrap();
                rows.remove(&key);
            }
            _ => {
                tx.put(&PAGED, &key, &value).unwrap();
                rows.insert(key, value);
            }
        }
        for first in 0..5_u64 {
            let found = tx.all_by(&BY_FIRST, &first).collect().unwrap();
            let found: Rows = found.into_iter().map(|row| (row.1, row.2)).collect();
            let is_first = |value: &Vec<u8>| u64::from(*value.first().unwrap_or(&0)) == first;
            let known = rows.iter().filter(|row| is_first(row.1));
            let known: Rows = known.map(|row| (*row.0, row.1.clone())).collect();
            assert!(found == known, "step {step}, {first}");
        }
        match random.below(3) {
            0 => {
                tx.rollback();
                rows = before;
            }
            _ => tx.commit().unwrap(),
        }
    }
    assert_eq!(db.check_indexes().unwrap().len(), 0);
}

/// Counting rows needs their keys. So the parts of large values are not read, also not those that
/// no row has any more.
#[test]
fn counting_rows_reads_no_large_value() {
    let device = FaultDevice::new();
    let open = || Database::open_on(Arc::new(device.clone()), options()).unwrap();
    let db = open();
    db.run(|tx| (0..60).try_for_each(|key| tx.put(&PAGED, &key, &vec![key as u8; 20_000])))
        .unwrap();
    drop(db);
    let db = open();
    let reads = || db.stats().pages.unwrap().reads;
    let before = reads();
    for _ in 0..3 {
        assert_eq!(db.run(|tx| tx.range(&PAGED, ..).count()).unwrap(), 60);
        assert_eq!(db.run(|tx| tx.range(&PAGED, 7..=9).count()).unwrap(), 3);
        let reversed = db.run(|tx| tx.range(&PAGED, ..).reversed().limit(5).count());
        assert_eq!(reversed.unwrap(), 5);
    }
    assert!(reads() - before < 30, "{} pages", reads() - before);
    // The next scan of the same transaction reads values again.
    let mut tx = db.begin().unwrap();
    assert_eq!(tx.range(&PAGED, ..).count().unwrap(), 60);
    let rows = tx.range(&PAGED, 5..7).collect().unwrap();
    assert!(rows == [(5, vec![5; 20_000]), (6, vec![6; 20_000])]);
    assert!(reads() - before > 40, "{} pages", reads() - before);
}
