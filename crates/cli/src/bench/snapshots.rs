//! `foxton bench snapshots`: reads at snapshots, and what a snapshot that does not end costs.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use foxton::{Durability, Isolation, LogBufferKind, SnapshotMethod};
use foxton_lab::{
    bench::snapshots::{self, Experiment, Settings, instructions::bare},
    progress::Audience,
};

use super::{
    measured::finish,
    results::{command_line, moment},
};
use crate::{output::results_place, seconds::seconds};

/// The arguments of `bench snapshots`.
#[derive(Debug, Args)]
#[command(after_help = "\
Experiments:
  short    begin, one read and end: snapshot ÷ serializable, and what many clients keep of the peak;
           none updating, and 20 %
  reads    the same with ten rows a transaction
  hotspot  ten rows a transaction in 5 % of the rows, 20 % update two; lock waits of readers
  beside   TATP, TPC-B and ten rows a transaction beside short snapshots of others ÷ without
  stalled  updates beside a snapshot that does not end: throughput ÷ without, memory
  auditor  updates beside an auditor without a pause ÷ without, by the processor time of the others
  queue    jobs of a queue beside a snapshot that does not end ÷ without
  old      reads at a snapshot of rows that were updated 1,000 times since ÷ reads at a new one
  waits    waits of readers for commits that take their place in the log, for each log buffer
  instructions  of begin, one read and end; needs valgrind

Examples:
  foxton bench snapshots short --mpl 1,8,64,512,1000 --passes 5
  foxton bench snapshots hotspot --mpl 500 --seconds 10 --passes 5
  foxton bench snapshots stalled --mpl 8 --seconds 100 --passes 5
  foxton bench snapshots queue --mpl 64 --seconds 30
  foxton bench snapshots waits --mpl 512 --seconds 20 --passes 5")]
pub(crate) struct Snapshots {
    /// The experiment: short, reads, hotspot, beside, stalled, auditor, queue, old, waits or
    /// instructions.
    pub(crate) experiment: Experiment,
    /// Directory for the measured databases [default: that for temporary files].
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Number of rows; `old` uses a hundredth.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    pub(crate) rows: u32,
    /// Bytes of a row, without its key of 8 bytes.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    pub(crate) row_bytes: u32,
    /// Numbers of clients, separated by commas; all experiments but `short`, `reads` and `beside`
    /// use the largest.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,512", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) mpl: Vec<u32>,
    /// Methods of snapshots to compare, separated by commas: lsn, and read-views, the baseline that
    /// copies a list of transactions under a mutex. `beside` and `waits` use the first.
    #[arg(long, value_delimiter = ',', default_value = "lsn,read-views")]
    pub(crate) snapshots: Vec<SnapshotMethod>,
    /// Log buffers that `waits` compares: baseline, consolidated, decoupled, hybrid.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "baseline,consolidated,decoupled,hybrid"
    )]
    pub(crate) log_buffer: Vec<LogBufferKind>,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seconds that clients run before each measurement.
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    pub(crate) ramp: f64,
    /// Number of times that everything is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) passes: u32,
    /// Durability of commits: sync, buffered or none.
    #[arg(long, default_value_t = Durability::Buffered)]
    pub(crate) durability: Durability,
    /// Seed of the keys drawn.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Directory for the record [default: results/snapshots-EXPERIMENT-TIME].
    #[arg(long, value_parser = results_place)]
    pub(crate) out: Option<PathBuf>,
    /// Only run this many transactions and print nothing; callgrind counts its instructions.
    #[arg(long, hide = true)]
    pub(crate) bare: Option<u64>,
    /// Level of these.
    #[arg(long, hide = true, default_value_t = Isolation::Snapshot)]
    pub(crate) isolation: Isolation,
}

/// Measures, shows a table, and writes the draft of a record.
pub(crate) fn run(arguments: Snapshots) -> Result<ExitCode, String> {
    if let Some(rounds) = arguments.bare {
        let method = arguments.snapshots.first().copied().unwrap_or_default();
        let ran = bare(arguments.isolation, method, rounds);
        return ran
            .map_err(|error| error.to_string())
            .map(|()| ExitCode::SUCCESS);
    }
    let settings = Settings {
        directory: arguments.dir,
        rows: arguments.rows.into(),
        row_bytes: arguments.row_bytes as usize,
        mpls: arguments.mpl,
        methods: arguments.snapshots,
        log_buffers: arguments.log_buffer,
        ramp: Duration::from_secs_f64(arguments.ramp),
        window: Duration::from_secs_f64(arguments.seconds),
        passes: arguments.passes,
        durability: arguments.durability,
        seed: arguments.seed,
        program: std::env::current_exe().ok(),
        command: command_line(),
    };
    let measured = snapshots::run(arguments.experiment, &settings, Audience::here());
    let measured = measured.map_err(|error| error.to_string())?;
    let name = format!(
        "snapshots-{}-{}",
        arguments.experiment,
        moment(&measured.machine)
    );
    let directory = arguments.out;
    finish(
        &measured,
        &directory.unwrap_or_else(|| Path::new("results").join(name)),
    )
}
