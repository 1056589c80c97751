//! Log of page changes, as pool and trees see it.
//!
//! The engine has the log. Pages need little of it: a position for each change, and the promise
//! that the log is durable up to a position before a page with that change is written.
//!
//! # Contract
//!
//! * W1  [`wait_durable`](PageLog::wait_durable) returns `Ok` only when the records up to the
//!   position survive a power cut. Its callers hold no latch and no fix, because it waits for a
//!   device.
//! * W2  An error of `wait_durable` is final: later calls for later positions return errors too.
//! * W3  [`end`](PageLog::end) is not before the end of any record that was inserted before the
//!   call.

use std::fmt;

use foxton_log::{LogError, Lsn};
use foxton_sync::shim::{AtomicU64, Ordering};
use foxton_sync::worker::Worker;

/// The log record of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedChange {
    /// Where it begins: redo of a page that this change makes dirty begins here.
    pub begin: Lsn,
    /// Where it ends: the page's LSN.
    pub end: Lsn,
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
}
