//! Every refusal names the conflicting owners, with lock name, mode, age and table, over every lock
//! manager.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use foxton::error::{Conflict, ConflictReason};
use foxton::{
    AsyncTransaction, Database, Durability, Error, Lock, LockManagerKind, LockWait, Options,
    Result, Table, TableLock, Transaction, VictimPolicy,
};

const ROWS: Table<u64, i64> = Table::new("rows");

fn database(manager: LockManagerKind) -> Database {
    let mut options = Options::tiny();
    options.durability = Durability::None;
    options.lock_manager = manager;
    options.victim = VictimPolicy::Requester;
    options.lock_escalation = 0;
    options.lock_bytes = 200 * 96;
    let db = Database::in_memory(options).unwrap();
    db.run(|tx| (1..10).try_for_each(|key| tx.put(&ROWS, &key, &0)))
        .unwrap();
    db
}

fn poll<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Poll<T> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

fn now<T>(future: impl Future<Output = T>) -> T {
    match poll(&mut Box::pin(future)) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("it waits"),
    }
}

/// A transaction that has written row 1 and locked number 7.
fn holder(db: &Database) -> AsyncTransaction {
    let mut holder = db.begin_async().unwrap();
    holder.set_label("holder");
    now(holder.put(&ROWS, &1, &1)).unwrap();
    now(holder.lock_advisory(7, Lock::Exclusive)).unwrap();
    holder
}

fn conflict<T>(asked: Result<T>) -> Conflict {
    match asked {
        Err(Error::Conflict(conflict)) => conflict,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// A request that must be refused.
type Ask = fn(&mut Transaction) -> Result<()>;

/// The requests, their outcome, and the conflicting mode.
const ASKED: &[(&str, Ask, ConflictReason, &str)] = &[
    (
        "a row, not to wait",
        |tx| {
            let lock = Lock::Shared.nowait();
            tx.get_locked(&ROWS, &1, lock).map(drop)
        },
        ConflictReason::Busy,
        "X",
    ),
    (
        "a row, not for long",
        |tx| {
            let lock = Lock::Shared.timeout(Duration::from_millis(1));
            tx.get_locked(&ROWS, &1, lock).map(drop)
        },
        ConflictReason::TimedOut,
        "X",
    ),
    (
        "a range, not to wait",
        |tx| {
            let rows = tx.range(&ROWS, ..).locked(Lock::Update.nowait());
            rows.collect().map(drop)
        },
        ConflictReason::Busy,
        "X",
    ),
    (
        "the table, not to wait",
        |tx| {
            let lock = TableLock::Shared;
            tx.lock_table(&ROWS, lock, LockWait::Refuse).map(drop)
        },
        ConflictReason::Busy,
        "IX",
    ),
    (
        "the table, not for long",
        |tx| {
            let wait = LockWait::AtMost(Duration::from_millis(1));
            tx.lock_table(&ROWS, TableLock::Exclusive, wait).map(drop)
        },
        ConflictReason::TimedOut,
        "IX",
    ),
    (
        "a number, not to wait",
        |tx| tx.lock_advisory(7, Lock::Shared.nowait()).map(drop),
        ConflictReason::Busy,
        "X",
    ),
    (
        "a number, not for long",
        |tx| {
            let lock = Lock::Update.timeout(Duration::from_millis(1));
            tx.lock_advisory(7, lock).map(drop)
        },
        ConflictReason::TimedOut,
        "X",
    ),
];

/// Checks that the conflict names `holder`.
fn check(conflict: &Conflict, reason: ConflictReason, mode: Option<&str>, what: &str) {
    assert_eq!(conflict.reason(), reason, "{what}");
    let refusal = conflict
        .refusal()
        .unwrap_or_else(|| panic!("{what}: no refusal"));
    let found = refusal.blockers.iter().find(|b| b.label == "holder");
    let blocker = found.unwrap_or_else(|| panic!("{what}: {conflict}"));
    if let Some(mode) = mode {
        assert_eq!(blocker.mode.to_string(), mode, "{what}");
    }
    // By the coarse clock it may have begun just now, but not before the test.
    assert!(blocker.age < Duration::from_secs(3600), "{what}");
    let told = conflict.to_string();
    assert!(told.contains("holder"), "{what}: {told}");
    let is_named = told.contains("rows") || refusal.name.to_string().contains('7');
    assert!(is_named, "{what}: {told}");
}

#[test]
fn requests_without_waiting_and_waits_that_time_out() {
    for manager in LockManagerKind::ALL {
        let db = database(manager);
        let holder = holder(&db);
        let mut tx = db.begin().unwrap();
        for &(what, ask, reason, mode) in ASKED {
            let what = format!("{what}, over {manager}");
            check(&conflict(ask(&mut tx)), reason, Some(mode), &what);
        }
        // None of them has ended it.
        assert_eq!(tx.get(&ROWS, &2).unwrap(), Some(0));
        tx.commit().unwrap();
        drop(holder);
        assert!(db.locks().is_empty(), "{manager}");
    }
}

#[test]
fn a_victim_and_its_later_requests() {
    for manager in LockManagerKind::ALL {
        let db = database(manager);
        let mut victim = db.begin().unwrap();
        victim.put(&ROWS, &2, &2).unwrap();
        let mut holder = holder(&db);
        let mut waits = Box::pin(holder.put(&ROWS, &2, &1));
        assert!(poll(&mut waits).is_pending());
        let refused = conflict(victim.get(&ROWS, &1));
        let what = format!("a deadlock over {manager}");
        check(&refused, ConflictReason::Deadlock, Some("X"), &what);
        assert_eq!(refused.refusal().unwrap().cycle.len(), 2, "{what}");
        assert_eq!(refused.table(), Some("rows"), "{what}");
        for _ in 0..2 {
            let after = conflict(victim.get(&ROWS, &5));
            check(
                &after,
                ConflictReason::Ended,
                Some("X"),
                &format!("after {what}"),
            );
            assert_eq!(after.refusal().unwrap().cycle.len(), 2, "after {what}");
            assert_eq!(after.table(), Some("rows"), "after {what}");
        }
        victim.rollback();
        assert!(matches!(poll(&mut waits), Poll::Ready(Ok(()))));
        drop(waits);
        drop(holder);
        // The next transaction of the same worker is not affected.
        let mut next = db.begin().unwrap();
        assert_eq!(next.get(&ROWS, &5).unwrap(), Some(0), "{what}");
        next.commit().unwrap();
    }
}

#[test]
fn a_session_that_is_a_victim() {
    for manager in LockManagerKind::ALL {
        let db = database(manager);
        let mut session = db.session().unwrap();
        assert!(session.lock_advisory(8, Lock::Exclusive).unwrap());
        let mut holder = holder(&db);
        let mut waits = Box::pin(holder.lock_advisory(8, Lock::Exclusive));
        assert!(poll(&mut waits).is_pending());
        let refused = conflict(session.lock_advisory(7, Lock::Exclusive));
        let what = format!("a session over {manager}");
        check(&refused, ConflictReason::SessionDeadlock, Some("X"), &what);
        assert_eq!(refused.table(), None, "{what}");
        session.unlock_all().unwrap();
        assert!(matches!(poll(&mut waits), Poll::Ready(Ok(true))));
        drop(waits);
        drop(holder);
    }
}

#[test]
fn requests_beyond_the_memory_limit() {
    for manager in LockManagerKind::ALL {
        let db = database(manager);
        let mut holder = holder(&db);
        for number in 1000..1150 {
            now(holder.lock_advisory(number, Lock::Shared)).unwrap();
        }
        let mut tx = db.begin().unwrap();
        let refused = (2..500).find_map(|key| tx.put(&ROWS, &(key << 16), &1).err());
        let refused = conflict(Err::<(), _>(
            refused.expect("there is room for two hundred"),
        ));
        let what = format!("no room over {manager}");
        check(&refused, ConflictReason::Full, None, &what);
        tx.rollback();
        drop(holder);
    }
}
