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
        if self.is_blind() {
            return false;
        }
        self.look(length)
    }

    #[cold]
    fn look(&mut self, length: Duration) -> bool {
        let is_over = self.is_over(length, processor_time());
        if is_over {
            thread::yield_now();
        }
        is_over
    }

    /// Whether the time need not be looked at yet.
    #[inline]
    fn is_blind(&mut self) -> bool {
        let is_blind = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_blind
    }

    /// Whether the turn is over, at this processor time. Then the next one begins.
    fn is_over(&mut self, length: Duration, now: u64) -> bool {
        let now = now.max(1);
        // The second: it came to a thread that is younger.
        if self.begun == 0 || now < self.begun {
            (self.begun, self.done) = (now, 1);
            return false;
        }
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let used = now - self.begun;
        let blind = |done: u32, used: u64, room: u64| {
            let each = (used / u64::from(done.max(1))).max(1);
            u32::try_from(room / each).unwrap_or(BLIND).min(BLIND)
        };
        if used < length {
            self.left = blind(self.done, used, length - used);
            self.done = self.done.saturating_add(self.left + 1);
            return false;
        }
        self.left = blind(self.done, used, length);
        *self = Turn {
            begun: now,
            done: self.left + 1,
            left: self.left,
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: u64 = 1_000;

    /// The lengths, in microseconds, of the turns within 20 ms of work in pieces of `piece` microseconds.
    fn turns(piece: u64, length: Duration) -> Vec<u64> {
        let (mut turn, mut now, mut begun) = (Turn::default(), 7 * MICRO, None);
        let mut found = Vec::new();
        for _ in 0..20_000 / piece {
            if !turn.is_blind() {
                let begun = begun.get_or_insert(now);
                if turn.is_over(length, now) {
                    found.push((now - *begun) / MICRO);
                    *begun = now;
                }
            }
            now += piece * MICRO;
        }
        found
    }

    #[test]
    fn a_turn_is_about_as_long_as_was_asked_for_whatever_is_done_in_it() {
        for piece in [5, 50, 400, 2_500] {
            let found = turns(piece, Duration::from_millis(1));
            // A piece more, and what is done before the time is looked at.
            let longest = 1_000 + piece.max(300);
            assert!(
                found.iter().all(|turn| (1_000..=longest).contains(turn)),
                "pieces of {piece} us: {found:?}"
            );
            assert!(found.len() as u64 >= 19_000 / longest, "{piece}: {found:?}");
        }
    }

    #[test]
    fn who_uses_no_time_is_never_over() {
        let mut turn = Turn::default();
        for _ in 0..1_000 {
            assert!(turn.is_blind() || !turn.is_over(Duration::from_millis(5), 7));
        }
    }

    #[test]
    fn at_a_younger_thread_a_turn_begins_anew() {
        let (mut turn, length) = (Turn::default(), Duration::from_millis(1));
        assert!(!turn.is_over(length, 3_600_000_000_000));
        assert!(!turn.is_over(length, 5 * MICRO));
        assert!(turn.is_over(length, 1_005 * MICRO));
    }

    #[test]
    #[cfg(not(any(loom, shuttle, miri)))]
    fn a_thread_gives_the_processor_away_by_its_own_time() {
        let mut turn = Turn::default();
        // However long it takes: only the time that this thread runs ends it.
        while !turn.between(Duration::from_micros(100)) {}
    }
}
