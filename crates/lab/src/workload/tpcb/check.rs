//! The sums that must agree, in exact cents, on a quiet database.

use foxton::{Database, Table};

use super::{
    ACCOUNTS, BRANCHES, Choice, HISTORY, Scale, TELLERS,
    row::{self, Booking},
};
use crate::workload::whole_table::{each_numbered, each_row};

/// Compares every balance with its history, and a branch with its tellers where these are its own.
///
/// `acknowledged` is the number of acknowledged transactions: the history must have exactly as many
/// rows. `None` skips that check, for a database that was killed.
///
/// # Errors
///
/// The first thing found wrong, as a sentence.
pub fn check(
    db: &Database,
    scale: Scale,
    choice: Choice,
    acknowledged: Option<u64>,
) -> Result<(), String> {
    let history = Booked::read(db, scale)?;
    if acknowledged.is_some_and(|count| count != history.rows) {
        return Err(format!(
            "{} transactions were acknowledged and history has {} rows",
            acknowledged.unwrap_or(0),
            history.rows
        ));
    }
    compare(db, &ACCOUNTS, &history.accounts)?;
    let tellers = compare(db, &TELLERS, &history.tellers)?;
    let branches = compare(db, &BRANCHES, &history.branches)?;
    if choice == Choice::Pgbench {
        return Ok(());
    }
    for (index, balance) in branches.iter().enumerate().skip(1) {
        let own = tellers.iter().enumerate().skip(1);
        let own = own.filter(|(teller, _)| scale.branch_of(*teller as u32) as usize == index);
        let sum: i64 = own.map(|(_, balance)| balance).sum();
        if sum != *balance {
            return Err(format!("branch {index} has {balance}, its tellers {sum}"));
        }
    }
    Ok(())
}

/// Sums of the history by number; index 0 is unused.
struct Booked {
    rows: u64,
    accounts: Vec<i64>,
    tellers: Vec<i64>,
    branches: Vec<i64>,
}

impl Booked {
    fn read(db: &Database, scale: Scale) -> Result<Booked, String> {
        let zeros = |count: u32| vec![0; count as usize + 1];
        let mut booked = Booked {
            rows: 0,
            accounts: zeros(scale.accounts()),
            tellers: zeros(scale.tellers()),
            branches: zeros(scale.branches),
        };
        each_row(db, &HISTORY, |key, row| {
            booked.rows += 1;
            let name = HISTORY.name();
            let wrong = || format!("row {key:?} of {name} cannot be decoded: {row:?}");
            booked.add(row).ok_or_else(wrong)
        })?;
        Ok(booked)
    }

    fn add(&mut self, row: &[u8]) -> Option<()> {
        let booking = Booking::decode(row)?;
        *self.accounts.get_mut(booking.account as usize)? += booking.delta;
        *self.tellers.get_mut(booking.teller as usize)? += booking.delta;
        *self.branches.get_mut(booking.branch as usize)? += booking.delta;
        Some(())
    }
}

/// Compares a table's balances with the sums, and returns them by number.
fn compare(db: &Database, table: &Table<u32, [u8]>, booked: &[i64]) -> Result<Vec<i64>, String> {
    let (name, mut balances) = (table.name(), vec![0]);
    each_numbered(db, table, booked.len() as u32 - 1, |number, row| {
        let (balance, sum) = (row::balance(row), booked[number as usize]);
        if balance != Some(sum) {
            return Err(format!(
                "row {number} of {name}: balance {balance:?}, history {sum}"
            ));
        }
        balances.push(sum);
        Ok(())
    })?;
    Ok(balances)
}

#[cfg(test)]
mod tests {
    //! Each check finds its fault.

    use foxton::{Options, Transaction};

    use super::*;
    use crate::{
        driver::Client,
        measure::outcome::Outcome,
        progress::Audience,
        workload::{
            loading::Loading,
            tpcb::{Tpcb, client::TpcbClient, load},
        },
    };

    const BANK: Tpcb = Tpcb {
        scale: Scale {
            branches: 2,
            accounts_a_branch: 10,
        },
        choice: Choice::Remote,
        seed: 1,
    };
    const BOOKINGS: u64 = 30;

    fn found(spoil: impl Fn(&mut Transaction) -> foxton::Result<()>) -> String {
        let db = Database::in_memory(Options::tiny()).unwrap();
        let nobody = Audience::Nobody.count("", 0, "");
        load::load(&Loading::new(&db, 2, &nobody), BANK.scale).unwrap();
        let mut client = TpcbClient::new(db.clone(), &BANK, 0);
        for _ in 0..BOOKINGS {
            assert_eq!(client.transaction().outcome, Outcome::Ok);
        }
        let check = |acknowledged| check(&db, BANK.scale, BANK.choice, acknowledged);
        assert_eq!(check(Some(BOOKINGS)), Ok(()));
        db.run(spoil).unwrap();
        check(None).unwrap_err()
    }

    /// Adds these cents to a row.
    fn pay(
        tx: &mut Transaction,
        table: &Table<u32, [u8]>,
        number: u32,
        cents: i64,
    ) -> foxton::Result<()> {
        let mut row = tx.get(table, &number)?.expect("it was loaded");
        let balance = row::balance(&row).expect("it is one");
        row::set_balance(&mut row, balance + cents);
        tx.put(table, &number, &row[..])
    }

    #[test]
    fn a_wrong_balance_is_found_and_its_row_named() {
        for (table, number) in [(&ACCOUNTS, 20), (&TELLERS, 11), (&BRANCHES, 1)] {
            let what = found(|tx| pay(tx, table, number, 1));
            let row = format!("row {number} of {}: balance Some(", table.name());
            assert!(what.starts_with(&row), "{what}");
        }
        assert_eq!(
            found(|tx| tx.delete(&TELLERS, &20).map(drop)),
            "row 20 of tpcb_teller is gone"
        );
        assert_eq!(
            found(|tx| tx.delete(&TELLERS, &7).map(drop)),
            "row 7 of tpcb_teller is gone"
        );
    }

    /// A booking of the other branch's teller agrees with each balance by itself.
    #[test]
    fn a_branch_that_is_not_the_sum_of_its_tellers_is_found_and_named() {
        for delta in [1, -1] {
            let what = found(|tx| {
                let booking = Booking {
                    branch: 1,
                    teller: 11,
                    account: 3,
                    delta,
                };
                tx.put(&HISTORY, &(9, 9), &booking.encode(0)[..])?;
                pay(tx, &BRANCHES, 1, delta)?;
                pay(tx, &TELLERS, 11, delta)?;
                pay(tx, &ACCOUNTS, 3, delta)
            });
            assert!(what.starts_with("branch 1 has"), "{what}");
        }
    }

    #[test]
    fn history_that_makes_no_sense_is_found_and_named() {
        let what = found(|tx| tx.put(&HISTORY, &(9, 8), &b"nothing"[..]));
        assert!(what.starts_with("row (9, 8) of tpcb_history"), "{what}");
        let nobody = Booking {
            branch: 3,
            teller: 1,
            account: 1,
            delta: 0,
        };
        let what = found(|tx| tx.put(&HISTORY, &(9, 7), &nobody.encode(0)[..]));
        assert!(what.starts_with("row (9, 7) of tpcb_history"), "{what}");
    }
}
