//! Page name: tablespace and page number in one word.
//!
//! ```text
//!  bits 48..64   tablespace; 0 until there are several
//!  bits 0..48    page number: the page's place in its file, in pages
//! ```

use std::fmt;

/// Bits of the page number.
const NUMBER_BITS: u32 = 48;

/// Name of a page. Recovery only compares names; the owner decides what the bits mean.
///
/// ```
/// use foxton_store::paged::PageId;
///
/// let page = PageId::new(0, 7);
/// assert_eq!((page.tablespace(), page.number()), (0, 7));
/// assert_eq!(page, PageId(7));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u64);

impl PageId {
    /// Returns the name of page `number` in `tablespace`.
    ///
    /// # Panics
    ///
    /// If `number` is 2^48 or more.
    pub const fn new(tablespace: u16, number: u64) -> PageId {
        assert!(number >> NUMBER_BITS == 0, "a page number has 48 bits");
        PageId((tablespace as u64) << NUMBER_BITS | number)
    }

    /// Returns the number of the page in its tablespace, below 2^48.
    pub const fn number(self) -> u64 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }

    /// Returns the tablespace.
    pub const fn tablespace(self) -> u16 {
        (self.0 >> NUMBER_BITS) as u16
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
