//! Giving out places: by one thread at a time, or by a word that all share.
//!
//! # Invariants
//!
//! * I1  A ring has one front, and `next` only grows: nothing is given out twice (I1 of the ring).
//! * I2  A closed front stays closed.
//!
//! # Orderings
//!
//! None of its own. What is given out may be overwritten by what [`Ring::released`] orders; what is
//! complete is told by completing it.

use super::{ALIGNMENT, MIN_RESERVATION, Reservation, Ring};
use crate::cache_line::CachePadded;
use crate::shim::{Arc, AtomicU32, AtomicU64, Ordering};

/// Set in the word of a shared front that gives out nothing more.
const CLOSED: u64 = 1 << 63;

/// A part of the stream that does not go through the ring.
#[derive(Debug)]
#[must_use = "nothing behind a gap is taken until it is met and skipped"]
pub struct Bypass {
    at: u64,
    length: u64,
}

impl Bypass {
    /// Where it begins in the stream.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.at + self.length
    }
}

fn check_length(length: u64, capacity: u64) {
    assert!(
        length >= MIN_RESERVATION && length.is_multiple_of(ALIGNMENT) && length <= capacity,
        "a place of {length} bytes in a ring of {capacity}"
    );
}

/// The right to give out places, for one thread at a time.
#[derive(Debug)]
pub struct RingAllocator {
    ring: Arc<Ring>,
    next: u64,
    /// What is known to be released, and the capacity behind it.
    limit: u64,
}

impl RingAllocator {
    /// The front of a new ring whose stream begins at `start`.
    pub(super) fn new(ring: Arc<Ring>, start: u64) -> Self {
        let limit = start + ring.capacity();
        RingAllocator {
            ring,
            next: start,
            limit,
        }
    }

    /// Where the next place begins.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The next `length` bytes, or `None` if they are not released yet.
    ///
    /// # Panics
    ///
    /// If the length is not a multiple of [`ALIGNMENT`] from [`MIN_RESERVATION`] to the capacity, or `ring` is
    /// another.
    #[inline]
    pub fn reserve<'r>(&mut self, ring: &'r Ring, length: u64) -> Option<Reservation<'r>> {
        assert!(std::ptr::eq(&*self.ring, ring), "the front of another ring");
        check_length(length, ring.capacity());
        let end = self.next + length;
        if end > self.limit {
            self.limit = ring.released() + ring.capacity();
            if end > self.limit {
                return None;
            }
        }
        let reservation = ring.reservation(self.next, length);
        self.next = end;
        Some(reservation)
    }

    /// Gives `length` bytes of the stream a place outside the ring.
    pub fn skip(&mut self, length: u64) -> Bypass {
        let at = self.next;
        self.next += length;
        Bypass { at, length }
    }
}

/// Why a shared front gave no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationRefused {
    /// There is no room until the taker releases some.
    Full,
    /// It was closed.
    Closed,
    /// Others were faster, as often as was tried.
    Contended,
}

/// The right to give out places, for everybody: one word. A thread that loses its processor while it
/// asks holds up nobody.
///
/// Beside the word, in its line, stands whose turn it is: a hint, for those who would rather take turns
/// than have the line go from core to core with each place.
#[derive(Debug)]
pub struct SharedAllocator {
    ring: Arc<Ring>,
    shared: CachePadded<SharedWord>,
}

#[derive(Debug)]
struct SharedWord {
    /// Where the next place begins, and [`CLOSED`].
    next: AtomicU64,
    /// A number of the callers' own.
    turn: AtomicU32,
}

impl From<RingAllocator> for SharedAllocator {
    fn from(allocator: RingAllocator) -> Self {
        let shared = SharedWord {
            next: AtomicU64::new(allocator.next),
            turn: AtomicU32::new(0),
        };
        SharedAllocator {
            shared: CachePadded::new(shared),
            ring: allocator.ring,
        }
    }
}

impl SharedAllocator {
    /// Where the next place begins.
    pub fn next(&self) -> u64 {
        self.shared.next.load(Ordering::Relaxed) & !CLOSED // Relaxed: leads to no memory.
    }

    /// The next `length` bytes. Tries so many times to be the first to ask.
    ///
    /// # Panics
    ///
    /// If the length is not a multiple of [`ALIGNMENT`] from [`MIN_RESERVATION`] to the capacity.
    #[inline]
    pub fn reserve(
        &self,
        length: u64,
        attempts: u32,
    ) -> Result<Reservation<'_>, AllocationRefused> {
        let ring = &*self.ring;
        check_length(length, ring.capacity());
        let mut next = self.shared.next.load(Ordering::Relaxed); // Relaxed: only a number, checked below.
        for _ in 0..attempts {
            if next & CLOSED != 0 {
                return Err(AllocationRefused::Closed);
            }
            if next + length > ring.released() + ring.capacity() {
                return Err(AllocationRefused::Full);
            }
            // Relaxed: the word hands out numbers. What was released is known by O1, and what is
            // complete, by O2 and O3.
            match self.shared.next.compare_exchange(
                next,
                next + length,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(ring.reservation(next, length)),
                Err(newer) => next = newer,
            }
        }
        Err(AllocationRefused::Contended)
    }

    /// Gives `length` bytes of the stream a place outside the ring, or `None` if it was closed.
    pub fn skip(&self, length: u64) -> Option<Bypass> {
        // Relaxed: as in `allocate`.
        let moved = self
            .shared
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                (next & CLOSED == 0).then_some(next + length)
            });
        moved.ok().map(|at| Bypass { at, length })
    }

    /// Whose turn it is to ask: who called [`take_turn`](Self::take_turn) last. A hint; nobody is bound.
    #[inline]
    pub fn turn(&self) -> u32 {
        self.shared.turn.load(Ordering::Relaxed) // Relaxed: a hint.
    }

    /// Makes it the turn of `who`.
    #[inline]
    pub fn take_turn(&self, who: u32) {
        self.shared.turn.store(who, Ordering::Relaxed); // Relaxed: a hint.
    }

    /// Gives out nothing more.
    pub fn close(&self) {
        // Relaxed: what is told by it is told by whoever closes.
        self.shared.next.fetch_or(CLOSED, Ordering::Relaxed);
    }
}
