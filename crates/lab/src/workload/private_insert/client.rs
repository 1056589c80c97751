//! The client: one table after another, a batch of rows in each transaction.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foxton::{Database, Table};

use super::{PrivateInsert, name, row};
use crate::{
    driver::Client,
    measure::{
        machine,
        outcome::{Ended, Outcome},
    },
    random::Random,
    workload::attempt::until_committed,
};

/// The types of transaction, as they are named in results.
pub const KINDS: &[&str] = &["insert"];

/// Free memory below which no client begins another table.
const LEAST_FREE_BYTES: u64 = 512 << 20;

/// Rows acknowledged, by table. A client takes a table's number when it begins it, and says how many rows
/// it has when it ends it: they meet here once for thousands of rows.
#[derive(Debug, Default)]
pub struct Filled(Vec<u32>);

impl Filled {
    /// Rows acknowledged of each table.
    pub fn rows(&self) -> &[u32] {
        &self.0
    }
}

/// A client of private-insert.
#[derive(Debug)]
pub struct PrivateInsertClient {
    db: Database,
    workload: PrivateInsert,
    filled: Arc<Mutex<Filled>>,
    own: Option<Own>,
    pauses: Random,
}

/// The table a client is filling.
#[derive(Debug)]
struct Own {
    number: usize,
    table: Table<u32, [u8]>,
    rows: u32,
}

impl PrivateInsertClient {
    /// Client `number`, whose tables are counted in `filled`.
    pub fn new(
        db: Database,
        workload: PrivateInsert,
        number: u32,
        filled: Arc<Mutex<Filled>>,
    ) -> PrivateInsertClient {
        PrivateInsertClient {
            db,
            workload,
            filled,
            own: None,
            pauses: Random::seeded(&[workload.seed, u64::from(number)]),
        }
    }

    fn filled(&self) -> MutexGuard<'_, Filled> {
        self.filled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table to go on with; another one if the last is full.
    fn table(&mut self) -> Result<Own, String> {
        if let Some(own) = self.own.take() {
            if own.rows < self.workload.rows {
                return Ok(own);
            }
            self.finish(&own);
        }
        if machine::available_bytes().is_some_and(|free| free < LEAST_FREE_BYTES) {
            return Err("memory is nearly full: measure for a shorter time".to_owned());
        }
        let mut filled = self.filled();
        let number = filled.0.len();
        let table = name::table(number).ok_or(format!(
            "a database has no more than {number} tables, and all are full: measure for a shorter \
             time, or put more rows in each with --rows"
        ))?;
        filled.0.push(0);
        Ok(Own {
            number,
            table,
            rows: 0,
        })
    }

    fn finish(&self, own: &Own) {
        self.filled().0[own.number] = own.rows;
    }
}

impl Client for PrivateInsertClient {
    fn transaction(&mut self) -> Ended {
        let mut own = match self.table() {
            Ok(own) => own,
            Err(full) => {
                return Ended {
                    outcome: Outcome::Error,
                    failure: Some(full.into()),
                    ..Ended::ok(0)
                };
            }
        };
        let left = self.workload.rows - own.rows;
        let keys = own.rows..own.rows + left.min(self.workload.batch);
        let seed = self.workload.seed;
        let ended = until_committed(&self.db, (KINDS, 0), &mut self.pauses, |tx| {
            for key in keys.clone() {
                tx.insert(&own.table, &key, &row::row(seed, own.number, key)[..])?;
            }
            Ok(())
        });
        if ended.outcome == Outcome::Ok {
            own.rows = keys.end;
        }
        self.own = Some(own);
        ended
    }
}

impl Drop for PrivateInsertClient {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            self.finish(&own);
        }
    }
}
