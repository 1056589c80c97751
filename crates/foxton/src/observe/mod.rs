//! Observation of a database from another process, and dumps of long waits.
//!
//! A program opts in with [`Options::observe`](crate::Options::observe). A thread of the database
//! then serves a local socket, `observe.sock` in the database's directory, which only the same user
//! may open. [`Watcher`](crate::observe::Watcher) is the client. `docs/operations.md` describes the
//! protocol, which any language can speak.
//!
//! Observation does not delay transactions. A client gets a [`Status`](crate::status::Status) of
//! bounded size, captured one queue at a time; capturing it stops no transaction.

/// Capture of the status of an engine.
pub(crate) mod capture;

/// Path of the socket.
pub(crate) mod socket_path;

/// Requests and answers as bytes.
mod protocol;

/// Server thread.
pub(crate) mod server;

/// Client.
mod client;

/// Dumps of long waits.
pub(crate) mod wait_dump;

pub use client::{WatchError, Watcher};
pub use socket_path::SOCKET_FILE;
