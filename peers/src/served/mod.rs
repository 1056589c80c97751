//! The same transactions on database servers, over a local socket, beside ours in the process.
//!
//! Passes are interleaved as in `speed`. In each pass every engine is started in an empty folder,
//! loaded, and run with each number of clients; after each its tables are held against what was
//! committed. A server also parses and plans a statement and passes it through a socket. That is
//! part of the measurement: the tables show the throughput that a program gets, not that of the
//! engine alone.

/// Contract of an engine.
mod contract;

/// The transactions.
mod workloads;

/// The statements.
mod sql;

/// A server of our own.
mod server;

/// Ours.
mod ours;

/// PostgreSQL.
mod postgres;

/// MariaDB.
mod mariadb;

use crate::{
    Outcome, arguments,
    driver::{self, Draw, Load, Worker},
    rows::mix,
    speed::Durability,
    told::{Run, Spread, commit, machine, print_aligned, rate},
};
use clap::{Args, ValueEnum};
use contract::{Engine, Session, Stop};
use postgres::Given;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use workloads::Workload;

/// Engines and workloads to measure.
#[derive(Debug, Clone, Args)]
pub(crate) struct Plan {
    /// Only these engines.
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "foxton,postgres,mariadb"
    )]
    engines: Vec<Kind>,
    /// Only these workloads.
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "txbench,tpcb,sysbench"
    )]
    workloads: Vec<Workload>,
    /// Numbers of clients.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64", value_parser = arguments::clients)]
    mpl: Vec<usize>,
    /// Durability of a commit.
    #[arg(long, value_enum, default_value = "buffered")]
    durability: Durability,
    /// How often everything is measured.
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u64).range(1..))]
    passes: u64,
    /// How long each number of clients is measured, in seconds.
    #[arg(long, default_value = "3", value_parser = arguments::seconds)]
    seconds: f64,
    /// How long clients run before that, in seconds.
    #[arg(long, default_value = "1", value_parser = arguments::seconds)]
    warm: f64,
    /// Seed of the random choices.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Where the databases lie [/dev/shm if there is one and nothing is synced, else the system's
    /// temporary folder].
    #[arg(long)]
    folder: Option<PathBuf>,
    #[command(flatten)]
    postgres: Given,
    /// Where the figures go as JSON.
    #[arg(long, default_value = "results/peers-served/results.json")]
    results: PathBuf,
}

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Foxton,
    Postgres,
    Mariadb,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Foxton => "foxton",
            Kind::Postgres => "postgres",
            Kind::Mariadb => "mariadb",
        }
    }

    fn settings(self, durability: Durability, given: &Given) -> String {
        match self {
            Kind::Foxton => ours::settings(durability),
            Kind::Postgres => postgres::settings(durability, given),
            Kind::Mariadb => mariadb::settings(durability),
        }
    }

    /// Starts it under `folder`, and loads the workload.
    fn load(
        self,
        folder: &Path,
        durability: Durability,
        given: &Given,
        workload: Workload,
    ) -> Outcome<Box<dyn Engine>> {
        let (shapes, row) = (workload.tables(), |table, id| workload.row(table, id));
        Ok(match self {
            Kind::Foxton => Box::new(ours::Ours::load(folder, durability, &shapes, &row)?),
            Kind::Postgres => Box::new(postgres::Postgres::load(
                folder, durability, given, &shapes, &row,
            )?),
            Kind::Mariadb => Box::new(mariadb::Mariadb::load(folder, durability, &shapes, &row)?),
        })
    }
}

/// Measurements of one engine with one number of clients, one for each pass.
struct Point {
    workload: Workload,
    kind: Kind,
    clients: usize,
    runs: Vec<Run>,
}

/// Measures, prints and writes.
pub(crate) fn run(plan: &Plan) -> Outcome {
    arguments::more_files()?;
    let folder = arguments::folder(plan.folder.as_deref(), plan.durability == Durability::Sync);
    println!("{}", machine());
    println!(
        "commit {}; {} passes of {} s after {} s, seed {}; durability {}; files in {}",
        commit(),
        plan.passes,
        plan.seconds,
        plan.warm,
        plan.seed,
        plan.durability.name(),
        folder.display()
    );
    for kind in &plan.engines {
        let settings = kind.settings(plan.durability, &plan.postgres);
        println!("{:>9}: {settings}", kind.name());
    }
    let mut points = Vec::new();
    for pass in 0..plan.passes {
        for &workload in &plan.workloads {
            let mut order = plan.engines.clone();
            order.rotate_left(pass as usize % plan.engines.len().max(1));
            for kind in order {
                let of = |error| format!("{}, {}: {error}", kind.name(), workload.name());
                eprintln!("pass {}: {}, {}", pass + 1, workload.name(), kind.name());
                measure(plan, &folder, (workload, kind), pass, &mut points).map_err(of)?;
            }
        }
    }
    print(plan, &points);
    if let Some(parent) = plan.results.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(&plan.results, json_of(plan, &folder, &points))?;
    println!("{}", plan.results.display());
    Ok(())
}

/// One engine, from the empty folder to what is in its tables at the end.
fn measure(
    plan: &Plan,
    folder: &Path,
    (workload, kind): (Workload, Kind),
    pass: u64,
    points: &mut Vec<Point>,
) -> Outcome {
    let place = tempfile::Builder::new()
        .prefix("foxton-served-")
        .tempdir_in(folder)?;
    // Only Foxton's files go there: a server makes a folder of its own, which may have another
    // owner.
    let parent = match kind {
        Kind::Foxton => place.path(),
        Kind::Postgres | Kind::Mariadb => folder,
    };
    let engine = kind.load(parent, plan.durability, &plan.postgres, workload)?;
    let loads: Result<Vec<Load>, _> = plan
        .mpl
        .iter()
        .map(|&clients| load(plan, clients, pass))
        .collect();
    sweep(engine.as_ref(), workload, &loads?, &mut |load, run| {
        let same = |point: &&mut Point| {
            (point.workload, point.kind, point.clients) == (workload, kind, load.clients)
        };
        match points.iter_mut().find(same) {
            Some(point) => point.runs.push(run),
            None => points.push(Point {
                workload,
                kind,
                clients: load.clients,
                runs: vec![run],
            }),
        }
    })
}

fn load(plan: &Plan, clients: usize, pass: u64) -> Outcome<Load> {
    Ok(Load {
        clients,
        warm: Duration::try_from_secs_f64(plan.warm)?,
        measured: Duration::try_from_secs_f64(plan.seconds)?,
        seed: mix(plan.seed ^ mix(pass)),
    })
}

/// Runs `loads` on an engine fresh from loading, and after each holds its tables against what was
/// committed.
fn sweep(
    engine: &dyn Engine,
    workload: Workload,
    loads: &[Load],
    add: &mut dyn FnMut(&Load, Run),
) -> Outcome {
    let (numbers, mut committed) = (AtomicU64::new(1), 0);
    for load in loads {
        let (count, took) = driver::run(load, &|client| {
            Ok(Box::new(Asked {
                session: engine.session()?,
                workload,
                draw: Draw::new(load.seed, client),
                drawn: Draw::new(load.seed, client),
                numbers: &numbers,
                number: 0,
            }))
        })?;
        committed += count.changes;
        add(load, Run { count, took });
        let tables = 0..workload.tables().len();
        let found: Outcome<Vec<_>> = tables.map(|table| engine.totals(table)).collect();
        workload.check(&found?, committed)?;
    }
    Ok(())
}

/// A client of a workload.
struct Asked<'s> {
    session: Box<dyn Session + 's>,
    workload: Workload,
    /// Where the next transaction is drawn from.
    draw: Draw,
    /// Where this one was: each attempt draws the same.
    drawn: Draw,
    /// Numbers that no two transactions have.
    numbers: &'s AtomicU64,
    number: u64,
}

impl Asked<'_> {
    fn transaction(&mut self) -> Result<(), Stop> {
        self.session.begin()?;
        self.draw = self.drawn.clone();
        self.workload
            .run(self.session.as_mut(), &mut self.draw, self.number)?;
        self.session.commit()
    }
}

impl Worker for Asked<'_> {
    fn draw(&mut self) {
        self.drawn = self.draw.clone();
        // Relaxed: the number leads to no memory.
        self.number = self.numbers.fetch_add(1, Relaxed);
    }

    fn attempt(&mut self) -> Outcome<Option<u64>> {
        match self.transaction() {
            Ok(()) => Ok(Some(1)),
            Err(Stop::GaveWay) => {
                self.session.undo()?;
                Ok(None)
            }
            Err(Stop::Failed(error)) => Err(error),
        }
    }
}

/// A table for each workload, in Markdown.
fn print(plan: &Plan, points: &[Point]) {
    for &workload in &plan.workloads {
        println!(
            "\n{}: {}; durability {}; transactions/s, median (least to greatest)\n",
            workload.name(),
            workload.about(),
            plan.durability.name()
        );
        let mut rows = vec![vec!["engine".to_owned()]];
        rows[0].extend(plan.mpl.iter().map(|mpl| format!("{mpl} clients")));
        rows[0].push("refused per 1,000".to_owned());
        for &kind in &plan.engines {
            let of = |point: &&Point| (point.workload, point.kind) == (workload, kind);
            let mut row = vec![format!("`{}`", kind.name())];
            row.extend(points.iter().filter(of).map(|point| rate(spread(point))));
            let refused = points.iter().filter(of).map(refused).fold(0.0, f64::max);
            row.push(format!("{refused:.1}"));
            rows.push(row);
        }
        print_aligned(&rows);
    }
}

fn spread(point: &Point) -> Spread {
    Spread::of(point.runs.iter().map(Run::rate))
}

/// Attempts that gave way for 1,000 transactions.
fn refused(point: &Point) -> f64 {
    let sum = |of: fn(&Run) -> u64| point.runs.iter().map(of).sum::<u64>();
    let committed = sum(|run| run.count.committed).max(1);
    1_000.0 * sum(|run| run.count.refused) as f64 / committed as f64
}

fn json_of(plan: &Plan, folder: &Path, points: &[Point]) -> String {
    let settings: serde_json::Map<String, Value> = plan
        .engines
        .iter()
        .map(|kind| {
            (
                kind.name().to_owned(),
                kind.settings(plan.durability, &plan.postgres).into(),
            )
        })
        .collect();
    let point = |point: &Point| {
        json!({
            "workload": point.workload.name(),
            "engine": point.kind.name(),
            "clients": point.clients,
            "median_per_s": spread(point).median,
            "per_s": point.runs.iter().map(Run::rate).collect::<Vec<f64>>(),
            "refused_per_1000": refused(point),
        })
    };
    let all = json!({
        "run": "peers-served",
        "machine": machine(),
        "commit": commit(),
        "folder": folder.display().to_string(),
        "durability": plan.durability.name(),
        "passes": plan.passes,
        "measured_s": plan.seconds,
        "warm_s": plan.warm,
        "seed": plan.seed,
        "settings": settings,
        "points": points.iter().map(point).collect::<Vec<Value>>(),
    });
    format!("{all:#}\n")
}

#[cfg(test)]
mod tests;
