//! Waiting that does not burn a time slice.
//!
//! A thread that waits for one that runs on another core should spin: the wait is over within a few
//! hundred nanoseconds. A thread that waits for one that does not run should give up its core,
//! because that may be the very core the other needs. No thread can tell which case it is in, so
//! every wait here spins a bounded while, twice as long each time, and then yields for ever.

use crate::shim::thread;

/// Steps that spin before the first yield: 1 + 2 + .. + 64 pauses, about two microseconds.
const SPIN_STEPS: u32 = 7;

/// State of one wait.
///
/// ```
/// use foxton_sync::backoff::Backoff;
///
/// let mut rounds = 0;
/// let mut backoff = Backoff::new();
/// while !backoff.is_yielding() {
///     backoff.snooze();
///     rounds += 1;
/// }
/// assert!(rounds < 20);
/// ```
#[derive(Debug, Default)]
pub struct Backoff {
    step: u32,
}

impl Backoff {
    /// Returns a wait that has not begun.
    #[inline]
    pub const fn new() -> Self {
        Self { step: 0 }
    }

    /// Waits a little: spins at first, yields the core once spinning has not helped.
    #[inline]
    pub fn snooze(&mut self) {
        // A model has no time: spinning would only repeat the same state.
        if cfg!(loom) || self.is_yielding() {
            thread::yield_now();
            return;
        }
        for _ in 0..1u32 << self.step {
            crate::shim::hint::spin_loop();
        }
        self.step += 1;
    }

    /// True if spinning is over and every further step yields.
    #[inline]
    pub const fn is_yielding(&self) -> bool {
        self.step >= SPIN_STEPS
    }
}
