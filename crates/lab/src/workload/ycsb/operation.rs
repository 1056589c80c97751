//! Operations on a record, inside a transaction.

use std::ops::Bound;

use foxton::Transaction;

use super::{
    RECORDS,
    order::{Order, Scan},
    record,
};
use crate::workload::attempt::Failure;

/// The operations, as they are named in results.
pub const KINDS: &[&str] = &["read", "update", "insert", "scan", "read-modify-write"];

/// One operation on the record with a number.
#[derive(Debug, Clone, Copy)]
pub enum Operation {
    /// Read all fields.
    Read(u64),
    /// Write one field.
    Update(u64, Change),
    /// Add the record.
    Insert(u64),
    /// Reads this many records: this one and its successors by key.
    Scan(u64, u64),
    /// Read all fields, then write one.
    ReadModifyWrite(u64, Change),
}

/// A field, and the seed of its bytes: the same at every attempt.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// Which field.
    pub field: usize,
    /// The seed of its bytes.
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

    /// True if it only reads.
    pub fn is_read(&self) -> bool {
        matches!(self, Operation::Read(_) | Operation::Scan(..))
    }

    /// Runs it. Read data are copied into `read`, and every record read must be complete.
    ///
    /// # Errors
    ///
    /// If the engine refuses an operation, or a record is missing or damaged.
    pub fn run(
        self,
        tx: &mut Transaction,
        known: Known<'_>,
        read: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        read.clear();
        match self {
            Operation::Read(number) => {
                let key = record::key(number);
                tx.get_with(&RECORDS, &*key, |bytes| read.extend_from_slice(bytes))?
                    .ok_or_else(|| gone(number))?;
                whole(number, read)
            }
            // A store of whole values reads a record to write one of its fields.
            Operation::Update(number, change) | Operation::ReadModifyWrite(number, change) => {
                let key = record::key(number);
                let found = tx.get_for_update(&RECORDS, &*key)?;
                let mut found = found.ok_or_else(|| gone(number))?;
                whole(number, &found)?;
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
                let record = record::initial(known.seed, number);
                Ok(tx.insert(&RECORDS, &*record::key(number), &record[..])?)
            }
            Operation::Scan(number, count) => scan(tx, known, (number, count), read),
        }
    }
}

/// The known records.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The seed of inserted records.
    pub seed: u64,
    /// The keys loaded, for scans.
    pub order: &'a Order,
}

fn scan(
    tx: &mut Transaction,
    known: Known<'_>,
    (number, count): (u64, u64),
    read: &mut Vec<u8>,
) -> Result<(), Failure> {
    let key = record::key(number);
    let (mut met, mut first) = (0, false);
    let mut scan = Scan::begin(known.order, &key);
    tx.range(&RECORDS, (Bound::Included(&*key), Bound::Unbounded))
        .limit(count)
        .for_each_bytes(|found, record| {
            first |= met == 0 && found == key.as_bytes();
            met += 1;
            scan.meet(found, record);
            read.extend_from_slice(record);
        })?;
    if !first {
        return Err(gone(number));
    }
    let scanned = scan.end(met < count);
    scanned
        .map_err(|what| Failure::Wrong(format!("in a scan of {count} from record {key}: {what}")))
}

/// Checks that these bytes are a record with every field.
fn whole(number: u64, bytes: &[u8]) -> Result<(), Failure> {
    record::wrong(bytes).map_or(Ok(()), |what| {
        let key = record::key(number);
        Err(Failure::Wrong(format!(
            "record {key}, number {number}: {what}"
        )))
    })
}

fn gone(number: u64) -> Failure {
    let key = record::key(number);
    Failure::Wrong(format!("record {key}, number {number}, is gone"))
}

#[cfg(test)]
mod tests {
    use foxton::{Database, Options};

    use super::*;

    /// The result of an operation if the last field of record 42 lacks its last byte.
    fn on_a_short_record(operation: Operation) -> String {
        let db = Database::in_memory(Options::tiny()).unwrap();
        let order = Order::of(50);
        let known = Known {
            seed: 1,
            order: &order,
        };
        let mut tx = db.begin().unwrap();
        for number in 0..50 {
            let record = record::initial(1, number);
            tx.put(&RECORDS, &record::key(number), &record[..]).unwrap();
        }
        let mut read = Vec::new();
        operation.run(&mut tx, known, &mut read).unwrap();
        let whole = record::initial(1, 42);
        tx.put(&RECORDS, &record::key(42), &whole[..whole.len() - 1])
            .unwrap();
        match operation.run(&mut tx, known, &mut read) {
            Err(Failure::Wrong(what)) => what,
            other => panic!("{operation:?} ended with {other:?}"),
        }
    }

    #[test]
    fn every_operation_that_reads_reads_every_field() {
        let change = Change { field: 0, seed: 9 };
        let order = Order::of(50);
        // So far before it that it is the last of the scan.
        let key = record::key(42);
        let at = 50 - order.from(&key).len();
        let before = (0..50).find(|&number| record::key(number) == order.from("")[at - 5]);
        let operations = [
            Operation::Read(42),
            Operation::Update(42, change),
            Operation::ReadModifyWrite(42, change),
            Operation::Scan(before.unwrap(), 6),
        ];
        for operation in operations {
            let what = on_a_short_record(operation);
            assert!(
                what.contains("field 9 has 99 bytes"),
                "{operation:?}: {what}"
            );
        }
    }
}
