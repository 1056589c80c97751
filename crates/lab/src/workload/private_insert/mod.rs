//! private-insert: every client fills tables of its own, one after another (document 002, figure
//! 1).
//!
//! Clients share no table and no row, so a client's throughput should not depend on the number of
//! others. It depends on what the engine shares between unrelated transactions.

/// Names of tables that are made while clients run.
pub mod name;

/// A row.
pub mod row;

/// The client.
pub mod client;

/// Checks of an idle database.
pub mod check;

use std::sync::{Arc, Mutex};

use foxton::Database;
use serde_json::{Value, json};

use super::{
    contract::{About, Loaded, Size, Workload},
    loading::Loading,
};
use crate::{
    driver::Client,
    measure::{curve::Point, outcome::Tally},
};
use client::{Filled, PrivateInsertClient};

/// The workload.
#[derive(Debug, Clone, Copy)]
pub struct PrivateInsert {
    /// Rows after which a client begins another table.
    pub rows: u32,
    /// Rows of a transaction.
    pub batch: u32,
    /// Seed of the rows.
    pub seed: u64,
}

impl Workload for PrivateInsert {
    fn about(&self) -> About {
        About {
            name: "private-insert",
            variant: format!("{}-a-transaction", self.batch),
            title: format!("private-insert, {} rows a transaction", self.batch),
            description: format!(
                "Each client makes a table of its own and inserts {} rows of {} bytes, {} in a \
                 transaction; then it makes another. Throughput per client should stay level.",
                self.rows,
                row::ROW_BYTES,
                self.batch
            ),
            checked:
                "afterwards every table has the rows whose inserts were acknowledged, as they \
                      were written."
                    .to_owned(),
            settings: vec![
                ("rows_per_table", json!(self.rows)),
                ("rows_per_transaction", json!(self.batch)),
                ("isolation", json!("serializable")),
                ("seed", json!(self.seed)),
            ],
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        client::KINDS
    }

    fn sound(&self) -> Result<(), String> {
        if self.rows == 0 || self.batch == 0 {
            return Err(
                "a table or a transaction without rows inserts nothing; give 1 or more with \
                        --rows and --batch"
                    .to_owned(),
            );
        }
        match self.batch <= self.rows {
            true => Ok(()),
            false => Err(format!(
                "a transaction of {} rows is larger than a table of {}; give fewer with --batch, or more \
                 with --rows",
                self.batch, self.rows
            )),
        }
    }

    fn size(&self) -> Size {
        // Nothing is loaded.
        Size {
            rows: 0,
            row_bytes: row::ROW_BYTES as u64,
        }
    }

    fn grows(&self) -> bool {
        true
    }

    fn added_by(&self, clients: u32) -> u64 {
        u64::from(clients) * u64::from(self.rows)
    }

    fn load(&self, _into: &Loading<'_>) -> foxton::Result<Box<dyn Loaded>> {
        Ok(Box::new(Tables {
            workload: *self,
            filled: Arc::default(),
        }))
    }

    fn facts(&self, point: &Point) -> Vec<(&'static str, Value)> {
        let rows = point.tps().median() * self.rows_a_transaction();
        vec![
            ("records_per_second", json!(rows)),
            (
                "records_per_second_per_client",
                json!(rows / f64::from(point.mpl)),
            ),
        ]
    }
}

impl PrivateInsert {
    /// Average rows of a transaction: the last one into a table inserts the rest.
    fn rows_a_transaction(&self) -> f64 {
        f64::from(self.rows) / f64::from(self.rows.div_ceil(self.batch))
    }
}

/// The tables of one database.
#[derive(Debug)]
struct Tables {
    workload: PrivateInsert,
    filled: Arc<Mutex<Filled>>,
}

impl Loaded for Tables {
    fn client(&mut self, db: &Database, number: u32) -> Box<dyn Client> {
        let filled = self.filled.clone();
        let client = PrivateInsertClient::new(db.clone(), self.workload, number, filled);
        Box::new(client)
    }

    fn check(&mut self, db: &Database, _ended: &Tally) -> Result<(), String> {
        check::check(db, self.workload.seed, &self.filled)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::{outcome::Ended, run::Run};

    fn inserts(rows: u32, batch: u32) -> PrivateInsert {
        PrivateInsert {
            rows,
            batch,
            seed: 1,
        }
    }

    #[test]
    fn records_a_second_are_those_of_whole_tables_where_batches_do_not_divide_them() {
        for (rows, batch, transactions) in [(1_000, 100, 10), (250, 100, 3), (1, 1, 1), (7, 7, 1)] {
            let mut tally = Tally::new(client::KINDS);
            (0..transactions).for_each(|_| tally.count(Ended::ok(0)));
            let mut point = Point::new(1);
            point.runs.push(Run {
                tally,
                window: Duration::from_secs(1),
                ..Run::default()
            });
            let facts = inserts(rows, batch).facts(&point);
            assert_eq!(facts[0], ("records_per_second", json!(f64::from(rows))));
        }
    }

    #[test]
    fn a_transaction_of_more_rows_than_a_table_has_is_refused() {
        assert_eq!(inserts(10, 10).sound(), Ok(()));
        let what = inserts(10, 11).sound().unwrap_err();
        assert!(what.contains("--batch") && what.contains("11"), "{what}");
        assert!(inserts(0, 0).sound().is_err() && inserts(1, 0).sound().is_err());
    }
}
