//! Transactions on paged tables that are ten times as large as the pool: committed, rolled back,
//! also to savepoints within, and cut by a crash. A `BTreeMap` says what must be there. The undo
//! that such a transaction keeps in memory is counted in bytes; the rest it reads from the log.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use foxton::device::MemoryDevice;
use foxton::{Database, Durability, Options, Savepoint, Table, Transaction};
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};

use crate::common::paged::tiny_pages;
use crate::common::random::Random;

const PAGED: Table<u64, [u8]> = Table::new("paged").paged();
const RESIDENT: Table<u64, [u8]> = Table::new("resident").resident();
/// The bytes of rows that a transaction writes are more than ten times those of the pool.
const FRAMES: usize = 16;
const CHANGES: u64 = 3_000;
const KEYS: u64 = 1_500;
/// Maximum number of bytes of undo in memory.
const MOST_UNDO: usize = 64 << 10;

/// A checkpoint takes milliseconds; a busy machine is not that slow.
const MOST_WAIT: Duration = Duration::from_secs(120);

type Rows = BTreeMap<u64, Vec<u8>>;

fn options() -> Options {
    let mut options = tiny_pages(Options::tiny(), FRAMES);
    options.durability = Durability::Buffered;
    options
}

fn contents(db: &Database) -> Rows {
    let paged = db.run(|tx| tx.range(&PAGED, ..).collect()).unwrap();
    let resident = db.run(|tx| tx.range(&RESIDENT, ..).collect()).unwrap();
    assert!(paged == resident, "the components differ");
    paged.into_iter().collect()
}

/// Returns the bytes of undo that the transaction has in memory.
fn undo_bytes(tx: &Transaction) -> usize {
    let shown = format!("{tx:?}");
    let (_, bytes) = shown.split_once("undo_bytes: ").unwrap();
    let digits = bytes.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap()
}

/// Makes one change, of both tables.
fn change(tx: &mut Transaction, random: &mut Random, rows: &mut Rows) {
    let key = random.below(KEYS);
    if random.below(6) == 0 {
        tx.delete(&PAGED, &key).unwrap();
        tx.delete(&RESIDENT, &key).unwrap();
        rows.remove(&key);
    } else {
        let value = vec![random.next() as u8; 60 + random.below(90) as usize];
        tx.put(&PAGED, &key, &value).unwrap();
        tx.put(&RESIDENT, &key, &value).unwrap();
        rows.insert(key, value);
    }
}

fn filled(db: &Database, random: &mut Random) -> Rows {
    let mut rows = Rows::new();
    for _ in 0..20 {
        let mut tx = db.begin().unwrap();
        (0..40).for_each(|_| change(&mut tx, random, &mut rows));
        tx.commit().unwrap();
    }
    rows
}

/// Makes a large transaction with savepoints nested in it, to some of which it is rolled back.
/// Returns how often it was.
fn work(tx: &mut Transaction, random: &mut Random, rows: &mut Rows) -> u64 {
    let mut savepoints: Vec<(Savepoint, Rows)> = Vec::new();
    let (mut made, mut most, mut undone) = (0, 0, 0);
    while made < CHANGES {
        let part = [3, 50, 700][random.below(3) as usize];
        for _ in 0..part {
            change(tx, random, rows);
            most = most.max(undo_bytes(tx));
        }
        made += part;
        match random.below(4) {
            0 | 1 => savepoints.push((tx.savepoint().unwrap(), rows.clone())),
            2 if !savepoints.is_empty() => {
                let at = random.below(savepoints.len() as u64) as usize;
                savepoints.truncate(at + 1);
                let (savepoint, before) = &savepoints[at];
                tx.rollback_to(savepoint).unwrap();
                assert!(undo_bytes(tx) <= MOST_UNDO);
                rows.clone_from(before);
                undone += 1;
                if made % 2 == 0 {
                    let found = tx.range(&PAGED, ..).collect().unwrap();
                    assert!(found.into_iter().eq(rows.clone()), "savepoint {at}");
                }
            }
            _ => {}
        }
    }
    assert!(most <= MOST_UNDO, "{most} bytes of undo");
    assert!(most > MOST_UNDO / 2, "hardly any undo: {most} bytes");
    undone
}

fn reopened(image: MemoryDevice) -> Database {
    Database::open_on(Arc::new(image), options()).unwrap()
}

#[test]
fn a_transaction_ten_times_the_pool_ends_in_every_way() {
    let mut undone = 0;
    for seed in 0..6 {
        let mut random = Random(seed);
        let device = FaultDevice::new();
        let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
        let mut committed = filled(&db, &mut random);
        for round in 0..3 {
            let mut tx = db.begin().unwrap();
            let mut rows = committed.clone();
            undone += work(&mut tx, &mut random, &mut rows);
            let open = reopened(device.crash(Damage::KeepAll, 1));
            assert!(
                contents(&open) == committed,
                "seed {seed}, round {round}, killed"
            );
            open.verify();
            match (seed + round) % 2 {
                0 => tx.rollback(),
                _ => {
                    tx.commit().unwrap();
                    committed = rows;
                }
            }
            assert!(contents(&db) == committed, "seed {seed}, round {round}");
            db.sync().unwrap();
            let ended = reopened(device.crash(Damage::DropAll, 1));
            assert!(
                contents(&ended) == committed,
                "seed {seed}, round {round}, restart"
            );
        }
        assert!(db.locks().is_empty());
        db.verify();
    }
    assert!(undone > 20, "only {undone} rollbacks to savepoints");
}

#[test]
fn the_whole_undo_of_a_large_transaction_is_exact() {
    // Every row is changed often, so a change that is left out or undone twice shows.
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    let value = |number: u64| vec![number as u8; 100 + (number % 7) as usize];
    let mut tx = db.begin().unwrap();
    (0..40).for_each(|key| tx.put(&PAGED, &key, &value(key)).unwrap());
    tx.commit().unwrap();
    let mut tx = db.begin().unwrap();
    let mut savepoints = Vec::new();
    for number in 0..4_000 {
        if number % 50 == 0 {
            savepoints.push((number, tx.savepoint().unwrap()));
        }
        tx.put(&PAGED, &(number % 40), &value(number + 40)).unwrap();
    }
    for (number, savepoint) in savepoints.iter().rev().step_by(3) {
        tx.rollback_to(savepoint).unwrap();
        for back in 1..=40 {
            let last = number + 40 - back;
            let found = tx.get(&PAGED, &(last % 40)).unwrap();
            assert_eq!(found, Some(value(last)), "of {last}, back at {number}");
        }
        // The next step undoes this too.
        tx.put(&PAGED, &(number % 40), b"anew").unwrap();
    }
    tx.rollback();
    for key in 0..40 {
        let found = db.run(|tx| tx.get(&PAGED, &key)).unwrap();
        assert_eq!(found, Some(value(key)));
    }
}

#[test]
fn a_log_that_cannot_be_read_refuses_commits_until_a_restart_has_undone_it() {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    let mut random = Random(1);
    let committed = filled(&db, &mut random);
    let mut tx = db.begin().unwrap();
    let mut rows = committed.clone();
    (0..CHANGES).for_each(|_| change(&mut tx, &mut random, &mut rows));
    db.sync().unwrap();
    device.fail(Call::List, 1, Times::ForEver, ErrorKind::Other);
    tx.rollback();
    let refused = db.run(|tx| tx.put(&PAGED, &1, b"more")).unwrap_err();
    assert_eq!(refused.code(), "poisoned");
    assert!(refused.to_string().contains("undone"), "{refused}");
    db.run(|tx| tx.put(&RESIDENT, &1_000_000, b"goes on"))
        .unwrap();
    device.heal();
    let open = reopened(device.crash(Damage::KeepAll, 1));
    open.run(|tx| tx.delete(&RESIDENT, &1_000_000)).unwrap();
    assert!(contents(&open) == committed);
}

#[test]
fn a_transaction_without_a_commit_makes_checkpoints_due() {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    db.run(|tx| tx.put(&PAGED, &0, b"a table")).unwrap();
    let await_checkpoints = |count: u64| {
        let begun = Instant::now();
        while db.checkpoints().made < count {
            assert!(begun.elapsed() < MOST_WAIT, "no checkpoint {count}");
            thread::sleep(Duration::from_millis(1));
        }
    };
    let mut tx = db.begin().unwrap();
    let write = |tx: &mut Transaction| {
        (0..1_000).for_each(|key| tx.put(&PAGED, &key, &[7; 100]).unwrap());
    };
    for count in 1..4 {
        // More log than `checkpoint_log_bytes`.
        write(&mut tx);
        await_checkpoints(count);
    }
    let made = db.checkpoints().made;
    tx.rollback();
    await_checkpoints(made + 1);
}

/// Wakes the thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls `future` each time it is woken, at most so many times. Returns true if it was ready.
fn is_ready_after(future: impl Future<Output = ()>, polls: u64) -> bool {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    for poll in 0..polls {
        if poll > 0 {
            thread::park();
        }
        if let Poll::Ready(()) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return true;
        }
    }
    false
}

#[test]
fn the_rollback_of_a_large_task_may_be_dropped_anywhere() {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
    let mut random = Random(2);
    let committed = filled(&db, &mut random);
    let mut ready = 0;
    for polls in [1, 2, 3, 7, 40, 200, u64::MAX, u64::MAX] {
        let rolls_back = async {
            let mut tx = db.begin_async().unwrap();
            let savepoint = tx.savepoint().unwrap();
            for step in 0..1_500 {
                tx.put(&PAGED, &(step * 7 % KEYS), &[step as u8; 100])
                    .await
                    .unwrap();
            }
            assert!(is_ready_or_dropped(tx.rollback_to(&savepoint), polls));
            assert!(is_ready_or_dropped(tx.rollback(), polls));
        };
        assert!(is_ready_after(rolls_back, u64::MAX));
        // Reads everything, so it waits until the transaction has ended.
        assert!(contents(&db) == committed, "{polls} polls");
        ready += 1;
    }
    assert_eq!(ready, 8);
    assert!(db.locks().is_empty());
    db.verify();
}

/// Polls `future` so many times and drops it then.
fn is_ready_or_dropped<T>(future: impl Future<Output = T>, polls: u64) -> bool {
    let ended = is_ready_after(async { drop(future.await) }, polls);
    ended || polls < u64::MAX
}
