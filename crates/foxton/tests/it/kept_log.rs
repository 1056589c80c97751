//! Log that open transactions keep: a stalled writer of pages is named, its end gives the log back,
//! and there can be a limit.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::paged::tiny_pages;
use foxton::{Database, Error, Options, Table, Transaction};
use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::FaultDevice;
use foxton_log::format::segment;

const PAGED: Table<u64, [u8]> = Table::new("paged").paged();
const RESIDENT: Table<u64, [u8]> = Table::new("resident").resident();

/// Small log files, and many checkpoints.
fn options() -> Options {
    let mut options = tiny_pages(Options::tiny(), 300);
    options.checkpoint_log_bytes = 32 << 10;
    options
}

fn open(options: Options) -> (FaultDevice, Database) {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), options).unwrap();
    write(&db, 0..100, 1).unwrap();
    (device, db)
}

/// Changes rows of both components, a row of each in a transaction.
fn write(db: &Database, keys: Range<u64>, value: u8) -> Result<(), Error> {
    keys.into_iter().try_for_each(|key| {
        db.run(|tx| tx.put(&PAGED, &key, &[value; 100]).map(drop))?;
        db.run(|tx| tx.put(&RESIDENT, &key, &[value; 100]).map(drop))
    })
}

/// A transaction that has changed one row, which the others leave alone.
fn stalled(db: &Database) -> Transaction {
    let mut tx = db.begin().unwrap();
    tx.set_label("stalled");
    tx.put(&PAGED, &1_000_000, b"never").unwrap();
    tx
}

fn segments(device: &FaultDevice) -> usize {
    let names = device.list().unwrap();
    let names = names.iter();
    names
        .filter(|name| segment::first_of(name).is_some())
        .count()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(120), "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn kept_bytes(db: &Database) -> u64 {
    let holder = db.checkpoints().log_holder;
    holder.map_or(0, |holder| holder.log_bytes)
}

/// Busy threads, until the stalled transaction keeps so much log.
fn write_until_kept(db: &Database, bytes: u64) {
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut round = 0;
                while kept_bytes(db) < bytes {
                    round += 1;
                    let first = thread * 25;
                    write(db, first..first + 25, round).unwrap();
                }
            });
        }
    });
}

#[test]
fn a_stalled_writer_of_pages_is_named_and_its_end_gives_the_log_back() {
    let (device, db) = open(options());
    let mut reader = db.begin().unwrap();
    assert!(reader.get(&PAGED, &1).unwrap().is_some());
    assert_eq!(db.checkpoints().log_holder, None, "it has changed nothing");
    let begin = Instant::now();
    let tx = stalled(&db);
    drop(reader);
    let first = db.checkpoints().log_holder.expect("it is open");
    let made = db.checkpoints().made;
    write_until_kept(&db, 1 << 20);
    let holder = db.checkpoints().log_holder.expect("it is open");
    assert_eq!(
        (&*holder.label, holder.first_lsn),
        ("stalled", first.first_lsn)
    );
    assert!(
        holder.owner == first.owner && holder.log_bytes >= 1 << 20,
        "{holder:?}"
    );
    // The clock of owners is coarse.
    let (age, coarse) = (begin.elapsed(), Duration::from_millis(100));
    assert!(holder.since + coarse > age / 2, "{holder:?}");
    assert!(holder.since <= age + coarse, "{holder:?}");
    let status = db.status().checkpoints.log_holder.expect("as there");
    assert_eq!(
        (status.owner, status.first_lsn),
        (holder.owner, first.first_lsn)
    );
    let stats = db.checkpoints();
    assert!(stats.made > made + 4, "{stats:?}");
    assert!(
        segments(&device) >= 16,
        "{} files of 64 KiB",
        segments(&device)
    );
    // Killed now, a restart undoes it and needs all of the log no more.
    db.sync().unwrap();
    let image = Arc::new(FaultDevice::holding(&device.crash(Damage::Torn, 1)));
    let again = Database::open_on(image.clone(), options()).unwrap();
    assert!(
        again
            .run(|tx| tx.get(&PAGED, &1_000_000))
            .unwrap()
            .is_none()
    );
    assert_eq!(again.run(|tx| tx.range(&PAGED, ..).count()).unwrap(), 100);
    assert_eq!(again.checkpoints().log_holder, None);
    again.checkpoint().unwrap();
    assert!(
        segments(&image) <= 3,
        "{} after the restart",
        segments(&image)
    );
    again.verify();
    // Nothing is written after its end, and yet a checkpoint removes the log.
    tx.rollback();
    assert_eq!(db.checkpoints().log_holder, None);
    until("its log is removed", || segments(&device) <= 3);
    // A commit gives it back too.
    let tx = stalled(&db);
    write_until_kept(&db, 300 << 10);
    assert!(segments(&device) >= 5);
    tx.commit().unwrap();
    until("its log is removed", || segments(&device) <= 3);
    db.close().unwrap();
}

#[test]
fn the_idle_timeout_ends_a_stalled_writer_and_gives_its_log_back() {
    let mut options = options();
    options.idle_timeout = Some(Duration::from_millis(1_500));
    let (device, db) = open(options);
    let mut tx = stalled(&db);
    write_until_kept(&db, 200 << 10);
    assert!(segments(&device) >= 4, "{}", segments(&device));
    until("it is ended", || db.stats().idle_ended == 1);
    until("it is rolled back", || kept_bytes(&db) == 0);
    until("its log is removed", || segments(&device) <= 3);
    let refused = tx.put(&PAGED, &1_000_000, b"late").unwrap_err();
    assert_eq!(refused.code(), "ended_idle", "{refused}");
    write(&db, 0..100, 9).unwrap();
    assert!(db.run(|tx| tx.get(&PAGED, &1_000_000)).unwrap().is_none());
    db.verify();
}

#[test]
fn a_limit_refuses_changes_while_a_stalled_writer_keeps_too_much_log() {
    const MOST: u64 = 256 << 10;
    let mut options = options();
    options.max_kept_log_bytes = Some(MOST);
    let (device, db) = open(options);
    // Without it there is no limit to the log that is written.
    for round in 0..20 {
        write(&db, 0..100, round).unwrap();
    }
    let tx = stalled(&db);
    let mut open = db.begin().unwrap();
    open.put(&PAGED, &2_000_000, b"two").unwrap();
    let (mut lost, mut value) = (db.begin().unwrap(), 0);
    lost.put(&PAGED, &3_000_000, b"three").unwrap();
    let refused = loop {
        value += 1;
        if let Err(refused) = write(&db, 0..100, value) {
            break refused;
        }
    };
    let is_refused = |refused: &Error| {
        assert_eq!(refused.code(), "log_room", "{refused}");
        let words = refused.to_string();
        for needed in [
            "stalled (owner ",
            "roll it back",
            "idle_timeout",
            "max_kept_log_bytes",
        ] {
            assert!(words.contains(needed), "{words}");
        }
    };
    is_refused(&refused);
    for _ in 0..3 {
        is_refused(
            &db.run(|tx| tx.put(&PAGED, &1, b"more").map(drop))
                .unwrap_err(),
        );
        is_refused(
            &db.run(|tx| tx.put(&RESIDENT, &1, b"more").map(drop))
                .unwrap_err(),
        );
        is_refused(&open.put(&PAGED, &2_000_001, b"more").unwrap_err());
    }
    let kept = kept_bytes(&db);
    assert!((MOST..MOST + (64 << 10)).contains(&kept), "{kept} bytes");
    // Reads, rollbacks and commits go on.
    assert_eq!(db.run(|tx| tx.range(&PAGED, ..100).count()).unwrap(), 100);
    assert_eq!(
        db.run(|tx| tx.range(&RESIDENT, ..100).count()).unwrap(),
        100
    );
    lost.rollback();
    open.commit().unwrap();
    // And all of it once it has ended.
    tx.rollback();
    for round in 0..20 {
        write(&db, 0..100, round).unwrap();
    }
    until("its log is removed", || segments(&device) <= 6);
    let found = |key: u64| db.run(|tx| tx.get(&PAGED, &key)).unwrap();
    assert_eq!(found(2_000_000).as_deref(), Some(&b"two"[..]));
    assert_eq!(
        (found(1_000_000), found(2_000_001), found(3_000_000)),
        (None, None, None)
    );
    // A transaction that writes more than that by itself is told so, and can commit.
    let mut large = db.begin().unwrap();
    let mut count = 0;
    let refused = loop {
        match large.put(&PAGED, &(5_000_000 + count), &[1; 100]) {
            Ok(_) => count += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.code(), "log_room", "{refused}");
    large.commit().unwrap();
    let rows = db.run(|tx| tx.range(&PAGED, 5_000_000..).count()).unwrap();
    assert_eq!(rows, count);
    write(&db, 0..100, 7).unwrap();
    db.verify();
    db.close().unwrap();
}
