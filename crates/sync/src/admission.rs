//! Admission control: limits how many clients work at once.
//!
//! Threads beyond those that the processors can run add no work. They add lock holders that are not
//! running: a thread that needs such a lock sleeps while it holds locks of its own, and soon most
//! threads wait for threads that wait. *Admission control* with a few slots makes the surplus wait
//! before it holds anything that others could wait for. The idea is that of concurrency restriction
//! over a contended lock (D. Dice, A. Kogan: *Avoiding Scalability Collapse by Restricting
//! Concurrency*, Euro-Par 2019). Here it covers whole transactions, as some servers do with
//! statements.
//!
//! Passing a slot on costs a switch between threads, many times what a short transaction costs. So
//! a client keeps its claim to a slot for a *quantum*, through many transactions: it frees the slot
//! between them and reclaims it ahead of the queue. After its quantum it passes the slot to the
//! first in the queue, or to a nearby client that ran on the same processor (`queue`), and queues
//! behind.
//!
//! A client that returns too late finds its slot given to the first in the queue. Each client that
//! enters the queue, and the watcher, grant a slot that is free and still free a moment later; a
//! slot that is free for less is between two transactions. A slot that is reclaimed is in no other
//! processor's cache: each has a cache line of its own (`slots`), where one shared count would move
//! between processors twice in each transaction.
//!
//! Slots may limit only while there is an *overload*, which `load` detects.
//!
//! # State
//!
//! `slots` counts the free slots of each lane. `queue` has the waiting clients in order of arrival,
//! each with a `QueuedClient`, whose word says whether it is waiting, waiting and watching, granted
//! a slot, or admitted without one; `queue_length` is their number. The word is changed under the
//! queue's mutex only. One thread at a time uses a `SlotClaim`.
//!
//! # Invariants
//!
//! * I1  Free slots and taken slots add up to the number of slots, in each lane (`slots`). A client
//!   that takes a slot, or is granted one, records it and its lane in its claim; a client that
//!   releases a slot grants it to another or leaves it free.
//! * I2  A queue that is not empty has a watcher: the thread that came to an empty queue. When that
//!   leaves, the last client becomes the watcher, under the mutex. A task cannot watch, because it
//!   runs only when its executor runs it. So from the time that a task comes until the queue is
//!   empty, a thread watches that is no client (`is_watched`, `AdmissionControl::watch`).
//! * I3  No client waits for ever. Every `WATCH_INTERVAL` the watcher looks for a free slot,
//!   whichever client should have granted it. If no client has left the queue for
//!   `MAX_FRUITLESS_WATCHES` intervals, the first is admitted without a slot: the slot holders may
//!   be waiting for something that it holds, or may not be running at all. Slots bound how many
//!   clients work while those at work come and go; they never decide whether a client may work.
//! * I4  When an overload is over, all queued clients are admitted, at the latest when the watcher
//!   looks. A client that enters the queue later watches, or is behind a watcher.
//!
//! # Why no wake-up is lost
//!
//! A thread reads its word and then sleeps. A thread that changes the word wakes it after that, and
//! a token that comes early makes the next sleep return at once. A task reads its word and leaves
//! its waker under a mutex, under which the other takes the waker after it has changed the word.
//! The watcher sleeps for a bounded time anyway (I3), so a slot that is left free for a client with
//! quantum left wakes no thread.
//!
//! A woken thread may take the processor from a lock holder. So granting a slot wakes one thread,
//! not also the next to be first: watching is for clients that still have long to wait.
//!
//! # Orderings
//!
//! None; all accesses are Relaxed. Free slots, `queue_length` and a client's word lead to no
//! memory. The locks that a client takes order its work under a slot, as they must: a slot that was
//! left free says nothing about its last client, and a granted slot says no more. A word is read
//! without the mutex, but always after the writer's token. Parking makes visible all that was done
//! before the token was given (`park`), so no thread sleeps again over a word that it has missed.
//!
//! ```
//! use foxton_sync::admission::{AdmissionControl, SlotClaim};
//!
//! let (admission, mut claim) = (AdmissionControl::new(4), SlotClaim::default());
//! for _ in 0..1_000 {
//!     admission.acquire(&mut claim);
//!     // Take locks here, and release them.
//!     admission.release(&mut claim);
//! }
//! assert_eq!(admission.free(), 4);
//! ```

use std::time::{Duration, Instant};

use crate::cache_line::CachePadded;
use crate::clock;
use crate::shim::{self, Arc, AtomicUsize, Mutex, MutexGuard, Ordering, hint, thread};
use crate::site::{Component, Pattern, Site};

mod policy;
mod load;
mod queue;
mod slots;
mod task;

use load::{LoadMonitor, LocalCounts};
use queue::{QueuedClient, SlotQueue};
use slots::AdmissionSlots;

/// Site: slots and the queue. Admission control knows no worker, so the caller of
/// [`AdmissionControl::acquire`] or [`AdmissionControl::release`] counts the passage.
///
/// ```
/// use foxton_sync::{admission, worker::Workers};
///
/// let worker = Workers::new().worker();
/// worker.account().passed(&admission::SLOTS);
/// ```
pub static SLOTS: Site = Site::new(Component::Transaction, Pattern::Unbounded, "admission");

/// Site: the number of blocked transactions. The caller of [`AdmissionControl::block`] or
/// [`AdmissionControl::unblock`] counts the passage.
pub static BLOCKED: Site = Site::new(
    Component::Transaction,
    Pattern::Unbounded,
    "blocked transactions",
);

/// Length of a claim while other clients wait.
const QUANTUM: Duration = Duration::from_micros(500);
/// Maximum number of releases between two readings of the clock, because a reading costs as much as
/// a part of a short transaction.
const MAX_UNCHECKED_RELEASES: u32 = 16;
/// Factor by which the quantum is longer where few transactions are blocked.
const LONG_QUANTUM_FACTOR: u32 = 4;
/// Spins that a client between two transactions has to return to a slot that was seen free: one or
/// two microseconds. A client that stays away longer has other work, and other clients get the
/// slot.
const GRACE_SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 50 };
/// Interval at which a watcher looks at the slots.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(1);
/// Number of looks, while no client leaves the queue, before the first is admitted without a slot.
const MAX_FRUITLESS_WATCHES: u32 = if cfg!(loom) { 1 } else { 10 };

/// Values of a queued client's word.
const WAITING: u32 = 0;
const WATCHING: u32 = 1;
const ADMITTED: u32 = 2;
/// This and more: a slot of the lane whose number is the difference.
const GRANTED: u32 = 3;

/// See the [module](self).
pub struct AdmissionControl {
    quantum: Duration,
    watch_interval: Duration,
    slots: AdmissionSlots,
    queue_length: CachePadded<AtomicUsize>,
    queue: Mutex<SlotQueue>,
    /// Present if slots limit only under overload.
    monitor: Option<LoadMonitor>,
}

/// A client's part in admission control: a slot, or the right to reclaim one.
#[derive(Debug, Default)]
pub struct SlotClaim {
    has_slot: bool,
    /// Lane of its slot, also after a release.
    lane: u32,
    /// Start of the quantum.
    quantum_start: Option<Instant>,
    /// Number of releases in this quantum while others waited, and the one at which the clock is
    /// read next.
    releases: u32,
    next_check: u32,
    /// Its local counts for the load monitor.
    counts: LocalCounts,
    /// Its place in the queue, if it is a task that waits.
    queued: Option<(u64, Arc<QueuedClient>)>,
}

impl SlotClaim {
    fn begin_quantum(&mut self) {
        self.quantum_start = Some(clock::now());
        (self.releases, self.next_check) = (0, 0);
    }

    /// True if it has a slot now.
    pub fn has_slot(&self) -> bool {
        self.has_slot
    }

    /// Takes what the word of a client says that waits no longer.
    fn take(&mut self, word: u32) {
        self.has_slot = word >= GRANTED;
        match self.has_slot {
            true => {
                self.lane = word - GRANTED;
                self.begin_quantum();
            }
            false => self.quantum_start = None,
        }
    }
}

/// State of a watcher after its last look.
#[derive(Debug, Default)]
pub struct WatchRecord {
    /// Number of clients that had left the queue.
    departed: Option<u64>,
    /// Number of looks since one did.
    fruitless: u32,
}

impl std::fmt::Debug for AdmissionControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmissionControl")
            .field("free", &self.free())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

impl AdmissionControl {
    /// Returns a control of `slots` slots, with the default quantum of half a millisecond.
    pub fn new(slots: u32) -> AdmissionControl {
        AdmissionControl::with_quantum(slots, QUANTUM)
    }

    /// Returns a control of `slots` slots. A claim lasts for `quantum` while other clients wait.
    pub fn with_quantum(slots: u32, quantum: Duration) -> AdmissionControl {
        AdmissionControl {
            quantum,
            watch_interval: WATCH_INTERVAL,
            slots: AdmissionSlots::new(slots),
            queue_length: CachePadded::new(AtomicUsize::new(0)),
            queue: Mutex::new(SlotQueue::default()),
            monitor: None,
        }
    }

    /// Returns a control of three slots for each of `processors`. They limit only while most
    /// running transactions block each other and keep the processors busy with it, and more is
    /// committed with slots than without.
    pub fn adaptive(processors: u32) -> AdmissionControl {
        AdmissionControl::new(processors * 3).only_when_overloaded(processors)
    }

    /// Makes its slots limit only while `processors` processors are overloaded.
    pub fn only_when_overloaded(self, processors: u32) -> AdmissionControl {
        AdmissionControl {
            monitor: Some(LoadMonitor::new(processors)),
            ..self
        }
    }

    /// Begins or ends an overload, for the model checker.
    #[cfg(loom)]
    pub fn set_limiting(&self, limiting: bool) {
        if let Some(monitor) = &self.monitor {
            monitor.set_limiting(limiting);
        }
    }

    /// True if a client needs a slot to be admitted now.
    #[inline]
    pub fn is_limiting(&self) -> bool {
        self.monitor.as_ref().is_none_or(LoadMonitor::is_limiting)
    }

    /// Number of transactions that are blocked now, where that is counted.
    pub fn blocked(&self) -> u32 {
        self.monitor.as_ref().map_or(0, LoadMonitor::blocked)
    }

    /// Records that a transaction begins to sleep behind another's lock. [`unblock`](Self::unblock)
    /// ends it.
    pub fn block(&self) {
        if let Some(monitor) = &self.monitor {
            monitor.block();
        }
    }

    /// Records a commit. Returns how often that passed what all clients share: seldom, because a
    /// few commits are counted at a time, and only while slots limit or are tried.
    #[inline]
    pub fn record_commit(&self, claim: &mut SlotClaim) -> u64 {
        let monitor = self.monitor.as_ref();
        monitor.map_or(0, |monitor| monitor.record_commit(&mut claim.counts))
    }

    /// Records that a blocked transaction continues; see [`block`](Self::block).
    pub fn unblock(&self) {
        if let Some(monitor) = &self.monitor {
            monitor.unblock();
        }
    }

    /// Number of slots that are free now.
    pub fn free(&self) -> u32 {
        self.slots.free()
    }

    /// Number of clients that wait in the queue now.
    pub fn waiting(&self) -> usize {
        self.queue_length.load(Ordering::Relaxed)
    }

    /// Takes a slot, and waits for one if none is free. In rare cases it returns without (I3).
    /// Returns how often it passed what all clients share.
    ///
    /// # Panics
    ///
    /// If the claim has a slot.
    #[inline]
    pub fn acquire(&self, claim: &mut SlotClaim) -> u64 {
        claim.counts.is_task = false;
        match self.try_acquire(claim) {
            Some(passed) => passed,
            None => 1 + self.wait_in_queue(claim),
        }
    }

    /// Takes a slot if that is possible at once; returns how often it passed what all clients
    /// share. Returns `None` if the client has to queue.
    #[inline]
    fn try_acquire(&self, claim: &mut SlotClaim) -> Option<u64> {
        assert!(!claim.has_slot, "a claim has one slot");
        if let Some(monitor) = &self.monitor {
            if monitor.arrive(&mut claim.counts) {
                monitor.has_ended(self.waiting());
            }
            if !monitor.is_limiting() {
                return Some(0);
            }
        }
        if self.reclaim(claim) {
            claim.has_slot = true;
            return Some(1);
        }
        self.find_slot(claim).then_some(1)
    }

    /// Takes the claim's own slot if it is still free, which it is until it is granted to a queued
    /// client.
    #[inline]
    fn reclaim(&self, claim: &SlotClaim) -> bool {
        claim.quantum_start.is_some() && self.slots.take_from(claim.lane)
    }

    /// Takes a free slot if the queue is empty; returns whether it did.
    #[cold]
    fn find_slot(&self, claim: &mut SlotClaim) -> bool {
        if self.waiting() > 0 {
            return false;
        }
        let Some(lane) = self.slots.take_any() else {
            return false;
        };
        claim.take(GRANTED + lane);
        true
    }

    /// True if slots limit no longer, or stop limiting now.
    fn has_ended(&self) -> bool {
        let monitor = self.monitor.as_ref();
        monitor.is_some_and(|monitor| monitor.has_ended(self.waiting()))
    }

    /// True if the quantum began so recently that the client may keep its slot from those that
    /// wait, or if that was found a moment ago.
    fn has_quantum_left(&self, claim: &mut SlotClaim) -> bool {
        claim.releases = claim.releases.saturating_add(1);
        if claim.releases < claim.next_check {
            return true;
        }
        // The next check is due after an eighth of the releases so far.
        claim.next_check = claim
            .releases
            .saturating_add((claim.releases / 8).clamp(1, MAX_UNCHECKED_RELEASES));
        let is_long = self
            .monitor
            .as_ref()
            .is_some_and(LoadMonitor::has_long_quantum);
        let quantum = self
            .quantum
            .saturating_mul(if is_long { LONG_QUANTUM_FACTOR } else { 1 });
        claim
            .quantum_start
            .is_some_and(|start| start.elapsed() < quantum)
    }

    /// Releases the slot, and returns whether the claim had one. Where other clients wait and the
    /// quantum is over, the first of them gets it.
    #[inline]
    pub fn release(&self, claim: &mut SlotClaim) -> bool {
        let had_slot = std::mem::take(&mut claim.has_slot);
        if had_slot {
            if self.waiting() > 0 && !self.has_quantum_left(claim) {
                claim.quantum_start = None;
                self.grant_next(claim.lane);
            } else {
                self.slots.release(claim.lane);
            }
        }
        had_slot
    }

    /// Grants a released slot to the next client of the queue.
    #[cold]
    fn grant_next(&self, lane: u32) {
        let here = queue::processor();
        let queue = shim::lock(&self.queue);
        let next = queue.nearest(here);
        self.grant(queue, next, lane);
    }

    /// Grants a slot of this lane to a queued client, and returns whether there was one. Otherwise
    /// the slot becomes free.
    fn grant(&self, queue: MutexGuard<'_, SlotQueue>, client: Option<u64>, lane: u32) -> bool {
        let granted = self.dequeue(queue, client, GRANTED + lane);
        if !granted {
            self.slots.release(lane);
        }
        granted
    }

    /// Removes a client from the queue and sets its word; returns whether there was one.
    fn dequeue(
        &self,
        mut queue: MutexGuard<'_, SlotQueue>,
        client: Option<u64>,
        word: u32,
    ) -> bool {
        let client = client.and_then(|number| queue.dequeue(number, word));
        self.queue_length.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        client.inspect(|client| client.wake()).is_some()
    }

    /// Grants a slot to the first client, or admits it without one.
    fn dequeue_first(&self, word: u32) -> bool {
        let queue = shim::lock(&self.queue);
        let first = queue.first();
        self.dequeue(queue, first, word)
    }

    /// Waits; returns how often it passed the queue.
    #[cold]
    fn wait_in_queue(&self, claim: &mut SlotClaim) -> u64 {
        let client = QueuedClient::thread();
        let mut passed = 1;
        self.enqueue(shim::lock(&self.queue), &client);
        passed += self.grant_abandoned();
        let mut record = WatchRecord::default();
        loop {
            match client.word() {
                WAITING => thread::park(),
                WATCHING => {
                    thread::park_timeout(self.watch_interval);
                    passed += 1;
                    self.look(&mut record);
                }
                word => {
                    claim.take(word);
                    return passed;
                }
            }
        }
    }

    /// Adds the client at the end of the queue, and returns its number.
    fn enqueue(&self, mut queue: MutexGuard<'_, SlotQueue>, client: &Arc<QueuedClient>) -> u64 {
        let number = queue.enqueue(client);
        self.queue_length.store(queue.len(), Ordering::Relaxed);
        number
    }

    /// Grants a slot whose client did not return in time to the first client, perhaps to the one
    /// that has just come. Returns how often it passed the queue.
    fn grant_abandoned(&self) -> u64 {
        let Some(lane) = self.take_abandoned() else {
            return 0;
        };
        let queue = shim::lock(&self.queue);
        let first = queue.first();
        self.grant(queue, first, lane);
        1
    }

    /// A watcher's look at the slots and the queue (I3, I4).
    fn look(&self, record: &mut WatchRecord) {
        if self.has_ended() {
            self.admit_all(); // I4
        }
        let departed = self.check_queue(record.fruitless + 1 >= MAX_FRUITLESS_WATCHES);
        record.fruitless = match record.departed == Some(departed) {
            true => record.fruitless + 1,
            false => 0,
        };
        record.departed = Some(departed);
    }

    /// Takes a slot that is free and still free a moment later: a client that is only between two
    /// transactions returns within that.
    fn take_abandoned(&self) -> Option<u32> {
        let left = self.slots.take_abandoned();
        if left.is_some() || self.slots.free() == 0 {
            return left;
        }
        for _ in 0..GRACE_SPINS {
            hint::spin_loop();
        }
        self.slots.take_abandoned()
    }

    /// Admits all queued clients, without slots.
    fn admit_all(&self) {
        while self.dequeue_first(ADMITTED) {}
    }

    /// Grants an abandoned slot to the first client, or admits it without one if `admit_first`.
    /// Returns how many clients have left the queue.
    fn check_queue(&self, admit_first: bool) -> u64 {
        let free = self.take_abandoned();
        let queue = shim::lock(&self.queue);
        let (before, first) = (queue.departed, queue.first());
        let left = match free {
            Some(lane) => self.grant(queue, first, lane),
            None => admit_first && self.dequeue(queue, first, ADMITTED),
        };
        before + u64::from(left)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
