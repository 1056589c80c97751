//! Space map: which pages of a part of the file are used.
//!
//! # State
//!
//! ```text
//!   header, 64 bytes | used: a word for each extent | owners: 4 bytes for each extent | zeros
//! ```
//!
//! An *extent* is 64 neighbouring pages, so a word has a bit for each of its pages: bit `i` is set
//! if page `i` of the extent is used. The words fill half a page. So a map of B bytes covers 4 × B
//! pages: 32,768 with pages of 8 KiB. The owner of an extent is a table, or 0 if any table may use
//! its pages. The header is that of other pages, without table, level, counts and fences.
//!
//! # Place
//!
//! The first map is page 2, because pages 0 and 1 have other purposes. Each other map is the first
//! page of the part that it covers. So the place of a map follows from the page size alone.
//!
//! # Invariants
//!
//! * I1  A map has its own bit set. The first map has those of pages 0 and 1 set too.
//! * I2  All bytes that have no meaning are zero.

use foxton_log::Lsn;

use super::image::PageFault;
use super::layout::{HEADER_BYTES, SlottedPage, UNBOUNDED, field, with_part};
use super::words::{PageWords, PageWordsMut};
use super::{PageKind, PageSize};
use crate::paged::PageId;

/// Number of pages in an extent.
pub const EXTENT_PAGES: u64 = 64;
/// Page of the first map.
const FIRST_MAP: u64 = 2;

/// Place of a page's bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapPosition {
    /// The map.
    pub map: PageId,
    /// Index of the page among those that the map covers.
    pub index: u32,
}

impl PageSize {
    /// Number of pages that a space map covers.
    pub const fn mapped_pages(self) -> u64 {
        self.bytes() as u64 * 4
    }

    /// Number of extents that a space map covers.
    pub const fn mapped_extents(self) -> usize {
        (self.mapped_pages() / EXTENT_PAGES) as usize
    }

    /// Returns the page of map `index`; 0 is the first.
    pub const fn map_page(self, index: u64) -> PageId {
        match index {
            0 => PageId::new(0, FIRST_MAP),
            _ => PageId::new(0, index * self.mapped_pages()),
        }
    }

    /// Returns where the bit of `page` is.
    pub const fn map_position(self, page: PageId) -> MapPosition {
        let number = page.number();
        MapPosition {
            map: self.map_page(number / self.mapped_pages()),
            // Exact: a map covers at most 2^18 pages.
            index: (number % self.mapped_pages()) as u32,
        }
    }
}

/// A space map over words of a frame or of a buffer.
///
/// ```
/// use foxton_log::Lsn;
/// use foxton_store::paged::PageId;
/// use foxton_store::paged::page::{PageSize, SpaceMap};
///
/// let size = PageSize::default();
/// let position = size.map_position(PageId::new(0, 40_000));
/// assert_eq!((position.map, position.index), (PageId::new(0, 32_768), 7_232));
///
/// let mut bytes = [0_u8; 8192];
/// let mut map = SpaceMap::new(&mut bytes[..]);
/// map.format(1, Lsn::ZERO);
/// map.set_used(position.index, true);
/// assert!(map.is_used(position.index) && !map.is_used(position.index + 1));
/// ```
#[derive(Debug)]
pub struct SpaceMap<W>(W);

impl<W: PageWords> SpaceMap<W> {
    /// Returns the map in `words`, whatever they are.
    pub fn new(words: W) -> Self {
        SpaceMap(words)
    }

    /// Number of extents, whatever the words are.
    pub fn extent_count(&self) -> usize {
        self.0.word_count() / 2
    }

    /// Returns the bits of the pages of extent `extent`; 0 if there is no such extent.
    pub fn used_bits(&self, extent: usize) -> u64 {
        match extent < self.extent_count() {
            true => self.0.word(HEADER_BYTES / 8 + extent),
            false => 0,
        }
    }

    /// Returns the owner of extent `extent`; 0 if it has none, or there is no such extent.
    pub fn extent_owner(&self, extent: usize) -> u32 {
        let begin = HEADER_BYTES / 8 + self.extent_count();
        match extent < self.extent_count() {
            true => (self.0.word(begin + extent / 2) >> (extent % 2 * 32)) as u32,
            false => 0,
        }
    }

    /// True if page `index` of those that the map covers is used.
    pub fn is_used(&self, index: u32) -> bool {
        let (extent, bit) = split(index);
        self.used_bits(extent) & bit != 0
    }

    /// Checks I1, I2 and the header, but not the checksum.
    ///
    /// # Errors
    ///
    /// The first fault that was found.
    pub(super) fn verify(&self, size: PageSize) -> Result<(), PageFault> {
        let page = SlottedPage::new(&self.0).page();
        let check = |right: bool, field, value| match right {
            true => Ok(()),
            false => Err(PageFault::Field { field, value }),
        };
        let map = size.map_position(page).map;
        check(
            map == page && page.tablespace() == 0,
            "map number",
            page.number(),
        )?;
        let is_plain = [
            ("level", u64::from(SlottedPage::new(&self.0).level()), 0),
            ("table", self.0.word(field::TABLE), 0),
            ("owner", self.0.word(field::OWNER), 0),
            ("counts", self.0.word(field::COUNTS), 0),
            ("fences", self.0.word(field::FENCES), without_fences()),
        ];
        for (field, value, expected) in is_plain {
            check(value == expected, field, value)?;
        }
        let own = size.map_position(page).index;
        for index in (0..=own).filter(|index| *index == own || own == FIRST_MAP as u32) {
            check(self.is_used(index), "bit of a fixed page", index.into())?;
        }
        let end = HEADER_BYTES / 8 + self.extent_count() + self.extent_count() / 2;
        for index in end..self.0.word_count() {
            check(
                self.0.word(index) == 0,
                "zeros of a map",
                self.0.word(index),
            )?;
        }
        Ok(())
    }
}

impl<W: PageWordsMut> SpaceMap<W> {
    /// Makes this map `index`, in which no page is used but the map itself and, in the first one,
    /// pages 0 and 1. The LSN is `lsn`: records up to there are not for this map.
    ///
    /// # Panics
    ///
    /// If the words are not of a size that pages can have.
    pub fn format(&mut self, index: u64, lsn: Lsn) {
        let size = PageSize::new(self.0.word_count() * 8).expect("words of a page");
        let page = size.map_page(index);
        let mut content = SlottedPage::new(&mut self.0);
        content.format(PageKind::SpaceMap, 0, 0, page, b"", None);
        content.set_lsn(lsn);
        let own = size.map_position(page).index;
        for index in (0..=own).filter(|index| *index == own || own == FIRST_MAP as u32) {
            self.set_used(index, true);
        }
    }

    /// Sets or clears the bit of page `index` of those that the map covers. Does nothing if there
    /// is no such page.
    pub fn set_used(&mut self, index: u32, is_used: bool) {
        let (extent, bit) = split(index);
        if extent < self.extent_count() {
            let word = self.used_bits(extent) & !bit;
            let word = word | if is_used { bit } else { 0 };
            self.0.set_word(HEADER_BYTES / 8 + extent, word);
        }
    }
}

/// Returns extent and bit of a page.
const fn split(index: u32) -> (usize, u64) {
    let pages = EXTENT_PAGES as u32;
    ((index / pages) as usize, 1 << (index % pages))
}

/// The word of the header that says: no fences.
pub(super) const fn without_fences() -> u64 {
    with_part(0, 3, UNBOUNDED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paged::page::{seal, unseal};

    const IDENTITY: [u8; 16] = [3; 16];
    const SIZES: [PageSize; 3] = [PageSize::MIN, PageSize(8 << 10), PageSize::MAX];

    fn formatted(size: PageSize, index: u64) -> Vec<u8> {
        let mut bytes = vec![0xff; size.bytes()];
        SlottedPage::new(&mut bytes[..]).set_lsn(Lsn::ZERO);
        SpaceMap::new(&mut bytes[..]).format(index, Lsn::new(77));
        bytes
    }

    #[test]
    fn each_page_has_one_bit() {
        for size in SIZES {
            let pages = size.mapped_pages();
            for number in [
                0,
                1,
                2,
                3,
                63,
                64,
                pages - 1,
                pages,
                pages + 1,
                5 * pages + 9,
            ] {
                let position = size.map_position(PageId::new(0, number));
                let index = number / pages;
                assert_eq!(position.map, size.map_page(index));
                assert_eq!(index * pages + u64::from(position.index), number);
            }
            assert_eq!(size.map_position(size.map_page(3)).map, size.map_page(3));
            let mut bytes = formatted(size, 0);
            let mut map = SpaceMap::new(&mut bytes[..]);
            assert_eq!((map.used_bits(0), map.extent_owner(0)), (7, 0));
            map.set_used(pages as u32 - 1, true);
            map.set_used(pages as u32, true);
            let last = size.mapped_extents() - 1;
            assert_eq!(map.used_bits(last), 1 << 63);
            assert_eq!((map.used_bits(last + 1), map.extent_owner(last)), (0, 0));
            map.set_used(pages as u32 - 1, false);
            assert_eq!(bytes, formatted(size, 0));
        }
    }

    #[test]
    fn each_changed_bit_of_a_map_is_an_error_or_a_bit_of_a_page() {
        for index in [0, 1, 3] {
            let size = PageSize::MIN;
            let page = size.map_page(index);
            let whole = formatted(size, index);
            let extents = size.mapped_extents();
            let used = HEADER_BYTES..HEADER_BYTES + extents * 8;
            let owners = used.end..used.end + extents * 4;
            for bit in 0..whole.len() * 8 {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                // With a right checksum, as an attacker would have it.
                seal(&mut bytes, &IDENTITY);
                let is_free_bit = used.contains(&(bit / 8)) && {
                    let was = SpaceMap::new(&whole[..]);
                    !was.is_used((bit - used.start * 8) as u32)
                };
                // The LSN is compared with the log, and the checksum was just computed.
                let is_elsewhere = (16..24).contains(&(bit / 8)) || bit / 8 < 4;
                let accepted = is_free_bit || owners.contains(&(bit / 8)) || is_elsewhere;
                assert_eq!(
                    unseal(&bytes, page, &IDENTITY).is_ok(),
                    accepted,
                    "bit {bit}"
                );
            }
        }
    }

    #[test]
    fn whatever_the_words_are_a_map_can_be_read() {
        for bytes in [&[0xff_u8; 0][..], &[0xff; 8], &[0xff; 72], &[0xff; 1024]] {
            let map = SpaceMap::new(bytes);
            for index in [0, 1, 63, 64, 4095, 4096, u32::MAX] {
                let _ = map.is_used(index);
            }
            let _ = (map.used_bits(usize::MAX), map.extent_owner(usize::MAX));
            assert!(map.verify(PageSize::MIN).is_err());
        }
    }
}
