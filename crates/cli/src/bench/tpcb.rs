//! `foxton bench tpcb`.

use clap::Args;
use foxton_lab::{
    bench::runs::has_room,
    workload::{
        contract::Workload,
        tpcb::{Choice, Scale, Tpcb},
    },
};

use super::sweep::Sweep;

/// As many as keep the rows of branches and tellers from deciding everything.
const USUAL: u32 = 100;
/// Where so many have no room.
const FEW: u32 = 10;

/// A bank: three balances and a row of history in each transaction.
///
/// A transaction adds an amount to an account, its teller and the teller's branch, and writes a row
/// of history. Afterwards every balance must be the sum of its history.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  foxton bench tpcb
  foxton bench tpcb --branches 1 --mpl 1,8,64 --seconds 1
      every transaction updates the same row
  foxton bench tpcb --local --branches 100
      as document 002 is likely to have run it
  foxton bench tpcb --durability sync --mpl 1,16,128
      group commit: many transactions share one write to the device")]
pub(crate) struct Arguments {
    /// Branches, each with ten tellers [default: 100; 10 where 100 have no room in memory].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) branches: Option<u32>,
    /// Accounts of each branch. The benchmark has 100,000.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) accounts: u32,
    /// Book to accounts of the teller's own branch only, not 15 of a hundred to another's.
    #[arg(long, conflicts_with = "pgbench")]
    pub(crate) local: bool,
    /// As pgbench has it: teller, branch and account are drawn each for itself, and amounts are 50.00 at
    /// most. Branches are then not the sum of their tellers, which is not checked.
    #[arg(long)]
    pub(crate) pgbench: bool,
    #[command(flatten)]
    pub(crate) sweep: Sweep,
}

impl Arguments {
    pub(crate) fn workload(&self) -> Tpcb {
        match self.branches {
            Some(branches) => self.bank(branches),
            None => {
                let (usual, databases) = (self.bank(USUAL), self.sweep.systems(false).len());
                match has_room(databases, usual.size()) {
                    true => usual,
                    false => self.bank(FEW),
                }
            }
        }
    }

    fn bank(&self, branches: u32) -> Tpcb {
        Tpcb {
            scale: Scale {
                branches,
                accounts_a_branch: self.accounts,
            },
            choice: match (self.local, self.pgbench) {
                (true, _) => Choice::Local,
                (_, true) => Choice::Pgbench,
                _ => Choice::Remote,
            },
            seed: self.sweep.seed,
        }
    }
}
