#![forbid(unsafe_code)]
//! An embeddable transactional storage engine.
//!
//! Many writers at once, row locks that wait their turn, serializable transactions, durable
//! commits; from any number of threads or async tasks.
//!
//! ```
//! use foxton::{Database, Options, Table};
//!
//! const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
//!
//! let db = Database::in_memory(Options::default())?; // or Database::open("bank.foxton")
//! db.run(|tx| {
//!     // again on deadlock, with backoff
//!     let from = tx.get_for_update(&ACCOUNTS, &1)?.unwrap_or(0);
//!     let to = tx.get_for_update(&ACCOUNTS, &2)?.unwrap_or(0);
//!     tx.put(&ACCOUNTS, &1, &(from - 100))?;
//!     tx.put(&ACCOUNTS, &2, &(to + 100))?;
//!     Ok(())
//! })?;
//!
//! let total = db.run(|tx| {
//!     let mut total = 0;
//!     tx.range(&ACCOUNTS, ..).for_each(|_, balance| total += balance)?;
//!     Ok(total)
//! })?;
//! assert_eq!(total, 0);
//! # Ok::<(), foxton::Error>(())
//! ```
//!
//! * [`Database`] is opened once and shared; [`Table`]s are constants.
//! * [`Database::run`] runs a transaction to its end; [`Database::begin`] hands one out;
//!   [`Database::begin_async`] hands out one whose operations are futures.
//! * Reads lock what they read, as strongly as [`Lock`] says; ranges lock their gaps, so nothing
//!   appears in what was read.
//! * An [`Index`] finds rows by something else than their keys, and is kept by the database.
//! * [`Error`] says what the caller can do next.
//! * [`Database::backup_to`] copies a database while it is used, and [`backup::restore`] brings it
//!   back.
//! * [`Database::locks`], [`waits`](Database::waits), [`deadlocks`](Database::deadlocks) and
//!   [`stats`](Database::stats) inspect a database. [`status`](Database::status) returns all of it
//!   at once, and [`observe`] shows it to another process.
//!
//! The order of the modules below is the ladder: a module uses only modules listed above it.

/// Types of tables, keys, values, indexes and locks.
mod types;

/// Errors.
pub mod error;

/// Status of a database at one moment, as plain data.
pub mod status;

/// Injected faults and failpoints, for tests.
mod testing;

/// Options of a database.
pub mod options;

/// Redo: log records of transactions, and their replay.
mod redo;

/// Catalog of tables and indexes.
mod catalog;

/// Checkpoints.
mod checkpoint;

/// Engine: state shared by all transactions, and service threads.
mod engine;

/// Transactions, by phase of life.
mod txn;

/// Recovery at open.
mod recovery;

/// Observation from another process.
pub mod observe;

/// Databases, transactions, ranges and sessions.
mod api;

/// Administration: backups, checks, indexes and statistics.
mod admin;

pub use admin::{backup, check, inspect, shrink};
pub use options::progress;

pub use status::wait_graph;
pub use testing::failpoint;
pub use testing::injected_fault;
pub use types::{codec, device};

pub use admin::indexes::IndexStats;
pub use api::async_transaction::AsyncTransaction;
pub use api::convert::Conversion;
pub use api::database::Database;
pub use api::range::{AsyncIndexRange, AsyncRange, IndexRange, IndexRow, IndexRows, Range, Rows};
pub use api::session::Session;
pub use api::snapshot::{Snapshot, SnapshotAt, VersionStats};
pub use api::transaction::Transaction;
pub use checkpoint::{Checkpoint, CheckpointStats};
pub use engine::cancel_signal::CancelSignal;
pub use engine::cancel_token::CancelToken;
pub use engine::commit_lsn_waits::CommitLsnWaits;
pub use error::{Error, Result};
pub use foxton_log::Lsn;
pub use options::admission::Admission;
pub use options::snapshot_method::SnapshotMethod;
pub use options::version_warning::{VersionCall, VersionWarning};
pub use options::{
    Durability, LatchKind, LockInheritance, LockManagerKind, Locking, LogBufferKind, Observe,
    Options, VictimPolicy,
};
pub use recovery::restart::RecoveryReport;
pub use types::active_snapshot::ActiveSnapshot;
pub use types::codec::{Key, Value};
pub use types::component::TableComponent;
pub use types::index::{Index, Indexes, Keys};
pub use types::isolation::Isolation;
pub use types::limits::{MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES, MAX_TABLES, MAX_VALUE_BYTES};
pub use types::lock_options::{Lock, LockOptions, LockWait, TableLock};
pub use types::savepoint::Savepoint;
pub use types::table::Table;
