//! Backups of databases with paged tables, made while pages are changed and written: each one is
//! restored and has what the model says. A restored backup reaches back to the last page copied.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use foxton::{Database, Durability, Options, Table, Transaction, backup};
use foxton_log::Lsn;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::memory::MemoryDevice;
use foxton_log::device::{Device, DeviceFile, FileLock, FileLockMode, LockError};

use crate::common::paged::tiny_pages;
use crate::common::random::Random;
use crate::common::scratch::Directory;

const PAGED: Table<u64, [u8]> = Table::new("paged").paged();
const RESIDENT: Table<u64, [u8]> = Table::new("resident").resident();
const TABLES: [Table<u64, [u8]>; 2] = [PAGED, RESIDENT];

type Rows = BTreeMap<(usize, u64), Vec<u8>>;

fn quiet(_: u64, _: u64) {}

fn options() -> Options {
    tiny_pages(Options::tiny(), 64)
}

fn contents(db: &Database) -> Rows {
    let mut rows = Rows::new();
    for (table, declared) in TABLES.iter().enumerate() {
        let found = db.run(|tx| tx.range(declared, ..).collect()).unwrap();
        rows.extend(found.into_iter().map(|(key, value)| ((table, key), value)));
    }
    rows
}

type Changes = Vec<((usize, u64), Option<Vec<u8>>)>;

/// A database that one thread changes, its rows, and the changes of each commit.
struct Model {
    db: Database,
    random: Random,
    rows: Rows,
    commits: Vec<(Lsn, Changes)>,
    keys: u64,
}

impl Model {
    fn new(device: Arc<dyn Device>, keys: u64) -> Model {
        Model {
            db: Database::open_on(device, options()).unwrap(),
            random: Random(keys),
            rows: Rows::new(),
            commits: Vec::new(),
            keys,
        }
    }

    fn change(&mut self, tx: &mut Transaction) -> ((usize, u64), Option<Vec<u8>>) {
        let (table, key) = (self.random.below(4) / 3, self.random.below(self.keys));
        let table = table as usize;
        if self.random.below(5) == 0 {
            tx.delete(&TABLES[table], &key).unwrap();
            self.rows.remove(&(table, key));
            ((table, key), None)
        } else {
            let value = vec![self.random.next() as u8; 100 + self.random.below(100) as usize];
            tx.put(&TABLES[table], &key, &value).unwrap();
            self.rows.insert((table, key), value.clone());
            ((table, key), Some(value))
        }
    }

    fn commit(&mut self, changes: u64) {
        let mut tx = self.db.begin().unwrap();
        let changes = (0..changes).map(|_| self.change(&mut tx)).collect();
        tx.commit().unwrap();
        self.commits.push((self.db.log_end(), changes));
    }

    /// Returns the rows at a position of the log.
    fn rows_at(&self, position: Lsn) -> Rows {
        let mut rows = Rows::new();
        let commits = self.commits.iter().take_while(|(end, _)| *end <= position);
        for (row, value) in commits.flat_map(|(_, changes)| changes) {
            match value {
                Some(value) => drop(rows.insert(*row, value.clone())),
                None => drop(rows.remove(row)),
            }
        }
        rows
    }
}

fn restored(made: &dyn Device, to: Option<Lsn>) -> foxton::Result<(backup::Backup, Database)> {
    let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let restored = backup::restore_between(made, &target, to, &mut quiet)?;
    let db = Database::open_on(target, options())?;
    db.verify();
    Ok((restored, db))
}

/// A device whose page file is watched: reads of many pages at once, which only a copy makes.
#[derive(Debug)]
struct WatchedDevice {
    inner: Arc<dyn Device>,
    watcher: Arc<Watcher>,
}

#[derive(Debug)]
struct WatchedFile {
    inner: Arc<dyn DeviceFile>,
    watcher: Arc<Watcher>,
}

#[derive(Default)]
struct Watcher {
    /// Called before each of them.
    before: Mutex<Option<Box<dyn FnMut() + Send>>>,
    /// Number of them that are torn.
    torn: AtomicU64,
    calls: AtomicU64,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watcher")
    }
}

impl WatchedDevice {
    fn new() -> (Arc<WatchedDevice>, Arc<Watcher>) {
        let watcher = Arc::new(Watcher::default());
        let device = WatchedDevice {
            inner: Arc::new(MemoryDevice::new()),
            watcher: watcher.clone(),
        };
        (Arc::new(device), watcher)
    }
}

impl Device for WatchedDevice {
    fn lock(&self) -> Result<(), LockError> {
        self.inner.lock()
    }
    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        self.inner.try_lock_file(name, mode)
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        self.inner.create(name)?;
        self.open(name)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        let inner = self.inner.open(name)?;
        if name != "rows" {
            return Ok(inner);
        }
        let watcher = self.watcher.clone();
        Ok(Arc::new(WatchedFile { inner, watcher }))
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

impl DeviceFile for WatchedFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        // Those of the header have 64 KiB.
        if bytes.len() <= 64 << 10 {
            return self.inner.read_at(bytes, offset);
        }
        self.watcher.calls.fetch_add(1, Ordering::Relaxed);
        let before = self.watcher.before.lock().unwrap().take();
        if let Some(mut before) = before {
            before();
            *self.watcher.before.lock().unwrap() = Some(before);
        }
        let count = self.inner.read_at(bytes, offset)?;
        let torn = &self.watcher.torn;
        if torn.load(Ordering::Relaxed) > 0 {
            torn.fetch_sub(1, Ordering::Relaxed);
            bytes[2 << 10] ^= 1;
        }
        Ok(count)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.inner.set_len(bytes)
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.inner.allocate(bytes)
    }
}

/// Between any two reads of the copy there are commits, page writes and checkpoints, and the page
/// file grows by a map.
fn back_up_between_commits(has_open: bool) {
    let (device, watcher) = WatchedDevice::new();
    let mut model = Model::new(device, 20_000);
    for _ in 0..200 {
        model.commit(150);
    }
    let db = model.db.clone();
    // It keeps the log from before the checkpoint on, and the copy has pages with its changes.
    let mut open = has_open.then(|| db.begin().unwrap());
    if let Some(open) = &mut open {
        for key in 0..20 {
            open.put(&PAGED, &(1 << 40 | key), b"open").unwrap();
        }
    }
    db.checkpoint().unwrap();
    if let Some(open) = &mut open {
        open.put(&PAGED, &(1 << 41), b"open").unwrap();
    }
    let model = Arc::new(Mutex::new(model));
    let in_copy = model.clone();
    *watcher.before.lock().unwrap() = Some(Box::new(move || {
        let model = &mut *in_copy.lock().unwrap();
        for round in 0..25 {
            model.commit(80);
            if round % 12 == 6 {
                model.db.checkpoint().unwrap();
            }
        }
        model.keys += 10_000;
    }));
    let made = Arc::new(MemoryDevice::new());
    let target: Arc<dyn Device> = made.clone();
    let begun = db.log_end();
    let backup = db.backup_on(&target, &mut quiet).unwrap();
    *watcher.before.lock().unwrap() = None;
    let reads = watcher.calls.load(Ordering::Relaxed);
    assert!(reads > 2, "{reads} reads of many pages");
    assert!(begun < backup.earliest && backup.earliest <= backup.end);

    let mut model = model.lock().unwrap();
    model.commit(10);
    let (found, db) = restored(&*made, None).unwrap();
    assert_eq!((found.end, found.earliest), (backup.end, backup.earliest));
    assert!(contents(&db) == model.rows_at(backup.end), "other rows");
    db.run(|tx| tx.put(&PAGED, &7, &b"on"[..])).unwrap();

    let positions: Vec<_> = model.commits.iter().map(|(end, _)| *end).collect();
    let (mut reached, mut refused) = (0, 0);
    for position in positions.into_iter().rev().take(60) {
        match restored(&*made, Some(position)) {
            Ok((found, db)) => {
                assert_eq!(found.end, position);
                assert!(contents(&db) == model.rows_at(position), "at {position}");
                reached += 1;
            }
            Err(error) => {
                let is_outside = position < backup.earliest || position > backup.end;
                assert!(is_outside, "{position}: {error}");
                assert!(error.to_string().contains("can be restored to"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(reached > 0 && refused > 2, "{reached} {refused}");
}

#[test]
fn a_backup_is_the_database_at_each_position_behind_its_pages() {
    back_up_between_commits(false);
}

#[test]
fn a_backup_leaves_out_a_transaction_that_is_open_all_the_time() {
    back_up_between_commits(true);
}

#[test]
fn a_page_that_is_torn_while_it_is_copied_is_read_again() {
    let (device, watcher) = WatchedDevice::new();
    let mut model = Model::new(device.clone(), 5_000);
    for _ in 0..60 {
        model.commit(100);
    }
    model.db.checkpoint().unwrap();
    watcher.torn.store(1, Ordering::Relaxed);
    let made = MemoryDevice::new();
    let target: Arc<dyn Device> = Arc::new(made);
    model.db.backup_on(&target, &mut quiet).unwrap();
    assert_eq!(watcher.torn.load(Ordering::Relaxed), 0);
    let (_, db) = restored(&*target, None).unwrap();
    assert!(contents(&db) == model.rows, "other rows");

    // One that stays torn is damaged, and the error names it.
    let file = device.open("rows").unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, 5 << 10).unwrap();
    file.write_at(&[byte[0] ^ 1], 5 << 10).unwrap();
    // The pages in frames are whole, so it is not read by others.
    device.remove("rows-double").unwrap();
    let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let error = model.db.backup_on(&target, &mut quiet).unwrap_err();
    assert_eq!(error.code(), "damaged");
    assert!(error.to_string().contains("page 5 is damaged"), "{error}");
    assert_eq!(target.list().unwrap().len(), 0, "it is removed");
}

/// Moves money between two accounts of either component.
fn transfer(db: &Database, random: &mut Random) -> u64 {
    let (from, to) = (random.below(400), random.below(400));
    let (from_table, to_table) = (random.below(2) as usize, random.below(2) as usize);
    let counter = random.below(2) as usize;
    db.run(|tx| {
        for (table, account, amount) in [(from_table, from, -1), (to_table, to, 1)] {
            let old = balance(tx.get_for_update(&TABLES[table], &account)?);
            tx.put(&TABLES[table], &account, &i64::to_le_bytes(old + amount))?;
        }
        let counter = 1 << 32 | counter as u64;
        let count = balance(tx.get_for_update(&PAGED, &counter)?) + 1;
        tx.put(&PAGED, &counter, &i64::to_le_bytes(count))?;
        Ok(count as u64)
    })
    .unwrap()
}

fn balance(value: Option<Vec<u8>>) -> i64 {
    value.map_or(0, |value| {
        i64::from_le_bytes(value[..].try_into().expect("eight bytes"))
    })
}

/// Returns the number of transfers, after checking that no money was lost.
fn transfers(db: &Database) -> u64 {
    let (mut sum, mut count) = (0, 0);
    for ((_, key), value) in contents(db) {
        match key >> 32 {
            0 => sum += balance(Some(value)),
            _ => count += balance(Some(value)) as u64,
        }
    }
    assert_eq!(sum, 0, "no money was lost");
    count
}

struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn backups_under_load_have_every_earlier_commit_and_lose_no_money() {
    let scratch = Directory::new("paged-backup");
    fs::create_dir(&scratch.0).unwrap();
    let mut buffered = options();
    buffered.durability = Durability::Buffered;
    buffered.checkpoint_log_bytes = 1 << 20;
    let db = Database::open_with(scratch.0.join("db"), buffered).unwrap();
    // Enough pages that they do not fit the pool.
    for key in 0..400 {
        let zero = i64::to_le_bytes(0);
        db.run(|tx| {
            TABLES
                .iter()
                .try_for_each(|table| tx.put(table, &key, &zero))
        })
        .unwrap();
        db.run(|tx| (0..10).try_for_each(|n| tx.put(&PAGED, &((2 << 32) | (key * 16 + n)), &zero)))
            .unwrap();
    }
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let _stopped = Stops(&stop);
        for seed in 0..3 {
            let (db, done, stop) = (&db, &done, &stop);
            scope.spawn(move || {
                let mut random = Random(seed);
                while !stop.load(Ordering::SeqCst) {
                    transfer(db, &mut random);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    db.checkpoint().unwrap();
                }
            });
        }
        for round in 0..8 {
            while done.load(Ordering::SeqCst) < 100 * (round + 1) {
                thread::yield_now();
            }
            let (before, path) = (
                done.load(Ordering::SeqCst),
                scratch.0.join(format!("b{round}")),
            );
            let made = match round % 2 {
                0 => db.backup_to(&path).unwrap(),
                _ => backup::of_directory(scratch.0.join("db"), &path, &mut quiet).unwrap(),
            };
            let after = done.load(Ordering::SeqCst) + 3;
            assert_eq!(backup::inspect(&path).unwrap(), made);
            for to in [made.end, made.earliest] {
                let again = scratch.0.join(format!("r{round}-{to}"));
                backup::restore(&path, &again, Some(to), &mut quiet).unwrap();
                let db = Database::open_with(&again, options()).unwrap();
                let found = transfers(&db);
                let is_all = to < made.end || found >= before;
                assert!(is_all && found <= after, "{before} {found} {after}");
                db.verify();
            }
        }
    });
    db.verify();
}

/// Writes the files of an image into a directory.
fn write_files(image: &MemoryDevice, path: &Path) {
    fs::create_dir(path).unwrap();
    for (name, contents) in image.files() {
        let mut bytes = vec![0; usize::try_from(contents.len()).unwrap()];
        contents.read(&mut bytes, 0);
        fs::write(path.join(name), bytes).unwrap();
    }
}

#[test]
fn the_files_of_a_crashed_database_can_be_copied() {
    let scratch = Directory::new("paged-crashed");
    fs::create_dir(&scratch.0).unwrap();
    let device = FaultDevice::new();
    device.record();
    let mut model = Model::new(Arc::new(device.clone()), 300);
    let damages = Damage::ALL.into_iter();
    let damages: Vec<_> = damages.filter(|damage| !damage.harms_durable()).collect();
    let mut at = Vec::new();
    for step in 0..30 {
        model.commit(20);
        if step % 10 == 9 {
            model.db.checkpoint().unwrap();
        }
        at.push((device.recorded(), model.rows.clone()));
    }
    let recording = device.recording().unwrap();
    let (mut copied, mut next) = (0, 0);
    for (event, disk) in recording.disks().enumerate() {
        // The commits that had returned, and the one that may be there already.
        while next < at.len() && at[next].0 <= event {
            next += 1;
        }
        if event % 5 != 1 || next == 0 {
            continue;
        }
        let damage = damages[event / 5 % damages.len()];
        let path = scratch.0.join(event.to_string());
        write_files(&disk.crash(damage, event as u64), &path);
        let when = format!("event {event}, {damage}");
        let (made, again) = (path.with_extension("made"), path.with_extension("again"));
        let copy = backup::of_directory(&path, &made, &mut quiet);
        copy.unwrap_or_else(|error| panic!("{when}: {error}"));
        backup::restore(&made, &again, None, &mut quiet).unwrap();
        let db = Database::open_with(&again, options());
        let rows = contents(&db.unwrap_or_else(|error| panic!("{when}: {error}")));
        let is_right = rows == at[next - 1].1 || at.get(next).is_some_and(|next| rows == next.1);
        assert!(is_right, "{when}: other rows");
        copied += 1;
        for path in [path, made, again] {
            fs::remove_dir_all(path).unwrap();
        }
    }
    assert!(copied > 20, "{copied} images");
}

/// A database with pages in which a backup takes all its steps.
fn filled() -> Model {
    let mut model = Model::new(Arc::new(MemoryDevice::new()), 300);
    for step in 0..20 {
        model.commit(20);
        if step == 10 {
            model.db.checkpoint().unwrap();
        }
    }
    model
}

#[test]
fn a_failed_call_leaves_no_backup_and_no_database() {
    let model = filled();
    let made: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    model.db.backup_on(&made, &mut quiet).unwrap();
    let mut failures = 0;
    for is_restore in [false, true] {
        for call in Call::ALL {
            for nth in 1.. {
                let device = FaultDevice::new();
                device.fail(call, nth, Times::Once, io::ErrorKind::StorageFull);
                let target: Arc<dyn Device> = Arc::new(device.clone());
                let done = match is_restore {
                    false => model.db.backup_on(&target, &mut quiet),
                    true => backup::restore_between(&*made, &target, None, &mut quiet),
                };
                let has_failed = device.calls(call) >= nth;
                device.heal();
                let when = format!("{call:?} {nth}, restore {is_restore}");
                assert_eq!(done.is_err(), has_failed, "{when}: {done:?}");
                let Err(error) = done else {
                    break;
                };
                assert_eq!(error.code(), "device_full", "{when}: {error}");
                if is_restore {
                    let opened = Database::open_on(target.clone(), options());
                    assert!(nth == 1 || opened.is_err(), "{when}");
                    drop(opened);
                } else {
                    assert_eq!(device.list().unwrap().len(), 0, "{when}");
                }
                failures += 1;
            }
        }
    }
    assert!(failures > 40, "only {failures} calls failed");
}

#[test]
fn after_any_power_failure_backup_and_restored_database_are_complete_or_absent() {
    let model = filled();
    let made: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    model.db.backup_on(&made, &mut quiet).unwrap();
    for is_restore in [false, true] {
        let device = FaultDevice::new();
        device.record();
        let target: Arc<dyn Device> = Arc::new(device.clone());
        match is_restore {
            false => model.db.backup_on(&target, &mut quiet),
            true => backup::restore_between(&*made, &target, None, &mut quiet),
        }
        .unwrap();
        let (mut whole, mut cut) = (0, 0);
        for (event, disk) in device.recording().unwrap().disks().enumerate() {
            for (seed, damage) in Damage::ALL.into_iter().enumerate() {
                if damage.harms_durable() {
                    continue;
                }
                let image = disk.crash(damage, (event * 16 + seed) as u64);
                let when = format!("event {event}, {damage}, restore {is_restore}");
                let has = |wanted: &str| image.files().iter().any(|(name, _)| name == wanted);
                let db = match is_restore {
                    false => match restored(&image, None) {
                        Ok((_, db)) => db,
                        Err(_) => {
                            assert!(!has("backup"), "{when}");
                            cut += 1;
                            continue;
                        }
                    },
                    true if has("foxton") => Database::open_on(Arc::new(image), options())
                        .unwrap_or_else(|error| panic!("{when}: {error}")),
                    true => {
                        cut += 1;
                        continue;
                    }
                };
                assert!(contents(&db) == model.rows, "{when}: other rows");
                whole += 1;
            }
        }
        assert!(whole > 0 && cut > 50, "{whole} whole, {cut} cut");
    }
}

#[test]
fn a_database_gets_its_first_paged_table_before_or_behind_a_backup() {
    let db = Database::open_on(Arc::new(MemoryDevice::new()), options()).unwrap();
    db.run(|tx| tx.put(&RESIDENT, &1, &b"1"[..])).unwrap();
    let made: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let mut is_first = true;
    let backup = db.backup_on(&made, &mut |_, _| {
        if std::mem::take(&mut is_first) {
            db.run(|tx| tx.put(&PAGED, &1, &b"1"[..])).unwrap();
        }
    });
    assert_eq!(backup.unwrap().earliest, Lsn::ZERO);
    let (_, without) = restored(&*made, None).unwrap();
    assert_eq!(contents(&without).len(), 1);
    let made: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let backup = db.backup_on(&made, &mut quiet).unwrap();
    assert!(backup.earliest > Lsn::ZERO);
    let (_, with) = restored(&*made, None).unwrap();
    assert_eq!(contents(&with).len(), 2);
}
