//! `foxton bench peak`: updates, reads, memory and closing after a peak of open transactions.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use foxton_lab::{
    bench::peak::{self, Settings},
    progress::Audience,
    report::{
        number::{bytes, duration_us, grouped},
        table::Table,
    },
    system::{Locks, System},
};

use crate::{
    output::{note, show},
    seconds::seconds,
};

/// The arguments of `bench peak`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench peak
  foxton bench peak --open 1000,10000,100000 --locks direct
      peaks of three sizes, over one lock manager")]
pub(crate) struct Peak {
    /// Transactions that are open at once, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "100000", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) open: Vec<u64>,
    /// Lock managers, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "direct,bucket,sharded,staged"
    )]
    pub(crate) locks: Vec<Locks>,
    /// Seconds from the end of the peak to the measurement.
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub(crate) rest: f64,
    /// Seconds of each window.
    #[arg(long, default_value_t = 0.3, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of pairs of windows.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Directory for the measured databases.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

/// Measures, and shows a table.
pub(crate) fn run(arguments: &Peak) -> Result<ExitCode, String> {
    let settings = Settings {
        systems: System::all(&arguments.locks, &[]),
        open: arguments.open.clone(),
        rest: Duration::from_secs_f64(arguments.rest),
        window: Duration::from_secs_f64(arguments.seconds),
        reps: arguments.reps,
        directory: arguments.dir.clone(),
    };
    let found = peak::run(&settings, Audience::here()).map_err(|error| error.to_string())?;
    let mut table = Table::new([
        "locks",
        "open at once",
        "updates/s later",
        "updates ÷ without a peak",
        "reads ÷ without a peak",
        "memory kept",
        "closing",
        "without a peak",
    ]);
    for found in found {
        let ratio = |ratio: f64| format!("{ratio:.2}");
        table.row([
            found.system,
            grouped(found.open as f64),
            found.updates.words(grouped),
            found.update_ratio.words(ratio),
            found.read_ratio.words(ratio),
            bytes(found.kept_bytes),
            duration_us(found.closing.as_secs_f64() * 1e6),
            duration_us(found.closing_control.as_secs_f64() * 1e6),
        ]);
    }
    show(&table.render());
    if cfg!(debug_assertions) {
        note!("note: built without optimisation, so do not compare these numbers; use --release");
    }
    Ok(ExitCode::SUCCESS)
}
