//! Outcomes of attempts at a transaction.
//!
//! There are seven counters for each type of transaction; their sum is the number of attempts. A
//! transaction that was a deadlock victim twice and then committed is three attempts: two
//! `deadlock`, one `ok`.

/// Number of outcomes.
pub const OUTCOMES: usize = 7;

/// How one attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Outcome {
    /// Committed, did its full work.
    Ok,
    /// Ended as planned, having found nothing, as expected.
    Miss,
    /// Rolled back because the workload says so.
    Rule,
    /// Victim of a deadlock.
    Deadlock,
    /// A lock wait that timed out.
    Timeout,
    /// A write at level snapshot of a row that had changed since.
    Overwritten,
    /// Anything else: the run is void.
    Error,
}

impl Outcome {
    /// Every outcome, in the order of the counters.
    pub const ALL: [Outcome; OUTCOMES] = [
        Outcome::Ok,
        Outcome::Miss,
        Outcome::Rule,
        Outcome::Deadlock,
        Outcome::Timeout,
        Outcome::Overwritten,
        Outcome::Error,
    ];

    /// True if the transaction ended as planned; throughput counts these.
    pub fn is_commit(self) -> bool {
        matches!(self, Outcome::Ok | Outcome::Miss)
    }

    /// Its word in tables and files.
    pub fn name(self) -> &'static str {
        let names = [
            "ok",
            "miss",
            "rule",
            "deadlock",
            "timeout",
            "overwritten",
            "error",
        ];
        names[self as usize]
    }
}

/// One transaction, with the attempts it took, as a client reports it.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Index of the type among the workload's.
    pub kind: usize,
    /// How the last attempt ended.
    pub outcome: Outcome,
    /// Earlier attempts that were deadlock victims.
    pub deadlocks: u32,
    /// Earlier attempts whose lock wait timed out.
    pub timeouts: u32,
    /// Earlier attempts whose row had changed since their snapshot.
    pub overwritten: u32,
    /// Parts that were skipped because there was nothing to do, in workloads that have such.
    pub skipped: u32,
    /// The error, if the outcome is [`Outcome::Error`].
    pub failure: Option<Box<str>>,
}

impl Ended {
    /// A transaction of this kind that ended as planned at the first attempt.
    pub fn ok(kind: usize) -> Ended {
        Ended {
            kind,
            outcome: Outcome::Ok,
            deadlocks: 0,
            timeouts: 0,
            overwritten: 0,
            skipped: 0,
            failure: None,
        }
    }
}

/// Skipped parts of transactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skips {
    /// Transactions that skipped something.
    pub transactions: u64,
    /// Number of skipped parts.
    pub parts: u64,
}

/// Outcomes counted by type of transaction.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    kinds: &'static [&'static str],
    counts: Vec<[u64; OUTCOMES]>,
    /// Skipped parts.
    pub skips: Skips,
    /// The first error, in words.
    pub failure: Option<Box<str>>,
}

impl Tally {
    /// Nothing counted yet, for the types of transaction named.
    pub fn new(kinds: &'static [&'static str]) -> Tally {
        Tally {
            kinds,
            counts: vec![[0; OUTCOMES]; kinds.len()],
            skips: Skips::default(),
            failure: None,
        }
    }

    /// Counts one transaction and the attempts before its last.
    pub fn count(&mut self, ended: Ended) {
        let counts = &mut self.counts[ended.kind];
        counts[ended.outcome as usize] += 1;
        counts[Outcome::Deadlock as usize] += u64::from(ended.deadlocks);
        counts[Outcome::Timeout as usize] += u64::from(ended.timeouts);
        counts[Outcome::Overwritten as usize] += u64::from(ended.overwritten);
        self.skips.transactions += u64::from(ended.skipped > 0);
        self.skips.parts += u64::from(ended.skipped);
        if self.failure.is_none() {
            self.failure = ended.failure;
        }
    }

    /// Adds what another client counted of the same types.
    pub fn add(&mut self, other: &Tally) {
        if self.counts.is_empty() {
            *self = Tally::new(other.kinds);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine += theirs;
            }
        }
        self.skips.transactions += other.skips.transactions;
        self.skips.parts += other.skips.parts;
        if self.failure.is_none() {
            self.failure.clone_from(&other.failure);
        }
    }

    /// Attempts of every type with this outcome.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.counts
            .iter()
            .map(|counts| counts[outcome as usize])
            .sum()
    }

    /// Attempts of one type, by its index, with this outcome; 0 if none was ever counted.
    pub fn of_kind(&self, kind: usize, outcome: Outcome) -> u64 {
        let counts = self.counts.get(kind);
        counts.map_or(0, |counts| counts[outcome as usize])
    }

    /// The counters of each type, in the order of [`Outcome::ALL`].
    pub fn by_kind(&self) -> impl Iterator<Item = (&'static str, &[u64; OUTCOMES])> {
        self.kinds.iter().copied().zip(&self.counts)
    }

    /// Transactions that ended as planned: throughput counts these.
    pub fn committed(&self) -> u64 {
        self.of(Outcome::Ok) + self.of(Outcome::Miss)
    }

    /// Attempts that the engine ended because of other transactions: deadlocks, timeouts, and rows
    /// that had changed since a snapshot.
    pub fn aborts(&self) -> u64 {
        let conflicts = [Outcome::Deadlock, Outcome::Timeout, Outcome::Overwritten];
        conflicts.map(|outcome| self.of(outcome)).iter().sum()
    }

    /// Every attempt.
    pub fn attempts(&self) -> u64 {
        Outcome::ALL.iter().map(|&outcome| self.of(outcome)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_add_up_to_the_attempts() {
        let mut tally = Tally::new(&["read", "update"]);
        tally.count(Ended::ok(0));
        tally.count(Ended {
            deadlocks: 2,
            timeouts: 1,
            overwritten: 3,
            ..Ended::ok(1)
        });
        tally.count(Ended {
            outcome: Outcome::Error,
            skipped: 3,
            failure: Some("disk full".into()),
            ..Ended::ok(0)
        });
        assert_eq!(
            (tally.committed(), tally.aborts(), tally.attempts()),
            (2, 6, 9)
        );
        let of =
            |kind| [Outcome::Ok, Outcome::Deadlock, Outcome::Error].map(|o| tally.of_kind(kind, o));
        assert_eq!((of(0), of(1)), ([1, 0, 1], [1, 2, 0]));
        let mut sum = Tally::default();
        sum.add(&tally);
        sum.add(&tally);
        assert_eq!((sum.committed(), sum.aborts(), sum.attempts()), (4, 12, 18));
        let skips = Skips {
            transactions: 2,
            parts: 6,
        };
        assert_eq!(
            (sum.skips, sum.failure.as_deref()),
            (skips, Some("disk full"))
        );
    }
}
