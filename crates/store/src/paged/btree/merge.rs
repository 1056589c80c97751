//! Merges: a page takes over the rows of its right neighbour under the same parent, which becomes
//! free.
//!
//! ```text
//!        [ .. | a | b | c | .. ]              [ .. | a | c | .. ]
//!             /    |    \           merge          /     \
//!        [a, b) [b, c) [c, ..)               [a, c)     [c, ..)       [b, c) is free
//! ```
//!
//! A merge is one record. The parent loses a child, and the left page gets the rows and the upper
//! fence of the right one. The right one becomes [free](PageKind::Free), and so does its bit.
//! The right page is changed although nothing reads it again: a [token](super::token) of it must
//! notice that its range is another page's now.
//!
//! # Sizes
//!
//! A leaf that a purge leaves with less than a quarter of its bytes in use is merged, if both
//! together use three quarters at most. So neither the next insert nor the next purge undoes that.
//! A leaf that loses its last row is merged whenever the rows of both fit: it may not stay without
//! one (I8). A merge may leave the parent with few children, so then it is the parent's turn.
//!
//! The root is never merged and keeps its level. So a page of each level of a tree has a parent for
//! ever, unless it is the root, and a descent to a level finds it however late it comes.

use super::descend::TreeTarget;
use super::error::TreeError;
use super::smo::{LatchedPages, format_bytes, kind};
use super::visit::{Need, Step, TreeAttempt, TreeVisit};
use crate::paged::page::{
    KeyBytes, OperationError, OwnedRow, PageKind, PageOperation, PageWords, SlottedPage, SpaceMap,
};
use crate::paged::pool::PageView;
use smallvec::smallvec;

/// True if less than a quarter of the bytes for rows are in use.
pub(super) fn is_sparse(page: &SlottedPage<impl PageWords>) -> bool {
    page.used_bytes() * 4 < page.used_bytes() + page.free_bytes()
}

/// Reason for a merge.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reason<'k> {
    /// The page is sparse.
    Sparse,
    /// Pages are to be full: the rows of both fill one.
    Compaction,
    /// The page loses its last row, that of this key.
    Emptied(&'k [u8]),
    /// The page has one child, which has no neighbour to be merged with.
    OnlyChild,
    /// The tree is [freed](super::free): the rows of both leaves go but for the first.
    Discarded,
}

impl<'t> TreeVisit<'t> {
    /// Merges the leaf of `key`, and then pages above it, as long as they are sparse. Does so only
    /// if nothing has to be waited for: sparse pages are no fault.
    pub(super) fn merge_sparse(&mut self, key: &[u8]) -> Result<(), TreeError> {
        for level in 0..=u8::MAX {
            let merged = self.attempt(|visit| {
                let node = visit.descend(TreeTarget::At(key), level)?;
                let is_due = is_sparse(&node.read()) && node.page() != visit.tree.root();
                match (node.is_valid(), is_due) {
                    (false, _) => visit.busy(node.page()),
                    (true, false) => Ok(false),
                    (true, true) => visit.merge(key, level, Reason::Sparse),
                }
            })?;
            if merged != TreeAttempt::Done(true) {
                break;
            }
        }
        self.need = Need::Nothing;
        Ok(())
    }

    /// Removes the row of `key`, the only one of its leaf, and with it the leaf. Returns false if
    /// the leaf has no neighbour that can take its range over. The caller's locks keep other
    /// threads from that row. Should the leaf have others by now, they stay.
    pub(super) fn remove_with_leaf(&mut self, key: &[u8]) -> Step<bool> {
        self.merge(key, 0, Reason::Emptied(key))
    }

    /// Merges the page of level `level` for `key` with a neighbour. Returns false if none is under
    /// the same parent, or the rows of both are too many.
    fn merge(&mut self, key: &[u8], level: u8, reason: Reason<'_>) -> Step<bool> {
        let parent = self.descend(TreeTarget::At(key), level + 1)?;
        let content = parent.read();
        let (slot, count) = (content.child_of(key).0, content.slot_count());
        let (page, is_root) = (parent.page(), parent.page() == self.tree.root());
        if !parent.is_valid() {
            return self.busy(page);
        }
        self.want(page);
        self.admit_change(None)?;
        if count == 1 {
            if !is_root && self.merge(key, level + 1, Reason::OnlyChild)? {
                // Another round finds the neighbours.
                return self.busy(page);
            }
            return Ok(false);
        }
        // A left neighbour gets another fence only, if the page becomes empty.
        let pairs = [slot.checked_sub(1), Some(slot)];
        for left in pairs.into_iter().flatten() {
            if left + 1 < count && self.merge_pair(&parent, left, reason)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Merges the children `left_slot` and the one behind it. Returns false if their rows are too
    /// many for one page.
    pub(super) fn merge_pair(
        &mut self,
        parent: &PageView<'t>,
        left_slot: usize,
        reason: Reason<'_>,
    ) -> Step<bool> {
        let left = self.child_at(parent, left_slot)?;
        self.want(left.page());
        let right = self.child_at(parent, left_slot + 1)?;
        self.want(right.page());
        let (size, freed) = (self.tree.size(), right.page());
        let position = size.map_position(freed);
        let map = self.page(position.map)?;
        if map.read().kind() != Some(PageKind::SpaceMap) && map.is_valid() {
            return Err(TreeError::field(map.page(), "kind", 0).into());
        }
        let space = match reason {
            Reason::Compaction => {
                let most = format_bytes(&left.read()) + format_bytes(&right.read());
                self.log_space(most.min(8 * size.bytes()))?
            }
            _ => self.log_space(2 * size.bytes())?,
        };
        // I3: parent, left, right, map.
        let parent = self.try_lock(parent)?;
        let left = self.try_lock(&left)?;
        let right = self.try_lock(&right)?;
        let map = self.try_lock(&map)?;
        let Some(takeover) = takeover(&left.read(), &right.read(), reason) else {
            return Ok(false);
        };
        match takeover.check(&left.read(), left.page()) {
            Ok(()) => {}
            Err(OperationError::Full(_)) => return Ok(false),
            Err(OperationError::Mismatch(field)) => {
                return Err(TreeError::field(left.page(), field, freed.number()).into());
            }
        }
        if !SpaceMap::new(map.read().words()).is_used(position.index) {
            return Err(TreeError::field(map.page(), "bit of a used page", freed.number()).into());
        }
        let free = PageOperation::Format {
            kind: PageKind::Free,
            level: 0,
            table: self.tree.table,
            low: KeyBytes::new(),
            high: None,
            rows: Vec::new(),
        };
        let unused = PageOperation::MapPages {
            indexes: smallvec![position.index],
            is_used: false,
        };
        let slot = left_slot as u16 + 1;
        let mut latched: LatchedPages<'_, '_> =
            smallvec![(parent, PageOperation::Remove { slot }), (left, takeover)];
        latched.push((right, free));
        latched.push((map, unused));
        self.change_structure(space, &mut latched)?;
        drop(latched);
        self.tree.pool.release_page(freed);
        Ok(true)
    }

    /// Returns the child in slot `slot`, coupled with its parent.
    pub(super) fn child_at(&mut self, parent: &PageView<'t>, slot: usize) -> Step<PageView<'t>> {
        let key = parent.read().key(slot);
        let child = self.child(parent, TreeTarget::At(&key))?;
        self.couple(parent, child)
    }
}

/// Returns the operation by which `left` takes over what is left of `right`. `None`: their rows
/// are too many.
fn takeover(
    left: &SlottedPage<impl PageWords>,
    right: &SlottedPage<impl PageWords>,
    reason: Reason<'_>,
) -> Option<PageOperation<'static>> {
    let (bytes, high) = (left.used_bytes() + right.used_bytes(), right.high_fence());
    if matches!(reason, Reason::Sparse) && bytes * 4 > (left.used_bytes() + left.free_bytes()) * 3 {
        return None;
    }
    let stays = |row: &OwnedRow| match reason {
        Reason::Emptied(key) => &row.key[..] != key,
        _ => true,
    };
    let mut added = right.all_rows();
    added.retain(stays);
    if added.is_empty() {
        return Some(PageOperation::Widen { high });
    }
    let mut rows = left.all_rows();
    rows.retain(stays);
    match reason {
        Reason::Discarded => rows.truncate(1),
        _ => rows.append(&mut added),
    }
    Some(PageOperation::Format {
        kind: kind(left),
        level: left.level(),
        table: left.table(),
        low: left.low_fence(),
        high,
        rows,
    })
}
