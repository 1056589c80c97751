//! What is done to a record, inside a transaction.

use std::ops::Bound;

use foxton::Transaction;

use super::{RECORDS, record};
use crate::workload::attempt::Failure;

/// The operations, as they are named in results.
pub const KINDS: &[&str] = &["read", "update", "insert", "scan", "read-modify-write"];

/// One operation on the record of a number.
#[derive(Debug, Clone, Copy)]
pub enum Operation {
    /// Read all fields.
    Read(u64),
    /// Write one field.
    Update(u64, Change),
    /// Add the record.
    Insert(u64),
    /// Read so many records, this one and those that follow it by key.
    Scan(u64, u64),
    /// Read all fields, then write one.
    ReadModifyWrite(u64, Change),
}

/// A field, and what its bytes are drawn from: the same however often the transaction is run.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// Which field.
    pub field: usize,
    /// What its bytes are drawn from.
    pub seed: u64,
}

impl Operation {
    /// Its place among [`KINDS`].
    pub fn kind(self) -> usize {
        match self {
            Operation::Read(_) => 0,
            Operation::Update(..) => 1,
            Operation::Insert(_) => 2,
            Operation::Scan(..) => 3,
            Operation::ReadModifyWrite(..) => 4,
        }
    }

    /// Does it. What is read is copied into `read`; what is inserted is drawn from `seed`.
    ///
    /// # Errors
    ///
    /// What the engine refused, or which record is missing or damaged.
    pub fn run(self, tx: &mut Transaction, seed: u64, read: &mut Vec<u8>) -> Result<(), Failure> {
        read.clear();
        match self {
            Operation::Read(number) => {
                let key = record::key(number);
                tx.get_with(&RECORDS, &*key, |bytes| read.extend_from_slice(bytes))?
                    .ok_or_else(|| gone(number))
            }
            // A store of whole values reads a record to write one of its fields.
            Operation::Update(number, change) | Operation::ReadModifyWrite(number, change) => {
                let key = record::key(number);
                let found = tx.get_for_update(&RECORDS, &*key)?;
                let mut found = found.ok_or_else(|| gone(number))?;
                if matches!(self, Operation::ReadModifyWrite(..)) {
                    read.extend_from_slice(&found);
                }
                if !record::change(&mut found, change.field, change.seed) {
                    return Err(Failure::Wrong(format!(
                        "record {key} is damaged: it has {} bytes",
                        found.len()
                    )));
                }
                Ok(tx.put(&RECORDS, &*key, &found)?)
            }
            Operation::Insert(number) => {
                let record = record::initial(seed, number);
                Ok(tx.insert(&RECORDS, &*record::key(number), &record[..])?)
            }
            Operation::Scan(number, count) => scan(tx, number, count, read),
        }
    }
}

fn scan(tx: &mut Transaction, number: u64, count: u64, read: &mut Vec<u8>) -> Result<(), Failure> {
    let key = record::key(number);
    let mut first = None;
    tx.range(&RECORDS, (Bound::Included(&*key), Bound::Unbounded))
        .limit(count)
        .for_each_bytes(|found, record| {
            first.get_or_insert(found == key.as_bytes());
            read.extend_from_slice(record);
        })?;
    match first {
        Some(true) => Ok(()),
        _ => Err(gone(number)),
    }
}

fn gone(number: u64) -> Failure {
    let key = record::key(number);
    Failure::Wrong(format!("record {key}, number {number}, is gone"))
}
