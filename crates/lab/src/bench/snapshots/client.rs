//! A client whose transactions read rows at a level, or update rows serializably.

use foxton::{Database, Isolation, Transaction};
use foxton_sync::shim::{Arc, AtomicU64, Ordering::Relaxed};

use crate::{
    bench::rows::{KINDS, READ, ROWS, Rows, UPDATE},
    driver::Client,
    measure::outcome::{Ended, Outcome},
    random::Random,
    workload::attempt::{Failure, until_committed},
};

/// Rows read and updated by committed transactions.
pub(super) type Commits = Arc<[AtomicU64; 2]>;

/// The transactions of a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mixture {
    /// Level of transactions that only read.
    pub(super) level: Isolation,
    /// Neighbouring rows that such a transaction reads.
    pub(super) reads: u64,
    /// Transactions of a hundred that update.
    pub(super) updates: u32,
    /// Rows that such a transaction updates, in the order of their keys.
    pub(super) writes: usize,
    /// Of this many rows, the first ones, all are drawn.
    pub(super) drawn: u64,
    /// Transactions are labelled, so that waits are counted by kind.
    pub(super) is_labelled: bool,
}

/// See the [module](self).
pub(super) struct LevelClient {
    db: Database,
    rows: Rows,
    mixture: Mixture,
    random: Random,
    /// Keys and new contents of an update.
    keys: Vec<u64>,
    row: Vec<u8>,
    /// Rows, by kind; added to those of all clients at the end, which then share no counter.
    mine: [u64; 2],
    all: Commits,
}

impl LevelClient {
    pub(super) fn new(
        db: Database,
        rows: Rows,
        mixture: Mixture,
        random: Random,
        all: Commits,
    ) -> LevelClient {
        LevelClient {
            db,
            rows,
            mixture,
            random,
            keys: Vec::with_capacity(mixture.writes),
            row: vec![0; rows.row_bytes],
            mine: [0; 2],
            all,
        }
    }

    fn read(&mut self) -> Ended {
        let (rows, mixture) = (self.rows, self.mixture);
        let last = mixture.drawn.saturating_sub(mixture.reads);
        let first = self.random.uniform(0, last);
        until_committed(&self.db, (KINDS, READ), &mut self.random, |tx| {
            tx.set_isolation(mixture.level)?;
            label(tx, mixture, READ);
            if mixture.reads == 1 {
                let is_right = |row: &[u8]| rows.counter(first, row).is_some();
                let found = tx.get_with(&ROWS, &first, is_right)?;
                return right(found == Some(true), first);
            }
            let (mut key, mut is_right) = (first, true);
            let range = first..first + mixture.reads;
            tx.range(&ROWS, range).for_each_bytes(|_, row| {
                is_right &= rows.counter(key, row).is_some();
                key += 1;
            })?;
            right(is_right && key == first + mixture.reads, key)
        })
    }

    fn update(&mut self) -> Ended {
        let (rows, mixture) = (self.rows, self.mixture);
        self.keys.clear();
        while self.keys.len() < mixture.writes {
            let key = self.random.uniform(0, mixture.drawn - 1);
            if !self.keys.contains(&key) {
                self.keys.push(key);
            }
        }
        self.keys.sort_unstable();
        let (keys, row) = (&self.keys, &mut self.row);
        until_committed(&self.db, (KINDS, UPDATE), &mut self.random, |tx| {
            label(tx, mixture, UPDATE);
            keys.iter().try_for_each(|&key| add_one(tx, rows, key, row))
        })
    }
}

fn label(tx: &mut Transaction, mixture: Mixture, kind: usize) {
    if mixture.is_labelled {
        tx.set_label(KINDS[kind]);
    }
}

fn right(is_right: bool, key: u64) -> Result<(), Failure> {
    let wrong = || Failure::Wrong(format!("row {key} is missing, or not as it was written"));
    is_right.then_some(()).ok_or_else(wrong)
}

/// Adds one to the counter of a row. `row` is a buffer.
///
/// # Errors
///
/// If the engine refuses, or the row is not as it was written.
pub(super) fn add_one(
    tx: &mut Transaction,
    rows: Rows,
    key: u64,
    row: &mut [u8],
) -> Result<(), Failure> {
    let found = tx.get_for_update(&ROWS, &key)?;
    let counter = found.and_then(|found| rows.counter(key, &found));
    right(counter.is_some(), key)?;
    Rows::write(key, counter.unwrap_or_default() + 1, row);
    Ok(tx.put(&ROWS, &key, row)?)
}

impl Client for LevelClient {
    fn transaction(&mut self) -> Ended {
        let (kind, rows, ended) = match self.random.percent(self.mixture.updates) {
            true => (UPDATE, self.mixture.writes as u64, self.update()),
            false => (READ, self.mixture.reads, self.read()),
        };
        if ended.outcome == Outcome::Ok {
            self.mine[kind] += rows;
        }
        ended
    }
}

impl Drop for LevelClient {
    fn drop(&mut self) {
        for (all, mine) in self.all.iter().zip(self.mine) {
            all.fetch_add(mine, Relaxed);
        }
    }
}
