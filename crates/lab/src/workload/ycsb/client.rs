//! The client: one transaction after another, of one operation or of several.

use std::sync::Arc;

use foxton::{Database, Transaction};

use super::{
    Ycsb,
    mix::Chooser,
    operation::{KINDS, Known, Operation},
    order::Order,
    record::RECORD_BYTES,
    sequence::Sequence,
};
use crate::{
    driver::Client,
    measure::outcome::{Ended, Outcome},
    random::Random,
    workload::attempt::{until_committed, until_read},
};

/// The type of a transaction of several operations, as it is named in results.
pub const BATCH: &[&str] = &["batch"];

/// A client of ycsb.
#[derive(Debug)]
pub struct YcsbClient {
    db: Database,
    workload: Ycsb,
    chooser: Chooser,
    sequence: Arc<Sequence>,
    order: Arc<Order>,
    random: Random,
    operations: Vec<Operation>,
    read: Vec<u8>,
}

impl YcsbClient {
    /// Client `number` of a database with the records of `sequence`, loaded in this order.
    pub fn new(
        db: Database,
        workload: Ycsb,
        (sequence, order): (Arc<Sequence>, Arc<Order>),
        number: u32,
    ) -> YcsbClient {
        let name = u64::from_be_bytes(*b"____ycsb");
        YcsbClient {
            db,
            workload,
            chooser: Chooser::new(workload.mix, u64::from(workload.records)),
            sequence,
            order,
            random: Random::seeded(&[workload.seed, name, u64::from(number), 1]),
            operations: Vec::new(),
            read: Vec::with_capacity(RECORD_BYTES),
        }
    }
}

impl Client for YcsbClient {
    fn transaction(&mut self) -> Ended {
        self.operations.clear();
        for _ in 0..self.workload.operations {
            let operation = self.chooser.draw(&mut self.random, &self.sequence);
            self.operations.push(operation);
        }
        let kind = match self.operations[..] {
            [alone] => (KINDS, alone.kind()),
            _ => (BATCH, 0),
        };
        let (operations, read) = (&self.operations, &mut self.read);
        let known = Known {
            seed: self.workload.seed,
            order: &self.order,
        };
        let run = |tx: &mut Transaction| {
            let mut operations = operations.iter();
            operations.try_for_each(|operation| operation.run(tx, known, read))
        };
        let ended = match operations.iter().all(Operation::is_read) {
            true => until_read(&self.db, kind, &mut self.random, run),
            false => until_committed(&self.db, kind, &mut self.random, run),
        };
        if ended.outcome == Outcome::Ok {
            for operation in operations {
                if let Operation::Insert(number) = *operation {
                    self.sequence.committed(number);
                }
            }
        }
        ended
    }
}
