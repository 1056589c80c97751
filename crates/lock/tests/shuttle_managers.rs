//! Longer histories than the model checker can explore, on every manager: four threads, each with a
//! few transactions, in random schedules.
//!
//! Loom tries every interleaving of two or three steps and knows memory orderings. Here one thread
//! runs at a time and its writes are visible at once. But a thread may be descheduled between any
//! two operations on shared memory, for a random time, in the middle of conversions, deadlocks,
//! cancellations and revocations. The test shows what the contract says of whole histories:
//!
//! * an exclusive holder of a name is alone, and no writer is among those who share (L1);
//! * all threads end: if a wake-up were lost, all would sleep, and the scheduler reports that (L4,
//!   L6);
//! * nothing is left behind (L3, L7), and the invariants of the manager hold.
//!
//! Half of the seeds draw each step, half give threads priorities that change a few times
//! (Burckhardt et al., 2010), which finds faults that need a few steps in an unlikely order. They
//! learn from one history how long the next may be, so a seed stands for several. A failure prints
//! the manager and the seed: `FOXTON_SEED=7 just shuttle` plays those alone. The clock chooses
//! between equal victims, so a history may still differ from run to run.
#![cfg(shuttle)]

use foxton_lock::{
    any::{AnyManager, Inheritance, ManagerKind, Options},
    manager::LockManager,
    mode::{GapPart, KeyPart, Mode},
    name::{KeyHasher, Name},
    owner::Owner,
    request::{Outcome, Reply, WaitMode},
};
use foxton_sync::{
    latch,
    shim::{Arc, AtomicU64, Ordering::Relaxed, thread},
    worker::{Worker, Workers},
};
use shuttle::{
    Config, Runner,
    rand::{RngCore, thread_rng},
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};
use std::{env, time::Instant};

const THREADS: usize = 4;
const TRANSACTIONS: u64 = 3;
const LOCKS: u64 = 3;
const KEYS: usize = 3;
/// Seeds for each manager, and histories for each seed.
const SEEDS: u64 = 24;
const HISTORIES: usize = 30;
/// Changes of priority in a schedule.
const CHANGES: usize = 4;

const TABLE: Name = Name::table(1);
/// Added by a writer to the count of those inside.
const WRITER: u64 = 1 << 32;

struct World {
    locks: AnyManager,
    names: [Name; KEYS],
    inside: [AtomicU64; KEYS],
}

impl World {
    fn new(options: &Options) -> Self {
        let hasher = KeyHasher::new(1);
        Self {
            locks: AnyManager::new(options),
            names: std::array::from_fn(|key| Name::key(1, &[key as u8], &hasher)),
            inside: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Runs under the locks of `owner`: it is inside for each key that it holds.
    fn work(&self, owner: &Owner) {
        let held = |key: usize| owner.held_mode(self.names[key]).map(Mode::key_part);
        let weight = |key: usize| match held(key) {
            Some(KeyPart::X) => WRITER,
            Some(KeyPart::S | KeyPart::U) => 1,
            _ => 0,
        };
        for key in 0..KEYS {
            let before = self.inside[key].fetch_add(weight(key), Relaxed);
            match weight(key) {
                0 => {}
                WRITER => assert_eq!(before, 0, "L1: a writer is not alone"),
                _ => assert!(before < WRITER, "L1: a reader beside a writer"),
            }
        }
        thread::yield_now();
        for key in 0..KEYS {
            self.inside[key].fetch_sub(weight(key), Relaxed);
        }
    }

    /// Returns true if it got all locks that it requested.
    fn transaction(&self, worker: &Worker, owner: &mut Owner) -> bool {
        let table = match worker.random_below(8) {
            0 => Mode::S,
            1..4 => Mode::IS,
            _ => Mode::IX,
        };
        if !self.lock(worker, owner, TABLE, table) {
            return false;
        }
        for _ in 0..LOCKS {
            let name = self.names[worker.random_below(KEYS as u64) as usize];
            let mode = match (table, worker.random_below(4)) {
                (Mode::IX, 0) => Mode::key(KeyPart::U, GapPart::None),
                (Mode::IX, 1 | 2) => Mode::X,
                (_, 3) => Mode::key(KeyPart::S, GapPart::S),
                _ => Mode::S,
            };
            if !self.lock(worker, owner, name, mode) {
                return false;
            }
        }
        self.work(owner);
        true
    }

    fn lock(&self, worker: &Worker, owner: &mut Owner, name: Name, mode: Mode) -> bool {
        let reply = match worker.random_below(8) {
            0 => return self.locks.try_lock(worker, owner, name, mode).is_held(),
            _ => self
                .locks
                .request(worker, owner, name, mode, WaitMode::Wait),
        };
        match reply {
            Reply::Granted | Reply::Held => true,
            Reply::Refused(_) | Reply::Skipped => false,
            Reply::Waiting => match worker.random_below(8) {
                0 => {
                    self.locks.cancel(worker, owner);
                    false
                }
                // A deadline that has passed: the first thread to end the wait decides.
                1 => {
                    let now = Some(Instant::now());
                    matches!(self.locks.wait(worker, owner, now), Outcome::Granted)
                }
                _ => self.locks.wait(worker, owner, None).is_held(),
            },
        }
    }
}

/// Runs one history.
fn history(options: &Options) {
    let world = Arc::new(World::new(options));
    let workers = Workers::with_seed(thread_rng().next_u64());
    let client = |_| {
        let (world, worker) = (world.clone(), workers.worker());
        thread::spawn(move || {
            let mut owner = world.locks.owner();
            for _ in 0..TRANSACTIONS {
                owner.begin();
                world.transaction(&worker, &mut owner);
                world.locks.release_all(&worker, &mut owner);
            }
        })
    };
    let clients: Vec<_> = (0..THREADS).map(client).collect();
    for client in clients {
        client.join().expect("a client that ends");
    }
    let worker = workers.worker();
    world.locks.verify(&worker);
    let left = world.locks.inspect(&worker);
    assert!(left.queues.is_empty(), "L7: left behind\n{left}");
}

/// Prints what failed.
struct Playing<'o>(&'o Options, u64);

impl Drop for Playing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(options, seed) = self;
            eprintln!(
                "FOXTON_SEED={seed}: {} over {}, inheritance {}",
                options.kind, options.latch, options.inherit
            );
        }
    }
}

fn play(kind: ManagerKind, inherit: Inheritance) {
    let chosen = env::var("FOXTON_SEED").ok();
    let chosen = chosen.map(|seed| seed.parse().expect("FOXTON_SEED is a number"));
    let seeds = chosen.map_or(0..SEEDS, |seed| seed..seed + 1);
    for seed in seeds {
        let mut options = Options::tiny();
        (options.kind, options.inherit, options.own_threads) = (kind, inherit, true);
        let latches = latch::Kind::PLAIN;
        options.latch = latches[seed as usize / 2 % latches.len()];
        let playing = Playing(&options, seed);
        match seed % 2 {
            0 => run(RandomScheduler::new_from_seed(seed, HISTORIES), &options),
            _ => {
                let scheduler = PctScheduler::new_from_seed(seed, CHANGES, HISTORIES);
                run(scheduler, &options);
            }
        }
        drop(playing);
    }
}

fn run(scheduler: impl Scheduler + 'static, options: &Options) {
    let mut config = Config::new();
    // A manager's tables are made on it before they go to the heap, unless the build is optimised
    // across crates.
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    let options = options.clone();
    Runner::new(scheduler, config).run(move || history(&options));
}

macro_rules! managers {
    ($($test:ident: $kind:ident,)+) => {$(
        #[test]
        fn $test() {
            play(ManagerKind::$kind, Inheritance::Off);
        }
    )+};
}

managers! {
    histories_of_reference: Reference,
    histories_of_global: Global,
    histories_of_bucket: Bucket,
    histories_of_sharded: Sharded,
    histories_of_sharded_fifo: ShardedFifo,
    histories_of_sharded_global_latch: ShardedGlobalLatch,
    histories_of_direct: Direct,
    histories_of_direct_fifo: DirectFifo,
    histories_of_direct_table: DirectTable,
    histories_of_staged: Staged,
    histories_of_staged_paper: StagedPaper,
    histories_of_staged_oldest: StagedOldest,
}

#[test]
fn histories_with_inheritance() {
    for kind in [
        ManagerKind::Bucket,
        ManagerKind::Sharded,
        ManagerKind::Staged,
        ManagerKind::Direct,
    ] {
        play(kind, Inheritance::Always);
    }
}
