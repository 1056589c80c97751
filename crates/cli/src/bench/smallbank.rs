//! `foxton bench smallbank`.

use clap::Args;
use foxton_lab::workload::smallbank::Smallbank;

use super::sweep::Sweep;

/// Customers with two accounts each, and six short transactions that read and move money.
///
/// A transaction finds one or two customers by name, through a unique index, and reads or changes
/// their balances. A payment that is not covered is rolled back and counted as `rule`. Afterwards
/// each balance must be the result of its transactions, and all money the sum loaded, paid in
/// and paid out, to the cent.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench smallbank
      every lock manager, 1 to 512 clients
  foxton bench smallbank --customers 100 --mpl 1,8,64
      few customers: they wait for each other
  foxton bench smallbank --hotspot --locks default,bucket
      nine of ten customers are among the first hundred")]
pub(crate) struct Arguments {
    /// Customers. The benchmark has 1,000,000.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(2..=100_000_000))]
    pub(crate) customers: u32,
    /// Choose nine of ten customers among the first hundred; there must be more than a hundred.
    #[arg(long)]
    pub(crate) hotspot: bool,
    #[command(flatten)]
    pub(crate) sweep: Sweep,
}

impl Arguments {
    pub(crate) fn workload(&self) -> Smallbank {
        Smallbank {
            customers: self.customers,
            hotspot: self.hotspot,
            seed: self.sweep.seed,
        }
    }
}
