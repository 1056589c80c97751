//! Concurrent reads and writes by indexes. A range of an index, or a miss, stays as it was read;
//! unique keys stay unique; and no transaction waits without need. Each schedule is played by hand,
//! step by step, over every lock manager.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::*;
use foxton::{Database, Index, Isolation, Lock, Transaction};

/// Runs a schedule of two sessions on a database with these rows and both indexes, over every lock
/// manager.
fn indexed(
    start: &[(u64, i64)],
    schedule: impl Fn(&Database, &mut Session, &mut Session) -> Vec<(u64, i64)>,
) {
    over_all_managers(|mut options| {
        options.indexes.add(&BY_VALUE).add(&BY_OWN_VALUE);
        let db = database(options, start);
        let (mut one, mut other) = (Session::new(&db, "T1"), Session::new(&db, "T2"));
        let expected = schedule(&db, &mut one, &mut other);
        drop((one, other));
        assert_eq!(rows(&db), expected);
        assert!(db.locks().is_empty(), "{:?}", db.locks());
        assert_eq!(db.check_indexes().unwrap(), []);
        db.verify();
    });
}

const BOTH: [Index<i64, u64, i64>; 2] = [BY_VALUE, BY_OWN_VALUE];

/// Reads a range of an index, then inserts at a position: inside the range the insert waits, and
/// beyond the next entry on either side it does not.
#[test]
fn a_range_of_an_index_is_closed_at_its_edges_and_open_beyond_its_neighbours() {
    for index in BOTH {
        for reversed in [false, true] {
            for (value, waits) in [
                (10, false),
                (40, true),
                (50, true),
                (70, true),
                (90, true),
                (210, false),
            ] {
                indexed(&[(1, 30), (2, 200)], |_, t1, t2| {
                    let empty = Rows(vec![]);
                    assert_eq!(
                        t1.scan_by(index, 50..=90, reversed, 99, Lock::Shared),
                        empty
                    );
                    let saw = t2.insert(9, value);
                    assert_eq!(saw, if waits { Waits } else { Done }, "insert of {value}");
                    assert_eq!(
                        t1.scan_by(index, 50..=90, reversed, 99, Lock::Shared),
                        empty
                    );
                    assert_eq!(t1.commit(), Done);
                    if waits {
                        assert_eq!(t2.resume(), Done);
                    }
                    assert_eq!(t2.commit(), Done);
                    vec![(1, 30), (2, 200), (9, value)]
                });
            }
        }
    }
}

#[test]
fn inserts_into_one_gap_of_an_index_go_on_side_by_side() {
    indexed(&[(1, 10), (5, 50)], |_, t1, t2| {
        assert_eq!(t1.insert(7, 22), Done);
        assert_eq!(t2.insert(8, 21), Done);
        assert_eq!(t1.insert(9, 23), Done);
        assert_eq!(t2.commit(), Done);
        assert_eq!(t1.commit(), Done);
        vec![(1, 10), (5, 50), (7, 22), (8, 21), (9, 23)]
    });
}

/// An update moves an entry: out of a range that was read it waits for the row, into one for the
/// gap.
#[test]
fn updates_that_move_an_entry_wait_for_readers_of_either_position() {
    for index in BOTH {
        for (key, value) in [(1, 99), (2, 12)] {
            indexed(&[(1, 10), (2, 50)], |_, t1, t2| {
                let found = Rows(vec![(1, 10)]);
                assert_eq!(t1.scan_by(index, 5..20, false, 99, Lock::Shared), found);
                assert_eq!(t2.put(key, value), Waits);
                assert_eq!(t1.scan_by(index, 5..20, true, 99, Lock::Shared), found);
                assert_eq!(t1.commit(), Done);
                assert_eq!(t2.resume(), Done);
                assert_eq!(t2.commit(), Done);
                let mut end = vec![(1, 10), (2, 50)];
                end[key as usize - 1].1 = value;
                end
            });
        }
    }
}

/// Entries beyond the limit of a read are not locked.
#[test]
fn a_limit_holds_what_was_read_and_no_more() {
    indexed(&[(1, 10), (2, 20), (3, 30)], |_, t1, t2| {
        let first = Rows(vec![(1, 10)]);
        assert_eq!(t1.scan_by(BY_VALUE, .., false, 1, Lock::Shared), first);
        assert_eq!(t2.put(2, 25), Done);
        assert_eq!(t2.insert(9, 15), Done);
        assert_eq!(t2.insert(8, 5), Waits);
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 10), (2, 25), (3, 30), (8, 5), (9, 15)]
    });
    indexed(&[(1, 10), (2, 20), (3, 30)], |_, t1, t2| {
        let last = Rows(vec![(3, 30)]);
        assert_eq!(t1.scan_by(BY_VALUE, .., true, 1, Lock::Shared), last);
        assert_eq!(t2.put(2, 25), Done);
        assert_eq!(t2.insert(8, 35), Waits);
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 10), (2, 25), (3, 30), (8, 35)]
    });
}

#[test]
fn a_key_that_was_missed_in_a_unique_index_does_not_appear() {
    indexed(TWO, |_, t1, t2| {
        assert_eq!(t1.get_by(77), Rows(vec![]));
        assert_eq!(t2.insert(8, 78), Done);
        assert_eq!(t2.insert(7, 77), Waits);
        assert_eq!(t1.get_by(77), Rows(vec![]));
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.resume(), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 10), (2, 20), (7, 77), (8, 78)]
    });
}

/// The row is locked, and nothing in the index. Others can read by the index, and a duplicate of
/// its key is refused at once.
#[test]
fn a_found_row_stays_and_a_duplicate_key_is_refused_at_once() {
    indexed(TWO, |db, t1, t2| {
        assert_eq!(t1.get_by(10), Rows(vec![(1, 10)]));
        assert_eq!(t2.get_by(10), Rows(vec![(1, 10)]));
        assert_eq!(t2.insert(9, 10), Refused("index_key_exists"));
        assert_eq!(t1.put(1, 11), Waits);
        assert!(
            db.waits()[0].lock.place().starts_with("test/"),
            "{:?}",
            db.waits()
        );
        assert_eq!(t2.commit(), Done);
        assert_eq!(t1.resume(), Done);
        assert_eq!(t1.commit(), Done);
        vec![(1, 11), (2, 20)]
    });
}

/// One transaction changes a row's key; readers by the old or the new key wait for the outcome.
#[test]
fn readers_by_either_key_wait_for_an_uncommitted_change() {
    for commits in [true, false] {
        for index in BOTH {
            for value in [10, 11] {
                indexed(TWO, |_, t1, t2| {
                    assert_eq!(t1.put(1, 11), Done);
                    assert_eq!(
                        t2.scan_by(index, value..=value, false, 9, Lock::Shared),
                        Waits
                    );
                    if commits {
                        assert_eq!(t1.commit(), Done);
                    } else {
                        t1.abort();
                    }
                    let now = if commits { 11 } else { 10 };
                    let found = if value == now { vec![(1, now)] } else { vec![] };
                    assert_eq!(t2.resume(), Rows(found.clone()));
                    if index.is_unique() {
                        assert_eq!(t2.get_by(value), Rows(found));
                    }
                    assert_eq!(t2.commit(), Done);
                    vec![(1, now), (2, 20)]
                });
            }
        }
    }
}

#[test]
fn a_freed_unique_key_is_available_only_after_the_commit() {
    for commits in [true, false] {
        indexed(TWO, |_, t1, t2| {
            assert_eq!(t1.delete(1), Done);
            assert_eq!(t2.insert(5, 10), Waits);
            if commits {
                assert_eq!(t1.commit(), Done);
                assert_eq!(t2.resume(), Done);
                assert_eq!(t2.commit(), Done);
                return vec![(2, 20), (5, 10)];
            }
            t1.abort();
            assert_eq!(t2.resume(), Refused("index_key_exists"));
            assert_eq!(t2.put(5, 55), Done);
            assert_eq!(t2.commit(), Done);
            vec![(1, 10), (2, 20), (5, 55)]
        });
    }
}

/// A reader by an index and a writer of the same row, in every order of two steps each, never
/// deadlock, because both lock the row first.
#[test]
fn a_reader_by_an_index_and_a_writer_of_its_row_are_no_deadlock() {
    for index in BOTH {
        indexed(TWO, |db, t1, t2| {
            assert_eq!(
                t1.scan_by(index, 10..=10, false, 9, Lock::Shared),
                Rows(vec![(1, 10)])
            );
            assert_eq!(t2.put(1, 11), Waits);
            assert_eq!(
                t1.scan_by(index, ..15, true, 9, Lock::Shared),
                Rows(vec![(1, 10)])
            );
            assert_eq!(t1.commit(), Done);
            assert_eq!(t2.resume(), Done);
            assert_eq!(t2.commit(), Done);
            assert_eq!(db.stats().deadlocks, 0);
            vec![(1, 11), (2, 20)]
        });
        indexed(TWO, |db, t1, t2| {
            assert_eq!(t2.put(1, 11), Done);
            assert_eq!(t1.scan_by(index, 10..=11, false, 9, Lock::Update), Waits);
            assert_eq!(t2.put(1, 12), Done);
            assert_eq!(t2.commit(), Done);
            assert_eq!(t1.resume(), Rows(vec![]));
            assert_eq!(t1.put(2, 21), Done);
            assert_eq!(t1.commit(), Done);
            assert_eq!(db.stats().deadlocks, 0);
            vec![(1, 12), (2, 21)]
        });
    }
}

#[test]
fn a_reader_that_skips_locked_rows_takes_the_next_of_the_index() {
    indexed(&[(1, 30), (2, 20), (3, 10)], |_, t1, t2| {
        let lock = || Lock::Exclusive.skip_locked();
        assert_eq!(
            t1.scan_by(BY_VALUE, .., false, 1, lock()),
            Rows(vec![(3, 10)])
        );
        assert_eq!(
            t2.scan_by(BY_VALUE, .., false, 1, lock()),
            Rows(vec![(2, 20)])
        );
        assert_eq!(t1.get_by_as(20, lock()), Rows(vec![]));
        assert_eq!(
            t2.get_by_as(10, Lock::Shared.nowait()),
            Refused("lock_busy")
        );
        assert_eq!(t2.get_by_as(30, lock()), Rows(vec![(1, 30)]));
        assert_eq!(t1.commit(), Done);
        assert_eq!(t2.commit(), Done);
        vec![(1, 30), (2, 20), (3, 10)]
    });
}

/// Each level, when a row is found by an index, changed by another transaction, and read
/// again.
#[test]
fn levels_lock_by_an_index_as_by_a_key() {
    over_all_managers(|mut options| {
        options.indexes.add(&BY_VALUE).add(&BY_OWN_VALUE);
        for level in Isolation::LOCKING {
            let db = database(options.clone(), TWO);
            let mut t1 = Session::at(level, &db, "T1");
            let mut t2 = Session::new(&db, "T2");
            let first = t1.scan_by(BY_VALUE, 5..15, false, 9, Lock::Shared);
            assert_eq!(
                (first, t1.get_by(10)),
                (Rows(vec![(1, 10)]), Rows(vec![(1, 10)]))
            );
            let keeps_rows = matches!(level, Isolation::Serializable | Isolation::RepeatableRead);
            let keeps_gaps = level == Isolation::Serializable;
            // A phantom, then a change of a row that was read.
            assert_eq!(t2.insert(9, 12) == Waits, keeps_gaps, "{level}");
            if !keeps_gaps {
                let both = Rows(vec![(1, 10), (9, 12)]);
                let again = t1.scan_by(BY_VALUE, 5..15, false, 9, Lock::Shared);
                let sees = level == Isolation::ReadUncommitted;
                assert_eq!(again, if sees { both } else { Waits }, "{level}");
                assert_eq!(t2.commit(), Done);
                if !sees {
                    assert_eq!(t1.resume(), Rows(vec![(1, 10), (9, 12)]));
                }
                let mut t3 = Session::new(&db, "T3");
                assert_eq!(t3.put(1, 11) == Waits, keeps_rows, "{level}");
            }
        }
    });
}

/// A write waits in its second index and is dropped there. It leaves nothing in the first index,
/// and the transaction goes on.
#[test]
fn a_write_that_is_given_up_half_way_leaves_nothing() {
    over_all_managers(|mut options| {
        options.indexes.add(&BY_VALUE).add(&BY_OWN_VALUE);
        options.lock_wait = Duration::from_millis(20);
        let db = database(options, TWO);
        let mut reader = db.begin().unwrap();
        assert_eq!(reader.range_by(&BY_OWN_VALUE, 30..).count().unwrap(), 0);

        let mut tx = db.begin_async().unwrap();
        let mut context = Context::from_waker(Waker::noop());
        {
            let put = pin!(tx.put(&TABLE, &3, &45));
            assert!(matches!(put.poll(&mut context), Poll::Pending));
        }
        let mut read = Box::pin(tx.all_by(&BY_VALUE, &45).collect());
        assert!(
            matches!(read.as_mut().poll(&mut context), Poll::Ready(Ok(rows)) if rows.is_empty())
        );
        drop(read);
        drop(tx);

        let mut tx = db.begin().unwrap();
        assert_eq!(tx.put(&TABLE, &3, &45).unwrap_err().code(), "lock_timeout");
        assert_eq!(tx.all_by(&BY_VALUE, &45).count().unwrap(), 0);
        assert_eq!(tx.get(&TABLE, &3).unwrap(), None);
        tx.put(&TABLE, &3, &15).unwrap();
        tx.commit().unwrap();
        drop(reader);
        assert_eq!(rows(&db), [(1, 10), (2, 20), (3, 15)]);
        assert_eq!(db.check_indexes().unwrap(), []);
        db.verify();
    });
}

/// Creating an index waits for transactions that have written to the table; dropping one waits for
/// those that have read by it. Later writers see the new set of indexes.
#[test]
fn making_and_dropping_an_index_wait_their_turn() {
    over_all_managers(|mut options| {
        (options.lock_wait, options.run_attempts) = (Duration::from_millis(20), 1);
        let db = database(options, TWO);
        let write = |tx: &mut Transaction| tx.put(&TABLE, &3, &30);
        let mut writer = db.begin().unwrap();
        write(&mut writer).unwrap();
        assert_eq!(
            db.create_index(&BY_VALUE).unwrap_err().code(),
            "lock_timeout"
        );
        // It first used the table before there was an index, and writes afterwards.
        let mut later = db.begin().unwrap();
        assert_eq!(later.get(&TABLE, &1).unwrap(), Some(10));
        writer.commit().unwrap();
        db.create_index(&BY_VALUE).unwrap();
        later.put(&TABLE, &4, &40).unwrap();
        assert_eq!(later.all_by(&BY_VALUE, &40).count().unwrap(), 1);
        assert_eq!(
            db.drop_index("by_value").unwrap_err().code(),
            "lock_timeout"
        );
        later.commit().unwrap();
        let mut reader = db.begin().unwrap();
        assert_eq!(reader.range_by(&BY_VALUE, 50..).count().unwrap(), 0);
        assert_eq!(
            db.drop_index("by_value").unwrap_err().code(),
            "lock_timeout"
        );
        reader.commit().unwrap();
        assert_eq!(db.check_indexes().unwrap(), []);
        assert!(db.drop_index("by_value").unwrap());
        assert_eq!(rows(&db).len(), 4);
    });
}
