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
    pub(in crate::managers) fn lending(self, at_most: Duration) -> Self {
        let at_most = Millis::try_from(at_most.as_millis()).unwrap_or(Millis::MAX);
        Self {
            lends: Some(at_most),
            ..self
        }
    }

    #[cfg(feature = "planted")]
    pub(in crate::managers) fn lending_twice(self) -> Self {
        Self {
            lends_twice: true,
            ..self
        }
    }

    pub(in crate::managers) fn lends(&self) -> bool {
        self.lends.is_some()
    }

    /// Grants what is asked for in the place of somebody asleep, if that may be, and says in which slot.
    pub(super) fn pass_asleep(
        &self,
        head: &mut LockHead,
        asked: &BucketRequest<'_>,
    ) -> Option<u32> {
        let at_most = self.lends?;
        // A number may be held for hours, so whoever is next has its turn.
        let passes = asked.patience == WaitMode::Wait
            && asked.converts.is_none()
            && asked.name.class() != Class::Advisory;
        if !passes {
            return None;
        }
        let place = asked.owner.id().place();
        let now = self.registry.now().as_millis() as Millis;
        let passing = BargingAttempt { now, at_most };
        let slot = head.grant_instead(place, asked.mode, passing, |asleep| {
            let parker = &self.registry.record(asleep.place).parker;
            parker.revoke(asleep.ticket, GRANTED)
        });
        #[cfg(feature = "planted")]
        if slot.is_none() && self.lends_twice {
            return head.grant_beside(place, asked.mode);
        }
        slot
    }
}
