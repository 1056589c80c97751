//! Scans of a range in which nothing can come, go or change until the transaction ends.
//!
//! * *With locking off*, because there is no other transaction. Also at an [isolation
//!   level](crate::Isolation) that takes no locks: the scan then sees concurrent changes or does
//!   not.
//! * *If the lock manager locks the range as a whole*: a short range, upwards, between two keys of
//!   one length. All keys of that length are locked at once, whether they are there or not, with
//!   the gaps before them.
//!
//! Then no key needs a name, no key is locked by itself, and nothing is checked twice. The record
//! past the end is not read during the scan: in a table larger than the caches that would be one
//! more miss.
//!
//! # Why a range that is locked as a whole may be read so
//!
//! All locks are held before the first search. From then on no key of that length comes or goes in
//! the range, because its own name is locked. No key of another length comes before a key that is
//! there, because the gap is locked. So whatever the search finds between two keys of that length
//! stays so. At a key of another length, which the locks do not cover, the walk ends, and the scan
//! continues key by key.
//!
//! The gap past the last row is named by its right neighbour, outside the range. Unless the range
//! ends with a key that is there, that gap is locked at the end, with a search before and one
//! after, as always. A limit could leave much of the range unread, so a range with a limit is not
//! locked as a whole.

use std::ops::{Bound, ControlFlow};

use foxton_lock::name::Name;
use foxton_store::memory::Record;
use foxton_sync::epoch::Guard;

use super::attempt::{AttemptResult, done};
use super::scan_state::{GAP, Progress, RangeEnd, STEPS_PER_PIN, ScanState, WalkEnd, bound};
use super::table_locks::TableLocks;
use crate::catalog::OpenTable;
use crate::error::Result;
use crate::testing::failpoint;
use crate::types::isolation::LockDuration;
use crate::types::lock_options::Lock;

impl ScanState {
    /// True if the range is locked as a whole. Before the first search it requests that of the lock
    /// manager.
    #[inline]
    pub(super) fn lock_range(
        &mut self,
        table: &OpenTable,
        guard: &Guard<'_>,
        locks: &mut TableLocks<'_>,
        name: &impl Fn(&[u8]) -> Name,
    ) -> Result<AttemptResult<bool>> {
        if let Some(covered) = self.covered {
            return Ok(AttemptResult::Done(covered));
        }
        let short = self.low_end == RangeEnd::Included
            && self.high_end != RangeEnd::Open
            && self.low.len() == self.high.len();
        let reads_all = !self.reversed && self.remaining.get() == u64::MAX;
        let shared = self.lock.lock == Lock::Shared && self.duration == LockDuration::Range;
        if !(short && reads_all && shared) {
            self.covered = Some(false);
            return Ok(AttemptResult::Done(false));
        }
        let high = name(&self.high);
        let last = match self.high_end {
            RangeEnd::Excluded => high.neighbour_before(),
            _ => Some(high),
        };
        let Some(last) = last else {
            self.covered = Some(false);
            return Ok(AttemptResult::Done(false));
        };
        let parent_mode = self.lock.lock.range_mode().parent_mode();
        done!(locks.lock(Name::table(table.record.id), parent_mode));
        if table.is_former() {
            return Ok(AttemptResult::Pause);
        }
        guard.failpoints().pass(&failpoint::SCAN_FOUND);
        let covered = locks.lock_range(name(&self.low), last);
        guard.failpoints().pass(&failpoint::SCAN_LOCKED);
        self.covered = Some(covered);
        Ok(AttemptResult::Done(covered))
    }

    /// Walks along a range that is locked as a whole.
    #[inline]
    pub(super) fn walk_locked_range<'g>(
        &mut self,
        table: &'g OpenTable,
        guard: &'g Guard<'_>,
        last: &mut Option<&'g Record>,
        locks: &mut TableLocks<'_>,
        name: &impl Fn(&[u8]) -> Name,
        take: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<AttemptResult<WalkEnd>> {
        let (progress, length) = (self.progress, self.low.len());
        let mut suited = true;
        let suits = |key: &[u8]| {
            suited = key.len() == length;
            suited
        };
        let walked = self.walk_without_locks(table, guard, last, suits, take);
        if !suited {
            self.covered = Some(false);
            self.progress = progress;
            return Ok(AttemptResult::Done(WalkEnd::Unpin));
        }
        if self.progress != Progress::Finished || self.ends_with(*last, progress) {
            return Ok(AttemptResult::Done(walked));
        }
        // The scan is not at its end before its gap is locked.
        self.progress = progress;
        done!(self.close_below(table, guard, locks, name));
        self.finish()
    }

    /// True if the range ends with a key that is there: with `last`, or with the one before this
    /// attempt.
    #[inline(always)]
    fn ends_with(&self, last: Option<&Record>, progress: Progress) -> bool {
        self.high_end == RangeEnd::Included
            && match last {
                Some(record) => record.key() == self.high,
                None => progress == Progress::Past && self.position == self.high,
            }
    }

    /// Locks the gap before the first record past the range.
    #[inline(never)]
    fn close_below(
        &self,
        table: &OpenTable,
        guard: &Guard<'_>,
        locks: &mut TableLocks<'_>,
        name: &impl Fn(&[u8]) -> Name,
    ) -> Result<AttemptResult<()>> {
        loop {
            let included = self.high_end == RangeEnd::Excluded;
            let place = table.resident().successor(guard, &self.high, included);
            guard.failpoints().pass(&failpoint::SCAN_FOUND);
            let next = place.record.map(|record| name(record.key()));
            let next = next.unwrap_or(Name::end(table.record.id));
            done!(locks.lock_in_scan(next, place.record.map(Record::anchor), GAP));
            guard.failpoints().pass(&failpoint::SCAN_LOCKED);
            if table.resident().unchanged(&place.token) {
                return Ok(AttemptResult::Done(()));
            }
        }
    }

    /// Walks along the range until it ends, `take` breaks, a key does not suit, or the epoch has
    /// been pinned for long enough. Requests no locks.
    #[inline]
    pub(super) fn walk_without_locks<'g>(
        &mut self,
        table: &'g OpenTable,
        guard: &'g Guard<'_>,
        last: &mut Option<&'g Record>,
        mut suits: impl FnMut(&[u8]) -> bool,
        take: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> WalkEnd {
        let mut remaining = self.remaining.get();
        let from: Bound<&[u8]> = self.from();
        let mut cursor = match self.reversed {
            false => {
                let end = bound(self.high_end, &self.high);
                table.resident().forward(guard, from).until(end)
            }
            true => {
                let end = bound(self.low_end, &self.low);
                table.resident().backward(guard, from).until(end)
            }
        };
        let (mut finished, mut walked) = (remaining == 0, WalkEnd::Unpin);
        let mut hazard = guard.hazard();
        for _ in 0..STEPS_PER_PIN {
            if finished {
                break;
            }
            let Some(record) = cursor.next_record() else {
                finished = true;
                break;
            };
            if !suits(record.key()) {
                break;
            }
            *last = Some(record);
            self.reads.record(record);
            if let Some(value) = record.value(&mut hazard) {
                remaining -= 1;
                finished = remaining == 0;
                if take(record.key(), value).is_break() {
                    walked = WalkEnd::Finished;
                    break;
                }
            }
        }
        self.remaining.set(remaining);
        if finished {
            self.progress = Progress::Finished;
            walked = WalkEnd::Finished;
        }
        walked
    }
}
