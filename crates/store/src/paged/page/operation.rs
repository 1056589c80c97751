//! Operations on a page, as the log has them: redo by slot.
//!
//! A change is an operation that is checked, logged, and then applied. Redo decodes the logged
//! bytes and applies them by the same code, so a page that is redone has the bytes that it had.
//!
//! ```text
//!   tag u8, then numbers as below; little-endian; `bytes` are a length u16 and so many bytes
//!
//!   1 format      kind u8, level u8, table u64, low bytes, flag u8, high bytes, count u16, rows
//!   2 insert      slot u16, row
//!   3 replace     slot u16, value bytes
//!   4 set flags   slot u16, flags u16
//!   5 remove      slot u16
//!   6 truncate    slot u16, high bytes
//!   7 map         count u8, indexes u32, is used u8
//!   8 widen       flag u8, high bytes
//!   9 rewrite     slot u16, flags u16, value bytes
//!  10 remap       index u32 that becomes free, index u32 that becomes used
//!
//!   row           key bytes, value bytes, reserved u16, flags u16
//! ```
//!
//! # Invariants
//!
//! * I1  An operation that [`check`](PageOperation::check) accepts can be applied, and the page is
//!   whole afterwards. So nothing fails between the log record of a change and the change.
//! * I2  Applying depends on the page, the operation and nothing else.
//! * I3  For any bytes, decoding ends with an operation or an error, and encoding the operation
//!   gives the same bytes.

use std::fmt;

use smallvec::SmallVec;

use super::change::PageFull;
use super::layout::{HEADER_BYTES, RowFlags, SLOT_BYTES, SlottedPage};
use super::space_map::SpaceMap;
use super::split::OwnedRow;
use super::words::{KeyBytes, PageWords, PageWordsMut};
use super::{PageKind, PageSize};
use crate::paged::PageId;

/// A change of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageOperation<'a> {
    /// The page becomes a new one with these rows, whatever it was.
    Format {
        /// Kind: a leaf, a branch or partitions.
        kind: PageKind,
        /// Level.
        level: u8,
        /// Table.
        table: u64,
        /// Low fence.
        low: KeyBytes,
        /// High fence; `None` means no upper bound.
        high: Option<KeyBytes>,
        /// Rows, in order.
        rows: Vec<OwnedRow>,
    },
    /// A row is inserted before a slot.
    Insert {
        /// The slot.
        slot: u16,
        /// Key, with the prefix of the page.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
        /// Bytes that the value may have later.
        reserved: u16,
        /// State of the row.
        flags: RowFlags,
    },
    /// The value of a slot is replaced.
    Replace {
        /// The slot.
        slot: u16,
        /// The new value.
        value: &'a [u8],
    },
    /// Value and flags of a slot are replaced.
    Rewrite {
        /// The slot.
        slot: u16,
        /// The new value.
        value: &'a [u8],
        /// The new flags.
        flags: RowFlags,
    },
    /// The flags of a slot are replaced.
    SetFlags {
        /// The slot.
        slot: u16,
        /// The new flags.
        flags: RowFlags,
    },
    /// A slot is removed, with all space of its row.
    Remove {
        /// The slot.
        slot: u16,
    },
    /// A slot and all behind it are removed, because they are on another page now. There may be
    /// none: then only a part of the range is another page's.
    Truncate {
        /// The slot.
        slot: u16,
        /// The new high fence.
        high: KeyBytes,
    },
    /// The page takes over a range behind its own, in which no rows are.
    Widen {
        /// The new high fence; `None` means no upper bound.
        high: Option<KeyBytes>,
    },
    /// Pages become used or free in their space map.
    MapPages {
        /// Indexes of the pages among those that the map covers, at most 255.
        indexes: SmallVec<[u32; 2]>,
        /// True if they become used.
        is_used: bool,
    },
    /// The content of a page moves to another page of the same space map.
    Remap {
        /// Index of the page that becomes free.
        from: u32,
        /// Index of the page that becomes used.
        to: u32,
    },
}

/// An operation that does not fit its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationError {
    /// The page has too few free bytes.
    Full(PageFull),
    /// The page is not the one for which the operation was made.
    Mismatch(&'static str),
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperationError::Full(error) => write!(f, "{error}"),
            OperationError::Mismatch(what) => {
                write!(f, "the operation is not one for this page: {what}")
            }
        }
    }
}

impl std::error::Error for OperationError {}

fn require(right: bool, what: &'static str) -> Result<(), OperationError> {
    match right {
        true => Ok(()),
        false => Err(OperationError::Mismatch(what)),
    }
}

impl PageOperation<'_> {
    /// Checks that the operation can be applied to `page`, which is whole (I1). `number` is the
    /// page that a new one is to be. For an optimistic reader, the result counts once the page was
    /// validated.
    ///
    /// # Errors
    ///
    /// If there is too little space, or the operation is not for this page.
    pub fn check<W: PageWords>(
        &self,
        page: &SlottedPage<W>,
        number: PageId,
    ) -> Result<(), OperationError> {
        let size = PageSize::new(page.bytes()).ok_or(OperationError::Mismatch("page size"))?;
        let has_slot = |slot: u16| require(usize::from(slot) < page.slot_count(), "slot");
        if !matches!(self, PageOperation::Format { .. }) {
            require(page.page() == number, "page number")?;
            let is_map = page.kind() == Some(PageKind::SpaceMap);
            let changes_map = matches!(
                self,
                PageOperation::MapPages { .. } | PageOperation::Remap { .. }
            );
            require(is_map == changes_map, "kind")?;
        }
        match self {
            PageOperation::Format { .. }
            | PageOperation::Truncate { .. }
            | PageOperation::Widen { .. } => {
                // These rebuild the page, so a copy is rebuilt.
                let mut bytes = vec![0_u8; page.bytes()];
                let mut copy = SlottedPage::new(&mut bytes[..]);
                for index in 0..size.words() {
                    copy.words_mut().set_word(index, page.words().word(index));
                }
                self.rebuild(&mut copy, number, size)?;
                copy.verify()
                    .map_err(|_| OperationError::Mismatch("rows and fences"))
            }
            PageOperation::Insert {
                slot,
                key,
                value,
                reserved,
                flags,
            } => {
                require(page.covers(key), "key within the fences")?;
                require(key.len() <= size.max_key_bytes(), "key bytes")?;
                require(
                    page.search(key) == Err(usize::from(*slot)),
                    "slot of a new key",
                )?;
                require(value.len() <= usize::from(*reserved), "reserved bytes")?;
                require(flags.bits() & !RowFlags::ALL == 0, "flags")?;
                let is_leaf = page.kind() == Some(PageKind::Leaf);
                require(is_leaf || (value.len() == 8 && *reserved == 8), "child")?;
                // The page may be in the middle of a change, and then the result does not count.
                let stored = key.len().saturating_sub(page.prefix_bytes());
                has_space(page, stored + usize::from(*reserved) + SLOT_BYTES, 0)
            }
            PageOperation::Rewrite { slot, value, flags } => {
                require(flags.bits() & !RowFlags::ALL == 0, "flags")?;
                let (slot, value) = (*slot, *value);
                PageOperation::Replace { slot, value }.check(page, number)
            }
            PageOperation::Replace { slot, value } => {
                has_slot(*slot)?;
                let row = page.slot(usize::from(*slot));
                let is_leaf = page.kind() == Some(PageKind::Leaf);
                require(is_leaf || value.len() == 8, "child")?;
                match value.len() <= row.reserved_bytes() {
                    true => Ok(()),
                    false => has_space(page, row.key_bytes() + value.len(), row.entry_bytes()),
                }
            }
            PageOperation::SetFlags { slot, flags } => {
                require(flags.bits() & !RowFlags::ALL == 0, "flags")?;
                has_slot(*slot)
            }
            PageOperation::Remove { slot } => {
                let is_first = page.kind() == Some(PageKind::Branch) && *slot == 0;
                require(!is_first, "the first child of a branch")?;
                has_slot(*slot)
            }
            PageOperation::MapPages { indexes, is_used } => {
                for (at, &index) in indexes.iter().enumerate() {
                    require(!indexes[..at].contains(&index), "bit of a map")?;
                    check_bit(page, number, size, index, !is_used)?;
                }
                Ok(())
            }
            PageOperation::Remap { from, to } => {
                check_bit(page, number, size, *from, true)?;
                check_bit(page, number, size, *to, false)
            }
        }
    }

    /// Applies the operation to the page `number`, for which it was checked.
    ///
    /// # Panics
    ///
    /// If it cannot be applied.
    pub fn apply<W: PageWordsMut>(&self, page: &mut SlottedPage<W>, number: PageId) {
        let fits = "a checked operation fits";
        match self {
            PageOperation::Format { .. }
            | PageOperation::Truncate { .. }
            | PageOperation::Widen { .. } => {
                let size = PageSize::new(page.bytes()).expect(fits);
                self.rebuild(page, number, size).expect(fits);
            }
            PageOperation::Insert {
                slot,
                key,
                value,
                reserved,
                flags,
            } => page
                .insert(
                    usize::from(*slot),
                    key,
                    value,
                    usize::from(*reserved),
                    *flags,
                )
                .expect(fits),
            PageOperation::Replace { slot, value } => {
                page.replace_value(usize::from(*slot), value).expect(fits);
            }
            PageOperation::Rewrite { slot, value, flags } => {
                page.replace_value(usize::from(*slot), value).expect(fits);
                page.set_flags(usize::from(*slot), *flags);
            }
            PageOperation::SetFlags { slot, flags } => page.set_flags(usize::from(*slot), *flags),
            PageOperation::Remove { slot } => page.remove(usize::from(*slot)),
            PageOperation::MapPages { indexes, is_used } => {
                let mut map = SpaceMap::new(page.words_mut());
                for index in indexes {
                    map.set_used(*index, *is_used);
                }
            }
            PageOperation::Remap { from, to } => {
                let mut map = SpaceMap::new(page.words_mut());
                map.set_used(*from, false);
                map.set_used(*to, true);
            }
        }
    }

    /// Applies an operation that gives the page other fences.
    fn rebuild<W: PageWordsMut>(
        &self,
        page: &mut SlottedPage<W>,
        number: PageId,
        size: PageSize,
    ) -> Result<(), OperationError> {
        let fences = |low: &[u8], high: Option<&[u8]>| {
            let most = size.max_key_bytes();
            let bytes = low.len().max(high.map_or(0, <[u8]>::len));
            require(bytes <= most, "fence bytes")?;
            require(high.is_none_or(|high| low < high), "order of the fences")
        };
        match self {
            PageOperation::Format {
                kind,
                level,
                table,
                low,
                high,
                rows,
            } => {
                require(*kind != PageKind::SpaceMap, "kind")?;
                require(*kind != PageKind::Free || rows.is_empty(), "rows")?;
                fences(low, high.as_deref())?;
                for row in rows {
                    require(is_within(&row.key, low, high.as_deref()), "key")?;
                    require(row.key.len() <= size.max_key_bytes(), "key bytes")?;
                    require(row.value.len() <= row.reserved_bytes, "reserved bytes")?;
                }
                page.format(*kind, *level, *table, number, low, high.as_deref());
                if *kind == PageKind::Free {
                    let words = HEADER_BYTES / 8..size.words();
                    words.for_each(|index| page.words_mut().set_word(index, 0));
                }
                page.rebuild(low, high.as_deref(), rows)
                    .map_err(OperationError::Full)
            }
            PageOperation::Truncate { slot, high } => {
                let slot = usize::from(*slot);
                require(0 < slot && slot <= page.slot_count(), "slot")?;
                let low = page.low_fence();
                fences(&low, Some(high))?;
                let before = page.high_fence();
                let is_within = before.is_none_or(|before| *high < before);
                require(is_within, "high fence")?;
                let is_below = slot == page.slot_count() || *high <= page.key(slot);
                require(is_below && page.key(slot - 1) < *high, "separator")?;
                page.refence(&low, Some(high), slot)
                    .map_err(OperationError::Full)
            }
            PageOperation::Widen { high } => {
                let low = page.low_fence();
                fences(&low, high.as_deref())?;
                let before = page.high_fence();
                let is_wider =
                    before.is_some_and(|before| high.as_ref().is_none_or(|high| before < *high));
                require(is_wider, "high fence")?;
                page.refence(&low, high.as_deref(), page.slot_count())
                    .map_err(OperationError::Full)
            }
            _ => Err(OperationError::Mismatch("operation")),
        }
    }

    /// Appends the encoded operation to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            PageOperation::Format {
                kind,
                level,
                table,
                low,
                high,
                rows,
            } => {
                bytes.extend([1, *kind as u8, *level]);
                bytes.extend(table.to_le_bytes());
                put_bytes(bytes, low);
                bytes.push(u8::from(high.is_some()));
                put_bytes(bytes, high.as_deref().unwrap_or(b""));
                put_number(bytes, rows.len());
                for row in rows {
                    put_row(bytes, &row.key, &row.value, row.reserved_bytes, row.flags);
                }
            }
            PageOperation::Insert {
                slot,
                key,
                value,
                reserved,
                flags,
            } => {
                bytes.push(2);
                bytes.extend(slot.to_le_bytes());
                put_row(bytes, key, value, usize::from(*reserved), *flags);
            }
            PageOperation::Replace { slot, value } => {
                bytes.push(3);
                bytes.extend(slot.to_le_bytes());
                put_bytes(bytes, value);
            }
            PageOperation::Rewrite { slot, value, flags } => {
                bytes.push(9);
                bytes.extend(slot.to_le_bytes());
                bytes.extend(flags.bits().to_le_bytes());
                put_bytes(bytes, value);
            }
            PageOperation::SetFlags { slot, flags } => {
                bytes.push(4);
                bytes.extend(slot.to_le_bytes());
                bytes.extend(flags.bits().to_le_bytes());
            }
            PageOperation::Remove { slot } => {
                bytes.push(5);
                bytes.extend(slot.to_le_bytes());
            }
            PageOperation::Truncate { slot, high } => {
                bytes.push(6);
                bytes.extend(slot.to_le_bytes());
                put_bytes(bytes, high);
            }
            PageOperation::MapPages { indexes, is_used } => {
                bytes.push(7);
                bytes.push(u8::try_from(indexes.len()).expect("at most 255 pages"));
                for index in indexes {
                    bytes.extend(index.to_le_bytes());
                }
                bytes.push(u8::from(*is_used));
            }
            PageOperation::Widen { high } => {
                bytes.extend([8, u8::from(high.is_some())]);
                put_bytes(bytes, high.as_deref().unwrap_or(b""));
            }
            PageOperation::Remap { from, to } => {
                bytes.push(10);
                bytes.extend(from.to_le_bytes());
                bytes.extend(to.to_le_bytes());
            }
        }
    }
}

impl<'a> PageOperation<'a> {
    /// Returns the operation that `bytes` encode; `None` if they encode none (I3).
    pub fn decode(bytes: &'a [u8]) -> Option<PageOperation<'a>> {
        let mut bytes = OperationBytes(bytes);
        let operation = match bytes.number::<1>()? {
            1 => {
                let kind = PageKind::from_number(bytes.number::<1>()? as u8)?;
                let level = bytes.number::<1>()? as u8;
                let table = bytes.number::<8>()?;
                let low = KeyBytes::from_slice(bytes.bytes()?);
                let has_high = bytes.flag()?;
                let high = KeyBytes::from_slice(bytes.bytes()?);
                if !has_high && !high.is_empty() {
                    return None;
                }
                let count = bytes.number::<2>()?;
                let mut rows = Vec::new();
                for _ in 0..count {
                    let (key, value, reserved, flags) = bytes.row()?;
                    rows.push(OwnedRow {
                        key: KeyBytes::from_slice(key),
                        value: value.to_vec(),
                        reserved_bytes: usize::from(reserved),
                        flags,
                    });
                }
                PageOperation::Format {
                    kind,
                    level,
                    table,
                    low,
                    high: has_high.then_some(high),
                    rows,
                }
            }
            2 => {
                let slot = bytes.number::<2>()? as u16;
                let (key, value, reserved, flags) = bytes.row()?;
                PageOperation::Insert {
                    slot,
                    key,
                    value,
                    reserved,
                    flags,
                }
            }
            3 => PageOperation::Replace {
                slot: bytes.number::<2>()? as u16,
                value: bytes.bytes()?,
            },
            4 => PageOperation::SetFlags {
                slot: bytes.number::<2>()? as u16,
                flags: RowFlags::from_bits(bytes.number::<2>()? as u16)?,
            },
            5 => PageOperation::Remove {
                slot: bytes.number::<2>()? as u16,
            },
            6 => PageOperation::Truncate {
                slot: bytes.number::<2>()? as u16,
                high: KeyBytes::from_slice(bytes.bytes()?),
            },
            7 => {
                let count = bytes.number::<1>()?;
                let mut indexes = SmallVec::new();
                for _ in 0..count {
                    indexes.push(bytes.number::<4>()? as u32);
                }
                PageOperation::MapPages {
                    indexes,
                    is_used: bytes.flag()?,
                }
            }
            8 => {
                let has_high = bytes.flag()?;
                let high = KeyBytes::from_slice(bytes.bytes()?);
                if !has_high && !high.is_empty() {
                    return None;
                }
                PageOperation::Widen {
                    high: has_high.then_some(high),
                }
            }
            9 => PageOperation::Rewrite {
                slot: bytes.number::<2>()? as u16,
                flags: RowFlags::from_bits(bytes.number::<2>()? as u16)?,
                value: bytes.bytes()?,
            },
            10 => PageOperation::Remap {
                from: bytes.number::<4>()? as u32,
                to: bytes.number::<4>()? as u32,
            },
            _ => return None,
        };
        bytes.0.is_empty().then_some(operation)
    }
}

/// Checks that the map `number` has a bit for page `index`, which may change, and that it is
/// `is_used`.
fn check_bit<W: PageWords>(
    map: &SlottedPage<W>,
    number: PageId,
    size: PageSize,
    index: u32,
    is_used: bool,
) -> Result<(), OperationError> {
    require(u64::from(index) < size.mapped_pages(), "index of a map")?;
    let own = size.map_position(number).index;
    let is_fixed = index == own || (number == size.map_page(0) && index < own);
    require(!is_fixed, "a page of fixed purpose")?;
    let bit = SpaceMap::new(map.words()).is_used(index);
    require(bit == is_used, "bit of a map")
}

/// True if so many bytes are free, `more` among them that become free.
fn has_space<W: PageWords>(
    page: &SlottedPage<W>,
    needed_bytes: usize,
    more: usize,
) -> Result<(), OperationError> {
    let free_bytes = page.free_bytes() + more;
    match needed_bytes <= free_bytes {
        true => Ok(()),
        false => Err(OperationError::Full(PageFull {
            needed_bytes,
            free_bytes,
        })),
    }
}

fn is_within(key: &[u8], low: &[u8], high: Option<&[u8]>) -> bool {
    low <= key && high.is_none_or(|high| key < high)
}

fn put_number(bytes: &mut Vec<u8>, number: usize) {
    let number = u16::try_from(number).expect("sizes and counts of a page fit 16 bits");
    bytes.extend(number.to_le_bytes());
}

fn put_bytes(bytes: &mut Vec<u8>, part: &[u8]) {
    put_number(bytes, part.len());
    bytes.extend(part);
}

fn put_row(bytes: &mut Vec<u8>, key: &[u8], value: &[u8], reserved: usize, flags: RowFlags) {
    put_bytes(bytes, key);
    put_bytes(bytes, value);
    put_number(bytes, reserved);
    bytes.extend(flags.bits().to_le_bytes());
}

/// The rest of an encoded operation.
struct OperationBytes<'a>(&'a [u8]);

impl<'a> OperationBytes<'a> {
    fn number<const N: usize>(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(number);
        Some(u64::from_le_bytes(bytes))
    }

    fn flag(&mut self) -> Option<bool> {
        match self.number::<1>()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.number::<2>()? as usize;
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn row(&mut self) -> Option<(&'a [u8], &'a [u8], u16, RowFlags)> {
        let (key, value) = (self.bytes()?, self.bytes()?);
        let reserved = self.number::<2>()? as u16;
        let flags = RowFlags::from_bits(self.number::<2>()? as u16)?;
        Some((key, value, reserved, flags))
    }
}

/// Bytes of a page that hold neither rows nor header, at least, if its fences are as long as can
/// be.
pub(crate) const fn payload_bytes(size: PageSize) -> usize {
    size.bytes() - HEADER_BYTES - 2 * size.max_key_bytes() - 8
}

// Two rows of the largest size fit each page, so a page that is too full for a row can be split.
const _: () = assert!(
    2 * (PageSize::MIN.max_row_bytes() + SLOT_BYTES) <= payload_bytes(PageSize::MIN)
        && 2 * (PageSize::MAX.max_row_bytes() + SLOT_BYTES) <= payload_bytes(PageSize::MAX)
);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Lcg(u64);

    impl Lcg {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
            (self.0 >> 33) % bound
        }
    }

    const PAGE: PageId = PageId(9);

    fn samples() -> Vec<Vec<u8>> {
        let row = |key: &[u8]| OwnedRow {
            key: KeyBytes::from_slice(key),
            value: vec![7; 20],
            reserved_bytes: 30,
            flags: RowFlags::GHOST,
        };
        let operations = [
            PageOperation::Format {
                kind: PageKind::Leaf,
                level: 0,
                table: 5,
                low: KeyBytes::from_slice(b"ab"),
                high: Some(KeyBytes::from_slice(b"ax")),
                rows: vec![row(b"abc"), row(b"ac"), row(b"ad")],
            },
            PageOperation::Insert {
                slot: 1,
                key: b"abx",
                value: b"value",
                reserved: 9,
                flags: RowFlags::NONE,
            },
            PageOperation::Replace {
                slot: 0,
                value: b"another value, and a longer one than there was",
            },
            PageOperation::SetFlags {
                slot: 2,
                flags: RowFlags::NONE,
            },
            PageOperation::Remove { slot: 1 },
            PageOperation::Truncate {
                slot: 2,
                high: KeyBytes::from_slice(b"ad"),
            },
            PageOperation::MapPages {
                indexes: smallvec::smallvec![70, 3],
                is_used: true,
            },
            PageOperation::Remap { from: 99, to: 4 },
        ];
        let encode = |operation: &PageOperation<'_>| {
            let mut bytes = Vec::new();
            operation.encode(&mut bytes);
            assert_eq!(PageOperation::decode(&bytes).as_ref(), Some(operation));
            bytes
        };
        operations.iter().map(encode).collect()
    }

    #[test]
    fn any_bytes_are_an_operation_or_none_and_a_checked_one_leaves_a_whole_page() {
        let samples = samples();
        let mut random = Lcg(1);
        let (mut decoded, mut applied) = (0, 0);
        for round in 0..60_000 {
            let mut page = vec![0_u8; 1024];
            let number = match round % 8 {
                6 | 7 => {
                    let mut map = SpaceMap::new(&mut page[..]);
                    map.format(0, foxton_log::Lsn::ZERO);
                    map.set_used(99, true);
                    PageSize::MIN.map_page(0)
                }
                _ => {
                    let format = PageOperation::decode(&samples[0]).expect("a sample");
                    format.apply(&mut SlottedPage::new(&mut page[..]), PAGE);
                    PAGE
                }
            };
            let mut bytes = samples[round % 8].clone();
            for _ in 0..random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(4) {
                    0 => bytes[at] ^= 1 << random.below(8),
                    1 => bytes[at] = random.below(256) as u8,
                    2 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, random.below(256) as u8),
                }
            }
            let Some(operation) = PageOperation::decode(&bytes) else {
                continue;
            };
            decoded += 1;
            let mut again = Vec::new();
            operation.encode(&mut again);
            assert_eq!(again, bytes, "round {round}");
            let mut content = SlottedPage::new(&mut page[..]);
            if operation.check(&content, number).is_ok() {
                applied += 1;
                operation.apply(&mut content, number);
                assert_eq!(content.verify(), Ok(()), "round {round}: {operation:?}");
            }
        }
        assert!(decoded > 20_000 && applied > 10_000, "{decoded}, {applied}");
    }
}
