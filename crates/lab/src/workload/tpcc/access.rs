//! Reading and writing rows in a transaction.

use std::fmt::Debug;

use foxton::{Lock, Table, Transaction, codec::Key};

use super::row::{Head, last_text, text};
use crate::workload::attempt::Failure;

/// A row that was read.
#[derive(Debug)]
pub(super) struct Found<H> {
    pub(super) head: H,
    bytes: Vec<u8>,
}

impl<H: Head> Found<H> {
    /// One of the texts except the last.
    pub(super) fn text(&self, index: usize) -> &[u8] {
        text::<H>(&self.bytes, index).unwrap_or_default()
    }

    /// The last text.
    pub(super) fn last_text(&self, index: usize) -> &[u8] {
        last_text::<H>(&self.bytes, index).unwrap_or_default()
    }

    /// Replaces the last text.
    pub(super) fn set_last_text(&mut self, index: usize, text: &[u8]) {
        let before = self.bytes.len() - self.last_text(index).len();
        self.bytes.truncate(before);
        self.bytes.extend_from_slice(text);
    }
}

/// Reads a row that must be there.
pub(super) fn find<K, H>(
    tx: &mut Transaction,
    table: &Table<K, [u8]>,
    key: &K,
    lock: Lock,
) -> Result<Found<H>, Failure>
where
    K: Key + Debug,
    H: Head,
{
    let found = tx.get_locked(table, key, lock)?;
    let bytes = found.ok_or_else(|| gone(table, key))?;
    parse(table, key, bytes)
}

/// Takes the numbers off a row.
pub(super) fn parse<K, H>(
    table: &Table<K, [u8]>,
    key: &K,
    bytes: Vec<u8>,
) -> Result<Found<H>, Failure>
where
    K: Key + Debug,
    H: Head,
{
    match H::read(&bytes) {
        Some(head) => Ok(Found { head, bytes }),
        None => Err(Failure::Wrong(format!(
            "row {key:?} of {} cannot be decoded",
            table.name()
        ))),
    }
}

/// Writes a row back, with its numbers as they are now.
pub(super) fn save<K, H>(
    tx: &mut Transaction,
    table: &Table<K, [u8]>,
    key: &K,
    mut row: Found<H>,
) -> Result<(), Failure>
where
    K: Key + Debug,
    H: Head,
{
    row.head.write(&mut row.bytes);
    Ok(tx.put(table, key, &row.bytes)?)
}

/// A row that must be there is not.
pub(super) fn gone<K: Debug, V: ?Sized>(table: &Table<K, V>, key: &K) -> Failure {
    Failure::Wrong(format!("row {key:?} of {} is gone", table.name()))
}
