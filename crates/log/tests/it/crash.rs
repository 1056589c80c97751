//! Power cuts: one at every call, with every damage that a disk may do.
//!
//! A small run is recorded on a fault device, together with the acknowledgements of durability and
//! their times. Then the directories that a power cut could leave are built and opened: for every
//! change of the run, every kind of damage and several seeds. Such a log must hold a prefix of what
//! was inserted, with everything that had been acknowledged. It must accept further records,
//! however often it is opened again.
//!
//! A failure prints the run, the cut, the damage and the seed.

use std::sync::{Arc, Mutex};

use foxton_log::device::Device;
use foxton_log::device::disk::{Damage, Disk};
use foxton_log::device::fault::{FaultDevice, Recording};
use foxton_log::device::memory::MemoryDevice;
use foxton_log::format::superblock::{Superblock, SuperblockError};
use foxton_log::{Log, Lsn, OpenError};
use foxton_sync::worker::{Worker, Workers};

use crate::support::{Entry, IDENTITY, Random, open, read};

/// Record of a run.
struct Run {
    name: String,
    recording: Recording,
    /// In the order of the log.
    inserted: Vec<Entry>,
    /// Pairs: after this many changes, the log was acknowledged to be durable up to there.
    acknowledged: Vec<(usize, Lsn)>,
}

impl Run {
    fn acknowledged_at(&self, cut: usize) -> Lsn {
        let before = self
            .acknowledged
            .iter()
            .filter(|(changes, _)| *changes <= cut);
        before.map(|(_, lsn)| *lsn).max().unwrap_or(Lsn::ZERO)
    }
}

/// Inserts, and sometimes waits, for a run.
struct Script<'a> {
    device: &'a FaultDevice,
    worker: Worker,
    random: Random,
    inserted: &'a Mutex<Vec<Entry>>,
    acknowledged: &'a Mutex<Vec<(usize, Lsn)>>,
}

impl Script<'_> {
    fn steps(&mut self, log: &Log, steps: usize) {
        for _ in 0..steps {
            self.step(log);
        }
    }

    fn step(&mut self, log: &Log) {
        // Mostly small, sometimes larger than the buffer and than a segment.
        let length = match self.random.below(20) {
            0 => 3000 + self.random.below(6000),
            1..=4 => self.random.below(1200),
            _ => self.random.below(200),
        };
        let (kind, payload) = (1 + self.random.below(9) as u8, self.random.bytes(length));
        let (left, right) = payload.split_at(length / 3);
        let end = log.insert(&self.worker, kind, &[left, right]).unwrap();
        self.inserted
            .lock()
            .unwrap()
            .push(Entry { end, kind, payload });
        match self.random.below(4) {
            0 => {
                log.wait_durable(&self.worker, end).unwrap();
                let changes = self.device.recorded();
                self.acknowledged.lock().unwrap().push((changes, end));
            }
            1 => log.wait_written(&self.worker, end).unwrap(),
            _ => {}
        }
    }
}

/// Runs `sessions` of `threads` each. All but the last session are closed, or just stop.
fn run(seed: u64, sessions: usize, threads: usize, steps: usize, start: &MemoryDevice) -> Run {
    let device = FaultDevice::holding(start);
    device.record();
    let (inserted, acknowledged) = (Mutex::default(), Mutex::default());
    let mut random = Random(seed);
    for _ in 0..sessions {
        let (log, ..) = open(Arc::new(device.clone())).unwrap();
        let workers = Workers::new();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let mut script = Script {
                    device: &device,
                    worker: workers.worker(),
                    random: Random(random.draw()),
                    inserted: &inserted,
                    acknowledged: &acknowledged,
                };
                let log = &log;
                scope.spawn(move || script.steps(log, steps));
            }
        });
        if random.draw() & 1 == 0 {
            let worker = workers.worker();
            log.close(&worker).unwrap();
            acknowledged
                .lock()
                .unwrap()
                .push((device.recorded(), log.end(&worker)));
        } else {
            // The process stops, the machine does not. Once everything is written, the log does
            // nothing more by itself; records inserted after that are lost with the process.
            let worker = workers.worker();
            log.wait_written(&worker, log.end(&worker)).unwrap();
            log.insert(&worker, 1, &[b"never written"]).unwrap();
            std::mem::forget(log);
        }
    }
    let mut inserted = inserted.into_inner().unwrap();
    inserted.sort_by_key(|entry| entry.end);
    let name = format!("seed {seed:#x}, {sessions} sessions, {threads} threads, {steps} steps");
    let recording = device.recording().unwrap();
    Run {
        name,
        recording,
        inserted,
        acknowledged: acknowledged.into_inner().unwrap(),
    }
}

/// Opens one image, checks its records, appends to it, and opens it again.
fn check(run: &Run, cut: usize, disk: &Disk, damage: Damage, seed: u64, worker: &Worker) -> bool {
    let say = || {
        format!(
            "{}; cut at {cut}, {damage}, damage seed {seed:#x}",
            run.name
        )
    };
    let image = Arc::new(disk.crash(damage, seed));
    let (log, opened, mut found) = match open(image.clone()) {
        Ok(opened) => opened,
        // Durable bytes were overwritten, and this was noticed.
        Err(OpenError::Corrupt(_)) if damage.harms_durable() => return false,
        Err(error) => panic!("{error}\n{}", say()),
    };
    assert!(
        found.len() <= run.inserted.len(),
        "more found than was inserted: {}",
        say()
    );
    assert_eq!(
        found,
        run.inserted[..found.len()],
        "not a prefix: {}",
        say()
    );
    let acknowledged = run.acknowledged_at(cut);
    if !damage.harms_durable() {
        let end = opened.summary.end;
        assert!(
            end >= acknowledged,
            "{acknowledged} was durable, found {end}: {}",
            say()
        );
    }
    // The log accepts records, and no stale record appears behind them.
    let payload = vec![seed as u8; 100];
    let end = log.insert(worker, 7, &[&payload]).unwrap();
    log.wait_durable(worker, end).unwrap();
    drop(log);
    found.push(Entry {
        end,
        kind: 7,
        payload,
    });
    let (_, again) = read(&*image).unwrap_or_else(|error| panic!("again: {error}\n{}", say()));
    assert_eq!(again, found, "not the same when opened again: {}", say());
    true
}

fn check_all(run: &Run, seeds: u64) -> usize {
    let worker = Workers::new().worker();
    let mut images = 0;
    for (cut, disk) in run.recording.disks().enumerate() {
        for damage in Damage::ALL {
            let seeds = if matches!(damage, Damage::DropAll | Damage::KeepAll) {
                1
            } else {
                seeds
            };
            for seed in 0..seeds {
                check(run, cut, &disk, damage, seed << 32 | cut as u64, &worker);
                images += 1;
            }
        }
    }
    images
}

#[test]
fn a_power_cut_at_any_call_leaves_a_prefix_with_all_that_was_durable() {
    let mut images = 0;
    for seed in 0..4 {
        images += check_all(&run(seed, 1, 1, 60, &MemoryDevice::new()), 2);
    }
    assert!(images > 2_000, "{images} images");
    println!("{images} images");
}

#[test]
fn a_power_cut_in_a_later_session_keeps_the_earlier_ones() {
    let mut images = 0;
    for seed in 100..104 {
        images += check_all(&run(seed, 3, 1, 20, &MemoryDevice::new()), 2);
    }
    assert!(images > 1_000, "{images} images");
    println!("{images} images");
}

#[test]
fn a_power_cut_under_four_threads_leaves_a_prefix_with_all_that_was_durable() {
    let mut images = 0;
    for seed in 200..202 {
        images += check_all(&run(seed, 1, 4, 15, &MemoryDevice::new()), 2);
    }
    assert!(images > 1_000, "{images} images");
    println!("{images} images");
}

/// The restart after a power cut is itself cut, at every call.
#[test]
fn a_power_cut_during_restart_changes_nothing() {
    let worker = Workers::new().worker();
    let first = run(300, 1, 1, 60, &MemoryDevice::new());
    let mut images = 0;
    for (cut, disk) in first.recording.disks().enumerate().step_by(7) {
        for damage in Damage::ALL
            .into_iter()
            .filter(|damage| !damage.harms_durable())
        {
            let image = disk.crash(damage, cut as u64);
            let (found_first, recording) = restart(&image);
            for (second_cut, second) in recording.disks().enumerate() {
                for second_damage in [Damage::DropAll, Damage::Reordered, Damage::Garbage] {
                    let image = Arc::new(second.crash(second_damage, cut as u64));
                    let say = || {
                        format!(
                            "{}; cut at {cut}, {damage}; then at {second_cut}, {second_damage}",
                            first.name
                        )
                    };
                    let (log, _, found) =
                        open(image).unwrap_or_else(|error| panic!("{error}\n{}", say()));
                    assert_eq!(found, found_first, "{}", say());
                    log.insert(&worker, 1, &[b"on"]).unwrap();
                    images += 1;
                }
            }
        }
    }
    assert!(images > 1_000, "{images} images");
    println!("{images} images");
}

/// The end lies in a segment that has successors. These must be removed durably before the segment
/// with the end is replaced, or they would show it to be damaged.
#[test]
fn a_power_cut_while_segments_behind_the_end_are_removed_changes_nothing() {
    let device = FaultDevice::new();
    let worker = Workers::new().worker();
    let (log, ..) = open(Arc::new(device.clone())).unwrap();
    let end = log.insert(&worker, 1, &[&[1; 1000]]).unwrap();
    log.wait_durable(&worker, end).unwrap();
    let torn = log.insert(&worker, 2, &[&[2; 10_000]]).unwrap();
    let image = device.crash(Damage::KeepAll, 0);
    std::mem::forget(log);
    let last = image.open("log-0000000000002000").unwrap();
    last.write_at(&[3], 4096 + torn.bytes() - 8192 - 20)
        .unwrap();
    let (found, recording) = restart(&image);
    assert_eq!(found.last().map(|entry| entry.end), Some(end));
    for (cut, disk) in recording.disks().enumerate() {
        for damage in [Damage::Prefix, Damage::Subset, Damage::Reordered] {
            for seed in 0..50 {
                let again = read(&disk.crash(damage, seed))
                    .unwrap_or_else(|error| panic!("{error}: {cut}, {damage}, seed {seed}"));
                assert_eq!(again.1, found, "cut at {cut}, {damage}, seed {seed}");
            }
        }
    }
}

/// Restarts, and returns the records found and every change that the restart made.
fn restart(image: &MemoryDevice) -> (Vec<Entry>, Recording) {
    let device = FaultDevice::holding(image);
    device.record();
    let (log, _, found) = open(Arc::new(device.clone())).unwrap();
    let recording = device.recording().unwrap();
    drop(log);
    (found, recording)
}

#[test]
fn written_records_are_found_by_the_next_process_without_any_sync() {
    let device = FaultDevice::new();
    let worker = Workers::new().worker();
    let (log, ..) = open(Arc::new(device.clone())).unwrap();
    let end = log.insert(&worker, 3, &[b"handed over"]).unwrap();
    log.wait_written(&worker, end).unwrap();
    assert!(log.durable() < end);
    let (summary, found) = read(&device).unwrap();
    assert_eq!((summary.end, found.len()), (end, 1));
}

#[test]
fn a_power_cut_while_a_database_is_made_leaves_a_whole_superblock_or_none() {
    let device = FaultDevice::new();
    device.record();
    let made = Superblock::new(IDENTITY);
    made.create(&device).unwrap();
    let recording = device.recording().unwrap();
    for (cut, disk) in recording.disks().enumerate() {
        for damage in Damage::ALL {
            for seed in 0..20 {
                let image = disk.crash(damage, seed);
                match Superblock::read(&image) {
                    Ok(found) => assert_eq!(found, made),
                    Err(SuperblockError::Missing) => {
                        assert!(
                            cut < recording.len(),
                            "made, and lost: {damage}, seed {seed}"
                        );
                        made.create(&image).expect("it can be made after all");
                    }
                    Err(error) => panic!("cut at {cut}, {damage}, seed {seed}: {error}"),
                }
            }
        }
    }
}
