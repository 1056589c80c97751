//! Crashes and failures around checkpoints. The power fails after every change to the directory,
//! with every kind of loss that the device simulates: while a checkpoint is made, and while a
//! restart from one runs. Every call fails, once and permanently. Acknowledged transactions are
//! there again, and no others.
//!
//! Each test has a twin that injects a fault and must find it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;

use crate::common::gate::Gate;
use foxton::{Database, Error, Options, Table};
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Recording, Times};
use foxton_log::device::{Device, DeviceFile, FileLock, FileLockMode, LockError};

const ROWS: Table<u64, [u8]> = Table::new("rows");

type Rows = BTreeMap<u64, Vec<u8>>;

fn options() -> Options {
    let mut options = Options::tiny();
    options.checkpoint_log_bytes = u64::MAX;
    options.restart_threads = 1;
    options
}

fn open(device: impl Device + 'static) -> foxton::Result<Database> {
    Database::open_on(Arc::new(device), options())
}

fn rows(db: &Database) -> Rows {
    let rows = db.run(|tx| tx.range(&ROWS, ..).collect());
    rows.expect("an open database can be read")
        .into_iter()
        .collect()
}

/// Changes the rows in round `round`: puts some and deletes one. Every third time the change is so
/// large that it is written in parts and fills segments.
fn change(db: &Database, model: &Rows, round: u64) -> Result<Rows, (Error, Rows)> {
    let mut after = model.clone();
    let size = if round % 3 == 2 { 9_000 } else { 30 };
    for key in 0..8 {
        after.insert(key * round % 20, vec![round as u8; size]);
    }
    after.remove(&(round % 7));
    let done = db.run(|tx| {
        for key in 0..8 {
            tx.put(&ROWS, &(key * round % 20), &vec![round as u8; size])?;
        }
        tx.delete(&ROWS, &(round % 7))
    });
    match done {
        Ok(_) => Ok(after),
        Err(error) => Err((error, after)),
    }
}

/// The rows after each round, and the number of recorded changes when it was acknowledged.
type Acknowledged = Vec<(usize, Rows)>;

const ROUNDS: u64 = 8;

/// Runs the rounds, with a checkpoint after every second one.
fn run(device: &FaultDevice, door: impl Device + 'static) -> (Acknowledged, Recording) {
    device.record();
    let db = open(door).unwrap();
    let mut acknowledged = vec![(0, Rows::new())];
    for round in 1..=ROUNDS {
        let after = change(&db, &acknowledged.last().unwrap().1, round);
        let after = after.map_err(|(error, _)| error).unwrap();
        acknowledged.push((device.recorded(), after));
        if round % 2 == 0 {
            db.checkpoint().unwrap();
        }
    }
    drop(db);
    (acknowledged, device.recording().unwrap())
}

/// Returns the states that a power failure after `cut` changes may leave: the last acknowledged
/// one, or the next.
fn may_be(acknowledged: &Acknowledged, cut: usize) -> &[(usize, Rows)] {
    let known = acknowledged.partition_point(|(at, _)| *at <= cut);
    &acknowledged[known - 1..acknowledged.len().min(known + 1)]
}

fn mild() -> impl Iterator<Item = Damage> {
    Damage::ALL
        .into_iter()
        .filter(|damage| !damage.harms_durable())
}

/// Opens the database and returns the rows.
fn found(
    device: impl Device + 'static,
    may_be: &[(usize, Rows)],
) -> Result<(Database, Rows), String> {
    let db = open(device).map_err(|error| format!("it was refused: {error}"))?;
    let rows = rows(&db);
    if !may_be.iter().any(|(_, state)| *state == rows) {
        return Err(format!("{} rows that nobody acknowledged", rows.len()));
    }
    Ok((db, rows))
}

/// Cuts a recorded run everywhere, opens, makes a checkpoint and cuts that everywhere, then opens
/// again and cuts that at some points. Returns the number of images.
fn cut_everywhere(acknowledged: &Acknowledged, recording: &Recording) -> Result<usize, String> {
    let mut images = 0;
    for (cut, disk) in recording.disks().enumerate() {
        for (which, damage) in mild().enumerate() {
            let told =
                |deeper: String| move |what: String| format!("cut {cut}, {damage}{deeper}: {what}");
            let device = FaultDevice::holding(&disk.crash(damage, cut as u64));
            device.record();
            images += 1;
            let (db, rows) =
                found(device.clone(), may_be(acknowledged, cut)).map_err(told(String::new()))?;
            // The second level is as large as the first: one kind of loss for each cut of the
            // first.
            if which != cut % 8 {
                continue;
            }
            let opened = device.recorded();
            db.checkpoint()
                .map_err(|error| told(String::new())(error.to_string()))?;
            drop(db);
            let settled = [(0, rows)];
            let recording = device.recording().unwrap();
            for (second, disk) in recording.disks().enumerate() {
                let damage = mild().nth((cut + second) % 8).unwrap();
                let deeper = format!(", opened at {opened}, cut {second}, {damage}");
                let device = FaultDevice::holding(&disk.crash(damage, second as u64));
                device.record();
                images += 1;
                // An unacknowledged state that was found must stay once the database was open.
                let may = match second >= opened {
                    true => &settled[..],
                    false => may_be(acknowledged, cut),
                };
                let (db, rows) = found(device.clone(), may).map_err(told(deeper.clone()))?;
                drop(db);
                let recording = device.recording().unwrap();
                let third = (cut * 31 + second) % (recording.len() + 1);
                let image = recording
                    .disks()
                    .nth(third)
                    .unwrap()
                    .crash(damage, third as u64);
                images += 1;
                let settled = [(0, rows)];
                let may = if third == recording.len() {
                    &settled[..]
                } else {
                    may
                };
                found(image, may).map_err(told(format!("{deeper}, cut {third}")))?;
            }
        }
    }
    Ok(images)
}

#[test]
fn power_cuts_while_checkpoints_are_made_and_restarted_from_lose_nothing() {
    let device = FaultDevice::new();
    let (acknowledged, recording) = run(&device, device.clone());
    let images = cut_everywhere(&acknowledged, &recording).unwrap();
    println!("{} changes, {images} images", recording.len());
    assert!(images > 2_000, "{images}");
}

/// True if the sync of this file, or of the directory, is to be skipped.
type Rule = fn(Call, &str) -> bool;

/// A device that falsely reports success where its rule applies.
#[derive(Debug, Clone)]
struct Liar {
    device: FaultDevice,
    lies: Rule,
}

#[derive(Debug)]
struct LiarsFile {
    file: Arc<dyn DeviceFile>,
    name: String,
    lies: Rule,
}

impl Liar {
    fn wrap(&self, name: &str, file: Arc<dyn DeviceFile>) -> Arc<dyn DeviceFile> {
        let (name, lies) = (name.to_owned(), self.lies);
        Arc::new(LiarsFile { file, name, lies })
    }
}

impl Device for Liar {
    fn lock(&self) -> Result<(), LockError> {
        self.device.lock()
    }
    fn try_lock_file(&self, name: &str, mode: FileLockMode) -> io::Result<Option<FileLock>> {
        self.device.try_lock_file(name, mode)
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(name, self.device.create(name)?))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DeviceFile>> {
        Ok(self.wrap(name, self.device.open(name)?))
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
        match (self.lies)(Call::SyncDir, "") {
            true => Ok(()),
            false => self.device.sync_dir(),
        }
    }
}

impl DeviceFile for LiarsFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(bytes, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        match (self.lies)(Call::Sync, &self.name) {
            true => Ok(()),
            false => self.file.sync(),
        }
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.file.allocate(bytes)
    }
}

#[test]
fn a_sync_that_a_checkpoint_leaves_out_is_found_out() {
    let rules: [(&str, Rule); 3] = [
        ("the layers", |call, name| {
            call == Call::Sync && name.starts_with("layer-")
        }),
        ("the manifest", |call, name| {
            call == Call::Sync && name.starts_with("checkpoint")
        }),
        ("the directory", |call, _| call == Call::SyncDir),
    ];
    for (what, lies) in rules {
        let device = FaultDevice::new();
        let liar = Liar {
            device: device.clone(),
            lies,
        };
        let (acknowledged, recording) = run(&device, liar);
        let failure = cut_everywhere(&acknowledged, &recording).expect_err(what);
        println!("{what} not synced: {failure}");
    }
}

/// A run in which `call` fails. Returns whether the fault occurred.
fn fail(call: Call, nth: u64, times: Times) -> bool {
    let device = FaultDevice::new();
    let kind = match call {
        Call::Write | Call::Allocate => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    device.fail(call, nth, times, kind);
    let mut states = vec![(0, Rows::new())];
    if let Ok(db) = open(device.clone()) {
        let mut given_up = false;
        for round in 1..=ROUNDS {
            match change(&db, &states.last().unwrap().1, round) {
                Ok(after) => {
                    assert!(!given_up, "{call:?} {nth}: it took a commit after the end");
                    states = vec![(0, after)];
                }
                Err((error, after)) => {
                    assert!(!error.is_retryable(), "{error}");
                    states.push((0, after));
                    break;
                }
            }
            if round % 2 == 0
                && let Err(error) = db.checkpoint()
            {
                let codes = ["io", "device_full", "poisoned"];
                assert!(codes.contains(&error.code()), "{} ({error})", error.code());
                given_up = error.code() == "poisoned";
            }
        }
    }
    let came = device.calls(call) >= nth;
    device.heal();
    for damage in mild() {
        let image = device.crash(damage, nth);
        found(image, &states)
            .unwrap_or_else(|what| panic!("{call:?} {nth} {times:?} {damage}: {what}"));
    }
    // The same directory without a power failure. Its state must stay, and a checkpoint of it must
    // be complete.
    let told = |what| format!("{call:?} {nth} {times:?}, opened again: {what}");
    let (db, rows) = found(device.clone(), &states).map_err(told).unwrap();
    db.checkpoint().unwrap();
    drop(db);
    for damage in [Damage::DropAll, Damage::Reordered] {
        let image = device.crash(damage, nth);
        found(image, &[(0, rows.clone())]).map_err(told).unwrap();
    }
    came
}

#[test]
fn every_call_fails_once_and_for_ever_and_nothing_is_lost() {
    for call in Call::ALL {
        for times in [Times::Once, Times::ForEver] {
            let last = (1..).find(|&nth| !fail(call, nth, times));
            let count = last.expect("calls are finite") - 1;
            println!("{call:?} {times:?}: failed at each of {count} calls");
        }
    }
}

#[test]
fn a_checkpoint_on_a_full_device_keeps_the_previous_one_and_is_made_later() {
    let device = FaultDevice::new();
    let db = open(device.clone()).unwrap();
    let mut model = change(&db, &Rows::new(), 1).unwrap();
    let first = db.checkpoint().unwrap();
    model = change(&db, &model, 2).unwrap();
    device.fail(Call::Create, 1, Times::Once, io::ErrorKind::StorageFull);
    assert_eq!(db.checkpoint().unwrap_err().code(), "device_full");
    let stats = db.checkpoints();
    assert_eq!((stats.made, stats.failed), (1, 1));
    assert_eq!(stats.last.unwrap().checkpoint_lsn, first.checkpoint_lsn);
    assert!(stats.last_failure.unwrap().contains("layer-"));
    model = change(&db, &model, 3).unwrap();
    assert!(db.checkpoint().unwrap().checkpoint_lsn > first.checkpoint_lsn);
    drop(db);
    assert_eq!(
        rows(&open(device.crash(Damage::DropAll, 0)).unwrap()),
        model
    );
}

#[test]
fn writers_do_not_wait_for_a_requested_checkpoint() {
    let (device, opener) = Gate::shut();
    let db = open(device).unwrap();
    let model = change(&db, &Rows::new(), 1).unwrap();
    thread::scope(|scope| {
        let checkpoint = scope.spawn(|| db.checkpoint().unwrap());
        while db.checkpoints().progress.is_none_or(|(done, _)| done == 0) {
            thread::yield_now();
        }
        // It has read the log and is blocked at its layer. If a writer waited for it, every commit
        // here would hang: new tables, new segments, large records and reads included.
        let model = (2..200).fold(model, |model, round| change(&db, &model, round).unwrap());
        db.run(|tx| tx.put(&Table::<u64, u64>::new("another"), &1, &1))
            .unwrap();
        assert_eq!(rows(&db), model);
        assert!(!checkpoint.is_finished());
        drop(opener);
        let made = checkpoint.join().unwrap();
        assert!(made.checkpoint_lsn < db.checkpoint().unwrap().checkpoint_lsn);
    });
}
