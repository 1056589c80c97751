//! Spins a little, then sleeps until woken; and the front of every other latch.
//!
//! The protocol is that of `parking_lot`'s raw mutex, over its process-wide table of sleepers keyed by address
//! (`parking_lot_core`). New is a mark: there is *more* to the latch than this. A latch without it is *plain*, and is passed by two
//! exchanges, each after one look at the mark at most; so the default kind pays nothing for there being others, and a latch that adapts
//! is this one to the instruction while elision is not tried.
//!
//! What each of them looks at, and no more, is chosen by measuring (`benches/parking.rs`):
//!
//! * While there is more to no latch of the process, not even at the mark (`sleepers::SleeperTable::extended_latches`): a line that somebody else has written
//!   is then fetched once, to be written, and not twice. Nor does the exchange look at the state first, as `parking_lot`'s trying does.
//! * The one that gives it back does not look at the state either: a look at the byte that was just exchanged waits for the exchange,
//!   which is a fifth of a pass. One more mark to look at, at either end, is a twentieth of a pass where others want the line.
//!
//! Under the random scheduler, and in models of what is above, which cannot see sleepers of that table, a mutex and a condition
//! variable stand in (`standin`). The protocol itself has a model with sleepers of its own (`model`).
//!
//! # State
//!
//! ```text
//!  HELD      somebody holds it                                           } one byte
//!  SLEEPERS  somebody sleeps for it, or is about to                      }
//!  more      it is the front of another latch, or may be elided            another
//! ```
//!
//! # Invariants
//!
//! * I1  HELD goes up by an exchange, and whoever saw it go holds the latch; only the holder takes it down. Or he leaves it up
//!   and hands the latch to a sleeper, who is told so.
//! * I2  `extended` changes only while the latch is held, by its holder; nobody passes a mere front. So who took a plain latch
//!   finds it plain when he gives it back, unless he has changed that.
//! * I3  SLEEPERS goes up only while HELD is, and down only by the holder while he has the sleepers' queue locked: so who
//!   sleeps, having seen both in there, is seen by the holder who gives the latch back.
//! * I4  Every latch with `extended` to it is counted, from before it has until after it has no longer, or is dropped. So nobody takes a mere
//!   front: whoever can pass one was given it after it was counted, and its own one is in each later count. The count of a latch that
//!   adapts may be read late: who takes that for plain takes the real latch, which any pass may; and an elided pass that gives it
//!   back as plain finds it free, so that it does not, and looks further.

#[cfg(not(shuttle))]
mod sleeper_table;
#[cfg(not(shuttle))]
mod word;

#[cfg(any(loom, shuttle))]
mod standin;

#[cfg(loom)]
pub mod model;

use super::Latch;
use super::queue::QueueNode;

#[cfg(not(any(loom, shuttle)))]
type Raw = word::ParkingWord<sleeper_table::ProcessTable>;
#[cfg(any(loom, shuttle))]
type Raw = standin::Standin;

/// Sleeps while somebody else holds it.
pub(super) struct Parking(Raw);

impl Default for Parking {
    fn default() -> Self {
        Self::new(true)
    }
}

impl std::fmt::Debug for Parking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parking")
    }
}

impl Parking {
    /// One that is `plain`, or to which there is more.
    pub(super) fn new(plain: bool) -> Self {
        Self(Raw::new(!plain))
    }

    /// Takes it, if it is plain, nobody holds it and nobody sleeps for it.
    #[inline(always)]
    pub(super) fn try_acquire_plain(&self) -> bool {
        self.0.try_acquire_plain()
    }

    /// Gives it back, if it is plain and nobody sleeps for it.
    ///
    /// # Safety
    ///
    /// If it is plain, the caller holds it.
    #[inline(always)]
    pub(super) unsafe fn try_release_plain(&self) -> bool {
        self.0.try_release_plain()
    }

    /// Whether there is nothing more to it.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.0.is_plain()
    }

    /// For its holder (I2).
    pub(super) fn set_plain(&self, plain: bool) {
        self.0.set_plain(plain);
    }

    /// Whether nobody holds it.
    #[inline(always)]
    pub(super) fn is_free(&self) -> bool {
        self.0.is_free()
    }
}

impl Latch for Parking {
    #[inline(always)]
    unsafe fn acquire(&self, node: &QueueNode) {
        // SAFETY: nothing is kept in the node.
        if !unsafe { self.try_acquire(node) } {
            self.0.acquire();
        }
    }

    #[inline(always)]
    unsafe fn try_acquire(&self, _node: &QueueNode) -> bool {
        self.0.try_acquire()
    }

    #[inline(always)]
    unsafe fn release(&self, _node: &QueueNode) {
        self.0.release();
    }
}
