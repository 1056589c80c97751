//! Turns: how two threads that allocate with the same word stay out of each other's caches.
//!
//! Two cores that insert alternately exchange cache lines for each record: the line of the word,
//! and the lines in which their records meet. The cost depends on how long a line travels:
//!
//! * Where two cores share a cache it costs less than an insert. They do best side by side.
//! * Where a line comes from another part of the machine it costs several inserts. They do best in
//!   turns: one inserts hundreds of records out of its own cache, then the other.
//!
//! One machine can be both at different times, if its cores are virtual and their host moves them.
//!
//! So the cost is measured. Now and then a thread that failed to allocate, because another was
//! faster, reads the word a few times. It measures how often the word has moved and how long a read
//! takes. If both say so, it starts taking turns, and the first turn is its own.
//!
//! Turns are not a latch. The word's owner is stored beside the word. A thread that has waited for
//! one turn takes the next, whatever happened to the last owner.
//!
//! # Invariants
//!
//! * I1  Turns affect nothing but time: an insert waits one turn at most, then allocates.
//! * I2  Turns end as soon as a thread has waited for one in which little was inserted. So threads
//!   wait for a descheduled thread only once.

use std::time::{Duration, Instant};

use foxton_sync::ring::SharedAllocator;
use foxton_sync::shim::{AtomicBool, Ordering::Relaxed, hint};
use foxton_sync::worker::Worker;

/// Length of a turn: long against the travels of lines at its ends, short against a time slice.
const TURN: Duration = Duration::from_micros(40);
/// Number of records in a turn that make a wait worthwhile.
const BUSY_RECORDS: u64 = 64;
/// One thread in this many measures: of those that failed to allocate, and of those that waited for
/// a turn.
const SAMPLING: u64 = 32;
/// Number of reads of the word, and how many must find that it has moved.
const LOOKS: u32 = 6;
const MOVED: u32 = 4;
/// A read that takes this long has waited for a line from far away; a quarter of it is reading the
/// clock. The value lies between the times of cores that share a cache and cores that do not.
const FAR_LOOK: Duration = Duration::from_nanos(90);
/// Spins between reads of the word, and between reads of the clock: about half a microsecond, the
/// time of an insert that waits for lines from far away.
const SPINS: u32 = 32;

/// Whether the inserters of one buffer take turns, as they have measured.
#[derive(Debug, Default)]
pub(super) struct TurnTaking {
    in_turns: AtomicBool,
}

/// Advice for a thread when another thread has allocated last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// Allocate alone.
    Alone,
    /// Many threads wait for a turn: allocate in a group.
    Group,
}

impl TurnTaking {
    /// True if this worker need not wait for a turn.
    #[inline]
    pub(super) fn is_free(&self, worker: &Worker, allocator: &SharedAllocator) -> bool {
        // Relaxed, here and below: a hint (I1).
        !self.in_turns.load(Relaxed) || allocator.turn() == worker.id()
    }

    /// Waits for a turn, where that is best. For a worker whose turn it is not, or that failed to
    /// allocate; `length` is the size of its record in bytes.
    pub(super) fn wait(&self, worker: &Worker, allocator: &SharedAllocator, length: u64) -> Advice {
        // For the model checker, groups are worth more than what depends on time and chance (I1).
        if cfg!(loom) {
            return Advice::Group;
        }
        if worker.random().is_multiple_of(SAMPLING) {
            let in_turns = is_busy_and_far(allocator);
            if in_turns {
                allocator.take_turn(worker.id());
            }
            self.set(in_turns);
            return Advice::Alone;
        }
        if self.is_free(worker, allocator) {
            return Advice::Alone;
        }
        let (turn, next) = (allocator.turn(), allocator.next());
        pause(TURN);
        if allocator.next() - next < BUSY_RECORDS * length {
            self.set(false); // I2
            return Advice::Alone;
        }
        if allocator.turn() != turn {
            return Advice::Group;
        }
        allocator.take_turn(worker.id());
        Advice::Alone
    }

    /// Writes only changes, because every inserter reads it.
    fn set(&self, in_turns: bool) {
        if self.in_turns.load(Relaxed) != in_turns {
            self.in_turns.store(in_turns, Relaxed);
        }
    }
}

/// True if another thread inserts all the time and its lines travel far. The shortest read counts,
/// because the others may have been interrupted.
fn is_busy_and_far(allocator: &SharedAllocator) -> bool {
    let (mut last, mut moved, mut least) = (allocator.next(), 0, Duration::MAX);
    for look in 1..=LOOKS {
        spin();
        let begun = Instant::now();
        let next = allocator.next();
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
        let (_, allocator, _) = Ring::new(1024, 0, Completion::Delegated);
        let (worker, allocator) = (Workers::new().worker(), SharedAllocator::from(allocator));
        allocator.take_turn(ANOTHER);
        let turn_taking = TurnTaking::default();
        turn_taking.set(true);
        (worker, allocator, turn_taking)
    }

    #[test]
    fn a_thread_waits_once_for_a_turn_in_which_nothing_is_inserted() {
        let (worker, allocator, turn_taking) = in_turns();
        assert!(!turn_taking.is_free(&worker, &allocator));
        assert_eq!(turn_taking.wait(&worker, &allocator, LENGTH), Advice::Alone);
        assert!(
            turn_taking.is_free(&worker, &allocator),
            "allocator are over (I2)"
        );
    }

    /// Either thread may be descheduled at any time, so this is repeated until neither is.
    #[test]
    fn a_thread_that_waits_for_an_inserting_one_has_the_next_turn() {
        let (worker, allocator, turn_taking) = in_turns();
        let (allocator, stop) = (Arc::new(allocator), Arc::new(AtomicBool::new(false)));
        let inserting = {
            let (allocator, stop) = (allocator.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    let _ = allocator.skip(LENGTH);
                }
            })
        };
        while allocator.turn() != worker.id() {
            turn_taking.set(true);
            assert_eq!(turn_taking.wait(&worker, &allocator, LENGTH), Advice::Alone);
        }
        stop.store(true, Relaxed);
        inserting.join().expect("inserting does not panic");
        assert!(turn_taking.is_free(&worker, &allocator));
    }

    #[test]
    fn a_thread_that_inserts_nothing_is_not_far_away() {
        let (_, allocator, _) = in_turns();
        assert!(!is_busy_and_far(&allocator));
    }
}
