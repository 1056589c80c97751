//! `foxton bench storm`: many threads that want the same few names.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use foxton::VictimPolicy;
use foxton_lab::{
    bench::storm::{self, Settings, Storm},
    progress::Audience,
    report::{
        number::{duration_us, grouped},
        table::Table,
    },
    system::Locks,
};

use crate::{
    output::{note, say, show},
    seconds::seconds,
};

/// The arguments of `bench storm`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench storm
      every storm, lock manager and victim policy: some minutes
  foxton bench storm --storm every-row --rows 4 --locks direct
      128 threads that write four rows in random order, over the default manager
  foxton bench storm --storm convert,update --victim requester
      readers who then write; with a lock for update there are no deadlocks")]
pub(crate) struct StormArguments {
    /// Storms to run, separated by commas: convert, update, every-row.
    #[arg(long, value_delimiter = ',', default_values_t = Storm::ALL)]
    pub(crate) storm: Vec<Storm>,
    /// Lock managers, separated by commas [default: all].
    #[arg(long, value_delimiter = ',')]
    pub(crate) locks: Vec<Locks>,
    /// Victim of a deadlock, separated by commas: least-work, youngest, requester.
    #[arg(long, value_delimiter = ',', default_values_t = VictimPolicy::ALL)]
    pub(crate) victim: Vec<VictimPolicy>,
    /// Number of threads.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=i64::from(storm::MOST_THREADS)))]
    pub(crate) threads: u32,
    /// Rows that every-row writes.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=i64::from(storm::MOST_ROWS)))]
    pub(crate) rows: u32,
    /// Seconds of each run, 3600 at most.
    #[arg(long, default_value_t = 0.3, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of times each is run.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Retry a victim at once, not after a random pause that grows.
    #[arg(long)]
    pub(crate) at_once: bool,
    /// Seed of the orders.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Runs, checks, and shows a table.
pub(crate) fn run(arguments: &StormArguments) -> Result<ExitCode, String> {
    let locks = match arguments.locks.as_slice() {
        [] => storm::all_locks(),
        some => some.to_vec(),
    };
    let settings = Settings {
        locks,
        victims: arguments.victim.clone(),
        storms: arguments.storm.clone(),
        threads: arguments.threads,
        rows: arguments.rows,
        window: Duration::from_secs_f64(arguments.seconds),
        least: 1,
        reps: arguments.reps,
        at_once: arguments.at_once,
        seed: arguments.seed,
    };
    let mut table = Table::new([
        "storm",
        "locks",
        "victim",
        "commits/s",
        "deadlocks",
        "per commit",
        "longest cycle",
        "longest wait",
    ]);
    let (mut commits, mut deadlocks) = (0, 0);
    let found = storm::run(&settings, Audience::here());
    for found in found.map_err(|error| error.to_string())? {
        commits += found.commits;
        deadlocks += found.deadlocks;
        table.row([
            found.storm.to_string(),
            found.locks,
            found.victim.to_string(),
            found.rate.words(grouped),
            grouped(found.deadlocks as f64),
            format!("{:.3}", found.deadlocks as f64 / found.commits as f64),
            found.longest_cycle.to_string(),
            duration_us(found.longest_wait.as_secs_f64() * 1e6),
        ]);
    }
    show(&table.render());
    say!(
        "\nAll {} transactions of {} threads committed. There were {} deadlocks, each with one victim of its \
         cycle.\nEach report was compared with the locks that its members recorded.",
        grouped(commits as f64),
        arguments.threads,
        grouped(deadlocks as f64),
    );
    if cfg!(debug_assertions) {
        note!("note: built without optimisation, so do not compare these numbers; use --release");
    }
    Ok(ExitCode::SUCCESS)
}
