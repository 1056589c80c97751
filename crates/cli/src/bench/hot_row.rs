//! `foxton bench hot-row`: one row that all clients update, tasks and threads.

use crate::note;
use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use foxton::{Admission, Durability};
use foxton_lab::{
    bench::hot_row::{self, Clients, Settings},
    progress::Audience,
    report::{number::grouped, table::Table},
    system::{Locks, System},
};

use super::sweep::admission;
use crate::{
    output::{say, show},
    seconds::seconds,
};

/// The arguments of `bench hot-row`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench hot-row
  foxton bench hot-row --locks direct,bucket,staged,sharded --reps 5
  foxton bench hot-row --threads 0 --tasks 100,10000,100000
  foxton bench hot-row --admission unlimited,adaptive --tasks 100,10000")]
pub(crate) struct HotRow {
    /// Numbers of tasks, separated by commas; 0 for none.
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000,10000", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) tasks: Vec<u32>,
    /// Numbers of threads, separated by commas; 0 for none.
    #[arg(long, value_delimiter = ',', default_value = "8,64,512,2048", value_parser = clap::value_parser!(u32).range(0..=32_768))]
    pub(crate) threads: Vec<u32>,
    /// Lock managers, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "default")]
    pub(crate) locks: Vec<Locks>,
    /// Transactions that run at once, separated by commas to compare: unlimited, adaptive, or a
    /// fixed number.
    #[arg(long, value_delimiter = ',', default_value = "adaptive", value_parser = admission)]
    pub(crate) admission: Vec<Admission>,
    /// Seconds of each measurement, after as many without one. Adaptive admission needs one.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Number of times each point is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Durability of commits: sync, buffered or none.
    #[arg(long, default_value = "none")]
    pub(crate) durability: Durability,
    /// Directory for the measured databases.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

/// Measures, and shows a table.
pub(crate) fn run(arguments: &HotRow) -> Result<ExitCode, String> {
    let of = |kind, counts: &[u32]| {
        let counts = counts.iter().filter(|&&count| count > 0);
        counts.map(|&count| (kind, count)).collect::<Vec<_>>()
    };
    let settings = Settings {
        systems: System::with_admissions(System::all(&arguments.locks, &[]), &arguments.admission),
        clients: [
            of(Clients::Tasks, &arguments.tasks),
            of(Clients::Threads, &arguments.threads),
        ]
        .concat(),
        window: Duration::from_secs_f64(arguments.seconds),
        reps: arguments.reps,
        durability: arguments.durability,
        directory: arguments.dir.clone(),
    };
    let found = hot_row::run(&settings, Audience::here()).map_err(|error| error.to_string())?;
    let mut table = Table::new(["locks", "clients", "commits/s", "of the peak"]);
    let mut checked = 0;
    for found in found {
        checked += found.checked;
        let (kind, count) = found.clients;
        table.row([
            found.system,
            format!("{} {kind}", grouped(count.into())),
            found.rate.words(grouped),
            found.share.words(|share| format!("{share:.2}")),
        ]);
    }
    show(&table.render());
    say!(
        "\n{} commits and more were counted, and none is missing from the row.",
        grouped(checked as f64)
    );
    if cfg!(debug_assertions) {
        note!("note: built without optimisation, so do not compare these numbers; use --release");
    }
    Ok(ExitCode::SUCCESS)
}
