//! What is kept.
//!
//! The storage floor of Foxton: so far, tables that live in memory. [`memory::Table`] is an ordered
//! map from keys to records at fixed addresses; it knows nothing of transactions or locks, and is
//! made so that a lock manager can be put on top of it.
//!
//! The order of the modules below is the ladder: a module uses only modules listed above it.

use std::fmt;

/// Where tests can step in.
pub mod failpoint;

/// Tables that live in memory.
pub mod memory;

/// Tables in pages: only their recovery is here today.
pub mod paged;

/// The most bytes a key may have. The least is none: the empty key is a key like others.
pub const MAX_KEY_BYTES: usize = 1024;

/// The most bytes a value may have: 64 MiB - 1.
pub const MAX_VALUE_BYTES: usize = (64 << 20) - 1;

/// A key or a value that is longer than it may be. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLong {
    /// The key has `bytes` bytes, which is more than [`MAX_KEY_BYTES`].
    Key {
        /// How many it has.
        bytes: usize,
    },
    /// The value has `bytes` bytes, which is more than [`MAX_VALUE_BYTES`].
    Value {
        /// How many it has.
        bytes: usize,
    },
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TooLong::Key { bytes } => {
                write!(
                    f,
                    "the key has {bytes} bytes; a key has at most {MAX_KEY_BYTES}"
                )
            }
            TooLong::Value { bytes } => {
                write!(
                    f,
                    "the value has {bytes} bytes; a value has at most {MAX_VALUE_BYTES}"
                )
            }
        }
    }
}

impl std::error::Error for TooLong {}
