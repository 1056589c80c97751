//! Elided latches: a pass begins a hardware transaction instead of taking the latch.
//!
//! The transaction reads the latch, and continues if it is free. From then on any thread that takes
//! the latch aborts the transaction, because it writes what the transaction has read. Two
//! transactions abort each other only if one writes what the other touches. So threads that touch
//! different data do not meet at all. A pass that cannot be done that way takes the latch:
//! [`ElisionPolicy`] says after which aborts.
//!
//! # State
//!
//! The real latch, and how many of its next passes are not to try elision. One kind learns for all
//! latches of its site together whether trying pays at all (`htm::adaptive`). While it does not,
//! the latch is *calm*: its front is plain (`parking`), and it is passed without any check here.
//! Only a thread that had to wait for it comes here (`after_wait`), and every sixteenth of them
//! begins a trial, if it is time for one.
//!
//! # Invariants
//!
//! * I1  An elided pass has read the latch as free inside its transaction, so it is over before any
//!   thread holds the latch, or did not happen (H1, H2 of `htm::backend`). C1 and C2 of the
//!   contract follow: holders exclude each other as the real latch does. Elided passes exclude
//!   holders, and exclude each other as far as can be observed (I2 of `htm`).
//! * I2  A thread that passes and finds the latch free is inside a transaction, and otherwise holds
//!   it: no other thread can have freed it. So `release` needs no mark.
//! * I3  No latch that elides is passed inside a transaction: that aborts it, and the thread that
//!   began it takes the latch. Otherwise a thread could pass one latch twice, because it reads as
//!   free, and have the value twice by `&mut`. A calm one may be passed inside another's
//!   transaction: it is taken there, and reads as held.
//! * I4  Only the holder of the real latch writes `skips`, and the mark that its front is plain. So
//!   there is one writer, and no transaction that is going to commit has the line in its read set,
//!   which a write would abort.
//! * I5  An elided pass has read inside its transaction that the front is not plain, so it is not
//!   until the end. So a thread that releases a plain latch holds it.
//!
//! # Against the lemming effect
//!
//! One abort takes the latch, which aborts all other transactions. If each of them took the latch
//! in turn, the next would find it held again, and no pass would ever be elided [001 §2.2]. So an
//! abort because the latch was held counts for nothing: the thread waits until it is free, and
//! tries again. If the real latch's waiters sleep and it was held until a wait's spinning was over,
//! the thread sleeps for it and takes it on waking, which costs no other pass anything. Each wait
//! spins anew, so that a thread that is only late a few times sleeps for none of them.
//!
//! # Differences from the paper
//!
//! Its emulation of lock elision by RTM [001 Algorithm 1] reads the latch at the end too, and
//! aborts if it is held; here that cannot be (I1). A latch held at the beginning aborts at once,
//! not at the next `pause`. Its latches may be nested; these may not (I3), because an elided latch
//! does not appear as held to a second pass, which the document notes and accepts.

mod policy;
mod real_latch;

#[cfg(any(test, loom, feature = "emulated"))]
mod exclusion;

#[cfg(any(test, loom))]
#[cfg_attr(
    not(loom),
    expect(unreachable_pub, reason = "public to the models in tests/")
)]
pub mod model;

#[cfg(feature = "emulated")]
mod emulated;

#[cfg(all(test, not(loom)))]
mod tests;

use super::Kind;
use super::parking::Parking;
use super::queue::QueueNode;
use super::spin::SpinLatch;
use crate::backoff::Backoff;
use crate::htm::backend::{BUSY, TransactionBackend};
use crate::htm::{AttemptTimer, ElisionChoice, SITES};
#[cfg(all(test, not(loom)))]
use crate::shim::Mutex;
use crate::shim::{AtomicU8, Ordering, hint};
use crate::site::{Component, Pattern, Site};
use crate::worker::Worker;
use policy::{AfterAbort, ElisionPolicy, TakeReason};
use real_latch::RealLatch;
#[cfg(all(test, not(loom)))]
use std::collections::VecDeque;

#[cfg(not(feature = "emulated"))]
type Native = crate::htm::Rtm;
#[cfg(feature = "emulated")]
type Native = emulated::Emulated;

/// Returns the backend by which latches elide here, if there is one.
fn native() -> Option<Native> {
    #[cfg(not(feature = "emulated"))]
    return crate::htm::rtm().ok();
    #[cfg(feature = "emulated")]
    return crate::htm::switch().ok().map(|()| Native::default());
}

/// Site: ending a turn of passes of an adaptive latch.
static TRIAL: Site = Site::new(Component::Latch, Pattern::Unbounded, "trial of elision");

/// The part of a latch that elides.
#[derive(Debug)]
pub(super) struct Elided<E = Native> {
    backend: E,
    policy: ElisionPolicy,
    /// Number of its site.
    site: u8,
    /// Number of passes that are not to try; while it is calm, of those that have waited.
    skips: AtomicU8,
    flag: SpinLatch,
    #[cfg(all(test, not(loom)))]
    scripted: Option<Mutex<VecDeque<bool>>>,
}

/// Number of passes that wait for a calm latch before it checks whether trying may pay.
const WAITS_PER_CHECK: u32 = if cfg!(loom) { 1 } else { 16 };

/// Result of trying not to take the latch.
enum ElisionAttempt {
    /// The caller is in a transaction.
    Inside,
    /// Another thread holds the latch.
    Held,
    /// The latch is to be taken.
    Take(TakeReason),
}

impl Elided {
    /// Returns a latch of `kind` at `site`, if there is a backend here.
    pub(super) fn available(kind: Kind, site: &'static Site) -> Option<Self> {
        native().map(|backend| Self::with_backend(backend, ElisionPolicy::of(kind), site))
    }
}

impl<E: TransactionBackend> Elided<E> {
    fn with_backend(backend: E, policy: ElisionPolicy, site: &'static Site) -> Self {
        Self {
            backend,
            policy,
            site: site.number(SITES) as u8,
            skips: AtomicU8::new(0),
            flag: SpinLatch::tas_t(),
            #[cfg(all(test, not(loom)))]
            scripted: None,
        }
    }

    /// True if it begins calm. Models begin in the middle of a trial.
    pub(super) fn begins_calm(&self) -> bool {
        self.policy == ElisionPolicy::Adaptive && !cfg!(loom)
    }

    /// The latch underneath.
    #[inline(always)]
    fn real<'a>(&'a self, front: &'a Parking) -> RealLatch<'a> {
        #[cfg(all(test, not(loom)))]
        if let Some(looks) = &self.scripted {
            return RealLatch::Scripted(looks);
        }
        match self.policy {
            ElisionPolicy::Once | ElisionPolicy::Retry100 => RealLatch::Spin(&self.flag),
            ElisionPolicy::Cooldown | ElisionPolicy::Adaptive => RealLatch::Parking(front),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.policy.kind()
    }

    /// As [`Latch::try_acquire`](super::Latch::try_acquire).
    ///
    /// # Safety
    ///
    /// That of the contract.
    pub(super) unsafe fn try_acquire(
        &self,
        front: &Parking,
        worker: &Worker,
        node: &QueueNode,
    ) -> bool {
        let real = self.real(front);
        let try_raw = || self.backend.try_exclusively(|| real.try_acquire(node));
        if front.is_plain() {
            return try_raw();
        }
        self.backend.abort_enclosing(); // I3
        let choice = self.choice(worker);
        let passed = match choice {
            ElisionChoice::Calm => {
                let taken = try_raw();
                if taken {
                    self.make_calm(front, worker);
                }
                return taken;
            }
            ElisionChoice::Latch => try_raw(),
            ElisionChoice::Elide => match self.attempt(front, worker) {
                ElisionAttempt::Inside => true,
                ElisionAttempt::Held => false,
                ElisionAttempt::Take(why) => self.record_if_taken(try_raw(), worker, why),
            },
        };
        if !passed && self.policy == ElisionPolicy::Adaptive {
            // Not counted: if the caller waits, that counts anew.
            worker.elision_stats().undo_choice(self.site(), choice);
        }
        passed
    }

    /// Returns whether this pass takes the latch as if there were no transactions, because trying
    /// does not pay.
    #[inline(always)]
    fn choice(&self, worker: &Worker) -> ElisionChoice {
        if self.policy != ElisionPolicy::Adaptive {
            return ElisionChoice::Elide;
        }
        let choice = worker.elision_stats().next_choice(self.site());
        choice.unwrap_or_else(|| self.choose_next_turn(worker))
    }

    #[cold]
    fn choose_next_turn(&self, worker: &Worker) -> ElisionChoice {
        worker.account().passed(&TRIAL);
        let now = self.backend.now();
        match (worker.elision_trials()).next_turn(worker.worker_turns(), self.site(), now) {
            0 => ElisionChoice::Calm,
            passes => worker.elision_stats().begin_turn(self.site(), passes),
        }
    }

    /// The caller holds the real latch: from now on it is that and nothing else.
    fn make_calm(&self, front: &Parking, worker: &Worker) {
        worker.elision_stats().record_latched();
        self.set_skips(0);
        front.set_plain(true);
    }

    /// The caller holds the real latch, and had to wait for it while it was calm.
    fn after_wait(&self, front: &Parking, worker: &Worker) {
        if !front.is_plain() {
            return;
        }
        let waits = self.skips() + 1;
        if waits < WAITS_PER_CHECK {
            return self.set_skips(waits);
        }
        self.set_skips(0);
        if worker
            .elision_trials()
            .should_leave_calm(self.site(), self.backend.now())
        {
            front.set_plain(false);
        }
    }

    #[inline(always)]
    fn site(&self) -> usize {
        usize::from(self.site)
    }

    /// Releases the latch, or ends the transaction.
    ///
    /// # Safety
    ///
    /// The caller has acquired it, with this node.
    pub(super) unsafe fn release(
        &self,
        front: &Parking,
        timer: AttemptTimer<'_>,
        node: &QueueNode,
    ) {
        let real = self.real(front);
        if self.backend.may_be_inside() && real.is_free() {
            // SAFETY: the caller is in a transaction (I2), which it began by acquiring.
            unsafe { self.backend.end() }
            timer.record_committed();
        } else {
            // SAFETY: the caller holds the real latch (I2, I5).
            unsafe { real.release(node) }
        }
    }

    /// Tries not to take the latch.
    #[inline]
    fn attempt(&self, front: &Parking, worker: &Worker) -> ElisionAttempt {
        if self.skips() > 0 {
            return ElisionAttempt::Take(TakeReason::Resting);
        }
        let real = self.real(front);
        let timer = worker.attempt_timer();
        let mut failures = 0;
        loop {
            timer.start();
            let Err(abort) = self.backend.begin(|| real.is_free() && !front.is_plain()) else {
                worker.elision_stats().record_committed();
                return ElisionAttempt::Inside;
            };
            timer.aborted();
            worker.elision_stats().aborted(abort.cause());
            match self.policy.after(abort, failures) {
                AfterAbort::Again => failures += 1,
                AfterAbort::WhenFree => {
                    worker.elision_stats().record_busy();
                    return ElisionAttempt::Held;
                }
                AfterAbort::Take => return ElisionAttempt::Take(TakeReason::GaveUp),
            }
            hint::spin_loop();
        }
    }

    #[inline(always)]
    fn skips(&self) -> u32 {
        // Relaxed: a hint to all but the holder, who alone writes it (I4).
        u32::from(self.skips.load(Ordering::Relaxed))
    }

    fn set_skips(&self, skips: u32) {
        self.skips.store(skips as u8, Ordering::Relaxed); // Relaxed: see `skips`.
    }

    #[inline]
    fn record_if_taken(&self, taken: bool, worker: &Worker, why: TakeReason) -> bool {
        if taken {
            self.record_taken(worker, why);
        }
        taken
    }

    #[inline]
    fn record_taken(&self, worker: &Worker, why: TakeReason) {
        worker.elision_stats().record_latched();
        let before = self.skips();
        let after = self.policy.skips(before, why);
        if before != after {
            self.set_skips(after);
        }
    }

    /// As [`Latch::acquire`](super::Latch::acquire).
    ///
    /// # Safety
    ///
    /// That of the contract.
    #[cold]
    pub(super) unsafe fn acquire(&self, front: &Parking, worker: &Worker, node: &QueueNode) {
        let real = self.real(front);
        let take = || self.backend.exclusively(|| real.acquire(node));
        if front.is_plain() {
            take();
            return self.after_wait(front, worker);
        }
        self.backend.abort_enclosing(); // I3
        match self.choice(worker) {
            ElisionChoice::Calm => {
                take();
                return self.make_calm(front, worker);
            }
            ElisionChoice::Latch => return take(),
            ElisionChoice::Elide => {}
        }
        let mut backoff = Backoff::new();
        loop {
            if front.is_plain() {
                return take();
            }
            while !real.is_free() {
                // A model has no time to spin.
                if real.sleeps() && (cfg!(loom) || backoff.is_yielding()) {
                    take();
                    return self.record_taken(worker, TakeReason::Waited);
                }
                backoff.snooze();
            }
            match self.attempt(front, worker) {
                ElisionAttempt::Inside => return,
                // Another holder, and so another wait.
                ElisionAttempt::Held => backoff = Backoff::new(),
                ElisionAttempt::Take(why) => {
                    let taken = self.backend.exclusively(|| real.try_acquire(node));
                    if self.record_if_taken(taken, worker, why) {
                        return;
                    }
                }
            }
        }
    }
}

// The policy says what an abort by a held latch means; its code is fixed here.
const _: () = assert!(BUSY == 0xFF);
