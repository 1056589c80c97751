//! Sessions: locks that outlive transactions, over every lock manager. A session holds its locks
//! until it releases them, and takes part in deadlocks together with its transactions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::*;
use foxton::Session as Holder;
use foxton::error::ConflictReason;
use foxton::{Database, Error, Lock, Locking, Options, VictimPolicy};

fn holder(db: &Database, label: &'static str) -> Holder {
    let mut holder = db.session().unwrap();
    holder.set_label(label).unwrap();
    holder
}

/// True if another session could lock `number` like this now.
fn is_free(db: &Database, number: u64, lock: Lock) -> bool {
    let mut other = db.begin().unwrap();
    other.lock_advisory(number, lock.skip_locked()).unwrap()
}

fn poll<F: Future>(operation: Pin<&mut F>) -> Poll<F::Output> {
    operation.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_number_stays_locked_through_transactions_however_they_end() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let mut one = holder(&db, "one");
        assert!(one.lock_advisory(7, Lock::Exclusive).unwrap());
        let held = || {
            assert!(!is_free(&db, 7, Lock::Shared));
            let ours = |lock: &foxton::inspect::HeldLock| lock.place() == "#7";
            let locks = db.locks();
            let locks: Vec<_> = locks.iter().filter(|lock| ours(lock)).collect();
            assert_eq!(locks.len(), 1, "{:?}", db.locks());
            assert_eq!(locks[0].label, "one");
            db.verify();
        };
        held();
        one.run(|tx| tx.put(&TABLE, &1, &11)).unwrap();
        held();
        assert_eq!(db.locks().len(), 1, "only the number: {:?}", db.locks());
        let mut tx = one.begin().unwrap();
        tx.set_label("its transaction");
        tx.put(&TABLE, &2, &21).unwrap();
        tx.lock_advisory(8, Lock::Exclusive).unwrap();
        assert!(
            db.locks()
                .iter()
                .all(|lock| lock.label == "its transaction")
        );
        drop(tx);
        held();
        assert_eq!(db.locks().len(), 1);
        one.run(|tx| tx.range(&TABLE, ..).collect()).unwrap();
        held();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            one.run::<()>(|tx| {
                tx.put(&TABLE, &2, &22)?;
                panic!("on purpose")
            })
        }));
        assert!(panicked.is_err());
        held();
        assert_eq!(db.locks().len(), 1);
        assert!(one.unlock_advisory(7).unwrap());
        assert!(!one.unlock_advisory(7).unwrap());
        assert!(db.locks().is_empty());
        assert_eq!(rows(&db), [(1, 11), (2, 20)]);
        // Once it holds no locks, the session is like a new one, and may begin again.
        one.run(|tx| tx.put(&TABLE, &1, &10)).unwrap();
        one.lock_advisory(7, Lock::Exclusive).unwrap();
        held();
        drop(one);
        assert!(db.locks().is_empty());
        assert!(is_free(&db, 7, Lock::Exclusive));
        db.verify();
    });
}

#[test]
fn each_time_counts_and_the_strongest_stays() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let mut one = holder(&db, "one");
        one.lock_advisory(7, Lock::Shared).unwrap();
        one.lock_advisory(7, Lock::Shared).unwrap();
        one.lock_advisory(8, Lock::Shared).unwrap();
        assert!(is_free(&db, 7, Lock::Shared));
        one.lock_advisory(7, Lock::Exclusive).unwrap();
        assert!(!is_free(&db, 7, Lock::Shared));
        assert!(one.unlock_advisory(7).unwrap());
        assert!(one.unlock_advisory(7).unwrap());
        assert!(!is_free(&db, 7, Lock::Shared), "once is left");
        assert!(one.unlock_advisory(7).unwrap());
        assert!(!one.unlock_advisory(7).unwrap());
        assert!(is_free(&db, 7, Lock::Exclusive));
        // A stronger request of its transaction strengthens its lock permanently.
        let mut tx = one.begin().unwrap();
        tx.lock_advisory(8, Lock::Exclusive).unwrap();
        tx.commit().unwrap();
        assert!(!is_free(&db, 8, Lock::Shared));
        one.lock_advisory(9, Lock::Update).unwrap();
        one.lock_advisory(9, Lock::Update).unwrap();
        let mut all = one.unlock_all().unwrap();
        all.sort_unstable();
        assert_eq!(all, [8, 9]);
        assert!(db.locks().is_empty());
        assert!(one.unlock_all().unwrap().is_empty());
        db.verify();
    });
}

#[test]
fn sessions_share_refuse_pass_over_and_time_out() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let (mut one, mut other) = (holder(&db, "one"), holder(&db, "other"));
        one.lock_advisory(7, Lock::Shared).unwrap();
        assert!(other.lock_advisory(7, Lock::Shared).unwrap());
        assert!(
            !other
                .lock_advisory(7, Lock::Exclusive.skip_locked())
                .unwrap()
        );
        let refused = other
            .lock_advisory(7, Lock::Exclusive.nowait())
            .unwrap_err();
        assert_eq!(refused.code(), "lock_busy");
        assert!(refused.to_string().contains("one"), "{refused}");
        let brief = Lock::Exclusive.timeout(Duration::from_millis(1));
        let refused = other.lock_advisory(7, brief).unwrap_err();
        assert_eq!(refused.code(), "lock_timeout");
        assert!(refused.to_string().contains("one"), "{refused}");
        // A refusal costs the session none of its locks.
        assert!(!is_free(&db, 7, Lock::Exclusive));
        drop(one);
        assert!(other.lock_advisory(7, Lock::Exclusive.nowait()).unwrap());
        drop(other);
        assert!(db.locks().is_empty());
        db.verify();
    });
}

/// Its transaction waits for a row of a transaction that waits for the session's number: a cycle of
/// two.
#[test]
fn a_circle_through_a_session_and_its_transaction_is_found() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let mut one = holder(&db, "one");
        one.lock_advisory(7, Lock::Exclusive).unwrap();
        let mut t1 = Session::of(one.begin_async().unwrap());
        let mut t2 = Session::new(&db, "T2");
        assert_eq!(t2.put(1, 12), Done);
        assert_eq!(t1.get(1), Waits);
        let waits = db.waits();
        assert_eq!((waits.len(), &*waits[0].lock.label), (1, "one"));
        let saw = t2.lock_advisory(7, Lock::Shared);
        let told = || db.deadlocks().pop().expect("it was noted").to_string();
        let saw = if saw == Waits { t2.resume() } else { saw };
        if saw == Refused("deadlock") {
            assert_eq!(t1.resume(), Value(Some(10)));
            assert_eq!(t1.commit(), Done);
        } else {
            // The session keeps its number, so the other waits until it is released.
            assert_eq!((t1.resume(), saw), (Refused("deadlock"), Waits));
            drop(t1);
            assert!(one.unlock_advisory(7).unwrap());
            assert_eq!(t2.resume(), Done);
            assert_eq!(t2.commit(), Done);
        }
        let told = told();
        assert!(told.contains("#7") && told.contains("test/"), "{told}");
        assert!(told.contains("one") && told.contains("T2"), "{told}");
        drop((t2, one));
        assert!(db.locks().is_empty());
        db.verify();
    });
}

#[test]
fn a_victim_leaves_its_session_its_locks() {
    over_all_managers(|mut options| {
        options.victim = VictimPolicy::Requester;
        let db = database(options, TWO);
        let mut one = holder(&db, "one");
        one.lock_advisory(7, Lock::Exclusive).unwrap();
        let mut t2 = Session::new(&db, "T2");
        assert_eq!(t2.put(1, 12), Done);
        let mut tx = one.begin().unwrap();
        tx.put(&TABLE, &2, &21).unwrap();
        assert_eq!(t2.put(2, 22), Waits);
        assert_eq!(tx.get(&TABLE, &1).unwrap_err().code(), "deadlock");
        assert_eq!(t2.resume(), Done);
        let ended = tx.lock_advisory(7, Lock::Exclusive).unwrap_err();
        assert_eq!(ended.code(), "ended_by_conflict");
        drop(tx);
        assert!(!is_free(&db, 7, Lock::Shared));
        assert_eq!(t2.commit(), Done);
        assert_eq!(db.locks().len(), 1);
        one.run(|tx| tx.put(&TABLE, &1, &13)).unwrap();
        assert!(one.unlock_advisory(7).unwrap());
        assert!(db.locks().is_empty());
    });
}

#[test]
fn sessions_in_a_deadlock_get_an_error_and_keep_their_locks() {
    over_all_managers(|mut options| {
        options.victim = VictimPolicy::Requester;
        let db = database(options, TWO);
        let (mut one, mut other) = (holder(&db, "one"), holder(&db, "other"));
        one.lock_advisory(1, Lock::Exclusive).unwrap();
        other.lock_advisory(2, Lock::Exclusive).unwrap();
        let mut waits = Box::pin(one.lock_advisory_async(2, Lock::Exclusive));
        assert!(poll(waits.as_mut()).is_pending());
        let refused = other.lock_advisory(1, Lock::Exclusive).unwrap_err();
        assert_eq!(refused.code(), "session_deadlock");
        assert!(refused.is_retryable());
        let Error::Conflict(conflict) = &refused else {
            panic!("{refused}");
        };
        assert_eq!(conflict.reason(), ConflictReason::SessionDeadlock);
        let cycle = &conflict.refusal().expect("it says who").cycle;
        assert_eq!(cycle.len(), 2);
        assert!(
            refused.to_string().contains("release some of them"),
            "{refused}"
        );
        // It holds its locks as before, so the first waits until it releases them.
        assert!(poll(waits.as_mut()).is_pending());
        assert!(other.unlock_advisory(2).unwrap());
        assert!(matches!(poll(waits.as_mut()), Poll::Ready(Ok(true))));
        drop(waits);
        drop((one, other));
        assert!(db.locks().is_empty());
        db.verify();
    });
}

#[test]
fn a_session_does_one_thing_at_a_time() {
    let db = database(Options::tiny(), TWO);
    let mut one = holder(&db, "one");
    one.lock_advisory(7, Lock::Exclusive).unwrap();
    let mut tx = one.begin().unwrap();
    let busy = |refused: Option<Error>| {
        let refused = refused.expect("it is refused");
        assert_eq!(
            (refused.code(), refused.is_retryable()),
            ("session_busy", false)
        );
    };
    busy(one.begin().err());
    busy(one.begin_async().err());
    busy(one.lock_advisory(8, Lock::Shared).err());
    match poll(pin!(one.lock_advisory_async(8, Lock::Shared))) {
        Poll::Ready(refused) => busy(refused.err()),
        Poll::Pending => panic!("it waits"),
    }
    busy(one.unlock_advisory(7).err());
    busy(one.unlock_all().err());
    busy(one.set_label("other").err());
    busy(one.run(|_| Ok(())).err());
    tx.put(&TABLE, &1, &11).unwrap();
    tx.commit().unwrap();
    one.unlock_advisory(7).unwrap();
    assert!(db.locks().is_empty());
    assert_eq!(rows(&db)[0], (1, 11));
}

#[test]
fn a_transaction_keeps_the_locks_of_its_dropped_session_to_the_end() {
    over_all_managers(|options| {
        for commits in [true, false] {
            let db = database(options.clone(), TWO);
            let mut one = holder(&db, "one");
            one.lock_advisory(7, Lock::Exclusive).unwrap();
            let mut tx = one.begin().unwrap();
            drop(one);
            assert!(!is_free(&db, 7, Lock::Shared));
            tx.put(&TABLE, &1, &11).unwrap();
            match commits {
                true => tx.commit().unwrap(),
                false => tx.rollback(),
            }
            assert!(db.locks().is_empty());
            assert_eq!(rows(&db)[0], (1, if commits { 11 } else { 10 }));
            db.verify();
        }
    });
}

#[test]
fn a_wait_that_is_dropped_or_forgotten_leaves_no_trace() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let (mut one, mut other) = (holder(&db, "one"), holder(&db, "other"));
        one.lock_advisory(7, Lock::Exclusive).unwrap();
        other.lock_advisory(8, Lock::Exclusive).unwrap();
        {
            let mut waits = Box::pin(other.lock_advisory_async(7, Lock::Shared));
            assert!(poll(waits.as_mut()).is_pending());
            assert_eq!(db.waits().len(), 1);
            drop(waits);
        }
        assert!(db.waits().is_empty());
        let mut waits = Box::pin(other.lock_advisory_async(7, Lock::Shared));
        assert!(poll(waits.as_mut()).is_pending());
        std::mem::forget(waits);
        // Its next operation withdraws the forgotten one.
        assert!(!other.unlock_advisory(7).unwrap());
        assert!(db.waits().is_empty());
        assert!(one.unlock_advisory(7).unwrap());
        assert!(is_free(&db, 7, Lock::Exclusive));
        assert!(!is_free(&db, 8, Lock::Shared));
        drop((one, other));
        assert!(db.locks().is_empty());
        db.verify();
    });
}

#[test]
fn savepoints_are_of_one_transaction_of_a_session() {
    let db = database(Options::tiny(), TWO);
    let mut one = holder(&db, "one");
    one.lock_advisory(7, Lock::Exclusive).unwrap();
    let mut tx = one.begin().unwrap();
    let old = tx.savepoint().unwrap();
    tx.commit().unwrap();
    let mut tx = one.begin().unwrap();
    let new = tx.savepoint().unwrap();
    tx.put(&TABLE, &1, &11).unwrap();
    let refused = tx.rollback_to(&old).unwrap_err();
    assert_eq!(refused.code(), "no_such_savepoint");
    tx.rollback_to(&new).unwrap();
    tx.commit().unwrap();
    assert_eq!(rows(&db), TWO);
}

/// A ghost that could not be removed at once is removed at the end of a later transaction, with
/// locks of its own.
#[test]
fn removing_old_ghosts_takes_nothing_from_the_session() {
    over_all_managers(|options| {
        let db = database(options, &[(10, 1), (20, 2), (30, 3)]);
        let mut one = holder(&db, "one");
        one.lock_advisory(7, Lock::Exclusive).unwrap();
        let mut reader = db.begin().unwrap();
        assert_eq!(reader.range(&TABLE, 11..15).count().unwrap(), 0);
        one.run(|tx| tx.delete(&TABLE, &20)).unwrap();
        let left = db.stats().ghosts_left;
        assert!(left > 0, "the reader has the gap before the ghost");
        reader.commit().unwrap();
        let purged = db.stats().ghosts_purged;
        one.run(|tx| tx.put(&TABLE, &30, &4)).unwrap();
        assert!(db.stats().ghosts_purged > purged);
        assert!(!is_free(&db, 7, Lock::Shared));
        assert_eq!(db.locks().len(), 1);
        db.verify();
    });
}

#[test]
fn there_are_no_sessions_without_locking() {
    let mut options = Options::tiny();
    options.locking = Locking::Off;
    let db = Database::in_memory(options).unwrap();
    let refused = db.session().unwrap_err();
    assert_eq!(refused.code(), "session_without_locks");
    db.run(|tx| tx.put(&TABLE, &1, &1)).unwrap();
}

#[test]
fn a_session_keeps_its_database_open() {
    let db = database(Options::tiny(), TWO);
    let mut one = holder(&db, "one");
    drop(db);
    one.lock_advisory(7, Lock::Exclusive).unwrap();
    assert_eq!(one.run(|tx| tx.get(&TABLE, &1)).unwrap(), Some(10));
}

/// Many transactions of one session, each larger than the one before, together with others.
/// Acquisition order restarts with each transaction and never mixes with another's.
#[test]
fn a_long_session_releases_exactly_the_locks_of_its_transactions() {
    over_all_managers(|mut options| {
        options.lock_escalation = 8;
        let db = database(options, TWO);
        let mut one = holder(&db, "one");
        for number in 0..3 {
            one.lock_advisory(number, Lock::Exclusive).unwrap();
        }
        for round in 0..40u64 {
            one.run(|tx| {
                for key in 0..round % 20 {
                    tx.put(&TABLE, &(key << 16), &1)?;
                }
                tx.range(&TABLE, ..round).count()
            })
            .unwrap();
            assert_eq!(db.locks().len(), 3, "{:?}", db.locks());
            if round == 20 {
                one.unlock_advisory(1).unwrap();
                one.lock_advisory(5, Lock::Shared).unwrap();
            }
        }
        db.verify();
        drop(one);
        assert!(db.locks().is_empty());
    });
}

#[test]
fn tasks_have_sessions_too() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let db = database(Options::tiny(), TWO);
    let mut one = holder(&db, "one");
    runtime.block_on(async {
        assert!(one.lock_advisory_async(7, Lock::Exclusive).await.unwrap());
        one.run_async(|mut tx| async move {
            tx.put(&TABLE, &1, &11).await?;
            tx.commit().await
        })
        .await
        .unwrap();
        let brief = Lock::Shared.timeout(Duration::from_millis(1));
        let mut other = holder(&db, "other");
        let refused = other.lock_advisory_async(7, brief).await.unwrap_err();
        assert_eq!(refused.code(), "lock_timeout");
    });
    assert!(!is_free(&db, 7, Lock::Shared));
    assert!(one.unlock_advisory(7).unwrap());
    assert_eq!(rows(&db)[0], (1, 11));
}
