//! ycsb: records of ten fields, read and written one at a time by keys of which some are far more
//! frequent than others. Six mixes, A to F.

/// A record, its key, and its loaded contents.
pub mod record;

/// Which records there are.
pub mod sequence;

/// The keys loaded, in their order.
pub mod order;

/// Operations on a record.
pub mod operation;

/// The mixes.
pub mod mix;

/// The client.
pub mod client;

/// Checks of an idle database.
pub mod check;

use std::sync::Arc;

use foxton::{Database, Table};
use serde_json::{Value, json};

use super::{
    contract::{About, Loaded, Size, Workload},
    loading::Loading,
};
use crate::{
    driver::Client,
    measure::{curve::Point, outcome::Tally},
};
use client::YcsbClient;
use mix::Mix;
use order::Order;
use sequence::Sequence;

/// The records by their keys.
pub const RECORDS: Table<str, [u8]> = Table::new("ycsb");

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct Ycsb {
    /// Frequencies of the operations.
    pub mix: Mix,
    /// Records loaded.
    pub records: u32,
    /// Operations of a transaction. The benchmark has one.
    pub operations: u32,
    /// Seed of the load and of the clients.
    pub seed: u64,
}

impl Workload for Ycsb {
    fn about(&self) -> About {
        let batch = match self.operations {
            1 => "One operation is one transaction.".to_owned(),
            many => format!("{many} operations are one transaction."),
        };
        let variant = match self.operations {
            1 => self.mix.to_string(),
            many => format!("{}-ops{many}", self.mix),
        };
        About {
            name: "ycsb",
            title: format!("ycsb {}", variant.to_uppercase()),
            variant,
            description: format!(
                "{} records of ten fields of 100 bytes. {} {batch}",
                self.records,
                self.mix.description()
            ),
            checked:
                "while clients run, every record read is complete, and a scan finds every record loaded. \
                 Afterwards the records are those loaded and inserted, and each field has 100 bytes; \
                 without updates these are the bytes that were written."
                    .to_owned(),
            settings: vec![
                ("mix", json!(self.mix.to_string())),
                ("records", json!(self.records)),
                ("operations_per_transaction", json!(self.operations)),
                ("isolation", json!("serializable")),
                ("seed", json!(self.seed)),
            ],
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        match self.operations {
            1 => operation::KINDS,
            _ => client::BATCH,
        }
    }

    fn size(&self) -> Size {
        Size {
            rows: u64::from(self.records),
            row_bytes: record::RECORD_BYTES as u64,
        }
    }

    fn grows(&self) -> bool {
        self.mix.inserts()
    }

    fn load(&self, into: &Loading<'_>) -> foxton::Result<Box<dyn Loaded>> {
        into.each(self.records, |tx, key| {
            let number = u64::from(key - 1);
            let record = record::initial(self.seed, number);
            tx.insert(&RECORDS, &record::key(number), &record[..])?;
            Ok(1)
        })?;
        Ok(Box::new(Records {
            workload: *self,
            sequence: Arc::new(Sequence::new(u64::from(self.records))),
            // Only a scan needs it.
            order: Arc::new(Order::of(match self.mix {
                Mix::E => u64::from(self.records),
                _ => 0,
            })),
        }))
    }

    fn facts(&self, point: &Point) -> Vec<(&'static str, Value)> {
        let operations = point.tps().median() * f64::from(self.operations);
        vec![("operations_per_second", json!(operations))]
    }
}

/// The records of one database.
#[derive(Debug)]
struct Records {
    workload: Ycsb,
    sequence: Arc<Sequence>,
    order: Arc<Order>,
}

impl Loaded for Records {
    fn client(&mut self, db: &Database, number: u32) -> Box<dyn Client> {
        let records = (self.sequence.clone(), self.order.clone());
        let client = YcsbClient::new(db.clone(), self.workload, records, number);
        Box::new(client)
    }

    fn check(&mut self, db: &Database, _ended: &Tally) -> Result<(), String> {
        let contents = (!self.workload.mix.updates()).then_some(self.workload.seed);
        check::check(db, self.sequence.known(), contents)
    }
}
