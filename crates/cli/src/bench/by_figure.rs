//! `foxton bench latch-cost` and `overlap`: experiments that are tables of document 003, by their
//! names.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use foxton::LatchKind;
use foxton_lab::{
    figure::request::Request,
    system::{Locks, System},
};

use super::results::command_line;
use crate::{figure, output::results_place, seconds::seconds};

/// The arguments of `bench latch-cost`.
#[derive(Debug, Args)]
#[command(after_help = "\
Calls are derived from the locks taken, unless the program counts them (--features account). With the
document's windows: `foxton figure latch-cost --full`.

Examples:
  foxton bench latch-cost
      every latch alone, and under global and bucket
  foxton bench latch-cost --locks bucket --latch tas-t,queue --seconds 1
      two latches under one lock manager, a second each
  foxton bench lock-cost
      the cost of locks")]
pub(crate) struct LatchCost {
    #[command(flatten)]
    measured: Measured,
}

/// The arguments of `bench overlap`.
#[derive(Debug, Args)]
#[command(after_help = "\
First the model is checked with the document's own numbers, which follow from its times to the last digit
printed. Its results for more processors than the machine has are called projections.

Examples:
  foxton bench overlap
      the document's table, then ours, over the default lock manager
  foxton bench overlap --locks bucket --latch queue
      with the times of another lock manager")]
pub(crate) struct Overlap {
    #[command(flatten)]
    measured: Measured,
}

/// Arguments of both.
#[derive(Debug, Args)]
struct Measured {
    /// Lock managers, separated by commas; a wrong name lists all [default: the experiment's].
    /// `overlap` takes the first.
    #[arg(long, value_delimiter = ',')]
    locks: Vec<Locks>,
    /// Latches under each lock manager named by --locks.
    #[arg(long, value_delimiter = ',', requires = "locks")]
    latch: Vec<LatchKind>,
    /// Seconds of each measurement [default: the experiment's].
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Number of times each is measured [default: the experiment's].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: Option<u32>,
    /// Tuples of the table. The document has 10,000.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2_000..=10_000_000))]
    rows: Option<u32>,
    /// Directory for the measured databases.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Directory for the results [default: results/NAME-TIME].
    #[arg(long, value_parser = results_place)]
    out: Option<PathBuf>,
}

impl LatchCost {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        self.measured.run("latch-cost")
    }
}

impl Overlap {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        self.measured.run("overlap")
    }
}

impl Measured {
    fn run(self, name: &str) -> Result<ExitCode, String> {
        let request = Request {
            systems: System::all(&self.locks, &self.latch),
            window: self.seconds.map(Duration::from_secs_f64),
            reps: self.reps,
            rows: self.rows,
            directory: self.dir,
            program: std::env::current_exe().ok(),
            command: command_line(),
            ..Request::default()
        };
        figure::named(name, &request, self.out)
    }
}
