//! Log records of changes to pages.
//!
//! ```text
//! record            kind  payload
//! BEGIN             32    nothing
//! UPDATE            33    transaction · prev · undo space · page · reserve u32 · undo bytes u32 ·
//!                         undo · redo
//! COMPENSATION      34    transaction · prev · undo space · undo next · page · redo
//! NESTED            35    transaction · prev · undo space · undo next
//! COMMIT            36    transaction · prev
//! ABORT             37    transaction · prev
//! END               38    transaction · prev
//! CHECKPOINT_BEGIN  39    nothing
//! CHECKPOINT_END    40    begin · transactions u32 · pages u32 ·
//!                         of each transaction: transaction · last · undo next · undo space ·
//!                         state u64; of each page: page · recovery LSN
//! ```
//!
//! Numbers are u64 unless it says otherwise, and little-endian. The checksums are those of the
//! log's records.
//!
//! A transaction is named by the LSN of its BEGIN. So nothing counts transactions, no two share a
//! name, and the chain of a transaction's records ends where its name says. `prev` is the start of
//! the transaction's record before this one; `undo next` is the record with which undo continues.
//!
//! `undo space` is the maximum number of bytes of log for undoing the remaining changes of the
//! transaction, and ending it; `reserve` is this record's part of it. A `reserve` of 0 says that
//! the change is not to be undone. `space` says what they are for.
//!
//! # Invariants
//!
//! * I1  For any bytes, decoding returns a record or an error, takes time and memory in proportion
//!   to them, and encoding the returned record gives the same bytes.
//! * I2  In a record that decodes, positions point strictly backwards: transaction <= undo next <=
//!   prev < the record itself. So following them comes to an end.

use std::fmt;

use foxton_log::format::record::framed_bytes;
use foxton_log::{Log, LogError, Lsn, RecordView};
use foxton_sync::worker::Worker;
use smallvec::SmallVec;

use super::bytes::ByteReader;
use super::tables::Tables;
use crate::paged::PageId;

/// The first kind of record that is defined here.
pub const FIRST_KIND: u8 = BEGIN;
/// The last kind of record that is defined here.
pub const LAST_KIND: u8 = CHECKPOINT_END;

const BEGIN: u8 = 32;
const UPDATE: u8 = 33;
const COMPENSATION: u8 = 34;
const NESTED: u8 = 35;
const COMMIT: u8 = 36;
const ABORT: u8 = 37;
const END: u8 = 38;
const CHECKPOINT_BEGIN: u8 = 39;
const CHECKPOINT_END: u8 = 40;

/// Bytes of a COMPENSATION before its redo.
const COMPENSATION_HEAD: usize = 40;
/// Bytes of log that ABORT, COMMIT or END takes.
pub(super) const MARK_BYTES: u64 = framed_bytes(16);

/// Position of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPosition {
    /// Its start: its name, by which others point to it.
    pub begin: Lsn,
    /// Its end: the LSN of a page that has its change. Once the log is durable up to here, the page
    /// may be written.
    pub end: Lsn,
}

/// Link of a record to its transaction and the record before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Start of the transaction: its name.
    pub transaction: Lsn,
    /// Start of the transaction's record before this one.
    pub prev: Lsn,
}

/// A change of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update<'a> {
    /// Its transaction, and the record before.
    pub link: Link,
    /// Maximum bytes of log for undoing all changes of the transaction up to here.
    pub undo_space: u64,
    /// The page.
    pub page: PageId,
    /// Part of `undo_space` for this change; 0 if it is not to be undone.
    pub reserve: u32,
    /// Data that the page's owner needs to undo it.
    pub undo: &'a [u8],
    /// Data that the page's owner needs to redo it.
    pub redo: &'a [u8],
}

/// A change that undid another one. It is redone, and never undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compensation<'a> {
    /// Its transaction, and the record before.
    pub link: Link,
    /// As in [`Update`].
    pub undo_space: u64,
    /// The next record to undo after the one that this undid.
    pub undo_next: Lsn,
    /// The page.
    pub page: PageId,
    /// Data that the page's owner needs to redo it.
    pub redo: &'a [u8],
}

/// A nested top action has ended: its changes stay, however the transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nested {
    /// Its transaction, and the record before.
    pub link: Link,
    /// As in [`Update`].
    pub undo_space: u64,
    /// The last record before the action.
    pub undo_next: Lsn,
}

/// A record of the kinds that are defined here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryRecord<'a> {
    /// A transaction begins, with its first change.
    Begin,
    /// A page is changed.
    Update(Update<'a>),
    /// A change is undone.
    Compensation(Compensation<'a>),
    /// A nested top action has ended.
    Nested(Nested),
    /// A transaction is committed.
    Commit(Link),
    /// A transaction has begun to undo all its changes.
    Abort(Link),
    /// A transaction has ended, committed or undone.
    End(Link),
    /// A checkpoint is taken here.
    CheckpointBegin,
    /// The tables of the checkpoint that began at the given position.
    CheckpointEnd(Lsn, Tables),
}

/// A record whose checksums are good and whose content is malformed: written by a program that does
/// not agree with this one, or by a forger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// Start of the record.
    pub lsn: Lsn,
    /// Description of a valid record there.
    pub expected: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Malformed { lsn, expected } = self;
        write!(f, "the log record at LSN {lsn} is not {expected}")
    }
}

impl std::error::Error for Malformed {}

/// Returns the bytes of log that a compensation with so many bytes of redo takes.
pub const fn compensation_bytes(redo: usize) -> u64 {
    framed_bytes(COMPENSATION_HEAD + redo)
}

/// The fixed part of a record. The largest, UPDATE's, has 40 bytes; tables of a checkpoint go on
/// the heap.
type FixedPart = SmallVec<[u8; 40]>;

impl<'a> RecoveryRecord<'a> {
    /// Returns the record in `view`, or `None` if its kind is not defined here.
    ///
    /// # Errors
    ///
    /// If its content is malformed (I1, I2).
    pub fn decode(view: &RecordView<'a>) -> Result<Option<RecoveryRecord<'a>>, Malformed> {
        let expected = match view.kind {
            BEGIN => "the beginning of a transaction",
            UPDATE => "a change of a page",
            COMPENSATION => "a compensation",
            NESTED => "the end of a nested top action",
            COMMIT | ABORT | END => "the end of a transaction",
            CHECKPOINT_BEGIN => "the beginning of a checkpoint",
            CHECKPOINT_END => "the end of a checkpoint",
            _ => return Ok(None),
        };
        let record = decode(view.lsn, view.kind, ByteReader(view.payload));
        let malformed = Malformed {
            lsn: view.lsn,
            expected,
        };
        record.map(Some).ok_or(malformed)
    }

    /// Returns the kind of the record.
    pub fn kind(&self) -> u8 {
        match self {
            RecoveryRecord::Begin => BEGIN,
            RecoveryRecord::Update(_) => UPDATE,
            RecoveryRecord::Compensation(_) => COMPENSATION,
            RecoveryRecord::Nested(_) => NESTED,
            RecoveryRecord::Commit(_) => COMMIT,
            RecoveryRecord::Abort(_) => ABORT,
            RecoveryRecord::End(_) => END,
            RecoveryRecord::CheckpointBegin => CHECKPOINT_BEGIN,
            RecoveryRecord::CheckpointEnd(..) => CHECKPOINT_END,
        }
    }

    /// Returns the link of the record, if it belongs to a transaction and is not its first.
    pub fn link(&self) -> Option<Link> {
        match self {
            RecoveryRecord::Update(update) => Some(update.link),
            RecoveryRecord::Compensation(compensation) => Some(compensation.link),
            RecoveryRecord::Nested(nested) => Some(nested.link),
            RecoveryRecord::Commit(link)
            | RecoveryRecord::Abort(link)
            | RecoveryRecord::End(link) => Some(*link),
            RecoveryRecord::Begin
            | RecoveryRecord::CheckpointBegin
            | RecoveryRecord::CheckpointEnd(..) => None,
        }
    }

    /// Returns the payload, in parts.
    ///
    /// # Panics
    ///
    /// If there are more than 2^32 - 1 bytes of undo, transactions or pages; the log takes no such
    /// record.
    pub fn encode(&self) -> (impl AsRef<[u8]> + use<>, [&'a [u8]; 2]) {
        const LIMIT: &str = "a record has at most 256 MiB";
        let count = |count: usize| u32::try_from(count).expect(LIMIT).to_le_bytes();
        let mut head = FixedPart::new();
        let link = self.link();
        if let Some(link) = link {
            put(&mut head, &[link.transaction.bytes(), link.prev.bytes()]);
        }
        let mut tail: [&'a [u8]; 2] = [&[], &[]];
        match self {
            RecoveryRecord::Update(update) => {
                put(&mut head, &[update.undo_space, update.page.0]);
                head.extend_from_slice(&update.reserve.to_le_bytes());
                head.extend_from_slice(&count(update.undo.len()));
                tail = [update.undo, update.redo];
            }
            RecoveryRecord::Compensation(compensation) => {
                let next = compensation.undo_next.bytes();
                put(
                    &mut head,
                    &[compensation.undo_space, next, compensation.page.0],
                );
                tail[0] = compensation.redo;
            }
            RecoveryRecord::Nested(nested) => {
                put(&mut head, &[nested.undo_space, nested.undo_next.bytes()])
            }
            RecoveryRecord::CheckpointEnd(begin, tables) => {
                put(&mut head, &[begin.bytes()]);
                head.extend_from_slice(&count(tables.transactions.len()));
                head.extend_from_slice(&count(tables.pages.len()));
                tables.encode(&mut |number| head.extend_from_slice(&number.to_le_bytes()));
            }
            RecoveryRecord::Begin | RecoveryRecord::CheckpointBegin => {}
            RecoveryRecord::Commit(_) | RecoveryRecord::Abort(_) | RecoveryRecord::End(_) => {}
        }
        (head, tail)
    }

    /// Bytes of log that it takes.
    pub fn log_bytes(&self) -> u64 {
        let (head, [first, second]) = self.encode();
        framed_bytes(head.as_ref().len() + first.len() + second.len())
    }

    /// Inserts the record into the log.
    ///
    /// # Errors
    ///
    /// Errors of the log.
    pub fn insert(&self, log: &Log, worker: &Worker) -> Result<RecordPosition, LogError> {
        let (head, [first, second]) = self.encode();
        let parts = [head.as_ref(), first, second];
        let end = log.insert(worker, self.kind(), &parts)?;
        let bytes = framed_bytes(parts.iter().map(|part| part.len()).sum());
        Ok(RecordPosition {
            begin: Lsn::new(end.bytes() - bytes),
            end,
        })
    }
}

fn put(head: &mut FixedPart, numbers: &[u64]) {
    for number in numbers {
        head.extend_from_slice(&number.to_le_bytes());
    }
}

fn decode(lsn: Lsn, kind: u8, mut bytes: ByteReader<'_>) -> Option<RecoveryRecord<'_>> {
    let bytes = &mut bytes;
    let record = match kind {
        BEGIN => RecoveryRecord::Begin,
        UPDATE => RecoveryRecord::Update(update(lsn, bytes)?),
        COMPENSATION => {
            let (link, undo_space, undo_next) = decode_backlink(lsn, bytes)?;
            RecoveryRecord::Compensation(Compensation {
                link,
                undo_space,
                undo_next,
                page: PageId(bytes.u64()?),
                redo: std::mem::take(&mut bytes.0),
            })
        }
        NESTED => {
            let (link, undo_space, undo_next) = decode_backlink(lsn, bytes)?;
            RecoveryRecord::Nested(Nested {
                link,
                undo_space,
                undo_next,
            })
        }
        COMMIT => RecoveryRecord::Commit(link(lsn, bytes)?),
        ABORT => RecoveryRecord::Abort(link(lsn, bytes)?),
        END => RecoveryRecord::End(link(lsn, bytes)?),
        CHECKPOINT_BEGIN => RecoveryRecord::CheckpointBegin,
        CHECKPOINT_END => {
            let begin = Lsn::new(bytes.u64()?);
            let (transactions, pages) = (bytes.u32()?, bytes.u32()?);
            let tables = Tables::decode(begin, transactions, pages, bytes)?;
            (begin < lsn).then_some(RecoveryRecord::CheckpointEnd(begin, tables))?
        }
        _ => return None,
    };
    bytes.0.is_empty().then_some(record)
}

fn update<'a>(lsn: Lsn, bytes: &mut ByteReader<'a>) -> Option<Update<'a>> {
    let (link, undo_space) = (link(lsn, bytes)?, bytes.u64()?);
    let page = PageId(bytes.u64()?);
    let (reserve, undo_bytes) = (bytes.u32()?, bytes.u32()?);
    let undo = bytes.take(usize::try_from(undo_bytes).ok()?)?;
    let redo = std::mem::take(&mut bytes.0);
    let least = match reserve {
        0 => 0,
        _ => compensation_bytes(undo.len()),
    };
    let sound = u64::from(reserve) >= least && undo_space >= u64::from(reserve);
    let is_sound = sound && (reserve != 0 || undo.is_empty());
    is_sound.then_some(Update {
        link,
        undo_space,
        page,
        reserve,
        undo,
        redo,
    })
}

fn link(lsn: Lsn, bytes: &mut ByteReader<'_>) -> Option<Link> {
    let (transaction, prev) = (Lsn::new(bytes.u64()?), Lsn::new(bytes.u64()?));
    (transaction <= prev && prev < lsn).then_some(Link { transaction, prev })
}

fn decode_backlink(lsn: Lsn, bytes: &mut ByteReader<'_>) -> Option<(Link, u64, Lsn)> {
    let (link, undo_space) = (link(lsn, bytes)?, bytes.u64()?);
    let undo_next = Lsn::new(bytes.u64()?);
    let backwards = link.transaction <= undo_next && undo_next <= link.prev;
    backwards.then_some((link, undo_space, undo_next))
}
