//! Elision statistics: attempts and their results.
//!
//! # Invariants
//!
//! * I1  Only the worker that has the statistics writes them, so a count needs no
//!   read-modify-write. They have cache lines of their own, because a count beside other data would
//!   abort transactions that read the data.
//! * I2  A commit is counted inside its transaction: an attempt that aborts has not counted it.
//! * I3  Passes of a turn that take the latch (`adaptive`) are counted when it begins; its
//!   remaining passes have not happened yet.
//!
//! # Time
//!
//! With the feature `account` each attempt is timed, too, from before its beginning to after its
//! end, because a clock that is read inside could abort it. That is two reads of the processor's
//! clock per attempt, some ten nanoseconds each, of which about one falls into the measured time:
//! short sections seem longer than they are.

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

/// Returns the time that elision is measured by: ticks of a steady clock that is the same for all
/// processors, or 0 where the processor has none. Only differences are meaningful.
pub fn ticks() -> u64 {
    // SAFETY: every processor of this architecture has it, and it touches no memory.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
    0
}

/// Counts of one worker.
#[derive(Debug)]
pub(crate) struct ElisionStats {
    counts: [AtomicU64; COUNTS],
    /// Passes left of its turn at each site; below 0 if they are to be elided. Hidden from the
    /// model checker, because nothing depends on their values.
    passes_left: [AtomicI32; SITES],
}

/// The way a pass of an adaptive latch goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElisionChoice {
    /// The latch is taken, and the next passes take it without asking.
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

    /// One pass of a turn that goes this way.
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
            // Relaxed: no other thread writes it (I1).
            let count = counter.load(Ordering::Relaxed).wrapping_add(more);
            counter.store(count, Ordering::Relaxed);
        }
    }

    /// Counts a transaction that commits unless something aborts it, and this count with it (I2).
    #[inline(always)]
    pub(crate) fn record_committed(&self) {
        self.count(COMMITTED);
    }

    /// Counts an attempt that aborted because of `cause`.
    pub(crate) fn aborted(&self, cause: Cause) {
        self.count(cause as usize);
    }

    /// Counts an attempt that aborted because the latch was held, which is counted for its cause
    /// too.
    pub(crate) fn record_busy(&self) {
        self.count(BUSY);
    }

    /// Counts a pass that took a latch which could be elided.
    #[inline(always)]
    pub(crate) fn record_latched(&self) {
        self.count(LATCHED);
    }

    /// Returns how the next pass at that site goes; `None` if the turn is over.
    #[inline(always)]
    pub(crate) fn next_choice(&self, site: usize) -> Option<ElisionChoice> {
        let passes_left = &self.passes_left[site % SITES];
        // Relaxed: no other thread writes it (I1), here and below.
        match passes_left.load(Ordering::Relaxed) {
            0 => None,
            passes => {
                let choice = ElisionChoice::of(passes);
                passes_left.store(passes - choice.pass(), Ordering::Relaxed);
                Some(choice)
            }
        }
    }

    /// Begins the next turn at that site: so many passes, below 0 if elision is to be tried.
    /// Returns how the first of them goes.
    pub(crate) fn begin_turn(&self, site: usize, passes: i32) -> ElisionChoice {
        let choice = ElisionChoice::of(passes);
        self.passes_left[site].store(passes - choice.pass(), Ordering::Relaxed);
        self.add(LATCHED, u64::try_from(passes).unwrap_or(0)); // I3
        choice
    }

    /// Undoes the choice of a pass that did not happen.
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
        // I3. A concurrent reader may read one of them later than the other, and be off by a turn.
        let passes_left: u64 = self.passes_left.iter().map(passes_left).sum();
        sum.latched += read(LATCHED).saturating_sub(passes_left);
        sum.committed_ticks += read(COMMITTED_TICKS);
        sum.aborted_ticks += read(ABORTED_TICKS);
        for (index, aborted) in sum.aborted.iter_mut().enumerate() {
            *aborted += read(index);
        }
    }
}

/// Results of elision: passes through latches that try it, and attempts by their end.
///
/// Only latches that begin transactions by RTM count, because prefixes do not report their result.
/// An adaptive latch counts while it is tried or elided, and otherwise is a latch without elision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elisions {
    /// Number of passes that were elided: transactions that committed.
    pub committed: u64,
    /// Number of passes that took the latch after an attempt, or did not try.
    pub latched: u64,
    /// Number of attempts that aborted because the latch was held; part of those with cause
    /// [`Explicit`](Cause::Explicit).
    pub busy: u64,
    aborted: [u64; CAUSES],
    committed_ticks: u64,
    aborted_ticks: u64,
}

impl Elisions {
    /// Number of attempts that aborted because of `cause`.
    pub fn aborted(&self, cause: Cause) -> u64 {
        self.aborted[cause as usize]
    }

    /// Number of attempts that ended, either way.
    pub fn attempts(&self) -> u64 {
        self.committed + self.aborted.iter().sum::<u64>()
    }

    /// Returns the share of attempts that aborted, from 0 to 1; `None` without attempts.
    ///
    /// ```
    /// use foxton_sync::htm::Elisions;
    ///
    /// assert_eq!(Elisions::default().aborted_share(), None);
    /// ```
    pub fn aborted_share(&self) -> Option<f64> {
        share(self.attempts() - self.committed, self.attempts())
    }

    /// Returns the share of passes that were elided, from 0 to 1; `None` without passes.
    pub fn elided_share(&self) -> Option<f64> {
        share(self.committed, self.committed + self.latched)
    }

    /// Returns the shares, from 0 to 1, of `spent` ([`ticks`] of all threads together) that went
    /// into transactions that committed, and into attempts that aborted. A thread that is
    /// descheduled inside one spends its time there until it is back, and then it has aborted.
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

    /// Adds the counts of other workers.
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

    /// Returns the counts since `before`, of the same workers.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            committed: self.committed - before.committed,
            // A concurrent read may be off by a turn.
            latched: self.latched.saturating_sub(before.latched),
            busy: self.busy - before.busy,
            aborted: std::array::from_fn(|cause| self.aborted[cause] - before.aborted[cause]),
            committed_ticks: self.committed_ticks - before.committed_ticks,
            aborted_ticks: self.aborted_ticks - before.aborted_ticks,
        }
    }
}

/// Times the attempts of one worker, if they are timed; otherwise does nothing and has no size.
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

    /// An attempt is about to begin. Written to memory before it: an abort leaves it as it is.
    #[inline(always)]
    pub(crate) fn start(self) {
        if let Some(started) = self.stats().and_then(|stats| stats.counts.get(STARTED)) {
            started.store(ticks(), Ordering::Relaxed); // Relaxed: no other thread reads it.
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

    /// The attempt has committed.
    #[inline(always)]
    pub(crate) fn record_committed(self) {
        self.stop(COMMITTED_TICKS);
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
