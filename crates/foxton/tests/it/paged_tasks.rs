//! Tasks on paged tables with sixteen frames: they yield for pages, and may be dropped wherever
//! they do.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

use foxton::{Database, LockWait, Options, Table, TableLock};
use foxton_log::device::memory::MemoryDevice;

use crate::common::paged::tiny_pages;

const PAGED: Table<u64, [u8]> = Table::new("paged").paged();
const RESIDENT: Table<u64, [u8]> = Table::new("resident").resident();

/// Wakes the thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Says that it was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Polls `future` each time it is woken, until it is ready or has been polled so many times.
fn poll_for<T>(future: impl Future<Output = T>, most: usize) -> Option<T> {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    for poll in 0..most {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return Some(result);
        }
        if poll + 1 < most {
            thread::park();
        }
    }
    None
}

fn filled() -> Database {
    let db = Database::in_memory(tiny_pages(Options::tiny(), 16)).unwrap();
    for first in (0..300).step_by(20) {
        db.run(|tx| {
            (first..first + 20).try_for_each(|key| {
                tx.put(&PAGED, &key, &[key as u8; 90])?;
                tx.put(&RESIDENT, &key, &[key as u8; 90])
            })
        })
        .unwrap();
    }
    db
}

/// A task that waits for the directory of trees finds, when it has the page, that another
/// transaction has opened the tree and locked the table.
#[test]
fn a_task_that_waited_for_pages_waits_for_a_lock_and_keeps_no_pages() {
    assert!((0..1000).any(|_| waits_for_a_page_and_a_lock()));
}

/// Returns false if the page came so fast that the task did not wait for it.
fn waits_for_a_page_and_a_lock() -> bool {
    let device = Arc::new(MemoryDevice::new());
    let options = tiny_pages(Options::tiny(), 16);
    let open = || Database::open_on(device.clone(), options.clone()).unwrap();
    let db = open();
    db.run(|tx| tx.put(&PAGED, &1, &[1])).unwrap();
    db.close().unwrap();
    let db = open();
    let mut task = db.begin_async().unwrap();
    let mut write = Box::pin(task.put(&PAGED, &1, &[2]));
    let woken = Arc::new(Woken::default());
    let waker = woken.clone().into();
    let mut context = Context::from_waker(&waker);
    if write.as_mut().poll(&mut context).is_ready() {
        return false;
    }
    let mut holder = db.begin().unwrap();
    holder
        .lock_table(&PAGED, TableLock::Exclusive, LockWait::Default)
        .unwrap();
    holder.put(&PAGED, &1, &[3]).unwrap();
    while !woken.0.load(Ordering::Acquire) {
        thread::yield_now();
    }
    assert!(write.as_mut().poll(&mut context).is_pending(), "a lock");
    holder.commit().unwrap();
    poll_for(write, 100).expect("it is woken").unwrap();
    poll_for(task.commit(), 100).expect("it is woken").unwrap();
    assert_eq!(db.run(|tx| tx.get(&PAGED, &1)).unwrap(), Some(vec![2]));
    true
}

/// Changes both tables in the same way, at keys far apart, so that pages are missing. Ends with a
/// commit or a rollback.
async fn transaction(
    db: &Database,
    round: u64,
    key_of: impl Fn(u64) -> u64,
    commits: bool,
) -> foxton::Result<()> {
    let mut tx = db.begin_async()?;
    for step in 0..14 {
        let key = key_of(step);
        let value = vec![round as u8; (round as usize * 13 + step as usize * 31) % 150];
        if step % 5 == 3 {
            tx.delete(&PAGED, &key).await?;
            tx.delete(&RESIDENT, &key).await?;
            continue;
        }
        let savepoint = tx.savepoint()?;
        tx.put(&PAGED, &key, &value).await?;
        tx.put(&RESIDENT, &key, &value).await?;
        if step % 5 == 4 {
            tx.rollback_to(&savepoint).await?;
        }
    }
    let own = key_of(1)..=key_of(1);
    let paged = tx.range(&PAGED, own.clone()).reversed().collect().await?;
    assert_eq!(paged, tx.range(&RESIDENT, own).collect().await?);
    match commits {
        true => tx.commit().await,
        false => {
            tx.rollback().await;
            Ok(())
        }
    }
}

fn check(db: &Database) {
    db.run(|tx| {
        let paged = tx.range(&PAGED, ..).collect()?;
        assert_eq!(paged, tx.range(&RESIDENT, ..).collect()?);
        Ok(())
    })
    .unwrap();
}

#[test]
fn tasks_may_be_dropped_at_every_await() {
    let db = filled();
    let mut longest = 0;
    for round in 0..100 {
        // Pages may come so fast that a task hardly ever yields.
        if round >= 4 && longest > 8 {
            break;
        }
        for commits in [true, false] {
            for polls in 1.. {
                let number = 100 * round + polls as u64;
                let key_of = |step| (number * 7 + step * 61) % 400;
                let ended = poll_for(transaction(&db, number, key_of, commits), polls);
                // Reads everything, so it waits until a dropped transaction has ended.
                check(&db);
                if let Some(ended) = ended {
                    ended.unwrap();
                    longest = longest.max(polls);
                    break;
                }
            }
        }
    }
    assert!(longest > 8, "they hardly ever yield: {longest} polls");
    assert!(db.locks().is_empty());
    db.verify();
}

#[test]
fn many_tasks_share_sixteen_frames() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let db = filled();
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let db = db.clone();
            runtime.spawn(async move {
                for round in 0..3 {
                    // No two tasks want one key, so they wait for pages alone.
                    let key_of = |step| 1000 * step + number;
                    let ended = transaction(&db, 7 * number + round, key_of, round != 1).await;
                    ended.unwrap();
                }
            })
        })
        .collect();
    tasks
        .into_iter()
        .for_each(|task| runtime.block_on(task).unwrap());
    check(&db);
    assert!(db.locks().is_empty());
    db.verify();
}
