//! Checks of an idle database: each table has the rows that were acknowledged.

use std::sync::{Mutex, PoisonError};

use foxton::Database;

use super::{client::Filled, name, row};
use crate::workload::whole_table::each_row;

/// Compares every table with the acknowledged rows and their contents.
///
/// # Errors
///
/// The first thing found wrong, as a sentence that names the row.
pub fn check(db: &Database, seed: u64, filled: &Mutex<Filled>) -> Result<(), String> {
    let filled = filled.lock().unwrap_or_else(PoisonError::into_inner);
    for (number, &rows) in filled.rows().iter().enumerate() {
        one(db, seed, number, rows)?;
    }
    Ok(())
}

fn one(db: &Database, seed: u64, number: usize, rows: u32) -> Result<(), String> {
    let table = name::table(number).ok_or(format!("there is no table {number}"))?;
    let (name, mut next) = (table.name(), 0);
    each_row(db, &table, |&key, bytes| {
        if key != next {
            return Err(format!("row {next} of {name} is gone: row {key} follows"));
        }
        next += 1;
        if key >= rows {
            return Err(format!(
                "row {key} of {name} should not be there: {rows} were acknowledged"
            ));
        }
        match bytes == row::row(seed, number, key) {
            true => Ok(()),
            false => Err(format!("row {key} of {name} is not what was written")),
        }
    })?;
    match next == rows {
        true => Ok(()),
        false => Err(format!(
            "row {next} of {name} is gone: {rows} were acknowledged"
        )),
    }
}

#[cfg(test)]
mod tests {
    //! Each check finds its fault.

    use std::sync::Arc;

    use foxton::{Options, Table};

    use super::*;
    use crate::{
        driver::Client,
        measure::outcome::Outcome,
        workload::private_insert::{PrivateInsert, client::PrivateInsertClient},
    };

    const WORKLOAD: PrivateInsert = PrivateInsert {
        rows: 25,
        batch: 10,
        seed: 3,
    };

    /// Two clients, each with a full table and a begun one.
    fn filled() -> (Database, Arc<Mutex<Filled>>) {
        let db = Database::in_memory(Options::tiny()).unwrap();
        let filled: Arc<Mutex<Filled>> = Arc::default();
        for number in 0..2 {
            let mut client = PrivateInsertClient::new(db.clone(), WORKLOAD, number, filled.clone());
            for _ in 0..4 {
                assert_eq!(client.transaction().outcome, Outcome::Ok);
            }
        }
        (db, filled)
    }

    #[test]
    fn every_client_fills_tables_of_its_own() {
        let (db, filled) = filled();
        assert_eq!(filled.lock().unwrap().rows(), [25, 10, 25, 10]);
        assert_eq!(check(&db, WORKLOAD.seed, &filled), Ok(()));
    }

    #[test]
    fn a_wrong_row_is_found_and_named() {
        let table: Table<u32, [u8]> = name::table(2).unwrap();
        let found = |spoil: &dyn Fn(&mut foxton::Transaction) -> foxton::Result<()>| {
            let (db, filled) = filled();
            db.run(|tx| spoil(tx)).unwrap();
            check(&db, WORKLOAD.seed, &filled).unwrap_err()
        };
        assert_eq!(
            found(&|tx| tx.delete(&table, &7).map(drop)),
            "row 7 of private_2 is gone: row 8 follows"
        );
        assert_eq!(
            found(&|tx| tx.delete(&table, &24).map(drop)),
            "row 24 of private_2 is gone: 25 were acknowledged"
        );
        assert_eq!(
            found(&|tx| tx.put(&table, &25, b"x")),
            "row 25 of private_2 should not be there: 25 were acknowledged"
        );
        assert_eq!(
            found(&|tx| tx.put(&table, &3, b"x")),
            "row 3 of private_2 is not what was written"
        );
    }
}
