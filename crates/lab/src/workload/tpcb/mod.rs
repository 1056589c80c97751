//! tpcb: a bank's branches, tellers, accounts, and a history.
//!
//! Each transaction books an amount to an account, its teller and the teller's branch, and writes
//! a row of history. The branch is the hot row and is updated last, so that its lock is held
//! shortest. In this order no deadlock is possible on the balances.

/// Rows as bytes.
pub mod row;

/// The tables and their load.
pub mod load;

/// The transaction, and the client that runs one after another.
pub mod client;

/// The sums that must agree.
pub mod check;

use foxton::{Database, Table};
use serde_json::json;

use super::{
    contract::{About, Loaded, Size, Workload},
    loading::Loading,
};
use crate::{
    driver::Client,
    measure::outcome::{Outcome, Tally},
};

/// Balances of branches by number, from 1.
pub const BRANCHES: Table<u32, [u8]> = Table::new("tpcb_branch");
/// Balances of tellers by number, from 1; ten to a branch.
pub const TELLERS: Table<u32, [u8]> = Table::new("tpcb_teller");
/// Balances of accounts by number, from 1.
pub const ACCOUNTS: Table<u32, [u8]> = Table::new("tpcb_account");
/// The history, by (writer, sequence number of the writer).
pub const HISTORY: Table<(u32, u64), [u8]> = Table::new("tpcb_history");

/// Tellers of a branch.
pub const TELLERS_A_BRANCH: u32 = 10;

/// Numbers of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Branches.
    pub branches: u32,
    /// Accounts of each.
    pub accounts_a_branch: u32,
}

impl Scale {
    /// The benchmark's scale: 100,000 accounts to a branch.
    pub fn branches(branches: u32) -> Scale {
        Scale {
            branches,
            accounts_a_branch: 100_000,
        }
    }

    /// True if its branches are as large as the benchmark's.
    pub fn is_full(self) -> bool {
        self == Scale::branches(self.branches)
    }

    /// All tellers.
    pub fn tellers(self) -> u32 {
        self.branches * TELLERS_A_BRANCH
    }

    /// All accounts.
    pub fn accounts(self) -> u32 {
        self.branches * self.accounts_a_branch
    }

    /// The branch of a teller.
    pub fn branch_of(self, teller: u32) -> u32 {
        teller.div_ceil(TELLERS_A_BRANCH)
    }
}

/// The accounts of a teller's transactions, and their further steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The benchmark's choice: of a hundred accounts 85 are of the teller's branch, 15 of another.
    Remote,
    /// All accounts are of the teller's branch; probably document 002's choice.
    Local,
    /// The choice of pgbench: teller, branch and account are drawn independently, the account's
    /// balance is read again after it is written, and history comes last.
    Pgbench,
}

foxton_sync::named_enum! {
    Choice, "choice of accounts":
    Remote = "remote",
    Local = "local",
    Pgbench = "pgbench",
}

impl Choice {
    /// Suffix of the variant's name.
    fn suffix(self) -> String {
        match self {
            Choice::Remote => String::new(),
            _ => format!("-{self}"),
        }
    }

    fn description(self) -> &'static str {
        match self {
            Choice::Remote => {
                "A transaction adds an amount to an account, its teller and the teller's branch, and writes \
                 a row of history; 15 of a hundred accounts are of another branch."
            }
            Choice::Local => {
                "A transaction adds an amount to an account, its teller and the teller's branch, and writes \
                 a row of history; all accounts are of the teller's branch."
            }
            Choice::Pgbench => {
                "As in pgbench: a transaction adds an amount to an account, a teller and a branch, each \
                 drawn independently, reads the account's balance in between, and writes a row of history."
            }
        }
    }
}

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct Tpcb {
    /// Numbers of rows.
    pub scale: Scale,
    /// The choice of accounts.
    pub choice: Choice,
    /// Seed of the clients.
    pub seed: u64,
}

impl Workload for Tpcb {
    fn about(&self) -> About {
        let scale = self.scale;
        let (reduced, small) = match scale.is_full() {
            true => ("", ""),
            false => (
                " Reduced: TPC-B has 100,000 accounts to a branch.",
                "-reduced",
            ),
        };
        About {
            name: "tpcb",
            variant: format!("{}-branches{}{small}", scale.branches, self.choice.suffix()),
            title: match self.choice {
                Choice::Remote => format!("tpcb, {} branches", scale.branches),
                choice => format!("tpcb, {} branches, {choice}", scale.branches),
            },
            description: format!(
                "{} branches of ten tellers and {} accounts. {}{reduced}",
                scale.branches,
                scale.accounts_a_branch,
                self.choice.description()
            ),
            checked: format!(
                "after each run every balance is the sum of its history{}, and history has a row for each \
                 acknowledged commit.",
                match self.choice {
                    Choice::Pgbench => "",
                    _ => ", every branch the sum of its tellers",
                }
            ),
            settings: vec![
                ("branches", json!(scale.branches)),
                ("accounts", json!(scale.accounts())),
                ("choice", json!(self.choice.to_string())),
                ("isolation", json!("serializable")),
                ("seed", json!(self.seed)),
            ],
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        client::KINDS
    }

    fn sound(&self) -> Result<(), String> {
        let Scale {
            branches,
            accounts_a_branch: accounts,
        } = self.scale;
        if branches == 0 || accounts == 0 {
            return Err(
                "a bank needs a branch, and a branch an account; give 1 or more".to_owned(),
            );
        }
        // Numbers of tellers and of accounts are u32.
        let each = accounts.max(TELLERS_A_BRANCH);
        match branches.checked_mul(each) {
            Some(_) => Ok(()),
            None => Err(format!(
                "{branches} branches of {accounts} accounts are more than 4,294,967,295; give fewer"
            )),
        }
    }

    fn size(&self) -> Size {
        let scale = self.scale;
        Size {
            rows: [scale.branches, scale.tellers(), scale.accounts()]
                .map(u64::from)
                .iter()
                .sum(),
            row_bytes: row::BALANCE_BYTES as u64,
        }
    }

    fn grows(&self) -> bool {
        true
    }

    fn load(&self, into: &Loading<'_>) -> foxton::Result<Box<dyn Loaded>> {
        load::load(into, self.scale)?;
        Ok(Box::new(*self))
    }
}

impl Loaded for Tpcb {
    fn client(&mut self, db: &Database, number: u32) -> Box<dyn Client> {
        let client = client::TpcbClient::new(db.clone(), self, number);
        Box::new(client)
    }

    fn check(&mut self, db: &Database, ended: &Tally) -> Result<(), String> {
        check::check(db, self.scale, self.choice, Some(ended.of(Outcome::Ok)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bank_with_smaller_branches_than_the_benchmark_has_says_so() {
        let about = |accounts_a_branch| {
            let bank = Tpcb {
                scale: Scale {
                    branches: 3,
                    accounts_a_branch,
                },
                choice: Choice::Local,
                seed: 1,
            };
            let about = bank.about();
            (about.variant, about.description)
        };
        let (variant, description) = about(100_000);
        assert_eq!(variant, "3-branches-local");
        assert!(!description.contains("Reduced"), "{description}");
        let (variant, description) = about(10_000);
        assert_eq!(variant, "3-branches-local-reduced");
        assert!(description.ends_with("TPC-B has 100,000 accounts to a branch."));
    }
}
