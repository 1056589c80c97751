//! Readers at snapshots beside a commit that is stopped in its window, and faults on purpose that
//! the same checks find.

use std::thread;
use std::time::Duration;

use foxton::injected_fault::{
    DELETED_ROWS_MISSED, OWN_VERSION_MISSED, UNRESOLVED_TAKEN_FOR_INVISIBLE,
};
use foxton::{Database, Isolation, Options, Table, failpoint};
use foxton_sync::failpoint::Failpoint;

const ROWS: Table<u64, u64> = Table::new("rows");

fn with_a_row(fault: Option<Failpoint>) -> Database {
    let db = Database::in_memory(Options::tiny()).unwrap();
    db.run(|tx| tx.put(&ROWS, &1, &10)).unwrap();
    if let Some(fault) = fault {
        db.failpoints().arm(&fault);
    }
    db
}

/// A commit has its place in the log, and readers at a snapshot behind it do not know yet where
/// that is. Returns whether a reader waited, and what it read then and later.
fn read_beside_a_placed_commit(fault: Option<Failpoint>) -> (bool, Option<u64>, Option<u64>) {
    let db = with_a_row(fault);
    let stop = db.failpoints().stop(&failpoint::PLACED);
    let writer = {
        let db = db.clone();
        thread::spawn(move || db.run(|tx| tx.put(&ROWS, &1, &11)).unwrap())
    };
    stop.reached();
    let snapshot = db.snapshot().unwrap();
    let reader = {
        let snapshot = snapshot.clone();
        thread::spawn(move || snapshot.get(&ROWS, &1).unwrap())
    };
    thread::sleep(Duration::from_millis(50));
    let waits = !reader.is_finished();
    stop.release();
    writer.join().unwrap();
    (
        waits,
        reader.join().unwrap(),
        snapshot.get(&ROWS, &1).unwrap(),
    )
}

#[test]
fn a_reader_waits_for_a_commit_that_has_its_place() {
    assert_eq!(
        read_beside_a_placed_commit(None),
        (true, Some(11), Some(11))
    );
    let fault = Some(UNRESOLVED_TAKEN_FOR_INVISIBLE);
    let (waits, first, second) = read_beside_a_placed_commit(fault);
    assert!(!waits && first != second, "one snapshot gave two answers");
}

#[test]
fn a_deleted_row_is_found_where_its_record_was_removed() {
    for fault in [None, Some(DELETED_ROWS_MISSED)] {
        let db = with_a_row(fault);
        let snapshot = db.snapshot().unwrap();
        db.run(|tx| tx.delete(&ROWS, &1)).unwrap();
        let found = snapshot.get(&ROWS, &1).unwrap();
        assert_eq!(found, fault.is_none().then_some(10));
        let rows = snapshot.range(&ROWS, ..).unwrap().into_iter().count();
        assert_eq!(rows, usize::from(fault.is_none()));
    }
}

#[test]
fn a_transaction_reads_what_it_wrote() {
    for fault in [None, Some(OWN_VERSION_MISSED)] {
        let db = with_a_row(fault);
        let mut tx = db.begin().unwrap();
        tx.set_isolation(Isolation::Snapshot).unwrap();
        tx.put(&ROWS, &1, &11).unwrap();
        let expected = if fault.is_none() { 11 } else { 10 };
        assert_eq!(tx.get(&ROWS, &1).unwrap(), Some(expected));
    }
}
