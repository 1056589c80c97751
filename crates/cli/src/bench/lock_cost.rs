//! `foxton bench lock-cost`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use foxton::{LatchKind, LockManagerKind};
use foxton_lab::{
    bench::lock_cost,
    figure::lock_memory,
    progress::Audience,
    system::{Locks, System},
};

use super::results::{command_line, finish};
use crate::{
    output::{results_place, say},
    seconds::seconds,
};

/// The arguments of `bench lock-cost`.
#[derive(Debug, Args)]
#[command(after_help = "\
Instructions per lock and release are counted by valgrind's callgrind, where it is installed:

  foxton bench lock-cost --instructions

Examples:
  foxton bench lock-cost
      every lock manager, and no locks
  foxton bench lock-cost --locks bucket --latch tas-t,parking --seconds 0.5
      one lock manager over two latches")]
pub(crate) struct LockCost {
    /// Lock managers to compare, separated by commas [default: each in its default form, and
    /// global and bucket over each latch].
    #[arg(long, value_delimiter = ',')]
    pub(crate) locks: Vec<Locks>,
    /// Latches to compare under each lock manager [default: all under those named by --locks].
    #[arg(long, value_delimiter = ',')]
    pub(crate) latch: Vec<LatchKind>,
    /// Numbers of clients, separated by commas. With locking off each has a database of its own.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) mpl: Vec<u32>,
    /// Seconds measured for each line of the table and repetition.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of times each line is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Rows of each table.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(2_000..=10_000_000))]
    pub(crate) rows: u32,
    /// Also count instructions, with callgrind.
    #[arg(long)]
    pub(crate) instructions: bool,
    /// Directory for the measured databases.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Directory for the results [default: results/lock-cost-TIME].
    #[arg(long, value_parser = results_place)]
    pub(crate) out: Option<PathBuf>,
    /// Only lock and release this many times and print nothing; callgrind counts its instructions.
    #[arg(long, hide = true)]
    pub(crate) bare: Option<u64>,
    /// Only take this many locks and print three numbers, the manager's memory.
    #[arg(long, hide = true)]
    pub(crate) held: Option<usize>,
}

/// Measures.
pub(crate) fn run(arguments: LockCost) -> Result<ExitCode, String> {
    let latches = match arguments.latch.as_slice() {
        [] => LatchKind::PLAIN.to_vec(),
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
            let memory = lock_memory::in_this_process(system, locks);
            say!("{} {} {}", memory.idle, memory.held, memory.counted);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let program = std::env::current_exe();
    let program = program.map_err(|error| {
        format!("the program could not find its own file ({error}); leave --instructions out")
    })?;
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
    finish("lock-cost", arguments.out, findings)
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
