//! Wait statistics by table, by label and by name.
//!
//! A request that is granted at once is not counted here, because it is on the fast path, and
//! reading a clock would be a third of its cost. A request that waited has slept already, so
//! counting adds little: its wait time, and when the lock is released, its hold time. So **hold
//! times are those of locks that had to be waited for**, which are also the locks that others wait
//! for.
//!
//! Each owner has statistics of its own. It writes them, and the thread that asks for statistics
//! adds them up; those of owners that are gone have been added up before. No two waiting threads
//! share a cache line.
//!
//! # Invariants
//!
//! * I1  The statistics are bounded: `LABELS` labels, with the rest under one more; `NAMES`
//!   names. The embedder bounds the number of tables.
//! * I2  A name's count and time are lower bounds. When a name replaces another one, it takes over
//!   that name's time as its rank, but not as its count.

use crate::{
    name::{Class, Name},
    request::{OwnerLabel, RefusalReason},
};
use std::{collections::HashMap, time::Duration};

/// Labels counted separately.
const LABELS: usize = 48;
/// Names counted separately.
const NAMES: usize = 64;
/// Label under which further labels are counted.
pub(crate) const OTHERS: &str = "(others)";

/// Waits, and hold times of locks that were waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WaitUsage {
    /// Number of requests that had to wait, whatever the outcome.
    pub waits: u64,
    /// Sum of the wait times.
    pub waited: Duration,
    /// The longest wait.
    pub longest_wait: Duration,
    /// Number of locks that were granted after a wait and have been released.
    pub holds: u64,
    /// Sum of the hold times, each from the moment the waiter ran again.
    pub held: Duration,
    /// The longest hold.
    pub longest_hold: Duration,
    /// Number of waits that ended at their deadline.
    pub timeouts: u64,
    /// Number of waits that ended as the victim of a deadlock.
    pub deadlocks: u64,
}

impl WaitUsage {
    fn count_wait(&mut self, waited: Duration, refused: Option<RefusalReason>) {
        self.waits += 1;
        self.waited += waited;
        self.longest_wait = self.longest_wait.max(waited);
        match refused {
            Some(RefusalReason::TimedOut) => self.timeouts += 1,
            Some(RefusalReason::Deadlock) => self.deadlocks += 1,
            Some(RefusalReason::Busy | RefusalReason::Cancelled | RefusalReason::Full) | None => {}
        }
    }

    fn count_hold(&mut self, held: Duration) {
        self.holds += 1;
        self.held += held;
        self.longest_hold = self.longest_hold.max(held);
    }

    fn add(&mut self, other: &WaitUsage) {
        self.waits += other.waits;
        self.waited += other.waited;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.holds += other.holds;
        self.held += other.held;
        self.longest_hold = self.longest_hold.max(other.longest_hold);
        self.timeouts += other.timeouts;
        self.deadlocks += other.deadlocks;
    }
}

/// Name that was waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContendedName {
    /// The name.
    pub name: Name,
    /// Number of requests that had to wait for it, at least.
    pub waits: u64,
    /// Sum of the wait times, at least.
    pub waited: Duration,
}

/// Statistics of all owners with one index.
#[derive(Debug, Default)]
pub(crate) struct WaitStats {
    tables: Vec<(Name, WaitUsage)>,
    labels: Vec<(OwnerLabel, WaitUsage)>,
    names: Vec<Candidate>,
}

#[derive(Debug, Clone)]
struct Candidate {
    hot: ContendedName,
    /// Rank taken over from the name that it replaced (I2), as wait time.
    error: Duration,
}

impl Candidate {
    fn rank(&self) -> Duration {
        self.hot.waited + self.error
    }
}

impl WaitStats {
    pub(crate) fn count_wait(
        &mut self,
        name: Name,
        label: OwnerLabel,
        waited: Duration,
        refused: Option<RefusalReason>,
    ) {
        self.table(name).count_wait(waited, refused);
        self.label(label).count_wait(waited, refused);
        self.record_name(name, 1, waited);
    }

    pub(crate) fn count_hold(&mut self, name: Name, label: OwnerLabel, held: Duration) {
        self.table(name).count_hold(held);
        self.label(label).count_hold(held);
    }

    /// Adds the statistics of an owner that is gone.
    pub(crate) fn absorb(&mut self, gone: &WaitStats) {
        for (table, usage) in &gone.tables {
            self.table(*table).add(usage);
        }
        for (label, usage) in &gone.labels {
            self.label(label.clone()).add(usage);
        }
        for Candidate { hot, .. } in &gone.names {
            self.record_name(hot.name, hot.waits, hot.waited);
        }
    }

    fn table(&mut self, name: Name) -> &mut WaitUsage {
        usage_of(&mut self.tables, group(name), usize::MAX, || group(name))
    }

    fn label(&mut self, label: OwnerLabel) -> &mut WaitUsage {
        usage_of(&mut self.labels, label, LABELS, || OTHERS.into())
    }

    /// Counts the names with the most wait time, by the algorithm *Space-Saving*.
    fn record_name(&mut self, name: Name, waits: u64, waited: Duration) {
        let known = self
            .names
            .iter_mut()
            .find(|candidate| candidate.hot.name == name);
        if let Some(candidate) = known {
            candidate.hot.waits += waits;
            candidate.hot.waited += waited;
            return;
        }
        let hot = ContendedName {
            name,
            waits,
            waited,
        };
        if self.names.len() < NAMES {
            let error = Duration::ZERO;
            return self.names.push(Candidate { hot, error });
        }
        let coolest = self
            .names
            .iter_mut()
            .min_by_key(|candidate| candidate.rank());
        let coolest = coolest.expect("a full list has a smallest");
        let error = coolest.rank();
        *coolest = Candidate { hot, error };
    }
}

/// Returns the usage of `key`, or of what `overflow` returns if there are `most` keys already.
fn usage_of<K: PartialEq>(
    all: &mut Vec<(K, WaitUsage)>,
    key: K,
    most: usize,
    overflow: impl FnOnce() -> K,
) -> &mut WaitUsage {
    let place = |all: &[(K, WaitUsage)], key: &K| all.iter().position(|(known, _)| known == key);
    let at = place(all, &key).or_else(|| {
        let key = if all.len() < most { key } else { overflow() };
        place(all, &key).or_else(|| {
            all.push((key, WaitUsage::default()));
            Some(all.len() - 1)
        })
    });
    let at = at.expect("it has just been put there");
    &mut all[at].1
}

/// Returns the table of `name`; all advisory names are one group.
fn group(name: Name) -> Name {
    match name.class() {
        Class::Advisory => Name::advisory(0),
        _ => Name::table(name.space()),
    }
}

/// Sums of the statistics of all owners, the largest first.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    tables: HashMap<Name, WaitUsage>,
    labels: HashMap<OwnerLabel, WaitUsage>,
    names: HashMap<Name, ContendedName>,
}

impl Totals {
    pub(crate) fn add(&mut self, stats: &WaitStats) {
        for (table, usage) in &stats.tables {
            self.tables.entry(*table).or_default().add(usage);
        }
        for (label, usage) in &stats.labels {
            match self.labels.get_mut(label) {
                Some(sum) => sum.add(usage),
                None => _ = self.labels.insert(label.clone(), *usage),
            }
        }
        for Candidate { hot, .. } in &stats.names {
            let sum = self.names.entry(hot.name);
            let sum = sum.or_insert_with(|| ContendedName {
                name: hot.name,
                waits: 0,
                waited: Duration::ZERO,
            });
            sum.waits += hot.waits;
            sum.waited += hot.waited;
        }
    }

    pub(crate) fn tables(&mut self) -> Vec<(Name, WaitUsage)> {
        sorted(self.tables.drain(), |(_, usage)| usage.waited)
    }

    pub(crate) fn labels(&mut self) -> Vec<(OwnerLabel, WaitUsage)> {
        sorted(self.labels.drain(), |(_, usage)| usage.waited)
    }

    pub(crate) fn names(&mut self) -> Vec<ContendedName> {
        sorted(self.names.drain().map(|(_, hot)| hot), |name| name.waited)
    }
}

fn sorted<T>(all: impl Iterator<Item = T>, weight: impl Fn(&T) -> Duration) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_by_key(|one| std::cmp::Reverse(weight(one)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn wait(stats: &mut WaitStats, number: u64, label: &str, waited: Duration) {
        stats.count_wait(
            Name::advisory(number),
            label.to_owned().into(),
            waited,
            None,
        );
    }

    #[test]
    fn waits_and_holds_are_added_up_by_table_and_by_label() {
        let (mut one, mut other) = (WaitStats::default(), WaitStats::default());
        one.count_wait(Name::table(3), "pay".into(), 2 * MS, None);
        one.count_hold(Name::table(3), "pay".into(), 5 * MS);
        other.count_wait(
            Name::end(3),
            "scan".into(),
            4 * MS,
            Some(RefusalReason::TimedOut),
        );
        other.count_wait(
            Name::table(4),
            "pay".into(),
            MS,
            Some(RefusalReason::Deadlock),
        );
        let mut totals = Totals::default();
        totals.add(&one);
        totals.add(&other);
        let tables = totals.tables();
        assert_eq!(tables.len(), 2);
        let (table, usage) = tables[0];
        assert_eq!(table, Name::table(3));
        assert_eq!((usage.waits, usage.waited), (2, 6 * MS));
        assert_eq!((usage.longest_wait, usage.timeouts), (4 * MS, 1));
        assert_eq!((usage.holds, usage.held), (1, 5 * MS));
        let labels = totals.labels();
        assert_eq!(labels[0].0, "scan");
        assert_eq!((labels[1].1.waits, labels[1].1.deadlocks), (2, 1));
    }

    #[test]
    fn a_ledger_stays_small_however_many_labels_and_names_there_are() {
        let mut stats = WaitStats::default();
        for number in 0..10_000 {
            wait(&mut stats, number, &format!("client {number}"), MS);
        }
        assert_eq!(stats.labels.len(), LABELS + 1);
        assert_eq!(stats.names.len(), NAMES);
        let counted: u64 = stats.labels.iter().map(|(_, usage)| usage.waits).sum();
        assert_eq!(counted, 10_000);
    }

    #[test]
    fn the_name_that_costs_most_is_found_among_many_that_cost_little() {
        let mut stats = WaitStats::default();
        for number in 1..=2_000 {
            wait(&mut stats, number, "", MS);
            if number % 8 == 0 {
                wait(&mut stats, 0, "", 3 * MS);
            }
        }
        let mut totals = Totals::default();
        totals.add(&stats);
        let hottest = totals.names().remove(0);
        assert_eq!(hottest.name, Name::advisory(0));
        assert!(
            hottest.waits > 100 && hottest.waited <= 750 * MS,
            "{hottest:?}"
        );
    }
}
