//! Tasks yield: no operation holds its executor for long, however much it has to do.
//!
//! Futures are polled by hand. A test counts the polls that return `Pending` and the work between
//! two of them, and reads no clock. Each such poll must have woken its task, because no other
//! thread would.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use foxton::{
    AsyncTransaction, CancelToken, Database, Durability, Index, Isolation, Lock, LockManagerKind,
    Locking, Options, Result, Table, VictimPolicy,
};

const ROWS: Table<u64, u64> = Table::new("rows");
const OTHER: Table<u64, u64> = Table::new("other");
const BLOBS: Table<u64, [u8]> = Table::new("blobs");
const BY_VALUE: Index<u64, u64, u64> =
    Index::new("by_value", &ROWS, |_, value, keys| keys.add(value));

/// Number of rows of a large transaction, and of a table.
const MANY: u64 = 10_000;
/// Maximum number of rows visited or changed between two yields.
const AT_MOST: u64 = 1_024;
const MIB: usize = 1 << 20;

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Polls until the future is ready, and calls `between` before each poll. Returns the output and
/// the number of polls that were pending.
fn drive<T>(future: impl Future<Output = T>, mut between: impl FnMut()) -> (T, u64) {
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(flag.clone());
    let mut future = pin!(future);
    for pending in 0.. {
        between();
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return (output, pending),
            Poll::Pending => assert!(flag.0.swap(false, Ordering::SeqCst), "nobody wakes it"),
        }
    }
    unreachable!()
}

fn polls<T>(future: impl Future<Output = Result<T>>) -> (T, u64) {
    let (output, pending) = drive(future, || {});
    (output.unwrap(), pending)
}

/// Returns the code of a refusal, and the number of polls that were pending.
fn refused<T>(future: impl Future<Output = Result<T>>) -> (&'static str, u64) {
    let (output, pending) = drive(future, || {});
    let code = output.map_or_else(|error| error.code(), |_| "done");
    (code, pending)
}

/// Polls so often, and drops the future.
fn drop_after(polls: u64, future: impl Future) {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        let poll = poll_once(future.as_mut());
        assert!(poll.is_pending(), "it has finished too early");
    }
}

fn poll_once<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn options() -> Options {
    let mut options = Options::tiny();
    options.durability = Durability::None;
    options.lock_wait = Duration::from_secs(3600);
    // No commit waits for a checkpoint.
    options.checkpoint_log_bytes = u64::MAX;
    options
}

fn filled(options: Options) -> Database {
    let db = Database::in_memory(options).unwrap();
    db.run(|tx| (0..MANY).try_for_each(|key| tx.put(&ROWS, &key, &key)))
        .unwrap();
    db
}

fn begin(db: &Database) -> AsyncTransaction {
    db.begin_async().unwrap()
}

/// A transaction that has given every row another value.
fn large(db: &Database) -> AsyncTransaction {
    let mut tx = begin(db);
    change(&mut tx, 1);
    tx
}

fn change(tx: &mut AsyncTransaction, by: u64) -> u64 {
    let one = |key| polls(tx.put(&ROWS, &key, &(key + by))).1;
    (0..MANY).map(one).sum()
}

fn is_as_before(db: &Database) {
    let mut expected = 0..;
    db.run(|tx| {
        tx.range(&ROWS, ..)
            .for_each(|key, value| assert_eq!((Some(key), key), (expected.next(), value)))
    })
    .unwrap();
    assert_eq!(expected.next(), Some(MANY));
}

fn until_free(db: &Database) {
    while !db.locks().is_empty() {
        thread::yield_now();
    }
}

#[test]
fn a_scan_visits_few_rows_between_two_yields() {
    let db = filled(options());
    db.create_index(&BY_VALUE).unwrap();
    for level in Isolation::ALL {
        for reversed in [false, true] {
            let mut tx = begin(&db);
            tx.set_isolation(level).unwrap();
            let (seen, before) = (Cell::new(0u64), Cell::new(0));
            let check = || {
                assert!(seen.get() - before.get() <= AT_MOST);
                before.set(seen.get());
            };
            let see = |_, _| seen.set(seen.get() + 1);
            let range = tx.range(&ROWS, 0..=MANY);
            let range = if reversed { range.reversed() } else { range };
            drive(range.for_each(see), check).0.unwrap();
            assert_eq!(seen.replace(0), MANY);
            before.set(0);
            drive(
                tx.range_by(&BY_VALUE, ..)
                    .for_each(|_, key, value| see(key, value)),
                check,
            )
            .0
            .unwrap();
            assert_eq!(seen.get(), MANY, "{level}");
            let (count, pending) = polls(tx.range(&ROWS, ..).count());
            assert_eq!(count, MANY);
            assert!(
                (MANY / AT_MOST..=MANY / 128).contains(&pending),
                "{pending}"
            );
            assert_eq!(polls(tx.range(&ROWS, ..).limit(2_000).count()).0, 2_000);
            polls(tx.commit());
        }
    }
}

#[test]
fn ghosts_count_as_rows_of_a_scan() {
    let db = filled(options());
    let mut tx = begin(&db);
    (0..MANY).for_each(|key| assert!(polls(tx.delete(&ROWS, &key)).0));
    let (count, pending) = polls(tx.range(&ROWS, ..).count());
    assert_eq!(count, 0);
    assert!(pending >= MANY / AT_MOST, "{pending}");
    polls(tx.commit());
    assert_eq!(db.run(|tx| tx.range(&ROWS, ..).count()).unwrap(), 0);
}

#[test]
fn reads_of_many_keys_yield() {
    let db = filled(options());
    let mut tx = begin(&db);
    let keys: Vec<u64> = (0..MANY).map(|key| key * 3).collect();
    let (values, pending) = polls(tx.get_many(&ROWS, &keys));
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(value, (*key < MANY).then_some(*key));
    }
    assert!(pending >= MANY / AT_MOST, "{pending}");
}

#[test]
fn large_values_count_by_their_bytes() {
    let db = Database::in_memory(Options::default()).unwrap();
    let blob = vec![7; MIB];
    let mut tx = begin(&db);
    let written: u64 = (0..16)
        .map(|key| polls(tx.put(&BLOBS, &key, &blob)).1)
        .sum();
    assert!(written >= 7, "{written}");
    let read: u64 = (0..16).map(|key| polls(tx.get(&BLOBS, &key)).1).sum();
    assert!(read >= 7, "{read}");
    let keys: Vec<u64> = (0..16).collect();
    let (rows, scanned) = polls(tx.range(&BLOBS, ..).collect());
    assert_eq!(rows.iter().map(|(key, _)| *key).collect::<Vec<_>>(), keys);
    assert!(scanned >= 7, "{scanned}");
}

#[test]
fn a_series_of_short_operations_yields() {
    let db = filled(options());
    let mut tx = begin(&db);
    let bounds = MANY / AT_MOST..MANY / 128;
    let puts = change(&mut tx, 5);
    assert!(bounds.contains(&puts), "{puts}");
    let gets: u64 = (0..MANY).map(|key| polls(tx.get(&ROWS, &key)).1).sum();
    assert!(bounds.contains(&gets), "{gets}");
    let lock = |number| polls(tx.lock_advisory(number, Lock::Shared)).1;
    let locks: u64 = (0..MANY).map(lock).sum();
    assert!(bounds.contains(&locks), "{locks}");
    let mut short = |_| polls(tx.range(&ROWS, 10..20).count()).1;
    let scans: u64 = (0..MANY).map(&mut short).sum();
    assert!(scans >= 10 * MANY / AT_MOST, "{scans}");
    drop(tx);
    until_free(&db);
    // Whole transactions, of which each is short.
    let run = |key| {
        let run = db.run_async(|mut tx| async move {
            tx.put(&OTHER, &key, &key).await?;
            tx.commit().await
        });
        polls(run).1
    };
    let runs: u64 = (0..MANY).map(run).sum();
    assert!(bounds.contains(&runs), "{runs}");
    let mut session = db.session().unwrap();
    let lock = |_| polls(session.lock_advisory_async(7, Lock::Shared)).1;
    let locks: u64 = (0..MANY).map(lock).sum();
    assert!(bounds.contains(&locks), "{locks}");
}

#[test]
fn a_sync_yields_even_if_nothing_is_to_be_synced() {
    let db = filled(options());
    db.sync().unwrap();
    assert_eq!(polls(db.sync_async()), ((), 1));
}

/// A thread never yields, in a context that a task has used.
#[test]
fn a_thread_reads_on_after_tasks_have_used_its_context() {
    let db = filled(options());
    let mut session = db.session().unwrap();
    for _ in 0..2_000 {
        polls(session.lock_advisory_async(7, Lock::Shared));
    }
    let keys: Vec<u64> = (0..MANY).collect();
    let read = |tx: &mut foxton::Transaction| {
        assert_eq!(tx.range(&ROWS, ..).count()?, MANY);
        assert_eq!(tx.get_many(&ROWS, &keys)?.len(), keys.len());
        Ok(())
    };
    session.run(read).unwrap();
    db.run(read).unwrap();
}

#[test]
fn a_rollback_yields_and_its_locks_are_released_when_it_returns() {
    for kind in LockManagerKind::ALL {
        for locking in [Locking::On, Locking::Off] {
            let mut options = options();
            (options.lock_manager, options.locking) = (kind, locking);
            let db = filled(options);
            let mut tx = large(&db);
            polls(tx.put(&ROWS, &MANY, &0));
            let (_, pending) = drive(tx.rollback(), || {});
            assert!(pending >= MANY / AT_MOST, "{kind} {pending}");
            assert!(db.locks().is_empty());
            assert_eq!(db.stats().rollbacks, 1);
            is_as_before(&db);
            db.verify();
        }
    }
}

#[test]
fn a_rollback_that_is_dropped_anywhere_is_completed() {
    let db = filled(options());
    db.create_index(&BY_VALUE).unwrap();
    for after in [0, 1, 3, 12, 25, 45, 58] {
        let tx = large(&db);
        drop_after(after, tx.rollback());
        until_free(&db);
        is_as_before(&db);
        assert_eq!(db.check_indexes().unwrap(), []);
        db.verify();
    }
}

#[test]
fn a_deadlock_rolls_its_victim_back_in_steps() {
    for drops in [false, true] {
        let mut options = options();
        options.victim = VictimPolicy::Requester;
        let db = filled(options);
        let mut victim = large(&db);
        let mut other = begin(&db);
        polls(other.put(&OTHER, &1, &1));
        let mut waits = Box::pin(other.get(&ROWS, &1));
        assert!(poll_once(waits.as_mut()).is_pending());
        if drops {
            drop_after(5, victim.get(&OTHER, &1));
            assert!(poll_once(waits.as_mut()).is_pending());
        } else {
            let (refused, pending) = drive(victim.get(&OTHER, &1), || {});
            assert_eq!(refused.unwrap_err().code(), "deadlock");
            assert!(pending >= MANY / AT_MOST, "{pending}");
        }
        // The next operation completes the rollback.
        let (refused, _) = drive(victim.range(&ROWS, ..).count(), || {});
        assert_eq!(refused.unwrap_err().code(), "ended_by_conflict");
        let Poll::Ready(value) = poll_once(waits.as_mut()) else {
            panic!("the lock of the victim is released");
        };
        assert_eq!(value.unwrap(), Some(1));
        drop(waits);
        drop((victim, other));
        until_free(&db);
        is_as_before(&db);
    }
}

#[test]
fn a_cancelled_transaction_is_rolled_back_in_steps() {
    let db = filled(options());
    for by in 0..5 {
        let mut tx = large(&db);
        let token = CancelToken::new();
        tx.set_cancel_token(&token);
        token.cancel();
        let (code, pending) = match by {
            0 => refused(tx.get(&ROWS, &1)),
            1 => refused(tx.range(&ROWS, ..).count()),
            2 => refused(tx.get_many(&ROWS, &[1])),
            3 => refused(tx.lock_advisory(1, Lock::Shared)),
            _ => {
                let (code, pending) = refused(tx.commit());
                assert_eq!(code, "cancelled");
                assert!(pending >= MANY / AT_MOST, "{pending}");
                assert!(db.locks().is_empty());
                is_as_before(&db);
                continue;
            }
        };
        assert_eq!(code, "cancelled");
        assert!(pending >= MANY / AT_MOST, "{by}: {pending}");
        assert!(db.locks().is_empty());
        is_as_before(&db);
    }
}

#[test]
fn a_commit_with_many_changes_yields() {
    for durability in Durability::ALL {
        for deletes in [false, true] {
            let mut options = options();
            options.durability = durability;
            let db = filled(options);
            let mut tx = begin(&db);
            for key in 0..MANY {
                match deletes {
                    true => assert!(polls(tx.delete(&ROWS, &key)).0),
                    false => polls(tx.put(&ROWS, &key, &7)).0,
                }
            }
            // The log is written by other threads.
            let mut commit = Box::pin(tx.commit());
            let mut pending = 0;
            while poll_once(commit.as_mut()).is_pending() {
                pending += 1;
                thread::yield_now();
            }
            assert!(pending >= MANY / AT_MOST, "{durability} {pending}");
            assert!(db.locks().is_empty());
            let rows = db.run(|tx| tx.range(&ROWS, ..).count()).unwrap();
            assert_eq!(rows, if deletes { 0 } else { MANY });
            db.verify();
        }
    }
}

#[test]
fn a_commit_that_is_dropped_anywhere_after_its_record_is_completed() {
    for durability in Durability::ALL {
        for after in [1, 2, 9, 19, 25] {
            let mut options = options();
            options.durability = durability;
            let db = filled(options);
            let mut tx = begin(&db);
            (0..MANY).for_each(|key| assert!(polls(tx.delete(&ROWS, &key)).0));
            drop_after(after, tx.commit());
            until_free(&db);
            assert_eq!(db.run(|tx| tx.range(&ROWS, ..).count()).unwrap(), 0);
            db.verify();
        }
    }
}

#[test]
fn a_rollback_to_a_savepoint_yields_and_the_next_operation_completes_it() {
    // With parts in the log, and without.
    for redo_part_bytes in [256, 64 << 20] {
        for drops in [None, Some(1), Some(9), Some(21), Some(30)] {
            let mut options = options();
            options.redo_part_bytes = redo_part_bytes;
            let db = filled(options);
            let mut tx = begin(&db);
            polls(tx.put(&ROWS, &3, &33));
            let savepoint = tx.savepoint().unwrap();
            change(&mut tx, 9);
            (MANY..2 * MANY).for_each(|key| polls(tx.insert(&ROWS, &key, &0)).0);
            match drops {
                Some(after) => drop_after(after, tx.rollback_to(&savepoint)),
                None => {
                    let pending = polls(tx.rollback_to(&savepoint)).1;
                    assert!(pending >= 2 * MANY / AT_MOST, "{pending}");
                }
            }
            if drops == Some(9) {
                // It is complete before the next savepoint.
                let next = tx.savepoint().unwrap();
                polls(tx.put(&ROWS, &4, &44));
                polls(tx.rollback_to(&next));
            }
            assert_eq!(polls(tx.get(&ROWS, &4)).0, Some(4));
            assert_eq!(polls(tx.range(&ROWS, ..).count()).0, MANY);
            match drops {
                Some(21) => drop(tx),
                _ => polls(tx.commit()).0,
            }
            until_free(&db);
            let three = if drops == Some(21) { 3 } else { 33 };
            assert_eq!(db.run(|tx| tx.get(&ROWS, &3)).unwrap(), Some(three));
            db.run(|tx| tx.put(&ROWS, &3, &3)).unwrap();
            is_as_before(&db);
            db.verify();
        }
    }
}

/// Blocks the thread that wakes it.
struct Blocker(Mutex<Receiver<()>>);

impl Wake for Blocker {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().recv();
    }
}

#[test]
fn dropping_a_large_transaction_leaves_the_work_to_the_background_thread() {
    let db = filled(options());
    let mut holder = begin(&db);
    polls(holder.lock_advisory(1, Lock::Exclusive));
    let mut waits = begin(&db);
    let (open, opens) = channel();
    let blocker = Waker::from(Arc::new(Blocker(Mutex::new(opens))));
    let short = Lock::Shared.timeout(Duration::from_millis(1));
    let mut wait = Box::pin(waits.lock_advisory(1, short));
    assert!(
        wait.as_mut()
            .poll(&mut Context::from_waker(&blocker))
            .is_pending()
    );
    // The background thread ends the wait, and is blocked from then on.
    while !db.waits().is_empty() {
        thread::yield_now();
    }
    let small = {
        let mut tx = begin(&db);
        polls(tx.put(&OTHER, &1, &1));
        tx
    };
    let before = db.locks().len();
    drop(small);
    assert!(db.locks().len() < before, "a small one is undone at once");
    let tx = large(&db);
    let held = db.locks().len();
    drop(tx);
    assert_eq!(db.locks().len(), held);
    drop(open);
    drop(wait);
    drop((holder, waits));
    until_free(&db);
    is_as_before(&db);
}

#[test]
fn a_session_can_be_used_right_after_its_large_transaction_was_dropped() {
    let db = filled(options());
    let mut session = db.session().unwrap();
    let mut tx = session.begin_async().unwrap();
    change(&mut tx, 1);
    drop(tx);
    let mut tx = session.begin_async().unwrap();
    assert_eq!(polls(tx.get(&ROWS, &1)).0, Some(1));
    drop(tx);
    is_as_before(&db);
}

#[test]
fn a_large_transaction_that_is_dropped_keeps_the_database_open_until_it_is_undone() {
    let directory = std::env::temp_dir().join(format!("foxton-yielding-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let db = Database::open_with(&directory, options()).unwrap();
    db.run(|tx| (0..MANY).try_for_each(|key| tx.put(&ROWS, &key, &key)))
        .unwrap();
    drop(large(&db));
    drop(db);
    let db = loop {
        match Database::open_with(&directory, options()) {
            Ok(db) => break db,
            Err(error) => assert_eq!(error.code(), "in_use"),
        }
        thread::yield_now();
    };
    is_as_before(&db);
    drop(db);
    std::fs::remove_dir_all(directory).unwrap();
}
