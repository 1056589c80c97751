//! The bytes of a log: positions, records, segment files, the superblock, the clean-shutdown file.

/// LSN: a position in the log.
pub mod lsn;

/// Layout of a record in the stream.
pub mod record;

/// Errors, and how to react to each.
pub mod error;

/// File `foxton`: identity and features of a database.
pub mod superblock;

/// Segments: the files that the stream is cut into.
pub mod segment;

/// File `closed`: how far the log was durable when it was last closed.
pub mod clean_shutdown;
