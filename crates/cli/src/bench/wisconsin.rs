//! `foxton bench wisconsin`.

use clap::Args;
use foxton_lab::workload::wisconsin::{Wisconsin, mix::Mix};

use super::sweep::Sweep;

/// One table with an index: scans of all of it, of a tenth, and single tuples, one operation in
/// each transaction.
///
/// T1 scans the table and counts, T2 scans it and returns a tenth, T3 scans the index and fetches
/// every tuple, T4 a tenth of it, T5 fetches, inserts or deletes one tuple. Results list each
/// separately. Every scan must find the tuples loaded; afterwards table and index are compared with
/// the load, tuple by tuple.
#[derive(Debug, Args)]
#[command(after_help = "\
Scans are serializable: they lock the table's rows and gaps, so that inserts and deletes wait for them. For
document 003's times of one client, with the share of locking, see `foxton figure wisconsin`.

Examples:
  foxton bench wisconsin
      every lock manager, 1 to 512 clients, a fifth of each operation
  foxton bench wisconsin --mix 0,0,0,0,100 --mpl 1,8,64
      single tuples alone
  foxton bench wisconsin --mix 5,5,5,5,80 --locks bucket --latch tas-t,queue,parking --mpl 1,8
      one lock manager over three latches
  foxton bench wisconsin --locks none,default --mpl 1 --reps 7
      the cost of locking in these transactions")]
pub(crate) struct Arguments {
    /// Tuples. The document has 10,000.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    pub(crate) rows: u32,
    /// Percentages of T1, T2, T3, T4 and T5.
    #[arg(long, default_value_t = Mix::EVEN, value_name = "T1,T2,T3,T4,T5")]
    pub(crate) mix: Mix,
    #[command(flatten)]
    pub(crate) sweep: Sweep,
}

impl Arguments {
    pub(crate) fn workload(&self) -> Wisconsin {
        Wisconsin {
            rows: self.rows,
            mix: self.mix,
            seed: self.sweep.seed,
        }
    }
}
