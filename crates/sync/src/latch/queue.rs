//! Queue latch: each waiter waits at its own node.
//!
//! Mellor-Crummey and Scott, "Algorithms for Scalable Synchronization on Shared-Memory
//! Multiprocessors", 1991. The latch is handed over in order of arrival, and handing it over
//! touches one line that one waiter reads.
//!
//! # State
//!
//! The latch is a pointer to the last node of the queue, null when free. A node is a pointer to the
//! next node, and a signal. The first node belongs to the holder.
//!
//! | signal        | meaning                                                                |
//! |---------------|------------------------------------------------------------------------|
//! | null          | the owner of the node waits awake, or never waited                     |
//! | an address    | of the handle by which to wake the owner, who sleeps or is about to    |
//! | `granted()`   | the latch was handed over to the node                                  |
//!
//! # Invariants
//!
//! * I1  A node is in one queue from the exchange in `acquire` until `release` returns, and does
//!   not move meanwhile (I1 of the latch contract).
//! * I2  The owner of a node with a predecessor is its predecessor's only writer of `next`.
//! * I3  `release` touches its successor's node last by setting the signal to `granted()`: from
//!   then on the node may be gone, and the handle in the frame of its owner with it.
//! * I4  A signal goes from null to an address at most once, by the owner of the node, and to
//!   `granted()` once, by its predecessor. It never goes back.
//!
//! # Orderings
//!
//! * O1  the exchange in `acquire` (Release) to itself (Acquire): the successor sees the
//!   predecessor's node as it was made.
//! * O2  linking in `acquire` (Release) to `successor` (Acquire): the holder sees the successor's
//!   node as it was made.
//! * O3  `hand_over` signalling (Release) to `acquire` (Acquire): the next holder sees what the
//!   last one wrote.
//! * O4  `release` emptying the queue (Release) to the exchange in `acquire` (Acquire): a thread
//!   that finds the latch free sees what the last holder wrote.
//! * O5  `sleep` leaving its handle (Release) to `hand_over` failing to signal (Acquire): the waker
//!   of a sleeper sees the handle as it was made.
//!
//! # Why no sleeper is forgotten
//!
//! The owner goes to sleep only by exchanging null for its handle's address. Either that comes
//! before the predecessor's exchange of null for `granted()`, which then fails, finds the handle
//! and wakes by it. Or it comes after, fails, and the owner does not sleep. A wake that comes
//! before the owner sleeps ends its next sleep at once.
//!
//! # Differences from the paper
//!
//! A waiter spins a bounded while, yields a few times, and then sleeps until the latch is granted.
//! If all waiters spun or yielded, they would take turns on the cores with the next holder; with
//! hundreds of threads on two cores a hand-over took some hundred microseconds. The well-known
//! weakness remains, and is wanted here for study: first come, first served grants the latch to a
//! thread off its core, and all behind wait for that thread to be scheduled.

use super::Latch;
use crate::backoff::Backoff;
use crate::shim::thread::{self, Thread};
use crate::shim::{AtomicPtr, Ordering, UnsafeCell};
use std::ptr;

/// Times a waiter yields before it sleeps.
const YIELDS: u32 = if cfg!(loom) { 0 } else { 4 };

/// The handle by which to wake a sleeper, in the sleeper's frame.
type Handle = UnsafeCell<Thread>;

/// The signal of a node that was granted the latch: an address that no handle has.
fn granted() -> *mut Handle {
    ptr::without_provenance_mut(1)
}

/// One waiter or holder, on its own stack.
#[derive(Debug)]
pub(super) struct QueueNode {
    next: AtomicPtr<QueueNode>,
    signal: AtomicPtr<Handle>,
}

impl QueueNode {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            signal: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline(always)]
    fn is_granted(&self) -> bool {
        self.signal.load(Ordering::Acquire) == granted() // O3
    }

    /// The next waiter, if it has linked itself yet.
    #[inline(always)]
    fn successor(&self) -> Option<&Self> {
        let next = self.next.load(Ordering::Acquire); // O2
        // SAFETY: the successor stays until it is granted the latch (I1), and only we grant it.
        unsafe { next.as_ref() }
    }
}

/// The latch: a pointer to the last node.
#[derive(Debug)]
pub(super) struct QueueLatch(AtomicPtr<QueueNode>);

impl Default for QueueLatch {
    fn default() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

impl Latch for QueueLatch {
    #[inline(always)]
    unsafe fn acquire(&self, node: &QueueNode) {
        let predecessor = self.0.swap(address(node), Ordering::AcqRel); // O1, O4
        if !predecessor.is_null() {
            // SAFETY: the predecessor's owner cannot finish its release before we have linked
            // ourselves: it waits for that (I1).
            wait_behind(unsafe { &*predecessor }, node);
        }
    }

    #[inline(always)]
    unsafe fn try_acquire(&self, node: &QueueNode) -> bool {
        let (free, ours) = (ptr::null_mut(), address(node));
        let taken = self.0.compare_exchange(
            free,
            ours,
            Ordering::AcqRel, // O1, O4
            Ordering::Relaxed,
        );
        taken.is_ok()
    }

    #[inline(always)]
    unsafe fn release(&self, node: &QueueNode) {
        // Relaxed: a hint; the exchange below and `successor` read again.
        if node.next.load(Ordering::Relaxed).is_null() {
            let emptied = self.0.compare_exchange(
                address(node),
                ptr::null_mut(),
                Ordering::Release, // O4
                Ordering::Relaxed,
            );
            if emptied.is_ok() {
                return;
            }
        }
        hand_over(node);
    }
}

#[inline(always)]
fn address(node: &QueueNode) -> *mut QueueNode {
    ptr::from_ref(node).cast_mut()
}

#[cold]
fn wait_behind(predecessor: &QueueNode, node: &QueueNode) {
    predecessor.next.store(address(node), Ordering::Release); // O2, I2
    let mut backoff = Backoff::new();
    let mut yields = 0;
    while !node.is_granted() {
        if yields == YIELDS {
            return sleep(node);
        }
        yields += u32::from(backoff.is_yielding());
        backoff.snooze();
    }
}

fn sleep(node: &QueueNode) {
    let handle = Handle::new(thread::current());
    let slept = node.signal.compare_exchange(
        ptr::null_mut(),
        ptr::from_ref(&handle).cast_mut(),
        Ordering::Release, // O5
        Ordering::Acquire, // O3: the latch was handed over meanwhile
    );
    if slept.is_ok() {
        // Other wakes may end a sleep too; only the signal counts. The handle stays until then
        // (I3).
        while !node.is_granted() {
            thread::park();
        }
    }
}

#[cold]
fn hand_over(node: &QueueNode) {
    let mut backoff = Backoff::new();
    let successor = loop {
        if let Some(successor) = node.successor() {
            break successor;
        }
        // It is in the queue but has not linked itself yet.
        backoff.snooze();
    };
    let signalled = successor.signal.compare_exchange(
        ptr::null_mut(),
        granted(),
        Ordering::Release, // O3, I3
        Ordering::Acquire, // O5
    );
    if let Err(handle) = signalled {
        // SAFETY: not null, and not `granted()`, which only we set (I4): the handle of a sleeper,
        // who keeps it until granted the latch (I3).
        let handle = unsafe { &*handle };
        // SAFETY: the handle is made before it is left (O5) and never written again.
        let sleeper = handle.with(|thread| unsafe { (*thread).clone() });
        successor.signal.store(granted(), Ordering::Release); // O3, I3
        sleeper.unpark();
    }
}
