//! `foxton bench fairness`: readers granted before waiting writers, and the longest waits.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use foxton_lab::{
    bench::{
        fairness::{self, Settings},
        storm,
    },
    progress::Audience,
    report::{
        number::{duration_us, grouped},
        table::Table,
    },
    system::Locks,
};

use crate::{
    output::{note, show},
    seconds::seconds,
};

/// The arguments of `bench fairness`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench fairness
      every lock manager
  foxton bench fairness --locks sharded,sharded:fifo --readers 64
      two grant orders compared, with more readers")]
pub(crate) struct Fairness {
    /// Lock managers, separated by commas [default: all].
    #[arg(long, value_delimiter = ',')]
    pub(crate) locks: Vec<Locks>,
    /// Number of reading threads.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) readers: u32,
    /// Number of writing threads.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) writers: u32,
    /// Seconds of each run.
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of times each is run.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Seed of the locks that readers take elsewhere.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Runs, checks, and shows a table.
pub(crate) fn run(arguments: &Fairness) -> Result<ExitCode, String> {
    let locks = match arguments.locks.as_slice() {
        [] => storm::all_locks(),
        some => some.to_vec(),
    };
    let settings = Settings {
        locks,
        readers: arguments.readers,
        writers: arguments.writers,
        window: Duration::from_secs_f64(arguments.seconds),
        least: 10,
        reps: arguments.reps,
        seed: arguments.seed,
    };
    let mut table = Table::new([
        "readers",
        "locks",
        "reads",
        "writes",
        "write waits",
        "overtaken",
        "most in one wait",
        "bound",
        "longest write wait",
        "longest read wait",
    ]);
    let found = fairness::run(&settings, Audience::here());
    for found in found.map_err(|error| error.to_string())? {
        let kind = if found.awaited { "awaited" } else { "plain" };
        table.row([
            kind.to_owned(),
            found.locks,
            grouped(found.reads as f64),
            grouped(found.writes as f64),
            grouped(found.waits as f64),
            grouped(found.passed_waits as f64),
            found.passed.to_string(),
            found.bound.to_string(),
            duration_us(found.longest_write.as_secs_f64() * 1e6),
            duration_us(found.longest_read.as_secs_f64() * 1e6),
        ]);
    }
    show(&table.render());
    if cfg!(debug_assertions) {
        note!("note: built without optimisation, so do not compare these numbers; use --release");
    }
    Ok(ExitCode::SUCCESS)
}
