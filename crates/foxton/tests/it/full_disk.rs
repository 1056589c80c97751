//! A disk that is really full: an in-memory file system of two megabytes, which requires the
//! permission to mount one. Without it these tests print that and check nothing. And a device that
//! gives the page file no more space, which needs no permission.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foxton::device::MemoryDevice;
use foxton::{Database, Options, Table, backup};
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::{Device, DeviceFile, FileLock, FileLockMode, LockError};

use crate::common::paged::tiny_pages;

const ROWS: Table<u64, [u8]> = Table::new("rows");
const SIZE: u64 = 2 << 20;

/// A small file system, and a file that takes half of it.
struct Small(PathBuf);

impl Small {
    /// Returns `None`, and prints why, if file systems cannot be mounted.
    fn mount(name: &str) -> Option<Small> {
        let path = std::env::temp_dir().join(format!("foxton-full-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={SIZE}"), "tmpfs"])
            .arg(&path)
            .output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            eprintln!("not shown: this user cannot mount a file system, so no disk can be filled");
            fs::remove_dir(&path).unwrap();
            return None;
        }
        let small = Small(path);
        fs::write(small.filler(), vec![1; SIZE as usize / 2]).unwrap();
        Some(small)
    }

    /// Doubles the size.
    fn enlarge(&self) {
        let size = format!("remount,size={}", 2 * SIZE);
        let status = Command::new("mount")
            .args(["-o", &size])
            .arg(&self.0)
            .status();
        assert!(status.is_ok_and(|status| status.success()));
    }

    /// Takes every block that is left.
    fn fill_up(&self) {
        let mut file = fs::File::create(self.at("rest")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    /// Gives back some of what [`fill_up`](Self::fill_up) took.
    fn free(&self, bytes: u64) {
        let file = fs::OpenOptions::new().write(true).open(self.at("rest"));
        let file = file.unwrap();
        let length = file.metadata().unwrap().len();
        file.set_len(length - bytes).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
        let _ = fs::remove_dir(&self.0);
    }
}

/// Small segments, and no checkpoint that would free space.
fn options() -> Options {
    let mut options = Options::tiny();
    options.checkpoint_log_bytes = 1 << 40;
    options
}

/// Puts rows until one is refused; returns how many were acknowledged, and the error.
fn fill(db: &Database, from: u64) -> (u64, foxton::Error) {
    for key in from.. {
        if let Err(error) = db.run(|tx| tx.put(&ROWS, &key, &[key as u8; 2_000])) {
            return (key, error);
        }
    }
    unreachable!("no disk takes all of them")
}

fn count(path: &Path) -> u64 {
    let db = Database::open_with(path, options()).unwrap();
    db.run(|tx| tx.range(&ROWS, ..).count()).unwrap()
}

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing_and_the_database_continues_with_free_space() {
    let Some(small) = Small::mount("log") else {
        return;
    };
    let db = Database::open_with(small.at("db"), options()).unwrap();
    let mut reader = db.begin().unwrap();
    let (acknowledged, error) = fill(&db, 0);
    assert!(
        acknowledged > 100,
        "{acknowledged} rows in half of {SIZE} bytes"
    );
    is_full(&error);
    // Reads continue, in open transactions and in new ones; every write is refused.
    assert!(reader.get(&ROWS, &0).unwrap().is_some());
    drop(reader);
    let rows = || db.run(|tx| tx.range(&ROWS, ..).count()).unwrap();
    assert_eq!(rows(), acknowledged);
    is_full(
        &db.run(|tx| tx.put(&ROWS, &acknowledged, &[1; 2_000]))
            .unwrap_err(),
    );
    // A transaction that is written in parts, and cannot be.
    let large =
        db.run(|tx| (0..500).try_for_each(|key| tx.put(&ROWS, &key, &[9; 2_000]).map(drop)));
    is_full(&large.unwrap_err());
    is_full(&db.checkpoint().unwrap_err());
    assert_eq!(rows(), acknowledged);
    db.sync().unwrap();
    // The same handle writes again when there is space, and a checkpoint leaves no log behind.
    fs::remove_file(small.filler()).unwrap();
    db.run(|tx| tx.put(&ROWS, &acknowledged, &[1; 2_000]))
        .unwrap();
    db.checkpoint().unwrap();
    let made = db.checkpoint().unwrap();
    assert_eq!(made.redo_from, made.checkpoint_lsn);
    drop(db);
    assert_eq!(count(&small.at("db")), acknowledged + 1);
}

fn is_full(error: &foxton::Error) {
    assert_eq!(error.code(), "device_full", "{error}");
    for words in ["free some space", "try again", "had no effect"] {
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_database_on_a_full_disk_is_opened_and_read_and_made_smaller() {
    let Some(small) = Small::mount("open") else {
        return;
    };
    let path = small.at("db");
    let db = Database::open_with(&path, options()).unwrap();
    for key in 0..300 {
        db.run(|tx| tx.put(&ROWS, &key, &[key as u8; 2_000]))
            .unwrap();
    }
    drop(db);
    small.fill_up();
    let mut reading = options();
    reading.read_only = true;
    let db = Database::open_with(&path, reading).unwrap();
    assert_eq!(db.run(|tx| tx.range(&ROWS, ..).count()).unwrap(), 300);
    drop(db);
    assert_eq!(count(&path), 300);
    let db = Database::open_with(&path, Options::default()).unwrap();
    let delete = || db.run(|tx| (0..290).try_for_each(|key| tx.delete(&ROWS, &key).map(drop)));
    is_full(&delete().unwrap_err());
    assert_eq!(db.run(|tx| tx.range(&ROWS, ..).count()).unwrap(), 300);
    // A little space is enough: for the deletions, and for the rows that are left.
    small.free(128 << 10);
    delete().unwrap();
    db.checkpoint().unwrap();
    drop(db);
    let bytes = |entry: fs::DirEntry| entry.metadata().unwrap().len();
    let files = fs::read_dir(&path).unwrap();
    let left: u64 = files.map(|entry| bytes(entry.unwrap())).sum();
    assert!(left < 100 << 10, "{left} bytes for ten rows");
    assert_eq!(count(&path), 10);
}

#[test]
fn a_backup_on_a_full_disk_leaves_no_backup_and_the_database_continues() {
    let Some(small) = Small::mount("backup") else {
        return;
    };
    let other = std::env::temp_dir().join(format!("foxton-full-db-{}", std::process::id()));
    let _ = fs::remove_dir_all(&other);
    let db = Database::open_with(&other, options()).unwrap();
    for key in 0..700 {
        db.run(|tx| tx.put(&ROWS, &key, &[key as u8; 2_000]))
            .unwrap();
    }
    let error = db.backup_to(small.at("backup")).unwrap_err();
    assert_eq!(error.code(), "device_full", "{error}");
    let words = "the source is unchanged: free some space there";
    assert!(error.to_string().contains(words), "{error}");
    assert_eq!(
        backup::inspect(small.at("backup")).unwrap_err().code(),
        "not_a_backup"
    );
    db.run(|tx| tx.put(&ROWS, &700, b"it goes on")).unwrap();
    fs::remove_file(small.filler()).unwrap();
    // The failed backup has left no files in the way.
    db.backup_to(small.at("backup")).unwrap();
    drop(db);
    fs::remove_dir_all(&other).unwrap();
    backup::restore(small.at("backup"), &other, None, &mut |_, _| {}).unwrap();
    assert_eq!(count(&other), 701);
    // There is space for one database, and not for two.
    let restore = || backup::restore(small.at("backup"), small.at("again"), None, &mut |_, _| {});
    let error = restore().unwrap_err();
    assert_eq!(error.code(), "device_full", "{error}");
    assert!(error.to_string().contains("can be removed"), "{error}");
    let opened = Database::open_with(small.at("again"), options());
    assert_eq!(opened.unwrap_err().code(), "not_restored");
    assert_eq!(restore().unwrap_err().code(), "device_full");
    // With more space the restore can be repeated.
    small.enlarge();
    restore().unwrap();
    assert_eq!(count(&small.at("again")), 701);
    fs::remove_dir_all(&other).unwrap();
}

/// A directory in memory that has no more space for the page file, or for the log and layers, once
/// it is full.
#[derive(Debug, Default)]
struct FullDevice {
    inner: MemoryDevice,
    is_full: Arc<AtomicBool>,
    is_log_full: Arc<AtomicBool>,
}

/// A file that may have no space; for the others the flag is their own.
#[derive(Debug)]
struct FullFile(Arc<dyn DeviceFile>, Arc<AtomicBool>);

impl FullDevice {
    fn file(&self, name: &str, file: Arc<dyn DeviceFile>) -> Arc<dyn DeviceFile> {
        let is_full = match name {
            "rows" => self.is_full.clone(),
            "rows-double" | "pages" => Arc::default(),
            _ => self.is_log_full.clone(),
        };
        Arc::new(FullFile(file, is_full))
    }
}

impl DeviceFile for FullFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(ErrorKind::StorageFull.into()),
            false => self.0.allocate(bytes),
        }
    }
}

impl Device for FullDevice {
    fn lock(&self) -> Result<(), LockError> {
        self.inner.lock()
    }
    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        self.inner.try_lock_file(name, mode)
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        if self.is_log_full.load(Ordering::Relaxed) {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(self.file(name, self.inner.create(name)?))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.file(name, self.inner.open(name)?))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.inner.sync_dir()
    }
}

/// Rows with values that have pages of their own.
const LARGE: Table<u64, [u8]> = Table::new("large").paged();
const SMALL: Table<u64, [u8]> = Table::new("small").paged();
/// Bytes of a value that is too long for a leaf.
const LARGE_BYTES: usize = 3_000;

/// Puts a row, and waits while the pages of deleted values are not free yet.
fn put_in_time(db: &Database, key: u64) {
    let begin = Instant::now();
    while let Err(error) = db.run(|tx| tx.put(&LARGE, &key, &[7; LARGE_BYTES]).map(drop)) {
        assert_eq!(error.code(), "page_room", "{error}");
        assert!(begin.elapsed() < Duration::from_secs(120), "row {key}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn free_pages(db: &Database) -> u64 {
    db.stats().pages.map_or(0, |pages| pages.free_pages)
}

/// Waits until no more pages become free.
fn settle(db: &Database) {
    let (mut before, mut same) = (free_pages(db), 0);
    while same < 40 {
        thread::sleep(Duration::from_millis(2));
        let now = free_pages(db);
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
}

/// Puts rows until one is refused. Returns how many were accepted.
fn fill_pages(db: &Database, table: &Table<u64, [u8]>, value: &[u8], from: u64) -> u64 {
    for key in from.. {
        if let Err(error) = db.run(|tx| tx.put(table, &key, value).map(drop)) {
            assert_eq!(error.code(), "page_room", "{error}");
            return key - from;
        }
    }
    unreachable!("no disk takes all of them")
}

/// Pages that hold all rows of these tests.
fn pages_for_all() -> Options {
    tiny_pages(options(), 400)
}

/// The value of a row that the transaction `of` has written.
fn row(of: u64, key: u64) -> Vec<u8> {
    vec![(of * 31 + key) as u8; 200]
}

#[test]
fn a_full_log_refuses_changes_of_pages_and_no_rollback_and_no_commit() {
    let device = Arc::new(FullDevice::default());
    let is_full = device.is_log_full.clone();
    let db = Database::open_on(device.clone(), pages_for_all()).unwrap();
    let put = |of: u64, keys: Range<u64>| {
        db.run(|tx| {
            keys.clone()
                .try_for_each(|key| tx.put(&SMALL, &key, &row(of, key)).map(drop))
        })
    };
    let check = |db: &Database, of: u64| {
        let rows = db.run(|tx| tx.range(&SMALL, ..).collect()).unwrap();
        assert_eq!(rows.len(), 300);
        rows.iter()
            .for_each(|(key, value)| assert_eq!(*value, row(of, *key)));
    };
    put(0, 0..300).unwrap();
    for round in 1..=4 {
        // Transactions that were open when the log became full: a small one, and one whose undo is
        // in the log alone.
        let (mut small, mut large) = (db.begin().unwrap(), db.begin().unwrap());
        for key in 0..10 {
            small.put(&SMALL, &key, &row(round, key)).unwrap();
        }
        for key in 10..290 {
            large.put(&SMALL, &key, &row(round, key)).unwrap();
            assert!(large.delete(&SMALL, &key).unwrap());
        }
        is_full.store(true, Ordering::Relaxed);
        let savepoint = large.savepoint().unwrap();
        let refused = loop {
            let wrote =
                (10..300).try_for_each(|key| large.put(&SMALL, &key, &row(9, key)).map(drop));
            if let Err(refused) = wrote {
                break refused;
            }
        };
        full(&refused);
        full(&put(9, 1_000..1_900).unwrap_err());
        full(&db.run(|tx| tx.delete(&SMALL, &295)).unwrap_err());
        // Reads go on, and what was refused was not made.
        assert!(large.get(&SMALL, &1_000).unwrap().is_none());
        large.rollback_to(&savepoint).unwrap();
        assert!(large.get(&SMALL, &289).unwrap().is_none());
        large.rollback();
        small.commit().unwrap();
        let rows = db.run(|tx| tx.range(&SMALL, ..).collect()).unwrap();
        assert_eq!(rows.len(), 300);
        for (key, value) in rows {
            let of = if key < 10 { round } else { round - 1 };
            assert_eq!(value, row(of, key), "row {key}");
        }
        // With space it goes on.
        is_full.store(false, Ordering::Relaxed);
        put(round, 10..300).unwrap();
        check(&db, round);
        db.checkpoint().unwrap();
    }
    db.verify();
    db.close().unwrap();
    check(&Database::open_on(device, pages_for_all()).unwrap(), 4);
}

fn full(error: &foxton::Error) {
    assert_eq!(error.code(), "device_full", "{error}");
    assert!(error.to_string().contains("free some space"), "{error}");
}

#[test]
fn threads_roll_back_on_a_full_log_while_others_wait_for_their_locks() {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), pages_for_all()).unwrap();
    db.run(|tx| (0..64).try_for_each(|key| tx.put(&SMALL, &key, &row(0, key)).map(drop)))
        .unwrap();
    db.run(|tx| tx.put(&ROWS, &0, &[1; 100]).map(drop)).unwrap();
    let (is_over, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    // Each thread adds one to the sum of its key's bytes, and knows how often.
    let counts: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8_u64)
            .map(|thread| {
                let (db, is_over, refused) = (&db, &is_over, &refused);
                scope.spawn(move || {
                    let mut done = 0_u64;
                    while !is_over.load(Ordering::Relaxed) {
                        let mut tx = db.begin().unwrap();
                        let keys = [thread, 8 + (thread + done) % 8];
                        let wrote = (0..3).try_for_each(|_| {
                            keys.iter().try_for_each(|key| {
                                tx.put(&SMALL, key, &done.to_le_bytes()).map(drop)
                            })
                        });
                        let resident = wrote.and_then(|()| tx.put(&ROWS, &thread, &[2; 40]));
                        match resident.and_then(|_| match done % 3 {
                            2 => {
                                tx.rollback();
                                Ok(false)
                            }
                            _ => tx.commit().map(|()| true),
                        }) {
                            Ok(_) => done += 1,
                            Err(foxton::Error::Conflict(_)) => {}
                            Err(error) => {
                                full(&error);
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                    done
                })
            })
            .collect();
        for _ in 0..20 {
            for call in [Call::Create, Call::Allocate] {
                device.fail(call, 1, Times::ForEver, ErrorKind::StorageFull);
            }
            let before = refused.load(Ordering::Relaxed);
            let begin = Instant::now();
            while refused.load(Ordering::Relaxed) < before + 16 {
                assert!(
                    begin.elapsed() < Duration::from_secs(120),
                    "nothing is refused"
                );
                thread::sleep(Duration::from_millis(1));
            }
            device.heal();
            thread::sleep(Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    db.sync().unwrap();
    db.verify();
    let check = |db: &Database| {
        for (thread, count) in counts.iter().enumerate() {
            // The last of the rounds that were committed.
            let last = (0..*count).rev().find(|done| done % 3 != 2);
            let value = db.run(|tx| tx.get(&SMALL, &(thread as u64))).unwrap();
            let last =
                last.map_or_else(|| row(0, thread as u64), |done| done.to_le_bytes().to_vec());
            assert_eq!(value, Some(last), "{thread} {count}");
        }
    };
    check(&db);
    // So it does after a kill, even while the log is full: once there is space.
    let mut open = db.begin().unwrap();
    open.put(&SMALL, &0, &[9; 9]).unwrap();
    db.sync().unwrap();
    let image = device.crash(Damage::Torn, 1);
    drop(open);
    drop(db);
    check(&Database::open_on(Arc::new(image), pages_for_all()).unwrap());
}

#[test]
fn rows_of_paged_tables_are_deleted_on_a_full_disk_and_then_others_are_inserted() {
    let device = FullDevice::default();
    let is_full = device.is_full.clone();
    let db = Database::open_on(Arc::new(device), tiny_pages(options(), 200)).unwrap();
    db.run(|tx| tx.put(&LARGE, &0, &[7; LARGE_BYTES]).map(drop))
        .unwrap();
    db.run(|tx| tx.put(&SMALL, &0, &[8; 100]).map(drop))
        .unwrap();
    is_full.store(true, Ordering::Relaxed);
    let count = 1 + fill_pages(&db, &LARGE, &[7; LARGE_BYTES], 1);
    assert!(count > 20, "{count} rows");
    // The parts of the refused row become free again, and small rows take their pages.
    let mut small = 1;
    for _ in 0..3 {
        settle(&db);
        small += fill_pages(&db, &SMALL, &[8; 100], small);
    }
    // Deletes are undone, and made, without a page that inserts may take.
    let mut tx = db.begin().unwrap();
    (0..count).for_each(|key| assert!(tx.delete(&LARGE, &key).unwrap()));
    tx.rollback();
    let rows = db.run(|tx| tx.range(&LARGE, ..).count()).unwrap();
    assert_eq!(rows, count);
    settle(&db);
    db.run(|tx| (0..count).try_for_each(|key| tx.delete(&LARGE, &key).map(drop)))
        .unwrap();
    for first in (0..small).step_by(5) {
        let keys = first..small.min(first + 5);
        db.run(|tx| {
            keys.clone()
                .try_for_each(|key| tx.delete(&SMALL, &key).map(drop))
        })
        .unwrap();
    }
    // All that was deleted is free for other rows.
    (0..count).for_each(|key| put_in_time(&db, 1_000 + key));
    let rows = db.run(|tx| tx.range(&LARGE, ..).count()).unwrap();
    assert_eq!(rows, count);
    settle(&db);
    db.verify();
    is_full.store(false, Ordering::Relaxed);
    db.run(|tx| (0..500).try_for_each(|key| tx.put(&SMALL, &key, &[8; 100]).map(drop)))
        .unwrap();
    db.close().unwrap();
}
