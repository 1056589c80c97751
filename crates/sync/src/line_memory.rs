//! Memory in cache lines of atomic words: reserved at once, given back in parts.
//!
//! A reservation takes address space. The system provides memory for a line when it is first
//! written, and takes it back on request. So a pool can reserve chunks for a maximum, and use as
//! much memory as its present limit allows, without moving a chunk.
//!
//! # Why it is right
//!
//! Words are atomics, and zero is a valid value of each. Memory that the system has taken back
//! reads as zero again. To readers that overlap, [`release`](LineChunk::release) is another thread
//! that stores zeros, each with a relaxed store. It writes nothing else, and no address changes.

use std::fmt;
use std::ops::Deref;

use crate::shim::{Arc, AtomicU64};

/// Words in a line.
pub const LINE_WORDS: usize = 8;

/// A cache line of words.
#[repr(align(64))]
#[derive(Debug)]
pub struct WordLine(pub [AtomicU64; LINE_WORDS]);

/// Reserves `chunks` chunks of `lines` lines each. All words are zero at first.
///
/// ```
/// use foxton_sync::line_memory::reserve;
/// use foxton_sync::shim::Ordering;
///
/// let chunks = reserve(128, 1_000);
/// assert_eq!((chunks.len(), chunks[7].len()), (1_000, 128));
/// chunks[7][127].0[3].store(5, Ordering::Relaxed);
/// chunks[7].release();
/// assert_eq!(chunks[7][127].0[3].load(Ordering::Relaxed), 0);
/// ```
///
/// # Panics
///
/// If a chunk has no line, or there are more lines than addresses. As for other memory, the process
/// ends if the system has none.
pub fn reserve(lines: usize, chunks: usize) -> Vec<LineChunk> {
    assert!(lines > 0, "a chunk has lines");
    let all = lines
        .checked_mul(chunks)
        .expect("fewer lines than addresses");
    let memory = Arc::new(system::Memory::new(all));
    let chunk = |number: usize| LineChunk {
        memory: memory.clone(),
        lines: memory.part(number * lines, lines),
    };
    (0..chunks).map(chunk).collect()
}

/// A chunk of reserved memory. The reservation ends with its last chunk.
pub struct LineChunk {
    #[expect(dead_code, reason = "it keeps the memory mapped")]
    memory: Arc<system::Memory>,
    lines: system::Lines,
}

impl fmt::Debug for LineChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineChunk")
            .field("lines", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
mod system {
    use super::{Deref, LineChunk, WordLine};
    use std::ptr::{self, NonNull};

    /// Smallest unit of memory that the system takes back.
    const SYSTEM_PAGE: usize = 4096;

    pub(super) use MappedLines as Memory;

    pub(super) struct MappedLines {
        start: NonNull<WordLine>,
        bytes: usize,
    }

    /// Lines of a chunk, which the chunk keeps mapped.
    pub(super) struct Lines(NonNull<[WordLine]>);

    // SAFETY: it is an address; unmapping needs no particular thread.
    unsafe impl Send for MappedLines {}
    // SAFETY: as above, and it gives out lines of atomics alone.
    unsafe impl Sync for MappedLines {}
    // SAFETY: it is a shared reference to atomics.
    unsafe impl Send for Lines {}
    // SAFETY: as above.
    unsafe impl Sync for Lines {}

    impl MappedLines {
        pub(super) fn new(lines: usize) -> Self {
            let bytes = lines.max(1) * size_of::<WordLine>();
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
            let layout = || std::alloc::Layout::array::<WordLine>(lines).expect("addresses");
            if start == libc::MAP_FAILED {
                std::alloc::handle_alloc_error(layout());
            }
            let start = NonNull::new(start.cast()).expect("page 0 is never mapped");
            Self { start, bytes }
        }

        /// Returns `count` lines from line `first` on. They are used while the mapping is kept.
        pub(super) fn part(&self, first: usize, count: usize) -> Lines {
            assert!((first + count) * size_of::<WordLine>() <= self.bytes);
            // SAFETY: the lines are in the mapping, as was checked.
            let start = unsafe { self.start.add(first) };
            Lines(NonNull::slice_from_raw_parts(start, count))
        }
    }

    impl Drop for MappedLines {
        fn drop(&mut self) {
            // SAFETY: it was mapped so, and no chunk is left that refers to it.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }

    impl Deref for LineChunk {
        type Target = [WordLine];

        #[inline]
        fn deref(&self) -> &[WordLine] {
            // SAFETY: the chunk keeps the mapping, which is zeroed or holds what was stored, and
            // both are valid words. Nothing but atomic stores and `release` changes them.
            unsafe { self.lines.0.as_ref() }
        }
    }

    impl LineChunk {
        /// Sets all words to zero and gives the memory back to the system, as far as it has whole
        /// pages of the system. Words that are stored later take memory again.
        pub fn release(&self) {
            let start = self.lines.0.cast::<WordLine>().as_ptr().addr();
            let end = start + size_of_val(&**self);
            let (first, last) = (
                start.next_multiple_of(SYSTEM_PAGE),
                end & !(SYSTEM_PAGE - 1),
            );
            let mut released = 0..0;
            if first < last {
                let address = self.lines.0.cast::<u8>().as_ptr().with_addr(first);
                // SAFETY: the range is in this chunk of a private anonymous mapping. Its words
                // become zero, as if by stores to these atomics.
                let advice =
                    unsafe { libc::madvise(address.cast(), last - first, libc::MADV_DONTNEED) };
                if advice == 0 {
                    released = first..last;
                }
            }
            let addressed = |line: &WordLine| ptr::from_ref(line).addr();
            let rest = self
                .iter()
                .filter(|line| !released.contains(&addressed(line)));
            rest.for_each(WordLine::clear);
        }
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
mod system {
    use super::{Deref, LineChunk, WordLine};

    /// Memory of an allocator, which each chunk takes for itself.
    pub(super) struct HeapLines;

    pub(super) use HeapLines as Memory;

    pub(super) type Lines = Box<[WordLine]>;

    impl HeapLines {
        pub(super) fn new(_lines: usize) -> Self {
            Self
        }

        pub(super) fn part(&self, _first: usize, count: usize) -> Lines {
            (0..count).map(|_| WordLine::zero()).collect()
        }
    }

    impl Deref for LineChunk {
        type Target = [WordLine];

        fn deref(&self) -> &[WordLine] {
            &self.lines
        }
    }

    impl LineChunk {
        /// Sets all words to zero. The memory stays with the process.
        pub fn release(&self) {
            self.iter().for_each(WordLine::clear);
        }
    }

    impl WordLine {
        fn zero() -> Self {
            use super::{AtomicU64, LINE_WORDS};
            let words: [AtomicU64; LINE_WORDS] = std::array::from_fn(|_| AtomicU64::new(0));
            Self(words)
        }
    }
}

impl WordLine {
    fn clear(&self) {
        use crate::shim::Ordering;
        // Relaxed: readers that overlap expect zeros at any time.
        self.0
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

#[cfg(all(test, target_os = "linux", not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;
    use crate::shim::Ordering;

    fn fill(chunk: &LineChunk) {
        let words = chunk.iter().flat_map(|line| &line.0);
        words.for_each(|word| word.store(7, Ordering::Relaxed));
    }

    fn sum(chunk: &LineChunk) -> u64 {
        let words = chunk.iter().flat_map(|line| &line.0);
        words.map(|word| word.load(Ordering::Relaxed)).sum()
    }

    /// Number of system pages of a chunk that are in memory.
    fn resident_pages(chunk: &LineChunk) -> usize {
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
        let chunks = reserve(128, 3);
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
        let chunks = reserve(100, 5);
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
        let chunks = reserve(1 << 30, 16);
        chunks[15][(1 << 30) - 1].0[7].store(1, Ordering::Relaxed);
        assert_eq!(chunks[15][(1 << 30) - 1].0[7].load(Ordering::Relaxed), 1);
    }
}
