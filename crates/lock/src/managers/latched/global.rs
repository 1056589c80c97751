//! Manager with one latch over the whole hash table: the traditional form, and the baseline that
//! collapses.
//!
//! It is as good as one latch allows. It has the same queues as `bucket`, and allocates and wakes
//! nothing under the latch. It never takes the latch for a lock that the owner already holds, and a
//! transaction releases its locks together.

use super::{Buckets, LatchedQueues, assert_suits, bucket_entries::BucketEntries};
use crate::{deadlock::VictimPolicy, owner::lock_list::LockEntry};
use foxton_sync::{
    cache_line::CachePadded,
    latch::{Kind, Latched},
    site::{Component, Pattern, Site},
    worker::Worker,
};

static TABLE: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock table");

/// Manager with one latch.
pub type Global = LatchedQueues<OneLatch<BucketEntries, 64>>;

/// All buckets behind one latch. Up to `TOGETHER` locks are released while it is held once.
#[derive(Debug)]
pub struct OneLatch<B, const TOGETHER: usize> {
    count: usize,
    table: CachePadded<Latched<Box<[B]>>>,
}

impl Global {
    /// Returns a manager of `buckets` buckets, a power of two, behind one latch of `kind`.
    pub fn new(kind: Kind, buckets: usize, policy: VictimPolicy) -> Self {
        let table = OneLatch::new(kind, &TABLE, buckets, BucketEntries::default);
        Self::over(table, policy)
    }
}

impl<B, const TOGETHER: usize> OneLatch<B, TOGETHER> {
    pub(super) fn new(kind: Kind, site: &'static Site, count: usize, bucket: fn() -> B) -> Self {
        assert_suits(count);
        let table = (0..count).map(|_| bucket()).collect();
        Self {
            count,
            table: CachePadded::new(Latched::new(kind, site, table)),
        }
    }
}

impl<B: AsMut<BucketEntries> + Send, const TOGETHER: usize> Buckets for OneLatch<B, TOGETHER> {
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn with<R>(
        &self,
        worker: &Worker,
        index: usize,
        body: impl FnOnce(&mut BucketEntries) -> R,
    ) -> R {
        self.table.with(worker, |table| body(table[index].as_mut()))
    }

    /// Holds the latch once for many locks, but drops it now and then, because others wait for it.
    #[inline]
    fn with_each<'l>(
        &self,
        worker: &Worker,
        mut locks: impl Iterator<Item = &'l LockEntry>,
        mut body: impl FnMut(&'l LockEntry, &mut BucketEntries),
    ) {
        let mut next = locks.next();
        while next.is_some() {
            self.table.with(worker, |table| {
                let mut left = TOGETHER;
                while let Some(lock) = next.take_if(|_| left > 0) {
                    let bucket = &mut table[lock.hash as usize & (self.count - 1)];
                    body(lock, bucket.as_mut());
                    left -= 1;
                    next = locks.next();
                }
            });
        }
    }

    fn memory_bytes(&self) -> usize {
        self.count * size_of::<B>()
    }
}
