//! The contract of an engine, and the rows that it stores.
//!
//! Each engine keeps the same rows, a number and 200 bytes. A transaction reads ten of them, drawn
//! at random, and in the mix with updates one in five also adds one to the counters of two others.
//! A reader adds up the marks of its rows. No transaction changes a mark, so the sum shows that
//! each one was read. At the end the counters say how many increments the table has; an engine that
//! lost one is not measured.

use crate::{Outcome, rows::mix};
use std::ops::Range;

pub(crate) const ROWS: u64 = 100_000;
pub(crate) const ROW_BYTES: usize = 200;
pub(crate) const READS: usize = 10;
pub(crate) const UPDATES: usize = 2;

/// The counter, the mark, and bytes that make the row as long as it is.
pub(crate) type Row = [u8; ROW_BYTES];

const COUNTER: Range<usize> = 0..8;
const MARK: Range<usize> = 8..16;

/// Row `key` as it is loaded.
pub(crate) fn row(key: u64) -> Row {
    let mut row = [b'.'; ROW_BYTES];
    row[COUNTER].fill(0);
    row[MARK].copy_from_slice(&mix(key).to_le_bytes());
    row
}

/// The part that no update changes. Anything but a row has 0.
pub(crate) fn mark(row: &[u8]) -> u64 {
    number(row, MARK)
}

/// How many increments the row holds.
pub(crate) fn counter(row: &[u8]) -> u64 {
    number(row, COUNTER)
}

fn number(row: &[u8], at: Range<usize>) -> u64 {
    let bytes = row.get(at).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

/// One more. Changes nothing but the counter.
pub(crate) fn increment(row: &mut [u8]) {
    let more = counter(row) + 1;
    row[COUNTER].copy_from_slice(&more.to_le_bytes());
}

/// A transaction.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) reads: [u64; READS],
    /// Ascending, so that two that only update never wait for each other in a circle.
    pub(crate) updates: Option<[u64; UPDATES]>,
}

impl Job {
    /// The sum of the marks of all rows that a client reads, those to be updated included.
    pub(crate) fn marks(&self) -> u64 {
        let keys = self.reads.iter().chain(self.updates.iter().flatten());
        keys.fold(0, |sum, &key| sum.wrapping_add(mix(key)))
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Committed, with the sum of the marks that it read.
    Committed(u64),
    /// Undone, because another transaction had to go first.
    Refused,
}

/// An engine that is open, with its rows in it.
pub(crate) trait Store: Sync {
    /// The session of one thread; made on that thread.
    fn client(&self) -> Outcome<Box<dyn Client + '_>>;

    /// Every row as it is now, when nobody else is at work: its key and its bytes.
    fn each(&self, see: &mut dyn FnMut(u64, &[u8])) -> Outcome;
}

/// The session of one thread.
pub(crate) trait Client {
    /// Runs `job` as one serializable transaction, once.
    fn attempt(&mut self, job: &Job) -> Outcome<Attempt>;
}

/// Increments that are in the table, which must have all its rows with their marks.
pub(crate) fn increments(store: &dyn Store) -> Outcome<u64> {
    let (mut rows, mut sum, mut wrong) = (0, 0, None);
    store.each(&mut |key, row| {
        if row.len() != ROW_BYTES || mark(row) != mix(key) {
            wrong = Some(key);
        }
        rows += 1;
        sum += counter(row);
    })?;
    match wrong {
        Some(key) => Err(format!("row {key} is not what was loaded").into()),
        None if rows != ROWS => Err(format!("{rows} rows instead of {ROWS}").into()),
        None => Ok(sum),
    }
}
