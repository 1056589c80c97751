//! Transactions: one file for each phase of their life.

/// Attempts: operations that never block.
pub(crate) mod attempt;

/// Work budget of a task.
pub(crate) mod work_budget;

/// Waits for pages.
pub(crate) mod page_wait;

/// Large values of the current operation.
pub(crate) mod large_state;

/// Undo of changes of paged tables.
pub(crate) mod paged_changes;

/// Changes of a transaction: undo, redo and savepoints.
pub(crate) mod changes;

/// Locks released right after a read.
pub(crate) mod short_lock;

/// Position of a snapshot.
pub(crate) mod snapshot_view;

/// State of a range scan.
pub(crate) mod scan_state;

/// Tables and indexes that a worker has used.
pub(crate) mod table_cache;

/// Index changes of one write.
pub(crate) mod index_plan;

/// Lock scopes: the locks that outlive a transaction.
pub(crate) mod lock_scope;

/// A transaction.
#[expect(
    clippy::module_inception,
    reason = "a transaction is what transactions are about"
)]
pub(crate) mod txn;

/// Commit slot: what becomes of the versions of a transaction.
pub(crate) mod commit_slot;

/// Context of a worker.
pub(crate) mod context;

/// A transaction bound to the context of a worker.
pub(crate) mod bound;

/// Lock requests of transactions.
pub(crate) mod table_locks;

/// Explicit locks of tables and numbers.
pub(crate) mod explicit_lock;

/// Absent tables: reads of them, and the write that makes one.
mod absent_table;

/// Locks at a snapshot on rows that have changed since.
mod overwritten;

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

/// Versions at a snapshot.
mod view_reader;

/// Reads at a snapshot.
pub(crate) mod snapshot;

/// Ranges at a snapshot.
mod snapshot_scan;

/// Tables and indexes that were converted while an operation waited for them.
mod converted;

/// Removal of ghosts.
pub(crate) mod ghosts;

/// Operations on paged tables.
mod paged;

pub(crate) use paged::sweep_leaf;

/// Begin of a transaction: a context from the pool, and an admission slot.
pub(crate) mod begin;

/// Rows and entries that no transaction uses any more, and their removal.
pub(crate) mod former_rows;

/// Indexes that a write makes stale.
mod stale_indexes;

/// Versions at the end of a transaction.
mod end_versions;

/// Sweeps of the versions that snapshots keep.
mod snapshot_sweep;

/// End of a transaction: its locks are released, and its context returns to the pool.
pub(crate) mod end;

/// Redo of a transaction: its records in the log.
mod redo_log;

/// Undo of changes.
mod undo;

/// Savepoints.
mod savepoint;

/// Rollback of a transaction.
pub(crate) mod rollback;

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
