//! tpcb: a bank's branches, tellers, accounts, and a history of what was booked.
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

use foxton::Table;

/// Balances of branches by number, from 1.
pub const BRANCHES: Table<u32, [u8]> = Table::new("tpcb_branch");
/// Balances of tellers by number, from 1; ten to a branch.
pub const TELLERS: Table<u32, [u8]> = Table::new("tpcb_teller");
/// Balances of accounts by number, from 1.
pub const ACCOUNTS: Table<u32, [u8]> = Table::new("tpcb_account");
/// What was booked, by (who, how manieth of theirs).
pub const HISTORY: Table<(u32, u64), [u8]> = Table::new("tpcb_history");

/// Tellers of a branch.
pub const TELLERS_A_BRANCH: u32 = 10;

/// How many rows there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Branches.
    pub branches: u32,
    /// Accounts of each.
    pub accounts_a_branch: u32,
}

impl Scale {
    /// As the benchmark has it: 100,000 accounts to a branch.
    pub fn branches(branches: u32) -> Scale {
        Scale {
            branches,
            accounts_a_branch: 100_000,
        }
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
