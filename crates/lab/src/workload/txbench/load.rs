//! Loading the tables: in parallel, every row drawn from its own seed.

use std::{
    ops::RangeInclusive,
    sync::{Mutex, PoisonError},
    thread,
};

use foxton::{Database, Durability};

use super::{
    Shape, TABLES,
    row::{ROW_BYTES, initial_row},
};
use crate::progress::Progress;

const ROWS_A_TRANSACTION: u32 = 500;

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
    let chunks = Mutex::new(chunks(shape.rows));
    let next = || chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || -> foxton::Result<()> {
        while let Some((table, keys)) = next() {
            let count = keys.clone().count() as u64;
            insert(db, shape.seed, table, keys)?;
            progress.advance(count);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("loading does not panic"))
    })?;
    if plant {
        plant_wrong_value(db, shape)
    } else {
        Ok(())
    }
}

fn chunks(rows: u32) -> impl Iterator<Item = (usize, RangeInclusive<u32>)> {
    (0..TABLES.len()).flat_map(move |table| {
        (1..=rows)
            .step_by(ROWS_A_TRANSACTION as usize)
            .map(move |first| (table, first..=rows.min(first + ROWS_A_TRANSACTION - 1)))
    })
}

fn insert(db: &Database, seed: u64, table: usize, keys: RangeInclusive<u32>) -> foxton::Result<()> {
    db.run(|tx| {
        // A load that a crash cuts short is done again from the beginning: it waits for nothing.
        tx.set_durability(Durability::None);
        for key in keys.clone() {
            tx.insert(&TABLES[table], &key, &initial_row(seed, table, key)[..])?;
        }
        Ok(())
    })
}

fn plant_wrong_value(db: &Database, shape: &Shape) -> foxton::Result<()> {
    // In the rows that every variant reads, hotspot too.
    let key = shape.reach() / 2;
    let mut row: [u8; ROW_BYTES] = initial_row(shape.seed, 0, key);
    row[0] ^= 1;
    db.run(|tx| tx.put(&TABLES[0], &key, &row[..]))
}
