//! Log records of changes to pages.
//!
//! ```text
//! record            kind  payload
//! UPDATE            33    reserve u32 · undo bytes u31, begins u1 · transaction · prev ·
//!                         undo space · page · previous · undo · redo
//! COMPENSATION      34    transaction · prev · undo space · undo next · page · previous · redo
//! COMMIT            36    transaction · prev · tail: nothing, or first part · changes
//! ABORT             37    transaction · prev
//! END               38    transaction · prev
//! CHECKPOINT_BEGIN  39    nothing
//! CHECKPOINT_END    40    begin · transactions u32 · pages u32 ·
//!                         of each transaction: transaction · last · undo next · undo space ·
//!                         state u64; of each page: page · recovery LSN
//! STRUCTURE         41    of each page, one to six: page · previous · redo bytes u32 · redo
//! ```
//!
//! Numbers are u64 unless it says otherwise, and little-endian. The checksums are those of the
//! log's records. Kinds 32 and 35 are free.
//!
//! A transaction is named by the LSN of its first record, an UPDATE. So nothing counts
//! transactions, no two share a name, and the chain of a transaction's records ends where its name
//! says. The flag `begins` marks that first record, which has neither `transaction` nor `prev`.
//! `prev` is the start of the transaction's record before this one. `undo next` is the record with
//! which undo continues, or 2^64 - 1 if nothing is left to undo.
//!
//! `previous` is the LSN that the page had before the change: the end of the record of its previous
//! change. So the records of one page are a chain too, the *page chain*.
//!
//! `undo space` is the maximum number of bytes of log for undoing the remaining changes of the
//! transaction, and ending it; `reserve` is this record's part of it. A `reserve` of 0 says that
//! the change is not to be undone. `space` says what they are for.
//!
//! A STRUCTURE changes several pages at once. It belongs to no transaction, is complete or absent,
//! and is never undone.
//!
//! The tail of a COMMIT has the transaction's changes of memory-resident tables. Recovery of pages
//! skips it.
//!
//! # Invariants
//!
//! * I1  For any bytes, decoding returns a record or an error, takes time and memory in proportion
//!   to them, and encoding the returned record gives the same bytes.
//! * I2  In a record that decodes, positions point strictly backwards: transaction <= undo next <=
//!   prev < the record itself, and previous <= the record itself. So following them comes to an
//!   end.

use std::fmt;

use foxton_log::format::record::framed_bytes;
use foxton_log::{Log, LogError, Lsn, RecordView};
use foxton_sync::worker::Worker;
use smallvec::SmallVec;

use super::bytes::ByteReader;
use super::tables::Tables;
use crate::paged::PageId;

/// The first kind of record that is defined here.
pub const FIRST_KIND: u8 = UPDATE;
/// The last kind of record that is defined here.
pub const LAST_KIND: u8 = STRUCTURE;

const UPDATE: u8 = 33;
const COMPENSATION: u8 = 34;
/// Kind of a record that commits a transaction, whose tail replay reads.
pub const COMMIT: u8 = 36;
const ABORT: u8 = 37;
const END: u8 = 38;
const CHECKPOINT_BEGIN: u8 = 39;
const CHECKPOINT_END: u8 = 40;
const STRUCTURE: u8 = 41;

/// Maximum number of pages of a STRUCTURE.
pub const MAX_STRUCTURE_PAGES: usize = 6;

/// Bytes of a COMPENSATION before its redo.
const COMPENSATION_HEAD: usize = 48;
/// Bytes of log that ABORT, END, or COMMIT without a tail takes.
pub(super) const MARK_BYTES: u64 = framed_bytes(16);
/// In the bytes of undo of an UPDATE: it begins its transaction.
const BEGINS: u32 = 1 << 31;

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

/// A change of one page, as each record of changes has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainedChange<'a> {
    /// The page.
    pub page: PageId,
    /// LSN of the page before: the end of the record of its previous change.
    pub previous: Lsn,
    /// Data that the page's owner needs to redo it.
    pub redo: &'a [u8],
}

/// A change of one page by a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update<'a> {
    /// Its transaction, and the record before. `None`: the transaction begins with it, and its
    /// position is the transaction's name.
    pub link: Option<Link>,
    /// Maximum bytes of log for undoing all changes of the transaction up to here.
    pub undo_space: u64,
    /// Part of `undo_space` for this change; 0 if it is not to be undone.
    pub reserve: u32,
    /// Data that the page's owner needs to undo it.
    pub undo: &'a [u8],
    /// The change.
    pub change: ChainedChange<'a>,
}

/// A change that undid another one. It is redone, and never undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compensation<'a> {
    /// Its transaction, and the record before.
    pub link: Link,
    /// As in [`Update`].
    pub undo_space: u64,
    /// The next record to undo after the one that this undid; `None` if nothing is left.
    pub undo_next: Option<Lsn>,
    /// The change.
    pub change: ChainedChange<'a>,
}

/// The changes of memory-resident tables in a COMMIT. Recovery of pages skips them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitTail<'a> {
    /// Where the record of the first part of these changes ends; zero if all of them are here.
    pub first_part: Lsn,
    /// The changes.
    pub changes: &'a [u8],
}

/// The changes of one structure modification, each of another page.
pub type StructureChanges<'a> = Vec<ChainedChange<'a>>;

/// A record of the kinds that are defined here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryRecord<'a> {
    /// A transaction changes a page.
    Update(Update<'a>),
    /// A change is undone.
    Compensation(Compensation<'a>),
    /// A structure modification changes up to six pages.
    Structure(StructureChanges<'a>),
    /// A transaction is committed and has ended.
    Commit(Link, Option<CommitTail<'a>>),
    /// A transaction has begun to undo all its changes.
    Abort(Link),
    /// A transaction has ended, and all its changes are undone.
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

/// The part of a record that is put together for it. That of an UPDATE has at most 56 bytes; larger
/// ones are on the heap.
type FixedPart = SmallVec<[u8; 56]>;

impl<'a> RecoveryRecord<'a> {
    /// Returns the record in `view`, or `None` if its kind is not defined here.
    ///
    /// # Errors
    ///
    /// If its content is malformed (I1, I2).
    pub fn decode(view: &RecordView<'a>) -> Result<Option<RecoveryRecord<'a>>, Malformed> {
        let expected = match view.kind {
            UPDATE => "a change of a page",
            COMPENSATION => "a compensation",
            STRUCTURE => "a structure modification",
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
            RecoveryRecord::Update(_) => UPDATE,
            RecoveryRecord::Compensation(_) => COMPENSATION,
            RecoveryRecord::Structure(_) => STRUCTURE,
            RecoveryRecord::Commit(..) => COMMIT,
            RecoveryRecord::Abort(_) => ABORT,
            RecoveryRecord::End(_) => END,
            RecoveryRecord::CheckpointBegin => CHECKPOINT_BEGIN,
            RecoveryRecord::CheckpointEnd(..) => CHECKPOINT_END,
        }
    }

    /// Returns the link of the record, if it belongs to a transaction and is not its first.
    pub fn link(&self) -> Option<Link> {
        match self {
            RecoveryRecord::Update(update) => update.link,
            RecoveryRecord::Compensation(compensation) => Some(compensation.link),
            RecoveryRecord::Commit(link, _)
            | RecoveryRecord::Abort(link)
            | RecoveryRecord::End(link) => Some(*link),
            RecoveryRecord::Structure(_)
            | RecoveryRecord::CheckpointBegin
            | RecoveryRecord::CheckpointEnd(..) => None,
        }
    }

    /// Returns the name of the transaction of this record, which begins at `at`. `None`: it belongs
    /// to none.
    pub fn transaction(&self, at: Lsn) -> Option<Lsn> {
        match self {
            RecoveryRecord::Update(Update { link: None, .. }) => Some(at),
            _ => self.link().map(|link| link.transaction),
        }
    }

    /// Returns the changes of pages, which redo repeats.
    pub fn changes(&self) -> &[ChainedChange<'a>] {
        match self {
            RecoveryRecord::Update(update) => std::slice::from_ref(&update.change),
            RecoveryRecord::Compensation(compensation) => {
                std::slice::from_ref(&compensation.change)
            }
            RecoveryRecord::Structure(changes) => changes,
            _ => &[],
        }
    }

    /// Returns the payload, in parts.
    ///
    /// # Panics
    ///
    /// If there are 2^31 bytes of undo or more, or 2^32 bytes of redo, transactions or pages; the
    /// log takes no such record.
    pub fn encode(&self) -> (impl AsRef<[u8]> + use<>, [&'a [u8]; 2]) {
        let mut head = FixedPart::new();
        let mut tail: [&'a [u8]; 2] = [&[], &[]];
        match self {
            RecoveryRecord::Update(update) => {
                let begins = if update.link.is_none() { BEGINS } else { 0 };
                let undo_bytes = number(update.undo.len());
                assert!(undo_bytes & BEGINS == 0, "{LIMIT}");
                head.extend_from_slice(&update.reserve.to_le_bytes());
                head.extend_from_slice(&(undo_bytes | begins).to_le_bytes());
                if let Some(link) = update.link {
                    put_link(&mut head, link);
                }
                let ChainedChange { page, previous, .. } = update.change;
                put(&mut head, &[update.undo_space, page.0, previous.bytes()]);
                tail = [update.undo, update.change.redo];
            }
            RecoveryRecord::Compensation(compensation) => {
                put_link(&mut head, compensation.link);
                let next = compensation.undo_next.unwrap_or(Lsn::MAX).bytes();
                let ChainedChange { page, previous, .. } = compensation.change;
                let numbers = [compensation.undo_space, next, page.0, previous.bytes()];
                put(&mut head, &numbers);
                tail[0] = compensation.change.redo;
            }
            RecoveryRecord::Structure(changes) => {
                for change in changes {
                    put(&mut head, &[change.page.0, change.previous.bytes()]);
                    head.extend_from_slice(&number(change.redo.len()).to_le_bytes());
                    head.extend_from_slice(change.redo);
                }
            }
            RecoveryRecord::CheckpointEnd(begin, tables) => {
                put(&mut head, &[begin.bytes()]);
                head.extend_from_slice(&number(tables.transactions.len()).to_le_bytes());
                head.extend_from_slice(&number(tables.pages.len()).to_le_bytes());
                tables.encode(&mut |number| head.extend_from_slice(&number.to_le_bytes()));
            }
            RecoveryRecord::Commit(link, part) => {
                put_link(&mut head, *link);
                if let Some(part) = part {
                    put(&mut head, &[part.first_part.bytes()]);
                    tail[0] = part.changes;
                }
            }
            RecoveryRecord::Abort(link) | RecoveryRecord::End(link) => put_link(&mut head, *link),
            RecoveryRecord::CheckpointBegin => {}
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
        let inserted = self.insert_by(|kind, parts| Ok((log.insert(worker, kind, parts)?, ())));
        inserted.map(|(place, ())| place)
    }

    /// As [`insert`](Self::insert), by `insert`. It gets the kind and the parts, and returns the
    /// end of the record and a value to return here.
    ///
    /// # Errors
    ///
    /// Those of `insert`.
    pub fn insert_by<T>(
        &self,
        insert: impl FnOnce(u8, &[&[u8]]) -> Result<(Lsn, T), LogError>,
    ) -> Result<(RecordPosition, T), LogError> {
        let (head, [first, second]) = self.encode();
        let parts = [head.as_ref(), first, second];
        let (end, other) = insert(self.kind(), &parts)?;
        Ok((position(&parts, end), other))
    }

    /// As [`insert`](Self::insert), by [`Log::insert_kept`]. Also returns how many of the kept
    /// bytes were used.
    ///
    /// # Errors
    ///
    /// Errors of the log.
    pub fn insert_kept(
        &self,
        log: &Log,
        worker: &Worker,
        kept: u64,
    ) -> Result<(RecordPosition, u64), LogError> {
        self.insert_by(|kind, parts| log.insert_kept(worker, kind, parts, kept))
    }
}

/// Returns the position of a record that ends at `end`.
fn position(parts: &[&[u8]], end: Lsn) -> RecordPosition {
    let bytes = framed_bytes(parts.iter().map(|part| part.len()).sum());
    RecordPosition {
        begin: Lsn::new(end.bytes() - bytes),
        end,
    }
}

const LIMIT: &str = "a record has at most 256 MiB";

fn number(count: usize) -> u32 {
    u32::try_from(count).expect(LIMIT)
}

fn put(head: &mut FixedPart, numbers: &[u64]) {
    for number in numbers {
        head.extend_from_slice(&number.to_le_bytes());
    }
}

fn put_link(head: &mut FixedPart, link: Link) {
    put(head, &[link.transaction.bytes(), link.prev.bytes()]);
}

fn decode(lsn: Lsn, kind: u8, mut bytes: ByteReader<'_>) -> Option<RecoveryRecord<'_>> {
    let bytes = &mut bytes;
    let record = match kind {
        UPDATE => RecoveryRecord::Update(update(lsn, bytes)?),
        COMPENSATION => RecoveryRecord::Compensation(compensation(lsn, bytes)?),
        STRUCTURE => RecoveryRecord::Structure(structure(lsn, bytes)?),
        COMMIT => {
            let link = link(lsn, bytes)?;
            let tail = match bytes.0.is_empty() {
                true => None,
                false => Some(commit_tail(lsn, bytes)?),
            };
            RecoveryRecord::Commit(link, tail)
        }
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
    let (reserve, undo_bytes) = (bytes.u32()?, bytes.u32()?);
    let link = match undo_bytes & BEGINS {
        0 => Some(link(lsn, bytes)?),
        _ => None,
    };
    let undo_space = bytes.u64()?;
    let (page, previous) = page(lsn, bytes)?;
    let undo = bytes.take(usize::try_from(undo_bytes & !BEGINS).ok()?)?;
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
        reserve,
        undo,
        change: ChainedChange {
            page,
            previous,
            redo,
        },
    })
}

fn compensation<'a>(lsn: Lsn, bytes: &mut ByteReader<'a>) -> Option<Compensation<'a>> {
    let (link, undo_space) = (link(lsn, bytes)?, bytes.u64()?);
    let undo_next = Some(Lsn::new(bytes.u64()?)).filter(|next| *next != Lsn::MAX);
    let is_backwards = |next| link.transaction <= next && next <= link.prev;
    undo_next.is_none_or(is_backwards).then_some(())?;
    let (page, previous) = page(lsn, bytes)?;
    Some(Compensation {
        link,
        undo_space,
        undo_next,
        change: ChainedChange {
            page,
            previous,
            redo: std::mem::take(&mut bytes.0),
        },
    })
}

fn structure<'a>(lsn: Lsn, bytes: &mut ByteReader<'a>) -> Option<StructureChanges<'a>> {
    let mut changes = StructureChanges::new();
    while changes.is_empty() || !bytes.0.is_empty() {
        let (page, previous) = page(lsn, bytes)?;
        let redo_bytes = usize::try_from(bytes.u32()?).ok()?;
        let redo = bytes.take(redo_bytes)?;
        let is_new = changes.iter().all(|change| change.page != page);
        (is_new && changes.len() < MAX_STRUCTURE_PAGES).then_some(())?;
        changes.push(ChainedChange {
            page,
            previous,
            redo,
        });
    }
    Some(changes)
}

fn commit_tail<'a>(lsn: Lsn, bytes: &mut ByteReader<'a>) -> Option<CommitTail<'a>> {
    let first_part = Lsn::new(bytes.u64()?);
    (first_part <= lsn).then_some(CommitTail {
        first_part,
        changes: std::mem::take(&mut bytes.0),
    })
}

fn page(lsn: Lsn, bytes: &mut ByteReader<'_>) -> Option<(PageId, Lsn)> {
    let (page, previous) = (PageId(bytes.u64()?), Lsn::new(bytes.u64()?));
    (previous <= lsn).then_some((page, previous))
}

fn link(lsn: Lsn, bytes: &mut ByteReader<'_>) -> Option<Link> {
    let (transaction, prev) = (Lsn::new(bytes.u64()?), Lsn::new(bytes.u64()?));
    (transaction <= prev && prev < lsn).then_some(Link { transaction, prev })
}
