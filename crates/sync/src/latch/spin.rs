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
//! * O1  `release` (Release) to the exchange in `take` (Acquire): the next holder sees what the last
//!   one wrote.
//! * O2  `release` (Release) to `is_free` (Acquire): so does an elided pass, which takes nothing.
//!
//! # Differences from the paper
//!
//! Test-and-set spins for ever in the books. With more threads than cores that means to spin for as
//! long as the holder is kept off its core, so both give up the core after about two microseconds.

use super::Latch;
use super::queue::Node;
use crate::backoff::Backoff;
use crate::shim::{AtomicBool, Ordering, hint, thread};

/// One flag, and how to wait for it.
#[derive(Debug)]
pub(super) struct Spin {
    flag: AtomicBool,
    looks: bool,
}

/// How a waiter passes its time.
trait Wait {
    /// Waits a little. Returns whether to try for the flag now.
    fn step(&mut self, flag: &AtomicBool) -> bool;
}

impl Latch for Spin {
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
        self.flag.store(false, Ordering::Release); // O1, O2
    }
}

impl Spin {
    /// Test-and-set: every look at the flag is an exchange, and takes the cache line away from the
    /// holder.
    pub(super) fn tas() -> Self {
        Self {
            flag: AtomicBool::new(false),
            looks: false,
        }
    }

    /// Test and test-and-set: waiters read, which leaves the line with the holder, and read less often
    /// the longer they wait.
    pub(super) fn tas_t() -> Self {
        Self {
            looks: true,
            ..Self::tas()
        }
    }

    /// Whether nobody holds it.
    #[inline(always)]
    pub(super) fn is_free(&self) -> bool {
        !self.flag.load(Ordering::Acquire) // O2
    }

    #[inline(always)]
    fn take(&self) -> bool {
        !self.flag.swap(true, Ordering::Acquire) // O1
    }

    #[cold]
    fn spin(&self) {
        match self.looks {
            true => self.wait(Looking::default()),
            false => self.wait(Blindly::default()),
        }
    }

    fn wait(&self, mut wait: impl Wait) {
        while !(wait.step(&self.flag) && self.take()) {}
    }
}

/// Tries each time, and gives up the core every so many tries.
#[derive(Default)]
struct Blindly {
    tries: u32,
}

impl Blindly {
    /// Exchanges a waiter tries between two yields.
    const TRIES: u32 = if cfg!(loom) { 1 } else { 64 };
}

impl Wait for Blindly {
    #[inline]
    fn step(&mut self, _flag: &AtomicBool) -> bool {
        if self.tries == Self::TRIES {
            thread::yield_now();
            self.tries = 0;
        }
        hint::spin_loop();
        self.tries += 1;
        true
    }
}

/// Looks before it tries.
#[derive(Default)]
struct Looking {
    backoff: Backoff,
}

impl Wait for Looking {
    #[inline]
    fn step(&mut self, flag: &AtomicBool) -> bool {
        self.backoff.snooze();
        // Relaxed: a hint; the exchange decides.
        !flag.load(Ordering::Relaxed)
    }
}
