//! Reads: one row, the next key, and rows of a scan.

use super::descend::TreeTarget;
use super::error::TreeError;
use super::visit::{Step, TreeAttempt, TreeVisit};
use crate::paged::page::{KeyBytes, LeafRows, RowFlags};
use crate::paged::pool::PageView;

/// Direction of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanDirection {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// The rows that a scan reads at once.
#[derive(Debug, Clone, Copy)]
pub struct ScanRange<'k> {
    /// Their order.
    pub direction: ScanDirection,
    /// Forward: their smallest key. Backward: they are below it. `None`: the front, or the end.
    pub from: Option<&'k [u8]>,
    /// Forward: `from` itself is not one of them.
    pub is_excluded: bool,
    /// A row beyond this key ends them. It is the last. The key is not before `from`.
    pub end: Option<&'k [u8]>,
    /// Their largest number, at least 1.
    pub most: usize,
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
            let flags = page.read_row(key, value);
            visit.token.clear();
            visit.read_of(&leaf)?;
            Ok(flags)
        })
    }

    /// Attempts to read the flags of `key`. `None`: there is no such row.
    ///
    /// # Errors
    ///
    /// If a page is damaged.
    pub fn flags(&mut self, key: &[u8]) -> Result<TreeAttempt<Option<RowFlags>>, TreeError> {
        self.is_scan = false;
        self.attempt(|visit| {
            let leaf = visit.descend(TreeTarget::At(key), 0)?;
            let flags = leaf.read().flags_of(key);
            visit.token.clear();
            visit.read_of(&leaf)?;
            Ok(flags)
        })
    }

    /// Attempts to find the first key that is above `key`, or equal if `inclusive`, of a row or a
    /// ghost. [`token`](Self::token) has the leaves from `key` to that row.
    ///
    /// # Errors
    ///
    /// If a page is damaged.
    pub fn successor(
        &mut self,
        key: &[u8],
        inclusive: bool,
    ) -> Result<TreeAttempt<Option<KeyBytes>>, TreeError> {
        self.is_scan = false;
        self.attempt(|visit| {
            visit.token.clear();
            visit.walk_on(KeyBytes::from_slice(key), inclusive)
        })
    }

    /// Attempts to replace `rows` by some of `range`, ghosts among them: at least one, unless there
    /// is none, and all from one leaf. [`token`](Self::token) has the leaves from the begin of the
    /// range to the last of the rows; without rows, to the end of the table. Such leaves are not
    /// expected to be read again soon.
    ///
    /// # Errors
    ///
    /// If a page is damaged.
    pub fn scan(
        &mut self,
        range: ScanRange<'_>,
        rows: &mut LeafRows,
    ) -> Result<TreeAttempt<()>, TreeError> {
        self.is_scan = true;
        let attempt = self.attempt(|visit| {
            visit.token.clear();
            match range.direction {
                ScanDirection::Forward => visit.scan_forward(range, rows),
                ScanDirection::Backward => visit.scan_backward(range, rows),
            }
        })?;
        match attempt {
            TreeAttempt::Done(()) => self.ahead.record_rows(rows.len()),
            TreeAttempt::Wait => self.request_ahead(&range),
        }
        if self.ahead.is_due() {
            self.continue_ahead(&range);
        }
        Ok(attempt)
    }

    fn scan_forward(&mut self, range: ScanRange<'_>, rows: &mut LeafRows) -> Step<()> {
        let (mut fence, mut is_excluded) = (None, range.is_excluded);
        loop {
            let from = fence.as_deref().or(range.from).unwrap_or(b"");
            let leaf = self.descend(TreeTarget::At(from), 0)?;
            let page = leaf.read();
            let begin = match page.search(from) {
                Ok(slot) if is_excluded => slot + 1,
                Ok(slot) | Err(slot) => slot,
            };
            // Keys that another leaf has cannot be searched here.
            let beyond = match range.end.filter(|end| page.covers(end)) {
                Some(end) => page.search(end).unwrap_or_else(|slot| slot) + 1,
                None => page.slot_count(),
            };
            // The walk may have come behind the end.
            let is_behind = fence
                .as_deref()
                .zip(range.end)
                .is_some_and(|(fence, end)| end < fence);
            let most = if is_behind { 1 } else { range.most };
            let last = beyond.min(begin.saturating_add(most));
            rows.clear();
            page.copy_rows(begin..last.max(begin + 1), rows);
            let high = match rows.is_empty() {
                true => page.high_fence(),
                false => None,
            };
            self.read_of(&leaf)?;
            if high.is_none() {
                return Ok(());
            }
            self.want(leaf.page());
            (fence, is_excluded) = (high, false);
        }
    }

    fn scan_backward(&mut self, range: ScanRange<'_>, rows: &mut LeafRows) -> Step<()> {
        let mut fence: Option<KeyBytes> = None;
        loop {
            rows.clear();
            let bound = fence.as_deref().or(range.from);
            if bound == Some(b"") {
                // No key is below the empty one.
                return Ok(());
            }
            let leaf = self.descend(TreeTarget::Below(bound), 0)?;
            let page = leaf.read();
            let slot_of = |key| page.search(key).unwrap_or_else(|slot| slot);
            let end = bound.map_or_else(|| page.slot_count(), slot_of);
            // Also the row below the range, if it is here.
            let low = range.end.filter(|low| page.covers(low));
            let first = low.map_or(0, |low| slot_of(low).saturating_sub(1));
            let is_behind = bound
                .zip(range.end)
                .is_some_and(|(bound, low)| low >= bound);
            let most = if is_behind { 1 } else { range.most };
            let first = first.max(end.saturating_sub(most));
            let first = first.min(end.saturating_sub(1));
            page.copy_rows((first..end).rev(), rows);
            let low_fence = page.low_fence();
            self.read_of(&leaf)?;
            if !rows.is_empty() {
                return Ok(());
            }
            self.want(leaf.page());
            fence = Some(low_fence);
        }
    }

    /// Finds the first key above `from`, or at it, and adds the leaves to the token.
    pub(super) fn walk_on(
        &mut self,
        mut from: KeyBytes,
        mut inclusive: bool,
    ) -> Step<Option<KeyBytes>> {
        loop {
            let leaf = self.descend(TreeTarget::At(&from), 0)?;
            let page = leaf.read();
            let slot = match page.search(&from) {
                Ok(slot) if !inclusive => slot + 1,
                Ok(slot) | Err(slot) => slot,
            };
            let found = (slot < page.slot_count()).then(|| page.key(slot));
            let high = match found {
                Some(_) => None,
                None => page.high_fence(),
            };
            self.read_of(&leaf)?;
            let Some(high) = high else {
                return Ok(found);
            };
            self.want(leaf.page());
            (from, inclusive) = (high, true);
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
