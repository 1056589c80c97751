//! Options and checks for tests of paged tables.

use foxton::Options;
use foxton_store::paged::page::PageSize;
use foxton_store::paged::pool::BufferPool;

/// Makes pages of 1 KiB, and as many frames as given.
pub(crate) fn tiny_pages(mut options: Options, frames: usize) -> Options {
    options.page_bytes = 1 << 10;
    options.page_memory = BufferPool::bytes_of(frames, frames, PageSize::MIN);
    options
}
