//! Lock request, and the segments that requests are allocated in.
//!
//! # State
//!
//! Requests are in segments of 64, and segments in chunks that double in size and are not moved or
//! freed before the manager is. So a request is a number, and it is always safe to read one that
//! has been reused; only its content is another.
//!
//! ```text
//! number    segment (20 bits) | request (6 bits)        0: none
//! request   name (three words) | owner | next | mode | state
//! next      frozen (1 bit) | number
//! ```
//!
//! The owner is a number that is never used twice. It replaces the paper's shadow of the
//! transaction, and is reused with the request, not with the transaction.
//!
//! # Invariants
//!
//! * I1  Name, owner and mode of a request are written before it is put into a chain, and not again
//!   until its segment is reused.
//! * I2  A segment is reused only when all its requests have been unlinked, and every thread that
//!   might still read one of them has unpinned since.

use super::free_flags::{FreeFlags, WIDTH};
use crate::{
    mode::{Mode, Set},
    name::Name,
    request::OwnerId,
};
use foxton_sync::shim::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

/// Requests of a segment.
pub(crate) const SEGMENT: u32 = WIDTH * WIDTH;
const SEGMENT_BITS: u32 = SEGMENT.ilog2();

/// Bits of a request's number.
pub(crate) const NUMBER_BITS: u32 = 26;

/// Bit of a link: the link is not changed any more while its request is in a chain.
const FROZEN: u32 = 1 << 31;
const _: () = assert!(NUMBER_BITS < 31);

/// Most requests that one manager can have.
pub(crate) const MOST_REQUESTS: u32 = 1 << NUMBER_BITS;

/// Number of segments of the first chunk, and number of the first segment; each further chunk has
/// twice as many as the one before.
pub(crate) const FIRST_CHUNK: u32 = if cfg!(loom) { 1 } else { 4 };
const CHUNKS: usize = (NUMBER_BITS - SEGMENT_BITS - FIRST_CHUNK.ilog2()) as usize;

/// State of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ChainRequestState {
    /// Its owner holds the name.
    Active = 0,
    /// It is not yet known whether its owner holds the name. Blocks others as if it did.
    Asking = 1,
    /// Its owner waits for the name.
    Waiting = 2,
    /// Its owner is done with it.
    Obsolete = 3,
}

/// Lock request.
#[derive(Debug)]
pub(crate) struct ChainRequest {
    name: [AtomicU64; 3],
    owner: AtomicU64,
    next: AtomicU32,
    mode: AtomicU8,
    state: AtomicU8,
}

// The requests of a million held locks take 40 MB.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<ChainRequest>() == 40);

// Fields that are written once are read and written relaxed. The chain makes them visible to a
// thread that finds the request there (see the page of the chain), and the reuse of the segment to
// the next owner.
impl ChainRequest {
    fn new() -> Self {
        Self {
            name: std::array::from_fn(|_| AtomicU64::new(0)),
            owner: AtomicU64::new(0),
            next: AtomicU32::new(0),
            mode: AtomicU8::new(0),
            state: AtomicU8::new(ChainRequestState::Obsolete as u8),
        }
    }

    /// Writes the request for an owner (I1).
    #[inline]
    pub(crate) fn write(&self, name: &Name, owner: OwnerId, mode: Mode, state: ChainRequestState) {
        for (word, value) in self.name.iter().zip(name.words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.owner.store(owner.number(), Ordering::Relaxed);
        self.mode.store(mode.set().bits(), Ordering::Relaxed);
        self.state.store(state as u8, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
    }

    /// True if the request was ever written.
    pub(crate) fn is_written(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn name(&self) -> Name {
        Name::from_words([0, 1, 2].map(|word| self.name[word].load(Ordering::Relaxed)))
    }

    /// True if it is for `name`; the first word mostly decides.
    #[inline]
    pub(crate) fn is_for(&self, name: &Name) -> bool {
        let words = name.words();
        (0..3).all(|word| self.name[word].load(Ordering::Relaxed) == words[word])
    }

    #[inline]
    pub(crate) fn owner(&self) -> OwnerId {
        OwnerId::from_number(self.owner.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn mode(&self) -> Mode {
        Mode::of(Set::from_bits(self.mode.load(Ordering::Relaxed)))
    }

    /// Returns its state; the chain chooses the ordering, here and below.
    #[inline]
    pub(crate) fn state(&self, ordering: Ordering) -> ChainRequestState {
        match self.state.load(ordering) {
            0 => ChainRequestState::Active,
            1 => ChainRequestState::Asking,
            2 => ChainRequestState::Waiting,
            _ => ChainRequestState::Obsolete,
        }
    }

    #[inline]
    pub(crate) fn set_state(&self, state: ChainRequestState, ordering: Ordering) {
        self.state.store(state as u8, ordering);
    }

    /// Returns the next request in the chain.
    #[inline]
    pub(crate) fn next(&self, ordering: Ordering) -> u32 {
        self.next.load(ordering) & !FROZEN
    }

    /// Returns the next request in the chain, and freezes the link.
    #[inline]
    pub(crate) fn freeze(&self) -> u32 {
        // Relaxed: the requests that it leads to are visible through the chain's word.
        self.next.fetch_or(FROZEN, Ordering::Relaxed) & !FROZEN
    }

    /// Changes the link from `from` to `to`, if it is not frozen.
    pub(crate) fn relink(&self, from: u32, to: u32, ordering: Ordering) -> bool {
        let relinked = self
            .next
            .compare_exchange(from, to, ordering, Ordering::Relaxed);
        relinked.is_ok()
    }

    #[inline]
    pub(crate) fn set_next(&self, next: u32, ordering: Ordering) {
        self.next.store(next, ordering);
    }
}

/// Data of requests that are allocated and reused together.
#[derive(Debug)]
pub(crate) struct RequestSegment {
    pub(crate) flags: FreeFlags,
    /// The segment below, while this one is on a dead stack.
    pub(crate) below: AtomicU32,
    /// Epoch in which the last of its requests was unlinked; `moment` is the same for the older
    /// rule.
    pub(crate) epoch: AtomicU64,
    pub(crate) moment: AtomicU64,
}

impl RequestSegment {
    fn new() -> Self {
        Self {
            flags: FreeFlags::new(),
            below: AtomicU32::new(0),
            epoch: AtomicU64::new(0),
            moment: AtomicU64::new(0),
        }
    }
}

/// Returns the number of the first request of a segment.
pub(crate) const fn first_of(segment: u32) -> u32 {
    segment << SEGMENT_BITS
}

/// Returns the segment of a request, and the word and the byte of its flag.
#[inline]
pub(crate) const fn flag_of(request: u32) -> (u32, u32, u32) {
    let place = request & (SEGMENT - 1);
    (request >> SEGMENT_BITS, place / WIDTH, place % WIDTH)
}

/// Segments made together, and their requests, one segment's behind the other's, so that a request
/// is found by its number without its segment.
#[derive(Debug)]
struct SegmentChunk {
    segments: Box<[RequestSegment]>,
    requests: Box<[ChainRequest]>,
}

/// All segments of one manager, by number: [`FIRST_CHUNK`] and up.
#[derive(Debug)]
pub(crate) struct RequestSlab {
    chunks: [OnceLock<SegmentChunk>; CHUNKS],
    /// Number of the next segment that was never used.
    fresh: AtomicU32,
    /// First number that no segment gets.
    end: u32,
}

impl RequestSlab {
    /// Returns space for `limit` requests, rounded up to whole segments.
    pub(crate) fn new(limit: u32) -> Self {
        let segments = limit.div_ceil(SEGMENT).max(1);
        let slab = Self {
            chunks: std::array::from_fn(|_| OnceLock::new()),
            fresh: AtomicU32::new(FIRST_CHUNK),
            end: (FIRST_CHUNK + segments).min(FIRST_CHUNK << CHUNKS),
        };
        // Loom does not model that a `OnceLock` orders threads, so the first chunks are made here.
        let made_at_once = if cfg!(loom) { 3 } else { 0 };
        (0..made_at_once).for_each(|chunk| slab.make(chunk));
        slab
    }

    fn make(&self, chunk: usize) {
        let count = FIRST_CHUNK << chunk;
        self.chunks[chunk].get_or_init(|| SegmentChunk {
            segments: (0..count).map(|_| RequestSegment::new()).collect(),
            requests: (0..count * SEGMENT).map(|_| ChainRequest::new()).collect(),
        });
    }

    /// Adds a new segment. `None`: the limit is reached.
    pub(crate) fn add(&self) -> Option<u32> {
        // Relaxed: a number; the chunk has a lock of its own.
        let next = |number| (number < self.end).then_some(number + 1);
        let number = self
            .fresh
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .ok()?;
        let (chunk, _) = chunk_of(number);
        self.make(chunk);
        Some(number)
    }

    #[inline]
    fn chunk(&self, chunk: usize) -> &SegmentChunk {
        self.chunks[chunk]
            .get()
            .expect("a number comes with its chunk")
    }

    #[inline]
    pub(crate) fn segment(&self, number: u32) -> &RequestSegment {
        let (chunk, index) = chunk_of(number);
        &self.chunk(chunk).segments[index]
    }

    #[inline]
    pub(crate) fn request(&self, number: u32) -> &ChainRequest {
        let chunk = log_of(number) - log_of(FIRST_CHUNK * SEGMENT);
        let index = number - ((FIRST_CHUNK * SEGMENT) << chunk);
        &self.chunk(chunk as usize).requests[index as usize]
    }

    /// Returns the number of segments ever used.
    pub(crate) fn used(&self) -> u32 {
        self.fresh.load(Ordering::Relaxed) - FIRST_CHUNK
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let segments = self
            .chunks
            .iter()
            .filter_map(OnceLock::get)
            .map(|chunk| chunk.segments.len());
        segments.sum::<usize>()
            * (size_of::<RequestSegment>() + SEGMENT as usize * size_of::<ChainRequest>())
    }
}

/// Returns the chunk of a segment, and its index there.
#[inline]
fn chunk_of(number: u32) -> (usize, usize) {
    let chunk = log_of(number) - log_of(FIRST_CHUNK);
    (chunk as usize, (number - (FIRST_CHUNK << chunk)) as usize)
}

/// Returns the position of the highest bit; for 0, more than for any other number.
#[inline]
const fn log_of(number: u32) -> u32 {
    (u32::BITS - 1) ^ number.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_fill_chunks_of_doubling_size() {
        assert_eq!(chunk_of(FIRST_CHUNK), (0, 0));
        assert_eq!(chunk_of(2 * FIRST_CHUNK - 1), (0, FIRST_CHUNK as usize - 1));
        assert_eq!(chunk_of(2 * FIRST_CHUNK), (1, 0));
        let slab = RequestSlab::new(100 * SEGMENT - 1);
        let numbers: Vec<u32> = std::iter::from_fn(|| slab.add()).collect();
        assert_eq!((numbers.len(), slab.used()), (100, 100));
        for number in numbers {
            let first = first_of(number);
            assert_eq!(flag_of(first + 9), (number, 9 / WIDTH, 9 % WIDTH));
            assert_eq!(
                slab.request(first + 9).state(Ordering::Relaxed),
                ChainRequestState::Obsolete
            );
        }
    }
}
