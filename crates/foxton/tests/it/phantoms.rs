//! Phantoms: a range or a miss stays as it was read, and nothing beyond it is locked. Each case is
//! a schedule played by hand, step by step, over every lock manager. Names that begin with a letter
//! and a number are Adya's and Hermitage's, or continue them.

use crate::common::*;
use foxton::{Database, Lock, Table, Transaction};
use std::ops::Bound::Included;
use std::time::Duration;

/// T2 inserts `key` next to what T1 has read. If it must, it waits for T1; both commit.
fn insert_beside(t1: &mut Session, t2: &mut Session, key: u64, waits: bool) {
    let saw = t2.insert(key, 9);
    assert_eq!(saw, if waits { Waits } else { Done }, "insert of {key}");
    assert_eq!(t1.commit(), Done);
    if waits {
        assert_eq!(t2.resume(), Done);
    }
    assert_eq!(t2.commit(), Done);
}

/// Returns the initial rows and the inserted one.
fn with(start: &[(u64, i64)], key: u64) -> Vec<(u64, i64)> {
    let mut end = [start, &[(key, 9)]].concat();
    end.sort();
    end
}

/// Both have read that neither key exists. T1 inserts the first and T2 the second, so each waits
/// for the other. One is the victim, and the other's row exists afterwards.
fn one_inserts(t1: &mut Session, t2: &mut Session, first: u64, second: u64) -> Vec<(u64, i64)> {
    let value = |key: u64| key as i64 * 10;
    assert_eq!(t1.insert(first, value(first)), Waits);
    let saw = t2.insert(second, value(second));
    let (first_gave_way, saw) = one_is_the_victim(t1, t2, saw);
    assert_eq!(saw, Done);
    let (who, key) = if first_gave_way {
        (t2, second)
    } else {
        (t1, first)
    };
    assert_eq!(who.commit(), Done);
    vec![(1, 10), (2, 20), (key, value(key))]
}

#[test]
fn pmp_the_rows_of_a_predicate_do_not_change() {
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
fn g2_two_that_read_that_nothing_was_there_do_not_both_insert() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.scan(3..), Rows(vec![]));
        assert_eq!(t2.scan(3..), Rows(vec![]));
        one_inserts(t1, t2, 3, 4)
    });
}

#[test]
fn x1_two_that_missed_each_others_keys_do_not_both_insert() {
    two(TWO, |t1, t2| {
        assert_eq!(t1.get(7), Value(None));
        assert_eq!(t2.get(8), Value(None));
        one_inserts(t1, t2, 8, 7)
    });
}

/// A scan of a range, then an insert at a position: inside the range the insert waits, and beyond
/// the next key on either side it does not.
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
                insert_beside(t1, t2, key, waits);
                with(start, key)
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
        // T1 holds the gap (1, 5), whose name is 5, and not the key 5.
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
            insert_beside(t1, t2, key, waits);
            with(start, key)
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
            insert_beside(t1, t2, key, waits);
            with(start, key)
        });
    }
}

#[test]
fn x8_a_limit_that_passes_a_deleted_key_closes_the_gap_below_it_too() {
    over_all_managers(|options| {
        let db = database(options, &[(10, 1), (20, 2), (30, 3)]);
        let [mut t0, mut t1, mut t2] = ["T0", "T1", "T2"].map(|label| Session::new(&db, label));
        // 30 becomes a ghost that stays, because its gap is read-locked.
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
        // The rest of the gap, next to the new key, can be read.
        assert_eq!(t2.scan(4..=7), Rows(vec![]));
        assert_eq!(t1.insert(5, 50), Waits);
        assert_eq!(t2.commit(), Done);
        assert_eq!(t1.resume(), Done);
        assert_eq!(t1.commit(), Done);
        vec![(1, 10), (3, 30), (5, 50), (8, 80)]
    });
}

/// Keys of several lengths between the ends of a short range, including its first.
#[test]
fn x9_a_short_range_is_closed_for_keys_of_every_length() {
    const T: Table<[u8], u64> = Table::new("bytes");
    const KEYS: [&[u8]; 7] = [b"aa", b"ba", b"baa", b"bc", b"bcd", b"be", b"c"];
    let ends: [(&[u8], &[u8]); 4] = [
        (b"b0", b"bz"),
        (b"ba", b"be"),
        (b"bb", b"bd"),
        (b"bd", b"bd"),
    ];
    over_all_managers(|mut options| {
        options.lock_wait = Duration::from_micros(1);
        for (low, high) in ends {
            for absent in KEYS {
                let db = Database::in_memory(options.clone()).unwrap();
                for key in KEYS.into_iter().filter(|&key| key != absent) {
                    db.run(|tx| tx.put(&T, key, &1)).unwrap();
                }
                let read = |tx: &mut Transaction| {
                    let mut keys = Vec::new();
                    let range = tx.range(&T, (Included(low), Included(high)));
                    let all = range.for_each_bytes(|key, _| keys.push(key.to_vec()));
                    all.map(|()| keys).unwrap()
                };
                let mut reader = db.begin().unwrap();
                let first = read(&mut reader);
                let inside = |key: &[u8]| low <= key && key <= high;
                let present = KEYS.into_iter().filter(|&key| key != absent);
                assert!(
                    present
                        .filter(|key| inside(key))
                        .eq(first.iter().map(|key| &key[..]))
                );
                for key in KEYS.into_iter().chain([&b"bb"[..], b"bbb", b"bdd", b"bd"]) {
                    let mut writer = db.begin().unwrap();
                    let free = writer.put(&T, key, &2).is_ok();
                    assert!(!(free && inside(key)), "{key:?} in {low:?}..={high:?}");
                }
                assert_eq!(read(&mut reader), first);
            }
        }
    });
}
