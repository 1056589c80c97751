//! Read-ahead: pages that will probably be needed soon are read into free frames.
//!
//! # Mechanism
//!
//! A caller that misses a page may name the pages that it will need next. Those that are near the
//! missing page in the file come with it, in one call of the device. The others are read by the
//! page readers, which are threads of the pool, and so are pages that are named before any is
//! missing. Pages that are near each other are read together there too.
//!
//! ```text
//!   reserve_ahead ── near the missing page ──▶ one read of both, by the caller
//!                └── elsewhere ──┐
//!   read_ahead ──────────────────┴──▶ queue ──▶ page readers, one read for neighbours
//! ```
//!
//! # Invariants
//!
//! * I1  Read-ahead takes frames that are free, and none while threads wait for frames. It never
//!   waits for any. So it delays no reservation but by the reads that it has begun.
//! * I2  At most an eighth of the frames are being read ahead, for all threads together.
//! * I3  A page that is read ahead is loaded as every other: its frame is latched alone from before
//!   it can be found until it is there. A thread that has claimed such pages reads them before it
//!   waits for anything, or gives them to a page reader, which waits for the device alone. So a
//!   thread that finds one of them waits for the device alone.
//! * I4  A read ahead that fails leaves nothing: the frame becomes free, and the thread that needs
//!   the page reads it again.
//! * I5  A page that was read ahead is not fixed, and enters the queue of the replacement without a
//!   use. It is evicted as any page that a scan has read.

use std::collections::VecDeque;
use std::mem;
use std::sync::PoisonError;

use foxton_sync::shim::{self, Condvar, Mutex, Ordering};
use foxton_sync::worker::Worker;
use smallvec::SmallVec;

use super::load::{FixedPage, PageClaim, PageUse};
use super::{BufferPool, PoolError};
use crate::paged::PageId;
use crate::paged::page::PageSize;
use crate::paged::space::PageBuffer;

/// Maximum number of pages that a caller names.
pub const MAX_AHEAD: usize = 32;
/// Maximum number of threads that read the pages of a queue.
pub(super) const PAGE_READERS: usize = 2;
/// Maximum number of buffers for calls that read several pages.
const RUN_BUFFERS: usize = 3;
/// Maximum number of bytes that one call reads.
const MAX_RUN_BYTES: usize = 512 << 10;
/// Frames of the maximum for each page of a buffer, at least: small pools have small buffers.
const FRAMES_PER_RUN_PAGE: usize = 32;
/// Maximum number of pages between two pages of a run that are read for nothing.
const MAX_HOLE: u64 = 2;

/// Pages that a caller will need next.
pub type AheadPages = SmallVec<[PageId; MAX_AHEAD]>;

/// Pages near each other in the file. They are claimed: each has a fix and an exclusive latch.
pub(super) struct PageRun {
    first: PageId,
    /// Number of pages that are read, with those between.
    span: usize,
    purpose: PageUse,
    pages: SmallVec<[(usize, PageId); MAX_AHEAD]>,
}

/// Runs for the page readers. See the [module](self).
#[derive(Default)]
pub(super) struct AheadQueue {
    state: Mutex<AheadState>,
    wakeup: Condvar,
}

#[derive(Default)]
struct AheadState {
    runs: VecDeque<PageRun>,
    readers: usize,
    is_closed: bool,
}

/// Buffers for calls that read several pages.
pub(super) struct RunBuffers {
    /// Pages of a buffer.
    pages: usize,
    state: Mutex<RunBufferState>,
}

#[derive(Default)]
struct RunBufferState {
    buffers: Vec<PageBuffer>,
    /// Number of buffers that exist.
    made: usize,
}

/// Number of pages that one call reads at most, in a pool with that maximum of frames.
fn run_pages(size: PageSize, maximum: usize) -> usize {
    (MAX_RUN_BYTES / size.bytes())
        .min(maximum / FRAMES_PER_RUN_PAGE)
        .max(1)
}

/// Bytes of the buffers for runs.
pub(super) fn bytes_of_run_buffers(size: PageSize, maximum: usize) -> usize {
    RUN_BUFFERS * run_pages(size, maximum) * size.bytes()
}

impl AheadQueue {
    /// Counts a page reader that is about to run.
    pub(super) fn add_reader(&self) {
        // Site: "free frames": once for a thread of the pool.
        shim::lock(&self.state).readers += 1;
    }

    /// True if page readers run.
    fn has_readers(&self) -> bool {
        // Site: "free frames", passed on the way.
        let state = shim::lock(&self.state);
        state.readers > 0 && !state.is_closed
    }

    /// Gives a run to the readers, or returns it if there are none.
    fn submit(&self, run: PageRun) -> Option<PageRun> {
        // Site: "free frames", passed on the way.
        let mut state = shim::lock(&self.state);
        if state.readers == 0 || state.is_closed {
            return Some(run);
        }
        state.runs.push_back(run);
        drop(state);
        self.wakeup.notify_one();
        None
    }

    /// Ends the readers, once no run is left.
    pub(super) fn close(&self) {
        // Site: "free frames": a pool is closed once.
        shim::lock(&self.state).is_closed = true;
        self.wakeup.notify_all();
    }

    /// Returns the next run, and waits for one. `None`: no run is left, and none will come.
    fn next(&self) -> Option<PageRun> {
        // Site: "free frames": the other side of `submit`.
        let mut state = shim::lock(&self.state);
        loop {
            if let Some(run) = state.runs.pop_front() {
                return Some(run);
            }
            if state.is_closed {
                return None;
            }
            let waited = self.wakeup.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl RunBuffers {
    pub(super) fn new(size: PageSize, maximum: usize) -> RunBuffers {
        RunBuffers {
            pages: run_pages(size, maximum),
            state: Mutex::default(),
        }
    }

    /// Returns a buffer, unless all are in use.
    fn take(&self, size: PageSize) -> Option<PageBuffer> {
        // Site: "free frames", passed on the way.
        let mut state = shim::lock(&self.state);
        if let Some(buffer) = state.buffers.pop() {
            return Some(buffer);
        }
        if state.made == RUN_BUFFERS {
            return None;
        }
        state.made += 1;
        drop(state);
        Some(PageBuffer::new(size, self.pages))
    }

    fn give(&self, buffer: PageBuffer) {
        // Site: "free frames", passed on the way.
        shim::lock(&self.state).buffers.push(buffer);
    }
}

/// Divides sorted pages into runs, as index ranges.
fn runs_of(pages: &[PageId], most: usize) -> SmallVec<[(usize, usize); MAX_AHEAD]> {
    let mut runs = SmallVec::new();
    let mut begin = 0;
    for end in 1..=pages.len() {
        let goes_on = end < pages.len()
            && pages[end].0 - pages[end - 1].0 <= MAX_HOLE + 1
            && pages[end].0 - pages[begin].0 < most as u64;
        if !goes_on {
            runs.push((begin, end));
            begin = end;
        }
    }
    runs
}

impl BufferPool {
    /// True if `page` is in a frame, or on its way into one, just now.
    pub(in crate::paged) fn is_known(&self, page: PageId) -> bool {
        let is_it = |index: usize| self.frames[index].page() == Some(page);
        self.table.lookup(page, is_it).is_some()
    }

    /// Number of pages that one scan may have read ahead: 32, or an eighth of the frames.
    pub(in crate::paged) fn ahead_limit(&self) -> usize {
        MAX_AHEAD.min(self.frame_limit() / 8)
    }

    /// True if pages are read by other threads.
    pub(in crate::paged) fn has_page_readers(&self) -> bool {
        self.ahead.has_readers()
    }

    /// Begins to read pages that will probably be needed soon, if there are free frames and page
    /// readers. Never waits.
    pub fn read_ahead(&self, worker: &Worker, pages: &[PageId], purpose: PageUse) {
        drop(self.claim_ahead(worker, pages, purpose, None));
    }

    /// Claims frames for pages that will probably be needed soon, and gives their runs to the page
    /// readers. Returns the run of those near `beside`, which the caller reads with that page.
    pub(super) fn claim_ahead(
        &self,
        worker: &Worker,
        pages: &[PageId],
        purpose: PageUse,
        beside: Option<PageId>,
    ) -> Option<(PageRun, PageBuffer)> {
        let has_readers = self.ahead.has_readers();
        let mut sorted: AheadPages = pages.iter().copied().collect();
        sorted.retain(|page| !self.is_known(*page) && Some(*page) != beside);
        sorted.extend(beside);
        sorted.sort_unstable();
        sorted.dedup();
        let most = self.run_buffers.pages;
        let mut own = None;
        for (begin, end) in runs_of(&sorted, most) {
            let run = &sorted[begin..end];
            let is_own = beside.is_some_and(|page| run.contains(&page));
            let buffer = match is_own {
                true if run.len() > 1 => self.run_buffers.take(self.page_size()),
                _ => None,
            };
            if !is_own && !has_readers || is_own && buffer.is_none() {
                continue;
            }
            let span = (run[run.len() - 1].0 - run[0].0) as usize + 1;
            let claimed = self.claim_run(worker, run, beside);
            let run = PageRun {
                first: run[0],
                span,
                purpose,
                pages: claimed,
            };
            match buffer {
                Some(buffer) if run.pages.is_empty() => self.run_buffers.give(buffer),
                Some(buffer) => own = Some((run, buffer)),
                None if run.pages.is_empty() => {}
                None => {
                    if let Some(run) = self.ahead.submit(run) {
                        self.end_run(worker, &run, None);
                    }
                }
            }
        }
        own
    }

    /// Claims the pages of a run but `beside`, as far as frames are free (I1, I2).
    pub(super) fn claim_run(
        &self,
        worker: &Worker,
        run: &[PageId],
        beside: Option<PageId>,
    ) -> SmallVec<[(usize, PageId); MAX_AHEAD]> {
        let wanted = run.len() - usize::from(beside.is_some_and(|page| run.contains(&page)));
        let mut granted = 0;
        let take = |taken: usize| {
            granted = wanted.min((self.frame_limit() / 8).saturating_sub(taken));
            Some(taken + granted)
        };
        // Relaxed: a bound. Site: "free frames", passed below.
        let _ = self
            .ahead_count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let mut frames = self.free_frames(worker).take_at_most(granted);
        let mut claimed = SmallVec::new();
        for page in run.iter().filter(|page| Some(**page) != beside) {
            if frames.is_empty() {
                break;
            }
            match self.claim(worker, *page, &mut frames) {
                PageClaim::Found(fixed) => drop(fixed),
                PageClaim::Loading(fixed) => {
                    claimed.push((fixed.index(), fixed.page()));
                    // The fix stays until the page is there.
                    mem::forget(fixed);
                }
            }
        }
        self.free_frames(worker).give(&mut frames);
        self.return_ahead(granted - claimed.len());
        if self.free.count() < self.reserve_target() {
            self.provider_wakeup.notify();
        }
        claimed
    }

    /// True while pages are read ahead.
    #[cfg(test)]
    pub(in crate::paged) fn is_reading_ahead(&self) -> bool {
        // Relaxed: a test looks again.
        self.ahead_count.load(Ordering::Relaxed) > 0
    }

    pub(super) fn return_ahead(&self, count: usize) {
        // Relaxed: a bound. Site: "free frames", passed on the way.
        self.ahead_count.fetch_sub(count, Ordering::Relaxed);
    }

    /// Reads the page of a claim together with a run near it.
    pub(super) fn load_with_run(
        &self,
        worker: &Worker,
        fixed: &FixedPage<'_>,
        purpose: PageUse,
        (run, mut buffer): (PageRun, PageBuffer),
    ) -> Result<(), PoolError> {
        let size = self.page_size().bytes();
        let is_read = self.read_run(&run, &mut buffer);
        let at = (fixed.page().0 - run.first.0) as usize * size;
        let image = &mut buffer.bytes_mut()[at..at + size];
        let is_whole = is_read && self.check_image(fixed.page(), image).is_ok();
        let loaded = match is_whole && self.finish_load(worker, fixed, purpose, image).is_ok() {
            true => Ok(()),
            // The error is that of a read of this page alone.
            false => self.load(worker, fixed, purpose),
        };
        self.end_run(worker, &run, is_read.then_some(&mut buffer));
        self.run_buffers.give(buffer);
        loaded
    }

    /// Reads the bytes of a run. Returns false if the device failed.
    fn read_run(&self, run: &PageRun, buffer: &mut PageBuffer) -> bool {
        let bytes = &mut buffer.bytes_mut()[..run.span * self.page_size().bytes()];
        self.file.read_unchecked(run.first, bytes).is_ok()
    }

    /// Ends the loads of a run: those whose images are whole are in their frames, and the other
    /// frames become free (I4).
    fn end_run(&self, worker: &Worker, run: &PageRun, mut images: Option<&mut PageBuffer>) {
        let size = self.page_size().bytes();
        for (index, page) in &run.pages {
            let fixed = FixedPage::new(self, *index, *page);
            let at = (page.0 - run.first.0) as usize * size;
            let image = images.as_mut();
            let loaded = image.and_then(|images| {
                let image = &mut images.bytes_mut()[at..at + size];
                self.check_image(*page, image).ok()?;
                self.finish_load(worker, &fixed, run.purpose, image).ok()
            });
            match loaded {
                Some(()) => {
                    // Site: "replacement", passed above.
                    self.read_ahead_count.fetch_add(1, Ordering::Relaxed);
                }
                None => self.fail_load(worker, &fixed),
            }
        }
        self.return_ahead(run.pages.len());
        if self.free.shortage() > 0 {
            self.provider_wakeup.notify();
        }
    }

    /// Reads runs until the queue is closed and empty. For a page reader.
    pub(super) fn read_runs(&self, worker: &Worker) {
        while let Some(run) = self.ahead.next() {
            if let Some(mut buffer) = self.run_buffers.take(self.page_size()) {
                let is_read = self.read_run(&run, &mut buffer);
                self.end_run(worker, &run, is_read.then_some(&mut buffer));
                self.run_buffers.give(buffer);
                continue;
            }
            for claimed in run.pages {
                let one = PageRun {
                    first: claimed.1,
                    span: 1,
                    pages: SmallVec::from_slice(&[claimed]),
                    ..run
                };
                let mut buffer = self.take_buffer();
                let is_read = self.read_run(&one, &mut buffer);
                self.end_run(worker, &one, is_read.then_some(&mut buffer));
                self.return_buffer(buffer);
            }
        }
    }
}
