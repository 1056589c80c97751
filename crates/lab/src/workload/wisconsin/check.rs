//! Checks of an idle database: the tuples of the load, those that clients have left, and their
//! entries.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use foxton::{Database, Table, codec::Value as _};

use super::{BY_UNIQUE1, TUPLES, tuple};
use crate::workload::whole_table::each_row;

/// Compares the table and the index with the load, whose `unique1` by `unique2` these are, and with
/// the tuples that clients have left.
///
/// # Errors
///
/// The first thing found wrong, as a sentence that names the row.
pub fn check(db: &Database, unique1: &[u32], left: &Mutex<Vec<u32>>) -> Result<(), String> {
    let left = left.lock().unwrap_or_else(PoisonError::into_inner);
    let rows = unique1.len() as u32;
    let all: BTreeSet<u32> = (0..rows).chain(left.iter().copied()).collect();
    compare(db, &TUPLES, &all, |key, bytes| {
        let first = unique1.get(key as usize).copied().unwrap_or(key);
        match bytes == tuple::tuple(first, key) {
            true => Ok(()),
            false => Err("is not what was written".to_owned()),
        }
    })?;
    let mut by_unique1 = vec![0; unique1.len()];
    for (unique2, &unique1) in (0..).zip(unique1) {
        by_unique1[unique1 as usize] = unique2;
    }
    compare(db, &BY_UNIQUE1, &all, |key, bytes| {
        let leads = by_unique1.get(key as usize).copied().unwrap_or(key);
        match u32::decode(bytes) {
            Ok(found) if found == leads => Ok(()),
            found => Err(format!("leads to {found:?}, not to {leads}")),
        }
    })
}

/// A table that must have exactly these keys, and rows that `look` accepts.
fn compare<V: foxton::codec::Value + ?Sized>(
    db: &Database,
    table: &Table<u32, V>,
    keys: &BTreeSet<u32>,
    look: impl Fn(u32, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let (name, mut awaited) = (table.name(), keys.iter().copied());
    let gone = |key: u32| Err(format!("row {key} of {name} is gone"));
    each_row(db, table, |&key, bytes| match awaited.next() {
        Some(next) if next < key => gone(next),
        Some(next) if next == key => {
            look(key, bytes).map_err(|what| format!("row {key} of {name} {what}"))
        }
        _ => Err(format!(
            "row {key} of {name} should not be there: it is not of the load, and no client has left it"
        )),
    })?;
    match awaited.next() {
        Some(next) => gone(next),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    //! Each check finds its fault.

    use foxton::{Options, Transaction};

    use super::*;

    const ROWS: u32 = 120;

    fn found(spoil: impl Fn(&mut Transaction) -> foxton::Result<()>) -> String {
        let db = Database::in_memory(Options::tiny()).unwrap();
        super::super::load(&db, ROWS, 4).unwrap();
        let unique1 = super::super::permutation(ROWS, 4);
        let left = Mutex::new(vec![ROWS + 7]);
        assert_eq!(
            check(&db, &unique1, &left).unwrap_err(),
            "row 127 of wisconsin is gone"
        );
        db.run(|tx| super::super::insert(tx, ROWS + 7, ROWS + 7))
            .unwrap();
        assert_eq!(check(&db, &unique1, &left), Ok(()));
        db.run(spoil).unwrap();
        check(&db, &unique1, &left).unwrap_err()
    }

    #[test]
    fn tuples_and_entries_that_are_missing_wrong_or_nobodys_are_found_and_named() {
        assert_eq!(
            found(|tx| tx.delete(&TUPLES, &7).map(drop)),
            "row 7 of wisconsin is gone"
        );
        assert_eq!(
            found(|tx| tx.delete(&BY_UNIQUE1, &0).map(drop)),
            "row 0 of wisconsin_unique1 is gone"
        );
        assert_eq!(
            found(|tx| tx.put(&TUPLES, &9, &tuple::tuple(1_000, 9))),
            "row 9 of wisconsin is not what was written"
        );
        let what = found(|tx| tx.put(&BY_UNIQUE1, &3, &4_000));
        assert!(
            what.starts_with("row 3 of wisconsin_unique1 leads to Ok(4000)"),
            "{what}"
        );
        for key in [ROWS, ROWS + 8] {
            let what = found(|tx| super::super::insert(tx, key, key));
            let row = format!("row {key} of wisconsin should not be there");
            assert!(what.starts_with(&row), "{what}");
        }
    }
}
