//! Cost of locking: the same transactions without and with locks, and a lock and its release alone.
//!
//! There are three questions, all without conflicts:
//!
//! 1. How much slower is a transaction with locks? Read-only txbench runs with locking off and then
//!   over each lock manager and latch, interleaved, with one client and with two. With locking off
//!   each client has a database of its own, because such a database runs one transaction at a time.
//! 2. How many nanoseconds do a lock and its release take? An owner locks n keys in S mode and then
//!   releases all, over and over, for several n, in a warm cache.
//! 3. How many instructions do they take? callgrind counts two runs of
//!   [`bare`](crate::bench::lock_cost::bare) of different length; the difference excludes the start
//!   of the program.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use foxton::Durability;
use serde_json::{Value, json};

use super::{
    alone::Alone,
    apart::Apart,
    by_held, callgrind,
    error::BenchError,
    loaded::{Load, Loaded},
    sweep::Sweep,
};
use crate::{
    driver::Plan,
    measure::{
        curve::{Curve, Point},
        machine::Machine,
        spread::Spread,
    },
    progress::Audience,
    report::{
        findings::{Block, Findings},
        number::grouped,
        table::Table,
    },
    system::System,
    workload::txbench::Shape,
};

/// Settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The systems to compare with no locking, which is added.
    pub systems: Vec<System>,
    /// Numbers of clients.
    pub mpls: Vec<u32>,
    /// Time of each measurement of transactions; those of locks alone take a tenth of it.
    pub window: Duration,
    /// Number of times everything is measured.
    pub reps: u32,
    /// Rows of each table.
    pub rows: u32,
    /// The program to run under callgrind with [`bare`]'s arguments; `None` to count no
    /// instructions.
    pub instructions: Option<PathBuf>,
    /// Parent directory of the databases; if `None`, the system's directory for temporary files.
    pub directory: Option<PathBuf>,
    /// The command that repeats it.
    pub command: String,
}

/// Index of ten in [`by_held::HELD`].
const TEN: usize = 1;
const _: () = assert!(by_held::HELD[TEN] == 10);
/// Locks of a round of [`bare`]: those of a transaction of txbench.
const BARE_LOCKS: usize = 10;
const RAMP: Duration = Duration::from_millis(200);
const GRACE: Duration = Duration::from_secs(300);

/// Loads, measures, and reports.
///
/// # Errors
///
/// If the databases cannot be made, or callgrind was asked for and cannot be run.
pub fn run(settings: &Settings, audience: Audience) -> Result<Findings, BenchError> {
    let mut systems = vec![System::without_locking()];
    systems.extend(
        settings
            .systems
            .iter()
            .filter(|system| system.is_locking())
            .cloned(),
    );
    let mut curves = transactions(settings, &systems, audience)?;
    let locking = &systems[1..];
    let progress = audience.count(
        "locks alone",
        by_held::steps(locking, settings.reps),
        "measurements",
    );
    let alone = by_held::nanos(locking, settings.reps, settings.window / 10, &progress);
    drop(progress);
    let instructions = match &settings.instructions {
        Some(program) => {
            let counted = locking
                .iter()
                .map(|system| instructions(program, system, audience));
            counted
                .map(|count| count.map(Some))
                .collect::<Result<Vec<_>, _>>()?
        }
        None => vec![None; locking.len()],
    };
    let cost = cost_table(&mut curves);
    let lock = alone_table(locking, &mut curves[1..], &alone, &instructions);
    let nanos = by_held::block(locking, &alone, "");
    Ok(findings(settings, curves, vec![cost, lock, nanos]))
}

fn transactions(
    settings: &Settings,
    systems: &[System],
    audience: Audience,
) -> Result<Vec<Curve>, BenchError> {
    let shape = Shape {
        rows: settings.rows,
        ..Shape::usual()
    };
    let load = Load {
        shape: &shape,
        durability: Durability::Buffered,
        stamp: false,
        plant: false,
        directory: settings.directory.as_deref(),
        runs: None,
    };
    let mut mpls = settings.mpls.clone();
    mpls.sort_unstable();
    mpls.dedup();
    let subject = |system: &System| {
        let databases = match system.is_locking() {
            true => 1,
            false => mpls.last().copied().unwrap_or(1),
        };
        let loaded = (0..databases).map(|_| Loaded::new(system.clone(), &load, audience));
        loaded.collect::<Result<_, _>>().map(Apart::new)
    };
    let mut subjects: Vec<Apart> = systems.iter().map(subject).collect::<Result<_, _>>()?;
    let plan = Plan {
        ramp: RAMP.min(settings.window),
        window: settings.window,
        slice: None,
        grace: GRACE,
    };
    let sweep = Sweep {
        mpls,
        reps: settings.reps,
        plan,
        split: false,
    };
    Ok(sweep.run(&mut subjects, audience))
}

/// Locks ten keys and releases them, `rounds` times, for callgrind to count.
pub fn bare(system: &System, rounds: u64) {
    let mut bench = Alone::new(system.manager(), BARE_LOCKS);
    (0..rounds).for_each(|_| bench.round(BARE_LOCKS));
}

/// Instructions per lock and release, by callgrind.
fn instructions(program: &Path, system: &System, audience: Audience) -> Result<f64, BenchError> {
    audience.say(&format!("counting instructions of {system}"));
    let arguments = |rounds: u64| {
        let (rounds, manager) = (rounds.to_string(), system.manager_name());
        let latch = system.latch_name();
        let mut arguments = vec!["bench", "lock-cost", "--bare", &rounds, "--locks", &manager];
        if latch != "-" {
            arguments.extend(["--latch", &latch]);
        }
        arguments.into_iter().map(str::to_owned).collect()
    };
    let round = callgrind::a_round(program, arguments, "leave --instructions out")?;
    Ok(round / BARE_LOCKS as f64)
}

/// Share of the throughput without locks that a system keeps, pass by pass.
fn kept(point: &Point, without: Option<&Point>) -> Spread {
    let passes = without.map_or(&[][..], |without| &without.runs);
    let ratios = point.runs.iter().zip(passes);
    Spread::new(ratios.map(|(with, without)| with.tps() / without.tps().max(1e-9)))
}

fn cost_table(curves: &mut [Curve]) -> Block {
    let mut table = Table::new([
        "locks",
        "clients",
        "transactions/s",
        "min..max",
        "share of locking",
        "÷ none",
    ]);
    let without = curves
        .first()
        .map_or(Vec::new(), |none| none.points.clone());
    for curve in curves.iter_mut() {
        for point in &curve.points {
            let none = without.iter().find(|none| none.mpl == point.mpl);
            let (tps, kept) = (point.tps(), kept(point, none));
            let each = f64::from(point.mpl) * 1e6 / tps.median().max(1e-9);
            if point.mpl == 1 {
                curve.facts.extend([
                    ("micros_per_transaction", json!(each)),
                    ("share_of_locking", json!(1.0 - kept.median())),
                ]);
            }
            let two_digits = |ratio: f64| format!("{ratio:.2}");
            let dash = |text: String| match curve.lock_manager.as_str() {
                "none" => "-".to_owned(),
                _ => text,
            };
            table.row([
                curve.label(),
                point.mpl.to_string(),
                grouped(tps.median()),
                format!("{}..{}", grouped(tps.min()), grouped(tps.max())),
                dash(format!("{:.0} %", (1.0 - kept.median()) * 100.0)),
                dash(kept.words(two_digits)),
            ]);
        }
        let kept: Vec<Value> = curve
            .points
            .iter()
            .map(|point| {
                let none = without.iter().find(|none| none.mpl == point.mpl);
                let kept = kept(point, none);
                json!({"mpl": point.mpl, "median": kept.median(), "min": kept.min(), "max": kept.max()})
            })
            .collect();
        curve.facts.push(("throughput_against_none", json!(kept)));
    }
    Block {
        title: "Cost of locking for a transaction without conflicts".to_owned(),
        note: "Read-only txbench, ten rows. Medians and extremes of the repetitions; ratios to none pass by \
               pass. Without locks each client has a database of its own."
            .to_owned(),
        table,
    }
}

/// A lock and its release by a lock manager alone.
fn alone_table(
    locking: &[System],
    curves: &mut [Curve],
    alone: &[Vec<Spread>],
    instructions: &[Option<f64>],
) -> Block {
    let mut table = Table::new(["locks", "ns", "instructions"]);
    let rows = locking.iter().zip(curves).zip(alone).zip(instructions);
    for (((system, curve), alone), instructions) in rows {
        // Ten locks, as many as one of these transactions holds.
        let nanos = &alone[TEN];
        curve.facts.extend([
            ("nanos_per_lock_and_release", json!(nanos.median())),
            ("instructions_per_lock_and_release", json!(instructions)),
        ]);
        let count = instructions.map_or("-".to_owned(), |count| format!("{count:.0}"));
        let nanos = nanos.words(|nanos| format!("{nanos:.1}"));
        table.row([system.to_string(), nanos, count]);
    }
    Block {
        title: "A lock and its release, alone".to_owned(),
        note: "Ten keys locked and released over and over by a lock manager alone. Nanoseconds are the median \
               (extremes) of the repetitions; callgrind counts instructions with --instructions."
            .to_owned(),
        table,
    }
}

fn findings(settings: &Settings, curves: Vec<Curve>, blocks: Vec<Block>) -> Findings {
    Findings {
        workload: "lock-cost".to_owned(),
        variant: String::new(),
        title: "Cost of locking".to_owned(),
        description:
            "The read-only transactions of txbench, ten rows: with locking off, and over each lock \
             manager and latch; and a lock manager alone."
                .to_owned(),
        checked: "every sum read is compared with the one known from the load, and after each run the rows, \
                  the keys and the values of all tables are too."
            .to_owned(),
        command: settings.command.clone(),
        settings: vec![
            ("rows", json!(settings.rows)),
            ("size", json!(10)),
            ("seconds", json!(settings.window.as_secs_f64())),
            ("reps", json!(settings.reps)),
        ],
        machine: Machine::here(),
        curves,
        timelines: Vec::new(),
        event: None,
        blocks_have_points: true,
        blocks,
    }
}
