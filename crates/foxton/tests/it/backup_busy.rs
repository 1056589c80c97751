//! Backups of a database whose checkpoints remove files all the time. A backup always ends, is the
//! database after some commit, and contains every commit that was acknowledged before it began.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use foxton::{Database, Durability, Options, Table, backup};
use foxton_log::device::memory::MemoryDevice;
use foxton_log::device::{Device, DeviceFile, FileLock, FileLockMode, LockError};

const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
const COUNT: Table<str, u64> = Table::new("count");
const BULK: Table<u64, [u8]> = Table::new("bulk");

/// Smallest number of bytes of log between two checkpoints.
const OFTEN: u64 = 4 << 10;

/// A directory that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("foxton-busy-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Options without a checkpoint that no caller requests.
fn unattended() -> Options {
    let mut options = Options::tiny();
    options.durability = Durability::Buffered;
    options.checkpoint_log_bytes = u64::MAX;
    options
}

/// Adds one to the count, moves money, and replaces a row of 500 bytes.
fn step(db: &Database, seed: u64) -> u64 {
    db.run(|tx| {
        let (from, to) = (seed % 10, seed / 10 % 10);
        for (account, amount) in [(from, -1), (to, 1)] {
            let old = tx.get_for_update(&ACCOUNTS, &account)?.unwrap_or(0);
            tx.put(&ACCOUNTS, &account, &(old + amount))?;
        }
        let bulk: Vec<u8> = (0..500u64).map(|at| (seed * 31 + at * at) as u8).collect();
        tx.put(&BULK, &(seed % 50), &bulk)?;
        let count = tx.get_for_update(&COUNT, "steps")?.unwrap_or(0) + 1;
        tx.put(&COUNT, "steps", &count)?;
        Ok(count)
    })
    .unwrap()
}

/// Returns the count, after checking that no money was lost.
fn steps(db: &Database) -> u64 {
    let rows = db.run(|tx| tx.range(&ACCOUNTS, ..).collect()).unwrap();
    assert_eq!(rows.iter().map(|(_, money)| money).sum::<i64>(), 0);
    db.run(|tx| tx.get(&COUNT, "steps")).unwrap().unwrap_or(0)
}

/// Restores a backup and returns the count in it.
fn restored_steps(scratch: &Scratch, backup: &str) -> u64 {
    let again = scratch.at(&format!("{backup}-again"));
    backup::restore(scratch.at(backup), &again, None, &mut |_, _| {}).unwrap();
    steps(&Database::open_with(&again, unattended()).unwrap())
}

/// Writes enough for a layer that replaces the others, and makes the checkpoint.
fn replace_all_files(db: &Database) {
    for seed in 0..120 {
        step(db, seed);
    }
    let made = db.checkpoint().unwrap();
    assert!(made.segments_removed > 0, "{made:?}");
}

#[test]
fn files_that_checkpoints_remove_during_the_copy_are_in_the_backup() {
    let scratch = Scratch::new("copy");
    let db = Database::open_with(scratch.at("db"), unattended()).unwrap();
    replace_all_files(&db);
    for way in ["directory", "handle"] {
        for seed in 0..120 {
            step(&db, seed);
        }
        let (before, mut attempts, mut last) = (steps(&db), 0, u64::MAX);
        let mut progress = |done: u64, _: u64| {
            if done <= last {
                attempts += 1;
                for _ in 0..3 {
                    replace_all_files(&db);
                }
            }
            last = done;
        };
        match way {
            "directory" => {
                backup::of_directory(scratch.at("db"), scratch.at(way), &mut progress).unwrap()
            }
            _ => {
                fs::create_dir(scratch.at(way)).unwrap();
                let target = foxton_log::device::file::FileDevice::open(scratch.at(way)).unwrap();
                let target: Arc<dyn Device> = Arc::new(target);
                db.backup_on(&target, &mut progress).unwrap()
            }
        };
        assert_eq!(attempts, 1, "{way}");
        let found = restored_steps(&scratch, way);
        assert!(found >= before, "{found} of {before}, {way}");
    }
}

/// Environment variable that makes the next test a process that only makes a backup: the path of
/// the database. The second one is the path of the backup.
const BACKED_UP: [&str; 2] = ["FOXTON_TEST_BACKUP_OF", "FOXTON_TEST_BACKUP_TO"];

/// Makes a backup in another process, as `foxton backup` does.
fn back_up_elsewhere(database: PathBuf, target: PathBuf) {
    let name = "backup_busy::backups_end_beside_fast_writers_and_the_quickest_checkpoints";
    let other = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(BACKED_UP[0], database)
        .env(BACKED_UP[1], target)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(other.status.success(), "{said}");
}

#[test]
fn backups_end_beside_fast_writers_and_the_quickest_checkpoints() {
    if let [Some(database), Some(target)] = BACKED_UP.map(std::env::var_os) {
        backup::of_directory(database, target, &mut |_, _| {}).unwrap();
        return;
    }
    let scratch = Scratch::new("quick");
    let mut options = unattended();
    options.checkpoint_log_bytes = OFTEN;
    let db = Database::open_with(scratch.at("db"), options).unwrap();
    // The copy takes longer than a checkpoint.
    db.run(|tx| (1_000..1_120).try_for_each(|key| tx.put(&BULK, &key, &[7; 100_000])))
        .unwrap();
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for writer in 0..4u64 {
            let (db, done, stop) = (&db, &done, &stop);
            scope.spawn(move || {
                let mut seed = writer;
                while !stop.load(SeqCst) {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    done.fetch_max(step(db, seed >> 33), SeqCst);
                }
            });
        }
        // The writers stop even if an assertion fails.
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while db.checkpoints().made < 10 {
                thread::yield_now();
            }
            for round in 0..9 {
                let (before, name) = (done.load(SeqCst), round.to_string());
                match round % 3 {
                    0 => drop(db.backup_to(scratch.at(&name)).unwrap()),
                    1 => back_up_elsewhere(scratch.at("db"), scratch.at(&name)),
                    _ => {
                        let quiet = &mut |_, _| {};
                        backup::of_directory(scratch.at("db"), scratch.at(&name), quiet).unwrap();
                    }
                }
                let found = restored_steps(&scratch, &name);
                assert!(found >= before, "{found} of {before} steps, round {round}");
            }
        }));
        stop.store(true, SeqCst);
        checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    db.verify();
}

type Hook = Box<dyn FnMut(&str) + Send>;

/// A device in memory that calls a hook before it opens a file.
#[derive(Default)]
struct Hooked {
    device: MemoryDevice,
    hook: Mutex<Option<Hook>>,
    /// True if files cannot be locked.
    lockless: bool,
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooked")
    }
}

impl Device for Hooked {
    fn lock(&self) -> Result<(), LockError> {
        self.device.lock()
    }
    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        match self.lockless {
            true => Err(io::ErrorKind::Unsupported.into()),
            false => self.device.try_lock_file(name, mode),
        }
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        self.device.create(name)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        // The hook is not called for files that it opens itself.
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook(name);
            *self.hook.lock().unwrap() = Some(hook);
        }
        self.device.open(name)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.device.list()
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.device.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.device.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.device.sync_dir()
    }
}

/// Makes a backup while `checkpoints` checkpoints are made, one before each file is opened whose
/// name begins with `prefix`. Returns the steps before, and those in the backup.
fn backed_up(
    lockless: bool,
    prefix: &'static str,
    checkpoints: usize,
) -> foxton::Result<(u64, u64)> {
    let source = Arc::new(Hooked {
        lockless,
        ..Hooked::default()
    });
    let db = Database::open_on(source.clone(), unattended()).unwrap();
    replace_all_files(&db);
    step(&db, 1);
    let (before, writer, mut left) = (steps(&db), db.clone(), checkpoints);
    *source.hook.lock().unwrap() = Some(Box::new(move |name| {
        if name.starts_with(prefix) && left > 0 {
            left -= 1;
            for seed in 0..120 {
                step(&writer, seed);
            }
            writer.checkpoint().unwrap();
        }
    }));
    let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let made = db.backup_on(&target, &mut |_, _| {});
    *source.hook.lock().unwrap() = None;
    made?;
    let again: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    backup::restore_between(&*target, &again, None, &mut |_, _| {}).unwrap();
    let found = steps(&Database::open_on(again, unattended()).unwrap());
    // Files that the backup kept from being removed go with the next checkpoint.
    replace_all_files(&db);
    let names = source.list().unwrap();
    let layers = names.iter().filter(|name| name.starts_with("layer-"));
    assert_eq!(layers.count(), db.checkpoints().last.unwrap().layers);
    Ok((before, found))
}

#[test]
fn checkpoints_between_the_opening_of_two_files_remove_none_that_the_backup_needs() {
    for prefix in ["layer-", "log-"] {
        for lockless in [false, true] {
            for checkpoints in [1, 2, 5] {
                let (before, found) = backed_up(lockless, prefix, checkpoints).unwrap();
                assert!(found >= before, "{found} of {before}, {prefix} {lockless}");
            }
        }
    }
    // While files are locked, no number of checkpoints is too many.
    let (before, found) = backed_up(false, "", usize::MAX).unwrap();
    assert!(found >= before, "{found} of {before}");
}
