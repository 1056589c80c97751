//! Reading a log: while it is opened, while it is written, and when it is checked.

/// The segments as one stream.
pub(crate) mod stream;

/// Reading a whole log, and deciding how it ends.
pub mod reader;

/// Reading the durable part of a log while it is being written.
pub mod durable_reader;

/// Reading single records by LSN.
pub mod record_reader;

/// Finding all damage in a log.
pub mod audit;
