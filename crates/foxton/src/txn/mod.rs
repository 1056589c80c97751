//! Transactions, cut by phase of life.

/// Attempts: operations that never block.
pub(crate) mod attempt;

/// Undo and redo of one transaction.
pub(crate) mod changes;

/// Locks released right after a read.
pub(crate) mod short_lock;

/// Savepoints of a transaction.
mod marks;

/// State of a range scan.
pub(crate) mod scan_state;

/// Index changes of one write.
pub(crate) mod index_plan;

/// Lock scopes: the locks that outlive a transaction.
pub(crate) mod lock_scope;

/// State of a worker and its transaction.
pub(crate) mod state;

/// Explicit locks of tables and numbers.
pub(crate) mod explicit_lock;

/// Reads of one key.
pub(crate) mod read;

/// Inserts of one key.
mod insert;

/// Writes of one key.
pub(crate) mod write;

/// Writes to a table with indexes.
pub(crate) mod index_write;

/// Scans of a range that is already locked.
mod scan_locked_range;

/// Scans of a range.
pub(crate) mod scan;

/// Reads by an index.
pub(crate) mod index_read;

/// Removal of ghosts.
pub(crate) mod ghosts;

/// Rollback to a savepoint.
mod savepoint;

/// Rollback of a transaction.
pub(crate) mod rollback;

/// Begin of a transaction, and its return to the pool.
pub(crate) mod begin;

/// Cancelling a transaction.
mod cancel;

/// Waits between attempts.
pub(crate) mod wait;

/// Locks of a session.
pub(crate) mod session_locks;

/// Handle of a transaction.
pub(crate) mod handle;

/// Commit of a transaction.
pub(crate) mod commit;
