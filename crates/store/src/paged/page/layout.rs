//! Slotted page, reading: fields of the header, fences, slots, search.
//!
//! Nothing here trusts the page (I6 of [`page`](super)): fields are clipped before they are used.

use std::cmp::Ordering;
use std::fmt;

use foxton_log::Lsn;

use super::PageKind;
use super::words::{self, ByteBuffer, KeyBytes, PageWords};
use crate::paged::PageId;

/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 64;
/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 16;
/// Version of the layout, in the header of each page.
pub(super) const LAYOUT_VERSION: u16 = 1;
/// Bit of a header's flags: the page holds all keys from its low fence on.
pub(super) const UNBOUNDED: u16 = 1;

/// Words of the header.
pub(super) mod field {
    pub(in super::super) const KINDS: usize = 0;
    pub(in super::super) const PAGE: usize = 1;
    pub(in super::super) const LSN: usize = 2;
    pub(in super::super) const TABLE: usize = 3;
    pub(in super::super) const OWNER: usize = 4;
    pub(in super::super) const COUNTS: usize = 5;
    pub(in super::super) const FENCES: usize = 6;
    pub(in super::super) const ZERO: usize = 7;
}

/// Returns the 16 bits of `word` that begin at bit `16 * part`.
#[inline]
pub(super) const fn part(word: u64, part: u32) -> u16 {
    (word >> (16 * part)) as u16
}

/// Returns `word` with the 16 bits at bit `16 * part` replaced.
#[inline]
pub(super) const fn with_part(word: u64, part: u32, value: u16) -> u64 {
    word & !(0xffff << (16 * part)) | (value as u64) << (16 * part)
}

/// State of a row, beside its key and value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct RowFlags(u16);

impl RowFlags {
    /// No flag.
    pub const NONE: RowFlags = RowFlags(0);
    /// The row is deleted; its key is there for locks, its value for rollback.
    pub const GHOST: RowFlags = RowFlags(1);
    /// The value is the descriptor of overflow runs.
    pub const OVERFLOW: RowFlags = RowFlags(2);
    /// The value is the id of a record in another page.
    pub const RECORD_ID: RowFlags = RowFlags(4);
    /// The row has versions. Reserved.
    pub const VERSIONS: RowFlags = RowFlags(8);

    pub(super) const ALL: u16 = 15;

    pub(in crate::paged) const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the flags that are stored as `bits`, or `None` if there are no such flags.
    pub(in crate::paged) const fn from_bits(bits: u16) -> Option<RowFlags> {
        match bits & !Self::ALL {
            0 => Some(RowFlags(bits)),
            _ => None,
        }
    }

    /// Returns the flags of both.
    #[must_use]
    pub const fn with(self, other: RowFlags) -> RowFlags {
        RowFlags(self.0 | other.0)
    }

    /// Returns these flags but those of `other`.
    #[must_use]
    pub const fn without(self, other: RowFlags) -> RowFlags {
        RowFlags(self.0 & !other.0)
    }

    /// True if it has all flags of `other`.
    pub const fn has(self, other: RowFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Debug for RowFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowFlags({:#06b})", self.0)
    }
}

/// The two words of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotWords(pub(super) u64, pub(super) u64);

impl SlotWords {
    pub(super) fn offset(self) -> usize {
        part(self.0, 0) as usize
    }

    pub(super) fn key_bytes(self) -> usize {
        part(self.0, 1) as usize
    }

    pub(super) fn head(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn value_bytes(self) -> usize {
        part(self.1, 0) as usize
    }

    pub(super) fn reserved_bytes(self) -> usize {
        part(self.1, 1) as usize
    }

    pub(super) fn flags(self) -> RowFlags {
        RowFlags(part(self.1, 2))
    }

    pub(super) fn zero(self) -> u16 {
        part(self.1, 3)
    }

    /// Bytes of its entry in the heap.
    pub(super) fn entry_bytes(self) -> usize {
        self.key_bytes() + self.reserved_bytes()
    }
}

/// Where the slots are, and what their keys share.
#[derive(Debug, Clone, Copy)]
struct SlotArea {
    /// Word of the first slot.
    begin: usize,
    /// Number of slots.
    count: usize,
    /// Bytes that all keys share.
    prefix: usize,
    /// There is no high fence, so this is the last page of its level.
    is_last: bool,
}

/// Returns the head of a key behind the prefix.
#[inline]
pub(super) fn head_of(stored: &[u8]) -> u32 {
    match *stored {
        [a, b, c, d, ..] => u32::from_be_bytes([a, b, c, d]),
        [a, b, c] => u32::from_be_bytes([a, b, c, 0]),
        [a, b] => u32::from_be_bytes([a, b, 0, 0]),
        [a] => u32::from_be_bytes([a, 0, 0, 0]),
        [] => 0,
    }
}

/// Sizes and flags of a row; its bytes are copied by [`SlottedPage::key`] and
/// [`SlottedPage::append_value`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRef {
    /// Bytes of the key.
    pub key_bytes: usize,
    /// Bytes of the value.
    pub value_bytes: usize,
    /// Bytes that the value may have without a new entry in the heap.
    pub reserved_bytes: usize,
    /// State of the row.
    pub flags: RowFlags,
}

/// A page over words of a frame or of a buffer. See the [module](super) for its layout.
///
/// ```
/// use foxton_store::paged::PageId;
/// use foxton_store::paged::page::{PageKind, RowFlags, SlottedPage};
///
/// let mut bytes = [0_u8; 8192];
/// let mut page = SlottedPage::new(&mut bytes[..]);
/// page.format(PageKind::Leaf, 0, 9, PageId::new(0, 5), b"", None);
/// page.insert(0, b"fox", b"red", 8, RowFlags::NONE)?;
/// assert_eq!(page.search(b"fox"), Ok(0));
/// assert_eq!(page.search(b"owl"), Err(1));
/// // A longer value fits into the space that was reserved for it.
/// page.replace_value(0, b"reddish")?;
/// assert_eq!(page.value(0), b"reddish");
/// assert_eq!(page.verify(), Ok(()));
/// # Ok::<(), foxton_store::paged::page::PageFull>(())
/// ```
#[derive(Debug)]
pub struct SlottedPage<W>(pub(super) W);

impl<W: PageWords> SlottedPage<W> {
    /// Returns the page in `words`, whatever they are.
    #[inline]
    pub fn new(words: W) -> Self {
        SlottedPage(words)
    }

    /// Returns the words.
    pub fn words(&self) -> &W {
        &self.0
    }

    /// Returns the words, to change.
    pub fn words_mut(&mut self) -> &mut W {
        &mut self.0
    }

    /// Number of bytes of the page.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.0.word_count() * 8
    }

    /// Returns the kind, or `None` if there is no such kind.
    #[inline]
    pub fn kind(&self) -> Option<PageKind> {
        PageKind::from_number((self.0.word(field::KINDS) >> 32) as u8)
    }

    /// Returns the level: 0 for leaves, and one more than its children for a branch.
    #[inline]
    pub fn level(&self) -> u8 {
        (self.0.word(field::KINDS) >> 40) as u8
    }

    pub(super) fn layout_version(&self) -> u16 {
        part(self.0.word(field::KINDS), 3)
    }

    /// Returns the name that the page has for itself.
    #[inline]
    pub fn page(&self) -> PageId {
        PageId(self.0.word(field::PAGE))
    }

    /// Returns the end of the log record of its last change.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        Lsn::new(self.0.word(field::LSN))
    }

    /// Returns its table.
    #[inline]
    pub fn table(&self) -> u64 {
        self.0.word(field::TABLE)
    }

    /// Returns its owner; 0 means that it has none.
    #[inline]
    pub fn owner(&self) -> u64 {
        self.0.word(field::OWNER)
    }

    pub(super) fn count(&self, which: u32) -> usize {
        part(self.0.word(field::COUNTS), which) as usize
    }

    /// Number of slots: rows, ghosts among them, or children. At most as many as fit the page.
    #[inline]
    pub fn slot_count(&self) -> usize {
        self.slot_area().count
    }

    /// Reads the words of the header that say where the slots are, each once.
    #[inline]
    fn slot_area(&self) -> SlotArea {
        let (counts, fences) = (self.0.word(field::COUNTS), self.0.word(field::FENCES));
        let fence_bytes = usize::from(part(fences, 0)) + usize::from(part(fences, 1));
        let begin = (HEADER_BYTES + fence_bytes).next_multiple_of(8);
        let space = self.bytes().saturating_sub(begin);
        SlotArea {
            begin: begin / 8,
            count: usize::from(part(counts, 0)).min(space / SLOT_BYTES),
            prefix: part(fences, 2).into(),
            is_last: part(fences, 3) & UNBOUNDED != 0,
        }
    }

    /// Bytes of the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.count(1)
    }

    /// Bytes of the heap that no slot uses.
    pub(super) fn garbage_bytes(&self) -> usize {
        self.count(2)
    }

    /// Number of slots that are ghosts.
    pub fn ghost_count(&self) -> usize {
        self.count(3)
    }

    pub(super) fn fence(&self, which: u32) -> usize {
        part(self.0.word(field::FENCES), which) as usize
    }

    pub(super) fn is_unbounded(&self) -> bool {
        part(self.0.word(field::FENCES), 3) & UNBOUNDED != 0
    }

    /// Bytes that all keys of the page share.
    #[inline]
    pub(super) fn prefix_bytes(&self) -> usize {
        self.fence(2)
    }

    /// Offset of the first slot.
    #[inline]
    pub(super) fn slots_begin(&self) -> usize {
        (HEADER_BYTES + self.fence(0) + self.fence(1)).next_multiple_of(8)
    }

    /// Bytes between slots and heap.
    pub(super) fn gap_bytes(&self) -> usize {
        let used = self.slots_begin() + self.slot_count() * SLOT_BYTES + self.heap_bytes();
        self.bytes().saturating_sub(used)
    }

    /// Bytes of rows and their slots.
    pub fn used_bytes(&self) -> usize {
        let slots = self.slot_count() * SLOT_BYTES;
        slots + self.heap_bytes().saturating_sub(self.garbage_bytes())
    }

    /// Bytes that new rows and their slots may take, garbage included.
    pub fn free_bytes(&self) -> usize {
        self.gap_bytes() + self.garbage_bytes()
    }

    /// Returns the low fence: the smallest key that the page may hold.
    pub fn low_fence(&self) -> KeyBytes {
        let mut key = KeyBytes::new();
        words::append_to(&self.0, HEADER_BYTES, self.fence(0), &mut key);
        key
    }

    /// Returns the high fence: all keys of the page are below it. `None`: it has no upper bound.
    pub fn high_fence(&self) -> Option<KeyBytes> {
        if self.is_unbounded() {
            return None;
        }
        let mut key = KeyBytes::new();
        let begin = HEADER_BYTES + self.fence(0);
        words::append_to(&self.0, begin, self.fence(1), &mut key);
        Some(key)
    }

    /// True if the low fence is `key`.
    pub fn has_low_fence(&self, key: &[u8]) -> bool {
        words::compare(&self.0, HEADER_BYTES, self.fence(0), key) == Ordering::Equal
    }

    /// True if the high fence is `key`; `None` means no upper bound.
    pub fn has_high_fence(&self, key: Option<&[u8]>) -> bool {
        let begin = HEADER_BYTES + self.fence(0);
        match key {
            None => self.is_unbounded(),
            Some(key) => {
                let order = words::compare(&self.0, begin, self.fence(1), key);
                !self.is_unbounded() && order == Ordering::Equal
            }
        }
    }

    /// True if the low fence is the key of slot `index` of `parent`.
    #[inline]
    pub fn has_low_fence_of(&self, parent: &SlottedPage<impl PageWords>, index: usize) -> bool {
        self.is_key_of((HEADER_BYTES, self.fence(0)), parent, index)
    }

    /// True if the high fence is the key of slot `index` of `parent`, or if that has no such slot,
    /// its high fence.
    #[inline]
    pub fn has_high_fence_of(&self, parent: &SlottedPage<impl PageWords>, index: usize) -> bool {
        let place = (HEADER_BYTES + self.fence(0), self.fence(1));
        if index < parent.slot_count() {
            return !self.is_unbounded() && self.is_key_of(place, parent, index);
        }
        match (self.is_unbounded(), parent.is_unbounded()) {
            (true, true) => true,
            (false, false) => {
                let above = (&parent.0, HEADER_BYTES + parent.fence(0));
                place.1 == parent.fence(1) && words::are_equal(&self.0, place.0, above, place.1)
            }
            _ => false,
        }
    }

    /// True if the `bytes` bytes from `begin` on are the key of slot `index` of `parent`.
    #[inline]
    fn is_key_of(
        &self,
        (begin, bytes): (usize, usize),
        parent: &SlottedPage<impl PageWords>,
        index: usize,
    ) -> bool {
        let (prefix, slot) = (parent.prefix_bytes(), parent.slot(index));
        let (shared, stored) = ((&parent.0, HEADER_BYTES), (&parent.0, slot.offset()));
        bytes == prefix + slot.key_bytes()
            && words::are_equal(&self.0, begin + prefix, stored, slot.key_bytes())
            && words::are_equal(&self.0, begin, shared, prefix)
    }

    /// True if the fences admit `key`.
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        let (low, high) = (self.fence(0), self.fence(1));
        let begin = HEADER_BYTES + low;
        words::compare(&self.0, HEADER_BYTES, low, key) != Ordering::Greater
            && (self.is_unbounded()
                || words::compare(&self.0, begin, high, key) == Ordering::Greater)
    }

    #[inline]
    pub(super) fn slot(&self, index: usize) -> SlotWords {
        let at = self.slots_begin() / 8 + 2 * index;
        SlotWords(self.0.word(at), self.0.word(at + 1))
    }

    #[inline]
    fn slot_in(&self, area: SlotArea, index: usize) -> SlotWords {
        let at = area.begin + 2 * index;
        SlotWords(self.0.word(at), self.0.word(at + 1))
    }

    /// Returns slot `index`, if there is one.
    #[inline]
    fn existing_slot(&self, index: usize) -> Option<(SlotArea, SlotWords)> {
        let area = self.slot_area();
        (index < area.count).then(|| (area, self.slot_in(area, index)))
    }

    /// Returns slot `index` with the bytes of its entry that are in the page.
    pub(super) fn entry(&self, index: usize) -> (SlotWords, &[u8])
    where
        W: AsRef<[u8]>,
    {
        let slot = self.slot(index);
        let heap = self.0.as_ref().get(slot.offset()..).unwrap_or(&[]);
        (slot, &heap[..slot.entry_bytes().min(heap.len())])
    }

    /// Returns the slot whose key is `key`, or the slot before which `key` belongs.
    #[inline]
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        self.search_in(self.slot_area(), key)
    }

    #[inline]
    fn search_in(&self, area: SlotArea, key: &[u8]) -> Result<usize, usize> {
        let SlotArea {
            begin,
            count,
            prefix,
            is_last,
        } = area;
        let Some(stored) = key.get(prefix..) else {
            return Err(self.outside(key));
        };
        if is_last && count > 0 {
            // Keys that ascend go here. Without a high fence there is no prefix, so most heads may
            // be equal.
            let slot = self.slot_in(area, count - 1);
            match words::compare(&self.0, slot.offset(), slot.key_bytes(), stored) {
                Ordering::Less => return Err(count),
                Ordering::Equal => return Ok(count - 1),
                Ordering::Greater => {}
            }
        }
        let head = head_of(stored);
        let slot_head = |slot: usize| (self.0.word(begin + 2 * slot) >> 32) as u32;
        // First by the heads alone, without a branch that the processor could mispredict.
        let (mut first, mut left) = (0, count);
        while left > 0 {
            let half = left / 2;
            let is_less = slot_head(first + half) < head;
            first = if is_less { first + half + 1 } else { first };
            left = if is_less { left - half - 1 } else { half };
        }
        // Then among those with this head. Most often there is one at most.
        let mut low = first;
        let mut high = match low < count && slot_head(low) == head {
            false => return Err(low),
            true if low + 1 == count || slot_head(low + 1) != head => low + 1,
            true => count,
        };
        while low < high {
            let middle = low.midpoint(high);
            let word = self.0.word(begin + 2 * middle);
            let order = ((word >> 32) as u32).cmp(&head).then_with(|| {
                let (offset, bytes) = (part(word, 0) as usize, part(word, 1) as usize);
                match bytes.max(stored.len()) <= 4 {
                    // The heads, which are equal, have all of both.
                    true => bytes.cmp(&stored.len()),
                    false => words::compare(&self.0, offset, bytes, stored),
                }
            });
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Returns the place of a key that is shorter than the prefix, and so not the page's.
    #[cold]
    fn outside(&self, key: &[u8]) -> usize {
        match self.covers(key) || key < &self.low_fence()[..] {
            true => 0,
            false => self.slot_count(),
        }
    }

    /// Returns slot and page of the child that holds `key`, which is not below the low fence. There
    /// is no page if its value is no page number.
    #[inline]
    pub fn child_of(&self, key: &[u8]) -> (usize, Option<PageId>) {
        let area = self.slot_area();
        let slot = match self.search_in(area, key) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        };
        let child = (slot < area.count).then(|| self.slot_in(area, slot));
        (slot, child.and_then(|child| self.child_in(child)))
    }

    /// Returns the flags of the row of `key`.
    #[inline]
    pub fn flags_of(&self, key: &[u8]) -> Option<RowFlags> {
        let area = self.slot_area();
        let slot = self.search_in(area, key).ok()?;
        Some(self.slot_in(area, slot).flags())
    }

    /// Returns the flags of the row of `key`, and appends its value to `value`.
    #[inline]
    pub fn read_row(&self, key: &[u8], value: &mut impl ByteBuffer) -> Option<RowFlags> {
        let area = self.slot_area();
        let found = self.search_in(area, key).ok()?;
        let slot = self.slot_in(area, found);
        let begin = slot.offset() + slot.key_bytes();
        words::append_to(&self.0, begin, slot.value_bytes(), value);
        Some(slot.flags())
    }

    /// Returns sizes and flags of slot `index`, or `None` if there is no such slot.
    #[inline]
    pub fn row(&self, index: usize) -> Option<RowRef> {
        let (area, slot) = self.existing_slot(index)?;
        Some(RowRef {
            key_bytes: area.prefix + slot.key_bytes(),
            value_bytes: slot.value_bytes(),
            reserved_bytes: slot.reserved_bytes(),
            flags: slot.flags(),
        })
    }

    /// Returns a copy of the key of slot `index`; empty if there is no such slot.
    pub fn key(&self, index: usize) -> KeyBytes {
        let mut key = KeyBytes::new();
        if let Some((area, slot)) = self.existing_slot(index) {
            words::append_to(&self.0, HEADER_BYTES, area.prefix, &mut key);
            words::append_to(&self.0, slot.offset(), slot.key_bytes(), &mut key);
        }
        key
    }

    /// True if the key of slot `index` is `key`.
    pub fn has_key(&self, index: usize, key: &[u8]) -> bool {
        let prefix = self.prefix_bytes();
        let Some((shared, stored)) = key.split_at_checked(prefix) else {
            return false;
        };
        let Some((_, slot)) = self.existing_slot(index) else {
            return false;
        };
        slot.key_bytes() == stored.len()
            && words::compare(&self.0, slot.offset(), stored.len(), stored).is_eq()
            && words::compare(&self.0, HEADER_BYTES, prefix, shared).is_eq()
    }

    /// Appends the value of slot `index` to `value`; nothing if there is no such slot.
    pub fn append_value(&self, index: usize, value: &mut impl ByteBuffer) {
        if let Some((_, slot)) = self.existing_slot(index) {
            let begin = slot.offset() + slot.key_bytes();
            words::append_to(&self.0, begin, slot.value_bytes(), value);
        }
    }

    /// Returns a copy of the value of slot `index`; empty if there is no such slot.
    pub fn value(&self, index: usize) -> Vec<u8> {
        let mut value = Vec::new();
        self.append_value(index, &mut value);
        value
    }

    /// Returns the child in slot `index` of a branch, or `None` if there is no such slot or its
    /// value is no page number.
    #[inline]
    pub fn child(&self, index: usize) -> Option<PageId> {
        let (_, slot) = self.existing_slot(index)?;
        self.child_in(slot)
    }

    #[inline]
    fn child_in(&self, slot: SlotWords) -> Option<PageId> {
        if slot.value_bytes() != 8 {
            return None;
        }
        let number = slot.offset() + slot.key_bytes();
        Some(PageId(words::load(&self.0, number)))
    }
}
