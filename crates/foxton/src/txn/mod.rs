//! Transactions, cut by phase of life.

/// Attempts that never block.
pub(crate) mod step;

/// Undo and redo of one transaction.
pub(crate) mod changes;

/// A key that is locked only while it is read.
pub(crate) mod brief;

/// Where a transaction was.
mod marks;

/// A range of keys, and how far it has been read.
pub(crate) mod span;

/// What a worker knows of indexes, and the write at hand that keeps them.
pub(crate) mod statement;

/// Whose the locks are when a transaction ends.
pub(crate) mod tenure;

/// What one transaction works with.
pub(crate) mod state;

/// Locking what is named by hand: whole tables, and numbers.
pub(crate) mod explicit;

/// Reading one key.
pub(crate) mod read;

/// Putting a record into the gap where it belongs.
mod insert;

/// Writing one key.
pub(crate) mod write;

/// Writing one row of a table with indexes.
pub(crate) mod indexed;

/// Reading a range that nobody can change.
mod covered;

/// Reading a range.
pub(crate) mod scan;

/// Reading by an index.
pub(crate) mod by;

/// Removing ghosts.
pub(crate) mod purge;

/// Going back to a moment in a transaction.
mod savepoint;

/// Taking everything back.
pub(crate) mod rollback;

/// From the rack and back into it.
pub(crate) mod begin;

/// That nobody wants it any more.
mod cancel;

/// From attempts to operations.
pub(crate) mod drive;

/// What a session asks for itself.
pub(crate) mod hold;

/// What a transaction has in its hands.
pub(crate) mod hand;

/// Making it last.
pub(crate) mod commit;
