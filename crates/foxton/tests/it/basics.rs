//! Basics: every operation once, alone, and its result.

use std::ops::Bound;
use std::time::Duration;

use foxton::{Database, Durability, Error, Lock, Options, Table};

const NUMBERS: Table<u64, i64> = Table::new("numbers");
const NAMES: Table<str, str> = Table::new("names");

fn memory() -> Database {
    let mut options = Options::tiny();
    options.durability = Durability::None;
    Database::in_memory(options).unwrap()
}

#[test]
fn a_put_value_is_visible_in_this_and_the_next_transaction() {
    let db = memory();
    let mut tx = db.begin().unwrap();
    assert_eq!(tx.get(&NUMBERS, &1).unwrap(), None);
    tx.put(&NUMBERS, &1, &-5).unwrap();
    assert_eq!(tx.get(&NUMBERS, &1).unwrap(), Some(-5));
    tx.put(&NUMBERS, &1, &6).unwrap();
    tx.commit().unwrap();
    let mut tx = db.begin().unwrap();
    assert_eq!(tx.get(&NUMBERS, &1).unwrap(), Some(6));
    assert!(tx.delete(&NUMBERS, &1).unwrap());
    assert!(!tx.delete(&NUMBERS, &1).unwrap());
    assert_eq!(tx.get(&NUMBERS, &1).unwrap(), None);
    tx.commit().unwrap();
    assert_eq!(db.begin().unwrap().get(&NUMBERS, &1).unwrap(), None);
    db.verify();
}

#[test]
fn dropped_and_rolled_back_transactions_have_no_effect() {
    let db = memory();
    db.run(|tx| tx.put(&NAMES, "a", "old")).unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&NAMES, "a", "new").unwrap();
    tx.put(&NAMES, "a", "newer").unwrap();
    tx.put(&NAMES, "b", "new").unwrap();
    tx.delete(&NAMES, "b").unwrap();
    tx.insert(&NAMES, "c", "new").unwrap();
    tx.delete(&NAMES, "a").unwrap();
    tx.rollback();
    let rows = db.run(|tx| tx.range(&NAMES, ..).collect()).unwrap();
    assert_eq!(rows, [("a".to_string(), "old".to_string())]);
    assert!(db.locks().is_empty());
    db.verify();
}

#[test]
fn ranges_give_exactly_what_lies_between_their_bounds_both_ways() {
    let db = memory();
    let keys = [10u64, 20, 30, 40];
    db.run(|tx| keys.iter().try_for_each(|key| tx.put(&NUMBERS, key, &0)))
        .unwrap();
    let mut tx = db.begin().unwrap();
    let bounds = |key: u64| [Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)];
    for low in (5..50).step_by(5).flat_map(bounds) {
        for high in (5..50).step_by(5).flat_map(bounds) {
            let inside = |key: &&u64| {
                let above = match low {
                    Bound::Unbounded => true,
                    Bound::Included(low) => **key >= low,
                    Bound::Excluded(low) => **key > low,
                };
                let below = match high {
                    Bound::Unbounded => true,
                    Bound::Included(high) => **key <= high,
                    Bound::Excluded(high) => **key < high,
                };
                above && below
            };
            let mut expected: Vec<u64> = keys.iter().filter(inside).copied().collect();
            let mut found = Vec::new();
            tx.range(&NUMBERS, (low, high))
                .for_each(|key, _| found.push(key))
                .unwrap();
            assert_eq!(found, expected, "{low:?} {high:?}");
            for limit in 0..4 {
                let limited = tx
                    .range(&NUMBERS, (low, high))
                    .limit(limit)
                    .count()
                    .unwrap();
                assert_eq!(limited, limit.min(expected.len() as u64));
            }
            let mut found = Vec::new();
            for row in tx.range(&NUMBERS, (low, high)).reversed() {
                found.push(row.unwrap().0);
            }
            expected.reverse();
            assert_eq!(found, expected, "{low:?} {high:?} reversed");
            let first = tx.range(&NUMBERS, (low, high)).reversed().first().unwrap();
            assert_eq!(first.map(|row| row.0), expected.first().copied());
        }
    }
}

#[test]
fn an_insert_of_a_key_that_is_there_is_refused_and_the_transaction_goes_on() {
    let db = memory();
    let mut tx = db.begin().unwrap();
    tx.insert(&NUMBERS, &1, &1).unwrap();
    let error = tx.insert(&NUMBERS, &1, &2).unwrap_err();
    assert_eq!(error.code(), "key_exists");
    tx.delete(&NUMBERS, &1).unwrap();
    tx.insert(&NUMBERS, &1, &3).unwrap();
    tx.commit().unwrap();
    assert_eq!(db.run(|tx| tx.get(&NUMBERS, &1)).unwrap(), Some(3));
}

#[test]
fn locks_that_others_hold_are_refused_skipped_or_waited_for() {
    let db = memory();
    db.run(|tx| (1..=3).try_for_each(|key| tx.put(&NUMBERS, &key, &0)))
        .unwrap();
    let mut holder = db.begin().unwrap();
    holder.set_label("holder");
    holder.put(&NUMBERS, &2, &9).unwrap();
    let mut other = db.begin().unwrap();
    let busy = other
        .get_locked(&NUMBERS, &2, Lock::Shared.nowait())
        .unwrap_err();
    assert_eq!(busy.code(), "lock_busy");
    assert!(
        busy.is_retryable() && busy.to_string().contains("holder"),
        "{busy}"
    );
    let brief = Lock::Shared.timeout(Duration::from_millis(5));
    let late = other.get_locked(&NUMBERS, &2, brief).unwrap_err();
    assert_eq!(late.code(), "lock_timeout");
    let skipping = Lock::Exclusive.skip_locked();
    let rows = other
        .range(&NUMBERS, ..)
        .locked(skipping)
        .collect()
        .unwrap();
    assert_eq!(rows, [(1, 0), (3, 0)]);
    let late = other
        .range(&NUMBERS, ..)
        .locked(brief)
        .collect()
        .unwrap_err();
    assert_eq!(late.code(), "lock_timeout");
    let Error::Conflict(conflict) = late else {
        panic!("not a conflict")
    };
    assert_eq!(conflict.table(), Some("numbers"));
    assert_eq!(conflict.refusal().unwrap().blockers[0].label, "holder");
    other.commit().unwrap();
    holder.commit().unwrap();
    assert!(db.locks().is_empty());
}

#[test]
fn iteration_continues_where_it_was() {
    let db = memory();
    db.run(|tx| (0..100).try_for_each(|key| tx.put(&NUMBERS, &key, &(key as i64))))
        .unwrap();
    let mut tx = db.begin().unwrap();
    let rows: Result<Vec<_>, _> = tx.range(&NUMBERS, 10..).into_iter().take(5).collect();
    assert_eq!(
        rows.unwrap(),
        [(10, 10), (11, 11), (12, 12), (13, 13), (14, 14)]
    );
}

#[test]
fn long_ranges_pause_and_miss_nothing() {
    let db = memory();
    db.run(|tx| (0..2000).try_for_each(|key| tx.put(&NUMBERS, &key, &(key as i64))))
        .unwrap();
    let mut reader = db.begin().unwrap();
    // Deleted and uncommitted keys are ghosts in the range.
    let mut tx = db.begin().unwrap();
    for key in (500..1500).step_by(3) {
        assert!(tx.delete(&NUMBERS, &key).unwrap());
    }
    let kept = |key: &u64| !(500..1500).contains(key) || !(key - 500).is_multiple_of(3);
    let mut expected: Vec<u64> = (10..1990).filter(kept).collect();
    let mut found = Vec::new();
    tx.range(&NUMBERS, 10..1990)
        .for_each(|key, _| found.push(key))
        .unwrap();
    assert_eq!(found, expected);
    expected.reverse();
    found.clear();
    tx.range(&NUMBERS, 10..1990)
        .reversed()
        .for_each(|key, _| found.push(key))
        .unwrap();
    assert_eq!(found, expected);
    found.clear();
    let skipping = Lock::Shared.skip_locked();
    let range = reader.range(&NUMBERS, ..).locked(skipping);
    range.for_each(|key, _| found.push(key)).unwrap();
    assert_eq!(found, (0..2000).filter(kept).collect::<Vec<_>>());
}
