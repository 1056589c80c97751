//! Checks of an idle database: rows, keys, values, and with stamps every string.

use foxton::{Database, codec::Key};

use super::{
    Shape, TABLES,
    row::{self, FIELDS, ROW_BYTES, Sums},
    stamp::{self, Book},
};

const ROWS_A_TRANSACTION: u32 = 1_000;

/// Compares every table with its load, and with a book every string with its writer.
///
/// # Errors
///
/// The first thing found wrong, as a sentence.
pub fn check(
    db: &Database,
    shape: &Shape,
    sums: &Sums,
    book: Option<&mut Book>,
) -> Result<(), String> {
    let mut audit = book.map(Book::audit);
    for (number, table) in TABLES.iter().enumerate() {
        let name = table.name();
        let mut from = 0;
        let mut seen = Seen::default();
        while from <= shape.rows {
            let to = shape.rows.min(from + ROWS_A_TRANSACTION);
            let mut tx = db.begin().map_err(|error| error.to_string())?;
            tx.range(table, from..=to)
                .for_each_bytes(|key, row| {
                    let key = seen.row((name, shape.rows), key, row);
                    // A key out of place has been recorded; it has no value, and no place in the
                    // book.
                    let placed = (1..=shape.rows).contains(&key);
                    if placed {
                        let drawn = sums.between(number, key - 1, key);
                        seen.value(name, key, row, drawn);
                    }
                    if let Some(audit) = audit.as_mut().filter(|_| placed) {
                        for index in 0..FIELDS {
                            let found = row::field(row, index).map_or(0, stamp::read);
                            seen.fail(audit.compare((number, key, index), found));
                        }
                    }
                })
                .map_err(|error| format!("{name} cannot be read: {error}"))?;
            tx.commit().map_err(|error| error.to_string())?;
            from = to + 1;
        }
        // Keys beyond those of the load should not exist.
        let mut tx = db.begin().map_err(|error| error.to_string())?;
        tx.range(table, shape.rows + 1..)
            .for_each_bytes(|key, row| {
                seen.row((name, shape.rows), key, row);
            })
            .and_then(|()| tx.commit())
            .map_err(|error| format!("{name} cannot be read: {error}"))?;
        seen.judge(name, shape.rows)?;
    }
    Ok(())
}

#[derive(Default)]
struct Seen {
    last: u32,
    wrong: Option<String>,
}

impl Seen {
    /// Checks one row and returns its key.
    fn row(&mut self, (table, rows): (&str, u32), key: &[u8], row: &[u8]) -> u32 {
        let key = u32::decode(key).unwrap_or(0);
        let next = self.last + 1;
        if !(1..=rows).contains(&key) {
            self.fail(Err(format!(
                "row {key} of {table} should not be there: its rows are 1 to {rows}"
            )));
        } else if key != next {
            self.fail(Err(format!("row {next} of {table} is gone")));
        }
        if row.len() != ROW_BYTES {
            self.fail(Err(format!("row {key} of {table} has {} bytes", row.len())));
        }
        self.last = key;
        key
    }

    /// Compares the value of a row with the one that was drawn for it.
    fn value(&mut self, table: &str, key: u32, row: &[u8], drawn: i64) {
        let value = row::value(row).map(i64::from);
        if value != Some(drawn) {
            let found = value.map_or("nothing".to_owned(), |value| value.to_string());
            self.fail(Err(format!(
                "{table}: the value of row {key} is {found}, not {drawn}"
            )));
        }
    }

    fn fail(&mut self, outcome: Result<(), String>) {
        if let (None, Err(what)) = (&self.wrong, outcome) {
            self.wrong = Some(what);
        }
    }

    fn judge(self, table: &str, rows: u32) -> Result<(), String> {
        if let Some(what) = self.wrong {
            return Err(what);
        }
        match self.last == rows {
            true => Ok(()),
            false => Err(format!("row {} of {table} is gone", self.last + 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Each check finds its fault.

    use foxton::{Options, Transaction};

    use super::*;
    use crate::{
        progress::Audience,
        workload::{loading::Loading, txbench::load::load},
    };

    fn found(spoil: impl Fn(&mut Transaction) -> foxton::Result<()>) -> String {
        let shape = Shape {
            rows: 2_500,
            ..Shape::usual()
        };
        let db = Database::in_memory(Options::tiny()).unwrap();
        let nobody = Audience::Nobody.count("", 0, "");
        load(&Loading::new(&db, 2, &nobody), &shape, false).unwrap();
        let sums = Sums::new(shape.seed, shape.rows);
        assert_eq!(check(&db, &shape, &sums, None), Ok(()));
        db.run(spoil).unwrap();
        check(&db, &shape, &sums, None).unwrap_err()
    }

    #[test]
    fn a_wrong_row_is_found_and_named() {
        let table = &TABLES[1];
        let name = table.name();
        let bytes = |key| row::initial_row(Shape::usual().seed, 1, key);
        // At the ends of a transaction's rows, and the last of all.
        for key in [1, 1_000, 1_001, 2_500] {
            assert_eq!(
                found(|tx| tx.delete(table, &key).map(drop)),
                format!("row {key} of {name} is gone")
            );
        }
        for key in [0, 2_501, 4_000] {
            assert_eq!(
                found(|tx| tx.put(table, &key, &bytes(key)[..])),
                format!("row {key} of {name} should not be there: its rows are 1 to 2500")
            );
        }
        assert_eq!(
            found(|tx| tx.put(table, &9, &bytes(9)[1..])),
            format!("row 9 of {name} has 1783 bytes")
        );
        let drawn = row::initial_value(Shape::usual().seed, 1, 2_500);
        let other = row::initial_value(Shape::usual().seed, 1, 2_499);
        assert_eq!(
            found(|tx| tx.put(table, &2_500, &bytes(2_499)[..])),
            format!("{name}: the value of row 2500 is {other}, not {drawn}")
        );
    }
}
