//! Transactions on pages: the records that they write while they run.
//!
//! The first change of a transaction begins it: one that only reads writes nothing, and meets no
//! other. Its name is the position of its first record, so nothing counts transactions.
//!
//! A transaction of one change writes two records, UPDATE and COMMIT.
//!
//! # Invariants
//!
//! * I1  The records of one transaction are a chain: `prev` of each is the start of the one before.
//! * I2  `credit >= undo_space` (`space`, I1).
//! * I3  `kept` bytes of the log's device are the transaction's (`undo_reserve`, I2).

use std::fmt;
use std::sync::Arc;

use foxton_log::device::Device;
use foxton_log::{Log, LogError, Lsn};
use foxton_sync::worker::Worker;

use super::analysis::ENDING_BYTES;
use super::error::WriteError;
use super::record::{
    ChainedChange, CommitTail, Link, RecordPosition, RecoveryRecord, StructureChanges, Update,
    compensation_bytes,
};
use super::space::UndoSpace;
use super::tables::{TransactionEntry, TransactionState};
use super::undo_reserve::UndoReserve;
use crate::failpoint;

/// A log in which changes to pages are made so that they can be undone.
///
/// [`restart`](super::restart::restart) makes one.
pub struct Recovery {
    pub(super) device: Arc<dyn Device>,
    pub(super) identity: [u8; 16],
    pub(super) log: Arc<Log>,
    pub(super) space: UndoSpace,
    pub(super) reserve: UndoReserve,
}

impl fmt::Debug for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovery")
            .field("log", &self.log)
            .field("space", &self.space)
            .finish_non_exhaustive()
    }
}

/// A transaction on pages, as the log sees it. A new one has no changes; one that has ended is a
/// new one.
///
/// Dropping one that has not ended leaves its changes, and the space reserved for undoing them,
/// until the next restart, which undoes them.
#[derive(Debug, Default)]
pub struct PageTransaction {
    pub(super) chain: Option<RecordChain>,
    /// Bytes that it has taken of the undo reserve before its first record.
    kept: u64,
}

/// A transaction that has records.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordChain {
    /// Start of its first record: its name.
    pub(super) begin: Lsn,
    /// Start of its last record.
    pub(super) last: Lsn,
    /// End of its last record.
    pub(super) end: Lsn,
    /// The record with which undo continues; `None` if nothing is left to undo.
    pub(super) undo_next: Option<Lsn>,
    pub(super) undo_space: u64,
    pub(super) credit: u64,
    /// Bytes that it has of the undo reserve (I3).
    pub(super) kept: u64,
    pub(super) state: TransactionState,
    /// Its last change, of those that this process has made.
    pub(super) last_change: Option<UndoPosition>,
}

/// Position of a change among those that its transaction may have to undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UndoPosition {
    /// Start of the change's record.
    pub(super) begin: Lsn,
    /// The transaction's record before the change; `None` if it began with the change.
    pub(super) before: Option<Lsn>,
    /// Bytes of log that are reserved for undoing it.
    pub(super) reserve: u32,
}

impl RecordChain {
    /// Returns a transaction that restart found, with the space that was reserved for it.
    pub(super) fn from_entry(begin: Lsn, entry: TransactionEntry) -> RecordChain {
        RecordChain {
            begin,
            last: entry.last,
            end: entry.last,
            undo_next: entry.undo_next,
            undo_space: entry.undo_space,
            credit: entry.undo_space,
            kept: 0,
            state: entry.state,
            last_change: None,
        }
    }

    pub(super) fn link(&self) -> Link {
        Link {
            transaction: self.begin,
            prev: self.last,
        }
    }

    /// Adds a record that was inserted.
    fn extend(&mut self, place: RecordPosition) {
        (self.last, self.end) = (place.begin, place.end); // I1
        // A forged log may have reserved too little.
        self.credit = self.credit.saturating_sub(place.end.since(place.begin));
    }
}

/// A change of a page, as its owner will read it.
#[derive(Debug, Clone, Copy)]
pub struct PageChange<'a> {
    /// The page, its LSN before, and data that redoes the change.
    pub change: ChainedChange<'a>,
    /// Data that undoes it; `None` if it is not to be undone.
    pub undo: Option<UndoData<'a>>,
}

/// Data that undoes a change.
#[derive(Debug, Clone, Copy)]
pub struct UndoData<'a> {
    bytes: &'a [u8],
    more: u32,
}

impl<'a> UndoData<'a> {
    /// Returns `bytes` as undo; the compensation has no more bytes of redo than these.
    pub fn new(bytes: &'a [u8]) -> UndoData<'a> {
        UndoData { bytes, more: 0 }
    }

    /// Allows the compensation so many bytes of redo more.
    #[must_use]
    pub fn with_more(self, bytes: u32) -> UndoData<'a> {
        UndoData {
            more: bytes,
            ..self
        }
    }
}

/// A moment in a transaction to which it can be rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSavepoint {
    transaction: Option<Lsn>,
    /// The last record before; `None` if there is none.
    pub(super) last: Option<Lsn>,
}

impl PageTransaction {
    /// Returns a transaction without changes.
    pub fn new() -> PageTransaction {
        PageTransaction::default()
    }

    /// True if it has records in the log.
    pub fn has_begun(&self) -> bool {
        self.chain.is_some()
    }

    /// True if it has no records, and has [kept](Recovery::keep_undo_space) space for undo.
    #[inline]
    pub fn only_keeps_space(&self) -> bool {
        self.kept > 0
    }

    /// Returns the position of its last change; `None` if it has made none.
    pub fn last_change(&self) -> Option<UndoPosition> {
        self.chain.as_ref()?.last_change
    }

    /// Returns where its first record begins and where its last record ends; `None` if it has none.
    /// The log is kept from the first on.
    #[inline]
    pub fn range(&self) -> Option<(Lsn, Lsn)> {
        self.chain.as_ref().map(|chain| (chain.begin, chain.end))
    }

    /// Returns the present moment.
    pub fn savepoint(&self) -> PageSavepoint {
        PageSavepoint {
            transaction: self.chain.map(|chain| chain.begin),
            last: self.chain.map(|chain| chain.last),
        }
    }

    /// True if `savepoint` is one of this transaction.
    pub(super) fn owns(&self, savepoint: PageSavepoint) -> bool {
        let begin = self.chain.map(|chain| chain.begin);
        savepoint.transaction.is_none() || savepoint.transaction == begin
    }
}

impl Recovery {
    /// Returns the log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Returns the log space.
    pub fn space(&self) -> &UndoSpace {
        &self.space
    }

    /// Logs a change of a page, before it is made. The caller keeps other threads from changing the
    /// page until it has made the change and stamped the page with the end of the position
    /// (`pages`, P1).
    ///
    /// # Errors
    ///
    /// If there is no space for the change and for undoing it, or the log does not take it. Then
    /// nothing was done.
    ///
    /// # Panics
    ///
    /// If the transaction is being rolled back.
    pub fn update(
        &self,
        worker: &Worker,
        transaction: &mut PageTransaction,
        change: PageChange<'_>,
    ) -> Result<RecordPosition, WriteError> {
        let PageChange { change, undo } = change;
        let reserve = match undo {
            Some(undo) => compensation_bytes(undo.bytes.len() + undo.more as usize),
            None => 0,
        };
        let undo = undo.map_or(&[][..], |undo| undo.bytes);
        let bytes = undo.len() + change.redo.len();
        let reserve = u32::try_from(reserve).map_err(|_| LogError::TooLarge { bytes })?;
        let chain = transaction.chain.as_mut();
        if let Some(chain) = &chain {
            assert_eq!(chain.state, TransactionState::Active, "{ROLLED_BACK}");
        }
        let undo_space = chain
            .as_ref()
            .map_or(ENDING_BYTES, |chain| chain.undo_space);
        let undo_space = undo_space + u64::from(reserve);
        let update = RecoveryRecord::Update(Update {
            link: chain.as_ref().map(|chain| chain.link()),
            undo_space,
            reserve,
            undo,
            change,
        });
        let needed = update.log_bytes() + u64::from(reserve);
        let place = match chain {
            Some(chain) => {
                self.reserve_credit(chain, needed)?;
                let before = Some(chain.last);
                let place = self.append(worker, chain, &update)?;
                (chain.undo_space, chain.undo_next) = (undo_space, Some(place.begin));
                chain.last_change = Some(UndoPosition {
                    begin: place.begin,
                    before,
                    reserve,
                });
                place
            }
            None => {
                let (place, mut chain) = self.begin(worker, &update, undo_space, needed)?;
                chain.last_change = Some(UndoPosition {
                    begin: place.begin,
                    before: None,
                    reserve,
                });
                chain.kept = std::mem::take(&mut transaction.kept);
                transaction.chain = Some(chain);
                place
            }
        };
        Ok(place)
    }

    /// Logs a structure modification, before it is made: changes of up to six pages, which the
    /// caller keeps from other threads as for [`update`](Self::update). They stay, however the
    /// transactions end that need them.
    ///
    /// # Errors
    ///
    /// If there is no space for the record, or the log does not take it. Then nothing was done.
    pub fn change_structure(
        &self,
        worker: &Worker,
        changes: StructureChanges<'_>,
    ) -> Result<RecordPosition, WriteError> {
        self.insert_alone(worker, &RecoveryRecord::Structure(changes))
    }

    /// Inserts a record that belongs to no transaction, if there is space.
    pub(super) fn insert_alone(
        &self,
        worker: &Worker,
        record: &RecoveryRecord<'_>,
    ) -> Result<RecordPosition, WriteError> {
        let bytes = self.space.reserve_exactly(record.log_bytes())?;
        record.insert(&self.log, worker).map_err(|error| {
            self.space.release(bytes);
            error.into()
        })
    }

    /// Commits, together with the changes of memory-resident tables in `tail`. The commit is
    /// durable once the log is durable up to the returned position. Locks may be released at once,
    /// if readers of the guarded rows wait as long. `None` if no page was changed; then the tail is
    /// not logged.
    ///
    /// # Errors
    ///
    /// If the log does not take it: then it has failed, and restart decides how the transaction
    /// ends. For lack of space only if there is a tail; then nothing was done, and the transaction
    /// can still roll back.
    ///
    /// # Panics
    ///
    /// If the transaction is being rolled back.
    pub fn commit(
        &self,
        worker: &Worker,
        transaction: &mut PageTransaction,
        tail: Option<CommitTail<'_>>,
    ) -> Result<Option<Lsn>, WriteError> {
        self.commit_by(worker, transaction, tail, |kind, parts, kept| {
            self.log.insert_kept(worker, kind, parts, kept)
        })
    }

    /// As [`commit`](Self::commit), by `insert`. It gets the kind and the parts of the record, and
    /// the number of bytes kept for it. It inserts the record, and returns where that ends and how
    /// many of those bytes it took.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    ///
    /// # Panics
    ///
    /// If the transaction is being rolled back.
    pub fn commit_by(
        &self,
        worker: &Worker,
        transaction: &mut PageTransaction,
        tail: Option<CommitTail<'_>>,
        insert: impl FnOnce(u8, &[&[u8]], u64) -> Result<(Lsn, u64), LogError>,
    ) -> Result<Option<Lsn>, WriteError> {
        let Some(chain) = &mut transaction.chain else {
            return Ok(None);
        };
        assert_eq!(chain.state, TransactionState::Active, "{ROLLED_BACK}");
        let is_ignored = worker.failpoints().misbehaves(&failpoint::TAIL_IGNORED);
        let tail = tail.filter(|_| !is_ignored);
        let commit = RecoveryRecord::Commit(chain.link(), tail);
        let kept = match tail {
            Some(_) => {
                self.reserve_credit(chain, commit.log_bytes())?;
                0
            }
            None => chain.kept, // I3
        };
        let (place, used) = commit.insert_by(|kind, parts| insert(kind, parts, kept))?;
        chain.kept -= used;
        chain.extend(place);
        self.space.release(chain.credit);
        self.reserve.give(&self.log, worker, chain.kept);
        transaction.chain = None;
        Ok(Some(place.end))
    }

    /// Makes sure that the device has space for undoing one more change of `transaction`, with up
    /// to `bytes` bytes of undo. Never waits. False:
    /// [`wait_for_undo_space`](Self::wait_for_undo_space) is due.
    pub fn keep_undo_space(&self, transaction: &mut PageTransaction, bytes: usize) -> bool {
        let (kept, undo_space) = match &mut transaction.chain {
            Some(chain) => (&mut chain.kept, chain.undo_space),
            None => (&mut transaction.kept, ENDING_BYTES),
        };
        let needed = undo_space + compensation_bytes(bytes);
        if *kept >= needed {
            return true;
        }
        let taken = self.reserve.take(needed - *kept, *kept);
        *kept += taken.unwrap_or(0);
        taken.is_some()
    }

    /// Waits until the device has space for `bytes` more bytes of undo. The caller holds no latch
    /// and no fix.
    ///
    /// # Errors
    ///
    /// If the device is full, or the log has failed.
    pub fn wait_for_undo_space(&self, worker: &Worker, bytes: usize) -> Result<(), LogError> {
        let bytes = ENDING_BYTES + compensation_bytes(bytes);
        self.reserve.grow(&self.log, worker, bytes)
    }

    /// Gives back what a transaction without records has [kept](Self::keep_undo_space).
    pub fn release_undo_space(&self, worker: &Worker, transaction: &mut PageTransaction) {
        let kept = std::mem::take(&mut transaction.kept);
        self.reserve.give(&self.log, worker, kept);
    }

    /// Ends a transaction that is undone, and releases its reserve.
    pub(super) fn end(&self, worker: &Worker, chain: &mut RecordChain) -> Result<(), LogError> {
        self.append_kept(worker, chain, &RecoveryRecord::End(chain.link()))?;
        self.space.release(chain.credit);
        self.reserve.give(&self.log, worker, chain.kept);
        (chain.credit, chain.kept) = (0, 0);
        Ok(())
    }

    /// Begins a transaction with its first change.
    fn begin(
        &self,
        worker: &Worker,
        update: &RecoveryRecord<'_>,
        undo_space: u64,
        needed: u64,
    ) -> Result<(RecordPosition, RecordChain), WriteError> {
        let credit = self.space.reserve(ENDING_BYTES + needed)?;
        let place = update.insert(&self.log, worker).inspect_err(|_| {
            self.space.release(credit);
        })?;
        let chain = RecordChain {
            begin: place.begin,
            last: place.begin,
            end: place.end,
            undo_next: Some(place.begin),
            undo_space,
            credit: credit - place.end.since(place.begin),
            kept: 0,
            state: TransactionState::Active,
            last_change: None,
        };
        Ok((place, chain))
    }

    /// Ensures that there is credit for `bytes` beyond the reserve (I2).
    fn reserve_credit(&self, chain: &mut RecordChain, bytes: u64) -> Result<(), WriteError> {
        let missing = (chain.undo_space + bytes).saturating_sub(chain.credit);
        if missing > 0 {
            chain.credit += self.space.reserve(missing)?;
        }
        Ok(())
    }

    /// Appends a record to the chain, out of its credit.
    pub(super) fn append(
        &self,
        worker: &Worker,
        chain: &mut RecordChain,
        record: &RecoveryRecord<'_>,
    ) -> Result<RecordPosition, LogError> {
        let place = record.insert(&self.log, worker)?;
        chain.extend(place);
        Ok(place)
    }

    /// As [`append`](Self::append), of a record that a full device must not refuse (I3).
    pub(super) fn append_kept(
        &self,
        worker: &Worker,
        chain: &mut RecordChain,
        record: &RecoveryRecord<'_>,
    ) -> Result<RecordPosition, LogError> {
        let (place, used) = record.insert_kept(&self.log, worker, chain.kept)?;
        chain.kept -= used;
        chain.extend(place);
        Ok(place)
    }
}

pub(super) const ROLLED_BACK: &str = "a transaction that is being rolled back does nothing else";
