//! Space in the log for taking back, set aside before there is anything to take back.
//!
//! A transaction that finds no room for a change is told so while it can still do something about it: commit
//! what it has, or roll back. Rolling back writes to the log, too, so the room for that must be there already.
//! Therefore no change is logged unless there is room for it *and* for its compensation.
//!
//! # How many bytes
//!
//! | a record | takes | sets aside |
//! |----------|-------|------------|
//! | BEGIN | 24 | 80: for ABORT and END, or for COMMIT and END |
//! | UPDATE that can be taken back | itself | its `reserve`: a COMPENSATION with as much redo as it has undo, 64 bytes and the undo, rounded up to 8; and what its owner asked for beyond that |
//! | UPDATE that cannot | itself | nothing |
//! | COMPENSATION | itself, out of the `reserve` | nothing; what is left of the `reserve` is free |
//! | NESTED | itself | nothing; what the action had set aside is free |
//! | COMMIT, ABORT, END | itself, out of the 80 | nothing |
//!
//! # Invariants
//!
//! * I1 A transaction's `credit`, the room that is its own, is at least its `undo_space`, what taking it back and ending
//!   it can take. Every change is admitted by this, and taking back keeps it: a compensation takes at most the
//!   `reserve` of what it takes back, and both go down by it.
//! * I2 The end of the log, the credit of all transactions, and what is free, come to the limit. So whoever
//!   writes out of his credit stays within the limit.
//! * I3 A restart finds, by the `undo_space` in the last record of each loser, how much must be set aside again. No
//!   more than before the crash: what a crash takes away from the log, it takes from the end, where each
//!   record lay in somebody's credit. A limit that was lowered meanwhile admits nobody, and hinders no undo.
//!
//! The limit is what the log may grow to: where it begins to be needed, and the bytes that the device can hold
//! from there. Whoever sets it sees to it that the device has them. When old segments are removed, it rises.
//!
//! # Orderings
//!
//! None: what is free is a number that leads to no memory. A transaction takes credit in larger pieces than
//! it needs at once, and gives back what is left when it ends: two additions for most, none for each change.

use std::fmt;

use foxton_log::Lsn;
use foxton_sync::shim::{AtomicU64, Ordering::Relaxed};

/// Bytes of credit that a transaction takes at once, if there are enough.
const PIECE: u64 = 16 << 10;

/// There is no room in the log for a change and for taking it back. Nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoLogSpace {
    /// Bytes that are missing.
    pub bytes: u64,
}

impl fmt::Display for NoLogSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the log has no undo_space for the change and for taking it back: {} bytes are missing. Commit or roll \
             back, for which there is undo_space",
            self.bytes
        )
    }
}

impl std::error::Error for NoLogSpace {}

/// What of the log's room nobody has set aside. See the [module](self).
#[derive(Debug)]
pub struct UndoSpace {
    free: AtomicU64,
}

impl UndoSpace {
    /// A log that ends at `end`, may grow to `limit`, and in which `credit` bytes are set aside (I3).
    pub(super) fn new(end: Lsn, credit: u64, limit: Lsn) -> UndoSpace {
        let free = limit.since(end).saturating_sub(credit);
        UndoSpace {
            free: AtomicU64::new(free),
        }
    }

    /// Bytes that nobody has set aside.
    pub fn free(&self) -> u64 {
        self.free.load(Relaxed)
    }

    /// The limit rises by `bytes`: so much of the beginning of the log was removed, or the device has grown.
    pub fn raise(&self, bytes: u64) {
        self.release(bytes);
    }

    /// Takes `bytes` for whoever asks, and more if there is plenty; says how many.
    pub(super) fn reserve(&self, bytes: u64) -> Result<u64, NoLogSpace> {
        self.reserve_up_to(bytes, bytes.max(PIECE))
    }

    /// Takes exactly `bytes`.
    pub(super) fn reserve_exactly(&self, bytes: u64) -> Result<u64, NoLogSpace> {
        self.reserve_up_to(bytes, bytes)
    }

    fn reserve_up_to(&self, least: u64, most: u64) -> Result<u64, NoLogSpace> {
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
        // An unlimited log stays so.
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
