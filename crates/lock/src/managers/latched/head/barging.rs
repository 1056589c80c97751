//! Grants that are lent: a waiter that has not seen its own yet is passed by who asks before it wakes.

use super::{HeadWaiter, LockHead};
use crate::{
    mode::{Mode, Set},
    owner::owner_table::WaitTicket,
};

/// How often the first of the line is passed, in its sleep, by those who are awake, at most.
pub(crate) const MAX_BARGES: u8 = 100;

/// A time, counted from any moment; it comes round in 49 days. Or a span of time; the longest has no end.
pub(crate) type Millis = u32;

/// When a request comes, and for how long who sleeps may be passed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BargingAttempt {
    pub(crate) now: Millis,
    pub(crate) window: Millis,
}

impl BargingAttempt {
    /// Whether `sleeper` may be passed once more.
    fn may_barge(self, sleeper: &HeadWaiter) -> bool {
        let since = self.now.wrapping_sub(sleeper.barged_since);
        let in_time = self.window == Millis::MAX || since <= self.window;
        sleeper.overtaken == 0 || (sleeper.overtaken < MAX_BARGES && in_time)
    }
}

impl LockHead {
    /// Grants a new request in the place of the one that was granted last, if that one asks for no more, nobody else is
    /// in its way but who waits behind it, and `take_back` takes that grant back. Who had it is the first in the
    /// line again.
    pub(crate) fn grant_ahead(
        &mut self,
        owner_index: u32,
        mode: Mode,
        passing: BargingAttempt,
        take_back: impl FnOnce(&HeadWaiter) -> bool,
    ) -> Option<u32> {
        let queue = self.queue.as_ref().filter(|queue| queue.conversions == 0)?;
        let sleeper = queue
            .last_grant
            .filter(|last_grant| passing.may_barge(last_grant) && !last_grant.mode.compatible(mode))
            // Who would share passes nobody who would not: readers that never cease do not add up.
            .filter(|last_grant| mode.covers(last_grant.mode))?;
        let own = sleeper.mode.set();
        // What has another owner by now, or another mode, was seen and given back long ago (I6).
        let held = self.requests.get(sleeper.slot as usize)?;
        if held.owner_index != sleeper.owner_index || held.granted != own {
            return None;
        }
        if mode.conflicts().intersects(self.granted_by_others(own)) || !take_back(&sleeper) {
            return None;
        }
        self.set_granted(sleeper.slot, Set::NONE);
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
        self.count_waiting(own);
        self.count_granted(mode.set());
        Some(self.take_slot(owner_index, mode.set()))
    }

    /// A fault on purpose: as `grant_ahead`, where the one that was granted last has seen it, and goes on.
    #[cfg(feature = "planted")]
    pub(crate) fn grant_despite_seen(&mut self, owner_index: u32, mode: Mode) -> Option<u32> {
        let seen = self.queue.as_ref()?.last_grant?;
        let held = self.requests.get(seen.slot as usize)?;
        let (own, is_held) = (seen.mode.set(), held.owner_index == seen.owner_index);
        if !is_held
            || held.granted != own
            || mode.conflicts().intersects(self.granted_by_others(own))
        {
            return None;
        }
        self.count_granted(mode.set());
        Some(self.take_slot(owner_index, mode.set()))
    }

    /// What was granted to a waiter, and can still be taken back, is its own from now on.
    pub(crate) fn make_final(&mut self, wait: WaitTicket) {
        if let Some(queue) = self.queue.as_mut() {
            queue
                .last_grant
                .take_if(|last_grant| last_grant.wait() == wait);
        }
    }

    /// A waiter is passed no more, if it is in the line; nor is anybody before it, for who passes the first passes
    /// them all.
    pub(crate) fn forbid_barging(&mut self, wait: WaitTicket) {
        let Some(position) = self.position(wait) else {
            return;
        };
        let queue = self.queue.as_mut().expect("somebody is in the line");
        queue.last_grant = None;
        let ahead = queue.waiters.range_mut(..=position);
        ahead.for_each(|waiter| waiter.overtaken = MAX_BARGES);
    }
}
