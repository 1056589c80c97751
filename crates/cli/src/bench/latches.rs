//! `foxton bench bank`, `counter`, `list` and `hashmap`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use foxton::LatchKind;
use foxton_lab::{
    bench::{
        latches::{self, Shared},
        pace::Pace,
    },
    progress::Audience,
    workload::micro::counter::Layout,
};

use super::results::{command_line, finish};
use crate::{output::results_place, seconds::seconds};

/// Arguments of all four.
#[derive(Debug, Args)]
pub(crate) struct Points {
    /// Latches to compare, separated by commas [default: all].
    #[arg(long, value_delimiter = ',')]
    latch: Vec<LatchKind>,
    /// Also measure latches that cannot elide on this machine; they are taken.
    #[arg(long)]
    taken: bool,
    /// Numbers of threads, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Vec<u32>,
    /// Seconds measured for each point and repetition.
    #[arg(long, default_value_t = 0.1, value_parser = seconds)]
    seconds: f64,
    /// Seconds that threads run before each measurement.
    #[arg(long, default_value_t = 0.02, value_parser = seconds)]
    ramp: f64,
    /// Number of times each point is measured.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// Directory for the results [default: results/NAME-TIME].
    #[arg(long, value_parser = results_place)]
    out: Option<PathBuf>,
}

impl Points {
    fn run(self, name: &str, shared: Vec<Shared>) -> Result<ExitCode, String> {
        let settings = latches::Settings {
            shared,
            latches: self.latch,
            taken: self.taken,
            pace: Pace {
                threads: self.threads,
                reps: self.reps,
                ramp: Duration::from_secs_f64(self.ramp),
                window: Duration::from_secs_f64(self.seconds),
                command: command_line(),
            },
        };
        finish(name, self.out, latches::run(&settings, Audience::here()))
    }
}

/// The arguments of `bench bank`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench bank
      half transfers, half reads, over every latch, 1 to 8 threads
  foxton bench bank --reads 0,50,100 --threads 4 --seconds 1 --reps 100
      the document's form: 1 s for each
  foxton bench bank --accounts 100 --global
      all accounts behind one latch")]
pub(crate) struct Bank {
    /// Number of accounts.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    accounts: u32,
    /// Percentages of operations that read one account, separated by commas; the others move money.
    #[arg(long, value_delimiter = ',', default_value = "50", value_parser = clap::value_parser!(u32).range(0..=100))]
    reads: Vec<u32>,
    /// Use one latch for all accounts, not one for each.
    #[arg(long)]
    global: bool,
    #[command(flatten)]
    points: Points,
}

impl Bank {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let (accounts, global) = (self.accounts, self.global);
        let one = |&reads: &u32| Shared::Bank {
            accounts,
            reads,
            global,
        };
        self.points
            .run("bank", self.reads.iter().map(one).collect())
    }
}

/// The arguments of `bench counter`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench counter
      four layouts, every latch
  foxton bench counter --layout adjacent,apart --latch parking --threads 1,2,4
      the cost of sharing a line and nothing else")]
pub(crate) struct Counter {
    /// Where the counters are, separated by commas: one, adjacent, apart or global [default: all].
    #[arg(long, value_delimiter = ',')]
    layout: Vec<Layout>,
    #[command(flatten)]
    points: Points,
}

impl Counter {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let layouts = match self.layout.as_slice() {
            [] => Layout::ALL.to_vec(),
            some => some.to_vec(),
        };
        let shared = layouts.into_iter().map(Shared::Counter).collect();
        self.points.run("counter", shared)
    }
}

/// The arguments of `bench list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench list
      none, half and all of the operations look for a value
  foxton bench list --reads 100 --threads 2 --latch parking,tas-t,elided:retry100
      readers only, which elision lets pass together")]
pub(crate) struct List {
    /// Values in the list at the start.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    values: u32,
    /// Percentages of operations that search for a value, separated by commas; of the others, half
    /// insert and half remove.
    #[arg(long, value_delimiter = ',', default_value = "0,50,100", value_parser = clap::value_parser!(u32).range(0..=100))]
    reads: Vec<u32>,
    /// Put items side by side, not each on a line of its own.
    #[arg(long)]
    beside: bool,
    #[command(flatten)]
    points: Points,
}

impl List {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let (values, beside) = (self.values, self.beside);
        let one = |&reads: &u32| Shared::List {
            values,
            reads,
            beside,
        };
        self.points
            .run("list", self.reads.iter().map(one).collect())
    }
}

/// The arguments of `bench hashmap`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench hashmap
      10, 100 and 1,000 buckets with a latch each
  foxton bench hashmap --buckets 1000 --global --threads 1,2,3,4,5,6,7,8
      one latch over all buckets, where elision can gain
  foxton bench hashmap --values 10000 --buckets 1,10,100,1000,10000 --threads 4
      ten times as many values: longer chains")]
pub(crate) struct HashMap {
    /// Numbers of buckets, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    buckets: Vec<u32>,
    /// Values in the map at the start.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    values: u32,
    /// Use one latch for all buckets, not one for each.
    #[arg(long)]
    global: bool,
    #[command(flatten)]
    points: Points,
}

impl HashMap {
    pub(super) fn run(self) -> Result<ExitCode, String> {
        let (values, global) = (self.values, self.global);
        let one = |&buckets: &u32| Shared::HashMap {
            buckets,
            values,
            global,
        };
        self.points
            .run("hashmap", self.buckets.iter().map(one).collect())
    }
}
