//! Loading the bank: every balance zero, no history.

use foxton::{Database, Durability, Table};

use super::{ACCOUNTS, BRANCHES, Scale, TELLERS, row::empty_balance};
use crate::progress::Progress;

const ROWS_A_TRANSACTION: u32 = 1_000;

/// Fills the tables.
///
/// # Errors
///
/// What the engine refused.
pub fn load(db: &Database, scale: Scale, progress: &Progress) -> foxton::Result<()> {
    fill(db, &BRANCHES, scale.branches, progress, |branch| branch)?;
    fill(db, &TELLERS, scale.tellers(), progress, |teller| {
        scale.branch_of(teller)
    })?;
    let branch_of = |account: u32| account.div_ceil(scale.accounts_a_branch);
    fill(db, &ACCOUNTS, scale.accounts(), progress, branch_of)
}

fn fill(
    db: &Database,
    table: &Table<u32, [u8]>,
    rows: u32,
    progress: &Progress,
    branch_of: impl Fn(u32) -> u32,
) -> foxton::Result<()> {
    for first in (1..=rows).step_by(ROWS_A_TRANSACTION as usize) {
        let last = rows.min(first + ROWS_A_TRANSACTION - 1);
        db.run(|tx| {
            tx.set_durability(Durability::None);
            (first..=last)
                .try_for_each(|key| tx.insert(table, &key, &empty_balance(branch_of(key))))
        })?;
        progress.advance(u64::from(last - first + 1));
    }
    Ok(())
}
