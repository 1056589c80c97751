//! The faults of reads at snapshots are found: each by a schedule that shows it, and some by random
//! histories, too. Without a fault nothing is found.
//!
//! A schedule runs a transaction at the one failpoint where the fault matters. It returns what is
//! wrong. Rows of 300,000 bytes make their writer collect versions as soon as it has replaced one.

use foxton::device::MemoryDevice;
use foxton::error::ConflictReason;
use foxton::{
    Database, Durability, Error, Index, Isolation, LockManagerKind, Options, Result, Snapshot,
    Table, Transaction, failpoint, injected_fault,
};
use foxton_sim::clients::{Levels, Plan, declare, run};
use foxton_sim::graph;
use foxton_sim::replay::replay;
use foxton_sync::failpoint::Failpoint;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const ROWS: Table<u64, str> = Table::new("rows");
const BY_VALUE: Index<str, u64, str> = Index::new("rows_by_value", &ROWS, |_, value, keys| {
    keys.add(&value[..value.len().min(20)]);
});

/// A wrong answer that a schedule has found.
type Wrong = Option<String>;
type Schedule = fn(&Database) -> Result<Wrong>;

/// Faults, and the schedules that show them.
const SCHEDULES: [(Failpoint, Schedule); 19] = [
    (
        injected_fault::UNRESOLVED_TAKEN_FOR_INVISIBLE,
        read_beside_a_placed_commit,
    ),
    (injected_fault::COMMITTING_LATE, read_beside_a_placed_commit),
    (injected_fault::OWN_VERSION_MISSED, read_an_own_write),
    (injected_fault::TOMBSTONE_SKIPPED, read_a_ghost),
    (injected_fault::STAMPED_LATE, write_before_another_stamps),
    (injected_fault::ENTRY_UNSTAMPED, read_by_a_moved_entry),
    (
        injected_fault::STAGE_LOADED_EARLY,
        begin_before_a_commit_is_placed,
    ),
    (
        injected_fault::WATERMARK_LATE,
        begin_before_a_collector_looks,
    ),
    (injected_fault::BEGIN_EXCLUDED, read_what_just_began),
    (
        injected_fault::SECOND_LOOK_SKIPPED,
        collect_before_a_snapshot_is_registered,
    ),
    (
        injected_fault::DELETED_ROWS_FIRST,
        delete_between_two_searches,
    ),
    (injected_fault::DELETED_ROWS_MISSED, read_a_deleted_row),
    (injected_fault::DELETED_ROWS_MISSED, delete_under_a_scan),
    (injected_fault::DELETED_UNCHECKED, write_what_came_and_went),
    (injected_fault::DELETION_FORGOTTEN, write_what_was_collected),
    (
        injected_fault::DELETION_FORGOTTEN,
        write_what_was_removed_late,
    ),
    (injected_fault::WALK_KEPT, delete_beside_a_collector),
    (injected_fault::SPACE_AWAITED, read_beside_a_full_log),
    (injected_fault::VACATED_EARLY, read_a_kept_value),
];

/// A value that makes its transaction's worker collect once it has been replaced.
fn large() -> String {
    "x".repeat(300_000)
}

fn put(db: &Database, key: u64, value: &str) -> Result<()> {
    db.run(|tx| tx.put(&ROWS, &key, value))
}

/// Describes a wrong answer.
fn differs<T: PartialEq + std::fmt::Debug>(found: &T, right: &T) -> Wrong {
    let cut = |value: &T| format!("{value:?}").chars().take(60).collect::<String>();
    (found != right).then(|| format!("{} instead of {}", cut(found), cut(right)))
}

/// Compares what a snapshot has under a key.
fn reads(snapshot: &Snapshot, key: u64, right: Option<&str>) -> Result<Wrong> {
    let found = snapshot.get(&ROWS, &key)?;
    Ok(differs(&found.as_deref(), &right))
}

/// Makes `action` run once, when the calling thread passes `point`.
fn on_this_thread(
    db: &Database,
    point: &Failpoint,
    action: impl FnOnce() -> Result<()> + Send + 'static,
) {
    let (me, action) = (thread::current().id(), Mutex::new(Some(action)));
    db.failpoints().set(point, move |_| {
        if thread::current().id() == me {
            // Taken before it runs: it may pass the point itself.
            let taken = action.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(action) = taken {
                action().expect("no error of the database");
            }
        }
        Ok(())
    });
}

/// Waits until `thread` is over, for at most a second.
fn ends<T>(thread: &thread::JoinHandle<T>) -> bool {
    let begun = Instant::now();
    while !thread.is_finished() && begun.elapsed() < Duration::from_secs(1) {
        thread::sleep(Duration::from_millis(1));
    }
    thread.is_finished()
}

/// A commit has its place, and its readers do not know where. One snapshot gives one answer.
fn read_beside_a_placed_commit(db: &Database) -> Result<Wrong> {
    let stop = db.failpoints().stop(&failpoint::PLACED);
    let writer = {
        let db = db.clone();
        thread::spawn(move || put(&db, 1, "11"))
    };
    stop.reached();
    let snapshot = db.snapshot()?;
    let reader = {
        let snapshot = snapshot.clone();
        thread::spawn(move || snapshot.get(&ROWS, &1))
    };
    ends(&reader);
    stop.release();
    writer.join().expect("no panic")?;
    let first = reader.join().expect("no panic")?;
    Ok(differs(&first, &snapshot.get(&ROWS, &1)?))
}

/// A commit awaits space in the log, which no device takes. A smaller one has space, and moves the
/// front of the log. Readers do not wait for the first one.
fn read_beside_a_full_log(db: &Database) -> Result<Wrong> {
    let stop = db.failpoints().stop(&foxton_log::failpoint::WRITE);
    let last = Arc::new(AtomicU64::new(0));
    let writer = {
        let (db, last) = (db.clone(), last.clone());
        thread::spawn(move || {
            // More than the buffer holds.
            (2..100).try_for_each(|key| {
                last.store(key, Ordering::Relaxed);
                put(&db, key, &"x".repeat(4_000))
            })
        })
    };
    stop.reached();
    let mut awaited = 0;
    while awaited != last.load(Ordering::Relaxed) {
        awaited = last.load(Ordering::Relaxed);
        thread::sleep(Duration::from_millis(200));
    }
    put(db, 1, "11")?;
    let snapshot = db.snapshot()?;
    let reader = thread::spawn(move || snapshot.get(&ROWS, &awaited));
    let has_waited = !ends(&reader);
    stop.release();
    writer.join().expect("no panic")?;
    let read = reader.join().expect("no panic")?;
    let wrong = differs(&read.as_deref(), &None);
    Ok(wrong.or_else(|| has_waited.then(|| "a reader waits for space".to_owned())))
}

/// A row has its first value for readers of a snapshot, behind its key, and two others since.
fn read_a_kept_value(db: &Database) -> Result<Wrong> {
    let snapshot = db.snapshot()?;
    put(db, 1, "11")?;
    put(db, 1, "12")?;
    reads(&snapshot, 1, Some("10"))
}

fn read_an_own_write(db: &Database) -> Result<Wrong> {
    let mut tx = db.begin()?;
    tx.set_isolation(Isolation::Snapshot).unwrap();
    tx.put(&ROWS, &1, "11")?;
    Ok(differs(&tx.get(&ROWS, &1)?.as_deref(), &Some("11")))
}

/// A deleted row stays in its table as a ghost, because another transaction has the gap before it.
fn read_a_ghost(db: &Database) -> Result<Wrong> {
    let _older = db.snapshot()?;
    let mut holder = db.begin()?;
    holder.range(&ROWS, ..1).collect()?;
    db.run(|tx| tx.delete(&ROWS, &1))?;
    reads(&db.snapshot()?, 1, None)
}

/// Another transaction overwrites a version as soon as its writer has released it.
fn write_before_another_stamps(db: &Database) -> Result<Wrong> {
    let snapshot = db.snapshot()?;
    let other = db.clone();
    on_this_thread(db, &failpoint::RELEASED, move || put(&other, 1, "12"));
    put(db, 1, "11")?;
    reads(&snapshot, 1, Some("10"))
}

fn read_by_a_moved_entry(db: &Database) -> Result<Wrong> {
    let snapshot = db.snapshot()?;
    put(db, 1, "11")?;
    let rows = snapshot.range_by(&BY_VALUE, ..)?.collect()?;
    let right = ("10".to_owned(), 1, "10".to_owned());
    Ok(differs(&rows, &vec![right]))
}

/// The first snapshot begins after a commit has looked whether there are any, and before it has its
/// place.
fn begin_before_a_commit_is_placed(db: &Database) -> Result<Wrong> {
    let stop = db.failpoints().stop(&failpoint::COMMITTING);
    let writer = {
        let db = db.clone();
        thread::spawn(move || put(&db, 1, "11"))
    };
    stop.reached();
    let snapshot = db.snapshot()?;
    stop.release();
    writer.join().expect("no panic")?;
    reads(&snapshot, 1, Some("10"))
}

/// A snapshot begins while a collector is about to look for snapshots, and the row that it collects
/// is written again.
fn begin_before_a_collector_looks(db: &Database) -> Result<Wrong> {
    put(db, 1, &large())?;
    let _older = db.snapshot()?;
    let begun = Arc::new(Mutex::new(None));
    let (other, slot) = (db.clone(), begun.clone());
    on_this_thread(db, &failpoint::COLLECTING, move || {
        let snapshot = other.snapshot()?;
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
        put(&other, 1, "12")
    });
    put(db, 1, "11")?;
    let begun = begun.lock().unwrap_or_else(PoisonError::into_inner).take();
    reads(&begun.expect("the writer has collected"), 1, Some("11"))
}

/// The position of a snapshot is that of the newest commit.
fn read_what_just_began(db: &Database) -> Result<Wrong> {
    let _older = db.snapshot()?;
    put(db, 1, &large())?;
    let snapshot = db.snapshot()?;
    put(db, 1, "12")?;
    reads(&snapshot, 1, Some(&large()))
}

/// A collector does not find a snapshot that has its position and is not registered.
fn collect_before_a_snapshot_is_registered(db: &Database) -> Result<Wrong> {
    let _older = db.snapshot()?;
    put(db, 1, &large())?;
    let other = db.clone();
    on_this_thread(db, &failpoint::REGISTERING, move || put(&other, 1, "12"));
    let snapshot = db.snapshot()?;
    reads(&snapshot, 1, Some("12"))
}

/// A row moves to the deleted rows between the two searches of a reader.
fn delete_between_two_searches(db: &Database) -> Result<Wrong> {
    put(db, 2, "20")?;
    let snapshot = db.snapshot()?;
    db.run(|tx| tx.delete(&ROWS, &2))?;
    let delete = |key: u64| {
        let other = db.clone();
        on_this_thread(db, &failpoint::SEARCHED_ONCE, move || {
            other.run(|tx| tx.delete(&ROWS, &key)).map(drop)
        });
    };
    delete(1);
    let wrong = reads(&snapshot, 1, Some("10"))?;
    put(db, 3, "30")?;
    let snapshot = db.snapshot()?;
    delete(3);
    let rows = snapshot.range(&ROWS, 2..)?.collect()?;
    Ok(wrong.or(differs(&rows, &vec![(3, "30".to_owned())])))
}

/// The table has its first deleted row when a scan has read some others. The scan has not met it.
fn delete_under_a_scan(db: &Database) -> Result<Wrong> {
    let keys = 1..=60;
    keys.clone().try_for_each(|key| put(db, key, "10"))?;
    let mut tx = at_snapshot(db)?;
    let other = db.clone();
    on_this_thread(db, &failpoint::SEARCHED_ONCE, move || {
        other.run(|tx| tx.delete(&ROWS, &50)).map(drop)
    });
    let rows = tx.range(&ROWS, ..).collect()?;
    let found: Vec<u64> = rows.into_iter().map(|(key, _)| key).collect();
    Ok(differs(&found.len(), &60).or(differs(&found, &keys.collect())))
}

/// The background thread unlinks versions of a record that are copied to the deleted rows. The one
/// that the snapshot needs then ends where one did that was met before.
fn delete_beside_a_collector(db: &Database) -> Result<Wrong> {
    put(db, 2, "20")?;
    let snapshot = db.snapshot()?;
    put(db, 2, "21")?;
    put(db, 2, "22")?;
    let other = db.clone();
    on_this_thread(db, &failpoint::COPYING, move || {
        let (begun, before) = (Instant::now(), other.version_stats().pruned);
        while other.version_stats().pruned == before && begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    db.run(|tx| tx.delete(&ROWS, &2))?;
    reads(&snapshot, 2, Some("20"))
}

fn read_a_deleted_row(db: &Database) -> Result<Wrong> {
    let snapshot = db.snapshot()?;
    db.run(|tx| tx.delete(&ROWS, &1))?;
    reads(&snapshot, 1, Some("10"))
}

/// A transaction writes a row that came and went since its snapshot.
/// Returns a transaction that has taken its snapshot.
fn at_snapshot(db: &Database) -> Result<Transaction> {
    let mut tx = db.begin()?;
    tx.set_isolation(Isolation::Snapshot)?;
    tx.get(&ROWS, &5)?;
    Ok(tx)
}

/// Writes the row 5, which has changed since the snapshot.
fn is_refused(mut tx: Transaction) -> Result<Wrong> {
    match tx.put(&ROWS, &5, "51") {
        Err(Error::Conflict(conflict)) if conflict.reason() == ConflictReason::Overwritten => {
            Ok(None)
        }
        other => Ok(Some(format!("a write was not refused: {other:?}"))),
    }
}

fn write_what_came_and_went(db: &Database) -> Result<Wrong> {
    let tx = at_snapshot(db)?;
    put(db, 5, "50")?;
    db.run(|tx| tx.delete(&ROWS, &5))?;
    is_refused(tx)
}

/// A collector has looked at the deleted row, whose value no snapshot sees.
fn write_what_was_collected(db: &Database) -> Result<Wrong> {
    let tx = at_snapshot(db)?;
    put(db, 5, "50")?;
    put(db, 5, &large())?;
    db.run(|tx| tx.delete(&ROWS, &5))?;
    is_refused(tx)
}

/// The record has lost its versions by the time that it is removed.
fn write_what_was_removed_late(db: &Database) -> Result<Wrong> {
    let tx = at_snapshot(db)?;
    put(db, 5, "50")?;
    put(db, 5, &large())?;
    let mut reader = db.begin()?;
    // It holds the gap, so the ghost stays for now.
    assert_eq!(reader.range(&ROWS, 2..5).count()?, 0);
    db.run(|tx| tx.delete(&ROWS, &5))?;
    assert_eq!(db.stats().ghosts_left, 1);
    reader.commit()?;
    let purged = db.stats().ghosts_purged;
    put(db, 1, "11")?;
    assert!(db.stats().ghosts_purged > purged);
    is_refused(tx)
}

/// Plays a schedule on a database with the row 1, which has the value 10.
fn play(schedule: Schedule, fault: Option<Failpoint>) -> Result<Wrong> {
    let mut options = Options::tiny();
    options.durability = Durability::None;
    options.redo_part_bytes = 1 << 20;
    options.log_buffer_bytes = 64 << 10;
    options.log_segment_bytes = 1 << 20;
    options.checkpoint_log_bytes = u64::MAX;
    options.indexes.add(&BY_VALUE);
    let db = Database::open_on(Arc::new(MemoryDevice::new()), options)?;
    put(&db, 1, "10")?;
    if let Some(fault) = fault {
        db.failpoints().arm(&fault);
    }
    schedule(&db)
}

#[test]
fn every_fault_is_found_by_its_schedule() {
    let all = injected_fault::OF_SNAPSHOTS.iter();
    let unplayed: Vec<_> = all
        .filter(|fault| SCHEDULES.iter().all(|(played, _)| played != *fault))
        .collect();
    assert!(unplayed.is_empty(), "{unplayed:?} have no schedule");
    let mut missed = Vec::new();
    for (fault, schedule) in SCHEDULES {
        let [right, found] = [None, Some(fault)].map(|fault| {
            // A schedule that no longer fits panics, and the others are still played.
            let played = thread::spawn(move || play(schedule, fault)).join();
            played.map_err(|_| "a panic".to_owned())
        });
        println!("{fault:36} {found:?}");
        let is_found = matches!(found, Ok(Ok(Some(_))));
        if !is_found || !matches!(right, Ok(Ok(None))) {
            missed.push((fault, right, found));
        }
    }
    assert!(missed.is_empty(), "no schedule showed {missed:#?}");
}

/// Faults that random transactions of mixed levels meet soon.
const OF_HISTORIES: [Failpoint; 5] = [
    injected_fault::DELETED_ROWS_MISSED,
    injected_fault::OWN_VERSION_MISSED,
    injected_fault::TOMBSTONE_SKIPPED,
    injected_fault::ENTRY_UNSTAMPED,
    injected_fault::COMMITTING_LATE,
];

/// Runs rounds until the replay at the places of snapshots, or the graph, finds something.
fn look(fault: Option<Failpoint>, rounds: u64) -> Option<Vec<String>> {
    (0..rounds).find_map(|round| {
        let mut options = Options::tiny();
        let kinds = LockManagerKind::ALL;
        options.lock_manager = kinds[round as usize % kinds.len()];
        (options.durability, options.lock_threads) = (Durability::None, true);
        options.snapshot_linger = Duration::from_micros(200);
        declare(&mut options);
        let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
        for point in [failpoint::PLACED, failpoint::SEARCHED_ONCE] {
            db.failpoints().set(&point, |passed| {
                if passed % 4 == 0 {
                    thread::yield_now();
                }
                Ok(())
            });
        }
        if let Some(fault) = fault {
            db.failpoints().arm(&fault);
        }
        let plan = Plan {
            seed: round,
            clients: 6,
            count: 100,
            keys: [6, 20][round as usize % 2],
            steps: 6,
            width: 6,
            yields: 3,
            indexed: true,
            is_split: false,
            levels: Levels::Mixed,
        };
        let ran = match run(&db, plan, BTreeMap::new(), 0) {
            Ok(ran) => ran,
            Err(error) => return Some(vec![format!("a client: {error}")]),
        };
        let replayed = match replay(&ran.history) {
            Err(anomaly) => Some(format!("replay: {}", anomaly.what)),
            Ok(end) => (end != ran.end).then(|| "rows at the end".to_owned()),
        };
        let names = graph::check_promised(&ran.history).names();
        let found: Vec<String> = replayed.into_iter().chain(names).collect();
        (!found.is_empty()).then_some(found)
    })
}

#[test]
fn histories_of_mixed_levels_find_what_they_meet() {
    let mut missed = Vec::new();
    for fault in OF_HISTORIES {
        let begun = Instant::now();
        let found = look(Some(fault), 100);
        let seconds = begun.elapsed().as_secs_f64();
        println!("{fault:36} {seconds:>6.2}  {found:?}");
        if found.is_none() {
            missed.push(fault);
        }
    }
    assert!(missed.is_empty(), "histories did not find {missed:?}");
    assert_eq!(look(None, 10), None);
}
