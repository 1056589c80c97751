//! Version latch: readers of a node never write its cache line.
//!
//! # State
//!
//! One word. Bit 0 says a writer holds the latch; bits 1..64 are the version.
//!
//! | bit 0 | meaning                                                         |
//! |-------|-----------------------------------------------------------------|
//! | 0     | free: the bytes are exactly version `word >> 1`                 |
//! | 1     | held: the bytes may be half of one version and half of the next |
//!
//! # Invariants
//!
//! * I1  Only the thread that set bit 0 clears it.
//! * I2  A hold that wrote ends with a larger version than it began with.
//!
//! # Orderings
//!
//! * O1  `unlock` (Release) to `version` (Acquire): a thread that sees version v sees every byte of
//!   v.
//! * O2  the fence in `try_lock` (Release) to the fence in `unchanged_since` (Acquire). A thread
//!   that read one byte of a version still being written sees bit 0, or a later version, and so
//!   does not trust what it read.
//!
//! The bytes themselves must be read and written through relaxed atomics: a reader may overlap a
//! writer, and a race with a plain write is undefined even if the reader discards what it read. For
//! the same reason the fences here are harmless to race detectors that do not understand fences:
//! between atomics there is no race to report.
//!
//! A version latch has eight bytes and so no site; the thread that takes it counts the passage.
//! Reading is no passage: it writes nothing shared.
//!
//! # Differences from the paper
//!
//! Leis et al., "The ART of Practical Synchronization", 2016, keeps an obsolete bit beside the lock
//! bit. We do not: a node taken out of use keeps its latch word, so its version still moves on.

use crate::backoff::Backoff;
use crate::shim::{AtomicU64, Ordering, fence};

const HELD: u64 = 1;

/// A latch whose readers validate instead of writing.
///
/// ```
/// use foxton_sync::latch::VersionLatch;
///
/// let latch = VersionLatch::default();
/// let seen = latch.version().expect("no writer holds it");
/// assert!(latch.unchanged_since(seen));
/// assert!(latch.try_lock(seen));
/// assert!(latch.version().is_none());
/// latch.unlock();
/// assert!(!latch.unchanged_since(seen));
/// ```
#[derive(Debug, Default)]
pub struct VersionLatch(AtomicU64);

/// The version that a reader saw; compare it again before trusting what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(u64);

// The latch shares a cache line with what it protects; a second word would not fit.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<VersionLatch>() == 8);

impl VersionLatch {
    /// Returns the current version, or `None` while a writer holds the latch.
    #[inline]
    pub fn version(&self) -> Option<Version> {
        let word = self.0.load(Ordering::Acquire); // O1
        (word & HELD == 0).then_some(Version(word))
    }

    /// Returns the current version, once no writer holds the latch: spins a bounded while, then
    /// yields.
    #[inline]
    pub fn await_version(&self) -> Version {
        self.version().unwrap_or_else(|| self.wait())
    }

    /// True if everything read since `seen` belongs to that one version.
    #[inline]
    pub fn unchanged_since(&self, seen: Version) -> bool {
        fence(Ordering::Acquire); // O2
        self.0.load(Ordering::Relaxed) == seen.0
    }

    /// Takes the latch if it still is at `seen`. Never waits.
    #[inline]
    pub fn try_lock(&self, seen: Version) -> bool {
        let held = seen.0 | HELD;
        // Relaxed: `seen` came from an Acquire load of this word (O1) and no version returns.
        let won = self
            .0
            .compare_exchange(seen.0, held, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if won {
            fence(Ordering::Release); // O2
        }
        won
    }

    /// Takes the latch, whatever its version: spins a bounded while, then yields. Returns the
    /// version it had.
    #[inline]
    pub fn lock(&self) -> Version {
        let mut backoff = Backoff::new();
        loop {
            let seen = self.await_version();
            if self.try_lock(seen) {
                return seen;
            }
            backoff.snooze();
        }
    }

    /// Publishes the writes under the latch as the next version.
    ///
    /// # Panics
    ///
    /// If the latch is free.
    #[inline]
    pub fn unlock(&self) {
        let word = self.0.load(Ordering::Relaxed);
        assert!(word & HELD != 0, "unlock of a latch nobody holds");
        self.0.store((word | HELD) + 1, Ordering::Release); // O1, I2
    }

    /// Releases the latch when nothing was written: readers of `seen` need not start again.
    ///
    /// # Panics
    ///
    /// If the latch is not held since `seen`.
    #[inline]
    pub fn unlock_unchanged(&self, seen: Version) {
        let word = self.0.load(Ordering::Relaxed);
        assert!(
            word == seen.0 | HELD,
            "unlock of a latch nobody holds since that version"
        );
        // Relaxed: nothing was written since `try_lock`, and its fence (O2) passes on to readers of
        // this store what `seen` published.
        self.0.store(seen.0, Ordering::Relaxed);
    }

    #[cold]
    fn wait(&self) -> Version {
        let mut backoff = Backoff::new();
        loop {
            backoff.snooze();
            if let Some(version) = self.version() {
                return version;
            }
        }
    }
}
