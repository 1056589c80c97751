//! Copies of rows, for scans: many in two buffers, which are used again.
//!
//! A value is copied as the whole words that have it, and lies somewhere in its first word. That
//! takes a third of the time of moving each byte to its place.

use super::layout::{RowFlags, SlottedPage};
use super::words::{self, PageWords};

/// Copies of rows of a leaf, in the order of a scan.
///
/// ```
/// use foxton_store::paged::PageId;
/// use foxton_store::paged::page::{LeafRows, PageKind, RowFlags, SlottedPage};
///
/// let mut bytes = [0_u8; 8192];
/// let mut page = SlottedPage::new(&mut bytes[..]);
/// page.format(PageKind::Leaf, 0, 9, PageId::new(0, 5), b"", None);
/// page.insert(0, b"fox", b"red", 8, RowFlags::NONE)?;
/// let mut rows = LeafRows::default();
/// page.copy_row(0, &mut rows);
/// assert_eq!((rows.key(0), rows.value(0)), (&b"fox"[..], &b"red"[..]));
/// # Ok::<(), foxton_store::paged::page::PageFull>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct LeafRows {
    keys: Vec<u8>,
    words: Vec<[u8; 8]>,
    rows: Vec<CopiedRow>,
}

/// Place of a row in the buffers, in bytes.
#[derive(Debug, Clone, Copy)]
struct CopiedRow {
    key_end: usize,
    value: usize,
    value_bytes: usize,
    flags: RowFlags,
}

impl LeafRows {
    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the key of row `index`.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    #[inline]
    pub fn key(&self, index: usize) -> &[u8] {
        let before = index.checked_sub(1).map(|before| self.rows[before].key_end);
        &self.keys[before.unwrap_or(0)..self.rows[index].key_end]
    }

    /// Returns the value of row `index`.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    #[inline]
    pub fn value(&self, index: usize) -> &[u8] {
        let row = &self.rows[index];
        &self.words.as_flattened()[row.value..row.value + row.value_bytes]
    }

    /// Returns the flags of row `index`.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    #[inline]
    pub fn flags(&self, index: usize) -> RowFlags {
        self.rows[index].flags
    }

    /// Removes all rows, and keeps the buffers.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.words.clear();
        self.rows.clear();
    }

    /// Frees the space of buffers beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.keys.shrink_to(bytes);
        self.words.shrink_to(bytes / 8);
        self.rows.shrink_to(bytes / size_of::<CopiedRow>());
    }
}

impl<W: PageWords> SlottedPage<W> {
    /// Appends a copy of slot `index` to `rows`; nothing if there is no such slot.
    pub fn copy_row(&self, index: usize, rows: &mut LeafRows) {
        if index >= self.slot_count() {
            return;
        }
        let slot = self.slot(index);
        words::append_to(
            &self.0,
            super::layout::HEADER_BYTES,
            self.prefix_bytes(),
            &mut rows.keys,
        );
        words::append_to(&self.0, slot.offset(), slot.key_bytes(), &mut rows.keys);
        let begin = slot.offset() + slot.key_bytes();
        let value_bytes = slot.value_bytes().min(self.bytes().saturating_sub(begin));
        let covering = begin / 8..(begin + value_bytes).div_ceil(8);
        rows.rows.push(CopiedRow {
            key_end: rows.keys.len(),
            value: rows.words.len() * 8 + begin % 8,
            value_bytes,
            flags: slot.flags(),
        });
        // Also without a value, so that its place is within the buffer.
        let covering = covering.start..covering.end.max(covering.start + 1);
        let copies = covering.map(|word| self.0.word(word).to_le_bytes());
        rows.words.extend(copies);
    }
}
