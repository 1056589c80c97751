//! Exclusion of transactions: replaces the processor where transactions only need to be seen to
//! happen one after the other.

use crate::htm::Abort;
use crate::htm::backend::BUSY;
use crate::latch::Latch;
use crate::latch::parking::Parking;
use crate::latch::queue::QueueNode;

/// One thread at a time is inside.
#[derive(Debug, Default)]
pub(super) struct Exclusion(Parking);

impl Exclusion {
    /// Enters, once no other thread is inside.
    pub(super) fn enter(&self) {
        // SAFETY: this latch keeps nothing in its node, here and below.
        unsafe { self.0.acquire(&QueueNode::new()) }
    }

    /// Enters if no thread is inside.
    #[cfg(feature = "emulated")]
    pub(super) fn try_enter(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.0.try_acquire(&QueueNode::new()) }
    }

    /// # Safety
    ///
    /// The caller has entered.
    pub(super) unsafe fn leave(&self) {
        // SAFETY: passed on to the caller.
        unsafe { self.0.release(&QueueNode::new()) }
    }

    /// Stays inside if `free`.
    ///
    /// # Safety
    ///
    /// The caller has entered; after an error it has left.
    pub(super) unsafe fn stay(&self, free: impl FnOnce() -> bool) -> Result<(), Abort> {
        if free() {
            return Ok(());
        }
        // SAFETY: passed on to the caller.
        unsafe { self.leave() };
        Err(Abort::explicit(BUSY))
    }

    /// Calls `take` while inside.
    pub(super) fn with<R>(&self, take: impl FnOnce() -> R) -> R {
        self.enter();
        let taken = take();
        // SAFETY: we have entered above.
        unsafe { self.leave() };
        taken
    }
}
