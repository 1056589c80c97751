//! Loading the bank: every balance zero, no history.

use foxton::{Database, Table};

use super::{ACCOUNTS, BRANCHES, Scale, TELLERS, row::empty_balance};
use crate::{
    progress::Progress,
    workload::loading::{ROWS_A_TRANSACTION, in_parallel, pieces},
};

/// Fills the tables with so many threads.
///
/// # Errors
///
/// What the engine refused.
pub fn load(
    db: &Database,
    scale: Scale,
    threads: usize,
    progress: &Progress,
) -> foxton::Result<()> {
    let fill = |table: &Table<u32, [u8]>, rows: u32, branch_of: &(dyn Fn(u32) -> u32 + Sync)| {
        let pieces = pieces(rows, ROWS_A_TRANSACTION);
        in_parallel(db, threads, pieces, progress, |tx, keys| {
            for key in keys.clone() {
                tx.insert(table, &key, &empty_balance(branch_of(key)))?;
            }
            Ok(u64::from(keys.end() - keys.start() + 1))
        })
    };
    fill(&BRANCHES, scale.branches, &|branch| branch)?;
    fill(&TELLERS, scale.tellers(), &|teller| scale.branch_of(teller))?;
    let each = scale.accounts_a_branch;
    fill(&ACCOUNTS, scale.accounts(), &|account| {
        account.div_ceil(each)
    })
}
