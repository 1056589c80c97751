//! Read-ahead of a scan: the leaves that it will need next.
//!
//! A scan that misses a leaf for the second time names the parent's next children too, and the pool
//! reads them with the missing one. The number doubles, up to 32 pages or an eighth of the pool.
//! Once the scan comes to the first of them, it names those that follow. So the page readers read
//! these while the scan takes the rows of those.
//!
//! At the last child of a parent it names the children of the next one. If that branch is not
//! resident, it is read ahead first, and the scan names its children at the next leaf that it comes
//! to.
//!
//! A leaf that was read ahead and is missing again was evicted before the scan came to it: memory
//! is scarce, and the number is halved. Leaves beyond the end of the range are not read.
//!
//! All of this is a hint. A wrong one costs a read.

use crate::paged::PageId;

/// Pages that the second miss reads ahead.
const FIRST_PAGES: usize = 2;

/// How far a scan reads ahead. The caller of [`scan`](super::TreeVisit::scan) keeps it between the
/// visits of one scan.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScanAhead {
    has_missed: bool,
    /// True if the scan has come to `trigger`.
    is_due: bool,
    /// Number of pages that were named last.
    pages: usize,
    /// Number of pages that were named and to which the scan has not come yet, about.
    unvisited: usize,
    /// First and last of the pages that were named last, in the order of the scan.
    trigger: Option<PageId>,
    last: Option<PageId>,
    /// True while the branch that has the next leaves is read ahead.
    awaits_branch: bool,
    /// Number of rows of a leaf, about; 0 if it is not known.
    rows: usize,
}

impl ScanAhead {
    /// Records that the scan came to a leaf from its parent.
    #[inline]
    pub(super) fn visit(&mut self, leaf: PageId) {
        self.unvisited = self.unvisited.saturating_sub(1);
        self.is_due |= self.awaits_branch || self.trigger == Some(leaf);
    }

    /// True if the scan has come to the first of the pages that were named last.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Returns the first and the last of the pages that were named last, once the scan has come to
    /// the first, or to any while a branch is awaited.
    pub(super) fn take_due(&mut self) -> Option<(PageId, PageId)> {
        (self.is_due, self.awaits_branch) = (false, false);
        let first = self.trigger.take().or(self.last);
        first.zip(self.last)
    }

    /// Records that the branch behind `last` is read ahead.
    pub(super) fn await_branch(&mut self, last: PageId) {
        self.awaits_branch = true;
        self.last = self.last.or(Some(last));
    }

    /// Number of pages to name.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    /// Number of leaves that have `rows` rows, about.
    pub(super) fn leaves_of(&self, rows: usize) -> usize {
        rows.div_ceil(self.rows.max(1))
    }

    /// Records the number of rows that were read of one leaf.
    #[inline]
    pub(super) fn record_rows(&mut self, rows: usize) {
        self.rows = self.rows.max(rows);
    }

    pub(super) fn double(&mut self, most: usize) {
        self.pages = (2 * self.pages).max(FIRST_PAGES).min(most);
    }

    /// Records that a leaf is missing, and begins anew.
    pub(super) fn miss(&mut self, most: usize) {
        if !self.has_missed {
            self.has_missed = true;
        } else if self.unvisited > 1 {
            self.pages /= 2;
        } else {
            self.double(most);
        }
        // The missing page itself is visited too.
        (self.unvisited, self.is_due, self.awaits_branch) = (1, false, false);
        (self.trigger, self.last) = (None, None);
    }

    /// Records pages that were named.
    pub(super) fn name(&mut self, pages: &[PageId]) {
        (self.trigger, self.last) = (pages.first().copied(), pages.last().copied());
        self.unvisited += pages.len();
    }
}
