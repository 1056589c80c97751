//! Pages: bytes of one size that hold the rows of a tree node, or a part of a file's space map.
//!
//! # State
//!
//! A page of B bytes, where B is a power of two from 1 KiB to 64 KiB. Numbers are little-endian.
//!
//! ```text
//!   header, 64 bytes | low fence | high fence | 0..7 zeros | slots ▶ | free | ◀ heap
//!
//!   word   bits 0..15         bits 16..31         bits 32..47         bits 48..63
//!   0      checksum (0..31)                       kind u8, level u8   layout version
//!   1      page number (PageId)
//!   2      LSN: end of the log record of the page's last change
//!   3      table
//!   4      owner; 0: no owner
//!   5      slots              heap bytes          garbage bytes       ghosts
//!   6      low fence bytes    high fence bytes    prefix bytes        bit 48: no upper bound
//!   7      0
//!
//!   slot   heap offset        key bytes           head (32..63)
//!          value bytes        reserved bytes      flags               0
//! ```
//!
//! The heap grows from the end of the page towards the slots. It has one entry for each slot: the
//! key behind the prefix, then the space reserved for the value, which the value may fill only in
//! part. Other bytes of the heap are garbage, and the header counts them. The prefix is the longest
//! one that both fences share, so every key of the page has it and no slot stores it. The head is
//! the first four bytes of the stored key, filled up with zeros, first byte most significant.
//!
//! | kind | slots |
//! | --- | --- |
//! | leaf | rows; level 0 |
//! | branch | low fence of a child and its page number in eight bytes; level 1 and more |
//! | partitions | low key of a partition and the page number of its root |
//! | space map | none; see [`SpaceMap`] |
//! | free | none, and all words behind the fences are zero: a merge has freed the page |
//!
//! # Invariants
//!
//! * I1  Slots are in the order of their keys, and no two keys are equal.
//! * I2  Keys are not below the low fence, and below the high fence if there is one. The first key
//!   of a branch *is* its low fence, so each child's low fence is a key of its parent.
//! * I3  Entries of the heap do not overlap. Their bytes and the garbage are all bytes of the heap.
//! * I4  A value has at most its reserved bytes. Only [`trim`](SlottedPage::trim) and
//!   [`remove`](SlottedPage::remove) give reserved bytes away, so a rollback of a transaction that
//!   calls neither finds space for each earlier value where the row is.
//! * I5  A change that returns an error has changed nothing.
//! * I6  Whatever bytes a page has, reading it ends, panics nowhere and reads no other bytes. This
//!   holds for readers of a frame that another thread changes, and for damaged pages.
//!
//! [`verify`](SlottedPage::verify) checks I1 to I4 and every field of the header.

use std::fmt;

mod words;

mod layout;

mod change;

mod split;

mod image;

mod space_map;

mod verify;

mod operation;
mod rows;

#[cfg(all(test, not(loom)))]
mod tests;

pub use change::PageFull;
pub use image::{FileIdentity, PageError, PageFault, seal, unseal};
pub use layout::{RowFlags, RowRef, SlottedPage};
pub use operation::{OperationError, PageOperation};
pub use rows::LeafRows;
pub use space_map::{EXTENT_PAGES, MapPosition, SpaceMap};
pub use split::OwnedRow;
pub use words::{ByteBuffer, KeyBytes, PageWords, PageWordsMut};

/// Size of the pages of a database: a power of two from 1 KiB to 64 KiB.
///
/// ```
/// use foxton_store::paged::page::PageSize;
///
/// assert_eq!(PageSize::default().bytes(), 8192);
/// assert_eq!(PageSize::new(1 << 16).map(PageSize::bytes), Some(65_536));
/// assert_eq!(PageSize::new(5000), None);
/// // Limits scale with the page.
/// assert_eq!(PageSize::default().max_key_bytes(), 1024);
/// assert_eq!(PageSize::new(1024).map(PageSize::max_key_bytes), Some(128));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageSize(u32);

impl PageSize {
    /// Smallest size, for tests.
    pub const MIN: PageSize = PageSize(1 << 10);
    /// Largest size.
    pub const MAX: PageSize = PageSize(1 << 16);

    /// Returns the size of `bytes`, or `None` if pages cannot have it.
    pub const fn new(bytes: usize) -> Option<PageSize> {
        let fits = Self::MIN.bytes() <= bytes && bytes <= Self::MAX.bytes();
        match fits && bytes.is_power_of_two() {
            true => Some(PageSize(bytes as u32)),
            false => None,
        }
    }

    /// Number of bytes.
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Number of 64-bit words.
    pub const fn words(self) -> usize {
        self.bytes() / 8
    }

    /// Maximum bytes of a key: an eighth of a page, and at most [`MAX_KEY_BYTES`].
    ///
    /// [`MAX_KEY_BYTES`]: crate::MAX_KEY_BYTES
    pub const fn max_key_bytes(self) -> usize {
        match self.bytes() / 8 {
            eighth if eighth < crate::MAX_KEY_BYTES => eighth,
            _ => crate::MAX_KEY_BYTES,
        }
    }

    /// Maximum bytes of key and value together of a row that is stored in its leaf: a quarter of a
    /// page.
    pub const fn max_row_bytes(self) -> usize {
        self.bytes() / 4
    }
}

/// 8 KiB.
impl Default for PageSize {
    fn default() -> Self {
        PageSize(8 << 10)
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

/// Kind of a page that passes through frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PageKind {
    /// Rows of a tree.
    Leaf = 1,
    /// Children of a tree node.
    Branch = 2,
    /// Roots of a table.
    Partitions = 3,
    /// A part of the map of used pages.
    SpaceMap = 4,
    /// None: the page was used, and its place is free.
    Free = 5,
}

impl PageKind {
    /// Returns the kind that is stored as `number`.
    pub const fn from_number(number: u8) -> Option<PageKind> {
        match number {
            1 => Some(PageKind::Leaf),
            2 => Some(PageKind::Branch),
            3 => Some(PageKind::Partitions),
            4 => Some(PageKind::SpaceMap),
            5 => Some(PageKind::Free),
            _ => None,
        }
    }
}
