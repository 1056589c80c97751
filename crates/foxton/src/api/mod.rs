//! The public interface: databases, transactions, ranges and sessions.

/// Operations, each described once for threads and tasks.
mod operation;

/// Scans behind ranges.
mod range_scan;

/// Ranges.
pub(crate) mod range;

/// Transactions, for threads.
pub(crate) mod transaction;

/// Transactions, for async tasks.
pub(crate) mod async_transaction;

/// Methods of both kinds of transactions.
mod methods;

/// Entries of an index, sorted in bounded memory.
mod sorted_entries;

/// Indexes of paged tables: their trees, and what fills them.
pub(crate) mod paged_index_build;

/// Creation and removal of indexes.
pub(crate) mod index_build;

/// Databases.
pub(crate) mod database;

/// Snapshots.
pub(crate) mod snapshot;

/// Reads of tasks at snapshots.
mod async_snapshot;

/// Checks of rows and of indexes.
pub(crate) mod table_check;

/// Conversion of tables between the components.
pub(crate) mod convert;

/// Truncating and dropping tables.
pub(crate) mod drop_table;

/// Transactions that are retried after a conflict.
pub(crate) mod retry;

/// Sessions: locks that outlive transactions.
pub(crate) mod session;
