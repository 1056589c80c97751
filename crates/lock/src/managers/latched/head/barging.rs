//! Grants that are lent: a waiter that has not seen its own yet is passed by who asks before it wakes.

use super::{HeadWaiter, LockHead};
use crate::{
    mode::{Mode, Set},
    owner::owner_table::WaitTicket,
};

/// How often the first of the line is passed, in its sleep, by those who are awake, at most.
pub(crate) const PASSED_ASLEEP: u8 = 100;

/// A time, counted from any moment; it comes round in 49 days. Or a span of time; the longest has no end.
pub(crate) type Millis = u32;

/// When a request comes, and for how long who sleeps may be passed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BargingAttempt {
    pub(crate) now: Millis,
    pub(crate) at_most: Millis,
}

impl BargingAttempt {
    /// Whether `asleep` may be passed once more.
    fn may_pass(self, asleep: &HeadWaiter) -> bool {
        let since = self.now.wrapping_sub(asleep.passed_since);
        let in_time = self.at_most == Millis::MAX || since <= self.at_most;
        asleep.overtaken == 0 || (asleep.overtaken < PASSED_ASLEEP && in_time)
    }
}

impl LockHead {
    /// Grants a new request in the place of the one that was granted last, if that one asks for no more, nobody else is
    /// in its way but who waits behind it, and `take_back` takes that grant back. Who had it is the first in the
    /// line again.
    pub(crate) fn grant_instead(
        &mut self,
        place: u32,
        mode: Mode,
        passing: BargingAttempt,
        take_back: impl FnOnce(&HeadWaiter) -> bool,
    ) -> Option<u32> {
        let line = self.line.as_ref().filter(|line| line.conversions == 0)?;
        let asleep = line
            .given
            .filter(|given| passing.may_pass(given) && !given.mode.compatible(mode))
            // Who would share passes nobody who would not: readers that never cease do not add up.
            .filter(|given| mode.covers(given.mode))?;
        let own = asleep.mode.set();
        // What has another owner by now, or another mode, was seen and given back long ago (I6).
        let held = self.requests.get(asleep.slot as usize)?;
        if held.place != asleep.place || held.granted != own {
            return None;
        }
        if mode.conflicts().meets(self.granted_besides(own)) || !take_back(&asleep) {
            return None;
        }
        self.set_granted(asleep.slot, Set::NONE);
        let line = self.line.as_mut()?;
        line.given = None;
        line.waiters.push_front(HeadWaiter {
            overtaken: asleep.overtaken + 1,
            passed_since: match asleep.overtaken {
                0 => passing.now,
                _ => asleep.passed_since,
            },
            ..asleep
        });
        self.count_awaited(own);
        self.count_granted(mode.set());
        Some(self.take_slot(place, mode.set()))
    }

    /// A fault on purpose: as `grant_instead`, where the one that was granted last has seen it, and goes on.
    #[cfg(feature = "planted")]
    pub(crate) fn grant_beside(&mut self, place: u32, mode: Mode) -> Option<u32> {
        let seen = self.line.as_ref()?.given?;
        let held = self.requests.get(seen.slot as usize)?;
        let (own, is_held) = (seen.mode.set(), held.place == seen.place);
        if !is_held || held.granted != own || mode.conflicts().meets(self.granted_besides(own)) {
            return None;
        }
        self.count_granted(mode.set());
        Some(self.take_slot(place, mode.set()))
    }

    /// What was granted to a waiter, and can still be taken back, is its own from now on.
    pub(crate) fn keep_given(&mut self, wait: WaitTicket) {
        if let Some(line) = self.line.as_mut() {
            line.given.take_if(|given| given.wait() == wait);
        }
    }

    /// A waiter is passed no more, if it is in the line; nor is anybody before it, for who passes the first passes
    /// them all.
    pub(crate) fn let_none_pass(&mut self, wait: WaitTicket) {
        let Some(position) = self.position(wait) else {
            return;
        };
        let line = self.line.as_mut().expect("somebody is in the line");
        line.given = None;
        let ahead = line.waiters.range_mut(..=position);
        ahead.for_each(|waiter| waiter.overtaken = PASSED_ASLEEP);
    }
}
