//! The real latch under an elided one.
//!
//! # Orderings
//!
//! None of its own: a transaction that finds the latch free sees what its last holder wrote (O2 of
//! `spin`, O1 of `parking`).

use crate::latch::Latch;
use crate::latch::parking::Parking;
use crate::latch::queue::QueueNode;
use crate::latch::spin::SpinLatch;
#[cfg(all(test, not(loom)))]
use crate::shim::{Mutex, lock};
#[cfg(all(test, not(loom)))]
use std::collections::VecDeque;

/// A latch that can be checked for being held.
#[derive(Debug, Clone, Copy)]
pub(super) enum RealLatch<'a> {
    /// The document's [001 §2.4].
    Spin(&'a SpinLatch),
    /// As under the elision of the C library.
    Parking(&'a Parking),
    /// For tests: each check finds it free or not, by script, and free after the script. Waiters
    /// would sleep.
    #[cfg(all(test, not(loom)))]
    Scripted(&'a Mutex<VecDeque<bool>>),
}

impl RealLatch<'_> {
    /// True if it is free.
    #[inline(always)]
    pub(super) fn is_free(self) -> bool {
        match self {
            Self::Spin(latch) => latch.is_free(),
            Self::Parking(latch) => latch.is_free(),
            #[cfg(all(test, not(loom)))]
            Self::Scripted(looks) => lock(looks).pop_front().unwrap_or(true),
        }
    }

    /// True if its waiters sleep.
    pub(super) fn sleeps(self) -> bool {
        !matches!(self, Self::Spin(_))
    }

    #[inline(always)]
    pub(super) fn try_acquire(self, node: &QueueNode) -> bool {
        match self {
            // SAFETY: neither keeps anything in the node, here and below.
            Self::Spin(latch) => unsafe { latch.try_acquire(node) },
            // SAFETY: as above.
            Self::Parking(latch) => unsafe { latch.try_acquire(node) },
            #[cfg(all(test, not(loom)))]
            Self::Scripted(_) => true,
        }
    }

    #[inline(always)]
    pub(super) fn acquire(self, node: &QueueNode) {
        match self {
            // SAFETY: as in `try_acquire`.
            Self::Spin(latch) => unsafe { latch.acquire(node) },
            // SAFETY: as above.
            Self::Parking(latch) => unsafe { latch.acquire(node) },
            #[cfg(all(test, not(loom)))]
            Self::Scripted(_) => {}
        }
    }

    /// # Safety
    ///
    /// The caller holds it.
    #[inline(always)]
    pub(super) unsafe fn release(self, node: &QueueNode) {
        match self {
            // SAFETY: passed on to the caller.
            Self::Spin(latch) => unsafe { latch.release(node) },
            // SAFETY: as above.
            Self::Parking(latch) => unsafe { latch.release(node) },
            #[cfg(all(test, not(loom)))]
            Self::Scripted(_) => {}
        }
    }
}
