//! Admission: few running transactions, many that want to run.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use foxton::device::MemoryDevice;
use foxton::{AsyncTransaction, Database, Durability, Options, Table};

const NUMBERS: Table<u32, u64> = Table::new("numbers");

fn database(admission: &str, durability: Durability) -> Database {
    let mut options = Options::default();
    options.admission = admission.parse().unwrap();
    options.durability = durability;
    Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap()
}

/// Adds one to one of three numbers, fifty times.
fn add_fifty(db: &Database) {
    for round in 0..50 {
        db.run(|tx| {
            let key = round % 3;
            let was = tx.get_for_update(&NUMBERS, &key)?.unwrap_or(0);
            tx.put(&NUMBERS, &key, &(was + 1))
        })
        .unwrap();
    }
}

#[test]
fn sixty_four_clients_at_two_seats_lose_nothing() {
    let of_each = [
        ("2", Durability::None),
        ("2", Durability::Sync),
        ("adaptive", Durability::None),
    ];
    for (admission, durability) in of_each {
        let db = database(admission, durability);
        thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| add_fifty(&db));
            }
        });
        let mut tx = db.begin().unwrap();
        let mut sum = 0;
        tx.range(&NUMBERS, ..)
            .for_each(|_, count| sum += count)
            .unwrap();
        assert_eq!(sum, 64 * 50);
        tx.commit().unwrap();
        db.verify();
    }
}

#[test]
fn a_thread_with_several_transactions_open_is_not_shut_out_by_itself() {
    let db = database("1", Durability::None);
    let open: Vec<_> = (0..3u32)
        .map(|key| {
            let mut tx = db.begin().unwrap();
            tx.put(&NUMBERS, &key, &1).unwrap();
            tx
        })
        .collect();
    for tx in open {
        tx.commit().unwrap();
    }
    db.run(|tx| tx.put(&NUMBERS, &9, &1)).unwrap();
    let mut tx = db.begin().unwrap();
    assert_eq!(tx.range(&NUMBERS, ..).count().unwrap(), 4);
    // A dropped, refused or rolled back transaction frees its slot.
    drop(tx);
    db.begin().unwrap().rollback();
    db.run(|tx| tx.put(&NUMBERS, &9, &2)).unwrap();
}

#[test]
fn a_waiter_continues_when_an_uncounted_transaction_releases_the_row() {
    let db = database("1", Durability::None);
    let mut holder = db.begin().unwrap();
    holder.put(&NUMBERS, &1, &1).unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| db.run(|tx| tx.put(&NUMBERS, &1, &2))))
            .collect();
        while db.waits().is_empty() {
            thread::yield_now();
        }
        holder.commit().unwrap();
        waiters
            .into_iter()
            .for_each(|waiter| waiter.join().unwrap().unwrap());
    });
}

/// Polls once a write of `key`; true if it is done.
fn writes(tx: &mut AsyncTransaction, key: u32) -> bool {
    let write = pin!(tx.put(&NUMBERS, &key, &1));
    write
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

#[test]
fn the_first_operation_of_a_task_waits_for_a_slot_and_later_ones_do_not() {
    let db = database("1", Durability::None);
    let [mut holder, mut other] = [(); 2].map(|()| db.begin_async().unwrap());
    assert!(writes(&mut holder, 1) && writes(&mut holder, 2));
    // It holds no lock, and wants none that another holds.
    assert!(!writes(&mut other, 3));
    assert!(db.waits().is_empty());
    assert!(writes(&mut holder, 4));
    drop(holder);
    // The operation that was dropped left the queue, so the slot is free.
    assert!(writes(&mut other, 3));
    // A transaction of a session passes by.
    let mut session = db.session().unwrap();
    assert!(writes(&mut session.begin_async().unwrap(), 5));
}

#[test]
fn a_waiting_operation_that_is_forgotten_keeps_no_slot() {
    let db = database("1", Durability::None);
    let [mut holder, mut other, mut third] = [(); 3].map(|()| db.begin_async().unwrap());
    assert!(writes(&mut holder, 1));
    {
        let mut write = Box::pin(other.put(&NUMBERS, &3, &1));
        let context = &mut Context::from_waker(Waker::noop());
        assert!(write.as_mut().poll(context).is_pending());
        std::mem::forget(write);
    }
    drop(other);
    drop(holder);
    assert!(writes(&mut third, 3));
}

#[test]
fn a_task_and_a_thread_wait_for_the_same_slot() {
    let db = database("1", Durability::None);
    let holder = db.begin().unwrap();
    let mut task = db.begin_async().unwrap();
    assert!(!writes(&mut task, 1));
    holder.commit().unwrap();
    assert!(writes(&mut task, 1));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| db.run(|tx| tx.put(&NUMBERS, &2, &1)));
        // It gets the slot, or none after ten looks.
        drop(task);
        waiting.join().unwrap().unwrap();
    });
}

/// Tasks of one thread, each of which has a transaction open that another waits for.
#[test]
fn tasks_that_keep_their_transactions_open_do_not_shut_out_others() {
    let db = database("1", Durability::None);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut open = Vec::new();
        for key in 0..5 {
            let mut tx = db.begin_async().unwrap();
            tx.put(&NUMBERS, &key, &1).await.unwrap();
            open.push(tx);
        }
        for tx in open {
            tx.commit().await.unwrap();
        }
    });
    let tx = &mut db.begin().unwrap();
    assert_eq!(tx.range(&NUMBERS, ..).count().unwrap(), 5);
}

#[test]
fn many_tasks_and_threads_at_two_slots_lose_nothing() {
    let of_each = [
        ("2", Durability::None),
        ("2", Durability::Sync),
        ("adaptive", Durability::None),
    ];
    for (admission, durability) in of_each {
        let db = database(admission, durability);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let add = |db: Database, key: u32| async move {
            db.run_async(|mut tx| async move {
                let was = tx.get_for_update(&NUMBERS, &key).await?.unwrap_or(0);
                tokio::task::yield_now().await;
                tx.put(&NUMBERS, &key, &(was + 1)).await?;
                tx.commit().await
            })
            .await
        };
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let db = db.clone();
                runtime.spawn(async move {
                    for round in 0..10 {
                        // One in four is dropped after its first poll, or was done by then.
                        let mut added = Box::pin(add(db.clone(), 10 + round % 3));
                        if round % 4 == 3 {
                            let poll = std::future::poll_fn(|context| {
                                Poll::Ready(added.as_mut().poll(context))
                            });
                            let _ = poll.await;
                        }
                        drop(added);
                        add(db.clone(), round % 3).await.unwrap();
                    }
                })
            })
            .collect();
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| add_fifty(&db));
            }
        });
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        let mut tx = db.begin().unwrap();
        let mut sum = 0;
        tx.range(&NUMBERS, ..10)
            .for_each(|_, count| sum += count)
            .unwrap();
        assert_eq!(sum, 200 * 10 + 16 * 50);
        tx.commit().unwrap();
        db.verify();
    }
}
