//! Checkpoints: their contents, the log they leave, and their effect on writers. No crash, failure
//! or damage around a checkpoint loses a commit or goes unnoticed.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use foxton::{Checkpoint, Database, Durability, Options, Table, Transaction};
use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice};
use foxton_log::device::memory::MemoryDevice;
use foxton_log::format::segment;

const NUMBERS: Table<u64, u64> = Table::new("numbers");
const TEXTS: Table<str, [u8]> = Table::new("texts");

/// The smallest options, and checkpoints only on request.
fn options() -> Options {
    let mut options = Options::tiny();
    options.checkpoint_log_bytes = u64::MAX;
    options.restart_threads = 2;
    options
}

fn open(device: Arc<dyn Device>) -> Database {
    Database::open_on(device, options()).unwrap()
}

fn numbers(db: &Database) -> Vec<(u64, u64)> {
    db.run(|tx| tx.range(&NUMBERS, ..).collect()).unwrap()
}

fn put(db: &Database, keys: impl Iterator<Item = u64>, value: u64) {
    let keys: Vec<u64> = keys.collect();
    db.run(|tx| {
        keys.iter()
            .try_for_each(|key| tx.put(&NUMBERS, key, &value))
    })
    .unwrap();
}

fn segments(device: &dyn Device) -> usize {
    let names = device.list().unwrap();
    names
        .iter()
        .filter(|name| segment::first_of(name).is_some())
        .count()
}

fn layers(device: &dyn Device) -> usize {
    let names = device.list().unwrap();
    names
        .iter()
        .filter(|name| name.starts_with("layer-"))
        .count()
}

#[test]
fn a_restart_finds_the_rows_of_checkpoint_and_log() {
    let device = Arc::new(MemoryDevice::new());
    let db = open(device.clone());
    put(&db, 0..100, 1);
    db.run(|tx| tx.put(&TEXTS, "a", b"text")).unwrap();
    let made = db.checkpoint().unwrap();
    assert_eq!((made.layers, made.checkpoint_lsn), (1, made.redo_from));
    assert_eq!(db.checkpoints().checkpoint_lsn, made.checkpoint_lsn);
    put(&db, 50..150, 2);
    db.run(|tx| tx.delete(&NUMBERS, &7)).unwrap();
    drop(db);

    let db = open(device);
    let recovered = db.recovered();
    assert_eq!(recovered.checkpoint_rows, 101);
    assert_eq!((recovered.transactions, recovered.changes), (2, 101));
    let stats = db.checkpoints();
    assert_eq!(
        (stats.checkpoint_lsn, stats.last),
        (made.checkpoint_lsn, None)
    );
    let mut expected: BTreeMap<u64, u64> = (0..50).map(|key| (key, 1)).collect();
    expected.extend((50..150).map(|key| (key, 2)));
    expected.remove(&7);
    assert_eq!(numbers(&db), expected.into_iter().collect::<Vec<_>>());
    let text = db.run(|tx| tx.get(&TEXTS, "a")).unwrap();
    assert_eq!(text.as_deref(), Some(&b"text"[..]));
    db.verify();
}

#[test]
fn nothing_uncommitted_gets_into_a_checkpoint_and_parts_keep_their_log() {
    let device = FaultDevice::new();
    let db = open(Arc::new(device.clone()));
    put(&db, 0..10, 1);
    // Two transactions in parts: one commits after the checkpoint, one never does.
    let (mut later, mut never) = (db.begin().unwrap(), db.begin().unwrap());
    for key in 0..100 {
        later.put(&NUMBERS, &(1_000 + key), &2).unwrap();
        never.put(&NUMBERS, &(2_000 + key), &3).unwrap();
    }
    let mut small = db.begin().unwrap();
    small.put(&NUMBERS, &5, &9).unwrap();
    put(&db, 20..30, 1);
    let made = db.checkpoint().unwrap();
    assert!(made.redo_from < made.checkpoint_lsn, "{made:?}");
    later.commit().unwrap();
    // A second checkpoint, with parts still pending.
    put(&db, 30..40, 1);
    let again = db.checkpoint().unwrap();
    assert!(
        again.redo_from < again.checkpoint_lsn,
        "the one that never ends keeps it"
    );
    let image = device.crash(Damage::DropAll, 1);
    drop((small, never, db));

    let device = Arc::new(image);
    let db = open(device.clone());
    let expected: Vec<(u64, u64)> = (0..10)
        .chain(20..40)
        .map(|key| (key, 1))
        .chain((1_000..1_100).map(|key| (key, 2)))
        .collect();
    assert_eq!(numbers(&db), expected);
    // Transactions of an ended process never commit, so they no longer retain log.
    put(&db, 40..41, 1);
    let made = db.checkpoint().unwrap();
    assert_eq!(made.redo_from, made.checkpoint_lsn);
    drop(db);
    assert_eq!(numbers(&open(device)).len(), expected.len() + 1);
}

#[test]
fn a_checkpoint_removes_old_log_and_merged_layers() {
    let device = Arc::new(MemoryDevice::new());
    let db = open(device.clone());
    let mut most = 0;
    for round in 0..40u64 {
        let text = vec![round as u8; 10_000];
        db.run(|tx| tx.put(&TEXTS, &format!("{}", round % 10), &text))
            .unwrap();
        most = most.max(segments(&*device));
        if round % 10 == 9 {
            assert!(db.checkpoint().unwrap().segments_removed > 0);
            assert_eq!(segments(&*device), 1);
            assert_eq!(layers(&*device), 1, "the same rows all over");
        }
    }
    assert!((2..5).contains(&most), "{most}");
    drop(db);
    let db = open(device);
    assert_eq!(db.run(|tx| tx.range(&TEXTS, ..).count()).unwrap(), 10);
    assert_eq!(db.recovered().transactions, 0);
}

#[test]
fn a_checkpoint_writes_changes_and_not_the_whole_database() {
    let db = Database::open_on(Arc::new(MemoryDevice::new()), options()).unwrap();
    let value = vec![1; 1_000];
    for from in (0..5_000u64).step_by(500) {
        db.run(|tx| {
            (from..from + 500).try_for_each(|key| tx.put(&TEXTS, &format!("{key:06}"), &value))
        })
        .unwrap();
    }
    let whole = db.checkpoint().unwrap().written_bytes;
    assert!(whole > 5_000_000, "{whole}");
    let (mut written, mut most_layers) = (0, 0);
    // A hundredth of the rows changes in all, ten rows before each checkpoint.
    for round in 0..50u64 {
        // Changed in every byte.
        let value = vec![2 + round as u8; 1_000];
        db.run(|tx| tx.put(&TEXTS, &format!("{:06}", round * 100), &value))
            .unwrap();
        let made = db.checkpoint().unwrap();
        written += made.written_bytes;
        most_layers = most_layers.max(made.layers);
    }
    // Fifty kilobytes were changed; each was written a few times, and the whole database never
    // again.
    assert!(written < whole / 10, "{written} of {whole}");
    assert!((3..=8).contains(&most_layers), "{most_layers}");
}

#[test]
fn a_database_of_which_everything_was_deleted_has_no_layer() {
    let device = Arc::new(MemoryDevice::new());
    let db = open(device.clone());
    put(&db, 0..100, 1);
    db.checkpoint().unwrap();
    db.run(|tx| (0..100).try_for_each(|key| tx.delete(&NUMBERS, &key).map(drop)))
        .unwrap();
    let made = db.checkpoint().unwrap();
    assert_eq!((made.layers, layers(&*device)), (0, 0));
    drop(db);
    assert!(numbers(&open(device)).is_empty());
}

#[test]
fn a_checkpoint_with_nothing_new_writes_nothing() {
    let device = FaultDevice::new();
    let db = open(Arc::new(device.clone()));
    put(&db, 0..10, 1);
    db.checkpoint().unwrap();
    device.record();
    let again = db.checkpoint().unwrap();
    assert_eq!((again.written_bytes, device.recorded()), (0, 0));
}

#[test]
fn automatic_checkpoints_bound_the_log_of_a_restart() {
    let device = Arc::new(MemoryDevice::new());
    let mut options = options();
    options.checkpoint_log_bytes = 64 << 10;
    options.durability = Durability::Buffered;
    let db = Database::open_on(device.clone(), options.clone()).unwrap();
    let mut round: u64 = 0;
    // However slow the machine is, every due checkpoint is made.
    while db.checkpoints().made < 5 {
        let text = vec![(round / 100) as u8; 1_000];
        db.run(|tx| tx.put(&TEXTS, &format!("{}", round % 100), &text))
            .unwrap();
        round += 1;
    }
    assert_eq!(db.checkpoints().failed, 0, "{:?}", db.checkpoints());
    let expected = db.run(|tx| tx.range(&TEXTS, ..).collect()).unwrap();
    db.checkpoint().unwrap();
    drop(db);
    let db = Database::open_on(device, options).unwrap();
    assert_eq!(db.recovered().transactions, 0);
    assert_eq!(
        db.run(|tx| tx.range(&TEXTS, ..).collect()).unwrap(),
        expected
    );
}

/// Waits for an automatic checkpoint.
fn made(db: &Database) -> Checkpoint {
    loop {
        let stats = db.checkpoints();
        assert_eq!(stats.failed, 0, "{stats:?}");
        if let Some(last) = stats.last {
            return last;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_checkpoint_in_many_steps_writes_each_row_twice() {
    let device = Arc::new(MemoryDevice::new());
    let db = open(device.clone());
    for from in (0..5_000).step_by(20) {
        put(&db, from..from + 20, from);
    }
    drop(db);
    // There is much more log than a step holds in memory, which is the log between two checkpoints.
    let mut options = options();
    options.checkpoint_log_bytes = 16 << 10;
    let db = Database::open_on(device.clone(), options).unwrap();
    let last = made(&db);
    assert_eq!((last.layers, layers(&*device)), (1, 1));
    assert!(last.written_bytes > last.bytes, "one step shows nothing");
    assert!(last.written_bytes < last.bytes * 22 / 10, "{last:?}");
    drop(db);
    assert_eq!(numbers(&open(device)).len(), 5_000);
}

/// A fast writer lets the log grow; the checkpoint then has to be faster to catch up.
#[test]
fn the_cost_of_a_late_checkpoint_depends_on_how_late_it_is() {
    const ROUNDS: u64 = 320;
    let device = Arc::new(FaultDevice::new());
    let db = open(device.clone());
    for round in 0..ROUNDS {
        let text = vec![round as u8; 1_000];
        let texts = |tx: &mut Transaction| {
            (0..100).try_for_each(|key| tx.put(&TEXTS, &format!("{key}"), &text))
        };
        db.run(texts).unwrap();
    }
    drop(db);
    let mut options = options();
    let segments = ROUNDS * 100 * 1_000 / options.log_segment_bytes;
    options.checkpoint_log_bytes = 16 << 10;
    let [opened, renamed] = [Call::Open, Call::Rename].map(|call| device.calls(call));
    let db = Database::open_on(device.clone(), options).unwrap();
    let last = made(&db);
    drop(db);
    assert_eq!(last.layers, 1, "the last step merges what the others wrote");
    let [opens, renames] = [Call::Open, Call::Rename].map(|call| device.calls(call));
    // Opening, closing and all steps together open each segment a few times. Not every step opens
    // them all.
    assert!(
        opens - opened < 10 * segments,
        "{opens} - {opened}, {segments}"
    );
    // One rename per step, up to the maximum, and those of opening and closing.
    assert!(renames - renamed <= 70, "{renames} - {renamed}");
}

#[test]
fn a_caller_that_waits_hurries_the_current_checkpoint() {
    let device = Arc::new(MemoryDevice::new());
    let mut options = options();
    options.checkpoint_log_bytes = 64 << 10;
    options.checkpoint_rate = Some(1);
    let db = Database::open_on(device, options).unwrap();
    // Enough, but less than half as much again: otherwise commits would wait for it, and it would
    // ignore its rate.
    for from in (0..2_300).step_by(20) {
        put(&db, from..from + 20, from);
    }
    assert!(
        (64 << 10..96 << 10).contains(&db.log_end().bytes()),
        "{}",
        db.log_end()
    );
    while db.checkpoints().progress.is_none() {
        thread::yield_now();
    }
    let before = db.checkpoints().made;
    // At its own rate it would take a day.
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(db.checkpoint().map(|_| db.checkpoints())).is_ok());
    let stats = is_done.recv_timeout(Duration::from_mins(2));
    let stats = stats.expect("it was hurried").unwrap();
    assert!(stats.made > before && stats.failed == 0, "{stats:?}");
}

#[test]
fn restarts_on_one_thread_and_on_many_find_the_same() {
    let device = Arc::new(MemoryDevice::new());
    {
        let db = open(device.clone());
        for round in 0..30u64 {
            db.run(|tx| {
                for key in 0..300u64 {
                    let key = key * 7 % 300 + round;
                    if (key + round) % 5 == 0 {
                        tx.delete(&NUMBERS, &key)?;
                    } else {
                        tx.put(&NUMBERS, &key, &(round << 32 | key))?;
                    }
                }
                Ok(())
            })
            .unwrap();
            if round == 12 {
                db.checkpoint().unwrap();
            }
        }
    }
    let found = [1, 2, 5].map(|threads| {
        let mut options = options();
        options.restart_threads = threads;
        let db = Database::open_on(device.clone(), options).unwrap();
        db.verify();
        numbers(&db)
    });
    assert!(found[0].len() > 200);
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
}
