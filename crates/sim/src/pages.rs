//! Pages that are larger than memory, in a small model that is cut off at every moment.
//!
//! It tests the promises of recovery ([`foxton_store::paged::recovery`]) with an owner of pages
//! that does everything it may. A pool of few frames writes pages of uncommitted transactions and
//! syncs them at any time. Pages are torn. Things move from page to page by structure
//! modifications, and are undone where they have moved to. Transactions are interleaved, roll back,
//! wholly and to savepoints, and commit. Checkpoints are made and the log is cut. All of it is
//! recorded, cut after every change to the device, damaged, restarted, and compared with what was
//! committed. The restart is cut too, and the restart of that.
//!
//! [`Fault`](crate::pages::Fault) lists faults that can be injected: each must be found.

/// Contents of a page, and changes of it.
pub mod page;

/// The owner of pages: few frames and many writes.
pub mod pool;

/// Pages and their log: the engine of a run.
pub mod engine;

/// Injected faults that need records of their own.
mod wrong;

/// Audit of a run's log.
pub mod audit;

/// Random transactions, recorded.
pub mod run;

/// Power cuts at every moment of a recorded run.
pub mod cuts;

/// Faults that can be injected, so that the tests are tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A page is written before the log is durable up to its LSN.
    PageBeforeLog,
    /// Redo ignores the page's LSN, because every page says that it has none.
    RedoTwice,
    /// A page that was written and not synced counts as clean: its recovery LSN is too late.
    LateRecoveryLsn,
    /// Undone changes are not logged.
    NoCompensation,
    /// The `undo next` of a compensation is the change that was just undone.
    WrongUndoNext,
    /// Restart takes an uncommitted transaction for a committed one.
    LoserWins,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 6] = [
        Fault::PageBeforeLog,
        Fault::RedoTwice,
        Fault::LateRecoveryLsn,
        Fault::NoCompensation,
        Fault::WrongUndoNext,
        Fault::LoserWins,
    ];
}
