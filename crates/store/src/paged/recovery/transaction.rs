//! What transactions leave in the log while they run.
//!
//! A transaction is begun by its first change: whoever only reads leaves nothing, and meets nobody. It is named by
//! where its first record lies, so nothing counts transactions.
//!
//! # Invariants
//!
//! * I1 The records of one transaction are a chain: `prev` of each is where the one before begins.
//! * I2 `credit >= undo_space` (`space`, I1).

use std::fmt;
use std::sync::Arc;

use foxton_log::device::Device;
use foxton_log::{Log, LogError, Lsn};
use foxton_sync::worker::Worker;

use super::analysis::ENDING_BYTES;
use super::error::WriteError;
use super::record::{Link, Nested, RecordPosition, RecoveryRecord, Update, compensation_bytes};
use super::space::UndoSpace;
use super::tables::{PageId, TransactionEntry, TransactionState};

/// Bytes of log that BEGIN takes.
const BEGIN_BYTES: u64 = foxton_log::format::record::framed_bytes(0);

/// A log in which changes to pages are made so that they can be taken back.
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

/// A transaction on pages, as the log sees it. A new one has done nothing; one that has ended is a new one.
///
/// Dropping one that has not ended leaves what it did, and the room set aside for taking it back, until the next
/// restart, which takes it back.
#[derive(Debug, Default)]
pub struct PageTransaction {
    pub(super) chain: Option<RecordChain>,
}

/// A transaction that has records.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordChain {
    /// Where its first record begins: its name.
    pub(super) begin: Lsn,
    /// Where its last record begins.
    pub(super) last: Lsn,
    /// Where that ends.
    pub(super) end: Lsn,
    /// The record with which taking back goes on.
    pub(super) undo_next: Lsn,
    pub(super) undo_space: u64,
    pub(super) credit: u64,
    pub(super) state: TransactionState,
}

impl RecordChain {
    /// A transaction that restart found, with the room that was set aside for it.
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

/// What is done to a page, as its owner will read it.
#[derive(Debug, Clone, Copy)]
pub struct PageChange<'a> {
    /// What makes the change again.
    pub redo: &'a [u8],
    /// What takes it back; `None` if it is not to be taken back.
    pub undo: Option<UndoData<'a>>,
}

/// What takes a change back.
#[derive(Debug, Clone, Copy)]
pub struct UndoData<'a> {
    bytes: &'a [u8],
    more: u32,
}

impl<'a> UndoData<'a> {
    /// `bytes` take it back, and the compensation has no more bytes of redo than these.
    pub fn new(bytes: &'a [u8]) -> UndoData<'a> {
        UndoData { bytes, more: 0 }
    }

    /// The compensation may have so many bytes of redo more.
    #[must_use]
    pub fn with_more(self, bytes: u32) -> UndoData<'a> {
        UndoData {
            more: bytes,
            ..self
        }
    }
}

/// A moment in a transaction, to which it can be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSavepoint {
    transaction: Option<Lsn>,
    pub(super) last: Lsn,
}

/// A nested top action that has begun: changes that stay, once it has ended, whatever becomes of the transaction.
#[derive(Debug)]
#[must_use = "until it has ended, its changes are taken back with the transaction"]
pub struct NestedAction {
    transaction: Lsn,
    undo_next: Lsn,
    undo_space: u64,
}

impl PageTransaction {
    /// A transaction that has done nothing.
    pub fn new() -> PageTransaction {
        PageTransaction::default()
    }

    /// Whether it has records in the log.
    pub fn has_begun(&self) -> bool {
        self.chain.is_some()
    }

    /// This moment.
    pub fn savepoint(&self) -> PageSavepoint {
        PageSavepoint {
            transaction: self.chain.map(|chain| chain.begin),
            last: self.chain.map_or(Lsn::ZERO, |chain| chain.last),
        }
    }

    /// The moment of `savepoint`, if that is one of this transaction.
    pub(super) fn owns(&self, savepoint: PageSavepoint) -> bool {
        let begin = self.chain.map(|chain| chain.begin);
        savepoint.transaction.is_none() || savepoint.transaction == begin
    }
}

impl Recovery {
    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// The room in the log.
    pub fn space(&self) -> &UndoSpace {
        &self.space
    }

    /// Logs a change of `page`, before it is made. The caller keeps everybody else from changing the page until he
    /// has made the change and stamped the page with the end of the place (`pages`, P1).
    ///
    /// # Errors
    ///
    /// If there is no room for the change and for taking it back, or the log does not take it. Nothing was done then.
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

    /// Begins changes that are to stay whatever becomes of the transaction, such as those of a page that is split.
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

    /// Ends them: from here on they stay.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update); then they are taken back with the transaction.
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
        // What was taken back within the action may have gone to before it.
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

    /// Commits. The commit stands once the log is durable up to what is returned; locks may go at once, if whoever
    /// sees what they guarded waits as long. `None` if nothing was changed.
    ///
    /// # Errors
    ///
    /// If the log does not take it; it has failed then, and what becomes of the transaction shows at restart. Never
    /// for want of room.
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

    /// Ends a transaction that is committed or taken back, and gives back what it had set aside.
    pub(super) fn end(&self, worker: &Worker, chain: &mut RecordChain) -> Result<(), LogError> {
        self.append(worker, chain, &RecoveryRecord::End(chain.link()))?;
        self.space.release(chain.credit);
        chain.credit = 0;
        Ok(())
    }

    /// The chain of `transaction`, which is begun if need be, with credit for `bytes` more.
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

    /// Sees to it that there is credit for `bytes` beyond what is set aside (I2).
    fn reserve_credit(&self, chain: &mut RecordChain, bytes: u64) -> Result<(), WriteError> {
        let missing = (chain.undo_space + bytes).saturating_sub(chain.credit);
        if missing > 0 {
            chain.credit += self.space.reserve(missing)?;
        }
        Ok(())
    }

    /// Adds a record to the chain, out of its credit.
    pub(super) fn append(
        &self,
        worker: &Worker,
        chain: &mut RecordChain,
        record: &RecoveryRecord<'_>,
    ) -> Result<RecordPosition, LogError> {
        let place = record.insert(&self.log, worker)?;
        (chain.last, chain.end) = (place.begin, place.end); // I1
        // A log that was forged may have set aside too little.
        chain.credit = chain.credit.saturating_sub(place.end.since(place.begin));
        Ok(place)
    }
}

pub(super) const ROLLED_BACK: &str = "a transaction that is being rolled back does nothing else";

/// Bytes of log that NESTED takes.
fn nested_bytes() -> u64 {
    foxton_log::format::record::framed_bytes(32)
}
