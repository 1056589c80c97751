//! Space of the page file: the file itself, its header, its length, and its free pages.

mod file;

mod allocator;

pub use allocator::{DIRECTORY_PAGE, FREE_PAGES, PageAllocation, PageAllocator, format_file};
pub use file::{FileHeader, PageBuffer, PageFile, PageFileError};
