//! A transaction that a deadlock or a cancel token has ended refuses every operation except its
//! end, for threads and for tasks. It holds no locks, changes nothing, and reports its end each
//! time.

use std::ops::ControlFlow;

use crate::common::*;
use foxton::codec::TypeName;
use foxton::{
    AsyncTransaction, CancelToken, Database, Isolation, Lock, LockWait, Options, Result, Savepoint,
    TableLock, Transaction, VictimPolicy,
};

const ENDED: &str = "ended_by_conflict";
const CANCELLED: &str = "cancelled";

/// An operation of threads: its name and its call.
type Step = (&'static str, fn(&mut Transaction, &Savepoint) -> Result<()>);

/// Every operation of a [`Transaction`] that does not consume it.
const STEPS: &[Step] = &[
    ("get", |tx, _| tx.get(&TABLE, &1).map(drop)),
    ("get, absent", |tx, _| tx.get(&TABLE, &999).map(drop)),
    ("get_for_update", |tx, _| {
        tx.get_for_update(&TABLE, &1).map(drop)
    }),
    ("get_locked", |tx, _| {
        tx.get_locked(&TABLE, &1, Lock::Exclusive).map(drop)
    }),
    ("get_locked, nowait", |tx, _| {
        tx.get_locked(&TABLE, &1, Lock::Shared.nowait()).map(drop)
    }),
    ("get_locked, skip", |tx, _| {
        let lock = Lock::Update.skip_locked();
        tx.get_locked(&TABLE, &1, lock).map(drop)
    }),
    ("get_with", |tx, _| {
        tx.get_with(&TABLE, &1, |bytes| bytes.len()).map(drop)
    }),
    ("put", |tx, _| tx.put(&TABLE, &1, &99)),
    ("insert", |tx, _| tx.insert(&TABLE, &50, &99)),
    ("delete", |tx, _| tx.delete(&TABLE, &1).map(drop)),
    ("range, collect", |tx, _| {
        tx.range(&TABLE, ..).collect().map(drop)
    }),
    ("range, reversed", |tx, _| {
        tx.range(&TABLE, ..).reversed().collect().map(drop)
    }),
    ("range, first", |tx, _| {
        tx.range(&TABLE, 1..).first().map(drop)
    }),
    ("range, count", |tx, _| {
        tx.range(&TABLE, ..9).count().map(drop)
    }),
    ("range, for_each", |tx, _| {
        tx.range(&TABLE, ..).for_each(|_, _| ())
    }),
    ("range, try_for_each", |tx, _| {
        let take = |_, _| ControlFlow::Break(());
        tx.range(&TABLE, ..).try_for_each(take)
    }),
    ("range, for_each_bytes", |tx, _| {
        tx.range(&TABLE, ..).for_each_bytes(|_, _| ())
    }),
    ("range, try_for_each_bytes", |tx, _| {
        let take = |_: &[u8], _: &[u8]| ControlFlow::Break(());
        tx.range(&TABLE, ..).try_for_each_bytes(take)
    }),
    ("range, locked", |tx, _| {
        let all = tx.range(&TABLE, ..).locked(Lock::Exclusive.skip_locked());
        all.collect().map(drop)
    }),
    ("range, one by one", |tx, _| {
        let mut rows = tx.range(&TABLE, ..).into_iter();
        let first = rows.next();
        let is_ended = matches!(first, Some(Err(_)));
        assert_eq!(rows.next().is_none(), is_ended, "an error is the last");
        first.transpose().map(drop)
    }),
    ("get_by", |tx, _| tx.get_by(&BY_OWN_VALUE, &10).map(drop)),
    ("get_by, not unique", |tx, _| {
        tx.get_by(&BY_VALUE, &10).map(drop)
    }),
    ("get_by_for_update", |tx, _| {
        tx.get_by_for_update(&BY_OWN_VALUE, &10).map(drop)
    }),
    ("get_by_locked", |tx, _| {
        let lock = Lock::Exclusive.nowait();
        tx.get_by_locked(&BY_OWN_VALUE, &10, lock).map(drop)
    }),
    ("range_by, collect", |tx, _| {
        tx.range_by(&BY_VALUE, ..).collect().map(drop)
    }),
    ("range_by, reversed", |tx, _| {
        tx.range_by(&BY_VALUE, ..).reversed().first().map(drop)
    }),
    ("range_by, count", |tx, _| {
        tx.range_by(&BY_VALUE, 5..).count().map(drop)
    }),
    ("range_by, for_each", |tx, _| {
        let all = tx.range_by(&BY_VALUE, ..);
        all.for_each(|_, _, _| ())
    }),
    ("range_by, one by one", |tx, _| {
        let mut rows = tx.range_by(&BY_VALUE, ..).into_iter();
        rows.next().transpose().map(drop)
    }),
    ("all_by", |tx, _| {
        tx.all_by(&BY_VALUE, &10).collect().map(drop)
    }),
    ("make_table", |tx, _| {
        tx.make_table("late", &TypeName::new("u64"), &TypeName::new("i64"))
    }),
    ("lock_table", |tx, _| {
        let lock = TableLock::Exclusive;
        tx.lock_table(&TABLE, lock, LockWait::Default).map(drop)
    }),
    ("lock_table, skip", |tx, _| {
        let lock = TableLock::IntentShared;
        tx.lock_table(&TABLE, lock, LockWait::Skip).map(drop)
    }),
    ("lock_advisory", |tx, _| {
        tx.lock_advisory(7, Lock::Exclusive).map(drop)
    }),
    ("lock_advisory, skip", |tx, _| {
        tx.lock_advisory(8, Lock::Shared.skip_locked()).map(drop)
    }),
    ("savepoint", |tx, _| tx.savepoint().map(drop)),
    ("rollback_to", |tx, savepoint| tx.rollback_to(savepoint)),
    ("release_savepoint", |tx, savepoint| {
        tx.release_savepoint(savepoint)
    }),
];

/// Two rows and both indexes; the transaction that closes a cycle of waits is the victim.
fn two_rows() -> Database {
    let mut options = Options::tiny();
    options.victim = VictimPolicy::Requester;
    let db = database(options, TWO);
    db.create_index(&BY_VALUE).unwrap();
    db.create_index(&BY_OWN_VALUE).unwrap();
    db
}

/// Returns a transaction that a deadlock has ended, a savepoint that it took, and the other session
/// of the cycle.
fn victim(db: &Database) -> (Transaction, Savepoint, Session) {
    let mut tx = db.begin().unwrap();
    tx.set_label("victim");
    tx.put(&TABLE, &1, &11).unwrap();
    let savepoint = tx.savepoint().unwrap();
    let mut other = Session::new(db, "other");
    assert_eq!(other.put(2, 22), Done);
    assert_eq!(other.put(1, 12), Waits);
    assert_eq!(tx.put(&TABLE, &2, &21).unwrap_err().code(), "deadlock");
    assert_eq!(other.resume(), Done);
    (tx, savepoint, other)
}

/// Checks that the victim has left nothing, and that the other session completes.
fn only_the_other(db: &Database, mut other: Session) {
    assert!(db.locks().iter().all(|lock| lock.label == "other"));
    assert_eq!(other.commit(), Done);
    assert!(db.locks().is_empty());
    assert_eq!(rows(db), [(1, 12), (2, 22)]);
    assert!(!db.stats().tables.iter().any(|table| table.name == "late"));
    db.verify();
}

/// Checks the error of each operation of a thread.
fn refusals(tx: &mut Transaction, savepoint: &Savepoint, code: &str, says: &str) {
    for (what, step) in STEPS {
        let refused = step(tx, savepoint).expect_err(what);
        assert_eq!(refused.code(), code, "{what}");
        assert_eq!(refused.is_retryable(), code == ENDED, "{what}");
        assert!(refused.to_string().contains(says), "{refused}");
    }
}

#[test]
fn every_operation_of_a_thread_is_refused() {
    let db = two_rows();
    let (mut tx, savepoint, other) = victim(&db);
    refusals(&mut tx, &savepoint, ENDED, "drop it and run it again");
    // Operations that cannot fail have no effect.
    tx.set_label("victim still");
    tx.set_isolation(Isolation::ReadUncommitted).unwrap();
    assert_eq!(tx.get(&TABLE, &1).unwrap_err().code(), ENDED);
    tx.rollback();
    only_the_other(&db, other);
}

/// The same operations succeed as long as nothing has ended the transaction.
#[test]
fn every_operation_of_a_thread_succeeds_before_the_end() {
    for (what, step) in STEPS {
        let db = two_rows();
        let mut tx = db.begin().unwrap();
        let savepoint = tx.savepoint().unwrap();
        step(&mut tx, &savepoint).unwrap_or_else(|error| panic!("{what}: {error}"));
        tx.rollback();
        assert_eq!(rows(&db), TWO);
    }
}

/// Each operation is tried both as the first after cancellation, which rolls back, and as a later
/// one.
#[test]
fn every_operation_of_a_thread_is_refused_once_it_is_cancelled() {
    for (what, step) in STEPS {
        let db = two_rows();
        let cancel_token = CancelToken::new();
        let mut tx = db.begin().unwrap();
        tx.set_cancel_token(&cancel_token);
        tx.put(&TABLE, &1, &11).unwrap();
        let savepoint = tx.savepoint().unwrap();
        cancel_token.cancel();
        assert_eq!(step(&mut tx, &savepoint).expect_err(what).code(), CANCELLED);
        assert!(db.locks().is_empty(), "{what}");
        refusals(&mut tx, &savepoint, CANCELLED, "cancel token");
        assert_eq!(tx.commit().unwrap_err().code(), CANCELLED);
        assert_eq!(rows(&db), TWO, "{what}");
    }
}

#[test]
fn every_operation_of_a_task_is_refused_once_it_is_cancelled() {
    let db = two_rows();
    let cancel_token = CancelToken::new();
    let mut tx = db.begin_async().unwrap();
    tx.set_cancel_token(&cancel_token);
    now(tx.put(&TABLE, &1, &11)).unwrap();
    let savepoint = tx.savepoint().unwrap();
    cancel_token.cancel();
    for (what, came_to) in all_of_a_task(&mut tx, &savepoint) {
        assert_eq!(came_to.expect_err(what).code(), CANCELLED, "{what}");
        assert!(db.locks().is_empty(), "{what}");
    }
    assert_eq!(now(tx.commit()).unwrap_err().code(), CANCELLED);
    assert_eq!(rows(&db), TWO);
}

#[test]
fn both_commits_are_refused() {
    for is_placed in [false, true] {
        let db = two_rows();
        let (tx, _, other) = victim(&db);
        let refused = match is_placed {
            true => tx.commit_at().map(drop),
            false => tx.commit(),
        };
        assert_eq!(refused.unwrap_err().code(), ENDED);
        only_the_other(&db, other);
    }
}

#[test]
fn an_ended_range_returns_no_more_rows() {
    let db = two_rows();
    let mut tx = db.begin().unwrap();
    let mut other = Session::new(&db, "other");
    assert_eq!(other.put(2, 22), Done);
    let mut rows = tx.range(&TABLE, ..).into_iter();
    assert_eq!(rows.next().unwrap().unwrap(), (1, 10));
    assert_eq!(other.put(1, 12), Waits);
    assert_eq!(rows.next().unwrap().unwrap_err().code(), "deadlock");
    assert!(rows.next().is_none());
    drop(rows);
    assert_eq!(tx.range(&TABLE, ..).count().unwrap_err().code(), ENDED);
    assert_eq!(other.resume(), Done);
    drop(tx);
    only_the_other(&db, other);
}

/// The next transaction of the same worker is not affected.
#[test]
fn the_next_transaction_is_a_new_one() {
    let db = two_rows();
    let (tx, savepoint, other) = victim(&db);
    drop(tx);
    only_the_other(&db, other);
    let mut next = db.begin().unwrap();
    let refused = next.rollback_to(&savepoint).unwrap_err();
    assert_eq!(refused.code(), "no_such_savepoint");
    next.put(&TABLE, &1, &13).unwrap();
    next.commit().unwrap();
}

/// Returns the results of all operations of a task, one after the other.
fn all_of_a_task(
    tx: &mut AsyncTransaction,
    savepoint: &Savepoint,
) -> Vec<(&'static str, Result<()>)> {
    let mut saw = Vec::new();
    let mut note = |what, came_to: Result<()>| saw.push((what, came_to));
    note("get", now(tx.get(&TABLE, &1)).map(drop));
    note(
        "get_for_update",
        now(tx.get_for_update(&TABLE, &1)).map(drop),
    );
    let locked = tx.get_locked(&TABLE, &1, Lock::Update.skip_locked());
    note("get_locked", now(locked).map(drop));
    note("put", now(tx.put(&TABLE, &1, &10)));
    note("insert", now(tx.insert(&TABLE, &50, &50)));
    note("delete", now(tx.delete(&TABLE, &50)).map(drop));
    note("range", now(tx.range(&TABLE, ..).collect()).map(drop));
    let down = tx.range(&TABLE, ..).reversed().limit(1);
    note("range, reversed", now(down.for_each(|_, _| ())));
    let bytes = tx.range(&TABLE, 1..).locked(Lock::Update);
    let take = |_: &[u8], _: &[u8]| ControlFlow::Break(());
    note("range, bytes", now(bytes.try_for_each_bytes(take)));
    note("get_by", now(tx.get_by(&BY_OWN_VALUE, &10)).map(drop));
    note(
        "get_by, not unique",
        now(tx.get_by(&BY_VALUE, &10)).map(drop),
    );
    let update = tx.get_by_for_update(&BY_OWN_VALUE, &10);
    note("get_by_for_update", now(update).map(drop));
    let nowait = tx.get_by_locked(&BY_OWN_VALUE, &10, Lock::Shared.nowait());
    note("get_by_locked", now(nowait).map(drop));
    let by = tx.range_by(&BY_VALUE, ..);
    note("range_by", now(by.collect()).map(drop));
    let by = tx.range_by(&BY_VALUE, ..).reversed();
    note("range_by, reversed", now(by.for_each(|_, _, _| ())));
    let by = tx.range_by(&BY_VALUE, 1..);
    let take = |_, _, _| ControlFlow::Break(());
    note("range_by, try", now(by.try_for_each(take)));
    note("all_by", now(tx.all_by(&BY_VALUE, &10).collect()).map(drop));
    let table = tx.lock_table(&TABLE, TableLock::Shared, LockWait::Default);
    note("lock_table", now(table).map(drop));
    note(
        "lock_advisory",
        now(tx.lock_advisory(7, Lock::Shared)).map(drop),
    );
    note("savepoint", tx.savepoint().map(drop));
    note("rollback_to", now(tx.rollback_to(savepoint)));
    note("release_savepoint", tx.release_savepoint(savepoint));
    saw
}

/// Returns a transaction of a task that a deadlock has ended, and the other session of the cycle.
fn victim_of_tasks(db: &Database) -> (AsyncTransaction, Savepoint, Session) {
    let mut tx = db.begin_async().unwrap();
    now(tx.put(&TABLE, &1, &11)).unwrap();
    let savepoint = tx.savepoint().unwrap();
    let mut other = Session::new(db, "other");
    assert_eq!(other.put(2, 22), Done);
    assert_eq!(other.put(1, 12), Waits);
    let refused = now(tx.put(&TABLE, &2, &21)).unwrap_err();
    assert_eq!(refused.code(), "deadlock");
    assert_eq!(other.resume(), Done);
    (tx, savepoint, other)
}

#[test]
fn every_operation_of_a_task_is_refused() {
    let db = two_rows();
    let (mut tx, savepoint, other) = victim_of_tasks(&db);
    for (what, came_to) in all_of_a_task(&mut tx, &savepoint) {
        assert_eq!(came_to.expect_err(what).code(), ENDED, "{what}");
    }
    drop(tx);
    only_the_other(&db, other);
    let (tx, _, other) = victim_of_tasks(&two_rows());
    assert_eq!(now(tx.commit()).unwrap_err().code(), ENDED);
    drop(other);
}

#[test]
fn every_operation_of_a_task_succeeds_before_the_end() {
    let db = two_rows();
    let mut tx = db.begin_async().unwrap();
    let savepoint = tx.savepoint().unwrap();
    for (what, came_to) in all_of_a_task(&mut tx, &savepoint) {
        came_to.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    drop(tx);
    assert_eq!(rows(&db), TWO);
}
