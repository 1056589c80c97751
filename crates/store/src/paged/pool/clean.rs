//! Page cleaner: writes dirty pages, syncs the file, and only then marks them clean.
//!
//! ```text
//!   clean -- first change --> dirty          recovery LSN = begin of that change's record
//!   dirty -- copy at LSN c, write --> dirty  nothing moves: the write may be lost
//!         -- sync returned --> clean         if the page's LSN still is c
//!         -- sync returned --> dirty         if not: recovery LSN = c
//! ```
//!
//! A batch is first written to slots of the doublewrite buffer, if the pool has one, and synced
//! there. Then its pages are written in their places, and the page file is synced. A batch fills
//! all slots unless threads wait for frames, because the time of two syncs and of a wait for the
//! log does not depend on the number of pages.
//!
//! A copy is made without a latch and validated. After a few failures the cleaner shares the latch.
//! It never waits for a latch: a page that is busy stays dirty until a later batch.

use foxton_log::Lsn;
use foxton_sync::backoff::Backoff;
use foxton_sync::shim::{self, Ordering};
use foxton_sync::worker::Worker;

use super::BufferPool;
use super::error::{PoolError, WriteFailure};
use super::place_writes::write_places;
use super::written::WrittenPages;
use crate::failpoint;
use crate::paged::PageId;
use crate::paged::frame::{Frame, PAGE_LATCH};
use crate::paged::page::{SlottedPage, seal};
use crate::paged::space::{
    DOUBLEWRITE_PAGES, DOUBLEWRITE_SLOTS, DoublewriteBuffer, PageBuffer, PageFile,
};

/// Maximum number of pages that are written before threads that wait for frames get some.
pub const CLEAN_BATCH: usize = DOUBLEWRITE_PAGES;

/// Maximum number of pages in a batch of a pool with that maximum of frames. Copies of a batch take
/// a sixty-fourth of the memory, unless the pool is small.
pub(super) fn largest_batch(maximum: usize) -> usize {
    let all_slots = DOUBLEWRITE_SLOTS * DOUBLEWRITE_PAGES;
    all_slots.min(maximum / 64).max(CLEAN_BATCH.min(maximum))
}

/// Copies without a latch before the latch is shared.
const OPTIMISTIC_COPIES: usize = 3;

/// The cleaner's own: one thread at a time has it.
#[derive(Debug)]
pub(super) struct CleanerState {
    /// For the copies of a batch.
    buffer: PageBuffer,
    /// Maximum number of pages in a batch.
    batch_pages: usize,
    /// Maximum number of them in a slot.
    slot_pages: usize,
    doublewrite: Option<DoublewriteBuffer>,
    /// Frame at which the search for dirty pages goes on.
    hand: usize,
}

impl CleanerState {
    pub(super) fn new(file: &PageFile, frames: usize) -> Self {
        let batch_pages = largest_batch(frames);
        Self {
            buffer: file.buffer(batch_pages),
            batch_pages,
            slot_pages: CLEAN_BATCH.min(frames),
            doublewrite: None,
            hand: 0,
        }
    }
}

/// A page of a batch.
#[derive(Debug, Clone, Copy)]
struct BatchPage {
    page: PageId,
    index: usize,
    /// LSN of the copy.
    lsn: Lsn,
}

impl BufferPool {
    /// Protects pages from being torn: each batch is written to `doublewrite` first.
    #[must_use]
    pub fn with_doublewrite(self, doublewrite: DoublewriteBuffer) -> BufferPool {
        // Site: "page latch": once, before the pool is used.
        shim::lock(&self.cleaning).doublewrite = Some(doublewrite);
        self
    }

    /// Refuses pages of the file with changes behind `log_end`, the end of the log when the file
    /// was opened. Called before a page is loaded or written.
    #[must_use]
    pub fn with_log_end(mut self, log_end: Lsn) -> BufferPool {
        self.written = WrittenPages::since(log_end);
        self
    }

    /// Writes at most `pages` pages to a slot, at least one and at most [`CLEAN_BATCH`]. For tests,
    /// because a batch of a small pool has all of its pages, and a slot takes them.
    pub fn limit_batches(&self, pages: usize) {
        // Site: "page latch", passed for each page.
        let state = &mut *shim::lock(&self.cleaning);
        state.slot_pages = pages.clamp(1, state.slot_pages);
        state.batch_pages = state.batch_pages.min(DOUBLEWRITE_SLOTS * state.slot_pages);
    }

    /// Writes up to [`CLEAN_BATCH`] dirty pages in the order of their numbers, neighbours in one
    /// write, syncs the file, and marks as clean those that have not changed meanwhile. Returns the
    /// number of pages written. Threads that wait for frames get those of clean pages.
    ///
    /// # Errors
    ///
    /// If the log, a write or the sync fails, now or earlier. All pages of the batch stay dirty,
    /// and nothing is written any more.
    pub fn clean_batch(&self, worker: &Worker) -> Result<usize, PoolError> {
        self.clean_slots(worker, 1)
    }

    /// As [`clean_batch`](Self::clean_batch), with as many pages as `slots` slots take.
    pub(super) fn clean_slots(&self, worker: &Worker, slots: usize) -> Result<usize, PoolError> {
        let cleaned = self.clean_once(worker, slots);
        self.serve_dirty_waiters(worker);
        cleaned
    }

    fn clean_once(&self, worker: &Worker, slots: usize) -> Result<usize, PoolError> {
        // Site: "page latch", passed for each page.
        let mut state = shim::lock(&self.cleaning);
        if let Some(failure) = self.failure() {
            return Err(failure.into());
        }
        let batch = self.dirty_pages(&mut state, slots);
        let batch = self.copy_batch(worker, &mut state, batch);
        if batch.is_empty() {
            return Ok(0);
        }
        if let Err(failure) = self.write_batch(worker, &state, &batch) {
            return Err(self.fail(failure).into());
        }
        worker.failpoints().pass(&failpoint::PAGES_WRITTEN);
        if !worker.failpoints().misbehaves(&failpoint::CLEAN_UNSYNCED)
            && let Err(error) = self.file.sync()
        {
            return Err(self.fail(error.into()).into());
        }
        if let Some(doublewrite) = &state.doublewrite {
            // The whole batch was written in its places before the sync began.
            doublewrite.release();
        }
        self.writes.fetch_add(batch.len() as u64, Ordering::Relaxed);
        for page in &batch {
            self.mark_durable(worker, *page);
        }
        drop(state);
        self.empty_surplus(worker);
        self.serve_waiters(worker);
        Ok(batch.len())
    }

    /// Copies the pages of a batch, in the order of their numbers, and seals the copies. Those that
    /// change all the time are left out.
    fn copy_batch(
        &self,
        worker: &Worker,
        state: &mut CleanerState,
        mut batch: Vec<BatchPage>,
    ) -> Vec<BatchPage> {
        batch.sort_unstable_by_key(|page| page.page);
        let size = self.page_size().bytes();
        let mut copied = Vec::with_capacity(batch.len());
        for page in batch {
            let begin = copied.len() * size;
            let image = &mut state.buffer.bytes_mut()[begin..begin + size];
            if let Some(lsn) = self.copy(worker, &self.frames[page.index], page.page, image) {
                seal(image, &self.file.identity());
                copied.push(BatchPage { lsn, ..page });
            }
        }
        copied
    }

    /// Writes all dirty pages. Pages that change meanwhile may stay dirty.
    ///
    /// # Errors
    ///
    /// As [`clean_batch`](Self::clean_batch).
    pub fn clean_all(&self, worker: &Worker) -> Result<(), PoolError> {
        let mut rest = self.dirty_count();
        while rest > 0 {
            let cleaned = self.clean_slots(worker, DOUBLEWRITE_SLOTS)?;
            if cleaned == 0 {
                return Ok(());
            }
            rest = rest.saturating_sub(cleaned);
        }
        Ok(())
    }

    /// Returns where redo must begin for `page` to reach its present state, or `None` if it is
    /// durable. Each change that was logged before the call is regarded. Waits for threads that
    /// change or load the page; the caller holds no latch.
    pub fn recovery_lsn(&self, worker: &Worker, page: PageId) -> Option<Lsn> {
        // One that is not resident was clean when it was evicted.
        let fixed = self.fix_resident(worker, page)?;
        // A thread that has logged a change holds the latch until the change is made.
        let writer = fixed.lock(worker);
        writer.recovery_lsn()
    }

    /// Returns the first failed write or sync.
    pub(super) fn failure(&self) -> Option<WriteFailure> {
        // Site: "page latch", passed on the way.
        shim::lock(&self.failure).clone()
    }

    fn fail(&self, first: WriteFailure) -> WriteFailure {
        // Site: "page latch", passed on the way.
        let mut failure = shim::lock(&self.failure);
        failure.get_or_insert(first).clone()
    }

    /// Returns dirty pages of the next frames, as many as these slots and a batch take.
    fn dirty_pages(&self, state: &mut CleanerState, slots: usize) -> Vec<BatchPage> {
        let most = state.batch_pages.min(slots * state.slot_pages);
        let mut batch = Vec::new();
        for _ in 0..self.frames.len() {
            let index = state.hand;
            state.hand = (index + 1) % self.frames.len();
            // Only this thread makes pages clean, so a dirty page stays in its frame.
            if let Some(page) = self.frames[index].dirty_page() {
                let lsn = Lsn::ZERO;
                batch.push(BatchPage { page, index, lsn });
                if batch.len() == most {
                    break;
                }
            }
        }
        batch
    }

    /// Copies a page; returns the LSN of the copy. `None`: it changes all the time.
    fn copy(&self, worker: &Worker, frame: &Frame, page: PageId, image: &mut [u8]) -> Option<Lsn> {
        self.validated(worker, frame, || frame.copy_to(image))?;
        let copy = SlottedPage::new(&*image);
        assert!(copy.page() == page, "a dirty page stays in its frame");
        Some(copy.lsn())
    }

    /// Calls `copy` until no change came between its reads, and returns its last result. `None`:
    /// the page changes all the time.
    pub(super) fn validated<R>(
        &self,
        worker: &Worker,
        frame: &Frame,
        mut copy: impl FnMut() -> R,
    ) -> Option<R> {
        for _ in 0..OPTIMISTIC_COPIES {
            if let Some(seen) = frame.latch().version() {
                let result = copy();
                if frame.latch().unchanged_since(seen) {
                    return Some(result);
                }
            }
        }
        self.with_shared_latch(worker, frame, copy)
    }

    /// Calls `body` while the latch is shared, unless it is busy for long.
    fn with_shared_latch<R>(
        &self,
        worker: &Worker,
        frame: &Frame,
        body: impl FnOnce() -> R,
    ) -> Option<R> {
        let mut backoff = Backoff::new();
        worker.account().passed(&PAGE_LATCH);
        while !frame.latch().try_lock_shared() {
            if backoff.is_yielding() {
                return None;
            }
            backoff.snooze();
        }
        let result = body();
        frame.latch().unlock_shared(&self.latch_waiters);
        Some(result)
    }

    /// Writes the copies once the log is durable up to their LSNs. The only function that writes
    /// pages from frames.
    fn write_batch(
        &self,
        worker: &Worker,
        state: &CleanerState,
        batch: &[BatchPage],
    ) -> Result<(), WriteFailure> {
        let newest = batch.iter().map(|page| page.lsn).max();
        let newest = newest.unwrap_or(Lsn::ZERO);
        if !worker.failpoints().misbehaves(&failpoint::PAGE_BEFORE_LOG) {
            let durable = self.log.wait_durable(worker, newest);
            durable.map_err(WriteFailure::Log)?;
        }
        let size = self.page_size().bytes();
        let images = &state.buffer.bytes()[..batch.len() * size];
        let pages: Vec<_> = batch.iter().map(|page| page.page).collect();
        if let Some(doublewrite) = &state.doublewrite {
            let slots = images.chunks(state.slot_pages * size);
            for (pages, images) in pages.chunks(state.slot_pages).zip(slots) {
                doublewrite.write(worker, pages, images)?;
            }
            doublewrite.sync()?;
        }
        self.written.add(&pages);
        Ok(write_places(&self.file, &pages, images)?)
    }

    /// Records that the copy of a page is durable.
    fn mark_durable(&self, worker: &Worker, copied: BatchPage) {
        let frame = &self.frames[copied.index];
        // If the latch is busy, the recovery LSN stays as it is, which is never wrong.
        self.with_shared_latch(worker, frame, || {
            let is_assumed = worker.failpoints().misbehaves(&failpoint::CLEAN_UNCOMPARED);
            let has_changed = frame.read().lsn() != copied.lsn && !is_assumed;
            let now = has_changed.then_some(copied.lsn);
            let before = frame.set_recovery_lsn(now);
            self.count_dirty(before, now);
        });
    }
}
