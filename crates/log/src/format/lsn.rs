//! LSN: a position in the log.
//!
//! The log is one stream of bytes that only grows. An LSN is an offset into that stream: the first
//! byte of the first record is LSN 0. Headers of segments are not part of the stream, so an LSN
//! does not depend on how the stream is cut into files.

use std::fmt;

/// A byte offset into the stream of the log.
///
/// [`Log::insert`](crate::Log::insert) returns the *end* of the record: once the log is durable up
/// to there, the record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(u64);

impl Lsn {
    /// The beginning of every log. Every log is durable up to here.
    pub const ZERO: Lsn = Lsn(0);
    /// A position that no log reaches.
    pub const MAX: Lsn = Lsn(u64::MAX);

    /// Returns the position `bytes` after the beginning of the log.
    pub const fn new(bytes: u64) -> Self {
        Lsn(bytes)
    }

    /// Bytes between the beginning of the log and this position.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Returns the position `bytes` further on, or [`Lsn::MAX`] if there is none.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Lsn(self.0.saturating_add(bytes))
    }

    /// Bytes from `earlier` to here; 0 if `earlier` is not earlier.
    pub const fn since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
