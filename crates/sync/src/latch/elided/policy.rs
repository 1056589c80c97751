//! After which aborts to try again, and when not to try at all.

use crate::htm::{Abort, backend::BUSY};
use crate::latch::Kind;

/// Passes that take a latch that adapts after one that gave up.
pub(super) const ADAPTIVE_SKIPS: u32 = 15;

/// How an elided latch goes on after an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElisionPolicy {
    /// Takes the latch after one abort, as the processor's own elision does [001 Algorithm 1].
    Once,
    /// Tries up to a hundred times more, if the processor thinks that it may succeed [001 §4.2].
    Retry100,
    /// Tries up to three times, then takes the latch, and lets three passes after that not try either: what
    /// the elision of the C library does [001 §3.4].
    Cooldown,
    /// As `Cooldown`, with a longer rest, but tries only where that pays; see `htm::trial`.
    Adaptive,
}

/// What to do after an abort.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AfterAbort {
    /// Try again.
    Again,
    /// Wait until nobody holds the latch, then try again.
    WhenFree,
    /// Take the latch.
    Take,
}

/// Why a pass took the latch, that might have been elided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeReason {
    /// The latch rests.
    Resting,
    /// Its transactions aborted.
    GaveUp,
    /// It was held for long.
    Waited,
}

impl ElisionPolicy {
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
    pub(super) fn after(self, abort: Abort, failures: u32) -> AfterAbort {
        match abort.code() {
            Some(BUSY) if !abort.was_inside_another() => AfterAbort::WhenFree,
            // Somebody inside asked for it, and would again.
            Some(_) => AfterAbort::Take,
            None if abort.may_succeed() && failures < self.retries() => AfterAbort::Again,
            None => AfterAbort::Take,
        }
    }

    /// How many passes are not to try after one that took the latch, if `skips` were not to before.
    #[inline(always)]
    pub(super) const fn skips(self, skips: u32, why: TakeReason) -> u32 {
        match (self, why) {
            (_, TakeReason::Resting) => skips.saturating_sub(1),
            // No transaction of his failed: nobody else is to rest for it, or those who wait would keep a rest going.
            (_, TakeReason::Waited) => skips,
            (Self::Cooldown, TakeReason::GaveUp) => 3,
            (Self::Adaptive, TakeReason::GaveUp) => ADAPTIVE_SKIPS,
            (Self::Once | Self::Retry100, TakeReason::GaveUp) => 0,
        }
    }

    const fn retries(self) -> u32 {
        match self {
            Self::Once => 0,
            Self::Retry100 => 100,
            Self::Cooldown | Self::Adaptive => 2,
        }
    }
}
