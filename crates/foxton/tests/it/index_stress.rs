//! Many threads at once on a table with two indexes. Reads by an index agree with the table at
//! every moment, and a unique key has one row.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::common::paged::tiny_pages;
use crate::common::random::Random;
use crate::common::*;
use foxton::{Database, Error, LockManagerKind, Options, Result, TableComponent, Transaction};

fn options(kind: LockManagerKind, component: TableComponent) -> Options {
    let mut options = tiny_pages(Options::tiny(), 64);
    options.component = component;
    (options.lock_manager, options.lock_buckets) = (kind, 64);
    (options.lock_threads, options.lock_wait) = (true, std::time::Duration::from_secs(600));
    options.indexes.add(&BY_VALUE).add(&BY_OWN_VALUE);
    options
}

/// Calls `test` for every lock manager, for tables in memory and for paged ones.
fn over_both(test: impl Fn(Options)) {
    for component in TableComponent::ALL {
        for kind in LockManagerKind::ALL {
            println!("{component}, {kind}");
            test(options(kind, component));
        }
    }
}

/// Two rows swap their values. One of them has none meanwhile, because values are unique.
fn swap(tx: &mut Transaction, one: u64, other: u64) -> Result<()> {
    let value = tx.get_for_update(&TABLE, &one)?;
    let others = tx.get_for_update(&TABLE, &other)?;
    let (Some(value), Some(others)) = (value, others) else {
        return Err(Error::other("a row is missing"));
    };
    if one == other {
        return Ok(());
    }
    tx.delete(&TABLE, &one)?;
    tx.put(&TABLE, &other, &value)?;
    tx.insert(&TABLE, &one, &others)
}

/// Reads one value, a few neighbours, or all: each value always has one row, with this value.
fn look(tx: &mut Transaction, random: &mut Random, rows: u64) -> Result<()> {
    let value = random.below(rows) as i64;
    match random.below(8) {
        0 => {
            let all = tx.range_by(&BY_VALUE, ..).collect()?;
            assert!(
                all.iter()
                    .enumerate()
                    .all(|(at, row)| at as i64 == row.0 && row.0 == row.2)
            );
            assert_eq!(all.len() as u64, rows);
        }
        1..4 => {
            let end = (value + 5).min(rows as i64);
            let few = tx
                .range_by(&BY_OWN_VALUE, value..end)
                .reversed()
                .collect()?;
            assert_eq!(few.len() as i64, end - value);
            assert!(few.iter().all(|row| row.0 == row.2));
        }
        _ => {
            let found = tx.get_by(&BY_OWN_VALUE, &value)?;
            let (key, found) = found.expect("each value has a row");
            assert_eq!(found, value);
            assert_eq!(tx.get(&TABLE, &key)?, Some(value));
        }
    }
    Ok(())
}

fn swaps(options: Options, threads: u64, each: u64, count: u64) {
    let (threads, each) = match cfg!(foxton_tsan) {
        true => (threads.min(16), each.min(8)),
        false => (threads, each),
    };
    let start: Vec<(u64, i64)> = (0..count).map(|row| (row, row as i64)).collect();
    let db = database(options, &start);
    thread::scope(|scope| {
        for number in 0..threads {
            let db = &db;
            scope.spawn(move || {
                let mut random = Random(number);
                for _ in 0..each {
                    let seed = random.below(u64::MAX);
                    let done = db.run(|tx| {
                        let mut random = Random(seed);
                        if random.below(2) == 0 {
                            look(tx, &mut random, count)
                        } else {
                            swap(tx, random.below(count), random.below(count))
                        }
                    });
                    done.unwrap();
                }
            });
        }
    });
    let mut values: Vec<i64> = rows(&db).into_iter().map(|row| row.1).collect();
    values.sort_unstable();
    assert_eq!(values, (0..count as i64).collect::<Vec<_>>());
    assert_eq!(db.check_indexes().unwrap(), []);
    assert_eq!(db.stats().locks.timeouts, 0);
    assert!(db.locks().is_empty() && db.waits().is_empty());
    db.verify();
}

#[test]
fn values_move_between_rows_under_64_threads_over_every_manager() {
    over_both(|options| swaps(options, 64, 20, 200));
}

#[test]
fn values_move_between_rows_under_512_threads() {
    over_both(|options| swaps(options, 512, 4, 400));
}

/// All threads want the same values for rows of their own: each value gets one row, whichever
/// thread is first.
#[test]
fn one_of_many_writers_gets_a_unique_key() {
    const VALUES: i64 = 40;
    over_both(|options| {
        let db: Database = database(options, &[]);
        let (had, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let threads = if cfg!(foxton_tsan) { 8 } else { 64 };
        thread::scope(|scope| {
            for number in 0..threads {
                let (db, had, refused) = (&db, &had, &refused);
                scope.spawn(move || {
                    for value in 0..VALUES {
                        let key = number * 1000 + value as u64;
                        match db.run(|tx| tx.insert(&TABLE, &key, &value)) {
                            Ok(()) => had.fetch_add(1, Ordering::Relaxed),
                            Err(error) => {
                                let taken = error.key_taken().expect("nothing else is in the way");
                                assert_eq!(taken.key_as::<i64>().unwrap(), value);
                                refused.fetch_add(1, Ordering::Relaxed)
                            }
                        };
                    }
                });
            }
        });
        assert_eq!(had.into_inner(), VALUES as u64);
        assert_eq!(refused.into_inner(), (threads - 1) * VALUES as u64);
        assert_eq!(rows(&db).len(), VALUES as usize);
        assert_eq!(db.check_indexes().unwrap(), []);
        db.verify();
    });
}

/// Indexes are created and dropped while all threads write: an existing index always agrees with
/// the table.
#[test]
fn indexes_are_created_and_dropped_while_all_threads_write() {
    over_both(|mut options| {
        let start: Vec<(u64, i64)> = (0..100).map(|row| (row, row as i64)).collect();
        options.indexes = foxton::Indexes::default();
        let db = database(options, &start);
        let over = AtomicU64::new(0);
        thread::scope(|scope| {
            for number in 0..8 {
                let (db, over) = (&db, &over);
                scope.spawn(move || {
                    let mut random = Random(number);
                    while over.load(Ordering::Relaxed) == 0 {
                        let (one, other) = (random.below(100), random.below(100));
                        db.run(|tx| swap(tx, one, other)).unwrap();
                    }
                });
            }
            for _ in 0..12 {
                db.create_index(&BY_OWN_VALUE).unwrap();
                db.create_index(&BY_VALUE).unwrap();
                assert_eq!(db.check_indexes().unwrap(), []);
                assert!(db.drop_index("by_own_value").unwrap());
                assert!(db.drop_index("by_value").unwrap());
            }
            over.store(1, Ordering::Relaxed);
        });
        assert!(db.indexes().is_empty());
        db.verify();
    });
}
