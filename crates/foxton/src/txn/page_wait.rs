//! Waits for pages: what an attempt on a paged table left for the next one.
//!
//! An attempt that lacks pages ends with [`Wait`](super::attempt::AttemptResult::Wait) and leaves
//! its visit here. The driver waits with the visit, without latch, fix and admission slot. The next
//! attempt takes the visit with its pages, so it needs no page above them. An undo may lack older
//! undo, which is read from the log, in the same way.

use foxton_store::paged::btree::DetachedVisit;

use crate::engine::page_waits::{PageNeed, SubmittedWait};

/// See the [module](self).
pub(crate) enum PageWait {
    /// The attempt lacks something, and no thread waits for it yet.
    Needed(Box<PageNeed>),
    /// A thread waits for it on behalf of the task.
    Submitted(SubmittedWait),
    /// It is there.
    Done(Box<DetachedVisit>),
}

impl PageWait {
    pub(super) fn needed(need: PageNeed) -> PageWait {
        PageWait::Needed(Box::new(need))
    }
}
