//! The protocol: one byte of state, and sleepers. I1 to I3 are those of `parking`.
//!
//! # Orderings
//!
//! * O1  the store or exchange that takes HELD down (Release) to the one that puts it up, and to `is_free` (Acquire): the next
//!   holder, and an elided pass, which takes nothing, see what the last holder wrote.
//!
//! Who is handed the latch is woken by its holder, which orders the two.

use super::lot::{Lot, Spin};
use crate::shim::{AtomicBool, AtomicU8, Ordering};
use std::ptr;

const HELD: u8 = 1;
const SLEEPERS: u8 = 2;

#[derive(Debug)]
pub(super) struct Word<L: Lot> {
    more: AtomicBool,
    state: AtomicU8,
    lot: L,
}

impl<L: Lot + Default> Word<L> {
    #[cfg_attr(any(loom, shuttle), expect(dead_code, reason = "models have a lot"))]
    pub(super) fn new(more: bool) -> Self {
        Self::over(L::default(), more)
    }
}

impl<L: Lot> Word<L> {
    pub(super) fn over(lot: L, more: bool) -> Self {
        if more {
            // Site: "trial of elision".
            lot.others().fetch_add(1, Ordering::Relaxed);
        }
        Self {
            more: AtomicBool::new(more),
            state: AtomicU8::new(0),
            lot,
        }
    }

    /// As `is_plain`, where no answer but the right one is wanted from who holds it, or has it in a transaction.
    #[inline(always)]
    fn is_plain_here(&self) -> bool {
        // Relaxed: who sees that there is more to this latch, or was told so by being given it, sees that it was counted before.
        self.lot.others().load(Ordering::Relaxed) == 0 || self.is_plain()
    }

    #[inline(always)]
    fn state(&self) -> u8 {
        // Relaxed: an exchange decides.
        self.state.load(Ordering::Relaxed)
    }

    /// Tries to hold what was in the state `from`, in which nobody did. Returns what it was if it fails.
    #[inline(always)]
    fn hold(&self, from: u8) -> Result<u8, u8> {
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed); // O1
        (self.state).compare_exchange_weak(from, from | HELD, acquire, relaxed)
    }

    #[inline(always)]
    pub(super) fn take_plain(&self) -> bool {
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed); // O1
        let exchange = || self.state.compare_exchange(0, HELD, acquire, relaxed);
        self.is_plain_here() && exchange().is_ok()
    }

    #[inline(always)]
    pub(super) fn give_back_plain(&self) -> bool {
        let (release, relaxed) = (Ordering::Release, Ordering::Relaxed); // O1
        let exchange = || self.state.compare_exchange(HELD, 0, release, relaxed);
        self.is_plain_here() && exchange().is_ok()
    }

    #[inline]
    pub(super) fn try_take(&self) -> bool {
        let mut state = self.state();
        while state & HELD == 0 {
            match self.hold(state) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    #[cold]
    pub(super) fn take(&self) {
        let mut wait = L::Spin::default();
        let mut state = self.state();
        loop {
            if state & HELD == 0 {
                match self.hold(state) {
                    Ok(_) => return,
                    Err(now) => state = now,
                }
                continue;
            }
            if state & SLEEPERS == 0 {
                if wait.spin() {
                    state = self.state();
                    continue;
                }
                if let Err(now) = self.announce(state) {
                    state = now;
                    continue;
                }
            }
            let both = || self.state() & (HELD | SLEEPERS) == HELD | SLEEPERS;
            if self.lot.sleep(self.address(), both) {
                return;
            }
            wait.reset();
            state = self.state();
        }
    }

    /// Says that somebody is about to sleep (I3).
    fn announce(&self, state: u8) -> Result<u8, u8> {
        let relaxed = Ordering::Relaxed; // What the holder does with it is ordered by the lot.
        (self.state).compare_exchange_weak(state, state | SLEEPERS, relaxed, relaxed)
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
            let given = (self.state).compare_exchange_weak(state, state & !HELD, release, relaxed);
            match given {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
        self.wake();
    }

    #[cold]
    fn wake(&self) {
        self.lot.wake(self.address(), |found| {
            // Nobody else changes it: it is held, and sleepers are announced (I1, I3).
            let sleepers = if found.others { SLEEPERS } else { 0 };
            let hand_over = found.sleeper && found.is_fair;
            match hand_over {
                // Relaxed: he is woken, and who tries meanwhile finds it held.
                true => self.state.store(HELD | sleepers, Ordering::Relaxed),
                false => self.state.store(sleepers, Ordering::Release), // O1
            }
            hand_over
        });
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

    /// For the holder.
    pub(super) fn set_plain(&self, plain: bool) {
        if plain == self.is_plain() {
            return;
        }
        if !plain {
            // Site: "trial of elision".
            self.lot.others().fetch_add(1, Ordering::Relaxed);
        }
        self.more.store(!plain, Ordering::Relaxed); // Relaxed: see `is_plain`.
        if plain {
            // Site: "trial of elision".
            self.lot.others().fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl<L: Lot> Drop for Word<L> {
    fn drop(&mut self) {
        if !self.is_plain() {
            // Site: "trial of elision".
            self.lot.others().fetch_sub(1, Ordering::Relaxed);
        }
    }
}
