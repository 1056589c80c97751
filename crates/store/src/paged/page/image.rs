//! Page image: the bytes of a page in a file, sealed with a checksum.
//!
//! The checksum is a CRC-32C of the file's identity and of all bytes behind the checksum. So pages
//! of other databases are noticed as well as changed bytes. A page at another page's place is
//! noticed by its page number, and an older copy of a page only by its LSN.

use std::fmt;

use foxton_log::Lsn;
use foxton_sync::checksum::crc32c;

use super::layout::SlottedPage;
use crate::paged::PageId;

/// Bytes of the checksum, at the front.
const CHECKSUM_BYTES: usize = 4;

/// Identity of a database: random bytes, in each of its files.
pub type FileIdentity = [u8; 16];

/// A page that must not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageError {
    /// The page that was requested.
    pub page: PageId,
    /// Its fault.
    pub fault: PageFault,
}

/// Fault of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageFault {
    /// The checksum does not match: bytes were changed, or the page is another database's.
    Checksum {
        /// As stored in the page.
        stored: u32,
        /// As its bytes have it.
        computed: u32,
    },
    /// The page is another page, at the wrong place.
    Number {
        /// Name that the page has for itself.
        found: PageId,
    },
    /// A field has a value that it cannot have.
    Field {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A slot has a field with a value that it cannot have.
    Slot {
        /// Index of the slot.
        slot: usize,
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The page is older than when it was last written: a write was lost.
    Stale {
        /// LSN of the page.
        found: Lsn,
        /// LSN with which it was written.
        written: Lsn,
    },
    /// The page has changes beyond the end of the log: the log lost records that were durable.
    AheadOfLog {
        /// LSN of the page.
        found: Lsn,
        /// End of the log.
        end: Lsn,
    },
    /// The file ends before the page does.
    Missing,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PageError { page, fault } = self;
        write!(f, "page {page} is damaged: {fault}; restore a backup")
    }
}

impl fmt::Display for PageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PageFault::Checksum { stored, computed } => write!(
                f,
                "its checksum is {stored:#010x}, that of its bytes {computed:#010x}"
            ),
            PageFault::Number { found } => write!(f, "page {found} is at its place"),
            PageFault::Field { field, value } => write!(f, "its field '{field}' is {value}"),
            PageFault::Slot { slot, field, value } => {
                write!(f, "the field '{field}' of its slot {slot} is {value}")
            }
            PageFault::Stale { found, written } => write!(
                f,
                "it has changes up to {found}, but was written with those up to {written}"
            ),
            PageFault::AheadOfLog { found, end } => {
                write!(f, "it has changes up to {found}, but the log ends at {end}")
            }
            PageFault::Missing => write!(f, "the file ends before it does"),
        }
    }
}

impl std::error::Error for PageError {}

fn checksum(bytes: &[u8], identity: &FileIdentity) -> u32 {
    crc32c(
        crc32c(0, identity),
        bytes.get(CHECKSUM_BYTES..).unwrap_or(b""),
    )
}

/// Stores the checksum in the image of a page.
///
/// # Panics
///
/// If `image` has fewer than four bytes.
pub fn seal(image: &mut [u8], identity: &FileIdentity) {
    let sum = checksum(image, identity);
    image[..CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Checks the image of `page` that was read: checksum, page number, and the whole structure.
///
/// # Errors
///
/// The first fault that was found. The image must not be used then.
///
/// ```
/// use foxton_store::paged::PageId;
/// use foxton_store::paged::page::{PageFault, PageKind, SlottedPage, seal, unseal};
///
/// let (page, identity) = (PageId::new(0, 5), [7; 16]);
/// let mut image = vec![0_u8; 8192];
/// SlottedPage::new(&mut image[..]).format(PageKind::Leaf, 0, 9, page, b"", None);
/// seal(&mut image, &identity);
/// assert_eq!(unseal(&image, page, &identity), Ok(()));
///
/// let error = unseal(&image, PageId::new(0, 6), &identity).unwrap_err();
/// assert_eq!(error.fault, PageFault::Number { found: page });
/// image[4000] ^= 1;
/// let error = unseal(&image, page, &identity).unwrap_err();
/// assert!(matches!(error.fault, PageFault::Checksum { .. }));
/// ```
pub fn unseal(image: &[u8], page: PageId, identity: &FileIdentity) -> Result<(), PageError> {
    let error = |fault| PageError { page, fault };
    let Some((stored, _)) = image.split_first_chunk::<CHECKSUM_BYTES>() else {
        return Err(error(PageFault::Missing));
    };
    let (stored, computed) = (u32::from_le_bytes(*stored), checksum(image, identity));
    if stored != computed {
        return Err(error(PageFault::Checksum { stored, computed }));
    }
    let found = SlottedPage::new(image).page();
    if found != page {
        return Err(error(PageFault::Number { found }));
    }
    SlottedPage::new(image).verify().map_err(error)
}
