//! The seats themselves: which are free.
//!
//! A client that comes back to its seat in each of many short transactions is to find it where nobody else writes. So
//! seats lie in *lanes*, each a cache line, one seat in each while there are no more than [`LANES`] of them.
//!
//! Between two transactions a seat is free for a moment, and whoever looked just then would have it: its client would come
//! back in vain, and stand in line with most of its tenure before it. So a seat that is found free is marked the first time,
//! and taken from its client the second, a moment later, if nobody has been there in between (as pages get a second chance
//! before they are evicted).
//!
//! # State
//!
//! A word for each lane: how many seats of it are free, and whether it was [found free](FOUND) since one was taken.
//!
//! # Invariants
//!
//! * I1  Free seats and taken seats are as many as there are seats, in each lane: its count is lowered by who takes a seat,
//!   and raised by who leaves one. Who is handed a seat is told its lane.
//! * I2  Who takes a seat takes the mark off its lane.
//!
//! Why all is Relaxed is said in [`admission`](super).

use crate::cache_line::CachePadded;
use crate::shim::{AtomicU32, Ordering};

/// At most so many lines of memory for seats.
const LANES: u32 = 64;

/// A lane had a free seat when somebody looked for one, and nobody has taken it since.
const FOUND: u32 = 1 << 31;

/// See the [module](self).
pub(super) struct Seats(Box<[CachePadded<AtomicU32>]>);

impl Seats {
    /// So many, all free, shared out to lanes as evenly as can be.
    pub(super) fn new(seats: u32) -> Seats {
        // More than there can be threads; a lane's count is below the mark.
        let seats = seats.min(FOUND - 1);
        let lanes = seats.clamp(1, LANES);
        let share = |lane| seats / lanes + u32::from(lane < seats % lanes);
        let free = |lane| CachePadded::new(AtomicU32::new(share(lane)));
        Seats((0..lanes).map(free).collect())
    }

    /// How many nobody has at this moment.
    pub(super) fn free(&self) -> u32 {
        let lanes = self.0.iter();
        lanes
            .map(|lane| lane.load(Ordering::Relaxed) & !FOUND)
            .sum()
    }

    fn lane(&self, lane: u32) -> &AtomicU32 {
        &self.0[lane as usize]
    }

    /// A seat of this lane is free (I1).
    #[inline]
    pub(super) fn leave(&self, lane: u32) {
        self.lane(lane).fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a free seat of this lane, if there is one (I1).
    #[inline]
    pub(super) fn take_of(&self, lane: u32) -> bool {
        let fewer = |word: u32| (word & !FOUND).checked_sub(1); // I2
        let lane = self.lane(lane);
        let taken = lane.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        taken.is_ok()
    }

    /// Takes any free seat, and says of which lane.
    pub(super) fn take(&self) -> Option<u32> {
        self.free_lanes().find(|&lane| self.take_of(lane))
    }

    /// Takes a seat that was found free before, and says of which lane. Marks those that are found free now.
    pub(super) fn take_left(&self) -> Option<u32> {
        self.free_lanes().find(|&lane| {
            let word = self.lane(lane).load(Ordering::Relaxed);
            if word & FOUND != 0 {
                return self.take_of(lane);
            }
            if word > 0 {
                // If not, somebody has been there in between.
                let (marked, relaxed) = (word | FOUND, Ordering::Relaxed);
                let _ = self
                    .lane(lane)
                    .compare_exchange(word, marked, relaxed, relaxed);
            }
            false
        })
    }

    fn free_lanes(&self) -> impl Iterator<Item = u32> {
        let is_free = |lane: &u32| self.lane(*lane).load(Ordering::Relaxed) & !FOUND > 0;
        (0..self.0.len() as u32).filter(is_free)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn all_are_shared_out_and_none_is_given_twice() {
        for count in [0, 1, 6, 64, 65, 200, u32::MAX] {
            let seats = Seats::new(count);
            let count = count.min(FOUND - 1);
            assert_eq!(seats.free(), count);
            assert!(seats.0.len() <= LANES as usize);
            let taken: Vec<u32> = std::iter::from_fn(|| seats.take()).take(300).collect();
            assert_eq!(taken.len(), count.min(300) as usize);
            assert_eq!(seats.free(), count - count.min(300));
            taken.iter().for_each(|&lane| seats.leave(lane));
            assert_eq!(seats.free(), count);
        }
    }

    #[test]
    fn a_seat_is_taken_from_a_client_that_was_not_there_between_two_looks() {
        let seats = Seats::new(2);
        assert!(seats.take_of(0) && seats.take_of(1));
        assert_eq!(seats.take_left(), None, "none is free");
        // Its client is between two transactions whenever it is looked.
        for _ in 0..10 {
            seats.leave(1);
            assert_eq!((seats.take_left(), seats.free()), (None, 1));
            assert!(seats.take_of(1));
        }
        seats.leave(1);
        assert_eq!(seats.take_left(), None);
        assert_eq!((seats.take_left(), seats.free()), (Some(1), 0));
        // Whoever has it now gets its chance, too.
        seats.leave(1);
        assert_eq!((seats.take_left(), seats.take()), (None, Some(1)));
    }
}
