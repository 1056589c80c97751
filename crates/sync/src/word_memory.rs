//! Memory of atomic words: reserved at once, given back in parts.
//!
//! A reservation takes address space. The system provides memory for a word when it is first
//! written, and takes it back on request. So a pool can reserve chunks for a maximum, and use as
//! much memory as its present limit allows, without moving a chunk.
//!
//! # Why it is right
//!
//! Words are atomics, and zero is a valid value of each. Memory that the system has taken back
//! reads as zero again. To readers that overlap, `WordChunk::release` is another thread
//! that stores zeros, each with a relaxed store. It writes nothing else, and no address changes.

use std::fmt;
use std::ops::Deref;

use crate::shim::{Arc, AtomicU64};

/// Reserves `chunks` chunks of `words` words each, one behind the other from the begin of a cache
/// line on. All words are zero at first.
///
/// ```
/// use foxton_sync::shim::Ordering;
/// use foxton_sync::word_memory::reserve;
///
/// let chunks = reserve(1024, 1_000);
/// assert_eq!((chunks.len(), chunks[7].len()), (1_000, 1024));
/// chunks[7][1023].store(5, Ordering::Relaxed);
/// chunks[7].release();
/// assert_eq!(chunks[7][1023].load(Ordering::Relaxed), 0);
/// ```
///
/// # Panics
///
/// If a chunk has no word, or there are more words than addresses. As for other memory, the process
/// ends if the system has none.
pub fn reserve(words: usize, chunks: usize) -> Vec<WordChunk> {
    assert!(words > 0, "a chunk has words");
    let all = words
        .checked_mul(chunks)
        .expect("fewer words than addresses");
    let memory = Arc::new(system::Memory::new(all));
    let chunk = |number: usize| WordChunk {
        memory: memory.clone(),
        words: memory.part(number * words, words),
    };
    (0..chunks).map(chunk).collect()
}

/// A chunk of reserved memory. The reservation ends with its last chunk.
pub struct WordChunk {
    #[expect(dead_code, reason = "it keeps the memory mapped")]
    memory: Arc<system::Memory>,
    words: system::Words,
}

impl fmt::Debug for WordChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WordChunk")
            .field("words", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
mod system {
    use super::{AtomicU64, Deref, WordChunk, clear};
    use std::ptr::{self, NonNull};

    /// Smallest unit of memory that the system takes back.
    const SYSTEM_PAGE: usize = 4096;

    pub(super) use MappedWords as Memory;

    pub(super) struct MappedWords {
        start: NonNull<AtomicU64>,
        bytes: usize,
    }

    /// Words of a chunk, which the chunk keeps mapped.
    pub(super) struct Words(NonNull<[AtomicU64]>);

    // SAFETY: it is an address; unmapping needs no particular thread.
    unsafe impl Send for MappedWords {}
    // SAFETY: as above, and it gives out atomics alone.
    unsafe impl Sync for MappedWords {}
    // SAFETY: it is a shared reference to atomics.
    unsafe impl Send for Words {}
    // SAFETY: as above.
    unsafe impl Sync for Words {}

    impl MappedWords {
        pub(super) fn new(words: usize) -> Self {
            let bytes = words.max(1) * size_of::<AtomicU64>();
            // SAFETY: a new anonymous mapping takes no address that is in use.
            let start = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            let layout = || std::alloc::Layout::array::<AtomicU64>(words).expect("addresses");
            if start == libc::MAP_FAILED {
                std::alloc::handle_alloc_error(layout());
            }
            let start = NonNull::new(start.cast()).expect("page 0 is never mapped");
            Self { start, bytes }
        }

        /// Returns `count` words from word `first` on. They are used while the mapping is kept.
        pub(super) fn part(&self, first: usize, count: usize) -> Words {
            assert!((first + count) * size_of::<AtomicU64>() <= self.bytes);
            // SAFETY: the words are in the mapping, as was checked.
            let start = unsafe { self.start.add(first) };
            Words(NonNull::slice_from_raw_parts(start, count))
        }
    }

    impl Drop for MappedWords {
        fn drop(&mut self) {
            // SAFETY: it was mapped so, and no chunk is left that refers to it.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }

    impl Deref for WordChunk {
        type Target = [AtomicU64];

        #[inline]
        fn deref(&self) -> &[AtomicU64] {
            // SAFETY: the chunk keeps the mapping, which is zeroed or holds what was stored, and
            // both are valid words. Nothing but atomic stores and `release` changes them.
            unsafe { self.words.0.as_ref() }
        }
    }

    impl WordChunk {
        /// Sets all words to zero and gives the memory back to the system, as far as it has whole
        /// pages of the system. Words that are stored later take memory again.
        pub fn release(&self) {
            let start = self.words.0.cast::<AtomicU64>().as_ptr().addr();
            let end = start + size_of_val(&**self);
            let (first, last) = (
                start.next_multiple_of(SYSTEM_PAGE),
                end & !(SYSTEM_PAGE - 1),
            );
            let mut released = 0..0;
            if first < last {
                let address = self.words.0.cast::<u8>().as_ptr().with_addr(first);
                // SAFETY: the range is in this chunk of a private anonymous mapping. Its words
                // become zero, as if by stores to these atomics.
                let advice =
                    unsafe { libc::madvise(address.cast(), last - first, libc::MADV_DONTNEED) };
                if advice == 0 {
                    released = first..last;
                }
            }
            let addressed = |word: &AtomicU64| ptr::from_ref(word).addr();
            let rest = self
                .iter()
                .filter(|word| !released.contains(&addressed(word)));
            rest.for_each(clear);
        }
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
mod system {
    use super::{AtomicU64, Deref, WordChunk, clear};

    /// Memory of an allocator, which each chunk takes for itself.
    pub(super) struct HeapWords;

    pub(super) use HeapWords as Memory;

    pub(super) type Words = Box<[AtomicU64]>;

    impl HeapWords {
        pub(super) fn new(_words: usize) -> Self {
            Self
        }

        pub(super) fn part(&self, _first: usize, count: usize) -> Words {
            (0..count).map(|_| AtomicU64::new(0)).collect()
        }
    }

    impl Deref for WordChunk {
        type Target = [AtomicU64];

        fn deref(&self) -> &[AtomicU64] {
            &self.words
        }
    }

    impl WordChunk {
        /// Sets all words to zero. The memory stays with the process.
        pub fn release(&self) {
            self.iter().for_each(clear);
        }
    }
}

/// Sets a word to zero.
fn clear(word: &AtomicU64) {
    use crate::shim::Ordering;
    // Relaxed: readers that overlap expect zeros at any time.
    word.store(0, Ordering::Relaxed);
}

#[cfg(all(test, target_os = "linux", not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;
    use crate::shim::Ordering;

    fn fill(chunk: &WordChunk) {
        chunk
            .iter()
            .for_each(|word| word.store(7, Ordering::Relaxed));
    }

    fn sum(chunk: &WordChunk) -> u64 {
        chunk.iter().map(|word| word.load(Ordering::Relaxed)).sum()
    }

    /// Number of system pages of a chunk that are in memory.
    fn resident_pages(chunk: &WordChunk) -> usize {
        let bytes = size_of_val(&**chunk);
        let mut resident = vec![0_u8; bytes / 4096];
        let start = std::ptr::from_ref(&**chunk)
            .cast::<libc::c_void>()
            .cast_mut();
        // SAFETY: the range is mapped, and the result has a byte for each of its pages.
        let result = unsafe { libc::mincore(start, bytes, resident.as_mut_ptr()) };
        assert_eq!(result, 0);
        resident.iter().filter(|page| **page & 1 == 1).count()
    }

    #[test]
    fn memory_is_taken_by_writing_and_given_back_by_release() {
        let chunks = reserve(1024, 3);
        assert_eq!(chunks.iter().map(resident_pages).sum::<usize>(), 0);
        chunks.iter().for_each(fill);
        assert_eq!(chunks.iter().map(resident_pages).sum::<usize>(), 6);
        chunks[1].release();
        assert_eq!(
            chunks.iter().map(resident_pages).collect::<Vec<_>>(),
            [2, 0, 2]
        );
        assert_eq!(
            chunks.iter().map(sum).collect::<Vec<_>>(),
            [7 * 1024, 0, 7 * 1024]
        );
        fill(&chunks[1]);
        assert_eq!(sum(&chunks[1]), 7 * 1024);
    }

    #[test]
    fn a_chunk_that_is_no_whole_number_of_system_pages_is_zeroed_and_its_neighbours_are_not() {
        let chunks = reserve(800, 5);
        chunks.iter().for_each(fill);
        chunks[2].release();
        assert_eq!(
            chunks.iter().map(sum).collect::<Vec<_>>(),
            [5600, 5600, 0, 5600, 5600]
        );
        // A chunk keeps the reservation.
        let last = chunks.into_iter().next_back().expect("five");
        assert_eq!(sum(&last), 5600);
    }

    #[test]
    fn address_space_is_no_memory() {
        // A tebibyte.
        let chunks = reserve(1 << 33, 16);
        chunks[15][(1 << 33) - 1].store(1, Ordering::Relaxed);
        assert_eq!(chunks[15][(1 << 33) - 1].load(Ordering::Relaxed), 1);
    }
}
