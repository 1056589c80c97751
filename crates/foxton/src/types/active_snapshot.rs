//! Snapshots that are active, for people.

use std::time::Duration;

use foxton_log::Lsn;

/// An active snapshot: see [`Database::snapshots`](crate::Database::snapshots).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActiveSnapshot {
    /// Its position in the log, or its number with
    /// [`SnapshotMethod::ReadViews`](crate::SnapshotMethod::ReadViews).
    pub lsn: Lsn,
    /// Time since its handle was made, or its transaction began, to within a clock tick.
    pub age: Duration,
    /// Label of the handle or of the transaction; empty if it has none.
    pub label: String,
    /// Bytes of the versions that are kept for it, about.
    pub bytes: u64,
}
