//! Restart for pages that are larger than memory: analysis, redo, undo.
//!
//! A page may go out with changes that are not committed (*steal*), and need not go out when they are (*no force*).
//! So after a crash the device has too much and too little, and the log must say how to take back the one and how to
//! make the other again. This is ARIES: changes name one page each and are numbered by their place in the log;
//! a page says up to which place it has them; what is taken back is logged as well.
//!
//! Tables that live in memory need none of this: nothing of them goes out before it is committed, and restart
//! only makes committed changes again. This is for pages, and there are none in this crate yet: whoever owns pages keeps
//! the contract [`Pages`](crate::paged::recovery::Pages), and `foxton-sim` has an owner that is made to be cut off.
//!
//! # Why here
//!
//! The log knows bytes, and so neither pages nor that anything could be taken back. Above, `foxton` knows locks and when
//! to commit, which restart asks nothing of: a transaction is here only a chain of records. What is left needs pages
//! and the log, and this is the one floor that has both.
//!
//! # How it is used
//!
//! 1. [`Analysis::begin`](crate::paged::recovery::Analysis::begin) reads the last checkpoint.
//! 2. Opening the log from [`Analysis::start`](crate::paged::recovery::Analysis::start) shows each record to [`Analysis::take`](crate::paged::recovery::Analysis::take), which passes over
//!    those of others: one log may have changes of pages and of memory-resident tables.
//! 3. [`restart`](crate::paged::recovery::restart::restart) does the rest and hands out a [`Recovery`](crate::paged::recovery::Recovery) for transactions and a [`PageCheckpointer`](crate::paged::recovery::PageCheckpointer).
//!
//! The order of the modules below is the ladder: a module uses only modules listed above it.

/// The file that says where the last checkpoint is.
pub const ANCHOR_FILE: &str = "pages";

/// Numbers at the front of a slice.
mod bytes;

/// The transaction table and the dirty page table.
pub mod tables;

/// What changes to pages leave in the log.
pub mod record;

/// Space in the log for taking back.
pub mod space;

/// What can go wrong.
pub mod error;

/// Where the last complete checkpoint is.
pub mod anchor;

/// What recovery asks of whoever owns pages.
pub mod pages;

/// How far restart has come.
pub mod progress;

/// From the records of the log to the tables.
pub mod analysis;

/// What transactions leave in the log while they run.
pub mod transaction;

/// Taking back.
mod undo;

/// Checkpoints.
pub mod checkpoint;

/// Repeating history.
mod redo;

/// After a crash.
pub mod restart;

pub use analysis::Analysis;
pub use checkpoint::{CheckpointSummary, PageCheckpointer};
pub use error::{RecoveryError, WriteError};
pub use pages::{CompensationLog, Pages};
pub use progress::{RestartCallback, RestartPhase, RestartProgress};
pub use record::RecordPosition;
pub use restart::{RestartOptions, RestartResult, RestartSummary};
pub use space::{NoLogSpace, UndoSpace};
pub use tables::PageId;
pub use transaction::{
    NestedAction, PageChange, PageSavepoint, PageTransaction, Recovery, UndoData,
};
