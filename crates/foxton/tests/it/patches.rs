//! Patches: an update that changes little of a row is logged as a difference. Rows that are patched
//! many times are what a map says, over rollbacks, parts, checkpoints, merges of layers and
//! restarts. The bytes in the log and in checkpoints depend on the bytes changed. A patch that does
//! not fit its row is damage, and the error names it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use foxton::check::check_on;
use foxton::{Database, Durability, Options, Table, backup};
use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::FaultDevice;
use foxton_log::device::file::FileDevice;
use foxton_log::device::memory::MemoryDevice;
use foxton_log::format::superblock::Superblock;
use foxton_log::{Log, LogOptions, Lsn};
use foxton_sync::worker::Workers;

use crate::common::random::Random;

const ROWS: Table<u64, [u8]> = Table::new("rows");

type Map = BTreeMap<u64, Vec<u8>>;

impl Random {
    fn bytes(&mut self, count: u64) -> Vec<u8> {
        (0..count).map(|_| self.below(250) as u8).collect()
    }

    /// Returns `row` with one or two fields changed, sometimes longer or shorter.
    fn changed(&mut self, row: &[u8]) -> Vec<u8> {
        let mut row = row.to_vec();
        for _ in 0..=self.below(2) {
            let at = self.below(row.len() as u64 + 1) as usize;
            let cut = (self.below(30) as usize).min(row.len() - at);
            let put = match self.below(4) {
                0 => self.below(30),
                _ => cut as u64,
            };
            let put = self.bytes(put);
            row.splice(at..at + cut, put);
        }
        row
    }
}

fn options(threads: usize) -> Options {
    let mut options = Options::tiny();
    options.checkpoint_log_bytes = u64::MAX;
    options.durability = Durability::Buffered;
    options.restart_threads = threads;
    options
}

fn rows(db: &Database) -> Map {
    let rows = db.run(|tx| tx.range(&ROWS, ..).collect()).unwrap();
    rows.into_iter().collect()
}

/// One transaction of several changes, half of them to a row that it has changed already.
fn change(db: &Database, random: &mut Random, map: &mut Map) {
    let mut now = map.clone();
    let mut tx = db.begin().unwrap();
    let mut key = 0;
    // Some are large enough to be written in parts.
    for _ in 0..random.below(12) + 1 {
        if random.below(2) == 0 {
            key = random.below(12);
        }
        match (random.below(10), now.get(&key).cloned()) {
            (0, _) => {
                tx.delete(&ROWS, &key).unwrap();
                now.remove(&key);
            }
            (1, _) | (_, None) => {
                let count = [0, 50, 200, 1_500][random.below(4) as usize];
                let row = random.bytes(count);
                tx.put(&ROWS, &key, &row).unwrap();
                now.insert(key, row);
            }
            (_, Some(row)) => {
                let row = random.changed(&row);
                tx.put(&ROWS, &key, &row).unwrap();
                now.insert(key, row);
            }
        }
    }
    if random.below(5) == 0 {
        tx.rollback();
    } else {
        tx.commit().unwrap();
        *map = now;
    }
}

#[test]
fn rows_patched_over_checkpoints_and_restarts_are_what_a_map_says() {
    let mut most_layers = 0;
    for seed in 0..40 {
        let mut random = Random(seed);
        let device = Arc::new(MemoryDevice::new());
        let mut map = Map::new();
        for opening in 0..5 {
            let threads = random.below(3) as usize + 1;
            let db = Database::open_on(device.clone(), options(threads));
            let db = db.unwrap_or_else(|error| panic!("seed {seed}, opening {opening}: {error}"));
            assert_eq!(rows(&db), map, "seed {seed}, opening {opening}");
            // Rows that do not change, so that one layer is never merged.
            if opening == 0 {
                let still: Vec<_> = (100..180).map(|key| (key, random.bytes(300))).collect();
                db.run(|tx| {
                    still
                        .iter()
                        .try_for_each(|(key, row)| tx.put(&ROWS, key, row))
                })
                .unwrap();
                map.extend(still);
            }
            for _ in 0..random.below(8) {
                for _ in 0..random.below(10) {
                    change(&db, &mut random, &mut map);
                }
                let made = db.checkpoint().unwrap();
                most_layers = most_layers.max(made.layers);
            }
            for _ in 0..random.below(10) {
                change(&db, &mut random, &mut map);
            }
            db.verify();
        }
        let report = check_on(&*device).unwrap();
        assert_eq!(report.findings, [], "seed {seed}");
    }
    assert!(most_layers >= 3, "{most_layers}");
}

#[test]
fn two_that_write_in_parts_at_once_leave_patches_that_fit() {
    let device = Arc::new(MemoryDevice::new());
    let (mut one, mut other) = (vec![1; 2_000], vec![2; 2_000]);
    {
        let db = Database::open_on(device.clone(), options(1)).unwrap();
        db.run(|tx| tx.put(&ROWS, &1, &one).and(tx.put(&ROWS, &2, &other)))
            .unwrap();
        db.checkpoint().unwrap();
        let (mut first, mut second) = (db.begin().unwrap(), db.begin().unwrap());
        for at in 0..60 {
            one[at * 33] = 7;
            other[at * 31] = 9;
            first.put(&ROWS, &1, &one).unwrap();
            second.put(&ROWS, &2, &other).unwrap();
        }
        second.rollback();
        first.commit().unwrap();
        // The rolled back transaction left the row as it was.
        other = vec![2; 2_000];
        other[5] = 3;
        db.run(|tx| tx.put(&ROWS, &2, &other)).unwrap();
    }
    for threads in [1, 2] {
        let db = Database::open_on(device.clone(), options(threads)).unwrap();
        assert_eq!(rows(&db), [(1, one.clone()), (2, other.clone())].into());
    }
}

#[test]
fn rows_in_the_checkpoint_are_not_patched_twice() {
    let device = Arc::new(MemoryDevice::new());
    let mut row = vec![1; 2_000];
    {
        let db = Database::open_on(device.clone(), options(1)).unwrap();
        db.run(|tx| tx.put(&ROWS, &1, &row)).unwrap();
        // A transaction that is written in parts, and retains the log from its first part on.
        let mut long = db.begin().unwrap();
        for key in 100..140 {
            long.put(&ROWS, &key, &[7; 100]).unwrap();
        }
        for round in 0..20 {
            row.splice(round..round, [round as u8; 3]);
            db.run(|tx| tx.put(&ROWS, &1, &row)).unwrap();
        }
        let made = db.checkpoint().unwrap();
        assert!(made.redo_from < made.checkpoint_lsn, "{made:?}");
        row[9] = 99;
        db.run(|tx| tx.put(&ROWS, &1, &row)).unwrap();
        long.commit().unwrap();
    }
    for threads in [1, 2] {
        let db = Database::open_on(device.clone(), options(threads)).unwrap();
        let found = rows(&db);
        assert_eq!((found.len(), &found[&1]), (41, &row));
    }
}

/// Returns the bytes of log of a hundred updates of 10 bytes in rows of 2,000 bytes.
fn log_of_updates(device: Arc<dyn Device>) -> u64 {
    let db = Database::open_on(device, options(1)).unwrap();
    let mut row = vec![0; 2_000];
    db.run(|tx| tx.put(&ROWS, &1, &row)).unwrap();
    let before = db.stats().log.bytes;
    for round in 1..=100 {
        row[500..510].fill(round);
        db.run(|tx| tx.put(&ROWS, &1, &row)).unwrap();
    }
    assert_eq!(rows(&db)[&1], row);
    db.stats().log.bytes - before
}

#[test]
fn the_size_of_the_log_depends_on_the_bytes_changed() {
    let device = Arc::new(MemoryDevice::new());
    let bytes = log_of_updates(device.clone());
    assert!(bytes < 100 * 100, "{bytes}");
    assert_ne!(Superblock::read(&*device).unwrap().incompat, 0);
}

#[test]
fn a_database_older_than_patches_gets_none() {
    let device = Arc::new(MemoryDevice::new());
    Superblock::new([5; 16]).create(&*device).unwrap();
    let bytes = log_of_updates(device.clone());
    assert!(bytes > 100 * 2_000, "{bytes}");
    assert_eq!(Superblock::read(&*device).unwrap().incompat, 0);
}

#[test]
fn the_size_of_a_checkpoint_depends_on_the_bytes_changed() {
    let db = Database::open_on(Arc::new(MemoryDevice::new()), options(1)).unwrap();
    let mut random = Random(1);
    let mut row = random.bytes(2_000);
    db.run(|tx| (0..1_000).try_for_each(|key| tx.put(&ROWS, &key, &row)))
        .unwrap();
    let whole = db.checkpoint().unwrap().written_bytes;
    assert!(whole > 2_000_000, "{whole}");
    let mut written = 0;
    for round in 0..20 {
        row[100] = round;
        db.run(|tx| {
            (0..1_000)
                .step_by(10)
                .try_for_each(|key| tx.put(&ROWS, &key, &row))
        })
        .unwrap();
        written += db.checkpoint().unwrap().written_bytes;
    }
    // Of 4,000,000 bytes in the updated rows, 2,000 were changed.
    assert!(written < 400_000, "{written}");
}

#[test]
fn a_backup_of_patched_rows_is_restored_as_it_was_at_each_commit() {
    let root = std::env::temp_dir().join(format!("foxton-patches-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&root);
    std::fs::create_dir(&root).unwrap();
    let mut states: Vec<(Lsn, Map)> = Vec::new();
    let db = Database::open_with(root.join("db"), options(1)).unwrap();
    let (mut random, mut map) = (Random(3), Map::new());
    for round in 0..60 {
        change(&db, &mut random, &mut map);
        if round == 20 {
            db.checkpoint().unwrap();
        }
        if round > 20 {
            states.push((db.log_end(), map.clone()));
        }
    }
    let saved = root.join("saved");
    db.backup_to(&saved).unwrap();
    drop(db);
    for (at, expected) in states.iter().step_by(3) {
        let to = root.join(format!("to-{at}"));
        backup::restore(&saved, &to, Some(*at), &mut |_, _| {}).unwrap();
        let made = Superblock::read(&FileDevice::open(&to).unwrap()).unwrap();
        assert_ne!(
            made.incompat, 0,
            "who does not know patches must not open it"
        );
        let again = Database::open_with(&to, options(1)).unwrap();
        assert_eq!(rows(&again), *expected, "restored to {at}");
    }
    std::fs::remove_dir_all(&root).unwrap();
}

/// The power fails after every change to the directory while rows are patched and checkpoints are
/// made.
#[test]
fn a_power_cut_anywhere_leaves_rows_as_some_commit_left_them() {
    let device = FaultDevice::new();
    device.record();
    let mut states = vec![(0, Map::new())];
    {
        let mut options = options(1);
        options.durability = Durability::Sync;
        let db = Database::open_on(Arc::new(device.clone()), options).unwrap();
        let (mut random, mut map) = (Random(9), Map::new());
        for round in 0..24 {
            change(&db, &mut random, &mut map);
            states.push((device.recorded(), map.clone()));
            if round % 5 == 4 {
                db.checkpoint().unwrap();
            }
        }
    }
    let recording = device.recording().unwrap();
    for (cut, disk) in recording.disks().enumerate() {
        for damage in [Damage::DropAll, Damage::Torn, Damage::Reordered] {
            let image = disk.crash(damage, cut as u64);
            let db = Database::open_on(Arc::new(image), options(1))
                .unwrap_or_else(|error| panic!("cut {cut}, {damage}: {error}"));
            let known = states.partition_point(|(at, _)| *at <= cut);
            let may_be = &states[known - 1..states.len().min(known + 1)];
            let found = rows(&db);
            assert!(
                may_be.iter().any(|(_, state)| *state == found),
                "cut {cut}, {damage}"
            );
        }
    }
}

/// Appends a record of one patch to the log of `device`, which is closed. Returns its LSN.
fn plant(device: &Arc<MemoryDevice>, key: u64, old_length: u32) -> Lsn {
    let identity = Superblock::read(&**device).unwrap().identity;
    let mut end = Lsn::ZERO;
    let options = LogOptions::default();
    let (log, _) = Log::open(device.clone(), options, identity, &mut |record| {
        end = record.end;
        Ok::<(), Infallible>(())
    })
    .unwrap();
    let mut change = Vec::new();
    change.extend_from_slice(&0_u32.to_le_bytes());
    change.extend_from_slice(&8_u16.to_le_bytes());
    change.extend_from_slice(&key.to_be_bytes());
    // A patch without pieces: the value stays the same, and its checksum does not match.
    change.push(2);
    change.extend_from_slice(&8_u32.to_le_bytes());
    change.extend_from_slice(&old_length.to_le_bytes());
    change.extend_from_slice(&77_u32.to_le_bytes());
    let worker = Workers::new().worker();
    let at = log.end(&worker);
    log.insert(&worker, 2, &[&change]).unwrap();
    log.close(&worker).unwrap();
    assert!(at >= end);
    at
}

#[test]
fn a_patch_that_does_not_fit_its_row_is_damage_that_names_the_record() {
    for (key, old_length, threads, words) in [
        (5, 100, 1, "a row that is there"),
        (1, 99, 1, "as long as the one that is there"),
        (1, 100, 1, "the one that was committed"),
        (1, 100, 3, "the one that was committed"),
    ] {
        let device = Arc::new(MemoryDevice::new());
        {
            let db = Database::open_on(device.clone(), options(1)).unwrap();
            db.run(|tx| tx.put(&ROWS, &1, &[1; 100])).unwrap();
            // Enough changes that other threads apply them.
            db.run(|tx| (10..30).try_for_each(|key| tx.put(&ROWS, &key, &[2; 9_000])))
                .unwrap();
        }
        let at = plant(&device, key, old_length);
        let before = device.files();
        let error = Database::open_on(device.clone(), options(threads)).unwrap_err();
        assert_eq!(error.code(), "damaged", "{error}");
        let told = error.to_string();
        assert!(told.contains(words), "{told}");
        assert!(told.contains(&at.to_string()), "{told} does not name {at}");
        assert_eq!(device.files(), before, "nothing was changed");
        let report = check_on(&*device).unwrap();
        assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
        assert!(
            report.findings[0].to_string().contains(words),
            "{:?}",
            report.findings
        );
    }
}
