//! Revocable grants: a request barges past a waiter that has not seen its grant.

use super::{HeadWaiter, LatestGrant, LockHead};
use crate::{mode::Mode, owner::owner_table::WaitTicket};

/// Maximum number of requests that barge past the first waiter while it sleeps.
pub(crate) const MAX_BARGES: u8 = 100;

/// Milliseconds since any moment, which wrap around after 49 days; or a span of time, where the
/// maximum has no end.
pub(crate) type Millis = u32;

/// Time of a request, and how long requests may barge past a sleeper.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BargingAttempt {
    pub(crate) now: Millis,
    pub(crate) window: Millis,
}

impl BargingAttempt {
    /// True if one more request may barge past `sleeper`.
    fn may_barge(self, sleeper: &HeadWaiter) -> bool {
        let since = self.now.wrapping_sub(sleeper.barged_since);
        let in_time = self.window == Millis::MAX || since <= self.window;
        sleeper.overtaken == 0 || (sleeper.overtaken < MAX_BARGES && in_time)
    }
}

impl LockHead {
    /// Grants a new request ahead of the waiter that was granted last, if it covers that waiter's
    /// mode, no other request but later waiters blocks it, and `take_back` revokes the grant. The
    /// former holder is the first in the queue again.
    pub(crate) fn grant_ahead(
        &mut self,
        owner_index: u32,
        mode: Mode,
        passing: BargingAttempt,
        take_back: impl FnOnce(&HeadWaiter) -> bool,
    ) -> Option<u32> {
        let queue = self.queue.as_ref()?;
        let LatestGrant {
            waiter: sleeper,
            slot,
            ..
        } = queue
            .last_grant
            .filter(|_| queue.waiters.conversions() == 0)
            .filter(|last_grant| {
                queue
                    .barging_after
                    .is_none_or(|last| last < last_grant.order)
            })
            .filter(|LatestGrant { waiter, .. }| {
                passing.may_barge(waiter) && !waiter.mode.compatible(mode)
            })
            // A request that would share does not barge past one that would not, so an endless
            // stream of readers does not keep out a writer.
            .filter(|LatestGrant { waiter, .. }| mode.covers(waiter.mode))?;
        let own = sleeper.mode.set();
        // If the slot has another owner by now, or another mode, the grant was seen and the lock
        // released long ago (I6).
        let held = self.requests.get(slot as usize)?;
        if held.owner_index != sleeper.owner_index || held.granted != own {
            return None;
        }
        if mode.conflicts().intersects(self.granted_by_others(own)) || !take_back(&sleeper) {
            return None;
        }
        self.release(slot);
        let queue = self.queue.as_mut()?;
        queue.last_grant = None;
        queue.waiters.push_front(HeadWaiter {
            overtaken: sleeper.overtaken + 1,
            barged_since: match sleeper.overtaken {
                0 => passing.now,
                _ => sleeper.barged_since,
            },
            ..sleeper
        });
        self.waiting_modes = self.waiting_modes.union(own);
        self.count_granted(mode.set());
        Some(self.take_slot(owner_index, mode.set()))
    }

    /// Injected fault: as `grant_ahead`, although the last granted owner has seen its grant and
    /// goes on.
    pub(crate) fn grant_despite_seen(&mut self, owner_index: u32, mode: Mode) -> Option<u32> {
        let LatestGrant { waiter, slot, .. } = self.queue.as_ref()?.last_grant?;
        let held = self.requests.get(slot as usize)?;
        let (own, is_held) = (waiter.mode.set(), held.owner_index == waiter.owner_index);
        if !is_held
            || held.granted != own
            || mode.conflicts().intersects(self.granted_by_others(own))
        {
            return None;
        }
        self.count_granted(mode.set());
        Some(self.take_slot(owner_index, mode.set()))
    }

    /// Makes a revocable grant final.
    pub(crate) fn make_final(&mut self, wait: WaitTicket) {
        if let Some(queue) = self.queue.as_mut() {
            queue
                .last_grant
                .take_if(|last_grant| last_grant.waiter.wait() == wait);
        }
    }

    /// Forbids barging past a waiter, if it is in the queue, and past all before it, because a
    /// request that barges past the first barges past them all.
    pub(crate) fn forbid_barging(&mut self, wait: WaitTicket) {
        let Some((order, _)) = self.find(wait) else {
            return;
        };
        let queue = self.queue.as_mut().expect("the queue has a waiter");
        queue.last_grant = None;
        queue.barging_after = queue.barging_after.max(Some(order));
    }
}
