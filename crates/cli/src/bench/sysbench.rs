//! `foxton bench sysbench`.

use clap::Args;
use foxton::Isolation;
use foxton_lab::workload::sysbench::{Sysbench, choice::Choice};

use super::sweep::Sweep;

/// Eight tables with an index each, and transactions of eighteen statements.
///
/// A transaction reads ten rows and four ranges of a hundred, adds one to an indexed number, writes
/// a string, and deletes a row and inserts it again. A deadlock victim is not retried.
/// Afterwards each table must have its rows in their form, and its index each row once.
#[derive(Debug, Args)]
#[command(after_help = "\
Reads lock nothing by default (read-uncommitted), which is what document 004 measures: its engine reads old
versions. With --isolation serializable reads lock rows and gaps, so they conflict with writes: with pareto
most ranges begin at the lowest ids.

Examples:
  foxton bench sysbench
      every lock manager, 1 to 512 clients
  foxton bench sysbench --rand pareto --locks bucket,sharded --mpl 128,1024
      the low ids are hot, as document 004 measures it
  foxton bench sysbench --isolation serializable --log-k --mpl 1,8,64
      reads that lock; afterwards each number is compared with its committed additions")]
pub(crate) struct Arguments {
    /// Rows of each of the eight tables. Document 004 has 10,000,000.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(200..=10_000_000))]
    pub(crate) rows: u32,
    /// Distribution of the rows: uniform, or pareto (a fifth of them takes four fifths of the
    /// draws).
    #[arg(long, default_value_t = Choice::Uniform)]
    pub(crate) rand: Choice,
    /// Record the additions to each k, and compare every row with them afterwards. Takes eight
    /// bytes of memory for each row.
    #[arg(long)]
    pub(crate) log_k: bool,
    #[command(flatten)]
    pub(crate) sweep: Sweep,
}

impl Arguments {
    pub(crate) fn workload(&mut self) -> Sysbench {
        let isolation = self.sweep.take_isolation(Isolation::ReadUncommitted);
        Sysbench {
            rows: self.rows,
            choice: self.rand,
            isolation,
            log_k: self.log_k,
            seed: self.sweep.seed,
        }
    }
}
