//! Transactions on pages: the records that they write while they run.
//!
//! The first change of a transaction begins it: one that only reads writes nothing, and meets no
//! other. Its name is the position of its first record, so nothing counts transactions.
//!
//! # Invariants
//!
//! * I1  The records of one transaction are a chain: `prev` of each is the start of the one before.
//! * I2  `credit >= undo_space` (`space`, I1).

use std::fmt;
use std::sync::Arc;

use foxton_log::device::Device;
use foxton_log::{Log, LogError, Lsn};
use foxton_sync::worker::Worker;

use super::analysis::ENDING_BYTES;
use super::error::WriteError;
use super::record::{Link, Nested, RecordPosition, RecoveryRecord, Update, compensation_bytes};
use super::space::UndoSpace;
use super::tables::{TransactionEntry, TransactionState};
use crate::paged::PageId;

/// Bytes of log that BEGIN takes.
const BEGIN_BYTES: u64 = foxton_log::format::record::framed_bytes(0);

/// A log in which changes to pages are made so that they can be undone.
///
/// [`restart`](super::restart::restart) makes one.
pub struct Recovery {
    pub(super) device: Arc<dyn Device>,
    pub(super) identity: [u8; 16],
    pub(super) log: Arc<Log>,
    pub(super) space: UndoSpace,
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
    /// The record with which undo continues.
    pub(super) undo_next: Lsn,
    pub(super) undo_space: u64,
    pub(super) credit: u64,
    pub(super) state: TransactionState,
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
            state: entry.state,
        }
    }

    pub(super) fn link(&self) -> Link {
        Link {
            transaction: self.begin,
            prev: self.last,
        }
    }
}

/// A change of a page, as its owner will read it.
#[derive(Debug, Clone, Copy)]
pub struct PageChange<'a> {
    /// Data that redoes the change.
    pub redo: &'a [u8],
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
    pub(super) last: Lsn,
}

/// A nested top action that has begun: changes that stay, once it has ended, however the
/// transaction ends.
#[derive(Debug)]
#[must_use = "until it has ended, its changes are taken back with the transaction"]
pub struct NestedAction {
    transaction: Lsn,
    undo_next: Lsn,
    undo_space: u64,
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

    /// Returns the present moment.
    pub fn savepoint(&self) -> PageSavepoint {
        PageSavepoint {
            transaction: self.chain.map(|chain| chain.begin),
            last: self.chain.map_or(Lsn::ZERO, |chain| chain.last),
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

    /// Logs a change of `page`, before it is made. The caller keeps other threads from changing the
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
        page: PageId,
        change: PageChange<'_>,
    ) -> Result<RecordPosition, WriteError> {
        let undo = change.undo.map_or(&[][..], |undo| undo.bytes);
        let more = change.undo.map_or(0, |undo| undo.more as usize);
        let reserve = match change.undo {
            Some(_) => compensation_bytes(undo.len() + more),
            None => 0,
        };
        let bytes = undo.len() + change.redo.len();
        let reserve = u32::try_from(reserve).map_err(|_| LogError::TooLarge { bytes })?;
        let mut update = Update {
            link: Link {
                transaction: Lsn::ZERO,
                prev: Lsn::ZERO,
            },
            undo_space: 0,
            page,
            reserve,
            undo,
            redo: change.redo,
        };
        let needed = RecoveryRecord::Update(update).log_bytes() + u64::from(reserve);
        let chain = self.chain(worker, transaction, needed)?;
        (update.link, update.undo_space) = (chain.link(), chain.undo_space + u64::from(reserve));
        let place = self.append(worker, chain, &RecoveryRecord::Update(update))?;
        (chain.undo_space, chain.undo_next) = (update.undo_space, place.begin);
        Ok(place)
    }

    /// Begins changes that stay however the transaction ends, such as those of a page that is
    /// split.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update).
    ///
    /// # Panics
    ///
    /// If the transaction is being rolled back.
    pub fn begin_action(
        &self,
        worker: &Worker,
        transaction: &mut PageTransaction,
    ) -> Result<NestedAction, WriteError> {
        let chain = self.chain(worker, transaction, nested_bytes())?;
        Ok(NestedAction {
            transaction: chain.begin,
            undo_next: chain.last,
            undo_space: chain.undo_space,
        })
    }

    /// Ends the action: from here on its changes stay.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update); then they are undone with the transaction.
    ///
    /// # Panics
    ///
    /// If the action is not one of this transaction.
    pub fn end_action(
        &self,
        worker: &Worker,
        transaction: &mut PageTransaction,
        action: NestedAction,
    ) -> Result<(), WriteError> {
        let chain = self.chain(worker, transaction, nested_bytes())?;
        assert_eq!(chain.begin, action.transaction, "whose action it is");
        // Undo within the action may have gone back to before it.
        let undo_next = action.undo_next.min(chain.undo_next);
        let undo_space = action.undo_space.min(chain.undo_space);
        let nested = Nested {
            link: chain.link(),
            undo_space,
            undo_next,
        };
        self.append(worker, chain, &RecoveryRecord::Nested(nested))?;
        (chain.undo_space, chain.undo_next) = (undo_space, undo_next);
        Ok(())
    }

    /// Commits. The commit is durable once the log is durable up to the returned position. Locks
    /// may be released at once, if readers of the guarded rows wait as long. `None` if nothing was
    /// changed.
    ///
    /// # Errors
    ///
    /// If the log does not take it: then it has failed, and restart decides how the transaction
    /// ends. Never for lack of space.
    ///
    /// # Panics
    ///
    /// If the transaction is being rolled back.
    pub fn commit(
        &self,
        worker: &Worker,
        transaction: &mut PageTransaction,
    ) -> Result<Option<Lsn>, LogError> {
        let Some(chain) = &mut transaction.chain else {
            return Ok(None);
        };
        assert_eq!(chain.state, TransactionState::Active, "{ROLLED_BACK}");
        let place = self.append(worker, chain, &RecoveryRecord::Commit(chain.link()))?;
        self.end(worker, chain)?;
        transaction.chain = None;
        Ok(Some(place.end))
    }

    /// Ends a transaction that is committed or undone, and releases its reserve.
    pub(super) fn end(&self, worker: &Worker, chain: &mut RecordChain) -> Result<(), LogError> {
        self.append(worker, chain, &RecoveryRecord::End(chain.link()))?;
        self.space.release(chain.credit);
        chain.credit = 0;
        Ok(())
    }

    /// Returns the chain of `transaction`, which is begun if need be, with credit for `bytes` more.
    fn chain<'t>(
        &self,
        worker: &Worker,
        transaction: &'t mut PageTransaction,
        bytes: u64,
    ) -> Result<&'t mut RecordChain, WriteError> {
        let fresh = match &mut transaction.chain {
            Some(chain) => {
                assert_eq!(chain.state, TransactionState::Active, "{ROLLED_BACK}");
                self.reserve_credit(chain, bytes)?;
                None
            }
            None => Some(self.begin(worker, bytes)?),
        };
        let chain = &mut transaction.chain;
        if fresh.is_some() {
            *chain = fresh;
        }
        Ok(chain.as_mut().expect("it was there, or was begun"))
    }

    fn begin(&self, worker: &Worker, bytes: u64) -> Result<RecordChain, WriteError> {
        let credit = self.space.reserve(BEGIN_BYTES + ENDING_BYTES + bytes)?;
        let place = match RecoveryRecord::Begin.insert(&self.log, worker) {
            Ok(place) => place,
            Err(error) => {
                self.space.release(credit);
                return Err(error.into());
            }
        };
        Ok(RecordChain {
            begin: place.begin,
            last: place.begin,
            end: place.end,
            undo_next: place.begin,
            undo_space: ENDING_BYTES,
            credit: credit - BEGIN_BYTES,
            state: TransactionState::Active,
        })
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
        (chain.last, chain.end) = (place.begin, place.end); // I1
        // A forged log may have reserved too little.
        chain.credit = chain.credit.saturating_sub(place.end.since(place.begin));
        Ok(place)
    }
}

pub(super) const ROLLED_BACK: &str = "a transaction that is being rolled back does nothing else";

/// Bytes of log that NESTED takes.
fn nested_bytes() -> u64 {
    foxton_log::format::record::framed_bytes(32)
}
