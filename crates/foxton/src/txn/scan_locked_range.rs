//! Reading a range in which nothing can come, go or change until the transaction ends.
//!
//! * *With locking off*, for then there is no other transaction, or where a transaction asked for
//!   [no locks](crate::Isolation): then what comes, goes and changes meanwhile is seen or is not.
//! * *If the lock manager covers it*: a short range, upwards, between two keys of one length, of which all
//!   keys of that length are locked at once, whether they are there or not, with the gaps before them.
//!
//! No key needs a name then, none is locked by itself, and nothing has to be looked at twice. Nor is the
//! record past the end looked at while rows are read: in a table larger than the caches that would be one
//! more miss for nothing.
//!
//! # Why a covered range may be read so
//!
//! All locks are there before the first look. From then on no key of that length comes or goes in the
//! range, for its own name is locked; nor does one of another length come before a key that is, for
//! the gap is. What the look finds between two keys of that length is so for good. At a key of another
//! length, which the locks say nothing about, the walk ends, and goes on key by key.
//!
//! The gap past the last row is named by its right neighbour, outside: unless the range ends with a key
//! that is there, that gap is locked at the end, with a look before and one after, as always. A limit
//! could leave much of the range unread, so a range with a limit is not covered.

use std::ops::{Bound, ControlFlow};

use foxton_lock::name::Name;
use foxton_store::memory::Record;
use foxton_sync::epoch::Guard;

use super::attempt::{AttemptResult, done};
use super::scan_state::{End, GAP, Progress, STEPS_PER_PIN, ScanState, Walked, bound};
use super::state::TableLocks;
use crate::catalog::OpenTable;
use crate::error::Result;
use crate::testing::failpoint;
use crate::types::isolation::LockDuration;
use crate::types::lock_options::Lock;

impl ScanState {
    /// Whether the range is covered; before the first look at it, the manager is asked to.
    #[inline]
    pub(super) fn cover(
        &mut self,
        table: &OpenTable,
        guard: &Guard<'_>,
        locks: &mut TableLocks<'_>,
        name: &impl Fn(&[u8]) -> Name,
    ) -> Result<AttemptResult<bool>> {
        if let Some(covered) = self.covered {
            return Ok(AttemptResult::Done(covered));
        }
        let short = self.low_end == End::Included
            && self.high_end != End::Open
            && self.low.len() == self.high.len();
        let reads_all = !self.reversed && self.remaining.get() == u64::MAX;
        let shared = self.lock.lock == Lock::Shared && self.hold == LockDuration::Range;
        if !(short && reads_all && shared) {
            self.covered = Some(false);
            return Ok(AttemptResult::Done(false));
        }
        let high = name(&self.high);
        let last = match self.high_end {
            End::Excluded => high.neighbour_before(),
            _ => Some(high),
        };
        let Some(last) = last else {
            self.covered = Some(false);
            return Ok(AttemptResult::Done(false));
        };
        let parent_mode = self.lock.lock.range_mode().parent_mode();
        done!(locks.lock(Name::table(table.record.id), parent_mode));
        guard.failpoints().pass(&failpoint::SCAN_FOUND);
        let covered = locks.cover(name(&self.low), last);
        guard.failpoints().pass(&failpoint::SCAN_LOCKED);
        self.covered = Some(covered);
        Ok(AttemptResult::Done(covered))
    }

    /// Walks along a range that the manager covers.
    #[inline]
    pub(super) fn walk_remembered<'g>(
        &mut self,
        table: &'g OpenTable,
        guard: &'g Guard<'_>,
        last: &mut Option<&'g Record>,
        locks: &mut TableLocks<'_>,
        name: &impl Fn(&[u8]) -> Name,
        take: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<AttemptResult<Walked>> {
        let (progress, length) = (self.progress, self.low.len());
        let mut suited = true;
        let suits = |key: &[u8]| {
            suited = key.len() == length;
            suited
        };
        let walked = self.walk_covered(table, guard, last, suits, take);
        if !suited {
            self.covered = Some(false);
            self.progress = progress;
            return Ok(AttemptResult::Done(Walked::Rests));
        }
        if self.progress != Progress::Finished || self.ends_with(*last, progress) {
            return Ok(AttemptResult::Done(walked));
        }
        // Not at the end before its gap is locked.
        self.progress = progress;
        done!(self.close_below(table, guard, locks, name));
        self.finish()
    }

    /// Whether the last record of the range, `last` or the one before this attempt, is its last key.
    #[inline(always)]
    fn ends_with(&self, last: Option<&Record>, progress: Progress) -> bool {
        self.high_end == End::Included
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
            let included = self.high_end == End::Excluded;
            let place = table.rows.successor(guard, &self.high, included);
            guard.failpoints().pass(&failpoint::SCAN_FOUND);
            let next = place.record.map(|record| name(record.key()));
            let next = next.unwrap_or(Name::end(table.record.id));
            done!(locks.lock_in_scan(next, GAP));
            guard.failpoints().pass(&failpoint::SCAN_LOCKED);
            if table.rows.unchanged(&place.token) {
                return Ok(AttemptResult::Done(()));
            }
        }
    }

    /// Walks along the range until it ends, `take` breaks, a key does not suit, or the epoch has been
    /// pinned for long enough.
    #[inline]
    pub(super) fn walk_covered<'g>(
        &mut self,
        table: &'g OpenTable,
        guard: &'g Guard<'_>,
        last: &mut Option<&'g Record>,
        mut suits: impl FnMut(&[u8]) -> bool,
        take: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Walked {
        let mut remaining = self.remaining.get();
        let from: Bound<&[u8]> = self.from();
        let mut cursor = match self.reversed {
            false => {
                let end = bound(self.high_end, &self.high);
                table.rows.forward(guard, from).until(end)
            }
            true => {
                let end = bound(self.low_end, &self.low);
                table.rows.backward(guard, from).until(end)
            }
        };
        let (mut finished, mut walked) = (remaining == 0, Walked::Rests);
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
            self.dependencies.note(record);
            if let Some(value) = record.value(&mut hazard) {
                remaining -= 1;
                finished = remaining == 0;
                if take(record.key(), value).is_break() {
                    walked = Walked::Enough;
                    break;
                }
            }
        }
        self.remaining.set(remaining);
        if finished {
            self.progress = Progress::Finished;
            walked = Walked::Enough;
        }
        walked
    }
}
