//! What locking costs: the same transactions without locks and with, and a lock and its release
//! alone.
//!
//! Three questions, one client, nobody conflicting:
//!
//! 1. How much slower is a transaction for its locks? Read-only txbench with locking off, then over
//!    each lock manager and latch, interleaved.
//! 2. How many nanoseconds are a lock and its release? An owner asks for n keys in S mode and then
//!    releases all, over and over, for several n; warm.
//! 3. How many instructions? callgrind counts two runs of [`bare`](crate::bench::lock_cost::bare) of different length; their
//!    difference has nothing in it of the start of the program.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use foxton::Durability;
use serde_json::json;

use super::{
    alone::Alone,
    error::BenchError,
    loaded::{Load, Loaded},
    sweep::Sweep,
};
use crate::{
    driver::Plan,
    measure::{curve::Curve, machine::Machine, spread::Spread},
    progress::Audience,
    report::{
        findings::{Block, Findings},
        number::grouped,
        table::Table,
    },
    system::System,
    workload::txbench::Shape,
};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What is compared with no locking; `none` is added by itself.
    pub systems: Vec<System>,
    /// Time of each measurement of transactions; those of locks alone take a tenth.
    pub window: Duration,
    /// Times everything is measured.
    pub reps: u32,
    /// Rows of each table.
    pub rows: u32,
    /// The program to run under callgrind with [`bare`]'s arguments; `None` to leave it.
    pub instructions: Option<PathBuf>,
    /// Where the databases are made; the system's place for temporary files if `None`.
    pub directory: Option<PathBuf>,
    /// The command that does this again.
    pub command: String,
}

/// Numbers of locks held before all are released.
pub(crate) const HELD: [usize; 6] = [1, 10, 100, 500, 1_000, 10_000];
const LARGEST_HELD: usize = HELD[HELD.len() - 1];
/// Locks of a round of [`bare`]: what a transaction of txbench takes.
const BARE_LOCKS: usize = 10;
const RAMP: Duration = Duration::from_millis(200);
const GRACE: Duration = Duration::from_secs(300);

/// Loads, measures, and tells.
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
    let alone = alone(settings, locking, audience);
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
    let cost = cost_table(&mut curves, &alone, &instructions);
    let nanos = nanos_table(locking, &alone);
    Ok(findings(settings, curves, vec![cost, nanos]))
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
    let loaded = systems
        .iter()
        .map(|system| Loaded::new(system.clone(), &load, audience));
    let mut subjects: Vec<Loaded> = loaded.collect::<Result<_, _>>()?;
    let plan = Plan {
        ramp: RAMP,
        window: settings.window,
        slice: None,
        grace: GRACE,
    };
    let sweep = Sweep {
        mpls: vec![1],
        reps: settings.reps,
        plan,
    };
    Ok(sweep.run(&mut subjects, audience))
}

/// Nanoseconds per lock and release: for each system, for each of [`HELD`].
fn alone(settings: &Settings, systems: &[System], audience: Audience) -> Vec<Vec<Spread>> {
    let each = settings.window / 10;
    let steps = systems.len() * HELD.len() * settings.reps as usize;
    let progress = audience.count("locks alone", steps as u64, "measurements");
    let mut benches: Vec<Alone> = systems
        .iter()
        .map(|system| Alone::new(system.manager(), LARGEST_HELD))
        .collect();
    let mut nanos = vec![vec![Vec::new(); HELD.len()]; systems.len()];
    for _ in 0..settings.reps {
        for (at, &held) in HELD.iter().enumerate() {
            for (bench, nanos) in benches.iter_mut().zip(&mut nanos) {
                nanos[at].push(bench.nanos_a_lock(held, each));
                progress.advance(1);
            }
        }
    }
    nanos
        .into_iter()
        .map(|by_held| by_held.into_iter().map(Spread::new).collect())
        .collect()
}

/// Locks ten keys and releases them, `rounds` times, and nothing else: what callgrind watches.
pub fn bare(system: &System, rounds: u64) {
    let mut bench = Alone::new(system.manager(), BARE_LOCKS);
    (0..rounds).for_each(|_| bench.round(BARE_LOCKS));
}

/// Instructions per lock and release, by callgrind.
fn instructions(program: &Path, system: &System, audience: Audience) -> Result<f64, BenchError> {
    const SHORT: u64 = 1_000;
    const LONG: u64 = 11_000;
    audience.say(&format!("counting instructions of {system}"));
    let (short, long) = (
        count(program, system, SHORT)?,
        count(program, system, LONG)?,
    );
    Ok((long - short) / ((LONG - SHORT) as f64 * BARE_LOCKS as f64))
}

fn count(program: &Path, system: &System, rounds: u64) -> Result<f64, BenchError> {
    let refuse = |what: String| {
        BenchError::Settings(format!(
            "instructions cannot be counted: install valgrind, or leave --instructions out. {what}"
        ))
    };
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program);
    command.args(["bench", "lock-cost", "--bare", &rounds.to_string()]);
    command.args(["--locks", &system.manager_name()]);
    if system.latch_name() != "-" {
        command.args(["--latch", &system.latch_name()]);
    }
    let output = command
        .output()
        .map_err(|error| refuse(format!("It does not run: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(refuse(format!("The program failed under it:\n{said}")));
    }
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    collected
        .and_then(|(_, number)| number.trim().parse().ok())
        .ok_or_else(|| refuse(format!("What it said cannot be read:\n{said}")))
}

fn cost_table(curves: &mut [Curve], alone: &[Vec<Spread>], instructions: &[Option<f64>]) -> Block {
    let mut table = Table::new([
        "locks",
        "transactions/s",
        "µs each",
        "of it locking",
        "against none",
        "ns per lock + release",
        "instructions",
    ]);
    let tps = |curve: &Curve| {
        curve
            .points
            .first()
            .map_or(0.0, |point| point.tps().median())
    };
    let micros = |curve: &Curve| 1e6 / tps(curve).max(1e-9);
    let without = curves.first().map_or(0.0, micros);
    for (index, curve) in curves.iter_mut().enumerate() {
        let each = micros(curve);
        let (share, ratio) = (1.0 - without / each, without / each);
        let locking = index.checked_sub(1);
        // Ten locks: what one of these transactions holds.
        let nanos = locking.map(|at| alone[at][1].median());
        let count = locking.and_then(|at| instructions[at]);
        curve.facts = vec![
            ("micros_per_transaction", json!(each)),
            ("share_of_locking", json!(share)),
            ("throughput_against_none", json!(ratio)),
            ("nanos_per_lock_and_release", json!(nanos)),
            ("instructions_per_lock_and_release", json!(count)),
        ];
        let dash = || "-".to_owned();
        table.row([
            curve.label(),
            grouped(tps(curve)),
            format!("{each:.2}"),
            if index == 0 {
                dash()
            } else {
                format!("{:.0} %", share * 100.0)
            },
            format!("{ratio:.2}"),
            nanos.map_or_else(dash, |nanos| format!("{nanos:.1}")),
            count.map_or_else(dash, |count| format!("{count:.0}")),
        ]);
    }
    Block {
        title: "What locking costs a transaction that meets nobody".to_owned(),
        note: "Read-only txbench, ten rows, one client. The last columns are ten keys locked and \
               released by a lock manager alone, warm."
            .to_owned(),
        table,
    }
}

fn nanos_table(systems: &[System], alone: &[Vec<Spread>]) -> Block {
    let mut table = Table::new([
        "locks",
        "1 held",
        "10",
        "100",
        "500",
        "1,000",
        "10,000 held",
    ]);
    for (system, by_held) in systems.iter().zip(alone) {
        let cell = |spread: &Spread| {
            format!(
                "{:.1} ({:.1}..{:.1})",
                spread.median(),
                spread.min(),
                spread.max()
            )
        };
        table.row(std::iter::once(system.to_string()).chain(by_held.iter().map(cell)));
    }
    Block {
        title: "Nanoseconds per lock and its release, by locks held at once".to_owned(),
        note: "Shared locks on keys, median and extremes of the repetitions.".to_owned(),
        table,
    }
}

fn findings(settings: &Settings, curves: Vec<Curve>, blocks: Vec<Block>) -> Findings {
    Findings {
        workload: "lock-cost".to_owned(),
        variant: String::new(),
        title: "What locking costs".to_owned(),
        description:
            "The read-only transactions of txbench, ten rows, by one client: with locking \
                      switched off, and over each lock manager and latch. And a lock manager alone."
                .to_owned(),
        checked: "every sum read is compared with the one known from the load; after each run the \
                  rows, the keys and the sums of all tables."
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
        blocks,
    }
}
