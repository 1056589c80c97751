//! `foxton bench lock-only`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use foxton::{Durability, LatchKind, LockManagerKind};
use foxton_lab::{
    bench::{lock_only, runs::Runs},
    progress::Audience,
    system::{Locks, System},
};

use super::results::{command_line, finish};
use crate::{output::results_place, seconds::seconds};

/// The arguments of `bench lock-only`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench lock-only
      every lock manager, beside another engine's numbers
  foxton bench lock-only --locks bucket,sharded --mpl 1,8,512 --seconds 1
      two of them, each point for a second")]
pub(crate) struct LockOnly {
    /// Lock managers to compare, separated by commas [default: all but the reference].
    #[arg(long, value_delimiter = ',')]
    pub(crate) locks: Vec<Locks>,
    /// Latches to compare under each lock manager. Without this, the engine's default.
    #[arg(long, value_delimiter = ',')]
    pub(crate) latch: Vec<LatchKind>,
    /// Numbers of clients, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,512", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) mpl: Vec<u32>,
    /// Seconds measured for each point and repetition.
    #[arg(long, default_value_t = 1.9, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seconds that clients run before each measurement.
    #[arg(long, default_value_t = 0.4, value_parser = seconds)]
    pub(crate) ramp: f64,
    /// Number of times each point is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reps: u32,
    /// Seed of the keys drawn.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Directory for the results [default: results/lock-only-TIME].
    #[arg(long, value_parser = results_place)]
    pub(crate) out: Option<PathBuf>,
}

/// Measures.
pub(crate) fn run(arguments: LockOnly) -> Result<ExitCode, String> {
    let all = || {
        let kinds = LockManagerKind::ALL.into_iter();
        let kinds = kinds.filter(|&kind| kind != LockManagerKind::Reference);
        kinds.map(Locks::Manager).collect()
    };
    let locks = match arguments.locks {
        none if none.is_empty() => all(),
        some => some,
    };
    let settings = lock_only::Settings {
        seed: arguments.seed,
        runs: Runs {
            systems: System::all(&locks, &arguments.latch),
            mpls: arguments.mpl,
            reps: arguments.reps,
            ramp: Duration::from_secs_f64(arguments.ramp),
            window: Duration::from_secs_f64(arguments.seconds),
            durability: Durability::None,
            directory: None,
            observe: None,
            split: false,
            keep: false,
            command: command_line(),
        },
    };
    let findings = lock_only::run(&settings, Audience::here());
    finish("lock-only", arguments.out, findings)
}
