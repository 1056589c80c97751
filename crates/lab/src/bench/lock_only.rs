//! The lock manager alone, with many threads.
//!
//! A transaction takes IS on a table and S on ten random keys of 100,000, and releases all. Nothing
//! conflicts, no data is read, no log is written. The rest is the cost of the manager, and of
//! contention between its threads.
//!
//! The numbers of Berkeley DB's lock manager for the same work stand beside it for orientation;
//! they were measured at another time.

use std::{fmt, sync::Arc};

use foxton_lock::{
    any::AnyManager,
    manager::LockManager,
    mode::Mode,
    name::{KeyHasher, Name},
    owner::Owner,
};
use foxton_sync::worker::{Worker, Workers};
use serde_json::json;

use super::{
    error::BenchError,
    runs::Runs,
    sweep::{Subject, Sweep},
};
use crate::{
    driver::Client,
    measure::{curve::Curve, machine::Machine, outcome::Ended},
    progress::Audience,
    report::{
        findings::{Block, Findings},
        number::grouped,
        table::Table,
    },
    system::System,
};

/// Settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Seed of the clients.
    pub seed: u64,
    /// The systems to compare, and the runs. Durability and directory are not used.
    pub runs: Runs,
}

/// Keys to choose from, and keys of each transaction.
const KEYS: u64 = 100_000;
const KEYS_A_TRANSACTION: usize = 10;
const TABLE: u32 = 1;

/// Clients, and transactions a second of Berkeley DB's lock manager.
const PEER: [(u32, f64); 3] = [(1, 409_000.0), (2, 213_000.0), (512, 131_000.0)];

/// Locks held at once to measure the memory of one.
const HELD: u64 = 100_000;

/// Measures the managers.
///
/// # Errors
///
/// If the settings contradict each other.
pub fn run(settings: &Settings, audience: Audience) -> Result<Findings, BenchError> {
    let runs = settings.runs.tidied(0, 0)?;
    let mut subjects: Vec<Alone> = runs
        .systems
        .iter()
        .filter(|system| system.is_locking())
        .map(|system| Alone::new(system, settings.seed))
        .collect();
    let sweep = Sweep {
        mpls: runs.mpls.clone(),
        reps: runs.reps,
        plan: runs.plan(),
        split: runs.split,
    };
    let memory: Vec<Memory> = subjects.iter().map(|subject| subject.memory()).collect();
    let mut curves = sweep.run(&mut subjects, audience);
    for (curve, memory) in curves.iter_mut().zip(&memory) {
        curve.facts = vec![
            ("idle_bytes", json!(memory.idle)),
            ("bytes_per_held_lock", json!(memory.per_lock)),
        ];
    }
    let mut listed = vec![
        ("keys", json!(KEYS)),
        ("keys_per_transaction", json!(KEYS_A_TRANSACTION)),
        ("seed", json!(settings.seed)),
    ];
    listed.extend(runs.listed());
    Ok(Findings {
        workload: "lock-only".to_owned(),
        variant: String::new(),
        title: "The lock manager alone".to_owned(),
        description:
            "A transaction takes IS on a table and S on ten random keys of 100,000, and releases \
                      all. There is no other work and no wait."
                .to_owned(),
        checked: "after each run no lock is held, and the manager's own invariants hold."
            .to_owned(),
        command: runs.command.clone(),
        settings: listed,
        machine: Machine::here(),
        blocks: vec![beside_the_peer(&curves), memory_table(&curves, &memory)],
        curves,
        timelines: Vec::new(),
        event: None,
        blocks_have_points: true,
    })
}

/// One lock manager, and its workers.
struct Alone {
    shared: Arc<Shared>,
    names: (String, String),
    note: String,
}

struct Shared {
    manager: AnyManager,
    hasher: KeyHasher,
    workers: Workers,
}

impl fmt::Debug for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alone")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Alone {
    fn new(system: &System, seed: u64) -> Alone {
        Alone {
            shared: Arc::new(Shared::new(system, seed)),
            names: (system.manager_name(), system.latch_name()),
            note: system.note(),
        }
    }

    /// Memory of the manager without locks, and for each of many locks of one owner.
    fn memory(&self) -> Memory {
        let worker = self.shared.workers.worker();
        let manager = &self.shared.manager;
        let mut owner = manager.owner();
        let idle = manager.stats(&worker).memory_bytes;
        for key in 0..HELD {
            let name = self.shared.key(key);
            let outcome = manager.lock(&worker, &mut owner, name, Mode::S, None);
            assert!(outcome.is_held(), "there is no other owner");
        }
        let full = manager.stats(&worker).memory_bytes + owner.memory_bytes();
        manager.release_all(&worker, &mut owner);
        Memory {
            idle,
            per_lock: full.saturating_sub(idle) as f64 / HELD as f64,
        }
    }
}

impl Shared {
    fn new(system: &System, seed: u64) -> Shared {
        Shared {
            manager: system.manager(),
            hasher: KeyHasher::new(1),
            workers: Workers::with_seed(seed),
        }
    }

    fn key(&self, key: u64) -> Name {
        Name::key(TABLE, &key.to_be_bytes(), &self.hasher)
    }
}

/// Memory of one manager.
#[derive(Debug, Clone, Copy)]
struct Memory {
    idle: usize,
    per_lock: f64,
}

struct LockClient {
    shared: Arc<Shared>,
    worker: Worker,
    owner: Owner,
}

impl Client for LockClient {
    fn transaction(&mut self) -> Ended {
        let Self {
            shared,
            worker,
            owner,
        } = self;
        let manager = &shared.manager;
        owner.begin();
        let mut held = manager
            .lock(worker, owner, Name::table(TABLE), Mode::IS, None)
            .is_held();
        for _ in 0..KEYS_A_TRANSACTION {
            let name = shared.key(worker.random_below(KEYS));
            held &= manager.lock(worker, owner, name, Mode::S, None).is_held();
        }
        manager.release_all(worker, owner);
        assert!(held, "nothing here conflicts");
        Ended::ok(0)
    }
}

impl Subject for Alone {
    fn names(&self) -> (String, String) {
        self.names.clone()
    }

    fn note(&self) -> String {
        self.note.clone()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["lock and release"]
    }

    fn clients(&mut self, mpl: u32) -> Vec<Box<dyn Client>> {
        let client = |_| {
            let client = LockClient {
                shared: self.shared.clone(),
                worker: self.shared.workers.worker(),
                owner: self.shared.manager.owner(),
            };
            Box::new(client) as Box<dyn Client>
        };
        (0..mpl).map(client).collect()
    }

    fn check(&mut self) -> Result<(), String> {
        let worker = self.shared.workers.worker();
        self.shared.manager.verify(&worker);
        let left = self.shared.manager.inspect(&worker);
        match left.queues.len() {
            0 => Ok(()),
            count => Err(format!("{count} names are still locked\n{left}")),
        }
    }

    fn diagnose(&self) -> String {
        let worker = self.shared.workers.worker();
        self.shared.manager.inspect(&worker).to_string()
    }
}

fn beside_the_peer(curves: &[Curve]) -> Block {
    let mut table = Table::new(["locks", "clients", "transactions/s", "Berkeley DB", "times"]);
    for curve in curves {
        for (mpl, peer) in PEER {
            let Some(point) = curve.points.iter().find(|point| point.mpl == mpl) else {
                continue;
            };
            let tps = point.tps();
            table.row([
                curve.label(),
                mpl.to_string(),
                grouped(tps.median()),
                grouped(peer),
                tps.words(|tps| format!("{:.1}", tps / peer)),
            ]);
        }
    }
    Block {
        title: "Beside another lock manager".to_owned(),
        note: "Berkeley DB's lock subsystem with the same eleven locks, measured at another time; for \
               orientation only."
            .to_owned(),
        table,
    }
}

fn memory_table(curves: &[Curve], memory: &[Memory]) -> Block {
    let mut table = Table::new(["locks", "idle bytes", "bytes per held lock"]);
    for (curve, memory) in curves.iter().zip(memory) {
        table.row([
            curve.label(),
            grouped(memory.idle as f64),
            format!("{:.0}", memory.per_lock),
        ]);
    }
    Block {
        title: "Memory".to_owned(),
        note: "Idle with one owner; then the additional bytes of 100,000 locks of one owner on as many names, \
               counted by the manager and the owner's list."
            .to_owned(),
        table,
    }
}
