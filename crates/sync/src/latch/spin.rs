//! Spin latches: test-and-set, with and without testing first.
//!
//! # State
//!
//! One flag: a thread holds the latch.
//!
//! # Invariants
//!
//! * I1  The flag goes from false to true by an atomic exchange, and the thread whose exchange that
//!   was holds the latch; only the holder sets it back.
//!
//! # Orderings
//!
//! * O1  `release` (Release) to the exchange in `try_exchange` (Acquire): the next holder sees what
//!   the last one wrote.
//! * O2  `release` (Release) to `is_free` (Acquire): so does an elided pass, which takes nothing.
//!
//! # Differences from the paper
//!
//! Test-and-set spins for ever in the books. With more threads than cores it would spin for as long
//! as the holder is descheduled, so both kinds give up the core after about two microseconds.

use super::Latch;
use super::queue::QueueNode;
use crate::backoff::Backoff;
use crate::shim::{AtomicBool, Ordering, hint, thread};

/// One flag, and the way to wait for it.
#[derive(Debug)]
pub(super) struct SpinLatch {
    flag: AtomicBool,
    tests_first: bool,
}

/// The way a waiter spins.
trait SpinStrategy {
    /// Waits a little. Returns whether to try for the flag now.
    fn step(&mut self, flag: &AtomicBool) -> bool;
}

impl Latch for SpinLatch {
    #[inline(always)]
    unsafe fn acquire(&self, _node: &QueueNode) {
        // No test before the first exchange: an uncontended latch is free.
        if !self.try_exchange() {
            self.spin();
        }
    }

    #[inline(always)]
    unsafe fn try_acquire(&self, _node: &QueueNode) -> bool {
        self.try_exchange()
    }

    #[inline(always)]
    unsafe fn release(&self, _node: &QueueNode) {
        self.flag.store(false, Ordering::Release); // O1, O2
    }
}

impl SpinLatch {
    /// Test-and-set: every check of the flag is an exchange, and takes the cache line away from the
    /// holder.
    pub(super) fn tas() -> Self {
        Self {
            flag: AtomicBool::new(false),
            tests_first: false,
        }
    }

    /// Test and test-and-set: waiters read, which leaves the line with the holder, and read less
    /// often the longer they wait.
    pub(super) fn tas_t() -> Self {
        Self {
            tests_first: true,
            ..Self::tas()
        }
    }

    /// True if it is free.
    #[inline(always)]
    pub(super) fn is_free(&self) -> bool {
        !self.flag.load(Ordering::Acquire) // O2
    }

    #[inline(always)]
    fn try_exchange(&self) -> bool {
        !self.flag.swap(true, Ordering::Acquire) // O1
    }

    #[cold]
    fn spin(&self) {
        match self.tests_first {
            true => self.wait(TestFirst::default()),
            false => self.wait(BlindExchange::default()),
        }
    }

    fn wait(&self, mut wait: impl SpinStrategy) {
        while !(wait.step(&self.flag) && self.try_exchange()) {}
    }
}

/// Tries each time, and gives up the core every so many tries.
#[derive(Default)]
struct BlindExchange {
    tries: u32,
}

impl BlindExchange {
    /// Exchanges that a waiter tries between two yields.
    const TRIES: u32 = if cfg!(loom) { 1 } else { 64 };
}

impl SpinStrategy for BlindExchange {
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

/// Reads before it tries.
#[derive(Default)]
struct TestFirst {
    backoff: Backoff,
}

impl SpinStrategy for TestFirst {
    #[inline]
    fn step(&mut self, flag: &AtomicBool) -> bool {
        self.backoff.snooze();
        // Relaxed: a hint; the exchange decides.
        !flag.load(Ordering::Relaxed)
    }
}
