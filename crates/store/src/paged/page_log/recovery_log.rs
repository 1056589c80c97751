//! The log of a database, for pages: rows are changed by transactions, trees by no one of them.
//!
//! # Why it keeps the contract
//!
//! * W1, W2  The log waits until the bytes are synced, and its first failure is the result of every
//!   later wait.
//! * W3  The log's end is where the next record is allocated. An insert that returned has moved it.
//! * W4  The space is that of the log's buffer, and was taken from it. Before a change is logged,
//!   the transaction reserves the bytes of its undo, or is refused: that never waits. A record that
//!   the log refused has no position. If the log fails while it writes a large record, restart may
//!   find that record, and make a change that this process did not make. That does no harm: the log
//!   has failed, so this process writes no page any more.
//! * W6  The log keeps bytes of its device for each transaction (`recovery::undo_reserve`).
//! * W5  Records follow each other in the order of their inserts (B1 of the log's buffer).

use std::sync::Arc;

use foxton_log::{LogError, Lsn};
use foxton_sync::worker::Worker;

use super::{LogSpace, LoggedChange, PageEntry, PageLog, PageRecord};
use crate::paged::recovery::{
    ChainedChange, PageChange, PageTransaction, Recovery, UndoData, UndoPosition, WriteError,
};

/// The log of a database that recovers its pages.
#[derive(Debug)]
pub struct RecoveryLog {
    recovery: Arc<Recovery>,
}

impl RecoveryLog {
    /// Returns the log of `recovery`.
    pub fn new(recovery: Arc<Recovery>) -> RecoveryLog {
        RecoveryLog { recovery }
    }
}

/// Logs the compensation that undoes the change at `undone`, in the page of `entry` (see
/// [`TreeVisit::undo`](crate::paged::btree::TreeVisit::undo)).
///
/// # Errors
///
/// If the log does not take it. Then nothing was done.
///
/// # Panics
///
/// As [`Recovery::compensate`].
pub fn log_compensation(
    recovery: &Recovery,
    worker: &Worker,
    transaction: &mut PageTransaction,
    undone: UndoPosition,
    entry: &PageEntry<'_>,
) -> Result<LoggedChange, LogError> {
    let mut redo = Vec::new();
    encode(entry, &mut redo);
    let place = recovery.compensate(worker, transaction, undone, chained(entry, &redo))?;
    Ok(LoggedChange {
        begin: place.begin,
        end: place.end,
    })
}

fn encode(entry: &PageEntry<'_>, redo: &mut Vec<u8>) -> usize {
    entry.operation.encode(redo);
    redo.len()
}

impl PageLog for RecoveryLog {
    fn wait_durable(&self, worker: &Worker, lsn: Lsn) -> Result<(), LogError> {
        self.recovery.log().wait_durable(worker, lsn)
    }

    fn end(&self, worker: &Worker) -> Lsn {
        self.recovery.log().end(worker)
    }

    fn try_take_space(&self, worker: &Worker, bytes: u64) -> bool {
        self.recovery.log().try_take_space(worker, bytes)
    }

    fn give_back_space(&self, bytes: u64) {
        self.recovery.log().give_back_space(bytes);
    }

    fn wait_for_space(&self, worker: &Worker, bytes: u64) -> Result<(), LogError> {
        self.recovery.log().wait_for_space(worker, bytes)
    }

    fn keep_undo_space(&self, transaction: &mut PageTransaction, bytes: usize) -> bool {
        self.recovery.keep_undo_space(transaction, bytes)
    }

    fn wait_for_undo_space(&self, worker: &Worker, bytes: usize) -> Result<(), LogError> {
        self.recovery.wait_for_undo_space(worker, bytes)
    }

    /// # Panics
    ///
    /// If a row is changed by no transaction.
    fn insert(
        &self,
        worker: &Worker,
        space: LogSpace<'_>,
        record: PageRecord<'_>,
    ) -> Result<LoggedChange, WriteError> {
        let mut redo = Vec::new();
        let place = match record {
            PageRecord::Row(row) => {
                let (transaction, undo) = row.transaction.expect("a transaction changes rows");
                encode(row.entry, &mut redo);
                let undo = undo.encode();
                let change = PageChange {
                    change: chained(row.entry, &redo),
                    undo: Some(UndoData::new(&undo)),
                };
                self.recovery.update(worker, transaction, change)?
            }
            PageRecord::Structure(entries) => {
                let ends = entries.iter().map(|entry| encode(entry, &mut redo));
                let ends: Vec<_> = ends.collect();
                let mut begin = 0;
                let changes = entries.iter().zip(ends).map(|(entry, end)| {
                    let redo = &redo[std::mem::replace(&mut begin, end)..end];
                    chained(entry, redo)
                });
                self.recovery.change_structure(worker, changes.collect())?
            }
        };
        drop(space);
        Ok(LoggedChange {
            begin: place.begin,
            end: place.end,
        })
    }
}

fn chained<'a>(entry: &PageEntry<'_>, redo: &'a [u8]) -> ChainedChange<'a> {
    ChainedChange {
        page: entry.page,
        previous: entry.previous,
        redo,
    }
}
