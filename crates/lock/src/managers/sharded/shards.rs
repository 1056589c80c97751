//! The two hash tables, their shards, and the latch over all of it.
//!
//! Buckets are numbered through both tables, those of keys first. Neighbours lie in different shards.

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
}

impl Table {
    fn new(kind: Kind, buckets: usize) -> Self {
        let shards = buckets.min(SHARDS);
        let heads = || (0..buckets / shards).map(|_| Heads::default()).collect();
        let shard = |_| CachePadded::new(Latched::new(kind, &SHARD, heads()));
        Self {
            shards: (0..shards).map(shard).collect(),
        }
    }

    /// The shard and the place in it of the bucket at `index`.
    #[inline]
    fn split(&self, index: usize) -> (usize, usize) {
        let shards = self.shards.len();
        (index & (shards - 1), index >> shards.trailing_zeros())
    }

    #[inline]
    fn with<R>(&self, worker: &Worker, index: usize, body: impl FnOnce(&mut Heads) -> R) -> R {
        let (shard, at) = self.split(index);
        self.shards[shard].with(worker, |heads| body(&mut heads[at]))
    }

    /// The bucket at `index`, for who has stopped the world.
    fn bucket(&mut self, index: usize) -> &mut Heads {
        let (shard, at) = self.split(index);
        &mut self.shards[shard].get_mut()[at]
    }

    fn bytes(buckets: usize) -> usize {
        let shards = buckets.min(SHARDS);
        shards * size_of::<Shard>() + buckets * size_of::<Heads>()
    }
}

/// Everything that a stopped world holds still.
#[derive(Debug)]
pub(super) struct Tables {
    keys: Table,
    key_buckets: usize,
    tables: Table,
}

impl Tables {
    #[inline]
    fn with<R>(&self, worker: &Worker, index: usize, body: impl FnOnce(&mut Heads) -> R) -> R {
        match index.checked_sub(self.key_buckets) {
            None => self.keys.with(worker, index, body),
            Some(index) => self.tables.with(worker, index, body),
        }
    }

    /// The bucket at `index`, for who has stopped the world.
    pub(super) fn bucket(&mut self, index: usize) -> &mut Heads {
        match index.checked_sub(self.key_buckets) {
            None => self.keys.bucket(index),
            Some(index) => self.tables.bucket(index),
        }
    }
}

/// The world.
#[derive(Debug)]
pub(super) struct Shards {
    world: ShardedLatched<Tables>,
    key_buckets: usize,
    table_buckets: usize,
}

impl Shards {
    /// `buckets` buckets of keys, and one for each shard of tables.
    pub(super) fn new(kind: Kind, buckets: usize) -> Self {
        assert_suits(buckets);
        let table_buckets = buckets.min(SHARDS);
        let tables = Tables {
            keys: Table::new(kind, buckets),
            key_buckets: buckets,
            tables: Table::new(kind, table_buckets),
        };
        Self {
            world: ShardedLatched::new(&WORLD, tables),
            key_buckets: buckets,
            table_buckets,
        }
    }

    /// Calls `body` while nobody else is anywhere in the tables.
    pub(super) fn stop<R>(&self, worker: &Worker, body: impl FnOnce(&mut Tables) -> R) -> R {
        self.world.write(worker, body)
    }
}

impl Buckets for Shards {
    fn count(&self) -> usize {
        self.key_buckets + self.table_buckets
    }

    #[inline]
    fn index(&self, name: &Name, hash: u32) -> usize {
        match name.class() {
            Class::Table => self.key_buckets + (hash as usize & (self.table_buckets - 1)),
            _ => hash as usize & (self.key_buckets - 1),
        }
    }

    #[inline]
    fn with<R>(&self, worker: &Worker, index: usize, body: impl FnOnce(&mut Heads) -> R) -> R {
        self.world
            .read(worker, |tables| tables.with(worker, index, body))
    }

    #[inline]
    fn with_each<'l>(
        &self,
        worker: &Worker,
        locks: impl Iterator<Item = &'l held::Entry>,
        mut body: impl FnMut(&'l held::Entry, &mut Heads),
    ) {
        let mut locks = locks.peekable();
        while locks.peek().is_some() {
            self.world.read(worker, |tables| {
                for lock in locks.by_ref().take(TOGETHER) {
                    let index = self.index(&lock.name, lock.hash);
                    tables.with(worker, index, |heads| body(lock, heads));
                }
            });
        }
    }

    fn memory_bytes(&self) -> usize {
        Table::bytes(self.key_buckets) + Table::bytes(self.table_buckets)
    }
}
