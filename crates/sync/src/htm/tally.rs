//! How often elision was tried, and what came of it.
//!
//! # Invariants
//!
//! * I1  Only the worker that has the tally writes it, so a count needs no read-modify-write. It lies on
//!   lines of its own, since a count beside somebody's data would abort whoever reads that.
//! * I2  A commit is counted inside its transaction: who aborts has not counted it.

use super::Cause;
use crate::shim::{AtomicU64, Ordering};

const CAUSES: usize = Cause::ALL.len();
const COMMITTED: usize = CAUSES;
const BUSY: usize = CAUSES + 1;
const REAL: usize = CAUSES + 2;

/// None in a model: each would be one more place to switch threads.
const COUNTS: usize = if cfg!(loom) { 0 } else { CAUSES + 3 };

/// What one worker counts.
#[derive(Debug)]
pub(crate) struct Tally([AtomicU64; COUNTS]);

impl Default for Tally {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Tally {
    #[inline(always)]
    fn count(&self, index: usize) {
        if let Some(counter) = self.0.get(index) {
            // Relaxed: nobody else writes it (I1).
            let count = counter.load(Ordering::Relaxed).wrapping_add(1);
            counter.store(count, Ordering::Relaxed);
        }
    }

    /// A transaction that commits unless something aborts it, and this count with it (I2).
    #[inline(always)]
    pub(crate) fn committed(&self) {
        self.count(COMMITTED);
    }

    /// An attempt that aborted because of `cause`.
    pub(crate) fn aborted(&self, cause: Cause) {
        self.count(cause as usize);
    }

    /// An attempt that aborted because the latch was held; counted for its cause too.
    pub(crate) fn busy(&self) {
        self.count(BUSY);
    }

    /// A latch that could be elided was taken.
    #[inline(always)]
    pub(crate) fn real(&self) {
        self.count(REAL);
    }

    pub(crate) fn add_to(&self, sum: &mut Elisions) {
        let read = |index: usize| {
            let counter = self.0.get(index);
            counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
        };
        sum.committed += read(COMMITTED);
        sum.busy += read(BUSY);
        sum.real += read(REAL);
        for (index, aborted) in sum.aborted.iter_mut().enumerate() {
            *aborted += read(index);
        }
    }
}

/// What came of elision: passes through latches that try it, and attempts by their end.
///
/// Only latches that begin transactions by RTM count. Prefixes do not say what came of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elisions {
    /// Passes that were elided: transactions that committed.
    pub committed: u64,
    /// Passes that took the latch after all, or did not try.
    pub real: u64,
    /// Attempts that aborted because the latch was held; part of those with cause
    /// [`Explicit`](Cause::Explicit).
    pub busy: u64,
    aborted: [u64; CAUSES],
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
        share(self.committed, self.committed + self.real)
    }

    /// Adds what other workers counted.
    pub fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.real += other.real;
        self.busy += other.busy;
        for (mine, theirs) in self.aborted.iter_mut().zip(other.aborted) {
            *mine += theirs;
        }
    }

    /// What came since `before`, of the same workers.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            committed: self.committed - before.committed,
            real: self.real - before.real,
            busy: self.busy - before.busy,
            aborted: std::array::from_fn(|cause| self.aborted[cause] - before.aborted[cause]),
        }
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
