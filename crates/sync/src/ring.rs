//! A ring of bytes: reserved in order, filled in any order, drained in order.
//!
//! Log buffers are made of it. A stream of bytes is in a ring of memory; position p of the stream
//! is byte `p mod capacity`. A thread that has a [`Reservation`](crate::ring::Reservation) writes
//! and completes it, without a latch. One [`Drainer`](crate::ring::Drainer) reads, from the front,
//! what is complete, and releases the memory for the next lap.
//!
//! # State
//!
//! ```text
//!        released     complete_end      ..          next              limit
//!  ---------+--------------+---------------+------------+-----------------+-----------
//!    free   |   complete   |  reserved, some           |      free       |
//!           | being drained|  complete, some not       |                 |
//! ```
//!
//! `next`, the *front*, is written by the allocator: a
//! [`RingAllocator`](crate::ring::RingAllocator), which one thread at a time uses, or a
//! [`SharedAllocator`](crate::ring::SharedAllocator), which exchanges it. Any thread may load it.
//! `limit` is written by the drainer and read by the allocator. It is `released + capacity`,
//! or the drainer's *bound* if that is less: a stream that is drained into something of limited
//! size takes no more than fits there. Completion is signalled in one of two ways,
//! [`Completion`](crate::ring::Completion):
//!
//! * *in order*: `completed` is the end of the complete part. A thread that completes waits until
//!   that is where its reservation begins, and advances it.
//! * *delegated*: there is a mark of one byte for each 16 bytes of the ring. A thread that
//!   completes leaves the length of its reservation in the mark of its first byte, in eighths, and
//!   is done; the drainer follows the marks from reservation to reservation and clears them. The
//!   only wait is that of the drainer, for the reservation that it is at. A length that is too
//!   large for one mark is written into the four behind it, which belong to the same reservation.
//!
//!   Marks are small because their lines move from the core that fills to the core that drains and
//!   back, and because the drainer waits for each of those before it knows the next. With marks of
//!   four bytes it was slower than one inserter where lines travel far.
//!
//! # Invariants
//!
//! * I1  Reservations that exist do not overlap, and are between `released` and `limit`, which is
//!   at most `released + capacity` and never falls. One allocator makes them, in ascending order,
//!   never beyond the `limit` that it knows; and `released` does not pass a reservation that is
//!   neither complete nor bypassed.
//! * I2  The owner of a reservation writes its bytes, and no thread writes them after it was
//!   completed.
//! * I3  The drainer reads the bytes between `released` and `complete_end`, and no thread writes
//!   them.
//! * I4  A reservation begins at a multiple of 8 and has at least 24 bytes, so of two that exist no
//!   two have the same mark. Each reservation sets its mark once, and the drainer clears it before
//!   the bytes are released, with the marks of a long length. So a mark that is set belongs to the
//!   current reservation and not to an earlier lap.
//! * I5  A thread that completes a reservation then checks whether the drainer sleeps for it. A
//!   drainer that is about to sleep announces it and then checks again. The fence between is
//!   asymmetric, and free for the completing thread ([`asymmetric`](crate::asymmetric)): at least
//!   one sees the other, and no wake-up is lost.
//!
//! # Orderings
//!
//! * O1  the drainer's store to `limit` (Release) to the allocator's load (Acquire). A thread
//!   that writes a byte of the next lap comes after the drainer's last read of it, and after its
//!   clearing of the mark.
//! * O2  the store to a mark (Release) to the drainer's load (Acquire): a thread that sees a
//!   reservation complete sees its bytes, and the rest of its length.
//! * O3  the store to `completed` (Release) to the load of the next in order or the drainer
//!   (Acquire): as O2, for all reservations before.
//! * O4  the store or exchange of the front (Release), in `allocator`, to its load (Acquire). A
//!   thread that finds the front behind the start of a reservation sees what its maker did before
//!   it made it. Every exchange reads the word before, and one thread at a time stores it. So the
//!   front stands for all earlier reservations, too.

use std::fmt;

use crate::asymmetric::Asymmetric;
use crate::backoff::Backoff;
use crate::cache_line::CachePadded;
use crate::park::{Parker, Ticket, Verdict};
use crate::shim::{Arc, AtomicBool, AtomicU8, AtomicU64, Mutex, Ordering, lock};

mod bytes;

mod allocator;

pub use allocator::{AllocationRefused, Bypass, RingAllocator, SharedAllocator};
use allocator::{CLOSED, Front};
use bytes::RingBytes;

/// Reservations begin at multiples of this many bytes.
pub const ALIGNMENT: u64 = 8;
/// Bytes of the smallest reservation.
pub const MIN_RESERVATION: u64 = 24;
/// Bytes of ring for each mark: at most one reservation begins in so many (I4).
const MARKED: u64 = 16;
/// Value of a mark: the length is in the marks behind it.
const LONG_MARK: u8 = if cfg!(loom) { 10 } else { u8::MAX };
/// Bytes of such a length.
const LONG_LENGTH_BYTES: u64 = 4;
// A reservation with a long length has the marks for it.
const _: () = assert!(LONG_MARK as u64 * ALIGNMENT >= (1 + LONG_LENGTH_BYTES) * MARKED);
/// No reservation begins there.
const NOWHERE: u64 = u64::MAX;
/// The only verdict for a sleeping drainer.
const WAKE: Verdict = Verdict::new(1);

/// The way in which completion is signalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// In the order of the reservations: an early thread waits for those before.
    InOrder,
    /// In any order: an early thread leaves it to the drainer.
    Delegated,
}

/// The memory, and how far it is complete and released.
///
/// ```
/// use foxton_sync::ring::{Completion, Ring};
///
/// let (ring, mut allocator, mut drainer) = Ring::new(1024, 0, Completion::Delegated);
/// let mut first = allocator.reserve(&ring, 24).expect("the ring is empty");
/// let mut second = allocator.reserve(&ring, 32).expect("there is room");
/// second.write(&[2; 32]);
/// second.complete();
/// assert_eq!(drainer.poll(), 0, "the first is not complete");
/// first.write(&[1; 24]);
/// first.complete();
/// assert_eq!(drainer.poll(), 56);
/// assert_eq!(drainer.bytes(56)[0][24..], [2; 32]);
/// drainer.release(56);
/// ```
pub struct Ring {
    bytes: RingBytes,
    /// Empty where completion is in order.
    marks: Box<[AtomicU8]>,
    fence: Asymmetric,
    front: CachePadded<Front>,
    limit: CachePadded<AtomicU64>,
    completed: CachePadded<AtomicU64>,
    /// Position at which the drainer sleeps, or [`NOWHERE`]. Beside fields that all threads read
    /// and none writes.
    awaited_at: AtomicU64,
    /// A reservation was dropped unfinished: the stream ends there.
    broken: AtomicBool,
    parker: Parker,
    sleeper: Mutex<Option<Ticket>>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("capacity", &self.capacity())
            .field("limit", &self.limit.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Returns a ring of `capacity` bytes whose stream begins at `start`.
    ///
    /// # Panics
    ///
    /// If the capacity is not a power of two from 64 on, or `start` is not a multiple of
    /// [`ALIGNMENT`].
    pub fn new(
        capacity: usize,
        start: u64,
        completion: Completion,
    ) -> (Arc<Ring>, RingAllocator, Drainer) {
        assert!(
            capacity.is_power_of_two() && capacity >= 64,
            "capacity {capacity}"
        );
        assert!(start.is_multiple_of(ALIGNMENT), "start {start}");
        let marks = match completion {
            Completion::InOrder => 0,
            Completion::Delegated => capacity as u64 / MARKED,
        };
        let ring = Arc::new(Ring {
            bytes: RingBytes::new(capacity),
            marks: (0..marks).map(|_| AtomicU8::new(0)).collect(),
            fence: Asymmetric::new(),
            front: CachePadded::new(Front::new(start)),
            limit: CachePadded::new(AtomicU64::new(start + capacity as u64)),
            completed: CachePadded::new(AtomicU64::new(start)),
            awaited_at: AtomicU64::new(NOWHERE),
            broken: AtomicBool::new(false),
            parker: Parker::new(),
            sleeper: Mutex::new(None),
        });
        let allocator = RingAllocator::new(ring.clone());
        let drainer = Drainer {
            ring: ring.clone(),
            released: start,
            bound: NOWHERE,
            complete_end: start,
            bypass: None,
        };
        (ring, allocator, drainer)
    }

    /// Bytes of the ring.
    pub fn capacity(&self) -> u64 {
        self.bytes.capacity()
    }

    /// Returns up to where reservations can be made: the [`capacity`](Self::capacity) behind what
    /// has been drained, or the [bound](Drainer::set_bound) if that is less.
    #[inline]
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire) // O1
    }

    /// Returns where the next reservation begins, and makes visible what the makers of all earlier
    /// ones did before they made them.
    ///
    /// ```
    /// # use foxton_sync::ring::{Completion, Ring};
    /// let (ring, mut allocator, _) = Ring::new(1024, 0, Completion::Delegated);
    /// let mut reservation = allocator.reserve(&ring, 24).expect("the ring is empty");
    /// assert_eq!(ring.front(), reservation.end());
    /// # reservation.write(&[1; 24]);
    /// # reservation.complete();
    /// ```
    #[inline]
    pub fn front(&self) -> u64 {
        self.front.next.load(Ordering::Acquire) & !CLOSED // O4
    }

    /// True if a reservation was dropped unfinished, so that nothing behind it will ever be
    /// complete.
    pub fn is_broken(&self) -> bool {
        // Relaxed: leads to no memory.
        self.broken.load(Ordering::Relaxed)
    }

    /// Returns the reservation made at `at`, again: only for a caller that gave it up unwritten, as
    /// `ClosedGroup` does.
    pub(crate) fn reservation(&self, at: u64, length: u64) -> Reservation<'_> {
        Reservation {
            ring: self,
            at,
            cursor: at,
            end: at + length,
        }
    }

    #[inline]
    fn mark(&self, at: u64) -> &AtomicU8 {
        &self.marks[(at & (self.capacity() - 1)) as usize / MARKED as usize]
    }

    fn is_delegated(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Signals that the reservation from `at` to `end` is complete.
    #[inline]
    fn complete(&self, at: u64, end: u64) -> bool {
        if self.is_delegated() {
            let units = (end - at) / ALIGNMENT;
            let mark = units.min(u64::from(LONG_MARK)) as u8;
            if mark == LONG_MARK {
                self.leave_long_length(at, units);
            }
            self.mark(at).store(mark, Ordering::Release); // O2
        } else if self.wait_for_turn(at) {
            self.completed.store(end, Ordering::Release); // O3
        }
        self.fence.light(); // I5
        // Relaxed: the fence orders it (I5).
        let awaited_at = self.awaited_at.load(Ordering::Relaxed) == at;
        if awaited_at {
            self.wake();
        }
        awaited_at
    }

    #[cold]
    fn leave_long_length(&self, at: u64, units: u64) {
        let units = u32::try_from(units).expect("a place is no longer than a ring");
        for (mark, byte) in self.long_marks(at).zip(units.to_le_bytes()) {
            mark.store(byte, Ordering::Relaxed); // Relaxed: O2, by the first mark.
        }
    }

    /// Returns the length that was left behind the mark of `at`; clears it.
    #[cold]
    fn take_long_length(&self, at: u64) -> u64 {
        let mut units = [0; LONG_LENGTH_BYTES as usize];
        for (mark, byte) in self.long_marks(at).zip(&mut units) {
            *byte = mark.load(Ordering::Relaxed); // Relaxed: O2.
            mark.store(0, Ordering::Relaxed); // Relaxed: O1 (I4).
        }
        u64::from(u32::from_le_bytes(units))
    }

    fn long_marks(&self, at: u64) -> impl Iterator<Item = &AtomicU8> {
        (1..=LONG_LENGTH_BYTES).map(move |step| self.mark(at + step * MARKED))
    }

    /// Waits until everything before `at` is complete. Returns false if the ring broke first;
    /// then nothing behind the break becomes complete, because its bytes were not written.
    #[inline]
    fn wait_for_turn(&self, at: u64) -> bool {
        let mut backoff = Backoff::new();
        while self.completed.load(Ordering::Acquire) != at {
            // O3
            if self.is_broken() {
                return false;
            }
            backoff.snooze();
        }
        true
    }

    #[cold]
    fn wake(&self) {
        let sleeper = lock(&self.sleeper).take();
        if let Some(ticket) = sleeper {
            drop(self.parker.resolve(ticket, WAKE));
        }
    }

    #[cold]
    pub(crate) fn break_ring(&self) {
        // Under the mutex: a drainer that goes to sleep reads it there.
        let sleeper = {
            let mut sleeper = lock(&self.sleeper);
            self.broken.store(true, Ordering::Relaxed); // Relaxed: the mutex orders it.
            sleeper.take()
        };
        if let Some(ticket) = sleeper {
            drop(self.parker.resolve(ticket, WAKE));
        }
    }
}

/// A part of the stream that one thread may write: a slice of the ring, even if it wraps.
///
/// To be filled from its beginning to its end and then completed. A reservation that is dropped
/// before that breaks the ring: nothing behind it will be drained.
#[derive(Debug)]
#[must_use = "a place that is not completed breaks the ring"]
pub struct Reservation<'r> {
    ring: &'r Ring,
    at: u64,
    cursor: u64,
    end: u64,
}

impl Reservation<'_> {
    /// Its start in the stream.
    #[inline]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Its end in the stream.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Writes `bytes` behind what was written before.
    ///
    /// # Panics
    ///
    /// If they do not fit.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) {
        let end = self.cursor + bytes.len() as u64;
        assert!(end <= self.end, "more bytes than the place has");
        self.ring.bytes.write(self.cursor, bytes, self);
        self.cursor = end;
    }

    /// Signals that the reservation is complete; with completion in order, waits for those before
    /// it. Returns true if the drainer waited for it and was woken. A reservation knows no worker,
    /// so its caller counts that ([`WAKING`](crate::park::WAKING)).
    ///
    /// # Panics
    ///
    /// If it is not filled to its end.
    #[inline]
    pub fn complete(self) -> bool {
        assert!(self.cursor == self.end, "the place is not filled");
        let woke = self.ring.complete(self.at, self.end);
        std::mem::forget(self);
        woke
    }

    /// Returns the range, unwritten; [`Ring::reservation`] makes the reservation again.
    pub(crate) fn into_range(self, ring: &Ring) -> (u64, u64) {
        assert!(std::ptr::eq(self.ring, ring), "a place of another ring");
        assert!(self.cursor == self.at, "the place is written");
        let reservation = (self.at, self.end - self.at);
        std::mem::forget(self);
        reservation
    }
}

impl Drop for Reservation<'_> {
    #[cold]
    fn drop(&mut self) {
        self.ring.break_ring();
    }
}

/// Reads complete bytes and releases their memory.
#[derive(Debug)]
pub struct Drainer {
    ring: Arc<Ring>,
    released: u64,
    /// No reservation ends behind this.
    bound: u64,
    complete_end: u64,
    /// Reached, and not skipped yet: begins at `complete_end`.
    bypass: Option<Bypass>,
}

impl Drainer {
    /// End of the released part, and start of what can be drained.
    pub fn at(&self) -> u64 {
        self.released
    }

    /// Checks how far the stream is complete, and returns it. A bypass that was reached ends it.
    pub fn poll(&mut self) -> u64 {
        if self.bypass.is_some() {
            return self.complete_end;
        }
        if self.ring.is_delegated() {
            loop {
                let mark = self.ring.mark(self.complete_end);
                let units = match mark.load(Ordering::Acquire) {
                    // O2
                    0 => break,
                    LONG_MARK => self.ring.take_long_length(self.complete_end),
                    units => u64::from(units),
                };
                mark.store(0, Ordering::Relaxed); // Relaxed: O1 (I4).
                self.complete_end += units * ALIGNMENT;
            }
        } else {
            self.complete_end = self.ring.completed.load(Ordering::Acquire); // O3
        }
        self.complete_end
    }

    /// Returns the complete bytes from the drainer's position, at most `most`: two slices, the
    /// second of which is empty unless they wrap around the end of the ring.
    pub fn bytes(&self, most: u64) -> [&[u8]; 2] {
        let length = (self.complete_end - self.released).min(most);
        self.ring.bytes.read(self.released, length, self)
    }

    /// Releases the first `length` bytes: their memory may be reserved again.
    ///
    /// # Panics
    ///
    /// If they are not complete.
    pub fn release(&mut self, length: u64) {
        assert!(
            self.complete_end - self.released >= length,
            "released before complete"
        );
        self.released += length;
        self.publish_limit();
    }

    /// Refuses reservations that end behind `bound`, from now on. Without a call there is no such
    /// bound, apart from the ring's capacity. The first call comes before the first reservation,
    /// and later ones only raise the bound.
    ///
    /// ```
    /// # use foxton_sync::ring::{Completion, Ring};
    /// let (ring, mut allocator, mut drainer) = Ring::new(1024, 0, Completion::Delegated);
    /// drainer.set_bound(48);
    /// for _ in 0..2 {
    ///     let mut reservation = allocator.reserve(&ring, 24).expect("it ends within the bound");
    ///     reservation.write(&[1; 24]);
    ///     reservation.complete();
    /// }
    /// assert!(allocator.reserve(&ring, 24).is_none());
    /// drainer.poll();
    /// drainer.release(48);
    /// assert!(allocator.reserve(&ring, 24).is_none(), "memory is not what it lacks");
    /// drainer.set_bound(96);
    /// # let mut reservation =
    /// allocator.reserve(&ring, 24).expect("the bound was raised");
    /// # reservation.write(&[1; 24]);
    /// # reservation.complete();
    /// ```
    ///
    /// # Panics
    ///
    /// If `bound` lies before an earlier one.
    pub fn set_bound(&mut self, bound: u64) {
        assert!(
            self.bound == NOWHERE || bound >= self.bound,
            "a bound never falls"
        );
        self.bound = bound;
        self.publish_limit();
    }

    fn publish_limit(&self) {
        let limit = self.bound.min(self.released + self.ring.capacity());
        self.ring.limit.store(limit, Ordering::Release); // O1
    }

    /// Sleeps until the reservation at which [`poll`](Self::poll) stopped is complete; polls, and
    /// returns whether it is. It is not if the ring broke there.
    ///
    /// Only for a caller that knows of a reservation there.
    pub fn wait(&mut self) -> bool {
        let before = self.complete_end;
        let mut backoff = Backoff::new();
        loop {
            if self.poll() > before {
                return true;
            }
            if backoff.is_yielding() || cfg!(loom) {
                break;
            }
            backoff.snooze();
        }
        let ring = self.ring.clone();
        let ticket = ring.parker.arm();
        let broken = {
            let mut sleeper = lock(&ring.sleeper);
            *sleeper = Some(ticket);
            ring.is_broken()
        };
        // Relaxed: the fence orders it (I5).
        ring.awaited_at.store(before, Ordering::Relaxed);
        ring.fence.heavy(); // I5
        if broken || self.poll() > before {
            lock(&ring.sleeper).take();
            // Another thread may have resolved it; then there is nothing to withdraw.
            ring.parker.disarm(ticket);
        } else {
            ring.parker.wait(ticket, None);
        }
        // Relaxed: a superfluous wake-up is harmless.
        ring.awaited_at.store(NOWHERE, Ordering::Relaxed);
        self.poll() > before
    }

    /// Waits until everything before `bypass` is complete, and stops there: a thread whose
    /// reservation is behind it need not wait for it to be skipped. Returns whether it got there;
    /// it does not if the ring broke.
    pub fn wait_for(&mut self, bypass: Bypass) -> bool {
        while self.poll() < bypass.at() {
            if !self.wait() {
                return false;
            }
        }
        if !self.ring.is_delegated() {
            // Relaxed: the drainer has seen what precedes, which concerns no other thread.
            self.ring.completed.store(bypass.end(), Ordering::Relaxed);
        }
        self.bypass = Some(bypass);
        true
    }

    /// Skips the bypass that was reached, once everything before is released.
    ///
    /// # Panics
    ///
    /// If it is not, or no bypass was reached.
    pub fn skip(&mut self) {
        let bypass = self.bypass.take().expect("a gap was met");
        assert!(
            self.released == bypass.at(),
            "skipped before what precedes is released"
        );
        self.released = bypass.end();
        self.complete_end = self.released;
        self.publish_limit();
    }
}
