//! Conflicts between the requests of one name, for refusals and for deadlock detection.

use super::{ConflictingRequest, LockHead};
use crate::{
    deadlock::{BlockingMode, WaitEdges},
    mode::Mode,
    owner::owner_table::WaitTicket,
    request::MAX_BLOCKERS,
    wait_list::{WaitList, WaitOrder},
};
use smallvec::SmallVec;

/// Requests that block another one: some of them, and how many more there are.
#[derive(Debug, Default)]
pub(crate) struct ConflictingRequests {
    pub(crate) listed: SmallVec<[ConflictingRequest; 4]>,
    pub(crate) more: usize,
}

impl LockHead {
    /// Returns the requests that block a request of `owner_index` for `mode` at `order` in the
    /// queue: holders, and then waiters, first come first.
    pub(crate) fn conflicting(
        &self,
        owner_index: u32,
        mode: Mode,
        order: WaitOrder,
    ) -> ConflictingRequests {
        let holders = self
            .holders()
            .filter(|&(other, held)| other != owner_index && !held.compatible(mode));
        let mut found = ConflictingRequests::default();
        for (other, held) in holders {
            match found.listed.len() < MAX_BLOCKERS {
                true => found.listed.push((other, held, false)),
                false => found.more += 1,
            }
        }
        if let Some(waiters) = self.waiters() {
            let most = MAX_BLOCKERS - found.listed.len();
            let ahead = waiters.conflicting_before(order, mode, most);
            found.more += waiters
                .count_conflicting(order, mode)
                .saturating_sub(ahead.len());
            let ahead = ahead.iter();
            found
                .listed
                .extend(ahead.map(|waiter| (waiter.owner_index, waiter.mode, true)));
        }
        found
    }

    /// True if a new request for `mode`, of an owner that does not hold the name, is blocked.
    pub(crate) fn blocks(&self, mode: Mode) -> bool {
        mode.conflicts()
            .intersects(self.granted.union(self.waiting_modes))
    }

    /// Returns the order that a blocked request would have in the queue.
    pub(crate) fn order_of_next(&self, is_conversion: bool) -> WaitOrder {
        self.waiters().map_or(WaitOrder::MAX, |waiters| {
            waiters.order_of_next(is_conversion)
        })
    }

    /// Returns the number of waiters that a lock held in `mode` blocks.
    pub(crate) fn blocked_waiters(&self, mode: Mode) -> usize {
        self.waiters()
            .map_or(0, |waiters| waiters.count_conflicting(WaitOrder::MAX, mode))
    }

    /// Returns the mode in which `blocker` blocks `wait`, if that still waits.
    pub(crate) fn blocking_mode(&self, wait: WaitTicket, blocker: u32) -> Option<BlockingMode> {
        let (order, waiter) = self.find(wait)?;
        let blocks = |mode: Mode| blocker != waiter.owner_index && !mode.compatible(waiter.mode);
        let mut holders = self.holders();
        if let Some((_, mode)) = holders.find(|&(other, mode)| other == blocker && blocks(mode)) {
            return Some(BlockingMode { mode, holds: true });
        }
        let (before, other) = self.waiters()?.get_owner(blocker)?;
        (before < order && blocks(other.mode)).then_some(BlockingMode {
            mode: other.mode,
            holds: false,
        })
    }

    /// Returns the owners that a waiter waits for, directly or through other waiters of this queue;
    /// `None` if it has left the queue.
    pub(crate) fn wait_edges(&self, wait: WaitTicket, target: u32) -> Option<WaitEdges> {
        let start = self.find(wait)?;
        let waiters: &WaitList<_> = self.waiters()?;
        Some(WaitEdges::collect(
            waiters,
            start,
            self.granted,
            self.holders(),
            target,
        ))
    }
}
