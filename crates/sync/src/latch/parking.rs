//! Spins a little, then sleeps until woken; and the front of every other latch.
//!
//! The protocol is that of `parking_lot`'s raw mutex, over its process-wide table of sleepers keyed by address
//! (`parking_lot_core`). What it has not is a third bit: there is *more* to the latch than this. So one look at one byte, which
//! has to be made anyhow, tells the shortest way apart from all others: the default kind pays nothing for there being others, and a
//! latch that adapts is this one to the instruction while elision is not tried. A look at anything else on the
//! line, while others want that line, costs a pass a twentieth.
//!
//! Under the model checker and the random scheduler, which cannot see sleepers of that table, a mutex and a condition
//! variable stand in.
//!
//! # State
//!
//! ```text
//!  bit       set while
//!  HELD      somebody holds it
//!  SLEEPERS  somebody sleeps for it, or is about to
//!  MORE      it is the front of another latch, or may be elided
//! ```
//!
//! # Invariants
//!
//! * I1  HELD goes up by an exchange, and whoever saw it go holds the latch; only the holder takes it down. Or he leaves it up
//!   and hands the latch to a sleeper, who is told so.
//! * I2  MORE changes only while the latch is held, by its holder; nobody passes a front.
//! * I3  SLEEPERS goes up only while HELD is, and down only by the holder while he has the sleepers' queue locked: so who
//!   sleeps, having seen both in there, is seen by the holder who gives the latch back.
//!
//! # Orderings
//!
//! * O1  the store or exchange that takes HELD down (Release) to the one that puts it up, and to `is_free` and `is_open`
//!   (Acquire): the next holder, and an elided pass, which takes nothing, see what the last holder wrote.
//! * O2  who is handed the latch is woken by its holder, which orders the two.

use super::Latch;
use super::queue::Node;

#[cfg(not(any(loom, shuttle)))]
mod raw {
    use crate::shim::{AtomicBool, AtomicU8, Ordering};
    use parking_lot_core::{
        DEFAULT_PARK_TOKEN, ParkResult, SpinWait, UnparkResult, UnparkToken, park, unpark_one,
    };
    use std::ptr;

    const HELD: u8 = 1;
    const SLEEPERS: u8 = 2;

    /// What a sleeper is told on waking: try again, or it is yours.
    const FREE: UnparkToken = UnparkToken(0);
    const YOURS: UnparkToken = UnparkToken(1);

    pub(super) struct Raw {
        more: AtomicBool,
        state: AtomicU8,
    }

    impl Raw {
        pub(super) fn new(more: bool) -> Self {
            Self {
                more: AtomicBool::new(more),
                state: AtomicU8::new(0),
            }
        }

        #[inline(always)]
        fn state(&self) -> u8 {
            // Relaxed: an exchange decides.
            self.state.load(Ordering::Relaxed)
        }

        /// Whether it went from one state to the other, which is to hold it.
        #[inline(always)]
        fn taken(&self, from: u8) -> Result<u8, u8> {
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed); // O1
            (self.state).compare_exchange_weak(from, from | HELD, acquire, relaxed)
        }

        #[inline(always)]
        pub(super) fn take_plain(&self) -> bool {
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed); // O1
            self.is_plain()
                && self
                    .state
                    .compare_exchange(0, HELD, acquire, relaxed)
                    .is_ok()
        }

        #[inline(always)]
        pub(super) fn give_back_plain(&self) -> bool {
            let (release, relaxed) = (Ordering::Release, Ordering::Relaxed); // O1
            self.is_plain()
                && self
                    .state
                    .compare_exchange(HELD, 0, release, relaxed)
                    .is_ok()
        }

        #[inline]
        pub(super) fn try_take(&self) -> bool {
            let mut state = self.state();
            while state & HELD == 0 {
                match self.taken(state) {
                    Ok(_) => return true,
                    Err(now) => state = now,
                }
            }
            false
        }

        #[cold]
        pub(super) fn take(&self) {
            let mut spin = SpinWait::new();
            let mut state = self.state();
            loop {
                if state & HELD == 0 {
                    match self.taken(state) {
                        Ok(_) => return,
                        Err(now) => state = now,
                    }
                    continue;
                }
                if state & SLEEPERS == 0 {
                    if spin.spin() {
                        state = self.state();
                        continue;
                    }
                    let relaxed = Ordering::Relaxed; // Only announces (I3).
                    let announced = (self.state).compare_exchange_weak(
                        state,
                        state | SLEEPERS,
                        relaxed,
                        relaxed,
                    );
                    if let Err(now) = announced {
                        state = now;
                        continue;
                    }
                }
                if self.sleep() {
                    return; // O2
                }
                spin.reset();
                state = self.state();
            }
        }

        /// Sleeps until woken, unless it has been given back since. Says whether the latch was handed over.
        fn sleep(&self) -> bool {
            let both = HELD | SLEEPERS;
            let validate = || self.state() & both == both;
            // SAFETY: the address is that of this latch, which nobody else sleeps by; nothing called here panics or parks,
            // and nobody is woken by a timeout.
            let woken = unsafe {
                park(
                    self.address(),
                    validate,
                    || {},
                    |_, _| {},
                    DEFAULT_PARK_TOKEN,
                    None,
                )
            };
            woken == ParkResult::Unparked(YOURS)
        }

        fn address(&self) -> usize {
            ptr::from_ref(self).addr()
        }

        /// For the holder.
        #[inline]
        pub(super) fn give_back(&self) {
            let mut state = self.state();
            while state & SLEEPERS == 0 {
                let (release, relaxed) = (Ordering::Release, Ordering::Relaxed); // O1
                let given =
                    (self.state).compare_exchange_weak(state, state & !HELD, release, relaxed);
                match given {
                    Ok(_) => return,
                    Err(now) => state = now,
                }
            }
            self.wake();
        }

        #[cold]
        fn wake(&self) {
            let decide = |result: UnparkResult| {
                // Nobody else changes it: it is held, and sleepers are announced (I1, I3).
                let sleepers = if result.have_more_threads {
                    SLEEPERS
                } else {
                    0
                };
                if result.unparked_threads > 0 && result.be_fair {
                    self.state.store(HELD | sleepers, Ordering::Relaxed); // O2
                    return YOURS;
                }
                self.state.store(sleepers, Ordering::Release); // O1
                FREE
            };
            // SAFETY: as in `sleep`.
            unsafe { unpark_one(self.address(), decide) };
        }

        #[inline(always)]
        pub(super) fn is_free(&self) -> bool {
            self.state.load(Ordering::Acquire) & HELD == 0 // O1
        }

        #[inline(always)]
        pub(super) fn is_plain(&self) -> bool {
            // Relaxed: who passes what is plain holds it, and then nobody else changes that (I2); who passes what is not has
            // found it free (O1) in a transaction, and looks there.
            !self.more.load(Ordering::Relaxed)
        }

        pub(super) fn set_plain(&self, plain: bool) {
            self.more.store(!plain, Ordering::Relaxed); // Relaxed: see `is_plain`.
        }
    }
}

#[cfg(any(loom, shuttle))]
mod raw {
    use crate::shim::{Condvar, Mutex, lock};

    struct State {
        held: bool,
        more: bool,
    }

    pub(super) struct Raw {
        state: Mutex<State>,
        freed: Condvar,
    }

    impl Raw {
        pub(super) fn new(more: bool) -> Self {
            let held = false;
            Self {
                state: Mutex::new(State { held, more }),
                freed: Condvar::new(),
            }
        }

        pub(super) fn take_plain(&self) -> bool {
            let mut state = lock(&self.state);
            let free = !state.held && !state.more;
            state.held |= free;
            free
        }

        pub(super) fn give_back_plain(&self) -> bool {
            let mut state = lock(&self.state);
            let plain = state.held && !state.more;
            state.held &= !plain;
            drop(state);
            if plain {
                self.freed.notify_one();
            }
            plain
        }

        pub(super) fn try_take(&self) -> bool {
            !std::mem::replace(&mut lock(&self.state).held, true)
        }

        pub(super) fn take(&self) {
            let mut state = lock(&self.state);
            while state.held {
                state = self.freed.wait(state).expect("nobody panics holding it");
            }
            state.held = true;
        }

        pub(super) fn give_back(&self) {
            lock(&self.state).held = false;
            self.freed.notify_one();
        }

        pub(super) fn is_free(&self) -> bool {
            !lock(&self.state).held
        }

        pub(super) fn is_plain(&self) -> bool {
            !lock(&self.state).more
        }

        pub(super) fn set_plain(&self, plain: bool) {
            lock(&self.state).more = !plain;
        }
    }
}

/// Sleeps while somebody else holds it.
pub(super) struct Parking(raw::Raw);

impl Default for Parking {
    fn default() -> Self {
        Self::new(true)
    }
}

impl std::fmt::Debug for Parking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parking")
    }
}

impl Parking {
    /// One that is `plain`, or to which there is more.
    pub(super) fn new(plain: bool) -> Self {
        Self(raw::Raw::new(!plain))
    }

    /// Takes it, if it is plain, nobody holds it and nobody sleeps for it.
    #[inline(always)]
    pub(super) fn take_plain(&self) -> bool {
        self.0.take_plain()
    }

    /// Gives it back, if it is plain, held, and nobody sleeps for it. So only its holder may call it, or who knows that it is not
    /// plain.
    ///
    /// # Safety
    ///
    /// If it is plain, the caller holds it.
    #[inline(always)]
    pub(super) unsafe fn give_back_plain(&self) -> bool {
        self.0.give_back_plain()
    }

    /// Whether there is nothing more to it.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.0.is_plain()
    }

    /// For its holder (I2).
    pub(super) fn set_plain(&self, plain: bool) {
        self.0.set_plain(plain);
    }

    /// Whether nobody holds it.
    #[inline(always)]
    pub(super) fn is_free(&self) -> bool {
        self.0.is_free()
    }
}

impl Latch for Parking {
    #[inline(always)]
    unsafe fn acquire(&self, node: &Node) {
        // SAFETY: nothing is kept in the node.
        if !unsafe { self.try_acquire(node) } {
            self.0.take();
        }
    }

    #[inline(always)]
    unsafe fn try_acquire(&self, _node: &Node) -> bool {
        self.0.try_take()
    }

    #[inline(always)]
    unsafe fn release(&self, _node: &Node) {
        self.0.give_back();
    }
}
