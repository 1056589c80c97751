//! Escalation: locks on whole tables in place of many keys protect the same reads and writes.

use foxton::error::ConflictReason;
use foxton::{Database, Durability, Error, Lock, LockManagerKind, Options, Table};
use std::thread;

const ROWS: Table<u64, i64> = Table::new("rows");

/// Transactions lock the table above eight keys.
fn database(manager: LockManagerKind) -> Database {
    database_with(manager, |options| options.lock_escalation = 8)
}

fn database_with(manager: LockManagerKind, change: impl FnOnce(&mut Options)) -> Database {
    let mut options = Options::tiny();
    options.durability = Durability::None;
    options.lock_manager = manager;
    change(&mut options);
    Database::in_memory(options).unwrap()
}

/// Returns keys that are not neighbours, so that each is a lock of its own.
fn key(number: u64) -> u64 {
    number << 16
}

fn is_busy<T>(asked: Result<T, Error>) -> bool {
    matches!(asked, Err(Error::Conflict(conflict)) if conflict.reason() == ConflictReason::Busy)
}

#[test]
fn a_large_write_locks_the_table_and_no_more_keys() {
    for manager in LockManagerKind::ALL {
        let db = database(manager);
        let mut tx = db.begin().unwrap();
        for number in 0..1000 {
            tx.insert(&ROWS, &key(number), &1).unwrap();
        }
        assert_eq!(db.stats().locks.escalations, 1);
        let shown = db.locks().len();
        assert!(shown < 20, "{shown} names are locked");
        let mut other = db.begin().unwrap();
        assert!(is_busy(other.get_locked(
            &ROWS,
            &key(5000),
            Lock::Shared.nowait()
        )));
        tx.commit().unwrap();
        assert_eq!(other.get(&ROWS, &key(999)).unwrap(), Some(1));
        other.commit().unwrap();
        assert!(db.locks().is_empty());
        db.verify();
    }
}

#[test]
fn a_large_read_keeps_phantoms_out_and_lets_others_read() {
    for manager in LockManagerKind::ALL {
        let db = database(manager);
        db.run(|tx| (0..100).try_for_each(|number| tx.put(&ROWS, &key(2 * number), &1)))
            .unwrap();
        let before = db.stats().locks.escalations;
        let mut tx = db.begin().unwrap();
        for number in 0..100 {
            assert_eq!(tx.get(&ROWS, &key(2 * number)).unwrap(), Some(1));
        }
        assert_eq!(tx.range(&ROWS, key(100)..).count().unwrap(), 50);
        assert_eq!(db.stats().locks.escalations, before + 1);
        assert!(db.locks().len() < 20);
        let mut other = db.begin().unwrap();
        assert_eq!(other.get(&ROWS, &key(2)).unwrap(), Some(1));
        assert!(is_busy(other.get_locked(
            &ROWS,
            &key(151),
            Lock::Update.nowait()
        )));
        other.rollback();
        // It can still write into the range it has read, and the gaps stay locked.
        tx.insert(&ROWS, &key(151), &2).unwrap();
        tx.delete(&ROWS, &key(150)).unwrap();
        assert_eq!(tx.range(&ROWS, key(100)..).count().unwrap(), 50);
        tx.commit().unwrap();
        assert!(db.locks().is_empty());
        db.verify();
    }
}

#[test]
fn a_scan_that_goes_on_for_long_gets_the_table_on_its_way() {
    for manager in LockManagerKind::ALL {
        let db = database(manager);
        db.run(|tx| (0..2000).try_for_each(|number| tx.put(&ROWS, &key(number), &1)))
            .unwrap();
        let before = db.stats().locks.escalations;
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.range(&ROWS, ..).count().unwrap(), 2000);
        assert_eq!(db.stats().locks.escalations, before + 1);
        let shown = db.locks().len();
        assert!(shown < 600, "{shown} names are locked");
        tx.commit().unwrap();
        assert!(db.locks().is_empty());
    }
}

#[test]
fn large_transactions_beside_small_ones_see_all_or_nothing_of_each_other() {
    for manager in LockManagerKind::ALL {
        let db = database(manager);
        let rows = 24;
        db.run(|tx| (0..rows).try_for_each(|number| tx.put(&ROWS, &key(number), &100)))
            .unwrap();
        let total = |db: &Database| {
            db.run(|tx| {
                let found: Vec<(u64, i64)> = tx.range(&ROWS, ..).collect()?;
                Ok(found.iter().map(|row| row.1).sum::<i64>())
            })
            .unwrap()
        };
        thread::scope(|scope| {
            for thread in 0..8u64 {
                let (db, total) = (&db, &total);
                scope.spawn(move || {
                    for round in 0..60u64 {
                        let from = key((thread * 7 + round) % rows);
                        match round % 4 {
                            0 => assert_eq!(total(db), 100 * rows as i64),
                            // Reads all rows one by one, or inserts and deletes a row.
                            1 => db
                                .run(|tx| {
                                    let guest = from + 1;
                                    tx.put(&ROWS, &guest, &5)?;
                                    for number in 0..rows {
                                        let row = tx.get_for_update(&ROWS, &key(number))?;
                                        tx.put(&ROWS, &key(number), &row.unwrap_or(0))?;
                                    }
                                    tx.delete(&ROWS, &guest)?;
                                    Ok(())
                                })
                                .unwrap(),
                            _ => db
                                .run(|tx| {
                                    let to = key((thread + 3 * round) % rows);
                                    let row = tx.get_for_update(&ROWS, &from)?.unwrap_or(0);
                                    tx.put(&ROWS, &from, &(row - 1))?;
                                    let row = tx.get_for_update(&ROWS, &to)?.unwrap_or(0);
                                    tx.put(&ROWS, &to, &(row + 1))
                                })
                                .unwrap(),
                        };
                    }
                });
            }
        });
        assert_eq!(total(&db), 100 * rows as i64);
        assert!(db.stats().locks.escalations > 0);
        assert!(db.locks().is_empty());
        db.verify();
    }
}

/// Bytes that a queued lock counts.
const LOCK_BYTES: usize = 96;
const OTHERS: Table<u64, i64> = Table::new("others");

#[test]
fn with_little_memory_the_table_with_most_keys_is_locked() {
    for manager in LockManagerKind::ALL {
        let db = database_with(manager, |options| {
            (options.lock_escalation, options.transaction_lock_bytes) = (0, 50 * LOCK_BYTES);
        });
        let mut tx = db.begin().unwrap();
        for number in 0..10 {
            tx.insert(&OTHERS, &key(number), &1).unwrap();
        }
        for number in 0..200 {
            tx.insert(&ROWS, &key(number), &1).unwrap();
        }
        let locks = db.stats().locks;
        assert!(locks.escalations >= 1 && locks.traded >= 30, "{manager}");
        assert!(db.locks().len() < 80, "{manager}: {}", db.locks().len());
        let mut other = db.begin().unwrap();
        let shared = Lock::Shared.nowait();
        assert!(is_busy(other.get_locked(&ROWS, &key(0), shared)));
        assert!(is_busy(other.get_locked(&OTHERS, &key(0), shared)));
        other.rollback();
        tx.commit().unwrap();
        let mut other = db.begin().unwrap();
        assert_eq!(other.range(&ROWS, ..).count().unwrap(), 200);
        other.commit().unwrap();
        assert!(db.locks().is_empty(), "{manager}");
        db.verify();
    }
}

#[test]
fn a_lock_beyond_the_limit_is_refused_and_the_rest_can_commit() {
    for manager in LockManagerKind::ALL {
        let db = database_with(manager, |options| {
            (options.lock_escalation, options.lock_bytes) = (0, 100 * LOCK_BYTES);
        });
        db.run(|tx| tx.put(&ROWS, &7, &1)).unwrap();
        db.run(|tx| tx.delete(&ROWS, &7).map(drop)).unwrap();
        let mut reader = db.begin().unwrap();
        reader.set_label("reader");
        assert_eq!(reader.get(&ROWS, &7).unwrap(), None);
        let mut tx = db.begin().unwrap();
        let mut done = 0;
        let error = loop {
            match tx.put(&ROWS, &key(1 + done), &1) {
                Ok(()) => done += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), "lock_room", "{manager}: {error}");
        assert!((50..200).contains(&done), "{manager}: {done}");
        let Error::Conflict(conflict) = &error else {
            unreachable!("it has the code of one");
        };
        let blockers = &conflict.refusal().unwrap().blockers;
        let is_named = blockers.iter().any(|blocker| blocker.label == "reader");
        assert!(is_named, "{manager}: {error}");
        assert_eq!(conflict.table(), Some("rows"), "{manager}");
        // Refused until the reader has ended; then its locks free the memory.
        assert_eq!(
            tx.put(&ROWS, &key(1 + done), &1).unwrap_err().code(),
            "lock_room"
        );
        reader.commit().unwrap();
        for number in 0..100 {
            tx.put(&ROWS, &key(1 + done + number), &1).unwrap();
        }
        tx.commit().unwrap();
        let mut after = db.begin().unwrap();
        assert_eq!(after.range(&ROWS, ..).count().unwrap(), done + 100);
        after.commit().unwrap();
        assert!(db.locks().is_empty(), "{manager}");
        db.verify();
    }
}
