//! Snapshots: what their reads return, whom they hold up, and what is kept for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foxton::device::MemoryDevice;
use foxton::error::ConflictReason;
use foxton::{
    Database, Durability, Error, Index, Isolation, LockWait, Options, Table, TableComponent,
    TableLock,
};

use crate::common::paged::tiny_pages;
use crate::common::random::Random;
use crate::common::*;

const ROWS: Table<u64, [u8]> = Table::new("rows");
const ACCOUNTS: Table<u64, i64> = Table::new("accounts");

fn options() -> Options {
    let mut options = Options::default();
    options.durability = Durability::None;
    options
}

/// Runs a test on tables in memory, and on paged ones with few frames.
fn over_components(test: impl Fn(Options)) {
    for component in TableComponent::ALL {
        println!("{component}");
        let mut options = tiny_pages(options(), 32);
        options.component = component;
        test(options);
    }
}

fn in_memory(options: Options) -> Database {
    Database::in_memory(options).unwrap()
}

fn row(key: u64) -> Vec<u8> {
    key.to_le_bytes().repeat(4)
}

#[test]
fn a_snapshot_reads_what_was_committed_before_it() {
    over_components(|options| {
        let db = in_memory(options);
        db.run(|tx| (0..10).try_for_each(|key| tx.put(&ROWS, &key, &row(key))))
            .unwrap();
        let mut open = db.begin().unwrap();
        open.put(&ROWS, &0, b"uncommitted").unwrap();
        let snapshot = db.snapshot().unwrap();
        db.run(|tx| {
            tx.put(&ROWS, &1, b"changed")?;
            tx.delete(&ROWS, &2)?;
            tx.put(&ROWS, &20, b"new")
        })
        .unwrap();
        open.commit().unwrap();

        let later = db.snapshot().unwrap();
        for key in 0..10 {
            assert_eq!(
                snapshot.get(&ROWS, &key).unwrap(),
                Some(row(key)),
                "row {key}"
            );
        }
        assert_eq!(snapshot.get(&ROWS, &20).unwrap(), None);
        let keys = |rows: Vec<(u64, Vec<u8>)>| rows.iter().map(|(key, _)| *key).collect::<Vec<_>>();
        let up: Vec<_> = snapshot
            .range(&ROWS, ..)
            .unwrap()
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(keys(up), (0..10).collect::<Vec<_>>());
        let down = snapshot
            .range(&ROWS, 1..8)
            .unwrap()
            .reversed()
            .limit(3)
            .into_iter();
        assert_eq!(keys(down.map(Result::unwrap).collect()), [7, 6, 5]);
        let many = snapshot.get_many(&ROWS, &[2, 20, 1]).unwrap();
        assert_eq!(many, [Some(row(2)), None, Some(row(1))]);

        assert_eq!(
            later.get(&ROWS, &0).unwrap().as_deref(),
            Some(&b"uncommitted"[..])
        );
        assert_eq!(
            later.get(&ROWS, &1).unwrap().as_deref(),
            Some(&b"changed"[..])
        );
        assert_eq!(later.get(&ROWS, &2).unwrap(), None);
        assert_eq!(later.get(&ROWS, &20).unwrap().as_deref(), Some(&b"new"[..]));
        assert!(snapshot.lsn() < later.lsn());
        assert_eq!(db.snapshots().len(), 2);
        snapshot.end().unwrap();
        later.end().unwrap();
        assert!(db.snapshots().is_empty());
    });
}

#[test]
fn a_deleted_row_is_read_after_its_record_is_gone_and_its_key_is_taken_again() {
    over_components(|options| {
        let db = in_memory(options);
        db.run(|tx| (0..100).try_for_each(|key| tx.put(&ROWS, &key, &row(key))))
            .unwrap();
        let first = db.snapshot().unwrap();
        db.run(|tx| (0..100).try_for_each(|key| tx.delete(&ROWS, &key).map(drop)))
            .unwrap();
        let second = db.snapshot().unwrap();
        db.run(|tx| (0..50).try_for_each(|key| tx.insert(&ROWS, &key, b"again")))
            .unwrap();
        let third = db.snapshot().unwrap();
        db.run(|tx| (0..50).try_for_each(|key| tx.delete(&ROWS, &key).map(drop)))
            .unwrap();
        for key in 0..100 {
            let again = (key < 50).then(|| b"again".to_vec());
            assert_eq!(first.get(&ROWS, &key).unwrap(), Some(row(key)));
            assert_eq!(second.get(&ROWS, &key).unwrap(), None);
            assert_eq!(third.get(&ROWS, &key).unwrap(), again);
        }
        let counts =
            [&first, &second, &third].map(|at| at.range(&ROWS, ..).unwrap().into_iter().count());
        assert_eq!(counts, [100, 0, 50]);
        let mut down = first.range(&ROWS, ..).unwrap().reversed().into_iter();
        assert_eq!(down.next().unwrap().unwrap(), (99, row(99)));
    });
}

#[test]
fn a_transaction_at_a_snapshot_sees_its_own_writes_and_loses_no_update() {
    over_components(|options| {
        let db = in_memory(options);
        db.run(|tx| tx.put(&ACCOUNTS, &1, &100)).unwrap();
        let mut tx = db.begin().unwrap();
        tx.set_isolation(Isolation::Snapshot).unwrap();
        assert_eq!(tx.get(&ACCOUNTS, &1).unwrap(), Some(100));
        tx.put(&ACCOUNTS, &2, &7).unwrap();
        tx.put(&ACCOUNTS, &2, &8).unwrap();
        assert_eq!(tx.get(&ACCOUNTS, &2).unwrap(), Some(8));
        tx.delete(&ACCOUNTS, &2).unwrap();
        assert_eq!(tx.get(&ACCOUNTS, &2).unwrap(), None);
        tx.put(&ACCOUNTS, &2, &9).unwrap();
        assert_eq!(tx.range(&ACCOUNTS, ..).into_iter().count(), 2);
        db.run(|tx| tx.put(&ACCOUNTS, &1, &90)).unwrap();
        assert_eq!(tx.get(&ACCOUNTS, &1).unwrap(), Some(100));
        let refused = tx.put(&ACCOUNTS, &1, &101).unwrap_err();
        assert_eq!(refused.code(), "overwritten");
        assert_eq!(
            tx.get(&ACCOUNTS, &1).unwrap_err().code(),
            "ended_by_conflict"
        );
        drop(tx);
        assert_eq!(db.run(|tx| tx.get(&ACCOUNTS, &2)).unwrap(), None);

        for locks in [false, true] {
            let mut tx = db.begin().unwrap();
            tx.set_isolation(Isolation::Snapshot).unwrap();
            assert_eq!(tx.get(&ACCOUNTS, &1).unwrap(), Some(90));
            db.run(|tx| tx.insert(&ACCOUNTS, &3, &3)).unwrap();
            db.run(|tx| tx.delete(&ACCOUNTS, &3).map(drop)).unwrap();
            // The row came and went, and has left no record.
            let refused = match locks {
                false => tx.put(&ACCOUNTS, &3, &4).unwrap_err(),
                true => tx.get_for_update(&ACCOUNTS, &3).unwrap_err(),
            };
            assert_eq!(refused.code(), "overwritten");
        }
    });
}

#[test]
fn run_repeats_a_transaction_whose_row_was_overwritten() {
    over_components(|options| {
        let mut options = options;
        options.isolation = Isolation::Snapshot;
        let db = Database::in_memory(options).unwrap();
        db.run(|tx| tx.put(&ACCOUNTS, &1, &0)).unwrap();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        db.run(|tx| {
                            let value = tx.get(&ACCOUNTS, &1)?.unwrap();
                            tx.put(&ACCOUNTS, &1, &(value + 1))
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(db.run(|tx| tx.get(&ACCOUNTS, &1)).unwrap(), Some(1600));
    });
}

#[test]
fn a_reader_waits_for_no_lock() {
    over_components(|options| {
        let db = in_memory(options);
        let absent = db.view(|snapshot| {
            assert_eq!(snapshot.range(&ROWS, ..)?.into_iter().count(), 0);
            let found = snapshot.get(&ACCOUNTS, &1)?;
            assert!(db.locks().is_empty(), "{:?}", db.locks());
            Ok(found)
        });
        assert_eq!(absent.unwrap(), None);
        db.run(|tx| tx.put(&ACCOUNTS, &1, &1)).unwrap();
        let mut writer = db.begin().unwrap();
        writer.put(&ACCOUNTS, &1, &2).unwrap();
        writer
            .lock_table(&ACCOUNTS, TableLock::Exclusive, LockWait::Default)
            .unwrap();
        assert_eq!(
            db.view(|snapshot| snapshot.get(&ACCOUNTS, &1)).unwrap(),
            Some(1)
        );
        writer.commit().unwrap();
        assert_eq!(
            db.view(|snapshot| snapshot.get(&ACCOUNTS, &1)).unwrap(),
            Some(2)
        );
    });
}

const BY_OWNER: Index<u64, u64, i64> =
    Index::new("by owner", &ACCOUNTS, |key, _, keys| keys.add(&(key % 3)));
const BY_VALUE: Index<i64, u64, i64> =
    Index::unique("by value", &ACCOUNTS, |_, value, keys| keys.add(value));

#[test]
fn indexes_are_read_at_a_snapshot() {
    over_components(|options| {
        let db = in_memory(options);
        db.create_index(&BY_OWNER).unwrap();
        db.create_index(&BY_VALUE).unwrap();
        db.run(|tx| (0..9).try_for_each(|key| tx.put(&ACCOUNTS, &key, &(key as i64))))
            .unwrap();
        let snapshot = db.snapshot().unwrap();
        db.run(|tx| {
            tx.delete(&ACCOUNTS, &3)?;
            tx.put(&ACCOUNTS, &4, &400)?;
            tx.put(&ACCOUNTS, &5, &3)?;
            tx.put(&ACCOUNTS, &9, &9)
        })
        .unwrap();
        assert_eq!(snapshot.get_by(&BY_VALUE, &3).unwrap(), Some((3, 3)));
        assert_eq!(snapshot.get_by(&BY_VALUE, &4).unwrap(), Some((4, 4)));
        assert_eq!(snapshot.get_by(&BY_VALUE, &400).unwrap(), None);
        let owned = |owner: u64| {
            let rows = snapshot
                .range_by(&BY_OWNER, owner..=owner)
                .unwrap()
                .into_iter();
            rows.map(|row| row.unwrap().1).collect::<Vec<_>>()
        };
        assert_eq!(owned(0), [0, 3, 6]);
        assert_eq!(owned(2), [2, 5, 8]);
        db.view(|now| {
            assert_eq!(now.get_by(&BY_VALUE, &3)?, Some((5, 3)));
            assert_eq!(now.range_by(&BY_OWNER, 0..=0)?.into_iter().count(), 3);
            Ok(())
        })
        .unwrap();
        drop(snapshot);

        let before = db.snapshot().unwrap();
        db.drop_index("by owner").unwrap();
        db.create_index(&BY_OWNER).unwrap();
        let refused = before
            .range_by(&BY_OWNER, ..)
            .unwrap()
            .into_iter()
            .next()
            .unwrap()
            .unwrap_err();
        assert_eq!(refused.code(), "index_younger_than_snapshot");
    });
}

/// Random transfers, insertions and deletions beside readers: each snapshot has one sum, and what
/// it reads is what a serial history gives at its position.
#[test]
fn readers_beside_writers_see_a_prefix_of_the_commits() {
    over_components(|options| {
        const KEYS: u64 = 40;
        for persistent in [false, true] {
            let db = match persistent {
                false => in_memory(options.clone()),
                true => Database::open_on(Arc::new(MemoryDevice::new()), options.clone()).unwrap(),
            };
            db.run(|tx| (0..KEYS).try_for_each(|key| tx.put(&ACCOUNTS, &key, &100)))
                .unwrap();
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                let writers: Vec<_> = (0..4)
                    .map(|seed| {
                        let db = &db;
                        scope.spawn(move || write(db, seed, KEYS))
                    })
                    .collect();
                for seed in 0..4 {
                    let (db, is_over) = (&db, &is_over);
                    scope.spawn(move || {
                        let (mut random, mut snapshots) = (Random(100 + seed), 0);
                        while !is_over.load(Ordering::Relaxed) || snapshots < 20 {
                            let snapshot = db.snapshot().unwrap();
                            for _ in 0..random.below(4) + 1 {
                                let rows = snapshot.range(&ACCOUNTS, ..).unwrap().into_iter();
                                let rows: BTreeMap<u64, i64> = rows.map(Result::unwrap).collect();
                                let sum: i64 = rows.values().sum();
                                assert_eq!(sum, KEYS as i64 * 100, "at {:?}", snapshot.lsn());
                                let key = random.below(2 * KEYS);
                                let got = snapshot.get(&ACCOUNTS, &key).unwrap();
                                assert_eq!(got, rows.get(&key).copied(), "row {key}");
                            }
                            snapshot.end().unwrap();
                            snapshots += 1;
                        }
                    });
                }
                writers
                    .into_iter()
                    .for_each(|writer| writer.join().unwrap());
                is_over.store(true, Ordering::Relaxed);
            });
            assert_nothing_is_kept(&db);
        }
    });
}

/// Moves amounts between accounts; an account whose amount is 0 is deleted.
pub(crate) fn write(db: &Database, seed: u64, keys: u64) {
    let mut random = Random(seed + 1);
    for _ in 0..400 {
        let (from, to) = (random.below(2 * keys), random.below(2 * keys));
        let gives_up = random.below(5) == 0;
        let moved = db.run(|tx| {
            let Some(amount) = tx.get_for_update(&ACCOUNTS, &from)? else {
                return Ok(());
            };
            if from != to {
                let before = tx.get_for_update(&ACCOUNTS, &to)?.unwrap_or(0);
                let moved = if amount % 3 == 0 { amount } else { amount / 2 };
                tx.put(&ACCOUNTS, &to, &(before + moved))?;
                match amount - moved {
                    0 => _ = tx.delete(&ACCOUNTS, &from)?,
                    rest => tx.put(&ACCOUNTS, &from, &rest)?,
                }
            }
            match gives_up {
                true => Err(Error::other("gives up")),
                false => Ok(()),
            }
        });
        assert_eq!(moved.is_err(), gives_up && moved.is_err());
    }
}

/// Waits until no version is kept.
pub(crate) fn assert_nothing_is_kept(db: &Database) {
    let began = Instant::now();
    while db.version_stats().bytes > 0 {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            db.version_stats()
        );
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_stalled_snapshot_keeps_one_version_of_each_row() {
    over_components(|options| {
        const KEYS: u64 = 200;
        let db = in_memory(options);
        db.run(|tx| (0..KEYS).try_for_each(|key| tx.put(&ROWS, &key, &[0; 100])))
            .unwrap();
        let snapshot = db.snapshot().unwrap();
        let mut most = 0;
        for round in 1..=200_u64 {
            db.run(|tx| (0..KEYS).try_for_each(|key| tx.put(&ROWS, &key, &[round as u8; 100])))
                .unwrap();
            most = most.max(db.version_stats().bytes);
        }
        let one_each = KEYS * 400;
        assert!(
            most > 0 && most <= one_each,
            "{most} bytes, and one version each are {one_each}"
        );
        assert!(
            db.version_stats().pruned > 100 * KEYS,
            "{:?}",
            db.version_stats()
        );
        assert_eq!(snapshot.get(&ROWS, &7).unwrap(), Some(vec![0; 100]));
        assert_eq!(db.snapshots()[0].bytes, db.version_stats().bytes);
        drop(snapshot);
        assert_nothing_is_kept(&db);
    });
}

#[test]
fn the_snapshot_that_keeps_too_much_is_ended() {
    over_components(|options| {
        let mut options = options;
        options.version_bytes = 100_000;
        let db = Database::in_memory(options).unwrap();
        let keys = 0..2000_u64;
        db.run(|tx| {
            keys.clone()
                .try_for_each(|key| tx.put(&ROWS, &key, &[0; 100]))
        })
        .unwrap();
        let old = db.snapshot().unwrap();
        let began = Instant::now();
        while db.version_stats().ended == 0 {
            db.run(|tx| {
                keys.clone()
                    .try_for_each(|key| tx.put(&ROWS, &key, &[1; 100]))
            })
            .unwrap();
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "{:?}",
                db.version_stats()
            );
        }
        let refused = old.get(&ROWS, &1).unwrap_err();
        assert_eq!(refused.code(), "snapshot_ended");
        let Error::Conflict(conflict) = refused else {
            panic!("it is a conflict")
        };
        assert_eq!(conflict.reason(), ConflictReason::SnapshotEnded);
        assert_eq!(
            old.range(&ROWS, ..)
                .unwrap()
                .into_iter()
                .next()
                .unwrap()
                .unwrap_err()
                .code(),
            "snapshot_ended"
        );
        assert_eq!(
            db.view(|now| now.get(&ROWS, &1)).unwrap(),
            Some(vec![1; 100])
        );
        drop(old);
        assert_nothing_is_kept(&db);
    });
}

/// The versions that told of changes since may be gone with the snapshot.
#[test]
fn a_transaction_whose_snapshot_was_ended_writes_nothing() {
    over_components(|mut options| {
        options.version_bytes = 100_000;
        let db = Database::in_memory(options).unwrap();
        let put_all = |value| {
            let keys = 0..2000_u64;
            db.run(|tx| {
                keys.clone()
                    .try_for_each(|key| tx.put(&ROWS, &key, &[value; 100]))
            })
        };
        put_all(0).unwrap();
        let mut tx = db.begin().unwrap();
        tx.set_isolation(Isolation::Snapshot).unwrap();
        assert_eq!(tx.get(&ROWS, &1).unwrap(), Some(vec![0; 100]));
        let began = Instant::now();
        while db.version_stats().ended == 0 {
            put_all(1).unwrap();
            assert!(began.elapsed() < Duration::from_secs(20));
        }
        // Nobody has changed it, so nothing else refuses it.
        let refused = tx.put(&ROWS, &5000, &[2; 100]).unwrap_err();
        assert_eq!(refused.code(), "snapshot_ended");
        drop(tx);
        assert_nothing_is_kept(&db);
    });
}

#[test]
fn clones_of_a_snapshot_read_in_many_threads() {
    over_components(|options| {
        let db = in_memory(options);
        db.run(|tx| (0..100).try_for_each(|key| tx.put(&ACCOUNTS, &key, &1)))
            .unwrap();
        let snapshot = db.snapshot().unwrap();
        thread::scope(|scope| {
            for _ in 0..8 {
                let snapshot = snapshot.clone();
                scope.spawn(move || {
                    for key in 0..100 {
                        assert_eq!(snapshot.get(&ACCOUNTS, &key).unwrap(), Some(1));
                    }
                });
            }
            scope.spawn(|| {
                let doubled = |key| db.run(|tx| tx.put(&ACCOUNTS, &key, &2)).unwrap();
                (0..100).for_each(doubled);
            });
        });
        // A read within a read uses another context.
        let inner = snapshot.get_with(&ACCOUNTS, &1, |_| snapshot.get(&ACCOUNTS, &2).unwrap());
        assert_eq!(inner.unwrap(), Some(Some(1)));
    });
}

/// The level allows write skew, and forbids phantoms.
#[test]
fn write_skew_is_seen_and_no_phantom() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let (mut t1, mut t2) = (session(&db, "T1"), session(&db, "T2"));
        for t in [&mut t1, &mut t2] {
            assert_eq!(t.scan(..), Rows(TWO.to_vec()));
        }
        assert_eq!((t1.put(1, 11), t2.put(2, 21)), (Done, Done));
        assert_eq!((t1.commit(), t2.commit()), (Done, Done));

        let (mut t1, mut t2) = (session(&db, "T1"), session(&db, "T2"));
        let rows = Rows(vec![(1, 11), (2, 21)]);
        assert_eq!((t1.scan(..), t1.get(3)), (rows, Value(None)));
        assert_eq!(
            (t2.insert(3, 30), t2.delete(1), t2.commit()),
            (Done, Done, Done)
        );
        let rows = Rows(vec![(1, 11), (2, 21)]);
        assert_eq!((t1.scan(..), t1.get(3)), (rows, Value(None)));
        assert_eq!(t1.commit(), Done);
    });
}

/// Two readers see two independent commits in one order.
#[test]
fn no_fork_is_seen() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let (mut w1, mut w2) = (session(&db, "W1"), session(&db, "W2"));
        assert_eq!((w1.put(1, 11), w2.put(2, 22)), (Done, Done));
        let mut before = session(&db, "before");
        assert_eq!(before.get(2), Value(Some(20)));
        assert_eq!(w1.commit(), Done);
        let mut between = session(&db, "between");
        assert_eq!(between.get(2), Value(Some(20)));
        assert_eq!(w2.commit(), Done);
        let mut after = session(&db, "after");
        let seen = [&mut before, &mut between, &mut after].map(|t| (t.get(1), t.get(2)));
        let of = |one, two| (Value(Some(one)), Value(Some(two)));
        assert_eq!(seen, [of(10, 20), of(11, 20), of(11, 22)]);
    });
}

fn session(db: &Database, label: &'static str) -> Session {
    Session::at(Isolation::Snapshot, db, label)
}

/// Truncating and dropping a table hold up no snapshot, and none of their reads is wrong.
#[test]
fn a_table_that_was_emptied_or_dropped_since_is_refused() {
    over_components(|options| {
        let db = in_memory(options);
        for drops in [false, true] {
            db.run(|tx| tx.put(&ROWS, &1, b"one")).unwrap();
            let before = db.snapshot().unwrap();
            assert_eq!(before.get(&ROWS, &1).unwrap().as_deref(), Some(&b"one"[..]));
            match drops {
                false => db.truncate(&ROWS).unwrap(),
                true => db.drop_table("rows").unwrap(),
            }
            let refused = before.get(&ROWS, &1).unwrap_err().code();
            let expected = if drops {
                "table_dropped"
            } else {
                "younger_than_snapshot"
            };
            assert_eq!(refused, expected);
            assert_eq!(db.view(|now| now.get(&ROWS, &1)).unwrap(), None);
        }
    });
}

/// The database's own transactions read what they change, whatever the default level is.
#[test]
fn indexes_and_conversions_work_with_snapshots_as_the_default_level() {
    over_components(|options| {
        let mut options = options;
        options.isolation = Isolation::Snapshot;
        let db = Database::in_memory(options).unwrap();
        db.run(|tx| (0..50).try_for_each(|key| tx.put(&ACCOUNTS, &key, &(key as i64))))
            .unwrap();
        db.create_index(&BY_VALUE).unwrap();
        assert_eq!(db.run(|tx| tx.get_by(&BY_VALUE, &7)).unwrap(), Some((7, 7)));
        db.check_indexes().unwrap();
        assert!(db.drop_index("by value").unwrap());
        db.truncate(&ACCOUNTS).unwrap();
        assert_eq!(db.run(|tx| tx.get(&ACCOUNTS, &7)).unwrap(), None);
    });
}
