//! Test-and-set, with and without testing first.
//!
//! # State
//!
//! One flag: somebody holds the latch.
//!
//! # Invariants
//!
//! * I1  The flag goes from false to true by an atomic exchange, and whoever saw it go holds the
//!   latch; only the holder sets it back.
//!
//! # Orderings
//!
//! * O1  `release` (Release) to the exchange in `Tas` (Acquire): the next holder sees what the last
//!   one wrote.
//! * O2  the same for `TasT`.
//!
//! # Differences from the paper
//!
//! Test-and-set spins for ever in the books. With more threads than cores that means to spin for as
//! long as the holder is kept off its core, so both give up the core after about two microseconds.

use super::Latch;
use super::queue::Node;
use crate::backoff::Backoff;
use crate::shim::{AtomicBool, Ordering, hint, thread};

/// Exchanges a waiter tries between two yields.
const TRIES: u32 = if cfg!(loom) { 1 } else { 64 };

/// Test-and-set: every look at the flag is an exchange, and takes the cache line away from the
/// holder.
#[derive(Debug, Default)]
pub(super) struct Tas(AtomicBool);

impl Latch for Tas {
    #[inline(always)]
    unsafe fn acquire(&self, _node: &Node) {
        if !self.take() {
            self.spin();
        }
    }

    #[inline(always)]
    unsafe fn try_acquire(&self, _node: &Node) -> bool {
        self.take()
    }

    #[inline(always)]
    unsafe fn release(&self, _node: &Node) {
        self.0.store(false, Ordering::Release); // O1
    }
}

impl Tas {
    #[inline(always)]
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire) // O1
    }

    #[cold]
    fn spin(&self) {
        loop {
            for _ in 0..TRIES {
                hint::spin_loop();
                if self.take() {
                    return;
                }
            }
            thread::yield_now();
        }
    }
}

/// Test and test-and-set: waiters read, which leaves the line with the holder, and read less often
/// the longer they wait.
#[derive(Debug, Default)]
pub(super) struct TasT(AtomicBool);

impl Latch for TasT {
    #[inline(always)]
    unsafe fn acquire(&self, _node: &Node) {
        // No test before the first exchange: a latch that nobody fights over is free.
        if !self.take() {
            self.spin();
        }
    }

    #[inline(always)]
    unsafe fn try_acquire(&self, _node: &Node) -> bool {
        self.take()
    }

    #[inline(always)]
    unsafe fn release(&self, _node: &Node) {
        self.0.store(false, Ordering::Release); // O2
    }
}

impl TasT {
    #[inline(always)]
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire) // O2
    }

    #[cold]
    fn spin(&self) {
        let mut backoff = Backoff::new();
        loop {
            backoff.snooze();
            // Relaxed: a hint; the exchange decides.
            let held = self.0.load(Ordering::Relaxed);
            if !held && self.take() {
                return;
            }
        }
    }
}
