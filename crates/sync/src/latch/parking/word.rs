//! The parking protocol: one byte of state, and sleepers. I1 to I4 are those of `parking`.
//!
//! # Orderings
//!
//! * O1  the store or exchange that clears HELD (Release) to the one that sets it, and to `is_free`
//!   (Acquire): the next holder, and an elided pass, which takes nothing, see what the last holder
//!   wrote.
//!
//! The holder that hands the latch over wakes the next, which orders the two.

use super::sleeper_table::{SleeperTable, SpinPhase};
use crate::shim::{AtomicBool, AtomicU8, Ordering};
use std::ptr;

const HELD: u8 = 1;
const SLEEPERS: u8 = 2;

#[derive(Debug)]
pub(super) struct ParkingWord<L: SleeperTable> {
    extended: AtomicBool,
    state: AtomicU8,
    sleepers: L,
}

impl<L: SleeperTable + Default> ParkingWord<L> {
    #[cfg_attr(loom, expect(dead_code, reason = "models have a lot"))]
    pub(super) fn new(extended: bool) -> Self {
        Self::over(L::default(), extended)
    }
}

impl<L: SleeperTable> ParkingWord<L> {
    pub(super) fn over(sleepers: L, extended: bool) -> Self {
        if extended {
            // Before any other thread has it (I4).
            // Site: "trial of elision".
            sleepers.extended_latches().fetch_add(1, Ordering::Relaxed);
        }
        Self {
            extended: AtomicBool::new(extended),
            state: AtomicU8::new(0),
            sleepers,
        }
    }

    /// As `is_plain`, without a read of this latch where no latch is extended.
    #[inline(always)]
    fn is_surely_plain(&self) -> bool {
        // Relaxed: I4.
        self.sleepers.extended_latches().load(Ordering::Relaxed) == 0 || self.is_plain()
    }

    #[inline(always)]
    fn state(&self) -> u8 {
        // Relaxed: an exchange decides.
        self.state.load(Ordering::Relaxed)
    }

    /// Tries to set HELD in the state `from`, in which it was clear. Returns the actual state if it
    /// fails.
    #[inline(always)]
    fn try_hold(&self, from: u8) -> Result<u8, u8> {
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed); // O1
        (self.state).compare_exchange_weak(from, from | HELD, acquire, relaxed)
    }

    #[inline(always)]
    pub(super) fn try_acquire_plain(&self) -> bool {
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed); // O1
        let exchange = || self.state.compare_exchange(0, HELD, acquire, relaxed);
        self.is_surely_plain() && exchange().is_ok()
    }

    #[inline(always)]
    pub(super) fn try_release_plain(&self) -> bool {
        let (release, relaxed) = (Ordering::Release, Ordering::Relaxed); // O1
        let exchange = || self.state.compare_exchange(HELD, 0, release, relaxed);
        self.is_surely_plain() && exchange().is_ok()
    }

    #[inline]
    pub(super) fn try_acquire(&self) -> bool {
        let mut state = self.state();
        while state & HELD == 0 {
            match self.try_hold(state) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    #[cold]
    pub(super) fn acquire(&self) {
        let mut wait = L::Spin::default();
        let mut state = self.state();
        loop {
            if state & HELD == 0 {
                match self.try_hold(state) {
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
                if let Err(now) = self.announce_sleeper(state) {
                    state = now;
                    continue;
                }
            }
            let both = || self.state() & (HELD | SLEEPERS) == HELD | SLEEPERS;
            if self.sleepers.sleep(self.address(), both) {
                return;
            }
            wait.reset();
            state = self.state();
        }
    }

    /// Sets the mark that a thread is about to sleep (I3).
    fn announce_sleeper(&self, state: u8) -> Result<u8, u8> {
        let relaxed = Ordering::Relaxed; // The table orders what the holder does with it.
        (self.state).compare_exchange_weak(state, state | SLEEPERS, relaxed, relaxed)
    }

    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// For the holder.
    #[inline]
    pub(super) fn release(&self) {
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
        self.sleepers.wake(self.address(), |found| {
            // No other thread changes it: it is held, and sleepers are announced (I1, I3).
            let sleepers = if found.others { SLEEPERS } else { 0 };
            let hand_over = found.sleeper && found.is_fair;
            match hand_over {
                // Relaxed: the sleeper is woken, and a thread that tries meanwhile finds it held.
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
        // Relaxed: a thread that passes a plain latch holds it, and then no other changes the mark
        // (I2). A thread that passes an extended latch has found it free (O1) in a transaction, and
        // reads the mark there.
        !self.extended.load(Ordering::Relaxed)
    }

    /// For the holder.
    pub(super) fn set_plain(&self, plain: bool) {
        if plain == self.is_plain() {
            return;
        }
        if !plain {
            // Site: "trial of elision".
            self.sleepers
                .extended_latches()
                .fetch_add(1, Ordering::Relaxed);
        }
        self.extended.store(!plain, Ordering::Relaxed); // Relaxed: see `is_plain`.
        if plain {
            // Site: "trial of elision".
            self.sleepers
                .extended_latches()
                .fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl<L: SleeperTable> Drop for ParkingWord<L> {
    fn drop(&mut self) {
        if !self.is_plain() {
            // Site: "trial of elision".
            self.sleepers
                .extended_latches()
                .fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::sleeper_table::WakeState;
    use super::*;
    use crate::shim::AtomicUsize;

    /// A count of its own, and no sleepers.
    #[derive(Debug, Default)]
    struct Counted<'a>(Option<&'a AtomicUsize>);

    #[derive(Default)]
    struct Never;

    impl SpinPhase for Never {
        fn spin(&mut self) -> bool {
            unreachable!("nobody waits")
        }

        fn reset(&mut self) {}
    }

    impl SleeperTable for Counted<'_> {
        type Spin = Never;

        fn extended_latches(&self) -> &AtomicUsize {
            self.0.expect("it has one")
        }

        fn sleep(&self, _address: usize, _validate: impl Fn() -> bool) -> bool {
            unreachable!("nobody sleeps")
        }

        fn wake(&self, _address: usize, _decide: impl FnOnce(WakeState) -> bool) {
            unreachable!("nobody sleeps")
        }
    }

    #[test]
    fn i4_an_extended_latch_is_counted_as_long_as_it_is_extended() {
        let others = AtomicUsize::new(0);
        let count = || others.load(Ordering::Relaxed);
        let word = |extended| ParkingWord::over(Counted(Some(&others)), extended);
        let (plain, front) = (word(false), word(true));
        assert_eq!(count(), 1);
        plain.acquire();
        for (is_plain, counted) in [(true, 1), (false, 2), (false, 2), (true, 1), (false, 2)] {
            plain.set_plain(is_plain);
            assert_eq!((plain.is_plain(), count()), (is_plain, counted));
        }
        plain.release();
        drop(front);
        assert_eq!(count(), 1);
        drop(plain);
        assert_eq!(count(), 0);
    }

    #[test]
    fn i4_a_front_is_never_acquired_or_released_as_plain() {
        let others = AtomicUsize::new(0);
        let front = ParkingWord::over(Counted(Some(&others)), true);
        assert!(!front.try_acquire_plain() && !front.try_release_plain() && front.is_free());
        // An extended one, held by the thread that made it plain.
        front.acquire();
        front.set_plain(true);
        assert!(!front.try_acquire_plain());
        assert!(front.try_release_plain() && front.try_acquire_plain());
        front.release();
    }
}
