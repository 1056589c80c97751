//! Pages that are larger than memory, as small as they can be, to be cut off at every moment.
//!
//! What recovery ([`foxton_store::paged::recovery`]) promises is tried on an owner of pages that does everything it may: a
//! pool of few frames writes pages of uncommitted transactions whenever it likes and syncs them whenever it likes,
//! pages are torn, things move from page to page within nested top actions, and are taken back where
//! they have moved to. Transactions run interleaved, roll back, wholly and to savepoints, and commit; checkpoints are
//! made and the log is cut. All of it is recorded, cut after every change to the device, damaged, restarted, compared
//! with what was committed; and the restart is cut, and the restart of that.
//!
//! [`Fault`](crate::pages::Fault) names what may be done wrong on purpose: each must be found.

/// What a page holds, and what is done to it.
pub mod page;

/// Few frames and many writes: the owner of pages.
pub mod pool;

/// Pages, their log, and what is done with both.
pub mod engine;

/// What is done wrong, with records made for it.
mod wrong;

/// What the log of a run says of itself.
pub mod audit;

/// Random transactions, recorded.
pub mod run;

/// Power cuts at every moment of a recorded run.
pub mod cuts;

/// What is done wrong on purpose, so that the tests are tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A page goes out before the log is durable up to its LSN.
    PageBeforeLog,
    /// Redo does not look at the page's LSN, since every page says that it has none.
    RedoTwice,
    /// A page that was written and not synced counts as clean: its recovery LSN is too late.
    LateRecoveryLsn,
    /// What is taken back is not logged.
    NoCompensation,
    /// A compensation says to go on with what it has taken back.
    WrongUndoNext,
    /// Restart takes a transaction for committed that is not.
    LoserWins,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 6] = [
        Fault::PageBeforeLog,
        Fault::RedoTwice,
        Fault::LateRecoveryLsn,
        Fault::NoCompensation,
        Fault::WrongUndoNext,
        Fault::LoserWins,
    ];
}
