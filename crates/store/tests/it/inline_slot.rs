//! A replaced value vacates the slot behind its record's key, and a later one goes back there:
//! never while a thread reads the old value or may restore it.

use foxton_store::memory::{NewRecord, Next, Record, RecordTable};
use foxton_sync::epoch::{Domain, Guard, Participant, Stamp};

const FIRST: &[u8] = b"the first value";

fn table_of(domain: &Domain) -> RecordTable {
    let table: RecordTable = RecordTable::new(domain);
    let participant = domain.participant();
    let record = NewRecord::new(b"key", Some(FIRST)).expect("short");
    assert!(table.insert(&participant.pin(), record, Next::Any).is_ok());
    table
}

/// True if the value is in the record: behind the key and its own length of four bytes, aligned.
fn is_inside(record: &Record, guard: &Guard<'_>) -> bool {
    let mut hazard = guard.hazard();
    let value = record.value(&mut hazard).expect("a value");
    let behind = record.key().len().next_multiple_of(4) + 4;
    value.as_ptr().addr() == record.key().as_ptr().addr() + behind
}

/// Puts `bytes` there as a writer that restores nothing.
fn put(record: &Record, guard: &Guard<'_>, bytes: &[u8]) {
    let participant = guard.participant();
    let old = record
        .put(bytes, guard, participant.recent_stamp())
        .expect("short");
    old.expect("a value").retire(participant);
    assert_eq!(record.value(&mut guard.hazard()), Some(bytes));
}

fn pass(participant: &Participant) {
    (0..2).for_each(|_| participant.advance());
}

/// Replaces the value, each time after two epochs, and returns whether it was inline then.
fn after_each(values: &[&[u8]]) -> Vec<bool> {
    let domain = Domain::new();
    let (table, participant) = (table_of(&domain), domain.participant());
    let places = values.iter().map(|value| {
        pass(&participant);
        let guard = participant.pin();
        let record = table.get(&guard, b"key").expect("inserted");
        put(record, &guard, value);
        is_inside(record, &guard)
    });
    let places = places.collect();
    table.verify(&participant.pin());
    places
}

#[test]
fn every_other_value_is_inside_the_record() {
    assert_eq!(
        after_each(&[b"second", b"third", b"fourth", b"fifth", b""]),
        [false, true, false, true, false]
    );
}

#[test]
fn a_value_that_does_not_fit_is_outside() {
    let full = [b'f'; FIRST.len()];
    let over = [b'o'; FIRST.len() + 1];
    let empty: &[u8] = b"";
    assert_eq!(
        after_each(&[empty, &over, &over, &full, &over, empty, &full, &full]),
        // The slot's size stays as it was, even if the last value there was short.
        [false, false, false, true, false, true, false, true]
    );
}

#[test]
fn a_pinned_reader_reads_on() {
    let domain = Domain::new();
    let table = table_of(&domain);
    let (reader, writer) = (domain.participant(), domain.participant());
    let (mut reading, guard) = (None, reader.pin());
    let found = table.get(&guard, b"key").expect("inserted");
    let mut hazard = guard.hazard();
    reading.replace(found.value(&mut hazard).expect("a value"));
    for turn in 0..100_u8 {
        writer.advance();
        let guard = writer.pin();
        put(
            table.get(&guard, b"key").expect("inserted"),
            &guard,
            &[turn; 10],
        );
        assert_eq!(reading, Some(FIRST), "after {turn} more");
    }
    drop(hazard);
    drop(guard);
    pass(&writer);
    let guard = writer.pin();
    let record = table.get(&guard, b"key").expect("inserted");
    put(record, &guard, b"last");
    assert!(is_inside(record, &guard), "nobody reads any more");
}

/// Replaces the value `changes` times after `before` replacements, as one transaction whose epochs
/// pass, and undoes it all.
fn undo(before: usize, changes: u8) {
    let domain = Domain::new();
    let (table, participant) = (table_of(&domain), domain.participant());
    let mut last = FIRST.to_vec();
    for turn in 0..before {
        pass(&participant);
        let guard = participant.pin();
        last = vec![b'a' + turn as u8; 9];
        put(table.get(&guard, b"key").expect("inserted"), &guard, &last);
    }
    pass(&participant);
    let kept_since = participant.recent_stamp();
    let mut undo = Vec::new();
    for turn in 0..changes {
        let guard = participant.pin();
        let record = table.get(&guard, b"key").expect("inserted");
        undo.push(record.put(&[turn; 12], &guard, kept_since).expect("short"));
        drop(guard);
        pass(&participant);
    }
    for (turn, old) in undo.into_iter().enumerate().rev() {
        let guard = participant.pin();
        let record = table.get(&guard, b"key").expect("inserted");
        assert_eq!(
            record.value(&mut guard.hazard()),
            Some(&[turn as u8; 12][..])
        );
        assert!(old.as_ref().is_some_and(|old| record.may_take(old)));
        record
            .swap(old, &guard)
            .expect("a value")
            .retire(&participant);
        drop(guard);
        pass(&participant);
    }
    let guard = participant.pin();
    let record = table.get(&guard, b"key").expect("inserted");
    assert_eq!(record.value(&mut guard.hazard()), Some(&last[..]));
    table.verify(&guard);
}

#[test]
fn a_value_that_may_be_restored_is_not_overwritten() {
    for before in 0..4 {
        for changes in 0..6 {
            undo(before, changes);
        }
    }
}

#[test]
#[should_panic(expected = "a block goes back into the record it came from, as it was")]
fn an_overwritten_value_is_not_restored() {
    let domain = Domain::new();
    let (table, participant) = (table_of(&domain), domain.participant());
    let guard = participant.pin();
    let record = table.get(&guard, b"key").expect("inserted");
    let old = record
        .put(b"second", &guard, participant.recent_stamp())
        .expect("short");
    assert!(old.as_ref().is_some_and(|old| record.may_take(old)));
    drop(guard);
    pass(&participant);
    let guard = participant.pin();
    let record = table.get(&guard, b"key").expect("inserted");
    // Another writer, without a lock.
    put(record, &guard, b"third");
    assert!(old.as_ref().is_some_and(|old| !record.may_take(old)));
    record.swap(old, &guard);
}

/// Nothing else makes epochs pass here.
#[test]
fn epochs_pass_by_updates_alone() {
    const ROWS: u64 = 4096;
    let domain = Domain::new();
    let (table, participant) = (RecordTable::<64>::with_slots(&domain), domain.participant());
    for row in 0..ROWS {
        let record = NewRecord::new(&row.to_be_bytes(), Some(FIRST)).expect("short");
        assert!(table.insert(&participant.pin(), record, Next::Any).is_ok());
    }
    for turn in 1..=4 {
        let mut inside = 0;
        for row in 0..ROWS {
            let guard = participant.pin();
            let record = table.get(&guard, &row.to_be_bytes()).expect("inserted");
            put(record, &guard, b"another");
            inside += u64::from(is_inside(record, &guard));
        }
        assert_eq!(inside, if turn % 2 == 0 { ROWS } else { 0 }, "turn {turn}");
    }
}

#[test]
fn a_ghost_vacates_its_slot_too() {
    let domain = Domain::new();
    let (table, participant) = (table_of(&domain), domain.participant());
    let guard = participant.pin();
    let record = table.get(&guard, b"key").expect("inserted");
    record
        .swap(None, &guard)
        .expect("a value")
        .retire(&participant);
    drop(guard);
    pass(&participant);
    let guard = participant.pin();
    let record = table.get(&guard, b"key").expect("inserted");
    let old = record
        .put(b"again", &guard, Stamp::from_epoch(u64::MAX))
        .expect("short");
    assert!(old.is_none() && is_inside(record, &guard));
}
