//! Restores that are interrupted, fail, or run at the same time as other operations. From before
//! its first file is created until it is complete, the target cannot be opened, checked or copied,
//! and repeating the same restore completes it. Only files that a restore created are removed.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::common::scratch::Directory;
use foxton::check::{check, check_on};
use foxton::{Database, Error, Options, Table, backup};
use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::memory::MemoryDevice;

const ROWS: Table<u64, [u8]> = Table::new("rows");

fn quiet(_: u64, _: u64) {}

fn put(db: &Database, keys: std::ops::Range<u64>) {
    for key in keys {
        db.run(|tx| tx.put(&ROWS, &key, &[key as u8; 700])).unwrap();
    }
}

/// A backup of this many rows, half of them in a checkpoint, with a log of several files.
fn made(rows: u64) -> Arc<dyn Device> {
    let db = Database::open_on(Arc::new(MemoryDevice::new()), Options::tiny()).unwrap();
    put(&db, 0..rows / 2);
    db.checkpoint().unwrap();
    put(&db, rows / 2..rows);
    let made: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    db.backup_on(&made, &mut quiet).unwrap();
    made
}

fn restore(made: &Arc<dyn Device>, target: &Arc<dyn Device>) -> Result<backup::Backup, Error> {
    backup::restore_between(&**made, target, None, &mut quiet)
}

fn count(db: &Database) -> u64 {
    db.run(|tx| tx.range(&ROWS, ..).count()).unwrap()
}

/// State of an interrupted restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// An empty directory, as before.
    Nothing,
    /// An unfinished restore, which is refused.
    Begun,
    /// The database.
    Whole,
}

/// Returns the state of the directory, after checking that all operations agree on it. A database
/// has this many rows.
fn left(image: &MemoryDevice, rows: u64, when: &str) -> Left {
    let files = image.files();
    let has = |wanted: &str| files.iter().any(|(name, _)| name == wanted);
    let copy = Arc::new(MemoryDevice::with_files(files.clone()));
    if has("foxton") {
        let report = check_on(&*copy).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(report.findings, [], "{when}");
        let db = Database::open_on(copy, Options::tiny());
        let db = db.unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(count(&db), rows, "{when}");
        return Left::Whole;
    }
    if files.is_empty() {
        return Left::Nothing;
    }
    let refused = [
        Database::open_on(copy.clone(), Options::tiny()).map(drop),
        check_on(&*copy).map(drop),
    ];
    for refused in refused {
        let code = refused.map_err(|error| error.code());
        assert_eq!(code, Err("not_restored"), "{when}: {files:?}");
    }
    assert_eq!(copy.files(), files, "{when}: nothing was touched");
    Left::Begun
}

/// Kinds of loss that keep durable data.
fn damages() -> impl Iterator<Item = (u64, Damage)> {
    let harmless = |damage: &Damage| !damage.harms_durable();
    (0..).zip(Damage::ALL.into_iter().filter(harmless))
}

/// Interrupts a restore of `made`, which has this many rows, onto `device` at every change. Returns
/// how often each state was left. A kill loses nothing; a power failure may lose anything that is
/// not durable.
fn cut(made: &Arc<dyn Device>, rows: u64, device: &FaultDevice) -> [u64; 3] {
    device.record();
    let target: Arc<dyn Device> = Arc::new(device.clone());
    restore(made, &target).unwrap();
    let (mut counts, mut is_begun) = ([0; 3], false);
    for (event, disk) in (0..).zip(device.recording().unwrap().disks()) {
        for (seed, damage) in damages() {
            let when = format!("change {event}, {damage:?}");
            let image = disk.crash(damage, event * 16 + seed);
            let found = left(&image, rows, &when);
            counts[found as usize] += 1;
            assert!(!is_begun || found != Left::Nothing, "{when}");
            if found == Left::Begun && damage == Damage::Subset {
                let again: Arc<dyn Device> = Arc::new(image);
                restore(made, &again).unwrap_or_else(|error| panic!("{when}: {error}"));
                let db = Database::open_on(again, Options::tiny()).unwrap();
                assert_eq!(count(&db), rows, "{when}");
            }
        }
        // Data that is durable now is in each later image.
        is_begun |= left(&disk.crash(Damage::DropAll, 0), rows, "so far") == Left::Begun;
    }
    counts
}

#[test]
fn an_interrupted_restore_is_complete_or_refused_and_can_be_repeated() {
    let [nothing, begun, whole] = cut(&made(60), 60, &FaultDevice::new());
    assert!(
        nothing > 0 && begun > 100 && whole > 0,
        "{nothing} {begun} {whole}"
    );
    // Before the mark is durable, there is only the mark.
    assert!(nothing < 40, "{nothing} times nothing was left");
}

#[test]
fn a_restore_over_an_interrupted_one_is_interrupted_too() {
    let (larger, made) = (made(90), made(60));
    let device = FaultDevice::new();
    device.record();
    let target: Arc<dyn Device> = Arc::new(device.clone());
    restore(&larger, &target).unwrap();
    let disks: Vec<_> = device.recording().unwrap().disks().collect();
    let names = |image: &MemoryDevice| image.list().unwrap();
    let is_begun = |image: &MemoryDevice| names(image).iter().any(|name| name == "restoring");
    let images = disks.iter().map(|disk| disk.crash(Damage::KeepAll, 0));
    let begun: Vec<MemoryDevice> = images.filter(is_begun).collect();
    // With no other file yet, in the middle, and with all files.
    for image in [&begun[0], &begun[begun.len() / 2], &begun[begun.len() - 1]] {
        let [nothing, begun, whole] = cut(&made, 60, &FaultDevice::holding(image));
        assert!(
            nothing == 0 && begun > 100 && whole > 0,
            "{nothing} {begun} {whole} over {:?}",
            names(image)
        );
    }
}

#[test]
fn a_failed_restore_leaves_no_database_and_can_be_repeated() {
    let made = made(60);
    let mut failures = 0;
    for (call, times) in Call::ALL
        .into_iter()
        .flat_map(|call| [(call, Times::Once), (call, Times::ForEver)])
    {
        for nth in 1.. {
            let device = FaultDevice::new();
            device.fail(call, nth, times, io::ErrorKind::StorageFull);
            let target: Arc<dyn Device> = Arc::new(device.clone());
            let restored = restore(&made, &target);
            if device.calls(call) < nth {
                restored.unwrap();
                break;
            }
            let error = restored.expect_err("a call failed");
            assert_eq!(error.code(), "device_full", "{call:?} {nth}: {error}");
            device.heal();
            failures += 1;
            if device.list().unwrap().is_empty() {
                let first = (call, nth) == (Call::Create, 1) || device.calls(Call::Create) == 0;
                assert!(
                    first,
                    "{call:?} {nth}: nothing says what this was to become"
                );
                continue;
            }
            let text = error.to_string();
            assert!(text.contains("can be removed"), "{call:?} {nth}: {text}");
            let opened = Database::open_on(target.clone(), Options::tiny());
            let code = opened.map_err(|error| error.code()).map(drop);
            assert_eq!(code, Err("not_restored"), "{call:?} {nth} {times:?}");
            let room = device.list().unwrap();
            // If a directory cannot be synced, the durable name of the superblock is unknown.
            let all = matches!(call, Call::SyncDir | Call::Remove | Call::List);
            assert!(all || room == ["restoring"], "{call:?} {nth}: {room:?}");
            restore(&made, &target).unwrap();
            assert_eq!(
                count(&Database::open_on(target, Options::tiny()).unwrap()),
                60
            );
        }
    }
    assert!(failures > 40, "only {failures} calls failed");
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn files(path: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(path).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    });
    let mut files: Vec<_> = entries.filter(|(name, _)| name != "lock").collect();
    files.sort();
    files
}

#[track_caller]
fn assert_says<T>(result: Result<T, Error>, code: &str, words: &str) {
    let error = result.err().expect("it is refused");
    let text = error.to_string();
    assert_eq!(error.code(), code, "{text}");
    assert!(text.contains(words), "{text:?} does not say {words:?}");
}

#[test]
fn a_running_restore_is_in_use_and_a_killed_one_is_refused() {
    let scratch = Directory::new("restore");
    fs::create_dir(&scratch.0).unwrap();
    let at = |name: &str| scratch.0.join(name);
    let db = Database::open_with(at("db"), Options::tiny()).unwrap();
    put(&db, 0..50);
    db.backup_to(at("copy")).unwrap();
    let open = |path: &Path| Database::open_with(path, Options::tiny());
    let mut met = 0;
    backup::restore(at("copy"), at("to"), None, &mut |_, _| {
        met += 1;
        if met == 10 {
            assert_says(open(&at("to")), "in_use", "already open");
            assert_says(check(at("to")), "in_use", "already open");
            let second = backup::restore(at("copy"), at("to"), None, &mut quiet);
            assert_says(second, "in_use", "already open");
            // A copy of the files as a kill would leave them now.
            copy_files(&at("to"), &at("cut"));
        }
    })
    .unwrap();
    assert_eq!(count(&open(&at("to")).unwrap()), 50);

    let cut = at("cut");
    let before = files(&cut);
    assert!(before.len() > 1, "{before:?}");
    let again = "repeat the same restore, which begins anew";
    assert_says(open(&cut), "not_restored", again);
    assert_says(check(&cut), "not_restored", again);
    let copied = backup::of_directory(&cut, at("x"), &mut quiet);
    assert_says(copied, "not_restored", again);
    let is_none = "a restore into it is not complete";
    assert_says(backup::inspect(&cut), "not_a_backup", is_none);
    let restored = backup::restore(&cut, at("x"), None, &mut quiet);
    assert_says(restored, "not_a_backup", is_none);
    assert_says(db.backup_to(&cut), "not_empty", "remove it first");
    assert!(!at("x").exists());
    // Other files are refused, and nothing is removed.
    for name in [
        "letter",
        "backup",
        "foxton",
        "layer-1",
        "log-0000000000000000.old",
    ] {
        fs::write(cut.join(name), "Dear Ada").unwrap();
        let restored = backup::restore(at("copy"), &cut, None, &mut quiet);
        assert_says(restored, "not_empty", name);
        fs::remove_file(cut.join(name)).unwrap();
        assert_eq!(files(&cut), before, "{name}");
    }
    backup::restore(at("copy"), &cut, None, &mut quiet).unwrap();
    assert_eq!(count(&open(&cut).unwrap()), 50);
    assert!(check(&cut).unwrap().findings.is_empty());
    let restored = backup::restore(at("copy"), &cut, None, &mut quiet);
    assert_says(restored, "not_empty", "it holds");
}
