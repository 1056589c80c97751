//! The ledger's transactions on a database.

use crate::ledger::{Contents, Entry, Note, Number, Scale, entry, is_abandoned, note, note_number};
use foxton::{Database, Durability, Error, Index, Options, Result, Table, Transaction};
use std::collections::{BTreeMap, BTreeSet};

/// A balance, and padding that makes the row so long that an update of it is logged as a patch.
type Padded = (i64, [u8; 80]);

const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
const TELLERS: Table<u64, Padded> = Table::new("tellers");
const BRANCHES: Table<u64, Padded> = Table::new("branches");
const HISTORY: Table<Number, (u64, u64, u64, i64)> = Table::new("history");
const BOOKMARKS: Table<Number, ()> = Table::new("bookmarks");
/// Notes by client. In pages, most are large values.
const NOTES: Table<u32, [u8]> = Table::new("notes");

/// Every update of a teller moves its entry.
const TELLERS_BY_BALANCE: Index<i64, u64, Padded> =
    Index::new("tellers_by_balance", &TELLERS, |_, (balance, _), keys| {
        keys.add(balance);
    });
const HISTORY_BY_ACCOUNT: Index<u64, Number, (u64, u64, u64, i64)> =
    Index::new("history_by_account", &HISTORY, |_, row, keys| {
        keys.add(&row.0)
    });
/// A transaction moves its client's entry from one row to another.
const BOOKMARKS_BY_CLIENT: Index<u32, Number, ()> =
    Index::unique("bookmarks_by_client", &BOOKMARKS, |number, (), keys| {
        keys.add(&number.0);
    });

/// An entry comes from a whole value, large or not.
const NOTES_BY_NUMBER: Index<u64, u32, [u8]> =
    Index::new("notes_by_number", &NOTES, |_, bytes, keys| {
        keys.add(&note_number(bytes));
    });

/// Declares the tables' indexes.
pub fn declare(options: &mut Options) {
    options
        .indexes
        .add(&TELLERS_BY_BALANCE)
        .add(&HISTORY_BY_ACCOUNT)
        .add(&BOOKMARKS_BY_CLIENT)
        .add(&NOTES_BY_NUMBER);
}

/// Returns faults of the [declared](declare) indexes of a database whose rows are `contents`. Each
/// index is compared with its table, and read from end to end.
///
/// # Errors
///
/// Any error of the database.
pub fn check_indexes(db: &Database, contents: &Contents) -> Result<Vec<String>> {
    let findings = db.check_indexes()?;
    let mut faults: Vec<String> = findings
        .iter()
        .map(|finding| format!("an index differs from its table: {finding}"))
        .collect();
    let mut compare = |index: &str, is_right: bool| {
        if !is_right {
            faults.push(format!(
                "reading by {index} gives other rows than the table"
            ));
        }
    };
    db.run(|tx| {
        let tellers = tx.range_by(&TELLERS_BY_BALANCE, ..).collect()?.into_iter();
        let expected = contents.tellers.iter().map(|(&id, &balance)| (balance, id));
        let expected: BTreeSet<(i64, u64)> = expected.collect();
        compare(
            TELLERS_BY_BALANCE.name(),
            tellers.map(|(balance, id, _)| (balance, id)).eq(expected),
        );
        let history = tx.range_by(&HISTORY_BY_ACCOUNT, ..).collect()?.into_iter();
        let expected = contents.history.iter();
        let expected: BTreeSet<(u64, Number)> = expected
            .map(|(&number, entry)| (entry.account, number))
            .collect();
        compare(
            HISTORY_BY_ACCOUNT.name(),
            history
                .map(|(account, number, _)| (account, number))
                .eq(expected),
        );
        let notes = tx.range_by(&NOTES_BY_NUMBER, ..).collect()?.into_iter();
        let expected = contents
            .notes
            .iter()
            .map(|(&client, note)| (note.n, client));
        let expected: BTreeSet<(u64, u32)> = expected.collect();
        compare(
            NOTES_BY_NUMBER.name(),
            notes.map(|(n, client, _)| (n, client)).eq(expected),
        );
        for &number in &contents.bookmarks {
            let found = tx.get_by(&BOOKMARKS_BY_CLIENT, &number.0)?;
            compare(BOOKMARKS_BY_CLIENT.name(), found == Some((number, ())));
        }
        Ok(())
    })?;
    Ok(faults)
}

/// Fills the tables with zeros, in one transaction, unless they exist.
///
/// # Errors
///
/// Any error of the database.
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

/// Runs transaction `number`. Returns when the commit was acknowledged, or when the transaction was
/// rolled back, if its client rolls it back.
///
/// # Errors
///
/// Any error of the database but conflicts, after which it runs again.
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
        if scale.note_bytes > 0 {
            tx.put(&NOTES, &number.0, &note(number, scale)[..])?;
        }
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
    const LOADED: &str = "the load wrote every row";
    let balance = tx.get_for_update(&ACCOUNTS, &entry.account)?.expect(LOADED);
    tx.put(&ACCOUNTS, &entry.account, &(balance + entry.amount))?;
    for (table, id) in [(TELLERS, entry.teller), (BRANCHES, entry.branch)] {
        let row = tx.get_for_update(&table, &id)?.expect(LOADED);
        let balance = balance_in(id, row)?;
        tx.put(&table, &id, &padded(id, balance + entry.amount))?;
    }
    let row = (entry.account, entry.teller, entry.branch, entry.amount);
    tx.insert(&HISTORY, &number, &row)?;
    // The last one that is there, because a pending one may have been lost with the process.
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

/// Returns the balance in the row `id`, if the row is as it was written.
fn balance_in(id: u64, row: Padded) -> Result<i64> {
    let (balance, _) = row;
    if row == padded(id, balance) {
        Ok(balance)
    } else {
        Err(Error::other("a row was never written like this"))
    }
}

/// Returns the last transaction of each client, read in one transaction.
///
/// # Errors
///
/// Any error of the database.
pub fn last_of_each(db: &Database) -> Result<Vec<Number>> {
    let bookmarks = db.run(|tx| tx.range(&BOOKMARKS, ..).collect())?;
    Ok(bookmarks.into_iter().map(|(number, ())| number).collect())
}

/// Reads everything, in one transaction.
///
/// # Errors
///
/// Any error of the database.
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
            notes: (tx.range(&NOTES, ..).collect()?.into_iter())
                .map(|(client, bytes)| (client, Note::of(&bytes)))
                .collect(),
        })
    })
}

fn balances(tx: &mut Transaction, table: &Table<u64, Padded>) -> Result<BTreeMap<u64, i64>> {
    let rows = tx.range(table, ..).collect()?.into_iter();
    rows.map(|(id, row)| Ok((id, balance_in(id, row)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxton::device::MemoryDevice;
    use std::sync::Arc;

    #[test]
    fn indexes_are_compared_with_the_rows() {
        let mut options = Options::tiny();
        options.durability = Durability::None;
        declare(&mut options);
        let db = Database::open_on(Arc::new(MemoryDevice::new()), options).unwrap();
        let scale = Scale::WITH_NOTES;
        load(&db, scale).unwrap();
        for n in 1..30 {
            run(&db, 7, (n as u32 % 3, n), scale, Durability::None).unwrap();
        }
        let contents = read(&db).unwrap();
        assert_eq!(check_indexes(&db, &contents).unwrap(), [""; 0]);
        let faults = |change: fn(&mut Contents)| {
            let mut other = contents.clone();
            change(&mut other);
            check_indexes(&db, &other).unwrap().len()
        };
        assert_eq!(faults(|other| *other.tellers.get_mut(&3).unwrap() += 1), 1);
        assert_eq!(faults(|other| other.history = BTreeMap::new()), 1);
        assert_eq!(faults(|other| other.bookmarks.extend([(9, 9)])), 1);
        assert_eq!(faults(|other| other.notes = BTreeMap::new()), 1);
    }
}
