//! Consolidation: threads that want space at the same time ask for it together.
//!
//! An array of slots. A thread that does not get a reservation at once takes a share in an open
//! slot. One of the group closes the slot, reserves space for all shares, and publishes where it
//! begins; each member takes its part. So a group costs the allocator one request, and the larger
//! the group, the larger the request.
//!
//! # State
//!
//! One word for each slot, one for where the reservation of its group begins.
//!
//! | bit 63 | bits 40..63         | bits 0..40           | the slot is                   |
//! |--------|---------------------|----------------------|-------------------------------|
//! | 0      | 0                   | 0                    | free                          |
//! | 0      | shares              | bytes of all of them | open                          |
//! | 1      | shares not yet left | bytes of all of them | closed: no other thread joins |
//!
//! `outcome`, the start of the reservation or the reason why there is none, is published by
//! `settled`.
//!
//! # Invariants
//!
//! * I1  The shares of a group have parts that do not overlap and that together are the
//!   reservation. The part of a share begins at the byte count that the word had when the share was
//!   taken.
//! * I2  A group is closed once, by the thread that sets the bit, and published once, by the same
//!   thread.
//! * I3  A slot is free again once all members have left it, which is after all have read the
//!   outcome. So the outcome is written by one thread while no other reads it: by the thread that
//!   closed the group, before `settled` is set.
//! * I4  A share takes its part once.
//!
//! # Orderings
//!
//! * O1  publishing (Release) to reading the outcome (Acquire): a member that reads it comes after
//!   everything that the reservation came after, the release of that memory included.
//! * O2  leaving (Release) to the last to leave (Acquire), and its freeing of the slot (Release) to
//!   the next to join (Acquire). The outcome of one group is not seen by the next, and not
//!   overwritten while it is read.
//! * O3  joining (Release) to closing (Acquire): the thread that closes the group comes after
//!   everything that the members did before they joined. So its reservation stands for theirs, and
//!   the front of the ring leads to what each member did before (O4 of the ring).
//!
//! # Differences from the document
//!
//! There the slot of a closed group is replaced at once by a fresh one out of a pool. Here a thread
//! that finds a slot closed goes to the next, and to none if all are; then it asks alone.

use std::fmt;

use crate::backoff::Backoff;
use crate::cache_line::CachePadded;
use crate::ring::{Reservation, Ring};
use crate::shim::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering, UnsafeCell, lock};

const CLOSED: u64 = 1 << 63;
const SHARE: u64 = 1 << 40;
const BYTES: u64 = SHARE - 1;
/// Maximum number of shares in one slot; far below the limit of the word.
const MAX_SHARES: u64 = 1 << 20;

/// Reason why a group got no space: a number that the caller chooses.
pub type RefusalReason = u32;

/// The reason if the closing thread left without publishing.
pub const ABANDONED: RefusalReason = RefusalReason::MAX;

struct GroupSlot {
    word: AtomicU64,
    settled: AtomicBool,
    /// Start of the group's reservation, or the reason why there is none (I3).
    outcome: UnsafeCell<Result<u64, RefusalReason>>,
    /// Number of threads that sleep until the outcome is published.
    sleeping: Mutex<u32>,
    published: Condvar,
}

// SAFETY: `outcome` is written by one thread while no other reads it, and otherwise only read (I3,
// O1, O2); everything else is made to be shared.
unsafe impl Sync for GroupSlot {}

/// The slots in which threads meet, for the reservations of one ring.
///
/// ```
/// use foxton_sync::consolidation::Groups;
/// use foxton_sync::ring::{Completion, Ring};
///
/// let (ring, mut allocator, mut drainer) = Ring::new(1024, 0, Completion::Delegated);
/// let groups = Groups::new(ring.clone(), 4);
/// let first = groups.join(0, 24).expect("all slots are free");
/// let second = groups.join(0, 40).expect("the slot is open");
/// assert!(first.is_first() && !second.is_first());
///
/// let group = first.close().expect("nobody else closed it");
/// assert_eq!(group.length(), 64);
/// let reservation = allocator.reserve(&ring, group.length()).expect("the ring is empty");
/// group.publish(Ok(reservation));
/// for (share, length) in [(first, 24), (second, 40)] {
///     let mut reservation = share.wait().expect("there was a place");
///     reservation.write(&vec![1; length]);
///     reservation.complete();
/// }
/// assert_eq!(drainer.poll(), 64);
/// ```
pub struct Groups {
    ring: Arc<Ring>,
    slots: Box<[CachePadded<GroupSlot>]>,
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Groups")
            .field("slots", &self.slots.len())
            .finish_non_exhaustive()
    }
}

impl GroupSlot {
    fn new() -> Self {
        GroupSlot {
            word: AtomicU64::new(0),
            settled: AtomicBool::new(false),
            outcome: UnsafeCell::new(Err(ABANDONED)),
            sleeping: Mutex::new(0),
            published: Condvar::new(),
        }
    }
}

impl Groups {
    /// Returns so many slots for the reservations of `ring`.
    pub fn new(ring: Arc<Ring>, slots: usize) -> Self {
        Groups {
            ring,
            slots: (0..slots)
                .map(|_| CachePadded::new(GroupSlot::new()))
                .collect(),
        }
    }

    /// Takes a share of `length` bytes in the first open slot from number `from` on; `None` if none
    /// is open or has space: a group asks for at most a quarter of the ring.
    pub fn join(&self, from: usize, length: u64) -> Option<GroupShare<'_>> {
        let count = self.slots.len();
        let slots = (0..count).map(|step| &*self.slots[(from + step) % count]);
        slots
            .into_iter()
            .find_map(|slot| self.join_slot(slot, length))
    }

    fn join_slot<'g>(&'g self, slot: &'g GroupSlot, length: u64) -> Option<GroupShare<'g>> {
        let most = self.ring.capacity() / 4;
        // Relaxed: only a number, checked by the exchange.
        let mut word = slot.word.load(Ordering::Relaxed);
        loop {
            let offset = word & BYTES;
            if word & CLOSED != 0 || offset + length > most || word / SHARE >= MAX_SHARES {
                return None;
            }
            match slot.word.compare_exchange_weak(
                word,
                word + SHARE + length,
                Ordering::AcqRel, // O2, O3
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    return Some(GroupShare {
                        groups: self,
                        slot,
                        offset,
                        length,
                        is_taken: false,
                    });
                }
                Err(newer) => word = newer,
            }
        }
    }
}

/// A share in the request of a group. Dropping it without taking its part breaks the ring.
#[derive(Debug)]
#[must_use = "the others in the group wait for who is first"]
pub struct GroupShare<'g> {
    groups: &'g Groups,
    slot: &'g GroupSlot,
    offset: u64,
    length: u64,
    is_taken: bool,
}

impl fmt::Debug for GroupSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({:#x})", self.word.load(Ordering::Relaxed))
    }
}

impl<'g> GroupShare<'g> {
    /// True if it is the first of its group, which should close it.
    pub fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Closes the group; `None` if another member was first.
    pub fn close(&self) -> Option<ClosedGroup<'g>> {
        let word = self.slot.word.fetch_or(CLOSED, Ordering::Acquire); // O3
        (word & CLOSED == 0).then_some(ClosedGroup {
            groups: self.groups,
            slot: self.slot,
            length: word & BYTES,
            shares: word / SHARE,
        })
    }

    /// True if the outcome is published. A hint, which may be outdated on return.
    pub fn is_settled(&self) -> bool {
        // Relaxed: leads to no memory.
        self.slot.settled.load(Ordering::Relaxed)
    }

    /// Waits for the outcome, spinning a bounded while and then sleeping, and leaves the slot with
    /// the part of this share.
    pub fn wait(mut self) -> Result<Reservation<'g>, RefusalReason> {
        self.take_part()
    }

    /// As [`wait`](Self::wait), but stays in the slot until the share is dropped.
    ///
    /// # Panics
    ///
    /// If called twice.
    pub fn take_part(&mut self) -> Result<Reservation<'g>, RefusalReason> {
        assert!(!self.is_taken, "a seat has one part"); // I4
        self.wait_settled();
        self.is_taken = true;
        // SAFETY: settled, so no thread writes it until this share is left (I3, O1).
        let outcome = self.slot.outcome.with(|outcome| unsafe { *outcome });
        // No other share has this part (I1, I4).
        outcome.map(|begin| {
            self.groups
                .ring
                .reservation(begin + self.offset, self.length)
        })
    }

    /// Waits until all other members have left.
    pub fn wait_for_others(&self) {
        let mut backoff = Backoff::new();
        // Relaxed: the reservations of the others make visible what they did before they left.
        while (self.slot.word.load(Ordering::Relaxed) & !CLOSED) / SHARE > 1 {
            backoff.snooze();
        }
    }

    fn wait_settled(&self) {
        let settled = || self.slot.settled.load(Ordering::Acquire); // O1
        let mut backoff = Backoff::new();
        while !backoff.is_yielding() && !cfg!(loom) {
            if settled() {
                return;
            }
            backoff.snooze();
        }
        if settled() {
            return;
        }
        let mut sleeping = lock(&self.slot.sleeping);
        *sleeping += 1;
        while !settled() {
            let woken = self.slot.published.wait(sleeping);
            sleeping = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        *sleeping -= 1;
    }
}

impl Drop for GroupShare<'_> {
    fn drop(&mut self) {
        if !self.is_taken {
            drop(self.close());
            self.groups.ring.break_ring();
            self.wait_settled();
        }
        let slot = self.slot;
        let word = slot.word.fetch_sub(SHARE, Ordering::AcqRel); // O2
        if (word & !CLOSED) / SHARE == 1 {
            slot.settled.store(false, Ordering::Relaxed); // Relaxed: ordered by the word (O2).
            slot.word.store(0, Ordering::Release); // O2
        }
    }
}

/// A closed group, whose outcome the closing thread owes to all members. Dropped, it publishes
/// [`ABANDONED`].
#[derive(Debug)]
#[must_use = "the group waits for it to be published"]
pub struct ClosedGroup<'g> {
    groups: &'g Groups,
    slot: &'g GroupSlot,
    length: u64,
    shares: u64,
}

impl<'g> ClosedGroup<'g> {
    /// Bytes that the group asks for.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Number of shares in the group.
    pub fn shares(&self) -> u64 {
        self.shares
    }

    /// Publishes the group's reservation, or the reason why there is none.
    ///
    /// # Panics
    ///
    /// If the reservation is of another ring or length.
    pub fn publish(self, outcome: Result<Reservation<'g>, RefusalReason>) {
        let begin = outcome.map(|reservation| {
            let (at, length) = reservation.into_range(&self.groups.ring);
            assert!(length == self.length, "a place of another length");
            at
        });
        self.publish_outcome(begin);
        std::mem::forget(self);
    }

    fn publish_outcome(&self, outcome: Result<u64, RefusalReason>) {
        let slot = self.slot;
        // SAFETY: this thread closed the group (I2), so it alone writes, and no other reads yet
        // (I3).
        slot.outcome
            .with_mut(|reservation| unsafe { *reservation = outcome });
        slot.settled.store(true, Ordering::Release); // O1
        let sleeping = *lock(&slot.sleeping);
        if sleeping > 0 {
            slot.published.notify_all();
        }
    }
}

impl Drop for ClosedGroup<'_> {
    fn drop(&mut self) {
        self.publish_outcome(Err(ABANDONED));
    }
}
