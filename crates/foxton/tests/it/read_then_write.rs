//! A write of the row that was read before: it goes to the row that has the key now.

use foxton::{Database, Durability, Options, Table};

const ROWS: Table<u64, u64> = Table::new("rows");
const NAMES: Table<str, u64> = Table::new("names");

fn memory() -> Database {
    let mut options = Options::tiny();
    options.durability = Durability::None;
    Database::in_memory(options).unwrap()
}

#[test]
fn a_row_that_was_removed_and_inserted_since_the_read_is_written() {
    let db = memory();
    db.run(|tx| tx.put(&ROWS, &1, &1)).unwrap();
    for round in 2..50 {
        // Reader and writer have a context of their own, which stays theirs.
        let mut reader = db.begin().unwrap();
        assert_eq!(reader.get_for_update(&ROWS, &1).unwrap(), Some(round - 1));
        reader.commit().unwrap();
        db.run(|tx| tx.delete(&ROWS, &1)).unwrap();
        db.run(|tx| tx.insert(&ROWS, &1, &0)).unwrap();
        db.run(|tx| {
            let found = tx.get_for_update(&ROWS, &1)?;
            assert_eq!(found, Some(0));
            tx.put(&ROWS, &1, &round)
        })
        .unwrap();
        assert_eq!(db.run(|tx| tx.get(&ROWS, &1)).unwrap(), Some(round));
    }
    db.verify();
}

#[test]
fn a_return_to_a_savepoint_takes_the_row_away_that_was_read() {
    let db = memory();
    let mut tx = db.begin().unwrap();
    for round in 0..50 {
        let savepoint = tx.savepoint().unwrap();
        tx.insert(&ROWS, &1, &round).unwrap();
        assert_eq!(tx.get_for_update(&ROWS, &1).unwrap(), Some(round));
        tx.rollback_to(&savepoint).unwrap();
        assert_eq!(tx.get_for_update(&ROWS, &1).unwrap(), None);
    }
    tx.put(&ROWS, &1, &7).unwrap();
    tx.commit().unwrap();
    assert_eq!(db.run(|tx| tx.get(&ROWS, &1)).unwrap(), Some(7));
    db.verify();
}

#[test]
fn equal_keys_of_two_tables_are_two_rows() {
    let db = memory();
    const OTHERS: Table<u64, u64> = Table::new("others");
    db.run(|tx| {
        tx.put(&ROWS, &1, &1)?;
        tx.put(&OTHERS, &1, &2)?;
        tx.put(&NAMES, "boat", &3)
    })
    .unwrap();
    db.run(|tx| {
        assert_eq!(tx.get_for_update(&ROWS, &1)?, Some(1));
        tx.put(&OTHERS, &1, &20)?;
        tx.put(&ROWS, &1, &10)?;
        assert_eq!(tx.get_for_update(&NAMES, "boat")?, Some(3));
        tx.put(&NAMES, "boats", &30)
    })
    .unwrap();
    let mut tx = db.begin().unwrap();
    assert_eq!(tx.get(&ROWS, &1).unwrap(), Some(10));
    assert_eq!(tx.get(&OTHERS, &1).unwrap(), Some(20));
    assert_eq!(tx.get(&NAMES, "boat").unwrap(), Some(3));
    assert_eq!(tx.get(&NAMES, "boats").unwrap(), Some(30));
}
