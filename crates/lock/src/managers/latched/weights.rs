//! Weights of waiters: a new waiter goes at once before waiters that fewer owners wait for.
//!
//! An owner's record counts the owners that wait for it. It grows by one when another owner begins
//! to wait for a lock that it holds, and by the whole queue when it is granted a name that others
//! wait for. The count is not exact: it includes neither those who wait for these, nor that a
//! waiter gives up. But it is known when it is needed. The release of one lock reduces it, and the
//! end of the transaction or a return to a savepoint sets it to zero.

use super::{BucketRequest, Buckets, LatchedQueues};
use crate::{
    managers::latched::head::LockHead,
    owner::{
        Owner,
        owner_table::{WaitInfo, Wakes},
    },
};
use foxton_sync::worker::Worker;

#[expect(private_bounds, reason = "as for the rest of it")]
impl<B: Buckets> LatchedQueues<B> {
    /// Returns the manager with weights: a new waiter goes before waiters that fewer owners wait
    /// for.
    pub(in crate::managers) fn with_weights(self) -> Self {
        Self {
            uses_weights: true,
            ..self
        }
    }

    /// Counts a new waiter at the holders for which it waits.
    pub(super) fn add_weight(&self, head: &LockHead, request: &BucketRequest<'_>) {
        let owner_index = request.owner.id().index();
        let holders = head
            .holders()
            .filter(|&(other, mode)| other != owner_index && !mode.compatible(request.mode));
        holders.for_each(|(other, _)| self.owners.record(other).add_waiters(1));
    }

    /// Moves a waiter as far forward as its weight allows, and returns true if it moved. Then the
    /// caller searches for deadlocks from it, if it still waits, because more owners wait for it
    /// now.
    pub(in crate::managers) fn move_forward(&self, worker: &Worker, waiting: &WaitInfo) -> bool {
        let wait = waiting.wait_ticket();
        let weight = self.owners.record(wait.owner_index).waiter_count();
        if !self.uses_weights || weight == 0 {
            return false;
        }
        let mut wakes = Wakes::new();
        let (name, hash) = (&waiting.name, waiting.name.hash() as u32);
        self.with(worker, name, hash, |entries| {
            let is_there = entries
                .get(name)
                .is_some_and(|head| head.find(wait).is_some());
            is_there
                && entries.change(name, |head| {
                    let moved = head.move_forward(wait, weight);
                    if moved {
                        self.grant_waiters(worker, head, &mut wakes);
                    }
                    moved
                })
        })
    }

    /// Resets the weight after the transaction has ended or gone back to a savepoint.
    pub(in crate::managers) fn clear_weight(&self, owner: &Owner) {
        if self.uses_weights {
            owner.record().clear_waiters();
        }
    }
}
