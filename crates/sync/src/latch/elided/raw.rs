//! The latch that is taken when elision does not come about.
//!
//! # Orderings
//!
//! None of its own: a transaction that finds the latch free sees what its last holder wrote (O2 of `spin`, O1
//! of `parking`).

use super::Policy;
use crate::latch::Latch;
use crate::latch::parking::Parking;
use crate::latch::queue::Node;
use crate::latch::spin::TasT;
#[cfg(all(test, not(loom)))]
use crate::shim::{Mutex, lock};
#[cfg(all(test, not(loom)))]
use std::collections::VecDeque;

/// One of those latches that can be asked whether they are held.
#[derive(Debug)]
pub(super) enum Raw {
    /// The document's [001 §2.4].
    TasT(TasT),
    /// As under the elision of the C library.
    Parking(Parking),
    /// For tests: each look finds it free or not, by script, and then free. Waiters would sleep.
    #[cfg(all(test, not(loom)))]
    Told(Mutex<VecDeque<bool>>),
}

impl Raw {
    pub(super) fn under(policy: Policy) -> Self {
        match policy {
            Policy::Once | Policy::Retry100 => Self::TasT(TasT::default()),
            Policy::Cooldown | Policy::Adaptive => Self::Parking(Parking::default()),
        }
    }

    /// Whether nobody holds it.
    #[inline(always)]
    pub(super) fn is_free(&self) -> bool {
        match self {
            Self::TasT(latch) => latch.is_free(),
            Self::Parking(latch) => latch.is_free(),
            #[cfg(all(test, not(loom)))]
            Self::Told(looks) => lock(looks).pop_front().unwrap_or(true),
        }
    }

    /// Whether who waits for it sleeps.
    pub(super) fn sleeps(&self) -> bool {
        !matches!(self, Self::TasT(_))
    }

    #[inline(always)]
    pub(super) fn try_acquire(&self, node: &Node) -> bool {
        match self {
            // SAFETY: neither keeps anything in the node, here and below.
            Self::TasT(latch) => unsafe { latch.try_acquire(node) },
            // SAFETY: as above.
            Self::Parking(latch) => unsafe { latch.try_acquire(node) },
            #[cfg(all(test, not(loom)))]
            Self::Told(_) => true,
        }
    }

    #[inline(always)]
    pub(super) fn acquire(&self, node: &Node) {
        match self {
            // SAFETY: as in `try_acquire`.
            Self::TasT(latch) => unsafe { latch.acquire(node) },
            // SAFETY: as above.
            Self::Parking(latch) => unsafe { latch.acquire(node) },
            #[cfg(all(test, not(loom)))]
            Self::Told(_) => {}
        }
    }

    /// # Safety
    ///
    /// The caller holds it.
    #[inline(always)]
    pub(super) unsafe fn release(&self, node: &Node) {
        match self {
            // SAFETY: passed on to the caller.
            Self::TasT(latch) => unsafe { latch.release(node) },
            // SAFETY: as above.
            Self::Parking(latch) => unsafe { latch.release(node) },
            #[cfg(all(test, not(loom)))]
            Self::Told(_) => {}
        }
    }
}
