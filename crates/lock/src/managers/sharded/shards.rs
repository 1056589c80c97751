//! The two hash tables, their shards, and the latch over all of it in the document's form.
//!
//! The low bits of a name's hash choose the shard, the next ones the bucket in it. So neighbours lie
//! in different shards.
//!
//! # Invariants
//!
//! * I1  Who latches several shards takes them in the order of their numbers, those of keys first; all
//!   others have one at a time. So nobody waits in a circle for latches.

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
use std::fmt;

/// Latches of one table, at most.
const SHARDS: usize = 512;
/// Locks given back under one shared hold of the world, so that who wants to stop it need not wait
/// for a transaction with a million of them.
const TOGETHER: usize = 64;

static WORLD: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock world");
static SHARD: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock shard");

/// A bucket on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OneLine(Heads);

/// The buckets that share one latch.
type Shard = CachePadded<Latched<Box<[OneLine]>>>;

/// What is above all shards.
pub(crate) trait World: Send + Sync + fmt::Debug {
    /// Whether it can be stopped.
    const STOPS: bool;

    fn new() -> Self;

    /// What a call does in here.
    fn inside<R>(&self, worker: &Worker, body: impl FnOnce() -> R) -> R;

    /// What is done while no call is in here, if the world can be stopped.
    fn stopped(&self, worker: &Worker, body: impl FnOnce());
}

/// Nothing is above the shards.
#[derive(Debug)]
pub struct Open;

impl World for Open {
    const STOPS: bool = false;

    fn new() -> Self {
        Self
    }

    #[inline(always)]
    fn inside<R>(&self, _worker: &Worker, body: impl FnOnce() -> R) -> R {
        body()
    }

    fn stopped(&self, _worker: &Worker, body: impl FnOnce()) {
        body();
    }
}

/// The document's latch, which every call passes.
#[derive(Debug)]
pub struct Latched64(ShardedLatched<()>);

impl World for Latched64 {
    const STOPS: bool = true;

    fn new() -> Self {
        Self(ShardedLatched::new(&WORLD, ()))
    }

    #[inline]
    fn inside<R>(&self, worker: &Worker, body: impl FnOnce() -> R) -> R {
        self.0.read(worker, |()| body())
    }

    fn stopped(&self, worker: &Worker, body: impl FnOnce()) {
        self.0.write(worker, |()| body());
    }
}

/// The buckets of some names, held still all at once.
pub(super) struct Still<'s> {
    layout: Layout,
    latched: Vec<(usize, &'s mut [OneLine])>,
}

/// Where the bucket of a hash is.
#[derive(Debug, Clone, Copy)]
struct Layout {
    shard_bits: u32,
    shard_mask: u32,
    /// Among the buckets of one shard of keys. Those of tables have one.
    bucket_mask: u32,
}

impl Layout {
    /// The shard of a name, and the place in it of its bucket.
    #[inline(always)]
    fn place(self, name: &Name, hash: u32) -> (usize, usize) {
        let shard = (hash & self.shard_mask) as usize;
        let at = (hash >> self.shard_bits & self.bucket_mask) as usize;
        match name.class() {
            Class::Table => (shard + self.shard_mask as usize + 1, 0),
            _ => (shard, at),
        }
    }
}

impl Still<'_> {
    /// The bucket of `name`, one of those names.
    pub(super) fn bucket(&mut self, name: &Name) -> &mut Heads {
        let (shard, at) = self.layout.place(name, name.hash() as u32);
        let mut latched = self.latched.iter_mut();
        let shard = latched.find(|latched| latched.0 == shard);
        let (_, heads) = shard.expect("the shard of one of the names");
        &mut heads[at].0
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct Shards<W> {
    /// Those of keys, and behind them as many of tables.
    shards: Box<[Shard]>,
    layout: Layout,
    world: W,
}

impl<W: World> Shards<W> {
    /// `buckets` buckets of keys, and one for each shard of tables.
    pub(super) fn new(kind: Kind, buckets: usize) -> Self {
        assert_suits(buckets);
        let count = buckets.min(SHARDS);
        let shard = |buckets| {
            let heads = (0..buckets).map(|_| OneLine::default()).collect();
            CachePadded::new(Latched::new(kind, &SHARD, heads))
        };
        let keys = (0..count).map(|_| shard(buckets / count));
        let tables = (0..count).map(|_| shard(1));
        Self {
            shards: keys.chain(tables).collect(),
            layout: Layout {
                shard_bits: count.trailing_zeros(),
                shard_mask: count as u32 - 1,
                bucket_mask: (buckets / count) as u32 - 1,
            },
            world: W::new(),
        }
    }

    #[inline(always)]
    fn enter<R>(
        &self,
        worker: &Worker,
        (shard, at): (usize, usize),
        body: impl FnOnce(&mut Heads) -> R,
    ) -> R {
        self.shards[shard].with(worker, |heads| body(&mut heads[at].0))
    }

    /// Calls `body` while nobody else is anywhere in the shards of `names`; or, where there is a world,
    /// anywhere at all.
    pub(super) fn still<'n>(
        &self,
        worker: &Worker,
        names: impl Iterator<Item = &'n Name>,
        mut body: impl FnMut(&mut Still<'_>),
    ) {
        let shard = |name: &Name| self.layout.place(name, name.hash() as u32).0;
        let mut shards: Vec<usize> = names.map(shard).collect();
        shards.sort_unstable(); // I1
        shards.dedup();
        let latched = Vec::with_capacity(shards.len());
        self.world.stopped(worker, || {
            self.latch(worker, &shards, latched, &mut body);
        });
    }

    /// Latches these shards, too, beside those that are `latched`.
    fn latch(
        &self,
        worker: &Worker,
        shards: &[usize],
        latched: Vec<(usize, &mut [OneLine])>,
        body: &mut dyn FnMut(&mut Still<'_>),
    ) {
        let Some((&shard, rest)) = shards.split_first() else {
            return body(&mut Still {
                layout: self.layout,
                latched,
            });
        };
        self.shards[shard].with(worker, |heads| {
            let mut latched = latched;
            latched.push((shard, &mut heads[..]));
            self.latch(worker, rest, latched, body);
        });
    }
}

impl<W: World> Buckets for Shards<W> {
    fn count(&self) -> usize {
        (self.layout.bucket_mask as usize + 2) << self.layout.shard_bits
    }

    /// Those of keys come first.
    fn with<R>(&self, worker: &Worker, index: usize, body: impl FnOnce(&mut Heads) -> R) -> R {
        let Layout {
            shard_bits,
            shard_mask,
            bucket_mask,
        } = self.layout;
        let (shard, at) = (index & shard_mask as usize, index >> shard_bits);
        let place = match at > bucket_mask as usize {
            true => (shard + shard_mask as usize + 1, 0),
            false => (shard, at),
        };
        let inside = || self.enter(worker, place, body);
        self.world.inside(worker, inside)
    }

    #[inline(always)]
    fn with_name<R>(
        &self,
        worker: &Worker,
        name: &Name,
        hash: u32,
        body: impl FnOnce(&mut Heads) -> R,
    ) -> R {
        let place = self.layout.place(name, hash);
        let inside = || self.enter(worker, place, body);
        self.world.inside(worker, inside)
    }

    #[inline(always)]
    fn with_each<'l>(
        &self,
        worker: &Worker,
        mut locks: impl Iterator<Item = &'l held::Entry>,
        mut body: impl FnMut(&'l held::Entry, &mut Heads),
    ) {
        let layout = self.layout;
        let mut next = locks.next();
        while next.is_some() {
            self.world.inside(worker, || {
                let mut left = TOGETHER;
                while let Some(lock) = next.take_if(|_| !W::STOPS || left > 0) {
                    let place = layout.place(&lock.name, lock.hash);
                    self.enter(worker, place, |heads| body(lock, heads));
                    left -= usize::from(W::STOPS);
                    next = locks.next();
                }
            });
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&self.shards[..]) + self.count() * size_of::<OneLine>()
    }
}
