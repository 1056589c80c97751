//! Snapshots of paged tables: random histories at every snapshot, large values, large transactions
//! and restarts. The pages are tiny and there are few frames, so pages are evicted all the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foxton::device::MemoryDevice;
use foxton::{
    Database, Durability, Error, Index, Isolation, Options, Snapshot, Table, Transaction,
};

use crate::common::paged::tiny_pages;
use crate::common::random::Random;

const ROWS: Table<u64, [u8]> = Table::new("rows").paged();
/// By the first byte of the value.
const BY_BYTE: Index<u64, u64, [u8]> = Index::new("by byte", &ROWS, |_, value, keys| {
    if let Some(byte) = value.first() {
        keys.add(&u64::from(*byte));
    }
});
const KEYS: u64 = 120;

type Rows = BTreeMap<u64, Vec<u8>>;

fn options() -> Options {
    let mut options = tiny_pages(Options::tiny(), 24);
    options.durability = Durability::None;
    options
}

fn databases() -> [Database; 2] {
    [
        Database::in_memory(options()).unwrap(),
        Database::open_on(Arc::new(MemoryDevice::new()), options()).unwrap(),
    ]
}

/// Returns values of all lengths, some of which do not fit a leaf.
fn value(random: &mut Random) -> Vec<u8> {
    let length = match random.below(8) {
        0 => 1000 + random.below(4000),
        1 => 0,
        _ => random.below(120),
    };
    vec![random.below(30) as u8; length as usize]
}

fn change(tx: &mut Transaction, random: &mut Random, rows: &mut Rows) {
    let key = random.below(KEYS);
    match random.below(3) {
        0 => {
            let was_there = tx.delete(&ROWS, &key).unwrap();
            assert_eq!(was_there, rows.remove(&key).is_some());
        }
        _ => {
            let value = value(random);
            tx.put(&ROWS, &key, &value).unwrap();
            rows.insert(key, value);
        }
    }
}

/// Makes a transaction with savepoints, which commits or rolls back.
fn transact(db: &Database, random: &mut Random, committed: &mut Rows) {
    let (mut tx, mut rows) = (db.begin().unwrap(), committed.clone());
    if random.below(3) == 0 {
        tx.set_isolation(Isolation::Snapshot).unwrap();
    }
    for _ in 0..1 + random.below(12) {
        change(&mut tx, random, &mut rows);
        if random.below(5) == 0 {
            let (savepoint, before) = (tx.savepoint().unwrap(), rows.clone());
            (0..random.below(5)).for_each(|_| change(&mut tx, random, &mut rows));
            tx.rollback_to(&savepoint).unwrap();
            rows = before;
        }
        let key = random.below(KEYS);
        assert_eq!(tx.get(&ROWS, &key).unwrap(), rows.get(&key).cloned());
    }
    match random.below(4) {
        0 => tx.rollback(),
        _ => {
            tx.commit().unwrap();
            *committed = rows;
        }
    }
}

fn check(snapshot: &Snapshot, random: &mut Random, rows: &Rows) {
    let (low, high) = (random.below(KEYS), random.below(KEYS));
    let (low, high) = (low.min(high), low.max(high));
    let inside = || {
        rows.range(low..high)
            .map(|(key, value)| (*key, value.clone()))
    };
    let range = || snapshot.range(&ROWS, low..high).unwrap();
    let up: Vec<_> = range().into_iter().map(Result::unwrap).collect();
    assert_eq!(up, inside().collect::<Vec<_>>(), "{low}..{high}");
    let down = range().reversed().into_iter().map(Result::unwrap);
    assert_eq!(down.collect::<Vec<_>>(), inside().rev().collect::<Vec<_>>());
    assert_eq!(range().count().unwrap() as usize, inside().count());
    let limited = range().limit(3).into_iter().map(Result::unwrap);
    assert_eq!(
        limited.collect::<Vec<_>>(),
        inside().take(3).collect::<Vec<_>>()
    );
    let keys: Vec<_> = (0..10).map(|_| random.below(KEYS)).collect();
    let expected: Vec<_> = keys.iter().map(|key| rows.get(key).cloned()).collect();
    assert_eq!(snapshot.get_many(&ROWS, &keys).unwrap(), expected);
    for (key, expected) in keys.iter().zip(&expected) {
        assert_eq!(snapshot.get(&ROWS, key).unwrap(), *expected, "{key}");
    }
    let byte = random.below(30);
    let with_byte = |value: &Vec<u8>| value.first().is_some_and(|first| u64::from(*first) == byte);
    let expected = rows.iter().filter(|(_, value)| with_byte(value));
    let expected: Vec<_> = expected.map(|(key, value)| (*key, value.clone())).collect();
    let found = snapshot.range_by(&BY_BYTE, byte..=byte).unwrap();
    let found = found.into_iter().map(|row| row.unwrap());
    let found: Vec<_> = found.map(|(_, key, value)| (key, value)).collect();
    assert_eq!(found, expected, "with {byte}");
}

/// Waits until no version is kept.
fn assert_nothing_is_kept(db: &Database) {
    let began = Instant::now();
    while db.version_stats().bytes > 0 {
        let stats = db.version_stats();
        assert!(began.elapsed() < Duration::from_secs(20), "{stats:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_snapshot_has_the_rows_that_were_committed_before_it() {
    for db in databases() {
        for seed in 0..3 {
            println!("seed {seed}");
            let mut random = Random(seed);
            let _ = db.create_index(&BY_BYTE);
            let rows = db.run(|tx| tx.range(&ROWS, ..).collect()).unwrap();
            let mut committed: Rows = rows.into_iter().collect();
            let mut snapshots: Vec<(Snapshot, Rows)> = Vec::new();
            for _ in 0..120 {
                transact(&db, &mut random, &mut committed);
                if random.below(4) == 0 {
                    snapshots.push((db.snapshot().unwrap(), committed.clone()));
                }
                if snapshots.len() > 6 {
                    let at = random.below(snapshots.len() as u64) as usize;
                    snapshots.swap_remove(at).0.end().unwrap();
                }
                if !snapshots.is_empty() {
                    let at = random.below(snapshots.len() as u64) as usize;
                    let (snapshot, rows) = &snapshots[at];
                    check(snapshot, &mut random, rows);
                }
            }
            for (snapshot, rows) in &snapshots {
                check(snapshot, &mut random, rows);
            }
            drop(snapshots);
            assert_nothing_is_kept(&db);
            db.check_indexes().unwrap();
        }
    }
}

/// Each transaction writes one value to all rows, and some roll back.
#[test]
fn readers_beside_rollbacks_and_purges_see_one_value_in_all_rows() {
    const FEW: u64 = 12;
    for db in databases() {
        db.run(|tx| (0..FEW).try_for_each(|key| tx.put(&ROWS, &key, &[0; 60])))
            .unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let writer = |seed: u64| {
                let (db, mut random) = (&db, Random(seed));
                scope.spawn(move || {
                    for _ in 0..300 {
                        let byte = random.below(200) as u8;
                        let length = if random.below(6) == 0 { 1500 } else { 60 };
                        let (gives_up, deletes) = (random.below(3) == 0, random.below(4) == 0);
                        let _ = db.run(|tx| {
                            for key in 0..FEW {
                                match deletes {
                                    true => _ = tx.delete(&ROWS, &key)?,
                                    false => tx.put(&ROWS, &key, &vec![byte; length])?,
                                }
                            }
                            match gives_up {
                                true => Err(Error::other("gives up")),
                                false => Ok(()),
                            }
                        });
                    }
                })
            };
            let writers = [1, 2].map(writer);
            for seed in 0..3 {
                let (db, is_over) = (&db, &is_over);
                scope.spawn(move || {
                    let (mut random, mut count) = (Random(seed), 0);
                    while !is_over.load(Ordering::Relaxed) || count < 10 {
                        count += 1;
                        let snapshot = db.snapshot().unwrap();
                        let mut first: Option<Vec<(u64, Vec<u8>)>> = None;
                        for _ in 0..=random.below(3) {
                            let rows = snapshot.range(&ROWS, ..).unwrap().into_iter();
                            let rows: Vec<_> = rows.map(Result::unwrap).collect();
                            assert!(rows.is_empty() || rows.len() == FEW as usize, "{rows:?}");
                            assert!(
                                rows.iter().all(|(_, value)| *value == rows[0].1),
                                "{rows:?}"
                            );
                            let key = random.below(FEW);
                            let got = snapshot.get(&ROWS, &key).unwrap();
                            assert_eq!(got.as_ref(), rows.first().map(|(_, value)| value));
                            assert_eq!(*first.get_or_insert(rows.clone()), rows);
                        }
                        snapshot.end().unwrap();
                    }
                });
            }
            writers.into_iter().for_each(|one| one.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
        });
        assert_nothing_is_kept(&db);
    }
}

fn used_pages(db: &Database) -> u64 {
    let pages = db.stats().pages.expect("it has paged tables");
    pages.file_pages - pages.free_pages
}

#[test]
fn large_values_are_freed_when_the_last_snapshot_that_has_them_ends() {
    for db in databases() {
        let put = |byte: u8, length: usize| {
            let value = vec![byte; length];
            db.run(|tx| (0..8).try_for_each(|key| tx.put(&ROWS, &key, &value)))
                .unwrap();
        };
        // The tree of large values keeps some pages.
        put(1, 5000);
        put(2, 10);
        let deadline = Instant::now() + Duration::from_secs(60);
        let wait_for = |is_it: &dyn Fn(u64) -> bool| {
            while !is_it(used_pages(&db)) {
                assert!(Instant::now() < deadline, "{} pages", used_pages(&db));
                thread::sleep(Duration::from_millis(5));
            }
        };
        wait_for(&|used| used < 30);
        put(3, 5000);
        let first = db.snapshot().unwrap();
        put(4, 6000);
        let second = db.snapshot().unwrap();
        db.run(|tx| (0..8).try_for_each(|key| tx.delete(&ROWS, &key).map(drop)))
            .unwrap();
        thread::sleep(Duration::from_millis(150));
        for (snapshot, byte, length) in [(&first, 3, 5000), (&second, 4, 6000)] {
            let rows = snapshot.range(&ROWS, ..).unwrap().into_iter();
            let rows: Vec<_> = rows.map(|row| row.unwrap().1).collect();
            assert_eq!(rows, vec![vec![byte; length]; 8]);
        }
        let both = used_pages(&db);
        first.end().unwrap();
        wait_for(&|used| used < both - 30);
        let one = second.get(&ROWS, &7).unwrap();
        assert_eq!(one, Some(vec![4; 6000]));
        second.end().unwrap();
        wait_for(&|used| used < 30);
    }
}

/// A transaction that keeps only the last part of its undo in memory.
#[test]
fn readers_beside_a_large_transaction_see_all_of_it_or_nothing() {
    const MANY: u64 = 2500;
    for db in databases() {
        let write = |byte: u8| {
            let mut tx = db.begin().unwrap();
            for key in 0..MANY {
                tx.put(&ROWS, &key, &[byte; 60]).unwrap();
            }
            tx
        };
        let count = |snapshot: &Snapshot, byte: u8| {
            let rows = snapshot.range(&ROWS, ..).unwrap().into_iter();
            let values = rows.map(|row| row.unwrap().1);
            values.filter(|value| *value == [byte; 60]).count() as u64
        };
        write(1).commit().unwrap();
        let tx = write(2);
        let open = db.snapshot().unwrap();
        assert_eq!(count(&open, 1), MANY);
        tx.rollback();
        let after = db.snapshot().unwrap();
        assert_eq!((count(&open, 1), count(&after, 1)), (MANY, MANY));
        let tx = write(3);
        assert_eq!(count(&open, 1), MANY);
        tx.commit().unwrap();
        assert_eq!((count(&open, 1), count(&after, 1)), (MANY, MANY));
        assert_eq!(db.view(|now| Ok(count(now, 3))).unwrap(), MANY);
        drop((open, after));
        assert_nothing_is_kept(&db);
    }
}

#[test]
fn a_restart_forgets_versions_and_keeps_rows() {
    let device = Arc::new(MemoryDevice::new());
    for round in 0..3 {
        let db = Database::open_on(device.clone(), options()).unwrap();
        let mut random = Random(round);
        let rows = db.run(|tx| tx.range(&ROWS, ..).collect()).unwrap();
        let mut committed: Rows = rows.into_iter().collect();
        let before = db.snapshot().unwrap();
        let expected = committed.clone();
        for _ in 0..30 {
            transact(&db, &mut random, &mut committed);
        }
        let found: Rows = before
            .range(&ROWS, ..)
            .unwrap()
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(found, expected);
        drop(before);
        db.close().unwrap();
        let db = Database::open_on(device.clone(), options()).unwrap();
        assert_eq!(db.version_stats().bytes, 0);
        let now: Rows = db
            .view(|now| {
                Ok(now
                    .range(&ROWS, ..)?
                    .into_iter()
                    .map(Result::unwrap)
                    .collect())
            })
            .unwrap();
        assert_eq!(now, committed);
        db.close().unwrap();
    }
}
