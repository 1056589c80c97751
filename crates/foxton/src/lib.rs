#![forbid(unsafe_code)]
//! An embeddable transactional storage engine.
//!
//! Many writers at once, row locks that wait their turn, serializable transactions, durable commits;
//! from any number of threads or async tasks.
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
//! * [`Database::backup_to`] copies a database while it is used, and [`backup::restore`] brings it back.
//! * [`Database::locks`], [`waits`](Database::waits), [`deadlocks`](Database::deadlocks) and
//!   [`stats`](Database::stats) say what goes on; [`picture`](Database::picture) is all of it at once,
//!   and [`observe`] shows it to another process.
//!
//! The order of the modules below is the ladder: a module uses only modules listed above it.

/// Typed keys and values.
pub mod codec;

/// What a table takes.
mod limits;

/// Why something was not done, told by what can be done about it.
pub mod error;

/// What a database lies on.
pub mod device;

/// What goes on at one moment, as plain data.
pub mod picture;

/// The wait-for graph, drawn.
pub mod graph;

/// How far opening a database has come.
pub mod progress;

/// Tables as constants.
mod table;

/// What leads from an index to its table.
mod entry;

/// Secondary indexes as constants.
mod index;

/// How strongly a read locks.
mod lock;

/// How far apart transactions are kept.
mod isolation;

/// Faults on purpose.
#[cfg(feature = "planted")]
pub mod planted;
#[cfg(not(feature = "planted"))]
mod planted;

/// How many may be at work.
mod admission;

/// How an open database behaves.
pub mod options;

/// Where tests can step in.
pub mod point;

/// Moments in a transaction, to go back to.
mod savepoint;

/// Which indexes there are.
mod index_table;

/// What became of a value, told by what is different.
mod patch;

/// What a transaction leaves in the log.
mod redo;

/// From log records to committed transactions.
mod replay;

/// Why a directory is not opened.
mod refusal;

/// The tables of a database.
mod catalog;

/// What was committed, kept in another form than the log.
mod checkpoint;

/// Where workers wait for work.
mod rack;

/// A thread for what nobody waits for.
mod keeper;

/// Telling transactions that nobody wants them any more.
mod canceller;

/// Where a transaction lies while nothing is asked of it.
mod rest;

/// Where transactions may be found idle.
mod idlers;

/// What may be read before it is durable.
mod early;

/// What all transactions share.
mod engine;

/// The thread that makes checkpoints.
mod checkpointer;

/// The thread that ends idle transactions.
mod idle_ender;

/// Looking in from another process.
pub mod observe;

/// Where what a session works with comes back to.
mod berth;

/// Transactions, cut by phase of life.
mod txn;

/// Ranges, read by threads.
mod range;

/// Transactions of threads.
mod transaction;

/// Transactions of tasks.
mod asynchronous;

/// Many keys read at once, by threads and by tasks.
mod many;

/// Reading by a secondary index, for threads.
mod index_range;

/// Reading by a secondary index, for tasks.
mod index_tasks;

/// Making, filling and dropping indexes.
mod declare;

/// From the files to the tables.
mod restart;

/// Databases.
mod db;

/// Copies of a database, taken while it is used.
pub mod backup;

/// Whether a database is what it was when it was written.
pub mod check;

/// Transactions to their end.
mod run;

/// Locks that outlive transactions.
mod session;

/// Secondary indexes of a database.
mod indexes;

/// What goes on.
pub mod inspect;

pub use admission::Admission;
pub use asynchronous::{AsyncRange, AsyncTransaction};
pub use canceller::Canceller;
pub use checkpoint::{Checkpoint, CheckpointStats};
pub use codec::{Key, Value};
pub use db::Database;
pub use error::{Error, Result};
pub use foxton_log::Lsn;
pub use index::{Index, Indexes, Keys};
pub use index_range::{IndexRange, IndexRow, IndexRows};
pub use index_tasks::AsyncIndexRange;
pub use indexes::IndexStats;
pub use isolation::Isolation;
pub use limits::{MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES, MAX_TABLES, MAX_VALUE_BYTES};
pub use lock::{Lock, LockOptions, LockWait, TableLock};
pub use options::{
    Durability, LatchKind, LockInheritance, LockManagerKind, Locking, LogBufferKind, Observe,
    Options, VictimPolicy,
};
pub use range::{Range, Rows};
pub use restart::Recovered;
pub use savepoint::Savepoint;
pub use session::Session;
pub use table::Table;
pub use transaction::Transaction;
