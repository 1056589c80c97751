//! Spins a little, then sleeps until woken.
//!
//! `parking_lot`'s raw mutex: one byte, an exchange to take it and one to give it back, and a
//! process-wide table of sleepers keyed by address. Under the model checker and the random scheduler,
//! which cannot see into it, a mutex and a condition variable stand in.
//!
//! # Orderings
//!
//! * O1  the unlocking of `parking_lot` (Release) to the fence in `is_free` (Acquire), which follows a load
//!   that `parking_lot` makes Relaxed: an elided pass, which takes nothing, sees what the last holder wrote.
//!   ThreadSanitizer knows of no fences; for it, who unlocks first writes a word, which who asks then reads.
//!   To take the latch and give it back would not do: others who ask meanwhile would find it held by nobody
//!   who passes it, and an elided pass that ends then would give back what it never took.

use super::Latch;
use super::queue::Node;

#[cfg(not(any(loom, shuttle)))]
mod raw {
    #[cfg(foxton_tsan)]
    use crate::shim::AtomicU8;
    use crate::shim::{Ordering, fence};
    use parking_lot::lock_api::RawMutex as _;

    #[derive(Default)]
    pub(super) struct Raw {
        inner: Inner,
        #[cfg(foxton_tsan)]
        unlocked: AtomicU8,
    }

    struct Inner(parking_lot::RawMutex);

    impl Default for Inner {
        fn default() -> Self {
            Self(parking_lot::RawMutex::INIT)
        }
    }

    impl Raw {
        #[inline(always)]
        pub(super) fn lock(&self) {
            self.inner.0.lock();
        }

        #[inline(always)]
        pub(super) fn try_lock(&self) -> bool {
            self.inner.0.try_lock()
        }

        #[inline(always)]
        pub(super) fn is_free(&self) -> bool {
            let free = !self.inner.0.is_locked();
            fence(Ordering::Acquire); // O1
            #[cfg(foxton_tsan)]
            self.unlocked.load(Ordering::Acquire); // O1
            free
        }

        /// # Safety
        ///
        /// The caller has locked it.
        #[inline(always)]
        pub(super) unsafe fn unlock(&self) {
            #[cfg(foxton_tsan)]
            self.unlocked.store(1, Ordering::Release); // O1
            // SAFETY: passed on to the caller.
            unsafe { self.inner.0.unlock() }
        }
    }
}

#[cfg(any(loom, shuttle))]
mod raw {
    use crate::shim::{Condvar, Mutex, lock};

    pub(super) struct Raw {
        held: Mutex<bool>,
        freed: Condvar,
    }

    impl Default for Raw {
        fn default() -> Self {
            Self {
                held: Mutex::new(false),
                freed: Condvar::new(),
            }
        }
    }

    impl Raw {
        pub(super) fn lock(&self) {
            let mut held = lock(&self.held);
            while *held {
                held = self.freed.wait(held).expect("nobody panics holding it");
            }
            *held = true;
        }

        pub(super) fn try_lock(&self) -> bool {
            !std::mem::replace(&mut *lock(&self.held), true)
        }

        pub(super) fn is_free(&self) -> bool {
            !*lock(&self.held)
        }

        /// # Safety
        ///
        /// The caller has locked it.
        pub(super) unsafe fn unlock(&self) {
            *lock(&self.held) = false;
            self.freed.notify_one();
        }
    }
}

/// Sleeps while somebody else holds it.
#[derive(Default)]
pub(super) struct Parking(raw::Raw);

impl std::fmt::Debug for Parking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parking")
    }
}

impl Parking {
    /// Whether nobody holds it.
    #[inline(always)]
    pub(super) fn is_free(&self) -> bool {
        self.0.is_free()
    }
}

impl Latch for Parking {
    #[inline(always)]
    unsafe fn acquire(&self, _node: &Node) {
        self.0.lock();
    }

    #[inline(always)]
    unsafe fn try_acquire(&self, _node: &Node) -> bool {
        self.0.try_lock()
    }

    #[inline(always)]
    unsafe fn release(&self, _node: &Node) {
        // SAFETY: the caller holds the latch.
        unsafe { self.0.unlock() }
    }
}
