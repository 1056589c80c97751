//! Lock elision by the processor's prefixes on the instructions that take and release a latch [001
//! §2.2].
//!
//! Where they are known, `xacquire` begins a transaction instead of writing the latch, and
//! `xrelease` ends it. To the thread itself the latch appears as held, so that passing it twice
//! waits, as with any latch. After an abort the processor does the exchange without eliding. It
//! does not report which of the two it did, so nothing is counted. Where the prefixes are not known
//! there is no such latch: `tas-t` stands for it.
//!
//! # State
//!
//! One word: not 0 while held.
//!
//! # Orderings
//!
//! None by name: acquiring and releasing it are assembly, and the processor's exchanges and stores
//! order no less than Acquire and Release, so that the next holder sees what the last one wrote.

use super::Latch;
use super::queue::QueueNode;
use crate::backoff::Backoff;
use crate::htm::{self, Hle};
use crate::shim::{AtomicU8, Ordering, hint};

const FREE: u8 = 0;

/// A flag that is taken and released with prefixes.
#[derive(Debug)]
pub(super) struct PrefixElided {
    hle: Hle,
    word: AtomicU8,
}

impl PrefixElided {
    /// Returns a latch that is elided by prefixes, if they do that here.
    pub(super) fn available() -> Option<Self> {
        let hle = htm::hle().ok()?;
        Some(Self {
            hle,
            word: AtomicU8::new(FREE),
        })
    }

    #[inline(always)]
    fn try_exchange(&self) -> bool {
        self.hle.acquire(&self.word) == FREE
    }

    /// Waits until it is free before it tries again: an elided exchange of a held latch aborts.
    #[cold]
    fn wait(&self) {
        let mut backoff = Backoff::new();
        loop {
            // Its pause aborts a transaction that began with the latch held.
            backoff.snooze();
            // Relaxed: a hint; the exchange decides.
            if self.word.load(Ordering::Relaxed) == FREE && self.try_exchange() {
                return;
            }
        }
    }
}

impl Latch for PrefixElided {
    #[inline(always)]
    unsafe fn acquire(&self, _node: &QueueNode) {
        if !self.try_exchange() {
            self.wait();
        }
    }

    #[inline(always)]
    unsafe fn try_acquire(&self, _node: &QueueNode) -> bool {
        let taken = self.try_exchange();
        if !taken {
            // Its pause aborts what would have to be undone anyway.
            hint::spin_loop();
        }
        taken
    }

    #[inline(always)]
    unsafe fn release(&self, _node: &QueueNode) {
        self.hle.release(&self.word);
    }
}
