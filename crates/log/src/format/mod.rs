//! The bytes of a log: positions, records, segment files, the superblock, the clean-shutdown file.

/// Positions in the log.
pub mod lsn;

/// Layout of a record in the stream.
pub mod record;

/// Errors of a log.
pub mod error;

/// The first file of a database.
pub mod superblock;

/// SegmentFile files: the stream, cut into files.
pub mod segment;

/// The file that says where the log ended at a clean shutdown.
pub mod clean_shutdown;
