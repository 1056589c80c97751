//! What waiting cost, by table, by label and by name.
//!
//! A request that is granted at once is counted nowhere here: its way is the fast one, and a clock
//! read would be a third of it. Whoever had to wait has slept already, so what is added then is not
//! noticed: how long it waited, and, when the lock goes, how long it was held. So **hold times are
//! those of locks that had to be waited for**, which are the locks that others wait for, too.
//!
//! Each place of the registry keeps a ledger of its own, which its owner writes and whoever asks
//! for statistics reads and adds up. No line of memory is shared by two that wait.
//!
//! # Invariants
//!
//! * I1  A ledger is bounded: [`LABELS`] labels, the rest under one; [`NAMES`] names. Tables are
//!   bounded by whoever makes them.
//! * I2  A name's count and time are lower bounds. A name that is dropped for another leaves its
//!   weight behind as the newcomer's rank, and not as its count.

use crate::{
    name::{Class, Name},
    request::{OwnerLabel, RefusalReason},
};
use std::{collections::HashMap, time::Duration};

/// Labels kept apart in one ledger.
const LABELS: usize = 48;
/// Names kept in one ledger.
const NAMES: usize = 64;
/// What labels that come too late are counted under.
pub(crate) const OTHERS: &str = "(others)";

/// Waits, and holds of what was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WaitUsage {
    /// Requests that had to wait, however that ended.
    pub waits: u64,
    /// How long they waited, together.
    pub waited: Duration,
    /// The longest of the waits.
    pub longest_wait: Duration,
    /// Locks that were granted after a wait and have been given back.
    pub holds: u64,
    /// How long they were held, together: from the moment the waiter went on.
    pub held: Duration,
    /// The longest of the holds.
    pub longest_hold: Duration,
    /// Waits that ended at their deadline.
    pub timeouts: u64,
    /// Waits that ended as the victim of a deadlock.
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

/// A name that was waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContendedName {
    /// The name.
    pub name: Name,
    /// At least so many requests had to wait for it.
    pub waits: u64,
    /// At least so long, together.
    pub waited: Duration,
}

/// What one place knows of the waits of all its owners.
#[derive(Debug, Default)]
pub(crate) struct WaitStats {
    tables: Vec<(Name, WaitUsage)>,
    labels: Vec<(OwnerLabel, WaitUsage)>,
    names: Vec<Candidate>,
}

#[derive(Debug, Clone)]
struct Candidate {
    hot: ContendedName,
    /// What it took over from the name whose place it has (I2), in the time waited.
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
        self.record_name(name, waited);
    }

    pub(crate) fn count_hold(&mut self, name: Name, label: OwnerLabel, held: Duration) {
        self.table(name).count_hold(held);
        self.label(label).count_hold(held);
    }

    fn table(&mut self, name: Name) -> &mut WaitUsage {
        usage_of(&mut self.tables, group(name), usize::MAX, || group(name))
    }

    fn label(&mut self, label: OwnerLabel) -> &mut WaitUsage {
        usage_of(&mut self.labels, label, LABELS, || OTHERS.into())
    }

    /// The names with the most time waited, found as *Space-Saving* does it.
    fn record_name(&mut self, name: Name, waited: Duration) {
        let known = self
            .names
            .iter_mut()
            .find(|candidate| candidate.hot.name == name);
        if let Some(candidate) = known {
            candidate.hot.waits += 1;
            candidate.hot.waited += waited;
            return;
        }
        let hot = ContendedName {
            name,
            waits: 1,
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

/// The usage under `key`; under what `overflow` says if there are `most` already.
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

/// The table that `name` lies in; all advisory names are one group.
fn group(name: Name) -> Name {
    match name.class() {
        Class::Advisory => Name::advisory(0),
        _ => Name::table(name.space()),
    }
}

/// What all ledgers say, added up; the largest first.
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
