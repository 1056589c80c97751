//! Writes of a batch in the places of its pages.
//!
//! A write past the page cache of the operating system takes as long as the device does, which
//! serves several at once in little more time than one. So up to eight threads share such a batch.
//! The order of its writes does not matter: all began after the batch was durable in the
//! doublewrite buffer, and all have ended before the page file is synced.

use std::panic;
use std::thread;

use crate::paged::PageId;
use crate::paged::space::{PageFile, PageFileError};

/// Maximum number of threads that write a batch.
const PAGE_WRITERS: usize = 8;
/// Smallest number of pages for which a thread is worth starting.
const SHARE: usize = 8;

/// Writes the images of these pages, which are in the order of their numbers, in their places.
///
/// # Errors
///
/// If a write fails. It is unknown which of the others were made.
pub(super) fn write_places(
    file: &PageFile,
    batch: &[PageId],
    images: &[u8],
) -> Result<(), PageFileError> {
    let writers = match file.is_direct() {
        true => (batch.len() / SHARE).clamp(1, PAGE_WRITERS),
        false => 1,
    };
    let pages = batch.len().div_ceil(writers).max(1);
    let bytes = pages * file.size().bytes();
    let mut shares = batch.chunks(pages).zip(images.chunks(bytes));
    let Some((pages, images)) = shares.next() else {
        return Ok(());
    };
    thread::scope(|scope| {
        let mut outcome = Ok(());
        let mut threads = Vec::with_capacity(writers);
        for (pages, images) in shares {
            let write = move || write_runs(file, pages, images);
            let thread = thread::Builder::new().name("foxton-page-writer".to_owned());
            match thread.spawn_scoped(scope, write) {
                Ok(thread) => threads.push(thread),
                // The system has no thread.
                Err(_) => outcome = outcome.and_then(|()| write()),
            }
        }
        outcome = outcome.and_then(|()| write_runs(file, pages, images));
        for thread in threads {
            let written = thread.join();
            let written = written.unwrap_or_else(|panic| panic::resume_unwind(panic));
            outcome = outcome.and(written);
        }
        outcome
    })
}

/// Writes neighbours together.
fn write_runs(file: &PageFile, batch: &[PageId], images: &[u8]) -> Result<(), PageFileError> {
    let is_next = |one: &PageId, other: &PageId| one.0 + 1 == other.0;
    let mut begin = 0;
    for run in batch.chunk_by(is_next) {
        let end = begin + run.len() * file.size().bytes();
        file.write(run[0], &images[begin..end])?;
        begin = end;
    }
    Ok(())
}
