//! Copies of rows, for scans: many in two buffers, which are used again.
//!
//! Key and value of a row are copied as the whole words that have them, and begin somewhere in the
//! first word. That takes less than moving all bytes to a place of their own.

use super::layout::{HEADER_BYTES, RowFlags, SlottedPage};
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
    /// Bytes that the keys of the leaf share.
    prefix: Vec<u8>,
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
        self.copy_rows(index..index + 1, rows);
    }

    /// Appends copies of the slots of `range` to `rows`, as far as there are such slots.
    pub(in crate::paged) fn copy_rows(
        &self,
        slots: impl IntoIterator<Item = usize>,
        rows: &mut LeafRows,
    ) {
        let (count, bytes) = (self.slot_count(), self.bytes());
        rows.prefix.clear();
        let prefix = self.prefix_bytes();
        words::append_to(&self.0, HEADER_BYTES, prefix, &mut rows.prefix);
        for index in slots {
            if index >= count {
                continue;
            }
            // The entry of a row has its key and then its value.
            let slot = self.slot(index);
            let begin = slot.offset().min(bytes);
            let key_bytes = slot.key_bytes().min(bytes - begin);
            let value_bytes = slot.value_bytes().min(bytes - begin - key_bytes);
            let (first, end) = (begin / 8, (begin + key_bytes + value_bytes).div_ceil(8));
            let entry = rows.words.len() * 8 + begin % 8;
            self.0.append_words(first, end - first, &mut rows.words);
            let value = entry + key_bytes;
            rows.keys.extend_from_slice(&rows.prefix);
            let copied = rows.words.as_flattened();
            rows.keys.extend_from_slice(&copied[entry..value]);
            rows.rows.push(CopiedRow {
                key_end: rows.keys.len(),
                value,
                value_bytes,
                flags: slot.flags(),
            });
        }
    }
}
