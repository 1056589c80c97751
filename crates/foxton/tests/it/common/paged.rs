//! Options and checks for tests of paged tables.

use foxton::Options;

/// Makes pages of 1 KiB, and as many frames as given.
pub(crate) fn tiny_pages(mut options: Options, frames: usize) -> Options {
    options.page_bytes = 1 << 10;
    // As `Options::page_memory` counts: the page, its hints, and what it has in the tables.
    options.page_memory = frames * ((1 << 10) + 16 + 32 + 256);
    options
}
