//! Space of the page file: the file itself, its header, its length, and its free pages.

mod file;

mod allocator;

mod open;

mod doublewrite;

mod copy;

pub use allocator::{
    DIRECTORY_PAGE, FREE_PAGES, MapImage, PageAllocation, PageAllocator, PagePurpose, PageState,
    RESERVED_PAGES, format_file,
};
pub use copy::{PageCopy, PageCopyError, PageSource, RepairedPage};
pub use doublewrite::{
    DOUBLEWRITE_PAGES, DOUBLEWRITE_SLOTS, DoublewriteBuffer, DoublewriteImages, RepairSummary,
};
pub use file::{FileHeader, PageBuffer, PageFile, PageFileError};
pub use open::open_or_create;
