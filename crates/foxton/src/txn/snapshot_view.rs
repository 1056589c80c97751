//! The position at which a transaction, or a handle of a snapshot, reads, and rows that it has read
//! there.

use std::collections::VecDeque;

use foxton_log::Lsn;
use foxton_store::memory::Begin;

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

/// Bytes of a part that a context keeps for its next scan.
const KEPT_BYTES: usize = 64 << 10;

/// Rows of a part of a range of a table in memory, in the order of the scan. Keys and values lie in
/// one buffer, which the next part uses again.
#[derive(Debug, Default)]
pub(crate) struct RangePart {
    bytes: Vec<u8>,
    rows: Vec<PartRow>,
    /// The last key of the table that was looked at.
    last: Vec<u8>,
    has_last: bool,
    /// True if the range ends with it.
    pub(super) has_end: bool,
    /// Writer of the next version, if its commit LSN is not known.
    pub(super) unresolved: Option<Begin>,
}

/// Where a row lies: its key, and its value behind that.
#[derive(Debug, Clone, Copy)]
struct PartRow {
    start: usize,
    key_bytes: usize,
    end: usize,
}

impl RangePart {
    /// Forgets the rows, for the next part.
    pub(super) fn clear(&mut self) {
        match self.bytes.capacity() > KEPT_BYTES {
            true => *self = RangePart::default(),
            false => {
                self.bytes.clear();
                self.rows.clear();
                self.has_last = false;
                self.has_end = false;
                self.unresolved = None;
            }
        }
    }

    #[inline]
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.rows.push(PartRow {
            start,
            key_bytes: key.len(),
            end: self.bytes.len(),
        });
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns key and value of a row.
    #[inline]
    pub(super) fn row(&self, number: usize) -> (&[u8], &[u8]) {
        let PartRow {
            start,
            key_bytes,
            end,
        } = self.rows[number];
        self.bytes[start..end].split_at(key_bytes)
    }

    pub(super) fn set_last(&mut self, key: &[u8]) {
        self.last.clear();
        self.last.extend_from_slice(key);
        self.has_last = true;
    }

    pub(super) fn last(&self) -> Option<&[u8]> {
        self.has_last.then_some(&self.last)
    }

    /// Adds rows that are in the order of the keys. Of a row that is there, too, it keeps the one
    /// that came first.
    pub(super) fn merge(&mut self, rows: Vec<(Vec<u8>, Vec<u8>)>, reversed: bool) {
        if rows.is_empty() {
            return;
        }
        for (key, value) in &rows {
            self.push(key, value);
        }
        let bytes = &self.bytes;
        let key = |row: &PartRow| &bytes[row.start..row.start + row.key_bytes];
        self.rows.sort_by(|left, right| match reversed {
            false => key(left).cmp(key(right)),
            true => key(right).cmp(key(left)),
        });
        self.rows.dedup_by(|left, right| key(left) == key(right));
    }
}
