//! Page allocator: which pages are free, and growth of the file.
//!
//! # State
//!
//! The space maps on disk say which pages are used. The allocator has a copy of their bits in
//! memory, read at opening, and finds free pages there. Beside the bits a summary has one bit for
//! each extent that has a free page.
//!
//! ```text
//!            claim                 record logged, bit of the map set
//!   free ------------> claimed -------------------------------------> used
//!     ^                   | dropped                                    |
//!     +-------------------+                                            |
//!     +---------------------- release, after the record that frees it -+
//! ```
//!
//! A thread *claims* a page before it latches anything. The claim is in memory alone, so a crash
//! forgets it. The change that needs the page sets its bit in the space map, in the same log
//! record. So a page leaks in no case, and a crash cannot come between an allocation and its use.
//!
//! # Invariants
//!
//! * I1  A page has one claim at most. A page whose bit is set in a space map is not free here.
//! * I2  Free pages are below the logical end of the file, and no map page is among them.
//! * I3  A map that the file grows by is durable before the logical end covers it. Its LSN is a
//!   position up to which the log is durable, and all records for earlier uses of that page end
//!   before it.
//!
//! * I4  While free pages are *held*, those at or behind the first held page are claimed by no
//!   thread, and those that become free there are held too. Only growth lifts a hold against the
//!   will of the thread that has it: the pages are needed then.
//! * I5  The file is cut only where all pages behind the cut are held, or are maps of such pages.
//! * I6  Operations that add rows leave some pages free. So rows can be deleted while the device is
//!   full, and then their pages are free.
//!
//! One mutex guards the bits, a second one growth and cuts. Threads that wait for growth hold
//! nothing.

use std::fmt;
use std::io::ErrorKind;

use foxton_log::Lsn;
use foxton_sync::shim::{self, Mutex};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use super::file::{PageBuffer, PageFile, PageFileError};
use crate::paged::PageId;
use crate::paged::page::{
    EXTENT_PAGES, PageError, PageFault, PageKind, PageSize, SlottedPage, SpaceMap, seal,
};

/// Site: the free pages of a page file.
pub static FREE_PAGES: Site = Site::new(Component::BufferPool, Pattern::Unbounded, "free pages");

/// Page of the table directory.
pub const DIRECTORY_PAGE: PageId = PageId::new(0, 1);

/// Bytes by which a file grows at least, unless that is more than [`LEAST_PAGES`] pages.
const LEAST_BYTES: u64 = 1 << 20;
const LEAST_PAGES: u64 = 128;
/// Bytes by which a file grows at most.
const MOST_BYTES: u64 = 64 << 20;

/// Number of free pages that only deletes may claim. A delete whose mark of a large value splits a
/// leaf needs one, and one for each level above it that is full.
pub const RESERVED_PAGES: u64 = 8;

/// Operation for which a page is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PagePurpose {
    /// One that adds rows. The last [`RESERVED_PAGES`] free pages are not for it.
    #[default]
    Growth,
    /// One that removes rows, and so leads to free pages. It may claim any free page.
    Removal,
}

impl PagePurpose {
    /// Number of free pages that are left to others.
    const fn rest(self) -> u64 {
        match self {
            PagePurpose::Growth => RESERVED_PAGES,
            PagePurpose::Removal => 0,
        }
    }
}

/// Free pages of a page file.
pub struct PageAllocator {
    size: PageSize,
    state: Mutex<FreePageMap>,
    growth: Mutex<()>,
}

struct FreePageMap {
    /// For each extent, the bits of pages that are used, claimed or beyond the logical end.
    taken: Vec<u64>,
    /// For each extent, a bit that says whether a page is free.
    summary: Vec<u64>,
    free: u64,
    end: u64,
    held: Option<HeldPages>,
    /// True from an opening or a cut until a page is claimed: the file does not grow ahead of
    /// nothing.
    is_quiet: bool,
    /// True once the file was cut, or is just about to be.
    was_cut: bool,
}

/// Free pages at the end of the file that no thread may claim. They count as taken.
#[derive(Debug)]
struct HeldPages {
    from: u64,
    /// For each extent from that of the first one on, the bits of held pages.
    free: Vec<u64>,
}

/// Use of a page, as the allocator knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageState {
    /// It is free, and may be claimed.
    Free,
    /// It is free, and held.
    Held,
    /// It is used, claimed, or of a fixed purpose.
    Taken,
}

impl fmt::Debug for PageAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageAllocator")
            .field("free", &self.free_count())
            .finish_non_exhaustive()
    }
}

/// A free page that one thread is about to use. Dropping it makes the page free again.
#[derive(Debug)]
#[must_use = "a claim that is dropped is no claim"]
pub struct PageAllocation<'a> {
    allocator: &'a PageAllocator,
    page: PageId,
}

impl PageAllocation<'_> {
    /// Returns the page.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Detaches the claim from its borrow. The caller attaches it again, or
    /// [releases](PageAllocator::release) the page.
    pub fn detach(self) -> PageId {
        let page = self.page;
        std::mem::forget(self);
        page
    }

    /// Ends the claim: the page is used now. For a thread that has set its bit in the space map.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for PageAllocation<'_> {
    fn drop(&mut self) {
        self.allocator.release(self.page);
    }
}

/// Prepares a new page file: a first space map, an empty table directory, and some free pages.
///
/// # Errors
///
/// If there is no space, or the device fails.
pub fn format_file(file: &PageFile) -> Result<(), PageFileError> {
    let mut directory = file.buffer(1);
    SlottedPage::new(directory.bytes_mut()).format(PageKind::Leaf, 0, 0, DIRECTORY_PAGE, b"", None);
    seal(directory.bytes_mut(), &file.identity());
    let map = map_image(file, 0, Lsn::ZERO);
    let pages = [(DIRECTORY_PAGE, directory), map];
    file.grow(growth_step(file.size(), 0), &pages)
}

/// A map and its sealed image.
pub type MapImage = (PageId, PageBuffer);

/// Returns map `index`, sealed.
fn map_image(file: &PageFile, index: u64, lsn: Lsn) -> MapImage {
    let mut image = file.buffer(1);
    SpaceMap::new(image.bytes_mut()).format(index, lsn);
    seal(image.bytes_mut(), &file.identity());
    (file.size().map_page(index), image)
}

/// Number of pages by which a file of `end` pages grows: a sixteenth, within bounds.
fn growth_step(size: PageSize, end: u64) -> u64 {
    let bytes = size.bytes() as u64;
    let least = (LEAST_BYTES / bytes).min(LEAST_PAGES);
    (end / 16).clamp(least, MOST_BYTES / bytes)
}

impl PageAllocator {
    /// Reads the space maps of `file`, and nothing else of it.
    ///
    /// # Errors
    ///
    /// If a map cannot be read, is damaged, or has a bit of a page that the file does not have.
    pub fn load(file: &PageFile) -> Result<PageAllocator, PageFileError> {
        let read = |page, buffer: &mut PageBuffer| file.read(page, buffer);
        Ok(PageAllocator {
            size: file.size(),
            state: Mutex::new(FreePageMap::read(file, read)?),
            growth: Mutex::new(()),
        })
    }

    /// Finds the free pages anew, by the space maps that `read` reads. Claims end. For the thread
    /// that alone uses the file.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load). Then the free pages are as before.
    pub fn reload<E: From<PageError>>(
        &self,
        file: &PageFile,
        read: impl FnMut(PageId, &mut PageBuffer) -> Result<(), E>,
    ) -> Result<(), E> {
        let state = FreePageMap::read(file, read)?;
        // Site: "free pages": once, after a restart.
        *shim::lock(&self.state) = state;
        Ok(())
    }

    /// Number of free pages.
    pub fn free_count(&self) -> u64 {
        // Site: "free pages", passed by those that allocate.
        shim::lock(&self.state).free
    }

    /// Claims a free page, as near behind `near` as can be found quickly. `None`: the file must
    /// [grow](Self::grow) first. Never waits for a device.
    pub fn claim(
        &self,
        worker: &Worker,
        near: PageId,
        purpose: PagePurpose,
    ) -> Option<PageAllocation<'_>> {
        worker.account().passed(&FREE_PAGES);
        let page = {
            let mut state = shim::lock(&self.state);
            let has_page = state.free > purpose.rest();
            has_page.then(|| state.take(near.number()))??
        };
        Some(PageAllocation {
            allocator: self,
            page: PageId::new(0, page),
        })
    }

    /// Claims the free page with the smallest number. `None`: there is none. Never waits.
    pub fn claim_first(&self, worker: &Worker) -> Option<PageAllocation<'_>> {
        worker.account().passed(&FREE_PAGES);
        let page = shim::lock(&self.state).take_first()?;
        Some(PageAllocation {
            allocator: self,
            page: PageId::new(0, page),
        })
    }

    /// Holds the free pages from page `from` on: until the [cut](Self::cut), a
    /// [release](Self::release_held), or growth, no thread claims them (I4).
    pub fn hold(&self, from: u64) {
        // Site: "free pages": once for a shrinking.
        let mut state = shim::lock(&self.state);
        state.release_held();
        state.hold(from);
    }

    /// Makes held pages free for all.
    pub fn release_held(&self) {
        // Site: "free pages": once for a shrinking.
        shim::lock(&self.state).release_held();
    }

    /// True if pages are held.
    pub fn is_held(&self) -> bool {
        // Site: "free pages": for each page that moves.
        shim::lock(&self.state).held.is_some()
    }

    /// True if the file was cut since it was opened. For a thread that could not read a page.
    pub fn was_cut(&self) -> bool {
        // Site: "free pages": a page is damaged, or was relocated meanwhile.
        shim::lock(&self.state).was_cut
    }

    /// Returns the state of page `number`.
    pub fn page_state(&self, number: u64) -> PageState {
        // Site: "free pages": for each page that moves.
        shim::lock(&self.state).state_of(number)
    }

    /// Returns the logical end that a file has if all its pages are moved to its beginning.
    pub fn shortest_end(&self) -> u64 {
        // Site: "free pages": once for a shrinking.
        let state = shim::lock(&self.state);
        let mapped = self.size.mapped_pages();
        let maps = |end: u64| end.div_ceil(mapped);
        let held = state.held.iter().flat_map(|held| &held.free);
        let held: u64 = held.map(|bits| u64::from(bits.count_ones())).sum();
        // Page 0, the directory, and the pages that move.
        let others = state.end - state.free - held - maps(state.end);
        let mut end = others + maps(1);
        while others + maps(end) > end {
            end = others + maps(end);
        }
        end
    }

    /// Cuts the file behind page `end`, if all pages from there on are held, or are maps of such
    /// pages (I5). Returns false if they are not. Other held pages are free for all then. The
    /// caller has made sure that no page behind the cut is dirty, and that no redo begins with one.
    ///
    /// # Errors
    ///
    /// If the device fails. Then the pages are as before, or beyond the logical end.
    pub fn cut(&self, file: &PageFile, end: u64) -> Result<bool, PageFileError> {
        // Site: "free pages": once for a shrinking. It keeps growth from lifting the hold.
        let _one = shim::lock(&self.growth);
        {
            // Site: "free pages": once for a shrinking.
            let mut state = shim::lock(&self.state);
            if !state.may_cut(end, self.size) {
                return Ok(false);
            }
            state.was_cut = true;
        }
        let cut = file.shrink(end);
        if file.header().end == end {
            // Site: "free pages": once for a shrinking.
            shim::lock(&self.state).cut(end);
        }
        cut.map(|()| true)
    }

    /// Returns the claim of a page that was [detached](PageAllocation::detach).
    pub fn attach(&self, page: PageId) -> PageAllocation<'_> {
        PageAllocation {
            allocator: self,
            page,
        }
    }

    /// Makes a used page free. For a thread that has cleared its bit in the space map.
    ///
    /// # Panics
    ///
    /// If the page is free already.
    pub fn release(&self, page: PageId) {
        // Site: "free pages", passed when it was claimed.
        shim::lock(&self.state).give_back(page.number());
    }

    /// Grows the file, unless pages are free again for every purpose. `durable_log` waits until the
    /// log is durable, and returns a position up to which it is (I3). `renew` is called with the
    /// images of the new maps, which may have been maps before the file was cut, before a page of
    /// them is free. Waits for the device and for other threads that grow the file; the caller
    /// holds no latch and no fix.
    ///
    /// # Errors
    ///
    /// If there is no space for it, or a device fails. Pages are free as before.
    pub fn grow<E: From<PageFileError>>(
        &self,
        file: &PageFile,
        durable_log: impl FnOnce() -> Result<Lsn, E>,
        renew: impl FnOnce(&[MapImage]),
    ) -> Result<(), E> {
        // Site: "free pages", passed when there was none.
        let _one = shim::lock(&self.growth);
        if self.free_count() > RESERVED_PAGES {
            return Ok(());
        }
        // I4: the end of the file is needed.
        self.release_held();
        if self.free_count() > RESERVED_PAGES {
            return Ok(());
        }
        self.extend(file, durable_log, renew)
    }

    /// Grows the file if few pages are free: fewer than half of a growth step, beside those that
    /// are left to deletes. For the thread that grows it ahead. Returns whether it did.
    ///
    /// # Errors
    ///
    /// As [`grow`](Self::grow).
    pub fn grow_ahead<E: From<PageFileError>>(
        &self,
        file: &PageFile,
        durable_log: impl FnOnce() -> Result<Lsn, E>,
        renew: impl FnOnce(&[MapImage]),
    ) -> Result<bool, E> {
        if !self.is_low() {
            return Ok(false);
        }
        // Site: "free pages": a thread of the pool, once for a growth.
        let _one = shim::lock(&self.growth);
        match self.is_low() {
            true => self.extend(file, durable_log, renew).map(|()| true),
            false => Ok(false),
        }
    }

    /// True if the file should grow ahead.
    pub fn is_low(&self) -> bool {
        // Site: "free pages", passed by those that allocate.
        let state = shim::lock(&self.state);
        let is_due = state.held.is_none() && !state.is_quiet;
        is_due && state.free < RESERVED_PAGES + growth_step(self.size, state.end) / 2
    }

    /// For the thread that has the mutex of growth.
    fn extend<E: From<PageFileError>>(
        &self,
        file: &PageFile,
        durable_log: impl FnOnce() -> Result<Lsn, E>,
        renew: impl FnOnce(&[MapImage]),
    ) -> Result<(), E> {
        let (before, mapped) = (file.header().end, self.size.mapped_pages());
        let end = before + growth_step(self.size, before);
        let maps = before.div_ceil(mapped)..end.div_ceil(mapped);
        let images: Vec<_> = match maps.is_empty() {
            true => Vec::new(),
            false => {
                let lsn = durable_log()?;
                maps.map(|index| map_image(file, index, lsn)).collect()
            }
        };
        file.grow(end, &images)?;
        renew(&images);
        // Site: "free pages": once for a growth.
        shim::lock(&self.state).extend(end, self.size);
        Ok(())
    }

    /// Compares the bits with the space maps, which `used` looks up. Call it while no thread
    /// allocates.
    ///
    /// # Panics
    ///
    /// If they differ, or the counts are wrong.
    pub fn verify(&self, mut used: impl FnMut(PageId) -> bool) {
        // Site: "free pages": for tests.
        let state = shim::lock(&self.state);
        let mut free = 0;
        for number in 0..state.end {
            let found = state.state_of(number);
            let (is_taken, page) = (found == PageState::Taken, PageId::new(0, number));
            assert_eq!(is_taken, used(page), "page {number}: taken, and used");
            free += u64::from(found == PageState::Free);
        }
        assert_eq!(free, state.free, "free pages are counted");
        for (extent, taken) in state.taken.iter().enumerate() {
            let has_free = state.summary[extent / 64] & 1 << (extent % 64) != 0;
            assert_eq!(
                has_free,
                *taken != u64::MAX,
                "the summary of extent {extent}"
            );
        }
    }
}

impl PageFileError {
    /// True if there was no space on the device. Nothing was changed then.
    pub fn is_full_device(&self) -> bool {
        match self {
            PageFileError::Device { call, error, .. } => {
                *call == "allocate"
                    && matches!(
                        error.kind(),
                        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
                    )
            }
            _ => false,
        }
    }
}

/// Returns extent and bit of page `number`.
fn split(number: u64) -> (usize, u64) {
    (
        (number / EXTENT_PAGES) as usize,
        1 << (number % EXTENT_PAGES),
    )
}

/// Returns the bits from `count` on.
fn bits_from(count: u64) -> u64 {
    u64::MAX.checked_shl(count.min(64) as u32).unwrap_or(0)
}

impl HeldPages {
    fn place(&self, number: u64) -> (usize, u64) {
        let (extent, bit) = split(number);
        (extent.wrapping_sub(split(self.from).0), bit)
    }

    fn has(&self, number: u64) -> bool {
        let (at, bit) = self.place(number);
        self.free.get(at).is_some_and(|bits| bits & bit != 0)
    }

    fn add(&mut self, number: u64) {
        let (at, bit) = self.place(number);
        assert!(
            self.free[at] & bit == 0,
            "page {number} is free already, and held"
        );
        self.free[at] |= bit;
    }

    fn remove(&mut self, number: u64) {
        let (at, bit) = self.place(number);
        self.free[at] &= !bit;
    }
}

impl FreePageMap {
    /// Returns the free pages of `file`, by the space maps that `read` reads.
    fn read<E: From<PageError>>(
        file: &PageFile,
        mut read: impl FnMut(PageId, &mut PageBuffer) -> Result<(), E>,
    ) -> Result<FreePageMap, E> {
        let (size, end) = (file.size(), file.header().end);
        let mut state = FreePageMap {
            taken: Vec::new(),
            summary: Vec::new(),
            free: 0,
            end,
            held: None,
            is_quiet: true,
            was_cut: false,
        };
        let mut buffer = file.buffer(1);
        for index in 0..end.div_ceil(size.mapped_pages()) {
            let page = size.map_page(index);
            read(page, &mut buffer)?;
            let content = SlottedPage::new(buffer.bytes());
            let fault = |field, value| {
                let fault = PageFault::Field { field, value };
                PageError { page, fault }
            };
            if content.kind() != Some(PageKind::SpaceMap) {
                let kind = content.kind().map_or(0, |kind| kind as u64);
                return Err(fault("kind", kind).into());
            }
            let map = SpaceMap::new(buffer.bytes());
            for extent in 0..size.mapped_extents() {
                let used = map.used_bits(extent);
                let first = index * size.mapped_pages() + extent as u64 * EXTENT_PAGES;
                let beyond = bits_from(end.saturating_sub(first));
                if used & beyond != 0 {
                    return Err(fault("bits beyond the logical end", used & beyond).into());
                }
                state.push(used | beyond);
            }
        }
        Ok(state)
    }

    fn push(&mut self, taken: u64) {
        let extent = self.taken.len();
        if extent.is_multiple_of(64) {
            self.summary.push(0);
        }
        self.taken.push(taken);
        self.free += u64::from(taken.count_zeros());
        self.summarize(extent);
    }

    /// Brings the bit of the summary up to date.
    fn summarize(&mut self, extent: usize) {
        let bit = 1 << (extent % 64);
        match self.taken[extent] {
            u64::MAX => self.summary[extent / 64] &= !bit,
            _ => self.summary[extent / 64] |= bit,
        }
    }

    fn take(&mut self, near: u64) -> Option<u64> {
        if self.free == 0 {
            return None;
        }
        let (extent, bit) = split(near.min(self.end - 1));
        // Behind `near` in its extent, anywhere in its extent, in the next extent with a free page.
        let behind = !self.taken[extent] & !(bit | (bit - 1));
        let (extent, free) = match (behind, !self.taken[extent]) {
            (0, 0) => {
                let extent = self.next_with_free(extent)?;
                (extent, !self.taken[extent])
            }
            (0, free) => (extent, free),
            (behind, _) => (extent, behind),
        };
        Some(self.take_at(extent, free.trailing_zeros()))
    }

    fn take_at(&mut self, extent: usize, index: u32) -> u64 {
        self.taken[extent] |= 1 << index;
        self.free -= 1;
        self.is_quiet = false;
        self.summarize(extent);
        extent as u64 * EXTENT_PAGES + u64::from(index)
    }

    fn take_first(&mut self) -> Option<u64> {
        let word = self.summary.iter().position(|bits| *bits != 0)?;
        let extent = word * 64 + self.summary[word].trailing_zeros() as usize;
        let free = !self.taken[extent];
        Some(self.take_at(extent, free.trailing_zeros()))
    }

    fn state_of(&self, number: u64) -> PageState {
        let (extent, bit) = split(number);
        let is_held = self.held.as_ref().is_some_and(|held| held.has(number));
        match self.taken[extent] & bit != 0 {
            true if is_held => PageState::Held,
            true => PageState::Taken,
            false => PageState::Free,
        }
    }

    fn hold(&mut self, from: u64) {
        let first = split(from).0;
        let mut free = Vec::new();
        for extent in first..self.taken.len() {
            let behind = bits_from(from.saturating_sub(extent as u64 * EXTENT_PAGES));
            let bits = !self.taken[extent] & behind;
            free.push(bits);
            self.taken[extent] |= bits;
            self.free -= u64::from(bits.count_ones());
            self.summarize(extent);
        }
        self.held = Some(HeldPages { from, free });
    }

    fn release_held(&mut self) {
        let Some(held) = self.held.take() else {
            return;
        };
        for (extent, bits) in (split(held.from).0..).zip(held.free) {
            self.taken[extent] &= !bits;
            self.free += u64::from(bits.count_ones());
            self.summarize(extent);
        }
    }

    /// True if all pages from `end` on are held, or are maps (I5).
    fn may_cut(&self, end: u64, size: PageSize) -> bool {
        let is_map = |number| size.map_position(PageId::new(0, number)).map.number() == number;
        let is_behind = self.held.as_ref().is_some_and(|held| held.from <= end);
        let mut behind = end..self.end;
        is_behind && behind.all(|number| self.state_of(number) == PageState::Held || is_map(number))
    }

    /// For a file that was cut. Pages behind the end are taken, as those of each map are.
    fn cut(&mut self, end: u64) {
        if let Some(held) = &mut self.held {
            for number in end..self.end {
                held.remove(number);
            }
        }
        self.end = end;
        self.release_held();
        self.is_quiet = true;
    }

    /// Returns the first extent behind `extent` that has a free page, beginning again at the first.
    fn next_with_free(&self, extent: usize) -> Option<usize> {
        let words = self.summary.len();
        let first = extent / 64;
        // The word of `extent` comes twice: its bits behind, and at the end those before.
        (0..=words).find_map(|step| {
            let at = (first + step) % words;
            let mask = match step {
                0 => bits_from(extent as u64 % 64),
                _ => u64::MAX,
            };
            let bits = self.summary[at] & mask;
            (bits != 0).then(|| at * 64 + bits.trailing_zeros() as usize)
        })
    }

    fn give_back(&mut self, number: u64) {
        let (extent, bit) = split(number);
        assert!(
            self.taken[extent] & bit != 0,
            "page {number} is free already"
        );
        if let Some(held) = self.held.as_mut().filter(|held| held.from <= number) {
            return held.add(number); // I4
        }
        self.taken[extent] &= !bit;
        self.free += 1;
        self.summarize(extent);
    }

    fn extend(&mut self, end: u64, size: PageSize) {
        let first_new = self.end;
        self.end = end;
        self.is_quiet = false;
        while (self.taken.len() as u64) * EXTENT_PAGES < end {
            self.push(u64::MAX);
        }
        for number in first_new..end {
            let page = PageId::new(0, number);
            if size.map_position(page).map != page {
                self.give_back(number);
            }
        }
    }
}

mod tests;
