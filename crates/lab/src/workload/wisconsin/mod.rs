//! wisconsin: one table of 208-byte tuples with an index, and scans, fetches, inserts and deletes of
//! it, one operation in each transaction (document 003, section 2).
//!
//! The index over `unique1` is a table of its own, kept and read by the transactions, and not one of the
//! engine's secondary indexes: each tuple reached by it is asked for by its key, so that what is counted for a
//! tuple is the same whichever way leads to it.

/// A tuple, and what the load puts into it.
pub mod tuple;

/// The operations.
pub mod operation;

use foxton::{Database, Durability, Table};

use crate::random::Random;

/// The tuples by `unique2`.
pub const TUPLES: Table<u32, [u8]> = Table::new("wisconsin");
/// `unique2` by `unique1`.
pub const BY_UNIQUE1: Table<u32, u32> = Table::new("wisconsin_unique1");
/// Tuples in the document.
pub const ROWS: u32 = 10_000;

const ROWS_A_TRANSACTION: usize = 500;

/// Fills both tables with `rows` tuples.
///
/// # Errors
///
/// What the engine refused.
pub fn load(db: &Database, rows: u32, seed: u64) -> foxton::Result<()> {
    let mut random = Random::seeded(&[seed, u64::from_be_bytes(*b"wisconsn")]);
    let order = random.permutation(rows);
    let from_0 = order.into_iter().map(|number| number - 1);
    let all: Vec<(u32, u32)> = (0..rows).zip(from_0).collect();
    for chunk in all.chunks(ROWS_A_TRANSACTION) {
        db.run(|tx| {
            tx.set_durability(Durability::None);
            for &(unique2, unique1) in chunk {
                tx.insert(&TUPLES, &unique2, &tuple::tuple(unique1, unique2)[..])?;
                tx.insert(&BY_UNIQUE1, &unique1, &unique2)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
