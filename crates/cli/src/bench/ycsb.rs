//! `foxton bench ycsb`.

use clap::Args;
use foxton_lab::workload::ycsb::{Ycsb, mix::Mix};

use super::sweep::Sweep;

/// Records of ten fields, read and written by unevenly drawn keys: mixes a to f.
///
/// a reads and updates half each; b updates 5 %; c reads only. d inserts 5 % and reads the latest;
/// e scans up to 100 records and inserts 5 %. f reads half, and reads and writes back half.
/// Keys are zipfian with 0.99, scattered over the table. An operation is a transaction,
/// serializable. Afterwards the records must be those loaded and inserted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench ycsb --mix b
      95 % reads, 5 % updates, every lock manager, 1 to 512 clients
  foxton bench ycsb --mix a --records 1000000 --locks default --durability sync
      the benchmark's usual size: one database of 1.3 GB
  foxton bench ycsb --mix a --ops 16 --mpl 1,8,64
      sixteen operations in a transaction: deadlocks on the frequent records
  foxton bench ycsb --mix e --mpl 1,8 --seconds 0.5 --reps 1
      a quick look at scans")]
pub(crate) struct Arguments {
    /// Mix of operations: a, b, c, d, e or f.
    #[arg(long, default_value_t = Mix::A)]
    pub(crate) mix: Mix,
    /// Records loaded, 1,010 bytes each. The benchmark usually has 1,000,000.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) records: u32,
    /// Operations of a transaction. The benchmark has 1.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) ops: u32,
    #[command(flatten)]
    pub(crate) sweep: Sweep,
}

impl Arguments {
    pub(crate) fn workload(&self) -> Ycsb {
        Ycsb {
            mix: self.mix,
            records: self.records,
            operations: self.ops,
            seed: self.sweep.seed,
        }
    }
}
