//! `foxton bench private-insert`.

use clap::Args;
use foxton_lab::workload::private_insert::PrivateInsert;

use super::sweep::Sweep;

/// Every client fills tables of its own: clients share only the engine.
///
/// A client inserts ROWS rows of 100 bytes into a table, BATCH in each transaction, and then begins
/// another table. The rows a second of each client should not depend on the number of clients; the
/// files have both. Afterwards each table must have the rows that were acknowledged.
#[derive(Debug, Args)]
#[command(after_help = "\
Each measurement has a new database, which takes about 350 bytes of memory for each row inserted. A
client stops with an error when the memory is nearly full.

Examples:
  foxton bench private-insert --mpl 1,2,4,8
      does a client slow down beside others?
  foxton bench private-insert --batch 1 --locks default
      one row in a transaction: the log's part is larger")]
pub(crate) struct Arguments {
    /// Rows of a table.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) rows: u32,
    /// Rows of a transaction.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch: u32,
    #[command(flatten)]
    pub(crate) sweep: Sweep,
}

impl Arguments {
    pub(crate) fn workload(&self) -> PrivateInsert {
        PrivateInsert {
            rows: self.rows,
            batch: self.batch,
            seed: self.sweep.seed,
        }
    }
}
