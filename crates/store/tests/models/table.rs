//! Models of the orderings named in `record.rs` and `index/walk.rs`, and two histories of whole
//! tables.
//!
//! The checker cannot see plain memory. So a model reads from a record or a block something atomic
//! that was written, relaxed, after its making: whether the record is linked, how long the value
//! is.

use foxton_store::memory::{NewRecord, Next, Record, RecordTable, ValueBlock};
use foxton_sync::epoch::{Domain, Guard, Participant};
use foxton_sync::shim::{Arc, thread};
use std::ops::Bound;

type Small = RecordTable<4>;

/// Runs `theirs` in another thread and `ours` in this one, on a table with `keys`.
fn meet(
    keys: &'static [&'static [u8]],
    preemptions: usize,
    theirs: impl Fn(&Small, &Guard<'_>) -> bool + Send + Sync + Copy + 'static,
    ours: impl Fn(&Small, &Guard<'_>) -> bool + Send + Sync + Copy + 'static,
    judge: impl Fn(bool, bool) + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(move || {
        let domain = Domain::new();
        let (here, there) = (domain.participant(), domain.participant());
        let table = Arc::new(Small::with_slots(&domain));
        for key in keys {
            insert(&table, &here.pin(), key, Next::Any).expect("keys differ");
        }
        let other = {
            let table = table.clone();
            thread::spawn(move || {
                let result = theirs(&table, &there.pin());
                // Not dropped here: leaving the domain synchronizes.
                (result, there)
            })
        };
        let result = ours(&table, &here.pin());
        let (other, _there): (bool, Participant) = other.join().unwrap();
        judge(other, result);
    });
}

fn insert<'g>(
    table: &'g Small,
    guard: &'g Guard<'_>,
    key: &[u8],
    next: Next<'_>,
) -> Option<&'g Record> {
    let record = NewRecord::new(key, Some(b"first")).expect("short");
    table.insert(guard, record, next).ok()
}

fn block(bytes: &[u8]) -> Option<ValueBlock> {
    Some(ValueBlock::new(bytes).expect("short"))
}

#[test]
fn o1_a_reader_of_a_value_sees_its_bytes() {
    let replace = |table: &Small, guard: &Guard<'_>| {
        let record = table.get(guard, b"key").expect("inserted");
        drop(record.swap(block(b"second value"), guard));
        true
    };
    let read = |table: &Small, guard: &Guard<'_>| {
        let record = table.get(guard, b"key").expect("inserted");
        let mut hazard = guard.hazard();
        let value = record.value(&mut hazard).expect("a value");
        assert!(
            value.len() == 5 || value.len() == 12,
            "{} bytes",
            value.len()
        );
        true
    };
    meet(&[b"key"], 3, replace, read, |_, _| {});
}

#[test]
fn o2_a_value_taken_out_is_whole() {
    let replace = |table: &Small, guard: &Guard<'_>| {
        let record = table.get(guard, b"key").expect("inserted");
        drop(record.swap(block(b"second value"), guard));
        true
    };
    let take = |table: &Small, guard: &Guard<'_>| {
        let record = table.get(guard, b"key").expect("inserted");
        let taken = record.swap(None, guard).expect("a value");
        // The first value is the record's own memory, and shows nothing.
        assert!(taken.bytes().is_none_or(|bytes| bytes.len() == 12));
        taken.retire(guard.participant());
        true
    };
    meet(&[b"key"], 3, replace, take, |_, _| {});
}

#[test]
fn a_value_put_back_by_another_is_whole() {
    // One thread makes a value. Another takes it out, puts it back, and a third reads it. Here the
    // third is the one that began, reading what the second published last.
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 10_000;
    builder.check(|| {
        let domain = Domain::new();
        let here = domain.participant();
        let table = Arc::new(Small::with_slots(&domain));
        insert(&table, &here.pin(), b"key", Next::Any).expect("a new key");
        let others = [maker, swapper].map(|body| {
            let (table, participant) = (table.clone(), domain.participant());
            thread::spawn(move || {
                body(&table, &participant.pin());
                participant
            })
        });
        {
            let guard = here.pin();
            let record = table.get(&guard, b"key").expect("inserted");
            let mut hazard = guard.hazard();
            let value = record.value(&mut hazard);
            assert!(value.is_none_or(|value| [5, 12].contains(&value.len())));
        }
        others
            .into_iter()
            .for_each(|other| drop(other.join().unwrap()));
    });

    fn maker(table: &Small, guard: &Guard<'_>) {
        let record = table.get(guard, b"key").expect("inserted");
        drop(record.swap(block(b"second value"), guard));
    }

    fn swapper(table: &Small, guard: &Guard<'_>) {
        let record = table.get(guard, b"key").expect("inserted");
        let taken = record.swap(None, guard);
        drop(record.swap(taken, guard));
    }
}

/// Replaces the value three times, each pinned anew: outside, perhaps in the slot again, and
/// outside or in the slot. Every time it tries to advance the epoch, as each `put` does here.
fn replace_often(table: &Small, participant: &Participant) {
    for value in [&b"number two"[..], b"3", b"number four"] {
        let guard = participant.pin();
        let record = table.get(&guard, b"key").expect("inserted");
        let old = record
            .put(value, &guard, participant.recent_stamp())
            .expect("short");
        // Not retired: passing hazards would add orders that do not exist.
        drop(old);
        drop(guard);
        participant.advance();
    }
}

/// Runs `ours` on a table with one key, whose value another thread replaces meanwhile.
fn beside_a_writer(
    preemptions: usize,
    ours: impl Fn(&Small, &Participant) + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(move || {
        let domain = Domain::new();
        let (here, there) = (domain.participant(), domain.participant());
        let table = Arc::new(Small::with_slots(&domain));
        insert(&table, &here.pin(), b"key", Next::Any).expect("a new key");
        let writer = {
            let table = table.clone();
            thread::spawn(move || {
                replace_often(&table, &there);
                there
            })
        };
        ours(&table, &here);
        drop(writer.join().unwrap());
        table.verify(&here.pin());
    });
}

#[test]
fn an_inline_value_is_not_overwritten_while_it_is_read() {
    beside_a_writer(3, |table, here| {
        for _ in 0..2 {
            let guard = here.pin();
            let record = table.get(&guard, b"key").expect("inserted");
            let mut hazard = guard.hazard();
            let value = record.value(&mut hazard).expect("a value");
            let found = value.to_vec();
            assert!([&b"first"[..], b"number two", b"3", b"number four"].contains(&&found[..]));
            // A point for the writer to intervene, and to be seen by its writes.
            thread::yield_now();
            assert_eq!(value, found, "overwritten while it is read");
        }
    });
}

#[test]
fn two_writers_own_the_inline_slot_one_after_the_other() {
    // Without locks values are lost, and memory is not. Each thread may find the slot vacated,
    // claim it, and vacate it again.
    beside_a_writer(2, replace_often);
}

/// Two leaves: a b c0 | d0 z, with the separator "d". The gap between c0 and d0 belongs to both.
const TWO_LEAVES: [&[u8]; 5] = [b"a", b"b", b"c0", b"d0", b"z"];

#[test]
fn o1_an_inserter_and_a_scanner_do_not_miss_each_other() {
    // One thread inserts "c5" into the left leaf and expects "d0" next. The other inserts "d-" into
    // the right leaf and then finds nothing between "c0" and "d-". If both are right, an inserter
    // that locked the gap before "d0" slips past a scanner that locks the gap before "d-".
    let inserter = |table: &Small, guard: &Guard<'_>| {
        let next = table.get(guard, b"d0").expect("inserted");
        insert(table, guard, b"c5", Next::Is(next)).is_some()
    };
    let scanner = |table: &Small, guard: &Guard<'_>| {
        let next = table.get(guard, b"d0").expect("inserted");
        if insert(table, guard, b"d-", Next::Is(next)).is_none() {
            return false;
        }
        let place = table.successor(guard, b"c0", false);
        place.record.is_some_and(|record| record.key() == b"d-") && table.unchanged(&place.token)
    };
    meet(
        &TWO_LEAVES,
        2,
        inserter,
        scanner,
        |inserted, nothing_between| {
            assert!(
                !(inserted && nothing_between),
                "the inserter slipped past the scanner"
            );
        },
    );
}

#[test]
fn a_key_that_stays_is_found_during_a_split() {
    let split = |table: &Small, guard: &Guard<'_>| insert(table, guard, b"e", Next::End).is_some();
    let look = |table: &Small, guard: &Guard<'_>| {
        let d = table.get(guard, b"d").is_some_and(Record::is_linked);
        let mut cursor = table.backward(guard, Bound::Excluded(b"d"));
        let c = cursor
            .advance()
            .record
            .is_some_and(|record| record.key() == b"c");
        d && c
    };
    meet(
        &[b"a", b"b", b"c", b"d"],
        2,
        split,
        look,
        |inserted, found| {
            assert!(inserted && found);
        },
    );
}

#[test]
fn a_key_that_stays_is_found_while_a_leaf_is_taken_out() {
    let empty = |table: &Small, guard: &Guard<'_>| {
        [&b"d0"[..], b"z"].iter().all(|key| {
            let record = table.get(guard, key).expect("inserted");
            drop(record.swap(None, guard));
            table.remove(guard, record, Next::Any).is_ok()
        })
    };
    let look = |table: &Small, guard: &Guard<'_>| {
        let mut cursor = table.backward(guard, Bound::Unbounded);
        let mut records = std::iter::from_fn(|| cursor.advance().record);
        records.any(|record| record.key() == b"c0")
    };
    meet(&TWO_LEAVES, 2, empty, look, |removed, found| {
        assert!(removed && found)
    });
}
