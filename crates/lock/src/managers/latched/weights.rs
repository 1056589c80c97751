//! Weights at hand: for whom others wait goes before those for whom fewer do, from the moment on that it begins to wait.
//!
//! How many wait for an owner is counted in its record: one more when somebody comes to wait for what it holds, the
//! whole line when it is granted what others wait for. That is not exact: those who wait for these are not counted, nor
//! is it noticed when somebody gives up. But it is known when it is needed. Who gives back one lock has fewer waiting
//! for it, and nobody who ends, or goes back to a savepoint of the locks.

use super::{BucketRequest, Buckets, LatchedQueues};
use crate::{
    managers::latched::head::LockHead,
    mode::Mode,
    owner::{
        Owner,
        owner_table::{WaitInfo, Wakes},
    },
};
use foxton_sync::worker::Worker;

#[expect(private_bounds, reason = "as for the rest of it")]
impl<B: Buckets> LatchedQueues<B> {
    /// The same, but who begins to wait goes before those for whom fewer wait.
    pub(in crate::managers) fn with_weights(self) -> Self {
        Self {
            uses_weights: true,
            ..self
        }
    }

    /// Who has just been put into the line is counted with those for whom it waits.
    pub(super) fn add_weight(&self, head: &LockHead, request: &BucketRequest<'_>) {
        let owner_index = request.owner.id().index();
        let holders = head
            .holders()
            .filter(|&(other, mode)| other != owner_index && !mode.compatible(request.mode));
        holders.for_each(|(other, _)| self.owners.record(other).add_waiters(1));
    }

    /// Puts a waiter as far to the front as its own weight brings it, and says whether that was anywhere. Then it has to
    /// be searched from, if it waits yet: others wait for it who did not.
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
                .is_some_and(|head| head.position(wait).is_some());
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

    /// How many of those who wait there do so for what is held in `mode`.
    pub(super) fn blocked_waiters(&self, head: &LockHead, mode: Mode) -> usize {
        match self.uses_weights {
            true => head
                .queue()
                .filter(|waiter| !waiter.mode.compatible(mode))
                .count(),
            false => 0,
        }
    }

    /// A transaction has ended, or given back all since a savepoint.
    pub(in crate::managers) fn clear_weight(&self, owner: &Owner) {
        if self.uses_weights {
            owner.record().clear_waiters();
        }
    }
}
