//! Snapshots, statistics and deadlock reports, for people and monitors.

pub use crate::owner::owner_table::WAIT_BUCKETS;
pub use crate::owner::wait_stats::{ContendedName, WaitUsage};
use crate::{
    mode::Mode,
    name::Name,
    owner::{owner_table::OwnerTable, wait_stats::Totals},
    request::{DeadlockMember, OwnerId, OwnerLabel, RefusalReason},
};
use foxton_sync::shim::{Ordering, lock};

use std::{
    fmt,
    time::{Duration, SystemTime},
};

/// Every queue of a manager. Each queue is consistent in itself; two queues may be a moment apart.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LockSnapshot {
    /// Names that are held, in their order.
    pub queues: Vec<NameQueue>,
    /// True if the snapshot was limited and left out some queues.
    pub truncated: bool,
}

/// Holders and waiters of one name.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NameQueue {
    /// The name.
    pub name: Name,
    /// Holders, in no particular order.
    pub holders: Vec<QueueRequest>,
    /// Waiters, first come first. A conversion is also among the holders, with the mode that it
    /// holds.
    pub waiters: Vec<QueueRequest>,
}

/// Holder or waiter of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueRequest {
    /// Id of the owner.
    pub owner: OwnerId,
    /// Label of its transaction.
    pub label: OwnerLabel,
    /// Mode that it holds, or will hold once granted.
    pub mode: Mode,
    /// Time since its transaction began, to within a clock tick.
    pub age: Duration,
    /// For a waiter, the time that it has waited.
    pub waited: Duration,
}

impl QueueRequest {
    pub(crate) fn new(owners: &OwnerTable, owner: OwnerId, mode: Mode, waited: Duration) -> Self {
        let (label, age) = owners.describe(owner);
        Self {
            owner,
            label,
            mode,
            age,
            waited,
        }
    }
}

/// Edge of the wait-for graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitForEdge {
    /// The waiter.
    pub waiter: OwnerId,
    /// The owner that it waits for.
    pub blocker: OwnerId,
    /// The name of the queue.
    pub name: Name,
    /// True if the blocker holds the name; false if it waits for it earlier.
    pub holds: bool,
}

impl LockSnapshot {
    pub(crate) fn new(mut queues: Vec<NameQueue>) -> Self {
        queues.sort_by_key(|queue| queue.name);
        Self {
            queues,
            truncated: false,
        }
    }

    /// Keeps the queues with waiters, the longest wait first, and as many others as have `most`
    /// holders and waiters together.
    pub(crate) fn shortened(mut self, most: usize) -> Self {
        let longest = |queue: &NameQueue| queue.waiters.iter().map(|waiter| waiter.waited).max();
        self.queues
            .sort_by_key(|queue| (std::cmp::Reverse(longest(queue)), queue.name));
        let mut room = most;
        let fits = self.queues.iter().take_while(|queue| {
            let size = queue.holders.len() + queue.waiters.len();
            let fits = size <= room;
            room = room.saturating_sub(size);
            fits
        });
        let count = fits.count();
        self.truncated |= count < self.queues.len();
        self.queues.truncate(count);
        Self {
            truncated: self.truncated,
            ..Self::new(self.queues)
        }
    }

    /// Removes the holders for which `shown` returns false, and the names without any other holder
    /// or waiter.
    pub(crate) fn retain_holders(&mut self, shown: impl Fn(Name, &QueueRequest) -> bool) {
        for queue in &mut self.queues {
            let name = queue.name;
            queue.holders.retain(|holder| shown(name, holder));
        }
        self.queues
            .retain(|queue| !queue.holders.is_empty() || !queue.waiters.is_empty());
    }

    /// Returns the queue of `name`, if it is held.
    pub fn queue(&self, name: Name) -> Option<&NameQueue> {
        let at = self
            .queues
            .binary_search_by_key(&name, |queue| queue.name)
            .ok()?;
        Some(&self.queues[at])
    }

    /// Returns the edges of the wait-for graph: from each waiter to the holders of an incompatible
    /// mode, and to the earlier waiters of one.
    pub fn edges(&self) -> Vec<WaitForEdge> {
        self.queues.iter().flat_map(NameQueue::edges).collect()
    }

    /// Returns the waiters of all queues, with the names they wait for, the longest wait first.
    pub fn waits(&self) -> Vec<(Name, &QueueRequest)> {
        let waiters = |queue: &'_ NameQueue| queue.waiters.len();
        let mut waits = Vec::with_capacity(self.queues.iter().map(waiters).sum());
        for queue in &self.queues {
            waits.extend(queue.waiters.iter().map(|waiter| (queue.name, waiter)));
        }
        waits.sort_by_key(|(_, waiter)| std::cmp::Reverse(waiter.waited));
        waits
    }
}

impl NameQueue {
    /// Returns an empty queue.
    pub(crate) fn new(name: Name) -> Self {
        Self {
            name,
            holders: Vec::new(),
            waiters: Vec::new(),
        }
    }

    fn edges(&self) -> Vec<WaitForEdge> {
        let mut edges = Vec::new();
        for (at, waiter) in self.waiters.iter().enumerate() {
            let ahead = self.waiters[..at].iter().map(|earlier| (earlier, false));
            let all = self
                .holders
                .iter()
                .map(|holder| (holder, true))
                .chain(ahead);
            let blocking = all.filter(|(other, _)| {
                other.owner != waiter.owner && !other.mode.compatible(waiter.mode)
            });
            edges.extend(blocking.map(|(other, holds)| WaitForEdge {
                waiter: waiter.owner,
                blocker: other.owner,
                name: self.name,
                holds,
            }));
        }
        edges
    }
}

impl fmt::Display for LockSnapshot {
    /// Writes one block for each name, as in `docs/locking.md`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for queue in &self.queues {
            writeln!(f, "{}", queue.name)?;
            for (what, entries) in [("holds", &queue.holders), ("waits", &queue.waiters)] {
                for entry in entries {
                    let QueueRequest {
                        owner, label, mode, ..
                    } = entry;
                    write!(f, "  {what} {mode:<8} {owner} {label}")?;
                    if !entry.waited.is_zero() {
                        write!(f, " for {:.1?}", entry.waited)?;
                    }
                    writeln!(f)?;
                }
            }
        }
        Ok(())
    }
}

/// Cycle of waits that was found and ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeadlockCycle {
    /// When it was found.
    pub at: SystemTime,
    /// Members of the cycle: each waits for the next, the last for the first.
    pub cycle: Vec<DeadlockMember>,
}

impl fmt::Display for DeadlockCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a deadlock of {}:", self.cycle.len())?;
        self.cycle
            .iter()
            .try_for_each(|member| writeln!(f, "  {member}"))
    }
}

/// Counters of a manager since it was made.
///
/// Locks of transactions that have not ended are not yet counted as acquisitions.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LockStats {
    /// Number of acquired names.
    pub acquisitions: u64,
    /// Number of requests for locks that were held already.
    pub re_asks: u64,
    /// Number of requests that had to wait.
    pub waits: u64,
    /// Microseconds waited, over all waits.
    pub wait_micros: u64,
    /// Number of requests refused because they were not to wait.
    pub busy: u64,
    /// Number of waits that ended at their deadline.
    pub timeouts: u64,
    /// Number of waits that ended as the victim of a deadlock.
    pub deadlocks: u64,
    /// Number of waits that another thread ended.
    pub cancelled: u64,
    /// Number of requests refused for lack of memory.
    pub full: u64,
    /// Number of revocations, in which remembered locks were made real (`direct`): de-escalation.
    pub revocations: u64,
    /// Number of escalations: a transaction got a whole table in place of many keys.
    pub escalations: u64,
    /// Number of escalations that were blocked, so that the transaction went on with keys.
    pub escalations_refused: u64,
    /// Number of keys released for a table lock.
    pub traded: u64,
    /// Nanoseconds spent in revocations, over all threads.
    pub revocation_nanos: u64,
    /// Histogram of wait times: bucket `i` counts waits of less than 2^i microseconds that are in
    /// no earlier bucket.
    pub wait_histogram: [u64; WAIT_BUCKETS],
    /// Outcomes of inheritable locks.
    pub inheritance: InheritanceStats,
    /// Memory of heads, queues and records, an estimate in bytes.
    pub memory_bytes: usize,
    /// Wait statistics by table, the most wait time first: [`Name::table`], or [`Name::advisory`]
    /// of 0 for all advisory names together.
    pub tables: Vec<(Name, WaitUsage)>,
    /// Wait statistics by label, the most wait time first.
    pub labels: Vec<(OwnerLabel, WaitUsage)>,
    /// Names with the most wait time, that first.
    pub hot_names: Vec<ContendedName>,
}

/// Outcomes of table locks that a transaction could have left to the next one with its owner index,
/// as Johnson, Pandis and Ailamaki count them in their section 8.4. All zero without inheritance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct InheritanceStats {
    /// Released at the end of their transaction, because there was no contention for them.
    pub cold: u64,
    /// Hot, and released at the end of their transaction, because a transaction waited for them.
    pub wanted: u64,
    /// Hot, and released now and then anyway, to measure whether they still are.
    pub renewed: u64,
    /// Left to the next transaction.
    pub kept: u64,
    /// Of those: used by a later transaction.
    pub used: u64,
    /// Of those: released, because the next transactions requested them in another mode or not at
    /// all.
    pub discarded: u64,
    /// Of those: revoked by another owner.
    pub revoked: u64,
}

impl LockStats {
    /// Sums the counts of all owners.
    pub(crate) fn sum(owners: &OwnerTable, table_bytes: usize) -> Self {
        let mut stats = Self {
            memory_bytes: owners.memory_bytes() + table_bytes,
            ..Self::default()
        };
        let mut totals = Totals::default();
        for record in owners.records() {
            let counters = &record.counters;
            record.read_wait_stats(|waits| totals.add(waits));
            stats.inheritance.revoked += lock(&record.inherited).revoked;
            // Relaxed: sums of counts that may change meanwhile.
            let refused =
                |reason: RefusalReason| counters.refusals[reason as usize].load(Ordering::Relaxed);
            stats.acquisitions += counters.acquisitions.load(Ordering::Relaxed);
            stats.re_asks += counters.re_asks.load(Ordering::Relaxed);
            stats.wait_micros += counters.wait_micros.load(Ordering::Relaxed);
            stats.busy += refused(RefusalReason::Busy);
            stats.timeouts += refused(RefusalReason::TimedOut);
            stats.deadlocks += refused(RefusalReason::Deadlock);
            stats.cancelled += refused(RefusalReason::Cancelled);
            stats.full += refused(RefusalReason::Full);
            stats.escalations += record.memory.escalations.load(Ordering::Relaxed);
            stats.escalations_refused += record.memory.escalations_refused.load(Ordering::Relaxed);
            stats.traded += record.memory.traded.load(Ordering::Relaxed);
            let inheritance = &mut stats.inheritance;
            let outcomes = [
                &mut inheritance.cold,
                &mut inheritance.wanted,
                &mut inheritance.renewed,
                &mut inheritance.kept,
                &mut inheritance.used,
                &mut inheritance.discarded,
            ];
            for (sum, count) in outcomes.into_iter().zip(&counters.inheritance) {
                *sum += count.load(Ordering::Relaxed);
            }
            for (sum, count) in stats.wait_histogram.iter_mut().zip(&counters.waits) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        stats.waits = stats.wait_histogram.iter().sum();
        stats.tables = totals.tables();
        stats.labels = totals.labels();
        stats.hot_names = totals.names();
        stats
    }

    /// Returns the wait time, rounded up to a power of two of microseconds, that `share` (0 to 1)
    /// of all waits did not exceed; zero if no request waited.
    pub fn wait_quantile(&self, share: f64) -> Duration {
        let wanted = (self.waits as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, &count) in self.wait_histogram.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(1 << bucket);
            }
        }
        Duration::ZERO
    }
}
