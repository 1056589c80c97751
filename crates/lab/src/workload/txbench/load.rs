//! Loading the tables: in parallel, every row drawn from its own seed.

use std::ops::RangeInclusive;

use foxton::Database;

use super::{
    Shape, TABLES,
    row::{ROW_BYTES, initial_row},
};
use crate::{
    progress::Progress,
    workload::loading::{ROWS_A_TRANSACTION, in_parallel, pieces},
};

/// Fills the tables with `threads` threads (one, if the database does not lock).
///
/// With `plant`, one row gets a value that is not the one drawn: the checks must notice.
///
/// # Errors
///
/// What the engine refused.
pub fn load(
    db: &Database,
    shape: &Shape,
    threads: usize,
    plant: bool,
    progress: &Progress,
) -> foxton::Result<()> {
    in_parallel(
        db,
        threads,
        chunks(shape.rows),
        progress,
        |tx, (table, keys)| {
            for key in keys.clone() {
                let row = initial_row(shape.seed, *table, key);
                tx.insert(&TABLES[*table], &key, &row[..])?;
            }
            Ok(u64::from(keys.end() - keys.start() + 1))
        },
    )?;
    if plant {
        plant_wrong_value(db, shape)
    } else {
        Ok(())
    }
}

fn chunks(rows: u32) -> impl Iterator<Item = (usize, RangeInclusive<u32>)> + Send {
    (0..TABLES.len())
        .flat_map(move |table| pieces(rows, ROWS_A_TRANSACTION).map(move |keys| (table, keys)))
}

fn plant_wrong_value(db: &Database, shape: &Shape) -> foxton::Result<()> {
    // In the rows that every variant reads, hotspot too.
    let key = shape.reach() / 2;
    let mut row: [u8; ROW_BYTES] = initial_row(shape.seed, 0, key);
    row[0] ^= 1;
    db.run(|tx| tx.put(&TABLES[0], &key, &row[..]))
}
