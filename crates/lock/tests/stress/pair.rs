//! Data under one key: three counters that every writer increments one after the other.
//!
//! Two of them are atomic and incremented separately: with two writers inside at once, or a reader
//! beside a writer, they would differ. The third is plain memory. It shows what atomics would hide,
//! that a lock orders what is done under it. A race detector (`just tsan`) reports a read or a
//! write of it that does not come after the last one. To try whether the detector would see such a
//! race, set `FOXTON_PLANTED_RACE`, because readers write then.

use foxton_lock::mode::{KeyPart, Mode};
use foxton_sync::{
    shim::{AtomicU64, Ordering::Relaxed, UnsafeCell},
    worker::Worker,
};
use std::{env, sync::LazyLock, thread};

/// Counters under one key.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    first: AtomicU64,
    second: AtomicU64,
    plain: UnsafeCell<u64>,
}

// SAFETY: `plain` is reached in `write` and `read` alone, under locks that exclude all others, or
// every writer (L1). The test checks that they do.
unsafe impl Sync for Pair {}

static PLANTED: LazyLock<bool> =
    LazyLock::new(|| cfg!(foxton_tsan) && env::var_os("FOXTON_PLANTED_RACE").is_some());

impl Pair {
    /// Increments the counters, for an owner that holds their key in `held`.
    pub(crate) fn write(&self, worker: &Worker, held: Mode) {
        assert!(
            held.key_part() == KeyPart::X,
            "who writes holds the key alone"
        );
        let before = self.show(held);
        // Loads and stores, not additions, because the lock keeps them consistent.
        self.first.store(before + 1, Relaxed);
        if worker.random_below(8) == 0 {
            thread::yield_now();
        }
        assert_eq!(self.second.load(Relaxed), before, "L1: two writers at once");
        self.second.store(before + 1, Relaxed);
        // SAFETY: the key is held alone.
        self.plain.with_mut(|plain| unsafe { *plain += 1 });
    }

    /// Returns the counters, for an owner that holds their key or their table in `held`.
    pub(crate) fn read(&self, held: Mode) -> u64 {
        let shows = self.show(held);
        if *PLANTED {
            // SAFETY: none. This is the planted race.
            self.plain.with_mut(|plain| unsafe { *plain = shows });
        }
        shows
    }

    fn show(&self, held: Mode) -> u64 {
        assert!(
            held == Mode::X || held.key_part() != KeyPart::None,
            "who reads holds the key"
        );
        let (second, first) = (self.second.load(Relaxed), self.first.load(Relaxed));
        assert_eq!(first, second, "L1: a reader beside a writer");
        // SAFETY: the key, or its whole table, is held, so no thread writes.
        let plain = self.plain.with(|plain| unsafe { *plain });
        assert_eq!(
            plain, first,
            "what was written under a lock is seen under the next"
        );
        first
    }
}
