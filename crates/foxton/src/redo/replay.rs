//! Replay: turns log records into committed transactions, in commit order.
//!
//! Replay collects the positions of the parts of large transactions until it reads the record that
//! commits them. Then its caller reads the parts again ([`parts`](super::parts)). Parts without
//! such a record never happened. Restart and the checkpoint builder both read the log this way.
//!
//! # Invariants
//!
//! * I1 Replay skips transactions that the checkpoint contains: those whose last record ends at or
//!   before `checkpoint_lsn`. It does not skip the parts of those that end later, wherever they
//!   are.

use std::collections::HashMap;
use std::fmt;

use foxton_log::{Lsn, RecordView};
use foxton_store::paged::recovery::record as pages;

use crate::error::Error;
use crate::redo::record::{self, TableRecord};
use crate::types::codec::{Undecodable, Value};

/// A record with a valid checksum and invalid content: a program that disagrees with this one about
/// the format wrote it.
#[derive(Debug)]
pub(crate) struct InvalidRecord(pub(crate) &'static str);

impl fmt::Display for InvalidRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl From<Undecodable> for InvalidRecord {
    fn from(undecodable: Undecodable) -> InvalidRecord {
        InvalidRecord(undecodable.expected)
    }
}

impl InvalidRecord {
    /// Converts it into an error of the public interface.
    pub(crate) fn at(&self, lsn: Lsn) -> Error {
        crate::error::Storage::Damaged {
            place: format!("log record at LSN {lsn}"),
            what: format!("it does not hold {self}"),
        }
        .into()
    }
}

/// The effect of a record.
#[derive(Debug)]
pub(crate) enum ReplayEvent<'r> {
    /// A new table.
    Table(TableRecord),
    /// A committed transaction: its changes.
    Committed(&'r [u8]),
    /// A committed transaction that was written in parts.
    InParts(CommittedParts),
    /// No effect yet, or none at all.
    Nothing,
}

/// The parts of one transaction.
#[derive(Debug)]
struct Parts {
    /// LSNs at which they begin; there is at least one.
    at: Vec<Lsn>,
    /// Bytes of their records.
    bytes: u64,
}

impl Parts {
    fn add(&mut self, record: RecordView<'_>) {
        self.at.push(record.lsn);
        self.bytes += record.end.since(record.lsn);
    }
}

/// The parts of one committed transaction.
#[derive(Debug)]
pub(crate) struct CommittedParts {
    /// LSNs at which they begin, the last one included.
    pub(super) at: Vec<Lsn>,
    /// Bytes of their records.
    pub(super) bytes: u64,
    /// LSN at which the last one ends.
    pub(super) end: Lsn,
}

/// The transactions that have been read and are not committed yet.
#[derive(Debug)]
pub(crate) struct Replay {
    checkpoint_lsn: Lsn,
    /// By the LSN at which the first part ends.
    parts: HashMap<u64, Parts>,
}

impl Replay {
    /// Begins after a checkpoint that contains everything up to `checkpoint_lsn`.
    pub(crate) fn new(checkpoint_lsn: Lsn) -> Replay {
        Replay {
            checkpoint_lsn,
            parts: HashMap::new(),
        }
    }

    /// Processes the next record.
    pub(crate) fn take<'r>(
        &mut self,
        record: RecordView<'r>,
    ) -> Result<ReplayEvent<'r>, InvalidRecord> {
        let mut payload = record.payload;
        let is_new = record.lsn >= self.checkpoint_lsn; // I1
        Ok(match record.kind {
            record::TABLE if is_new => ReplayEvent::Table(TableRecord::decode(payload)?),
            record::COMMIT if is_new => ReplayEvent::Committed(payload),
            record::TABLE | record::COMMIT => ReplayEvent::Nothing,
            record::PART => {
                let first = u64::decode_part(&mut payload)?;
                self.put_aside(record, first, is_new)?;
                ReplayEvent::Nothing
            }
            record::LAST => {
                let first = u64::decode_part(&mut payload)?;
                self.end_parts(record, first, is_new)?
            }
            pages::COMMIT => match record::page_commit_tail(payload)? {
                Some((0, changes)) if is_new => ReplayEvent::Committed(changes),
                None | Some((0, _)) => ReplayEvent::Nothing,
                Some((first, _)) => self.end_parts(record, first, is_new)?,
            },
            pages::FIRST_KIND..=pages::LAST_KIND => ReplayEvent::Nothing,
            record::ABANDONED => {
                self.parts.remove(&u64::decode_part(&mut payload)?);
                ReplayEvent::Nothing
            }
            _ => return Err(InvalidRecord("a kind of record that is known")),
        })
    }

    /// Processes the last part of the transaction whose first part ends at `first`.
    fn end_parts<'r>(
        &mut self,
        record: RecordView<'r>,
        first: u64,
        is_new: bool,
    ) -> Result<ReplayEvent<'r>, InvalidRecord> {
        match self.parts.remove(&first) {
            Some(mut parts) if is_new => {
                parts.add(record);
                let Parts { at, bytes } = parts;
                let end = record.end;
                Ok(ReplayEvent::InParts(CommittedParts { at, bytes, end }))
            }
            None if is_new => Err(InvalidRecord(
                "the last part of a transaction whose first is known",
            )),
            _ => Ok(ReplayEvent::Nothing),
        }
    }

    fn put_aside(
        &mut self,
        record: RecordView<'_>,
        first: u64,
        is_new: bool,
    ) -> Result<(), InvalidRecord> {
        if first == 0 {
            let (at, bytes) = (Vec::new(), 0);
            let parts = self.parts.entry(record.end.bytes());
            parts
                .insert_entry(Parts { at, bytes })
                .get_mut()
                .add(record);
            return Ok(());
        }
        match self.parts.get_mut(&first) {
            Some(parts) => parts.add(record),
            // Its first part is before the position where reading began, so it ended before
            // `checkpoint_lsn`.
            None if !is_new => {}
            None => {
                return Err(InvalidRecord(
                    "a part of a transaction whose first is known",
                ));
            }
        }
        Ok(())
    }

    /// Returns the smallest LSN at which an unfinished transaction's first part begins.
    pub(crate) fn earliest_part(&self) -> Option<Lsn> {
        self.parts.values().map(|parts| parts.at[0]).min()
    }

    /// Returns the approximate memory in bytes.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> u64 {
        let each = self.parts.values().map(|parts| parts.at.capacity());
        (each.sum::<usize>() * size_of::<Lsn>() + self.parts.capacity() * size_of::<Parts>()) as u64
    }

    /// Discards unfinished transactions, because the process that wrote them is gone and will not
    /// commit them.
    pub(crate) fn forget_parts(&mut self) {
        self.parts.clear();
    }
}
