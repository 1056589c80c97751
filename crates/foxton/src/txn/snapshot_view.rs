//! The position at which a transaction, or a handle of a snapshot, reads, and rows that it has read
//! there.

use std::collections::VecDeque;

use foxton_log::Lsn;

/// A position at which a transaction reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SnapshotView {
    pub(crate) lsn: Lsn,
    /// Where the snapshot is registered.
    pub(crate) place: u32,
    /// True if the transaction has registered it, and ends it.
    pub(crate) is_own: bool,
}

/// A row of a paged table at a snapshot.
#[derive(Debug)]
pub(super) struct ViewRow {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// True if the value is what the row has instead of a large one.
    pub(super) is_large: bool,
}

/// Rows that a scan has read at a snapshot, where they stay as they are, and has not passed on. The
/// position of the scan is behind them.
#[derive(Debug, Default)]
pub(super) struct ViewRows {
    pub(super) rows: VecDeque<ViewRow>,
    /// True if the range ends with them.
    pub(super) has_end: bool,
}

impl ViewRows {
    /// Forgets them, for the next scan.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.has_end = false;
    }
}
