//! The contract of the owner of pages.
//!
//! Recovery knows the order of changes; only the owner knows the content of a page. A change is
//! *physiological*: it names one page, and its effect within it is bytes that the owner reads.
//!
//! # Contract
//!
//! Duties of the owner while transactions run:
//!
//! * P1  A change is logged, made and stamped on the page, as the page's LSN, while no other thread
//!   changes the page. So a page's changes are in the log in the order in which they were made, and
//!   a page has all changes up to its LSN and none behind it.
//! * P2  A page is written only when the log is durable up to the page's LSN. This is the
//!   write-ahead rule.
//! * P3  A page is written whole, or restart can tell that it was not. Then the log has, from the
//!   page's recovery LSN on, what makes it whole: an image, as the redo of the first change behind
//!   the last write of the page, is enough.
//!
//! Answers of the owner:
//!
//! * P4  [`page_lsn`](Pages::page_lsn) is the LSN of the last change that the page has, zero if it
//!   has none.
//! * P5  [`redo`](Pages::redo) makes a change and stamps it. It is called in the order of the log,
//!   for changes behind the page's LSN and for no others. No two threads call it for one page at a
//!   time.
//! * P6  [`undo`](Pages::undo) undoes a change, logically if need be: on another page, if the
//!   changed row has moved there. It logs exactly one compensation, under the same exclusion as any
//!   change (P1), that takes at most its reserve. If it returns an error, nothing was logged and
//!   nothing changed.
//! * P7  [`recovery_lsn`](Pages::recovery_lsn) is at most the beginning of the first change that
//!   the page has and that a power cut could take from it. It is `None` only if there is no such
//!   change among those made before the call. Written is not durable: the device must have been
//!   synced. Less is never wrong, and zero leaves the tables as they are. Zero is the answer for a
//!   page that redo continues with, if no image of it was made since the page was read. The page
//!   may have been written halfway through redo, and then the image that P3 requires is before it.

use std::fmt;

use foxton_log::Lsn;

use super::record::{ChainedChange, RecordPosition};
use crate::paged::PageId;

/// Owner of pages. See the [module](self) for the contract.
pub trait Pages: Sync {
    /// Reason of a failure.
    type Error: std::error::Error + Send;

    /// Returns the LSN of the last change that `page` has (P4).
    ///
    /// # Errors
    ///
    /// If the page cannot be read.
    fn page_lsn(&self, page: PageId) -> Result<Lsn, Self::Error>;

    /// Makes the change that was logged at `place` again (P5).
    ///
    /// # Errors
    ///
    /// If it cannot be made: the page cannot be read, or the bytes are malformed.
    fn redo(&self, place: RecordPosition, change: ChainedChange<'_>) -> Result<(), Self::Error>;

    /// Undoes the change of `page` that left `undo`, and logs that (P6).
    ///
    /// # Errors
    ///
    /// If it cannot be undone.
    fn undo(
        &self,
        page: PageId,
        undo: &[u8],
        log: &mut CompensationLog<'_>,
    ) -> Result<(), Self::Error>;

    /// Returns the position from which redo must begin for `page` to reach its present state (P7).
    ///
    /// # Errors
    ///
    /// If that is unknown.
    fn recovery_lsn(&self, page: PageId) -> Result<Option<Lsn>, Self::Error>;
}

/// Logs a compensation.
pub struct CompensationLog<'a> {
    pub(super) log: &'a mut dyn FnMut(ChainedChange<'_>) -> Option<RecordPosition>,
}

impl CompensationLog<'_> {
    /// Logs a change that undoes, which may be of another page than the undone one. The page is
    /// then changed and stamped with the end of the position.
    ///
    /// `None`: it could not be logged. Then the page stays as it is, and `undo` returns `Ok`; the
    /// reason is kept.
    #[must_use]
    pub fn log(&mut self, change: ChainedChange<'_>) -> Option<RecordPosition> {
        (self.log)(change)
    }
}

impl fmt::Debug for CompensationLog<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompensationLog").finish_non_exhaustive()
    }
}
