//! Looking into a database from another process, and being told when a wait lasts too long.
//!
//! A program opts in with [`Options::observe`](crate::Options::observe); then a thread of the database
//! answers at a local socket, `observe.sock` in its directory, that only its own user may open.
//! [`Watcher`](crate::observe::Watcher) is the other end. `docs/seeing.md` has the protocol, which any language can speak.
//!
//! Nothing here is on the way of a transaction. Whoever asks gets a [`Picture`](crate::picture::Picture), taken
//! one queue at a time and of bounded size; nobody is stopped while it is taken.

/// From an engine to a picture.
pub(crate) mod look;

/// Where the socket is.
pub(crate) mod place;

/// Requests and answers as bytes.
mod wire;

/// The thread that answers.
pub(crate) mod server;

/// The other end.
mod watcher;

/// Waits that last too long.
pub(crate) mod dump;

pub use place::SOCKET_FILE;
pub use watcher::{WatchError, Watcher};
