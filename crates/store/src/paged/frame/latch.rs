//! Page latch: readers validate a version, share the latch, or hold it alone.
//!
//! An *optimistic* reader writes nothing: it reads the version, then the page, then checks that
//! the version is the same. A *shared* holder keeps writers out, for long copies and after repeated
//! failures. An *exclusive* holder changes the page. Threads that wait park, because a holder may
//! sleep: a writer may have to wait for log space.
//!
//! # State
//!
//! ```text
//!  bit 0        HELD      a thread holds the latch alone
//!  bit 1        PARKED    threads sleep for it, or are about to
//!  bits 2..12   number of shared holders, at most 1,023
//!  bits 12..64  version
//! ```
//!
//! # Invariants
//!
//! * I1  HELD and the number of shared holders are never both set. Either is raised from a word
//!   without HELD and, for HELD, without shared holders, by a compare-and-exchange on the whole
//!   word.
//! * I2  An exclusive hold that may have written ends with a larger version. The version changes at
//!   no other time: readers that share the latch, or threads that park, disturb no optimistic
//!   reader.
//! * I3  PARKED is set only by a thread that has the mutex of the latch's bucket, and only while
//!   the latch cannot be acquired. The release that makes the latch free clears it, then locks that
//!   mutex, and wakes all threads of the bucket. So a thread that sleeps is woken: it set PARKED,
//!   or found it set, under the mutex, and keeps the mutex until it sleeps.
//! * I4  While PARKED is set no thread enters shared. So readers that come and go do not keep a
//!   writer out. A thread that shares the latch must not share it a second time.
//!
//! # Orderings
//!
//! * O1  `unlock` (Release) to `version` (Acquire): a thread that reads version v sees all that was
//!   written up to v.
//! * O2  the fence in `hold` (Release) to the fence in `unchanged_since` (Acquire). A reader that
//!   saw a word of a later version sees HELD or the later version too, and discards what it read.
//! * O3  `unlock` (Release) to `lock`, and to `lock_shared` (Acquire): a holder sees what earlier
//!   exclusive holders wrote.
//! * O4  `unlock_shared` (Release) to `lock` (Acquire): the reads of a shared holder come before
//!   the next writes. Shared holders leave by read-modify-writes, so the last of them passes on
//!   what the others released.
//!
//! * O5  the fence in `order_scans`, between latching a page and reading versions of others, to the
//!   same fence between reading pages and validating several of them. Of a holder and a validator,
//!   either the validator sees the latch held, or the holder sees all that the validator saw.
//!   `SeqCst`, because each side writes (or has read what a third wrote) and then reads elsewhere;
//!   acquire and release do not order that.
//!
//! The words of a page are relaxed atomics: a reader may overlap a writer.
//!
//! Parking orders nothing: threads that wake acquire the latch as others do.
//!
//! A version has 52 bits. An optimistic reader would be deceived if it slept for exactly 2^52
//! changes of one frame, which take decades.

use std::fmt;
use std::ptr;

use foxton_sync::backoff::Backoff;
use foxton_sync::shim::{self, AtomicU64, Condvar, Mutex, Ordering, fence};

const HELD: u64 = 1;
const PARKED: u64 = 2;
const SHARED: u64 = 4;
const SHARED_MASK: u64 = 0xffc;
const VERSION: u64 = 1 << 12;
const VERSION_MASK: u64 = !0xfff;

/// Latch of a page. Waiters park at the [`LatchWaiters`] that are passed along.
///
/// ```
/// use foxton_store::paged::frame::{LatchWaiters, PageLatch};
///
/// let (latch, waiters) = (PageLatch::default(), LatchWaiters::default());
/// let seen = latch.version().expect("no thread writes");
/// assert!(latch.try_lock_shared());
/// assert!(latch.unchanged_since(seen), "readers disturb no readers");
/// assert!(!latch.try_lock_at(seen), "a reader is in");
/// latch.unlock_shared(&waiters);
///
/// assert!(latch.try_lock_at(seen));
/// assert!(latch.version().is_none());
/// latch.unlock(&waiters);
/// assert!(!latch.unchanged_since(seen));
/// assert!(!latch.try_lock_at(seen), "the page has changed");
/// ```
#[derive(Default)]
pub struct PageLatch(AtomicU64);

/// Version of a page that a reader saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageVersion(u64);

impl fmt::Debug for PageLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word();
        f.debug_struct("PageLatch")
            .field("is_held", &(word & HELD != 0))
            .field("shared_holders", &((word & SHARED_MASK) / SHARED))
            .field("version", &(word / VERSION))
            .finish()
    }
}

impl PageLatch {
    fn word(&self) -> u64 {
        // Relaxed: an exchange decides, or nothing does.
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the version, or `None` while a thread holds the latch alone.
    #[inline]
    pub fn version(&self) -> Option<PageVersion> {
        let word = self.0.load(Ordering::Acquire); // O1
        (word & HELD == 0).then_some(PageVersion(word & VERSION_MASK))
    }

    /// True if everything that was read since `seen` belongs to that version.
    #[inline]
    pub fn unchanged_since(&self, seen: PageVersion) -> bool {
        fence(Ordering::Acquire); // O2
        self.word() & (VERSION_MASK | HELD) == seen.0
    }

    /// Acquires the latch alone if the page still is at `seen` and no thread shares the latch.
    /// Never waits.
    #[inline]
    pub fn try_lock_at(&self, seen: PageVersion) -> bool {
        let word = self.word();
        word & VERSION_MASK == seen.0 && self.hold(word)
    }

    /// Acquires the latch alone if it is free. Never waits.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.hold(self.word())
    }

    /// Acquires the latch alone. Parks while other threads have it.
    pub fn lock(&self, waiters: &LatchWaiters) {
        let mut backoff = Backoff::new();
        while !self.try_lock() {
            self.wait(waiters, &mut backoff, HELD | SHARED_MASK);
        }
    }

    #[inline]
    fn hold(&self, word: u64) -> bool {
        if word & (HELD | SHARED_MASK) != 0 {
            return false;
        }
        let exchange = self.0.compare_exchange(
            word,
            word | HELD,
            Ordering::Acquire, // O3, O4
            Ordering::Relaxed,
        );
        if exchange.is_ok() {
            fence(Ordering::Release); // O2
        }
        exchange.is_ok()
    }

    /// Releases the latch and publishes what was written.
    ///
    /// # Panics
    ///
    /// If no thread holds the latch alone.
    #[inline]
    pub fn unlock(&self, waiters: &LatchWaiters) {
        self.end_hold(waiters, VERSION);
    }

    /// Releases the latch after a hold that wrote nothing to the page: readers validate on.
    ///
    /// # Panics
    ///
    /// If no thread holds the latch alone.
    #[inline]
    pub fn unlock_unchanged(&self, waiters: &LatchWaiters) {
        self.end_hold(waiters, 0);
    }

    #[inline]
    fn end_hold(&self, waiters: &LatchWaiters, step: u64) {
        let mut word = self.word();
        assert!(word & HELD != 0, "a thread holds the latch");
        loop {
            // I2. A version that has no bits left begins again.
            let free = (word & VERSION_MASK).wrapping_add(step);
            let exchange = self.0.compare_exchange_weak(
                word,
                free,
                Ordering::Release, // O1, O3
                Ordering::Relaxed,
            );
            match exchange {
                Ok(_) => break,
                // Only PARKED can have changed.
                Err(now) => word = now,
            }
        }
        if word & PARKED != 0 {
            waiters.wake(self);
        }
    }

    /// Shares the latch, unless a thread holds it alone or threads are parked. Never waits.
    #[inline]
    pub fn try_lock_shared(&self) -> bool {
        let mut word = self.word();
        loop {
            if word & (HELD | PARKED) != 0 || word & SHARED_MASK == SHARED_MASK {
                return false;
            }
            let exchange = self.0.compare_exchange_weak(
                word,
                word + SHARED,
                Ordering::Acquire, // O3
                Ordering::Relaxed,
            );
            match exchange {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Shares the latch. Parks while it cannot.
    pub fn lock_shared(&self, waiters: &LatchWaiters) {
        let mut backoff = Backoff::new();
        while !self.try_lock_shared() {
            self.wait(waiters, &mut backoff, HELD);
        }
    }

    /// Ends a shared hold.
    ///
    /// # Panics
    ///
    /// If no thread shares the latch.
    pub fn unlock_shared(&self, waiters: &LatchWaiters) {
        let mut word = self.word();
        let last = loop {
            assert!(word & SHARED_MASK != 0, "a thread shares the latch");
            let mut next = word - SHARED;
            if next & SHARED_MASK == 0 {
                next &= !PARKED;
            }
            let exchange = self.0.compare_exchange_weak(
                word,
                next,
                Ordering::Release, // O4
                Ordering::Relaxed,
            );
            match exchange {
                Ok(_) => break word & PARKED != 0 && next & PARKED == 0,
                Err(now) => word = now,
            }
        };
        if last {
            waiters.wake(self);
        }
    }

    /// Spins a bounded while, then parks until the latch was released.
    #[cold]
    fn wait(&self, waiters: &LatchWaiters, backoff: &mut Backoff, blocking: u64) {
        if backoff.is_yielding() || cfg!(loom) {
            waiters.park(self, blocking);
            return;
        }
        backoff.snooze();
    }

    /// Sets PARKED if the latch cannot be acquired now because of the bits `blocking`. For threads
    /// that have the mutex of its bucket (I3).
    fn announce(&self, blocking: u64) -> bool {
        let mut word = self.word();
        loop {
            let is_full = word & SHARED_MASK == SHARED_MASK;
            if word & (blocking | PARKED) == 0 && !is_full {
                return false;
            }
            if word & PARKED != 0 {
                return true;
            }
            // Relaxed: the mutex orders sleeping and waking.
            let exchange = self.0.compare_exchange_weak(
                word,
                word | PARKED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match exchange {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }
}

/// Orders everything before it before everything after it, among all threads that call it. For
/// threads that latch a page and then compare others, and for those that validate several pages.
#[inline]
pub fn order_scans() {
    fence(Ordering::SeqCst); // O5
}

/// Number of buckets: few threads wait for page latches at a time.
const BUCKETS: usize = if cfg!(loom) { 1 } else { 64 };

/// Threads that wait for page latches, in buckets by the address of the latch.
#[derive(Debug)]
pub struct LatchWaiters {
    buckets: Box<[WaitBucket]>,
}

#[derive(Debug)]
struct WaitBucket {
    mutex: Mutex<()>,
    wakeup: Condvar,
}

impl Default for LatchWaiters {
    fn default() -> Self {
        let buckets = (0..BUCKETS).map(|_| WaitBucket {
            mutex: Mutex::new(()),
            wakeup: Condvar::new(),
        });
        Self {
            buckets: buckets.collect(),
        }
    }
}

impl LatchWaiters {
    fn bucket(&self, latch: &PageLatch) -> &WaitBucket {
        let address = ptr::from_ref(latch).addr();
        &self.buckets[(address / size_of::<PageLatch>()) % self.buckets.len()]
    }

    /// Sleeps until the latch was released, or for no reason.
    fn park(&self, latch: &PageLatch, blocking: u64) {
        let bucket = self.bucket(latch);
        let guard = shim::lock(&bucket.mutex);
        if latch.announce(blocking) {
            // A poisoned mutex protects nothing here.
            drop(bucket.wakeup.wait(guard));
        }
    }

    /// Wakes all threads of the latch's bucket.
    #[cold]
    fn wake(&self, latch: &PageLatch) {
        let bucket = self.bucket(latch);
        drop(shim::lock(&bucket.mutex));
        bucket.wakeup.notify_all();
    }
}
