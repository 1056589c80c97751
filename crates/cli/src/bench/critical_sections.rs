//! `foxton bench critical-sections`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use foxton::Durability;
use foxton_lab::{
    bench::critical_sections::{self, Case, Settings, design::Design, tables},
    progress::Audience,
    report::{self, terminal},
};

use super::results::{self, command_line, moment};
use crate::output::{results_place, show};

/// The arguments of `bench critical-sections`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo run --release --features account -- bench critical-sections
      every design and workload, one client, commits on the device
  cargo run --release --features account -- bench critical-sections --designs baseline,default --mpl 1,2
      two designs, with one client and with two")]
pub(crate) struct CriticalSections {
    /// Designs to compare, separated by commas: global, baseline, inheritance, consolidated,
    /// staged, sharded, direct, default. Without this: all of them.
    #[arg(long, value_delimiter = ',', value_parser = Design::find)]
    designs: Vec<Design>,
    /// Workloads, separated by commas; a wrong name lists them. Without this: all of them.
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<Case>,
    /// Counted executions of each transaction, by all clients together.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    executions: u32,
    /// Numbers of clients, separated by commas. The pictures show the fewest.
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    mpl: Vec<u32>,
    /// Rows of each table of txbench; other workloads have about as many.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(200..=10_000_000))]
    rows: u32,
    /// Durability of commits: sync, buffered or none.
    #[arg(long, default_value_t = Durability::Sync)]
    durability: Durability,
    /// Seed of loads and clients.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the databases; by default the system's directory for temporary files. They
    /// are removed afterwards.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Directory for the results [default: results/critical-sections-TIME].
    #[arg(long, value_parser = results_place)]
    out: Option<PathBuf>,
}

pub(super) fn run(arguments: CriticalSections) -> Result<ExitCode, String> {
    let settings = Settings {
        designs: match arguments.designs {
            none if none.is_empty() => Design::all(),
            some => some,
        },
        workloads: arguments.workloads,
        executions: arguments.executions,
        mpls: arguments.mpl,
        rows: arguments.rows,
        durability: arguments.durability,
        directory: arguments.dir,
        seed: arguments.seed,
    };
    let counted = critical_sections::run(&settings, Audience::here());
    let counted = counted.map_err(|error| error.to_string())?;
    let command = command_line();
    let sheet = tables::sheet(&settings, &counted, &command);
    let records = tables::records(&settings, &counted, &command);
    let name = format!("critical-sections-{}", moment(&sheet.machine));
    let directory = arguments
        .out
        .unwrap_or_else(|| Path::new("results").join(name));
    let written = report::write_records(&sheet, records, &directory);
    show(&terminal::sheet(&sheet));
    results::list_written(written, &directory)?;
    // Not judged, because counts do not depend on how a program was compiled.
    Ok(ExitCode::SUCCESS)
}
