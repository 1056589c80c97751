//! Loading the tables: in parallel, every row drawn from its own seed.

use foxton::Database;

use super::{
    Shape, TABLES,
    row::{ROW_BYTES, initial_row},
};
use crate::workload::loading::Loading;

/// Fills the tables.
///
/// With `plant`, one row gets another value than the one drawn: the checks must notice.
///
/// # Errors
///
/// If the engine refuses an operation.
pub fn load(into: &Loading<'_>, shape: &Shape, plant: bool) -> foxton::Result<()> {
    into.each_in(TABLES.len(), shape.rows, |tx, table, key| {
        let row = initial_row(shape.seed, table, key);
        tx.insert(&TABLES[table], &key, &row[..])?;
        Ok(1)
    })?;
    if plant {
        plant_wrong_value(into.db, shape)
    } else {
        Ok(())
    }
}

fn plant_wrong_value(db: &Database, shape: &Shape) -> foxton::Result<()> {
    // In the rows that every variant reads, hotspot too.
    let key = shape.reach() / 2;
    let mut row: [u8; ROW_BYTES] = initial_row(shape.seed, 0, key);
    row[0] ^= 1;
    db.run(|tx| tx.put(&TABLES[0], &key, &row[..]))
}
