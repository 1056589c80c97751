//! Ring allocators: reserve space for one thread at a time, or for all threads by one word.
//!
//! # Invariants
//!
//! * I1  A ring has one allocator, and `next` only grows: no byte is reserved twice (I1 of the
//!   ring).
//! * I2  A closed allocator stays closed.
//!
//! # Orderings
//!
//! Those of the ring. [`Ring::limit`] orders the overwriting of a reserved part; completing a
//! reservation orders what is read of it.
//!
//! * O4  storing or exchanging the front (Release): see the page of the ring.

use super::{ALIGNMENT, MIN_RESERVATION, Reservation, Ring};
use crate::shim::{Arc, AtomicU32, AtomicU64, Ordering};

/// Set in the front of a shared allocator that reserves nothing more.
pub(super) const CLOSED: u64 = 1 << 63;

/// Where the next reservation begins, on a cache line of its own.
#[derive(Debug)]
pub(super) struct Front {
    /// Start of the next reservation, and [`CLOSED`].
    pub(super) next: AtomicU64,
    /// A number of the callers' own.
    turn: AtomicU32,
}

impl Front {
    pub(super) fn new(start: u64) -> Self {
        Front {
            next: AtomicU64::new(start),
            turn: AtomicU32::new(0),
        }
    }
}

/// A part of the stream that does not go through the ring.
#[derive(Debug)]
#[must_use = "nothing behind a gap is taken until it is met and skipped"]
pub struct Bypass {
    at: u64,
    length: u64,
}

impl Bypass {
    /// Its start in the stream.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Its end in the stream.
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

/// Reserves space, for one thread at a time.
#[derive(Debug)]
pub struct RingAllocator {
    ring: Arc<Ring>,
    /// The limit of the ring, as far as it is known.
    limit: u64,
}

impl RingAllocator {
    /// Returns the allocator of a new ring.
    pub(super) fn new(ring: Arc<Ring>) -> Self {
        let limit = ring.front();
        RingAllocator { ring, limit }
    }

    /// Start of the next reservation.
    #[inline]
    pub fn next(&self) -> u64 {
        // Relaxed: one thread at a time uses the allocator, and alone writes the front.
        self.ring.front.next.load(Ordering::Relaxed)
    }

    #[inline]
    fn set_next(&mut self, next: u64) {
        self.ring.front.next.store(next, Ordering::Release); // O4
    }

    /// Reserves the next `length` bytes; `None` if they end behind the limit of the ring.
    ///
    /// # Panics
    ///
    /// If the length is not a multiple of [`ALIGNMENT`] from [`MIN_RESERVATION`] to the capacity,
    /// or `ring` is another.
    #[inline]
    pub fn reserve<'r>(&mut self, ring: &'r Ring, length: u64) -> Option<Reservation<'r>> {
        assert!(std::ptr::eq(&*self.ring, ring), "the front of another ring");
        check_length(length, ring.capacity());
        let at = self.next();
        let end = at + length;
        if end > self.limit {
            self.limit = ring.limit();
            if end > self.limit {
                return None;
            }
        }
        self.set_next(end);
        Some(ring.reservation(at, length))
    }

    /// Passes `length` bytes of the stream around the ring.
    pub fn skip(&mut self, length: u64) -> Bypass {
        let at = self.next();
        self.set_next(at + length);
        Bypass { at, length }
    }
}

/// Reason why a shared allocator reserved nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationRefused {
    /// There is no space until the drainer releases some, or raises its bound.
    Full,
    /// It was closed.
    Closed,
    /// Other threads were faster at each of the attempts.
    Contended,
}

/// Reserves space, for all threads: one word. A thread that is descheduled while it reserves holds
/// up no other.
///
/// In the cache line of the word is also whose turn it is: a hint, for threads that would rather
/// take turns than move the line from core to core with each reservation.
#[derive(Debug)]
pub struct SharedAllocator {
    ring: Arc<Ring>,
}

impl From<RingAllocator> for SharedAllocator {
    fn from(allocator: RingAllocator) -> Self {
        SharedAllocator {
            ring: allocator.ring,
        }
    }
}

impl SharedAllocator {
    /// Start of the next reservation. A number only: see [`Ring::front`].
    pub fn next(&self) -> u64 {
        self.ring.front.next.load(Ordering::Relaxed) & !CLOSED // Relaxed: leads to no memory.
    }

    /// Reserves the next `length` bytes. Makes so many `attempts` to be the first.
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
        // Relaxed: only a number, checked below.
        let mut next = ring.front.next.load(Ordering::Relaxed);
        for _ in 0..attempts {
            if next & CLOSED != 0 {
                return Err(AllocationRefused::Closed);
            }
            if next + length > ring.limit() {
                return Err(AllocationRefused::Full);
            }
            // The rest is Relaxed, because the word gives out numbers: O1 orders what was released,
            // and O2 and O3 what is complete.
            match ring.front.next.compare_exchange(
                next,
                next + length,
                Ordering::Release, // O4
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(ring.reservation(next, length)),
                Err(newer) => next = newer,
            }
        }
        Err(AllocationRefused::Contended)
    }

    /// Passes `length` bytes of the stream around the ring; `None` if it was closed.
    pub fn skip(&self, length: u64) -> Option<Bypass> {
        let (success, failure) = (Ordering::Release, Ordering::Relaxed); // O4
        let next = &self.ring.front.next;
        let moved = next.fetch_update(success, failure, |next| {
            (next & CLOSED == 0).then_some(next + length)
        });
        moved.ok().map(|at| Bypass { at, length })
    }

    /// Returns the last caller of [`take_turn`](Self::take_turn), whose turn it is to reserve. A
    /// hint, which binds no thread.
    #[inline]
    pub fn turn(&self) -> u32 {
        self.ring.front.turn.load(Ordering::Relaxed) // Relaxed: a hint.
    }

    /// Makes it the turn of `who`.
    #[inline]
    pub fn take_turn(&self, who: u32) {
        self.ring.front.turn.store(who, Ordering::Relaxed); // Relaxed: a hint.
    }

    /// Closes it: it reserves nothing more.
    pub fn close(&self) {
        // Relaxed: the closing thread makes visible what has to be.
        self.ring.front.next.fetch_or(CLOSED, Ordering::Relaxed);
    }
}
