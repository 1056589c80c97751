//! Anomalies on existing rows that must not happen: the Hermitage cases and some more, each as the
//! schedule that would show it, over every lock manager. The names are Adya's and Hermitage's.
//! Missing rows are in `phantoms.rs`.
//!
//! A schedule is played by hand, step by step, so it says exactly which transaction waits for
//! which.

use std::ops::Bound::{Excluded, Unbounded};

use crate::common::*;
use foxton::{Lock, Options};

#[test]
fn g0_writes_of_two_transactions_do_not_mix() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.put(1, 11), Done);
        assert_eq!(t2.put(1, 12), Waits);
        assert_eq!(t1.put(2, 21), Done);
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.put(2, 22), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 12), (2, 22)]
    });
}

#[test]
fn g1a_rolled_back_values_are_not_read() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.put(1, 101), Done);
        assert_eq!(t2.scan(..), Waits);
        t1.abort();
        assert_eq!(t2.resume(), Rows(TWO.to_vec()));
        assert_eq!(t2.scan(..), Rows(TWO.to_vec()));
        assert_eq!(t2.commit(), Done);
        TWO.to_vec()
    });
}

#[test]
fn g1b_intermediate_values_are_not_read() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.put(1, 101), Done);
        assert_eq!(t2.scan(..), Waits);
        assert_eq!(t1.put(1, 11), Done);
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Rows(vec![(1, 11), (2, 20)]));
        assert_eq!(t2.scan(..), Rows(vec![(1, 11), (2, 20)]));
        assert_eq!(t2.commit(), Done);
        vec![(1, 11), (2, 20)]
    });
}

#[test]
fn g1c_information_does_not_flow_in_a_circle() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.put(1, 11), Done);
        assert_eq!(t2.put(2, 22), Done);
        assert_eq!(t1.get(2), Waits);
        let saw = t2.get(1);
        let (first_gave_way, saw) = one_is_the_victim(t1, t2, saw);
        if first_gave_way {
            assert_eq!(saw, Value(Some(10)));
            assert_eq!(t2.commit(), Done);
            vec![(1, 10), (2, 22)]
        } else {
            assert_eq!(saw, Value(Some(20)));
            assert_eq!(t1.commit(), Done);
            vec![(1, 11), (2, 20)]
        }
    });
}

#[test]
fn otv_an_observed_transaction_does_not_vanish() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let [mut t1, mut t2, mut t3] = ["T1", "T2", "T3"].map(|label| Session::new(&db, label));
        assert_eq!(t1.put(1, 11), Done);
        assert_eq!(t1.put(2, 19), Done);
        assert_eq!(t2.put(1, 12), Waits);
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t3.get(1), Waits);
        assert_eq!(t2.put(2, 18), Done);
        assert_eq!(t2.commit(), Done);
        assert_eq!(t3.resume(), Value(Some(12)));
        assert_eq!(t3.get(2), Value(Some(18)));
        assert_eq!(t3.get(2), Value(Some(18)));
        assert_eq!(t3.get(1), Value(Some(12)));
        assert_eq!(t3.commit(), Done);
    });
}

#[test]
fn pmp_a_write_by_predicate_sees_what_it_waited_for() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.scan_as(.., false, 9, Lock::Update), Rows(TWO.to_vec()));
        assert_eq!(t1.put(1, 20), Done);
        assert_eq!(t1.put(2, 30), Done);
        // Delete where the value is 20: the key is known only after the wait.
        assert_eq!(t2.scan_as(.., false, 9, Lock::Update), Waits);
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Rows(vec![(1, 20), (2, 30)]));
        assert_eq!(t2.delete(1), Done);
        assert_eq!(t2.commit(), Done);
        vec![(2, 30)]
    });
}

#[test]
fn p4_no_update_is_lost() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.get(1), Value(Some(10)));
        assert_eq!(t2.get(1), Value(Some(10)));
        assert_eq!(t1.put(1, 11), Waits);
        let saw = t2.put(1, 11);
        let (first_gave_way, saw) = one_is_the_victim(t1, t2, saw);
        assert_eq!(saw, Done);
        let survivor = if first_gave_way { t2 } else { t1 };
        assert_eq!(survivor.commit(), Done);
        vec![(1, 11), (2, 20)]
    });
}

#[test]
fn p4_reading_for_update_waits_without_a_victim() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.get_for_update(1), Value(Some(10)));
        assert_eq!(t2.get_for_update(1), Waits);
        assert_eq!(t1.put(1, 11), Done);
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Value(Some(11)));
        assert_eq!(t2.put(1, 12), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 12), (2, 20)]
    });
}

#[test]
fn g_single_no_half_of_a_transaction_is_read() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.get(1), Value(Some(10)));
        assert_eq!(t2.get(1), Value(Some(10)));
        assert_eq!(t2.get(2), Value(Some(20)));
        assert_eq!(t2.put(1, 12), Waits);
        assert_eq!(t1.get(2), Value(Some(20)));
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.put(2, 18), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 12), (2, 18)]
    });
}

#[test]
fn g_single_nor_by_predicate() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.scan(..), Rows(TWO.to_vec()));
        assert_eq!(t2.put(1, 12), Waits);
        assert_eq!(t1.scan(..), Rows(TWO.to_vec()));
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 12), (2, 20)]
    });
}

#[test]
fn g_single_nor_by_a_write_after_a_read() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.get(1), Value(Some(10)));
        assert_eq!(t2.scan(..), Rows(TWO.to_vec()));
        assert_eq!(t2.put(1, 12), Waits);
        // Delete where the value is 20: T2 has read that row.
        let saw = t1.delete(2);
        let (second_gave_way, saw) = one_is_the_victim(t2, t1, saw);
        assert_eq!(saw, Done);
        if second_gave_way {
            assert_eq!(t1.commit(), Done);
            vec![(1, 10)]
        } else {
            assert_eq!(t2.put(2, 18), Done);
            assert_eq!(t2.commit(), Done);
            vec![(1, 12), (2, 18)]
        }
    });
}

#[test]
fn g2_item_two_that_read_each_others_writes_do_not_both_commit() {
    two(TWO, |t1, t2| {
        for session in [&mut *t1, &mut *t2] {
            assert_eq!(session.get(1), Value(Some(10)));
            assert_eq!(session.get(2), Value(Some(20)));
        }
        assert_eq!(t1.put(1, 11), Waits);
        let saw = t2.put(2, 21);
        let (first_gave_way, saw) = one_is_the_victim(t1, t2, saw);
        assert_eq!(saw, Done);
        if first_gave_way {
            assert_eq!(t2.commit(), Done);
            vec![(1, 10), (2, 21)]
        } else {
            assert_eq!(t1.commit(), Done);
            vec![(1, 11), (2, 20)]
        }
    });
}

#[test]
fn g2_fekete_a_reader_queued_behind_a_writer_counts_in_the_circle() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let [mut t1, mut t2, mut t3] = ["T1", "T2", "T3"].map(|label| Session::new(&db, label));
        assert_eq!(t1.scan(..), Rows(TWO.to_vec()));
        assert_eq!(t2.put(2, 25), Waits);
        // T3 reads 1 together with T1, and waits behind T2 at 2.
        assert_eq!(t3.scan(..), Waits);
        // T1 waits for T3 to release 1: a cycle of three, closed by the queue alone.
        let saw = t1.put(1, 0);
        let saw = [
            if saw == Waits { t1.resume() } else { saw },
            t2.resume(),
            t3.resume(),
        ];
        let victims = saw
            .iter()
            .filter(|saw| **saw == Refused("deadlock"))
            .count();
        assert_eq!(victims, 1, "{saw:?}");
        assert_eq!(db.stats().deadlocks, 1);
    });
}

#[test]
fn x3_a_key_that_was_read_is_not_deleted_and_put_back() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.scan(..), Rows(TWO.to_vec()));
        assert_eq!(t2.delete(2), Waits);
        assert_eq!(t1.scan(..), Rows(TWO.to_vec()));
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.insert(2, 22), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 10), (2, 22)]
    });
}

#[test]
fn x3_a_reader_waits_for_a_deletion_and_sees_the_key_after_its_rollback() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.delete(2), Done);
        assert_eq!(t2.scan(..), Waits);
        t1.abort();
        assert_eq!(t2.resume(), Rows(TWO.to_vec()));
        assert_eq!(t2.commit(), Done);
        TWO.to_vec()
    });
}

#[test]
fn a_key_deleted_and_inserted_again_keeps_its_readers_out() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.delete(1), Done);
        assert_eq!(t1.insert(1, 11), Done);
        assert_eq!(t2.get(1), Waits);
        assert_eq!(t1.delete(1), Done);
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Value(None));
        assert_eq!(t2.insert(1, 12), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 12), (2, 20)]
    });
}

#[test]
fn an_operation_given_up_leaves_no_trace() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let [mut t1, mut t2, mut t3] = ["T1", "T2", "T3"].map(|label| Session::new(&db, label));
        assert_eq!(t1.get(1), Value(Some(10)));
        assert_eq!(t2.put(1, 12), Waits);
        assert_eq!(t3.get(1), Waits);
        assert_eq!(db.waits().len(), 2);
        t2.give_up();
        // T3 waited behind T2 only.
        assert_eq!(t3.resume(), Value(Some(10)));
        assert!(db.waits().is_empty());
        assert_eq!((t1.commit(), t3.commit()), (Done, Done));
        assert!(db.locks().is_empty());
        assert_eq!(rows(&db), TWO);
    });
}

#[test]
fn a_transaction_ended_by_a_deadlock_refuses_everything_but_its_end() {
    over_all_managers(|mut options: Options| {
        options.victim = foxton::VictimPolicy::Requester;
        let db = database(options, TWO);
        let [mut t1, mut t2] = ["T1", "T2"].map(|label| Session::new(&db, label));
        assert_eq!(t1.put(1, 11), Done);
        assert_eq!(t2.put(2, 22), Done);
        assert_eq!(t1.put(2, 12), Waits);
        let saw = t2.put(1, 21);
        assert_eq!(
            if saw == Waits { t2.resume() } else { saw },
            Refused("deadlock")
        );
        // T2's locks are released already.
        assert_eq!(t1.resume(), Done);
        assert_eq!(t2.get(1), Refused("ended_by_conflict"));
        assert_eq!(t2.put(9, 9), Refused("ended_by_conflict"));
        assert_eq!(
            t2.scan((Excluded(1), Unbounded)),
            Refused("ended_by_conflict")
        );
        assert_eq!(t2.commit(), Refused("ended_by_conflict"));
        assert_eq!(t1.commit(), Done);
        assert_eq!(rows(&db), [(1, 11), (2, 12)]);
        let report = db.deadlocks().pop().expect("a report");
        let text = report.to_string();
        assert!(text.contains("T1") && text.contains("T2"), "{text}");
        assert!(text.contains("X on test/0x"), "{text}");
    });
}
