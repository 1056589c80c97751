//! Asymmetric fence, which costs one side nothing.
//!
//! Two threads each write one word and then read the other's: at least one must see the other's
//! write. With ordinary fences both pay. Suppose one side runs a million times for each time of the
//! other. Then the cheap side only keeps the compiler from reordering
//! ([`light`](crate::asymmetric::Asymmetric::light)). The expensive side has the system run a full
//! barrier on every processor that runs a thread of this process
//! ([`heavy`](crate::asymmetric::Asymmetric::heavy)).
//!
//! The system call is `membarrier`, private and expedited; it costs a few microseconds. Where it is
//! missing both sides are full fences, and the rest of the argument is the same. The model checker
//! knows no such call, so under it the pair is always expedited, by full fences.
//!
//! # Why that is enough
//!
//! While `heavy` runs, every thread of the process passes a full barrier at some point: by the
//! interrupt if it runs, by the switch if it does not. Take a thread with `W(a); light; R(b)` and
//! another with `W(b); heavy; R(a)`. If that point lies before `W(a)`, then `R(b)` comes after the
//! barrier and sees `b`. If it lies after `W(a)`, then `W(a)` comes before the barrier and `R(a)`
//! sees it. The light fence is why "before" and "after" can be read off the program.
//!
//! # Orderings
//!
//! * O1  the fences of both sides, `SeqCst` where they are fences: store, then load, on either
//!   side; no acquire or release orders these.

use crate::shim::{Ordering, fence};

/// A pair of fences for two sides, one of which is far more frequent.
///
/// ```
/// use foxton_sync::asymmetric::Asymmetric;
///
/// let fence = Asymmetric::new();
/// fence.light(); // A million times.
/// fence.heavy(); // Once.
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Asymmetric {
    expedited: bool,
}

impl Default for Asymmetric {
    fn default() -> Self {
        Self::new()
    }
}

impl Asymmetric {
    /// Returns the best pair that the system has.
    pub fn new() -> Self {
        Self {
            expedited: system::register(),
        }
    }

    /// Returns full fences on both sides, whatever the system has.
    pub const fn symmetric() -> Self {
        Self { expedited: false }
    }

    /// True if the light side is free.
    pub fn is_expedited(&self) -> bool {
        self.expedited
    }

    /// The frequent side: after its store, before its load.
    #[inline(always)]
    pub fn light(&self) {
        if self.expedited {
            self.light_expedited();
        } else {
            fence(Ordering::SeqCst); // O1
        }
    }

    /// The frequent side, for a caller that knows that it [`is_expedited`](Self::is_expedited) and
    /// so need not check again.
    #[inline(always)]
    pub fn light_expedited(&self) {
        debug_assert!(self.expedited, "a fence is needed here");
        system::light();
    }

    /// The rare side: after its store, before its load.
    #[inline(never)]
    pub fn heavy(&self) {
        if self.expedited {
            system::barrier();
        } else {
            fence(Ordering::SeqCst); // O1
        }
    }
}

#[cfg(all(
    any(target_os = "linux", target_os = "android"),
    not(any(loom, shuttle))
))]
mod system {
    use crate::shim::compiler_barrier;
    use rustix::thread::{MembarrierCommand, membarrier};

    /// Registers this process for barriers; once is enough, more is harmless.
    pub(super) fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    #[inline(always)]
    pub(super) fn light() {
        compiler_barrier();
    }

    pub(super) fn barrier() {
        membarrier(MembarrierCommand::PrivateExpedited)
            .expect("a registered process may ask for a barrier");
    }
}

#[cfg(any(loom, shuttle))]
mod system {
    use crate::shim::{Ordering, fence};

    pub(super) fn register() -> bool {
        true
    }

    pub(super) fn light() {
        fence(Ordering::SeqCst); // O1
    }

    pub(super) fn barrier() {
        fence(Ordering::SeqCst); // O1
    }
}

#[cfg(all(
    not(any(target_os = "linux", target_os = "android")),
    not(any(loom, shuttle))
))]
mod system {
    pub(super) fn light() {
        unreachable!("nothing was registered");
    }

    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn barrier() {
        unreachable!("nothing was registered");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shim::{AtomicBool, AtomicU64, thread};
    use std::sync::Arc;

    /// The litmus test of the first page on this processor: counts rounds in which each side misses
    /// the other's write, which must not happen. Without the fences it happens within the first
    /// thousands.
    #[test]
    fn one_of_two_sides_sees_the_other() {
        for pair in [Asymmetric::new(), Asymmetric::symmetric()] {
            let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false)));
            // The frequent side counts its rounds in the first word and records its last read of
            // the second. Say that after writing n it reads a value below x, and that the rare
            // side, having written x, reads a value below n. Then each side has missed the other.
            let frequent = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let mut seen = vec![0; 1];
                    let mut round = 0;
                    while !shared.2.load(Ordering::Relaxed) || round < 1000 {
                        round += 1;
                        shared.0.store(round, Ordering::Relaxed);
                        pair.light();
                        if seen.len() < 5_000_000 {
                            seen.push(shared.1.load(Ordering::Relaxed));
                        }
                    }
                    seen
                })
            };
            let mut saw = vec![0; 1];
            for round in 1..2000 {
                shared.1.store(round, Ordering::Relaxed);
                pair.heavy();
                saw.push(shared.0.load(Ordering::Relaxed));
            }
            shared.2.store(true, Ordering::Relaxed);
            let seen = frequent.join().unwrap();
            for (round, &of_other) in saw.iter().enumerate() {
                // Round `of_other + 1` of the frequent side was written after this side had read.
                if let Some(&later) = seen.get(of_other as usize + 1) {
                    assert!(later >= round as u64, "both sides missed each other");
                }
            }
        }
    }
}
