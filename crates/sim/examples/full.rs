//! A device without space, and one whose sync fails, for root:
//! `cargo run --release -p foxton-sim --example full -- --cycles 20`.
//!
//! *No space*: a small ext4 is filled, and a load runs in the rest until it is refused. Then space
//! is freed, the database is opened again, and everything acknowledged is there.
//!
//! *A failed sync*: an ext4 whose image is larger than the memory file system that holds it. Writes
//! succeed, and the sync fails. A second sync would succeed, and the data would be gone. The
//! database must report its failure and keep doing so. Then the memory file system grows, and
//! everything acknowledged must be there.

mod common;

use common::{Arguments, Outcome, bar};
use foxton::{Database, Durability, Error, Options, Table};
use foxton_sim::{
    ledger::{Expectations, Scale, check, is_abandoned},
    load,
    loop_mount::{FileSystem, InMemory, Mounted},
};
use std::{env, fs, path::Path, time::Instant};

const HELP: &str = "\
Fills file systems, and has the sync of one fail, under a load; then looks for every commit.

  --cycles N    times for each of the two [20]
  --seed N      what is drawn from [1]";

const SCALE: Scale = Scale::SMALL;
const PADDING: Table<u64, [u8]> = Table::new("padding");
const PADDING_BYTES: usize = 60_000;
/// Error codes of a database whose device has no space, or failed.
const CODES: [&str; 3] = ["io", "device_full", "poisoned"];

fn open(place: &Path) -> foxton::Result<Database> {
    let mut options = Options::default();
    options.log_segment_bytes = 1 << 20;
    Database::open_with(place, options)
}

/// Runs the load on `db` until it fails. Every commit is *sync*.
fn until_it_fails(db: &Database, seed: u64, expected: &mut Expectations) -> Error {
    let mut work = || {
        load::load(db, SCALE)?;
        expected.loaded = true;
        let client = expected.clients.entry(0).or_default();
        for n in client.must.last().map_or(1, |last| last + 1).. {
            client.may.extend((!is_abandoned(n)).then_some(n));
            load::run(db, seed, (0, n), SCALE, Durability::Sync)?;
            client.may.clear();
            client.must.extend((!is_abandoned(n)).then_some(n));
            db.run(|tx| tx.put(&PADDING, &n, &[n as u8; PADDING_BYTES]))?;
        }
        Ok(())
    };
    work().expect_err("it ends by failing only")
}

/// Runs a load that fails, and returns what the database then reports.
fn fail(place: &Path, seed: u64, expected: &mut Expectations) -> Outcome<String> {
    let db = open(place)?;
    let mut reader = db.begin()?;
    // A key that the load does not use, because the load would wait for the reader.
    let before = reader.get(&PADDING, &u64::MAX)?;
    let error = until_it_fails(&db, seed, expected);
    if !CODES.contains(&error.code()) {
        return Err(format!("the error is {}: {error}", error.code()).into());
    }
    if reader.get(&PADDING, &u64::MAX)? != before {
        return Err("an open reader reads another value".into());
    }
    for _ in 0..3 {
        match db.begin() {
            Err(over) if CODES.contains(&over.code()) => {}
            other => return Err(format!("it continues after {error}: {other:?}").into()),
        }
    }
    Ok(error.to_string())
}

/// Opens the rest and checks everything.
fn look(place: &Path, seed: u64, expected: &mut Expectations) -> Outcome {
    let db = open(place)?;
    let found = load::read(&db)?;
    check(seed, SCALE, expected, &found).map_err(|faults| faults.join("; "))?;
    expected.settle(&found);
    load::run(&db, seed, (1, 1), SCALE, Durability::Sync)?;
    Ok(())
}

fn no_room(folder: &Path, seed: u64) -> Outcome<String> {
    let (image, at) = (folder.join("image"), folder.join("mounted"));
    let mounted = Mounted::new(FileSystem::Ext4, 48 << 20, &image, &at)?;
    let ballast = at.join("ballast");
    fs::write(&ballast, vec![1; 24 << 20])?;
    let (place, mut expected) = (at.join("database"), Expectations::default());
    let said = fail(&place, seed, &mut expected)?;
    fs::remove_file(ballast)?;
    look(&place, seed, &mut expected)?;
    drop(mounted);
    Ok(said)
}

fn failed_sync(folder: &Path, seed: u64) -> Outcome<String> {
    let memory = InMemory::new(24 << 20, &folder.join("memory"))?;
    let (image, at) = (memory.at().join("image"), folder.join("mounted"));
    let mut mounted = Mounted::new(FileSystem::Ext4, 300 << 20, &image, &at)?;
    let (place, mut expected) = (at.join("database"), Expectations::default());
    let said = fail(&place, seed, &mut expected)?;
    mounted.unmount()?;
    memory.resize(400 << 20)?;
    mounted.mount()?;
    look(&place, seed, &mut expected)?;
    mounted.unmount()?;
    Ok(said)
}

fn main() -> Outcome {
    let arguments = Arguments::read(0, &["cycles", "seed"], HELP)?;
    let (cycles, seed): (u64, u64) = (arguments.get("cycles", 20)?, arguments.get("seed", 1)?);
    let folder = env::temp_dir().join(format!("foxton-full-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    if let Err(why) = InMemory::new(1 << 20, &folder.join("memory")) {
        return Err(format!("this machine cannot mount anything: {why}").into());
    }
    let (bar, start) = (bar(2 * cycles, "failures")?, Instant::now());
    let mut said = [String::new(), String::new()];
    for cycle in 0..cycles {
        said[0] = no_room(&folder, seed + cycle)
            .map_err(|error| format!("no space, cycle {cycle}: {error}"))?;
        bar.inc(1);
        said[1] = failed_sync(&folder, seed + cycle)
            .map_err(|error| format!("failed sync, cycle {cycle}: {error}"))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    println!("{cycles} times no space, the last: {}", said[0]);
    println!("{cycles} times a sync that failed, the last: {}", said[1]);
    println!("no acknowledged commit lost; took {:.0?}", start.elapsed());
    Ok(fs::remove_dir_all(&folder)?)
}
