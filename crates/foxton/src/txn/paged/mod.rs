//! Operations on paged tables.
//!
//! They are attempts as on tables in memory, with the same lock names and the same protocols. The
//! differences:
//!
//! * *Locks have no anchors*, because a row may leave memory with its page. They are in the lock
//!   manager's buckets.
//! * *Names first.* The lock name of a key does not depend on its place. So an operation on one key
//!   locks the key and then reads its leaf: what it finds there stays.
//! * *Pages.* An attempt that lacks one ends with a [wait](super::page_wait). Nothing of a page is
//!   kept across a wait but its place in its frame.
//! * *Undo* is flags and values where the row is. A delete sets the ghost flag and leaves the
//!   value. Only a purge gives space away.
//!
//! # Invariants
//!
//! * I1  No attempt waits for a lock while it keeps a page in its frame: the visit ends with the
//!   attempt.
//! * I2  The undo of a change is recorded in the attempt that made it, before anything else can
//!   fail.
//! * I3  A key that a transaction has inserted stays in its leaf until the transaction has released
//!   its locks: its name may be the only lock on the gap before it.

/// Freeing of large values.
mod free_values;

pub(super) use free_values::examine_marked;

/// Access to one tree in one attempt.
mod access;

/// Large values, read and stored.
mod large;

/// Bulk load.
mod bulk;

/// Writes at a snapshot of rows that have changed since.
mod overwritten;

/// Reads of one key.
mod read;

/// Writes of one key.
mod write;

/// Scans of a range.
mod scan;

/// Writes of one row of a table with indexes.
mod index_write;

/// Reads of rows by an index.
mod index_read;

/// Reads at a snapshot.
mod snapshot;

/// Undo of changes.
mod undo;

/// Purge of ghosts.
mod purge;

/// Sweep of ghosts.
mod sweep;

pub(crate) use sweep::sweep_leaf;
