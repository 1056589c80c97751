//! How transactions and databases begin and end, well and badly.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use foxton::{Database, Durability, Error, Lock, Options, Result, Table, VictimPolicy};

const NUMBERS: Table<u64, i64> = Table::new("numbers");

fn memory(change: impl FnOnce(&mut Options)) -> Database {
    let mut options = Options::tiny();
    options.durability = Durability::None;
    change(&mut options);
    let db = Database::in_memory(options).unwrap();
    db.run(|tx| (1..=3).try_for_each(|key| tx.put(&NUMBERS, &key, &10)))
        .unwrap();
    db
}

#[test]
fn a_panic_inside_run_rolls_back_and_comes_out() {
    let db = memory(|_| {});
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        db.run(|tx| {
            tx.put(&NUMBERS, &1, &99)?;
            tx.range(&NUMBERS, ..).for_each(|_, _| panic!("on purpose"))
        })
    }));
    assert!(panicked.is_err());
    assert!(db.locks().is_empty());
    assert_eq!(db.run(|tx| tx.get(&NUMBERS, &1)).unwrap(), Some(10));
    db.verify();
}

#[test]
fn an_error_of_the_callers_own_rolls_back_and_comes_out_once() {
    let db = memory(|_| {});
    let mut calls = 0;
    let refused = db.run(|tx| -> Result<()> {
        calls += 1;
        tx.put(&NUMBERS, &1, &99)?;
        Err(Error::other(std::io::Error::other("no")))
    });
    assert_eq!(
        (refused.unwrap_err().to_string(), calls),
        ("no".to_string(), 1)
    );
    assert_eq!(db.run(|tx| tx.get(&NUMBERS, &1)).unwrap(), Some(10));
}

#[test]
fn a_forgotten_transaction_keeps_its_locks_and_is_seen_by_its_label() {
    let db = memory(|options| options.lock_wait = Duration::from_millis(10));
    let mut tx = db.begin().unwrap();
    tx.set_label("forgetful");
    tx.put(&NUMBERS, &1, &11).unwrap();
    std::mem::forget(tx);
    let mut other = db.begin().unwrap();
    let late = other.get(&NUMBERS, &1).unwrap_err();
    assert_eq!(late.code(), "lock_timeout");
    assert!(late.to_string().contains("forgetful"), "{late}");
    assert_eq!(other.get(&NUMBERS, &2).unwrap(), Some(10));
    other.commit().unwrap();
    assert!(db.locks().iter().all(|lock| lock.label == "forgetful"));
}

#[test]
fn a_transaction_outlives_the_handles_and_moves_between_threads() {
    let db = memory(|_| {});
    let mut tx = db.begin().unwrap();
    tx.put(&NUMBERS, &1, &11).unwrap();
    drop(db);
    let tx = thread::spawn(move || {
        tx.put(&NUMBERS, &2, &22).unwrap();
        tx
    });
    let mut tx = tx.join().unwrap();
    assert_eq!(tx.get(&NUMBERS, &2).unwrap(), Some(22));
    tx.commit().unwrap();
}

#[test]
fn run_gives_up_after_so_many_attempts_with_the_last_conflict() {
    let db = memory(|options| {
        options.run_attempts = 3;
        options.lock_wait = Duration::from_millis(1);
    });
    let mut holder = db.begin().unwrap();
    holder.put(&NUMBERS, &1, &11).unwrap();
    let mut attempts = 0;
    let refused = db.run(|tx| {
        attempts += 1;
        let lock = match attempts {
            3 => Lock::Shared.nowait(),
            _ => Lock::Shared.into(),
        };
        tx.get_locked(&NUMBERS, &1, lock)
    });
    assert_eq!((refused.unwrap_err().code(), attempts), ("lock_busy", 3));
    assert_eq!(db.stats().reruns, 2);
}

/// Two that want each other's key; the second has not heard of errors.
#[test]
fn run_runs_again_even_if_the_closure_swallowed_the_deadlock() {
    let db = memory(|options| options.victim = VictimPolicy::Requester);
    let mut first = db.begin().unwrap();
    first.put(&NUMBERS, &1, &11).unwrap();
    let (said, heard) = mpsc::channel();
    thread::scope(|scope| {
        let second = scope.spawn({
            let db = &db;
            move || {
                let mut attempts = 0;
                db.run(|tx| {
                    attempts += 1;
                    tx.put(&NUMBERS, &2, &(20 + attempts))?;
                    said.send(()).unwrap();
                    if attempts == 1 {
                        // Wait until the first waits for us.
                        while db.waits().is_empty() {
                            thread::yield_now();
                        }
                    }
                    let _ = tx.put(&NUMBERS, &1, &(10 + attempts));
                    Ok(attempts)
                })
            }
        });
        heard.recv().unwrap();
        first.put(&NUMBERS, &2, &12).unwrap();
        first.commit().unwrap();
        assert_eq!(second.join().unwrap().unwrap(), 2);
    });
    let rows = db.run(|tx| tx.range(&NUMBERS, ..2 + 1).collect()).unwrap();
    assert_eq!(rows, [(1, 12), (2, 22)]);
    assert_eq!(db.stats().deadlocks, 1);
}

/// A small transaction in everlasting conflict with larger ones: it gives way, and then it does not.
#[test]
fn who_gave_way_comes_first_some_day() {
    let db = memory(|options| options.victim = VictimPolicy::LeastWork);
    let (ready, go) = mpsc::channel();
    let (said, heard) = mpsc::channel();
    let mut victims = Vec::new();
    thread::scope(|scope| {
        let small = scope.spawn({
            let db = &db;
            move || {
                let mut attempts = 0;
                db.run(|tx| {
                    attempts += 1;
                    go.recv().unwrap();
                    tx.put(&NUMBERS, &1, &attempts)?;
                    said.send(()).unwrap();
                    // What the large one holds.
                    tx.put(&NUMBERS, &2, &attempts)
                })
                .unwrap();
            }
        });
        loop {
            let mut large = db.begin().unwrap();
            (2..30).for_each(|key| large.put(&NUMBERS, &key, &0).unwrap());
            if ready.send(()).is_err() || heard.recv().is_err() {
                break;
            }
            // What the small one holds: a circle, whoever closes it.
            match large.put(&NUMBERS, &1, &0) {
                Ok(()) => victims.push("small"),
                Err(error) => {
                    assert_eq!(error.code(), "deadlock");
                    victims.push("large");
                }
            }
        }
        small.join().unwrap();
    });
    // 29 locks and the table's against one and the table's: doubled four times it is more.
    assert_eq!(victims, ["small", "small", "small", "small", "large"]);
}

#[test]
fn statistics_count_what_happened() {
    let db = memory(|_| {});
    let before = db.stats();
    db.run(|tx| tx.put(&NUMBERS, &9, &9)).unwrap();
    db.run(|tx| tx.get(&NUMBERS, &9)).unwrap();
    db.run(|tx| tx.delete(&NUMBERS, &9)).unwrap();
    db.begin().unwrap().rollback();
    let stats = db.stats();
    assert_eq!(stats.commits - before.commits, 2);
    assert_eq!(stats.read_only_commits - before.read_only_commits, 1);
    assert_eq!(stats.rollbacks - before.rollbacks, 1);
    assert_eq!(stats.ghosts_purged - before.ghosts_purged, 1);
    assert_eq!(
        (stats.tables[0].name.as_str(), stats.tables[0].keys),
        ("numbers", 3)
    );
    assert!(stats.locks.acquisitions > 0 && stats.log.records > 0);
}

#[test]
fn two_databases_in_one_process_share_nothing() {
    let (one, other) = (memory(|_| {}), memory(|_| {}));
    let mut tx = one.begin().unwrap();
    tx.put(&NUMBERS, &1, &11).unwrap();
    other.run(|tx| tx.put(&NUMBERS, &1, &12)).unwrap();
    assert!(other.locks().is_empty());
    tx.commit().unwrap();
}

#[test]
fn a_sync_interval_too_long_for_the_clock_is_no_interval() {
    let mut options = Options::tiny();
    options.durability = Durability::Buffered;
    options.sync_interval = Duration::MAX;
    let db = Database::in_memory(options).unwrap();
    for value in 0..3 {
        db.run(|tx| tx.put(&NUMBERS, &1, &value)).unwrap();
    }
    assert!(db.locks().is_empty());
}
