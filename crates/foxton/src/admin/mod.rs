//! Administration: backups, checks, indexes and statistics.

/// Backups of an open database.
pub mod backup;

/// Integrity checks.
pub mod check;

/// Shrinking of the page file.
pub mod shrink;

/// Administration of secondary indexes.
pub(crate) mod indexes;

/// Integrity checks of a database in use.
mod online_check;

/// Pages of paged tables.
mod page_stats;

/// Locks, waits, deadlocks and statistics of a database.
pub mod inspect;

/// Memory limit of pages.
mod page_memory;
