//! The only door to atomics, cells, mutexes and threads.
//!
//! Built normally, everything here is std's. Built with `--cfg loom`, everything is the model
//! checker's, so that one source is both the program and its model. Concurrent code in this
//! workspace imports from here and nowhere else; `tidy` reads the sources and checks that. Built
//! with `--cfg shuttle`, everything belongs to a scheduler that runs one thread at a time and picks
//! the next at random. That scheduler ignores orderings, but histories may be long.
//!
//! This module hides the differences between the three. `UnsafeCell` has the closure form of the
//! model checker. Under both checkers `thread::park_timeout` is a yield, because neither has time.

#[cfg(not(loom))]
mod cell {
    /// A cell whose content may be changed through a shared reference, by a caller that has
    /// exclusive access.
    ///
    /// ```
    /// use foxton_sync::shim::UnsafeCell;
    ///
    /// let cell = UnsafeCell::new(1);
    /// // SAFETY: the cell is not shared.
    /// cell.with_mut(|value| unsafe { *value += 1 });
    /// assert_eq!(cell.into_inner(), 2);
    /// ```
    #[derive(Debug, Default)]
    pub struct UnsafeCell<T: ?Sized>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// Returns a cell with `value`.
        pub const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Returns the content.
        pub fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }

    impl<T: ?Sized> UnsafeCell<T> {
        /// Calls `read` with a pointer to the content; it may read while no thread writes.
        #[inline(always)]
        pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// Calls `write` with a pointer to the content; it may write while no other thread reads or
        /// writes.
        #[inline(always)]
        pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

/// Types that the model checker does not see. The atomics are for hints and counts whose values
/// decide nothing. The cell is for byte ranges of arbitrary size, which the checker's cell cannot
/// hold.
pub mod unmodelled {
    pub use std::cell::UnsafeCell;
    pub use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
}

#[cfg(not(any(loom, shuttle)))]
mod real {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32,
        AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub use std::sync::{Arc, Condvar, Mutex, MutexGuard};

    /// Keeps the compiler from moving accesses across; the processor may move them.
    #[inline(always)]
    pub fn compiler_barrier() {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    /// Hints to the processor.
    pub mod hint {
        pub use std::hint::spin_loop;
    }

    /// Threads.
    pub mod thread {
        pub use std::thread::{JoinHandle, Thread, current, park, park_timeout, spawn, yield_now};
    }

    pub use super::cell::UnsafeCell;
}

#[cfg(loom)]
mod real {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32,
        AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};

    /// A model has no compiler that moves accesses: a fence.
    pub fn compiler_barrier() {
        fence(Ordering::SeqCst);
    }

    /// Hints to the processor.
    pub mod hint {
        pub use loom::hint::spin_loop;
    }

    /// Threads.
    ///
    /// The checker's own `unpark` ends any wait of its thread, also for a mutex or a join, which no
    /// real `unpark` does. So a thread here parks at a notification of its own.
    pub mod thread {
        use loom::sync::{Arc, Notify};
        pub use loom::thread::{JoinHandle, spawn, yield_now};

        loom::thread_local! {
            static HERE: Thread = Thread(Arc::new(Notify::new()));
        }

        /// A handle to wake a thread by.
        #[derive(Debug, Clone)]
        pub struct Thread(Arc<Notify>);

        impl Thread {
            /// Ends the thread's present park, or its next.
            pub fn unpark(&self) {
                self.0.notify();
            }
        }

        /// Returns the calling thread.
        pub fn current() -> Thread {
            HERE.with(Thread::clone)
        }

        /// Sleeps until unparked.
        pub fn park() {
            current().0.wait();
        }

        /// A model has no time: every timeout may pass at once.
        pub fn park_timeout(_timeout: std::time::Duration) {
            yield_now();
        }
    }
}

#[cfg(shuttle)]
mod real {
    pub use shuttle::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32,
        AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};

    pub use super::cell::UnsafeCell;

    /// One thread runs at a time, and no access is moved across a switch.
    pub fn compiler_barrier() {}

    /// Hints to the processor: here, to the scheduler.
    pub mod hint {
        pub use shuttle::hint::spin_loop;
    }

    /// Threads.
    pub mod thread {
        pub use shuttle::thread::{JoinHandle, Thread, current, park, spawn, yield_now};

        /// A schedule has no time: every timeout may pass at once.
        pub fn park_timeout(_timeout: std::time::Duration) {
            yield_now();
        }
    }
}

pub use real::*;

/// Locks `mutex`, whether or not a thread panicked while it held it.
///
/// For state that is whole after every statement, which is the only kind that mutexes protect here.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns the content of a mutex that is not shared, without locking it.
pub fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex
        .get_mut()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks `mutex` if it is free. Never waits.
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}
