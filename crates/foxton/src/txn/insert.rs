//! Inserts: a new record goes into its gap, which no other transaction has read over.
//!
//! The protocol and its races are in [`write`](super::write).

use foxton_lock::mode::{GapPart, KeyPart, Mode};
use foxton_lock::name::Name;
use foxton_store::memory::{Begin, InsertRefused, NewRecord, Next, Record, RecordTable};
use foxton_sync::anchor::LockAnchor;
use foxton_sync::epoch::Guard;
use foxton_sync::huge_pages::{self, RegionTracker};
use foxton_sync::worker::Worker;

use super::attempt::{AttemptResult, done};
use super::table_locks::TableLocks;
use crate::engine::Engine;
use crate::engine::background;
use crate::error::Result;
use crate::testing::failpoint;
use crate::testing::injected_fault;

const KEY_AND_GAP: Mode = Mode::key(KeyPart::X, GapPart::S);
const INTENTION: Mode = Mode::key(KeyPart::None, GapPart::InsertIntention);

/// Locks the gap before the key `next` for an insert of `name`. If the transaction has read over
/// the gap, the half of it before the new key is locked under the new name first.
#[inline(always)]
pub(super) fn lock_gap(
    engine: &Engine,
    locks: &mut TableLocks<'_>,
    fresh_gap: &mut Option<Name>,
    name: Name,
    (next, anchor): (Name, Option<&LockAnchor>),
) -> Result<AttemptResult<()>> {
    if let Some(gap) = fresh_gap.take_if(|gap| *gap != next) {
        locks.release(gap);
    }
    match locks.owner.held_mode(next).map(Mode::gap_part) {
        Some(GapPart::S | GapPart::X)
            if !engine.faults().misbehaves(&injected_fault::HALF_UNLOCKED) =>
        {
            done!(locks.lock(name, KEY_AND_GAP));
        }
        Some(_) => {}
        None => *fresh_gap = Some(next),
    }
    locks.lock_at(next, anchor, INTENTION)
}

/// Inserts records into tables for one transaction.
pub(super) struct Inserter<'a> {
    pub(super) engine: &'a Engine,
    pub(super) worker: &'a Worker,
    /// The gap that is locked only for the current insert.
    pub(super) fresh_gap: &'a mut Option<Name>,
    pub(super) region: &'a mut RegionTracker,
    /// Where versions of the transaction begin.
    pub(super) begin: Option<Begin>,
}

impl Inserter<'_> {
    /// Inserts `key`, which is locked exclusively under `name`, into the table `id` with `value`.
    /// Returns
    /// false if a neighbour came or went meanwhile; the caller must search again.
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        locks: &mut TableLocks<'_>,
        guard: &Guard<'_>,
        (id, rows): (u32, &RecordTable),
        name: Name,
        (key, value): (&[u8], Option<&[u8]>),
    ) -> Result<AttemptResult<bool>> {
        let engine = self.engine;
        let next = rows.successor(guard, key, false).record;
        if locks.is_on() {
            let next_name = match next {
                Some(record) => Name::key(id, record.key(), &engine.hasher),
                None => Name::end(id),
            };
            let gap = (next_name, next.map(Record::anchor));
            done!(lock_gap(engine, locks, self.fresh_gap, name, gap));
        }
        let mut record = NewRecord::new(key, value)?;
        if let Some(begin) = self.begin {
            record = record.with_begin(begin);
        }
        if self
            .worker
            .failpoints()
            .misbehaves(&injected_fault::BORN_FREE)
        {
            record = record.with_free_anchor();
        }
        let (address, bytes) = record.extent();
        self.worker.failpoints().pass(&failpoint::INSERTING);
        match rows.insert(guard, record, Next::from(next)) {
            Ok(_) => {
                if let Some(page) = self.region.record(address, bytes) {
                    self.worker.account().passed(&background::TASK_QUEUE);
                    engine.background.submit(Box::new(move || {
                        huge_pages::promote(page);
                    }));
                }
                Ok(AttemptResult::Done(true))
            }
            Err(InsertRefused::Exists(..) | InsertRefused::NextChanged(_)) => {
                Ok(AttemptResult::Done(false))
            }
        }
    }
}
