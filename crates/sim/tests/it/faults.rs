//! A device that fails: every call of a load, at its n-th time, once and for ever.
//!
//! After every failure the database returns a typed error and never panics, and open transactions
//! may still read. Opened again on what the device kept, it has every commit that it acknowledged
//! and no half of any other. The n goes up until nothing fails any more, so that no call is left
//! out.

use foxton::{Database, Durability, Error, Table};
use foxton_log::device::{
    Device, DeviceFile, FileLock, FileLockMode, LockError,
    disk::Damage,
    fault::{Call, FaultDevice, Times},
};
use foxton_sim::{
    crash::{open, record_on},
    ledger::{Contents, Expectation, Expectations, Scale, check, is_abandoned},
    load,
    victim::{Honesty, options},
};
use std::{io, sync::Arc, thread};

const SEED: u64 = 5;
const SCALE: Scale = Scale {
    branches: 1,
    tellers: 2,
    accounts: 20,
    note_bytes: 0,
};
const COUNT: u64 = 40;
/// Written every fourth time, so that several segments fill.
const PADDING: Table<u64, [u8]> = Table::new("padding");

/// Error codes of a database whose device fails.
const CODES: [&str; 3] = ["io", "device_full", "poisoned"];

/// Runs the load until something fails. Returns the database, if it opened, and the last error.
fn run(device: &FaultDevice, expected: &mut Expectations) -> (Option<Database>, Option<Error>) {
    let db = match open(device.clone(), SEED) {
        Ok(db) => db,
        Err(error) => return (None, Some(error)),
    };
    let work = || {
        load::load(&db, SCALE)?;
        expected.loaded = true;
        let client: &mut Expectation = expected.clients.entry(0).or_default();
        let first = client.must.last().map_or(1, |last| last + 1);
        for n in first..first + COUNT {
            client.may.extend((!is_abandoned(n)).then_some(n));
            load::run(&db, SEED, (0, n), SCALE, Durability::Sync)?;
            if n.is_multiple_of(4) {
                db.run(|tx| tx.put(&PADDING, &n, &[n as u8; 20_000]))?;
            }
            client.may.clear();
            client.must.extend((!is_abandoned(n)).then_some(n));
        }
        Ok(())
    };
    let done: foxton::Result<()> = { work }();
    (Some(db), done.err())
}

/// Checks the result of a restart on `device`.
fn found(device: impl Device + 'static, expected: &Expectations) -> Contents {
    let db = open(device, SEED).unwrap_or_else(|error| panic!("{expected:?}\n{error}"));
    let found = load::read(&db).expect("a database that opened can be read");
    check(SEED, SCALE, expected, &found).unwrap_or_else(|faults| panic!("{}", faults.join("\n")));
    found
}

/// A directory, and its contents.
struct Before {
    device: FaultDevice,
    expected: Expectations,
}

impl Before {
    /// Returns an empty directory.
    fn empty() -> Before {
        Before {
            device: FaultDevice::new(),
            expected: Expectations::default(),
        }
    }

    /// Returns a database in several segments, whose process ended without closing it.
    fn abandoned() -> Before {
        let Before {
            device,
            mut expected,
        } = Before::empty();
        let (db, error) = run(&device, &mut expected);
        assert!(error.is_none() && db.is_some());
        let device = FaultDevice::holding(&device.crash(Damage::KeepAll, 0));
        Before { device, expected }
    }
}

/// Runs one scenario. Returns true if the fault happened.
fn fail(before: &Before, call: Call, nth: u64, times: Times, kind: io::ErrorKind) -> bool {
    let mut expected = before.expected.clone();
    let device = FaultDevice::holding(&before.device.crash(Damage::KeepAll, 0));
    device.fail(call, nth, times, kind);
    let (db, error) = run(&device, &mut expected);
    if let Some(error) = &error {
        assert!(
            CODES.contains(&error.code()),
            "{call:?} {nth}: {} ({error})",
            error.code()
        );
        assert!(!error.is_retryable(), "{call:?} {nth}: {error}");
    }
    if let (Some(db), Some(_)) = (&db, &error) {
        // The database has failed, and says so every time. Only for lack of reserved space it
        // refuses a commit and continues.
        let client: &mut Expectation = expected.clients.entry(9).or_default();
        let mut codes = Vec::new();
        for _ in 0..3 {
            match load::run(db, SEED, (9, 1), SCALE, Durability::Sync) {
                Ok(()) => {
                    assert_eq!(call, Call::Allocate, "{nth}: it continues");
                    client.must.extend((!is_abandoned(1)).then_some(1));
                    break;
                }
                Err(error) => {
                    assert!(CODES.contains(&error.code()), "{call:?} {nth}: {error}");
                    codes.push(error.code());
                }
            }
        }
        if client.must.is_empty() && codes.iter().any(|&code| code != "poisoned") {
            client.may.extend((!is_abandoned(1)).then_some(1));
        }
    }
    drop(db);
    let came = device.calls(call) >= nth;
    device.heal();
    for damage in [
        Damage::DropAll,
        Damage::KeepAll,
        Damage::Torn,
        Damage::Reordered,
    ] {
        found(device.crash(damage, nth), &expected);
    }
    // The same directory is opened again without a power cut. The page cache shows more than the
    // disk has, and whatever is found there must be made durable before any reader sees it.
    let seen = found(device.clone(), &expected);
    expected.settle(&seen);
    found(device.crash(Damage::DropAll, nth), &expected);
    came
}

fn fail_everywhere(call: Call, kind: io::ErrorKind) {
    let mut failed = 0;
    for (what, before) in [("new", Before::empty()), ("abandoned", Before::abandoned())] {
        for times in [Times::Once, Times::ForEver] {
            let last = (1..).find(|&nth| !fail(&before, call, nth, times, kind));
            let count = last.expect("calls are finite") - 1;
            println!("{what}: {call:?} {times:?}: failed at each of {count} calls");
            failed += count;
        }
    }
    // A log that is only begun or continued reads or removes nothing.
    let seldom = matches!(call, Call::Read | Call::Remove);
    assert!(failed > 0 || seldom, "the load makes no call {call:?}");
}

#[test]
fn every_write_fails_for_lack_of_space() {
    fail_everywhere(Call::Write, io::ErrorKind::StorageFull);
}

#[test]
fn every_sync_fails() {
    fail_everywhere(Call::Sync, io::ErrorKind::Other);
}

#[test]
fn every_reservation_of_space_fails() {
    fail_everywhere(Call::Allocate, io::ErrorKind::StorageFull);
}

#[test]
fn every_other_call_fails() {
    for call in Call::ALL {
        if !matches!(call, Call::Write | Call::Sync | Call::Allocate) {
            fail_everywhere(call, io::ErrorKind::Other);
        }
    }
}

const ROWS: Table<u64, u64> = Table::new("rows");

#[test]
fn an_open_reader_reads_on_when_the_device_fails() {
    let device = FaultDevice::new();
    let db = open(device.clone(), SEED).unwrap();
    db.run(|tx| tx.put(&ROWS, &1, &1).and(tx.put(&ROWS, &2, &2)))
        .unwrap();
    let mut reader = db.begin().unwrap();
    assert_eq!(reader.get(&ROWS, &1).unwrap(), Some(1));
    device.fail(Call::Sync, 1, Times::ForEver, io::ErrorKind::Other);
    assert_eq!(
        db.run(|tx| tx.put(&ROWS, &3, &3)).unwrap_err().code(),
        "poisoned"
    );
    assert_eq!(reader.get(&ROWS, &1).unwrap(), Some(1));
    assert_eq!(reader.get(&ROWS, &2).unwrap(), Some(2));
    assert_eq!(db.begin().unwrap_err().code(), "poisoned");
}

#[test]
fn a_reader_of_a_failed_commit_is_not_acknowledged() {
    let device = FaultDevice::new();
    let db = open(device.clone(), SEED).unwrap();
    db.run(|tx| tx.put(&ROWS, &1, &1)).unwrap();
    let mut writer = db.begin().unwrap();
    writer.put(&ROWS, &1, &2).unwrap();
    let mut reader = db.begin().unwrap();
    let reading = thread::spawn(move || {
        let seen = reader.get(&ROWS, &1);
        (seen, reader.commit())
    });
    while db.waits().is_empty() {
        thread::yield_now();
    }
    device.fail(Call::Sync, 1, Times::ForEver, io::ErrorKind::Other);
    writer.commit().unwrap_err();
    let (seen, committed) = reading.join().unwrap();
    drop(db);
    let kept = open(device.crash(Damage::DropAll, 0), SEED)
        .unwrap()
        .run(|tx| tx.get(&ROWS, &1))
        .unwrap();
    assert_eq!(kept, Some(1));
    assert!(
        committed.is_err() || seen.is_err() || seen.unwrap() == kept,
        "it read, and committed, values that are not there after a restart"
    );
}

/// A device that reports every sync of a file as done, but does only every second one.
#[derive(Debug, Clone)]
struct Forgetful(FaultDevice);

#[derive(Debug)]
struct ForgetfulFile(Arc<dyn DeviceFile>, FaultDevice);

impl Device for Forgetful {
    fn lock(&self) -> Result<(), LockError> {
        self.0.lock()
    }
    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        self.0.try_lock_file(name, mode)
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(ForgetfulFile(
            self.0.create(name)?,
            self.0.clone(),
        )))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(Arc::new(ForgetfulFile(self.0.open(name)?, self.0.clone())))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.0.sync_dir()
    }
}

impl DeviceFile for ForgetfulFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        if self.1.recorded().is_multiple_of(2) {
            self.0.sync()
        } else {
            Ok(())
        }
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.0.allocate(bytes)
    }
}

#[test]
fn a_device_that_only_says_it_synced_is_found_out() {
    let run = record_on(
        |device| Arc::new(Forgetful(device)),
        options(SEED),
        SEED,
        4,
        9,
        Honesty::Honest,
    )
    .unwrap();
    let failure = run.cut_everywhere(1, SEED).expect_err("nobody noticed");
    println!("{failure}");
}
