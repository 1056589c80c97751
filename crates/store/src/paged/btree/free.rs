//! Freeing of a whole tree, one page after the other, while the directory still leads to it.
//!
//! A tree whose table was dropped has rows that nothing reads. So it is not emptied row by row: a
//! leaf goes with all its rows, in a record like that of a [merge](super::merge). After each record
//! it is a whole tree, so a kill leaves a smaller one, and each page is in one place.
//!
//! | step | record | free then |
//! |------|--------|-----------|
//! | `Leaf` | a leaf takes over the range of its right neighbour, and keeps one row | neighbour |
//! | `Join` | two branches with one child each become one | right one |
//! | `Root` | the root takes over the content of its only child | child |
//! | `Last` | the directory leads to no tree any more | root, partition page |
//!
//! A leaf with all its rows may not fit a page any more when its range grows, because the keys of
//! the range have less in common. One row always does.
//!
//! The row of the directory then has the partition page 0, which stands for none, and is erased. If
//! it is the only one of its leaf it stays so, because a leaf has a row (I8 of the tree).
//!
//! # The caller
//!
//! It keeps all others from changing rows or pages of the tree, a thread that shrinks the file
//! included. Others may read: the tree is whole at each moment, and after the last step a visit
//! fails with [`Dropped`](TreeError::Dropped). Then no tree of that table is made while the file is
//! open, because another thread may have the old number of the root still.

use foxton_sync::worker::Worker;
use smallvec::smallvec;

use super::descend::TreeTarget;
use super::directory::{NO_TREE, TableDirectory};
use super::error::TreeError;
use super::smo::{LatchedPages, kind};
use super::visit::{PageList, Step, TreeAttempt, TreeVisit};
use super::write::slot16;
use super::{NO_ROOT, PagedTree};
use crate::paged::PageId;
use crate::paged::page::{KeyBytes, PageKind, PageOperation};
use crate::paged::pool::{PageRequest, PageView};

/// Next step of freeing a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FreeStep {
    /// The right one of two leaves with these low fences goes, the left one keeps its first row.
    Leaf(KeyBytes, KeyBytes),
    /// The branches of this level from this key on become one.
    Join(u8, KeyBytes),
    /// The root loses a level.
    Root,
    /// Root and partition page go. The root is a leaf and may have rows, which go, too.
    Last,
}

/// A branch, as far as freeing looks at it.
struct BranchShape {
    low: KeyBytes,
    /// Low fence of the second child.
    second: Option<KeyBytes>,
}

fn free_page(table: u64) -> PageOperation<'static> {
    PageOperation::Format {
        kind: PageKind::Free,
        level: 0,
        table,
        low: KeyBytes::new(),
        high: None,
        rows: Vec::new(),
    }
}

impl PagedTree {
    /// Returns the step by which to go on with freeing the tree. Waits for pages.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged.
    pub fn next_free_step(&self, worker: &Worker) -> Result<FreeStep, TreeError> {
        let mut visit = self.visit(worker);
        let level = visit.run(|visit| {
            visit.attempt(|visit| {
                let root = visit.root()?;
                let level = root.read().level();
                match root.is_valid() {
                    true => Ok(level),
                    false => visit.busy(root.page()),
                }
            })
        })?;
        if level == 0 {
            return Ok(FreeStep::Last);
        }
        Ok(visit.step_below(b"", level)?.unwrap_or(FreeStep::Root))
    }

    /// Makes a step other than the last. Waits for pages, for log space and until fewer pages are
    /// dirty. Returns false if the tree has changed and there is another step to make.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged, or the change cannot be logged.
    pub fn free_page(&self, worker: &Worker, step: &FreeStep) -> Result<bool, TreeError> {
        let mut visit = self.visit(worker);
        visit.run(|visit| match step {
            FreeStep::Leaf(_, low) => visit.attempt(|visit| visit.discard_leaf(low)),
            FreeStep::Join(level, low) => visit.attempt(|visit| visit.join(*level, low)),
            FreeStep::Root => visit.attempt(TreeVisit::lower_root),
            FreeStep::Last => Ok(TreeAttempt::Done(false)),
        })
    }
}

impl TableDirectory {
    /// Makes the last step: frees the root, which is a leaf, and the partition page of `tree`.
    /// Returns false if the root is no leaf.
    ///
    /// # Errors
    ///
    /// If a page cannot be read or is damaged, or the change cannot be logged.
    pub fn free_last(&self, worker: &Worker, tree: &PagedTree) -> Result<bool, TreeError> {
        let mut visit = self.tree().visit(worker);
        let is_freed = visit.run(|visit| visit.attempt(|visit| visit.free_last(tree)))?;
        if is_freed {
            self.erase_row(worker, tree.table)?;
        }
        Ok(is_freed)
    }

    /// Erases the row of a table without a tree, unless it is the only one of its leaf.
    pub(super) fn erase_row(&self, worker: &Worker, table: u64) -> Result<(), TreeError> {
        let mut visit = self.tree().visit(worker);
        let erased = visit.run(|visit| visit.erase(&table.to_be_bytes()));
        erased.map(drop)
    }
}

impl<'t> TreeVisit<'t> {
    /// Returns the step for the branch of `level` at `key`. `None`: each branch of it has one
    /// child.
    fn step_below(&mut self, key: &[u8], level: u8) -> Result<Option<FreeStep>, TreeError> {
        let shape = self.run(|visit| visit.attempt(|visit| visit.shape(key, level)))?;
        let BranchShape { low, second } = shape;
        if level == 1 {
            return Ok(second.map(|second| FreeStep::Leaf(low, second)));
        }
        for child in [Some(&low), second.as_ref()].into_iter().flatten() {
            if let Some(step) = self.step_below(child, level - 1)? {
                return Ok(Some(step));
            }
        }
        Ok(second.map(|_| FreeStep::Join(level - 1, low)))
    }

    fn shape(&mut self, key: &[u8], level: u8) -> Step<BranchShape> {
        let branch = self.descend(TreeTarget::At(key), level)?;
        let content = branch.read();
        let second = (content.slot_count() > 1).then(|| content.key(1));
        let low = content.low_fence();
        match branch.is_valid() {
            true => Ok(BranchShape { low, second }),
            false => self.busy(branch.page()),
        }
    }

    /// Frees the leaf with the low fence `low`. Its left neighbour takes over the range, and keeps
    /// one row.
    fn discard_leaf(&mut self, low: &[u8]) -> Step<bool> {
        let parent = self.descend(TreeTarget::At(low), 1)?;
        let slot = parent.read().search(low);
        if !parent.is_valid() {
            return self.busy(parent.page());
        }
        let Some(left) = slot.ok().and_then(|slot| slot.checked_sub(1)) else {
            return Ok(false);
        };
        self.want(parent.page());
        self.admit_change(None)?;
        self.merge_pair(&parent, left, super::merge::Reason::Discarded)
    }

    /// Makes one of the first two children of the branch above `level` at `low`. Both have one
    /// child, so their rows fit a page.
    fn join(&mut self, level: u8, low: &[u8]) -> Step<bool> {
        let parent = self.descend(TreeTarget::At(low), level + 1)?;
        let count = parent.read().slot_count();
        if !parent.is_valid() {
            return self.busy(parent.page());
        }
        if count < 2 {
            return Ok(false);
        }
        self.want(parent.page());
        self.admit_change(None)?;
        self.merge_pair(&parent, 0, super::merge::Reason::OnlyChild)
    }

    /// Gives the root the content of its only child, which becomes free.
    fn lower_root(&mut self) -> Step<bool> {
        let root = self.root()?;
        let (level, count) = (root.read().level(), root.read().slot_count());
        if !root.is_valid() {
            return self.busy(root.page());
        }
        if level == 0 || count != 1 {
            return Ok(false);
        }
        self.want(root.page());
        self.admit_change(None)?;
        let child = self.child_at(&root, 0)?;
        self.want(child.page());
        let (freed, size) = (child.page(), self.tree.size());
        self.require_with_maps(&[root.page(), freed], &[freed])?;
        let space = self.log_space(2 * size.bytes())?;
        let root = self.try_lock(&root)?;
        let child = self.try_lock(&child)?;
        let content = {
            let content = child.read();
            PageOperation::Format {
                kind: kind(&content),
                level: content.level(),
                table: self.tree.table,
                low: KeyBytes::new(),
                high: None,
                rows: content.all_rows(),
            }
        };
        let mut latched: LatchedPages<'_, '_> = smallvec![(root, content)];
        latched.push((child, free_page(self.tree.table)));
        self.push_freed(&mut latched, &[freed]);
        self.change_structure(space, &mut latched)?;
        drop(latched);
        self.tree.pool.release_page(freed);
        Ok(true)
    }

    /// Frees root and partition page of `tree`. This is a visit of the directory.
    fn free_last(&mut self, tree: &PagedTree) -> Step<bool> {
        let Some((leaf, slot, partitions)) = self.partitions_of(tree.table)? else {
            return Ok(false);
        };
        let number = partitions.read().child(0);
        if !partitions.is_valid() {
            return self.busy(partitions.page());
        }
        let Some(number) = number else {
            return Err(TreeError::field(partitions.page(), "partitions", tree.table).into());
        };
        self.want(partitions.page());
        self.admit_change(None)?;
        let root: PageView<'t> = self.page(number)?;
        self.want(number);
        let is_leaf = root.read().kind() == Some(PageKind::Leaf);
        let is_of_table = root.read().table() == tree.table;
        if !root.is_valid() {
            return self.busy(number);
        }
        if !is_of_table {
            return Err(TreeError::field(number, "root", tree.table).into());
        }
        if !is_leaf {
            return Ok(false);
        }
        let freed = [partitions.page(), number];
        self.require_with_maps(&[leaf.page(), freed[0], freed[1]], &freed)?;
        let space = self.log_space(self.tree.size().bytes())?;
        let leaf = self.try_lock(&leaf)?;
        let partitions = self.try_lock(&partitions)?;
        let root = self.try_lock(&root)?;
        let none = PageOperation::Replace {
            slot: slot16(slot),
            value: &NO_TREE,
        };
        let mut latched: LatchedPages<'_, '_> = smallvec![(leaf, none)];
        latched.push((partitions, free_page(tree.table)));
        latched.push((root, free_page(tree.table)));
        self.push_freed(&mut latched, &freed);
        self.change_structure(space, &mut latched)?;
        tree.set_root(NO_ROOT); // I9: the latch of the root is held.
        drop(latched);
        for page in freed {
            self.tree.pool.release_page(page);
        }
        Ok(true)
    }

    /// Makes sure that the visit keeps `pages` and the maps of those that become free.
    fn require_with_maps(&mut self, pages: &[PageId], freed: &[PageId]) -> Step<()> {
        let mut list: PageList = pages.iter().copied().map(PageRequest::read).collect();
        for page in freed {
            let map = self.tree.size().map_position(*page).map;
            if list.iter().all(|request| request.page != map) {
                list.push(PageRequest::read(map));
            }
        }
        self.require(list)
    }

    /// Latches the maps of pages that become free, in the order of their numbers, and adds their
    /// changes.
    fn push_freed(&self, latched: &mut LatchedPages<'t, '_>, freed: &[PageId]) {
        let size = self.tree.size();
        let mut positions: Vec<_> = freed.iter().map(|page| size.map_position(*page)).collect();
        positions.sort_unstable_by_key(|position| (position.map, position.index));
        for same_map in positions.chunk_by(|one, other| one.map == other.map) {
            let operation = PageOperation::MapPages {
                indexes: same_map.iter().map(|position| position.index).collect(),
                is_used: false,
            };
            latched.push((self.lock(same_map[0].map), operation));
        }
    }
}
