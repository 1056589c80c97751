//! Lifecycle: how transactions and databases begin and end, normally and abnormally.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use foxton::{Database, Durability, Error, Lock, Options, Result, Table, VictimPolicy};
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};

const NUMBERS: Table<u64, i64> = Table::new("numbers");

fn memory(change: impl FnOnce(&mut Options)) -> Database {
    let mut options = Options::tiny();
    options.durability = Durability::None;
    change(&mut options);
    let db = Database::open_on(Arc::new(FaultDevice::new()), options).unwrap();
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

/// Each attempt meets a transaction that has the one key and requests the other.
#[test]
fn run_returns_the_last_deadlock_after_the_maximum_number() {
    let db = memory(|options| {
        options.run_attempts = 3;
        options.victim = VictimPolicy::Requester;
    });
    let mut attempts = 0;
    let refused = db.run(|tx| {
        attempts += 1;
        tx.put(&NUMBERS, &2, &(20 + attempts))?;
        let mut other = db.begin()?;
        other.put(&NUMBERS, &1, &11)?;
        thread::scope(|scope| {
            let waiting = scope.spawn(move || other.put(&NUMBERS, &2, &12).map(|()| other));
            while db.waits().is_empty() {
                thread::yield_now();
            }
            let refused = tx.put(&NUMBERS, &1, &10);
            waiting.join().unwrap().unwrap().rollback();
            refused
        })
    });
    assert_eq!((refused.unwrap_err().code(), attempts), ("deadlock", 3));
    assert_eq!((db.stats().reruns, db.stats().deadlocks), (2, 3));
    assert!(db.locks().is_empty());
}

/// As a thread and as a task: `run` returns the refusal to its caller.
#[test]
fn run_returns_a_refused_lock_at_once() {
    let db = memory(|options| options.lock_wait = Duration::from_millis(1));
    let mut holder = db.begin().unwrap();
    holder.put(&NUMBERS, &1, &11).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for (lock, code) in [
        (Lock::Shared.nowait(), "lock_busy"),
        (Lock::Shared.into(), "lock_timeout"),
        (Lock::Update.timeout(Duration::ZERO), "lock_timeout"),
    ] {
        let mut attempts = 0;
        let refused = db.run(|tx| {
            attempts += 1;
            tx.get_locked(&NUMBERS, &1, lock)
        });
        let refused = refused.unwrap_err();
        assert_eq!((refused.code(), attempts), (code, 1));
        assert!(refused.is_retryable(), "but not by `run`");
        let mut attempts = 0;
        let refused = runtime.block_on(db.run_async(|mut tx| {
            attempts += 1;
            async move { tx.get_locked(&NUMBERS, &1, lock).await }
        }));
        assert_eq!((refused.unwrap_err().code(), attempts), (code, 1));
    }
    assert_eq!(db.stats().reruns, 0);
    assert!(db.waits().is_empty());
}

/// Two transactions that want each other's key; the closure of the second ignores errors.
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
                        // Wait until the first waits for this one.
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

/// A small transaction conflicts again and again with larger ones: at first it is the victim, later
/// it is not.
#[test]
fn a_repeated_victim_wins_in_the_end() {
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
                    // The key of the large transaction.
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
            // The key of the small transaction: the cycle is closed by either.
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
    // Weights: 29 locks and the table's, against one and the table's. Doubled four times, the
    // latter is larger.
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
    let db = Database::open_on(Arc::new(FaultDevice::new()), options).unwrap();
    for value in 0..3 {
        db.run(|tx| tx.put(&NUMBERS, &1, &value)).unwrap();
    }
    assert!(db.locks().is_empty());
}

/// A database that never syncs by itself, and its device.
fn lazy(durability: Durability) -> (FaultDevice, Database) {
    let device = FaultDevice::new();
    let mut options = Options::tiny();
    (options.durability, options.sync_interval) = (durability, Duration::MAX);
    let db = Database::open_on(Arc::new(device.clone()), options).unwrap();
    (device, db)
}

/// Calls `sync` as a task or as a thread.
fn sync(db: &Database, as_task: bool) -> Result<()> {
    if !as_task {
        return db.sync();
    }
    fn of_any_thread<T>(task: impl Future<Output = T> + Send) -> impl Future<Output = T> + Send {
        task
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(of_any_thread(db.sync_async()))
}

#[test]
fn commits_before_a_sync_survive_every_power_failure() {
    for durability in [Durability::None, Durability::Buffered] {
        for as_task in [false, true] {
            let (device, db) = lazy(durability);
            let keys_after_a_power_cut = |damage, seed| {
                let image = device.crash(damage, seed);
                let db = Database::open_on(Arc::new(image), Options::tiny()).unwrap();
                db.run(|tx| tx.range(&NUMBERS, ..).count()).unwrap()
            };
            for done in 1..=3 {
                let keys = 10 * done - 10..10 * done;
                for key in keys {
                    db.run(|tx| tx.put(&NUMBERS, &key, &1)).unwrap();
                }
                let before = keys_after_a_power_cut(Damage::DropAll, 0);
                assert!(before < 10 * done, "nothing was left to sync");
                sync(&db, as_task).unwrap();
                for damage in Damage::ALL {
                    if damage.harms_durable() {
                        continue;
                    }
                    let kept = keys_after_a_power_cut(damage, done);
                    assert_eq!(kept, 10 * done, "{durability:?}, {damage}");
                }
            }
            let syncs = device.calls(Call::Sync);
            sync(&db, as_task).unwrap();
            assert_eq!(device.calls(Call::Sync), syncs, "all was durable");
        }
    }
}

#[test]
fn a_failed_sync_is_reported_and_final() {
    for as_task in [false, true] {
        let (device, db) = lazy(Durability::None);
        db.run(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
        sync(&db, as_task).unwrap();
        db.run(|tx| tx.put(&NUMBERS, &2, &1)).unwrap();
        device.fail(Call::Sync, 1, Times::Once, io::ErrorKind::Other);
        let told = |refused: Result<()>| {
            let refused = refused.unwrap_err();
            assert_eq!(refused.code(), "poisoned", "{refused}");
            assert!(refused.to_string().contains("sync"), "{refused}");
        };
        told(sync(&db, as_task));
        // The device works again, but which data is durable stays unknown.
        device.heal();
        told(sync(&db, as_task));
        told(sync(&db, !as_task));
        told(db.run(|tx| tx.put(&NUMBERS, &3, &1)));
        drop(db);
        let image = device.crash(Damage::DropAll, 0);
        let db = Database::open_on(Arc::new(image), Options::tiny()).unwrap();
        assert_eq!(db.run(|tx| tx.get(&NUMBERS, &1)).unwrap(), Some(1));
    }
}
