//! Letting go early: locks go when a commit is in the log, its answer when it is durable.
//!
//! A commit that is to be durable waits for the device, and whoever wants its locks would wait with it.
//! So once its record has its place in the log, its locks go; only the answer waits. Others then read
//! what a power cut could still take. That does no harm as long as *they* are not answered before
//! it is safe: what nobody was told may be lost.
//!
//! # What must hold
//!
//! A commit is *acknowledged* when `commit` returns without an error. What it depends on are the
//! commits whose changes it has seen, present or absent.
//!
//! * D1  A *sync* commit, even of a transaction that only read, is acknowledged when all *sync* commits
//!   that it depends on are durable.
//! * D2  A *buffered* one when they are with the operating system: that is all it says of itself.
//! * D3  One with durability *none* says nothing and waits for nothing.
//! * D4  When the log fails, nobody is acknowledged who depends on a commit that is not durable.
//!
//! Commits that are *buffered* or *none* keep their locks as long as they wait, which is short. Who
//! depends on those comes after their acknowledgement and need not wait.
//!
//! # State
//!
//! * The anchor of a record: where in the log the last commit ends that put a value there and let go
//!   early; 0 if there was none. It is only ever larger than it need be.
//! * [`Early`], one number for the database: the same for commits that took a value away, or changed so
//!   much that their records are not gone through. Absence has no place of its own to note it at.
//! * [`Seen`], in each transaction: the newest anchor among the records it has read.
//!
//! # Why that is enough
//!
//! Let R have seen a change of W, W have let go early, and W's record end at `w`.
//!
//! * R wrote something, too. Its own record was placed after it had the lock that W had, so after W's:
//!   the log is durable in order, and waiting for its own is waiting for W's. The same for *written*.
//! * R only read, and found a value of W. W wrote `w` into the record's anchor before it let go of the
//!   key; R read the anchor after it had the lock on the key, or on what covers it. The two were never
//!   held together, so R's lock came after W's release, which is all the order that is needed: a number
//!   that only grows was written before and is read after. R finds `w` or something larger.
//! * R only read, and found nothing where W had taken something away. Then the lock was on the name of
//!   the key or on the gap, W had it exclusively or it was in W's way, and the same holds for `Early`.
//!
//! D4 follows: who waits for `w` is told of the failure, unless `w` was durable before.
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

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Early(CachePadded<AtomicU64>);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Seen(Cell<u64>);

impl Early {
    /// Has everybody who only reads wait for the commit that ends at `end`.
    pub(crate) fn mark_all(&self, worker: &Worker, end: Lsn) {
        worker.account().passed(&ALL);
        // Relaxed: ordered by the locks, which go after this.
        self.0.fetch_max(end.bytes(), Relaxed);
    }

    /// How far the log must be for what was seen and noted in `seen`, and for what was seen to be
    /// absent.
    #[inline]
    pub(crate) fn newest(&self, seen: [&Seen; 2]) -> Lsn {
        // Relaxed: ordered by the lock.
        let all = self.0.load(Relaxed);
        Lsn::new(
            seen.into_iter()
                .fold(all, |newest, seen| newest.max(seen.0.get())),
        )
    }
}

/// Notes that whoever reads `record` waits for the commit that ends at `end`. For the holder of the
/// exclusive lock on it.
pub(crate) fn mark(record: &Record, end: Lsn) {
    // Relaxed: ordered by the lock.
    record.anchor().store(end.bytes(), Relaxed);
}

impl Seen {
    /// Notes that `record` was read, whatever was found in it.
    #[inline]
    pub(crate) fn note(&self, record: &Record) {
        // Relaxed: ordered by the lock.
        let newest = record.anchor().load(Relaxed).max(self.0.get());
        self.0.set(newest);
    }

    /// For the next transaction.
    #[inline]
    pub(crate) fn forget(&self) {
        self.0.set(0);
    }
}

/// What an acknowledgement waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    Now,
    Written(Lsn),
    Durable(Lsn),
}

impl Until {
    /// Until the log is as far as `lsn`, as far as `durability` cares.
    #[inline]
    pub(crate) fn as_promised(durability: Durability, lsn: Lsn) -> Until {
        match durability {
            Durability::Sync => Until::Durable(lsn),
            Durability::Buffered => Until::Written(lsn),
            Durability::None => Until::Now,
        }
    }
}
