//! `foxton bench commit`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use foxton::Durability;
use foxton_lab::{
    bench::{commit, runs::Runs},
    progress::Audience,
    system::{Locks, System},
};

use super::results::{command_line, finish};
use crate::{output::results_place, seconds::seconds};

/// The arguments of `bench commit`.
#[derive(Debug, Args)]
#[command(after_help = "\
The device is that of --dir; commits to a directory in memory have nothing to wait for.

Examples:
  foxton bench commit --dir .
      each durability, on the device of this directory
  foxton bench commit --dir . --durability sync --mpl 1,64,512 --seconds 5
      group commit: commits for each sync, and their latency")]
pub(crate) struct Commit {
    /// Durability of commits, separated by commas to compare: sync, buffered, none. With sync,
    /// commits to one row are measured too, with locks released early and with locks held.
    #[arg(long, value_delimiter = ',', default_value = "sync,buffered,none")]
    pub(crate) durability: Vec<Durability>,
    /// Numbers of clients, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256,512", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) mpl: Vec<u32>,
    /// Seconds measured for each point and repetition.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seconds that clients run before each measurement.
    #[arg(long, default_value_t = 0.3, value_parser = seconds)]
    pub(crate) ramp: f64,
    /// Number of times each point is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Directory for the measured databases; by default the system's directory for temporary
    /// files. They are removed afterwards.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Directory for the results [default: results/commit-TIME].
    #[arg(long, value_parser = results_place)]
    pub(crate) out: Option<PathBuf>,
}

/// Measures.
pub(crate) fn run(arguments: Commit) -> Result<ExitCode, String> {
    let settings = commit::Settings {
        compared: commit::Variant::usual(&arguments.durability),
        runs: Runs {
            systems: System::all(&[Locks::Default], &[]),
            mpls: arguments.mpl,
            reps: arguments.reps,
            ramp: Duration::from_secs_f64(arguments.ramp),
            window: Duration::from_secs_f64(arguments.seconds),
            durability: Durability::Sync,
            directory: arguments.dir,
            observe: None,
            split: false,
            keep: false,
            command: command_line(),
        },
    };
    let findings = commit::run(&settings, Audience::here());
    finish("commit", arguments.out, findings)
}
