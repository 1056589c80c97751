//! The sums that must agree, in exact cents, on a quiet database.

use foxton::{Database, Table, codec::Key};

use super::{
    ACCOUNTS, BRANCHES, Choice, HISTORY, Scale, TELLERS,
    row::{self, Booking},
};

/// Compares every balance with its history, and a branch with its tellers where these are its own.
///
/// `acknowledged` is how many transactions were acknowledged: the history must have exactly so
/// many rows. `None` leaves that out, for a database that was killed.
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

/// What history says was booked, by number; the number 0 is nobody's.
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
        let mut wrong = None;
        let mut tx = db.begin().map_err(|error| error.to_string())?;
        tx.range(&HISTORY, ..)
            .for_each_bytes(|_, row| {
                booked.rows += 1;
                if booked.add(row).is_none() {
                    wrong = Some(format!("a row of history makes no sense: {row:?}"));
                }
            })
            .and_then(|()| tx.commit())
            .map_err(|error| format!("history cannot be read: {error}"))?;
        wrong.map_or(Ok(booked), Err)
    }

    fn add(&mut self, row: &[u8]) -> Option<()> {
        let booking = Booking::decode(row)?;
        *self.accounts.get_mut(booking.account as usize)? += booking.delta;
        *self.tellers.get_mut(booking.teller as usize)? += booking.delta;
        *self.branches.get_mut(booking.branch as usize)? += booking.delta;
        Some(())
    }
}

/// Compares a table's balances with what was booked, and returns them by number.
fn compare(db: &Database, table: &Table<u32, [u8]>, booked: &[i64]) -> Result<Vec<i64>, String> {
    let name = table.name();
    let mut balances = vec![0];
    let mut wrong = None;
    let mut tx = db.begin().map_err(|error| error.to_string())?;
    tx.range(table, ..)
        .for_each_bytes(|key, row| {
            let number = u32::decode(key).unwrap_or(0) as usize;
            let (balance, sum) = (row::balance(row), booked.get(number).copied());
            if number != balances.len() || balance != sum {
                wrong.get_or_insert(format!(
                    "row {number} of {name}: balance {balance:?}, history {sum:?}"
                ));
            }
            balances.push(balance.unwrap_or(0));
        })
        .and_then(|()| tx.commit())
        .map_err(|error| format!("{name} cannot be read: {error}"))?;
    match wrong {
        Some(what) => Err(what),
        None if balances.len() != booked.len() => Err(format!(
            "{name} has {} rows, not {}",
            balances.len() - 1,
            booked.len() - 1
        )),
        None => Ok(balances),
    }
}
