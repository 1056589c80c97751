//! The two hash tables, their shards, and the latch over all of it.
//!
//! The low bits of a name's hash choose the shard, the next ones the bucket in it. So neighbours lie
//! in different shards.

use crate::{
    held,
    managers::{
        heads::Heads,
        queued::{Buckets, assert_suits},
    },
    name::{Class, Name},
};
use foxton_sync::{
    cache_line::CachePadded,
    latch::{Kind, Latched, ShardedLatched},
    site::{Component, Pattern, Site},
    worker::Worker,
};

/// Latches of one table, at most.
const SHARDS: usize = 512;
/// Locks given back under one shared hold of the world, so that who wants to stop it need not wait
/// for a transaction with a million of them.
const TOGETHER: usize = 64;

static WORLD: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock world");
static SHARD: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock shard");

/// The buckets that share one latch.
type Shard = CachePadded<Latched<Box<[Heads]>>>;

/// One hash table whose buckets share latches.
#[derive(Debug)]
struct Table {
    shards: Box<[Shard]>,
    shard_bits: u32,
    bucket_mask: usize,
}

impl Table {
    fn new(kind: Kind, buckets: usize) -> Self {
        let shards = buckets.min(SHARDS);
        let heads = || (0..buckets / shards).map(|_| Heads::default()).collect();
        let shard = |_| CachePadded::new(Latched::new(kind, &SHARD, heads()));
        Self {
            shards: (0..shards).map(shard).collect(),
            shard_bits: shards.trailing_zeros(),
            bucket_mask: buckets / shards - 1,
        }
    }

    /// The shard of a hash, and the place in it of its bucket.
    #[inline]
    fn split(&self, hash: usize) -> (usize, usize) {
        let shard = hash & (self.shards.len() - 1);
        (shard, hash >> self.shard_bits & self.bucket_mask)
    }

    #[inline]
    fn with<R>(&self, worker: &Worker, hash: usize, body: impl FnOnce(&mut Heads) -> R) -> R {
        let (shard, at) = self.split(hash);
        self.shards[shard].with(worker, |heads| body(&mut heads[at]))
    }

    fn count(&self) -> usize {
        self.shards.len() * (self.bucket_mask + 1)
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&self.shards[..]) + self.count() * size_of::<Heads>()
    }
}

/// Everything that a stopped world holds still.
#[derive(Debug)]
pub(super) struct Tables {
    keys: Table,
    tables: Table,
}

impl Tables {
    #[inline]
    fn with<R>(
        &self,
        worker: &Worker,
        name: &Name,
        hash: u32,
        body: impl FnOnce(&mut Heads) -> R,
    ) -> R {
        let table = match name.class() {
            Class::Table => &self.tables,
            _ => &self.keys,
        };
        table.with(worker, hash as usize, body)
    }

    /// The bucket of `name`, for who has stopped the world.
    pub(super) fn bucket(&mut self, name: &Name) -> &mut Heads {
        let table = match name.class() {
            Class::Table => &mut self.tables,
            _ => &mut self.keys,
        };
        let (shard, at) = table.split(name.hash() as u32 as usize);
        &mut table.shards[shard].get_mut()[at]
    }
}

/// The world.
#[derive(Debug)]
pub(super) struct Shards {
    world: ShardedLatched<Tables>,
    key_buckets: usize,
    count: usize,
    memory_bytes: usize,
}

impl Shards {
    /// `buckets` buckets of keys, and one for each shard of tables.
    pub(super) fn new(kind: Kind, buckets: usize) -> Self {
        assert_suits(buckets);
        let keys = Table::new(kind, buckets);
        let tables = Table::new(kind, buckets.min(SHARDS));
        Self {
            key_buckets: keys.count(),
            count: keys.count() + tables.count(),
            memory_bytes: keys.memory_bytes() + tables.memory_bytes(),
            world: ShardedLatched::new(&WORLD, Tables { keys, tables }),
        }
    }

    /// Calls `body` while nobody else is anywhere in the tables.
    pub(super) fn stop<R>(&self, worker: &Worker, body: impl FnOnce(&mut Tables) -> R) -> R {
        self.world.write(worker, body)
    }
}

impl Buckets for Shards {
    fn count(&self) -> usize {
        self.count
    }

    /// Those of keys come first.
    fn with<R>(&self, worker: &Worker, index: usize, body: impl FnOnce(&mut Heads) -> R) -> R {
        self.world
            .read(worker, |tables| match index.checked_sub(self.key_buckets) {
                None => tables.keys.with(worker, index, body),
                Some(index) => tables.tables.with(worker, index, body),
            })
    }

    #[inline]
    fn with_name<R>(
        &self,
        worker: &Worker,
        name: &Name,
        hash: u32,
        body: impl FnOnce(&mut Heads) -> R,
    ) -> R {
        self.world
            .read(worker, |tables| tables.with(worker, name, hash, body))
    }

    #[inline]
    fn with_each<'l>(
        &self,
        worker: &Worker,
        mut locks: impl Iterator<Item = &'l held::Entry>,
        mut body: impl FnMut(&'l held::Entry, &mut Heads),
    ) {
        while let Some(first) = locks.next() {
            self.world.read(worker, |tables| {
                let (mut lock, mut left) = (first, TOGETHER);
                loop {
                    tables.with(worker, &lock.name, lock.hash, |heads| body(lock, heads));
                    left -= 1;
                    let next = if left > 0 { locks.next() } else { None };
                    let Some(next) = next else {
                        return;
                    };
                    lock = next;
                }
            });
        }
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}
