//! Read-ahead: which leaves a scan or a reader of many keys names, and when.

use super::ScanAhead;
use super::descend::TreeTarget;
use super::read::{ScanDirection, ScanRange};
use super::visit::{Need, TreeVisit};
use crate::paged::PageId;
use crate::paged::pool::{AheadPages, MAX_AHEAD, PageUse};

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
        let pages = self.leaves_behind(range, missing, self.ahead.pages());
        self.ahead.name(&pages);
        self.need = Need::Ahead(Box::new((needed, pages)));
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
        let mut pages = self.leaves_behind(range, last, self.ahead.pages());
        if pages.is_empty() {
            pages = self.leaves_behind(range, first, self.ahead.pages());
        }
        self.ahead.name(&pages);
        pool.read_ahead(self.worker, &pages, PageUse::ReadOnce);
    }

    /// Returns the leaves that follow `leaf` in the direction of a scan, have the same parent, and
    /// are not resident: `most` of them, or fewer.
    fn leaves_behind(&self, range: &ScanRange<'_>, leaf: PageId, most: usize) -> AheadPages {
        let mut pages = AheadPages::new();
        let pool = &*self.tree.pool;
        let most = most.min(self.ahead.leaves_of(range.most));
        let Some(parent) = self.parent.and_then(|hint| pool.hinted(hint)) else {
            return pages;
        };
        let content = parent.read();
        if content.level() != 1 || content.table() != self.tree.table {
            return pages;
        }
        let count = content.slot_count();
        let Some(at) = (0..count).find(|slot| content.child(*slot) == Some(leaf)) else {
            return pages;
        };
        for step in 1..=SLOTS_PER_PAGE * most {
            let slot = match range.direction {
                ScanDirection::Forward => Some(at + step).filter(|slot| *slot < count),
                ScanDirection::Backward => at.checked_sub(step),
            };
            let Some(slot) = slot.filter(|_| pages.len() < most) else {
                break;
            };
            let is_beyond = range.end.is_some_and(|end| match range.direction {
                ScanDirection::Forward => content.key(slot)[..] > *end,
                ScanDirection::Backward => content.key(slot + 1)[..] <= *end,
            });
            let Some(child) = content.child(slot).filter(|_| !is_beyond) else {
                break;
            };
            if !pool.is_known(child) {
                pages.push(child);
            }
        }
        if !parent.is_valid() {
            pages.clear();
        }
        pages
    }
}
