//! Counters per worker, summed when read.
//!
//! A counter that every thread increments is the most expensive line of a program on a large
//! machine. Here each worker counts in a block of its own, and a reader sums the blocks. The sum is
//! exact once the workers are still, and otherwise somewhere between the totals at the beginning
//! and at the end of the summing.
//!
//! # State
//!
//! Blocks in chunks: chunk c has 2^c of them, made when the first worker with such an id counts.
//! Worker id i is in chunk floor(log2(i + 1)), if i is below `PRIVATE`. All workers beyond share
//! the blocks of one more chunk, so that a peak of a hundred thousand leaves little behind.
//!
//! # Invariants
//!
//! * I1  Of workers that share an id at most one exists at a time, and an id passes from one to the
//!   next through a mutex. So a private block has one writer, and adding needs no
//!   read-modify-write.

use crate::cache_line::CachePadded;
use crate::shim::{AtomicU64, Ordering};
use crate::site::{Component, Pattern, Site};
use crate::worker::Worker;
use std::fmt;
use std::sync::OnceLock;

/// Site: a block that workers beyond `PRIVATE` share.
static SHARED_COUNTERS: Site =
    Site::new(Component::Metadata, Pattern::Unbounded, "shared counters");

/// Chunks of private blocks.
const PRIVATE_CHUNKS: usize = 12;
/// Number of workers with a block of their own.
const PRIVATE: u32 = (1 << PRIVATE_CHUNKS) - 1;
/// Number of blocks that further workers share, a power of two.
const SHARED: u32 = 1 << 10;

type CounterBlock<const N: usize> = CachePadded<[AtomicU64; N]>;

/// `N` counters, each kept per worker and summed when read.
///
/// Count with workers of one [`Workers`](crate::worker::Workers) only: workers of two may have the
/// same id at the same time, and then lose counts (but nothing else).
///
/// ```
/// use foxton_sync::counter::WorkerCounters;
/// use foxton_sync::worker::Workers;
///
/// const COMMITS: usize = 0;
/// const ABORTS: usize = 1;
///
/// let workers = Workers::new();
/// let counters = WorkerCounters::<2>::new();
/// counters.add(&workers.worker(), COMMITS, 1);
/// counters.add(&workers.worker(), COMMITS, 1);
/// assert_eq!(counters.sum(COMMITS), 2);
/// assert_eq!(counters.sum(ABORTS), 0);
/// ```
pub struct WorkerCounters<const N: usize> {
    chunks: [OnceLock<Box<[CounterBlock<N>]>>; PRIVATE_CHUNKS],
    shared: OnceLock<Box<[CounterBlock<N>]>>,
}

impl<const N: usize> Default for WorkerCounters<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Debug for WorkerCounters<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sums()).finish()
    }
}

impl<const N: usize> WorkerCounters<N> {
    /// All zero.
    pub const fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; PRIVATE_CHUNKS],
            shared: OnceLock::new(),
        }
    }

    /// Adds `amount` to counter `index`, wrapping at 2^64.
    ///
    /// # Panics
    ///
    /// If `index` is not below `N`.
    #[inline]
    pub fn add(&self, worker: &Worker, index: usize, amount: u64) {
        if worker.id() >= PRIVATE {
            return self.add_shared(worker, index, amount);
        }
        let counter = &self.block(worker.id())[index];
        // Relaxed: no other thread writes it (I1).
        let sum = counter.load(Ordering::Relaxed).wrapping_add(amount);
        counter.store(sum, Ordering::Relaxed);
    }

    #[cold]
    fn add_shared(&self, worker: &Worker, index: usize, amount: u64) {
        worker.account().passed(&SHARED_COUNTERS);
        let blocks = self.shared.get_or_init(|| new_chunk(SHARED as usize));
        let counter = &blocks[(worker.id() % SHARED) as usize][index];
        // Relaxed: a sum.
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    /// Returns the sum of counter `index` over all workers.
    pub fn sum(&self, index: usize) -> u64 {
        self.blocks().fold(0, |sum, block| {
            sum.wrapping_add(block[index].load(Ordering::Relaxed))
        })
    }

    /// Returns the sums of all counters.
    pub fn sums(&self) -> [u64; N] {
        std::array::from_fn(|index| self.sum(index))
    }

    fn blocks(&self) -> impl Iterator<Item = &CounterBlock<N>> {
        let all = self.chunks.iter().chain([&self.shared]);
        all.filter_map(OnceLock::get).flatten()
    }

    #[inline]
    fn block(&self, id: u32) -> &CounterBlock<N> {
        let place = u64::from(id) + 1;
        let chunk = place.ilog2() as usize;
        let index = place as usize - (1 << chunk);
        &self.chunks[chunk].get_or_init(|| new_chunk(1 << chunk))[index]
    }
}

#[cold]
fn new_chunk<const N: usize>(len: usize) -> Box<[CounterBlock<N>]> {
    let zero = |_| CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0)));
    (0..len).map(zero).collect()
}
