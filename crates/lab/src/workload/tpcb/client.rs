//! The transaction, and the client that runs one after another.

use std::time::{SystemTime, UNIX_EPOCH};

use foxton::{Database, Lock, Table, Transaction};

use super::{
    ACCOUNTS, BRANCHES, Choice, HISTORY, Scale, TELLERS, Tpcb,
    row::{self, Booking},
};
use crate::{
    driver::Client,
    measure::outcome::Ended,
    random::Random,
    workload::attempt::{Failure, until_committed},
};

/// The types of transaction, as they are named in results.
pub const KINDS: &[&str] = &["book"];
const LARGEST_DELTA: u32 = 999_999;
const LARGEST_OF_PGBENCH: u32 = 5_000;
/// Percentage of transactions whose account is of the teller's own branch.
const HOME_PERCENT: u32 = 85;

/// Draws the inputs of one transaction.
pub fn draw(random: &mut Random, scale: Scale, choice: Choice) -> Booking {
    let teller = random.uniform(1, u64::from(scale.tellers())) as u32;
    if choice == Choice::Pgbench {
        let branch = random.uniform(1, u64::from(scale.branches)) as u32;
        let account = random.uniform(1, u64::from(scale.accounts())) as u32;
        return Booking {
            branch,
            teller,
            account,
            delta: delta(random, LARGEST_OF_PGBENCH),
        };
    }
    let branch = scale.branch_of(teller);
    let each = u64::from(scale.accounts_a_branch);
    let home = scale.branches == 1 || choice == Choice::Local || random.percent(HOME_PERCENT);
    let of = if home {
        branch
    } else {
        // Uniform among the others: one fewer to draw from, then step over the own.
        let other = random.uniform(1, u64::from(scale.branches - 1)) as u32;
        if other < branch { other } else { other + 1 }
    };
    let account = (u64::from(of - 1) * each + random.uniform(1, each)) as u32;
    Booking {
        branch,
        teller,
        account,
        delta: delta(random, LARGEST_DELTA),
    }
}

/// A number of cents, not above `largest` and not below its negative.
fn delta(random: &mut Random, largest: u32) -> i64 {
    random.uniform(0, 2 * u64::from(largest)) as i64 - i64::from(largest)
}

/// Books it, as `number`, and returns the account's new balance. Does not commit.
///
/// # Errors
///
/// If the engine refuses an operation, or a row is missing or wrong.
pub fn book(
    tx: &mut Transaction,
    choice: Choice,
    booking: &Booking,
    number: (u32, u64),
) -> Result<i64, Failure> {
    let balance = add(tx, &ACCOUNTS, booking.account, booking.delta)?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let history = booking.encode(now);
    if choice == Choice::Pgbench {
        let read = tx.get_with(&ACCOUNTS, &booking.account, row::balance)?;
        if read != Some(Some(balance)) {
            let (account, name) = (booking.account, ACCOUNTS.name());
            return Err(Failure::Wrong(format!(
                "row {account} of {name} was written with {balance} and reads {read:?}"
            )));
        }
    } else {
        tx.insert(&HISTORY, &number, &history)?;
    }
    add(tx, &TELLERS, booking.teller, booking.delta)?;
    add(tx, &BRANCHES, booking.branch, booking.delta)?;
    if choice == Choice::Pgbench {
        tx.insert(&HISTORY, &number, &history)?;
    }
    Ok(balance)
}

fn add(
    tx: &mut Transaction,
    table: &Table<u32, [u8]>,
    key: u32,
    delta: i64,
) -> Result<i64, Failure> {
    // It is written in any case, so the lock for writing is requested at once.
    let found = tx.get_locked(table, &key, Lock::Exclusive)?;
    let missing = || Failure::Wrong(format!("row {key} of {} is gone", table.name()));
    let mut row = found.ok_or_else(missing)?;
    let balance = row::balance(&row).ok_or_else(missing)? + delta;
    row::set_balance(&mut row, balance);
    tx.put(table, &key, &row)?;
    Ok(balance)
}

/// A client of tpcb.
#[derive(Debug)]
pub struct TpcbClient {
    db: Database,
    scale: Scale,
    choice: Choice,
    random: Random,
    number: u32,
    sequence: u64,
}

impl TpcbClient {
    /// Client `number`; no two that ever run on one database may share it.
    pub fn new(db: Database, bank: &Tpcb, number: u32) -> TpcbClient {
        let workload = u64::from_be_bytes(*b"____tpcb");
        let random = Random::seeded(&[bank.seed, workload, u64::from(number)]);
        TpcbClient {
            db,
            scale: bank.scale,
            choice: bank.choice,
            random,
            number,
            sequence: 0,
        }
    }
}

impl Client for TpcbClient {
    fn transaction(&mut self) -> Ended {
        let (scale, choice) = (self.scale, self.choice);
        let booking = draw(&mut self.random, scale, choice);
        self.sequence += 1;
        let number = (self.number, self.sequence);
        until_committed(&self.db, (KINDS, 0), &mut self.random, |tx| {
            book(tx, choice, &booking, number).map(drop)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_fifteen_in_a_hundred_accounts_are_of_another_branch_and_never_of_the_own() {
        let scale = Scale {
            branches: 4,
            accounts_a_branch: 50,
        };
        let mut random = Random::seeded(&[3]);
        let remote = (0..20_000).filter(|_| {
            let booking = draw(&mut random, scale, Choice::Remote);
            assert!((1..=40).contains(&booking.teller) && (1..=200).contains(&booking.account));
            booking.account.div_ceil(50) != booking.branch
        });
        let remote = remote.count();
        assert!((2_800..=3_200).contains(&remote), "{remote}");
    }

    #[test]
    fn local_accounts_are_of_the_tellers_branch_and_pgbench_draws_each_for_itself() {
        let scale = Scale {
            branches: 4,
            accounts_a_branch: 50,
        };
        let mut random = Random::seeded(&[4]);
        let (mut own_tellers, mut own_accounts) = (0, 0);
        for _ in 0..8_000 {
            let local = draw(&mut random, scale, Choice::Local);
            assert_eq!(local.account.div_ceil(50), local.branch);
            assert!(local.delta.abs() <= 999_999);
            let Booking {
                branch,
                teller,
                account,
                delta,
            } = draw(&mut random, scale, Choice::Pgbench);
            assert!((1..=40).contains(&teller) && (1..=200).contains(&account));
            assert!(delta.abs() <= 5_000);
            own_tellers += u32::from(scale.branch_of(teller) == branch);
            own_accounts += u32::from(account.div_ceil(50) == branch);
        }
        // A quarter of each.
        assert!(own_tellers.abs_diff(2_000) < 200 && own_accounts.abs_diff(2_000) < 200);
    }
}
