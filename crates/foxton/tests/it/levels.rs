//! Isolation levels: each case of `isolation.rs` and `phantoms.rs` at every level, over every lock
//! manager. A level must not show anomalies that it forbids, and must show those that it allows: a
//! stricter level would make others wait without need.

use std::time::Duration;

use crate::common::*;
use foxton::Isolation::{self, ReadCommitted, ReadUncommitted, RepeatableRead, Serializable};
use foxton::Lock;

/// Plays a case at every level. The case returns whether the anomaly was seen, and it must be seen
/// from level `admits` down; `None` means at no level.
fn at_every_level(
    admits: Option<Isolation>,
    case: impl Fn(&mut dyn FnMut(&'static str) -> Session) -> bool,
) {
    over_all_managers(|options| {
        let mut admitted = false;
        for level in Isolation::LOCKING {
            admitted |= Some(level) == admits;
            let db = database(options.clone(), TWO);
            let seen = case(&mut |label| Session::at(level, &db, label));
            assert_eq!(seen, admitted, "at {level}");
            assert!(db.locks().is_empty(), "at {level}: {:?}", db.locks());
            db.verify();
        }
    });
}

/// Lets both sessions continue after `first` has begun to wait and `other` had the result `then`.
/// One of them may be a victim.
fn settle(first: &mut Session, other: &mut Session, then: Saw) {
    let (first_gave_way, _) = one_is_the_victim(first, other, then);
    let survivor = if first_gave_way { other } else { first };
    assert_eq!(survivor.commit(), Done);
}

#[test]
fn g0_no_uncommitted_value_is_overwritten() {
    at_every_level(None, |session| {
        let (mut t1, mut t2) = (session("T1"), session("T2"));
        assert_eq!(t1.put(1, 11), Done);
        let seen = t2.put(1, 12) != Waits;
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.commit(), Done);
        seen
    });
}

#[test]
fn g1a_and_g1b_values_that_were_never_committed_are_read() {
    for writes in [vec![101], vec![101, 102]] {
        at_every_level(Some(ReadUncommitted), |session| {
            let (mut t1, mut t2) = (session("T1"), session("T2"));
            assert_eq!(t1.put(1, writes[0]), Done);
            let seen = t2.get(1) == Value(Some(101));
            for &value in &writes[1..] {
                assert_eq!(t1.put(1, value), Done);
            }
            t1.abort();
            if !seen {
                assert_eq!(t2.resume(), Value(Some(10)));
            }
            assert_eq!(t2.commit(), Done);
            seen
        });
    }
}

#[test]
fn g1a_of_a_key_that_was_deleted_and_of_one_that_was_put() {
    at_every_level(Some(ReadUncommitted), |session| {
        let (mut t1, mut t2) = (session("T1"), session("T2"));
        assert_eq!(t1.delete(1), Done);
        assert_eq!(t1.insert(3, 30), Done);
        let saw = t2.scan(..);
        let seen = saw == Rows(vec![(2, 20), (3, 30)]);
        t1.abort();
        if !seen {
            assert_eq!(saw, Waits);
            assert_eq!(t2.resume(), Rows(TWO.to_vec()));
        }
        assert_eq!(t2.commit(), Done);
        seen
    });
}

#[test]
fn g1c_information_flows_in_a_circle() {
    at_every_level(Some(ReadUncommitted), |session| {
        let (mut t1, mut t2) = (session("T1"), session("T2"));
        assert_eq!(t1.put(1, 11), Done);
        assert_eq!(t2.put(2, 22), Done);
        let first = t1.get(2);
        let second = t2.get(1);
        if first == Waits {
            settle(&mut t1, &mut t2, second);
            return false;
        }
        assert_eq!((t1.commit(), t2.commit()), (Done, Done));
        (first, second) == (Value(Some(22)), Value(Some(11)))
    });
}

#[test]
fn otv_an_observed_transaction_vanishes_again() {
    at_every_level(Some(ReadUncommitted), |session| {
        let [mut t1, mut t2, mut t3] = ["T1", "T2", "T3"].map(session);
        assert_eq!(t1.put(1, 11), Done);
        assert_eq!(t1.put(2, 19), Done);
        assert_eq!(t2.put(1, 12), Waits);
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        let one = t3.get(1);
        let two = if one == Waits { Waits } else { t3.get(2) };
        assert_eq!(t2.put(2, 18), Done);
        assert_eq!(t2.commit(), Done);
        if one == Waits {
            assert_eq!(t3.resume(), Value(Some(12)));
            assert_eq!(t3.get(2), Value(Some(18)));
        }
        assert_eq!(t3.commit(), Done);
        (one, two) == (Value(Some(12)), Value(Some(19)))
    });
}

#[test]
fn p4_an_update_is_lost() {
    at_every_level(Some(ReadCommitted), |session| {
        let (mut t1, mut t2) = (session("T1"), session("T2"));
        assert_eq!(t1.get(1), Value(Some(10)));
        assert_eq!(t2.get(1), Value(Some(10)));
        if t1.put(1, 11) == Waits {
            let then = t2.put(1, 11);
            settle(&mut t1, &mut t2, then);
            return false;
        }
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.put(1, 11), Done);
        assert_eq!(t2.commit(), Done);
        true
    });
}

#[test]
fn p4_no_update_is_lost_that_was_read_for_update() {
    at_every_level(None, |session| {
        let (mut t1, mut t2) = (session("T1"), session("T2"));
        assert_eq!(t1.get_for_update(1), Value(Some(10)));
        let seen = t2.get_for_update(1) != Waits;
        assert_eq!(t1.put(1, 11), Done);
        assert_eq!(t1.get(1), Value(Some(11)));
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Value(Some(11)));
        assert_eq!(t2.commit(), Done);
        seen
    });
}

#[test]
fn g_single_half_of_a_transaction_is_read() {
    for scans in [false, true] {
        at_every_level(Some(ReadCommitted), |session| {
            let (mut t1, mut t2) = (session("T1"), session("T2"));
            if scans {
                assert_eq!(t1.scan(1..=1), Rows(vec![(1, 10)]));
            } else {
                assert_eq!(t1.get(1), Value(Some(10)));
            }
            let written = t2.put(1, 12);
            if written == Waits {
                assert_eq!(t1.get(2), Value(Some(20)));
                assert_eq!(t1.commit(), Done);
                assert_eq!(t2.resume(), Done);
            }
            assert_eq!(t2.put(2, 18), Done);
            assert_eq!(t2.commit(), Done);
            if written == Waits {
                return false;
            }
            assert_eq!(t1.scan(2..), Rows(vec![(2, 18)]));
            assert_eq!(t1.commit(), Done);
            true
        });
    }
}

#[test]
fn g2_item_each_reads_a_row_that_the_other_writes() {
    at_every_level(Some(ReadCommitted), |session| {
        let (mut t1, mut t2) = (session("T1"), session("T2"));
        for t in [&mut t1, &mut t2] {
            assert_eq!(t.get(1), Value(Some(10)));
            assert_eq!(t.get(2), Value(Some(20)));
        }
        if t1.put(1, 11) == Waits {
            let then = t2.put(2, 21);
            settle(&mut t1, &mut t2, then);
            return false;
        }
        assert_eq!(t2.put(2, 21), Done);
        assert_eq!((t1.commit(), t2.commit()), (Done, Done));
        true
    });
}

#[test]
fn a_key_that_was_missed_is_found_at_the_second_look() {
    at_every_level(Some(ReadCommitted), |session| {
        let (mut t1, mut t2) = (session("T1"), session("T2"));
        assert_eq!(t1.get(3), Value(None));
        if t2.insert(3, 30) == Waits {
            assert_eq!(t1.commit(), Done);
            assert_eq!(t2.resume(), Done);
            assert_eq!(t2.commit(), Done);
            return false;
        }
        assert_eq!(t2.commit(), Done);
        assert_eq!(t1.get(3), Value(Some(30)));
        assert_eq!(t1.commit(), Done);
        true
    });
}

#[test]
fn g2_a_phantom_comes_into_a_range() {
    for (reversed, limit) in [(false, 9), (true, 9), (false, 3), (true, 3)] {
        at_every_level(Some(RepeatableRead), |session| {
            let (mut t1, mut t2) = (session("T1"), session("T2"));
            let all = |t: &mut Session| t.scan_as(.., reversed, limit, Lock::Shared);
            let rows = |mut rows: Vec<_>| {
                if reversed {
                    rows.reverse();
                }
                Rows(rows)
            };
            assert_eq!(all(&mut t1), rows(TWO.to_vec()));
            if t2.insert(3, 30) == Waits {
                assert_eq!(t1.commit(), Done);
                assert_eq!(t2.resume(), Done);
                assert_eq!(t2.commit(), Done);
                return false;
            }
            assert_eq!(t2.commit(), Done);
            assert_eq!(all(&mut t1), rows(vec![(1, 10), (2, 20), (3, 30)]));
            assert_eq!(t1.commit(), Done);
            true
        });
    }
}

#[test]
fn read_committed_locks_only_during_the_read() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let mut tx = db.begin().unwrap();
        tx.set_isolation(ReadCommitted).unwrap();
        assert_eq!(tx.get(&TABLE, &1).unwrap(), Some(10));
        assert_eq!(tx.get(&TABLE, &7).unwrap(), None);
        assert_eq!(tx.range(&TABLE, ..).collect().unwrap(), TWO);
        assert_eq!(
            tx.range(&TABLE, ..).reversed().first().unwrap(),
            Some((2, 20))
        );
        assert_eq!(tx.range(&TABLE, ..).into_iter().count(), 2);
        assert_eq!(locked_keys(&db), 0, "{:?}", db.locks());
        // A key locked for another reason stays locked, however often it is read.
        tx.put(&TABLE, &1, &11).unwrap();
        tx.get_for_update(&TABLE, &2).unwrap();
        assert_eq!(tx.get(&TABLE, &1).unwrap(), Some(11));
        assert_eq!(tx.range(&TABLE, ..).collect().unwrap(), [(1, 11), (2, 20)]);
        assert_eq!(locked_keys(&db), 2, "{:?}", db.locks());
        let mut other = db.begin().unwrap();
        for key in [1, 2] {
            let refused = other.get_locked(&TABLE, &key, Lock::Update.nowait());
            assert_eq!(refused.unwrap_err().code(), "lock_busy");
        }
        // Keys read while the transaction was serializable stay locked.
        tx.set_isolation(Serializable).unwrap();
        assert_eq!(tx.get(&TABLE, &8).unwrap(), None);
        tx.set_isolation(ReadCommitted).unwrap();
        assert_eq!(tx.get(&TABLE, &8).unwrap(), None);
        assert_eq!(locked_keys(&db), 3, "{:?}", db.locks());
    });
}

#[test]
fn a_refused_read_releases_no_lock_later() {
    over_all_managers(|options| {
        let db = database(options, TWO);
        let (mut writer, mut tx) = (db.begin().unwrap(), db.begin().unwrap());
        tx.set_isolation(ReadCommitted).unwrap();
        writer.put(&TABLE, &1, &11).unwrap();
        let soon = Lock::Shared.timeout(Duration::from_millis(1));
        let refused = tx.get_locked(&TABLE, &1, soon);
        assert_eq!(refused.unwrap_err().code(), "lock_timeout");
        let refused = tx.range(&TABLE, ..).locked(soon).collect();
        assert_eq!(refused.unwrap_err().code(), "lock_timeout");
        writer.rollback();
        assert_eq!(tx.get_for_update(&TABLE, &1).unwrap(), Some(10));
        assert_eq!(tx.get(&TABLE, &1).unwrap(), Some(10));
        assert_eq!(tx.range(&TABLE, ..).collect().unwrap(), TWO);
        assert_eq!(locked_keys(&db), 1, "{:?}", db.locks());
    });
}

#[test]
fn passing_over_locked_keys_is_the_same_at_every_level() {
    at_every_level(None, |session| {
        let (mut t1, mut t2) = (session("T1"), session("T2"));
        assert_eq!(t1.put(1, 11), Done);
        let skip = Lock::Shared.skip_locked();
        assert_eq!(t2.scan_as(.., false, 9, skip), Rows(vec![(2, 20)]));
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.commit(), Done);
        false
    });
}

/// A transaction of a weak level does not weaken others.
#[test]
fn a_weak_reader_beside_serializable_ones() {
    over_all_managers(|options| {
        for weak in [RepeatableRead, ReadCommitted, ReadUncommitted] {
            let db = database(options.clone(), TWO);
            let mut reader = Session::at(weak, &db, "weak");
            let mut writer = Session::at(Serializable, &db, "writer");
            assert_eq!(writer.scan(..), Rows(TWO.to_vec()));
            assert_eq!(reader.put(3, 30), Waits, "{weak}");
            assert_eq!(writer.put(4, 40), Done);
            assert_eq!(writer.commit(), Done);
            assert_eq!(reader.resume(), Done);
            assert_eq!(reader.commit(), Done);
            assert_eq!(rows(&db), [(1, 10), (2, 20), (3, 30), (4, 40)]);
        }
    });
}
