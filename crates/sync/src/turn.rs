//! Giving the processor away before it is taken.
//!
//! Where more threads want to run than there are processors, the system takes the processor from a thread
//! when its slice is over, whatever it is doing: mostly, it is in the middle of something, and if that holds
//! locks, it holds them until all others have had their slices. With hundreds of threads that is a long time,
//! and whoever meets those locks sleeps; soon everybody waits for somebody who is not running. A thread
//! that gives the processor away by itself, a little earlier and with nothing in its hands, comes back with a
//! new slice, and nobody has noticed.
//!
//! What is counted is the processor's time and not the clock's: a thread that was asleep, or has had
//! nothing to do, need not go to the end of a line. Asking for that time costs a call of the system, so it
//! is asked for now and then: how soon follows from how long things have taken.
//!
//! ```
//! use std::time::Duration;
//! use foxton_sync::turn::Turn;
//!
//! let mut turn = Turn::default();
//! for _ in 0..1_000 {
//!     turn.between(Duration::from_micros(500));
//!     // Here something that takes locks, and gives them back.
//! }
//! ```

use std::time::Duration;

use crate::shim::thread;

/// Times at most that the time is not looked at.
const BLIND: u32 = 64;

/// A thread's turn on the processor.
///
/// It may go from thread to thread: then one turn is too long or too short.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turn {
    /// Processor time of the thread when the turn began, in nanoseconds; 0 before the first.
    begun: u64,
    /// Things done since then.
    done: u32,
    /// Things to be done before the time is looked at again.
    left: u32,
}

impl Turn {
    /// To be called between two things, with nothing held. Gives the processor away if the thread has had
    /// it for about `length`. Says whether it has.
    #[inline]
    pub fn between(&mut self, length: Duration) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.look(length)
    }

    #[cold]
    fn look(&mut self, length: Duration) -> bool {
        let now = processor_time().max(1);
        if self.begun == 0 {
            (self.begun, self.done) = (now, 1);
            return false;
        }
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let used = now.saturating_sub(self.begun);
        let blind = |done: u32, used: u64, room: u64| {
            let each = (used / u64::from(done.max(1))).max(1);
            u32::try_from(room / each).unwrap_or(BLIND).min(BLIND)
        };
        if used < length {
            self.left = blind(self.done, used, length - used);
            self.done += self.left + 1;
            return false;
        }
        self.left = blind(self.done, used, length);
        *self = Turn {
            begun: now,
            done: self.left + 1,
            left: self.left,
        };
        thread::yield_now();
        true
    }
}

/// Nanoseconds that the processor has spent on this thread.
#[cfg(not(any(loom, shuttle, miri)))]
fn processor_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Models have no time.
#[cfg(any(loom, shuttle, miri))]
fn processor_time() -> u64 {
    0
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;

    /// Uses the processor for about `micros`.
    fn work(micros: u64) {
        let begun = processor_time();
        while processor_time() - begun < micros * 1_000 {}
    }

    /// Turns that ended within 20 ms of work, in pieces of `piece` microseconds.
    fn turns(piece: u64, length: Duration) -> usize {
        let mut turn = Turn::default();
        turn.between(length);
        let count = 20_000 / piece;
        let over = |_| {
            work(piece);
            turn.between(length)
        };
        (0..count).map(over).filter(|over| *over).count()
    }

    #[test]
    fn a_turn_is_about_as_long_as_was_asked_for_whatever_is_done_in_it() {
        let length = Duration::from_millis(1);
        for piece in [5, 50, 400, 2_500] {
            let found = turns(piece, length);
            let most = 20_000 / piece.max(1_000);
            assert!(
                (most as usize / 3..=most as usize * 3 / 2).contains(&found),
                "{found} turns with pieces of {piece} us"
            );
        }
    }

    #[test]
    fn who_sleeps_uses_nothing_up() {
        let mut turn = Turn::default();
        turn.between(Duration::from_millis(5));
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(2));
            assert!(!turn.between(Duration::from_millis(5)));
        }
    }
}
