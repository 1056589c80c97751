//! Reader of the parts of one committed transaction.
//!
//! Replay keeps the positions of parts and not their changes. So a transaction of any size costs a
//! few bytes until it is committed, and is then read again, one part after the other.

use foxton_log::read::durable_reader::ReadError;
use foxton_log::read::record_reader::RecordReader;
use foxton_log::{Lsn, RecordView};
use foxton_store::paged::recovery::record as pages;

use super::record::{LAST, PART, page_commit_tail};
use super::replay::{CommittedParts, InvalidRecord};
use crate::types::codec::Value;

/// Why a part could not be read.
#[derive(Debug)]
pub(crate) enum PartError {
    /// The log could not be read.
    Log(ReadError),
    /// The record at this LSN is not a part.
    Invalid(Lsn, InvalidRecord),
}

/// Position among the parts of a committed transaction.
#[derive(Debug)]
pub(crate) struct PartCursor {
    parts: CommittedParts,
    /// Number of parts read.
    read: usize,
}

impl PartCursor {
    /// Begins before the first of `parts`, all of which are written.
    pub(crate) fn new(parts: CommittedParts) -> PartCursor {
        PartCursor { parts, read: 0 }
    }

    /// Returns where the transaction's last part ends.
    pub(crate) fn end(&self) -> Lsn {
        self.parts.end
    }

    /// Returns the bytes of all its parts.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.bytes
    }

    /// Returns the next part, the last one included: its LSN, and its changes.
    pub(crate) fn next<'r>(
        &mut self,
        log: &'r mut RecordReader<'_>,
    ) -> Result<Option<(Lsn, &'r [u8])>, PartError> {
        let Some(&lsn) = self.parts.at.get(self.read) else {
            return Ok(None);
        };
        self.read += 1;
        let record = log.record(lsn).map_err(PartError::Log)?;
        let changes = changes(record).map_err(|invalid| PartError::Invalid(lsn, invalid))?;
        Ok(Some((lsn, changes)))
    }
}

fn changes(record: RecordView<'_>) -> Result<&[u8], InvalidRecord> {
    let mut payload = record.payload;
    const EXPECTED: InvalidRecord = InvalidRecord("the part that was read there before");
    match record.kind {
        PART | LAST => {
            u64::decode_part(&mut payload)?;
            Ok(payload)
        }
        pages::COMMIT => {
            let tail = page_commit_tail(payload)?;
            tail.map(|(_, changes)| changes).ok_or(EXPECTED)
        }
        _ => Err(EXPECTED),
    }
}
