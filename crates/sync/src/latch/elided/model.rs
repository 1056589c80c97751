//! Elided latches over modelled transactions: for tests, on machines with and without the hardware,
//! and for the model checker.
//!
//! Nothing here can undo a body. It need not: an attempt that aborts did not happen (I1 of `htm`),
//! so to all other threads an abort in the middle is an abort at the beginning, a little later. A
//! script says which attempts abort. A transaction that does not abort excludes all others until
//! its end, and a thread that takes the real latch waits for that. The processor would have aborted
//! the transaction instead, with the same result.
//!
//! A body must not pass another latch over the same transactions.

use super::{Elided, ElisionPolicy, exclusion::Exclusion};
use crate::htm::Abort;
use crate::htm::backend::TransactionBackend;
use crate::latch::Kind;
use crate::latch::parking::Parking;
use crate::latch::queue::QueueNode;
use crate::shim::{Arc, AtomicU32, AtomicU64, Mutex, Ordering, UnsafeCell, lock};
use crate::site::{Component, Pattern, Site};
use crate::worker::Worker;
use std::collections::VecDeque;

/// Fate of transactions that begin.
#[derive(Debug, Clone, Default)]
pub enum Script {
    /// All commit that find the latch free.
    #[default]
    Commit,
    /// All abort.
    Abort(Abort),
    /// These abort, in turn, then all commit.
    These(VecDeque<Abort>),
}

/// Transactions that run one at a time.
#[derive(Debug, Clone, Default)]
pub struct ModelTransactions(Arc<ModelState>);

#[derive(Debug, Default)]
struct ModelState {
    inside: Exclusion,
    script: Mutex<Script>,
    /// Number of times that a thread was about to take the latch. Not counted in a model.
    takers: AtomicU32,
    /// A clock that only passes advance, each by its given cost: of a pass that takes the latch,
    /// and of one that begins a transaction.
    now: AtomicU64,
    costs: (u64, u64),
}

impl ModelTransactions {
    /// Returns transactions that end as `script` says.
    pub fn new(script: Script) -> Self {
        Self::costing(script, 1, 1)
    }

    /// As `new`; a pass takes so many ticks: one that takes the latch, and one that begins a
    /// transaction.
    pub fn costing(script: Script, taken: u64, tried: u64) -> Self {
        Self(Arc::new(ModelState {
            script: Mutex::new(script),
            costs: (taken, tried),
            ..ModelState::default()
        }))
    }

    fn record_taken(&self, ticks: u64) {
        if !cfg!(loom) {
            self.0.now.fetch_add(ticks, Ordering::Relaxed); // Relaxed: a clock, and nothing else.
        }
    }

    /// Waits until so many threads have begun to take a latch: each has it, or sleeps for it.
    #[cfg(all(test, not(loom)))]
    pub(super) fn wait_for_takers(&self, count: u32) {
        // Relaxed: nothing else is known by it.
        while self.0.takers.load(Ordering::Relaxed) < count {
            crate::shim::thread::yield_now();
        }
    }

    fn next_abort(&self) -> Option<Abort> {
        match &mut *lock(&self.0.script) {
            Script::Commit => None,
            Script::Abort(abort) => Some(*abort),
            Script::These(aborts) => aborts.pop_front(),
        }
    }
}

impl TransactionBackend for ModelTransactions {
    fn begin(&self, free: impl FnOnce() -> bool) -> Result<(), Abort> {
        self.record_taken(self.0.costs.1);
        if let Some(abort) = self.next_abort() {
            return Err(abort);
        }
        self.0.inside.enter();
        // SAFETY: we have just entered.
        unsafe { self.0.inside.stay(free) }
    }

    unsafe fn end(&self) {
        // SAFETY: the caller has begun, which is to enter.
        unsafe { self.0.inside.leave() }
    }

    fn abort_enclosing(&self) {}

    fn now(&self) -> u64 {
        // Relaxed: see `took`.
        if cfg!(loom) {
            0
        } else {
            self.0.now.load(Ordering::Relaxed)
        }
    }

    fn exclusively<R>(&self, take: impl FnOnce() -> R) -> R {
        if !cfg!(loom) {
            self.0.takers.fetch_add(1, Ordering::Relaxed); // Relaxed: see `wait_for_takers`.
        }
        self.record_taken(self.0.costs.0);
        self.0.inside.with(take)
    }
}

/// A value behind an elided latch.
#[derive(Debug)]
pub struct ModelElided<T> {
    front: Parking,
    latch: Elided<ModelTransactions>,
    value: UnsafeCell<T>,
}

// SAFETY: as for `Latched`: one pass after the other reaches the value.
unsafe impl<T: Send> Sync for ModelElided<T> {}

/// Site of all these latches.
static SITE: Site = Site::new(Component::Latch, Pattern::Unbounded, "model");

impl<T> ModelElided<T> {
    /// Returns `value` behind a latch of `kind`, over the transactions of `world`.
    ///
    /// # Panics
    /// If latches of that kind begin none of their own.
    pub fn new(kind: Kind, world: &ModelTransactions, value: T) -> Self {
        let latch = Elided::with_backend(world.clone(), ElisionPolicy::of(kind), &SITE);
        Self {
            front: Parking::new(latch.begins_calm()),
            latch,
            value: UnsafeCell::new(value),
        }
    }

    /// Calls `body` with the value, once no other thread has it.
    pub fn with<R>(&self, worker: &Worker, body: impl FnOnce(&mut T) -> R) -> R {
        let node = QueueNode::new();
        // SAFETY: the node stays here until the release below; no body in a test unwinds.
        if !unsafe { self.latch.try_acquire(&self.front, worker, &node) } {
            // SAFETY: as above.
            unsafe { self.latch.acquire(&self.front, worker, &node) };
        }
        self.passed(worker, &node, body)
    }

    /// As [`with`](Self::with), as if another thread had held it at the first try.
    pub fn with_late<R>(&self, worker: &Worker, body: impl FnOnce(&mut T) -> R) -> R {
        let node = QueueNode::new();
        // SAFETY: as in `with`.
        unsafe { self.latch.acquire(&self.front, worker, &node) };
        self.passed(worker, &node, body)
    }

    fn passed<R>(&self, worker: &Worker, node: &QueueNode, body: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: we have passed the latch.
        let result = self.value.with_mut(|value| body(unsafe { &mut *value }));
        // SAFETY: acquired by the caller with this node.
        unsafe {
            self.latch
                .release(&self.front, worker.attempt_timer(), node)
        };
        result
    }

    /// Calls `body` with the value if no other thread has it.
    pub fn try_with<R>(&self, worker: &Worker, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        let node = QueueNode::new();
        // SAFETY: as in `with`.
        if !unsafe { self.latch.try_acquire(&self.front, worker, &node) } {
            return None;
        }
        Some(self.passed(worker, &node, body))
    }

    /// As [`with`](Self::with), but takes the real latch without elision.
    pub fn with_taken<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        let node = QueueNode::new();
        let real = self.latch.real(&self.front);
        self.latch.backend.exclusively(|| real.acquire(&node));
        // SAFETY: we hold the real latch.
        let result = self.value.with_mut(|value| body(unsafe { &mut *value }));
        // SAFETY: taken above.
        unsafe { real.release(&node) };
        result
    }

    /// True if it is only the real latch now.
    pub fn is_calm(&self) -> bool {
        self.front.is_plain()
    }

    /// Returns the value without the latch.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}
