//! Reading whole tables of an idle database, for checks: in order, in many small transactions.

use std::{
    borrow::Borrow,
    ops::{Bound, ControlFlow},
};

use foxton::{
    Database, Table,
    codec::{Key, Value},
};

/// Rows of one transaction. They are locked, so that a leftover lock is noticed.
const ROWS_A_TRANSACTION: u64 = 1_000;

/// Passes each row of `table` to `look`, in key order, until it returns an error.
///
/// # Errors
///
/// The error of `look`, or that the table cannot be read, as a sentence.
pub fn each_row<K, V>(
    db: &Database,
    table: &Table<K, V>,
    mut look: impl FnMut(&K::Owned, &[u8]) -> Result<(), String>,
) -> Result<(), String>
where
    K: Key + ?Sized,
    K::Owned: Borrow<K>,
    V: Value + ?Sized,
{
    let name = table.name();
    let unreadable = |error: foxton::Error| format!("{name} cannot be read: {error}");
    let mut last: Option<K::Owned> = None;
    loop {
        let (mut count, mut to, mut looked) = (0, None, Ok(()));
        let from = match &last {
            Some(key) => Bound::Excluded(key.borrow()),
            None => Bound::Unbounded,
        };
        let mut tx = db.begin().map_err(unreadable)?;
        tx.range(table, (from, Bound::Unbounded))
            .limit(ROWS_A_TRANSACTION)
            .try_for_each_bytes(|key, row| {
                count += 1;
                looked = match K::decode(key) {
                    Ok(key) => look(to.insert(key), row),
                    Err(error) => Err(format!("a key of {name} cannot be decoded: {error}")),
                };
                match looked {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            })
            .and_then(|()| tx.commit())
            .map_err(unreadable)?;
        looked?;
        if count < ROWS_A_TRANSACTION {
            return Ok(());
        }
        last = to;
    }
}

/// The same for a table whose keys must be the numbers 1 to `rows`: the first missing or other key
/// is an error.
///
/// # Errors
///
/// As for [`each_row`].
pub fn each_numbered<K, V>(
    db: &Database,
    table: &Table<K, V>,
    rows: u32,
    mut look: impl FnMut(u32, &[u8]) -> Result<(), String>,
) -> Result<(), String>
where
    K: Key,
    K::Owned: Borrow<K> + Copy + Into<i64>,
    V: Value + ?Sized,
{
    let (name, mut next) = (table.name(), 1);
    let gone = |row: i64| Err(format!("row {row} of {name} is gone"));
    each_row(db, table, |&key, row| {
        let key: i64 = key.into();
        if key < next || key > i64::from(rows) {
            return Err(format!(
                "row {key} of {name} should not be there: its rows are 1 to {rows}"
            ));
        }
        if key > next {
            return gone(next);
        }
        next += 1;
        look(key as u32, row)
    })?;
    match next > i64::from(rows) {
        true => Ok(()),
        false => gone(next),
    }
}

#[cfg(test)]
mod tests {
    use foxton::Options;

    use super::*;

    const ROWS: Table<u32, u32> = Table::new("rows");
    const WORDS: Table<str, u32> = Table::new("words");

    fn database(rows: u32) -> Database {
        let db = Database::in_memory(Options::tiny()).unwrap();
        db.run(|tx| (1..=rows).try_for_each(|key| tx.insert(&ROWS, &key, &key)))
            .unwrap();
        db
    }

    #[test]
    fn every_row_is_given_once_and_in_order_whatever_the_size_of_the_table() {
        for rows in [0, 1, 999, 1_000, 1_001, 2_500] {
            let db = database(rows);
            let mut seen = Vec::new();
            let all = each_row(&db, &ROWS, |&key, row| {
                assert_eq!(row, key.to_le_bytes());
                seen.push(key);
                Ok(())
            });
            assert_eq!((all, seen), (Ok(()), (1..=rows).collect()));
            assert_eq!(each_numbered(&db, &ROWS, rows, |_, _| Ok(())), Ok(()));
        }
    }

    #[test]
    fn keys_may_be_words() {
        let db = database(0);
        db.run(|tx| (0..1_500).try_for_each(|i| tx.put(&WORDS, &format!("w{i}"), &i)))
            .unwrap();
        let mut count = 0;
        each_row(&db, &WORDS, |_, _| {
            count += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(count, 1_500);
    }

    #[test]
    fn what_is_missing_and_what_is_too_much_is_named() {
        let check = |db: &Database| each_numbered(db, &ROWS, 1_200, |_, _| Ok(())).unwrap_err();
        assert_eq!(check(&database(1_199)), "row 1200 of rows is gone");
        assert_eq!(
            check(&database(1_201)),
            "row 1201 of rows should not be there: its rows are 1 to 1200"
        );
        let db = database(1_200);
        db.run(|tx| tx.delete(&ROWS, &700)).unwrap();
        assert_eq!(check(&db), "row 700 of rows is gone");
        db.run(|tx| tx.put(&ROWS, &0, &0)).unwrap();
        assert!(check(&db).starts_with("row 0 of rows should not be there"));
    }

    #[test]
    fn what_look_finds_ends_the_reading() {
        let mut looked = 0;
        let found = each_row(&database(10), &ROWS, |&key, _| {
            looked += 1;
            match key {
                4 => Err("row 4 is odd".to_owned()),
                _ => Ok(()),
            }
        });
        assert_eq!((found, looked), (Err("row 4 is odd".to_owned()), 4));
    }
}
