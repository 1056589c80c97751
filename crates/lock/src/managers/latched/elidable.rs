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
//!   elides. That is so for the name that lies in the bucket. The room beside it comes from the allocator, three pieces
//!   for a bucket, which share a line with a neighbour's at their ends: what has a head, or is the bucket's second name,
//!   can meet a stranger there.
//! * *Little is read.* The bucket's first line, for a name that nobody shares. Locks that are given back together
//!   are so eight at a time: each is one line more that somebody else could want. The owner's list of them is
//!   read inside, too, but nobody else writes that.
//! * *Nobody waits and nobody is woken inside.* That is so for all managers of this family: who waits has given
//!   the latch back before it sleeps, and wakes come after it.
//!
//! Both arrangements take any latch. Over one that is not elided, this is `bucket` and `global` with more memory:
//! comparing the two tells what the shape is worth to begin with.

use super::{LatchedQueues, bucket::Latches, bucket_entries::BucketEntries, global::OneLatch};
use crate::deadlock::VictimPolicy;
use foxton_sync::{
    cache_line::CachePadded,
    latch::{Kind, Latched},
    site::{Component, Pattern, Site},
};

static BUCKET: Site = Site::new(Component::Lock, Pattern::Unbounded, "elidable lock bucket");
static TABLE: Site = Site::new(Component::Lock, Pattern::Unbounded, "elidable lock table");

/// A manager with a latch for each bucket, and each bucket apart from the others.
pub type ElidableBucket = LatchedQueues<Latches<CachePadded<Latched<BucketEntries>>>>;

/// The same with one latch for all, which is apart from all of them.
pub type ElidableGlobal = LatchedQueues<OneLatch<CachePadded<BucketEntries>, 8>>;

impl ElidableBucket {
    /// A manager of `buckets` buckets, a power of two, behind latches of `kind`.
    pub fn new(kind: Kind, buckets: usize, policy: VictimPolicy) -> Self {
        let bucket =
            || CachePadded::new(Latched::new(kind, &BUCKET, BucketEntries::with_capacity()));
        Self::over(Latches::new(buckets, bucket), policy)
    }
}

impl ElidableGlobal {
    /// A manager of `buckets` buckets, a power of two, behind one latch of `kind`.
    pub fn new(kind: Kind, buckets: usize, policy: VictimPolicy) -> Self {
        let bucket = || CachePadded::new(BucketEntries::with_capacity());
        Self::over(OneLatch::new(kind, &TABLE, buckets, bucket), policy)
    }
}
