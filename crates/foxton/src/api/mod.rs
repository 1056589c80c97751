//! The public interface: databases, transactions, ranges and sessions.

/// Ranges of keys, for threads.
pub(crate) mod range;

/// Transactions, for threads.
pub(crate) mod transaction;

/// Transactions, for async tasks.
pub(crate) mod async_transaction;

/// Reads of many keys, for threads and async tasks.
pub(crate) mod get_many;

/// Ranges of an index, for threads.
pub(crate) mod index_range;

/// Ranges of an index, for async tasks.
pub(crate) mod async_index_range;

/// Creation and removal of indexes.
pub(crate) mod index_build;

/// Databases.
pub(crate) mod database;

/// Transactions that are retried after a conflict.
pub(crate) mod retry;

/// Sessions: locks that outlive transactions.
pub(crate) mod session;
