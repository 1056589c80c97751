//! A queue of waiters, each spinning on its own node.
//!
//! Mellor-Crummey and Scott, "Algorithms for Scalable Synchronization on Shared-Memory
//! Multiprocessors", 1991. The latch is passed on in order of arrival, and handing it over touches
//! one line that one waiter looks at.
//!
//! # State
//!
//! The latch is a pointer to the last node of the queue, null when free. A node is a pointer to the
//! next node, and whether the latch was handed to it. The first node belongs to the holder.
//!
//! # Invariants
//!
//! * I1  A node is in one queue from the exchange in `acquire` until `release` returns, and does not
//!   move meanwhile (I1 of the latch contract).
//! * I2  The owner of a node with a predecessor is its predecessor's only writer of `next`.
//! * I3  `release` touches its successor's node last by setting `granted`: from then on the node may
//!   be gone.
//!
//! # Orderings
//!
//! * O1  the exchange in `acquire` (Release) to itself (Acquire): the successor sees the
//!   predecessor's node as it was made.
//! * O2  linking in `acquire` (Release) to `successor` (Acquire): the holder sees the successor's node
//!   as it was made.
//! * O3  `release` setting `granted` (Release) to `acquire` (Acquire): the next holder sees what the
//!   last one wrote.
//! * O4  `release` emptying the queue (Release) to the exchange in `acquire` (Acquire): who finds the
//!   latch free sees what the last holder wrote.
//!
//! # Differences from the paper
//!
//! A waiter yields once spinning has not helped. That bounds the waste, not the wait: if the next in
//! line is off its core, everybody behind it waits. This is the well-known weakness of queue latches
//! when there are more threads than cores, and it is wanted here for study.

use super::Latch;
use crate::backoff::Backoff;
use crate::shim::{AtomicBool, AtomicPtr, Ordering};
use std::ptr;

/// One waiter or holder, on its own stack.
#[derive(Debug)]
pub(super) struct Node {
    next: AtomicPtr<Node>,
    granted: AtomicBool,
}

impl Node {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            granted: AtomicBool::new(false),
        }
    }

    #[inline(always)]
    fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Acquire) // O3
    }

    /// The next in line, if it has linked itself yet.
    #[inline(always)]
    fn successor(&self) -> Option<&Self> {
        let next = self.next.load(Ordering::Acquire); // O2
        // SAFETY: the successor stays until it is granted the latch (I1), and only we grant it.
        unsafe { next.as_ref() }
    }
}

/// The latch: the last in line.
#[derive(Debug)]
pub(super) struct Queue(AtomicPtr<Node>);

impl Default for Queue {
    fn default() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

impl Latch for Queue {
    #[inline(always)]
    unsafe fn acquire(&self, node: &Node) {
        let predecessor = self.0.swap(address(node), Ordering::AcqRel); // O1, O4
        if !predecessor.is_null() {
            // SAFETY: the predecessor's owner cannot finish its release before we have linked
            // ourselves: it waits for that (I1).
            wait_behind(unsafe { &*predecessor }, node);
        }
    }

    #[inline(always)]
    unsafe fn try_acquire(&self, node: &Node) -> bool {
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
    unsafe fn release(&self, node: &Node) {
        // Relaxed: a hint; the exchange below and `successor` look again.
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
fn address(node: &Node) -> *mut Node {
    ptr::from_ref(node).cast_mut()
}

#[cold]
fn wait_behind(predecessor: &Node, node: &Node) {
    predecessor.next.store(address(node), Ordering::Release); // O2, I2
    let mut backoff = Backoff::new();
    while !node.is_granted() {
        backoff.snooze();
    }
}

#[cold]
fn hand_over(node: &Node) {
    let mut backoff = Backoff::new();
    let successor = loop {
        if let Some(successor) = node.successor() {
            break successor;
        }
        // It has taken its place but not told us yet.
        backoff.snooze();
    };
    successor.granted.store(true, Ordering::Release); // O3, I3
}
