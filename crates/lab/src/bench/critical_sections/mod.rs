//! How often a transaction passes a place where it could meet others, for each design of the engine.
//!
//! Each transaction is run so many times over each design, and what its client's own workers passed
//! meanwhile is divided by that number. The engine's threads are counted apart: what they pass is shared
//! by all transactions that come meanwhile, and depends on how many that are. Before it counts, each
//! client runs a while, so that tables were met, buffers have their size, and locks that only the load made
//! real are remembered again.
//!
//! Only a program built with the feature `account` counts.

/// What is compared.
pub mod design;

/// Tables, pictures and records.
pub mod tell;

use std::{
    path::PathBuf,
    sync::{Barrier, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use design::Design;
use foxton::{Database, Durability, inspect::Account};
use foxton_sync::site::COUNTING;

use super::{
    error::BenchError,
    loaded::{Load, Loaded},
    runs::Runs,
    sweep::Subject,
    workload::Prepared,
};
use crate::{
    driver::Client,
    measure::{anatomy::Anatomy, outcome::Outcome},
    progress::Audience,
    workload::{
        contract::Workload,
        tatp::{self, Mix, Tatp},
        tpcb::{Scale, Tpcb},
        txbench::Shape,
    },
};

/// What to count.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The designs.
    pub designs: Vec<Design>,
    /// The workloads: every one that is known if empty.
    pub workloads: Vec<Case>,
    /// Executions counted, by all clients together.
    pub executions: u32,
    /// Numbers of clients.
    pub mpls: Vec<u32>,
    /// Rows of each table of txbench; tpcb has a tenth of that in accounts of each branch.
    pub rows: u32,
    /// What a commit waits for.
    pub durability: Durability,
    /// Where the databases are made; the system's place for temporary files if `None`.
    pub directory: Option<PathBuf>,
    /// Seed of loads and clients.
    pub seed: u64,
}

/// A workload whose transactions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Ten rows read; the same, and then two rows updated.
    Txbench,
    /// The update of a subscriber's location alone; then all seven transactions, as often as they are run.
    Tatp,
    /// Three balances and a row of history.
    Tpcb,
}

foxton_sync::named! {
    Case, "workload":
    Txbench = "txbench",
    Tatp = "tatp",
    Tpcb = "tpcb",
}

/// One transaction over one design.
#[derive(Debug, Clone)]
pub struct Counted {
    /// The design.
    pub design: Design,
    /// The workload.
    pub workload: Case,
    /// The transaction, or what mix of them.
    pub transaction: &'static str,
    /// Clients that ran it side by side.
    pub mpl: u32,
    /// How often it ran.
    pub executions: u64,
    /// Attempts that were ended and made again, because of a deadlock or a wait that was too long.
    pub repeated: u64,
    /// What one of them passed on average.
    pub own: Anatomy,
    /// What the engine's threads passed meanwhile, divided alike.
    pub background: Anatomy,
}

impl Counted {
    /// The workload and the transaction, for people.
    pub fn name(&self) -> String {
        format!("{} {}", self.workload, self.transaction)
    }
}

/// Loads each workload over each design and counts.
///
/// # Errors
///
/// If the program does not count, a database cannot be made, or a transaction fails.
pub fn run(settings: &Settings, audience: Audience) -> Result<Vec<Counted>, BenchError> {
    if !COUNTING {
        return Err(BenchError::Settings(NOT_COUNTING.to_owned()));
    }
    let cases = match settings.workloads.as_slice() {
        [] => Case::ALL.to_vec(),
        some => some.to_vec(),
    };
    let steps = settings.designs.len() * cases.len();
    let progress = audience.count("counting", steps as u64, "workloads");
    let mut counted = Vec::new();
    for case in cases {
        for design in &settings.designs {
            progress.now(&format!("{case} over {}", design.name));
            count_case(settings, case, design, &mut counted)?;
            progress.advance(1);
        }
    }
    Ok(counted)
}

/// What somebody reads whose program does not count.
const NOT_COUNTING: &str = "this program does not count the critical sections it passes: counting is left \
    out of it, so that it costs nothing. From a clone, say: cargo run --release --features account -- \
    bench critical-sections";

fn count_case(
    settings: &Settings,
    case: Case,
    design: &Design,
    counted: &mut Vec<Counted>,
) -> Result<(), BenchError> {
    match case {
        Case::Txbench => {
            let shape = Shape {
                rows: settings.rows,
                seed: settings.seed,
                ..Shape::usual()
            };
            let load = Load {
                shape: &shape,
                durability: settings.durability,
                stamp: false,
                plant: false,
                directory: settings.directory.as_deref(),
                runs: None,
            };
            let mut loaded = Loaded::new(design.system.clone(), &load, Audience::Nobody)?;
            for (transaction, updates) in [("read", 0), ("update", 100)] {
                loaded.reshape(&Shape {
                    updates,
                    ..shape.clone()
                });
                let db = loaded.database().clone();
                count(
                    settings,
                    design,
                    (case, transaction),
                    (&mut loaded, &db),
                    counted,
                )?;
            }
        }
        Case::Tatp => {
            for (transaction, mix) in [("UpdateLocation", Mix::Single), ("full mix", Mix::Full)] {
                let tatp = Tatp::new(tatp::Shape {
                    subscribers: settings.rows,
                    mix,
                    seed: settings.seed,
                    ..tatp::Shape::usual()
                });
                count_workload(settings, design, (case, transaction), &tatp, counted)?;
            }
        }
        Case::Tpcb => {
            let scale = Scale {
                branches: 10,
                accounts_a_branch: (settings.rows / 10).max(1),
            };
            let seed = settings.seed;
            let what = (case, "book");
            count_workload(settings, design, what, &Tpcb { scale, seed }, counted)?;
        }
    }
    Ok(())
}

fn count_workload(
    settings: &Settings,
    design: &Design,
    (case, transaction): (Case, &'static str),
    workload: &dyn Workload,
    counted: &mut Vec<Counted>,
) -> Result<(), BenchError> {
    let runs = runs(settings, design);
    let mut prepared = Prepared::new(workload, &design.system, &runs, Audience::Nobody)?;
    let db = prepared.database().clone();
    count(
        settings,
        design,
        (case, transaction),
        (&mut prepared, &db),
        counted,
    )
}

/// How the databases are made; nothing here goes by time.
fn runs(settings: &Settings, design: &Design) -> Runs {
    Runs {
        systems: vec![design.system.clone()],
        mpls: settings.mpls.clone(),
        reps: 1,
        ramp: Duration::ZERO,
        window: Duration::ZERO,
        durability: settings.durability,
        directory: settings.directory.clone(),
        observe: None,
        keep: true,
        command: String::new(),
    }
}

/// Runs one transaction with each number of clients.
fn count(
    settings: &Settings,
    design: &Design,
    (case, transaction): (Case, &'static str),
    (subject, db): (&mut dyn Subject, &Database),
    counted: &mut Vec<Counted>,
) -> Result<(), BenchError> {
    for &mpl in &settings.mpls {
        let one = run_clients(subject.clients(mpl), db, settings.executions);
        let one = one.and_then(|one| subject.check().map(|()| one));
        let one = one.map_err(|what| BenchError::Wrong {
            doing: format!(
                "{case} {transaction} over {} with {mpl} clients",
                design.name
            ),
            what,
        })?;
        let anatomy = |passed: &Account| Anatomy::new(passed, one.executions);
        counted.push(Counted {
            design: design.clone(),
            workload: case,
            transaction,
            mpl,
            executions: one.executions,
            repeated: one.repeated,
            own: anatomy(&one.own),
            background: anatomy(&one.background),
        });
    }
    Ok(())
}

/// One run, between two looks at the accounts.
struct Ran {
    executions: u64,
    repeated: u64,
    own: Account,
    background: Account,
}

/// How long each client runs before it counts, at least: several times as long as locks that the load made
/// real stay real.
const WARM_UP: Duration = Duration::from_millis(100);

/// Every client runs a while, then all of them together run `executions` transactions. Each runs in one
/// thread from beginning to end, since a thread finds again what it left.
fn run_clients(
    clients: Vec<Box<dyn Client>>,
    db: &Database,
    executions: u32,
) -> Result<Ran, String> {
    let mpl = clients.len();
    let each = u64::from(executions).div_ceil(mpl as u64);
    let meet = Barrier::new(mpl + 1);
    let (failure, repeated) = (Mutex::new(None), Mutex::new(0));
    let run = |mut client: Box<dyn Client>| {
        let began = Instant::now();
        let is_warm = |done| done >= each / 10 && began.elapsed() >= WARM_UP;
        let warmed = run_until(client.as_mut(), is_warm);
        meet.wait(); // Everybody is warm.
        meet.wait(); // The database was looked at.
        let ran = warmed.and_then(|_| run_until(client.as_mut(), |done| done >= each));
        meet.wait(); // Everybody is done.
        match ran {
            Ok(again) => locked(&repeated, |sum| *sum += again),
            Err(what) => locked(&failure, |first| *first = first.take().or(Some(what))),
        }
    };
    let (before, after) = thread::scope(|scope| {
        for client in clients {
            scope.spawn(|| run(client));
        }
        meet.wait();
        let before = db.accounts();
        meet.wait();
        meet.wait();
        (before, db.accounts())
    });
    let repeated = locked(&repeated, |sum| *sum);
    match locked(&failure, Option::take) {
        Some(what) => Err(what),
        None => Ok(Ran {
            executions: each * mpl as u64,
            repeated,
            own: after.0.since(&before.0),
            background: after.1.since(&before.1),
        }),
    }
}

fn locked<T, R>(mutex: &Mutex<T>, body: impl FnOnce(&mut T) -> R) -> R {
    body(&mut mutex.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs transactions until so many are done. Returns how many attempts were made again.
fn run_until(client: &mut dyn Client, is_enough: impl Fn(u64) -> bool) -> Result<u64, String> {
    let (mut done, mut again) = (0, 0);
    while !is_enough(done) {
        let ended = client.transaction();
        if ended.outcome == Outcome::Error {
            return Err(ended.failure.map_or_else(String::new, String::from));
        }
        again += u64::from(ended.deadlocks + ended.timeouts);
        done += 1;
    }
    Ok(again)
}
