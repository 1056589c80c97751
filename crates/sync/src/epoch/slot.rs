//! Slots: the public part of each participant, and the list of all, which only grows.
//!
//! # State
//!
//! A slot's word is `epoch << 1 | pinned`. Beside it are the hazards of its participant: the
//! addresses of the objects it looks at, or null. Slots without a participant are reused.
//!
//! # Invariants
//!
//! Those of [`epoch`](super): I1 for the word, I5 for the list.
//!
//! # Orderings
//!
//! * O1  `unpin` and `announce` (Release) to `has_seen` (Acquire): a thread that sees a participant
//!   unpinned, or pinned again, comes after everything it read before. The second half matters: a
//!   plain store does not continue the release of an earlier one.
//! * O3  the fence in `announce`: a reader is seen pinned, or finds nothing that is retired. The
//!   argument is on the page of `epoch`.
//! * O4  a participant releasing its slot (Release) to `try_acquire` (Acquire): the next
//!   participant's words come after the last one's.
//! * O5  `push` (Release) to `iter` (Acquire): a thread that finds a slot finds it whole. Slots
//!   pushed before it come along, because every push is a read-modify-write of the head.

use crate::cache_line::CachePadded;
use crate::shim::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::ptr::{self, NonNull};

const PINNED: u64 = 1;

/// Number of hazards of a participant: so many objects it can look at at once.
pub(super) const HAZARDS: usize = 4;

/// The public part of a participant.
pub(super) struct ParticipantSlot {
    published: CachePadded<Published>,
    taken: AtomicBool,
    /// Number of objects that its participant retired and has not freed. Written by the participant
    /// alone.
    pub(super) retired: AtomicUsize,
    next: *const ParticipantSlot,
}

/// The part that its participant writes often.
struct Published {
    word: AtomicU64,
    hazards: [AtomicPtr<()>; HAZARDS],
}

impl ParticipantSlot {
    fn try_acquire(&self) -> bool {
        // Relaxed: a hint; the exchange decides.
        let taken = self.taken.load(Ordering::Relaxed);
        !taken && !self.taken.swap(true, Ordering::Acquire) // O4
    }

    /// Leaves it to the next participant.
    fn release(&self) {
        self.taken.store(false, Ordering::Release); // O4
    }

    /// Writes the word so that everything read afterwards was there after the writing.
    #[inline]
    pub(super) fn announce(&self, epoch: u64) {
        let word = epoch << 1 | PINNED;
        self.published.word.store(word, Ordering::Release); // O1, I1
        fence(Ordering::SeqCst); // O3
    }

    /// Announces that the participant looks at nothing any more.
    #[inline]
    pub(super) fn unpin(&self) {
        self.published.word.store(0, Ordering::Release); // O1, I1
    }

    /// True if its participant is not pinned, or pinned at `epoch`.
    pub(super) fn has_seen(&self, epoch: u64) -> bool {
        let word = self.published.word.load(Ordering::Acquire); // O1
        word & PINNED == 0 || word >> 1 == epoch
    }

    /// The hazards of its participant.
    #[inline]
    pub(super) fn hazards(&self) -> &[AtomicPtr<()>; HAZARDS] {
        &self.published.hazards
    }
}

/// All slots ever made.
pub(super) struct SlotList {
    head: AtomicPtr<ParticipantSlot>,
    /// About the number of free slots: a hint that avoids a search in vain. Too small makes a slot
    /// more than needed, too large a search in vain.
    free: AtomicUsize,
}

impl SlotList {
    pub(super) fn new() -> SlotList {
        SlotList {
            head: AtomicPtr::new(ptr::null_mut()),
            free: AtomicUsize::new(0),
        }
    }

    /// All slots, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ParticipantSlot> {
        let mut current = self.head.load(Ordering::Acquire).cast_const(); // O5
        std::iter::from_fn(move || {
            // SAFETY: null, or a slot that is whole (O5) and stays (I5).
            let slot = unsafe { current.as_ref() }?;
            current = slot.next;
            Some(slot)
        })
    }

    /// Returns a slot for a new participant: a released one, or a new one.
    pub(super) fn acquire(&self) -> NonNull<ParticipantSlot> {
        // Relaxed here and where a slot is released: a hint, which leads to no memory.
        if self.free.load(Ordering::Relaxed) == 0 {
            return self.push();
        }
        match self.iter().find(|slot| slot.try_acquire()) {
            Some(slot) => {
                self.free.fetch_sub(1, Ordering::Relaxed);
                NonNull::from(slot)
            }
            None => self.push(),
        }
    }

    #[cold]
    fn push(&self) -> NonNull<ParticipantSlot> {
        // Relaxed: only compared; see O5 for what it points to.
        let mut head = self.head.load(Ordering::Relaxed);
        let slot = Box::into_raw(Box::new(ParticipantSlot {
            published: CachePadded::new(Published {
                word: AtomicU64::new(0),
                hazards: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            }),
            taken: AtomicBool::new(true),
            retired: AtomicUsize::new(0),
            next: head,
        }));
        loop {
            let pushed = self.head.compare_exchange(
                head,
                slot,
                Ordering::Release, // O5
                Ordering::Relaxed,
            );
            match pushed {
                Ok(_) => return NonNull::new(slot).expect("a box is not null"),
                Err(newer) => head = newer,
            }
            // SAFETY: not pushed yet, so no other thread knows it.
            unsafe { (*slot).next = head };
        }
    }

    /// Leaves a slot to the next participant.
    pub(super) fn release(&self, slot: &ParticipantSlot) {
        // Relaxed: see `acquire`. Before the slot is free, so that the hint never falls below 0.
        self.free.fetch_add(1, Ordering::Relaxed);
        slot.release();
    }
}

impl Drop for SlotList {
    fn drop(&mut self) {
        let mut current = self.head.load(Ordering::Relaxed).cast_const();
        while !current.is_null() {
            // SAFETY: pushed from a box, and passed by once. Every participant keeps the domain,
            // and the domain this list: no thread is left that has a slot, or looks at one (I5).
            let slot = unsafe { Box::from_raw(current.cast_mut()) };
            current = slot.next;
        }
    }
}
