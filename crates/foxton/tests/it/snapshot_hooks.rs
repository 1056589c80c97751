//! Readers at snapshots beside a commit that is stopped in its window, and faults on purpose that
//! the same checks find.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use foxton::injected_fault::{
    DELETED_ROWS_MISSED, GHOSTS_LEFT, KEPT_VALUE_FREED, OWN_VERSION_MISSED, PURGE_UNCOPIED,
    ROLLBACK_MISSED, UNRESOLVED_TAKEN_FOR_INVISIBLE, VERSION_LATE,
};
use foxton::{Database, Isolation, Options, Snapshot, Table, TableComponent, failpoint};
use foxton_sync::failpoint::{Failpoint, FailpointStop};

use crate::common::paged::tiny_pages;

const ROWS: Table<u64, u64> = Table::new("rows");

fn with_a_row(fault: Option<Failpoint>) -> Database {
    with_a_row_in(TableComponent::Resident, fault)
}

fn with_a_row_in(component: TableComponent, fault: Option<Failpoint>) -> Database {
    let mut options = tiny_pages(Options::tiny(), 32);
    options.component = component;
    let db = Database::in_memory(options).unwrap();
    db.run(|tx| tx.put(&ROWS, &1, &10)).unwrap();
    if let Some(fault) = fault {
        db.failpoints().arm(&fault);
    }
    db
}

/// Starts a commit and stops it when it has its place in the log. Readers at the snapshot, which is
/// behind it, do not know yet where that is.
fn place_a_commit(db: &Database) -> (FailpointStop, thread::JoinHandle<()>, Snapshot) {
    let stop = db.failpoints().stop(&failpoint::PLACED);
    let writer = {
        let db = db.clone();
        thread::spawn(move || db.run(|tx| tx.put(&ROWS, &1, &11)).unwrap())
    };
    stop.reached();
    let snapshot = db.snapshot().unwrap();
    (stop, writer, snapshot)
}

/// Reads beside a placed commit. Returns whether a reader waited, and what it read then and later.
fn read_beside_a_placed_commit(
    component: TableComponent,
    fault: Option<Failpoint>,
) -> (bool, Option<u64>, Option<u64>) {
    let db = with_a_row_in(component, fault);
    let (stop, writer, snapshot) = place_a_commit(&db);
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
    for component in TableComponent::ALL {
        assert_eq!(
            read_beside_a_placed_commit(component, None),
            (true, Some(11), Some(11))
        );
    }
    let fault = Some(UNRESOLVED_TAKEN_FOR_INVISIBLE);
    let (waits, first, second) = read_beside_a_placed_commit(TableComponent::Resident, fault);
    assert!(!waits && first != second, "one snapshot gave two answers");
}

/// Counts how often it is called.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A task that reads beside such a commit is called once its place is known, and not before.
#[test]
fn a_task_is_called_when_a_commit_has_its_place() {
    for component in TableComponent::ALL {
        let db = with_a_row_in(component, None);
        let (stop, writer, snapshot) = place_a_commit(&db);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut context = Context::from_waker(&waker);
        let mut read = pin!(snapshot.get_async(&ROWS, &1));
        let mut calls = 0;
        // A page that is not resident, or a spent budget, may let it yield before.
        while read.as_mut().poll(&mut context).is_pending() {
            let called = wakes.0.swap(0, Ordering::SeqCst);
            if called == 0 {
                break;
            }
            calls += called;
            assert!(calls < 100, "{component}: the task is called all the time");
        }
        thread::sleep(Duration::from_millis(50));
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0, "{component}: too early");
        stop.release();
        writer.join().unwrap();
        assert!(wakes.0.load(Ordering::SeqCst) > 0, "{component}: never");
        let found = loop {
            if let Poll::Ready(found) = read.as_mut().poll(&mut context) {
                break found.unwrap();
            }
        };
        assert_eq!(found, Some(11));
    }
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
    for component in TableComponent::ALL {
        for fault in [None, Some(OWN_VERSION_MISSED)] {
            let db = with_a_row_in(component, fault);
            let mut tx = db.begin().unwrap();
            tx.set_isolation(Isolation::Snapshot).unwrap();
            tx.put(&ROWS, &1, &11).unwrap();
            let expected = if fault.is_none() { 11 } else { 10 };
            assert_eq!(tx.get(&ROWS, &1).unwrap(), Some(expected));
        }
    }
}

/// A scan finds the key of a purged ghost among the deleted rows.
#[test]
fn a_deleted_row_of_a_page_is_found_where_its_ghost_was_purged() {
    for fault in [None, Some(DELETED_ROWS_MISSED), Some(PURGE_UNCOPIED)] {
        let db = with_a_row_in(TableComponent::Paged, fault);
        // A leaf keeps its last row.
        db.run(|tx| tx.put(&ROWS, &2, &20)).unwrap();
        let snapshot = db.snapshot().unwrap();
        let purged = db.stats().ghosts_purged;
        db.run(|tx| tx.delete(&ROWS, &1)).unwrap();
        assert!(db.stats().ghosts_purged > purged, "the ghost stays");
        assert_eq!(snapshot.get(&ROWS, &1).unwrap(), Some(10));
        let rows = snapshot.range(&ROWS, ..).unwrap().into_iter().count();
        assert_eq!(rows, 1 + usize::from(fault.is_none()), "{fault:?}");
    }
}

#[test]
fn a_ghost_that_is_left_in_place_shows_no_row_but_to_older_snapshots() {
    for fault in [None, Some(GHOSTS_LEFT)] {
        let db = with_a_row(fault);
        let snapshot = db.snapshot().unwrap();
        let purged = db.stats().ghosts_purged;
        db.run(|tx| tx.delete(&ROWS, &1)).unwrap();
        assert_eq!(db.stats().ghosts_purged > purged, fault.is_none());
        assert_eq!(db.run(|tx| tx.get(&ROWS, &1)).unwrap(), None);
        assert_eq!(snapshot.get(&ROWS, &1).unwrap(), Some(10));
    }
}

/// A reader has read a page with a change that is undone before it looks for versions.
#[test]
fn a_reader_beside_a_rollback_reads_the_page_again() {
    for fault in [None, Some(ROLLBACK_MISSED)] {
        for scans in [false, true] {
            let db = with_a_row_in(TableComponent::Paged, fault);
            let snapshot = db.snapshot().unwrap();
            let mut tx = db.begin().unwrap();
            tx.put(&ROWS, &1, &11).unwrap();
            let stop = db.failpoints().stop(&failpoint::PAGE_READ);
            let reader = thread::spawn(move || match scans {
                false => snapshot.get(&ROWS, &1).unwrap(),
                true => {
                    let rows = snapshot.range(&ROWS, ..).unwrap().into_iter();
                    rows.map(|row| row.unwrap().1).next()
                }
            });
            stop.reached();
            tx.rollback();
            stop.release();
            let expected = if fault.is_none() { 10 } else { 11 };
            assert_eq!(reader.join().unwrap(), Some(expected));
        }
    }
}

/// A page has a change, and what it has replaced is not recorded yet.
#[test]
fn a_change_is_recorded_before_its_page_has_it() {
    let db = with_a_row_in(TableComponent::Paged, Some(VERSION_LATE));
    let snapshot = db.snapshot().unwrap();
    let stop = db.failpoints().stop(&failpoint::VERSION_MISSING);
    let writer = {
        let db = db.clone();
        thread::spawn(move || db.run(|tx| tx.put(&ROWS, &1, &11)).unwrap())
    };
    stop.reached();
    assert_eq!(snapshot.get(&ROWS, &1).unwrap(), Some(11), "not found");
    stop.release();
    writer.join().unwrap();
    assert_eq!(snapshot.get(&ROWS, &1).unwrap(), Some(10));
}

/// The background thread frees large values that no row has.
#[test]
fn a_large_value_stays_while_a_snapshot_may_need_it() {
    const LARGE: Table<u64, [u8]> = Table::new("large");
    for fault in [None, Some(KEPT_VALUE_FREED)] {
        let db = with_a_row_in(TableComponent::Paged, fault);
        db.run(|tx| tx.put(&LARGE, &1, &[7; 9000])).unwrap();
        let snapshot = db.snapshot().unwrap();
        db.run(|tx| tx.put(&LARGE, &1, &[8; 10])).unwrap();
        thread::sleep(Duration::from_millis(200));
        let found = snapshot.get(&LARGE, &1);
        match fault {
            None => assert_eq!(found.unwrap(), Some(vec![7; 9000])),
            Some(_) => assert_eq!(found.unwrap_err().code(), "damaged"),
        }
    }
}
