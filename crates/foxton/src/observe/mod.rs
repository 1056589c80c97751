//! Looking into a database from another process, and being told when a wait lasts too long.
//!
//! A program opts in with [`Options::observe`](crate::Options::observe); then a thread of the database
//! answers at a local socket, `observe.sock` in its directory, that only its own user may open.
//! [`Watcher`](crate::observe::Watcher) is the other end. `docs/seeing.md` has the protocol, which any language can speak.
//!
//! Nothing here is on the way of a transaction. Whoever asks gets a [`Status`](crate::status::Picture), taken
//! one queue at a time and of bounded size; nobody is stopped while it is taken.

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
