//! Grants that are lent (I3).
//!
//! Who sleeps when its turn comes holds a lock, for as long as the scheduler likes, for nothing; whoever needs
//! it meanwhile goes to sleep behind it, with locks of its own, and gets it in the same way. So a queue, once
//! there, stays: the *convoy* (M. Blasgen, J. Gray, M. Mitoma, T. Price: *The Convoy Phenomenon*, 1979). Their remedy is
//! to grant nothing to who sleeps, but to wake it and have it ask again. Here it is granted, so that it need not
//! ask, and the grant is lent: a request for no less, that is blocked by nothing else, takes its place, mostly gives the lock back before the sleeper
//! has a processor, and the sleeper, which was woken once, finds the lock its own.

use super::{BucketRequest, Buckets, LatchedQueues};
use crate::{
    managers::latched::head::{BargingAttempt, LockHead, Millis},
    name::Class,
    owner::owner_table::GRANTED,
    request::WaitMode,
};
use std::time::Duration;

#[expect(private_bounds, reason = "as for the rest of it")]
impl<B: Buckets> LatchedQueues<B> {
    /// The same, but what is granted to somebody who waits is lent until it is seen, and who sleeps is passed for so
    /// long.
    pub(in crate::managers) fn with_barging(self, window: Duration) -> Self {
        let window = Millis::try_from(window.as_millis()).unwrap_or(Millis::MAX);
        Self {
            barging_window: Some(window),
            ..self
        }
    }

    #[cfg(feature = "planted")]
    pub(in crate::managers) fn with_barging_after_seen(self) -> Self {
        Self {
            barge_after_seen: true,
            ..self
        }
    }

    pub(in crate::managers) fn allows_barging(&self) -> bool {
        self.barging_window.is_some()
    }

    /// Grants what is asked for in the place of somebody asleep, if that may be, and says in which slot.
    pub(super) fn barge(&self, head: &mut LockHead, request: &BucketRequest<'_>) -> Option<u32> {
        let window = self.barging_window?;
        // A number may be held for hours, so whoever is next has its turn.
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
        #[cfg(feature = "planted")]
        if slot.is_none() && self.barge_after_seen {
            return head.grant_despite_seen(owner_index, request.mode);
        }
        slot
    }
}
