//! Early lock release: locks go when a commit is in the log, its acknowledgement when it is as
//! durable as required.
//!
//! A commit that has to be durable waits for the device, and transactions that want its locks would
//! wait with it. A commit that has to be *written* mostly writes the log itself, which is short,
//! and then releases its locks. But if another thread is writing, that thread may be descheduled,
//! and the commit would wait for it with its locks. So a commit that has to wait releases its locks
//! once its record has its place in the log; only the acknowledgement waits.
//!
//! Other transactions then read changes that the end of the process, or a power cut, could still
//! undo. That does no harm as long as *their* acknowledgements wait for the same: a commit that was
//! never acknowledged may be lost.
//!
//! # What must hold
//!
//! A commit is *acknowledged* when `commit` returns without an error. It depends on the commits
//! whose changes it has seen, present or absent.
//!
//! * D1  A *sync* commit, even of a transaction that only read, is acknowledged when all *sync*
//!   commits that it depends on are durable, and all *buffered* ones are with the operating system.
//! * D2  A *buffered* commit is acknowledged when all of them are with the operating system,
//!   because it promises no more of itself.
//! * D3  A commit with durability *none* promises nothing and waits for nothing.
//! * D4  When the log fails, no commit is acknowledged that depends on one which has not reached
//!   what it waits for.
//!
//! Commits with durability *none* keep their locks until they end, which is at once. *Buffered*
//! ones that write the log themselves or remove a value keep them as well. A transaction that
//! depends on such a commit comes after its acknowledgement and need not wait.
//!
//! # State
//!
//! * The commit stamp of a record, for the last commit that wrote a value there and released early.
//!   It says where in the log that commit ends, and whether it waits to be durable or only to be
//!   written. It is 0 if there was no such commit, and never smaller than necessary.
//! * [`StampTable`]: the commit stamps of rows of paged tables. A row has one of 4,096 words,
//!   chosen by its lock name. Two names that share a word make a reader wait for too much, never
//!   for too little.
//! * [`EarlyRelease`], one number for the database: where the last *sync* commit ends that removed
//!   a value, or changed too many records to stamp them. An absent record has no stamp.
//! * [`ReadDependencies`], in each transaction: the newest stamp among the records that it has
//!   read, and the newest of a *sync* commit.
//!
//! # Why that is enough
//!
//! Let R have seen a change of W, let W have released early, and let W's record end at `w`.
//!
//! * *R wrote something, too.* Its own record was placed after it had the lock that W had, so after
//!   W's. The log becomes durable in order, so waiting for its own record is waiting for W's. The
//!   same holds for *written*. A *buffered* R that depends on a *sync* W waits for less, and
//!   promises less (D2). If both wrote the same record, R's stamp says that W was not durable
//!   ([`stamp`]), and a transaction that reads what R wrote finds this.
//! * *R only read, and found a value of W.* W wrote `w` into the record's stamp before it released
//!   the key. R read the stamp after it had the lock on the key, or a lock that covers it. Both
//!   locks were never held together, so R's lock came after W's release. That is all the order
//!   needed: a number that only grows was written before and is read after. R finds `w` or a
//!   greater number. It waits as D1 and D2 say ([`DependencyLsn::until`]): until a *sync* W is
//!   durable, and until any W is written.
//! * *R only read, and found nothing where W had removed a value.* Then R's lock was on the name of
//!   the key or on the gap. W had that lock exclusively, or W's lock conflicted with it. So the
//!   same holds for `EarlyRelease`.
//!
//! D4 follows: a transaction that waits for `w` gets the failure, unless `w` was reached before.
//!
//! After such a failure, memory is ahead of the log for good. The changes cannot be undone, because
//! other transactions may have built on them. No transaction can commit on top of them: the log
//! accepts no more records, and a transaction that only read waits for a number that is not
//! reached. Opening the database again is the way back.
//!
//! # Orderings
//!
//! None of its own: all numbers are relaxed, and the locks order them as they order the values.

use std::cell::Cell;

use foxton_lock::name::Name;
use foxton_log::Lsn;
use foxton_store::memory::{Begin, Promise, Record};
use foxton_sync::cache_line::CachePadded;
use foxton_sync::shim::{AtomicU64, Ordering::Relaxed};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::options::Durability;

/// Commits that remove values or change many records, and release early.
static ALL: Site = Site::new(Component::Transaction, Pattern::Unbounded, "early release");

/// A commit with more changes stamps no records; all transactions that only read wait for it.
pub(crate) const MAX_STAMPED: usize = 256;

/// Bit of a stamp: set if its commit waits to be durable. The greater stamp is of the later commit.
const SYNC: u64 = 1;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct EarlyRelease(CachePadded<AtomicU64>);

/// Number of commit stamps for the rows of paged tables.
const PAGED_STAMPS: usize = 4096;

/// Commit stamps of the rows of paged tables. See the [module](self).
pub(crate) struct StampTable(Box<[AtomicU64]>);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct ReadDependencies {
    any: Cell<u64>,
    sync: Cell<u64>,
}

/// Where the last commits end whose changes were seen: of all that released early, and of those
/// that wait to be durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DependencyLsn {
    any: Lsn,
    sync: Lsn,
}

impl EarlyRelease {
    /// Makes all transactions that only read wait until the commit that ends at `end` is durable.
    pub(crate) fn stamp_all(&self, worker: &Worker, end: Lsn) {
        worker.account().passed(&ALL);
        // Relaxed: ordered by the locks, which go after this.
        self.0.fetch_max(end.bytes(), Relaxed);
    }

    /// Returns the newest commits on which `dependencies` and absent records depend.
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
    /// Returns how long a transaction of `durability` that only read waits, with the log `durable`
    /// and `written` up to there. Mostly it does not wait.
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
            return CommitWait::Durable(self.any); // Then it is also written.
        }
        match self.any <= written() {
            true => CommitWait::Now,
            false => CommitWait::Written(self.any),
        }
    }
}

/// Stamps `record`, so that its readers wait for the commit that waits `until`, with the log
/// `durable` up to there. The caller has the exclusive lock on the record.
pub(crate) fn stamp(record: &Record, until: CommitWait, durable: Lsn) {
    let stamp = record.commit_stamp();
    let (end, is_sync) = match until {
        CommitWait::Now => return,
        // Its readers also see the change of an older commit that is not durable yet.
        CommitWait::Written(end) => (end, is_sync_behind(stamp.load(Relaxed), durable)),
        CommitWait::Durable(end) => (end, true),
    };
    // Relaxed: ordered by the lock.
    stamp.store((end.bytes() << SYNC) | u64::from(is_sync), Relaxed);
}

impl std::fmt::Debug for StampTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StampTable").finish_non_exhaustive()
    }
}

impl StampTable {
    pub(crate) fn new() -> StampTable {
        StampTable((0..PAGED_STAMPS).map(|_| AtomicU64::new(0)).collect())
    }

    fn word(&self, name: &Name) -> &AtomicU64 {
        &self.0[name.hash() as usize % PAGED_STAMPS]
    }

    /// As [`stamp`], for the row of a paged table that has the lock name `name`. A transaction that
    /// has another name may raise the same word at the same time.
    pub(crate) fn stamp(&self, name: &Name, until: CommitWait, durable: Lsn) {
        let (end, is_sync) = match until {
            CommitWait::Now => return,
            CommitWait::Written(end) => (end, false),
            CommitWait::Durable(end) => (end, true),
        };
        let raised = |old: u64| {
            let is_sync = is_sync || is_sync_behind(old, durable);
            Some((end.bytes().max(old >> SYNC) << SYNC) | u64::from(is_sync))
        };
        // Site: "early release". Relaxed: ordered by the lock, and only raised.
        let _ = self.word(name).fetch_update(Relaxed, Relaxed, raised);
    }
}

fn is_sync_behind(stamp: u64, durable: Lsn) -> bool {
    stamp & SYNC != 0 && stamp >> SYNC > durable.bytes()
}

impl ReadDependencies {
    /// Records that `record` was read, with or without a value.
    #[inline]
    pub(crate) fn record(&self, record: &Record) {
        // Relaxed: ordered by the lock.
        self.record_stamp(record.commit_stamp().load(Relaxed));
    }

    /// Records that a version of `record` was read that began at `begin`.
    pub(crate) fn record_version(&self, record: &Record, begin: Begin) {
        match begin.committed() {
            None => self.record(record),
            Some(_) => self.record_begin(begin),
        }
    }

    /// Records that a state of a row was read that began at `begin`.
    pub(crate) fn record_begin(&self, begin: Begin) {
        match begin.committed() {
            None | Some((_, Promise::Nothing)) => {}
            Some((end, promise)) => {
                let is_sync = u64::from(promise == Promise::Durable);
                self.record_stamp(end.bytes() << SYNC | is_sync);
            }
        }
    }

    #[inline]
    fn record_stamp(&self, stamp: u64) {
        self.any.set(stamp.max(self.any.get()));
        if stamp & SYNC != 0 {
            self.sync.set(stamp.max(self.sync.get()));
        }
    }

    /// As [`record`](Self::record), of the row of a paged table that has the lock name `name`.
    #[inline]
    pub(crate) fn record_paged(&self, stamps: &StampTable, name: &Name) {
        // Relaxed: ordered by the lock.
        self.record_stamp(stamps.word(name).load(Relaxed));
    }

    /// Returns the newest stamps: of all commits, and of those that wait to be durable.
    pub(crate) fn stamps(&self) -> [u64; 2] {
        [self.any.get(), self.sync.get()]
    }

    /// Sets what [`stamps`](Self::stamps) returns.
    pub(crate) fn set_stamps(&self, [any, sync]: [u64; 2]) {
        self.any.set(any);
        self.sync.set(sync);
    }

    /// Forgets all reads, for the next transaction.
    #[inline]
    pub(crate) fn clear(&self) {
        self.any.set(0);
        self.sync.set(0);
    }
}

/// Position of the log for which an acknowledgement waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitWait {
    Now,
    Written(Lsn),
    Durable(Lsn),
}

impl CommitWait {
    /// Returns the wait of a commit that ends at `lsn`.
    #[inline]
    pub(crate) fn as_promised(durability: Durability, lsn: Lsn) -> CommitWait {
        match durability {
            Durability::Sync => CommitWait::Durable(lsn),
            Durability::Buffered => CommitWait::Written(lsn),
            Durability::None => CommitWait::Now,
        }
    }
}
