//! A lock request, and the segments that requests come in.
//!
//! # State
//!
//! Requests live in segments of 64, segments in chunks that double in size and stay where they are
//! until the manager goes. So a request is a number, and looking at one that has been used again for
//! something else is a question of meaning, never of memory.
//!
//! ```text
//! number    segment (20 bits) | request (6 bits)        0: none
//! request   name (three words) | owner | next | mode | state
//! next      frozen (1 bit) | number
//! ```
//!
//! The owner is a number that is never given twice: it takes the place of the paper's shadow of the
//! transaction, and is used again with the request, not with the transaction.
//!
//! # Invariants
//!
//! * I1  Name, owner and mode of a request are written before it is put into a chain, and not again
//!   until its segment is taken anew.
//! * I2  A segment is taken anew only when all its requests have been unlinked, and whoever might
//!   still look at one of them has unpinned since.

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

/// In the word of a link: it is not changed any more while its request is in a chain.
const FROZEN: u32 = 1 << 31;
const _: () = assert!(NUMBER_BITS < 31);

/// The most requests that one manager can have.
pub(crate) const MOST_REQUESTS: u32 = 1 << NUMBER_BITS;

/// Segments of the first chunk, and the number of the first of them; each further chunk has twice as many as
/// the one before.
pub(crate) const FIRST_CHUNK: u32 = if cfg!(loom) { 1 } else { 4 };
const CHUNKS: usize = (NUMBER_BITS - SEGMENT_BITS - FIRST_CHUNK.ilog2()) as usize;

/// What a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ChainRequestState {
    /// Its owner holds the name.
    Active = 0,
    /// Its owner is about to find out whether it does. In the way of others as if it did.
    Asking = 1,
    /// Its owner waits for the name.
    Waiting = 2,
    /// Its owner has no more to do with it.
    Obsolete = 3,
}

/// One request.
#[derive(Debug)]
pub(crate) struct ChainRequest {
    name: [AtomicU64; 3],
    owner: AtomicU64,
    next: AtomicU32,
    mode: AtomicU8,
    state: AtomicU8,
}

// A million held locks are 40 MB of requests.
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<ChainRequest>() == 40);

// What is written once is read and written relaxed: its chain makes it visible to those who find it
// there (see the page of the chain), and its segment's reuse to those who get it next.
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

    /// Makes the request somebody's (I1).
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

    /// Whether anybody has written it.
    pub(crate) fn is_written(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn name(&self) -> Name {
        Name::from_words([0, 1, 2].map(|word| self.name[word].load(Ordering::Relaxed)))
    }

    /// Whether it is for `name`: the first word mostly tells.
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

    /// Its state; the chain says with which ordering, here and below.
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

    /// The next in the chain.
    #[inline]
    pub(crate) fn next(&self, ordering: Ordering) -> u32 {
        self.next.load(ordering) & !FROZEN
    }

    /// The next in the chain, which stays the next from now on.
    #[inline]
    pub(crate) fn freeze(&self) -> u32 {
        // Relaxed: who uses what it leads to comes by the chain's word.
        self.next.fetch_or(FROZEN, Ordering::Relaxed) & !FROZEN
    }

    /// Leads past `from` to `to`, if the link is not frozen.
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

/// What is said of requests that are made and given back together.
#[derive(Debug)]
pub(crate) struct RequestSegment {
    pub(crate) flags: FreeFlags,
    /// The segment below, while this one lies on a stack of them.
    pub(crate) below: AtomicU32,
    /// The epoch, or the older rule's moment, at which the last of its requests was unlinked.
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

/// The number of the first request of a segment.
pub(crate) const fn first_of(segment: u32) -> u32 {
    segment << SEGMENT_BITS
}

/// The segment of a request, and the word and the byte of its flag.
#[inline]
pub(crate) const fn flag_of(request: u32) -> (u32, u32, u32) {
    let place = request & (SEGMENT - 1);
    (request >> SEGMENT_BITS, place / WIDTH, place % WIDTH)
}

/// Segments that were made at once, and their requests, one segment's behind the other's: so a request is
/// found by its number without its segment.
#[derive(Debug)]
struct SegmentChunk {
    segments: Box<[RequestSegment]>,
    requests: Box<[ChainRequest]>,
}

/// All segments of one manager, by number: [`FIRST_CHUNK`] and up.
#[derive(Debug)]
pub(crate) struct RequestSlab {
    chunks: [OnceLock<SegmentChunk>; CHUNKS],
    /// The number of the next segment that was never used.
    fresh: AtomicU32,
    /// The first number that no segment gets.
    end: u32,
}

impl RequestSlab {
    /// Room for `limit` requests, rounded up to whole segments.
    pub(crate) fn new(limit: u32) -> Self {
        let segments = limit.div_ceil(SEGMENT).max(1);
        let slab = Self {
            chunks: std::array::from_fn(|_| OnceLock::new()),
            fresh: AtomicU32::new(FIRST_CHUNK),
            end: (FIRST_CHUNK + segments).min(FIRST_CHUNK << CHUNKS),
        };
        // The model does not know that a `OnceLock` orders threads: there the first chunks are made here.
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

    /// A segment that nobody has had. `None`: there are as many as there may be.
    pub(crate) fn add(&self) -> Option<u32> {
        // Relaxed: a number; the chunk comes with a lock of its own.
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

    /// How many segments were ever used.
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

/// The chunk of a segment, and its index there.
#[inline]
fn chunk_of(number: u32) -> (usize, usize) {
    let chunk = log_of(number) - log_of(FIRST_CHUNK);
    (chunk as usize, (number - (FIRST_CHUNK << chunk)) as usize)
}

/// The place of the highest bit; of 0, more than any other.
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
