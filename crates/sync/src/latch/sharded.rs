//! Sharded latch: shared or exclusive, for values that are read all day and hardly ever written.
//!
//! A shared/exclusive latch keeps a count of its readers, and so every reader writes the same cache
//! line twice. Here there are 64 such latches over one value. A reader enters one of them, picked
//! at random each time; a writer enters all, in ascending order. A reader pays for one latch that
//! it hardly ever shares; a writer pays for 64.
//!
//! Random, and not fixed for each thread: two threads that met once would meet always.
//!
//! # Invariants
//!
//! * I1  The value is reached by `&` inside one shard entered shared, and by `&mut` only inside all
//!   shards entered exclusively. So a `&mut` is exclusive.
//! * I2  Writers enter the shards in ascending order, so two of them do not wait for each other;
//!   and a reader waits for nothing inside.
//!
//! # Orderings
//!
//! None of its own. A reader enters the shard that each writer before it has left (O1 of `shared`).
//! A writer enters every shard that readers and writers have left (O2 and O3 of `shared`).

use super::shared::SharedLatched;
use crate::cache_line::CachePadded;
use crate::shim::UnsafeCell;
use crate::site::Site;
use crate::worker::Worker;
use std::fmt;

/// Number of latches. Two in a model: each writer enters all of them.
const SHARDS: usize = if cfg!(loom) { 2 } else { 64 };

/// A value that many threads read at once, each through its own cache line, and one may write.
///
/// ```
/// use foxton_sync::latch::ShardedLatched;
/// use foxton_sync::site::{Component, Pattern, Site};
/// use foxton_sync::worker::Workers;
///
/// static SITE: Site = Site::new(Component::Metadata, Pattern::Unbounded, "names");
///
/// let worker = Workers::new().worker();
/// let names = ShardedLatched::new(&SITE, vec!["accounts"]);
/// names.write(&worker, |names| names.push("branches"));
/// assert_eq!(names.read(&worker, |names| names.len()), 2);
/// ```
///
/// Readers share the value, so it must be `Sync`:
///
/// ```compile_fail,E0277
/// fn assert_sync<T: Sync>() {}
/// assert_sync::<foxton_sync::latch::ShardedLatched<std::cell::Cell<u8>>>();
/// ```
pub struct ShardedLatched<T> {
    shards: Box<[CachePadded<SharedLatched<()>>]>,
    value: UnsafeCell<T>,
}

// SAFETY: readers get `&T` from many threads (`T: Sync`); a writer gets `&mut T` alone (I1), which
// may move the value between threads (`T: Send`).
unsafe impl<T: Send + Sync> Sync for ShardedLatched<T> {}

// SAFETY: no thread is in when the whole is moved.
unsafe impl<T: Send> Send for ShardedLatched<T> {}

impl<T> fmt::Debug for ShardedLatched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedLatched")
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

impl<T> ShardedLatched<T> {
    /// Returns `value` with no thread in; passages count for `site`, one for a reader and one for
    /// each shard that a writer enters.
    pub fn new(site: &'static Site, value: T) -> Self {
        let shard = |_| CachePadded::new(SharedLatched::new(site, ()));
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            value: UnsafeCell::new(value),
        }
    }

    /// Calls `body` with the value while no writer is in. A reader that reads again inside may wait
    /// for ever behind a writer that came in between.
    #[inline]
    pub fn read<R>(&self, worker: &Worker, body: impl FnOnce(&T) -> R) -> R {
        let pick = worker.random() as usize % SHARDS;
        self.shards[pick].read(worker, |()| {
            // SAFETY: we are in one shard, so no writer is in all of them (I1).
            self.value.with(|value| body(unsafe { &*value }))
        })
    }

    /// Calls `body` with the value while no other thread is in.
    pub fn write<R>(&self, worker: &Worker, body: impl FnOnce(&mut T) -> R) -> R {
        // In ascending order (I2); left even if the body panics.
        let _inside: Vec<_> = self
            .shards
            .iter()
            .map(|shard| shard.enter_write(worker))
            .collect();
        // SAFETY: we are in all shards exclusively, so no other thread is in any (I1).
        self.value.with_mut(|value| body(unsafe { &mut *value }))
    }

    /// Returns the value: an exclusive reference needs no latch.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self`.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Returns the value without the latch.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}
