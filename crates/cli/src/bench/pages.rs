//! `foxton bench pages`: paged tables whose data are larger than their memory.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use foxton::Durability;
use foxton_lab::{
    bench::pages::{self, Experiment, Settings},
    progress::Audience,
};

use super::{
    measured::finish,
    results::{command_line, moment},
};
use crate::{output::results_place, seconds::seconds, size::size};

/// The arguments of `bench pages`.
#[derive(Debug, Args)]
#[command(after_help = "\
Experiments:
  beyond   uniform reads: page reads ÷ those of the bare device, rows by clients, memory
  storm    updates of random rows: worst second, and latencies of reads beside them
  written  bytes written ÷ bytes changed; throughput with the doublewrite buffer and without
  backup   throughput while backups run ÷ without
  convert  rows a second of conversions in both directions, and of loading with indexes
  sections unbounded critical sections of a read, an update and an insert; needs a program that
           counts: cargo run --release --features account -- bench pages sections

Examples:
  foxton bench pages beyond --dir /var/tmp --data 10GiB --mpl 64,512 --seconds 30 --passes 5
  foxton bench pages beyond --dir /var/tmp --data 1GiB --mpl 512 --seconds 3600 --passes 1
  foxton bench pages storm --dir /var/tmp --data 4GiB --mpl 64 --seconds 60
  foxton bench pages written --dir /var/tmp --seconds 30 --passes 5")]
pub(crate) struct Pages {
    /// The experiment: beyond, storm, written, backup, convert or sections.
    pub(crate) experiment: Experiment,
    /// Directory for the measured databases, on the device to be measured. It may take four times
    /// the data.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Size of all rows: bytes, or a number with KiB, MiB or GiB.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub(crate) data: usize,
    /// Memory for pages [default: a tenth of the data].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) page_memory: Option<usize>,
    /// Bytes of a row, without its key of 8 bytes.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    pub(crate) row_bytes: u32,
    /// Numbers of clients, separated by commas; all experiments but `beyond` use the largest.
    #[arg(long, value_delimiter = ',', default_value = "64,512", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) mpl: Vec<u32>,
    /// Clients of `storm` that read.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) readers: u32,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seconds that clients run before each measurement.
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub(crate) ramp: f64,
    /// Number of times that everything is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) passes: u32,
    /// Pages are read and written through the page cache. Without this they pass it, by O_DIRECT.
    #[arg(long)]
    pub(crate) cached: bool,
    /// Durability of commits: sync, buffered or none.
    #[arg(long, default_value_t = Durability::Buffered)]
    pub(crate) durability: Durability,
    /// Seed of the keys drawn.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Directory for the record [default: results/pages-EXPERIMENT-TIME].
    #[arg(long, value_parser = results_place)]
    pub(crate) out: Option<PathBuf>,
}

/// Measures, shows a table, and writes the draft of a record.
pub(crate) fn run(arguments: Pages) -> Result<ExitCode, String> {
    let settings = Settings {
        directory: arguments.dir,
        data: arguments.data as u64,
        page_memory: arguments.page_memory,
        row_bytes: arguments.row_bytes as usize,
        mpls: arguments.mpl,
        readers: arguments.readers,
        ramp: Duration::from_secs_f64(arguments.ramp),
        window: Duration::from_secs_f64(arguments.seconds),
        passes: arguments.passes,
        is_cached: arguments.cached,
        durability: arguments.durability,
        seed: arguments.seed,
        command: command_line(),
    };
    let measured = pages::run(arguments.experiment, &settings, Audience::here());
    let measured = measured.map_err(|error| error.to_string())?;
    let name = format!(
        "pages-{}-{}",
        arguments.experiment,
        moment(&measured.machine)
    );
    let directory = arguments.out;
    finish(
        &measured,
        &directory.unwrap_or_else(|| Path::new("results").join(name)),
    )
}
