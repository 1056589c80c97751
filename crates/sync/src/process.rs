//! Process stamp: tells a forked child that what it inherited belongs to its parent.
//!
//! A child made by `fork` has a copy of its parent's memory and shares its open files. None of the
//! parent's other threads is there, and a mutex that one of them held stays locked. So a child must
//! not use an open database, not even to close it. Such a thing gets a stamp when it is made, and
//! compares it before each call.
//!
//! # State
//!
//! * One page of memory for the process, whose first word has the number of this process. The
//!   system gives a child the page with zeros (`MADV_WIPEONFORK`, Linux 4.14). Where it cannot, a
//!   handler of `pthread_atfork` writes the zero; a child made by a bare `clone` is then not seen.
//! * `LAST`, the last number that was given out. A child inherits it.
//!
//! # Invariants
//!
//! * I1  A stamp has the number of the process that made it, and no descendant of that process gets
//!   the same number. The first stamp that a child makes gives it a number above `LAST`, which is
//!   above all numbers of its ancestors at the time of the fork. Stamps that an ancestor makes
//!   later are not in its memory.
//!
//! # Orderings
//!
//! None: a fork copies memory after everything that the forking thread did. Threads of one process
//! always read the same number.

use std::sync::OnceLock;

use crate::shim::unmodelled::{AtomicU64, Ordering::Relaxed};

static LAST: AtomicU64 = AtomicU64::new(0);

/// Text of the errors that a forked child gets.
pub const REFUSAL: &str = "this process is a forked child, and its parent opened the database \
    before the fork; open a database after the fork, in the process that uses it";

/// Names the process that made it.
///
/// ```
/// use foxton_sync::process::ProcessStamp;
///
/// let stamp = ProcessStamp::new();
/// assert!(!stamp.is_inherited());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ProcessStamp {
    number: u64,
    current: &'static AtomicU64,
}

impl Default for ProcessStamp {
    fn default() -> Self {
        Self::new()
    }
}

impl ProcessStamp {
    /// Returns the stamp of this process.
    pub fn new() -> Self {
        let current = current();
        let number = match current.load(Relaxed) {
            0 => {
                let next = LAST.fetch_add(1, Relaxed) + 1; // I1
                let first = current.compare_exchange(0, next, Relaxed, Relaxed);
                first.map_or_else(|other| other, |_| next)
            }
            number => number,
        };
        Self { number, current }
    }

    /// True in a child, however distant, of the process that made the stamp. Costs two reads of
    /// memory that no thread writes.
    #[inline(always)]
    pub fn is_inherited(&self) -> bool {
        self.current.load(Relaxed) != self.number
    }
}

/// Returns the word with the number of this process, or 0 if it has none yet.
fn current() -> &'static AtomicU64 {
    static WORD: OnceLock<&AtomicU64> = OnceLock::new();
    WORD.get_or_init(system::word)
}

#[cfg(not(any(loom, shuttle, miri)))]
mod system {
    use std::ptr;

    use crate::shim::unmodelled::{AtomicU64, Ordering::Relaxed};

    /// Any page is at least as large.
    const BYTES: usize = 4096;

    /// Returns a word that is 0, and that a child finds to be 0 again.
    pub(super) fn word() -> &'static AtomicU64 {
        wiped_page().unwrap_or_else(wiped_by_handler)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn wiped_page() -> Option<&'static AtomicU64> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address that the system chooses.
        let page = unsafe { libc::mmap(ptr::null_mut(), BYTES, access, kind, -1, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the mapping was just made and no reference to it exists.
        if unsafe { libc::madvise(page, BYTES, libc::MADV_WIPEONFORK) } != 0 {
            // SAFETY: as above.
            unsafe { libc::munmap(page, BYTES) };
            return None;
        }
        // SAFETY: the page is aligned, has zeros, and is never unmapped.
        Some(unsafe { &*page.cast::<AtomicU64>() })
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn wiped_page() -> Option<&'static AtomicU64> {
        None
    }

    fn wiped_by_handler() -> &'static AtomicU64 {
        static WORD: AtomicU64 = AtomicU64::new(0);
        extern "C" fn wipe() {
            WORD.store(0, Relaxed);
        }
        // SAFETY: the handler writes one word, which a signal handler may do as well.
        let registered = unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
        assert_eq!(registered, 0, "there is memory for a handler of forks");
        &WORD
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Returns what a child reads that was forked when the word was 7.
        fn in_child(word: &AtomicU64) -> i32 {
            word.store(7, Relaxed);
            // SAFETY: the child only reads a word and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let read = word.load(Relaxed);
                // SAFETY: it ends the child without running anything of the parent's.
                unsafe { libc::_exit(read as i32) };
            }
            let mut status = 0;
            // SAFETY: the child is ours, and the status is a local variable.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(word.load(Relaxed), 7, "the parent's stays");
            libc::WEXITSTATUS(status)
        }

        #[test]
        fn a_child_finds_the_word_wiped_in_either_way() {
            if let Some(word) = wiped_page() {
                assert_eq!(in_child(word), 0);
            }
            assert_eq!(in_child(wiped_by_handler()), 0);
        }
    }
}

#[cfg(any(loom, shuttle, miri))]
mod system {
    use crate::shim::unmodelled::AtomicU64;

    /// A model does not fork.
    pub(super) fn word() -> &'static AtomicU64 {
        static WORD: AtomicU64 = AtomicU64::new(0);
        &WORD
    }
}
