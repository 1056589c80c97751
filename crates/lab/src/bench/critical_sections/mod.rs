//! Critical sections that a transaction passes, counted for each design of the engine.
//!
//! Each transaction runs over each design until a given number have committed. The critical
//! sections that its client's workers passed meanwhile are divided by that number. An attempt that
//! did not commit, because of a deadlock or a rollback of the workload, is not an execution. Its
//! critical sections count for those that committed, so they make the average larger, never
//! smaller; the number of such attempts is shown. The engine's own threads are counted separately,
//! because all concurrent transactions share their critical sections. Each client first runs for a
//! while, so that tables are known, buffers have their size, and locks that only the load made real
//! are remembered again.
//!
//! Only a program built with the feature `account` counts.

/// The designs to compare.
pub mod design;

/// Tables, pictures and records.
pub mod tables;

use std::{
    path::PathBuf,
    sync::Barrier,
    time::{Duration, Instant},
};

use design::Design;
use foxton::{Database, Durability, inspect::Account};
use foxton_sync::site::COUNTING;

use super::{
    error::BenchError,
    loaded::{Load, Loaded},
    runs::{Runs, room},
    sweep::Subject,
    workload::Prepared,
};
use crate::{
    driver::Client,
    measure::{anatomy::Anatomy, memory, outcome::Outcome},
    progress::Audience,
    threads::{self, NotStarted},
    workload::{
        contract::Workload,
        tatp::{self, Mix, Tatp},
        tpcb::{Choice, Scale, Tpcb},
        tpcc::{self, Tpcc, client::Manner},
        txbench::{Shape, TABLES, row::ROW_BYTES},
    },
};

/// Settings of the count.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The designs.
    pub designs: Vec<Design>,
    /// The workloads; if empty, all.
    pub workloads: Vec<Case>,
    /// Executions to count, by all clients together.
    pub executions: u32,
    /// Numbers of clients.
    pub mpls: Vec<u32>,
    /// Rows of each table of txbench, and approximate items of tpcc. Accounts of each tpcb branch
    /// and customers of each tpcc district are a tenth of that.
    pub rows: u32,
    /// Durability of commits.
    pub durability: Durability,
    /// Parent directory of the databases; if `None`, the system's directory for temporary files.
    pub directory: Option<PathBuf>,
    /// Seed of loads and clients.
    pub seed: u64,
}

/// A workload whose transactions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Ten rows read; the same, and then two rows updated.
    Txbench,
    /// The update of a subscriber's location alone; then all seven transactions in their usual mix.
    Tatp,
    /// Three balances and a row of history.
    Tpcb,
    /// An order or a payment, equally often.
    Tpcc,
}

foxton_sync::named_enum! {
    Case, "workload":
    Txbench = "txbench",
    Tatp = "tatp",
    Tpcb = "tpcb",
    Tpcc = "tpcc",
}

/// One transaction over one design.
#[derive(Debug, Clone)]
pub struct Counted {
    /// The design.
    pub design: Design,
    /// The workload.
    pub workload: Case,
    /// The transaction, or the mix.
    pub transaction: &'static str,
    /// Number of concurrent clients.
    pub mpl: u32,
    /// Number of executions that committed.
    pub executions: u64,
    /// Further attempts that ended with a deadlock or a timeout.
    pub repeated: u64,
    /// Further attempts that the workload rolled back.
    pub refused: u64,
    /// Critical sections of one execution, on average.
    pub own: Anatomy,
    /// Critical sections of the engine's threads meanwhile, divided by the executions.
    pub background: Anatomy,
}

impl Counted {
    /// The workload and the transaction, for a person.
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
    settings.sound().map_err(BenchError::Settings)?;
    settings.room(memory::available_bytes())?;
    if !COUNTING {
        return Err(BenchError::Settings(NOT_COUNTING.to_owned()));
    }
    let cases = settings.cases();
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

/// Message for a program that does not count.
pub(super) const NOT_COUNTING: &str = "this program does not count critical sections, because counting is compiled out \
    to cost nothing. In a clone, use this command instead of foxton: \
    cargo run --release --features account --";

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
        _ => {
            for (transaction, workload) in case.workloads(settings) {
                let workload = workload.as_ref();
                count_workload(settings, design, (case, transaction), workload, counted)?;
            }
        }
    }
    Ok(())
}

impl Case {
    /// Its transactions, each with a workload that runs only it. Those of txbench share their
    /// tables, and are not among these.
    fn workloads(self, settings: &Settings) -> Vec<(&'static str, Box<dyn Workload>)> {
        let (seed, tenth) = (settings.seed, (settings.rows / 10).max(1));
        match self {
            Case::Txbench => Vec::new(),
            Case::Tatp => {
                let mixes = [
                    ("UpdateLocation", Mix::UPDATE_LOCATION),
                    ("full mix", Mix::Full),
                ];
                let of = |(transaction, mix)| {
                    let tatp: Box<dyn Workload> = Box::new(Tatp::new(tatp::Shape {
                        subscribers: settings.rows,
                        mix,
                        seed,
                        ..tatp::Shape::usual()
                    }));
                    (transaction, tatp)
                };
                mixes.into_iter().map(of).collect()
            }
            Case::Tpcb => {
                let bank = Tpcb {
                    scale: Scale {
                        branches: 10,
                        accounts_a_branch: tenth,
                    },
                    choice: Choice::Remote,
                    seed,
                };
                vec![("book", Box::new(bank))]
            }
            Case::Tpcc => {
                let full = tpcc::Scale::full(1);
                let scale = tpcc::Scale {
                    customers: tenth.min(full.customers),
                    items: settings.rows.min(full.items),
                    ..full
                };
                let tpcc = Tpcc {
                    scale,
                    manner: Manner::usual(tpcc::client::Mix::NewOrderPayment),
                    seed,
                };
                vec![("NewOrder and Payment", Box::new(tpcc))]
            }
        }
    }
}

impl Settings {
    /// The workloads of the settings.
    fn cases(&self) -> Vec<Case> {
        match self.workloads.as_slice() {
            [] => Case::ALL.to_vec(),
            some => some.to_vec(),
        }
    }

    /// Checks that they agree with each other.
    fn sound(&self) -> Result<(), String> {
        if self.executions == 0 || self.mpls.is_empty() || self.mpls.contains(&0) {
            let what = "without an execution and a client nothing is counted; give 1 or more";
            return Err(what.to_owned());
        }
        match self.designs.iter().all(|design| design.system.is_locking()) {
            true => Ok(()),
            false => {
                Err("without locks there is nothing to compare; name designs that lock".to_owned())
            }
        }
    }

    /// Checks that each database fits into the free memory. There is one at a time.
    fn room(&self, free: Option<u64>) -> Result<(), BenchError> {
        for case in self.cases() {
            if case == Case::Txbench {
                let rows = u64::from(self.rows) * TABLES.len() as u64;
                room(1, rows, ROW_BYTES as u64, free)?;
            }
            for (_, workload) in case.workloads(self) {
                workload.sound().map_err(BenchError::Settings)?;
                let size = workload.size();
                room(1, size.rows, size.row_bytes, free)?;
            }
        }
        Ok(())
    }
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

/// The settings of the databases; nothing here is timed.
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
        split: false,
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
        let one = run_clients(subject.clients(mpl), db, settings.executions)?;
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
            repeated: one.besides.repeated,
            refused: one.besides.refused,
            own: anatomy(&one.own),
            background: anatomy(&one.background),
        });
    }
    Ok(())
}

/// One run, between two readings of the counters.
struct Ran {
    executions: u64,
    besides: Besides,
    own: Account,
    background: Account,
}

/// Attempts that did not commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Besides {
    repeated: u64,
    refused: u64,
}

/// Least time that each client runs before it counts: several times as long as locks that the load
/// made real stay real.
const WARM_UP: Duration = Duration::from_millis(100);

/// Every client runs for a while; then all run until `executions` have committed. Each client runs
/// in one thread, because a thread's state is reused.
fn run_clients(
    clients: Vec<Box<dyn Client>>,
    db: &Database,
    executions: u32,
) -> Result<Result<Ran, String>, NotStarted> {
    let mpl = clients.len();
    let each = u64::from(executions).div_ceil(mpl as u64);
    let meet = &Barrier::new(mpl + 1);
    let run = |mut client: Box<dyn Client>| {
        move || {
            let began = Instant::now();
            let is_warm = |done| done >= each / 10 && began.elapsed() >= WARM_UP;
            let warmed = run_until(client.as_mut(), is_warm);
            meet.wait(); // Everybody is warm.
            meet.wait(); // The database was looked at.
            let ran = warmed.and_then(|_| run_until(client.as_mut(), |done| done >= each));
            meet.wait(); // Everybody is done.
            ran
        }
    };
    let look = || {
        meet.wait();
        let before = db.accounts();
        meet.wait();
        meet.wait();
        (before, db.accounts())
    };
    let clients = clients.into_iter().map(run).collect();
    let (ran, (before, after)) = threads::together(clients, look)?;
    let mut besides = Besides::default();
    for one in ran {
        match one {
            Ok(one) => {
                besides.repeated += one.repeated;
                besides.refused += one.refused;
            }
            Err(what) => return Ok(Err(what)),
        }
    }
    Ok(Ok(Ran {
        executions: each * mpl as u64,
        besides,
        own: after.0.since(&before.0),
        background: after.1.since(&before.1),
    }))
}

/// Runs transactions until enough have committed. Returns the attempts that did not.
fn run_until(client: &mut dyn Client, is_enough: impl Fn(u64) -> bool) -> Result<Besides, String> {
    let (mut done, mut besides) = (0, Besides::default());
    while !is_enough(done) {
        let ended = client.transaction();
        besides.repeated += u64::from(ended.deadlocks + ended.timeouts + ended.overwritten);
        match ended.outcome {
            Outcome::Ok | Outcome::Miss => done += 1,
            Outcome::Deadlock | Outcome::Timeout | Outcome::Overwritten => besides.repeated += 1,
            Outcome::Rule => besides.refused += 1,
            Outcome::Error => return Err(ended.failure.map_or_else(String::new, String::from)),
        }
    }
    Ok(besides)
}

#[cfg(test)]
mod tests {
    use foxton::Options;

    use super::*;
    use crate::measure::outcome::Ended;

    fn settings(rows: u32) -> Settings {
        Settings {
            designs: Design::all(),
            workloads: Vec::new(),
            executions: 10,
            mpls: vec![1],
            rows,
            durability: Durability::None,
            directory: None,
            seed: 1,
        }
    }

    /// Of four attempts one commits; the last of four was retried twice before.
    struct Unlucky(u32);
    impl Client for Unlucky {
        fn transaction(&mut self) -> Ended {
            self.0 += 1;
            let ended = |outcome| Ended {
                outcome,
                ..Ended::ok(0)
            };
            match self.0 % 4 {
                1 => ended(Outcome::Deadlock),
                2 => ended(Outcome::Rule),
                3 => ended(Outcome::Timeout),
                _ => Ended {
                    deadlocks: 2,
                    ..Ended::ok(0)
                },
            }
        }
    }

    #[test]
    fn only_a_commit_is_an_execution_and_other_attempts_are_counted_apart() {
        let besides = run_until(&mut Unlucky(0), |done| done >= 10);
        let expected = Besides {
            repeated: 10 * (2 + 2),
            refused: 10,
        };
        assert_eq!(besides, Ok(expected));
        let db = Database::in_memory(Options::tiny()).unwrap();
        let clients = (0..3).map(|_| Box::new(Unlucky(0)) as Box<dyn Client>);
        let ran = run_clients(clients.collect(), &db, 10).unwrap().unwrap();
        assert_eq!(ran.executions, 12);
        // After the warm-up, a client may be at any of the four attempts.
        assert!((9..=12).contains(&ran.besides.refused));
        assert!((42..=48).contains(&ran.besides.repeated));
    }

    #[test]
    fn an_error_ends_the_count_and_every_client_comes_back() {
        struct Fails;
        impl Client for Fails {
            fn transaction(&mut self) -> Ended {
                Ended {
                    outcome: Outcome::Error,
                    failure: Some("row 7 is gone".into()),
                    ..Ended::ok(0)
                }
            }
        }
        let db = Database::in_memory(Options::tiny()).unwrap();
        let clients: Vec<Box<dyn Client>> = vec![Box::new(Unlucky(0)), Box::new(Fails)];
        let failed = run_clients(clients, &db, 4).unwrap().err();
        assert_eq!(failed.as_deref(), Some("row 7 is gone"));
    }

    #[test]
    fn databases_that_do_not_fit_are_refused_before_anything_is_loaded() {
        assert!(settings(10_000).room(None).is_ok());
        assert!(settings(10_000).room(Some(1 << 30)).is_ok());
        for case in Case::ALL {
            let settings = Settings {
                workloads: vec![case],
                ..settings(10_000_000)
            };
            let refused = settings.room(Some(64 << 20)).unwrap_err();
            assert!(
                matches!(refused, BenchError::Memory { .. }),
                "{case}: {refused}"
            );
        }
        let nobody = Settings {
            mpls: vec![0],
            ..settings(400)
        };
        let refused = run(&nobody, Audience::Nobody).unwrap_err();
        assert!(matches!(&refused, BenchError::Settings(what) if what.contains("a client")));
    }

    #[test]
    fn every_case_has_transactions_of_its_own() {
        for case in Case::ALL {
            let count = case.workloads(&settings(400)).len();
            let expected = [0, 2, 1, 1][case as usize];
            assert_eq!(count, expected, "{case}");
        }
    }
}
