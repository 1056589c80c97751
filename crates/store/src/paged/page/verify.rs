//! Check of a whole page: every field, every slot, every byte of the heap.

use std::cmp::Ordering;

use super::change::shared_prefix;
use super::image::PageFault;
use super::layout::{
    HEADER_BYTES, LAYOUT_VERSION, RowFlags, SLOT_BYTES, SlottedPage, UNBOUNDED, field, head_of,
    part,
};
use super::space_map::{SpaceMap, without_fences};
use super::words::{PageWords, load};
use super::{PageKind, PageSize};

fn check(right: bool, field: &'static str, value: u64) -> Result<(), PageFault> {
    match right {
        true => Ok(()),
        false => Err(PageFault::Field { field, value }),
    }
}

impl<W: PageWords> SlottedPage<W> {
    /// Checks invariants I1 to I4 of the [module](super) and every field of the header, but not the
    /// checksum. A space map has invariants of its own.
    ///
    /// # Errors
    ///
    /// The first fault that was found.
    pub fn verify(&self) -> Result<(), PageFault> {
        let size = PageSize::new(self.bytes());
        let size = size.ok_or(PageFault::Field {
            field: "page size",
            value: self.bytes() as u64,
        })?;
        let kinds = self.0.word(field::KINDS);
        let number = kinds >> 32 & 0xff;
        let kind = self.kind().ok_or(PageFault::Field {
            field: "kind",
            value: number,
        })?;
        let version = self.layout_version();
        check(version == LAYOUT_VERSION, "layout version", version.into())?;
        check(
            self.0.word(field::ZERO) == 0,
            "zero",
            self.0.word(field::ZERO),
        )?;
        if kind == PageKind::SpaceMap {
            return SpaceMap::new(&self.0).verify(size);
        }
        let level = self.level();
        check(
            (kind == PageKind::Branch) == (level > 0),
            "level",
            level.into(),
        )?;
        self.verify_fences(size)?;
        self.verify_counts()?;
        if kind == PageKind::Free {
            let words = (field::COUNTS..size.words()).map(|index| self.0.word(index));
            let nothing = [0, without_fences(), 0];
            let others = std::iter::repeat(0);
            let mut pairs = words.zip(nothing.into_iter().chain(others));
            let wrong = pairs.find(|(word, expected)| word != expected);
            return wrong.map_or(Ok(()), |(word, _)| check(false, "free page", word));
        }
        self.verify_slots(size, kind)?;
        self.verify_heap()
    }

    fn verify_fences(&self, size: PageSize) -> Result<(), PageFault> {
        let (low, high) = (self.fence(0), self.fence(1));
        check(low <= size.max_key_bytes(), "low fence bytes", low as u64)?;
        check(
            high <= size.max_key_bytes(),
            "high fence bytes",
            high as u64,
        )?;
        let flags = part(self.0.word(field::FENCES), 3);
        check(flags & !UNBOUNDED == 0, "header flags", flags.into())?;
        let unbounded = self.is_unbounded();
        check(!unbounded || high == 0, "high fence bytes", high as u64)?;
        let (low_fence, high_fence) = (self.low_fence(), self.high_fence());
        let in_order = high_fence.as_ref().is_none_or(|high| low_fence < *high);
        check(in_order, "order of the fences", 0)?;
        let prefix = self.prefix_bytes();
        let shared = high_fence.map_or(0, |high| shared_prefix(&low_fence, &high));
        check(prefix == shared, "prefix bytes", prefix as u64)?;
        let padding = HEADER_BYTES + low + high..self.slots_begin();
        let mut bytes = Vec::new();
        super::words::append_to(&self.0, padding.start, padding.len(), &mut bytes);
        check(
            bytes.iter().all(|byte| *byte == 0),
            "padding",
            padding.start as u64,
        )
    }

    fn verify_counts(&self) -> Result<(), PageFault> {
        let (slots, heap) = (self.count(0), self.heap_bytes());
        let used = self.slots_begin() + slots * SLOT_BYTES;
        check(used <= self.bytes(), "slots", slots as u64)?;
        check(used + heap <= self.bytes(), "heap bytes", heap as u64)
    }

    fn verify_slots(&self, size: PageSize, kind: PageKind) -> Result<(), PageFault> {
        let mut ghosts = 0;
        let mut before: Option<u32> = None;
        let count = self.slot_count();
        for index in 0..count {
            let slot = self.slot(index);
            let check = |right: bool, field, value| match right {
                true => Ok(()),
                false => Err(PageFault::Slot {
                    slot: index,
                    field,
                    value,
                }),
            };
            let (value, reserved) = (slot.value_bytes(), slot.reserved_bytes());
            check(value <= reserved, "value bytes", value as u64)?;
            let flags = slot.flags().bits();
            check(flags & !RowFlags::ALL == 0, "flags", flags.into())?;
            check(slot.zero() == 0, "zero", slot.zero().into())?;
            ghosts += usize::from(slot.flags().has(RowFlags::GHOST));
            let heap_begin = self.bytes() - self.heap_bytes();
            let offset = slot.offset();
            let is_inside = offset >= heap_begin && offset + slot.entry_bytes() <= self.bytes();
            check(
                is_inside || slot.entry_bytes() == 0,
                "heap offset",
                offset as u64,
            )?;
            let key_bytes = self.prefix_bytes() + slot.key_bytes();
            check(
                key_bytes <= size.max_key_bytes(),
                "key bytes",
                key_bytes as u64,
            )?;
            let head = self.stored_head(slot.offset(), slot.key_bytes());
            check(slot.head() == head, "head", slot.head().into())?;
            // Heads that differ tell the order, and no key is copied.
            let in_order = before.is_none_or(|before| match before.cmp(&head) {
                Ordering::Less => true,
                Ordering::Equal => self.key(index - 1) < self.key(index),
                Ordering::Greater => false,
            });
            check(in_order, "order of the keys", 0)?;
            // Those between are in order.
            let is_end = index == 0 || index + 1 == count;
            let is_covered = !is_end || self.covers(&self.key(index));
            check(is_covered, "key within the fences", 0)?;
            if kind != PageKind::Leaf {
                check(value == 8, "value bytes of a child", value as u64)?;
            }
            if kind == PageKind::Branch && index == 0 {
                let is_first = self.has_low_fence(&self.key(index));
                check(is_first, "first key of a branch", 0)?;
            }
            before = Some(head);
        }
        check(
            ghosts == self.ghost_count(),
            "ghosts",
            self.ghost_count() as u64,
        )
    }

    /// Returns the head of a key, as its bytes in the heap have it.
    fn stored_head(&self, offset: usize, bytes: usize) -> u32 {
        let first = load(&self.0, offset).to_le_bytes();
        head_of(&first[..bytes.min(4)])
    }

    fn verify_heap(&self) -> Result<(), PageFault> {
        let slots = (0..self.slot_count()).map(|index| self.slot(index));
        let mut entries: Vec<_> = slots
            .filter(|slot| slot.entry_bytes() > 0)
            .map(|slot| (slot.offset(), slot.entry_bytes()))
            .collect();
        entries.sort_unstable();
        let overlap = entries
            .windows(2)
            .find(|pair| pair[0].0 + pair[0].1 > pair[1].0);
        let at = overlap.map_or(0, |pair| pair[1].0 as u64);
        check(overlap.is_none(), "overlapping entry", at)?;
        let used: usize = entries.iter().map(|(_, bytes)| bytes).sum();
        let (heap, garbage) = (self.heap_bytes(), self.garbage_bytes());
        check(used + garbage == heap, "garbage bytes", garbage as u64)
    }
}
