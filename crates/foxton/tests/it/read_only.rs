//! Databases opened to be read: they change no byte, need no space, and refuse every write.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::common::scratch::Directory;
use foxton::codec::TypeName;
use foxton::{
    Database, Error, Index, Isolation, Observe, Options, Result, Table, Transaction, backup,
};
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::memory::MemoryDevice;

const ROWS: Table<u64, [u8]> = Table::new("rows");
const OTHER: Table<u64, u64> = Table::new("other");
const BY_LENGTH: Index<u64, u64, [u8]> = Index::new("by_length", &ROWS, |_, row, keys| {
    keys.add(&(row.len() as u64))
});

const LEVELS: [Isolation; 4] = [
    Isolation::Serializable,
    Isolation::RepeatableRead,
    Isolation::ReadCommitted,
    Isolation::ReadUncommitted,
];

fn reading() -> Options {
    let mut options = Options::tiny();
    options.read_only = true;
    options
}

fn fill(db: &Database) {
    for key in 0..200 {
        db.run(|tx| tx.put(&ROWS, &key, &[key as u8; 300])).unwrap();
    }
    db.checkpoint().unwrap();
    db.run(|tx| tx.delete(&ROWS, &7)).unwrap();
    db.run(|tx| tx.put(&ROWS, &200, &[1; 900])).unwrap();
}

/// Names, bytes and times of all files.
fn files(path: &Path) -> BTreeMap<String, (Vec<u8>, std::time::SystemTime)> {
    let entries = fs::read_dir(path).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let bytes = fs::read(entry.path()).unwrap();
        let changed = entry.metadata().unwrap().modified().unwrap();
        (entry.file_name().into_string().unwrap(), (bytes, changed))
    });
    entries.collect()
}

fn is_filled(db: &Database) {
    for level in LEVELS {
        let mut tx = db.begin().unwrap();
        tx.set_isolation(level).unwrap();
        assert_eq!(tx.range(&ROWS, ..).count().unwrap(), 200);
        assert_eq!(tx.get(&ROWS, &200).unwrap().as_deref(), Some(&[1; 900][..]));
        assert_eq!(tx.get(&ROWS, &7).unwrap(), None);
        assert!(tx.get_for_update(&ROWS, &8).unwrap().is_some());
        tx.commit().unwrap();
    }
}

fn refuses<T: std::fmt::Debug>(answer: Result<T>) {
    let error = answer.unwrap_err();
    assert_eq!(error.code(), "opened_read_only", "{error}");
    assert!(matches!(error, Error::Request(_)));
    assert!(
        error.to_string().contains("open it without read_only"),
        "{error}"
    );
}

fn refuses_every_write(db: &Database) {
    let row = &[1][..];
    let write = |write: &dyn Fn(&mut Transaction) -> Result<()>| {
        let mut tx = db.begin().unwrap();
        refuses(write(&mut tx));
        // The transaction stays open, and its commit waits for nothing.
        assert!(tx.get(&ROWS, &3).unwrap().is_some());
        tx.commit().unwrap();
    };
    write(&|tx| tx.put(&ROWS, &1, row).map(drop));
    write(&|tx| tx.insert(&ROWS, &1_000, row).map(drop));
    write(&|tx| tx.delete(&ROWS, &1).map(drop));
    write(&|tx| tx.put(&Table::<u64, u64>::new("new"), &1, &1).map(drop));
    write(&|tx| tx.make_table("new", &TypeName::new("u64"), &TypeName::new("u64")));
    refuses(db.create_index(&BY_LENGTH));
    refuses(db.drop_index("by_length"));
    refuses(db.checkpoint());
    db.sync().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    runtime.block_on(async {
        let mut tx = db.begin_async().unwrap();
        assert!(tx.get(&ROWS, &3).await.unwrap().is_some());
        refuses(tx.put(&ROWS, &3, row).await);
        assert_eq!(tx.range(&ROWS, ..).count().await.unwrap(), 200);
        tx.commit().await.unwrap();
        db.sync_async().await.unwrap();
    });
    assert_eq!(db.checkpoints().made, 0);
}

#[test]
fn a_database_opened_to_be_read_answers_reads_and_refuses_writes_and_changes_no_byte() {
    let directory = Directory::new("read-only");
    let path = &directory.0;
    fill(&Database::open_with(path, Options::tiny()).unwrap());
    let before = files(path);
    let db = Database::open_with(path, reading()).unwrap();
    is_filled(&db);
    refuses_every_write(&db);
    let recovered = db.recovered();
    assert_eq!(
        (recovered.checkpoint_rows, recovered.transactions),
        (200, 2)
    );
    // A table that is not there has no rows, and is not made.
    assert_eq!(db.run(|tx| tx.get(&OTHER, &1)).unwrap(), None);
    drop(db);
    assert_eq!(files(path), before);
    is_filled(&Database::open_with(path, Options::tiny()).unwrap());
}

#[test]
fn several_may_read_and_none_while_another_writes() {
    let directory = Directory::new("readers");
    let path = &directory.0;
    let writer = Database::open_with(path, Options::tiny()).unwrap();
    fill(&writer);
    let refused = Database::open_with(path, reading()).unwrap_err();
    assert_eq!(refused.code(), "in_use", "{refused}");
    drop(writer);
    let (one, two) = (
        Database::open_with(path, reading()).unwrap(),
        Database::open_with(path, reading()).unwrap(),
    );
    let refused = Database::open_with(path, Options::tiny()).unwrap_err();
    assert_eq!(refused.code(), "in_use", "{refused}");
    is_filled(&two);
    drop(one);
    is_filled(&two);
    drop(two);
    fill(&Database::open_with(path, Options::tiny()).unwrap());
}

#[test]
fn reading_makes_no_database() {
    let directory = Directory::new("read-nothing");
    let path = &directory.0;
    let code = || Database::open_with(path, reading()).unwrap_err().code();
    assert_eq!(code(), "not_a_database");
    assert!(!path.exists());
    fs::create_dir(path).unwrap();
    assert_eq!(code(), "not_a_database");
    assert!(files(path).is_empty());
    assert_eq!(Database::in_memory(reading()).unwrap_err().code(), "option");
    let mut observed = reading();
    observed.observe = Observe::InDirectory;
    assert_eq!(
        Database::open_with(path, observed).unwrap_err().code(),
        "option"
    );
}

#[test]
fn without_a_lock_file_it_is_read_and_none_is_made() {
    let directory = Directory::new("read-copy");
    let path = &directory.0;
    fill(&Database::open_with(path, Options::tiny()).unwrap());
    fs::remove_file(path.join("lock")).unwrap();
    let before = files(path);
    is_filled(&Database::open_with(path, reading()).unwrap());
    assert_eq!(files(path), before);
}

/// Every call that could change something fails, and is not made.
#[test]
fn a_log_that_was_not_closed_is_replayed_in_memory() {
    let device = FaultDevice::new();
    let db = Database::open_on(Arc::new(device.clone()), Options::tiny()).unwrap();
    fill(&db);
    // Part of it is in the log, and it has not committed.
    let mut open = db.begin().unwrap();
    for key in 0..50 {
        open.put(&ROWS, &(1_000 + key), &[3; 300]).unwrap();
    }
    db.sync().unwrap();
    let changes = [
        Call::Create,
        Call::Rename,
        Call::Remove,
        Call::SyncDir,
        Call::Write,
        Call::Sync,
        Call::SetLen,
        Call::Allocate,
    ];
    for damage in Damage::ALL
        .into_iter()
        .filter(|damage| !damage.harms_durable())
    {
        for seed in 0..5 {
            let image = device.crash(damage, seed);
            let before = image.files();
            let image = FaultDevice::holding(&image);
            for call in changes {
                image.fail(call, 1, Times::ForEver, io::ErrorKind::ReadOnlyFilesystem);
            }
            let db = Database::open_on(Arc::new(image.clone()), reading()).unwrap();
            is_filled(&db);
            refuses_every_write(&db);
            drop(db);
            for call in changes {
                assert_eq!(image.calls(call), 0, "{call:?}");
            }
            // The next writer finds the same as a reader.
            let db = Database::open_on(Arc::new(MemoryDevice::with_files(before)), Options::tiny());
            is_filled(&db.unwrap());
        }
    }
}

#[test]
fn indexes_are_filled_in_memory_and_a_backup_can_be_made() {
    let directory = Directory::new("read-index");
    let (path, copy) = (directory.0.join("db"), directory.0.join("copy"));
    fs::create_dir(&directory.0).unwrap();
    fill(&Database::open_with(&path, Options::tiny()).unwrap());
    let before = files(&path);
    let mut options = reading();
    options.indexes.add(&BY_LENGTH);
    let db = Database::open_with(&path, options).unwrap();
    let long = db.run(|tx| tx.get_by(&BY_LENGTH, &900)).unwrap();
    assert_eq!(long.map(|(key, _)| key), Some(200));
    db.backup_to(&copy).unwrap();
    drop(db);
    assert_eq!(files(&path), before);
    let again = directory.0.join("again");
    backup::restore(&copy, &again, None, &mut |_, _| {}).unwrap();
    is_filled(&Database::open_with(again, reading()).unwrap());
}

/// A real read-only mount, if the test is allowed to mount one.
#[test]
fn a_read_only_mount_is_read() {
    let directory = Directory::new("read-mount");
    let path = &directory.0;
    fill(&Database::open_with(path, Options::tiny()).unwrap());
    let mount = |arguments: &[&str]| {
        let run = Command::new("mount").args(arguments).arg(path).output();
        run.is_ok_and(|output| output.status.success())
    };
    if !mount(&["--bind", path.to_str().unwrap()]) {
        println!("skipped: this user may not mount");
        return;
    }
    let read_only = mount(&["-o", "remount,ro,bind"]);
    let opened = Database::open_with(path, reading());
    let written = Database::open_with(path, Options::tiny()).map(drop);
    let read = opened.and_then(|db| db.run(|tx| tx.range(&ROWS, ..).count()));
    let unmounted = Command::new("umount").arg(path).status().unwrap();
    assert!(unmounted.success());
    if !read_only {
        println!("skipped: this user may not mount read-only");
        return;
    }
    assert_eq!(read.unwrap(), 200);
    let refused = written.unwrap_err();
    assert!(
        refused.to_string().contains("open it with read_only"),
        "{refused}"
    );
}
