//! Descent: from the root, or from a page that the visit keeps, to the page for a key.

use super::NO_ROOT;
use super::error::TreeError;
use super::visit::{Step, TreeVisit};
use crate::paged::PageId;
use crate::paged::page::{PageKind, PageWords, SlottedPage};
use crate::paged::pool::{PageAbsence, PageRequest, PageUse, PageView};

/// The keys that are looked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum TreeTarget<'k> {
    /// A key.
    At(&'k [u8]),
    /// The largest keys below a key; `None` means below no bound: the largest keys of all.
    Below(Option<&'k [u8]>),
}

impl TreeTarget<'_> {
    /// True if the page is the one of its level.
    fn is_in(self, page: &SlottedPage<impl PageWords>) -> bool {
        match self {
            TreeTarget::At(key) => page.covers(key),
            TreeTarget::Below(None) => page.has_high_fence(None),
            TreeTarget::Below(Some(key)) => {
                let reaches = page.has_high_fence(Some(key)) || page.covers(key);
                reaches && !page.has_low_fence(key)
            }
        }
    }

    /// Returns slot and page of the child that is the one of its level.
    fn child_in(self, page: &SlottedPage<impl PageWords>) -> (usize, Option<PageId>) {
        let slot = match self {
            TreeTarget::At(key) => return page.child_of(key),
            TreeTarget::Below(None) => page.slot_count().saturating_sub(1),
            // The child at this very key begins with it, so it has none below.
            TreeTarget::Below(Some(key)) => match page.search(key) {
                Ok(slot) | Err(slot) => slot.saturating_sub(1),
            },
        };
        (slot, page.child(slot))
    }
}

/// A child as its parent describes it.
#[derive(Debug)]
pub(super) struct FoundChild<'t> {
    view: PageView<'t>,
    /// Its slot in the parent.
    slot: usize,
}

#[cfg(test)]
impl<'t> FoundChild<'t> {
    /// Returns the child as if its version were read just now.
    pub(super) fn at_present(self, tree: &'t super::PagedTree) -> FoundChild<'t> {
        let view = tree.pool.find(self.view.page()).expect("it is resident");
        FoundChild { view, ..self }
    }
}

fn kind_of(level: u8) -> PageKind {
    match level {
        0 => PageKind::Leaf,
        _ => PageKind::Branch,
    }
}

impl<'t> TreeVisit<'t> {
    /// Returns the page of level `level` for `target`. The caller validates what it reads.
    pub(super) fn descend(&mut self, target: TreeTarget<'_>, level: u8) -> Step<PageView<'t>> {
        if let TreeTarget::At(key) = target
            && level == 0
            && !self.is_scan
        {
            return self.descend_to_key(key);
        }
        self.descend_from_top(target, level)
    }

    /// As [`descend`](Self::descend), to the leaf of a key. Most often a hint leads to it at once.
    fn descend_to_key(&mut self, key: &[u8]) -> Step<PageView<'t>> {
        let (pool, table) = (&self.tree.pool, self.tree.table);
        let target = TreeTarget::At(key);
        if let Some(view) = pool.hinted_leaf(table, key)
            && self.leads(&view, target, 0) == Some(0)
        {
            view.record_use();
            self.leaf = Some(view.hint());
            return Ok(view);
        }
        let view = self.descend_from_top(target, 0)?;
        pool.hint_leaf(table, key, &view);
        Ok(view)
    }

    /// As [`descend`](Self::descend), by way of the parent, unless the last operation was there.
    pub(super) fn descend_from_top(
        &mut self,
        target: TreeTarget<'_>,
        level: u8,
    ) -> Step<PageView<'t>> {
        let mut view = self.start(target, level)?;
        loop {
            let found = view.read().level();
            match found {
                0 => self.leaf = Some(view.hint()),
                1 => self.parent = Some(view.hint()),
                _ => {}
            }
            if found == level {
                return Ok(view);
            }
            if found < level {
                // The root has just grown, or it is damaged.
                return match view.is_valid() {
                    true => Err(TreeError::field(view.page(), "level", found.into()).into()),
                    false => self.busy(view.page()),
                };
            }
            let child = self.child(&view, target)?;
            view = self.couple(&view, child)?;
        }
    }

    /// Returns the leaf that was found last, or its parent, if it leads to the target. Otherwise it
    /// returns the lowest page that the visit keeps and that does, or the root.
    fn start(&mut self, target: TreeTarget<'_>, level: u8) -> Step<PageView<'t>> {
        // The next leaf of a walk most often has the parent of the last one.
        let hints = [self.leaf, self.parent];
        for (found, hint) in (0..).zip(hints).skip(usize::from(level.min(2))) {
            if let Some(view) = hint.and_then(|hint| self.tree.pool.hinted(hint))
                && self.leads(&view, target, level) == Some(found)
            {
                if !self.is_scan {
                    view.record_use();
                }
                return Ok(view);
            }
        }
        let mut lowest: Option<(u8, PageView<'t>)> = None;
        for fixed in self.reserved() {
            let Some(view) = fixed.view() else { continue };
            let Some(found) = self.leads(&view, target, level) else {
                continue;
            };
            if lowest.as_ref().is_none_or(|(lowest, _)| found < *lowest) {
                lowest = Some((found, view));
            }
        }
        match lowest {
            Some((_, view)) => Ok(view),
            None => self.root(),
        }
    }

    /// Returns the level of a page, if it leads to the target's page of level `level`.
    fn leads(&self, view: &PageView<'t>, target: TreeTarget<'_>, level: u8) -> Option<u8> {
        let page = view.read();
        let found = page.level();
        let leads = page.table() == self.tree.table
            && page.kind() == Some(kind_of(found))
            && found >= level
            && target.is_in(&page);
        // I1: such a page is the one, whichever way leads to it. The caller's validation covers
        // what was read here, because it compares the same version.
        leads.then_some(found)
    }

    /// Returns the root.
    pub(super) fn root(&mut self) -> Step<PageView<'t>> {
        let root = self.tree.root();
        if root == NO_ROOT {
            let table = self.tree.table;
            return Err(TreeError::Dropped { table }.into());
        }
        let view = self.page(root)?;
        let page = view.read();
        let is_root = page.table() == self.tree.table
            && page.kind() == Some(kind_of(page.level()))
            && page.has_low_fence(b"")
            && page.has_high_fence(None);
        // I9: it may have been relocated before the view was made.
        let is_settled = view.is_valid() && self.tree.root() == root;
        match (is_root, is_settled) {
            (true, true) => {
                view.record_use();
                Ok(view)
            }
            (_, false) => self.busy(view.page()),
            (false, true) => Err(TreeError::field(view.page(), "root", page.table()).into()),
        }
    }

    /// Returns the child of `parent` for `target`, whose version was read. It is not coupled yet.
    pub(super) fn child(
        &mut self,
        parent: &PageView<'t>,
        target: TreeTarget<'_>,
    ) -> Step<FoundChild<'t>> {
        let page = parent.read();
        let (slot, child) = target.child_in(&page);
        let level = page.level();
        if !parent.is_valid() {
            return self.busy(parent.page());
        }
        let Some(child) = child else {
            return Err(TreeError::field(parent.page(), "child", slot as u64).into());
        };
        let is_read_once = self.is_scan && level == 1;
        let view = match self.tree.pool.child(self.worker, parent, slot, child) {
            Err(PageAbsence::Missing) if is_read_once => {
                return self.missing(PageRequest {
                    page: child,
                    purpose: PageUse::ReadOnce,
                });
            }
            found => self.found(child, found)?,
        };
        match is_read_once {
            true => self.ahead.visit(child),
            false => view.record_use(),
        }
        Ok(FoundChild { view, slot })
    }

    /// Returns a child that was coupled with its parent, and checked (I1, I2).
    pub(super) fn couple(
        &mut self,
        parent: &PageView<'t>,
        child: FoundChild<'t>,
    ) -> Step<PageView<'t>> {
        let FoundChild { view, slot } = child;
        if !view.is_checked() || view.read().level().wrapping_add(1) != parent.read().level() {
            return self.check_child(parent, view, slot);
        }
        // I2: the version of the child was read, and only now the parent is validated.
        match parent.is_valid() {
            true => Ok(view),
            false => self.busy(parent.page()),
        }
    }

    /// As [`couple`](Self::couple), and compares the child with its parent in any case.
    pub(super) fn couple_checked(
        &mut self,
        parent: &PageView<'t>,
        child: FoundChild<'t>,
    ) -> Step<PageView<'t>> {
        self.check_child(parent, child.view, child.slot)
    }

    /// As [`couple`](Self::couple), for a child that was not compared with its parent since it was
    /// loaded: the page may be another than was written last. Afterwards only changes in memory
    /// could make it differ.
    #[cold]
    fn check_child(
        &mut self,
        parent: &PageView<'t>,
        view: PageView<'t>,
        slot: usize,
    ) -> Step<PageView<'t>> {
        let load = view.load();
        let is_right = self.wrong_field(parent, &view, slot).is_none();
        match (parent.is_valid(), is_right) {
            (true, true) => {
                if view.is_valid() {
                    view.record_checked(load);
                }
                Ok(view)
            }
            (true, false) => self.wrong_child(parent, &view, slot),
            (false, _) => self.busy(parent.page()),
        }
    }

    /// Returns the field of a child that is not as its parent says.
    #[inline]
    fn wrong_field(
        &self,
        parent: &PageView<'t>,
        child: &PageView<'t>,
        slot: usize,
    ) -> Option<&'static str> {
        let (above, content) = (parent.read(), child.read());
        let level = above.level().saturating_sub(1);
        match () {
            () if content.table() != self.tree.table => Some("table"),
            () if content.level() != level => Some("level"),
            () if content.kind() != Some(kind_of(level)) => Some("kind"),
            () if !content.has_low_fence_of(&above, slot) => Some("low fence"),
            () if !content.has_high_fence_of(&above, slot + 1) => Some("high fence"),
            () => None,
        }
    }

    /// Fails because of a child that is not as its parent says, unless it or its parent changes.
    #[cold]
    fn wrong_child(
        &mut self,
        parent: &PageView<'t>,
        child: &PageView<'t>,
        slot: usize,
    ) -> Step<PageView<'t>> {
        let field = self.wrong_field(parent, child, slot);
        if !parent.is_valid() {
            return self.busy(parent.page());
        }
        // At the moment when the parent was validated, the child had this version.
        match field.filter(|_| child.is_valid()) {
            Some(field) => {
                let parent = parent.page().number();
                Err(TreeError::field(child.page(), field, parent).into())
            }
            None => self.busy(child.page()),
        }
    }
}
