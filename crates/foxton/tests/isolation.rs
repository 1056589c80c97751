//! Anomalies that must not happen: the Hermitage cases and those it lacks, each as the schedule that
//! would show it, over every lock manager. The names are Adya's and Hermitage's.
//!
//! A schedule is played by hand, one step at a time, so each says exactly who waits for whom.

mod common;

use std::ops::Bound::{Excluded, Unbounded};

use common::*;
use foxton::{Lock, Options};

const TWO: &[(u64, i64)] = &[(1, 10), (2, 20)];

/// Two sessions on a database with these rows, over every manager.
fn two(start: &[(u64, i64)], schedule: impl Fn(&mut Session, &mut Session) -> Vec<(u64, i64)>) {
    over_all_managers(|options| {
        let db = database(options, start);
        let (mut one, mut other) = (Session::new(&db, "T1"), Session::new(&db, "T2"));
        let expected = schedule(&mut one, &mut other);
        drop((one, other));
        assert_eq!(rows(&db), expected);
        assert!(db.locks().is_empty(), "{:?}", db.locks());
        db.verify();
    });
}

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
fn g1a_nobody_reads_what_was_rolled_back() {
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
fn g1b_nobody_reads_what_was_overwritten_before_the_end() {
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
        let (first_gave_way, saw) = one_gives_way(t1, t2, saw);
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
fn pmp_what_a_predicate_read_does_not_change_under_it() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.scan(3..), Rows(vec![]));
        assert_eq!(t2.insert(3, 30), Waits);
        assert_eq!(t1.scan(3..), Rows(vec![]));
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 10), (2, 20), (3, 30)]
    });
}

#[test]
fn pmp_a_write_by_predicate_sees_what_it_waited_for() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.scan_as(.., false, 9, Lock::Update), Rows(TWO.to_vec()));
        assert_eq!(t1.put(1, 20), Done);
        assert_eq!(t1.put(2, 30), Done);
        // Delete where the value is 20: the key is decided after the wait.
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
        let (first_gave_way, saw) = one_gives_way(t1, t2, saw);
        assert_eq!(saw, Done);
        let survivor = if first_gave_way { t2 } else { t1 };
        assert_eq!(survivor.commit(), Done);
        vec![(1, 11), (2, 20)]
    });
}

#[test]
fn p4_reading_for_update_waits_and_nobody_gives_way() {
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
fn g_single_nobody_reads_half_of_a_transaction() {
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
        let (second_gave_way, saw) = one_gives_way(t2, t1, saw);
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
        let (first_gave_way, saw) = one_gives_way(t1, t2, saw);
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
fn g2_nor_if_what_they_read_was_that_nothing_was_there() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.scan(3..), Rows(vec![]));
        assert_eq!(t2.scan(3..), Rows(vec![]));
        assert_eq!(t1.insert(3, 30), Waits);
        let saw = t2.insert(4, 42);
        let (first_gave_way, saw) = one_gives_way(t1, t2, saw);
        assert_eq!(saw, Done);
        if first_gave_way {
            assert_eq!(t2.commit(), Done);
            vec![(1, 10), (2, 20), (4, 42)]
        } else {
            assert_eq!(t1.commit(), Done);
            vec![(1, 10), (2, 20), (3, 30)]
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
        // T3 reads 1 beside T1, and waits behind T2 at 2.
        assert_eq!(t3.scan(..), Waits);
        // T1 waits for T3 to let go of 1: a circle of three, closed by the queue alone.
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
fn x1_two_that_missed_each_others_keys_do_not_both_insert() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.get(7), Value(None));
        assert_eq!(t2.get(8), Value(None));
        assert_eq!(t1.insert(8, 80), Waits);
        let saw = t2.insert(7, 70);
        let (first_gave_way, saw) = one_gives_way(t1, t2, saw);
        assert_eq!(saw, Done);
        if first_gave_way {
            assert_eq!(t2.commit(), Done);
            vec![(1, 10), (2, 20), (7, 70)]
        } else {
            assert_eq!(t1.commit(), Done);
            vec![(1, 10), (2, 20), (8, 80)]
        }
    });
}

/// A scan of a range, then an insert at a place: inside the range it waits, and beyond the next key
/// on either side it does not.
#[test]
fn x2_a_range_is_closed_at_its_edges_and_open_beyond_its_neighbours() {
    let start = &[(3, 0), (20, 0)];
    for reversed in [false, true] {
        for (key, waits) in [
            (1, false),
            (4, true),
            (5, true),
            (7, true),
            (9, true),
            (21, false),
        ] {
            two(start, |t1, t2| {
                assert_eq!(t1.scan_as(5..=9, reversed, 99, Lock::Shared), Rows(vec![]));
                let saw = t2.insert(key, 1);
                assert_eq!(saw, if waits { Waits } else { Done }, "insert of {key}");
                assert_eq!(t1.commit(), Done);
                if waits {
                    assert_eq!(t2.resume(), Done);
                }
                assert_eq!(t2.commit(), Done);
                let mut end = vec![(3, 0), (key, 1), (20, 0)];
                end.sort();
                end
            });
        }
    }
}

#[test]
fn x2_an_empty_table_is_one_gap() {
    for reversed in [false, true] {
        two(&[], |t1, t2| {
            assert_eq!(t1.scan_as(.., reversed, 99, Lock::Shared), Rows(vec![]));
            assert_eq!(t2.insert(5, 1), Waits);
            assert_eq!(t1.commit(), Done);
            assert_eq!(t2.resume(), Done);
            assert_eq!(t2.commit(), Done);
            vec![(5, 1)]
        });
    }
}

#[test]
fn x2_a_range_that_begins_with_a_key_leaves_the_gap_before_it_open() {
    two(&[(5, 0), (9, 0)], |t1, t2| {
        assert_eq!(t1.scan(5..=9), Rows(vec![(5, 0), (9, 0)]));
        assert_eq!(t2.insert(4, 1), Done);
        assert_eq!(t2.insert(10, 1), Done);
        assert_eq!(t2.insert(7, 1), Waits);
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.commit(), Done);
        vec![(4, 1), (5, 0), (7, 1), (9, 0), (10, 1)]
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
fn x3_a_deleted_key_is_waited_for_and_comes_back_when_the_deletion_does_not_last() {
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
fn x3_a_scan_that_waited_at_a_key_that_went_locks_the_gap_it_left() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let [mut t1, mut t2, mut t3] = ["T1", "T2", "T3"].map(|label| Session::new(&db, label));
        assert_eq!(t1.delete(2), Done);
        assert_eq!(t2.scan(..), Waits);
        assert_eq!(t1.commit(), Done);
        // The record of 2 is gone when T2 gets its lock.
        assert_eq!(t2.resume(), Rows(vec![(1, 10)]));
        assert_eq!(t3.insert(2, 22), Waits);
        assert_eq!(t2.scan(..), Rows(vec![(1, 10)]));
        assert_eq!(t2.commit(), Done);
        assert_eq!(t3.resume(), Done);
        assert_eq!(t3.commit(), Done);
        assert_eq!(rows(&db), [(1, 10), (2, 22)]);
    });
}

#[test]
fn x3_a_ghost_stays_while_the_gap_before_it_is_read() {
    over_all_managers(|options| {
        let db = database(options, &[(1, 10), (5, 50), (9, 90)]);
        let [mut t1, mut t2, mut t3] = ["T1", "T2", "T3"].map(|label| Session::new(&db, label));
        // T1 holds the gap (1, 5), which is named 5, and not 5 itself.
        assert_eq!(t1.scan(2..4), Rows(vec![]));
        assert_eq!(t2.delete(5), Done);
        assert_eq!(t2.commit(), Done);
        assert_eq!(db.stats().ghosts_left, 1);
        assert_eq!(t3.insert(3, 30), Waits);
        assert_eq!(t1.scan(2..4), Rows(vec![]));
        assert_eq!(t1.commit(), Done);
        assert_eq!(t3.resume(), Done);
        assert_eq!(t3.commit(), Done);
        assert_eq!(rows(&db), [(1, 10), (3, 30), (9, 90)]);
    });
}

#[test]
fn x6_the_second_of_two_inserts_waits_and_then_depends_on_the_first() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.insert(5, 51), Done);
        assert_eq!(t2.insert(5, 52), Waits);
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Refused("key_exists"));
        assert_eq!(t2.commit(), Done);
        vec![(1, 10), (2, 20), (5, 51)]
    });
    two(TWO, |t1, t2| {
        assert_eq!(t1.insert(5, 51), Done);
        assert_eq!(t2.insert(5, 52), Waits);
        t1.abort();
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 10), (2, 20), (5, 52)]
    });
}

#[test]
fn x8_a_scan_from_above_with_a_limit_closes_what_it_read_and_no_more() {
    let start = &[(10, 1), (20, 2), (30, 3)];
    for (key, waits) in [(35, true), (25, false), (15, false)] {
        two(start, |t1, t2| {
            assert_eq!(t1.scan_as(.., true, 1, Lock::Shared), Rows(vec![(30, 3)]));
            let saw = t2.insert(key, 9);
            assert_eq!(saw, if waits { Waits } else { Done }, "insert of {key}");
            assert_eq!(t1.commit(), Done);
            if waits {
                assert_eq!(t2.resume(), Done);
            }
            assert_eq!(t2.commit(), Done);
            let mut end = [&start[..], &[(key, 9)]].concat();
            end.sort();
            end
        });
    }
}

#[test]
fn x8_from_below_too() {
    let start = &[(10, 1), (20, 2), (30, 3)];
    for (key, waits) in [(5, true), (15, true), (25, false), (35, false)] {
        two(start, |t1, t2| {
            assert_eq!(
                t1.scan_as(.., false, 2, Lock::Shared),
                Rows(vec![(10, 1), (20, 2)])
            );
            let saw = t2.insert(key, 9);
            assert_eq!(saw, if waits { Waits } else { Done }, "insert of {key}");
            assert_eq!(t1.commit(), Done);
            if waits {
                assert_eq!(t2.resume(), Done);
            }
            assert_eq!(t2.commit(), Done);
            let mut end = [&start[..], &[(key, 9)]].concat();
            end.sort();
            end
        });
    }
}

#[test]
fn x8_a_limit_that_passes_a_deleted_key_closes_the_gap_below_it_too() {
    over_all_managers(|options| {
        let db = database(options, &[(10, 1), (20, 2), (30, 3)]);
        let [mut t0, mut t1, mut t2] = ["T0", "T1", "T2"].map(|label| Session::new(&db, label));
        // 30 becomes a ghost that stays, for its gap is being read.
        assert_eq!(t0.scan(25..26), Rows(vec![]));
        let mut deleter = Session::new(&db, "deleter");
        assert_eq!(deleter.delete(30), Done);
        assert_eq!(deleter.commit(), Done);
        assert_eq!(t1.scan_as(.., true, 1, Lock::Shared), Rows(vec![(20, 2)]));
        assert_eq!(t0.commit(), Done);
        assert_eq!(t2.insert(25, 9), Waits);
        assert_eq!(t1.scan_as(.., true, 1, Lock::Shared), Rows(vec![(20, 2)]));
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
    });
}

#[test]
fn an_insert_into_ones_own_range_keeps_both_halves_closed() {
    for (key, second) in [(3, 2), (3, 5)] {
        two(&[(1, 10), (8, 80)], |t1, t2| {
            assert_eq!(t1.scan(..), Rows(vec![(1, 10), (8, 80)]));
            assert_eq!(t1.insert(key, 30), Done);
            assert_eq!(t2.insert(second, 99), Waits, "beside {key} at {second}");
            assert_eq!(t1.scan(..), Rows(vec![(1, 10), (key, 30), (8, 80)]));
            assert_eq!(t1.commit(), Done);
            assert_eq!(t2.resume(), Done);
            assert_eq!(t2.commit(), Done);
            let mut end = vec![(1, 10), (key, 30), (second, 99), (8, 80)];
            end.sort();
            end
        });
    }
}

#[test]
fn inserts_into_one_gap_do_not_wait_for_each_other() {
    two(&[(1, 10), (8, 80)], |t1, t2| {
        assert_eq!(t1.insert(3, 30), Done);
        assert_eq!(t2.insert(2, 20), Done);
        assert_eq!(t2.insert(5, 50), Done);
        assert_eq!(t1.insert(4, 40), Done);
        assert_eq!(t2.commit(), Done);
        assert_eq!(t1.commit(), Done);
        vec![(1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (8, 80)]
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
        // T3 waited behind T2 alone.
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
        // T2's locks are gone already.
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

#[test]
fn a_second_insert_into_ones_own_range_keeps_all_three_parts_closed() {
    for second in [2, 4, 6] {
        two(&[(1, 10), (8, 80)], |t1, t2| {
            assert_eq!(t1.scan(..), Rows(vec![(1, 10), (8, 80)]));
            assert_eq!(t1.insert(5, 50), Done);
            assert_eq!(t1.insert(3, 30), Done);
            assert_eq!(t2.insert(second, 99), Waits, "at {second}");
            assert_eq!(t1.commit(), Done);
            assert_eq!(t2.resume(), Done);
            assert_eq!(t2.commit(), Done);
            let mut end = vec![(1, 10), (3, 30), (5, 50), (second, 99), (8, 80)];
            end.sort();
            end
        });
    }
}

#[test]
fn an_insert_gives_the_gap_back_as_soon_as_its_key_is_there() {
    two(&[(1, 10), (8, 80)], |t1, t2| {
        assert_eq!(t1.insert(3, 30), Done);
        // Beside the new key, the rest of the gap can be read.
        assert_eq!(t2.scan(4..=7), Rows(vec![]));
        assert_eq!(t1.insert(5, 50), Waits);
        assert_eq!(t2.commit(), Done);
        assert_eq!(t1.resume(), Done);
        assert_eq!(t1.commit(), Done);
        vec![(1, 10), (3, 30), (5, 50), (8, 80)]
    });
}
