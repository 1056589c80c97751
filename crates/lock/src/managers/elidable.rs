//! A lock table made to be elided: what document 001 leaves open (section 6).
//!
//! The document elided the latches of a lock table that was made for latches, and lost: its requests allocate
//! under the latch, wait there, and call the system. Here a request that can be granted reads and writes one
//! bucket, and does nothing else under the latch:
//!
//! * *Nothing is allocated.* Each bucket has room from the start for a few names beside the one that lies in it, and
//!   for the heads that shared ones need, and keeps it. More than that is allocated under the latch, as with
//!   `bucket`: rare, and it at worst aborts the transaction that does it.
//! * *Nobody is met who is not meant.* A bucket stands alone on the pair of lines that the processor fetches, its
//!   latch with it; with one latch for the table, that stands on lines of its own, and nobody writes them who
//!   elides.
//! * *Little is read.* The bucket's first line, for a name that nobody shares. Locks that are given back together
//!   are so eight at a time: each is one line more that somebody else could want.
//! * *Nobody waits and nobody is woken inside.* That is so for all managers of this family: who waits has given
//!   the latch back before it sleeps, and wakes come after it.
//!
//! Both arrangements take any latch. Over one that is not elided, this is `bucket` and `global` with more memory:
//! comparing the two tells what the shape is worth to begin with.

use super::{
    heads::Heads,
    queued::{Buckets, Queued, assert_suits},
};
use crate::{held, waits::VictimPolicy};
use foxton_sync::{
    cache_line::CachePadded,
    latch::{Kind, Latched},
    site::{Component, Pattern, Site},
    worker::Worker,
};

/// Locks given back in one pass of the latch over all.
const TOGETHER: usize = 8;

static BUCKET: Site = Site::new(Component::Lock, Pattern::Unbounded, "elidable lock bucket");
static TABLE: Site = Site::new(Component::Lock, Pattern::Unbounded, "elidable lock table");

/// A manager with a latch for each bucket.
pub type ElidableBucket = Queued<Each>;

/// A manager with one latch for all.
pub type ElidableGlobal = Queued<All>;

/// Buckets apart from each other, each behind a latch of its own.
#[derive(Debug)]
pub struct Each(Box<[CachePadded<Latched<Heads>>]>);

/// The same behind one latch, which is apart from all of them.
#[derive(Debug)]
pub struct All {
    count: usize,
    table: CachePadded<Latched<Box<[CachePadded<Heads>]>>>,
}

impl ElidableBucket {
    /// A manager of `buckets` buckets, a power of two, behind latches of `kind`.
    pub fn new(kind: Kind, buckets: usize, policy: VictimPolicy) -> Self {
        assert_suits(buckets);
        let bucket = |_| CachePadded::new(Latched::new(kind, &BUCKET, Heads::with_room()));
        Self::over(Each((0..buckets).map(bucket).collect()), policy)
    }
}

impl ElidableGlobal {
    /// A manager of `buckets` buckets, a power of two, behind one latch of `kind`.
    pub fn new(kind: Kind, buckets: usize, policy: VictimPolicy) -> Self {
        assert_suits(buckets);
        let table = (0..buckets).map(|_| CachePadded::new(Heads::with_room()));
        let table = CachePadded::new(Latched::new(kind, &TABLE, table.collect()));
        let count = buckets;
        Self::over(All { count, table }, policy)
    }
}

impl Buckets for Each {
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn with<R>(&self, worker: &Worker, index: usize, body: impl FnOnce(&mut Heads) -> R) -> R {
        self.0[index].with(worker, body)
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }
}

impl Buckets for All {
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn with<R>(&self, worker: &Worker, index: usize, body: impl FnOnce(&mut Heads) -> R) -> R {
        self.table.with(worker, |table| body(&mut table[index]))
    }

    #[inline]
    fn with_each<'l>(
        &self,
        worker: &Worker,
        mut locks: impl Iterator<Item = &'l held::Entry>,
        mut body: impl FnMut(&'l held::Entry, &mut Heads),
    ) {
        let mut few: smallvec::SmallVec<[&'l held::Entry; TOGETHER]> = smallvec::SmallVec::new();
        loop {
            // Walked through outside: the list of held locks is more lines to read.
            few.extend(locks.by_ref().take(TOGETHER));
            if few.is_empty() {
                return;
            }
            self.table.with(worker, |table| {
                for lock in few.drain(..) {
                    body(lock, &mut table[lock.hash as usize & (self.count - 1)]);
                }
            });
        }
    }

    fn memory_bytes(&self) -> usize {
        self.count * size_of::<CachePadded<Heads>>()
    }
}
