//! Log of page changes, as pool and trees see it.
//!
//! The engine has the log. Pages need little of it: a position for each change, and the promise
//! that the log is durable up to a position before a page with that change is written.
//!
//! Log space is requested before a page is latched, because inserting may otherwise have to wait
//! for a device while the latch is held. [`LogSpace`] is that reservation. The insert uses it up,
//! or it is given back when it is dropped.
//!
//! # Contract
//!
//! * W1  [`wait_durable`](PageLog::wait_durable) returns `Ok` only when the records up to the
//!   position survive a power cut. Its callers hold no latch and no fix, because it waits for a
//!   device.
//! * W2  An error of `wait_durable` is final: later calls for later positions return errors too.
//! * W3  [`end`](PageLog::end) is not before the end of any record that was inserted before the
//!   call.
//! * W4  [`insert`](PageLog::insert) does not wait if its reservation has enough bytes, unless the
//!   space is gone. If it returns an error, nothing was logged.
//! * W5  A record begins where, or behind where, every record ends whose insert returned before. So
//!   a thread that inserts while it holds the latches of its pages has positions beyond theirs.
//! * W6  The undo of a change for which [`keep_undo_space`](PageLog::keep_undo_space) returned true
//!   is logged even if the device is full by then.

use std::fmt;

use foxton_log::{LogError, Lsn};
use foxton_sync::shim::{AtomicU64, Ordering};
use foxton_sync::worker::Worker;

use super::PageId;
use super::page::PageOperation;
use super::recovery::{PageTransaction, WriteError};

mod row_undo;

mod recovery_log;

pub use recovery_log::{RecoveryLog, log_compensation};
pub use row_undo::{RowBefore, RowUndo};

/// The log record of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedChange {
    /// Where it begins: redo of a page that this change makes dirty begins here.
    pub begin: Lsn,
    /// Where it ends: the page's LSN.
    pub end: Lsn,
}

/// A page of a record: one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageEntry<'a> {
    /// The page.
    pub page: PageId,
    /// LSN of the page before: the end of the record of its previous change.
    pub previous: Lsn,
    /// The change.
    pub operation: PageOperation<'a>,
}

/// A change of a row.
#[derive(Debug)]
pub struct LoggedRow<'a> {
    /// The change of its page.
    pub entry: &'a PageEntry<'a>,
    /// The transaction, and how the change is undone. `None` where changes are not logged.
    pub transaction: Option<(&'a mut PageTransaction, RowUndo<'a>)>,
}

/// A record to be inserted.
#[derive(Debug)]
pub enum PageRecord<'a> {
    /// A transaction changes a row.
    Row(LoggedRow<'a>),
    /// A structure modification: up to six pages, complete or absent, of no transaction.
    Structure(&'a [PageEntry<'a>]),
}

impl<'a> PageRecord<'a> {
    /// Returns the pages of the record.
    pub fn entries(&self) -> &'a [PageEntry<'a>] {
        match self {
            PageRecord::Row(row) => std::slice::from_ref(row.entry),
            PageRecord::Structure(entries) => entries,
        }
    }
}

/// Bytes of log that a thread has reserved. Dropping it gives them back.
#[derive(Debug)]
pub struct LogSpace<'l> {
    log: &'l dyn PageLog,
    bytes: u64,
}

impl<'l> LogSpace<'l> {
    /// Reserves `bytes` of `log`. `None`: there are not enough, and
    /// [`wait_for_space`](PageLog::wait_for_space) is due. Never waits.
    pub fn reserve(log: &'l dyn PageLog, worker: &Worker, bytes: u64) -> Option<LogSpace<'l>> {
        // Made only if the bytes were taken: dropping one gives bytes back.
        let reserved = log.try_take_space(worker, bytes);
        reserved.then(|| LogSpace { log, bytes })
    }

    /// Uses up to `bytes` of it for a record, and gives back the rest. Returns how many bytes were
    /// reserved for the record.
    pub fn use_up(mut self, bytes: u64) -> u64 {
        let used = bytes.min(self.bytes);
        self.bytes -= used;
        used
    }
}

impl Drop for LogSpace<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.log.give_back_space(self.bytes);
        }
    }
}

/// The log, for pages. See the [module](self) for the contract.
pub trait PageLog: fmt::Debug + Send + Sync {
    /// Waits until the log is durable up to `lsn` (W1).
    ///
    /// # Errors
    ///
    /// If the log has failed or was closed. Then no page that has the change may be written.
    fn wait_durable(&self, worker: &Worker, lsn: Lsn) -> Result<(), LogError>;

    /// Returns where the log ends (W3).
    fn end(&self, worker: &Worker) -> Lsn;

    /// Takes `bytes` of free space, or nothing. Never waits. For [`LogSpace`].
    fn try_take_space(&self, worker: &Worker, bytes: u64) -> bool;

    /// Gives back space that was taken. For [`LogSpace`].
    fn give_back_space(&self, bytes: u64);

    /// Waits until `bytes` are free, or may be. The caller holds no latch and no fix.
    ///
    /// # Errors
    ///
    /// If the log has failed or was closed.
    fn wait_for_space(&self, worker: &Worker, bytes: u64) -> Result<(), LogError>;

    /// Makes sure that `transaction` can undo one more change, with up to `bytes` bytes of undo.
    /// Never waits. False: [`wait_for_undo_space`](Self::wait_for_undo_space) is due (W6).
    fn keep_undo_space(&self, transaction: &mut PageTransaction, bytes: usize) -> bool;

    /// Waits until there is space for `bytes` more bytes of undo. The caller holds no latch and no
    /// fix.
    ///
    /// # Errors
    ///
    /// If the device is full, or the log has failed or was closed.
    fn wait_for_undo_space(&self, worker: &Worker, bytes: usize) -> Result<(), LogError>;

    /// Inserts a record out of reserved space (W4, W5).
    ///
    /// # Errors
    ///
    /// If the log has failed, was closed, or there is no space for the record and its undo.
    fn insert(
        &self,
        worker: &Worker,
        space: LogSpace<'_>,
        record: PageRecord<'_>,
    ) -> Result<LoggedChange, WriteError>;
}

/// No log: pages are as durable as their file. For databases that write all pages when they are
/// closed, and are refused if they were not.
#[derive(Debug)]
pub struct Unlogged {
    end: AtomicU64,
}

impl Unlogged {
    /// Returns a log of positions from `begin` on, which is not below the LSN of any page.
    pub fn new(begin: Lsn) -> Unlogged {
        Unlogged {
            end: AtomicU64::new(begin.bytes()),
        }
    }
}

impl PageLog for Unlogged {
    fn wait_durable(&self, _: &Worker, _: Lsn) -> Result<(), LogError> {
        Ok(())
    }

    fn end(&self, _: &Worker) -> Lsn {
        // Relaxed: a number that grows.
        Lsn::new(self.end.load(Ordering::Relaxed))
    }

    fn try_take_space(&self, _: &Worker, _: u64) -> bool {
        true
    }

    fn give_back_space(&self, _: u64) {}

    fn wait_for_space(&self, _: &Worker, _: u64) -> Result<(), LogError> {
        Ok(())
    }

    fn keep_undo_space(&self, _: &mut PageTransaction, _: usize) -> bool {
        true
    }

    fn wait_for_undo_space(&self, _: &Worker, _: usize) -> Result<(), LogError> {
        Ok(())
    }

    fn insert(
        &self,
        _: &Worker,
        space: LogSpace<'_>,
        _: PageRecord<'_>,
    ) -> Result<LoggedChange, WriteError> {
        space.use_up(u64::MAX);
        // Site: "page latch", held meanwhile. Relaxed: the latches of the pages order their
        // positions.
        let begin = self.end.fetch_add(1, Ordering::Relaxed);
        Ok(LoggedChange {
            begin: Lsn::new(begin),
            end: Lsn::new(begin + 1),
        })
    }
}
