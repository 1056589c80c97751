//! Storage: tables in memory, and recovery for tables in pages.
//!
//! The storage floor of Foxton. [`memory::RecordTable`] is an ordered map from keys to records at
//! fixed addresses. It knows nothing of transactions or locks, and is made so that a lock manager
//! can be put on top of it.
//!
//! The order of the modules below is the ladder: a module uses only modules listed above it.

use std::fmt;

/// Failpoints of the index and of pages.
pub mod failpoint;

/// Tables in memory.
pub mod memory;

/// Tables in pages, and their recovery.
pub mod paged;

/// Maximum bytes of a key. The minimum is 0: the empty key is a key like others.
pub const MAX_KEY_BYTES: usize = 1024;

/// Maximum bytes of a value: 64 MiB - 1.
pub const MAX_VALUE_BYTES: usize = (64 << 20) - 1;

/// A key or a value that is too long. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLong {
    /// The key has `bytes` bytes, which is more than [`MAX_KEY_BYTES`].
    Key {
        /// Number of its bytes.
        bytes: usize,
    },
    /// The value has `bytes` bytes, which is more than [`MAX_VALUE_BYTES`].
    Value {
        /// Number of its bytes.
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
