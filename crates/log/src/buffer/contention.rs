//! Whether who finds another at the word lets him go on for a while.
//!
//! Two cores that insert one record after the other exchange, for each record, the line of the word and
//! the lines in which their records touch. What that costs is told by how long a line travels. Where
//! two cores share a cache it is less than an insert, and they do best side by side. Where
//! a line comes from another part of the machine it is several times an insert, and they do best in
//! allocator: one inserts hundreds of records out of its own cache, then the other. One machine is both, at
//! different times, if its cores are a tenant's and their landlord moves them.
//!
//! So it is measured. Who has asked in vain because another was faster looks at the word a few times, now and
//! then: how often it has moved, and how long a look takes. If both say so, it is his turn from then on.
//!
//! LatchedAllocator are no latch: whose turn it is stands beside the word, and whoever has waited for one takes the
//! next, whatever has become of the other.
//!
//! # Invariants
//!
//! * I1  Nothing depends on any of this but time: an insert waits one turn at most, then asks.
//! * I2  LatchedAllocator end as soon as somebody has waited for one in which little was inserted. So nobody waits for
//!   a thread that has lost its processor more than once.

use std::time::{Duration, Instant};

use foxton_sync::ring::SharedAllocator;
use foxton_sync::shim::{AtomicBool, Ordering::Relaxed, hint};
use foxton_sync::worker::Worker;

/// How long a turn is: long against the travels at its ends, short against a time slice.
const TURN: Duration = Duration::from_micros(40);
/// Records to be inserted in a turn for it to be worth a wait.
const BUSY_RECORDS: u64 = 64;
/// One in so many measures: of those who asked in vain, and of those who waited for a turn.
const SAMPLING: u64 = 32;
/// Looks at the word, and how many must find that it has moved.
const LOOKS: u32 = 6;
const MOVED: u32 = 4;
/// A look that takes so long has waited for a line from far away; a quarter of it is reading the clock.
/// Measured: 50 ns where two cores share a cache, 130 where they do not.
const FAR_LOOK: Duration = Duration::from_nanos(90);
/// Pauses between looks, and between looks at the clock: time for an insert that waits for lines from afar,
/// about half a microsecond.
const SPINS: u32 = 32;

/// What the inserters of one buffer have found out.
#[derive(Debug, Default)]
pub(super) struct TurnTaking {
    in_turns: AtomicBool,
}

/// What is to be done about another who asked last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// Ask.
    Alone,
    /// There are many who wait for a turn: ask together.
    Group,
}

impl TurnTaking {
    /// Whether this worker need not wait for a turn.
    #[inline]
    pub(super) fn is_free(&self, worker: &Worker, front: &SharedAllocator) -> bool {
        // Relaxed, here and below: a hint (I1).
        !self.in_turns.load(Relaxed) || front.turn() == worker.id()
    }

    /// For who is not free, or has asked in vain, with a record of `length` bytes: waits for a turn, where
    /// that is best.
    pub(super) fn wait(&self, worker: &Worker, front: &SharedAllocator, length: u64) -> Advice {
        // What depends on time and chance is nothing for a model checker (I1), to which groups are more.
        if cfg!(loom) {
            return Advice::Group;
        }
        if worker.random().is_multiple_of(SAMPLING) {
            let in_turns = is_busy_and_far(front);
            if in_turns {
                front.take_turn(worker.id());
            }
            self.set(in_turns);
            return Advice::Alone;
        }
        if self.is_free(worker, front) {
            return Advice::Alone;
        }
        let (turn, next) = (front.turn(), front.next());
        pause(TURN);
        if front.next() - next < BUSY_RECORDS * length {
            self.set(false); // I2
            return Advice::Alone;
        }
        if front.turn() != turn {
            return Advice::Group;
        }
        front.take_turn(worker.id());
        Advice::Alone
    }

    /// Writes only what is news: everybody reads it.
    fn set(&self, in_turns: bool) {
        if self.in_turns.load(Relaxed) != in_turns {
            self.in_turns.store(in_turns, Relaxed);
        }
    }
}

/// Whether somebody inserts all the time, and his lines travel long. The shortest look counts: others
/// may have been interrupted.
fn is_busy_and_far(front: &SharedAllocator) -> bool {
    let (mut last, mut moved, mut least) = (front.next(), 0, Duration::MAX);
    for look in 1..=LOOKS {
        spin();
        let begun = Instant::now();
        let next = front.next();
        let took = begun.elapsed();
        if next != last {
            moved += 1;
            least = least.min(took);
        }
        last = next;
        if moved + LOOKS - look < MOVED {
            return false;
        }
    }
    least > FAR_LOOK
}

fn spin() {
    for _ in 0..SPINS {
        hint::spin_loop();
    }
}

fn pause(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        spin();
    }
}

#[cfg(test)]
mod tests {
    use foxton_sync::ring::{Completion, Ring};
    use foxton_sync::shim::Arc;
    use foxton_sync::worker::Workers;

    use super::*;

    const LENGTH: u64 = 64;
    const ANOTHER: u32 = 1000;

    fn in_turns() -> (Worker, SharedAllocator, TurnTaking) {
        let (_, front, _) = Ring::new(1024, 0, Completion::Delegated);
        let (worker, front) = (Workers::new().worker(), SharedAllocator::from(front));
        front.take_turn(ANOTHER);
        let turn_taking = TurnTaking::default();
        turn_taking.set(true);
        (worker, front, turn_taking)
    }

    #[test]
    fn who_waits_for_nobody_waits_once() {
        let (worker, front, turn_taking) = in_turns();
        assert!(!turn_taking.is_free(&worker, &front));
        assert_eq!(turn_taking.wait(&worker, &front, LENGTH), Advice::Alone);
        assert!(
            turn_taking.is_free(&worker, &front),
            "allocator are over (I2)"
        );
    }

    /// Both may lose their processors at any time, so it is tried until neither has.
    #[test]
    fn who_waits_for_one_who_inserts_has_the_next_turn() {
        let (worker, front, turn_taking) = in_turns();
        let (front, stop) = (Arc::new(front), Arc::new(AtomicBool::new(false)));
        let inserting = {
            let (front, stop) = (front.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    let _ = front.skip(LENGTH);
                }
            })
        };
        while front.turn() != worker.id() {
            turn_taking.set(true);
            assert_eq!(turn_taking.wait(&worker, &front, LENGTH), Advice::Alone);
        }
        stop.store(true, Relaxed);
        inserting.join().expect("inserting does not panic");
        assert!(turn_taking.is_free(&worker, &front));
    }

    #[test]
    fn nobody_who_inserts_is_not_far_away() {
        let (_, front, _) = in_turns();
        assert!(!is_busy_and_far(&front));
    }
}
