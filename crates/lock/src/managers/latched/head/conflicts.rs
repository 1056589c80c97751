//! Conflicts between the requests of one name, for refusals and for deadlock detection.

use super::{ConflictingRequest, LockHead};
use crate::{
    deadlock::{BlockingMode, WaitEdges},
    mode::Mode,
    owner::owner_table::WaitTicket,
};

impl LockHead {
    /// Returns the requests that block a request of `owner_index` for `mode` at `position` in the
    /// queue.
    pub(crate) fn conflicting(
        &self,
        owner_index: u32,
        mode: Mode,
        position: usize,
    ) -> impl Iterator<Item = ConflictingRequest> {
        let holders = self
            .holders()
            .map(|(owner_index, mode)| (owner_index, mode, false));
        let ahead = self
            .waiters()
            .take(position)
            .map(|waiter| (waiter.owner_index, waiter.mode, true));
        holders
            .chain(ahead)
            .filter(move |&(other, held, _)| other != owner_index && !held.compatible(mode))
    }

    /// Returns the position that a blocked request would have in the queue.
    pub(crate) fn position_of_next(&self, is_conversion: bool) -> usize {
        let Some(queue) = self.queue.as_ref() else {
            return 0;
        };
        if is_conversion {
            queue.conversions
        } else {
            queue.waiters.len()
        }
    }

    /// Returns the mode in which `blocker` blocks `wait`, if that still waits.
    pub(crate) fn blocking_mode(&self, wait: WaitTicket, blocker: u32) -> Option<BlockingMode> {
        let position = self.position(wait)?;
        let waiter = self.waiter_at(position)?;
        let mut conflicting = self.conflicting(waiter.owner_index, waiter.mode, position);
        let (_, mode, waits) = conflicting.find(|&(owner_index, ..)| owner_index == blocker)?;
        Some(BlockingMode {
            mode,
            holds: !waits,
        })
    }

    /// Returns the owners that the waiter at `position` waits for, directly or through other
    /// waiters of this queue.
    pub(crate) fn wait_edges(&self, position: usize, target: u32) -> WaitEdges {
        let start = self.waiter_at(position).expect("the position of a waiter");
        let ahead = self.waiters().take(position).rev();
        WaitEdges::collect(
            (start.owner_index, start.mode),
            ahead.map(|waiter| (waiter.wait(), waiter.mode)),
            self.granted,
            self.holders(),
            target,
        )
    }
}
