//! Frames: memory for one page each, with a header that says which page it is.
//!
//! # State
//!
//! A frame has the words of a page, a latch over them, and a header:
//!
//! | field | meaning | changes |
//! | --- | --- | --- |
//! | latch | version, exclusive and shared holders | see [`PageLatch`] |
//! | state | phase of the frame's life, and fixes | as drawn below |
//! | page | name of the page in the frame | by the thread that owns the frame |
//! | recovery LSN | begin of a dirty page's redo; none if it is clean | under the latch |
//! | uses | counter of the replacement policy | at any time: it decides nothing |
//! | loads | number of pages that the frame has had | by the thread that owns the frame |
//! | checked | load whose page was found to be what its parent says | by readers |
//!
//! ```text
//!             begin_load               end_load
//!   Free, 0 -------------> Loading, n -----------> Resident, n
//!     ^ ^                      | fail_load             |
//!     | |                      v                       |
//!     | +---- last unfix -- Failed, n                  |
//!     +----------------- begin_evict: no fixes --------+
//! ```
//!
//! n is the number of fixes: threads that keep the page in its frame. The thread that loads a page
//! has a fix, and threads that wait for the page have others.
//!
//! # Invariants
//!
//! * I1  A frame that is not `Free` keeps its page until it is `Free` again. So a thread that fixed
//!   the frame finds one page in it, as long as it keeps its fix.
//! * I2  A frame becomes `Free` from `Resident` only while the evicting thread holds the latch
//!   alone. So a thread that holds the latch, alone or shared, keeps the page in its frame too.
//! * I3  Emptying a frame raises the version of its latch. So an optimistic reader, which has no
//!   fix, finds page and content to be of one version, or discards what it read.
//! * I4  The words change only while the latch is held alone. No system call reads or writes them:
//!   pages are copied through buffers.
//! * I5  A frame with a recovery LSN is dirty and is not evicted.
//!
//! # Orderings
//!
//! * O1  `begin_load` and the end of a load (Release) to `fix` (Acquire): a thread that fixed a
//!   frame sees which page it has, and its words if they are loaded.
//! * O2  `unfix` (Release) to `begin_evict` and to the last `unfix` of a failed load (Acquire): the
//!   frame is emptied after all that its users did to it.
//! * O3  `set_recovery_lsn` (Release) to `dirty_page` (Acquire): a thread that finds a frame dirty
//!   sees the page that was changed, or a later one.
//!
//! Words and header fields are relaxed: the latch orders them, or the state does.

use std::fmt;

use foxton_log::Lsn;
use foxton_sync::shim::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::word_memory::{self, WordChunk};

use super::PageId;
use super::page::{PageWords, PageWordsMut, SlottedPage};

mod latch;

pub use latch::{LatchWaiters, PageLatch, PageVersion, order_scans};

/// Site: a page latch, acquired alone or shared. A latch knows no worker: its callers count it.
pub static PAGE_LATCH: Site = Site::new(Component::Latch, Pattern::Unbounded, "page latch");
/// Site: the state of a frame, from a fix to its end. The callers count it.
pub static PAGE_FRAME: Site = Site::new(Component::BufferPool, Pattern::Unbounded, "page frame");

/// In `page`: there is none.
const NO_PAGE: u64 = u64::MAX;
/// In `recovery_lsn`: the page is clean.
const CLEAN: u64 = u64::MAX;

/// Highest number of uses that is counted.
pub const MAX_USES: u8 = 3;

/// Phase of a frame's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FramePhase {
    /// It has no page.
    Free = 0,
    /// A thread reads its page.
    Loading = 1,
    /// Its page can be used.
    Resident = 2,
    /// Its page could not be read.
    Failed = 3,
}

impl FramePhase {
    const SHIFT: u32 = 30;

    const fn of(word: u32) -> FramePhase {
        match word >> Self::SHIFT {
            0 => FramePhase::Free,
            1 => FramePhase::Loading,
            2 => FramePhase::Resident,
            _ => FramePhase::Failed,
        }
    }

    const fn word(self, fixes: u32) -> u32 {
        (self as u32) << Self::SHIFT | fixes
    }
}

/// Number of fixes in a word of state.
const fn fixes_of(word: u32) -> u32 {
    word & ((1 << FramePhase::SHIFT) - 1)
}

/// Memory for one page. See the [module](self).
pub struct Frame {
    latch: PageLatch,
    page: AtomicU64,
    recovery_lsn: AtomicU64,
    state: AtomicU32,
    uses: AtomicU8,
    loads: AtomicU32,
    checked: AtomicU32,
    words: WordChunk,
}

/// Load of a frame, by its number. It wraps around after four billion loads of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLoad(u32);

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("page", &self.page())
            .field("phase", &self.phase())
            .field("fixes", &self.fixes())
            .field("is_dirty", &self.is_dirty())
            .field("latch", &self.latch)
            .finish_non_exhaustive()
    }
}

/// Life.
impl Frame {
    /// Returns a free frame whose words are `words`.
    pub fn new(words: WordChunk) -> Frame {
        Frame {
            latch: PageLatch::default(),
            page: AtomicU64::new(NO_PAGE),
            recovery_lsn: AtomicU64::new(CLEAN),
            state: AtomicU32::new(FramePhase::Free.word(0)),
            uses: AtomicU8::new(0),
            loads: AtomicU32::new(0),
            checked: AtomicU32::new(0),
            words,
        }
    }

    /// Returns a free frame of `words` words, at least 1 and rounded up to 8: models have few.
    #[doc(hidden)]
    pub fn with_words(words: usize) -> Frame {
        let chunks = word_memory::reserve(words.next_multiple_of(8), 1);
        Frame::new(chunks.into_iter().next().expect("one chunk"))
    }

    /// Gives the memory of the words back to the system; they are zero then. For the thread that
    /// alone has this free frame. An optimistic reader of an earlier page may overlap: it discards
    /// what it reads, because emptying the frame raised the version.
    pub fn release_memory(&self) {
        self.words.release();
    }

    /// Returns the latch over the words.
    #[inline]
    pub fn latch(&self) -> &PageLatch {
        &self.latch
    }

    fn state(&self) -> u32 {
        // Relaxed: an exchange decides, or the latch's version does.
        self.state.load(Ordering::Relaxed)
    }

    /// Returns the phase, which other threads may change at any time.
    #[inline]
    pub fn phase(&self) -> FramePhase {
        FramePhase::of(self.state())
    }

    /// Number of fixes, which other threads may change at any time.
    pub fn fixes(&self) -> u32 {
        fixes_of(self.state())
    }

    /// Returns the name of the page in the frame, if there is one. It is certain for threads that
    /// fixed the frame or hold its latch, and for readers once they have validated the version.
    #[inline]
    pub fn page(&self) -> Option<PageId> {
        // Relaxed: see the first page.
        let page = self.page.load(Ordering::Relaxed);
        (page != NO_PAGE).then_some(PageId(page))
    }

    /// True if `page` can be read from the frame. For optimistic readers: it is certain once they
    /// have validated a version that they read before.
    #[inline]
    pub fn has(&self, page: PageId) -> bool {
        self.page() == Some(page) && self.phase() == FramePhase::Resident
    }

    /// Returns the load of the page in the frame. For optimistic readers it is certain once they
    /// have validated a version that they read before: emptying the frame raises the version.
    #[inline]
    pub fn load(&self) -> FrameLoad {
        // Relaxed: see the first page.
        FrameLoad(self.loads.load(Ordering::Relaxed))
    }

    /// True if the page of the present load was recorded as checked. As certain as
    /// [`load`](Self::load).
    #[inline]
    pub fn is_checked(&self) -> bool {
        // Relaxed: a check that is not seen is made again.
        self.load() == FrameLoad(self.checked.load(Ordering::Relaxed))
    }

    /// Records that the page of `load` was checked. If the frame has another page by now, nothing
    /// follows for that.
    pub fn record_checked(&self, load: FrameLoad) {
        // Relaxed: it says nothing about other memory.
        self.checked.store(load.0, Ordering::Relaxed);
    }

    /// Begins to load `page` into the frame, with one fix. For the thread that alone has this free
    /// frame.
    ///
    /// # Panics
    ///
    /// If the frame is not free.
    pub fn begin_load(&self, page: PageId) {
        assert!(self.state() == FramePhase::Free.word(0), "a free frame");
        self.page.store(page.0, Ordering::Relaxed);
        self.uses.store(0, Ordering::Relaxed);
        // Relaxed, and no read-modify-write: this thread alone has the frame.
        let loads = self.loads.load(Ordering::Relaxed);
        self.loads.store(loads.wrapping_add(1), Ordering::Relaxed);
        self.state
            .store(FramePhase::Loading.word(1), Ordering::Release); // O1
    }

    /// Ends a load: the page can be used. The caller has filled the words under the latch, and
    /// still holds it.
    pub fn end_load(&self) {
        self.end_loading(FramePhase::Resident);
    }

    /// Ends a load that failed. The frame is free once its last fix ends.
    pub fn fail_load(&self) {
        self.end_loading(FramePhase::Failed);
    }

    fn end_loading(&self, phase: FramePhase) {
        let mut state = self.state();
        loop {
            assert!(
                FramePhase::of(state) == FramePhase::Loading,
                "a page is loading"
            );
            let next = phase.word(fixes_of(state));
            let exchange = self.state.compare_exchange_weak(
                state,
                next,
                Ordering::Release, // O1
                Ordering::Relaxed,
            );
            match exchange {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }

    /// Fixes the frame, if it is not free: its page stays until [`unfix`](Self::unfix). Returns the
    /// phase. The caller then checks that it is the page that it wants.
    pub fn fix(&self) -> Option<FramePhase> {
        let mut state = self.state();
        loop {
            let phase = FramePhase::of(state);
            if phase == FramePhase::Free {
                return None;
            }
            let exchange = self.state.compare_exchange_weak(
                state,
                state + 1,
                Ordering::Acquire, // O1
                Ordering::Relaxed,
            );
            match exchange {
                Ok(_) => return Some(phase),
                Err(now) => state = now,
            }
        }
    }

    /// Ends a fix. Returns true if the frame is free now, because its load had failed and this was
    /// the last fix. The caller then owns the frame.
    ///
    /// # Panics
    ///
    /// If the frame is not fixed.
    #[must_use = "the frame may be free now"]
    pub fn unfix(&self) -> bool {
        let mut state = self.state();
        loop {
            assert!(fixes_of(state) > 0, "the frame is fixed");
            let last_of_failed = state == FramePhase::Failed.word(1);
            let next = match last_of_failed {
                true => FramePhase::Free.word(0),
                false => state - 1,
            };
            let exchange = self.state.compare_exchange_weak(
                state,
                next,
                Ordering::AcqRel, // O2
                Ordering::Relaxed,
            );
            match exchange {
                Ok(_) if last_of_failed => {
                    self.page.store(NO_PAGE, Ordering::Relaxed);
                    return true;
                }
                Ok(_) => return false,
                Err(now) => state = now,
            }
        }
    }

    /// Empties the frame if its page is resident, clean and not fixed; returns whether it was. The
    /// caller holds the latch alone, releases it with a new version, and owns the frame.
    #[must_use = "the caller owns the frame if it was emptied"]
    pub fn begin_evict(&self) -> bool {
        if self.is_dirty() {
            return false;
        }
        let exchange = self.state.compare_exchange(
            FramePhase::Resident.word(0),
            FramePhase::Free.word(0),
            Ordering::Acquire, // O2
            Ordering::Relaxed,
        );
        if exchange.is_ok() {
            self.page.store(NO_PAGE, Ordering::Relaxed);
        }
        exchange.is_ok()
    }
}

/// Dirty state and uses.
impl Frame {
    /// True if the page is newer than its durable copy.
    #[inline]
    pub fn is_dirty(&self) -> bool {
        self.recovery_lsn().is_some()
    }

    /// Returns the name of the page if it is dirty. For the thread that alone makes pages clean, it
    /// stays in the frame until that thread has done so (I5). Any other thread finds each page that
    /// is dirty throughout, and perhaps one that has become clean meanwhile, or its successor.
    pub fn dirty_page(&self) -> Option<PageId> {
        // The name is read last: one that was read first may be of a page that was clean, and that
        // has made room for the dirty one.
        let lsn = self.recovery_lsn.load(Ordering::Acquire); // O3
        if lsn == CLEAN { None } else { self.page() }
    }

    /// Returns where redo of the page begins, or `None` if the page is clean.
    pub fn recovery_lsn(&self) -> Option<Lsn> {
        // Relaxed: certain under the latch, a hint otherwise.
        let lsn = self.recovery_lsn.load(Ordering::Relaxed);
        (lsn != CLEAN).then_some(Lsn::new(lsn))
    }

    /// Sets where redo of the page begins; `None` if the page is clean. Returns what it was. For
    /// the thread that holds the latch alone, and for the cleaner, which shares it.
    pub fn set_recovery_lsn(&self, lsn: Option<Lsn>) -> Option<Lsn> {
        let before = self.recovery_lsn();
        self.recovery_lsn
            .store(lsn.map_or(CLEAN, Lsn::bytes), Ordering::Release); // O3
        before
    }

    /// Records a use for the replacement policy. Most calls write nothing.
    #[inline]
    pub fn record_use(&self) {
        // Relaxed, and no read-modify-write: a lost use decides nothing.
        let uses = self.uses.load(Ordering::Relaxed);
        if uses < MAX_USES {
            self.uses.store(uses + 1, Ordering::Relaxed);
        }
    }

    /// Number of uses that were counted, at most [`MAX_USES`].
    pub fn uses(&self) -> u8 {
        self.uses.load(Ordering::Relaxed)
    }

    /// Sets the number of uses.
    pub fn set_uses(&self, uses: u8) {
        self.uses.store(uses.min(MAX_USES), Ordering::Relaxed);
    }
}

/// Words.
impl Frame {
    /// Returns the page, to read. Its content is certain under the latch, or after validation.
    #[inline]
    pub fn read(&self) -> SlottedPage<FrameWords<'_>> {
        SlottedPage::new(FrameWords(&self.words))
    }

    /// Returns the page, to change. The caller holds the latch alone.
    #[inline]
    pub fn write(&self) -> SlottedPage<FrameWordsMut<'_>> {
        SlottedPage::new(FrameWordsMut(&self.words))
    }

    /// Copies the image of a page into the frame. The caller holds the latch alone.
    pub fn copy_from(&self, image: &[u8]) {
        let (words, _) = image.as_chunks::<8>();
        for (index, word) in words.iter().enumerate() {
            set(&self.words, index, u64::from_le_bytes(*word));
        }
    }

    /// Copies the page into `image`. The copy is whole if the caller shares the latch, or validates
    /// a version that it read before.
    pub fn copy_to(&self, image: &mut [u8]) {
        let (words, _) = image.as_chunks_mut::<8>();
        for (index, word) in words.iter_mut().enumerate() {
            *word = get(&self.words, index).to_le_bytes();
        }
    }
}

/// Returns word `index`, or 0 beyond the last.
#[inline]
fn get(words: &[AtomicU64], index: usize) -> u64 {
    // Relaxed: see the first page.
    words
        .get(index)
        .map_or(0, |word| word.load(Ordering::Relaxed))
}

#[inline]
fn set(words: &[AtomicU64], index: usize, value: u64) {
    if let Some(word) = words.get(index) {
        // Relaxed: the latch orders it.
        word.store(value, Ordering::Relaxed);
    }
}

/// Words of a frame that are read.
#[derive(Debug, Clone, Copy)]
pub struct FrameWords<'f>(&'f [AtomicU64]);

/// Words of a frame that are changed.
#[derive(Debug)]
pub struct FrameWordsMut<'f>(&'f [AtomicU64]);

impl PageWords for FrameWords<'_> {
    #[inline]
    fn word_count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn word(&self, index: usize) -> u64 {
        get(self.0, index)
    }

    #[inline]
    fn append_words(&self, first: usize, count: usize, copies: &mut Vec<[u8; 8]>) {
        let end = copies.len() + count;
        let words = self.0.get(first..).unwrap_or(&[]).iter().take(count);
        // Relaxed: see the first page.
        copies.extend(words.map(|word| word.load(Ordering::Relaxed).to_le_bytes()));
        copies.resize(end, [0; 8]);
    }
}

impl PageWords for FrameWordsMut<'_> {
    #[inline]
    fn word_count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn word(&self, index: usize) -> u64 {
        get(self.0, index)
    }
}

impl PageWordsMut for FrameWordsMut<'_> {
    #[inline]
    fn set_word(&mut self, index: usize, word: u64) {
        set(self.0, index, word);
    }
}
