//! Restart for pages that are larger than memory: analysis, redo, undo.
//!
//! A page may be written with changes that are not committed (*steal*), and need not be written
//! when they are (*no force*). So after a crash the device has too much and too little, and the log
//! must say how to undo the one and redo the other. This is ARIES: changes name one page each and
//! are numbered by their position in the log; a page says up to which position it has them; undoing
//! is logged as well.
//!
//! Tables in memory need none of this: nothing of them is written before it is committed, and
//! restart only redoes committed changes. This is for pages. Their owner keeps the contract
//! [`Pages`]; `foxton-sim` has a small owner for crash tests.
//!
//! # Why here
//!
//! The log knows bytes, and so neither pages nor undo. Above, `foxton` knows locks and when to
//! commit, which restart does not need: here a transaction is only a chain of records. The rest
//! needs pages and the log, and this is the one floor that has both.
//!
//! # How it is used
//!
//! 1. [`Analysis::begin`] reads the last checkpoint.
//! 2. Opening the log from [`Analysis::start`] shows each record to [`Analysis::take`], which skips
//!    records of other kinds: one log may have changes of pages and of memory-resident tables.
//! 3. [`Recovery`] is made for the open log. The owner of the pages needs it to keep the log before
//!    the pages.
//! 4. [`restart`](restart::restart) does the rest. Then transactions use the recovery, and a
//!    [`PageCheckpointer`] is there.
//!
//! The order of the modules below is the ladder: a module uses only modules listed above it.

/// The file with the position of the last checkpoint.
pub const ANCHOR_FILE: &str = "pages";

/// Decoding of numbers from the front of a slice.
mod bytes;

/// The transaction table and the dirty page table.
pub mod tables;

/// Log records of changes to pages.
pub mod record;

/// Log space reserved for undo.
pub mod space;

/// Space of the device for undo.
mod undo_reserve;

/// Errors.
pub mod error;

/// The anchor: position of the last complete checkpoint.
pub mod anchor;

/// The contract of the owner of pages.
pub mod pages;

/// Progress of a restart.
pub mod progress;

/// Analysis: from the records of the log to the tables.
pub mod analysis;

/// Transactions on pages: the records that they write while they run.
pub mod transaction;

/// Undo.
mod undo;

/// Checkpoints.
pub mod checkpoint;

/// Redo: repeating history.
mod redo;

/// Restart after a crash.
pub mod restart;

pub use super::PageId;
pub use analysis::Analysis;
pub use checkpoint::{CheckpointSummary, PageCheckpointer};
pub use error::{RecoveryError, WriteError};
pub use pages::{CompensationLog, Pages};
pub use progress::{RestartCallback, RestartPhase, RestartProgress};
pub use record::{ChainedChange, CommitTail, RecordPosition};
pub use restart::{RestartOptions, RestartResult, RestartSummary};
pub use space::{NoLogSpace, UndoSpace};
pub use transaction::{
    PageChange, PageSavepoint, PageTransaction, Recovery, UndoData, UndoPosition,
};
pub use undo::{LoggedUndo, UndoBatch, UndoCursor};
