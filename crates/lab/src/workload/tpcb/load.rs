//! Loading the bank: every balance zero, no history.

use foxton::Table;

use super::{ACCOUNTS, BRANCHES, Scale, TELLERS, row::empty_balance};
use crate::workload::loading::Loading;

/// Fills the tables.
///
/// # Errors
///
/// If the engine refuses an operation.
pub fn load(into: &Loading<'_>, scale: Scale) -> foxton::Result<()> {
    let fill = |table: &Table<u32, [u8]>, rows: u32, branch_of: &(dyn Fn(u32) -> u32 + Sync)| {
        into.each(rows, |tx, key| {
            tx.insert(table, &key, &empty_balance(branch_of(key)))?;
            Ok(1)
        })
    };
    fill(&BRANCHES, scale.branches, &|branch| branch)?;
    fill(&TELLERS, scale.tellers(), &|teller| scale.branch_of(teller))?;
    let each = scale.accounts_a_branch;
    fill(&ACCOUNTS, scale.accounts(), &|account| {
        account.div_ceil(each)
    })
}
