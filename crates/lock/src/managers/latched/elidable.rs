//! Lock table laid out for elided latches: what Schrimpf leaves open (section 6).
//!
//! Schrimpf elided the latches of a lock table that was made for latches, and lost: its requests
//! allocate under the latch, wait there, and call the system. Here a request that can be granted
//! reads and writes one bucket, and does nothing else under the latch:
//!
//! * *No allocation.* Each bucket has space for a few more names and for the heads that shared
//!   names need, and keeps it. More than that is allocated under the latch, as with `bucket`: that
//!   is rare, and at worst aborts the transaction that does it.
//! * *No false sharing.* A bucket and its latch are alone on the pair of lines that the processor
//!   fetches. A single latch for the table is on lines of its own, which no thread writes that
//!   elides it. This holds for the name in the bucket itself. The further space comes from the
//!   allocator in three pieces for a bucket, whose ends share a line with a neighbour's piece. So a
//!   name with a head, and a bucket's second name, can conflict with a strange one.
//! * *Few reads.* For a name without other holders, the first line of its bucket. Locks are
//!   released together only eight at a time, because each is one more line that another thread
//!   could write. The owner's list of locks is read inside, too, but no other thread writes it.
//! * *No waiting and no wake-ups inside.* All managers of this family drop the latch before they
//!   wait, and wake after it.
//!
//! Both arrangements take any latch. Over a latch that is not elided they are `bucket` and `global`
//! with more memory, and comparing the two shows the effect of the layout alone.

use super::{LatchedQueues, bucket::Latches, bucket_entries::BucketEntries, global::OneLatch};
use crate::deadlock::VictimPolicy;
use foxton_sync::{
    cache_line::CachePadded,
    latch::{Kind, Latched},
    site::{Component, Pattern, Site},
};

static BUCKET: Site = Site::new(Component::Lock, Pattern::Unbounded, "elidable lock bucket");
static TABLE: Site = Site::new(Component::Lock, Pattern::Unbounded, "elidable lock table");

/// Manager with a latch for each bucket, and each bucket apart from the others.
pub type ElidableBucket = LatchedQueues<Latches<CachePadded<Latched<BucketEntries>>>>;

/// Manager with one latch for all buckets, apart from all of them.
pub type ElidableGlobal = LatchedQueues<OneLatch<CachePadded<BucketEntries>, 8>>;

impl ElidableBucket {
    /// Returns a manager of `buckets` buckets, a power of two, behind latches of `kind`.
    pub fn new(kind: Kind, buckets: usize, policy: VictimPolicy) -> Self {
        let bucket =
            || CachePadded::new(Latched::new(kind, &BUCKET, BucketEntries::with_capacity()));
        Self::over(Latches::new(buckets, bucket), policy)
    }
}

impl ElidableGlobal {
    /// Returns a manager of `buckets` buckets, a power of two, behind one latch of `kind`.
    pub fn new(kind: Kind, buckets: usize, policy: VictimPolicy) -> Self {
        let bucket = || CachePadded::new(BucketEntries::with_capacity());
        Self::over(OneLatch::new(kind, &TABLE, buckets, bucket), policy)
    }
}
