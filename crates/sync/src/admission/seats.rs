//! The seats themselves: which are free.
//!
//! A client that comes back to its seat in each of many short transactions is to find it where nobody else writes. So
//! seats lie in *lanes*, each a cache line, one seat in each while there are no more than [`LANES`] of them.
//!
//! # Invariants
//!
//! * I1  Free seats and taken seats are as many as there are seats, in each lane: its count is lowered by who takes a seat,
//!   and raised by who leaves one. Who is handed a seat is told its lane.
//!
//! Why all is Relaxed is said in [`admission`](super).

use crate::cache_line::CachePadded;
use crate::shim::{AtomicU32, Ordering};

/// At most so many lines of memory for seats.
const LANES: u32 = 64;

/// See the [module](self).
pub(super) struct Seats(Box<[CachePadded<AtomicU32>]>);

impl Seats {
    /// So many, all free, shared out to lanes as evenly as can be.
    pub(super) fn new(seats: u32) -> Seats {
        let lanes = seats.clamp(1, LANES);
        let share = |lane| seats / lanes + u32::from(lane < seats % lanes);
        let free = |lane| CachePadded::new(AtomicU32::new(share(lane)));
        Seats((0..lanes).map(free).collect())
    }

    /// How many nobody has at this moment.
    pub(super) fn free(&self) -> u32 {
        let lanes = self.0.iter();
        lanes.map(|lane| lane.load(Ordering::Relaxed)).sum()
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
        let fewer = |free: u32| free.checked_sub(1);
        let lane = self.lane(lane);
        let taken = lane.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        taken.is_ok()
    }

    /// Takes any free seat, and says of which lane.
    pub(super) fn take(&self) -> Option<u32> {
        let is_free = |lane: &u32| self.lane(*lane).load(Ordering::Relaxed) > 0;
        let mut lanes = (0..self.0.len() as u32).filter(is_free);
        lanes.find(|&lane| self.take_of(lane))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn all_are_shared_out_and_none_is_given_twice() {
        for count in [0, 1, 6, 64, 65, 200, u32::MAX] {
            let seats = Seats::new(count);
            assert_eq!(seats.free(), count);
            assert!(seats.0.len() <= LANES as usize);
            let taken: Vec<u32> = std::iter::from_fn(|| seats.take()).take(300).collect();
            assert_eq!(taken.len(), count.min(300) as usize);
            assert_eq!(seats.free(), count - count.min(300));
            taken.iter().for_each(|&lane| seats.leave(lane));
            assert_eq!(seats.free(), count);
        }
    }
}
