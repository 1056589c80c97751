//! `foxton bench restart`: restart time by the length of the log, and the cost of checkpoints.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use foxton_lab::{
    bench::restart::{self, Opened, Settings},
    progress::Audience,
    report::{
        number::{bytes, duration_us, grouped},
        table::Table,
    },
};

use crate::{
    output::{note, say, show},
    seconds::seconds,
};

/// The arguments of `bench restart`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench restart
  foxton bench restart --log 256,1024 --rows 100000,1000000 --seconds 0
      up to a gibibyte of log after the checkpoint, two sizes of table, and no clients
  foxton bench restart --log 64 --threads 1,2
      restart on one thread and on two")]
pub(crate) struct Restart {
    /// Lengths of log after the checkpoint in MiB, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "16,64,256", value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub(crate) log: Vec<u64>,
    /// Rows of the table, a hundred bytes each, separated by commas; clients update the first.
    #[arg(long, value_delimiter = ',', default_value = "100000", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) rows: Vec<u64>,
    /// Number of times each database is opened with the log after its checkpoint.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) opens: u32,
    /// Threads that load and replay, separated by commas; 0 for as many as the machine has cores.
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = clap::value_parser!(u32).range(0..=256))]
    pub(crate) threads: Vec<u32>,
    /// Clients that update during checkpoints.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) clients: u32,
    /// Seconds that clients update with and without checkpoints; 0 for no such run.
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// MiB of log between two checkpoints while clients update.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub(crate) every: u64,
    /// Number of times clients update with and without checkpoints.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Seed of the keys drawn.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Directory for the measured databases.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

/// Measures, and shows two tables.
pub(crate) fn run(arguments: &Restart) -> Result<ExitCode, String> {
    let mut restarts = Table::new([
        "rows",
        "log",
        "threads",
        "loaded",
        "replayed",
        "restart",
        "transactions",
        "checkpoint",
        "written",
        "restart after it",
    ]);
    let mut clients = Table::new(["checkpoints", "transactions/s", "99.9 % within", "longest"]);
    for (index, &threads) in arguments.threads.iter().enumerate() {
        let settings = settings(arguments, threads, index == 0);
        let findings = restart::run(&settings, arguments.dir.as_deref(), Audience::here());
        let findings = findings.map_err(|error| error.to_string())?;
        for found in &findings.restarts {
            let recovered = &found.behind[0].recovered;
            let spread = |part: fn(&Opened) -> Duration| spread(&found.behind, part);
            restarts.row([
                grouped(recovered.checkpoint_rows as f64),
                bytes(recovered.log_bytes),
                threads.to_string(),
                spread(|opened| opened.recovered.checkpoint_time),
                spread(|opened| opened.recovered.log_time),
                spread(|opened| opened.took),
                grouped(recovered.transactions as f64),
                time(found.checkpoint.took),
                bytes(found.checkpoint.written_bytes),
                time(found.at_once.took),
            ]);
        }
        for window in &findings.windows {
            clients.row([
                window
                    .checkpoints
                    .map_or("none".to_owned(), |made| made.to_string()),
                grouped(window.rate),
                duration_us(window.p999_us as f64),
                duration_us(window.longest_us as f64),
            ]);
        }
    }
    say!("Restarts, with medians and extremes of several openings:\n");
    show(&restarts.render());
    if !clients.is_empty() {
        say!(
            "\n{} clients that update, with and without checkpoints in turn:\n",
            arguments.clients
        );
        show(&clients.render());
    }
    if cfg!(debug_assertions) {
        note!("note: built without optimisation, so do not compare these numbers; use --release");
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(arguments: &Restart, threads: u32, with_clients: bool) -> Settings {
    let seconds = if with_clients { arguments.seconds } else { 0.0 };
    Settings {
        logs: arguments.log.iter().map(|mib| mib << 20).collect(),
        rows: arguments.rows.clone(),
        opens: arguments.opens,
        threads: threads as usize,
        clients: arguments.clients,
        window: Duration::from_secs_f64(seconds),
        every: arguments.every << 20,
        reps: arguments.reps,
        seed: arguments.seed,
    }
}

/// The median of a time, and its extremes.
fn spread(opened: &[Opened], part: fn(&Opened) -> Duration) -> String {
    let mut times: Vec<_> = opened.iter().map(part).collect();
    times.sort_unstable();
    let median = time(times[times.len() / 2]);
    match &times[..] {
        [least, .., most] => format!("{median} ({} to {})", time(*least), time(*most)),
        _ => median,
    }
}

fn time(took: Duration) -> String {
    duration_us(took.as_secs_f64() * 1e6)
}
