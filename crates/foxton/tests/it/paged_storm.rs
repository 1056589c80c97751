//! Many threads on few frames: a paged table and one in memory that transactions change together.
//! Nothing is timed: each thread has a number of transactions to commit, and the test ends when all
//! have. A thread that no frame or no lock ever comes to would keep it from ending.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use foxton::device::MemoryDevice;
use foxton::{Database, Durability, Error, Options, Table, Transaction};
use foxton_log::device::fault::{Call, FaultDevice, Times};

use crate::common::paged::tiny_pages;
use crate::common::random::Random;

const PAGED: Table<u64, [u8]> = Table::new("paged").paged();
const RESIDENT: Table<u64, [u8]> = Table::new("resident").resident();
/// Balances, whose sum stays.
const ACCOUNTS: Table<str, i64> = Table::new("accounts").paged();

const ACCOUNT_COUNT: u64 = 40;
const BALANCE: i64 = 1_000;

fn account(number: u64) -> String {
    format!("account with a long name, number {number:04}")
}

/// Changes rows of both tables in the same way, and perhaps moves money.
fn change(tx: &mut Transaction, random: &mut Random) -> foxton::Result<()> {
    for _ in 0..1 + random.below(4) {
        let key = random.below(400);
        let value = vec![key as u8; random.below(150) as usize];
        match random.below(3) {
            0 => {
                let existed = tx.delete(&PAGED, &key)?;
                assert_eq!(tx.delete(&RESIDENT, &key)?, existed);
            }
            _ => {
                tx.put(&PAGED, &key, &value)?;
                tx.put(&RESIDENT, &key, &value)?;
            }
        }
    }
    let [from, to] = [(); 2].map(|()| account(random.below(ACCOUNT_COUNT)));
    let amount = random.below(100) as i64;
    let balance = tx.get_for_update(&ACCOUNTS, &from)?.unwrap_or(0);
    tx.put(&ACCOUNTS, &from, &(balance - amount))?;
    let balance = tx.get_for_update(&ACCOUNTS, &to)?.unwrap_or(0);
    tx.put(&ACCOUNTS, &to, &(balance + amount))
}

/// Reads a range of both tables, or all balances: one state of both.
fn check(tx: &mut Transaction, random: &mut Random) -> foxton::Result<()> {
    let first = random.below(400);
    let range = first..first + random.below(40);
    let reversed = random.below(2) == 0;
    let read = |tx: &mut Transaction, table| {
        let range = tx.range(table, range.clone());
        match reversed {
            true => range.reversed().collect(),
            false => range.collect(),
        }
    };
    assert_eq!(read(tx, &PAGED)?, read(tx, &RESIDENT)?);
    if random.below(8) == 0 {
        let mut sum = 0;
        tx.range(&ACCOUNTS, ..)
            .for_each(|_, balance| sum += balance)?;
        assert_eq!(sum, ACCOUNT_COUNT as i64 * BALANCE);
    }
    Ok(())
}

fn storm(threads: u64, transactions: u64, frames: usize) {
    let mut options = tiny_pages(Options::default(), frames);
    options.durability = Durability::None;
    options.run_attempts = u32::MAX;
    options.lock_wait = std::time::Duration::MAX;
    let device = Arc::new(MemoryDevice::new());
    let db = Database::open_on(device.clone(), options.clone()).unwrap();
    db.run(|tx| {
        (0..ACCOUNT_COUNT).try_for_each(|number| tx.put(&ACCOUNTS, &account(number), &BALANCE))
    })
    .unwrap();
    thread::scope(|scope| {
        for number in 0..threads {
            let db = &db;
            scope.spawn(move || {
                let mut random = Random(number);
                for _ in 0..transactions {
                    let seed = random.next();
                    let done = db.run(|tx| {
                        let mut random = Random(seed);
                        match random.below(4) {
                            0 | 1 => check(tx, &mut random),
                            2 => {
                                change(tx, &mut random)?;
                                let savepoint = tx.savepoint()?;
                                change(tx, &mut random)?;
                                tx.rollback_to(&savepoint)
                            }
                            _ => {
                                change(tx, &mut random)?;
                                match random.below(3) {
                                    0 => Err(Error::other("rolled back")),
                                    _ => Ok(()),
                                }
                            }
                        }
                    });
                    assert!(
                        done.as_ref().is_ok_and(|()| true) || done.unwrap_err().code() == "other"
                    );
                }
            });
        }
    });
    assert!(db.locks().is_empty());
    db.verify();
    let rows = |db: &Database, table| db.run(|tx| tx.range(table, ..).collect()).unwrap();
    let expected = rows(&db, &RESIDENT);
    assert_eq!(rows(&db, &PAGED), expected);
    db.close().unwrap();
    let db = Database::open_on(device, options).unwrap();
    assert_eq!(
        (rows(&db, &PAGED), rows(&db, &RESIDENT)),
        (expected.clone(), expected)
    );
}

/// Threads make pages dirty faster than a slow device takes them: each changes rows of its own,
/// far apart, and rolls some changes back. Others read. The waits are counted.
fn dirtying_storm(threads: u64, transactions: u64, frames: usize) {
    let device = FaultDevice::new();
    let mut options = tiny_pages(Options::default(), frames);
    options.durability = Durability::None;
    let db = Database::open_on(Arc::new(device.clone()), options.clone()).unwrap();
    let key = |thread: u64, step: u64| step * threads + thread;
    let value = |round: u64| vec![round as u8; 150];
    const STEPS: u64 = 4;
    for first in (0..threads * STEPS).step_by(64) {
        let keys = first..(first + 64).min(threads * STEPS);
        db.run(|tx| {
            keys.clone()
                .try_for_each(|key| tx.put(&PAGED, &key, &value(0)))
        })
        .unwrap();
    }
    device.slow_sync(Duration::from_millis(1));
    let barrier = Barrier::new(threads as usize);
    thread::scope(|scope| {
        for thread in 0..threads {
            let (db, barrier) = (&db, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 1..=transactions {
                    let mut tx = db.begin().unwrap();
                    for step in 0..STEPS {
                        let before = tx.get(&PAGED, &key(thread, step)).unwrap();
                        assert_eq!(before, Some(value(round - 1)));
                        tx.put(&PAGED, &key(thread, step), &value(round)).unwrap();
                    }
                    match (thread + round) % 3 {
                        0 => {
                            tx.rollback();
                            let again = |tx: &mut Transaction| {
                                let put = |step| tx.put(&PAGED, &key(thread, step), &value(round));
                                (0..STEPS).try_for_each(put)
                            };
                            db.run(again).unwrap();
                        }
                        _ => tx.commit().unwrap(),
                    }
                }
            });
        }
    });
    device.slow_sync(Duration::ZERO);
    let stats = db.stats().pages.unwrap();
    assert!(
        stats.change_stalls > 0 && stats.commit_stalls > 0,
        "{stats:?}"
    );
    assert_eq!(stats.stalled, 0, "{stats:?}");
    let rows = |db: &Database| db.run(|tx| tx.range(&PAGED, ..).collect()).unwrap();
    let expected: Vec<_> = (0..threads * STEPS)
        .map(|key| (key, value(transactions)))
        .collect();
    assert!(rows(&db) == expected);
    assert!(db.locks().is_empty());
    db.verify();
    db.close().unwrap();
}

#[test]
fn five_hundred_threads_that_dirty_sixteen_frames_all_finish() {
    dirtying_storm(512, 1, 16);
}

#[test]
fn five_hundred_threads_that_dirty_sixty_four_frames_all_finish() {
    dirtying_storm(512, 1, 64);
}

#[test]
fn threads_that_wait_for_a_cleaner_learn_that_it_has_failed() {
    let device = FaultDevice::new();
    let mut options = tiny_pages(Options::default(), 16);
    options.durability = Durability::None;
    let db = Database::open_on(Arc::new(device.clone()), options).unwrap();
    db.run(|tx| tx.put(&PAGED, &0, b"a table")).unwrap();
    device.fail(Call::Sync, 1, Times::ForEver, std::io::ErrorKind::Other);
    thread::scope(|scope| {
        for thread in 0..64_u64 {
            let db = &db;
            scope.spawn(move || {
                let put = |key: u64| db.run(|tx| tx.put(&PAGED, &(64 * key + thread), &[7; 150]));
                let refused = (1..).find_map(|key| put(key).err()).unwrap();
                assert_eq!(refused.code(), "poisoned", "{refused}");
            });
        }
    });
}

#[test]
fn five_hundred_threads_share_sixteen_frames() {
    storm(512, 3, 16);
}

#[test]
fn a_few_threads_share_sixteen_frames_for_long() {
    storm(8, 400, 16);
}

#[test]
fn a_few_threads_share_resident_pages() {
    storm(8, 400, 4_000);
}

#[test]
fn a_deadlock_across_the_components_is_found() {
    let db = Database::in_memory(tiny_pages(Options::default(), 16)).unwrap();
    let write = |tx: &mut Transaction, is_paged, value: &[u8]| match is_paged {
        true => tx.put(&PAGED, &1, value),
        false => tx.put(&RESIDENT, &1, value),
    };
    for _ in 0..20 {
        let barrier = Barrier::new(2);
        let ends: Vec<_> = thread::scope(|scope| {
            let threads = [true, false].map(|first| {
                let (db, barrier) = (&db, &barrier);
                scope.spawn(move || {
                    let mut tx = db.begin().unwrap();
                    write(&mut tx, first, &[u8::from(first)]).unwrap();
                    barrier.wait();
                    let second = write(&mut tx, !first, &[u8::from(first)]);
                    second.and_then(|()| tx.commit())
                })
            });
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let codes: Vec<_> = ends.iter().flat_map(|end| end.as_ref().err()).collect();
        assert_eq!(codes.len(), 1, "{codes:?}");
        assert_eq!(codes[0].code(), "deadlock");
        // The one that committed has written both.
        let winner = vec![u8::from(ends[0].is_ok())];
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.get(&PAGED, &1).unwrap(), Some(winner.clone()));
        assert_eq!(tx.get(&RESIDENT, &1).unwrap(), Some(winner));
    }
}
