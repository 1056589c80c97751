//! Manager with a latch for each hash bucket: a call takes one latch, and calls for different names
//! rarely take the same.
//!
//! This is the manager of Ren, Thomson and Abadi's section 3.1 and the baseline of Johnson, Pandis
//! and Ailamaki's section 4.2. They take heads and requests from pools; here they are in the bucket
//! itself, under the latch that the call has taken anyway. So a lock without other holders touches
//! one cache line, and allocation is rare.

use super::{Buckets, LatchedQueues, assert_suits, bucket_entries::BucketEntries};
use crate::{deadlock::VictimPolicy, name::Name};
use foxton_sync::{
    cache_line::prefetch_to_write,
    latch::{Kind, Latched},
    site::{Component, Pattern, Site},
    worker::Worker,
};
use std::ptr;

static BUCKET: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock bucket");

/// Manager with a latch for each bucket.
pub type Bucket = LatchedQueues<Latches<LatchedBucket>>;

/// Buckets, each behind a latch of its own.
#[derive(Debug)]
pub struct Latches<L>(Box<[L]>);

/// Bucket on a cache line of its own. Not on a pair of lines, as other contended data, because
/// there are thousands of buckets and two neighbours are hardly ever both hot.
#[derive(Debug)]
#[repr(align(64))]
pub struct LatchedBucket(Latched<BucketEntries>);

// With the feature `account` the site needs space, too, and with emulated latches the emulation
// does.
#[cfg(not(any(loom, shuttle, feature = "account", feature = "emulated")))]
const _: () = assert!(size_of::<LatchedBucket>() == 64);

impl AsRef<Latched<BucketEntries>> for LatchedBucket {
    #[inline(always)]
    fn as_ref(&self) -> &Latched<BucketEntries> {
        &self.0
    }
}

impl Bucket {
    /// Returns a manager of `buckets` buckets, a power of two, behind latches of `kind`.
    pub fn new(kind: Kind, buckets: usize, policy: VictimPolicy) -> Self {
        let bucket = || LatchedBucket(Latched::new(kind, &BUCKET, BucketEntries::default()));
        Self::over(Latches::new(buckets, bucket), policy)
    }
}

impl<L> Latches<L> {
    pub(super) fn new(count: usize, bucket: impl Fn() -> L) -> Self {
        assert_suits(count);
        Self((0..count).map(|_| bucket()).collect())
    }
}

impl<L: AsRef<Latched<BucketEntries>> + Send + Sync> Buckets for Latches<L> {
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn prefetch(&self, _name: &Name, hash: u32) {
        let bucket = &self.0[hash as usize & (self.0.len() - 1)];
        prefetch_to_write(ptr::from_ref(bucket).cast());
    }

    #[inline]
    fn with<R>(
        &self,
        worker: &Worker,
        index: usize,
        body: impl FnOnce(&mut BucketEntries) -> R,
    ) -> R {
        self.0[index].as_ref().with(worker, body)
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }
}
