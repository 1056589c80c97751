//! Read-ahead: which leaves a scan or a reader of many keys names, and when.

use super::ScanAhead;
use super::descend::TreeTarget;
use super::read::{ScanDirection, ScanRange};
use super::visit::{Need, TreeVisit};
use crate::paged::PageId;
use crate::paged::page::{KeyBytes, PageWords, SlottedPage};
use crate::paged::pool::{AheadPages, MAX_AHEAD, PageUse, PageView};

/// Slots of a parent that are looked at for each page that is read ahead.
const SLOTS_PER_PAGE: usize = 4;

impl<'t> TreeVisit<'t> {
    /// Returns how far the scan reads ahead.
    pub fn scan_ahead(&self) -> ScanAhead {
        self.ahead
    }

    /// Goes on as the last visit of the scan did.
    pub fn set_scan_ahead(&mut self, ahead: ScanAhead) {
        self.ahead = ahead;
    }

    /// Names the leaves of the next `keys`, if the last attempt missed a page. They are read ahead
    /// together with that page. Those whose parent is missing are not named.
    #[cold]
    pub fn name_leaves<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        let pool = &*self.tree.pool;
        let Need::Pages(needed) = &mut self.need else {
            return;
        };
        let needed = std::mem::take(&mut **needed);
        let mut pages = AheadPages::new();
        for key in keys.take(MAX_AHEAD) {
            let target = TreeTarget::At(key);
            // A page that is missing or changes is no reason to wait.
            if let Ok(parent) = self.descend(target, 1)
                && let Some(leaf) = parent.read().child_of(key).1
                && parent.is_valid()
                && !pages.contains(&leaf)
                && !pool.is_known(leaf)
            {
                pages.push(leaf);
            }
        }
        self.need = Need::Ahead(Box::new((needed, pages)));
    }

    /// Names the leaves behind the one that the last attempt missed, if it missed a leaf.
    #[cold]
    pub(super) fn request_ahead(&mut self, range: &ScanRange<'_>) {
        let pool = &*self.tree.pool;
        let Need::Pages(needed) = &mut self.need else {
            return;
        };
        let Some(missing) = needed.last() else { return };
        // A page that is on its way is waited for, and what follows it was named.
        if missing.purpose != PageUse::ReadOnce || pool.is_known(missing.page) {
            return;
        }
        let (missing, needed) = (missing.page, std::mem::take(&mut **needed));
        self.ahead.miss(pool.ahead_limit());
        let following = self.leaves_behind(range, missing, self.ahead.pages());
        self.ahead.name(&following.leaves);
        self.read_branch_ahead(missing, &following);
        self.need = Need::Ahead(Box::new((needed, following.leaves)));
    }

    /// Names the leaves behind those that were named before: the scan has come to the first of
    /// them.
    #[cold]
    pub(super) fn continue_ahead(&mut self, range: &ScanRange<'_>) {
        let pool = &*self.tree.pool;
        let Some((first, last)) = self.ahead.take_due() else {
            return;
        };
        if !pool.has_page_readers() {
            return;
        }
        // Those of the last time are not visited yet.
        self.ahead.double((pool.ahead_limit() / 2).max(1));
        let mut following = self.leaves_behind(range, last, self.ahead.pages());
        if following.leaves.is_empty() && following.branch.is_none() {
            following = self.leaves_behind(range, first, self.ahead.pages());
        }
        self.ahead.name(&following.leaves);
        self.read_branch_ahead(last, &following);
        pool.read_ahead(self.worker, &following.leaves, PageUse::ReadOnce);
    }

    /// Begins to read the branch that has the next leaves, if it is not resident. They are named
    /// once it is. `last` is the last leaf that was named.
    fn read_branch_ahead(&mut self, last: PageId, following: &FollowingPages) {
        let pool = &*self.tree.pool;
        if let Some(branch) = following.branch.filter(|_| pool.has_page_readers()) {
            self.ahead.await_branch(last);
            pool.read_ahead(self.worker, &[branch], PageUse::Read);
        }
    }

    /// Returns the leaves that follow `leaf` in the direction of a scan and are not resident:
    /// `most` of them, or fewer. They have the same parent or the next one. If the next one is not
    /// resident either, it is returned in place of its leaves.
    fn leaves_behind(
        &mut self,
        range: &ScanRange<'_>,
        leaf: PageId,
        most: usize,
    ) -> FollowingPages {
        let mut following = FollowingPages::default();
        let most = most.min(self.ahead.leaves_of(range.most));
        let parent = self.parent.and_then(|hint| self.tree.pool.hinted(hint));
        let Some(parent) = parent.filter(|_| most > 0) else {
            return following;
        };
        let first = self.add_children(range, &parent, Some(leaf), most, &mut following.leaves);
        let (fence, is_here) = match first {
            ChildrenEnd::Reached => return following,
            ChildrenEnd::Parent(fence) => (fence, true),
            ChildrenEnd::Elsewhere(fence) => (fence, false),
        };
        match self.next_branch(range.direction, &fence) {
            Ok(next) => {
                let from = Some(leaf).filter(|_| !is_here);
                self.add_children(range, &next, from, most, &mut following.leaves);
            }
            Err(missing) => following.branch = missing,
        }
        following
    }

    /// Adds children of `parent` that are not resident: those that follow `leaf` in the direction
    /// of a scan, or all. No more than `most` are added, and few slots are looked at.
    fn add_children(
        &self,
        range: &ScanRange<'_>,
        parent: &PageView<'t>,
        leaf: Option<PageId>,
        most: usize,
        leaves: &mut AheadPages,
    ) -> ChildrenEnd {
        let (pool, content, before) = (&*self.tree.pool, parent.read(), leaves.len());
        if content.level() != 1 || content.table() != self.tree.table {
            return ChildrenEnd::Reached;
        }
        let is_forward = range.direction == ScanDirection::Forward;
        let count = content.slot_count();
        let found = leaf.map(|leaf| (0..count).find(|slot| content.child(*slot) == Some(leaf)));
        let slots = match (found, is_forward) {
            (Some(None), _) => 0..0,
            (Some(Some(at)), true) => at + 1..count,
            (Some(Some(at)), false) => 0..at,
            (None, _) => 0..count,
        };
        let mut end = match self.fence_behind(range, &content) {
            None => ChildrenEnd::Reached,
            Some(fence) if found == Some(None) => ChildrenEnd::Elsewhere(fence),
            Some(fence) => ChildrenEnd::Parent(fence),
        };
        let looked_at = slots.len().min(SLOTS_PER_PAGE * most);
        if looked_at < slots.len() {
            end = ChildrenEnd::Reached;
        }
        for step in 0..looked_at {
            let slot = match is_forward {
                true => slots.start + step,
                false => slots.end - 1 - step,
            };
            // The begin of the range is in an earlier leaf, so the fences of the parent are not
            // compared again.
            let is_beyond = range.end.is_some_and(|end| match is_forward {
                true => slot > 0 && content.key(slot)[..] > *end,
                false => slot + 1 < count && content.key(slot + 1)[..] <= *end,
            });
            let child = content.child(slot);
            let Some(child) = child.filter(|_| !is_beyond && leaves.len() < most) else {
                end = ChildrenEnd::Reached;
                break;
            };
            if !pool.is_known(child) {
                leaves.push(child);
            }
        }
        if !parent.is_valid() {
            leaves.truncate(before);
            return ChildrenEnd::Reached;
        }
        end
    }

    /// Returns the fence behind which the next branch begins in the direction of a scan, if the
    /// range goes on there.
    fn fence_behind(
        &self,
        range: &ScanRange<'_>,
        parent: &SlottedPage<impl PageWords>,
    ) -> Option<KeyBytes> {
        match range.direction {
            ScanDirection::Forward => {
                let fence = parent.high_fence()?;
                range
                    .end
                    .is_none_or(|end| fence[..] <= *end)
                    .then_some(fence)
            }
            ScanDirection::Backward => {
                let fence = Some(parent.low_fence()).filter(|fence| !fence.is_empty())?;
                range
                    .end
                    .is_none_or(|end| fence[..] > *end)
                    .then_some(fence)
            }
        }
    }

    /// Returns the branch behind `fence`, or a page that is missing on the way to it, if that was
    /// seen. The visit stays where it is.
    fn next_branch(
        &mut self,
        direction: ScanDirection,
        fence: &[u8],
    ) -> Result<PageView<'t>, Option<PageId>> {
        let target = match direction {
            ScanDirection::Forward => TreeTarget::At(fence),
            ScanDirection::Backward => TreeTarget::Below(Some(fence)),
        };
        let (need, parent) = (std::mem::take(&mut self.need), self.parent);
        // A page that is missing or changes is no reason to wait.
        let found = self.descend_from_top(target, 1);
        let missing = match std::mem::replace(&mut self.need, need) {
            Need::Pages(pages) => pages.last().map(|request| request.page),
            _ => None,
        };
        self.parent = parent;
        found.map_err(|_| missing)
    }
}

/// Leaves that a scan will need, and the branch that leads to those behind them.
#[derive(Debug, Default)]
struct FollowingPages {
    leaves: AheadPages,
    /// The next branch, if it is not resident, or a page above it.
    branch: Option<PageId>,
}

/// How the children of a parent ended, as a scan looks ahead.
#[derive(Debug)]
enum ChildrenEnd {
    /// There are enough, or the range ends here.
    Reached,
    /// With the parent, whose fence this is.
    Parent(KeyBytes),
    /// The leaf is not one of them. The fence of the parent.
    Elsewhere(KeyBytes),
}
