//! Elided latches over transactions that are not the processor's: for tests, on machines with and without
//! the hardware, and for the model checker.
//!
//! Nothing here can undo what a body did. It need not: an attempt that aborts did not happen (I1 of `htm`), so
//! one that aborts in the middle is to everybody else one that aborted at its beginning, a little later.
//! Which aborts there are is told by a script. What does not abort is alone in the world until its end,
//! and whoever takes the real latch waits for that; the processor would have aborted instead, and so come
//! to the same, the other way round.
//!
//! Bodies over one world must not pass another of its latches.

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

/// What happens to transactions that begin.
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

/// Transactions of which one goes on at a time.
#[derive(Debug, Clone, Default)]
pub struct ModelTransactions(Arc<ModelState>);

#[derive(Debug, Default)]
struct ModelState {
    inside: Exclusion,
    script: Mutex<Script>,
    /// Threads that were about to take the latch, ever. None are counted in a model.
    takers: AtomicU32,
    /// A clock that only passes move on, each by what is said to be its cost: of those that take the latch, and of those
    /// that begin a transaction.
    now: AtomicU64,
    costs: (u64, u64),
}

impl ModelTransactions {
    /// Transactions end as `script` says.
    pub fn new(script: Script) -> Self {
        Self::costing(script, 1, 1)
    }

    /// As `new`, in which a pass takes so many ticks: one that takes the latch, and one that begins a transaction.
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

    /// Waits until so many threads have begun to take a latch, ever: each has it, or sleeps for it.
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

/// Where all of these latches are.
static SITE: Site = Site::new(Component::Latch, Pattern::Unbounded, "model");

impl<T> ModelElided<T> {
    /// `value` behind a latch of `kind`, over transactions of `world`.
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

    /// Calls `body` with the value, once nobody else has it.
    pub fn with<R>(&self, worker: &Worker, body: impl FnOnce(&mut T) -> R) -> R {
        let node = QueueNode::new();
        // SAFETY: the node stays here until the release below; no body in a test unwinds.
        if !unsafe { self.latch.try_acquire(&self.front, worker, &node) } {
            // SAFETY: as above.
            unsafe { self.latch.acquire(&self.front, worker, &node) };
        }
        self.passed(worker, &node, body)
    }

    /// As [`with`](Self::with), as if somebody had been there when it tried.
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

    /// Calls `body` with the value if nobody else has it.
    pub fn try_with<R>(&self, worker: &Worker, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        let node = QueueNode::new();
        // SAFETY: as in `with`.
        if !unsafe { self.latch.try_acquire(&self.front, worker, &node) } {
            return None;
        }
        Some(self.passed(worker, &node, body))
    }

    /// As [`with`](Self::with), by who knows nothing of elision: takes the real latch.
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

    /// Whether it is only the real latch now.
    pub fn is_calm(&self) -> bool {
        self.front.is_plain()
    }

    /// The value without the latch.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}
