#![forbid(unsafe_code)]
//! What happened: one stream of records, durable as far as asked.
//!
//! Floor 1 of Foxton. It knows nothing of locks, pages or transactions: a record is a kind and
//! some bytes. Whoever builds an engine of their own can use it as it is: [`Log`] over a
//! [`device::file::FileDevice`] is a write-ahead log with group commit, and
//! [`device::fault::FaultDevice`] is a disk for tests that loses, tears and reorders.
//!
//! `docs/format.md` draws every byte that is written.
//!
//! The order of the modules below is the ladder: a module uses only modules listed above it.

/// What the log is written to.
pub mod device;

/// Bytes of a log.
pub mod format;

/// Reading a log.
pub mod read;

/// Memory in which records wait to be written.
mod buffer;

/// How an open log behaves.
pub mod options;

/// Where tests can step in.
pub mod failpoint;

/// Writing a log.
mod write;

/// Copying a log to another directory.
pub mod copy;

/// The log as its users see it.
mod log;

pub use buffer::BufferKind;
pub use format::error::{Corruption, CorruptionKind, Failure, LogError, OpenError};
pub use format::lsn::Lsn;
pub use format::record::{MAX_PAYLOAD, RecordView};
pub use log::{Log, LogStats, LogWait, OpenReport};
pub use options::LogOptions;
pub use read::reader::{LogEnd, LogSummary, Start};
#[cfg(loom)]
pub use write::model;
pub use write::writer_lock::PendingWakeups;
