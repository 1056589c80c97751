//! Loading: the pages that an attempt needs next are brought into frames together.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use foxton_sync::shim::{self, Ordering};
use foxton_sync::worker::Worker;
use smallvec::{SmallVec, smallvec};

use super::access::{PageView, PageWriter};
use super::error::PoolError;
use super::{BufferPool, PAGE_TRANSLATION, RETRY, read_buffers};
use crate::paged::PageId;
use crate::paged::frame::{Frame, FramePhase, PAGE_LATCH};
use crate::paged::page::{PageError, PageFault, PageKind};
use crate::paged::replace::PageClass;
use crate::paged::reserve::{FrameList, MAX_RESERVED};
use crate::paged::space::PageBuffer;

/// Purpose for which a page is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageUse {
    /// It may be used again.
    Read,
    /// A scan reads it once.
    ReadOnce,
    /// It is a new page, whose old content does not matter. If it is not resident, its frame is
    /// filled with zeros, and the caller formats it. If the caller does not, the zeros are evicted
    /// unwritten: no other page leads to them.
    Create,
}

/// A page that the next attempt needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRequest {
    /// The page.
    pub page: PageId,
    /// The purpose.
    pub purpose: PageUse,
}

impl PageRequest {
    /// Requests a page that may be used again.
    pub const fn read(page: PageId) -> PageRequest {
        PageRequest {
            page,
            purpose: PageUse::Read,
        }
    }

    /// Requests a new page.
    pub const fn create(page: PageId) -> PageRequest {
        PageRequest {
            page,
            purpose: PageUse::Create,
        }
    }
}

/// A page that stays in its frame until this is dropped.
pub struct FixedPage<'p> {
    pool: &'p BufferPool,
    index: usize,
    page: PageId,
}

/// The pages of an attempt, in the order in which they were requested. They stay in their frames
/// until this is dropped.
///
/// A thread drops its reservation before it requests another, or waits for anything else. Threads
/// that wait for frames get those of its pages from the frame provider.
pub struct PageReservation<'p> {
    pages: SmallVec<[FixedPage<'p>; MAX_RESERVED]>,
}

impl fmt::Debug for FixedPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FixedPage").field(&self.page).finish()
    }
}

impl fmt::Debug for PageReservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.pages).finish()
    }
}

impl<'p> FixedPage<'p> {
    /// For a thread that has fixed the frame `index`, which has `page`.
    pub(super) fn new(pool: &'p BufferPool, index: usize, page: PageId) -> FixedPage<'p> {
        FixedPage { pool, index, page }
    }

    fn frame(&self) -> &'p Frame {
        &self.pool.frames[self.index]
    }

    /// Returns the index of the frame.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Returns the name of the page.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Returns a view of the page, unless a thread changes it. Never waits.
    pub fn view(&self) -> Option<PageView<'p>> {
        self.pool.view(self.index, self.page)
    }

    /// Returns a view of the page, and waits while other threads have its latch.
    pub fn view_now(&self, worker: &Worker) -> PageView<'p> {
        loop {
            match self.view() {
                Some(view) => return view,
                None => self.await_latch(worker),
            }
        }
    }

    /// Waits until no thread changes the page, at some moment.
    pub fn await_latch(&self, worker: &Worker) {
        worker.account().passed(&PAGE_LATCH);
        let latch = self.frame().latch();
        latch.lock_shared(&self.pool.latch_waiters);
        latch.unlock_shared(&self.pool.latch_waiters);
    }

    /// Latches the page to change it. Parks while other threads have the latch.
    pub fn lock(&self, worker: &Worker) -> PageWriter<'p> {
        worker.account().passed(&PAGE_LATCH);
        self.frame().latch().lock(&self.pool.latch_waiters);
        PageWriter::new(self.pool, self.frame())
    }
}

impl Drop for FixedPage<'_> {
    fn drop(&mut self) {
        if self.frame().unfix() {
            // The page could not be loaded, and no thread wants it any more.
            self.pool.free.give(&mut smallvec![self.index]);
        }
    }
}

impl<'p> PageReservation<'p> {
    /// Returns the pages.
    pub fn pages(&self) -> &[FixedPage<'p>] {
        &self.pages
    }
}

impl Drop for PageReservation<'_> {
    fn drop(&mut self) {
        let Some(pool) = self.pages.first().map(|page| page.pool) else {
            return;
        };
        self.pages.clear();
        // Threads may wait for frames because these were fixed. A thread that begins to wait later
        // tries to evict them itself, after the mutex of the reserve that both pass.
        if pool.free.shortage() > 0 {
            pool.provider_wakeup.notify();
        }
    }
}

/// A reservation without its borrow of the pool. A task keeps one between two attempts.
pub struct DetachedReservation {
    pool: Arc<BufferPool>,
    pages: SmallVec<[(usize, PageId); MAX_RESERVED]>,
}

impl fmt::Debug for DetachedReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.pages).finish()
    }
}

impl PageReservation<'_> {
    /// Detaches the reservation from its borrow. `pool` is its pool.
    ///
    /// # Panics
    ///
    /// If it is another pool.
    pub fn detach(mut self, pool: &Arc<BufferPool>) -> DetachedReservation {
        let mut pages = SmallVec::new();
        for page in std::mem::take(&mut self.pages) {
            assert!(std::ptr::eq(page.pool, &**pool), "a page of another pool");
            pages.push((page.index, page.page));
            // The fix stays.
            std::mem::forget(page);
        }
        let pool = pool.clone();
        DetachedReservation { pool, pages }
    }
}

impl DetachedReservation {
    /// Attaches the reservation to a borrow of its pool.
    ///
    /// # Panics
    ///
    /// If it is another pool.
    pub fn attach(mut self, pool: &BufferPool) -> PageReservation<'_> {
        assert!(std::ptr::eq(pool, &*self.pool), "pages of another pool");
        attach(pool, &mut self.pages)
    }
}

impl Drop for DetachedReservation {
    fn drop(&mut self) {
        drop(attach(&self.pool, &mut self.pages));
    }
}

/// Returns the reservation of fixed pages, and leaves `pages` empty.
fn attach<'p>(
    pool: &'p BufferPool,
    pages: &mut SmallVec<[(usize, PageId); MAX_RESERVED]>,
) -> PageReservation<'p> {
    let fixed = |(index, page)| FixedPage { pool, index, page };
    let pages = pages.drain(..).map(fixed).collect();
    PageReservation { pages }
}

/// A page on its way into a frame.
pub(super) enum PageClaim<'p> {
    /// It is resident, or another thread loads it.
    Found(FixedPage<'p>),
    /// This thread loads it, and holds its latch alone.
    Loading(FixedPage<'p>),
}

impl BufferPool {
    /// Brings all requested pages into frames, reads those that are missing, and keeps them there.
    /// Waits for frames, for the device, and for other threads that read the same pages. The caller
    /// holds no latch and no other reservation.
    ///
    /// # Errors
    ///
    /// If a page cannot be read, or no page can be evicted because none can be written. Nothing
    /// stays fixed.
    ///
    /// # Panics
    ///
    /// If no page is requested, or more than six.
    pub fn reserve<'p>(
        &'p self,
        worker: &Worker,
        requests: &[PageRequest],
    ) -> Result<PageReservation<'p>, PoolError> {
        self.reserve_ahead(worker, requests, &[])
    }

    /// As [`reserve`](Self::reserve). If the last of the pages is missing, pages of `ahead` are
    /// read too, as far as frames are free: the caller will probably need them next. They are not
    /// kept in their frames. Those that cannot be read are no error.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve), of the requested pages.
    ///
    /// # Panics
    ///
    /// If no page is requested, or more than six.
    pub fn reserve_ahead<'p>(
        &'p self,
        worker: &Worker,
        requests: &[PageRequest],
        ahead: &[PageId],
    ) -> Result<PageReservation<'p>, PoolError> {
        let count = requests.len();
        assert!((1..=MAX_RESERVED).contains(&count), "one to six pages");
        let mut resident = self.resident_pages(worker, requests);
        let missing = resident.iter().filter(|page| page.is_none()).count();
        if missing == 0 {
            let pages = resident.into_iter().flatten().collect();
            return Ok(PageReservation { pages });
        }
        let mut frames = match self.try_take_frames(worker, missing) {
            Some(frames) => frames,
            None => {
                resident.iter_mut().for_each(|page| *page = None);
                self.take_frames(worker, count)?
            }
        };
        loop {
            let attempt = self.load_all(worker, (requests, ahead), &mut resident, &mut frames);
            self.give_frames(worker, &mut frames);
            if let Some(pages) = attempt.transpose() {
                return pages.map(|pages| PageReservation { pages });
            }
            // Another thread failed to load one of the pages. This one tries it itself, with frames
            // for all pages, because it used some, and kept none of the pages.
            frames = self.take_frames(worker, count)?;
        }
    }

    /// Fixes those of the pages that are resident.
    fn resident_pages<'p>(
        &'p self,
        worker: &Worker,
        requests: &[PageRequest],
    ) -> SmallVec<[Option<FixedPage<'p>>; MAX_RESERVED]> {
        let fixed = |request: &PageRequest| self.try_fix(worker, request.page);
        requests.iter().map(fixed).collect()
    }

    /// Fixes a resident page. Never waits.
    fn try_fix(&self, worker: &Worker, page: PageId) -> Option<FixedPage<'_>> {
        let index = self
            .table
            .lookup(page, |index| self.frames[index].has(page))?;
        self.count_fix(worker);
        self.frames[index].fix()?;
        let fixed = FixedPage {
            pool: self,
            index,
            page,
        };
        self.frames[index].has(page).then_some(fixed)
    }

    /// Fixes a page that is resident. Waits for its home bucket alone, and finds it surely.
    pub(super) fn fix_resident(&self, worker: &Worker, page: PageId) -> Option<FixedPage<'_>> {
        worker.account().passed(&PAGE_TRANSLATION);
        // Under the latch of the home bucket a page that is resident is found.
        let home = self.table.latch_home(page);
        let index = home.lookup(|index| self.frames[index].page() == Some(page))?;
        self.count_fix(worker);
        self.frames[index].fix()?;
        drop(home);
        Some(FixedPage::new(self, index, page))
    }

    /// Takes `count` free frames, if there are so many. Never waits.
    fn try_take_frames(&self, worker: &Worker, count: usize) -> Option<FrameList> {
        let frames = self.free_frames(worker).try_take(count)?;
        if self.free.count() < self.reserve_target() {
            self.provider_wakeup.notify();
        }
        Some(frames)
    }

    /// Gives back the frames that are left, if any.
    fn give_frames(&self, worker: &Worker, frames: &mut FrameList) {
        if !frames.is_empty() {
            self.free_frames(worker).give(frames);
        }
    }

    /// Takes `count` free frames. Waits without a latch and without a fix.
    fn take_frames(&self, worker: &Worker, count: usize) -> Result<FrameList, PoolError> {
        if let Some(frames) = self.try_take_frames(worker, count) {
            return Ok(frames);
        }
        self.provider_wakeup.notify();
        let wait = self.free_frames(worker).enqueue(count);
        #[cfg(test)]
        let mut retries = 0;
        loop {
            #[cfg(test)]
            crate::paged::stall::count_retry(&mut retries);
            self.serve_waiters(worker);
            if let Some(frames) = self.free.wait(&wait, Some(Instant::now() + RETRY)) {
                return Ok(frames);
            }
            // If nothing is written any more, no dirty page becomes clean.
            let clean = self.frame_limit().saturating_sub(self.dirty_count());
            if let Some(failure) = self.failure().filter(|_| clean < count) {
                self.free_frames(worker).cancel(&wait);
                return Err(failure.into());
            }
        }
    }

    /// Loads the pages that are not `resident`, and takes those. `Ok(None)`: another thread failed
    /// to load one of them.
    fn load_all<'p>(
        &'p self,
        worker: &Worker,
        (requests, ahead): (&[PageRequest], &[PageId]),
        resident: &mut [Option<FixedPage<'p>>],
        frames: &mut FrameList,
    ) -> Result<Option<SmallVec<[FixedPage<'p>; MAX_RESERVED]>>, PoolError> {
        let mut claims = SmallVec::<[PageClaim<'p>; MAX_RESERVED]>::new();
        for (request, resident) in requests.iter().zip(resident) {
            claims.push(match resident.take() {
                Some(fixed) => PageClaim::Found(fixed),
                None => self.claim(worker, request.page, frames),
            });
        }
        // Own loads first, all of them: other threads may wait for any (I3).
        let mut run = match (claims.last(), requests.last()) {
            (Some(PageClaim::Loading(fixed)), Some(request)) if !ahead.is_empty() => {
                self.claim_ahead(worker, ahead, request.purpose, Some(fixed.page))
            }
            _ => None,
        };
        let mut failure = None;
        // The last page has the run.
        for (claim, request) in claims.iter().zip(requests).rev() {
            if let PageClaim::Loading(fixed) = claim {
                let loaded = match run.take() {
                    Some(run) => self.load_with_run(worker, fixed, request.purpose, run),
                    None => self.load(worker, fixed, request.purpose),
                };
                failure = failure.or(loaded.err());
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let mut pages = SmallVec::new();
        for claim in claims {
            let fixed = match claim {
                PageClaim::Loading(fixed) => fixed,
                PageClaim::Found(fixed) => {
                    self.await_load(worker, fixed.frame());
                    if fixed.frame().phase() == FramePhase::Failed {
                        return Ok(None);
                    }
                    fixed
                }
            };
            pages.push(fixed);
        }
        Ok(Some(pages))
    }

    /// Fixes the page, or makes one of `frames` its frame.
    pub(super) fn claim<'p>(
        &'p self,
        worker: &Worker,
        page: PageId,
        frames: &mut FrameList,
    ) -> PageClaim<'p> {
        let index = *frames.last().expect("a frame for each page");
        let frame = &self.frames[index];
        worker.account().passed(&PAGE_LATCH);
        // No thread keeps the latch of a free frame: it finds no page.
        frame.latch().lock(&self.latch_waiters);
        worker.account().passed(&PAGE_TRANSLATION);
        let home = self.table.latch_home(page);
        let is_it = |index: usize| self.frames[index].page() == Some(page);
        if let Some(found) = home.lookup(is_it) {
            self.count_fix(worker);
            // The frame is not emptied while its home bucket is latched (I1).
            let phase = self.frames[found].fix();
            assert!(phase.is_some(), "a page with an entry is in its frame");
            drop(home);
            frame.latch().unlock_unchanged(&self.latch_waiters);
            return PageClaim::Found(FixedPage {
                pool: self,
                index: found,
                page,
            });
        }
        frames.pop();
        frame.begin_load(page);
        home.insert(index);
        drop(home);
        PageClaim::Loading(FixedPage {
            pool: self,
            index,
            page,
        })
    }

    /// Reads the page of a claim, checks it, copies it into its frame, and releases the latch.
    pub(super) fn load(
        &self,
        worker: &Worker,
        fixed: &FixedPage<'_>,
        purpose: PageUse,
    ) -> Result<(), PoolError> {
        let mut buffer = self.take_buffer();
        let loaded = match purpose {
            PageUse::Create => {
                buffer.bytes_mut().fill(0);
                Ok(())
            }
            PageUse::Read | PageUse::ReadOnce => self.read(fixed.page, &mut buffer),
        };
        let loaded = loaded.and_then(|()| self.finish_load(worker, fixed, purpose, buffer.bytes()));
        if loaded.is_err() {
            self.fail_load(worker, fixed);
        }
        self.return_buffer(buffer);
        loaded
    }

    /// Copies the image of a claimed page into its frame, and releases the latch. Refuses an image
    /// that is older than what the eviction history remembers, or ahead of the log: no page is
    /// written before the log is durable up to its LSN. The claim is then as before.
    pub(super) fn finish_load(
        &self,
        worker: &Worker,
        fixed: &FixedPage<'_>,
        purpose: PageUse,
        image: &[u8],
    ) -> Result<(), PoolError> {
        let (frame, page) = (fixed.frame(), fixed.page);
        let content = crate::paged::page::SlottedPage::new(image);
        let (found, is_read) = (content.lsn(), purpose != PageUse::Create);
        if is_read {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        // Behind the read: the log may have grown since the page was written.
        let end = self.log.end(worker);
        // The file grows by maps that no batch writes.
        let ahead = match (is_read, content.kind()) {
            (true, kind) if kind != Some(PageKind::SpaceMap) => {
                self.written.end_before(page, found)
            }
            _ => None,
        };
        let class = match (purpose, content.kind()) {
            (PageUse::ReadOnce, _) => PageClass::ReadOnce,
            (_, Some(PageKind::Branch)) => PageClass::Branch,
            _ => PageClass::Normal,
        };
        self.replacement(worker, |replacement| {
            let fault = match replacement.evicted_at(page) {
                _ if !is_read => None,
                Some(written) if found < written => Some(PageFault::Stale { found, written }),
                _ if found > end => Some(PageFault::AheadOfLog { found, end }),
                _ => ahead.map(|end| PageFault::AheadOfLog { found, end }),
            };
            if let Some(fault) = fault {
                return Err(PoolError::Damaged(PageError { page, fault }));
            }
            replacement.admit(fixed.index, page, class);
            Ok(())
        })?;
        frame.copy_from(image);
        frame.end_load();
        frame.latch().unlock(&self.latch_waiters);
        Ok(())
    }

    /// Gives up a claim whose page could not be loaded.
    pub(super) fn fail_load(&self, worker: &Worker, fixed: &FixedPage<'_>) {
        let frame = fixed.frame();
        worker.account().passed(&PAGE_TRANSLATION);
        let home = self.table.latch_home(fixed.page);
        home.remove(fixed.index);
        frame.fail_load();
        drop(home);
        frame.latch().unlock(&self.latch_waiters);
    }

    /// Reads the page and checks its bytes.
    fn read(&self, page: PageId, buffer: &mut PageBuffer) -> Result<(), PoolError> {
        self.file.read(page, buffer).map_err(PoolError::of_read)
    }

    /// Checks the bytes of a page that was read with others.
    pub(super) fn check_image(&self, page: PageId, image: &mut [u8]) -> Result<(), PoolError> {
        self.file.check(page, image).map_err(PoolError::of_read)
    }

    /// Waits until the page of a frame is loaded. The thread that loads it holds the latch.
    fn await_load(&self, worker: &Worker, frame: &Frame) {
        while frame.phase() == FramePhase::Loading {
            worker.account().passed(&PAGE_LATCH);
            frame.latch().lock_shared(&self.latch_waiters);
            frame.latch().unlock_shared(&self.latch_waiters);
        }
    }

    pub(super) fn take_buffer(&self) -> PageBuffer {
        // Site: "free frames", passed on the way.
        let buffer = shim::lock(&self.buffers).pop();
        buffer.unwrap_or_else(|| self.file.buffer(1))
    }

    pub(super) fn return_buffer(&self, buffer: PageBuffer) {
        // Site: "free frames", passed on the way.
        let mut buffers = shim::lock(&self.buffers);
        if buffers.len() < read_buffers(self.frames.len()) {
            buffers.push(buffer);
        }
    }
}
