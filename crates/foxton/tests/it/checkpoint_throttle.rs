//! Writers that are faster than checkpoints: how far the log grows, and which commits wait.

use std::future::Future;
use std::io;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use crate::common::gate::{Gate, Opener};
use foxton::device::MemoryDevice;
use foxton::{Admission, Database, Durability, Options, Table};
use foxton_log::device::fault::FaultDevice;

const ROWS: Table<u64, [u8]> = Table::new("rows");

/// Bytes of a row.
const ROW: usize = 500;
/// Bytes of log between checkpoints.
const EVERY: u64 = 256 << 10;

const ONE_SLOT: Admission = Admission::Fixed(NonZeroU32::MIN);

fn options() -> Options {
    let mut options = Options::tiny();
    options.checkpoint_log_bytes = EVERY;
    options.durability = Durability::Buffered;
    options
}

fn put(db: &Database, key: u64) {
    db.run(|tx| tx.put(&ROWS, &key, &[key as u8; ROW])).unwrap();
}

/// A device on which a checkpoint is slow compared with the writers.
fn slow() -> Gate {
    Gate::slow(Duration::from_millis(30))
}

/// Returns the bytes of log since the last checkpoint, at least.
fn ahead(db: &Database) -> u64 {
    let end = db.log_end().bytes();
    end - db.checkpoints().checkpoint_lsn.bytes().min(end)
}

/// Maximum log: a checkpoint begins at `EVERY`, or half as much again after another one, and
/// meanwhile half of `EVERY` and the whole of it are allowed. Three and a half times `EVERY` is
/// more than that.
const BOUND: u64 = EVERY * 7 / 2;

/// More may be written before the checkpoint thread runs. If no commit waited, each checkpoint
/// would have several times as much log to read as the previous one, which soon exceeds this.
const GROWN: u64 = EVERY * 16;

#[test]
fn the_log_grows_no_faster_than_checkpoints() {
    const WRITERS: u64 = 16;
    let db = Database::open_on(Arc::new(slow()), options()).unwrap();
    let is_over = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || {
                for round in 0.. {
                    put(db, writer * 1_000 + round % 100);
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let mut most = 0;
        while db.checkpoints().made < 6 && most < GROWN {
            most = most.max(ahead(&db));
            thread::sleep(Duration::from_millis(1));
        }
        // The next automatic checkpoint is always due when one is done, and yet a requested one is
        // made.
        db.checkpoint().unwrap();
        is_over.store(true, Ordering::Relaxed);
        most
    });
    let stats = db.checkpoints();
    assert_eq!(stats.failed, 0, "{stats:?}");
    assert!(
        stats.throttled > 0,
        "a faster device shows nothing: {stats:?}"
    );
    assert!(!stats.throttled_for.is_zero());
    assert!(most < GROWN, "{most} of {GROWN}: {stats:?}");
}

#[test]
fn tasks_wait_without_a_thread_each() {
    const WRITERS: u64 = 50;
    const WRITES: u64 = 100;
    let db = Database::open_on(Arc::new(slow()), options()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let most = runtime.unwrap().block_on(async {
        let tasks = (0..WRITERS).map(|writer| {
            let db = db.clone();
            tokio::spawn(async move {
                let mut most = 0;
                for round in 0..WRITES {
                    let mut tx = db.begin_async().unwrap();
                    let row = [round as u8; ROW];
                    tx.put(&ROWS, &(writer * 1_000 + round), &row)
                        .await
                        .unwrap();
                    tx.commit().await.unwrap();
                    most = most.max(ahead(&db));
                }
                most
            })
        });
        let mut most = 0;
        for task in tasks.collect::<Vec<_>>() {
            most = most.max(task.await.unwrap());
        }
        most
    });
    let stats = db.checkpoints();
    assert!(stats.throttled > 0 && stats.failed == 0, "{stats:?}");
    assert!(most < GROWN, "{most} of {GROWN}: {stats:?}");
    let count = db.run(|tx| tx.range(&ROWS, ..).count()).unwrap();
    assert_eq!(count, WRITERS * WRITES);
}

/// Returns a database whose checkpoint is blocked and whose log is at its limit, the opener of the
/// checkpoint, and the first unused key.
fn shut(admission: Admission) -> (Database, Opener, u64) {
    let (device, opener) = Gate::shut();
    let mut options = options();
    options.admission = admission;
    let db = Database::open_on(Arc::new(device), options).unwrap();
    let stands = || db.checkpoints().progress.is_some_and(|(done, _)| done > 0);
    let mut key = 0;
    while !stands() {
        put(&db, key);
        key += 1;
        // A checkpoint is due; the log stays below the limit that applies while it is made.
        if ahead(&db) > EVERY + ROW as u64 {
            while !stands() {
                thread::yield_now();
            }
        }
    }
    (db, opener, key)
}

/// Writes until it has to wait, on a thread of its own; returns the next key.
fn writer(db: &Database, from: u64, is_over: &AtomicBool) -> u64 {
    let mut key = from;
    while !is_over.load(Ordering::Relaxed) {
        put(db, key);
        key += 1;
    }
    key
}

/// Waits until the checkpoint is blocked and a commit waits for it, and returns the bytes of log.
fn wait_until_blocked(db: &Database) -> u64 {
    loop {
        let stood = (db.checkpoints().throttled, ahead(db));
        thread::sleep(Duration::from_millis(50));
        if stood.0 > 0 && stood == (db.checkpoints().throttled, ahead(db)) {
            return stood.1;
        }
    }
}

#[test]
fn a_waiting_commit_holds_neither_locks_nor_a_slot_and_readers_do_not_wait() {
    let (db, opener, first) = shut(ONE_SLOT);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writing = scope.spawn(|| writer(&db, first, &is_over));
        let stood = wait_until_blocked(&db);
        assert!((EVERY..BOUND).contains(&stood), "{stood}");
        // There is one slot, and the writer holds the last row exclusively until it has committed.
        let rows = db.run(|tx| tx.range(&ROWS, ..).count()).unwrap();
        let last = db.run(|tx| tx.get_for_update(&ROWS, &(rows - 1))).unwrap();
        assert!(rows > first && last.is_some());
        assert!(!writing.is_finished());
        assert_eq!(ahead(&db), stood);
        // Both statistics show it, from inside and outside the process.
        let (stats, seen) = (db.checkpoints(), db.status().checkpoints);
        assert_eq!(
            (stats.waiting, seen.waiting, seen.waits),
            (1, 1, stats.throttled)
        );
        assert_eq!(seen.log_bytes, stood);
        assert!(seen.total_bytes > 0 && seen.done_bytes <= seen.total_bytes);
        is_over.store(true, Ordering::Relaxed);
        drop(opener);
        assert_eq!(writing.join().unwrap(), rows);
    });
    assert_eq!(db.checkpoints().failed, 0);
}

#[test]
fn a_task_that_waits_may_be_dropped_and_has_committed() {
    let (db, opener, first) = shut(ONE_SLOT);
    let mut context = Context::from_waker(Waker::noop());
    let mut key = first;
    loop {
        let mut tx = db.begin_async().unwrap();
        let row = [0; ROW];
        {
            let mut put = pin!(tx.put(&ROWS, &key, &row));
            // It yields now and then.
            while put
                .as_mut()
                .poll(&mut context)
                .map(Result::unwrap)
                .is_pending()
            {}
        }
        let mut commit = pin!(tx.commit());
        let mut is_throttled = false;
        // Until the flusher has written it, or the commit is to wait for the checkpoint.
        while !is_throttled && commit.as_mut().poll(&mut context).is_pending() {
            is_throttled = db.checkpoints().throttled > 0;
            thread::yield_now();
        }
        key += 1;
        if is_throttled {
            break;
        }
    }
    let count = db.run(|tx| tx.range(&ROWS, ..).count()).unwrap();
    assert_eq!(count, key, "what was dropped has committed");
    // It blocks no other commit.
    drop(opener);
    db.checkpoint().unwrap();
    put(&db, key);
    assert_eq!(db.checkpoints().failed, 0);
}

#[test]
fn commits_of_dropped_tasks_request_checkpoints_too() {
    let mut options = options();
    options.durability = Durability::Sync;
    let device = FaultDevice::new();
    // No commit is durable at its first poll.
    device.slow_sync(Duration::from_millis(50));
    let db = Database::open_on(Arc::new(device), options).unwrap();
    put(&db, 0);
    let mut context = Context::from_waker(Waker::noop());
    // The next key may be locked until the background thread has released the previous one.
    let mut key = 1;
    while db.checkpoints().made == 0 {
        let mut tx = db.begin_async().unwrap();
        let row = [0; ROW];
        let is_there = pin!(tx.put(&ROWS, &key, &row))
            .poll(&mut context)
            .is_ready();
        if is_there {
            drop(pin!(tx.commit()).poll(&mut context));
            key += 1;
        }
    }
    assert_eq!(db.checkpoints().failed, 0);
}

#[test]
fn waiters_are_released_when_the_checkpoint_fails() {
    let (db, opener, first) = shut(ONE_SLOT);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writing = scope.spawn(|| writer(&db, first, &is_over));
        wait_until_blocked(&db);
        assert_eq!(db.checkpoints().failed, 0);
        opener.send(Err(io::ErrorKind::StorageFull)).unwrap();
        drop(opener);
        // The next checkpoint is made after as much log again.
        while db.checkpoints().made < 1 {
            thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Ordering::Relaxed);
        let rows = writing.join().unwrap();
        assert_eq!(db.run(|tx| tx.range(&ROWS, ..).count()).unwrap(), rows);
    });
    assert_eq!(db.checkpoints().failed, 1);
}

#[test]
fn a_checkpoint_that_is_to_be_slow_hurries_when_commits_wait_for_it() {
    let mut options = options();
    options.checkpoint_rate = Some(1);
    let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
    // At its own rate it would take a day.
    let mut key = 0;
    while db.checkpoints().made < 2 {
        put(&db, key % 100);
        key += 1;
    }
    assert!(db.checkpoints().throttled > 0);
}

#[test]
fn a_database_is_closed_while_a_commit_waits() {
    let (db, opener, count) = shut(Admission::Unlimited);
    let row = [1; 3 * ROW];
    let (told, hears) = std::sync::mpsc::channel();
    let mut transactions = Vec::new();
    for key in 0..count {
        let mut tx = db.begin_async().unwrap();
        let put = pin!(tx.put(&ROWS, &key, &row)).poll(&mut Context::from_waker(Waker::noop()));
        assert!(put.is_ready());
        transactions.push(tx);
    }
    let writing = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        for tx in transactions {
            runtime.as_ref().unwrap().block_on(tx.commit()).unwrap();
            told.send(()).unwrap();
        }
    });
    wait_until_blocked(&db);
    // Closing ends the checkpoint, which is blocked at the device.
    let closing = thread::spawn(move || drop(db));
    thread::sleep(Duration::from_millis(20));
    drop(opener);
    closing.join().unwrap();
    writing.join().unwrap();
    assert_eq!(hears.iter().count() as u64, count);
}
