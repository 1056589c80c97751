//! Directories that cannot be opened, and devices that fail. Each gives a typed error that says
//! what to do, and the attempt does no harm.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::common::scratch::Directory;
use foxton::{Database, Error, MAX_KEY_BYTES, MAX_TABLES, MAX_VALUE_BYTES, Options, Table};
use foxton_log::device::fault::{Call, FaultDevice, Times};

const NUMBERS: Table<u64, u64> = Table::new("numbers");
const BYTES: Table<[u8], [u8]> = Table::new("bytes");

fn refused(path: &Path) -> Error {
    Database::open(path).expect_err("it cannot be opened")
}

fn assert_says(error: &Error, code: &str, words: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.code(), code, "{text}");
    assert!(!error.is_retryable());
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

#[test]
fn a_table_used_with_other_types_is_refused_and_says_both() {
    const OTHER_KEY: Table<u32, u64> = Table::new("numbers");
    const OTHER_VALUE: Table<u64, (u64, String)> = Table::new("numbers");
    let directory = Directory::new("types");
    let db = Database::open(&directory.0).unwrap();
    db.run(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    let check = |db: &Database| {
        let error = db.run(|tx| tx.get(&OTHER_KEY, &1)).unwrap_err();
        assert_says(
            &error,
            "table_types",
            &["numbers", "u64", "u32", "use the stored types"],
        );
        let error = db.run(|tx| tx.get(&OTHER_VALUE, &1)).unwrap_err();
        assert_says(&error, "table_types", &["(u64,str)"]);
        assert_eq!(db.run(|tx| tx.get(&NUMBERS, &1)).unwrap(), Some(1));
    };
    check(&db);
    drop(db);
    check(&Database::open(&directory.0).unwrap());
}

#[test]
fn keys_values_and_names_over_their_limits_are_refused_and_the_transaction_goes_on() {
    let db = Database::in_memory(Options::default()).unwrap();
    let mut tx = db.begin().unwrap();
    let longest = vec![7; MAX_KEY_BYTES];
    tx.put(&BYTES, &longest, b"").unwrap();
    let longer = vec![7; MAX_KEY_BYTES + 1];
    assert_says(
        &tx.put(&BYTES, &longer, b"").unwrap_err(),
        "key_too_long",
        &["shorter"],
    );
    assert_says(
        &tx.get(&BYTES, &longer[..]).unwrap_err(),
        "key_too_long",
        &[],
    );
    let too_long = vec![0; MAX_VALUE_BYTES + 1];
    assert_says(
        &tx.put(&BYTES, b"k", &too_long).unwrap_err(),
        "value_too_long",
        &["split"],
    );
    let nameless: Table<u64, u64> = Table::new("");
    assert_says(&tx.get(&nameless, &1).unwrap_err(), "table_name", &[]);
    assert_eq!(tx.range(&BYTES, ..).count().unwrap(), 1);
    tx.commit().unwrap();
}

#[test]
fn a_value_as_long_as_may_be_is_kept_over_a_restart() {
    let directory = Directory::new("long");
    let value: Vec<u8> = (0..MAX_VALUE_BYTES).map(|index| index as u8).collect();
    let db = Database::open(&directory.0).unwrap();
    db.run(|tx| tx.put(&BYTES, b"long", &value)).unwrap();
    drop(db);
    let db = Database::open(&directory.0).unwrap();
    assert_eq!(
        db.run(|tx| tx.get(&BYTES, &b"long"[..])).unwrap(),
        Some(value)
    );
}

#[test]
fn there_are_only_so_many_tables() {
    let db = Database::in_memory(Options::default()).unwrap();
    let mut tx = db.begin().unwrap();
    for number in 0..MAX_TABLES {
        let name: &'static str = Box::leak(format!("table {number}").into_boxed_str());
        tx.put(&Table::<u64, u64>::new(name), &1, &1).unwrap();
    }
    assert_eq!(tx.get(&NUMBERS, &1).unwrap(), None);
    assert_says(
        &tx.put(&NUMBERS, &1, &1).unwrap_err(),
        "too_many_tables",
        &["4096"],
    );
}

#[test]
fn a_directory_with_other_things_in_it_is_left_alone() {
    let directory = Directory::new("other");
    fs::create_dir(&directory.0).unwrap();
    fs::write(directory.0.join("letter.txt"), "Dear Ada").unwrap();
    assert_says(
        &refused(&directory.0),
        "not_a_database",
        &["letter.txt", "empty or a new"],
    );
    let names: Vec<_> = fs::read_dir(&directory.0).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing was left there");
    let file = directory.0.join("letter.txt");
    assert_says(&refused(&file), "not_a_database", &["it is a file"]);
}

#[test]
fn an_error_says_why_no_directory_can_be_created() {
    let directory = Directory::new("nowhere");
    assert_says(
        &refused(&directory.0.join("no").join("where")),
        "not_created",
        &["no/where", "/no does not exist"],
    );
    if cfg!(target_os = "linux") {
        let proc = refused(Path::new("/proc/nope"));
        assert_says(&proc, "not_created", &["/proc accepts no new directory"]);
    }
}

#[test]
fn a_database_open_in_this_process_is_not_opened_again() {
    let directory = Directory::new("twice");
    let db = Database::open(&directory.0).unwrap();
    assert_says(
        &refused(&directory.0),
        "in_use",
        &["in this process", "share"],
    );
    // A transaction keeps the database open as well.
    let tx = db.begin().unwrap();
    drop(db);
    assert_says(&refused(&directory.0), "in_use", &[]);
    drop(tx);
    Database::open(&directory.0).unwrap();
}

#[test]
fn a_database_open_in_another_process_is_not_opened_either() {
    const HELD: &str = "FOXTON_TEST_HELD_DIRECTORY";
    if let Ok(path) = std::env::var(HELD) {
        // The other process: it finds the directory locked and prints the error.
        print!("refused: {}", refused(Path::new(&path)));
        return;
    }
    let directory = Directory::new("process");
    let _db = Database::open(&directory.0).unwrap();
    let name = "directory::a_database_open_in_another_process_is_not_opened_either";
    let other = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(HELD, &directory.0)
        .output()
        .unwrap();
    let said = String::from_utf8(other.stdout).unwrap();
    let holder = format!("already open in process {}", std::process::id());
    assert!(said.contains(&holder), "{said}");
}

/// A log with five transactions, and one wrong byte in the second.
#[test]
fn damage_in_the_middle_of_the_log_is_noticed_and_named() {
    let directory = Directory::new("damage");
    let db = Database::open(&directory.0).unwrap();
    for key in 0..5 {
        db.run(|tx| tx.put(&BYTES, &[key], &[0xAB; 100])).unwrap();
    }
    drop(db);
    let files = fs::read_dir(&directory.0)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_segment = |path: &PathBuf| fs::read(path).unwrap().windows(50).any(|w| w == [0xAB; 50]);
    let segment = files
        .into_iter()
        .find(is_segment)
        .expect("a file has the values");
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes
        .windows(100)
        .position(|window| window == [0xAB; 100])
        .unwrap();
    bytes[at + 10] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert_says(&refused(&directory.0), "damaged", &[name, "backup"]);
    bytes[at + 10] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let db = Database::open(&directory.0).unwrap();
    assert_eq!(
        db.run(|tx| tx.range(&BYTES, ..).count()).unwrap(),
        5,
        "nothing was harmed"
    );
}

#[test]
fn a_damaged_superblock_and_one_from_the_future_are_told_apart() {
    let directory = Directory::new("superblock");
    drop(Database::open(&directory.0).unwrap());
    let file = directory.0.join(foxton_log::format::superblock::FILE);
    let good = fs::read(&file).unwrap();
    let mut bad = good.clone();
    bad[60] ^= 1;
    fs::write(&file, &bad).unwrap();
    assert_says(&refused(&directory.0), "damaged", &["backup"]);
    // A later version with a valid checksum.
    let mut later = good.clone();
    later[8] = 2;
    let check = crc32c(&later[..508]);
    later[508..].copy_from_slice(&check.to_le_bytes());
    fs::write(&file, &later).unwrap();
    assert_says(&refused(&directory.0), "future_format", &["later version"]);
    fs::write(&file, &good).unwrap();
    Database::open(&directory.0).unwrap();
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1));
        }
    }
    !crc
}

#[test]
fn a_file_system_that_takes_no_writes_is_named() {
    let device = FaultDevice::new();
    device.fail(
        Call::Create,
        1,
        Times::ForEver,
        io::ErrorKind::ReadOnlyFilesystem,
    );
    let error = Database::open_on(Arc::new(device), Options::tiny()).unwrap_err();
    assert_says(&error, "read_only", &["writing"]);
}

/// A real read-only mount, if the test is allowed to mount one.
#[test]
fn a_read_only_mount_is_named() {
    let directory = Directory::new("mount");
    let _db = Database::open(&directory.0).unwrap();
    drop(_db);
    let mount = |arguments: &[&str]| {
        let run = Command::new("mount")
            .args(arguments)
            .arg(&directory.0)
            .output();
        run.is_ok_and(|output| output.status.success())
    };
    let path = directory.0.to_str().unwrap();
    if !mount(&["--bind", path]) {
        println!("skipped: this user may not mount");
        return;
    }
    let read_only = mount(&["-o", "remount,ro,bind"]);
    let opened = Database::open(&directory.0);
    let unmounted = Command::new("umount").arg(&directory.0).status().unwrap();
    assert!(unmounted.success());
    if !read_only {
        println!("skipped: this user may not mount read-only");
        return;
    }
    assert_says(&opened.unwrap_err(), "read_only", &[path, "mount"]);
    Database::open(&directory.0).unwrap();
}

#[test]
fn a_full_device_ends_the_database_with_a_message_and_loses_nothing_acknowledged() {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), Options::tiny()).unwrap();
    db.run(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    device.fail(Call::Write, 1, Times::ForEver, io::ErrorKind::StorageFull);
    let error = db.run(|tx| tx.put(&NUMBERS, &2, &2)).unwrap_err();
    assert_says(
        &error,
        "device_full",
        &["free some space", "open the database again"],
    );
    let error = db.begin().unwrap_err();
    assert_says(&error, "device_full", &[]);
    drop(db);
    device.heal();
    let db = Database::open_on(Arc::new(device), Options::tiny()).unwrap();
    assert_eq!(db.run(|tx| tx.get(&NUMBERS, &1)).unwrap(), Some(1));
}

#[test]
fn a_failed_sync_is_final() {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), Options::tiny()).unwrap();
    db.run(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    device.fail(Call::Sync, 1, Times::Once, io::ErrorKind::Other);
    let error = db.run(|tx| tx.put(&NUMBERS, &2, &2)).unwrap_err();
    assert_says(&error, "poisoned", &["open the database again"]);
    for _ in 0..3 {
        assert_eq!(
            db.run(|tx| tx.put(&NUMBERS, &3, &3)).unwrap_err().code(),
            "poisoned"
        );
    }
}

#[test]
fn with_locking_off_a_second_transaction_is_refused_until_the_first_ends() {
    let mut options = Options::tiny();
    options.locking = foxton::Locking::Off;
    let db = Database::in_memory(options).unwrap();
    let tx = db.begin().unwrap();
    assert_says(&db.begin().unwrap_err(), "one_at_a_time", &["locking on"]);
    tx.commit().unwrap();
    db.run(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    drop(db.begin().unwrap());
    drop(db.begin_async().unwrap());
    assert_eq!(db.run(|tx| tx.get(&NUMBERS, &1)).unwrap(), Some(1));
}

#[test]
fn options_out_of_their_range_are_refused() {
    let mut options = Options::default();
    options.lock_buckets = 0;
    assert_says(
        &Database::in_memory(options).unwrap_err(),
        "option",
        &["lock_buckets"],
    );
}
