//! Undo: of a transaction as a whole, or to a savepoint, while it runs or after a crash, in one
//! way.
//!
//! Undo reads the changes from the log, from the last to the first. Undoing a change is a change,
//! too, and logged: its compensation says with which record undo continues.
//!
//! # Invariants
//!
//! * I1  A change is undone once. Its compensation says to continue before it, and is never undone
//!   itself. Either the compensation is in the log, and then every later restart continues before
//!   the change. Or it is not, and then no page that was changed by it was written (`pages`, P2).
//! * I2  Undo never lacks space: the space for its writes was reserved (`space`, I1).
//!
//! # Undo in memory
//!
//! A caller may keep the undo of the last changes, and [log](Recovery::compensate) the compensation
//! of each itself. It [reads](Recovery::read_undo) the undo of older changes in batches. A batch is
//! read from the segments that have its records, and not from the segments of the whole
//! transaction. So the time for a rollback is in proportion to the transaction.

use foxton_log::read::record_reader::RecordReader;
use foxton_log::{LogError, Lsn, RecordView};
use foxton_sync::worker::Worker;

use super::error::RecoveryError;
use super::pages::{CompensationLog, Pages};
use super::record::{
    ChainedChange, Compensation, MARK_BYTES, Malformed, RecordPosition, RecoveryRecord, Update,
    compensation_bytes,
};
use super::tables::TransactionState;
use super::transaction::{PageSavepoint, PageTransaction, RecordChain, Recovery, UndoPosition};
use crate::failpoint;

/// Position from which older undo of a transaction is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UndoCursor {
    /// Start of the transaction.
    transaction: Lsn,
    /// Start of the record that is read next.
    next: Lsn,
    /// The log is read up to here: start of a later record of the transaction.
    until: Lsn,
}

/// Undo of one change, read from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedUndo {
    /// The change.
    pub position: UndoPosition,
    /// Data that undoes it, as the owner of the page has logged it.
    pub undo: Vec<u8>,
}

/// Undo of several changes, read from the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoBatch {
    /// The changes, from the last to the first.
    pub changes: Vec<LoggedUndo>,
    /// Position of older undo; `None` if there is none.
    pub rest: Option<UndoCursor>,
}

impl PageTransaction {
    /// Returns the position of the undo that is older than the change at `position`. `None`: there
    /// is none.
    pub fn undo_before(&self, position: UndoPosition) -> Option<UndoCursor> {
        Some(UndoCursor {
            transaction: self.chain.as_ref()?.begin,
            next: position.before?,
            until: position.begin,
        })
    }
}

/// Undo of one record of a transaction.
enum UndoStep<'a> {
    /// It is a change to be undone.
    Change(Update<'a>),
    /// There is nothing to undo in it, and undo continues at this record.
    Next(Option<Lsn>),
}

/// Reads the record `view` of the transaction that begins at `transaction`.
fn undo_step<'a, E>(
    view: &RecordView<'a>,
    transaction: Lsn,
) -> Result<UndoStep<'a>, RecoveryError<E>> {
    let at = view.lsn;
    let record = RecoveryRecord::decode(view)?;
    let owner = record.as_ref().and_then(|record| record.transaction(at));
    if owner != Some(transaction) {
        return Err(unexpected(at));
    }
    Ok(match record {
        Some(RecoveryRecord::Update(update)) if update.reserve > 0 => UndoStep::Change(update),
        Some(RecoveryRecord::Update(update)) => UndoStep::Next(before(&update)),
        Some(RecoveryRecord::Compensation(compensation)) => UndoStep::Next(compensation.undo_next),
        Some(RecoveryRecord::Abort(link)) => UndoStep::Next(Some(link.prev)),
        _ => return Err(unexpected(at)),
    })
}

impl Recovery {
    /// Undoes the changes of the transaction since `savepoint`. The transaction may continue.
    ///
    /// # Errors
    ///
    /// If the log or the pages fail. It may be tried again, and continues where it stopped. Never
    /// for lack of space.
    ///
    /// # Panics
    ///
    /// If the savepoint is not one of this transaction.
    pub fn rollback_to<P: Pages>(
        &self,
        worker: &Worker,
        transaction: &mut PageTransaction,
        savepoint: PageSavepoint,
        pages: &P,
    ) -> Result<(), RecoveryError<P::Error>> {
        assert!(transaction.owns(savepoint), "whose savepoint it is");
        match &mut transaction.chain {
            Some(chain) => self.undo_to(worker, chain, savepoint.last, pages),
            None => Ok(()),
        }
    }

    /// Undoes all changes of the transaction, and ends it.
    ///
    /// # Errors
    ///
    /// As [`rollback_to`](Self::rollback_to).
    pub fn rollback<P: Pages>(
        &self,
        worker: &Worker,
        transaction: &mut PageTransaction,
        pages: &P,
    ) -> Result<(), RecoveryError<P::Error>> {
        let Some(chain) = &mut transaction.chain else {
            return Ok(());
        };
        if chain.state == TransactionState::Active {
            self.append_kept(worker, chain, &RecoveryRecord::Abort(chain.link()))?;
            chain.undo_space -= MARK_BYTES;
            chain.state = TransactionState::Aborting;
        }
        self.undo_to(worker, chain, None, pages)?;
        self.end(worker, chain)?;
        transaction.chain = None;
        Ok(())
    }

    /// Logs the compensation of the change at `undone`, before it is made: `change` undoes it. For
    /// a caller that has kept how to undo each change, and undoes them from the last to the first.
    /// It keeps other threads from changing the page as for [`update`](Self::update).
    ///
    /// # Errors
    ///
    /// If the log does not take it. Then nothing was done.
    ///
    /// # Panics
    ///
    /// If the transaction has no changes, or the compensation takes more than was reserved for it.
    pub fn compensate(
        &self,
        worker: &Worker,
        transaction: &mut PageTransaction,
        undone: UndoPosition,
        change: ChainedChange<'_>,
    ) -> Result<RecordPosition, LogError> {
        let chain = transaction.chain.as_mut();
        let chain = chain.expect("a transaction that undoes a change has made it");
        let reserve = u64::from(undone.reserve);
        assert!(compensation_bytes(change.redo.len()) <= reserve, "I2");
        self.append_compensation(worker, chain, reserve, undone.before, change)
    }

    /// Ends a transaction whose changes are all [undone](Self::compensate). One without changes
    /// writes nothing.
    ///
    /// # Errors
    ///
    /// If the log does not take the record. It may be tried again.
    pub fn end_undone(
        &self,
        worker: &Worker,
        transaction: &mut PageTransaction,
    ) -> Result<(), LogError> {
        if let Some(chain) = &mut transaction.chain {
            self.end(worker, chain)?;
            transaction.chain = None;
        }
        Ok(())
    }

    /// Undoes the changes behind `until`, or all.
    fn undo_to<P: Pages>(
        &self,
        worker: &Worker,
        chain: &mut RecordChain,
        until: Option<Lsn>,
        pages: &P,
    ) -> Result<(), RecoveryError<P::Error>> {
        if chain.undo_next <= until {
            return Ok(());
        }
        self.log.wait_written(worker, chain.end)?;
        let mut reader = RecordReader::open(&*self.device, &self.identity, chain.begin, chain.end)?;
        while chain.undo_next > until {
            self.undo_one(worker, &mut reader, chain, pages)?;
        }
        Ok(())
    }

    /// Undoes one record, the last remaining one, or finds that there is nothing to undo in it.
    pub(super) fn undo_one<P: Pages>(
        &self,
        worker: &Worker,
        reader: &mut RecordReader<'_>,
        chain: &mut RecordChain,
        pages: &P,
    ) -> Result<(), RecoveryError<P::Error>> {
        let Some(at) = chain.undo_next else {
            return Ok(());
        };
        let view = reader.record(at)?;
        match undo_step(&view, chain.begin)? {
            UndoStep::Change(update) => self.undo_update(worker, chain, at, &update, pages),
            UndoStep::Next(next) => {
                chain.undo_next = next;
                Ok(())
            }
        }
    }

    /// Reads undo from `cursor` on, until it takes `bytes` bytes of memory or more, or there is no
    /// more. It waits for the log and reads it, so the caller holds no latch and no fix.
    ///
    /// # Errors
    ///
    /// If the log has failed, cannot be read, or is damaged.
    pub fn read_undo<E>(
        &self,
        worker: &Worker,
        cursor: UndoCursor,
        bytes: usize,
    ) -> Result<UndoBatch, RecoveryError<E>> {
        self.log.wait_written(worker, cursor.until)?;
        let (device, identity) = (&*self.device, &self.identity);
        let (mut changes, mut size) = (Vec::new(), 0);
        let (mut rest, mut open) = (Some(cursor), None);
        while let Some(cursor) = rest
            && size < bytes
        {
            let UndoCursor {
                transaction,
                next,
                until,
            } = cursor;
            let reader = match open.take() {
                Some(reader) if RecordReader::covers(&reader, next) => reader,
                _ => RecordReader::open(device, identity, next, until)?,
            };
            let view = open.insert(reader).record(next)?;
            let before = match undo_step(&view, transaction)? {
                UndoStep::Next(before) => before,
                UndoStep::Change(update) => {
                    size += size_of::<LoggedUndo>() + update.undo.len();
                    let before = before(&update);
                    let position = UndoPosition {
                        begin: next,
                        before,
                        reserve: update.reserve,
                    };
                    let undo = update.undo.to_vec();
                    changes.push(LoggedUndo { position, undo });
                    before
                }
            };
            rest = before.map(|before| UndoCursor {
                transaction,
                next: before,
                until: next,
            });
        }
        Ok(UndoBatch { changes, rest })
    }

    /// Appends a compensation, and says where undo continues (I1).
    fn append_compensation(
        &self,
        worker: &Worker,
        chain: &mut RecordChain,
        reserve: u64,
        undo_next: Option<Lsn>,
        change: ChainedChange<'_>,
    ) -> Result<RecordPosition, LogError> {
        let undo_space = chain.undo_space.saturating_sub(reserve);
        let is_wrong = worker.failpoints().misbehaves(&failpoint::UNDO_NEXT_WRONG);
        let compensation = Compensation {
            link: chain.link(),
            undo_space,
            undo_next: if is_wrong { chain.undo_next } else { undo_next },
            change,
        };
        let is_forgotten = worker
            .failpoints()
            .misbehaves(&failpoint::COMPENSATION_UNLOGGED);
        let place = match is_forgotten {
            // The page still needs an LSN of its own.
            true => RecoveryRecord::CheckpointBegin.insert(&self.log, worker)?,
            false => {
                let record = RecoveryRecord::Compensation(compensation);
                self.append_kept(worker, chain, &record)?
            }
        };
        (chain.undo_space, chain.undo_next) = (undo_space, undo_next);
        Ok(place)
    }

    /// Undoes the change at `lsn`, which is `update`.
    fn undo_update<P: Pages>(
        &self,
        worker: &Worker,
        chain: &mut RecordChain,
        lsn: Lsn,
        update: &Update<'_>,
        pages: &P,
    ) -> Result<(), RecoveryError<P::Error>> {
        let reserve = u64::from(update.reserve);
        let (mut outcome, mut kept) = (None, true);
        let mut log = |change: ChainedChange<'_>| -> Option<RecordPosition> {
            kept &= outcome.is_none() && compensation_bytes(change.redo.len()) <= reserve;
            if !kept {
                return None;
            }
            let placed = self.append_compensation(worker, chain, reserve, before(update), change);
            outcome.insert(placed).as_ref().ok().copied()
        };
        let undone = pages.undo(
            update.change.page,
            update.undo,
            &mut CompensationLog { log: &mut log },
        );
        undone.map_err(RecoveryError::Pages)?;
        match outcome {
            Some(Err(error)) => Err(error.into()),
            Some(Ok(_)) if kept => Ok(()),
            _ => Err(RecoveryError::ContractBroken {
                lsn,
                page: update.change.page,
            }),
        }
    }
}

/// Returns the record with which undo continues behind that of `update`.
fn before(update: &Update<'_>) -> Option<Lsn> {
    update.link.map(|link| link.prev)
}

fn unexpected<E>(lsn: Lsn) -> RecoveryError<E> {
    let expected = "one that can be taken back";
    RecoveryError::Damaged(Malformed { lsn, expected })
}
