//! Access to resident pages: optimistic views, and writers under the latch.

use foxton_log::Lsn;
use foxton_sync::worker::Worker;

use super::BufferPool;
use crate::failpoint;
use crate::paged::PageId;
use crate::paged::frame::{Frame, FrameLoad, FrameWords, FrameWordsMut, PAGE_LATCH, PageVersion};
use crate::paged::page::SlottedPage;
use crate::paged::page_log::LoggedChange;

/// A resident page as an optimistic reader sees it: no latch, no fix, nothing written.
///
/// Everything that was read may be half of a change, or another page's, until
/// [`is_valid`](Self::is_valid) returns true *after* the reading.
#[derive(Debug, Clone, Copy)]
pub struct PageView<'p> {
    pool: &'p BufferPool,
    frame: &'p Frame,
    index: usize,
    page: PageId,
    version: PageVersion,
}

/// Reason why there is no view of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageAbsence {
    /// It is not resident, or other threads load or evict it.
    Missing,
    /// A thread changes it.
    Busy,
}

/// A version of a page that a reader has seen, to be compared later.
#[derive(Debug, Clone, Copy)]
pub struct SeenPage {
    page: PageId,
    lsn: Lsn,
    index: usize,
    version: PageVersion,
}

/// A page, and the frame that it was in: it is probably found there again.
#[derive(Debug, Clone, Copy)]
pub struct PageHint {
    page: PageId,
    index: usize,
}

impl SeenPage {
    /// Returns the name of the page.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Returns its LSN.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }
}

impl<'p> PageView<'p> {
    /// Returns the name of the page.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Returns the index of the frame.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Returns what finds the page again.
    #[inline]
    pub fn hint(&self) -> PageHint {
        PageHint {
            page: self.page,
            index: self.index,
        }
    }

    /// Returns the load of the frame, which is the page's once the view was validated.
    #[inline]
    pub fn load(&self) -> FrameLoad {
        self.frame.load()
    }

    /// True if the page was recorded as checked since it was loaded, once the view was validated.
    #[inline]
    pub fn is_checked(&self) -> bool {
        self.frame.is_checked()
    }

    /// Records that the page was checked. The view was validated after the check, and after `load`
    /// was read.
    pub fn record_checked(&self, load: FrameLoad) {
        self.frame.record_checked(load);
    }

    /// Counts a use of the page.
    #[inline]
    pub fn record_use(&self) {
        self.frame.record_use();
    }

    /// Returns what a later comparison needs. The view was validated.
    pub fn seen(&self) -> SeenPage {
        SeenPage {
            page: self.page,
            lsn: self.read().lsn(),
            index: self.index,
            version: self.version,
        }
    }

    /// Returns the content, to read.
    #[inline]
    pub fn read(&self) -> SlottedPage<FrameWords<'p>> {
        self.frame.read()
    }

    /// True if the page is dirty, just now.
    #[inline]
    pub fn is_dirty(&self) -> bool {
        self.frame.is_dirty()
    }

    /// True if the page is in its frame and has not changed since the view was made.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.frame.latch().unchanged_since(self.version)
    }

    /// Latches the page to change it, if it has not changed and no other thread has the latch.
    /// Never waits.
    pub fn try_lock(&self, worker: &Worker) -> Option<PageWriter<'p>> {
        worker.account().passed(&PAGE_LATCH);
        let latched = self.frame.latch().try_lock_at(self.version);
        latched.then(|| PageWriter::new(self.pool, self.frame))
    }
}

impl BufferPool {
    /// Returns a view of `page` if it is resident and no thread changes it. Never waits and counts
    /// a use. `None` may be wrong while other threads load or evict pages.
    #[inline]
    pub fn page(&self, page: PageId) -> Option<PageView<'_>> {
        let view = self.page_once(page)?;
        view.record_use();
        Some(view)
    }

    /// As [`page`](Self::page), for scans: it counts no use.
    #[inline]
    pub fn page_once(&self, page: PageId) -> Option<PageView<'_>> {
        self.find(page).ok()
    }

    /// As [`page_once`](Self::page_once), with the reason why there is no view.
    ///
    /// # Errors
    ///
    /// If the page is missing or busy, just now.
    #[inline]
    pub fn find(&self, page: PageId) -> Result<PageView<'_>, PageAbsence> {
        let found = self
            .table
            .lookup(page, |index| self.frames[index].has(page));
        let index = found.ok_or(PageAbsence::Missing)?;
        self.view(index, page).ok_or(PageAbsence::Busy)
    }

    /// Returns a view of the page of a hint, if it is in the same frame and no thread changes it.
    #[inline]
    pub fn hinted(&self, hint: PageHint) -> Option<PageView<'_>> {
        self.view(hint.index, hint.page)
    }

    /// Returns a view of some page that may be the leaf of `key`. The caller compares table, kind,
    /// level and fences.
    #[inline]
    pub fn hinted_leaf(&self, table: u64, key: &[u8]) -> Option<PageView<'_>> {
        let index = self.leaf_hints.get(table, key)?;
        let frame = self.frames.get(index)?;
        let version = frame.latch().version()?;
        // Read after the version, so that validation covers it.
        let page = frame.page()?;
        Some(PageView {
            pool: self,
            frame,
            index,
            page,
            version,
        })
    }

    /// Records that `leaf` is the leaf of `key`.
    #[inline]
    pub fn hint_leaf(&self, table: u64, key: &[u8], leaf: &PageView<'_>) {
        self.leaf_hints.set(table, key, leaf.index);
    }

    /// Returns a view of `page`, the child in slot `slot` of `branch`. The frame is found by the
    /// hint that is kept beside the frame of the branch, or else by the translation table.
    ///
    /// # Errors
    ///
    /// If the page is missing or busy, just now.
    #[inline]
    pub fn child(
        &self,
        worker: &Worker,
        branch: &PageView<'_>,
        slot: usize,
        page: PageId,
    ) -> Result<PageView<'_>, PageAbsence> {
        let hint = self.hints.get(branch.index(), slot);
        if let Some(view) = hint.and_then(|index| self.view(index, page)) {
            return Ok(view);
        }
        if worker.failpoints().misbehaves(&failpoint::HINT_TRUSTED)
            && let Some((frame, index)) = hint.and_then(|at| Some((self.frames.get(at)?, at)))
            && let Some(version) = frame.latch().version()
        {
            let pool = self;
            // Once, so that a search that notices does not begin again for ever.
            self.hints.set(branch.index(), slot, self.frames.len());
            return Ok(PageView {
                pool,
                frame,
                index,
                page,
                version,
            });
        }
        let view = self.find(page)?;
        self.hints.set(branch.index(), slot, view.index());
        Ok(view)
    }

    /// True if the page is as it was seen, just now: not changed since, and not being changed.
    /// `false` means nothing: the page may have been evicted.
    ///
    /// A page that was evicted and read again is compared by its LSN, which only grows.
    pub fn is_unchanged(&self, seen: &SeenPage) -> bool {
        let frame = &self.frames[seen.index];
        if frame.has(seen.page) && frame.latch().unchanged_since(seen.version) {
            return true;
        }
        self.find(seen.page)
            .is_ok_and(|view| view.read().lsn() == seen.lsn && view.is_valid())
    }

    /// Returns a view of `page` if it is in the frame `index`, which may be any.
    #[inline]
    pub(super) fn view(&self, index: usize, page: PageId) -> Option<PageView<'_>> {
        let frame = self.frames.get(index)?;
        let version = frame.latch().version()?;
        // Read after the version, so that validation covers it.
        frame.has(page).then_some(PageView {
            pool: self,
            frame,
            index,
            page,
            version,
        })
    }
}

/// A page whose latch this thread holds alone, until this is dropped.
#[derive(Debug)]
pub struct PageWriter<'p> {
    pool: &'p BufferPool,
    frame: &'p Frame,
    is_changed: bool,
}

impl<'p> PageWriter<'p> {
    /// For a thread that holds the latch of `frame` alone.
    pub(super) fn new(pool: &'p BufferPool, frame: &'p Frame) -> Self {
        PageWriter {
            pool,
            frame,
            is_changed: false,
        }
    }

    /// Returns the name of the page.
    pub fn page(&self) -> PageId {
        // A frame whose latch is held keeps its page.
        self.frame.page().expect("a latched frame has a page")
    }

    /// Returns the content, to read.
    pub fn read(&self) -> SlottedPage<FrameWords<'_>> {
        self.frame.read()
    }

    /// Copies the page into `image`.
    pub(super) fn copy_to(&self, image: &mut [u8]) {
        self.frame.copy_to(image);
    }

    /// Returns where redo of the page begins; `None` if the page is clean.
    pub(super) fn recovery_lsn(&self) -> Option<Lsn> {
        self.frame.recovery_lsn()
    }

    /// Makes the page the one of `image`, which is durable in the file. The page stays clean.
    ///
    /// # Panics
    ///
    /// If it is dirty.
    pub(super) fn renew(&mut self, image: &[u8]) {
        assert!(!self.frame.is_dirty(), "a page without changes");
        self.is_changed = true;
        self.frame.copy_from(image);
    }

    /// Makes a change that was logged, and stamps the page with the end of its record. The page is
    /// dirty then.
    ///
    /// # Panics
    ///
    /// If the record does not end behind the page's LSN: LSNs of a page only grow.
    pub fn change<R>(
        &mut self,
        logged: LoggedChange,
        change: impl FnOnce(&mut SlottedPage<FrameWordsMut<'_>>) -> R,
    ) -> R {
        let mut page = self.frame.write();
        assert!(page.lsn() < logged.end, "a page's LSN only grows");
        self.is_changed = true;
        if !self.frame.is_dirty() {
            let before = self.frame.set_recovery_lsn(Some(logged.begin));
            self.pool.count_dirty(before, Some(logged.begin));
        }
        let result = change(&mut page);
        page.set_lsn(logged.end);
        result
    }
}

impl Drop for PageWriter<'_> {
    fn drop(&mut self) {
        let (latch, waiters) = (self.frame.latch(), &self.pool.latch_waiters);
        match self.is_changed {
            true => latch.unlock(waiters),
            false => latch.unlock_unchanged(waiters),
        }
    }
}
