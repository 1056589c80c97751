//! Objects of another epoch domain are refused by a panic, because nothing would keep their memory
//! from being freed.

use foxton_store::memory::{NewRecord, Next, RecordTable, ValueBlock};
use foxton_sync::epoch::Domain;

/// A table with one record, whose value is outside of it.
fn table_of(domain: &Domain) -> RecordTable {
    let table: RecordTable = RecordTable::new(domain);
    let participant = domain.participant();
    let guard = participant.pin();
    let record = NewRecord::new(b"key", None).expect("short");
    let inserted = table.insert(&guard, record, Next::Any);
    let record = inserted.expect("a new key");
    assert!(
        record
            .swap(Some(ValueBlock::new(b"value").expect("short")), &guard)
            .is_none()
    );
    table
}

#[test]
#[should_panic(expected = "a table is read under a guard of its own domain")]
fn a_guard_of_another_domain() {
    let (domain, other) = (Domain::new(), Domain::new());
    let table = table_of(&domain);
    let participant = other.participant();
    table.get(&participant.pin(), b"key");
}

#[test]
#[should_panic(expected = "a value is read by a hazard of its table's domain")]
fn a_hazard_of_another_domain() {
    let (domain, other) = (Domain::new(), Domain::new());
    let table = table_of(&domain);
    let (here, there) = (domain.participant(), other.participant());
    let guard = here.pin();
    let record = table.get(&guard, b"key").expect("inserted");
    let mut hazard = here.hazard();
    assert_eq!(record.value(&mut hazard), Some(&b"value"[..]));
    let mut hazard = there.hazard();
    record.value(&mut hazard);
}

#[test]
#[should_panic(expected = "a block is retired where it was read")]
fn a_participant_of_another_domain_that_retires() {
    let (domain, other) = (Domain::new(), Domain::new());
    let table = table_of(&domain);
    let (here, there) = (domain.participant(), other.participant());
    let guard = here.pin();
    let record = table.get(&guard, b"key").expect("inserted");
    record.swap(None, &guard).expect("a value").retire(&there);
}

#[test]
#[should_panic(expected = "a value is replaced under a guard of its table's domain")]
fn a_guard_of_another_domain_that_replaces() {
    let (domain, other) = (Domain::new(), Domain::new());
    let table = table_of(&domain);
    let (here, there) = (domain.participant(), other.participant());
    let guard = here.pin();
    let record = table.get(&guard, b"key").expect("inserted");
    let _ = record.put(b"other", &there.pin(), there.recent_stamp());
}
