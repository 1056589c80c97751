//! Large pages for memory that has filled up and stays.
//!
//! A table larger than the caches is read at random, and with pages of four kibibytes nearly every
//! read misses the translation buffer as well as the cache. Systems back memory with pages of two
//! mebibytes on request, but an allocator's memory grows in small steps and requests nothing. So a
//! caller that has filled a region of memory promotes it here: the system moves its content into
//! one large page (`MADV_COLLAPSE`, Linux 6.1).
//!
//! Promotion changes no content and no address, so other users of that memory need no care. It
//! costs a copy, and should run in a thread that no other waits for.

/// Bytes of a large page.
pub const PAGE_BYTES: usize = 2 << 20;

/// Returns the number of the large page that contains `address`, or would.
#[inline]
pub const fn page_of(address: usize) -> usize {
    address / PAGE_BYTES
}

/// Asks the system to back the page numbered `page` by one large page; returns whether it did. It
/// does not where it cannot, where part of the page is unused, or where it is configured not to.
pub fn promote(page: usize) -> bool {
    page.checked_mul(PAGE_BYTES).is_some_and(system::collapse)
}

#[cfg(all(target_os = "linux", not(any(loom, miri))))]
mod system {
    use super::PAGE_BYTES;

    pub(super) fn collapse(start: usize) -> bool {
        let start = std::ptr::without_provenance_mut(start);
        // SAFETY: this advice changes neither content nor mapping of any address, in use or not; an
        // unmapped page is an error.
        unsafe { libc::madvise(start, PAGE_BYTES, libc::MADV_COLLAPSE) == 0 }
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, miri)))))]
mod system {
    pub(super) fn collapse(_start: usize) -> bool {
        false
    }
}

/// Notices when a region of memory has filled up, for one caller that allocates from it.
///
/// Allocators give a thread memory from one region for a while. When memory comes from another page
/// than before, and much of the page before was filled, that page is full, as far as this thread
/// can know.
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
    /// Records that `bytes` at `address` are used now and will be for long. Returns the page that
    /// is full, if this is the first address beyond it.
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
        // The system may or may not do it.
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
