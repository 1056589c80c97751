//! Parking latch: spins a little, then sleeps until woken. It is also the front of every other
//! latch.
//!
//! The protocol is that of `parking_lot`'s raw mutex, over its process-wide table of sleepers keyed
//! by address (`parking_lot_core`). New is a mark: the latch is *extended*. A latch without the
//! mark is *plain*, and is passed by two exchanges, each after at most one read of the mark. So the
//! default kind pays nothing for the other kinds, and an adaptive latch has the same instructions
//! as this one while elision is not tried.
//!
//! Measurements decided what each exchange reads, and no more (`benches/parking.rs`):
//!
//! * While no latch of the process is extended, not even the mark
//!   (`SleeperTable::extended_latches`). A line that another thread has written is then fetched
//!   once, for writing, and not twice. Nor does the exchange read the state first, as
//!   `parking_lot`'s try does.
//! * The releasing exchange does not read the state either: a read of the byte that was just
//!   exchanged waits for the exchange, which is a fifth of a pass. One more mark to read, at either
//!   end, is a twentieth of a pass where other threads want the line.
//!
//! Under the random scheduler, and in models of the layers above, which cannot see sleepers of that
//! table, a mutex and a condition variable replace it (`standin`). The protocol itself has a model
//! with sleepers of its own (`model`).
//!
//! # State
//!
//! ```text
//!  HELD      a thread holds it                                           } one byte
//!  SLEEPERS  a thread sleeps for it, or is about to                      }
//!  extended  it is the front of another latch, or may be elided            another
//! ```
//!
//! # Invariants
//!
//! * I1  HELD is set by an exchange, and the thread that set it holds the latch; only the holder
//!   clears it. Or the holder leaves it set and hands the latch over to a sleeper.
//! * I2  `extended` changes only while the latch is held, by its holder; no thread passes a mere
//!   front. So a thread that acquired a plain latch finds it plain when it releases it, unless it
//!   has changed that.
//! * I3  SLEEPERS is set only while HELD is, and cleared only by the holder while it has the
//!   sleepers' queue locked. So a thread that sleeps, having seen both set under that lock, is seen
//!   by the holder that releases the latch.
//! * I4  Every extended latch is counted, from before it is extended until it is no longer, or is
//!   dropped. So no thread takes a mere front: a thread that can pass one got it after it was
//!   counted, and its own increment is in each later count. The count of an adaptive latch may be
//!   read late. A thread that then takes it for plain takes the real latch, which any pass may. An
//!   elided pass that then releases it as plain finds it free, so that the exchange fails and it
//!   looks further.

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

/// A latch for which waiters sleep.
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
    /// Returns a plain or an extended latch.
    pub(super) fn new(plain: bool) -> Self {
        Self(Raw::new(!plain))
    }

    /// Acquires it, if it is plain, free and without sleepers.
    #[inline(always)]
    pub(super) fn try_acquire_plain(&self) -> bool {
        self.0.try_acquire_plain()
    }

    /// Releases it, if it is plain and without sleepers.
    ///
    /// # Safety
    ///
    /// If it is plain, the caller holds it.
    #[inline(always)]
    pub(super) unsafe fn try_release_plain(&self) -> bool {
        self.0.try_release_plain()
    }

    /// True if it is not extended.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.0.is_plain()
    }

    /// For its holder (I2).
    pub(super) fn set_plain(&self, plain: bool) {
        self.0.set_plain(plain);
    }

    /// True if it is free.
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
