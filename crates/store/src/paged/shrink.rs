//! Shrinking of the page file: its last pages move to its beginning, and then its end is cut off.
//!
//! # The mechanism
//!
//! Shrinking is online and goes in steps. Between two of them the caller may stop, or wait.
//!
//! ```text
//!   begin     the shortest end is computed, and free pages behind it are held
//!   step      the last page that is used moves to the first free page (btree::relocate)
//!   finish    all pages behind the new end are free and clean: the header gets the new end and is
//!             synced, and only then the file is cut
//! ```
//!
//! Transactions go on meanwhile. They take free pages before the new end, so that some pages may
//! find none: then the new end is behind the last of those. If there is no free page at all, the
//! held ones are free again, because rows come first.
//!
//! # Why nothing is lost
//!
//! * Each move is one record, as a split is. A kill leaves each page moved or not.
//! * A page behind the new end is free, held and clean, and no row of a parent leads to it. So it
//!   is not changed and not written again.
//! * The caller makes a checkpoint before it finishes, so no restart redoes a change of such a
//!   page. The log may have changes of it, but before the checkpoint.
//! * A thread that found the old number in a parent before the move may read the page after the
//!   cut. It looks for the page anew (`TreeVisit::wait`).
//! * A map behind the new end may be resident when the file grows over it again. Growth writes a
//!   new map with a later LSN than all records of the old one, and renews the frame. So redo makes
//!   no change of the old map, and the chain of changes of the new one begins at that LSN.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foxton_sync::worker::Worker;

use super::PageId;
use super::btree::{PagePlace, PagedTree, Relocation, TableDirectory, TreeError};
use super::page::SpaceMap;
use super::pool::{BufferPool, PageRequest};
use super::space::PageState;

/// A page file that is being shrunk. One thread at a time has one. Dropping it stops: the pages
/// that were moved stay where they are.
#[derive(Debug)]
pub struct FileShrink<'d> {
    directory: &'d TableDirectory,
    trees: HashMap<u64, PagedTree>,
    /// The end that the file is to have.
    target: u64,
    /// Pages from here on are free.
    next: u64,
    moved: u64,
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShrinkStep {
    /// A page was moved.
    Moved,
    /// The last page is changing, or a thread has claimed it and not used it yet: try again soon.
    Busy,
    /// No other page can be moved.
    Done,
}

impl<'d> FileShrink<'d> {
    /// Begins to shrink the file of the trees of `directory`.
    ///
    /// So many pages before the new end as `slack` says are left to other threads.
    pub fn begin(directory: &'d TableDirectory, slack: u64) -> FileShrink<'d> {
        let pool = directory.tree().pool();
        let end = pool.file().header().end;
        let target = end.min(pool.space().shortest_end() + slack);
        pool.space().hold(target);
        FileShrink {
            directory,
            trees: HashMap::new(),
            target,
            next: end,
            moved: 0,
        }
    }

    fn pool(&self) -> &'d BufferPool {
        self.directory.tree().pool()
    }

    /// Number of pages that were moved.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Number of pages between the target and those that are known to be free.
    pub fn remaining(&self) -> u64 {
        self.next.saturating_sub(self.target)
    }

    /// Moves at most one page. Waits for pages and for log space.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged, or a change cannot be logged.
    pub fn step(&mut self, worker: &Worker) -> Result<ShrinkStep, TreeError> {
        let (space, size) = (self.pool().space(), self.pool().page_size());
        while self.next > self.target {
            let page = PageId::new(0, self.next - 1);
            let is_map = size.map_position(page).map == page;
            match space.page_state(page.number()) {
                PageState::Held => self.next -= 1,
                PageState::Taken if is_map => self.next -= 1,
                PageState::Free => return Ok(self.stop()),
                PageState::Taken if self.is_lifted() => return Ok(self.stop()),
                PageState::Taken => return self.relocate(worker, page),
            }
        }
        Ok(ShrinkStep::Done)
    }

    /// Moves no other page: the file is cut behind the last one that is used.
    pub fn stop(&mut self) -> ShrinkStep {
        self.target = self.next;
        ShrinkStep::Done
    }

    fn relocate(&mut self, worker: &Worker, page: PageId) -> Result<ShrinkStep, TreeError> {
        let Some(place) = self.place(worker, page)? else {
            return Ok(ShrinkStep::Busy);
        };
        let tree = match place.table {
            0 => self.directory.tree(),
            table => match self.trees.entry(table) {
                Entry::Occupied(known) => &*known.into_mut(),
                Entry::Vacant(place) => match self.directory.open(worker, table)? {
                    Some(tree) => place.insert(tree),
                    None => return Ok(ShrinkStep::Busy),
                },
            },
        };
        Ok(match self.directory.relocate(worker, tree, &place)? {
            Relocation::Moved(_) => {
                self.moved += 1;
                ShrinkStep::Moved
            }
            Relocation::Gone => ShrinkStep::Busy,
            Relocation::NoPage => self.stop(),
        })
    }

    /// Returns the place of a page that is used. `None`: it is not used yet, or is changing.
    fn place(&self, worker: &Worker, page: PageId) -> Result<Option<PagePlace>, TreeError> {
        let (pool, position) = (self.pool(), self.pool().page_size().map_position(page));
        let map = pool.reserve(worker, &[PageRequest::read(position.map)])?;
        let view = map.pages()[0].view_now(worker);
        let is_used = SpaceMap::new(view.read().words()).is_used(position.index);
        // One record sets the bit and formats the page. So a page that is used can be read.
        if !view.is_valid() || !is_used {
            return Ok(None);
        }
        drop(map);
        let fixed = pool.reserve(worker, &[PageRequest::read(page)])?;
        Ok(PagePlace::of(&fixed.pages()[0].view_now(worker)))
    }

    /// True if growth needed the pages that were held. Then the file is not cut.
    pub fn is_lifted(&self) -> bool {
        !self.pool().space().is_held()
    }

    /// True if no page behind the end is dirty. Then none becomes dirty any more.
    pub fn is_clean(&self) -> bool {
        !self.pool().is_dirty_from(self.next)
    }

    /// Cuts the file behind the pages that are used. Returns false if that has to wait: pages
    /// behind are dirty, or growth needed them. The caller has made a checkpoint since the last
    /// page was moved, if changes are logged.
    ///
    /// # Errors
    ///
    /// If a device or the log fails.
    pub fn finish(&self, worker: &Worker) -> Result<bool, TreeError> {
        Ok(self.pool().cut_file(worker, self.next)?)
    }
}

impl Drop for FileShrink<'_> {
    fn drop(&mut self) {
        self.pool().space().release_held();
    }
}
