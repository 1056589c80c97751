//! Large values: parts in a tree of their own, and what a row has instead of its value.
//!
//! A row that is too long for a leaf has a [`LargeValue`]: number, length and checksum of the
//! value, which is in the tree [`VALUES`] in parts. A part has a leaf of its own, if it is long. A
//! number is never used again while the database is open. So a reader finds either the parts that
//! it looks for or none.
//!
//! ```text
//!   key in the tree                              value
//!   0 u64 · number u64         16 bytes          the mark: table u64 · key of the row
//!   number u64 · part u32      12 bytes          a part, big-endian numbers
//! ```
//!
//! # Marks
//!
//! A value whose row may lack it has a *mark*. It is stored before the first part, and again before
//! a transaction replaces or deletes the row. No transaction undoes parts or marks. When none can
//! change that row any more, the row says whether the value is in use: then only the mark goes, and
//! otherwise the parts go first. So nothing leaks at a crash, and nothing is freed that a rollback
//! needs.

use super::btree::BESIDE_PART;
use super::page::PageSize;

/// Number of the tree of large values.
pub const VALUES: u64 = u64::MAX;

/// Bytes of a [`LargeValue`].
const ENCODED_BYTES: usize = 16;

/// Maximum bytes of a part, of which a page has one.
///
/// ```
/// use foxton_store::paged::page::PageSize;
/// use foxton_store::paged::values::max_part_bytes;
///
/// assert_eq!(max_part_bytes(PageSize::default()), 8192 - 128);
/// ```
pub const fn max_part_bytes(size: PageSize) -> usize {
    size.bytes() - BESIDE_PART
}

/// A large value, as its row has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargeValue {
    /// Its number, from 1 on.
    pub number: u64,
    /// Its length in bytes, less than 2^32.
    pub bytes: u32,
    /// CRC-32C of all its bytes.
    pub checksum: u32,
}

impl LargeValue {
    /// Returns what a row has instead of `value`.
    ///
    /// # Panics
    ///
    /// If the value has 2^32 bytes or more.
    pub fn new(number: u64, value: &[u8]) -> LargeValue {
        LargeValue {
            number,
            bytes: u32::try_from(value.len()).expect("values have less than 4 GiB"),
            checksum: crc32c::crc32c(value),
        }
    }

    /// Returns its bytes.
    pub fn encode(&self) -> [u8; ENCODED_BYTES] {
        let mut bytes = [0; ENCODED_BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[12..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// Returns the large value that `bytes` describe, or `None` if they describe none.
    pub fn decode(bytes: &[u8]) -> Option<LargeValue> {
        let bytes: &[u8; ENCODED_BYTES] = bytes.try_into().ok()?;
        let (number, rest) = bytes.split_first_chunk()?;
        let (length, checksum) = rest.split_first_chunk()?;
        let number = u64::from_le_bytes(*number);
        (number > 0).then_some(LargeValue {
            number,
            bytes: u32::from_le_bytes(*length),
            checksum: u32::from_le_bytes(checksum.try_into().ok()?),
        })
    }
}

/// Returns the key of part `part` of value `number`.
pub fn part_key(number: u64, part: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&part.to_be_bytes());
    key
}

/// Returns the key of the mark of value `number`.
pub fn mark_key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Returns the value whose mark has `key`, or `None` if it is the key of a part.
pub fn marked_value(key: &[u8]) -> Option<u64> {
    let key: &[u8; 16] = key.try_into().ok()?;
    let (zeros, number) = key.split_first_chunk::<8>()?;
    let number = u64::from_be_bytes(number.try_into().ok()?);
    (*zeros == [0; 8]).then_some(number)
}

/// The row that a mark names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkedRow<'a> {
    /// Its tree.
    pub table: u64,
    /// Its key.
    pub key: &'a [u8],
}

impl<'a> MarkedRow<'a> {
    /// Returns the bytes of the mark.
    pub fn encode(&self) -> Vec<u8> {
        [&self.table.to_le_bytes()[..], self.key].concat()
    }

    /// Returns the row that `bytes` name; `None` if they are too few.
    pub fn decode(bytes: &'a [u8]) -> Option<MarkedRow<'a>> {
        let (table, key) = bytes.split_first_chunk()?;
        let table = u64::from_le_bytes(*table);
        Some(MarkedRow { table, key })
    }
}
