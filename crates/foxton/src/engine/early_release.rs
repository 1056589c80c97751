//! Letting go early: locks go when a commit is in the log, its answer when it is as safe as was asked.
//!
//! A commit that is to be durable waits for the device, and whoever wants its locks would wait with it. One that is
//! only to be *written* mostly writes by itself, which is short, and then gives its locks back; but if somebody else is
//! writing, it waits for who may have lost the processor, and it would wait with its locks. So
//! once its record has its place in the log, a commit that has to wait lets its locks go; only the answer waits. Others
//! then read what the end of the process, or a power cut, could still take. That does no harm as long as *they* are not
//! answered before it is safe: what nobody was told may be lost.
//!
//! # What must hold
//!
//! A commit is *acknowledged* when `commit` returns without an error. What it depends on are the
//! commits whose changes it has seen, present or absent.
//!
//! * D1  A *sync* commit, even of a transaction that only read, is acknowledged when all *sync* commits
//!   that it depends on are durable, and all *buffered* ones with the operating system.
//! * D2  A *buffered* one when they are all with the operating system: that is all it says of itself.
//! * D3  One with durability *none* says nothing and waits for nothing.
//! * D4  When the log fails, nobody is acknowledged who depends on a commit that has not reached what it waits for.
//!
//! Commits with durability *none* keep their locks to their end, which is at once, and so do *buffered* ones that
//! write by themselves or take a value away. Who depends on those comes after their acknowledgement and need not wait.
//!
//! # State
//!
//! * The anchor of a record: where in the log the last commit ends that put a value there and let go
//!   early, and whether somebody waits for it to be durable or only for it to be written; 0 if there was none. It is
//!   only ever larger than it need be.
//! * [`EarlyRelease`], one number for the database: where the last *sync* commit ends that took a value away, or changed so
//!   much that its records are not gone through. Absence has no place of its own to note it at.
//! * [`ReadDependencies`], in each transaction: the newest anchor among the records it has read, and the newest of a *sync* commit.
//!
//! # Why that is enough
//!
//! Let R have seen a change of W, W have let go early, and W's record end at `w`.
//!
//! * R wrote something, too. Its own record was placed after it had the lock that W had, so after W's:
//!   the log is durable in order, and waiting for its own is waiting for W's. The same for *written*. A *buffered* R
//!   that depends on a *sync* W waits for less, and says less (D2); whoever reads what R wrote finds in R's anchor that
//!   W was not durable, if both wrote the same record ([`mark`]).
//! * R only read, and found a value of W. W wrote `w` into the record's anchor before it let go of the
//!   key; R read the anchor after it had the lock on the key, or on what covers it. The two were never
//!   held together, so R's lock came after W's release, which is all the order that is needed: a number
//!   that only grows was written before and is read after. R finds `w` or something larger. It waits as D1 and D2 say
//!   ([`DependencyLsn::until`]): for what of a *sync* W is not durable, and for what of any W is not written.
//! * R only read, and found nothing where W had taken something away. Then the lock was on the name of
//!   the key or on the gap, W had it exclusively or it was in W's way, and the same holds for `EarlyRelease`.
//!
//! D4 follows: who waits for `w` is told of the failure, unless `w` was reached before.
//!
//! Memory is then ahead of the log for good: changes that were let go cannot be taken back, since others
//! may have built on them. Nobody can commit anything on top: the log takes no more records, and who
//! only read waits for a number that will not come. Opening again is the way back.
//!
//! # Orderings
//!
//! None of its own: all numbers are relaxed and ordered by the locks, as are the values themselves.

use std::cell::Cell;

use foxton_log::Lsn;
use foxton_store::memory::Record;
use foxton_sync::cache_line::CachePadded;
use foxton_sync::shim::{AtomicU64, Ordering::Relaxed};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::options::Durability;

/// Commits that remove or change much, and let go early.
static ALL: Site = Site::new(Component::Transaction, Pattern::Unbounded, "early release");

/// A commit with more changes does not go through its records; everybody who reads waits for it.
pub(crate) const GONE_THROUGH: usize = 256;

/// Of an anchor: whether it is of a commit that waits to be durable. The larger anchor is of the later commit.
const SYNC: u64 = 1;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct EarlyRelease(CachePadded<AtomicU64>);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct ReadDependencies {
    any: Cell<u64>,
    sync: Cell<u64>,
}

/// Where the last commits end whose changes were seen: of all that let go early, and of those of them that wait to be
/// durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DependencyLsn {
    any: Lsn,
    sync: Lsn,
}

impl EarlyRelease {
    /// Has everybody who only reads wait until the commit is durable that ends at `end`.
    pub(crate) fn stamp_all(&self, worker: &Worker, end: Lsn) {
        worker.account().passed(&ALL);
        // Relaxed: ordered by the locks, which go after this.
        self.0.fetch_max(end.bytes(), Relaxed);
    }

    /// What was seen and noted in `dependencies`, and what was seen to be absent.
    #[inline]
    pub(crate) fn newest(&self, dependencies: [&ReadDependencies; 2]) -> DependencyLsn {
        // Relaxed: ordered by the lock.
        let all = self.0.load(Relaxed);
        let newest = |of: fn(&ReadDependencies) -> u64| {
            let dependencies = dependencies
                .into_iter()
                .map(|dependencies| of(dependencies) >> SYNC);
            Lsn::new(dependencies.fold(all, u64::max))
        };
        DependencyLsn {
            any: newest(|dependencies| dependencies.any.get()),
            sync: newest(|dependencies| dependencies.sync.get()),
        }
    }
}

impl DependencyLsn {
    /// What a transaction of `durability` that only read waits for, if the log is `durable` to there and `written` to
    /// there: mostly nothing.
    #[inline]
    pub(crate) fn until(
        self,
        durability: Durability,
        durable: Lsn,
        written: impl FnOnce() -> Lsn,
    ) -> CommitWait {
        if self.any <= durable || durability == Durability::None {
            return CommitWait::Now;
        }
        if self.sync > durable && durability == Durability::Sync {
            return CommitWait::Durable(self.any); // And so it is written.
        }
        match self.any <= written() {
            true => CommitWait::Now,
            false => CommitWait::Written(self.any),
        }
    }
}

/// Notes that whoever reads `record` waits for the commit that ends and waits like that, while the log is `durable` to
/// there. For the holder of the exclusive lock on it.
pub(crate) fn stamp(record: &Record, until: CommitWait, durable: Lsn) {
    let anchor = record.anchor();
    let (end, is_sync) = match until {
        CommitWait::Now => return,
        // Who reads it sees what a commit did that is still to be durable, too.
        CommitWait::Written(end) => (end, is_sync_behind(anchor.load(Relaxed), durable)),
        CommitWait::Durable(end) => (end, true),
    };
    // Relaxed: ordered by the lock.
    anchor.store((end.bytes() << SYNC) | u64::from(is_sync), Relaxed);
}

fn is_sync_behind(anchor: u64, durable: Lsn) -> bool {
    anchor & SYNC != 0 && anchor >> SYNC > durable.bytes()
}

impl ReadDependencies {
    /// Notes that `record` was read, whatever was found in it.
    #[inline]
    pub(crate) fn note(&self, record: &Record) {
        // Relaxed: ordered by the lock.
        let anchor = record.anchor().load(Relaxed);
        self.any.set(anchor.max(self.any.get()));
        if anchor & SYNC != 0 {
            self.sync.set(anchor.max(self.sync.get()));
        }
    }

    /// For the next transaction.
    #[inline]
    pub(crate) fn forget(&self) {
        self.any.set(0);
        self.sync.set(0);
    }
}

/// What an acknowledgement waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitWait {
    Now,
    Written(Lsn),
    Durable(Lsn),
}

impl CommitWait {
    /// Until the log is as far as `lsn`, as far as `durability` cares.
    #[inline]
    pub(crate) fn as_promised(durability: Durability, lsn: Lsn) -> CommitWait {
        match durability {
            Durability::Sync => CommitWait::Durable(lsn),
            Durability::Buffered => CommitWait::Written(lsn),
            Durability::None => CommitWait::Now,
        }
    }
}
