//! wisconsin: one table of 208-byte tuples with an index, and scans, fetches, inserts and deletes
//! of it, one operation in each transaction (document 003, section 2).
//!
//! The index over `unique1` is a table of its own, maintained and read by the transactions, and not
//! one of the engine's secondary indexes. Each tuple found by it is read by its key, so that the
//! counts for a tuple are the same by any path.

/// A tuple, and its loaded contents.
pub mod tuple;

/// The operations.
pub mod operation;

/// The shares of the operations.
pub mod mix;

/// The client.
mod client;

/// Checks of an idle database.
pub mod check;

use std::sync::{Arc, Mutex};

use foxton::{Database, Durability, Table, Transaction};
use serde_json::json;

use self::{client::WisconsinClient, mix::Mix};
use super::{
    contract::{About, Loaded, Size, Workload},
    loading::{Loading, ROWS_A_TRANSACTION, pieces},
};
use crate::{driver::Client, measure::outcome::Tally, random::Random};

/// The tuples by `unique2`.
pub const TUPLES: Table<u32, [u8]> = Table::new("wisconsin");
/// `unique2` by `unique1`.
pub const BY_UNIQUE1: Table<u32, u32> = Table::new("wisconsin_unique1");
/// Tuples in the document.
pub const ROWS: u32 = 10_000;

/// `unique1` of each tuple of the load, by `unique2`.
fn permutation(rows: u32, seed: u64) -> Vec<u32> {
    let mut random = Random::seeded(&[seed, u64::from_be_bytes(*b"wisconsn")]);
    let mut order = random.permutation(rows);
    order.iter_mut().for_each(|number| *number -= 1);
    order
}

fn insert(tx: &mut Transaction, unique1: u32, unique2: u32) -> foxton::Result<()> {
    tx.insert(&TUPLES, &unique2, &tuple::tuple(unique1, unique2)[..])?;
    tx.insert(&BY_UNIQUE1, &unique1, &unique2)?;
    Ok(())
}

/// Fills both tables with `rows` tuples.
///
/// # Errors
///
/// If the engine refuses an operation.
pub fn load(db: &Database, rows: u32, seed: u64) -> foxton::Result<()> {
    let all: Vec<(u32, u32)> = (0..).zip(permutation(rows, seed)).collect();
    for chunk in all.chunks(ROWS_A_TRANSACTION as usize) {
        db.run(|tx| {
            tx.set_durability(Durability::None);
            let mut tuples = chunk.iter();
            tuples.try_for_each(|&(unique2, unique1)| insert(tx, unique1, unique2))
        })?;
    }
    Ok(())
}

/// Returns a transaction that holds a key of each table exclusively. Neither key has a row.
///
/// # Errors
///
/// If the engine refuses an operation.
pub fn lock_absent_keys(db: &Database) -> foxton::Result<Transaction> {
    let mut writer = db.begin()?;
    writer.delete(&TUPLES, &u32::MAX)?;
    writer.delete(&BY_UNIQUE1, &u32::MAX)?;
    Ok(writer)
}

/// The workload: clients that run the operations by their shares.
#[derive(Debug, Clone, Copy)]
pub struct Wisconsin {
    /// Tuples, at least 10.
    pub rows: u32,
    /// Percentages of the operations.
    pub mix: Mix,
    /// Seed of the load and of the clients.
    pub seed: u64,
}

impl Workload for Wisconsin {
    fn about(&self) -> About {
        let Wisconsin { rows, mix, .. } = *self;
        About {
            name: "wisconsin",
            variant: format!("{rows}-rows-{}", mix.to_string().replace(',', "-")),
            title: format!("wisconsin, {rows} tuples, shares of T1 to T5 {mix}"),
            description: format!(
                "One table of {rows} tuples of {} bytes and an index kept beside it. A transaction is one operation of \
                 document 003: T1 scans the table, T2 scans it for a tenth, T3 scans the index and fetches every \
                 tuple, T4 a tenth of it, T5 fetches, inserts or deletes one tuple. Percentages of T1 to T5: \
                 {mix}.",
                tuple::TUPLE_BYTES
            ),
            checked: "while clients run, each scan has every tuple of the load that it must have; afterwards the table \
                      and the index have those and the tuples that clients have inserted and not deleted, byte for \
                      byte, and no others."
                .to_owned(),
            settings: vec![
                ("rows", json!(rows)),
                ("mix", json!(mix.shares())),
                ("isolation", json!("serializable")),
                ("seed", json!(self.seed)),
            ],
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        mix::KINDS
    }

    fn sound(&self) -> Result<(), String> {
        match self.rows >= 10 {
            true => Ok(()),
            false => Err(format!(
                "a tenth of {} tuples is none; give 10 or more with --rows",
                self.rows
            )),
        }
    }

    fn size(&self) -> Size {
        Size {
            rows: 2 * u64::from(self.rows),
            row_bytes: tuple::TUPLE_BYTES as u64 / 2,
        }
    }

    fn grows(&self) -> bool {
        // Each client leaves one tuple at most, which scans of later runs would find.
        true
    }

    fn load(&self, into: &Loading<'_>) -> foxton::Result<Box<dyn Loaded>> {
        let unique1 = permutation(self.rows, self.seed);
        into.pieces(pieces(self.rows, ROWS_A_TRANSACTION), |tx, numbers| {
            for number in numbers.clone() {
                let unique2 = number - 1;
                insert(tx, unique1[unique2 as usize], unique2)?;
            }
            Ok(2 * u64::from(numbers.end() - numbers.start() + 1))
        })?;
        Ok(Box::new(Relation {
            workload: *self,
            unique1,
            left: Arc::default(),
        }))
    }
}

/// The table of one database.
#[derive(Debug)]
struct Relation {
    workload: Wisconsin,
    unique1: Vec<u32>,
    /// Tuples that clients which have ended inserted and did not delete.
    left: Arc<Mutex<Vec<u32>>>,
}

impl Loaded for Relation {
    fn client(&mut self, db: &Database, number: u32) -> Box<dyn Client> {
        let left = self.left.clone();
        Box::new(WisconsinClient::new(
            db.clone(),
            self.workload,
            number,
            left,
        ))
    }

    fn check(&mut self, db: &Database, _ended: &Tally) -> Result<(), String> {
        check::check(db, &self.unique1, &self.left)
    }
}
