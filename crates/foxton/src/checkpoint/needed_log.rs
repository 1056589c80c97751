//! Log that pages need: where it begins.
//!
//! A checkpoint of tables in memory removes the log that neither these tables nor pages need. Pages
//! need it from the position on that their last checkpoint names.
//!
//! # Why nothing is removed that the first checkpoint of pages needs
//!
//! A thread that makes the page file stores the log's end here, and then puts the mark of that
//! checkpoint into the log. A thread that removes log and finds here that pages need none has its
//! limit from before. The limit was an end of the log, so the mark is behind it.
//!
//! # Orderings
//!
//! * O1  `from`, `SeqCst` on both sides, with the log's own orderings between the store and the
//!   mark. It is touched once in a checkpoint.

use foxton_log::Lsn;
use foxton_sync::shim::{AtomicU64, Ordering};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct NeededLog {
    from: AtomicU64,
}

impl NeededLog {
    /// Pages need the log from `from` on; `Lsn::MAX`: none of it.
    pub(crate) fn new(from: Lsn) -> NeededLog {
        NeededLog {
            from: AtomicU64::new(from.bytes()),
        }
    }

    pub(crate) fn get(&self) -> Lsn {
        Lsn::new(self.from.load(Ordering::SeqCst)) // O1
    }

    pub(crate) fn set(&self, from: Lsn) {
        self.from.store(from.bytes(), Ordering::SeqCst); // O1
    }
}
