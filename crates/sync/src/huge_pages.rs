//! Large pages for memory that has filled up and stays.
//!
//! A table larger than the caches is read by jumping through it, and with pages of four kibibytes nearly
//! every jump misses the translation buffer as well as the cache. Systems back memory with pages of two
//! mebibytes where they are asked to, but an allocator's memory grows in small steps and asks for
//! nothing. So whoever has filled a stretch of memory says so here, and the system moves what lies in it
//! into one large page (`MADV_COLLAPSE`, Linux 6.1).
//!
//! It changes no content and no address, so it needs no care from anybody else who has memory there; it
//! costs a copy, and should be done by a thread that nobody waits for.

/// Bytes of a large page.
pub const PAGE_BYTES: usize = 2 << 20;

/// The number of the large page that `address` lies in, or would.
#[inline]
pub const fn page_of(address: usize) -> usize {
    address / PAGE_BYTES
}

/// Asks the system to back the page numbered `page` by one large page, and says whether it did. It does
/// not where it cannot, where part of the page is not in use, or where it is told not to.
pub fn promote(page: usize) -> bool {
    page.checked_mul(PAGE_BYTES).is_some_and(system::collapse)
}

#[cfg(all(target_os = "linux", not(any(loom, miri))))]
mod system {
    use super::PAGE_BYTES;

    pub(super) fn collapse(start: usize) -> bool {
        let start = std::ptr::without_provenance_mut(start);
        // SAFETY: this advice changes neither content nor mapping of any address, in use or not; what
        // is not mapped is an error.
        unsafe { libc::madvise(start, PAGE_BYTES, libc::MADV_COLLAPSE) == 0 }
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, miri)))))]
mod system {
    pub(super) fn collapse(_start: usize) -> bool {
        false
    }
}

/// Notices when a stretch of memory has filled up, for one who allocates from it.
///
/// Allocators give memory to a thread from one place for a while. When it comes from another page than
/// before, and much of the page before was filled, that page is full, as far as this thread can know.
///
/// ```
/// use foxton_sync::huge_pages::{RegionTracker, PAGE_BYTES, page_of};
///
/// let mut tracker = RegionTracker::default();
/// let start = 7 * PAGE_BYTES;
/// assert_eq!(tracker.record(start, PAGE_BYTES / 2), None);
/// assert_eq!(tracker.record(start + PAGE_BYTES, 100), Some(7));
/// assert_eq!(tracker.record(start, 100), None, "little was put into the page before");
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct RegionTracker {
    page: usize,
    bytes: usize,
}

impl RegionTracker {
    /// Notes that `bytes` at `address` came to be used and will be for long. Returns the page that is
    /// full, if this was the first beyond it.
    #[inline]
    pub fn record(&mut self, address: usize, bytes: usize) -> Option<usize> {
        let before = *self;
        let page = page_of(address);
        if page == before.page {
            self.bytes += bytes;
            return None;
        }
        *self = Self { page, bytes };
        (before.bytes >= PAGE_BYTES / 2).then_some(before.page)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn promotion_keeps_the_content_of_a_page() {
        let mut bytes = vec![0u8; 3 * PAGE_BYTES];
        bytes
            .iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = at as u8);
        let first = page_of(bytes.as_ptr().addr() + PAGE_BYTES - 1);
        // Whether the system does it is not for us to say.
        println!("gathered: {}", promote(first));
        assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == at as u8));
    }

    #[test]
    fn any_page_number_may_be_asked_for() {
        for page in [0, 1, usize::MAX / PAGE_BYTES, usize::MAX] {
            assert!(!promote(page));
        }
    }
}
