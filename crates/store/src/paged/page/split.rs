//! Dividing the rows of a page, and putting those of two pages together.
//!
//! Both rebuild pages from copies of their rows, because the fences change, and with them the
//! prefix. A separator is the shortest key that divides a leaf; it is above the last key of the
//! left page. Between branches the separator must be the low fence of a child, so it is a key.

use std::ops::Range;

use super::PageKind;
use super::change::{PageFull, shared_prefix};
use super::layout::{RowFlags, SLOT_BYTES, SlottedPage};
use super::words::{KeyBytes, PageWords, PageWordsMut};
use crate::paged::PageId;

/// Copy of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRow {
    /// Key, with the prefix of its page.
    pub key: KeyBytes,
    /// Value.
    pub value: Vec<u8>,
    /// Bytes that the value may have without a new entry in the heap.
    pub reserved_bytes: usize,
    /// State of the row.
    pub flags: RowFlags,
}

impl<W: PageWords> SlottedPage<W> {
    /// Returns a copy of slot `index`, or `None` if there is no such slot.
    pub fn owned_row(&self, index: usize) -> Option<OwnedRow> {
        self.row(index).map(|row| OwnedRow {
            key: self.key(index),
            value: self.value(index),
            reserved_bytes: row.reserved_bytes,
            flags: row.flags,
        })
    }

    /// Returns copies of the rows in `slots`, in order.
    pub fn owned_rows(&self, slots: Range<usize>) -> Vec<OwnedRow> {
        slots.filter_map(|index| self.owned_row(index)).collect()
    }

    /// Returns copies of all rows, in order.
    pub fn all_rows(&self) -> Vec<OwnedRow> {
        self.owned_rows(0..self.slot_count())
    }

    /// Returns the shortest key that is above key `index - 1` and not above key `index`. For a
    /// branch that is key `index`.
    ///
    /// # Panics
    ///
    /// If `index` is 0 or there is no such slot.
    pub fn separator(&self, index: usize) -> KeyBytes {
        assert!(
            0 < index && index < self.slot_count(),
            "a slot with another before it"
        );
        let mut key = self.key(index);
        if self.kind() == Some(PageKind::Leaf) {
            key.truncate(shared_prefix(&self.key(index - 1), &key) + 1);
        }
        key
    }

    /// Returns the slot with which the right page of a split should begin, if a row is about to be
    /// inserted before slot `insert_at`. `None`: there are fewer than two slots.
    ///
    /// An insert at the end of a table leaves the left page full, because keys that ascend are
    /// common. Otherwise the shortest separator of the middle fifth decides, and of equals the one
    /// nearest to the middle.
    pub fn split_point(&self, insert_at: usize) -> Option<usize> {
        let count = self.slot_count();
        if count < 2 {
            return None;
        }
        if insert_at >= count && self.is_unbounded() {
            return Some(count - 1);
        }
        let sizes = (0..count).map(|index| self.slot(index).entry_bytes() + SLOT_BYTES);
        let total: usize = sizes.clone().sum();
        let before = sizes.scan(0, |sum, size| {
            *sum += size;
            Some(*sum)
        });
        // Slot `index` begins the right page: the left one has the bytes before it.
        let cuts = (1..count).zip(before);
        let distance = |left: usize| (2 * left).abs_diff(total);
        let in_middle = cuts
            .clone()
            .filter(|&(_, left)| 5 * distance(left) <= total);
        let best =
            in_middle.min_by_key(|&(index, left)| (self.separator(index).len(), distance(left)));
        let best = best.or_else(|| cuts.min_by_key(|&(_, left)| distance(left)));
        best.map(|(index, _)| index)
    }
}

impl<W: PageWordsMut> SlottedPage<W> {
    /// Replaces fences and rows.
    ///
    /// # Errors
    ///
    /// [`PageFull`] if the rows do not fit. The page then has only some of them: rebuild a copy.
    pub fn rebuild(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        rows: &[OwnedRow],
    ) -> Result<(), PageFull> {
        let (level, table, page, owner) = (self.level(), self.table(), self.page(), self.owner());
        let kind = self.kind().expect("a page that was formatted");
        self.format(kind, level, table, page, low, high);
        self.set_owner(owner);
        for (index, row) in rows.iter().enumerate() {
            self.insert(index, &row.key, &row.value, row.reserved_bytes, row.flags)?;
        }
        Ok(())
    }

    /// Replaces the fences, and keeps the first `count` rows: as [`rebuild`](Self::rebuild) with
    /// copies of them, and the same bytes, but each entry is copied once.
    ///
    /// # Errors
    ///
    /// [`PageFull`] if the rows do not fit. Nothing was changed.
    pub(super) fn refence(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        count: usize,
    ) -> Result<(), PageFull> {
        let mut old = Vec::with_capacity(self.0.word_count());
        self.0.append_words(0, self.0.word_count(), &mut old);
        let old = SlottedPage::new(old.as_flattened());
        let mut new = vec![0_u8; old.bytes()];
        let mut page = SlottedPage::new(&mut new[..]);
        let kind = old.kind().expect("a page that was formatted");
        page.format(kind, old.level(), old.table(), old.page(), low, high);
        page.set_owner(old.owner());
        page.set_lsn(old.lsn());
        // All keys begin with both prefixes.
        let (before, after) = (old.prefix_bytes(), page.prefix_bytes());
        let prefix = old.low_fence();
        let added = prefix.get(after..before).unwrap_or(&[]);
        let cut = after.saturating_sub(before);
        for index in 0..count {
            page.push_entry(old.entry(index), added, cut)?;
        }
        for index in 0..self.0.word_count() {
            self.0.set_word(index, page.0.word(index));
        }
        Ok(())
    }

    /// Moves slot `index` and all behind it to `right`, which becomes the page `right_page` of the
    /// same table, kind and level. Returns the separator, the fence between both.
    ///
    /// The rows of a leaf fit for each `index`: the separator is longer than the prefix by at most
    /// the key of a row that leaves, and a byte. A branch that is full is split at its
    /// [`split_point`](Self::split_point).
    ///
    /// # Panics
    ///
    /// If `index` is 0 or there is no such slot.
    pub fn split_into<R: PageWordsMut>(
        &mut self,
        right: &mut SlottedPage<R>,
        right_page: PageId,
        index: usize,
    ) -> KeyBytes {
        let separator = self.separator(index);
        let (low, high) = (self.low_fence(), self.high_fence());
        let rows = self.all_rows();
        let kind = self.kind().expect("a page that was formatted");
        right.format(
            kind,
            self.level(),
            self.table(),
            right_page,
            &separator,
            high.as_deref(),
        );
        right.set_owner(self.owner());
        let fits = "a part of the rows fits, with a prefix that is not shorter";
        right
            .rebuild(&separator, high.as_deref(), &rows[index..])
            .expect(fits);
        self.rebuild(&low, Some(&separator), &rows[..index])
            .expect(fits);
        separator
    }

    /// Takes over all rows of `right`, the next page to the right under the same parent.
    ///
    /// # Errors
    ///
    /// [`PageFull`] if they do not fit. Nothing was changed.
    ///
    /// # Panics
    ///
    /// If `right` does not begin where this page ends.
    pub fn absorb<R: PageWords>(&mut self, right: &SlottedPage<R>) -> Result<(), PageFull> {
        let (low, high) = (self.low_fence(), right.high_fence());
        assert!(
            self.has_high_fence(Some(&right.low_fence())),
            "the right neighbour begins where its left one ends"
        );
        let mut rows = self.all_rows();
        rows.extend(right.all_rows());
        let mut copy = vec![0_u8; self.bytes()];
        let mut merged = SlottedPage::new(&mut copy[..]);
        for index in 0..self.0.word_count() {
            merged.0.set_word(index, self.0.word(index));
        }
        merged.rebuild(&low, high.as_deref(), &rows)?;
        for index in 0..self.0.word_count() {
            self.0.set_word(index, copy[..].word(index));
        }
        Ok(())
    }
}
