//! Checks of an idle database: the rows of each table, and its index.

use foxton::{Database, Isolation};

use super::{BY_K, Sysbench, TABLE_COUNT, TABLES, event::row_of, row};
use crate::workload::{ledger::Ledger, whole_table::each_numbered};

/// Checks every row: its id, its form, its one entry in the index, and with a ledger its k.
///
/// # Errors
///
/// The first thing found wrong, as a sentence that names the row.
pub fn check(db: &Database, workload: &Sysbench, ledger: Option<&Ledger>) -> Result<(), String> {
    (0..TABLE_COUNT).try_for_each(|table| {
        let mut numbers = rows(db, workload, table, ledger)?;
        entries(db, table, &mut numbers)
    })
}

/// The k of each row of a table, by id - 1.
fn rows(
    db: &Database,
    workload: &Sysbench,
    table: usize,
    ledger: Option<&Ledger>,
) -> Result<Vec<Option<i32>>, String> {
    let name = TABLES[table].name();
    let mut numbers = Vec::with_capacity(workload.rows as usize);
    each_numbered(db, &TABLES[table], workload.rows, |id, bytes| {
        if let Some(what) = row::wrong(bytes) {
            return Err(format!("row {id} of {name}: {what}"));
        }
        let k = row::k(bytes);
        numbers.push(k);
        let Some(ledger) = ledger else { return Ok(()) };
        let loaded = row::initial(workload.seed, table, id, workload.rows);
        let added = ledger.of(row_of(table, id as i32));
        let (loaded, found) = (row::k(&loaded).map(i64::from), k.map(i64::from));
        match found == loaded.map(|loaded| loaded + added) {
            true => Ok(()),
            false => Err(format!(
                "row {id} of {name}: k is {}, but {} was loaded and {added} added by transactions that \
                 committed",
                found.unwrap_or(0),
                loaded.unwrap_or(0)
            )),
        }
    })?;
    Ok(numbers)
}

/// Compares the index of a table with its rows, and removes each row found from `numbers`.
fn entries(db: &Database, table: usize, numbers: &mut [Option<i32>]) -> Result<(), String> {
    let index = BY_K[table].name();
    let unreadable = |error: foxton::Error| format!("{index} cannot be read: {error}");
    let mut tx = db.begin().map_err(unreadable)?;
    tx.set_isolation(Isolation::ReadUncommitted)
        .map_err(unreadable)?;
    let mut wrong = None;
    tx.range_by(&BY_K[table], ..)
        .for_each(|k, id, _| {
            let place = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
            let own = place.and_then(|place| numbers.get_mut(place));
            let own = own.and_then(Option::take);
            if own != Some(k) {
                wrong.get_or_insert(match own {
                    Some(own) => format!("{index} has row {id} under {k}, but its k is {own}"),
                    None => {
                        format!("{index} has row {id} under {k}, and once more or without the row")
                    }
                });
            }
        })
        .map_err(unreadable)?;
    let missed = numbers.iter().position(Option::is_some);
    match (wrong, missed) {
        (Some(what), _) => Err(what),
        (None, Some(place)) => Err(format!(
            "{index} has nothing for row {} of {}",
            place + 1,
            TABLES[table].name()
        )),
        (None, None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    //! Each check finds its fault.

    use foxton::{Index, Options, Transaction};

    use super::*;
    use crate::{
        progress::Audience,
        workload::{
            contract::Workload,
            loading::Loading,
            sysbench::{choice::Choice, event::ledger},
        },
    };

    const WORKLOAD: Sysbench = Sysbench {
        rows: 50,
        choice: Choice::Uniform,
        isolation: Isolation::Serializable,
        log_k: true,
        seed: 2,
    };
    /// The table that is spoilt.
    const THIRD: usize = 2;

    /// A database in which the third table is indexed so.
    fn database(third: &Index<i32, i32, [u8]>) -> Database {
        let mut options = Options::tiny();
        for (table, index) in BY_K.iter().enumerate() {
            options
                .indexes
                .add(if table == THIRD { third } else { index });
        }
        let db = Database::in_memory(options).unwrap();
        let nobody = Audience::Nobody.count("", 0, "");
        drop(WORKLOAD.load(&Loading::new(&db, 2, &nobody)).unwrap());
        db
    }

    fn found_in(db: &Database) -> Result<(), String> {
        check(db, &WORKLOAD, Some(&ledger(&WORKLOAD)))
    }

    fn found(spoil: impl Fn(&mut Transaction) -> foxton::Result<()>) -> String {
        let db = database(&BY_K[THIRD]);
        assert_eq!(found_in(&db), Ok(()));
        db.run(spoil).unwrap();
        found_in(&db).unwrap_err()
    }

    #[test]
    fn rows_that_are_missing_or_have_another_form_are_found() {
        let table = &TABLES[THIRD];
        assert_eq!(
            found(|tx| tx.delete(table, &50).map(drop)),
            "row 50 of sbtest3 is gone"
        );
        assert_eq!(
            found(|tx| tx.put(table, &51, &row::initial(2, THIRD, 51, 50))),
            "row 51 of sbtest3 should not be there: its rows are 1 to 50"
        );
        let mut bytes = row::initial(WORKLOAD.seed, THIRD, 8, 50);
        bytes[20] = b'x';
        let what = found(|tx| tx.put(table, &8, &bytes));
        assert!(what.starts_with("row 8 of sbtest3: c is"), "{what}");
    }

    #[test]
    fn a_k_that_no_transaction_made_is_found_by_the_log() {
        let mut bytes = row::initial(WORKLOAD.seed, THIRD, 8, 50);
        let k = row::k(&bytes).unwrap();
        row::set_k(&mut bytes, k + 1);
        assert_eq!(
            found(|tx| tx.put(&TABLES[THIRD], &8, &bytes)),
            format!(
                "row 8 of sbtest3: k is {}, but {k} was loaded and 0 added by transactions that committed",
                k + 1
            )
        );
        let db = database(&BY_K[THIRD]);
        db.run(|tx| tx.put(&TABLES[THIRD], &8, &bytes)).unwrap();
        assert_eq!(check(&db, &WORKLOAD, None), Ok(()));
        let ledger = ledger(&WORKLOAD);
        ledger.notes().add(row_of(THIRD, 8), 1);
        assert_eq!(check(&db, &WORKLOAD, Some(&ledger)), Ok(()));
    }

    #[test]
    fn an_index_that_is_not_that_of_the_rows_is_found() {
        const OFF: Index<i32, i32, [u8]> =
            Index::new("sbtest3_k", &TABLES_THIRD, |&id, row, keys| {
                let k = row::k(row).unwrap();
                keys.add(&if id == 8 { k + 1 } else { k });
            });
        let k = row::k(&row::initial(WORKLOAD.seed, THIRD, 8, 50)).unwrap();
        assert_eq!(
            found_in(&database(&OFF)).unwrap_err(),
            format!("sbtest3_k has row 8 under {}, but its k is {k}", k + 1)
        );
        const FORGETFUL: Index<i32, i32, [u8]> =
            Index::new("sbtest3_k", &TABLES_THIRD, |&id, row, keys| {
                if id != 8 {
                    keys.add(&row::k(row).unwrap());
                }
            });
        assert_eq!(
            found_in(&database(&FORGETFUL)).unwrap_err(),
            "sbtest3_k has nothing for row 8 of sbtest3"
        );
        const TWICE: Index<i32, i32, [u8]> =
            Index::new("sbtest3_k", &TABLES_THIRD, |&id, row, keys| {
                keys.add(&row::k(row).unwrap());
                if id == 8 {
                    keys.add(&i32::MAX);
                }
            });
        let what = found_in(&database(&TWICE)).unwrap_err();
        assert!(
            what.starts_with("sbtest3_k has row 8 under 2147483647"),
            "{what}"
        );
    }

    /// A constant for constants, as indexes are.
    const TABLES_THIRD: foxton::Table<i32, [u8]> = foxton::Table::new("sbtest3");
}
