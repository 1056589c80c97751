//! `foxton bench queue`: a queue of jobs, with locked jobs skipped or waited for.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use foxton::Durability;
use foxton_lab::{
    bench::queue::{self, Settings},
    progress::Audience,
    report::{
        number::{duration_us, grouped},
        table::Table,
    },
    system::{Locks, System},
};

use crate::{
    output::{note, say, show},
    seconds::seconds,
};

/// The arguments of `bench queue`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench queue
  foxton bench queue --work 1000 --locks direct,bucket,staged,sharded
      jobs of a millisecond, over four lock managers
  foxton bench queue --work 0 --workers 1,2,64
      claims alone, by 1, 2 and 64 workers")]
pub(crate) struct Queue {
    /// Threads that take jobs, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) workers: Vec<u32>,
    /// Jobs in the queue, more than there are workers.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    pub(crate) jobs: u64,
    /// Time of a job in microseconds, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "0,1000", value_parser = clap::value_parser!(u64).range(0..=60_000_000))]
    pub(crate) work: Vec<u64>,
    /// Lock managers, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "default")]
    pub(crate) locks: Vec<Locks>,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of times each point is measured, with and without skipping.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Durability of commits: sync, buffered or none.
    #[arg(long, default_value = "none")]
    pub(crate) durability: Durability,
    /// Directory for the measured databases.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

/// Measures, and shows a table.
pub(crate) fn run(arguments: &Queue) -> Result<ExitCode, String> {
    let mut table = Table::new([
        "locks",
        "workers",
        "time of a job",
        "skipping, jobs/s",
        "waiting, jobs/s",
        "ratio",
    ]);
    let mut checked = 0;
    for &workers in &arguments.workers {
        let settings = Settings {
            systems: System::all(&arguments.locks, &[]),
            workers,
            jobs: arguments.jobs,
            work: (arguments.work.iter().copied())
                .map(Duration::from_micros)
                .collect(),
            window: Duration::from_secs_f64(arguments.seconds),
            reps: arguments.reps,
            durability: arguments.durability,
            directory: arguments.dir.clone(),
        };
        let found = queue::run(&settings, Audience::here());
        for found in found.map_err(|error| error.to_string())? {
            checked += found.checked;
            table.row([
                found.system,
                workers.to_string(),
                duration_us(found.work.as_secs_f64() * 1e6),
                found.skipping.words(grouped),
                found.waiting.words(grouped),
                found.ratio.words(|ratio| format!("{ratio:.2}")),
            ]);
        }
    }
    show(&table.render());
    say!(
        "\n{} jobs were done, each once; no job is missing.",
        grouped(checked as f64)
    );
    if cfg!(debug_assertions) {
        note!("note: built without optimisation, so do not compare these numbers; use --release");
    }
    Ok(ExitCode::SUCCESS)
}
