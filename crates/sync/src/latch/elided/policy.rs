//! Elision policies: after which aborts to retry, and when not to try at all.

use crate::htm::{Abort, backend::BUSY};
use crate::latch::Kind;

/// Passes that take an adaptive latch after one that gave up.
pub(super) const ADAPTIVE_SKIPS: u32 = 15;

/// Reaction of an elided latch to an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElisionPolicy {
    /// Takes the latch after one abort, as the processor's own elision does [001 Algorithm 1].
    Once,
    /// Retries up to a hundred times, if the processor expects that a retry may succeed [001 §4.2].
    Retry100,
    /// Tries up to three times, then takes the latch, and lets the next three passes take it
    /// without trying, as the elision of the C library does [001 §3.4].
    Cooldown,
    /// As `Cooldown`, with more skipped passes, but tries only where that pays; see
    /// `htm::adaptive`.
    Adaptive,
}

/// Next step after an abort.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AfterAbort {
    /// Try again.
    Again,
    /// Wait until the latch is free, then try again.
    WhenFree,
    /// Take the latch.
    Take,
}

/// Reason why a pass took the latch that might have been elided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeReason {
    /// The latch skips elision.
    Resting,
    /// Its transactions aborted.
    GaveUp,
    /// It was held for long.
    Waited,
}

impl ElisionPolicy {
    /// Returns the policy of latches called `kind`.
    pub(super) fn of(kind: Kind) -> Self {
        match kind {
            Kind::ElidedRtm => Self::Once,
            Kind::ElidedRetry100 => Self::Retry100,
            Kind::ElidedCooldown => Self::Cooldown,
            Kind::ElidedAdaptive => Self::Adaptive,
            kind => unreachable!("{kind} begins no transactions of its own"),
        }
    }

    /// Returns the kind of latches with this policy.
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Once => Kind::ElidedRtm,
            Self::Retry100 => Kind::ElidedRetry100,
            Self::Cooldown => Kind::ElidedCooldown,
            Self::Adaptive => Kind::ElidedAdaptive,
        }
    }

    /// Returns the next step after `abort`, which came after `failures` others in this pass.
    pub(super) fn after(self, abort: Abort, failures: u32) -> AfterAbort {
        match abort.code() {
            Some(BUSY) if !abort.was_inside_another() => AfterAbort::WhenFree,
            // The body requested it, and would again.
            Some(_) => AfterAbort::Take,
            None if abort.may_succeed() && failures < self.retries() => AfterAbort::Again,
            None => AfterAbort::Take,
        }
    }

    /// Returns the number of passes that are to skip elision after one that took the latch, if
    /// `skips` were to before.
    #[inline(always)]
    pub(super) const fn skips(self, skips: u32, why: TakeReason) -> u32 {
        match (self, why) {
            (_, TakeReason::Resting) => skips.saturating_sub(1),
            // None of its own transactions failed. If others skipped elision for it, waiting
            // threads would prolong the skipping.
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
