#![forbid(unsafe_code)]
//! The log: one stream of records, written and synced on request.
//!
//! Floor 1 of Foxton. It knows nothing of locks, pages or transactions: a record is a kind and some
//! bytes. It is useful alone in another engine: [`Log`] over a [`device::file::FileDevice`] is a
//! write-ahead log with group commit, and [`device::fault::FaultDevice`] is a disk for tests that
//! loses, tears and reorders.
//!
//! `docs/format.md` draws every byte that is written.
//!
//! The order of the modules below is the ladder: a module uses only modules listed above it.

/// Directories of files that a log is written to.
pub mod device;

/// Bytes of a log.
pub mod format;

/// Reading a log.
pub mod read;

/// Log buffers: memory for records that are not written yet.
mod buffer;

/// Options of an open log.
pub mod options;

/// Points where tests can make the log stop or fail.
pub mod failpoint;

/// Writing a log.
mod write;

/// Copying a log to another directory.
pub mod copy;

/// The public interface of an open log.
mod log;

pub use buffer::BufferKind;
pub use format::error::{Corruption, CorruptionKind, Failure, LogError, OpenError};
pub use format::lsn::Lsn;
pub use format::record::{MAX_PAYLOAD, RecordView};
pub use log::{Insertion, Log, LogStats, LogWait, OpenReport};
pub use options::LogOptions;
pub use read::reader::{LogEnd, LogSummary, Start};
#[cfg(loom)]
pub use write::model;
pub use write::writer_lock::PendingWakeups;
