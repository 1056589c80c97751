//! A range of keys, and how far a scan has read it.

use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};

use foxton_lock::mode::{GapPart, KeyPart, Mode};
use foxton_lock::name::Name;
use foxton_store::memory::Record;

use super::attempt::AttemptResult;
use super::short_lock::ShortLock;
use crate::engine::early_release::ReadDependencies;
use crate::error::{Error, Result};
use crate::types::index_entry::{raise_past, raise_past_all};
use crate::types::isolation::LockDuration;
use crate::types::lock_options::LockOptions;

/// Keys that a scan passes before it lets go of the epoch for a moment, so that a long one does not
/// hold up reclamation.
pub(super) const STEPS_PER_PIN: u32 = 256;

/// The gap alone: past the end of what was read.
pub(super) const GAP: Mode = Mode::key(KeyPart::None, GapPart::S);

const KEPT_BYTES: usize = 64 << 10;

/// Which end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum End {
    #[default]
    Open,
    Included,
    Excluded,
}

/// How far a scan has come.
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
pub(super) enum Walked {
    /// It came to its end, or was told to break.
    Enough,
    /// It has been pinned for long enough.
    Rests,
}

/// A range, and how far it has been read. One for each transaction, used again.
#[derive(Debug, Default)]
pub(crate) struct ScanState {
    pub(super) low: Vec<u8>,
    pub(super) high: Vec<u8>,
    pub(super) low_end: End,
    pub(super) high_end: End,
    pub(crate) reversed: bool,
    pub(crate) lock: LockOptions,
    pub(super) hold: LockDuration,
    /// The key that is locked only while it is read.
    pub(super) short_lock: ShortLock,
    /// Keys still to be given. A cell, since a cursor borrows the bounds meanwhile.
    pub(crate) remaining: Cell<u64>,
    pub(super) progress: Progress,
    pub(super) position: Vec<u8>,
    /// Whether all that can come, go or change in the range is locked, except where it ends; unless
    /// the manager was not asked yet.
    pub(super) covered: Option<bool>,
    /// Downwards: whether the gap above the place is locked, or need not be.
    pub(super) closed_above: bool,
    /// What this scan and those before it have read, in this transaction.
    pub(super) dependencies: ReadDependencies,
}

impl ScanState {
    /// Begins anew; `bound` encodes the bounds.
    pub(crate) fn begin<K: ?Sized>(
        &mut self,
        range: &impl RangeBounds<K>,
        mut encode: impl FnMut(&K, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut set = |bound: Bound<&K>, bytes: &mut Vec<u8>| {
            bytes.clear();
            Ok::<End, Error>(match bound {
                Bound::Unbounded => End::Open,
                Bound::Included(key) => encode(key, bytes).map(|()| End::Included)?,
                Bound::Excluded(key) => encode(key, bytes).map(|()| End::Excluded)?,
            })
        };
        self.low_end = set(range.start_bound(), &mut self.low)?;
        self.high_end = set(range.end_bound(), &mut self.high)?;
        self.reversed = false;
        self.lock = LockOptions::default();
        self.short_lock.forget();
        self.remaining.set(u64::MAX);
        self.progress = Progress::Start;
        self.closed_above = false;
        self.covered = None;
        Ok(())
    }

    /// Lets bounds that are beginnings of keys include all keys that begin so, or none of them.
    pub(super) fn bound_beginnings(&mut self) {
        if self.low_end == End::Excluded {
            if !raise_past(&mut self.low) {
                raise_past_all(&mut self.low);
            }
            self.low_end = End::Included;
        }
        if self.high_end == End::Included {
            self.high_end = match raise_past(&mut self.high) {
                true => End::Excluded,
                false => End::Open,
            };
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.progress == Progress::Finished
    }

    pub(crate) fn shrink(&mut self) {
        for buffer in [&mut self.low, &mut self.high, &mut self.position] {
            buffer.shrink_to(KEPT_BYTES);
        }
    }

    /// Where to go on, if nothing was found in this attempt yet.
    pub(super) fn from(&self) -> Bound<&[u8]> {
        match (self.progress, self.reversed) {
            (Progress::Start, false) => bound(self.low_end, &self.low),
            (Progress::Start, true) => bound(self.high_end, &self.high),
            _ => Bound::Excluded(&self.position),
        }
    }

    /// The key at the end of the scan, if the range has one.
    pub(super) fn last(&self) -> &[u8] {
        match self.reversed {
            false => &self.high,
            true => &self.low,
        }
    }

    /// Where `key` lies: `Less` is inside, `Equal` is the last place inside, `Greater` is outside.
    /// `name` and `last` are the names of `key` and of the key at the end.
    #[inline]
    pub(super) fn beyond(&self, key: &[u8], name: &Name, last: &Name) -> Ordering {
        let end = match self.reversed {
            false => self.high_end,
            true => self.low_end,
        };
        if end == End::Open {
            return Ordering::Less;
        }
        let upwards = name.key_order(last);
        let upwards = upwards.unwrap_or_else(|| key.cmp(self.last()));
        let order = match self.reversed {
            false => upwards,
            true => upwards.reverse(),
        };
        match (end, order) {
            (End::Excluded, Ordering::Equal) => Ordering::Greater,
            _ => order,
        }
    }

    /// Whether the range begins, in the order of the scan, with exactly this key.
    pub(super) fn begins_with(&self, key: &[u8]) -> bool {
        let (end, first) = match self.reversed {
            false => (self.low_end, &self.low),
            true => (self.high_end, &self.high),
        };
        end == End::Included && key == &first[..]
    }

    /// Notes the last key dealt with.
    pub(super) fn stand(&mut self, last: Option<&Record>) {
        if let Some(record) = last {
            self.position.clear();
            self.position.extend_from_slice(record.key());
            self.progress = Progress::Past;
        }
    }

    pub(super) fn finish(&mut self) -> Result<AttemptResult<Walked>> {
        self.progress = Progress::Finished;
        Ok(AttemptResult::Done(Walked::Enough))
    }
}

pub(super) fn bound(end: End, key: &[u8]) -> Bound<&[u8]> {
    match end {
        End::Open => Bound::Unbounded,
        End::Included => Bound::Included(key),
        End::Excluded => Bound::Excluded(key),
    }
}
