//! The table of the experiments: rows whose every byte follows from their key and a counter.
//!
//! ```text
//!   row   0       8         16
//!         | key   | counter | scattered bits of key and counter, repeated |
//! ```
//!
//! A transaction that updates a row adds one to its counter and so changes all bytes but the key.
//! A reader checks every byte, and at the end the counters must add up to the updates.

use foxton::{Database, Durability, Table, TableComponent};
use foxton_sync::shim::{Arc, AtomicU64, Ordering::Relaxed};

use crate::{
    bench::error::BenchError,
    driver::Client,
    measure::outcome::{Ended, Outcome},
    progress::Progress,
    random::{
        Random,
        zipfian::{Scrambled, scatter},
    },
};

/// The table; each experiment says in which component it is.
pub(super) const ROWS: Table<u64, [u8]> = Table::new("rows");
/// Least number of bytes of a row.
pub(super) const LEAST_ROW_BYTES: usize = 16;
const KEY_BYTES: u64 = 8;
/// Rows of a transaction that loads or checks.
const STEP: u64 = 1_000;

/// Number and size of the rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub(super) count: u64,
    pub(super) row_bytes: usize,
}

impl Rows {
    /// As many rows as have so many bytes with their keys.
    pub(super) fn of(data: u64, row_bytes: usize) -> Rows {
        let count = (data / (row_bytes as u64 + KEY_BYTES)).max(1);
        Rows { count, row_bytes }
    }

    /// Bytes of all rows and keys.
    pub(super) fn bytes(&self) -> u64 {
        self.count * (self.row_bytes as u64 + KEY_BYTES)
    }

    /// Writes the row with this key and counter.
    pub(super) fn write(key: u64, counter: u64, row: &mut [u8]) {
        let bits = scatter(key ^ counter.rotate_left(40)).to_le_bytes();
        row[..8].copy_from_slice(&key.to_le_bytes());
        row[8..16].copy_from_slice(&counter.to_le_bytes());
        for part in row[16..].chunks_mut(8) {
            part.copy_from_slice(&bits[..part.len()]);
        }
    }

    /// Returns the counter of a row; `None` if any byte is not as it was written.
    pub(super) fn counter(&self, key: u64, row: &[u8]) -> Option<u64> {
        if row.len() != self.row_bytes || row[..8] != key.to_le_bytes() {
            return None;
        }
        let counter = u64::from_le_bytes(std::array::from_fn(|index| row[8 + index]));
        let bits = scatter(key ^ counter.rotate_left(40)).to_le_bytes();
        let is_whole = row[16..].chunks(8).all(|part| part == &bits[..part.len()]);
        is_whole.then_some(counter)
    }

    /// Fills the table in the order of its keys. `durability` of a database of this is `none` as a
    /// rule, because it is closed afterwards.
    pub(super) fn load(
        &self,
        db: &Database,
        table: &Table<u64, [u8]>,
        progress: &Progress,
    ) -> Result<(), BenchError> {
        let mut row = vec![0; self.row_bytes];
        for first in (0..self.count).step_by(STEP as usize) {
            let end = self.count.min(first + STEP);
            let loaded = db.run(|tx| {
                (first..end).try_for_each(|key| {
                    Rows::write(key, 0, &mut row);
                    tx.put(table, &key, &row[..])
                })
            });
            loaded.map_err(BenchError::engine("loading rows"))?;
            progress.advance(end - first);
        }
        Ok(())
    }

    /// Reads every row, and compares the sum of the counters with the updates.
    pub(super) fn check(
        &self,
        db: &Database,
        updates: u64,
        progress: &Progress,
    ) -> Result<(), BenchError> {
        let (mut sum, mut count, mut wrong) = (0, 0, None);
        for first in (0..self.count).step_by(STEP as usize) {
            let end = self.count.min(first + STEP);
            let read = db.run(|tx| {
                let (mut found, mut seen) = (0, 0);
                tx.range(&ROWS, first..end).for_each_bytes(|_, row| {
                    match self.counter(first + seen, row) {
                        Some(counter) => found += counter,
                        None => wrong = wrong.or(Some(first + seen)),
                    }
                    seen += 1;
                })?;
                Ok((found, seen))
            });
            let (found, seen) = read.map_err(BenchError::engine("checking rows"))?;
            (sum, count) = (sum + found, count + seen);
            progress.advance(end - first);
        }
        let failed = |what| Err(BenchError::Failed(what));
        match wrong {
            Some(key) => failed(format!("row {key} is missing, or not as it was written")),
            None if count != self.count => {
                failed(format!("{count} rows instead of {}", self.count))
            }
            None if sum != updates => failed(format!(
                "the rows count {sum} updates, and the clients committed {updates}"
            )),
            None => Ok(()),
        }
    }
}

/// How clients choose rows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Skew {
    /// Each as often.
    Uniform,
    /// By Zipf's law with exponent 0.99, the frequent ones anywhere.
    Zipf(Scrambled),
}

impl Skew {
    /// The name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Skew::Uniform => "uniform",
            Skew::Zipf(_) => "Zipf 0.99",
        }
    }
}

/// Kinds of transactions, by index.
pub(super) const KINDS: &[&str] = &["read", "update"];
pub(super) const READ: usize = 0;
pub(super) const UPDATE: usize = 1;

/// A client whose transactions read or update one row.
pub(super) struct RowClient {
    pub(super) db: Database,
    pub(super) rows: Rows,
    /// Transactions of a hundred that update.
    pub(super) updates: u32,
    pub(super) skew: Skew,
    pub(super) random: Random,
    /// Commits of all clients, by kind.
    pub(super) commits: Arc<[AtomicU64; 2]>,
}

impl RowClient {
    fn draw(&mut self) -> u64 {
        match self.skew {
            Skew::Uniform => self.random.uniform(0, self.rows.count - 1),
            Skew::Zipf(zipf) => zipf.draw(&mut self.random, self.rows.count),
        }
    }

    fn read(&self, key: u64) -> foxton::Result<bool> {
        let rows = self.rows;
        let read = |row: &[u8]| rows.counter(key, row).is_some();
        let found = self.db.run(|tx| tx.get_with(&ROWS, &key, read))?;
        Ok(found == Some(true))
    }

    fn update(&self, key: u64) -> foxton::Result<bool> {
        self.db.run(|tx| {
            let found = tx.get_for_update(&ROWS, &key)?;
            let Some(mut row) = found else {
                return Ok(false);
            };
            let Some(counter) = self.rows.counter(key, &row) else {
                return Ok(false);
            };
            Rows::write(key, counter + 1, &mut row);
            tx.put(&ROWS, &key, &row[..])?;
            Ok(true)
        })
    }
}

impl Client for RowClient {
    fn transaction(&mut self) -> Ended {
        let key = self.draw();
        let kind = usize::from(self.random.percent(self.updates));
        let ended = match kind {
            READ => self.read(key),
            _ => self.update(key),
        };
        let failure = match ended {
            Ok(true) => {
                self.commits[kind].fetch_add(1, Relaxed);
                return Ended::ok(kind);
            }
            Ok(false) => format!("row {key} is missing, or not as it was written"),
            Err(error) => error.to_string(),
        };
        Ended {
            outcome: Outcome::Error,
            failure: Some(failure.into()),
            ..Ended::ok(kind)
        }
    }
}

/// Returns the options of a database of these experiments.
pub(super) fn options(page_memory: usize, durability: Durability) -> foxton::Options {
    let mut options = foxton::Options::default();
    options.component = TableComponent::Paged;
    options.page_memory = page_memory;
    options.durability = durability;
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Audience;

    #[test]
    fn the_check_notices_a_wrong_byte_a_missing_row_and_a_lost_update() {
        let rows = Rows::of(2_000 * 45, 37);
        assert_eq!((rows.count, rows.bytes()), (2_000, 90_000));
        let progress = Audience::Nobody.count("", 0, "");
        let change = |change: &dyn Fn(&Database)| {
            let db = Database::in_memory(options(4 << 20, Durability::None)).unwrap();
            rows.load(&db, &ROWS, &progress).unwrap();
            change(&db);
            let checked = rows.check(&db, 1, &progress);
            checked.map_err(|error| error.to_string())
        };
        let update = |db: &Database| {
            let client = RowClient {
                db: db.clone(),
                rows,
                updates: 100,
                skew: Skew::Uniform,
                random: Random::seeded(&[1]),
                commits: Arc::default(),
            };
            assert!(client.update(1_234).unwrap() && client.read(1_234).unwrap());
        };
        assert_eq!(change(&update), Ok(()));
        assert!(change(&|_| ()).unwrap_err().contains("count 0 updates"));
        let deletion = change(&|db| {
            update(db);
            db.run(|tx| tx.delete(&ROWS, &1_999)).unwrap();
        });
        assert!(deletion.unwrap_err().contains("1999 rows"));
        let flip = change(&|db| {
            update(db);
            let row = db.run(|tx| tx.get(&ROWS, &7)).unwrap();
            let mut row = row.unwrap();
            row[36] ^= 1;
            db.run(|tx| tx.put(&ROWS, &7, &row[..])).unwrap();
        });
        assert!(flip.unwrap_err().contains("row 7 "));
    }
}
