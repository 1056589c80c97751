//! The two hash tables, their shards, and the global latch in the form of the paper.
//!
//! A shard is the data of one latch: a bucket, or several in the form of the paper. The low bits of
//! a name's hash choose the shard, and the next ones the bucket in it. So neighbours are in
//! different shards.
//!
//! # Invariants
//!
//! * I1  A thread that latches several shards takes them in the order of their numbers, those of
//!   keys first. All other threads hold one at a time. So latches cannot deadlock.

use crate::{
    managers::latched::{Buckets, assert_suits, bucket_entries::BucketEntries},
    name::{Class, Name},
    owner::lock_list::LockEntry,
};
use foxton_sync::{
    cache_line::{CachePadded, prefetch_to_write},
    latch::{Kind, Latched, ShardedLatched},
    site::{Component, Pattern, Site},
    worker::Worker,
};
use std::{fmt, ptr};

/// Most latches over the table of tables, and in the form of the paper over that of keys.
const SHARDS: usize = 512;
/// Locks released while the global latch is entered once, so that a thread that wants it
/// exclusively need not wait for a transaction with a million locks.
const BATCH: usize = 64;

static GLOBAL: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock world");
static SHARD: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock shard");

/// Data of one latch.
pub(crate) trait Shard: Send + Sync + fmt::Debug {
    /// Most latches over the table of keys.
    const MAX_LATCHES: usize;

    /// Memory of a bucket that is outside of the shard, in bytes.
    const SEPARATE_BYTES: usize;

    /// Returns a shard of `buckets` buckets.
    fn new(kind: Kind, buckets: usize) -> Self;

    /// Calls `body` with the bucket at `at`, under the latch.
    fn with<R>(&self, worker: &Worker, at: usize, body: impl FnOnce(&mut BucketEntries) -> R) -> R;

    /// Calls `body` with all buckets, under the latch.
    fn with_all(&self, worker: &Worker, body: impl FnOnce(&mut (dyn LatchedBuckets + 'static)));
}

/// Buckets whose latch is held.
pub(crate) trait LatchedBuckets {
    fn bucket(&mut self, at: usize) -> &mut BucketEntries;
}

/// One bucket, and its latch on the same cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct BucketShard(Latched<BucketEntries>);

// With the feature `account` the site needs space, too.
#[cfg(not(any(loom, shuttle, feature = "account", feature = "emulated")))]
const _: () = assert!(size_of::<BucketShard>() == 64);

impl Shard for BucketShard {
    const MAX_LATCHES: usize = usize::MAX;
    const SEPARATE_BYTES: usize = 0;

    fn new(kind: Kind, buckets: usize) -> Self {
        debug_assert_eq!(buckets, 1);
        Self(Latched::new(kind, &SHARD, BucketEntries::default()))
    }

    #[inline(always)]
    fn with<R>(
        &self,
        worker: &Worker,
        _at: usize,
        body: impl FnOnce(&mut BucketEntries) -> R,
    ) -> R {
        self.0.with(worker, body)
    }

    fn with_all(&self, worker: &Worker, body: impl FnOnce(&mut (dyn LatchedBuckets + 'static))) {
        self.0.with(worker, |heads| body(heads));
    }
}

impl LatchedBuckets for BucketEntries {
    fn bucket(&mut self, _at: usize) -> &mut BucketEntries {
        self
    }
}

/// Several buckets, each on a line of its own, and their latch on another: the form of the paper.
#[derive(Debug)]
pub(crate) struct MultiBucketShard(CachePadded<Latched<Box<[PaddedBucket]>>>);

/// Bucket on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct PaddedBucket(BucketEntries);

impl Shard for MultiBucketShard {
    const MAX_LATCHES: usize = SHARDS;
    const SEPARATE_BYTES: usize = size_of::<PaddedBucket>();

    fn new(kind: Kind, buckets: usize) -> Self {
        let heads = (0..buckets).map(|_| PaddedBucket::default()).collect();
        Self(CachePadded::new(Latched::new(kind, &SHARD, heads)))
    }

    #[inline(always)]
    fn with<R>(&self, worker: &Worker, at: usize, body: impl FnOnce(&mut BucketEntries) -> R) -> R {
        self.0.with(worker, |heads| body(&mut heads[at].0))
    }

    fn with_all(&self, worker: &Worker, body: impl FnOnce(&mut (dyn LatchedBuckets + 'static))) {
        self.0.with(worker, |heads| body(heads));
    }
}

impl LatchedBuckets for Box<[PaddedBucket]> {
    fn bucket(&mut self, at: usize) -> &mut BucketEntries {
        &mut self[at].0
    }
}

/// Latch above all shards, if there is one.
pub(crate) trait GlobalLatch: Send + Sync + fmt::Debug {
    /// True if there is one, so that it can stop all calls.
    const CAN_STOP: bool;

    /// The shards below it.
    type Shard: Shard;

    fn new() -> Self;

    /// Calls `body` inside the latch, shared with other calls.
    fn shared<R>(&self, worker: &Worker, body: impl FnOnce() -> R) -> R;

    /// Calls `body` while no call is inside, if there is a latch.
    fn exclusive(&self, worker: &Worker, body: impl FnOnce());
}

/// No latch above the shards.
#[derive(Debug)]
pub struct NoGlobalLatch;

impl GlobalLatch for NoGlobalLatch {
    const CAN_STOP: bool = false;
    type Shard = BucketShard;

    fn new() -> Self {
        Self
    }

    #[inline(always)]
    fn shared<R>(&self, _worker: &Worker, body: impl FnOnce() -> R) -> R {
        body()
    }

    fn exclusive(&self, _worker: &Worker, body: impl FnOnce()) {
        body();
    }
}

/// The latch of the paper, which every call passes.
#[derive(Debug)]
pub struct PartitionedLatch(ShardedLatched<()>);

impl GlobalLatch for PartitionedLatch {
    const CAN_STOP: bool = true;
    type Shard = MultiBucketShard;

    fn new() -> Self {
        Self(ShardedLatched::new(&GLOBAL, ()))
    }

    #[inline]
    fn shared<R>(&self, worker: &Worker, body: impl FnOnce() -> R) -> R {
        self.0.read(worker, |()| body())
    }

    fn exclusive(&self, worker: &Worker, body: impl FnOnce()) {
        self.0.write(worker, |()| body());
    }
}

/// Buckets of some names, latched together.
pub(super) struct LatchedShards<'s> {
    layout: ShardLayout,
    latched: Vec<(usize, &'s mut (dyn LatchedBuckets + 'static))>,
}

/// Positions of the buckets by hash.
#[derive(Debug, Clone, Copy)]
struct ShardLayout {
    /// Number of shards of keys, less one.
    shard_mask: u32,
    shard_bits: u32,
    /// Number of buckets in one of them, less one. A shard of tables has one bucket.
    bucket_mask: u32,
    /// Number of shards of tables, less one.
    table_mask: u32,
}

impl ShardLayout {
    /// Returns the shard of a name, and the index of its bucket in it.
    #[inline(always)]
    fn locate(self, name: &Name, hash: u32) -> (usize, usize) {
        match name.class() {
            Class::Table => (self.key_shards() + (hash & self.table_mask) as usize, 0),
            _ => self.locate_key(hash),
        }
    }

    #[inline(always)]
    fn locate_key(self, hash: u32) -> (usize, usize) {
        let at = hash >> self.shard_bits & self.bucket_mask;
        ((hash & self.shard_mask) as usize, at as usize)
    }

    #[inline(always)]
    fn key_shards(self) -> usize {
        self.shard_mask as usize + 1
    }

    /// Returns the number of buckets of keys.
    fn keys(self) -> usize {
        self.key_shards() * (self.bucket_mask as usize + 1)
    }
}

impl LatchedShards<'_> {
    /// Returns the bucket of `name`, one of those names.
    pub(super) fn bucket(&mut self, name: &Name) -> &mut BucketEntries {
        let (shard, at) = self.layout.locate(name, name.hash() as u32);
        let mut latched = self.latched.iter_mut();
        let shard = latched.find(|latched| latched.0 == shard);
        let (_, behind) = shard.expect("the shard of one of the names");
        behind.bucket(at)
    }
}

/// All shards, and the latch above them.
#[derive(Debug)]
pub(super) struct Shards<W: GlobalLatch> {
    /// The shards of keys, and then those of tables.
    shards: Box<[W::Shard]>,
    layout: ShardLayout,
    global: W,
}

impl<W: GlobalLatch> Shards<W> {
    /// Returns `buckets` buckets of keys, and one bucket for each shard of tables.
    pub(super) fn new(kind: Kind, buckets: usize) -> Self {
        assert_suits(buckets);
        let (keys, tables) = (buckets.min(W::Shard::MAX_LATCHES), buckets.min(SHARDS));
        let of_keys = (0..keys).map(|_| W::Shard::new(kind, buckets / keys));
        let of_tables = (0..tables).map(|_| W::Shard::new(kind, 1));
        Self {
            shards: of_keys.chain(of_tables).collect(),
            layout: ShardLayout {
                shard_mask: keys as u32 - 1,
                shard_bits: keys.trailing_zeros(),
                bucket_mask: (buckets / keys) as u32 - 1,
                table_mask: tables as u32 - 1,
            },
            global: W::new(),
        }
    }

    /// Calls `body` while no other call is inside the shards of `names`; with a global latch,
    /// inside any shard.
    pub(super) fn with_latched<'n>(
        &self,
        worker: &Worker,
        names: impl Iterator<Item = &'n Name>,
        mut body: impl FnMut(&mut LatchedShards<'_>),
    ) {
        let shard = |name: &Name| self.layout.locate(name, name.hash() as u32).0;
        let mut shards: Vec<usize> = names.map(shard).collect();
        shards.sort_unstable(); // I1
        shards.dedup();
        let latched = Vec::with_capacity(shards.len());
        self.global.exclusive(worker, || {
            self.latch_all(worker, &shards, latched, &mut body);
        });
    }

    /// Latches these shards in addition to those that are `latched`.
    fn latch_all(
        &self,
        worker: &Worker,
        shards: &[usize],
        latched: Vec<(usize, &mut (dyn LatchedBuckets + 'static))>,
        body: &mut dyn FnMut(&mut LatchedShards<'_>),
    ) {
        let Some((&shard, rest)) = shards.split_first() else {
            return body(&mut LatchedShards {
                layout: self.layout,
                latched,
            });
        };
        self.shards[shard].with_all(worker, |behind| {
            let mut latched = latched;
            latched.push((shard, behind));
            self.latch_all(worker, rest, latched, body);
        });
    }
}

impl<W: GlobalLatch> Buckets for Shards<W> {
    fn count(&self) -> usize {
        self.layout.keys() + self.layout.table_mask as usize + 1
    }

    /// Buckets of keys come first.
    fn with<R>(
        &self,
        worker: &Worker,
        index: usize,
        body: impl FnOnce(&mut BucketEntries) -> R,
    ) -> R {
        let keys = self.layout.keys();
        let (shard, at) = match index.checked_sub(keys) {
            Some(table) => (self.layout.key_shards() + table, 0),
            None => self.layout.locate_key(index as u32),
        };
        let access = || self.shards[shard].with(worker, at, body);
        self.global.shared(worker, access)
    }

    #[inline]
    fn prefetch(&self, name: &Name, hash: u32) {
        let (shard, _) = self.layout.locate(name, hash);
        prefetch_to_write(ptr::from_ref(&self.shards[shard]).cast());
    }

    #[inline(always)]
    fn with_name<R>(
        &self,
        worker: &Worker,
        name: &Name,
        hash: u32,
        body: impl FnOnce(&mut BucketEntries) -> R,
    ) -> R {
        let (shard, at) = self.layout.locate(name, hash);
        let access = || self.shards[shard].with(worker, at, body);
        self.global.shared(worker, access)
    }

    #[inline(always)]
    fn with_each<'l>(
        &self,
        worker: &Worker,
        mut locks: impl Iterator<Item = &'l LockEntry>,
        mut body: impl FnMut(&'l LockEntry, &mut BucketEntries),
    ) {
        let mut next = locks.next();
        while next.is_some() {
            self.global.shared(worker, || {
                let mut left = BATCH;
                while let Some(lock) = next.take_if(|_| !W::CAN_STOP || left > 0) {
                    let (shard, at) = self.layout.locate(&lock.name, lock.hash);
                    self.shards[shard].with(worker, at, |heads| body(lock, heads));
                    left -= usize::from(W::CAN_STOP);
                    next = locks.next();
                }
            });
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&self.shards[..]) + self.count() * W::Shard::SEPARATE_BYTES
    }
}
