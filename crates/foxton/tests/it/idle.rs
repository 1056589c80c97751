//! Idle transactions: detection and rollback. Time is the database's clock, which the test sets.
//! Races with the thread that ends them are played at a failpoint.

use std::mem;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use crate::common::*;
use foxton::error::ConflictReason;
use foxton::{AsyncTransaction, Database, Error, Lock, Options, Result, Transaction, failpoint};

const HOUR: Duration = Duration::from_secs(3600);

fn patient(mut options: Options) -> Database {
    options.idle_timeout = Some(HOUR);
    // Tasks use the same clock for waits.
    options.lock_wait = Duration::MAX;
    database(options, TWO)
}

fn tiny() -> Database {
    patient(Options::tiny())
}

/// Sleeps until this many transactions were ended.
fn until_ended(db: &Database, count: u64) {
    while db.stats().idle_ended < count {
        thread::yield_now();
    }
}

/// A transaction that has changed the first row.
fn writer(db: &Database) -> Transaction {
    let mut tx = db.begin().unwrap();
    tx.put(&TABLE, &1, &11).unwrap();
    tx
}

/// An operation that waits for the second row.
fn waiting(tx: &mut AsyncTransaction) -> impl Future<Output = Result<Option<i64>>> {
    let mut waits = Box::pin(tx.get(&TABLE, &2));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    waits
}

fn is_idle<T>(asked: Result<T>) {
    let Err(refused) = asked else {
        panic!("it was taken");
    };
    assert_eq!(refused.code(), "ended_idle");
    assert!(!refused.is_retryable());
    assert!(refused.to_string().contains("idle_timeout"), "{refused}");
    let Error::Conflict(conflict) = refused else {
        panic!("{refused}");
    };
    assert_eq!(conflict.reason(), ConflictReason::Idle);
}

#[test]
fn an_idle_transaction_is_rolled_back_and_refused_afterwards() {
    over_all_managers(|options| {
        let db = patient(options);
        let mut tx = writer(&db);
        tx.set_label("absent");
        let savepoint = tx.savepoint().unwrap();
        db.clock().advance(HOUR);
        until_ended(&db, 1);
        assert!(db.locks().is_empty(), "{:?}", db.locks());
        assert_eq!(rows(&db), TWO);
        is_idle(tx.get(&TABLE, &1));
        is_idle(tx.put(&TABLE, &1, &12));
        is_idle(tx.range(&TABLE, ..).collect());
        is_idle(tx.range(&TABLE, ..).reversed().limit(1).first());
        is_idle(tx.range(&TABLE, ..).into_iter().next().unwrap());
        is_idle(tx.lock_advisory(7, Lock::Shared));
        is_idle(tx.savepoint());
        is_idle(tx.rollback_to(&savepoint));
        tx.set_label("too late");
        is_idle(tx.commit());
        assert!(db.locks().is_empty());
        assert_eq!(rows(&db), TWO);
        let stats = db.stats();
        assert_eq!((stats.idle_ended, stats.rollbacks), (1, 1));
        db.verify();
    });
}

#[test]
fn each_operation_begins_the_time_anew() {
    let db = tiny();
    let mut busy = db.begin().unwrap();
    busy.put(&TABLE, &1, &11).unwrap();
    for round in 1..=5 {
        let mut idle = db.begin().unwrap();
        idle.get(&TABLE, &2).unwrap();
        db.clock().advance(HOUR / 2);
        busy.put(&TABLE, &1, &(11 + round)).unwrap();
        db.clock().advance(HOUR / 2);
        // The thread has checked since: the other transaction is ended.
        until_ended(&db, round as u64);
        is_idle(idle.get(&TABLE, &2));
        busy.get(&TABLE, &1).unwrap();
    }
    busy.put(&TABLE, &2, &22).unwrap();
    busy.commit().unwrap();
    assert_eq!(rows(&db), [(1, 16), (2, 22)]);
}

#[test]
fn a_waiting_transaction_is_not_idle() {
    over_all_managers(|options| {
        let db = patient(options);
        let mut tx = writer(&db);
        let mut waits = Session::new(&db, "waits");
        assert_eq!(waits.put(2, 22), Done);
        assert_eq!(waits.get(1), Waits);
        db.clock().advance(HOUR);
        until_ended(&db, 1);
        assert_eq!(waits.resume(), Value(Some(10)));
        assert_eq!(waits.commit(), Done);
        is_idle(tx.get(&TABLE, &1));
        drop(tx);
        assert_eq!(db.stats().idle_ended, 1);
        assert_eq!(rows(&db), [(1, 10), (2, 22)]);
        db.verify();
    });
}

#[test]
fn a_forgotten_transaction_gives_back_what_it_holds() {
    over_all_managers(|options| {
        let db = patient(options);
        let mut tx = writer(&db);
        tx.set_label("forgotten");
        mem::forget(tx);
        let open = db.transactions();
        assert_eq!((open.len(), &*open[0].label), (1, "forgotten"));
        db.clock().advance(HOUR / 2);
        let open = db.transactions().pop().unwrap();
        assert!(open.idle.unwrap() >= HOUR / 2, "{open}");
        assert!(open.to_string().contains("forgotten holds"), "{open}");
        db.clock().advance(HOUR / 2);
        until_ended(&db, 1);
        assert!(db.transactions().is_empty());
        assert_eq!(rows(&db), TWO);
        db.verify();
    });
}

/// An operation begins while the thread ends its transaction, and is refused before the thread is
/// done.
#[test]
fn an_operation_that_comes_while_it_is_ended_is_refused_at_once() {
    let db = tiny();
    let mut tx = writer(&db);
    let stop = db.failpoints().stop(&failpoint::IDLE);
    db.clock().advance(HOUR);
    stop.reached();
    is_idle(tx.get(&TABLE, &1));
    is_idle(tx.put(&TABLE, &1, &12));
    assert!(!db.locks().is_empty(), "nothing was undone yet");
    stop.release();
    until_ended(&db, 1);
    is_idle(tx.put(&TABLE, &1, &12));
    drop(tx);
    assert!(db.locks().is_empty());
    assert_eq!(rows(&db), TWO);
    db.verify();
}

/// The owner ends the transaction meanwhile; the thread recycles its worker.
#[test]
fn a_commit_or_rollback_during_the_idle_rollback_is_refused_or_void() {
    for commits in [true, false] {
        let db = tiny();
        let tx = writer(&db);
        let stop = db.failpoints().stop(&failpoint::IDLE);
        db.clock().advance(HOUR);
        stop.reached();
        match commits {
            true => is_idle(tx.commit()),
            false => drop(tx),
        }
        stop.release();
        until_ended(&db, 1);
        assert_eq!(rows(&db), TWO);
        // Its worker is available to later transactions, which are not idle.
        for round in 0..3 {
            db.run(|tx| tx.put(&TABLE, &1, &round)).unwrap();
        }
        assert!(db.locks().is_empty());
        assert_eq!(db.stats().idle_ended, 1);
        db.verify();
    }
}

#[test]
fn tasks_are_ended_as_well_and_a_dropped_operation_is_none() {
    let db = tiny();
    let mut tx = db.begin_async().unwrap();
    now(tx.put(&TABLE, &1, &11)).unwrap();
    let mut holder = Session::new(&db, "holder");
    assert_eq!(holder.put(2, 22), Done);
    drop(waiting(&mut tx));
    assert_eq!(holder.commit(), Done);
    db.clock().advance(HOUR);
    until_ended(&db, 1);
    assert!(db.locks().is_empty());
    is_idle(now(tx.get(&TABLE, &1)));
    is_idle(tx.savepoint());
    is_idle(now(tx.commit()));
    assert_eq!(rows(&db), [(1, 10), (2, 22)]);
}

#[test]
fn a_forgotten_operation_lasts_until_the_next_one() {
    let db = tiny();
    let mut tx = db.begin_async().unwrap();
    let mut holder = Session::new(&db, "holder");
    assert_eq!(holder.put(2, 22), Done);
    mem::forget(waiting(&mut tx));
    assert_eq!(holder.commit(), Done);
    let mut decoy = db.begin().unwrap();
    decoy.get(&TABLE, &1).unwrap();
    db.clock().advance(HOUR);
    until_ended(&db, 1);
    is_idle(decoy.commit());
    now(tx.put(&TABLE, &1, &11)).unwrap();
    now(tx.commit()).unwrap();
    assert!(db.locks().is_empty());
    assert_eq!(rows(&db), [(1, 11), (2, 22)]);
    assert_eq!(db.stats().idle_ended, 1);
    db.verify();
}

#[test]
fn a_session_loses_its_idle_transaction_and_keeps_its_number() {
    over_all_managers(|options| {
        let db = patient(options);
        let mut one = db.session().unwrap();
        one.lock_advisory(7, Lock::Exclusive).unwrap();
        let mut tx = one.begin().unwrap();
        tx.put(&TABLE, &1, &11).unwrap();
        db.clock().advance(HOUR);
        until_ended(&db, 1);
        let held = |db: &Database| {
            let locks = db.locks();
            assert_eq!((locks.len(), &*locks[0].place()), (1, "#7"));
        };
        held(&db);
        is_idle(tx.get(&TABLE, &1));
        drop(tx);
        // A session between its transactions is never idle.
        let mut decoy = db.begin().unwrap();
        decoy.get(&TABLE, &1).unwrap();
        db.clock().advance(HOUR);
        until_ended(&db, 2);
        drop(decoy);
        held(&db);
        one.run(|tx| tx.put(&TABLE, &2, &22)).unwrap();
        assert!(one.unlock_advisory(7).unwrap());
        assert_eq!(rows(&db), [(1, 10), (2, 22)]);
        db.verify();
    });
}

#[test]
fn run_does_not_rerun_an_idle_transaction() {
    let db = tiny();
    let mut attempts = 0;
    let refused = db.run(|tx| {
        attempts += 1;
        tx.put(&TABLE, &1, &11)?;
        db.clock().advance(HOUR);
        until_ended(&db, 1);
        tx.put(&TABLE, &2, &22)
    });
    is_idle(refused);
    assert_eq!(attempts, 1);
    assert_eq!(rows(&db), TWO);
}

#[test]
fn without_the_option_no_transaction_is_ended_and_the_oldest_stands_out() {
    let db = database(Options::tiny(), TWO);
    let mut tx = writer(&db);
    tx.set_label("old");
    db.clock().advance(24 * HOUR);
    let mut waits = Session::new(&db, "young");
    assert_eq!(waits.get(1), Waits);
    let open = db.transactions();
    assert_eq!(open.len(), 2);
    let of = |label: &str| open.iter().find(|open| open.label == label).unwrap();
    assert_eq!((of("old").idle, of("young").idle), (None, None));
    assert_eq!(of("old").awaits, None);
    assert!(of("young").awaits.as_ref().unwrap().starts_with("test/"));
    tx.commit().unwrap();
    assert_eq!(waits.resume(), Value(Some(11)));
}

/// A database that only reports idle times.
#[test]
fn an_infinite_timeout_ends_no_transaction() {
    let mut options = Options::tiny();
    options.idle_timeout = Some(Duration::MAX);
    let db = database(options, TWO);
    let tx = writer(&db);
    db.clock().advance(24 * HOUR);
    let open = db.transactions().pop().unwrap();
    assert!(open.idle.unwrap() >= 24 * HOUR);
    tx.commit().unwrap();
    assert_eq!(rows(&db)[0], (1, 11));
}
