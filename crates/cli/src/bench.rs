//! `foxton bench`: run an experiment, show it, write it down.

/// `foxton bench restart`.
mod restart;

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use foxton::{Durability, LatchKind, LockManagerKind, LogBufferKind};
use foxton_lab::{
    bench::{commit, lock_cost, lock_only, log_insert, runs::Runs, tpcb, txbench},
    figure::held,
    measure::machine::Machine,
    progress::Audience,
    report::{self, findings::Findings, terminal},
    system::{Locks, System},
    workload::{tpcb::Scale, txbench::Shape},
};

use crate::{
    arguments::{Bench, Commit, LockCost, LockOnly, LogInsert, Sweep, Tpcb, Txbench},
    output::{say, show},
};

/// Runs the experiment asked for.
pub(crate) fn run(what: Bench) -> Result<ExitCode, String> {
    match what {
        Bench::Txbench(arguments) => run_txbench(arguments),
        Bench::Tpcb(arguments) => run_tpcb(arguments),
        Bench::Commit(arguments) => run_commit(arguments),
        Bench::LockCost(arguments) => run_lock_cost(arguments),
        Bench::LockOnly(arguments) => run_lock_only(arguments),
        Bench::Restart(arguments) => restart::run(&arguments),
        Bench::LogInsert(arguments) => run_log_insert(arguments),
    }
}

fn run_txbench(mut arguments: Txbench) -> Result<ExitCode, String> {
    let out = arguments.sweep.out.take();
    let findings = txbench::run(&settings(arguments), Audience::here());
    finish(
        "txbench",
        out,
        &findings.map_err(|error| error.to_string())?,
    )
}

fn settings(arguments: Txbench) -> txbench::Settings {
    let stalled = arguments.stalled;
    txbench::Settings {
        shape: Shape {
            rows: arguments.rows,
            // The parsers admit nothing but numbers.
            size: arguments.size.parse().unwrap_or(10),
            updates: arguments.updates.parse().unwrap_or(0),
            hotspot: arguments.hotspot,
            unordered: arguments.unordered,
            seed: arguments.sweep.seed,
        },
        stalled,
        stamp: arguments.stamp,
        runs: runs(arguments.sweep, stalled),
        plant: arguments.plant,
    }
}

fn run_tpcb(mut arguments: Tpcb) -> Result<ExitCode, String> {
    let out = arguments.sweep.out.take();
    let settings = tpcb::Settings {
        scale: Scale {
            branches: arguments.branches,
            accounts_a_branch: arguments.accounts,
        },
        seed: arguments.sweep.seed,
        runs: runs(arguments.sweep, false),
    };
    let findings = tpcb::run(&settings, Audience::here());
    finish("tpcb", out, &findings.map_err(|error| error.to_string())?)
}

fn run_commit(arguments: Commit) -> Result<ExitCode, String> {
    let settings = commit::Settings {
        compared: commit::Variant::usual(&arguments.durability),
        runs: Runs {
            systems: System::all(&[Locks::Default], &[]),
            mpls: arguments.mpl,
            reps: arguments.reps,
            ramp: Duration::from_secs_f64(arguments.ramp),
            window: Duration::from_secs_f64(arguments.seconds),
            durability: Durability::Sync,
            directory: arguments.dir,
            observe: None,
            command: command_line(),
        },
    };
    let findings = commit::run(&settings, Audience::here());
    finish(
        "commit",
        arguments.out,
        &findings.map_err(|error| error.to_string())?,
    )
}

fn runs(sweep: Sweep, stalled: bool) -> Runs {
    let systems = System::with_victims(compared(&sweep, stalled), &sweep.victim);
    let systems = System::with_log_buffers(systems, &sweep.log_buffer);
    let systems = System::with_turns(systems, &sweep.turn);
    let mpls = match (sweep.mpl.as_slice(), stalled) {
        ([], true) => vec![200],
        ([], false) => (0..10).map(|step| 1 << step).collect(),
        (some, _) => some.to_vec(),
    };
    let reps = sweep.reps.unwrap_or(3);
    let ramp = Duration::from_secs_f64(sweep.ramp);
    let window = match (sweep.seconds, stalled) {
        (Some(seconds), _) => Duration::from_secs_f64(seconds),
        (None, true) => STALLED_WINDOW,
        (None, false) => window((systems.len() * mpls.len()) as u32 * reps, ramp),
    };
    let runs = Runs {
        systems,
        mpls,
        reps,
        ramp,
        window,
        durability: sweep.durability,
        directory: sweep.dir,
        observe: sweep.observe,
        command: command_line(),
    };
    let watched: Vec<PathBuf> = runs
        .systems
        .iter()
        .filter_map(|system| runs.watched(system))
        .collect();
    if !watched.is_empty() {
        eprintln!("From another terminal, while this runs:");
    }
    for directory in watched {
        eprintln!("  foxton top {}", directory.display());
    }
    runs
}

const STALLED_WINDOW: Duration = Duration::from_secs(100);
/// All windows of a sweep together, ramps included.
const BUDGET: Duration = Duration::from_secs(150);
const LEAST_WINDOW: Duration = Duration::from_millis(300);
const MOST_WINDOW: Duration = Duration::from_millis(1_900);

/// What is compared: what was asked for, or all there is.
fn compared(sweep: &Sweep, stalled: bool) -> Vec<System> {
    match (sweep.locks.as_slice(), stalled) {
        ([], true) => System::all(&[Locks::Default], &sweep.latch),
        ([], false) => System::all(&Locks::usual(), &sweep.latch),
        (some, _) => System::all(some, &sweep.latch),
    }
}

/// The time of each measurement, if there are so many.
fn window(points: u32, ramp: Duration) -> Duration {
    let share = (BUDGET / points.max(1)).saturating_sub(ramp);
    share.clamp(LEAST_WINDOW, MOST_WINDOW)
}

/// Shows the findings, writes them down, and says whether they count.
fn finish(workload: &str, out: Option<PathBuf>, findings: &Findings) -> Result<ExitCode, String> {
    show(&terminal::text(findings));
    write(
        findings,
        &out.unwrap_or_else(|| fresh_directory(workload, findings)),
    )?;
    Ok(verdict(findings))
}

fn run_lock_cost(arguments: LockCost) -> Result<ExitCode, String> {
    let latches = match arguments.latch.as_slice() {
        [] => LatchKind::ALL.to_vec(),
        some => some.to_vec(),
    };
    let systems = match arguments.locks.as_slice() {
        [] => every_cost(&latches),
        some => System::all(some, &latches),
    };
    if let Some(rounds) = arguments.bare {
        systems
            .iter()
            .for_each(|system| lock_cost::bare(system, rounds));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(locks) = arguments.held {
        for system in &systems {
            let memory = held::here(system, locks);
            say!("{} {} {}", memory.idle, memory.held, memory.counted);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let program = std::env::current_exe();
    let program = program.map_err(|error| format!("this program does not find itself: {error}"))?;
    let settings = lock_cost::Settings {
        systems,
        mpls: arguments.mpl,
        window: Duration::from_secs_f64(arguments.seconds),
        reps: arguments.reps,
        rows: arguments.rows,
        instructions: arguments.instructions.then_some(program),
        directory: arguments.dir,
        command: command_line(),
    };
    let findings = lock_cost::run(&settings, Audience::here());
    finish(
        "lock-cost",
        arguments.out,
        &findings.map_err(|error| error.to_string())?,
    )
}

fn run_lock_only(arguments: LockOnly) -> Result<ExitCode, String> {
    let all = || {
        let kinds = LockManagerKind::ALL.into_iter();
        let kinds = kinds.filter(|&kind| kind != LockManagerKind::Reference);
        kinds.map(Locks::Manager).collect()
    };
    let locks = match arguments.locks {
        none if none.is_empty() => all(),
        some => some,
    };
    let settings = lock_only::Settings {
        seed: arguments.seed,
        runs: Runs {
            systems: System::all(&locks, &arguments.latch),
            mpls: arguments.mpl,
            reps: arguments.reps,
            ramp: Duration::from_secs_f64(arguments.ramp),
            window: Duration::from_secs_f64(arguments.seconds),
            durability: Durability::None,
            directory: None,
            observe: None,
            command: command_line(),
        },
    };
    let findings = lock_only::run(&settings, Audience::here());
    finish(
        "lock-only",
        arguments.out,
        &findings.map_err(|error| error.to_string())?,
    )
}

fn run_log_insert(arguments: LogInsert) -> Result<ExitCode, String> {
    let buffers = match arguments.log_buffer {
        none if none.is_empty() => LogBufferKind::DELEGATED.to_vec(),
        some => some,
    };
    if let Some(inserts) = arguments.bare {
        buffers
            .iter()
            .for_each(|&buffer| log_insert::bare(buffer, inserts));
        return Ok(ExitCode::SUCCESS);
    }
    let settings = log_insert::Settings {
        buffers,
        threads: arguments.threads,
        bytes: arguments.bytes,
        reps: arguments.reps,
        ramp: Duration::from_secs_f64(arguments.ramp),
        window: Duration::from_secs_f64(arguments.seconds),
        command: command_line(),
    };
    let findings = log_insert::run(&settings, Audience::here());
    finish(
        "log-insert",
        arguments.out,
        &findings.map_err(|error| error.to_string())?,
    )
}

/// `global` and `bucket` over each latch, and the other managers over their own.
fn every_cost(latches: &[LatchKind]) -> Vec<System> {
    let latched = [LockManagerKind::Global, LockManagerKind::Bucket].map(Locks::Manager);
    let mut systems = System::all(&latched, latches);
    let others = Locks::usual()
        .into_iter()
        .filter(|locks| !latched.contains(locks));
    systems.extend(System::all(&others.collect::<Vec<_>>(), &[]));
    systems
}

/// The command as it was given, as somebody would type it again.
pub(crate) fn command_line() -> String {
    let words = std::env::args()
        .skip(1)
        .map(|word| match word.contains([' ', '\'', '"', '\\']) {
            true => format!("'{}'", word.replace('\'', "'\\''")),
            false => word,
        });
    std::iter::once("foxton".to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

fn fresh_directory(workload: &str, findings: &Findings) -> PathBuf {
    let mut name = format!(
        "{workload}-{}-{}",
        findings.variant,
        moment(&findings.machine)
    );
    name = name.trim_matches('-').replace("--", "-");
    Path::new("results").join(name)
}

/// When the run began, as part of a file's name.
pub(crate) fn moment(machine: &Machine) -> String {
    machine.started.replace([':', '-'], "").replace(' ', "-")
}

fn write(findings: &Findings, directory: &Path) -> Result<(), String> {
    tell(report::write(findings, directory), directory)
}

/// Says what was written.
pub(crate) fn tell(written: io::Result<Vec<PathBuf>>, directory: &Path) -> Result<(), String> {
    let written = written.map_err(|error| {
        format!(
            "the results cannot be written to {} ({error}): name another place with --out",
            directory.display()
        )
    })?;
    say!("\nWritten:");
    for path in written {
        say!("  {}", path.display());
    }
    Ok(())
}

fn verdict(findings: &Findings) -> ExitCode {
    judged(&findings.machine, findings.failure())
}

/// The exit code for what was found, with a word about numbers that do not count.
pub(crate) fn judged(machine: &Machine, failure: Option<String>) -> ExitCode {
    if !machine.optimised {
        eprintln!(
            "note: built without optimisation, so these are not numbers to compare: use --release"
        );
    }
    match failure {
        None => ExitCode::SUCCESS,
        Some(what) => {
            eprintln!("error: a check failed, so the numbers are void: {what}");
            ExitCode::FAILURE
        }
    }
}
