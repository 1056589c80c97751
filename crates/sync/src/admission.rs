//! At most so many at work at once, however many want to be.
//!
//! Threads beyond those that the processors can run do not add work, they add holders of locks that are
//! not running: whoever meets such a lock sleeps, with locks of its own, and soon everybody waits for
//! somebody who waits. With an *admission* of a few seats, what is too much waits before it has anything
//! that others could wait for. The idea is that of concurrency restriction over a contended lock
//! (D. Dice, A. Kogan: *Avoiding Scalability Collapse by Restricting Concurrency*, Euro-Par 2019); here it is
//! done over whole transactions, as some servers do over statements.
//!
//! Passing a seat on costs a switch between threads, and many times what a short transaction costs. So
//! who has a seat keeps its claim to it for a *tenure*, through many transactions: it leaves the seat between
//! them and comes back to it past the line. After its tenure it hands the seat to
//! the first of the line, or to one of the next who ran on the same processor (`queue`), and stands behind; if it comes back too late, the first
//! has the seat, since who joins the line, and who watches, gives it what is free and still is a moment later: what is free for
//! less is between two transactions. A seat that is come back to is in nobody
//! else's hands: each has a cache line of its own (`slots`), where one count of
//! all would go from processor to processor twice in each transaction.
//!
//! Seats may be there only while there is a *crowd*, which the admission then finds out by itself: `load`.
//!
//! # State
//!
//! `slots`, a count of those that are free in each lane. `queue`, those who wait, in the order they came, each with a `QueuedClient`, of which a
//! word says whether it is waiting, waiting and watching, seated, or let in without a seat; `queue_length`, how many they
//! are. The word is changed under the line's mutex only. A `SlotClaim` belongs to whom it is lent to: one
//! thread at a time.
//!
//! # Invariants
//!
//! * I1  Free seats and taken seats are as many as there are seats, in each lane (`slots`). Who takes one, or is handed one, notes
//!   it and its lane in its claim; who leaves one hands it on or leaves it free.
//! * I2  A line that is not empty has exactly one in it who watches for all: who came to an empty line, and when that
//!   one leaves, who is last then, told under the mutex.
//! * I3  Nobody waits for ever: who watches looks every `WATCH_INTERVAL` whether a seat is free, whoever should have
//!   given it to the first, and if nobody has left the line for `MAX_FRUITLESS_WATCHES` of them, the first goes in without a seat, since
//!   those who have the seats may be waiting for something that it holds, or may not be running at all. Seats bound
//!   how many are at work while those at work come and go; they never decide whether somebody may.
//! * I4  When a crowd is over, whoever is in line is let in, at the latest when the one who watches looks. Who joins the
//!   line later watches, or is behind one who does.
//!
//! # Why no wake-up is lost
//!
//! A thread reads its word and then sleeps; who changes the word wakes it after that, and a token that
//! comes early makes the next sleep return at once. Who watches sleeps for a bounded time anyway (I3): nobody is
//! woken when a seat is left free for one whose tenure lasts.
//!
//! Whoever is woken may take the processor from somebody who holds locks. So handing a seat on wakes one, not also
//! the next to be first: to watch is for who has long to wait.
//!
//! # Orderings
//!
//! None. Free seats, `queue_length` and a place's word lead to no memory, and what a client does with its seat is ordered by the
//! locks that it takes, as it must be: a seat that was left free says nothing of who left it, and one that is handed on
//! says no more. A word is read without the mutex, but always after the token of whoever wrote it: parking hands on what
//! was done before the token was given (`park`), so that nobody sleeps again over a word that it has missed. All Relaxed.
//!
//! ```
//! use foxton_sync::admission::{AdmissionControl, SlotClaim};
//!
//! let (admission, mut claim) = (AdmissionControl::new(4), SlotClaim::default());
//! for _ in 0..1_000 {
//!     admission.acquire(&mut claim);
//!     // Here something that takes locks, and gives them back.
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

use load::{LoadMonitor, LocalCounts};
use queue::{QueuedClient, SlotQueue};
use slots::AdmissionSlots;

/// Seats and the line. An admission knows no worker, so whoever calls [`AdmissionControl::acquire`] or
/// [`AdmissionControl::release`] counts it.
///
/// ```
/// use foxton_sync::{admission, worker::Workers};
///
/// let worker = Workers::new().worker();
/// worker.account().passed(&admission::SLOTS);
/// ```
pub static SLOTS: Site = Site::new(Component::Transaction, Pattern::Unbounded, "admission");

/// How many are blocked. Whoever calls [`AdmissionControl::block`] or [`AdmissionControl::unblock`] counts it.
pub static BLOCKED: Site = Site::new(
    Component::Transaction,
    Pattern::Unbounded,
    "blocked transactions",
);

/// How long a claim lasts while others wait.
const QUANTUM: Duration = Duration::from_micros(500);
/// A look at the clock costs as much as a part of a short transaction: so many end without one at most.
const MAX_UNCHECKED_RELEASES: u32 = 16;
/// Where few are blocked it lasts so many times as long.
const LONG_QUANTUM_FACTOR: u32 = 4;
/// How many turns of a loop those who are between two transactions have to come back to a seat that was found free: one or
/// two microseconds. Who stays away for longer has other things to do, and others the seat.
const GRACE_SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 50 };
/// How often it is looked for those in line.
const WATCH_INTERVAL: Duration = Duration::from_millis(1);
/// How often it is looked, while nobody leaves the line, before the first goes in without a seat.
const MAX_FRUITLESS_WATCHES: u32 = if cfg!(loom) { 1 } else { 10 };

/// What a place's word says.
const WAITING: u32 = 0;
const WATCHING: u32 = 1;
const ADMITTED: u32 = 2;
/// This and more: a seat of the lane whose number is the difference.
const GRANTED: u32 = 3;

/// See the [module](self).
pub struct AdmissionControl {
    quantum: Duration,
    watch_interval: Duration,
    slots: AdmissionSlots,
    queue_length: CachePadded<AtomicUsize>,
    queue: Mutex<SlotQueue>,
    /// If there are seats only while there is one.
    monitor: Option<LoadMonitor>,
}

/// What one client of an admission has: a seat, or the right to come back to one.
#[derive(Debug, Default)]
pub struct SlotClaim {
    has_slot: bool,
    /// Of which lane its seat is, or was.
    lane: u32,
    /// Since when the tenure runs.
    quantum_start: Option<Instant>,
    /// How often it left its seat in this tenure while others waited, and at which of those times the clock is looked at.
    releases: u32,
    next_check: u32,
    /// What it counts by itself for the crowd.
    counts: LocalCounts,
}

impl SlotClaim {
    fn begin_quantum(&mut self) {
        self.quantum_start = Some(clock::now());
        (self.releases, self.next_check) = (0, 0);
    }

    /// Whether it has a seat now.
    pub fn has_slot(&self) -> bool {
        self.has_slot
    }
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
    /// An admission of so many seats, with the usual tenure of half a millisecond.
    pub fn new(slots: u32) -> AdmissionControl {
        AdmissionControl::with_quantum(slots, QUANTUM)
    }

    /// An admission of so many seats. A claim lasts for `quantum` while others wait.
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

    /// An admission of three seats for each of `processors`, which counts only while most of those at work block
    /// each other and keep the processors busy with it, and more is committed with seats than without.
    pub fn adaptive(processors: u32) -> AdmissionControl {
        AdmissionControl::new(processors * 3).only_when_overloaded(processors)
    }

    /// The same, but its seats count only while there is a crowd on so many processors.
    pub fn only_when_overloaded(self, processors: u32) -> AdmissionControl {
        AdmissionControl {
            monitor: Some(LoadMonitor::new(processors)),
            ..self
        }
    }

    /// Begins or ends a crowd, for the model checker.
    #[cfg(loom)]
    pub fn set_limiting(&self, limiting: bool) {
        if let Some(monitor) = &self.monitor {
            monitor.set_limiting(limiting);
        }
    }

    /// Whether who enters needs a seat at this moment.
    #[inline]
    pub fn is_limiting(&self) -> bool {
        self.monitor.as_ref().is_none_or(LoadMonitor::is_limiting)
    }

    /// How many are blocked at this moment, where that is counted.
    pub fn blocked(&self) -> u32 {
        self.monitor.as_ref().map_or(0, LoadMonitor::blocked)
    }

    /// Someone at work goes to sleep behind another's lock. It says so when it goes on, too.
    pub fn block(&self) {
        if let Some(monitor) = &self.monitor {
            monitor.block();
        }
    }

    /// Someone at work has committed. Says how often that passed what all share: seldom, for a few commits are counted
    /// at a time, and only while seats count or are tried.
    #[inline]
    pub fn record_commit(&self, claim: &mut SlotClaim) -> u64 {
        let monitor = self.monitor.as_ref();
        monitor.map_or(0, |monitor| monitor.record_commit(&mut claim.counts))
    }

    /// See [`blocks`](Self::block).
    pub fn unblock(&self) {
        if let Some(monitor) = &self.monitor {
            monitor.unblock();
        }
    }

    /// Seats that nobody has at this moment.
    pub fn free(&self) -> u32 {
        self.slots.free()
    }

    /// How many stand in line at this moment.
    pub fn waiting(&self) -> usize {
        self.queue_length.load(Ordering::Relaxed)
    }

    /// Takes a seat; waits for one if there is none. In rare cases it returns without (I3). Says how often it
    /// passed what all share.
    ///
    /// # Panics
    ///
    /// If the claim has a seat.
    #[inline]
    pub fn acquire(&self, claim: &mut SlotClaim) -> u64 {
        assert!(!claim.has_slot, "a claim has one slot");
        if let Some(monitor) = &self.monitor {
            if monitor.arrive(&mut claim.counts) {
                monitor.has_ended(self.waiting());
            }
            if !monitor.is_limiting() {
                return 0;
            }
        }
        if self.reclaim(claim) {
            claim.has_slot = true;
            return 1;
        }
        1 + self.find_slot(claim)
    }

    /// Whether its seat is still free, which is its own as long as nobody has given it to those in line.
    #[inline]
    fn reclaim(&self, claim: &SlotClaim) -> bool {
        claim.quantum_start.is_some() && self.slots.take_from(claim.lane)
    }

    /// Takes a free seat if nobody is in line, or else stands there. Says how often it passed that.
    #[cold]
    fn find_slot(&self, claim: &mut SlotClaim) -> u64 {
        if self.waiting() > 0 {
            return self.wait_in_queue(claim);
        }
        let Some(lane) = self.slots.take_any() else {
            return self.wait_in_queue(claim);
        };
        claim.has_slot = true;
        claim.lane = lane;
        claim.begin_quantum();
        0
    }

    /// Whether seats do not count any more, or will not from now on.
    fn has_ended(&self) -> bool {
        let monitor = self.monitor.as_ref();
        monitor.is_some_and(|monitor| monitor.has_ended(self.waiting()))
    }

    /// Whether it was seated so lately that it may keep its seat from those who wait, or if that was found a moment ago.
    fn has_quantum_left(&self, claim: &mut SlotClaim) -> bool {
        claim.releases = claim.releases.saturating_add(1);
        if claim.releases < claim.next_check {
            return true;
        }
        // The next look is due after an eighth as many as there have been.
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

    /// Leaves the seat, and says whether the claim had one. Where others wait and the tenure is over, the
    /// first of them has it then.
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

    /// Gives a seat that was left to the next of the line.
    #[cold]
    fn grant_next(&self, lane: u32) {
        let here = queue::processor();
        let queue = shim::lock(&self.queue);
        let index = queue.nearest(here);
        self.grant(queue, index, lane);
    }

    /// Gives a seat of this lane to one of the line; says whether there was one. Otherwise the seat is free.
    fn grant(&self, queue: MutexGuard<'_, SlotQueue>, index: usize, lane: u32) -> bool {
        let granted = self.dequeue(queue, index, GRANTED + lane);
        if !granted {
            self.slots.release(lane);
        }
        granted
    }

    /// Takes one out of the line, and tells it with what; says whether there was one.
    fn dequeue(&self, mut queue: MutexGuard<'_, SlotQueue>, index: usize, word: u32) -> bool {
        let client = queue.dequeue(index, word);
        self.queue_length.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        client.inspect(|client| client.wake()).is_some()
    }

    /// Waits; says how often it passed the line.
    #[cold]
    fn wait_in_queue(&self, claim: &mut SlotClaim) -> u64 {
        let client = QueuedClient::new();
        let joined = self.enqueue(&client);
        // How many had left the line when it looked last, and how often it looked since somebody did.
        let (mut left, mut fruitless) = (None, 0);
        let mut watches = 0_u64;
        loop {
            match client.word.load(Ordering::Relaxed) {
                ADMITTED => break,
                WAITING => thread::park(),
                WATCHING => {
                    thread::park_timeout(self.watch_interval);
                    watches += 1;
                    if self.has_ended() {
                        self.admit_all(); // I4
                    }
                    let now = self.check_queue(fruitless + 1 >= MAX_FRUITLESS_WATCHES);
                    fruitless = if left == Some(now) { fruitless + 1 } else { 0 };
                    left = Some(now);
                }
                granted => {
                    claim.has_slot = true;
                    claim.lane = granted - GRANTED;
                    break;
                }
            }
        }
        match claim.has_slot {
            true => claim.begin_quantum(),
            false => claim.quantum_start = None,
        }
        joined + watches
    }

    /// Puts it at the end of the line. A seat that was left free for one who did not come back in time goes to
    /// the first, perhaps to itself. Says how often it passed the line.
    fn enqueue(&self, client: &Arc<QueuedClient>) -> u64 {
        let mut queue = shim::lock(&self.queue);
        queue.enqueue(client);
        self.queue_length.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        let Some(lane) = self.take_abandoned() else {
            return 1;
        };
        self.grant(shim::lock(&self.queue), 0, lane);
        2
    }

    /// Takes a seat that is free, and still is a moment later: whoever is only between two transactions comes back in that.
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

    /// Lets everybody in, without seats.
    fn admit_all(&self) {
        while self.dequeue(shim::lock(&self.queue), 0, ADMITTED) {}
    }

    /// The first has a seat if one was left free, or goes in without if those in line are out of patience. Says how many
    /// have left the line.
    fn check_queue(&self, admit_first: bool) -> u64 {
        let free = self.take_abandoned();
        let queue = shim::lock(&self.queue);
        let before = queue.departed;
        let left = match free {
            Some(lane) => self.grant(queue, 0, lane),
            None => admit_first && self.dequeue(queue, 0, ADMITTED),
        };
        before + u64::from(left)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
