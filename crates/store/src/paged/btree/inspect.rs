//! Inspection: each page of a tree in its place, while other threads use the tree.
//!
//! A caller inspects a tree from the empty key on, one leaf after the other. An
//! [inspection](TreeVisit::inspect) descends from the root to the leaf of a key, and looks at the
//! leaf and at those branches that begin with this key. So it comes to each page once, and at most
//! a leaf and its branches are needed at a time. A page that moves meanwhile, or whose range grows,
//! may be looked at twice; its rows are then counted twice.
//!
//! A page that the map says is used, and that no inspection has come to, is looked for
//! [by what it says itself](TableDirectory::is_placed).
//!
//! # Why a finding is one
//!
//! * I1  A page is copied and then validated, so what is checked is one version of it.
//! * I2  A child is compared with its parent in any case, at a moment at which both were as they
//!   were read (I2 of the tree).
//! * I3  One SMO changes a page, its bit in the map and what leads to it, under all their latches
//!   (I3 and I7 of the tree). Bit and page are validated after both were read. So at one moment
//!   both were so.
//! * I4  A page stays where it is as long as it does not change: each SMO that gives its place to
//!   another page formats it. So if a descent to its place ends at another page, and afterwards the
//!   page has not changed, no branch led to it.

use foxton_sync::worker::Worker;

use super::PagedTree;
use super::descend::TreeTarget;
use super::directory::TableDirectory;
use super::error::TreeError;
use super::relocate::PagePlace;
use super::visit::{Step, TreeAttempt, TreeVisit};
use crate::paged::PageId;
use crate::paged::page::{KeyBytes, PageError, PageKind, PageWords, SlottedPage, SpaceMap};
use crate::paged::pool::PageView;

/// Result of an inspection.
#[derive(Debug, Default)]
pub struct TreeInspection {
    /// The pages that were looked at, branches first.
    pub pages: Vec<PageId>,
    /// Number of rows of the leaf, without ghosts.
    pub rows: u64,
    /// The key at which the next leaf begins, or the part of the tree behind the damaged page;
    /// `None` if there is nothing behind.
    pub next: Option<KeyBytes>,
    /// A copy of the page that is looked at.
    image: Vec<[u8; 8]>,
}

/// Whether a page is in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    Placed,
    /// No page leads to it.
    Lost,
    /// It is not what it was.
    Changed,
}

impl<'t> TreeVisit<'t> {
    /// Attempts to inspect the leaf of `key`, and the branches that begin with `key`.
    ///
    /// # Errors
    ///
    /// If a page is damaged, is not as its parent says, or is free in its map. `inspection` then
    /// says where to go on.
    pub fn inspect(
        &mut self,
        key: &[u8],
        inspection: &mut TreeInspection,
    ) -> Result<TreeAttempt<()>, TreeError> {
        self.is_scan = true;
        self.attempt(|visit| {
            inspection.pages.clear();
            (inspection.rows, inspection.next) = (0, None);
            let mut view = visit.root()?;
            loop {
                let is_leaf = visit.inspect_page(&view, key, inspection)?;
                visit.want(view.page());
                if is_leaf {
                    return Ok(());
                }
                let child = visit.child(&view, TreeTarget::At(key))?;
                view = visit.couple_checked(&view, child)?;
            }
        })
    }

    /// Looks at a page on the way to `key`. Returns true if it is a leaf.
    fn inspect_page(
        &mut self,
        view: &PageView<'t>,
        key: &[u8],
        inspection: &mut TreeInspection,
    ) -> Step<bool> {
        let (page, image) = (view.page(), &mut inspection.image);
        image.clear();
        let content = view.read();
        content
            .words()
            .append_words(0, self.tree.size().words(), image);
        if !view.is_valid() {
            return self.busy(page);
        }
        let content = SlottedPage::new(image.as_flattened());
        let is_leaf = content.level() == 0;
        let slot = content.child_of(key).0;
        inspection.next = match !is_leaf && slot + 1 < content.slot_count() {
            true => Some(content.key(slot + 1)),
            false => content.high_fence(),
        };
        if !is_leaf && !content.has_low_fence(key) {
            return Ok(false); // An earlier key has come to it.
        }
        let checked = content.verify();
        checked.map_err(|fault| TreeError::Damaged(PageError { page, fault }))?;
        if content.page() != page {
            return Err(TreeError::field(page, "number", content.page().0).into());
        }
        if is_leaf {
            inspection.rows = (content.slot_count() - content.ghost_count()) as u64;
        }
        self.check_used(view)?;
        inspection.pages.push(page);
        Ok(is_leaf)
    }

    /// Fails if the page is free in its map (I3).
    fn check_used(&mut self, view: &PageView<'t>) -> Step<()> {
        let page = view.page();
        self.want(page);
        let position = self.tree.size().map_position(page);
        let map = self.page(position.map)?;
        let is_used = SpaceMap::new(map.read().words()).is_used(position.index);
        match (map.is_valid(), view.is_valid(), is_used) {
            (false, ..) => self.busy(map.page()),
            (_, false, _) => self.busy(page),
            (true, true, true) => Ok(()),
            (true, true, false) => Err(TreeError::field(page, "bit in its map", 0).into()),
        }
    }

    /// Returns the place that a page says that it has, or `None` if its map says that it is free.
    fn used_place(&mut self, page: PageId) -> Step<Option<PagePlace>> {
        let position = self.tree.size().map_position(page);
        let map = self.page(position.map)?;
        let is_used = SpaceMap::new(map.read().words()).is_used(position.index);
        if !map.is_valid() {
            return self.busy(map.page());
        }
        if !is_used {
            return Ok(None);
        }
        self.want(map.page());
        let view = self.page(page)?;
        match (PagePlace::of(&view), map.is_valid()) {
            (Some(place), true) => Ok(Some(place)),
            (None, _) => self.busy(page),
            (_, false) => self.busy(map.page()),
        }
    }

    /// Looks for a page of this tree in the place that it says that it has (I4). `place` is as an
    /// earlier attempt has read it.
    fn placement(&mut self, place: &PagePlace) -> Step<Placement> {
        let view = self.page(place.page)?;
        match PagePlace::of(&view) {
            Some(now) if now == *place => {}
            Some(_) => return Ok(Placement::Changed),
            None => return self.busy(place.page),
        }
        self.want(place.page);
        let found = match place.kind {
            Some(PageKind::Partitions) => {
                let found = self.partitions_of(place.table)?;
                found.map(|(.., partitions)| partitions.page())
            }
            _ => self.page_from_root(place)?,
        };
        Ok(match (found == Some(place.page), view.is_valid()) {
            (true, _) => Placement::Placed,
            (false, true) => Placement::Lost,
            (false, false) => Placement::Changed,
        })
    }

    /// Returns the page of a place, found from the root without any hint.
    fn page_from_root(&mut self, place: &PagePlace) -> Step<Option<PageId>> {
        let mut view = self.root()?;
        loop {
            let (level, expected) = (view.read().level(), place.level());
            if !view.is_valid() {
                return self.busy(view.page());
            }
            if level <= expected {
                return Ok((level == expected).then_some(view.page()));
            }
            self.want(view.page());
            let child = self.child(&view, TreeTarget::At(place.low()))?;
            view = self.couple_checked(&view, child)?;
        }
    }
}

impl TableDirectory {
    /// Returns the partition page of a table, or `None` if the table has no tree. Waits for pages.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged, or the partition page is free in its map.
    pub fn inspect_partitions(
        &self,
        worker: &Worker,
        table: u64,
    ) -> Result<Option<PageId>, TreeError> {
        let mut visit = self.tree().visit(worker);
        visit.run(|visit| {
            visit.attempt(|visit| {
                let Some((_, _, partitions)) = visit.partitions_of(table)? else {
                    return Ok(None);
                };
                visit.check_used(&partitions)?;
                Ok(Some(partitions.page()))
            })
        })
    }

    /// True if `page` is in its place, or is free. The caller names no map and no page of a fixed
    /// purpose. Waits for pages.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged.
    pub fn is_placed(&self, worker: &Worker, page: PageId) -> Result<bool, TreeError> {
        let mut visit = self.tree().visit(worker);
        loop {
            let used = visit.run(|visit| visit.attempt(|visit| visit.used_place(page)))?;
            let Some(place) = used else { return Ok(true) };
            let placement = match (place.kind, place.table) {
                (Some(PageKind::Partitions), _) | (Some(PageKind::Leaf | PageKind::Branch), 0) => {
                    visit.run(|visit| visit.attempt(|visit| visit.placement(&place)))?
                }
                (Some(PageKind::Leaf | PageKind::Branch), table) => {
                    visit.release();
                    match self.open(worker, table)? {
                        Some(tree) => placement_in(&tree, worker, &place)?,
                        None => self.placement_in_none(worker, &place)?,
                    }
                }
                (Some(PageKind::SpaceMap | PageKind::Free) | None, _) => return Ok(false),
            };
            match placement {
                Placement::Placed => return Ok(true),
                Placement::Lost => return Ok(false),
                Placement::Changed => {}
            }
        }
    }

    /// Returns the placement of a page of a table that has no tree, or had none just now.
    fn placement_in_none(
        &self,
        worker: &Worker,
        place: &PagePlace,
    ) -> Result<Placement, TreeError> {
        let mut visit = self.tree().visit(worker);
        let now = visit.run(|visit| visit.attempt(|visit| visit.used_place(place.page)))?;
        Ok(match now.as_ref() == Some(place) {
            true => Placement::Lost,
            false => Placement::Changed,
        })
    }
}

fn placement_in(
    tree: &PagedTree,
    worker: &Worker,
    place: &PagePlace,
) -> Result<Placement, TreeError> {
    let mut visit = tree.visit(worker);
    let found = visit.run(|visit| visit.attempt(|visit| visit.placement(place)));
    match found {
        // Its table was dropped meanwhile.
        Err(TreeError::Dropped { .. }) => Ok(Placement::Changed),
        found => found,
    }
}
