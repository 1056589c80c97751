//! Who stands in whose way at one name: for refusals, and for the search for deadlocks.

use super::{ConflictingRequest, LockHead};
use crate::{
    deadlock::{BlockingMode, WaitEdges},
    mode::Mode,
    owner::owner_table::WaitTicket,
};

impl LockHead {
    /// Who stands in the way of a request of `place` for `mode` that stands, or would stand, at
    /// `position` in the line.
    pub(crate) fn obstacles(
        &self,
        place: u32,
        mode: Mode,
        position: usize,
    ) -> impl Iterator<Item = ConflictingRequest> {
        let holders = self.holders().map(|(place, mode)| (place, mode, false));
        let ahead = self
            .waiters()
            .take(position)
            .map(|waiter| (waiter.place, waiter.mode, true));
        holders
            .chain(ahead)
            .filter(move |&(other, held, _)| other != place && !held.compatible(mode))
    }

    /// Where a request that cannot be granted now would stand in the line.
    pub(crate) fn position_of_next(&self, is_conversion: bool) -> usize {
        let Some(line) = self.line.as_ref() else {
            return 0;
        };
        if is_conversion {
            line.conversions
        } else {
            line.waiters.len()
        }
    }

    /// How `blocker` stands in the way of `wait`, if it still waits.
    pub(crate) fn in_the_way(&self, wait: WaitTicket, blocker: u32) -> Option<BlockingMode> {
        let position = self.position(wait)?;
        let waiter = self.waiter_at(position)?;
        let mut obstacles = self.obstacles(waiter.place, waiter.mode, position);
        let (_, mode, waits) = obstacles.find(|&(place, ..)| place == blocker)?;
        Some(BlockingMode {
            mode,
            holds: !waits,
        })
    }

    /// For whom the waiter at `position` waits, directly or through others of this line.
    pub(crate) fn reach(&self, position: usize, target: u32) -> WaitEdges {
        let start = self.waiter_at(position).expect("the position of a waiter");
        let ahead = self.waiters().take(position).rev();
        WaitEdges::walk(
            (start.place, start.mode),
            ahead.map(|waiter| (waiter.wait(), waiter.mode)),
            self.granted,
            self.holders(),
            target,
        )
    }
}
