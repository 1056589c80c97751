//! State of a range scan: its bounds, its locks and its position.

use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};

use foxton_lock::mode::{GapPart, KeyPart, Mode};
use foxton_lock::name::Name;
use foxton_store::memory::Record;
use foxton_store::paged::btree::ScanAhead;

use super::attempt::AttemptResult;
use super::short_lock::ShortLock;
use super::snapshot_view::ViewRows;
use crate::engine::early_release::ReadDependencies;
use crate::error::{Error, Result};
use crate::types::index_entry::{raise_past, raise_past_all};
use crate::types::isolation::LockDuration;
use crate::types::lock_options::LockOptions;

/// Number of keys after which a scan unpins the epoch for a moment, so that a long scan does not
/// delay reclamation.
pub(crate) const STEPS_PER_PIN: u32 = 256;

/// Mode of the gap past the last row of a scan.
pub(super) const GAP: Mode = Mode::key(KeyPart::None, GapPart::S);

const KEPT_BYTES: usize = 64 << 10;

/// Kinds of bound of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RangeEnd {
    #[default]
    Open,
    Included,
    Excluded,
}

/// Progress of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Progress {
    #[default]
    Start,
    /// Past the key in `position`.
    Past,
    Finished,
}

/// Why a walk along a range stopped, other than for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkEnd {
    /// The range ended, or the caller broke off.
    Finished,
    /// The epoch was pinned for long enough.
    Unpin,
}

/// An entry of an index whose row is locked, and is read next. It is kept while the attempt waits
/// for the page of the row.
#[derive(Debug, Default)]
pub(super) struct LockedEntry {
    pub(super) is_set: bool,
    /// True if it is at the end of the range.
    pub(super) is_last: bool,
    pub(super) index_key: Vec<u8>,
    /// Key of the row.
    pub(super) key: Vec<u8>,
}

impl LockedEntry {
    /// Sets the keys.
    pub(super) fn set(&mut self, (index_key, key): (&[u8], &[u8]), is_last: bool) {
        (self.is_set, self.is_last) = (true, is_last);
        self.index_key.clear();
        self.index_key.extend_from_slice(index_key);
        self.key.clear();
        self.key.extend_from_slice(key);
    }
}

/// A range, and how far it has been read. One for each transaction, which its scans use in turn.
#[derive(Debug, Default)]
pub(crate) struct ScanState {
    pub(super) low: Vec<u8>,
    pub(super) high: Vec<u8>,
    pub(super) low_end: RangeEnd,
    pub(super) high_end: RangeEnd,
    pub(crate) reversed: bool,
    pub(crate) lock: LockOptions,
    pub(super) duration: LockDuration,
    /// The key that is locked only while the scan reads it.
    pub(super) short_lock: ShortLock,
    /// Number of keys still to be returned. A cell, because a cursor borrows the bounds meanwhile.
    pub(crate) remaining: Cell<u64>,
    pub(super) progress: Progress,
    pub(super) position: Vec<u8>,
    /// True if the range is locked as a whole, except for its end; `None` if that was not requested
    /// yet.
    pub(super) covered: Option<bool>,
    /// Of a scan downwards: true if the gap above the position is locked, or need not be.
    pub(super) closed_above: bool,
    /// True if only keys are read: a large value is passed on as the row has it.
    pub(crate) is_of_keys: bool,
    /// The entry of an index of a paged table whose row is the next to be read.
    pub(super) entry: LockedEntry,
    /// Of a scan of a paged table at a snapshot: rows that it has read ahead.
    pub(super) view_rows: ViewRows,
    /// How far the scan of a paged table reads ahead.
    pub(super) ahead: Cell<ScanAhead>,
    /// Early released commits that the scans of this transaction depend on.
    pub(super) reads: ReadDependencies,
}

impl ScanState {
    /// Begins a new scan; `encode` encodes the bounds.
    pub(crate) fn begin<K: ?Sized>(
        &mut self,
        range: &impl RangeBounds<K>,
        mut encode: impl FnMut(&K, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut set = |bound: Bound<&K>, bytes: &mut Vec<u8>| {
            bytes.clear();
            Ok::<RangeEnd, Error>(match bound {
                Bound::Unbounded => RangeEnd::Open,
                Bound::Included(key) => encode(key, bytes).map(|()| RangeEnd::Included)?,
                Bound::Excluded(key) => encode(key, bytes).map(|()| RangeEnd::Excluded)?,
            })
        };
        self.low_end = set(range.start_bound(), &mut self.low)?;
        self.high_end = set(range.end_bound(), &mut self.high)?;
        self.reversed = false;
        self.is_of_keys = false;
        self.lock = LockOptions::default();
        self.short_lock.clear();
        self.remaining.set(u64::MAX);
        self.progress = Progress::Start;
        self.ahead.take();
        self.entry.is_set = false;
        self.view_rows.clear();
        self.closed_above = false;
        self.covered = None;
        Ok(())
    }

    /// Makes bounds that are prefixes of keys include all keys with the prefix, or none of them.
    pub(super) fn bound_beginnings(&mut self) {
        if self.low_end == RangeEnd::Excluded {
            if !raise_past(&mut self.low) {
                raise_past_all(&mut self.low);
            }
            self.low_end = RangeEnd::Included;
        }
        if self.high_end == RangeEnd::Included {
            self.high_end = match raise_past(&mut self.high) {
                true => RangeEnd::Excluded,
                false => RangeEnd::Open,
            };
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.progress == Progress::Finished
    }

    pub(crate) fn shrink(&mut self) {
        self.view_rows = ViewRows::default();
        let LockedEntry { index_key, key, .. } = &mut self.entry;
        for buffer in [
            &mut self.low,
            &mut self.high,
            &mut self.position,
            index_key,
            key,
        ] {
            buffer.shrink_to(KEPT_BYTES);
        }
    }

    /// Returns where to continue, if this attempt has found nothing yet.
    pub(super) fn from(&self) -> Bound<&[u8]> {
        match (self.progress, self.reversed) {
            (Progress::Start, false) => bound(self.low_end, &self.low),
            (Progress::Start, true) => bound(self.high_end, &self.high),
            _ => Bound::Excluded(&self.position),
        }
    }

    /// Returns the key at the end of the scan, if the range has one.
    pub(super) fn last(&self) -> &[u8] {
        match self.reversed {
            false => &self.high,
            true => &self.low,
        }
    }

    /// Returns `Less` if `key` is inside the range, `Equal` if it is the last key of the range, and
    /// `Greater` if it is outside.
    /// `name` and `last` are the names of `key` and of the key at the end.
    #[inline]
    pub(super) fn beyond(&self, key: &[u8], name: &Name, last: &Name) -> Ordering {
        let end = match self.reversed {
            false => self.high_end,
            true => self.low_end,
        };
        if end == RangeEnd::Open {
            return Ordering::Less;
        }
        let upwards = name.key_order(last);
        let upwards = upwards.unwrap_or_else(|| key.cmp(self.last()));
        let order = match self.reversed {
            false => upwards,
            true => upwards.reverse(),
        };
        match (end, order) {
            (RangeEnd::Excluded, Ordering::Equal) => Ordering::Greater,
            _ => order,
        }
    }

    /// True if the range begins, in the order of the scan, with exactly this key.
    pub(super) fn begins_with(&self, key: &[u8]) -> bool {
        let (end, first) = match self.reversed {
            false => (self.low_end, &self.low),
            true => (self.high_end, &self.high),
        };
        end == RangeEnd::Included && key == &first[..]
    }

    /// Records the last key that was taken.
    pub(super) fn record_position(&mut self, last: Option<&Record>) {
        if let Some(record) = last {
            self.position.clear();
            self.position.extend_from_slice(record.key());
            self.progress = Progress::Past;
        }
    }

    /// Records the key that was taken last, of a paged table.
    pub(super) fn record_key(&mut self, key: &[u8]) {
        self.position.clear();
        self.position.extend_from_slice(key);
        self.progress = Progress::Past;
    }

    pub(super) fn finish(&mut self) -> Result<AttemptResult<WalkEnd>> {
        self.progress = Progress::Finished;
        Ok(AttemptResult::Done(WalkEnd::Finished))
    }
}

pub(super) fn bound(end: RangeEnd, key: &[u8]) -> Bound<&[u8]> {
    match end {
        RangeEnd::Open => Bound::Unbounded,
        RangeEnd::Included => Bound::Included(key),
        RangeEnd::Excluded => Bound::Excluded(key),
    }
}
