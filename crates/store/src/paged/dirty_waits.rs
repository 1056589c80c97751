//! Queues of the dirty gate: threads that wait until fewer pages are dirty.
//!
//! The buffer pool decides when threads wait and how many are woken (`pool/dirty_gate`). This file
//! has their queues, so that models can show that none is forgotten.
//!
//! # Invariants
//!
//! * I1  A thread decides under the mutex of its queue whether it waits. The thread that wakes
//!   takes waiters from the queue under the mutex, after it has changed what the others look at. So
//!   a thread waits only if it is seen.
//! * I2  A wait that was dropped takes no wake-up from another, if it was dropped before it was
//!   taken from the queue. The cleaner looks again for the others.
//!
//! # Orderings
//!
//! None: the numbers of waiters are hints.

use std::collections::VecDeque;
use std::fmt;
use std::task::{Context, Poll};

use foxton_sync::park::{Parker, Ticket, Verdict};
use foxton_sync::process::ProcessStamp;
use foxton_sync::shim::{self, Arc, AtomicBool, AtomicUsize, Mutex, Ordering::Relaxed, unmodelled};

/// Verdict: pages may become dirty again, or never will.
const PASSED: Verdict = Verdict::new(1);

/// A share of the frames that may be dirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirtyBound {
    /// A half: for commits that changed pages.
    Commit,
    /// Seven eighths: for a change of a page that is clean.
    Change,
}

impl DirtyBound {
    pub(super) const ALL: [DirtyBound; 2] = [DirtyBound::Commit, DirtyBound::Change];

    /// Number of dirty pages, of `frames`, at which threads wait.
    pub(super) fn pages(self, frames: usize) -> usize {
        match self {
            DirtyBound::Commit => frames / 2,
            DirtyBound::Change => frames - frames / 8,
        }
    }
}

/// Threads that wait because too many pages are dirty. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct DirtyGate {
    pub(super) has_cleaner: AtomicBool,
    /// By bound.
    queues: [DirtyQueue; 2],
}

#[derive(Debug, Default)]
struct DirtyQueue {
    /// Number of waiters, a little later than `waiters`.
    count: AtomicUsize,
    waiters: Mutex<VecDeque<Arc<DirtyWaiter>>>,
    begun: unmodelled::AtomicU64,
}

struct DirtyWaiter {
    parker: Parker,
    ticket: Ticket,
    process: ProcessStamp,
}

impl fmt::Debug for DirtyWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirtyWaiter").finish_non_exhaustive()
    }
}

/// A wait until fewer pages are dirty. Dropping it ends the wait.
#[derive(Debug)]
pub struct DirtyWait(Arc<DirtyWaiter>);

impl DirtyWait {
    /// Sleeps until pages may become dirty again.
    pub fn wait(&self) {
        self.0.parker.wait(self.0.ticket, None);
    }

    /// Like `wait`, for a task.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.parker.poll(self.0.ticket, context).map(|_| ())
    }
}

impl Drop for DirtyWait {
    fn drop(&mut self) {
        // Its entry stays in the queue, and is skipped.
        if !self.0.process.is_inherited() {
            self.0.parker.disarm(self.0.ticket);
        }
    }
}

impl DirtyGate {
    /// Returns the queue of a bound.
    fn queue(&self, bound: DirtyBound) -> &DirtyQueue {
        &self.queues[bound as usize]
    }

    /// Begins to wait, if `is_due` says so under the mutex (I1).
    pub(super) fn enqueue(
        &self,
        bound: DirtyBound,
        is_due: impl FnOnce() -> bool,
    ) -> Option<DirtyWait> {
        let queue = self.queue(bound);
        // Site: "free frames", passed by the caller.
        let mut waiters = shim::lock(&queue.waiters);
        if !is_due() {
            return None;
        }
        let parker = Parker::new();
        let ticket = parker.arm();
        let waiter = Arc::new(DirtyWaiter {
            parker,
            ticket,
            process: ProcessStamp::new(),
        });
        waiters.push_back(waiter.clone());
        queue.count.store(waiters.len(), Relaxed);
        drop(waiters);
        // Site: "free frames", passed by the caller.
        queue.begun.fetch_add(1, Relaxed);
        Some(DirtyWait(waiter))
    }

    /// Wakes up to `most` waiters, and calls `wakes` before each.
    pub(super) fn wake(&self, bound: DirtyBound, most: usize, mut wakes: impl FnMut()) {
        let queue = self.queue(bound);
        let woken: Vec<_> = {
            // Site: "free frames", passed by the caller.
            let mut waiters = shim::lock(&queue.waiters);
            let mut woken = Vec::new();
            while woken.len() < most
                && let Some(waiter) = waiters.pop_front()
            {
                // A task that was dropped does not wait any more.
                if waiter.parker.is_open(waiter.ticket) {
                    woken.push(waiter);
                }
            }
            queue.count.store(waiters.len(), Relaxed);
            woken
        };
        for waiter in woken {
            wakes();
            if let Some(wake) = waiter.parker.resolve(waiter.ticket, PASSED) {
                wake.wake();
            }
        }
    }

    /// True if threads wait, a little later than it is so.
    #[inline]
    pub(super) fn has_waiters(&self, bound: DirtyBound) -> bool {
        self.queue(bound).count.load(Relaxed) > 0
    }

    /// Numbers of threads that wait, and that have waited or wait, at a bound.
    pub(super) fn counts(&self, bound: DirtyBound) -> (usize, u64) {
        let queue = self.queue(bound);
        (queue.count.load(Relaxed), queue.begun.load(Relaxed))
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use foxton_sync::shim::thread;

    const BOUND: DirtyBound = DirtyBound::Change;

    /// A gate, and the number of pages that may become dirty.
    #[derive(Default)]
    struct Gate {
        gate: DirtyGate,
        room: AtomicUsize,
    }

    impl Gate {
        fn enqueue(&self) -> Option<DirtyWait> {
            self.gate.enqueue(BOUND, || self.room.load(Relaxed) == 0)
        }

        /// Waits, if the bound is reached.
        fn pass(&self) {
            if let Some(wait) = self.enqueue() {
                wait.wait();
            }
        }

        /// As the cleaner does it: pages become clean, and then it looks for waiters.
        fn clean(&self, pages: usize) {
            self.room.store(pages, Relaxed);
            self.gate.wake(BOUND, pages, || {});
        }
    }

    fn check(body: fn(&Arc<Gate>)) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let gate = Arc::default();
            body(&gate);
            assert_eq!(gate.gate.counts(BOUND).0, 0, "waiters are left");
        });
    }

    fn spawn(gate: &Arc<Gate>, body: fn(&Gate)) -> thread::JoinHandle<()> {
        let gate = gate.clone();
        thread::spawn(move || body(&gate))
    }

    #[test]
    fn a_thread_that_begins_to_wait_while_pages_become_clean_is_woken() {
        check(|gate| {
            let waiters = [spawn(gate, Gate::pass), spawn(gate, Gate::pass)];
            gate.clean(2);
            waiters.map(|waiter| waiter.join().unwrap());
        });
    }

    #[test]
    fn a_dropped_wait_uses_up_no_wake_up() {
        check(|gate| {
            drop(gate.enqueue());
            let waiter = spawn(gate, Gate::pass);
            gate.clean(1);
            waiter.join().unwrap();
            // If the other thread came later, the dropped wait was all that was there.
            gate.clean(1);
        });
    }

    #[test]
    fn a_wait_that_is_dropped_while_it_is_woken_delays_no_other_beyond_the_next_look() {
        check(|gate| {
            let waiters = [
                spawn(gate, |gate| drop(gate.enqueue())),
                spawn(gate, Gate::pass),
            ];
            // The cleaner looks again after each sleep (I4).
            gate.clean(1);
            gate.clean(1);
            waiters.map(|waiter| waiter.join().unwrap());
            gate.clean(1);
        });
    }
}
