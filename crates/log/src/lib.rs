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

/// Places in the log.
pub mod lsn;

/// What the log is written to.
pub mod device;

/// How one record lies in the stream.
pub mod record;

/// What can go wrong.
pub mod error;

/// The first file of a database.
pub mod superblock;

/// The files that the stream is cut into.
pub mod segment;

/// The segments as one stream.
mod stream;

/// Where the log ended when it was closed.
pub mod mark;

/// Reading a log, and saying how it ends.
pub mod reader;

/// Memory in which records wait to be written.
mod buffer;

/// Reading what is durable while the log goes on.
pub mod follow;

/// Single records, by their places.
pub mod fetch;

/// How an open log behaves.
pub mod options;

/// Where tests can step in.
pub mod point;

/// The end of the log that lies in files.
mod output;

/// Copying a log to another directory.
pub mod copy;

/// Everything that is wrong with a log.
pub mod audit;

/// Making the end of a log fit to be written on.
mod restart;

/// Who waits for the log to get somewhere.
mod waiters;

/// What the thread that syncs is asked for.
mod desk;

/// The way out of the buffer.
mod outlet;

/// The waiters and the buffers, for the model checker.
#[cfg(loom)]
pub mod model;

/// Group commit.
mod flush;

/// The log as its users see it.
mod log;

pub use buffer::BufferKind;
pub use error::{Corruption, Damage, Failure, LogError, OpenError};
pub use log::{Log, LogStats, Opened, Pending, Untold};
pub use lsn::Lsn;
pub use options::LogOptions;
pub use reader::{Ended, Start, Summary};
pub use record::{MAX_PAYLOAD, RecordView};
