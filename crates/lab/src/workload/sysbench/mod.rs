//! sysbench: eight tables, and transactions of eighteen statements that read points and ranges,
//! update, delete and insert (document 004).

/// A row, and its loaded contents.
pub mod row;

/// Which rows a statement is for.
pub mod choice;

/// The transaction.
pub mod event;

/// The client.
pub mod client;

/// Checks of an idle database.
pub mod check;

use foxton::{Database, Index, Indexes, Isolation, Table};
use serde_json::{Value, json};

use super::{
    contract::{About, Loaded, Size, Workload},
    ledger::Ledger,
    loading::Loading,
};
use crate::{
    driver::Client,
    measure::{curve::Point, outcome::Tally},
};
use choice::Choice;
use client::SysbenchClient;

/// Number of tables.
pub const TABLE_COUNT: usize = 8;

macro_rules! tables {
    ($($name:literal)*) => {
        /// The tables, by id from 1.
        pub static TABLES: [Table<i32, [u8]>; TABLE_COUNT] = [$(Table::new($name)),*];
        /// Each table's rows by k, which several may share.
        pub static BY_K: [Index<i32, i32, [u8]>; TABLE_COUNT] = [$(
            Index::new(concat!($name, "_k"), &Table::new($name), |_, row, keys| {
                // A row too short to have one is in no index: the check misses it there.
                if let Some(k) = row::k(row) {
                    keys.add(&k);
                }
            })
        ),*];
    };
}

tables!("sbtest1" "sbtest2" "sbtest3" "sbtest4" "sbtest5" "sbtest6" "sbtest7" "sbtest8");

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct Sysbench {
    /// Rows of each table.
    pub rows: u32,
    /// Which rows are more frequent than others.
    pub choice: Choice,
    /// Isolation of reads, if the database's is serializable. Writes always lock.
    pub isolation: Isolation,
    /// Record the additions to every k, so that the check can compare each.
    pub log_k: bool,
    /// Seed of the load and of the clients.
    pub seed: u64,
}

impl Workload for Sysbench {
    fn about(&self) -> About {
        let reads = match self.isolation {
            Isolation::ReadUncommitted => "reads without locks, as in document 004",
            Isolation::ReadCommitted => "reads that see committed data",
            Isolation::RepeatableRead => "reads that lock rows",
            Isolation::Snapshot => "reads at a snapshot",
            _ => "reads that lock rows and the gaps between them",
        };
        let logged = if self.log_k {
            ", and each k is the sum of its committed additions"
        } else {
            ""
        };
        About {
            name: "sysbench",
            variant: format!("{}-{}", self.choice, self.isolation),
            title: format!("sysbench read-write, {}, {reads}", self.choice),
            description: format!(
                "Eight tables of {} rows, chosen by a {} distribution. A transaction reads ten rows and \
                 four ranges of a hundred, updates two rows, and deletes a row and inserts it again.",
                self.rows, self.choice
            ),
            checked: format!(
                "afterwards each table has its rows, each has the form it was written in, and the index \
                 has each once, under its k{logged}."
            ),
            settings: vec![
                ("tables", json!(TABLE_COUNT)),
                ("rows", json!(self.rows)),
                ("rand", json!(self.choice.to_string())),
                ("isolation", json!(self.isolation.to_string())),
                ("log_k", json!(self.log_k)),
                ("seed", json!(self.seed)),
            ],
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        client::KINDS
    }

    fn size(&self) -> Size {
        Size {
            rows: u64::from(self.rows) * TABLE_COUNT as u64,
            // The index has an entry for another number.
            row_bytes: row::ROW_BYTES as u64 + 100,
        }
    }

    fn indexes(&self, indexes: &mut Indexes) {
        for index in &BY_K {
            indexes.add(index);
        }
    }

    fn load(&self, into: &Loading<'_>) -> foxton::Result<Box<dyn Loaded>> {
        into.each_in(TABLE_COUNT, self.rows, |tx, table, id| {
            let row = row::initial(self.seed, table, id, self.rows);
            tx.insert(&TABLES[table], &(id as i32), &row[..])?;
            Ok(1)
        })?;
        Ok(Box::new(Rows {
            workload: *self,
            ledger: self.log_k.then(|| event::ledger(self)),
        }))
    }

    fn facts(&self, point: &Point) -> Vec<(&'static str, Value)> {
        let statements = point.tps().median() * f64::from(event::STATEMENTS);
        vec![("statements_per_second", json!(statements))]
    }
}

/// The rows of one database.
#[derive(Debug)]
struct Rows {
    workload: Sysbench,
    ledger: Option<Ledger>,
}

impl Loaded for Rows {
    fn client(&mut self, db: &Database, number: u32) -> Box<dyn Client> {
        let notes = self.ledger.as_ref().map(Ledger::notes);
        Box::new(SysbenchClient::new(
            db.clone(),
            self.workload,
            number,
            notes,
        ))
    }

    fn check(&mut self, db: &Database, _ended: &Tally) -> Result<(), String> {
        check::check(db, &self.workload, self.ledger.as_ref())
    }
}
