//! `foxton bench transfers`.

use clap::Args;
use foxton_lab::workload::transfers::Transfers;

use super::sweep::Sweep;

/// Money moved between accounts by serializable transactions, while an auditor adds it up.
///
/// A transfer reads two random accounts for update, in the order they were drawn in, so that
/// deadlocks are possible, and moves money. Every 10 ms an auditor reads all accounts in one
/// transaction: each of its sums, and the one afterwards, must be the sum loaded. `bench bank` is
/// the same behind latches, without transactions.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench transfers
      every lock manager, 1 to 512 clients, half of the transactions read one balance
  foxton bench transfers --reads 0 --mpl 4
      transfers alone
  foxton bench transfers --accounts 100 --locks default,bucket --mpl 1,8,64
      few accounts: transfers conflict with each other and with the auditor")]
pub(crate) struct Arguments {
    /// Accounts.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) accounts: u32,
    /// Percentage of transactions that read one balance.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) reads: u32,
    #[command(flatten)]
    pub(crate) sweep: Sweep,
}

impl Arguments {
    pub(crate) fn workload(&self) -> Transfers {
        Transfers {
            accounts: self.accounts,
            reads: self.reads,
            seed: self.sweep.seed,
        }
    }
}
