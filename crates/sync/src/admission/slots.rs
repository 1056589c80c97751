//! The slots: which are free.
//!
//! A client reclaims its slot in each of many short transactions, so no other thread should write
//! there. So slots are in *lanes*, each a cache line, with one slot in each while there are no more
//! than [`MAX_LANES`].
//!
//! Between two transactions a slot is free for a moment. If another client took it just then, its
//! client would return in vain and queue with most of its quantum left. So a slot that is seen free
//! is marked the first time. It is taken the second time, a moment later, if no client has been
//! there in between (as pages get a second chance before they are evicted).
//!
//! # State
//!
//! One word for each lane: how many of its slots are free, and whether it was [seen
//! free](SEEN_FREE) since one was taken.
//!
//! # Invariants
//!
//! * I1  Free slots and taken slots add up to the number of slots, in each lane. A client that
//!   takes a slot lowers the lane's count, and a client that releases one raises it. A client that
//!   is granted a slot learns its lane.
//! * I2  A client that takes a slot clears the mark of its lane.
//!
//! [`admission`](super) says why all accesses are Relaxed.

use crate::cache_line::CachePadded;
use crate::shim::{AtomicU32, Ordering};

/// Maximum number of cache lines for slots.
const MAX_LANES: u32 = 64;

/// A lane had a free slot when a client looked for one, and no client has taken it since.
const SEEN_FREE: u32 = 1 << 31;

/// See the [module](self).
pub(super) struct AdmissionSlots(Box<[CachePadded<AtomicU32>]>);

impl AdmissionSlots {
    /// Returns `slots` free slots, distributed over the lanes as evenly as possible.
    pub(super) fn new(slots: u32) -> AdmissionSlots {
        // More than there can be threads; a lane's count is below the mark.
        let slots = slots.min(SEEN_FREE - 1);
        let lanes = slots.clamp(1, MAX_LANES);
        let share = |lane| slots / lanes + u32::from(lane < slots % lanes);
        let free = |lane| CachePadded::new(AtomicU32::new(share(lane)));
        AdmissionSlots((0..lanes).map(free).collect())
    }

    /// Number of slots that are free now.
    pub(super) fn free(&self) -> u32 {
        let lanes = self.0.iter();
        lanes
            .map(|lane| lane.load(Ordering::Relaxed) & !SEEN_FREE)
            .sum()
    }

    fn lane(&self, lane: u32) -> &AtomicU32 {
        &self.0[lane as usize]
    }

    /// Frees a slot of this lane (I1).
    #[inline]
    pub(super) fn release(&self, lane: u32) {
        self.lane(lane).fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a free slot of this lane, if there is one (I1).
    #[inline]
    pub(super) fn take_from(&self, lane: u32) -> bool {
        let fewer = |word: u32| (word & !SEEN_FREE).checked_sub(1); // I2
        let lane = self.lane(lane);
        let taken = lane.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        taken.is_ok()
    }

    /// Takes any free slot, and returns its lane.
    pub(super) fn take_any(&self) -> Option<u32> {
        self.free_lanes().find(|&lane| self.take_from(lane))
    }

    /// Takes a slot that was seen free before, and returns its lane. Marks the lanes that are seen
    /// free now.
    pub(super) fn take_abandoned(&self) -> Option<u32> {
        self.free_lanes().find(|&lane| {
            let word = self.lane(lane).load(Ordering::Relaxed);
            if word & SEEN_FREE != 0 {
                return self.take_from(lane);
            }
            if word > 0 {
                // If this fails, a client has been there in between.
                let (marked, relaxed) = (word | SEEN_FREE, Ordering::Relaxed);
                let _ = self
                    .lane(lane)
                    .compare_exchange(word, marked, relaxed, relaxed);
            }
            false
        })
    }

    fn free_lanes(&self) -> impl Iterator<Item = u32> {
        let is_free = |lane: &u32| self.lane(*lane).load(Ordering::Relaxed) & !SEEN_FREE > 0;
        (0..self.0.len() as u32).filter(is_free)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn all_slots_are_distributed_and_none_is_taken_twice() {
        for count in [0, 1, 6, 64, 65, 200, u32::MAX] {
            let slots = AdmissionSlots::new(count);
            let count = count.min(SEEN_FREE - 1);
            assert_eq!(slots.free(), count);
            assert!(slots.0.len() <= MAX_LANES as usize);
            let taken: Vec<u32> = std::iter::from_fn(|| slots.take_any()).take(300).collect();
            assert_eq!(taken.len(), count.min(300) as usize);
            assert_eq!(slots.free(), count - count.min(300));
            taken.iter().for_each(|&lane| slots.release(lane));
            assert_eq!(slots.free(), count);
        }
    }

    #[test]
    fn a_slot_is_taken_from_a_client_that_did_not_return_between_two_checks() {
        let slots = AdmissionSlots::new(2);
        assert!(slots.take_from(0) && slots.take_from(1));
        assert_eq!(slots.take_abandoned(), None, "none is free");
        // Its client is between two transactions at each check.
        for _ in 0..10 {
            slots.release(1);
            assert_eq!((slots.take_abandoned(), slots.free()), (None, 1));
            assert!(slots.take_from(1));
        }
        slots.release(1);
        assert_eq!(slots.take_abandoned(), None);
        assert_eq!((slots.take_abandoned(), slots.free()), (Some(1), 0));
        // The new client gets its chance, too.
        slots.release(1);
        assert_eq!((slots.take_abandoned(), slots.take_any()), (None, Some(1)));
    }
}
