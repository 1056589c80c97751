//! From log records to committed transactions, in the order in which they were committed.
//!
//! Parts of large transactions are put aside until the record that commits them; parts without one
//! never happened. Restart reads the log so, and so does whoever makes a checkpoint of it.
//!
//! # Invariants
//!
//! * I1 What a checkpoint holds is not given out again: transactions whose last record ends at
//!   `image` or before are passed over. The parts of those that end later are not, wherever they lie.

use std::collections::HashMap;
use std::fmt;

use foxton_log::{Lsn, RecordView};

use crate::error::Error;
use crate::redo::record::{self, TableRecord};
use crate::types::codec::{Undecodable, Value};

/// A record whose check is good and whose content makes no sense: written by a program that does
/// not agree with this one.
#[derive(Debug)]
pub(crate) struct Senseless(pub(crate) &'static str);

impl fmt::Display for Senseless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl From<Undecodable> for Senseless {
    fn from(undecodable: Undecodable) -> Senseless {
        Senseless(undecodable.expected)
    }
}

impl Senseless {
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
pub(crate) enum Told<'r> {
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
    image: Lsn,
    /// By the LSN at which the first part ends.
    parts: HashMap<u64, Parts>,
}

impl Replay {
    /// Reads on behind a checkpoint that holds everything up to `image`.
    pub(crate) fn new(image: Lsn) -> Replay {
        Replay {
            image,
            parts: HashMap::new(),
        }
    }

    /// Takes in the next record.
    pub(crate) fn take<'r>(&mut self, record: RecordView<'r>) -> Result<Told<'r>, Senseless> {
        let mut payload = record.payload;
        let is_new = record.lsn >= self.image; // I1
        Ok(match record.kind {
            record::TABLE if is_new => Told::Table(TableRecord::decode(payload)?),
            record::COMMIT if is_new => Told::Committed(Vec::new(), payload),
            record::TABLE | record::COMMIT => Told::Nothing,
            record::PART => {
                let first = u64::decode_part(&mut payload)?;
                self.put_aside(record, first, payload, is_new)?;
                Told::Nothing
            }
            record::LAST => {
                let first = u64::decode_part(&mut payload)?;
                match self.parts.remove(&first) {
                    Some(parts) if is_new => Told::Committed(parts.changes, payload),
                    None if is_new => {
                        return Err(Senseless(
                            "the last part of a transaction whose first is known",
                        ));
                    }
                    _ => Told::Nothing,
                }
            }
            record::ABANDONED => {
                self.parts.remove(&u64::decode_part(&mut payload)?);
                Told::Nothing
            }
            _ => return Err(Senseless("a kind of record that is known")),
        })
    }

    fn put_aside(
        &mut self,
        record: RecordView<'_>,
        first: u64,
        changes: &[u8],
        is_new: bool,
    ) -> Result<(), Senseless> {
        if first == 0 {
            let (begin, changes) = (record.lsn, changes.to_vec());
            self.parts
                .insert(record.end.bytes(), Parts { begin, changes });
            return Ok(());
        }
        match self.parts.get_mut(&first) {
            Some(parts) => parts.changes.extend_from_slice(changes),
            // Its first part lies before the place where reading began, so it ended before `image`.
            None if !is_new => {}
            None => return Err(Senseless("a part of a transaction whose first is known")),
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
