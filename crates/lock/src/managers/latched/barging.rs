//! Barging past sleeping waiters, by revocable grants (I3).
//!
//! A waiter that sleeps when its turn comes holds the lock for nothing, for as long as the
//! scheduler likes. Each owner that requests the lock meanwhile goes to sleep behind it, with locks
//! of its own, and gets it in the same way. So a queue does not end once it exists: the *convoy*
//! (M. Blasgen, J. Gray, M. Mitoma, T. Price: *The Convoy Phenomenon*, 1979). Their remedy grants
//! nothing to a sleeper, but wakes it and lets it ask again. Here the waiter is granted, so that it
//! need not ask, and the grant is revocable. A request barges ahead if its mode covers that of the
//! sleeper and nothing else blocks it. Mostly it releases the lock before the sleeper has a
//! processor. The sleeper, which was woken once, then finds the lock granted.

use super::{BucketRequest, Buckets, LatchedQueues};
use crate::{
    failpoint,
    managers::latched::head::{BargingAttempt, LockHead, Millis},
    name::Class,
    owner::owner_table::GRANTED,
    request::WaitMode,
};
use foxton_sync::worker::Worker;
use std::time::Duration;

#[expect(private_bounds, reason = "as for the rest of it")]
impl<B: Buckets> LatchedQueues<B> {
    /// Returns the manager with barging: a grant to a waiter is revocable until the waiter has seen
    /// it, and `window` limits how long requests may barge past a sleeper.
    pub(in crate::managers) fn with_barging(self, window: Duration) -> Self {
        let window = Millis::try_from(window.as_millis()).unwrap_or(Millis::MAX);
        Self {
            barging_window: Some(window),
            ..self
        }
    }

    pub(in crate::managers) fn allows_barging(&self) -> bool {
        self.barging_window.is_some()
    }

    /// Grants `request` ahead of a sleeping waiter, if that is allowed, and returns the slot.
    pub(super) fn barge(
        &self,
        worker: &Worker,
        head: &mut LockHead,
        request: &BucketRequest<'_>,
    ) -> Option<u32> {
        let window = self.barging_window?;
        // An advisory number may be held for hours, so the next waiter has its turn.
        let passes = request.wait_mode == WaitMode::Wait
            && request.converts.is_none()
            && request.name.class() != Class::Advisory;
        if !passes {
            return None;
        }
        let owner_index = request.owner.id().index();
        let now = self.owners.now().as_millis() as Millis;
        let passing = BargingAttempt { now, window };
        let slot = head.grant_ahead(owner_index, request.mode, passing, |sleeper| {
            let parker = &self.owners.record(sleeper.owner_index).parker;
            parker.revoke(sleeper.ticket, GRANTED)
        });
        if slot.is_none() && worker.failpoints().misbehaves(&failpoint::GRANTED_TWICE) {
            return head.grant_despite_seen(owner_index, request.mode);
        }
        slot
    }
}
