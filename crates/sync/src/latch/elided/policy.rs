//! After which aborts to try again, and when not to try at all.

use super::adaptive::{PROBE, State, Why};
use crate::htm::{Abort, engine::BUSY};
use crate::latch::Kind;
use crate::worker::Worker;

/// How an elided latch goes on after an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Takes the latch after one abort, as the processor's own elision does [001 Algorithm 1].
    Once,
    /// Tries up to a hundred times more, if the processor thinks that it may succeed [001 §4.2].
    Retry100,
    /// Tries up to three times, then takes the latch, and lets three passes after that not try either: what
    /// the elision of the C library does [001 §3.4].
    Cooldown,
    /// As `Cooldown`, but tries only where that pays; see `adaptive`.
    Adaptive,
}

/// What to do after an abort.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Try again.
    Again,
    /// Wait until nobody holds the latch, then try again.
    WhenFree,
    /// Take the latch.
    Take,
}

impl Policy {
    /// That of the latches called `kind`.
    pub(super) fn of(kind: Kind) -> Self {
        match kind {
            Kind::ElidedRtm => Self::Once,
            Kind::ElidedRetry100 => Self::Retry100,
            Kind::ElidedCooldown => Self::Cooldown,
            Kind::ElidedAdaptive => Self::Adaptive,
            kind => unreachable!("{kind} begins no transactions of its own"),
        }
    }

    /// What latches are called that have it.
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Once => Kind::ElidedRtm,
            Self::Retry100 => Kind::ElidedRetry100,
            Self::Cooldown => Kind::ElidedCooldown,
            Self::Adaptive => Kind::ElidedAdaptive,
        }
    }

    /// What comes after `abort`, which `failures` others came before in this pass.
    pub(super) fn after(self, abort: Abort, failures: u32) -> Next {
        match abort.code() {
            Some(BUSY) if !abort.was_inside_another() => Next::WhenFree,
            // Somebody inside asked for it, and would again.
            Some(_) => Next::Take,
            None if abort.may_succeed() && failures < self.retries() => Next::Again,
            None => Next::Take,
        }
    }

    /// Where a latch that has it begins.
    pub(super) const fn first(self) -> State {
        match self {
            Self::Once | Self::Retry100 | Self::Cooldown => State::plain(0),
            Self::Adaptive => State::LOOKING,
        }
    }

    /// What comes after a pass that took the latch, `worker` being who did.
    #[inline(always)]
    pub(super) const fn taken(self, state: State, worker: u32, why: Why) -> State {
        let resting = state.rest() > 0;
        match (self, why) {
            // Who waited for a latch that rests is one more pass, and one that the latch moved for.
            (Self::Adaptive, _) if resting => state.taken(worker, Why::Resting),
            // Another had the last pass of the rest: this one was not asked for.
            (Self::Adaptive, Why::Resting) => state,
            (Self::Adaptive, _) => state.taken(worker, why),
            (_, Why::Resting) => State::plain(state.rest().saturating_sub(1)),
            // No transaction of his failed: nobody else is to rest for it, or those who wait would keep a rest going.
            (Self::Cooldown, Why::Waited) => State::plain(state.rest()),
            (Self::Cooldown, _) => State::plain(3),
            _ => State::plain(0),
        }
    }

    /// Whether this pass is to take the latch, though it could try: so that somebody who may write the latch's
    /// state has a look.
    #[inline(always)]
    pub(super) fn probes(self, worker: &Worker) -> bool {
        self == Self::Adaptive && worker.random_below(PROBE) == 0
    }

    const fn retries(self) -> u32 {
        match self {
            Self::Once => 0,
            Self::Retry100 => 100,
            Self::Cooldown | Self::Adaptive => 2,
        }
    }
}
