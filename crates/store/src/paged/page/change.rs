//! Slotted page, changing: rows are inserted, replaced, marked and removed.
//!
//! A change first finds its space. If slots and heap have too little between them, but garbage
//! would do, the heap is compacted: its entries are copied out and written back without gaps.

use std::fmt;

use foxton_log::Lsn;

use super::PageKind;
use super::layout::{
    HEADER_BYTES, LAYOUT_VERSION, RowFlags, SLOT_BYTES, SlotWords, SlottedPage, UNBOUNDED, field,
    head_of, part, with_part,
};
use super::words::{self, PageWordsMut};
use crate::paged::PageId;

/// The page has not enough free bytes. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFull {
    /// Bytes that the change needs, with the slot of a new row.
    pub needed_bytes: usize,
    /// Bytes that are free.
    pub free_bytes: usize,
}

impl fmt::Display for PageFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PageFull {
            needed_bytes,
            free_bytes,
        } = self;
        write!(
            f,
            "the change needs {needed_bytes} bytes of the page and {free_bytes} are free; \
             split the page first"
        )
    }
}

impl std::error::Error for PageFull {}

/// Returns the number of bytes that both begin with.
pub(super) fn shared_prefix(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// A value from 0 to 65,535 as 16 bits.
fn bits16(value: usize) -> u16 {
    u16::try_from(value).expect("sizes and offsets within a page fit 16 bits")
}

impl<W: PageWordsMut> SlottedPage<W> {
    /// Makes this an empty page, whatever it was. Its keys are from `low` on and below `high`, if
    /// that is given. Its LSN stays, because LSNs of a page only grow; so does nothing else.
    ///
    /// # Panics
    ///
    /// If both fences leave no space, or the high fence is not above the low one.
    pub fn format(
        &mut self,
        kind: PageKind,
        level: u8,
        table: u64,
        page: PageId,
        low: &[u8],
        high: Option<&[u8]>,
    ) {
        let fences = low.len() + high.map_or(0, <[u8]>::len);
        assert!(
            HEADER_BYTES + fences < self.bytes() / 2,
            "fences have at most half a page"
        );
        assert!(high.is_none_or(|high| low < high), "no key fits the fences");
        let kinds = u64::from(kind as u8) << 32 | u64::from(level) << 40;
        self.0
            .set_word(field::KINDS, with_part(kinds, 3, LAYOUT_VERSION));
        self.0.set_word(field::PAGE, page.0);
        self.0.set_word(field::TABLE, table);
        self.0.set_word(field::OWNER, 0);
        self.0.set_word(field::COUNTS, 0);
        self.0.set_word(field::ZERO, 0);
        let prefix = high.map_or(0, |high| shared_prefix(low, high));
        let mut word = with_part(0, 0, bits16(low.len()));
        word = with_part(word, 1, bits16(high.map_or(0, <[u8]>::len)));
        word = with_part(word, 2, bits16(prefix));
        word = with_part(word, 3, if high.is_none() { UNBOUNDED } else { 0 });
        self.0.set_word(field::FENCES, word);
        for index in HEADER_BYTES / 8..self.bytes() / 8 {
            self.0.set_word(index, 0);
        }
        words::write(&mut self.0, HEADER_BYTES, low);
        words::write(&mut self.0, HEADER_BYTES + low.len(), high.unwrap_or(b""));
    }

    /// Stamps the page with the end of the log record of its last change.
    pub fn set_lsn(&mut self, lsn: Lsn) {
        self.0.set_word(field::LSN, lsn.bytes());
    }

    /// Gives the page to `owner`; 0 means that it has none.
    pub fn set_owner(&mut self, owner: u64) {
        self.0.set_word(field::OWNER, owner);
    }

    pub(super) fn set_count(&mut self, which: u32, value: usize) {
        let word = self.0.word(field::COUNTS);
        self.0
            .set_word(field::COUNTS, with_part(word, which, bits16(value)));
    }

    fn set_slot(&mut self, index: usize, slot: SlotWords) {
        let at = self.slots_begin() / 8 + 2 * index;
        self.0.set_word(at, slot.0);
        self.0.set_word(at + 1, slot.1);
    }

    /// Inserts a row before slot `index`, which a search for `key` returned. The value may later
    /// grow to `reserved` bytes where it is.
    ///
    /// # Errors
    ///
    /// [`PageFull`], and then the page must be split, or its ghosts removed.
    ///
    /// # Panics
    ///
    /// If `key` does not begin with the prefix of the page, or `index` is beyond the slots.
    pub fn insert(
        &mut self,
        index: usize,
        key: &[u8],
        value: &[u8],
        reserved: usize,
        flags: RowFlags,
    ) -> Result<(), PageFull> {
        let count = self.slot_count();
        assert!(index <= count, "an index within the slots");
        debug_assert!(self.covers(key), "a key within the fences");
        let stored = key
            .get(self.prefix_bytes()..)
            .expect("a key has the prefix of its page");
        let reserved = reserved.max(value.len());
        self.make_space(stored.len() + reserved, SLOT_BYTES)?;
        let slot = self.add_entry(stored, value, reserved, flags);
        let begin = self.slots_begin() / 8;
        for at in (begin + 2 * index..begin + 2 * count).rev() {
            let word = self.0.word(at);
            self.0.set_word(at + 2, word);
        }
        self.set_slot(index, slot);
        self.set_count(0, count + 1);
        if flags.has(RowFlags::GHOST) {
            self.set_count(3, self.ghost_count() + 1);
        }
        Ok(())
    }

    /// Replaces the value of slot `index`. It stays where it is if its reserved bytes suffice, and
    /// they stay reserved if it is shorter (I4).
    ///
    /// # Errors
    ///
    /// [`PageFull`], and then the page must be split.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn replace_value(&mut self, index: usize, value: &[u8]) -> Result<(), PageFull> {
        let slot = self.existing(index);
        if value.len() <= slot.reserved_bytes() {
            words::write(&mut self.0, slot.offset() + slot.key_bytes(), value);
            let second = with_part(slot.1, 0, bits16(value.len()));
            self.set_slot(index, SlotWords(slot.0, second));
            return Ok(());
        }
        let key = self.key(index);
        let stored = &key[self.prefix_bytes()..];
        let needed = stored.len() + value.len();
        if needed > self.gap_bytes() {
            // The old entry may become garbage first: its value is replaced anyway.
            let free_bytes = self.free_bytes() + slot.entry_bytes();
            if needed > free_bytes {
                return Err(PageFull {
                    needed_bytes: needed,
                    free_bytes,
                });
            }
            self.set_slot(index, SlotWords(slot.0 & !0xffff_ffff, 0));
            self.compact();
        } else {
            self.set_count(2, self.garbage_bytes() + slot.entry_bytes());
        }
        let slot = self.add_entry(stored, value, value.len(), slot.flags());
        self.set_slot(index, slot);
        Ok(())
    }

    /// Replaces the flags of slot `index`. Sets [`RowFlags::GHOST`] to delete a row, and clears it
    /// to undo that: the bytes of the row stay.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn set_flags(&mut self, index: usize, flags: RowFlags) {
        let slot = self.existing(index);
        let ghosts = self.ghost_count() + usize::from(flags.has(RowFlags::GHOST));
        self.set_count(
            3,
            ghosts - usize::from(slot.flags().has(RowFlags::GHOST)).min(ghosts),
        );
        let second = with_part(slot.1, 2, flags.bits());
        self.set_slot(index, SlotWords(slot.0, second));
    }

    /// Removes slot `index` with its key, value and reserved bytes. For rows, the caller holds the
    /// locks of key and gap alone, because no undo finds the row again.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn remove(&mut self, index: usize) {
        let slot = self.existing(index);
        let (count, begin) = (self.slot_count(), self.slots_begin() / 8);
        for at in begin + 2 * index..begin + 2 * (count - 1) {
            let word = self.0.word(at + 2);
            self.0.set_word(at, word);
        }
        self.set_slot(count - 1, SlotWords(0, 0));
        self.set_count(0, count - 1);
        if slot.flags().has(RowFlags::GHOST) {
            self.set_count(3, self.ghost_count().saturating_sub(1));
        }
        match count {
            1 => {
                self.set_count(1, 0);
                self.set_count(2, 0);
            }
            _ => self.set_count(2, self.garbage_bytes() + slot.entry_bytes()),
        }
    }

    /// Gives away the reserved bytes of slot `index` that its value does not use. The caller holds
    /// the lock of the key alone, because an undo might need them.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn trim(&mut self, index: usize) {
        let slot = self.existing(index);
        let unused = slot.reserved_bytes().saturating_sub(slot.value_bytes());
        self.set_count(2, self.garbage_bytes() + unused);
        let second = with_part(slot.1, 1, part(slot.1, 0));
        self.set_slot(index, SlotWords(slot.0, second));
    }

    fn existing(&self, index: usize) -> SlotWords {
        assert!(index < self.slot_count(), "a slot of the page");
        self.slot(index)
    }

    /// Makes sure that slots and heap have so many bytes between them.
    fn make_space(&mut self, entry: usize, slot: usize) -> Result<(), PageFull> {
        let needed_bytes = entry + slot;
        if needed_bytes <= self.gap_bytes() {
            return Ok(());
        }
        let free_bytes = self.free_bytes();
        if needed_bytes > free_bytes {
            return Err(PageFull {
                needed_bytes,
                free_bytes,
            });
        }
        self.compact();
        Ok(())
    }

    /// Adds an entry to the heap, for which there is space, and returns its slot.
    fn add_entry(
        &mut self,
        stored: &[u8],
        value: &[u8],
        reserved: usize,
        flags: RowFlags,
    ) -> SlotWords {
        let heap = self.heap_bytes() + stored.len() + reserved;
        let offset = self.bytes() - heap;
        words::write(&mut self.0, offset, stored);
        words::write(&mut self.0, offset + stored.len(), value);
        self.set_count(1, heap);
        // An empty entry at the end of the page has no offset in 16 bits, and needs none.
        let offset = u16::try_from(offset).unwrap_or(0);
        let first = u64::from(head_of(stored)) << 32 | u64::from(offset);
        let first = with_part(first, 1, bits16(stored.len()));
        let second = with_part(0, 0, bits16(value.len()));
        let second = with_part(second, 1, bits16(reserved));
        SlotWords(first, with_part(second, 2, flags.bits()))
    }

    /// Appends a row that another page has in this entry, behind all rows. Its key gets the bytes
    /// `added` in front, or loses `cut` bytes.
    ///
    /// # Errors
    ///
    /// [`PageFull`], and nothing was changed.
    pub(super) fn push_entry(
        &mut self,
        (slot, entry): (SlotWords, &[u8]),
        added: &[u8],
        cut: usize,
    ) -> Result<(), PageFull>
    where
        W: AsMut<[u8]>,
    {
        let (key, value) = entry.split_at(slot.key_bytes().min(entry.len()));
        let key = key.get(cut..).unwrap_or(&[]);
        let (stored, index) = (added.len() + key.len(), self.slot_count());
        self.make_space(stored + value.len(), SLOT_BYTES)?;
        let heap = self.heap_bytes() + stored + value.len();
        let offset = self.bytes() - heap;
        let place = &mut self.0.as_mut()[offset..];
        place[..added.len()].copy_from_slice(added);
        place[added.len()..stored].copy_from_slice(key);
        let kept = slot.value_bytes().min(value.len());
        place[stored..stored + kept].copy_from_slice(&value[..kept]);
        let head = head_of(&place[..stored]);
        self.set_count(1, heap);
        let place = u16::try_from(offset).unwrap_or(0);
        let first = with_part(u64::from(head) << 32, 1, bits16(stored));
        self.set_slot(index, SlotWords(with_part(first, 0, place), slot.1));
        self.set_count(0, index + 1);
        if slot.flags().has(RowFlags::GHOST) {
            self.set_count(3, self.ghost_count() + 1);
        }
        Ok(())
    }

    /// Moves all entries of the heap to the end of the page, so that there is no garbage.
    fn compact(&mut self) {
        let count = self.slot_count();
        let mut entries = Vec::with_capacity(self.heap_bytes());
        for index in 0..count {
            let slot = self.slot(index);
            words::append_to(&self.0, slot.offset(), slot.entry_bytes(), &mut entries);
        }
        let begin = self.bytes() - entries.len();
        words::write(&mut self.0, begin, &entries);
        let mut offset = begin;
        for index in 0..count {
            let slot = self.slot(index);
            let place = u16::try_from(offset).unwrap_or(0);
            self.set_slot(index, SlotWords(with_part(slot.0, 0, place), slot.1));
            offset += slot.entry_bytes();
        }
        self.set_count(1, entries.len());
        self.set_count(2, 0);
    }
}
