//! Buffer pool: the frames, and the way of a page into one and out again.
//!
//! # Use
//!
//! An *attempt* never waits. It finds resident pages with [`BufferPool::page`], reads them
//! optimistically, and changes them under a latch that it only tries to acquire. If a page is
//! missing, it names the pages that the next attempt needs, at most six, and ends. The caller then
//! waits in [`BufferPool::reserve`], holding nothing. It attempts again with the reservation,
//! whose pages stay in their frames.
//!
//! # Invariants
//!
//! * I1  A page has one frame at most, and one thread loads it. The home bucket of the page is
//!   latched while a frame becomes the page's or ceases to be.
//! * I2  The thread that loads a page holds the latch of its frame alone from before the page can
//!   be found until the page is checked and in the frame. So threads that find it wait at the
//!   latch, and no thread sees an unchecked page.
//! * I3  A thread that waits for free frames has no fix and no latch. A thread that waits for a
//!   page that another loads has loaded all pages that it began to load itself. So such waits end:
//!   the other thread waits for its device only.
//! * I4  A frame is evicted only if it is clean, not fixed, and its latch was free. While threads
//!   wait for frames, this is tried again by the frame provider when a reservation ends, and by the
//!   cleaner when pages become clean. A thread that waits tries it each millisecond too, because
//!   the end of a latch wakes no other.
//! * I5  A page becomes clean only once a sync has returned after a write of its present content.
//!   Pages are written by the cleaner alone, one thread at a time, to the doublewrite buffer first
//!   if there is one.
//! * I6  No system call reads or writes a frame.
//! * I7  A page is written only when the log is durable up to the LSN of the written copy. One
//!   function writes pages from frames, and it waits for the log first.
//! * I8  A thread that waits because too many pages are dirty holds no latch (`dirty_gate`).
//!
//! Latches and mutexes are acquired in this order: latch of a frame, home bucket, mutex of the
//! replacement, mutex of the reserve. The latch of a frame with a page is only tried while another
//! latch is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use foxton_log::Lsn;
use foxton_sync::shim::{self, AtomicUsize, Mutex, Ordering, unmodelled};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::word_memory;
use foxton_sync::worker::Worker;

use super::dirty_waits::DirtyGate;
pub use super::dirty_waits::{DirtyBound, DirtyWait};
use super::frame::{Frame, LatchWaiters, PAGE_FRAME};
use super::page::PageSize;
use super::page_log::PageLog;
use super::replace::{Replacement, UseCounters};
use super::reserve::{FREE_FRAMES, FreeFrames, MAX_RESERVED};
use super::space::{PageAllocator, PageBuffer, PageFile, PageFileError};

mod translation;

mod hints;
mod leaf_hints;

mod error;

mod access;

mod evict;

mod load;

mod read_ahead;

mod written;

mod place_writes;

mod clean;

mod dirty_gate;

mod growth;

mod limit;

mod service;

mod waits;

mod tests;

pub use access::{PageAbsence, PageHint, PageView, PageWriter, SeenPage};
pub use clean::CLEAN_BATCH;
pub use error::PoolError;
pub use load::{DetachedReservation, FixedPage, PageRequest, PageReservation, PageUse};
pub use read_ahead::{AheadPages, MAX_AHEAD};
pub use service::PoolThreads;
pub use waits::PageWaiters;
pub(in crate::paged) use waits::{CountedWait, WaitReason};

/// Site: adding and removing pages of the translation table.
pub static PAGE_TRANSLATION: Site = Site::new(
    Component::BufferPool,
    Pattern::Unbounded,
    "page translation",
);
/// Site: choosing a page to evict.
pub static REPLACEMENT: Site = Site::new(Component::BufferPool, Pattern::Unbounded, "replacement");

/// Smallest number of frames: two threads can reserve [`MAX_RESERVED`] each, beside a few others.
pub const MIN_FRAMES: usize = 16;

const _: () = assert!(MIN_FRAMES >= 2 * MAX_RESERVED);

/// Maximum number of buffers for reads that are kept, of a pool with that maximum of frames.
fn read_buffers(maximum: usize) -> usize {
    (maximum / 4).clamp(MAX_RESERVED, 64)
}

/// How long a thread waits for frames before it tries again to evict a page itself.
const RETRY: Duration = Duration::from_millis(1);

/// Frames of one size over one page file.
///
/// ```
/// use std::sync::Arc;
/// use foxton_log::{Lsn, device::memory::MemoryDevice};
/// use foxton_store::paged::PageId;
/// use foxton_store::paged::page::{PageKind, PageSize, RowFlags};
/// use foxton_store::paged::page_log::{LoggedChange, Unlogged};
/// use foxton_store::paged::pool::{BufferPool, PageRequest};
/// use foxton_store::paged::space::{PageFile, format_file};
/// use foxton_sync::worker::Workers;
///
/// let device = MemoryDevice::new();
/// let file = PageFile::create(&device, "rows", PageSize::default(), [7; 16]).expect("a new file");
/// format_file(&file).expect("space");
/// let log = Arc::new(Unlogged::new(Lsn::ZERO));
/// let (pool, worker) = (BufferPool::new(file, 16, log)?, Workers::new().worker());
///
/// // A new page.
/// let page = PageId::new(0, 5);
/// let reservation = pool.reserve(&worker, &[PageRequest::create(page)])?;
/// let mut writer = reservation.pages()[0].lock(&worker);
/// let logged = LoggedChange { begin: Lsn::new(100), end: Lsn::new(150) };
/// writer.change(logged, |leaf| {
///     leaf.format(PageKind::Leaf, 0, 9, page, b"", None);
///     leaf.insert(0, b"fox", b"red", 0, RowFlags::NONE).expect("an empty page");
/// });
/// drop((writer, reservation));
///
/// // An attempt that only reads.
/// let view = pool.page(page).expect("it is resident");
/// let value = view.read().value(0);
/// assert!(view.is_valid() && value == b"red");
///
/// assert_eq!((pool.dirty_count(), pool.clean_batch(&worker)?, pool.dirty_count()), (1, 1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BufferPool {
    file: PageFile,
    space: PageAllocator,
    log: Arc<dyn PageLog>,
    /// As many as the maximum.
    frames: Box<[Frame]>,
    /// Number of frames that may be used: those with smaller indexes.
    limit: AtomicUsize,
    latch_waiters: LatchWaiters,
    table: translation::TranslationTable,
    hints: hints::ChildHints,
    leaf_hints: leaf_hints::LeafHints,
    free: FreeFrames,
    replacement: Mutex<Replacement>,
    /// Number of dirty pages.
    dirty: AtomicUsize,
    dirty_gate: DirtyGate,
    cleaning: Mutex<clean::CleanerState>,
    written: written::WrittenPages,
    failure: Mutex<Option<error::WriteFailure>>,
    /// Buffers for reads, which threads share.
    buffers: Mutex<Vec<PageBuffer>>,
    run_buffers: read_ahead::RunBuffers,
    /// Runs for the page readers.
    ahead: read_ahead::AheadQueue,
    /// Number of pages that are being read ahead.
    ahead_count: AtomicUsize,
    cleaner_wakeup: service::ServiceWakeup,
    provider_wakeup: service::ServiceWakeup,
    reads: unmodelled::AtomicU64,
    read_ahead_count: unmodelled::AtomicU64,
    writes: unmodelled::AtomicU64,
    evictions: unmodelled::AtomicU64,
    /// Operations on trees, and their waits.
    tree_counters: waits::TreeCounters,
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// State of a pool, and its work since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStats {
    /// Number of frames that may be used.
    pub frames: usize,
    /// Number of frames beyond them that are still to be emptied.
    pub surplus: usize,
    /// Number of frames without a page.
    pub free: usize,
    /// Number of dirty pages.
    pub dirty: usize,
    /// Number of threads that wait because too many pages are dirty.
    pub stalled: usize,
    /// Number of commits that have waited for that reason, or wait.
    pub commit_stalls: u64,
    /// Number of times that a change of a page has waited for that reason, or waits.
    pub change_stalls: u64,
    /// Number of pages read from the file.
    pub reads: u64,
    /// Number of those that were read before any thread missed them.
    pub reads_ahead: u64,
    /// Number of pages written to the file.
    pub writes: u64,
    /// Number of pages evicted.
    pub evictions: u64,
    /// Number of operations on trees that ended.
    pub lookups: u64,
    /// Number of times that one of them has waited for pages that were not in memory, or waits.
    pub page_waits: u64,
    /// Threads that wait now.
    pub waiters: PageWaiters,
}

impl UseCounters for [Frame] {
    fn uses(&self, frame: usize) -> u8 {
        self[frame].uses()
    }

    fn set_uses(&self, frame: usize, uses: u8) {
        self[frame].set_uses(uses);
    }
}

impl BufferPool {
    /// Returns a pool of `frames` free frames for the pages of `file`, whose changes are in `log`.
    /// It never has more.
    ///
    /// # Errors
    ///
    /// If a space map of the file cannot be read or is damaged.
    ///
    /// # Panics
    ///
    /// If there are fewer than [`MIN_FRAMES`].
    pub fn new(
        file: PageFile,
        frames: usize,
        log: Arc<dyn PageLog>,
    ) -> Result<BufferPool, PageFileError> {
        BufferPool::with_maximum(file, frames, frames, log)
    }

    /// As [`new`](Self::new), and [`set_frames`](Self::set_frames) may change the number of frames
    /// up to `maximum`. Address space and headers are reserved for all of them.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    ///
    /// # Panics
    ///
    /// If there are fewer than [`MIN_FRAMES`], or more than the maximum.
    pub fn with_maximum(
        file: PageFile,
        frames: usize,
        maximum: usize,
        log: Arc<dyn PageLog>,
    ) -> Result<BufferPool, PageFileError> {
        assert!(
            (MIN_FRAMES..=maximum).contains(&frames),
            "a pool has at least {MIN_FRAMES} frames, and at most its maximum"
        );
        let size = file.size();
        let memory = word_memory::reserve(size.words(), maximum);
        let mut replacement = Replacement::new(maximum);
        replacement.set_limit(frames);
        Ok(BufferPool {
            space: PageAllocator::load(&file)?,
            frames: memory.into_iter().map(Frame::new).collect(),
            limit: AtomicUsize::new(frames),
            latch_waiters: LatchWaiters::default(),
            table: translation::TranslationTable::new(maximum),
            hints: hints::ChildHints::new(maximum, size),
            leaf_hints: leaf_hints::LeafHints::new(maximum, size),
            free: FreeFrames::with_limit(maximum, frames),
            replacement: Mutex::new(replacement),
            dirty: AtomicUsize::new(0),
            dirty_gate: DirtyGate::default(),
            cleaning: Mutex::new(clean::CleanerState::new(&file, maximum)),
            written: written::WrittenPages::since(Lsn::new(u64::MAX)),
            failure: Mutex::new(None),
            buffers: Mutex::new(Vec::new()),
            run_buffers: read_ahead::RunBuffers::new(size, maximum),
            ahead: read_ahead::AheadQueue::default(),
            ahead_count: AtomicUsize::new(0),
            cleaner_wakeup: service::ServiceWakeup::default(),
            provider_wakeup: service::ServiceWakeup::default(),
            reads: unmodelled::AtomicU64::new(0),
            read_ahead_count: unmodelled::AtomicU64::new(0),
            writes: unmodelled::AtomicU64::new(0),
            evictions: unmodelled::AtomicU64::new(0),
            tree_counters: waits::TreeCounters::default(),
            file,
            log,
        })
    }

    /// Returns the log of its changes.
    pub fn log(&self) -> &dyn PageLog {
        &*self.log
    }

    /// Returns the page file.
    pub fn file(&self) -> &PageFile {
        &self.file
    }

    /// Returns the size of the pages.
    pub fn page_size(&self) -> PageSize {
        self.file.size()
    }

    /// Number of dirty pages.
    pub fn dirty_count(&self) -> usize {
        // Relaxed: a number for bounds and statistics.
        self.dirty.load(Ordering::Relaxed)
    }

    /// Number of frames that should be free: 1 % of the frames, at least 64 or an eighth of the
    /// pool, whichever is smaller.
    pub fn reserve_target(&self) -> usize {
        let frames = self.frame_limit();
        (frames / 100).max(64.min(frames / 8))
    }

    /// Returns state and counts, each of a moment of its own.
    pub fn stats(&self) -> PoolStats {
        let count = |counter: &unmodelled::AtomicU64| counter.load(Ordering::Relaxed);
        let [commits, changes] =
            [DirtyBound::Commit, DirtyBound::Change].map(|bound| self.dirty_gate.counts(bound));
        PoolStats {
            stalled: commits.0 + changes.0,
            commit_stalls: commits.1,
            change_stalls: changes.1,
            frames: self.frame_limit(),
            surplus: self.surplus_count(),
            free: self.free.count(),
            dirty: self.dirty_count(),
            reads: count(&self.reads),
            reads_ahead: count(&self.read_ahead_count),
            writes: count(&self.writes),
            evictions: count(&self.evictions),
            lookups: self.tree_counters.lookups(),
            page_waits: self.tree_counters.page_waits(),
            waiters: self.tree_counters.waiters(),
        }
    }

    /// Counts an operation on a tree, which has ended.
    #[inline]
    pub fn count_lookup(&self, worker: &Worker) {
        self.tree_counters.count_lookup(worker);
    }

    /// Counts a wait of an operation, until the result is dropped.
    pub(in crate::paged) fn count_wait<'c>(
        &'c self,
        worker: &'c Worker,
        reason: WaitReason,
    ) -> CountedWait<'c> {
        self.tree_counters.wait(worker, reason)
    }

    /// Checks that each frame is where its state says. Call it while no thread uses the pool.
    ///
    /// # Panics
    ///
    /// If the pool is not whole.
    pub fn verify(&self) {
        let (mut dirty, mut free) = (0, 0);
        assert_eq!(self.ahead_count.load(Ordering::Relaxed), 0, "reads ahead");
        for (index, frame) in self.frames.iter().enumerate() {
            assert_eq!(frame.fixes(), 0, "a fix of {frame:?} did not end");
            let Some(page) = frame.page() else {
                free += 1;
                continue;
            };
            let found = self.table.lookup(page, |at| self.frames[at].has(page));
            assert_eq!(found, Some(index), "page {page} is found in its frame");
            let content = frame.read();
            let is_unformatted = content.kind().is_none() && !frame.is_dirty();
            assert!(is_unformatted || (content.page(), content.verify()) == (page, Ok(())));
            dirty += usize::from(frame.is_dirty());
        }
        let beyond = self.free.surplus_count() + self.free.unused_count();
        let known = self.free.count() + beyond;
        assert_eq!(free, known, "frames without a page are in the reserve");
        assert_eq!(dirty, self.dirty_count(), "dirty pages are counted");
    }

    fn count_fix(&self, worker: &Worker) {
        worker.account().passed(&PAGE_FRAME);
    }

    fn replacement<R>(&self, worker: &Worker, body: impl FnOnce(&mut Replacement) -> R) -> R {
        worker.account().passed(&REPLACEMENT);
        body(&mut shim::lock(&self.replacement))
    }

    fn free_frames(&self, worker: &Worker) -> &FreeFrames {
        worker.account().passed(&FREE_FRAMES);
        &self.free
    }

    /// Records that a page has become dirty, or clean again.
    fn count_dirty(&self, before: Option<Lsn>, after: Option<Lsn>) {
        // Relaxed: a number for bounds and statistics.
        match (before, after) {
            (None, Some(_)) => self.dirty.fetch_add(1, Ordering::Relaxed),
            (Some(_), None) => self.dirty.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
    }
}
