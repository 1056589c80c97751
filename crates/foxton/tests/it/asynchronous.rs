//! Tasks: many on few threads, with futures dropped at any moment.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use foxton::{Database, Durability, Index, Lock, Options, Table};
use foxton_log::device::fault::FaultDevice;
use foxton_log::device::memory::MemoryDevice;

const ACCOUNTS: Table<u64, i64> = Table::new("accounts");

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap()
}

fn memory(durability: Durability) -> Database {
    let mut options = Options::tiny();
    options.durability = durability;
    let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
    db.run(|tx| (0..100).try_for_each(|key| tx.put(&ACCOUNTS, &key, &100)))
        .unwrap();
    db
}

fn total(db: &Database) -> i64 {
    let mut total = 0;
    let sum = |tx: &mut foxton::Transaction| {
        total = 0;
        tx.range(&ACCOUNTS, ..)
            .for_each(|_, balance| total += balance)
    };
    db.run(sum).unwrap();
    total
}

#[test]
fn many_tasks_on_two_threads_keep_the_sum() {
    for durability in Durability::ALL {
        let db = memory(durability);
        runtime().block_on(async {
            let tasks: Vec<_> = (0..400u64)
                .map(|number| {
                    let db = db.clone();
                    tokio::spawn(async move {
                        let (from, to) = (number % 100, (number * 7 + 3) % 100);
                        db.run_async(|mut tx| async move {
                            let balance = tx.get_for_update(&ACCOUNTS, &from).await?.unwrap();
                            tx.put(&ACCOUNTS, &from, &(balance - 1)).await?;
                            tokio::task::yield_now().await;
                            let balance = tx.get_for_update(&ACCOUNTS, &to).await?.unwrap();
                            tx.put(&ACCOUNTS, &to, &(balance + 1)).await?;
                            tx.commit().await
                        })
                        .await
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap().unwrap();
            }
        });
        assert_eq!(total(&db), 10_000);
        assert!(db.locks().is_empty());
    }
}

#[test]
fn tasks_that_are_aborted_anywhere_leave_no_locks_and_no_half_transactions() {
    let db = memory(Durability::Sync);
    runtime().block_on(async {
        for round in 0..20u64 {
            let tasks: Vec<_> = (0..30u64)
                .map(|number| {
                    let db = db.clone();
                    tokio::spawn(async move {
                        let mut tx = db.begin_async()?;
                        for key in [number % 5, 10 + number % 7] {
                            let amount = if key < 10 { -1 } else { 1 };
                            let balance = tx.get_for_update(&ACCOUNTS, &key).await?.unwrap();
                            tx.put(&ACCOUNTS, &key, &(balance + amount)).await?;
                        }
                        tx.commit().await
                    })
                })
                .collect();
            tokio::time::sleep(Duration::from_micros(round * 50)).await;
            for (index, task) in tasks.into_iter().enumerate() {
                if index % 3 > 0 {
                    task.abort();
                }
                let _ = task.await;
            }
        }
    });
    // Another thread finishes a commit whose future was dropped.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !db.locks().is_empty() {
        assert!(
            Instant::now() < deadline,
            "locks are left: {:?}",
            db.locks()
        );
        std::thread::yield_now();
    }
    assert_eq!(total(&db), 10_000);
    db.verify();
}

#[test]
fn a_task_waits_for_a_lock_no_longer_than_it_said() {
    let db = memory(Durability::None);
    let mut holder = db.begin().unwrap();
    holder.put(&ACCOUNTS, &1, &0).unwrap();
    runtime().block_on(async {
        let mut tx = db.begin_async().unwrap();
        let brief = Lock::Shared.timeout(Duration::from_millis(30));
        let begun = Instant::now();
        let error = tx.get_locked(&ACCOUNTS, &1, brief).await.unwrap_err();
        assert_eq!(error.code(), "lock_timeout");
        assert!(begun.elapsed() >= Duration::from_millis(30));
        // The transaction goes on.
        assert_eq!(tx.get(&ACCOUNTS, &2).await.unwrap(), Some(100));
        tx.commit().await.unwrap();
    });
}

#[test]
fn a_commit_whose_future_is_dropped_happens_if_it_had_begun() {
    let device = FaultDevice::holding(&MemoryDevice::new());
    device.slow_sync(Duration::from_millis(20));
    let db = Database::open_on(Arc::new(device), Options::tiny()).unwrap();
    db.run(|tx| tx.put(&ACCOUNTS, &1, &1)).unwrap();
    for (polls, expected) in [(0, 1), (1, 2)] {
        let mut tx = db.begin_async().unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let put = tx.put(&ACCOUNTS, &1, &2);
        assert!(matches!(pin!(put).poll(&mut context), Poll::Ready(Ok(()))));
        let mut commit = Box::pin(tx.commit());
        for _ in 0..polls {
            assert!(
                commit.as_mut().poll(&mut context).is_pending(),
                "the device is slow"
            );
        }
        drop(commit);
        // This waits for the lock, and so for the commit.
        assert_eq!(db.run(|tx| tx.get(&ACCOUNTS, &1)).unwrap(), Some(expected));
    }
    assert!(db.locks().is_empty());
}

/// Makes an insert wait for the gap before 100, which `scanner` holds, and forgets its future.
fn forget_an_insert(scanner: &mut foxton::Transaction, tx: &mut foxton::AsyncTransaction) {
    assert_eq!(scanner.range(&SPARSE, 91..99).count().unwrap(), 0);
    let mut insert = Box::pin(tx.insert(&SPARSE, &95, &0));
    let mut context = Context::from_waker(Waker::noop());
    assert!(insert.as_mut().poll(&mut context).is_pending());
    std::mem::forget(insert);
}

/// A table of every tenth number.
const SPARSE: Table<u64, i64> = Table::new("sparse");

fn sparse() -> Database {
    let db = memory(Durability::Sync);
    db.run(|tx| (0..20).try_for_each(|key| tx.put(&SPARSE, &(10 * key), &1)))
        .unwrap();
    db
}

#[test]
fn an_operation_that_is_forgotten_takes_no_lock_from_the_next_transaction() {
    let db = sparse();
    let mut scanner = db.begin().unwrap();
    let mut tx = db.begin_async().unwrap();
    forget_an_insert(&mut scanner, &mut tx);
    drop(tx);
    drop(scanner);
    let mut expected = 2;
    // One of these reuses the worker of the dropped transaction.
    let mut next: Vec<_> = (0..2).map(|_| db.begin().unwrap()).collect();
    for (number, tx) in next.iter_mut().enumerate() {
        assert_eq!(tx.get(&SPARSE, &100).unwrap(), Some(1));
        tx.insert(&SPARSE, &(141 + 20 * number as u64), &1).unwrap();
    }
    for reader in next {
        let mut writer = db.begin().unwrap();
        let refused = writer.get_locked(&SPARSE, &100, Lock::Exclusive.nowait());
        assert_eq!(refused.unwrap_err().code(), "lock_busy");
        let locks = db.locks();
        let readers = locks.iter().filter(|lock| lock.mode.to_string() == "S");
        assert_eq!(readers.count(), expected, "{locks:?}");
        expected -= 1;
        drop(reader);
    }
}

#[test]
fn after_an_operation_that_is_forgotten_the_transaction_goes_on() {
    let db = sparse();
    let mut scanner = db.begin().unwrap();
    runtime().block_on(async {
        let mut tx = db.begin_async().unwrap();
        forget_an_insert(&mut scanner, &mut tx);
        tx.put(&SPARSE, &10, &2).await.unwrap();
        forget_an_insert(&mut scanner, &mut tx);
        tx.commit().await.unwrap();
    });
    drop(scanner);
    assert!(db.locks().is_empty());
    let read = db.run(|tx| Ok((tx.get(&SPARSE, &10)?, tx.get(&SPARSE, &95)?)));
    assert_eq!(read.unwrap(), (Some(2), None));
    db.verify();
}

#[test]
fn a_waker_that_panics_does_not_stop_the_time_of_other_tasks() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }
    let db = memory(Durability::None);
    let mut holder = db.begin().unwrap();
    holder.put(&ACCOUNTS, &1, &0).unwrap();
    // Longer than the task needs to begin its wait on a busy machine.
    let brief = Lock::Shared.timeout(Duration::from_secs(1));
    let mut tx = db.begin_async().unwrap();
    let mut get = Box::pin(tx.get_locked(&ACCOUNTS, &1, brief));
    let waker = Waker::from(Arc::new(Panics));
    assert!(
        get.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    std::thread::sleep(Duration::from_millis(1_100));
    runtime().block_on(async {
        let mut other = db.begin_async().unwrap();
        let timed = other.get_locked(&ACCOUNTS, &1, brief);
        let timed = tokio::time::timeout(Duration::from_secs(60), timed).await;
        assert_eq!(
            timed.expect("the keeper is there").unwrap_err().code(),
            "lock_timeout"
        );
    });
}

#[test]
fn futures_can_be_sent() {
    fn assert_send(_: &impl Send) {}
    let db = memory(Durability::None);
    let mut tx = db.begin_async().unwrap();
    assert_send(&tx.get(&ACCOUNTS, &1));
    assert_send(&tx.put(&ACCOUNTS, &1, &1));
    assert_send(&tx.range(&ACCOUNTS, ..).collect());
    assert_send(&tx.commit());
}

const BY_HUNDREDS: Index<u64, u64, i64> =
    Index::new("sparse_by_hundreds", &SPARSE, |key, _, keys| {
        keys.add(&(key / 100));
    });

#[test]
fn a_task_gets_first_count_and_commit_position() {
    let db = sparse();
    db.create_index(&BY_HUNDREDS).unwrap();
    let places = runtime().block_on(async {
        let mut tx = db.begin_async().unwrap();
        assert_eq!(
            tx.range(&SPARSE, 15..).first().await.unwrap(),
            Some((20, 1))
        );
        let last = tx.range(&SPARSE, ..).reversed().first().await.unwrap();
        assert_eq!(last, Some((190, 1)));
        assert_eq!(tx.range(&SPARSE, 191..).first().await.unwrap(), None);
        assert_eq!(tx.range(&SPARSE, 50..=90).count().await.unwrap(), 5);
        assert_eq!(tx.range(&SPARSE, ..).limit(3).count().await.unwrap(), 3);
        let first = tx.range_by(&BY_HUNDREDS, 1..).first().await.unwrap();
        assert_eq!(first, Some((1, 100, 1)));
        assert_eq!(tx.all_by(&BY_HUNDREDS, &0).count().await.unwrap(), 10);
        let read = tx.commit_at().await.unwrap();
        let mut tx = db.begin_async().unwrap();
        tx.put(&SPARSE, &1, &1).await.unwrap();
        let wrote = tx.commit_at().await.unwrap();
        assert_eq!(wrote, db.log_end(), "its record is the last");
        let mut tx = db.begin_async().unwrap();
        assert_eq!(tx.get(&SPARSE, &1).await.unwrap(), Some(1));
        [read, wrote, tx.commit_at().await.unwrap()]
    });
    assert!(
        places[0] < places[1] && places[1] <= places[2],
        "{places:?}"
    );
}
