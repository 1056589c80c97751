//! Clocks: exact, or cheap.
//!
//! `now` reads the processor's counter and costs some 20 ns. `coarse_now` reads the kernel's time
//! of its last tick: a few nanoseconds, and up to a tick (1 to 10 ms) behind. Measured waits use
//! the exact clock, because waiting is expensive anyway; ages and rare checks use the cheap one.
//!
//! Code that waits for a time asks the [`Clock`](crate::clock::Clock) of its database instead,
//! which a test can set forward (with the feature `hooks`): an hour's interval then passes at once,
//! and does not pass before.

use std::time::{Duration, Instant};

/// The clock of one database. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Clock(#[cfg(feature = "hooks")] offset::Offset);

// Without the feature it takes no space.
#[cfg(not(feature = "hooks"))]
const _: () = assert!(size_of::<Clock>() == 0);

#[cfg(not(feature = "hooks"))]
impl Clock {
    /// Returns the time.
    #[inline(always)]
    pub fn now(&self) -> Instant {
        now()
    }

    /// Returns how long to sleep now to be awake when `left` has passed.
    #[inline(always)]
    pub fn sleep_time(&self, left: Duration) -> Duration {
        left
    }
}

#[cfg(feature = "hooks")]
mod offset {
    use super::{Clock, now};
    use crate::shim::{Arc, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    /// Nanoseconds by which the clock is ahead.
    pub(super) type Offset = Arc<AtomicU64>;

    /// A sleeping thread wakes this often to read the clock, which a test may have set.
    const MAX_SLEEP: Duration = Duration::from_millis(1);

    impl Clock {
        /// Returns the time.
        pub fn now(&self) -> Instant {
            // Relaxed: a number, which leads to no memory.
            now() + Duration::from_nanos(self.0.load(Ordering::Relaxed))
        }

        /// Returns how long to sleep now to be awake when `left` has passed.
        pub fn sleep_time(&self, left: Duration) -> Duration {
            left.min(MAX_SLEEP)
        }

        /// Sets the clock forward.
        pub fn advance(&self, by: Duration) {
            let nanos = u64::try_from(by.as_nanos()).expect("less than five centuries");
            self.0.fetch_add(nanos, Ordering::Relaxed);
        }
    }
}

/// Returns the exact time.
#[inline]
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the time of the last tick, at most some 10 ms ago.
///
/// ```
/// use foxton_sync::clock::coarse_now;
/// use std::time::Duration;
///
/// let start = coarse_now();
/// std::thread::sleep(Duration::from_millis(30));
/// assert!(coarse_now().since(start) >= Duration::from_millis(10));
/// ```
#[inline]
pub fn coarse_now() -> CoarseInstant {
    CoarseInstant::now()
}

/// A point in time to within a tick; comparable only with others of its kind.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoarseInstant(u64);

#[cfg(any(target_os = "linux", target_os = "android"))]
impl CoarseInstant {
    #[inline]
    fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        // A monotonic clock counts from boot: neither part is ever negative.
        Self(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// Returns the time from `earlier` to this; zero if this was before.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A point in time to within a tick; comparable only with others of its kind.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoarseInstant(Instant);

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl CoarseInstant {
    #[inline]
    fn now() -> Self {
        Self(Instant::now())
    }

    /// Returns the time from `earlier` to this; zero if this was before.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}
