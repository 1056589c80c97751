//! Types of tables, keys, values, indexes and locks: plain data that needs no database.

/// Typed keys and values.
pub mod codec;

/// Limits of tables, keys and values.
pub(crate) mod limits;

/// Storage devices.
pub mod device;

/// Components: where the rows of a table are.
pub(crate) mod component;

/// Tables as constants.
pub(crate) mod table;

/// Entries of secondary indexes.
pub(crate) mod index_entry;

/// Secondary indexes as constants.
pub(crate) mod index;

/// Options of one lock request.
pub(crate) mod lock_options;

/// Isolation levels.
pub(crate) mod isolation;

/// Savepoints of a transaction.
pub(crate) mod savepoint;

/// Active snapshots.
pub(crate) mod active_snapshot;
