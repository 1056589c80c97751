//! Races played at failpoints: one instruction between two others, every time.
//!
//! Each test names the line of the engine that it guards; without that line the test fails.

use foxton::failpoint;
use foxton::{Database, Index, Lock, Options, Table, Transaction};
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const ROWS: Table<u64, u64> = Table::new("rows");
const BY_VALUE: Index<u64, u64, u64> =
    Index::unique("by value", &ROWS, |_, value, keys| keys.add(value));

fn with(keys: &[u64]) -> Database {
    let db = Database::in_memory(Options::tiny()).unwrap();
    db.run(|tx| keys.iter().try_for_each(|key| tx.put(&ROWS, key, &0)))
        .unwrap();
    db
}

fn keys(tx: &mut Transaction, range: impl RangeBounds<u64>, reversed: bool) -> Vec<u64> {
    let mut found = Vec::new();
    let rows = tx.range(&ROWS, range);
    let rows = if reversed { rows.reversed() } else { rows };
    rows.for_each(|key, _| found.push(key)).unwrap();
    found
}

/// A key is inserted into the gap between an ascending scan's lookup and its lock. (In a descending
/// scan this cannot happen: the gap above is locked before the lookup.)
fn a_key_comes_before_the_lock(range: impl RangeBounds<u64> + Clone) {
    let db = with(&[1, 10]);
    let other = db.clone();
    db.failpoints().once(&failpoint::SCAN_FOUND, move || {
        other.run(|tx| tx.put(&ROWS, &5, &0)).unwrap();
    });
    let mut tx = db.begin().unwrap();
    let first = keys(&mut tx, range.clone(), false);
    assert_eq!(first, keys(&mut tx, range, false), "a phantom");
    assert!(
        first.contains(&5),
        "it was there before anything was locked"
    );
}

#[test]
fn a_scan_that_finds_nothing_looks_again_once_the_gap_is_locked() {
    a_key_comes_before_the_lock(2..=8);
}

#[test]
fn a_scan_that_finds_a_key_looks_again_once_it_is_locked() {
    a_key_comes_before_the_lock(2..=20);
}

#[test]
fn a_key_that_goes_before_it_is_locked_is_not_read() {
    for reversed in [false, true] {
        let db = with(&[1, 5, 10]);
        let other = db.clone();
        db.failpoints().once(&failpoint::SCAN_FOUND, move || {
            other.run(|tx| tx.delete(&ROWS, &5)).unwrap();
        });
        let mut tx = db.begin().unwrap();
        assert_eq!(keys(&mut tx, 2..=8, reversed), [0; 0]);
    }
}

/// Reads by the value 10, twice in one transaction. Row 1 has that value when its entry is read;
/// before the row is locked, `change` is committed. Afterwards another transaction wants to change
/// row 2, and must wait if that was read.
fn an_entry_changes_before_its_row_is_locked(
    change: fn(&mut Transaction) -> Result<(), foxton::Error>,
    read: fn(&mut Transaction) -> Vec<u64>,
    expected: &[u64],
) {
    let mut options = Options::tiny();
    options.indexes.add(&BY_VALUE);
    let db = Database::in_memory(options).unwrap();
    db.run(|tx| tx.put(&ROWS, &1, &10).and_then(|()| tx.put(&ROWS, &2, &20)))
        .unwrap();
    let other = db.clone();
    db.failpoints()
        .once(&failpoint::ENTRY_READ, move || other.run(change).unwrap());
    let mut tx = db.begin().unwrap();
    assert_eq!(read(&mut tx), expected);
    let writing = {
        let db = db.clone();
        thread::spawn(move || {
            db.run(|tx| {
                tx.delete(&ROWS, &2)?;
                tx.put(&ROWS, &3, &10)
            })
        })
    };
    while !writing.is_finished() && db.waits().is_empty() {
        thread::yield_now();
    }
    assert_eq!(read(&mut tx), expected, "what was read is locked");
    tx.commit().unwrap();
    writing.join().unwrap().unwrap();
}

fn by_key(tx: &mut Transaction) -> Vec<u64> {
    let row = tx.get_by(&BY_VALUE, &10).unwrap();
    row.into_iter().map(|(key, _)| key).collect()
}

fn by_range(tx: &mut Transaction) -> Vec<u64> {
    let rows = tx.range_by(&BY_VALUE, 5..=15).collect().unwrap();
    rows.into_iter().map(|(_, key, _)| key).collect()
}

#[test]
fn an_entry_that_leads_to_another_row_before_its_row_is_locked_is_followed_anew() {
    // The two rows swap their values, so no entry is inserted or deleted, and the index itself is
    // unchanged.
    let change = |tx: &mut Transaction| {
        tx.delete(&ROWS, &2)?;
        tx.put(&ROWS, &1, &20)?;
        tx.put(&ROWS, &2, &10)?;
        Ok(())
    };
    for read in [by_key, by_range] {
        an_entry_changes_before_its_row_is_locked(change, read, &[2]);
    }
}

#[test]
fn an_entry_that_goes_before_its_row_is_locked_is_missed_for_good() {
    let change = |tx: &mut Transaction| {
        tx.put(&ROWS, &1, &30)?;
        Ok(())
    };
    for read in [by_key, by_range] {
        an_entry_changes_before_its_row_is_locked(change, read, &[]);
    }
}

#[test]
fn an_insert_whose_neighbour_changed_asks_for_the_new_gap() {
    let db = with(&[1, 10]);
    let reader = Arc::new(Mutex::new(None));
    let (other, place) = (db.clone(), reader.clone());
    // The writer has an intention lock on the gap (1, 10). Then 7 is inserted, and a reader reads
    // below it. The reader locks the gap (1, 7), on which the writer has no lock.
    db.failpoints().once(&failpoint::INSERTING, move || {
        other.run(|tx| tx.put(&ROWS, &7, &0)).unwrap();
        let mut tx = other.begin().unwrap();
        assert_eq!(keys(&mut tx, 2..=6, false), [0; 0]);
        *place.lock().unwrap() = Some(tx);
    });
    let writing = {
        let db = db.clone();
        thread::spawn(move || db.run(|tx| tx.put(&ROWS, &5, &0)))
    };
    while !writing.is_finished() && db.waits().is_empty() {
        thread::yield_now();
    }
    let mut tx = reader.lock().unwrap().take().unwrap();
    assert_eq!(keys(&mut tx, 2..=6, false), [0; 0], "a phantom");
    tx.commit().unwrap();
    writing.join().unwrap().unwrap();
    assert_eq!(keys(&mut db.begin().unwrap(), .., false), [1, 5, 7, 10]);
}

#[test]
fn an_insert_whose_neighbour_was_purged_asks_for_the_next_gap() {
    let db = with(&[1, 8, 10]);
    let reader = Arc::new(Mutex::new(None));
    let (other, place) = (db.clone(), reader.clone());
    db.failpoints().once(&failpoint::INSERTING, move || {
        // It stays a ghost because the writer holds its gap; another reader reads past it.
        other.run(|tx| tx.delete(&ROWS, &8)).unwrap();
        let mut tx = other.begin().unwrap();
        assert_eq!(keys(&mut tx, 9.., false), [10]);
        *place.lock().unwrap() = Some(tx);
    });
    db.run(|tx| tx.put(&ROWS, &5, &0)).unwrap();
    let mut tx = reader.lock().unwrap().take().unwrap();
    assert_eq!(keys(&mut tx, 9.., false), [10]);
    tx.commit().unwrap();
    assert_eq!(keys(&mut db.begin().unwrap(), .., false), [1, 5, 10]);
}

#[test]
fn a_writer_stopped_inside_the_index_holds_up_no_reader() {
    let db = with(&[1, 10]);
    let stop = db.failpoints().stop(&foxton_store::failpoint::INSERT);
    let writing = {
        let db = db.clone();
        thread::spawn(move || db.run(|tx| tx.put(&ROWS, &5, &0)))
    };
    stop.reached();
    assert_eq!(keys(&mut db.begin().unwrap(), 10.., false), [10]);
    assert_eq!(db.run(|tx| tx.get(&ROWS, &1)).unwrap(), Some(0));
    db.run(|tx| tx.put(&ROWS, &6, &0)).unwrap();
    stop.release();
    writing.join().unwrap().unwrap();
    assert_eq!(keys(&mut db.begin().unwrap(), .., false), [1, 5, 6, 10]);
}

#[test]
fn waits_are_seen_to_begin_and_to_end() {
    let db = with(&[1]);
    let mut holder = db.begin().unwrap();
    holder.put(&ROWS, &1, &1).unwrap();
    let stop = db.failpoints().stop(&failpoint::WAIT_END);
    let waiting = {
        let db = db.clone();
        thread::spawn(move || db.run(|tx| tx.get(&ROWS, &1)))
    };
    while db.failpoints().passages(&failpoint::WAIT_BEGIN) == 0 {
        thread::yield_now();
    }
    holder.commit().unwrap();
    stop.reached();
    assert_eq!(db.failpoints().passages(&failpoint::WAIT_END), 1);
    // The lock is granted already: a second writer waits for the stopped thread.
    let alone = db
        .begin()
        .unwrap()
        .get_locked(&ROWS, &1, Lock::Exclusive.nowait());
    assert_eq!(alone.expect_err("it is held shared").code(), "lock_busy");
    stop.release();
    assert_eq!(waiting.join().unwrap().unwrap(), Some(1));
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_task_waits_as_long_as_it_said_by_the_clock_of_its_database() {
    let db = with(&[1]);
    let mut holder = db.begin().unwrap();
    holder.put(&ROWS, &1, &1).unwrap();
    let waiting = {
        let db = db.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.unwrap().block_on(async {
                let mut tx = db.begin_async().unwrap();
                let patient = Lock::Shared.timeout(HOUR);
                tx.get_locked(&ROWS, &1, patient).await.unwrap_err().code()
            })
        })
    };
    while db.waits().is_empty() {
        thread::yield_now();
    }
    db.clock().advance(HOUR / 2);
    assert_eq!(db.waits().len(), 1, "half an hour is not enough");
    db.clock().advance(HOUR / 2);
    assert_eq!(waiting.join().unwrap(), "lock_timeout");
}
