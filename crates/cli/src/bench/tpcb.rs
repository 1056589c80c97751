//! `foxton bench tpcb`.

use std::str::FromStr;

use clap::Args;
use foxton_lab::{
    bench::runs::has_room,
    workload::{
        contract::Workload,
        tpcb::{Choice, Scale, Tpcb},
    },
};

use super::sweep::Sweep;

/// Enough branches that the rows of branches and tellers do not decide the result.
const USUAL: u32 = 100;
/// Branches if so many do not fit into memory.
const FEW: u32 = 10;
const MOST: u32 = 10_000;

/// Number of branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Branches {
    /// The largest number of clients, and at least [`USUAL`].
    Clients,
    /// This number.
    Count(u32),
}

impl FromStr for Branches {
    type Err = String;
    fn from_str(text: &str) -> Result<Branches, String> {
        let count = text.parse().ok().filter(|count| (1..=MOST).contains(count));
        match (text, count) {
            ("clients", _) => Ok(Branches::Clients),
            (_, Some(count)) => Ok(Branches::Count(count)),
            _ => Err(format!("give a number from 1 to {MOST}, or clients")),
        }
    }
}

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
  foxton bench tpcb --branches clients --mpl 1,8,64,512 --locks default
      a branch for each of 512 clients, so that clients need not share one
  foxton bench tpcb --local --accounts 100000 --locks default --keep
      probably document 002's form: ten million accounts
  foxton bench tpcb --durability sync --mpl 1,16,128
      group commit: many transactions share one write to the device")]
pub(crate) struct Arguments {
    /// Branches, each with ten tellers: a number, or `clients` for the largest number of clients
    /// (at least 100) [default: 100; 10 if 100 do not fit into memory].
    #[arg(long)]
    pub(crate) branches: Option<Branches>,
    /// Accounts of each branch. The benchmark has 100,000; the default is a tenth, because the data
    /// are loaded again for each measurement.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) accounts: u32,
    /// Book to accounts of the teller's own branch only, not 15 of a hundred to another's.
    #[arg(long, conflicts_with = "pgbench")]
    pub(crate) local: bool,
    /// Draw as pgbench does: teller, branch and account independently, and amounts of at most
    /// 50.00. Then branches are not the sum of their tellers, and that is not checked.
    #[arg(long)]
    pub(crate) pgbench: bool,
    #[command(flatten)]
    pub(crate) sweep: Sweep,
}

impl Arguments {
    pub(crate) fn workload(&self) -> Tpcb {
        match self.branches {
            Some(Branches::Count(branches)) => self.bank(branches),
            Some(Branches::Clients) => self.bank(self.sweep.most_clients().max(USUAL)),
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn the_number_of_branches_is_that_of_the_arguments() {
        let branches = |words: &[&str]| {
            let words = ["tpcb"].iter().chain(words);
            let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
            Ok::<u32, String>(command.arguments.workload().scale.branches)
        };
        assert_eq!(branches(&["--branches", "7"]), Ok(7));
        let clients = ["--branches", "clients", "--mpl", "8,300,64"];
        assert_eq!(branches(&clients), Ok(300));
        assert_eq!(branches(&clients[..2]), Ok(512));
        assert_eq!(branches(&["--branches", "clients", "--mpl", "4"]), Ok(100));
        for wrong in ["0", "10001", "client"] {
            let words = branches(&["--branches", wrong]).unwrap_err();
            assert!(words.contains("or clients"), "{words}");
        }
    }
}
