//! Granule: one word that says whether weak locks on its names are remembered or real.
//!
//! # State
//!
//! ```text
//! bits   63 .. 33   32 .. 29   28     27 .. 0
//!        moment     level      real   strong locks held or requested
//! ```
//!
//! | count | real | the granule is | weak requests are |
//! |---|---|---|---|
//! | 0 | 0 | *biased*, since `moment` | remembered |
//! | > 0 | 0 | being revoked | sent to the real manager |
//! | any | 1 | *real*, at least until `moment` if the count is 0 | the same |
//!
//! Moments are in units of 2^22 ns, about four milliseconds, on the coarse clock of the owner
//! table, modulo 2^31. A moment more than fifty days old may be taken for a future one, which costs
//! some speed.
//!
//! # Invariants
//!
//! * I1  The count is the number of strong locks on names of the granule that are held, waited for,
//!   or being requested.
//! * I2  A revoker sets `real` after it has converted everything that was remembered in the
//!   granule. `real` is cleared only while the count is zero. So at a count of zero the granule is
//!   biased or real.
//! * I3  The word is changed by read-modify-writes only, so that the orderings below hold through
//!   all changes in between.
//!
//! # Orderings
//!
//! * O1  `remove_strong` (Release) to `is_biased` (Acquire): an owner that finds the granule biased
//!   comes after everything that was done under the former strong locks.
//! * O2  `make_real` (Release) to `add_strong` and `is_real` (Acquire): an owner that finds the
//!   granule real comes after the conversions.

use foxton_sync::shim::{AtomicU64, Ordering};
use std::time::Duration;

const COUNT: u64 = (1 << 28) - 1;
const REAL: u64 = 1 << 28;
const LEVEL_SHIFT: u32 = 29;
const LEVELS: u64 = 10;
const MOMENT_SHIFT: u32 = 33;
const MOMENTS: u64 = (1 << 31) - 1;

/// A granule stays real for at least this many times the duration of its revocation.
const COST_FACTOR: u64 = 12;

/// How long a granule stays real after a revocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct HoldOff {
    /// The first time; doubled for each further revocation soon after, up to 2^10 times as long.
    pub(super) first: Duration,
}

/// Number of units since the owner table was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment(u64);

impl Moment {
    pub(super) fn at(since_start: Duration) -> Self {
        Self(units(since_start) & MOMENTS)
    }

    fn after(self, units: u64) -> Self {
        Self((self.0 + units) & MOMENTS)
    }

    fn since(self, earlier: Self) -> u64 {
        self.0.wrapping_sub(earlier.0) & MOMENTS
    }

    fn has_come(self, now: Self) -> bool {
        now.since(self) <= MOMENTS / 2
    }
}

fn units(time: Duration) -> u64 {
    (time.as_nanos() >> 22) as u64
}

impl HoldOff {
    /// Returns the level after a revocation, and how long the granule stays real. `biased` is how
    /// long it had been biased, `overloaded` whether revocations take too much of all time.
    fn next(self, level: u64, biased: u64, cost: Duration, overloaded: bool) -> (u64, u64) {
        if self.first.is_zero() {
            return (0, 0);
        }
        let span = |level: u64| units(self.first * (1 << level)).max(1);
        // After its first revocation a granule stays real only briefly, even if other granules are
        // revoked often, because it may just have been loaded, and be read from now on.
        let level = match (biased < 4 * span(level), overloaded) {
            (true, false) => (level + 1).min(LEVELS),
            (true, true) => (level + 3).min(LEVELS),
            (false, _) => level.saturating_sub(1),
        };
        (level, span(level).max(COST_FACTOR * units(cost)))
    }
}

/// One granule.
#[derive(Debug, Default)]
pub(super) struct Granule(AtomicU64);

impl Granule {
    /// Returns a granule that is never biased, because it counts a strong lock that is never
    /// released.
    pub(super) fn always_real() -> Self {
        Self(AtomicU64::new(REAL | 1))
    }

    /// True if weak locks are remembered.
    #[inline(always)]
    pub(super) fn is_biased(&self) -> bool {
        self.0.load(Ordering::Acquire) & (COUNT | REAL) == 0 // O1
    }

    /// Counts a strong lock that is about to be requested, and returns true if the granule is real.
    /// Otherwise the remembered locks have to be converted first.
    #[inline]
    pub(super) fn add_strong(&self) -> bool {
        // SeqCst: O1 of `anchored`.
        let word = self.0.fetch_add(1, Ordering::SeqCst); // O2
        debug_assert!(word & COUNT < COUNT, "2^28 strong locks in one granule");
        word & REAL != 0
    }

    /// Uncounts a strong lock that was released.
    #[inline]
    pub(super) fn remove_strong(&self) {
        let word = self.0.fetch_sub(1, Ordering::Release); // O1
        debug_assert!(word & COUNT > 0, "I1: more strong locks gone than came");
    }

    /// True if all remembered locks have been converted.
    pub(super) fn is_real(&self) -> bool {
        self.0.load(Ordering::Acquire) & REAL != 0 // O2
    }

    /// Makes the granule real after all remembered locks were converted, which took `cost`. The
    /// caller is counted.
    pub(super) fn make_real(
        &self,
        hold_off: HoldOff,
        now: Moment,
        cost: Duration,
        overloaded: bool,
    ) {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & REAL == 0 {
            let biased = now.since(Moment(word >> MOMENT_SHIFT));
            let level = word >> LEVEL_SHIFT & 15;
            let (level, stay) = hold_off.next(level, biased, cost, overloaded);
            let until = now.after(stay).0 << MOMENT_SHIFT;
            let next = until | level << LEVEL_SHIFT | REAL | word & COUNT;
            match self
                .0
                // O2
                .compare_exchange_weak(word, next, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// True if a weak lock may be remembered: the granule is biased, or has been real for long
    /// enough, and then becomes biased. A hint: `is_biased` decides. If `now` returns `None` the
    /// granule stays as it is.
    #[inline(always)]
    pub(super) fn may_remember(&self, now: impl FnOnce() -> Option<Moment>) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        match word & (COUNT | REAL) {
            0 => true,
            REAL => now().is_some_and(|now| self.rebias(word, now)),
            _ => false,
        }
    }

    #[inline(never)]
    fn rebias(&self, word: u64, now: Moment) -> bool {
        if !Moment(word >> MOMENT_SHIFT).has_come(now) {
            return false;
        }
        let biased = now.0 << MOMENT_SHIFT | word & 15 << LEVEL_SHIFT;
        // Relaxed: a link in the chain from `remove_strong` to `is_biased` (I3).
        self.0
            .compare_exchange(word, biased, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Ends the hold-off: the granule is biased now, or may be once no strong lock is left. Nothing
    /// happens while it is biased or being revoked.
    pub(super) fn coarsen(&self, now: Moment) {
        let ended = |word: u64| {
            let real = word & (REAL | COUNT);
            let left = if real == REAL { 0 } else { real };
            let ended = now.0 << MOMENT_SHIFT | word & 15 << LEVEL_SHIFT | left;
            (word & REAL != 0).then_some(ended)
        };
        // Relaxed: as in `rebias`.
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, ended);
    }

    /// Returns the number of counted strong locks.
    pub(super) fn strong_count(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & COUNT
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const HOLD_OFF: HoldOff = HoldOff {
        first: Duration::from_millis(10),
    };

    fn at(millis: u64) -> Moment {
        Moment::at(Duration::from_millis(millis))
    }

    fn known(millis: u64) -> Option<Moment> {
        Some(at(millis))
    }

    fn revoke(granule: &Granule, millis: u64) {
        assert!(!granule.add_strong());
        granule.make_real(HOLD_OFF, at(millis), Duration::ZERO, false);
        granule.remove_strong();
    }

    #[test]
    fn a_granule_is_real_while_strong_locks_are_there_and_for_some_time_after() {
        let granule = Granule::default();
        assert!(granule.is_biased());
        assert!(!granule.add_strong());
        assert!(!granule.is_biased() && !granule.is_real());
        granule.make_real(HOLD_OFF, at(100), Duration::ZERO, false);
        assert!(granule.add_strong() && granule.is_real());
        granule.remove_strong();
        assert!(
            !granule.may_remember(|| known(1_000_000)),
            "a strong lock is counted"
        );
        granule.remove_strong();
        assert!(!granule.may_remember(|| known(101)), "too soon");
        assert!(!granule.is_biased());
        assert!(granule.may_remember(|| known(1000)));
        assert!(granule.is_biased());
    }

    #[test]
    fn a_granule_revoked_again_soon_stays_real_for_longer() {
        let granule = Granule::default();
        let mut now = 0;
        let mut spans = Vec::new();
        for _ in 0..14 {
            revoke(&granule, now);
            let from = now;
            while !granule.may_remember(|| known(now)) {
                now += 1;
            }
            spans.push(now - from);
        }
        // To within a unit.
        let grow = spans.windows(2).all(|pair| pair[0] <= pair[1] + 5);
        assert!(grow, "{spans:?}");
        assert!(spans[0] < 50 && *spans.last().unwrap() > 8000, "{spans:?}");
        now += 1_000_000;
        revoke(&granule, now);
        assert!(granule.may_remember(|| known(now + 9000)));
    }

    #[test]
    fn a_costly_revocation_keeps_a_granule_real_for_a_multiple_of_it() {
        let granule = Granule::default();
        granule.add_strong();
        granule.make_real(HOLD_OFF, at(0), Duration::from_secs(1), false);
        granule.remove_strong();
        assert!(!granule.may_remember(|| known(11_000)));
        assert!(granule.may_remember(|| known(13_000)));
    }

    #[test]
    fn moments_go_round() {
        let last = Moment(MOMENTS);
        assert_eq!(last.after(1), Moment(0));
        assert!(last.has_come(Moment(0)) && !Moment(0).has_come(last));
    }
}
