//! Snapshots, statistics and deadlock reports, for people and monitors.

pub use crate::owner::owner_table::WAIT_BUCKETS;
pub use crate::owner::wait_stats::{ContendedName, WaitUsage};
use crate::{
    mode::Mode,
    name::Name,
    owner::{
        owner_table::{OwnerDetails, OwnerTable},
        wait_stats::Totals,
    },
    request::{DeadlockMember, OwnerId, OwnerLabel, RefusalReason},
};
use foxton_sync::shim::{Ordering, lock};

use std::{
    collections::{HashMap, VecDeque},
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
    /// holders and waiters together. The last of them is cut short if it has more.
    pub(crate) fn shortened(mut self, most: usize) -> Self {
        let longest = |queue: &NameQueue| queue.waiters.iter().map(|waiter| waiter.waited).max();
        self.queues
            .sort_by_key(|queue| (std::cmp::Reverse(longest(queue)), queue.name));
        let (mut room, mut count) = (most, 0);
        for queue in &mut self.queues {
            if room == 0 {
                break;
            }
            let size = queue.holders.len() + queue.waiters.len();
            self.truncated |= size > room;
            queue.shorten(room);
            room = room.saturating_sub(size);
            count += 1;
        }
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
    /// mode, and to the earlier waiters of one. Their number is of the order of the square of the
    /// longest queue's length; [`NameQueue::blocked`] returns fewer.
    pub fn edges(&self) -> impl Iterator<Item = WaitForEdge> {
        self.queues.iter().flat_map(NameQueue::edges)
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

    /// Keeps `most` requests, half of them holders if there are so many.
    pub(crate) fn shorten(&mut self, most: usize) {
        self.holders.truncate(
            most.div_ceil(2)
                .max(most.saturating_sub(self.waiters.len())),
        );
        self.waiters.truncate(most - self.holders.len());
    }

    fn edges(&self) -> impl Iterator<Item = WaitForEdge> {
        let waiters = self.waiters.iter().enumerate();
        waiters.flat_map(|(at, waiter)| {
            let ahead = self.waiters[..at].iter().map(|earlier| (earlier, false));
            let holders = self.holders.iter().map(|holder| (holder, true));
            let blocking = holders.chain(ahead).filter(|(other, _)| {
                other.owner != waiter.owner && !other.mode.compatible(waiter.mode)
            });
            blocking.map(|(other, holds)| WaitForEdge {
                waiter: waiter.owner,
                blocker: other.owner,
                name: self.name,
                holds,
            })
        })
    }

    /// Returns the waiters, first come first, each with up to `most` of the requests that block it,
    /// and the number of all others. Holders come first, and then the nearest of the waiters ahead.
    /// Visits each request of the queue a few times, however many there are.
    ///
    /// ```
    /// use foxton_lock::{any::{AnyManager, Options}, manager::LockManager, mode::Mode, name::Name};
    /// use foxton_lock::request::WaitMode;
    /// use foxton_sync::worker::Workers;
    ///
    /// let locks = AnyManager::new(&Options::default());
    /// let worker = Workers::new().worker();
    /// let mut owners: Vec<_> = (0..4).map(|_| locks.owner()).collect();
    /// let job = Name::advisory(42);
    /// for owner in &mut owners {
    ///     let _ = locks.request(&worker, owner, job, Mode::X, WaitMode::Wait);
    /// }
    /// let snapshot = locks.inspect(&worker);
    /// let queue = snapshot.queue(job).expect("it is held");
    /// let last = queue.blocked(1).last().expect("it has waiters");
    /// assert_eq!((last.blockers.len(), last.more), (1, 2));
    /// assert_eq!(last.blockers[0].request.owner, queue.holders[0].owner);
    /// # for owner in &mut owners {
    /// #     locks.cancel(&worker, owner);
    /// #     locks.release_all(&worker, owner);
    /// # }
    /// ```
    pub fn blocked(&self, most: usize) -> impl Iterator<Item = BlockedRequest<'_>> {
        let mut modes: Vec<BlockingRequests> = Vec::new();
        let held = self
            .holders
            .iter()
            .map(|holder| (holder.owner, holder.mode));
        let held: HashMap<OwnerId, Mode> = held.collect();
        self.waiters.iter().enumerate().map(move |(at, waiter)| {
            let known = modes.iter().position(|known| known.mode == waiter.mode);
            let known = known.unwrap_or_else(|| {
                modes.push(BlockingRequests::new(self, waiter.mode, most));
                modes.len() - 1
            });
            let own = held.get(&waiter.owner);
            let own = own.is_some_and(|own| !own.compatible(waiter.mode));
            let blocked = modes[known].blocked(self, waiter, (most, usize::from(own)), &modes);
            modes[known].push(at, most);
            blocked
        })
    }
}

/// Waiter, and the requests that block it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BlockedRequest<'q> {
    /// The waiter.
    pub waiter: &'q QueueRequest,
    /// Some of the requests that block it: holders, and then waiters ahead, the nearest first.
    pub blockers: Vec<BlockingRequest<'q>>,
    /// Number of the others.
    pub more: usize,
}

/// Request that blocks a waiter.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct BlockingRequest<'q> {
    /// The request.
    pub request: &'q QueueRequest,
    /// True if it holds the name; false if it waits for it ahead.
    pub holds: bool,
}

/// Waiters of one mode seen so far, and holders that conflict with the mode.
struct BlockingRequests {
    mode: Mode,
    /// Indexes of the first holders that conflict: one more than are to be listed, because one of
    /// them may be the waiter itself.
    holders: Vec<usize>,
    /// Number of all of them.
    holder_count: usize,
    /// Indexes of the latest waiters, the last ones behind.
    latest: VecDeque<usize>,
    /// Number of all of them.
    count: usize,
}

impl BlockingRequests {
    fn new(queue: &NameQueue, mode: Mode, most: usize) -> Self {
        let holders = queue.holders.iter().enumerate();
        let conflicting = holders.filter(|(_, holder)| !holder.mode.compatible(mode));
        let conflicting = conflicting.map(|(at, _)| at);
        Self {
            mode,
            holders: conflicting.clone().take(most + 1).collect(),
            holder_count: conflicting.count(),
            latest: VecDeque::new(),
            count: 0,
        }
    }

    fn push(&mut self, at: usize, most: usize) {
        self.count += 1;
        self.latest.push_back(at);
        if self.latest.len() > most {
            self.latest.pop_front();
        }
    }

    /// Describes a waiter of this mode behind the waiters in `modes`. `own` of the holders is the
    /// waiter itself.
    fn blocked<'q>(
        &self,
        queue: &'q NameQueue,
        waiter: &'q QueueRequest,
        (most, own): (usize, usize),
        modes: &[Self],
    ) -> BlockedRequest<'q> {
        let holders = self.holders.iter().map(|&at| &queue.holders[at]);
        let holders = holders.filter(|holder| holder.owner != waiter.owner);
        let blocking = |request, holds| BlockingRequest { request, holds };
        let mut blockers: Vec<BlockingRequest<'_>> = holders
            .take(most)
            .map(|holder| blocking(holder, true))
            .collect();
        let ahead = modes
            .iter()
            .filter(|other| !other.mode.compatible(self.mode));
        let all = self.holder_count - own + ahead.clone().map(|other| other.count).sum::<usize>();
        let mut nearest: Vec<usize> = ahead.flat_map(|other| &other.latest).copied().collect();
        nearest.sort_unstable_by_key(|&at| std::cmp::Reverse(at));
        let nearest = nearest.iter().take(most - blockers.len());
        blockers.extend(nearest.map(|&at| blocking(&queue.waiters[at], false)));
        BlockedRequest {
            waiter,
            more: all - blockers.len(),
            blockers,
        }
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
        let mut add = |details: &OwnerDetails| {
            let counters = &details.counters;
            details.read_wait_stats(|waits| totals.add(waits));
            stats.inheritance.revoked += lock(&details.inherited).revoked;
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
            stats.escalations += details.escalations.done.load(Ordering::Relaxed);
            stats.escalations_refused += details.escalations.refused.load(Ordering::Relaxed);
            stats.traded += details.escalations.traded.load(Ordering::Relaxed);
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
        };
        owners.details().for_each(|details| add(&details));
        add(owners.gone());
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
