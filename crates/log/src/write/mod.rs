//! Writing a log: from the buffer to synced segment files.

/// The segment file that is being written.
pub(crate) mod segment_writer;

/// Repairing the end of a log before it is written again.
pub(crate) mod tail_repair;

/// Threads and tasks that wait for the log to be written or durable.
pub(crate) mod waiters;

/// Requests to the flusher thread.
pub(crate) mod flush_requests;

/// Exclusive right to write: one thread writes for all.
pub(crate) mod writer_lock;

/// Waiters, writer lock and buffers, for the model checker.
#[cfg(loom)]
pub mod model;

/// Group commit.
pub(crate) mod group_commit;

/// Inserting records, and waiting for space.
mod insert;

/// Space that threads take before they insert.
mod taken_space;

/// Records that do not go through the buffer.
mod bypass;

/// Space of the device for records that must not be refused.
mod kept_space;
