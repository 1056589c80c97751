//! Reads: one row, the next and the previous one, and leaves of a scan.

use super::descend::TreeTarget;
use super::error::TreeError;
use super::visit::{Step, TreeAttempt, TreeVisit};
use crate::paged::page::{KeyBytes, OwnedRow, RowFlags};
use crate::paged::pool::PageView;

/// Direction of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanDirection {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// The rows of a leaf that a scan reads at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedLeaf {
    /// Rows, ghosts among them, in the direction of the scan.
    pub rows: Vec<OwnedRow>,
    /// The fence behind them: where a forward scan goes on, inclusive, or a backward one,
    /// exclusive. `None`: there is no leaf behind.
    pub fence: Option<KeyBytes>,
}

impl<'t> TreeVisit<'t> {
    /// Attempts to read the row of `key`: returns its flags and replaces `value`. `None`: there is
    /// no such row, and `value` is empty.
    ///
    /// # Errors
    ///
    /// If a page is damaged.
    pub fn get(
        &mut self,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<TreeAttempt<Option<RowFlags>>, TreeError> {
        self.is_scan = false;
        self.attempt(|visit| {
            let leaf = visit.descend(TreeTarget::At(key), 0)?;
            let page = leaf.read();
            value.clear();
            let mut flags = None;
            if let Ok(slot) = page.search(key) {
                page.append_value(slot, value);
                flags = page.row(slot).map(|row| row.flags);
            }
            visit.token.clear();
            visit.read_of(&leaf)?;
            Ok(flags)
        })
    }

    /// Attempts to read the first row whose key is above `key`, or equal if `inclusive`.
    /// [`token`](Self::token) has the leaves from `key` to that row.
    ///
    /// # Errors
    ///
    /// If a page is damaged.
    pub fn successor(
        &mut self,
        key: &[u8],
        inclusive: bool,
    ) -> Result<TreeAttempt<Option<OwnedRow>>, TreeError> {
        self.is_scan = false;
        self.attempt(|visit| visit.walk_forward(key, inclusive))
    }

    /// Attempts to read the last row whose key is below `key`; `None` means the last row of all.
    /// [`token`](Self::token) has the leaves from that row to `key`.
    ///
    /// # Errors
    ///
    /// If a page is damaged.
    pub fn predecessor(
        &mut self,
        key: Option<&[u8]>,
    ) -> Result<TreeAttempt<Option<OwnedRow>>, TreeError> {
        self.is_scan = false;
        self.attempt(|visit| {
            let mut bound = key.map(KeyBytes::from_slice);
            visit.token.clear();
            loop {
                if bound.as_ref().is_some_and(|bound| bound.is_empty()) {
                    return Ok(None);
                }
                let leaf = visit.descend(TreeTarget::Below(bound.as_deref()), 0)?;
                let page = leaf.read();
                let below = match &bound {
                    Some(bound) => page.search(bound).unwrap_or_else(|slot| slot),
                    None => page.slot_count(),
                };
                let row = below.checked_sub(1).and_then(|slot| page.owned_row(slot));
                let low = page.low_fence();
                visit.read_of(&leaf)?;
                if row.is_some() {
                    return Ok(row);
                }
                visit.want(leaf.page());
                bound = Some(low);
            }
        })
    }

    /// Attempts to read the rows of one leaf. A forward scan reads those from `key` on, a backward
    /// one those below `key`; `None` is the front or the end. Such leaves are not expected to be
    /// read again soon.
    ///
    /// # Errors
    ///
    /// If a page is damaged.
    pub fn scan_leaf(
        &mut self,
        direction: ScanDirection,
        key: Option<&[u8]>,
    ) -> Result<TreeAttempt<ScannedLeaf>, TreeError> {
        self.is_scan = true;
        self.attempt(|visit| {
            let target = match direction {
                ScanDirection::Forward => TreeTarget::At(key.unwrap_or(b"")),
                ScanDirection::Backward => TreeTarget::Below(key),
            };
            if direction == ScanDirection::Backward && key == Some(b"") {
                // No key is below the empty one.
                return Ok(ScannedLeaf {
                    rows: Vec::new(),
                    fence: None,
                });
            }
            let leaf = visit.descend(target, 0)?;
            let page = leaf.read();
            let from = key.map(|key| page.search(key).unwrap_or_else(|slot| slot));
            let count = page.slot_count();
            let slots = match direction {
                ScanDirection::Forward => from.unwrap_or(0)..count,
                ScanDirection::Backward => 0..from.unwrap_or(count),
            };
            let rows = slots.filter_map(|slot| page.owned_row(slot));
            let scanned = match direction {
                ScanDirection::Forward => ScannedLeaf {
                    rows: rows.collect(),
                    fence: page.high_fence(),
                },
                ScanDirection::Backward => ScannedLeaf {
                    rows: rows.rev().collect(),
                    fence: Some(page.low_fence()).filter(|low| !low.is_empty()),
                },
            };
            visit.token.clear();
            visit.read_of(&leaf)?;
            Ok(scanned)
        })
    }

    /// Returns the first row above `key`, or at it, and records the leaves in the token.
    fn walk_forward(&mut self, key: &[u8], inclusive: bool) -> Step<Option<OwnedRow>> {
        self.token.clear();
        self.walk_on(KeyBytes::from_slice(key), inclusive)
    }

    /// As [`walk_forward`](Self::walk_forward), and keeps the leaves that the token has.
    pub(super) fn walk_on(
        &mut self,
        mut from: KeyBytes,
        mut inclusive: bool,
    ) -> Step<Option<OwnedRow>> {
        loop {
            let leaf = self.descend(TreeTarget::At(&from), 0)?;
            let page = leaf.read();
            let slot = match page.search(&from) {
                Ok(slot) if !inclusive => slot + 1,
                Ok(slot) | Err(slot) => slot,
            };
            let (row, high) = (page.owned_row(slot), page.high_fence());
            self.read_of(&leaf)?;
            match (row, high) {
                (None, Some(high)) => {
                    self.want(leaf.page());
                    from = high;
                    inclusive = true;
                }
                (row, _) => return Ok(row),
            }
        }
    }

    /// Validates what was read of a leaf, and adds it to the token.
    pub(super) fn read_of(&mut self, leaf: &PageView<'t>) -> Step<()> {
        let seen = leaf.seen();
        match leaf.is_valid() {
            true => {
                self.token.push(seen);
                Ok(())
            }
            false => self.busy(leaf.page()),
        }
    }
}
