//! Many threads at once, with sums that must be right at every moment.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::random::Random;
use crate::common::*;
use foxton::{Database, LatchKind, Lock, LockInheritance, LockManagerKind, Options, Table};

const LIMIT: u64 = 6;

fn transfer(db: &Database, random: &mut Random, accounts: u64) {
    let (from, to) = (random.below(accounts), random.below(accounts));
    let amount = random.below(50) as i64;
    db.run(|tx| {
        let balance = tx.get_for_update(&TABLE, &from)?.unwrap();
        tx.put(&TABLE, &from, &(balance - amount))?;
        let balance = tx.get_for_update(&TABLE, &to)?.unwrap();
        tx.put(&TABLE, &to, &(balance + amount))
    })
    .unwrap();
}

fn total(db: &Database, reversed: bool) -> (u64, i64) {
    db.run(|tx| {
        let (mut count, mut sum) = (0, 0);
        let all = tx.range(&TABLE, ..);
        let all = if reversed { all.reversed() } else { all };
        all.for_each(|_, balance| (count, sum) = (count + 1, sum + balance))?;
        Ok((count, sum))
    })
    .unwrap()
}

fn bank(mut options: Options, threads: u64, transfers: u64, accounts: u64) {
    // A lost grant must hang the test and not time out, however slow the machine is.
    options.lock_wait = Duration::from_secs(3_600);
    // A race detector makes everything ten times slower, and needs few threads to see a race.
    let (threads, transfers) = if cfg!(foxton_tsan) {
        (threads.min(32), transfers.min(8))
    } else {
        (threads, transfers)
    };
    let start: Vec<(u64, i64)> = (0..accounts).map(|account| (account, 1000)).collect();
    let db = database(options, &start);
    let before = db.stats();
    thread::scope(|scope| {
        for number in 0..threads {
            let db = &db;
            scope.spawn(move || {
                let mut random = Random(number);
                for round in 0..transfers {
                    // One in sixteen reads everything, from either end.
                    if random.below(16) == 0 {
                        let expected = (accounts, 1000 * accounts as i64);
                        assert_eq!(total(db, round % 2 == 0), expected);
                    } else {
                        transfer(db, &mut random, accounts);
                    }
                }
            });
        }
    });
    assert_eq!(total(&db, false), (accounts, 1000 * accounts as i64));
    let stats = db.stats();
    let done = stats.commits + stats.read_only_commits;
    assert_eq!(
        done - before.commits - before.read_only_commits,
        threads * transfers + 1
    );
    assert_eq!(stats.locks.timeouts, 0);
    assert!(db.locks().is_empty() && db.waits().is_empty());
    db.verify();
}

#[test]
fn sums_are_right_with_64_threads_over_every_manager_and_latch() {
    for kind in LockManagerKind::ALL {
        for latch in LatchKind::PLAIN {
            let mut options = Options::tiny();
            (options.lock_manager, options.latch, options.lock_buckets) = (kind, latch, 64);
            options.lock_threads = true;
            if latch == LatchKind::TasT {
                options.lock_inheritance = LockInheritance::Always;
            }
            bank(options, 64, 40, 100);
        }
    }
}

#[test]
fn sums_are_right_with_512_threads() {
    for kind in LockManagerKind::ALL {
        let mut options = Options::tiny();
        (options.lock_manager, options.lock_buckets) = (kind, 64);
        options.lock_threads = true;
        bank(options, 512, 8, 200);
    }
}

/// P4: read, add one, write. With a shared read first, every overlap of two is a deadlock.
#[test]
fn a_counter_is_what_was_added_to_it() {
    for kind in LockManagerKind::ALL {
        let rounds = if cfg!(foxton_tsan) { 4 } else { 40 };
        for (lock, threads) in [(Lock::Shared, 8), (Lock::Update, 64)] {
            let mut options = Options::tiny();
            (options.lock_manager, options.lock_threads) = (kind, true);
            let db = database(options, &[(1, 0)]);
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        for _ in 0..rounds {
                            db.run(|tx| {
                                let count = tx.get_locked(&TABLE, &1, lock)?.unwrap();
                                tx.put(&TABLE, &1, &(count + 1))
                            })
                            .unwrap();
                        }
                    });
                }
            });
            assert_eq!(rows(&db), [(1, threads * rounds)]);
            if lock == Lock::Update {
                assert_eq!(
                    db.stats().deadlocks,
                    0,
                    "whoever is to write waits at the read"
                );
            }
        }
    }
}

/// Each family of ten thousand keys accepts at most `LIMIT` members: an inserter counts first. A
/// phantom shows as one member too many. Members come in pairs, so a count is always even.
fn phantoms(options: Options, threads: u64, rounds: u64) {
    const FAMILIES: u64 = 3;
    const FAMILY: u64 = 10_000;
    let db = database(options, &[]);
    let inserted = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..threads {
            let (db, inserted) = (&db, &inserted);
            scope.spawn(move || {
                let mut random = Random(number + 77);
                for _ in 0..rounds {
                    let first = random.below(FAMILIES) * FAMILY;
                    let pair = [random.below(FAMILY), random.below(FAMILY)].map(|key| first + key);
                    let reversed = random.below(2) == 0;
                    let delete = random.below(3) == 0;
                    let lock = [Lock::Shared, Lock::Update][random.below(2) as usize];
                    let changed = db
                        .run(|tx| {
                            let mut members = Vec::new();
                            let all = tx.range(&TABLE, first..first + FAMILY).locked(lock);
                            let all = if reversed { all.reversed() } else { all };
                            all.for_each(|key, _| members.push(key))?;
                            assert!(members.len() as u64 <= LIMIT, "a phantom: {members:?}");
                            assert!(members.len() % 2 == 0, "half a pair: {members:?}");
                            if delete && members.len() >= 2 {
                                tx.delete(&TABLE, &members[0])?;
                                tx.delete(&TABLE, &members[members.len() - 1])?;
                                return Ok(0);
                            }
                            let fits = members.len() as u64 + 2 <= LIMIT
                                && pair[0] != pair[1]
                                && pair.iter().all(|key| !members.contains(key));
                            if !fits {
                                return Ok(0);
                            }
                            tx.insert(&TABLE, &pair[0], &1)?;
                            tx.insert(&TABLE, &pair[1], &1)?;
                            // The transaction sees its own inserts and no others.
                            let now = tx.range(&TABLE, first..first + FAMILY).count()?;
                            assert_eq!(now, members.len() as u64 + 2);
                            Ok(1)
                        })
                        .unwrap();
                    inserted.fetch_add(changed, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(inserted.into_inner() > 0);
    assert!(db.locks().is_empty());
    db.verify();
}

#[test]
fn no_phantom_appears_over_any_manager() {
    over_all_managers(|mut options| {
        options.lock_buckets *= 4;
        phantoms(options, 16, if cfg!(foxton_tsan) { 10 } else { 60 });
    });
}

/// Two keys that are always far apart in the index, and a scan over everything between: the gap
/// spans leaves that split and shrink meanwhile.
#[test]
fn a_range_over_many_leaves_stays_closed_while_they_split_and_shrink() {
    const FILLER: Table<u64, i64> = TABLE;
    over_all_managers(|options| {
        let db = database(options, &[]);
        thread::scope(|scope| {
            for number in 0..4u64 {
                let db = &db;
                scope.spawn(move || {
                    // Fills and empties a stretch of its own, key by key and all at once.
                    for round in 0..6 {
                        let keys = number * 1000..number * 1000 + 150;
                        db.run(|tx| keys.clone().try_for_each(|key| tx.put(&FILLER, &key, &1)))
                            .unwrap();
                        if round % 2 == 0 {
                            db.run(|tx| {
                                keys.clone()
                                    .try_for_each(|key| tx.delete(&FILLER, &key).map(|_| ()))
                            })
                            .unwrap();
                        } else {
                            keys.for_each(|key| {
                                db.run(|tx| tx.delete(&FILLER, &key)).unwrap();
                            });
                        }
                    }
                });
            }
            for _ in 0..2 {
                let db = &db;
                scope.spawn(move || {
                    for round in 0..30 {
                        db.run(|tx| {
                            let count = |tx: &mut foxton::Transaction| -> foxton::Result<_> {
                                let mut keys = Vec::new();
                                tx.range(&FILLER, 500..2500)
                                    .for_each(|key, _| keys.push(key))?;
                                Ok(keys)
                            };
                            let first = count(tx)?;
                            if round % 4 == 0 {
                                thread::yield_now();
                            }
                            assert_eq!(first, count(tx)?);
                            let mut back = Vec::new();
                            let range = tx.range(&FILLER, 500..2500).reversed();
                            range.try_for_each_bytes(|key, _| {
                                back.push(u64::from_be_bytes(key.try_into().unwrap()));
                                ControlFlow::Continue(())
                            })?;
                            back.reverse();
                            assert_eq!(first, back);
                            Ok(())
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(rows(&db), []);
        db.verify();
    });
}
