//! From log records to committed transactions, in the order in which they were committed.
//!
//! Parts of large transactions are put aside until the record that commits them; parts without one
//! never happened. Restart reads the log so, and so does whoever makes a checkpoint of it.
//!
//! # Invariants
//!
//! * I1 What a checkpoint holds is not given out again: transactions whose last record ends at
//!   `checkpoint_lsn` or before are passed over. The parts of those that end later are not, wherever they lie.

use std::collections::HashMap;
use std::fmt;

use foxton_log::{Lsn, RecordView};

use crate::error::Error;
use crate::redo::record::{self, TableRecord};
use crate::types::codec::{Undecodable, Value};

/// A record whose check is good and whose content makes no sense: written by a program that does
/// not agree with this one.
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
    /// The same in the words of the engine's users.
    pub(crate) fn at(&self, lsn: Lsn) -> Error {
        crate::error::Storage::Damaged {
            place: format!("log record at LSN {lsn}"),
            what: format!("it does not hold {self}"),
        }
        .into()
    }
}

/// What a record brought about.
#[derive(Debug)]
pub(crate) enum ReplayEvent<'r> {
    /// A new table.
    Table(TableRecord),
    /// A transaction was committed: these changes, those of its earlier parts first.
    Committed(Vec<u8>, &'r [u8]),
    /// Nothing yet, or nothing any more.
    Nothing,
}

/// The parts of one transaction that has not ended.
#[derive(Debug)]
struct Parts {
    /// Where the first of them begins.
    begin: Lsn,
    changes: Vec<u8>,
}

/// What was read and is not committed yet.
#[derive(Debug)]
pub(crate) struct Replay {
    checkpoint_lsn: Lsn,
    /// By the LSN at which the first part ends.
    parts: HashMap<u64, Parts>,
}

impl Replay {
    /// Reads on behind a checkpoint that holds everything up to `checkpoint_lsn`.
    pub(crate) fn new(checkpoint_lsn: Lsn) -> Replay {
        Replay {
            checkpoint_lsn,
            parts: HashMap::new(),
        }
    }

    /// Takes in the next record.
    pub(crate) fn take<'r>(
        &mut self,
        record: RecordView<'r>,
    ) -> Result<ReplayEvent<'r>, InvalidRecord> {
        let mut payload = record.payload;
        let is_new = record.lsn >= self.checkpoint_lsn; // I1
        Ok(match record.kind {
            record::TABLE if is_new => ReplayEvent::Table(TableRecord::decode(payload)?),
            record::COMMIT if is_new => ReplayEvent::Committed(Vec::new(), payload),
            record::TABLE | record::COMMIT => ReplayEvent::Nothing,
            record::PART => {
                let first = u64::decode_part(&mut payload)?;
                self.put_aside(record, first, payload, is_new)?;
                ReplayEvent::Nothing
            }
            record::LAST => {
                let first = u64::decode_part(&mut payload)?;
                match self.parts.remove(&first) {
                    Some(parts) if is_new => ReplayEvent::Committed(parts.changes, payload),
                    None if is_new => {
                        return Err(InvalidRecord(
                            "the last part of a transaction whose first is known",
                        ));
                    }
                    _ => ReplayEvent::Nothing,
                }
            }
            record::ABANDONED => {
                self.parts.remove(&u64::decode_part(&mut payload)?);
                ReplayEvent::Nothing
            }
            _ => return Err(InvalidRecord("a kind of record that is known")),
        })
    }

    fn put_aside(
        &mut self,
        record: RecordView<'_>,
        first: u64,
        changes: &[u8],
        is_new: bool,
    ) -> Result<(), InvalidRecord> {
        if first == 0 {
            let (begin, changes) = (record.lsn, changes.to_vec());
            self.parts
                .insert(record.end.bytes(), Parts { begin, changes });
            return Ok(());
        }
        match self.parts.get_mut(&first) {
            Some(parts) => parts.changes.extend_from_slice(changes),
            // Its first part lies before the place where reading began, so it ended before `checkpoint_lsn`.
            None if !is_new => {}
            None => {
                return Err(InvalidRecord(
                    "a part of a transaction whose first is known",
                ));
            }
        }
        Ok(())
    }

    /// Where the first part begins of all transactions that have not ended.
    pub(crate) fn earliest_part(&self) -> Option<Lsn> {
        self.parts.values().map(|parts| parts.begin).min()
    }

    /// Forgets parts: those who wrote them are gone, and will not commit them.
    pub(crate) fn forget_parts(&mut self) {
        self.parts.clear();
    }
}
