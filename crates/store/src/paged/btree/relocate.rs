//! Relocation: a page of a tree moves to the first free page of the file.
//!
//! ```text
//!        [ .. | k: 900 | .. ]  parent          [ .. | k: 12 | .. ]
//!                 \               move                 \
//!              page 900        ---------->           page 12       page 900 is free
//! ```
//!
//! A move is one record: the parent's pointer, the old page, the new one, and their bits. The new
//! page has the rows, flags and reserved bytes of the old one. The old one becomes
//! [free](PageKind::Free), so a [token](super::token) of it notices that its range is another
//! page's. No page has a link to its neighbour, so no other page changes.
//!
//! | page | its parent |
//! |------|------------|
//! | leaf, branch | the branch above, found by table, level and low fence |
//! | root of a table | the table's partition page; the shared number of the root follows (I9) |
//! | partition page | the leaf of the directory with the table's row |
//! | root of the directory, space map | none: it never moves |

use foxton_sync::worker::Worker;
use smallvec::smallvec;

use super::PagedTree;
use super::descend::TreeTarget;
use super::directory::TableDirectory;
use super::error::TreeError;
use super::smo::{LatchedPages, format_bytes};
use super::visit::{PageList, Step, TreeAttempt, TreeVisit};
use super::write::slot16;
use crate::paged::PageId;
use crate::paged::page::{KeyBytes, PageKind, PageOperation};
use crate::paged::pool::{PageRequest, PageView};
use crate::paged::space::DIRECTORY_PAGE;

/// Result of an attempt to relocate a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relocation {
    /// The page is free, and this one has its content.
    Moved(PageId),
    /// The page is not the one that it was: it was merged or moved, or is in no tree yet.
    Gone,
    /// There is no free page before it.
    NoPage,
}

/// A page of a tree as it was read, by which its parent is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagePlace {
    /// The page.
    pub page: PageId,
    /// Kind; `None` if it is no page of a tree.
    pub kind: Option<PageKind>,
    /// Table.
    pub table: u64,
    level: u8,
    low: KeyBytes,
}

impl PagePlace {
    pub(super) fn level(&self) -> u8 {
        self.level
    }

    pub(super) fn low(&self) -> &[u8] {
        &self.low
    }

    /// Returns the place of a page that was read. The view was not validated since.
    pub fn of(view: &PageView<'_>) -> Option<PagePlace> {
        let content = view.read();
        let place = PagePlace {
            page: view.page(),
            kind: content.kind(),
            table: content.table(),
            level: content.level(),
            low: content.low_fence(),
        };
        view.is_valid().then_some(place)
    }
}

impl TableDirectory {
    /// Moves a page to the first free one. `tree` is the tree of the page's table; that of the
    /// directory for table 0. Waits for pages, for log space and until fewer pages are dirty.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged, or the change cannot be logged.
    pub fn relocate(
        &self,
        worker: &Worker,
        tree: &PagedTree,
        place: &PagePlace,
    ) -> Result<Relocation, TreeError> {
        let mut visit = self.tree().visit(worker);
        match place.kind {
            _ if place.page == DIRECTORY_PAGE => Ok(Relocation::Gone),
            Some(PageKind::Partitions) => visit.run(|visit| visit.relocate_partitions(place)),
            Some(PageKind::Leaf | PageKind::Branch) if tree.root() == place.page => {
                visit.run(|visit| visit.relocate_root(tree, place.page))
            }
            Some(PageKind::Leaf | PageKind::Branch) => {
                drop(visit);
                let mut visit = tree.visit(worker);
                visit.run(|visit| visit.relocate(place))
            }
            Some(PageKind::SpaceMap | PageKind::Free) | None => Ok(Relocation::Gone),
        }
    }
}

impl<'t> TreeVisit<'t> {
    /// Attempts to move a page of this tree that is not its root.
    fn relocate(&mut self, place: &PagePlace) -> Result<TreeAttempt<Relocation>, TreeError> {
        self.is_scan = false;
        self.attempt(|visit| {
            let target = TreeTarget::At(&place.low);
            let node = visit.descend(target, place.level)?;
            if visit.is_root(&node)? || node.page() != place.page {
                return Ok(Relocation::Gone);
            }
            visit.want(node.page());
            let parent = visit.descend(target, place.level + 1)?;
            let content = parent.read();
            let slot = content.child_of(&place.low).0;
            let child = content.child(slot);
            if !parent.is_valid() || child != Some(node.page()) {
                return visit.busy(parent.page());
            }
            visit.want(parent.page());
            visit.move_page(&parent, slot, &node, None)
        })
    }

    /// Attempts to move the root of `tree`. This is a visit of the directory.
    fn relocate_root(
        &mut self,
        tree: &PagedTree,
        root: PageId,
    ) -> Result<TreeAttempt<Relocation>, TreeError> {
        self.attempt(|visit| {
            let Some((_, _, partitions)) = visit.partitions_of(tree.table)? else {
                return Ok(Relocation::Gone);
            };
            let child = partitions.read().child(0);
            if !partitions.is_valid() {
                return visit.busy(partitions.page());
            }
            if child != Some(root) {
                return Ok(Relocation::Gone);
            }
            visit.want(partitions.page());
            let node = visit.page(root)?;
            visit.want(root);
            visit.move_page(&partitions, 0, &node, Some(tree))
        })
    }

    /// Attempts to move the partition page of a table. This is a visit of the directory.
    fn relocate_partitions(
        &mut self,
        place: &PagePlace,
    ) -> Result<TreeAttempt<Relocation>, TreeError> {
        self.attempt(|visit| {
            let Some((leaf, slot, partitions)) = visit.partitions_of(place.table)? else {
                return Ok(Relocation::Gone);
            };
            if partitions.page() != place.page {
                return Ok(Relocation::Gone);
            }
            visit.want(partitions.page());
            visit.move_page(&leaf, slot, &partitions, None)
        })
    }

    /// Moves `node`, to which the row `slot` of `parent` leads. `root_of`: it is the root of this
    /// tree.
    fn move_page(
        &mut self,
        parent: &PageView<'t>,
        slot: usize,
        node: &PageView<'t>,
        root_of: Option<&PagedTree>,
    ) -> Step<Relocation> {
        self.admit_change(None)?;
        if self.allocations.is_empty() {
            let first = self.tree.pool.space().claim_first(self.worker);
            match first.filter(|first| first.page() < node.page()) {
                Some(first) => self.allocations.push(first),
                None => return Ok(Relocation::NoPage),
            }
        }
        let (size, old, new) = (self.tree.size(), node.page(), self.allocations[0].page());
        let from = size.map_position(old);
        let mut pages: PageList = smallvec![PageRequest::read(parent.page())];
        pages.push(PageRequest::read(old));
        pages.extend(self.new_pages(1));
        if pages.iter().all(|request| request.page != from.map) {
            pages.push(PageRequest::read(from.map));
        }
        self.require(pages)?;
        let most = format_bytes(&node.read());
        if !node.is_valid() {
            return self.busy(old);
        }
        let space = self.log_space(most + size.bytes())?;
        let parent = self.try_lock(parent)?;
        let node = self.try_lock(node)?;
        let number = new.0.to_le_bytes();
        let pointer = PageOperation::Replace {
            slot: slot16(slot),
            value: &number,
        };
        let format = {
            let content = node.read();
            let Some(kind) = content.kind() else {
                return Err(TreeError::field(old, "kind", content.table()).into());
            };
            PageOperation::Format {
                kind,
                level: content.level(),
                table: content.table(),
                low: content.low_fence(),
                high: content.high_fence(),
                rows: content.all_rows(),
            }
        };
        let free = PageOperation::Format {
            kind: PageKind::Free,
            level: 0,
            table: node.read().table(),
            low: KeyBytes::new(),
            high: None,
            rows: Vec::new(),
        };
        let mut latched: LatchedPages<'_, '_> = smallvec![(parent, pointer), (node, free)];
        latched.push((self.lock(new), format));
        self.push_maps(&mut latched, old, new);
        self.change_structure(space, &mut latched)?;
        if let Some(tree) = root_of {
            tree.set_root(new); // I9: the latch of the old root is held.
        }
        drop(latched);
        self.allocations.drain(..1).for_each(|new| new.keep());
        self.tree.pool.release_page(old);
        Ok(Relocation::Moved(new))
    }

    /// Latches the maps of both pages, in the order of their numbers, and adds their changes.
    fn push_maps(&self, latched: &mut LatchedPages<'t, '_>, old: PageId, new: PageId) {
        let size = self.tree.size();
        let (from, to) = (size.map_position(old), size.map_position(new));
        if from.map == to.map {
            let (from, to) = (from.index, to.index);
            let map = size.map_position(new).map;
            return latched.push((self.lock(map), PageOperation::Remap { from, to }));
        }
        let mut maps = [(from, false), (to, true)];
        maps.sort_unstable_by_key(|(position, _)| position.map);
        for (position, is_used) in maps {
            let operation = PageOperation::MapPages {
                indexes: smallvec![position.index],
                is_used,
            };
            latched.push((self.lock(position.map), operation));
        }
    }
}
