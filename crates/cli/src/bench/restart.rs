//! `foxton bench restart`: restarts over the length of the log, and what checkpoints cost.

use std::{process::ExitCode, time::Duration};

use foxton_lab::{
    bench::restart::{self, Settings},
    progress::Audience,
    report::{
        number::{bytes, duration_us, grouped},
        table::Table,
    },
};

use crate::{
    arguments::Restart,
    output::{say, show},
};

/// Measures, and shows two tables.
pub(crate) fn run(arguments: &Restart) -> Result<ExitCode, String> {
    let mut restarts = Table::new([
        "log",
        "threads",
        "replayed",
        "transactions",
        "checkpoint",
        "written",
        "restart with it",
        "rows",
    ]);
    let mut clients = Table::new([
        "checkpoints",
        "transactions/s",
        "99.9 % within",
        "the longest",
    ]);
    for (index, &threads) in arguments.threads.iter().enumerate() {
        let settings = settings(arguments, threads, index == 0);
        let findings = restart::run(&settings, arguments.dir.as_deref(), Audience::here());
        let findings = findings.map_err(|error| error.to_string())?;
        for found in &findings.restarts {
            restarts.row([
                bytes(found.without.log_bytes),
                threads.to_string(),
                time(found.without_time),
                grouped(found.without.transactions as f64),
                time(found.checkpoint.took),
                bytes(found.checkpoint.written_bytes),
                time(found.with_time),
                grouped(found.with.checkpoint_rows as f64),
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
    say!("Restarts:\n");
    show(&restarts.render());
    if !clients.is_empty() {
        say!("\n{} clients that update, in turn:\n", arguments.clients);
        show(&clients.render());
    }
    if cfg!(debug_assertions) {
        eprintln!("note: built without optimisation, so these are not numbers to compare");
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(arguments: &Restart, threads: u32, with_clients: bool) -> Settings {
    let seconds = if with_clients { arguments.seconds } else { 0.0 };
    Settings {
        logs: arguments.log.iter().map(|mib| mib << 20).collect(),
        rows: arguments.rows,
        threads: threads as usize,
        clients: arguments.clients,
        window: Duration::from_secs_f64(seconds),
        every: arguments.every << 20,
        reps: arguments.reps,
        seed: arguments.seed,
    }
}

fn time(took: Duration) -> String {
    duration_us(took.as_secs_f64() * 1e6)
}
