//! Backups made while transactions run: complete or absent, whatever fails and whenever the power
//! fails. A restored database is the database after some commit. Interrupted restores are in
//! `restore.rs`.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use foxton::{Database, Durability, Options, Table, backup};
use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::memory::MemoryDevice;

const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
const COUNT: Table<str, u64> = Table::new("count");

/// A directory that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("foxton-backup-{name}-{}", std::process::id()));
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

/// Adds one to the count, and moves money.
fn step(db: &Database, seed: u64) -> u64 {
    db.run(|tx| {
        let (from, to) = (seed % 10, seed / 10 % 10);
        for (account, amount) in [(from, -1), (to, 1)] {
            let old = tx.get_for_update(&ACCOUNTS, &account)?.unwrap_or(0);
            tx.put(&ACCOUNTS, &account, &(old + amount))?;
        }
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

fn quiet(_: u64, _: u64) {}

/// Sets the flag when it is dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_running_backup_stops_no_writer_and_contains_earlier_commits() {
    let scratch = Scratch::new("hot");
    let mut options = Options::tiny();
    options.durability = Durability::Buffered;
    let db = Database::open_with(scratch.at("db"), options).unwrap();
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        // The writers stop even if an assertion below fails.
        let _stopped = Stops(&stop);
        for writer in 0..3u64 {
            let (db, done, stop) = (&db, &done, &stop);
            scope.spawn(move || {
                let mut seed = writer;
                while !stop.load(Ordering::SeqCst) {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    done.fetch_max(step(db, seed >> 33), Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        for round in 0..4 {
            while done.load(Ordering::SeqCst) < 20 * (round + 1) {
                thread::sleep(Duration::from_millis(1));
            }
            if round > 1 {
                db.checkpoint().unwrap();
            }
            let (before, path) = (
                done.load(Ordering::SeqCst),
                scratch.at(&format!("b{round}")),
            );
            let made = match round % 2 {
                0 => db.backup_to(&path).unwrap(),
                // Like another process, which has not opened the database.
                _ => backup::of_directory(scratch.at("db"), &path, &mut quiet).unwrap(),
            };
            assert_eq!(backup::inspect(&path).unwrap(), made);
            let again = scratch.at(&format!("r{round}"));
            let restored = backup::restore(&path, &again, None, &mut quiet).unwrap();
            assert_eq!((restored.end, restored.records), (made.end, made.records));
            let found = steps(&Database::open_with(&again, Options::tiny()).unwrap());
            assert!(found >= before, "{found} of {before} steps, round {round}");
        }
    });
    db.verify();
}

#[test]
fn a_backup_can_be_restored_to_every_commit_in_it() {
    let scratch = Scratch::new("position");
    let db = Database::open_with(scratch.at("db"), Options::tiny()).unwrap();
    let positions: Vec<_> = (0..12)
        .map(|seed| (step(&db, seed * 7), db.log_end()))
        .collect();
    let made = db.backup_to(scratch.at("backup")).unwrap();
    for (count, position) in positions {
        let again = scratch.at(&count.to_string());
        let restored =
            backup::restore(scratch.at("backup"), &again, Some(position), &mut quiet).unwrap();
        assert_eq!(restored.end, position);
        let db = Database::open_with(&again, Options::tiny()).unwrap();
        assert_eq!(steps(&db), count);
        assert_eq!(step(&db, 3), count + 1, "it goes on from there");
    }
    let beyond = made.end.plus(8);
    let error = backup::restore(
        scratch.at("backup"),
        scratch.at("x"),
        Some(beyond),
        &mut quiet,
    )
    .unwrap_err();
    assert!(error.to_string().contains("can be restored to"), "{error}");
    assert!(!scratch.at("x").exists(), "nothing was begun");
}

#[test]
fn errors_name_other_files_and_missing_backups() {
    let scratch = Scratch::new("refused");
    let db = Database::open_with(scratch.at("db"), Options::tiny()).unwrap();
    step(&db, 1);
    let made = scratch.at("made");
    db.backup_to(&made).unwrap();
    let code = |error: foxton::Error, code: &str, words: &str| {
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    code(
        db.backup_to(&made).unwrap_err(),
        "not_empty",
        "remove it first",
    );
    code(
        db.backup_to(scratch.at("db")).unwrap_err(),
        "not_empty",
        "name an empty",
    );
    let opened = Database::open(&made).unwrap_err();
    code(opened, "not_a_database", "foxton restore");
    let restore = |from: &str, to: &str| {
        backup::restore(scratch.at(from), scratch.at(to), None, &mut quiet).unwrap_err()
    };
    code(restore("made", "db"), "not_empty", "it holds");
    code(restore("db", "x"), "not_a_backup", "a database itself");
    code(
        restore("nowhere", "x"),
        "not_a_database",
        "no such directory",
    );
    code(
        restore("nowhere", "x"),
        "not_a_database",
        "name the directory of",
    );
    fs::remove_file(made.join("backup")).unwrap();
    code(restore("made", "x"), "not_a_backup", "interrupted");
    let opened = Database::open(&made).unwrap_err();
    code(opened, "not_a_database", "and no file foxton");
    let nothing = backup::of_directory(scratch.at("nowhere"), scratch.at("x"), &mut quiet);
    code(nothing.unwrap_err(), "not_a_database", "no such directory");
    assert!(!scratch.at("x").exists());
}

#[test]
fn a_closed_database_that_has_lost_the_end_of_its_log_is_refused() {
    let scratch = Scratch::new("lost");
    let db = Database::open_with(scratch.at("db"), Options::tiny()).unwrap();
    step(&db, 1);
    let middle = db.log_end();
    step(&db, 2);
    drop(db);
    backup::of_directory(scratch.at("db"), scratch.at("whole"), &mut quiet).unwrap();
    let log = scratch.at("db").join("log-0000000000000000");
    let header = 4096;
    for left in [Some(header + middle.bytes()), Some(header), Some(0), None] {
        match left {
            Some(bytes) => fs::File::options()
                .write(true)
                .open(&log)
                .unwrap()
                .set_len(bytes)
                .unwrap(),
            None => fs::remove_file(&log).unwrap(),
        }
        let target = scratch.at(&format!("{left:?}"));
        let error = backup::of_directory(scratch.at("db"), &target, &mut quiet).unwrap_err();
        assert_eq!(error.code(), "damaged", "{left:?}: {error}");
        assert!(!target.join("backup").exists(), "{left:?} has no label");
    }
    let whole = backup::restore(
        scratch.at("whole"),
        scratch.at("to"),
        Some(middle),
        &mut quiet,
    );
    whole.expect("what is not wanted need not be there");
}

#[cfg(unix)]
#[test]
fn other_files_do_not_prevent_a_backup() {
    let scratch = Scratch::new("strange");
    let db = Database::open_with(scratch.at("db"), Options::tiny()).unwrap();
    step(&db, 1);
    let end = db.log_end();
    for name in ["checkpoint.new", "junk", "layer-0000000000000099"] {
        fs::create_dir(scratch.at("db").join(name)).unwrap();
    }
    std::os::unix::fs::symlink("/dev/zero", scratch.at("db").join("zero")).unwrap();
    db.backup_to(scratch.at("open")).unwrap();
    drop(db);
    let made = backup::of_directory(scratch.at("db"), scratch.at("closed"), &mut quiet).unwrap();
    assert_eq!(made.end, end);
    fs::create_dir(scratch.at("closed").join("junk")).unwrap();
    let held = backup::inspect(scratch.at("closed")).unwrap();
    assert_eq!((held.end, held.bytes), (made.end, made.bytes));
    backup::restore(scratch.at("closed"), scratch.at("to"), None, &mut quiet).unwrap();
}

#[test]
fn a_backup_after_a_close_and_its_restore_end_at_its_position() {
    let scratch = Scratch::new("positions");
    let open = || Database::open_with(scratch.at("db"), Options::tiny()).unwrap();
    step(&open(), 1);
    // The log continues after the record that closed it.
    let db = open();
    let end = db.log_end();
    let made = db.backup_to(scratch.at("made")).unwrap();
    assert_eq!(made.end, end);
    let restored = backup::restore(scratch.at("made"), scratch.at("to"), None, &mut quiet).unwrap();
    assert_eq!(restored.end, end);
    assert_eq!(steps(&Database::open(scratch.at("to")).unwrap()), 1);
}

/// The last file of the log was extended to an impossible length.
#[cfg(unix)]
#[test]
fn a_file_of_zeros_without_an_end_is_damage_and_not_read() {
    let scratch = Scratch::new("zeros");
    let db = Database::open_with(scratch.at("db"), Options::tiny()).unwrap();
    step(&db, 1);
    drop(db);
    let log = scratch.at("db").join("log-0000000000000000");
    let file = fs::File::create(log).unwrap();
    if file.set_len(1 << 43).is_err() {
        return; // Here no file can be so long.
    }
    let code = |error: foxton::Error| assert_eq!(error.code(), "damaged", "{error}");
    code(Database::open_with(scratch.at("db"), Options::tiny()).unwrap_err());
    code(backup::of_directory(scratch.at("db"), scratch.at("x"), &mut quiet).unwrap_err());
    assert!(
        !foxton::check::check(scratch.at("db"))
            .unwrap()
            .findings
            .is_empty()
    );
}

/// Creates a database in memory after some steps, with a log of several segments.
fn filled() -> Database {
    let db = Database::open_on(Arc::new(MemoryDevice::new()), Options::tiny()).unwrap();
    for seed in 0..40 {
        if seed == 20 {
            db.checkpoint().unwrap();
        }
        step(&db, seed);
    }
    db.run(|tx| {
        tx.set_durability(Durability::None);
        (0..100u64).try_for_each(|key| tx.put(&Table::<u64, [u8]>::new("bulk"), &key, &[7; 1000]))
    })
    .unwrap();
    db
}

#[test]
fn a_failed_backup_leaves_no_backup_and_the_database_continues() {
    let db = filled();
    let mut failures = 0;
    for call in Call::ALL {
        for nth in 1.. {
            let device = FaultDevice::new();
            device.fail(call, nth, Times::Once, io::ErrorKind::StorageFull);
            let target: Arc<dyn Device> = Arc::new(device.clone());
            let made = db.backup_on(&target, &mut quiet);
            let reached = device.calls(call) >= nth;
            device.heal();
            let empty: Arc<dyn Device> = Arc::new(MemoryDevice::new());
            let restored = backup::restore_between(&*target, &empty, None, &mut quiet);
            if !reached {
                made.unwrap();
                restored.unwrap();
                break;
            }
            let Err(error) = made else {
                panic!("{call:?} {nth} failed, and nobody was told");
            };
            assert_eq!(error.code(), "device_full", "{call:?} {nth}: {error}");
            assert!(restored.is_err(), "{call:?} {nth}");
            // Its files are gone and do not prevent the next backup.
            assert_eq!(device.list().unwrap().len(), 0, "{call:?} {nth}");
            db.backup_on(&target, &mut quiet).unwrap();
            failures += 1;
        }
    }
    assert!(failures > 15, "only {failures} calls failed");
    assert_eq!(step(&db, 9), 41);
}

/// Another program puts files into the directory; a failing backup removes only its own.
#[test]
fn a_failed_backup_keeps_other_files() {
    let db = filled();
    let device = FaultDevice::new();
    device.fail(Call::Rename, 1, Times::Once, io::ErrorKind::Other);
    let target: Arc<dyn Device> = Arc::new(device.clone());
    let mut letter = None;
    let made = db.backup_on(&target, &mut |_, _| {
        letter.get_or_insert_with(|| device.create("letter").unwrap());
    });
    assert_eq!(made.unwrap_err().code(), "io");
    assert_eq!(device.list().unwrap(), ["letter"]);
}

#[test]
fn one_of_many_backups_into_one_directory_succeeds() {
    let scratch = Scratch::new("many");
    let db = Database::open_with(scratch.at("db"), Options::tiny()).unwrap();
    step(&db, 1);
    std::thread::scope(|scope| {
        let tries: Vec<_> = (0..8)
            .map(|number| {
                let (db, scratch) = (&db, &scratch);
                scope.spawn(move || match number % 2 {
                    0 => db.backup_to(scratch.at("one")),
                    _ => backup::of_directory(scratch.at("db"), scratch.at("one"), &mut quiet),
                })
            })
            .collect();
        let made = tries.into_iter().map(|tried| tried.join().unwrap());
        let (made, refused): (Vec<_>, Vec<_>) = made.partition(Result::is_ok);
        assert_eq!(made.len(), 1, "{refused:?}");
        for error in refused {
            let code = error.unwrap_err().code();
            assert!(["in_use", "not_empty"].contains(&code), "{code}");
        }
    });
    backup::restore(scratch.at("one"), scratch.at("to"), None, &mut quiet).unwrap();
}

/// A layer was extended to an impossible length.
#[cfg(unix)]
#[test]
fn a_layer_that_was_made_longer_is_damage_and_not_copied() {
    let scratch = Scratch::new("layer");
    let db = Database::open_with(scratch.at("db"), Options::tiny()).unwrap();
    step(&db, 1);
    db.checkpoint().unwrap();
    db.backup_to(scratch.at("made")).unwrap();
    drop(db);
    for from in ["db", "made"] {
        let mut names = fs::read_dir(scratch.at(from)).unwrap().flatten();
        let layer = names.find(|name| name.file_name().to_string_lossy().starts_with("layer-"));
        let file = fs::File::options()
            .write(true)
            .open(layer.unwrap().path())
            .unwrap();
        if file.set_len(1 << 43).is_err() {
            return; // Here no file can be so long.
        }
        let copied = match from {
            "db" => backup::of_directory(scratch.at(from), scratch.at("x"), &mut quiet),
            _ => backup::restore(scratch.at(from), scratch.at("y"), None, &mut quiet),
        };
        let error = copied.unwrap_err();
        assert_eq!(error.code(), "damaged", "{error}");
        assert!(error.to_string().contains("as long as"), "{error}");
    }
}

#[test]
fn after_any_power_failure_a_backup_is_complete_or_absent() {
    let db = filled();
    let device = FaultDevice::new();
    device.record();
    let target: Arc<dyn Device> = Arc::new(device.clone());
    db.backup_on(&target, &mut quiet).unwrap();
    let (mut whole, mut cut) = (0, 0);
    for (event, disk) in device.recording().unwrap().disks().enumerate() {
        for (seed, damage) in Damage::ALL.into_iter().enumerate() {
            let image = disk.crash(damage, (event * 16 + seed) as u64);
            let empty: Arc<dyn Device> = Arc::new(MemoryDevice::new());
            match backup::restore_between(&image, &empty, None, &mut quiet) {
                Ok(_) => {
                    let db = Database::open_on(empty, Options::tiny()).unwrap();
                    assert_eq!(steps(&db), 40, "event {event}, {damage:?}");
                    whole += 1;
                }
                Err(_) => cut += 1,
            }
        }
    }
    assert!(whole > 0 && cut > 0, "{whole} whole, {cut} cut");
}

#[test]
fn a_backup_that_went_bad_is_not_restored() {
    let made = Arc::new(MemoryDevice::new());
    let target: Arc<dyn Device> = made.clone();
    filled().backup_on(&target, &mut quiet).unwrap();
    let mut noticed = 0;
    let last_segment = made.files().pop().map(|(name, _)| name);
    for (name, contents) in made.files() {
        // A complete log contains the same information.
        if name == foxton_log::format::clean_shutdown::FILE {
            continue;
        }
        // Damage to the closing record of the log loses nothing.
        let closing = if last_segment.as_ref() == Some(&name) {
            24
        } else {
            0
        };
        for at in (0..contents.len() - closing).step_by(97) {
            let file = made.open(&name).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ 0x20], at).unwrap();
            let empty: Arc<dyn Device> = Arc::new(MemoryDevice::new());
            match backup::restore_between(&*made, &empty, None, &mut quiet) {
                Ok(_) => panic!("byte {at} of {name} is another, and nobody was told"),
                Err(error) => assert_eq!(error.code(), "damaged", "{error}"),
            }
            file.write_at(&byte, at).unwrap();
            noticed += 1;
        }
    }
    assert!(noticed > 1_000, "only {noticed} bytes");
}
