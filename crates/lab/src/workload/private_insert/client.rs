//! The client: one table after another, a batch of rows in each transaction.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foxton::{Database, MAX_TABLES, Table};

use super::{PrivateInsert, name, row};
use crate::{
    driver::Client,
    measure::{
        memory::{self, RESERVE_BYTES},
        outcome::{Ended, Outcome},
    },
    random::Random,
    report::number::bytes,
    workload::attempt::until_committed,
};

/// The types of transaction, as they are named in results.
pub const KINDS: &[&str] = &["insert"];

/// Memory of a row, with its overhead.
const BYTES_A_ROW: u64 = 350;

/// Acknowledged rows, by table. A client takes a table's number when it begins the table, and
/// reports its rows when it ends it. So clients share this once for thousands of rows.
#[derive(Debug, Default)]
pub struct Filled {
    rows: Vec<u32>,
    /// Tables begun and not ended.
    open: u64,
}

/// Why no client begins another table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// This one and those that were begun, each filled, would need more memory than is free.
    Memory {
        /// Free bytes.
        free: u64,
        /// Bytes that the tables may still need, and the reserve for other programs.
        wanted: u64,
    },
    /// A database takes no more tables than these.
    Tables(usize),
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Full::Memory { free, wanted } => write!(
                f,
                "memory is nearly full: {} are free, and the tables begun may need {} (measure for a \
                 shorter time, or put fewer rows in each table with --rows)",
                bytes(*free),
                bytes(*wanted)
            ),
            Full::Tables(count) => write!(
                f,
                "a database has no more than {count} tables, and all are full: measure for a shorter \
                 time, or put more rows in each with --rows"
            ),
        }
    }
}

impl Filled {
    /// Rows acknowledged of each table.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// The number of another table with at most `rows` rows, while this much memory is free, or if
    /// that is unknown.
    ///
    /// # Errors
    ///
    /// If there is no memory for it. Tables that were begun count as empty, because their rows are
    /// not known here.
    pub fn begin(&mut self, rows: u32, free: Option<u64>) -> Result<usize, Full> {
        let each = u64::from(rows) * BYTES_A_ROW;
        let wanted = each
            .saturating_mul(self.open + 1)
            .saturating_add(RESERVE_BYTES);
        if let Some(free) = free.filter(|&free| free < wanted) {
            return Err(Full::Memory { free, wanted });
        }
        let number = self.rows.len();
        if number >= MAX_TABLES {
            return Err(Full::Tables(number));
        }
        self.rows.push(0);
        self.open += 1;
        Ok(number)
    }

    /// Records that the table of this number has this many rows, and gets no more.
    fn end(&mut self, number: usize, rows: u32) {
        self.rows[number] = rows;
        self.open -= 1;
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
    /// Client `number`; its tables are counted in `filled`.
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

    /// The table for the next rows; another one if the last is full.
    fn table(&mut self) -> Result<Own, Full> {
        if let Some(own) = self.own.take() {
            if own.rows < self.workload.rows {
                return Ok(own);
            }
            self.finish(&own);
        }
        let free = memory::available_bytes();
        let number = self.filled().begin(self.workload.rows, free)?;
        let table = name::table(number).ok_or(Full::Tables(number))?;
        Ok(Own {
            number,
            table,
            rows: 0,
        })
    }

    fn finish(&self, own: &Own) {
        self.filled().end(own.number, own.rows);
    }
}

impl Client for PrivateInsertClient {
    fn transaction(&mut self) -> Ended {
        let mut own = match self.table() {
            Ok(own) => own,
            Err(full) => {
                return Ended {
                    outcome: Outcome::Error,
                    failure: Some(full.to_string().into()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_begun_only_where_it_and_those_begun_could_be_filled() {
        let mut filled = Filled::default();
        let (rows, each) = (1_000_000, 1_000_000 * BYTES_A_ROW);
        let room_for = |tables: u64| Some(RESERVE_BYTES + tables * each);
        assert_eq!(filled.begin(rows, room_for(1)), Ok(0));
        let full = filled.begin(rows, room_for(1)).unwrap_err();
        let wanted = RESERVE_BYTES + 2 * each;
        assert_eq!(
            full,
            Full::Memory {
                free: wanted - each,
                wanted
            }
        );
        assert_eq!(filled.begin(rows, room_for(2)), Ok(1));
        // A table that is full takes no more.
        filled.end(0, rows);
        assert_eq!(filled.begin(rows, room_for(2)), Ok(2));
        assert_eq!(filled.begin(rows, None), Ok(3));
        assert_eq!(filled.rows(), [rows, 0, 0, 0]);
    }

    #[test]
    fn no_more_tables_are_begun_than_a_database_takes() {
        let mut filled = Filled::default();
        for number in 0..MAX_TABLES {
            assert_eq!(filled.begin(1, None), Ok(number));
            filled.end(number, 1);
        }
        assert_eq!(filled.begin(1, None), Err(Full::Tables(MAX_TABLES)));
    }
}
