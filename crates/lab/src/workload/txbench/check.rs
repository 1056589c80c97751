//! What must hold on a quiet database: rows, keys, sums, and with stamps every string.

use foxton::{Database, codec::Key};

use super::{
    Shape, TABLES,
    row::{self, FIELDS, ROW_BYTES, Sums},
    stamp::{self, Book},
};

const ROWS_A_TRANSACTION: u32 = 1_000;

/// Compares every table with its load, and with a book every string with who wrote it.
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
        let mut after = 0;
        let mut seen = Seen::default();
        while after < shape.rows {
            let to = shape.rows.min(after + ROWS_A_TRANSACTION);
            let mut tx = db.begin().map_err(|error| error.to_string())?;
            tx.range(table, after + 1..=to)
                .for_each_bytes(|key, row| {
                    let key = seen.row(name, key, row);
                    // A key that is out of place has been noted; it has no place in the book.
                    let placed = (1..=shape.rows).contains(&key);
                    if let Some(audit) = audit.as_mut().filter(|_| placed) {
                        for index in 0..FIELDS {
                            let found = row::field(row, index).map_or(0, stamp::read);
                            seen.fail(audit.compare((number, key, index), found));
                        }
                    }
                })
                .map_err(|error| format!("{name} cannot be read: {error}"))?;
            tx.commit().map_err(|error| error.to_string())?;
            after = to;
        }
        // Whatever lies beyond the keys of the load should not be there.
        let mut tx = db.begin().map_err(|error| error.to_string())?;
        tx.range(table, shape.rows + 1..)
            .for_each_bytes(|key, row| {
                seen.row(name, key, row);
            })
            .and_then(|()| tx.commit())
            .map_err(|error| format!("{name} cannot be read: {error}"))?;
        seen.judge(name, shape.rows, sums.between(number, 0, shape.rows))?;
    }
    Ok(())
}

#[derive(Default)]
struct Seen {
    rows: u32,
    last: u32,
    sum: i64,
    wrong: Option<String>,
}

impl Seen {
    /// Looks at one row and returns its key.
    fn row(&mut self, table: &str, key: &[u8], row: &[u8]) -> u32 {
        let key = u32::decode(key).unwrap_or(0);
        if key != self.last + 1 {
            self.fail(Err(format!("{table}: key {key} follows key {}", self.last)));
        }
        if row.len() != ROW_BYTES {
            self.fail(Err(format!("{table}: row {key} has {} bytes", row.len())));
        }
        self.rows += 1;
        self.last = key;
        self.sum += row::value(row).map_or(0, i64::from);
        key
    }

    fn fail(&mut self, outcome: Result<(), String>) {
        if let (None, Err(what)) = (&self.wrong, outcome) {
            self.wrong = Some(what);
        }
    }

    fn judge(self, table: &str, rows: u32, sum: i64) -> Result<(), String> {
        if let Some(what) = self.wrong {
            return Err(what);
        }
        if self.rows != rows {
            return Err(format!("{table} has {} rows, not {rows}", self.rows));
        }
        if self.sum != sum {
            return Err(format!(
                "the values of {table} add up to {}, not {sum}",
                self.sum
            ));
        }
        Ok(())
    }
}
