//! One latch over the whole hash table: the traditional manager, the baseline that collapses.
//!
//! It is written as well as one latch allows: the same queues as `bucket`, nothing allocated and
//! nobody woken under the latch, what an owner holds already never asked twice, and what it gives back at
//! the end given back under one hold of the latch.

use super::{
    heads::Heads,
    queued::{Buckets, Queued, assert_suits},
};
use crate::{held, waits::VictimPolicy};
use foxton_sync::{
    latch::{Kind, Latched},
    site::{Component, Pattern, Site},
    worker::Worker,
};

/// Locks given back under one hold of the latch.
const TOGETHER: usize = 64;

static TABLE: Site = Site::new(Component::Lock, Pattern::Unbounded, "lock table");

/// A manager with one latch.
pub type Global = Queued<OneLatch>;

/// All buckets behind one latch.
#[derive(Debug)]
pub struct OneLatch {
    count: usize,
    table: Latched<Box<[Heads]>>,
}

impl Global {
    /// A manager of `buckets` buckets, a power of two, behind one latch of `kind`.
    pub fn new(kind: Kind, buckets: usize, policy: VictimPolicy) -> Self {
        assert_suits(buckets);
        let table = (0..buckets).map(|_| Heads::default()).collect();
        let table = OneLatch {
            count: buckets,
            table: Latched::new(kind, &TABLE, table),
        };
        Self::over(table, policy)
    }
}

impl Buckets for OneLatch {
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn with<R>(&self, worker: &Worker, index: usize, body: impl FnOnce(&mut Heads) -> R) -> R {
        self.table.with(worker, |table| body(&mut table[index]))
    }

    /// One hold of the latch for many locks. It ends now and then, for others wait.
    #[inline]
    fn with_each<'l>(
        &self,
        worker: &Worker,
        mut locks: impl Iterator<Item = &'l held::Entry>,
        mut body: impl FnMut(&'l held::Entry, &mut Heads),
    ) {
        let mut next = locks.next();
        while next.is_some() {
            self.table.with(worker, |table| {
                let mut left = TOGETHER;
                while let Some(lock) = next.take_if(|_| left > 0) {
                    body(lock, &mut table[lock.hash as usize & (self.count - 1)]);
                    left -= 1;
                    next = locks.next();
                }
            });
        }
    }

    fn memory_bytes(&self) -> usize {
        self.count * size_of::<Heads>()
    }
}
