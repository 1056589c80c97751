//! Log space for undo, reserved before there is anything to undo.
//!
//! A transaction that finds no space for a change learns this while it can still act: commit what
//! it has, or roll back. Rolling back writes to the log, too, so the space for that must already be
//! reserved. Therefore no change is logged unless there is space for it *and* for its compensation.
//!
//! # Number of bytes
//!
//! | a record | takes | reserves |
//! |----------|-------|----------|
//! | UPDATE with undo | itself | its `reserve`, see below |
//! | UPDATE without undo | itself | nothing |
//! | the first UPDATE | as above | 80 more: for ABORT and END, or for COMMIT |
//! | COMPENSATION | itself, out of the `reserve` | nothing; the rest of the `reserve` is free |
//! | STRUCTURE | itself | nothing: it is never undone |
//! | ABORT, END, COMMIT | itself, out of the 80 | nothing |
//! | COMMIT with a tail | itself; the tail beyond the 80 | nothing |
//!
//! The `reserve` of an UPDATE is a COMPENSATION with as much redo as the UPDATE has undo: 72 bytes
//! and the undo, rounded up to 8. The owner of the pages may request more.
//!
//! # Invariants
//!
//! * I1  A transaction's `credit`, the space that is its own, is at least its `undo_space`, the
//!   maximum for undoing and ending it. Every change is admitted by this, and undo keeps it: a
//!   compensation takes at most the `reserve` of the change it undoes, and both go down by it.
//! * I2  The end of the log, the credit of all transactions, and the free space add up to the
//!   limit. So a transaction that writes out of its credit stays within the limit.
//! * I3  A restart finds, by the `undo_space` in the last record of each loser, how much must be
//!   reserved again. It is no more than before the crash: a crash removes the end of the log, where
//!   each record was within a transaction's credit. A limit that was lowered meanwhile admits no
//!   change, and prevents no undo.
//!
//! The limit is the position to which the log may grow: the first needed position, plus the bytes
//! that the device can hold from there. The caller that sets it ensures that the device has them.
//! When old segments are removed, it rises.
//!
//! # Orderings
//!
//! None: the free space is a number that leads to no memory. A transaction reserves credit in
//! larger pieces than it needs at once, and releases the rest when it ends: two additions for most,
//! none for each change.

use std::fmt;

use foxton_log::Lsn;
use foxton_sync::shim::{AtomicU64, Ordering::Relaxed};

/// Bytes of credit that a transaction reserves at once, if there are enough.
const PIECE: u64 = 16 << 10;

/// There is no space in the log for a change and for undoing it. Nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoLogSpace {
    /// Missing bytes.
    pub bytes: u64,
}

impl fmt::Display for NoLogSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the log has no space for the change and for undoing it: {} bytes are missing. Commit or \
             roll back, for which there is space",
            self.bytes
        )
    }
}

impl std::error::Error for NoLogSpace {}

/// Log space that no transaction has reserved. See the [module](self).
#[derive(Debug)]
pub struct UndoSpace {
    free: AtomicU64,
    /// An unlimited log is not counted.
    is_unlimited: bool,
}

impl UndoSpace {
    /// Returns the space of a log that ends at `end`, may grow to `limit`, and in which `credit`
    /// bytes are reserved (I3).
    pub(super) fn new(end: Lsn, credit: u64, limit: Lsn) -> UndoSpace {
        let free = limit.since(end).saturating_sub(credit);
        UndoSpace {
            free: AtomicU64::new(free),
            is_unlimited: limit == Lsn::MAX,
        }
    }

    /// Bytes that are not reserved.
    pub fn free(&self) -> u64 {
        if self.is_unlimited {
            return u64::MAX;
        }
        self.free.load(Relaxed)
    }

    /// Raises the limit by `bytes`, because so much of the beginning of the log was removed, or the
    /// device has grown.
    pub fn raise(&self, bytes: u64) {
        self.release(bytes);
    }

    /// Reserves `bytes`, and more if there is plenty; returns how many.
    pub(super) fn reserve(&self, bytes: u64) -> Result<u64, NoLogSpace> {
        self.reserve_up_to(bytes, bytes.max(PIECE))
    }

    /// Reserves exactly `bytes`.
    pub(super) fn reserve_exactly(&self, bytes: u64) -> Result<u64, NoLogSpace> {
        self.reserve_up_to(bytes, bytes)
    }

    fn reserve_up_to(&self, least: u64, most: u64) -> Result<u64, NoLogSpace> {
        if self.is_unlimited {
            return Ok(most);
        }
        let taken = |free: u64| {
            let wished = if free / 4 >= most { most } else { least };
            (free >= wished).then_some(wished)
        };
        let before = self
            .free
            .fetch_update(Relaxed, Relaxed, |free| Some(free - taken(free)?));
        match before {
            Ok(before) => Ok(taken(before).expect("it was taken from this")),
            Err(free) => Err(NoLogSpace {
                bytes: least - free,
            }),
        }
    }

    pub(super) fn release(&self, bytes: u64) {
        if self.is_unlimited {
            return;
        }
        let _ = self
            .free
            .fetch_update(Relaxed, Relaxed, |free| Some(free.saturating_add(bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_reserved_in_pieces_while_space_is_plentiful() {
        let space = UndoSpace::new(Lsn::new(1000), 200, Lsn::new(1200 + 8 * PIECE));
        assert_eq!(space.reserve(100), Ok(PIECE));
        for _ in 0..4 {
            assert_eq!(space.reserve(100), Ok(PIECE));
        }
        assert_eq!(space.reserve(100), Ok(100), "a quarter is left for others");
        assert_eq!(space.reserve_exactly(3 * PIECE - 200), Ok(3 * PIECE - 200));
        assert_eq!(space.free(), 100);
        assert_eq!(space.reserve(101), Err(NoLogSpace { bytes: 1 }));
        assert_eq!(space.reserve(100), Ok(100));
        space.release(7);
        assert_eq!(space.free(), 7);
    }

    #[test]
    fn a_limit_below_what_is_set_aside_leaves_nothing() {
        let space = UndoSpace::new(Lsn::new(1000), 500, Lsn::new(1200));
        assert_eq!(space.reserve_exactly(1), Err(NoLogSpace { bytes: 1 }));
        let unlimited = UndoSpace::new(Lsn::new(1000), 500, Lsn::MAX);
        unlimited.raise(u64::MAX);
        assert_eq!(unlimited.free(), u64::MAX);
    }
}
