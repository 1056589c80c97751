//! `foxton bench secondary`.

use clap::Args;
use foxton_lab::workload::secondary::{Secondary, Shape};

use super::sweep::Sweep;

/// Scans through a secondary index whose rows are neighbours in the table or far apart.
///
/// A transaction reads SIZE rows that are neighbours in an index, each by its own key under a
/// shared lock. Each scan is compared with the rows it must find.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench secondary
      ten rows a scan, in table order
  foxton bench secondary --size 100 --scattered
      a hundred rows, out of table order
  foxton bench secondary --locks bucket,bucket+inherit --mpl 1,2,4,8
      the gain of inherited locks
  foxton bench secondary --subscribers 10000 --mpl 1,4 --seconds 0.3 --reps 1
      a quick look")]
pub(crate) struct Arguments {
    /// Subscribers, a row each.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(10_000..=50_000_000))]
    pub(crate) subscribers: u32,
    /// Rows a scan reads. The document has 10, 100 and 10,000.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) size: u32,
    /// Scan the index whose order is unrelated to the table's.
    #[arg(long)]
    pub(crate) scattered: bool,
    #[command(flatten)]
    pub(crate) sweep: Sweep,
}

impl Arguments {
    pub(crate) fn workload(&self) -> Secondary {
        Secondary::new(Shape {
            subscribers: self.subscribers,
            size: self.size,
            scattered: self.scattered,
            seed: self.sweep.seed,
        })
    }
}
