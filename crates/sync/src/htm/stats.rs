//! How often elision was tried, and what came of it.
//!
//! # Invariants
//!
//! * I1  Only the worker that has the tally writes it, so a count needs no read-modify-write. It lies on
//!   lines of its own, since a count beside somebody's data would abort whoever reads that.
//! * I2  A commit is counted inside its transaction: who aborts has not counted it.
//! * I3  Passes of a turn that take the latch (`trial`) are counted when it begins; those that are left
//!   of it have not passed yet.
//!
//! # Time
//!
//! With the feature `account` each attempt is timed, too, from before its beginning to after its end, since a
//! clock that is read inside could abort it. That is two looks at the clock of the processor for an attempt, some ten
//! nanoseconds each, of which about one falls into what is timed: short sections seem longer than they are.

use super::{Cause, adaptive::SITES};
use crate::shim::unmodelled::AtomicI32;
use crate::shim::{AtomicU64, Ordering};
use std::marker::PhantomData;

const CAUSES: usize = Cause::ALL.len();
const COMMITTED: usize = CAUSES;
const BUSY: usize = CAUSES + 1;
const LATCHED: usize = CAUSES + 2;
const STARTED: usize = CAUSES + 3;
const COMMITTED_TICKS: usize = CAUSES + 4;
const ABORTED_TICKS: usize = CAUSES + 5;

const TIMED: bool = cfg!(feature = "account");

/// None in a model: each would be one more place to switch threads.
const COUNTS: usize = match (cfg!(loom), TIMED) {
    (true, _) => 0,
    (_, false) => CAUSES + 3,
    (_, true) => CAUSES + 6,
};

/// What elision is timed by: ticks of a clock that goes on steadily and is the same for all processors, or 0 where
/// the processor has none. Only differences mean anything.
pub fn ticks() -> u64 {
    // SAFETY: every processor of this architecture has it, and it touches no memory.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
    0
}

/// What one worker counts.
#[derive(Debug)]
pub(crate) struct ElisionStats {
    counts: [AtomicU64; COUNTS],
    /// Passes left of its turn at each site; below 0 if they are to be elided. A model checker is not told of them: nothing
    /// depends on what is read here.
    passes_left: [AtomicI32; SITES],
}

/// How a pass of a latch that adapts goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElisionChoice {
    /// The latch is taken, and the next ones at once.
    Calm,
    /// The latch is taken.
    Latch,
    /// Elision is tried.
    Elide,
}

impl ElisionChoice {
    #[inline(always)]
    fn of(passes: i32) -> Self {
        if passes > 0 { Self::Latch } else { Self::Elide }
    }

    /// A pass of a turn that goes this way.
    #[inline(always)]
    fn pass(self) -> i32 {
        match self {
            Self::Calm => 0,
            Self::Latch => 1,
            Self::Elide => -1,
        }
    }
}

impl Default for ElisionStats {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            passes_left: std::array::from_fn(|_| AtomicI32::new(0)),
        }
    }
}

impl ElisionStats {
    #[inline(always)]
    fn count(&self, index: usize) {
        self.add(index, 1);
    }

    #[inline(always)]
    fn add(&self, index: usize, more: u64) {
        if let Some(counter) = self.counts.get(index) {
            // Relaxed: nobody else writes it (I1).
            let count = counter.load(Ordering::Relaxed).wrapping_add(more);
            counter.store(count, Ordering::Relaxed);
        }
    }

    /// A transaction that commits unless something aborts it, and this count with it (I2).
    #[inline(always)]
    pub(crate) fn record_committed(&self) {
        self.count(COMMITTED);
    }

    /// An attempt that aborted because of `cause`.
    pub(crate) fn aborted(&self, cause: Cause) {
        self.count(cause as usize);
    }

    /// An attempt that aborted because the latch was held; counted for its cause too.
    pub(crate) fn record_busy(&self) {
        self.count(BUSY);
    }

    /// A latch that could be elided was taken.
    #[inline(always)]
    pub(crate) fn record_latched(&self) {
        self.count(LATCHED);
    }

    /// How the next pass at that site goes; `None` if its turn is over.
    #[inline(always)]
    pub(crate) fn next_choice(&self, site: usize) -> Option<ElisionChoice> {
        let passes_left = &self.passes_left[site % SITES];
        // Relaxed: nobody else writes it (I1), here and below.
        match passes_left.load(Ordering::Relaxed) {
            0 => None,
            passes => {
                let choice = ElisionChoice::of(passes);
                passes_left.store(passes - choice.pass(), Ordering::Relaxed);
                Some(choice)
            }
        }
    }

    /// The next turn at that site: so many passes, below 0 if elision is to be tried. Says how the first of them goes.
    pub(crate) fn begin_turn(&self, site: usize, passes: i32) -> ElisionChoice {
        let choice = ElisionChoice::of(passes);
        self.passes_left[site].store(passes - choice.pass(), Ordering::Relaxed);
        self.add(LATCHED, u64::try_from(passes).unwrap_or(0)); // I3
        choice
    }

    /// A pass that was to go that way did not come about.
    #[cold]
    pub(crate) fn undo_choice(&self, site: usize, choice: ElisionChoice) {
        let passes_left = &self.passes_left[site];
        passes_left.store(
            passes_left.load(Ordering::Relaxed) + choice.pass(),
            Ordering::Relaxed,
        );
    }

    #[inline(always)]
    fn read(&self, index: usize) -> u64 {
        let counter = self.counts.get(index);
        counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    pub(crate) fn add_to(&self, sum: &mut Elisions) {
        let read = |index| self.read(index);
        sum.committed += read(COMMITTED);
        sum.busy += read(BUSY);
        let passes_left = |passes_left: &AtomicI32| {
            u64::try_from(passes_left.load(Ordering::Relaxed)).unwrap_or(0)
        };
        // I3. Who reads meanwhile may read one of them later than the other, and find more or fewer by a turn.
        let passes_left: u64 = self.passes_left.iter().map(passes_left).sum();
        sum.latched += read(LATCHED).saturating_sub(passes_left);
        sum.committed_ticks += read(COMMITTED_TICKS);
        sum.aborted_ticks += read(ABORTED_TICKS);
        for (index, aborted) in sum.aborted.iter_mut().enumerate() {
            *aborted += read(index);
        }
    }
}

/// What came of elision: passes through latches that try it, and attempts by their end.
///
/// Only latches that begin transactions by RTM count. Prefixes do not say what came of them; and a latch that adapts counts
/// while it is tried or elided, and otherwise is one that knows nothing of elision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elisions {
    /// Passes that were elided: transactions that committed.
    pub committed: u64,
    /// Passes that took the latch after all, or did not try.
    pub latched: u64,
    /// Attempts that aborted because the latch was held; part of those with cause
    /// [`Explicit`](Cause::Explicit).
    pub busy: u64,
    aborted: [u64; CAUSES],
    committed_ticks: u64,
    aborted_ticks: u64,
}

impl Elisions {
    /// Attempts that aborted because of `cause`.
    pub fn aborted(&self, cause: Cause) -> u64 {
        self.aborted[cause as usize]
    }

    /// Attempts that ended, either way.
    pub fn attempts(&self) -> u64 {
        self.committed + self.aborted.iter().sum::<u64>()
    }

    /// The share of attempts that aborted, from 0 to 1; `None` without attempts.
    ///
    /// ```
    /// use foxton_sync::htm::Elisions;
    ///
    /// assert_eq!(Elisions::default().aborted_share(), None);
    /// ```
    pub fn aborted_share(&self) -> Option<f64> {
        share(self.attempts() - self.committed, self.attempts())
    }

    /// The share of passes that were elided, from 0 to 1; `None` without passes.
    pub fn elided_share(&self) -> Option<f64> {
        share(self.committed, self.committed + self.latched)
    }

    /// The shares, from 0 to 1, of `spent` ([`ticks`] of all threads together) that went into transactions that
    /// committed, and into attempts that aborted. A thread that loses its processor inside of one spends its
    /// time there until it is back, and then it has aborted.
    ///
    /// `None` where nothing is timed: without the feature `account`.
    ///
    /// ```
    /// use foxton_sync::htm::Elisions;
    ///
    /// let shares = Elisions::default().shares_of_time(1_000);
    /// assert_eq!(shares, cfg!(feature = "account").then_some((0.0, 0.0)));
    /// ```
    pub fn shares_of_time(&self, spent: u64) -> Option<(f64, f64)> {
        let of = |ticks| share(ticks, spent);
        TIMED.then(|| of(self.committed_ticks).zip(of(self.aborted_ticks)))?
    }

    /// Adds what other workers counted.
    pub fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.latched += other.latched;
        self.busy += other.busy;
        self.committed_ticks += other.committed_ticks;
        self.aborted_ticks += other.aborted_ticks;
        for (mine, theirs) in self.aborted.iter_mut().zip(other.aborted) {
            *mine += theirs;
        }
    }

    /// What came since `before`, of the same workers.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            committed: self.committed - before.committed,
            // Read while it was counted, it may be off by a turn.
            latched: self.latched.saturating_sub(before.latched),
            busy: self.busy - before.busy,
            aborted: std::array::from_fn(|cause| self.aborted[cause] - before.aborted[cause]),
            committed_ticks: self.committed_ticks - before.committed_ticks,
            aborted_ticks: self.aborted_ticks - before.aborted_ticks,
        }
    }
}

/// What the attempts of one worker are timed by, if they are: nothing otherwise, and of no size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttemptTimer<'a> {
    #[cfg(feature = "account")]
    stats: &'a ElisionStats,
    of: PhantomData<&'a ElisionStats>,
}

impl<'a> AttemptTimer<'a> {
    #[inline(always)]
    #[cfg_attr(
        not(feature = "account"),
        expect(unused_variables, reason = "nothing is timed")
    )]
    pub(crate) fn of(stats: &'a ElisionStats) -> Self {
        Self {
            #[cfg(feature = "account")]
            stats,
            of: PhantomData,
        }
    }

    #[inline(always)]
    fn stats(self) -> Option<&'a ElisionStats> {
        #[cfg(feature = "account")]
        return Some(self.stats);
        #[cfg(not(feature = "account"))]
        None
    }

    /// An attempt is about to begin. Kept in memory, written before: an abort leaves it as it is.
    #[inline(always)]
    pub(crate) fn start(self) {
        if let Some(started) = self.stats().and_then(|stats| stats.counts.get(STARTED)) {
            started.store(ticks(), Ordering::Relaxed); // Relaxed: nobody else looks at it.
        }
    }

    #[inline(always)]
    fn stop(self, index: usize) {
        if let Some(stats) = self.stats() {
            stats.add(index, ticks().saturating_sub(stats.read(STARTED)));
        }
    }

    /// The attempt has aborted.
    #[inline(always)]
    pub(crate) fn aborted(self) {
        self.stop(ABORTED_TICKS);
    }

    /// It has committed.
    #[inline(always)]
    pub(crate) fn record_committed(self) {
        self.stop(COMMITTED_TICKS);
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
