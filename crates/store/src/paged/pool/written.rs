//! Pages that this process has written.
//!
//! No page is written before the log is durable up to its LSN. So a page with changes behind the
//! end of the log, as it was read at opening, tells that the log lost durable records. But this
//! process adds records, and soon the log reaches beyond such a page: then its LSN no longer tells
//! it from a page that this process has written. A bit for each page does, and takes a 65,536th of
//! the file.
//!
//! # Invariant
//!
//! * I1  The bit of a page is set before the page is written. So a thread that loads what this
//!   process has written finds the bit.

use foxton_log::Lsn;
use foxton_sync::shim::{self, Mutex};

use crate::paged::PageId;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct WrittenPages {
    /// End of the log when the file was opened; the greatest LSN if nothing is known of it.
    opened_at: Lsn,
    bits: Mutex<Vec<u64>>,
}

impl WrittenPages {
    pub(super) fn since(opened_at: Lsn) -> Self {
        Self {
            opened_at,
            bits: Mutex::new(Vec::new()),
        }
    }

    /// Remembers pages that are about to be written (I1).
    pub(super) fn add(&self, pages: &[PageId]) {
        if self.opened_at == Lsn::new(u64::MAX) {
            return;
        }
        // Site: "page latch", passed for each page of a batch.
        let mut bits = shim::lock(&self.bits);
        for page in pages {
            let (word, bit) = place_of(*page);
            if bits.len() <= word {
                bits.resize(word + 1, 0);
            }
            bits[word] |= bit;
        }
    }

    /// Returns the end of the log when the file was opened, if a page that was read with this LSN
    /// is ahead of it, and this process has not written the page.
    pub(super) fn end_before(&self, page: PageId, found: Lsn) -> Option<Lsn> {
        if found <= self.opened_at {
            return None;
        }
        // Site: "replacement", which each load passes.
        let bits = shim::lock(&self.bits);
        let (word, bit) = place_of(page);
        let is_written = bits.get(word).is_some_and(|word| word & bit != 0);
        (!is_written).then_some(self.opened_at)
    }
}

/// Returns the word of a page, and its bit there.
fn place_of(page: PageId) -> (usize, u64) {
    ((page.number() / 64) as usize, 1 << (page.number() % 64))
}
