//! The ledger's transactions on a database.

use crate::ledger::{Contents, Entry, Number, Scale, entry, is_abandoned};
use foxton::{Database, Durability, Error, Result, Table, Transaction};
use std::collections::BTreeMap;

/// A balance and something to make the row so long that an update of it is logged as a patch.
type Padded = (i64, [u8; 80]);

const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
const TELLERS: Table<u64, Padded> = Table::new("tellers");
const BRANCHES: Table<u64, Padded> = Table::new("branches");
const HISTORY: Table<Number, (u64, u64, u64, i64)> = Table::new("history");
const BOOKMARKS: Table<Number, ()> = Table::new("bookmarks");

/// Fills the tables with zeros, in one transaction, unless they are there.
///
/// # Errors
///
/// Whatever the database answers.
pub fn load(db: &Database, scale: Scale) -> Result<()> {
    db.run(|tx| {
        if tx.get_for_update(&BRANCHES, &0)?.is_some() {
            return Ok(());
        }
        for id in 0..scale.accounts {
            tx.insert(&ACCOUNTS, &id, &0)?;
        }
        for (table, rows) in [(TELLERS, scale.tellers), (BRANCHES, scale.branches)] {
            for id in 0..rows {
                tx.insert(&table, &id, &padded(id, 0))?;
            }
        }
        Ok(())
    })
}

/// Runs transaction `number`. It returns when the commit was acknowledged, or when the
/// transaction was rolled back, if it is one of those that are.
///
/// # Errors
///
/// Whatever the database answers, except conflicts: those run again.
pub fn run(
    db: &Database,
    seed: u64,
    number: Number,
    scale: Scale,
    durability: Durability,
) -> Result<()> {
    let entry = entry(seed, number, scale);
    let abandoned = is_abandoned(number.1);
    let done = db.run(|tx| {
        tx.set_durability(durability);
        change(tx, number, entry)?;
        if abandoned {
            Err(Error::other("rolled back by its client"))
        } else {
            Ok(())
        }
    });
    match done {
        Err(error) if abandoned && error.code() == "other" => Ok(()),
        done => done,
    }
}

fn change(tx: &mut Transaction, number: Number, entry: Entry) -> Result<()> {
    const LOADED: &str = "the load made every row";
    let balance = tx.get_for_update(&ACCOUNTS, &entry.account)?.expect(LOADED);
    tx.put(&ACCOUNTS, &entry.account, &(balance + entry.amount))?;
    for (table, id) in [(TELLERS, entry.teller), (BRANCHES, entry.branch)] {
        let row = tx.get_for_update(&table, &id)?.expect(LOADED);
        let balance = balance_in(id, row)?;
        tx.put(&table, &id, &padded(id, balance + entry.amount))?;
    }
    let row = (entry.account, entry.teller, entry.branch, entry.amount);
    tx.insert(&HISTORY, &number, &row)?;
    // The last one that is there: a pending one may have been lost with the process.
    let (client, n) = number;
    let before = tx
        .range(&BOOKMARKS, (client, 0)..(client, n))
        .reversed()
        .limit(1)
        .collect()?;
    for (bookmark, ()) in before {
        tx.delete(&BOOKMARKS, &bookmark)?;
    }
    tx.insert(&BOOKMARKS, &number, &())
}

fn padded(id: u64, balance: i64) -> Padded {
    (balance, [id as u8; 80])
}

/// The balance in the row `id`, if all of that is as it was written.
fn balance_in(id: u64, row: Padded) -> Result<i64> {
    let (balance, _) = row;
    if row == padded(id, balance) {
        Ok(balance)
    } else {
        Err(Error::other("a row is not as anybody wrote it"))
    }
}

/// The last transaction of each client, read in one transaction.
///
/// # Errors
///
/// Whatever the database answers.
pub fn last_of_each(db: &Database) -> Result<Vec<Number>> {
    let bookmarks = db.run(|tx| tx.range(&BOOKMARKS, ..).collect())?;
    Ok(bookmarks.into_iter().map(|(number, ())| number).collect())
}

/// Reads everything, in one transaction.
///
/// # Errors
///
/// Whatever the database answers.
pub fn read(db: &Database) -> Result<Contents> {
    db.run(|tx| {
        let entry = |(account, teller, branch, amount)| Entry {
            account,
            teller,
            branch,
            amount,
        };
        let history = tx.range(&HISTORY, ..).collect()?;
        let bookmarks = tx.range(&BOOKMARKS, ..).collect()?;
        Ok(Contents {
            accounts: tx.range(&ACCOUNTS, ..).collect()?.into_iter().collect(),
            tellers: balances(tx, &TELLERS)?,
            branches: balances(tx, &BRANCHES)?,
            history: history
                .into_iter()
                .map(|(number, row)| (number, entry(row)))
                .collect(),
            bookmarks: bookmarks.into_iter().map(|(number, ())| number).collect(),
        })
    })
}

fn balances(tx: &mut Transaction, table: &Table<u64, Padded>) -> Result<BTreeMap<u64, i64>> {
    let rows = tx.range(table, ..).collect()?.into_iter();
    rows.map(|(id, row)| Ok((id, balance_in(id, row)?)))
        .collect()
}
