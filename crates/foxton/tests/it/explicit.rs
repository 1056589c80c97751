//! Explicit locks, on whole tables and on advisory numbers, over every lock manager.

use crate::common::*;
use foxton::{Lock, LockWait, TableLock};

use TableLock::{Exclusive, IntentExclusive, IntentShared, Shared, SharedIntentExclusive, Update};

/// The compatibility table from the documentation of `TableLock`.
const BESIDE: [(TableLock, &[TableLock]); 6] = [
    (
        IntentShared,
        &[
            IntentShared,
            IntentExclusive,
            Shared,
            SharedIntentExclusive,
            Update,
        ],
    ),
    (IntentExclusive, &[IntentShared, IntentExclusive]),
    (Shared, &[IntentShared, Shared, Update]),
    (SharedIntentExclusive, &[IntentShared]),
    (Update, &[IntentShared, Shared]),
    (Exclusive, &[]),
];

#[test]
fn tables_are_shared_as_documented() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        for (one, beside) in BESIDE {
            for (other, _) in BESIDE {
                let mut t1 = Session::new(&db, "T1");
                let mut t2 = Session::new(&db, "T2");
                assert_eq!(t1.lock_table(one, LockWait::Default), Done);
                let wanted = match beside.contains(&other) {
                    true => [Done, Done],
                    false => [Refused("passed over"), Refused("lock_busy")],
                };
                let waits = [LockWait::Skip, LockWait::Refuse];
                let saw = waits.map(|wait| t2.lock_table(other, wait));
                assert_eq!(saw, wanted, "{other:?} beside {one:?}");
            }
        }
        assert!(db.locks().is_empty());
        db.verify();
    });
}

#[test]
fn a_row_writer_waits_for_a_table_reader() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.lock_table(Shared, LockWait::Default), Done);
        assert_eq!(t1.scan(..), Rows(TWO.to_vec()));
        assert_eq!(t2.get(1), Value(Some(10)));
        assert_eq!(t2.insert(3, 30), Waits);
        assert_eq!(t1.scan(..), Rows(TWO.to_vec()));
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 10), (2, 20), (3, 30)]
    });
}

#[test]
fn a_table_lock_waits_for_a_row_writer() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.put(1, 11), Done);
        assert_eq!(t2.lock_table(Exclusive, LockWait::Default), Waits);
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.delete(2), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 11)]
    });
}

#[test]
fn a_wait_for_a_table_that_is_given_up_leaves_nothing() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.put(1, 11), Done);
        assert_eq!(t2.lock_table(Shared, LockWait::Default), Waits);
        t2.give_up();
        assert_eq!(t1.put(2, 21), Done);
        assert_eq!(t1.commit(), Done);
        vec![(1, 11), (2, 21)]
    });
}

#[test]
fn keys_of_a_whole_table_need_no_locks() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let mut tx = db.begin().unwrap();
        tx.lock_table(&TABLE, Shared, LockWait::Default).unwrap();
        assert_eq!(tx.range(&TABLE, ..).collect().unwrap(), TWO);
        assert_eq!(tx.get(&TABLE, &7).unwrap(), None);
        assert_eq!(locked_keys(&db), 0, "{:?}", db.locks());
        tx.lock_table(&TABLE, Exclusive, LockWait::Default).unwrap();
        for key in 3..50 {
            tx.insert(&TABLE, &key, &1).unwrap();
        }
        assert!(tx.delete(&TABLE, &1).unwrap());
        assert_eq!(locked_keys(&db), 0, "{:?}", db.locks());
        tx.rollback();
        assert_eq!(rows(&db), TWO);
        // The next transaction of the same worker locks keys again.
        let mut tx = db.begin().unwrap();
        tx.put(&TABLE, &1, &11).unwrap();
        assert_eq!(locked_keys(&db), 1, "{:?}", db.locks());
    });
}

#[test]
fn numbers_are_locked_until_the_end() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.lock_advisory(7, Lock::Shared), Done);
        assert_eq!(t2.lock_advisory(7, Lock::Shared), Done);
        assert_eq!(t2.lock_advisory(7, Lock::Update), Done);
        assert_eq!(
            t1.lock_advisory(7, Lock::Update.nowait()),
            Refused("lock_busy")
        );
        assert_eq!(
            t1.lock_advisory(7, Lock::Update.skip_locked()),
            Refused("passed over")
        );
        assert_eq!(t2.lock_advisory(u64::MAX, Lock::Exclusive), Done);
        assert_eq!(t2.lock_advisory(7, Lock::Exclusive), Waits);
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.commit(), Done);
        TWO.to_vec()
    });
}

#[test]
fn a_circle_over_a_number_and_a_row_is_found() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let (mut t1, mut t2) = (Session::new(&db, "T1"), Session::new(&db, "T2"));
        assert_eq!(t1.lock_advisory(7, Lock::Exclusive), Done);
        assert_eq!(t2.put(1, 12), Done);
        assert_eq!(t1.get(1), Waits);
        let saw = t2.lock_advisory(7, Lock::Exclusive);
        let (first_gave_way, _) = one_is_the_victim(&mut t1, &mut t2, saw);
        let survivor = if first_gave_way { &mut t2 } else { &mut t1 };
        assert_eq!(survivor.commit(), Done);
        let told = db.deadlocks().pop().expect("it was noted").to_string();
        assert!(told.contains("#7") && told.contains("test/"), "{told}");
    });
}

#[test]
fn a_number_is_in_no_table() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let (mut one, mut other) = (db.begin().unwrap(), db.begin().unwrap());
        one.lock_advisory(7, Lock::Exclusive).unwrap();
        let locks = db.locks();
        assert_eq!(locks.len(), 1);
        assert_eq!((&*locks[0].place(), &*locks[0].table), ("#7", ""));
        let refused = other.lock_advisory(7, Lock::Shared.nowait()).unwrap_err();
        assert!(refused.to_string().contains("#7"), "{refused}");
        let foxton::Error::Conflict(conflict) = refused else {
            panic!("{refused}");
        };
        assert_eq!(conflict.table(), None);
    });
}
