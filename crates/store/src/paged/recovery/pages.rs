//! What recovery asks of whoever owns pages.
//!
//! Recovery knows the order of things; what is in a page, only its owner knows. A change is *physiological*: it
//! names one page, and what it does within it is bytes that the owner reads.
//!
//! # Contract
//!
//! What the owner sees to while transactions run:
//!
//! * P1 A change is logged, made and stamped on the page, as the page's LSN, with nobody else changing the page
//!   meanwhile. So a page's changes stand in the log in the order in which they were made, and a page has all
//!   changes up to its LSN and none behind it.
//! * P2 A page goes out only when the log is durable up to the page's LSN. This is the write-ahead rule.
//! * P3 What goes out, goes out whole, or restart can tell that it did not, and finds in the log, from the page's
//!   recovery LSN on, what makes it whole: an image, as the redo of the first change behind the last time
//!   the page went out, will do.
//!
//! What the owner answers:
//!
//! * P4 [`page_lsn`](Pages::page_lsn) is the LSN of the last change that the page has, zero if it has none.
//! * P5 [`redo`](Pages::redo) makes a change and stamps it. It is asked for in the order of the log, for changes
//!   behind the page's LSN and for no others. No two threads ask for one page at a time.
//! * P6 [`undo`](Pages::undo) takes a change back, logically if need be: on another page, if what was changed
//!   has moved there. It logs exactly one compensation, under the same exclusion as any change (P1), that takes
//!   at most what was reserved for it. If it returns an error, nothing was logged and nothing changed.
//! * P7 [`recovery_lsn`](Pages::recovery_lsn) is at most the beginning of the first change that the page has and
//!   that a power cut could take from it; `None` only if there is no such change among those made before the
//!   question. Written is not durable: the device must have been synced. Less is never wrong, and zero leaves the
//!   tables as they are: that is the answer for a page that redo goes on with, if it has made no image of it since
//!   the page was read. What was read may have been written halfway through redo, and then the image that P3 asks for
//!   lies before it.

use std::fmt;

use foxton_log::Lsn;

use super::record::RecordPosition;
use super::tables::PageId;

/// The owner of pages. See the [module](self) for the contract.
pub trait Pages: Sync {
    /// Why it could not do something.
    type Error: std::error::Error + Send;

    /// The LSN of the last change that `page` has (P4).
    ///
    /// # Errors
    ///
    /// If the page cannot be read.
    fn page_lsn(&self, page: PageId) -> Result<Lsn, Self::Error>;

    /// Makes the change that was logged at `place` again (P5).
    ///
    /// # Errors
    ///
    /// If it cannot be made: the page cannot be read, or the bytes make no sense.
    fn redo(&self, page: PageId, place: RecordPosition, redo: &[u8]) -> Result<(), Self::Error>;

    /// Takes back the change of `page` that left `undo`, and logs how (P6).
    ///
    /// # Errors
    ///
    /// If it cannot be taken back.
    fn undo(
        &self,
        page: PageId,
        undo: &[u8],
        log: &mut CompensationLog<'_>,
    ) -> Result<(), Self::Error>;

    /// Where redo must begin for `page` to become what it is now (P7).
    ///
    /// # Errors
    ///
    /// If that cannot be told.
    fn recovery_lsn(&self, page: PageId) -> Result<Option<Lsn>, Self::Error>;
}

/// How a compensation is logged.
pub struct CompensationLog<'a> {
    pub(super) log: &'a mut dyn FnMut(PageId, &[u8]) -> Option<RecordPosition>,
}

impl CompensationLog<'_> {
    /// Logs that `redo` is done to `page`, which may be another one than that which was changed. The page is then
    /// changed and stamped with the end of the place.
    ///
    /// `None`: it could not be logged. Then the page stays as it is, and `undo` returns `Ok`; the reason is kept.
    #[must_use]
    pub fn log(&mut self, page: PageId, redo: &[u8]) -> Option<RecordPosition> {
        (self.log)(page, redo)
    }
}

impl fmt::Debug for CompensationLog<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompensationLog").finish_non_exhaustive()
    }
}
