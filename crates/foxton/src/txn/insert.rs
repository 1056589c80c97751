//! Inserts: a new record goes into its gap, which no other transaction has read over.
//!
//! The protocol and its races are in [`write`](super::write).

use foxton_lock::mode::{GapPart, KeyPart, Mode};
use foxton_lock::name::Name;
use foxton_store::memory::{InsertRefused, NewRecord, Next, Record};
use foxton_sync::epoch::Guard;
use foxton_sync::huge_pages::{self, RegionTracker};
use foxton_sync::worker::Worker;

use super::attempt::{AttemptResult, done};
use super::table_locks::TableLocks;
use crate::catalog::OpenTable;
use crate::engine::Engine;
use crate::engine::background;
use crate::error::Result;
use crate::testing::failpoint;
use crate::testing::injected_fault;

const KEY_AND_GAP: Mode = Mode::key(KeyPart::X, GapPart::S);
const INTENTION: Mode = Mode::key(KeyPart::None, GapPart::InsertIntention);

/// Inserts records into tables for one transaction.
pub(super) struct Inserter<'a> {
    pub(super) engine: &'a Engine,
    pub(super) worker: &'a Worker,
    /// The gap that is locked only for the current insert.
    pub(super) fresh_gap: &'a mut Option<Name>,
    pub(super) region: &'a mut RegionTracker,
}

impl Inserter<'_> {
    /// Inserts `key`, which is locked exclusively under `name`, into `table` with `value`. Returns
    /// false if a neighbour came or went meanwhile; the caller must search again.
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        locks: &mut TableLocks<'_>,
        guard: &Guard<'_>,
        table: &OpenTable,
        name: Name,
        (key, value): (&[u8], Option<&[u8]>),
    ) -> Result<AttemptResult<bool>> {
        let engine = self.engine;
        let next = table.rows.successor(guard, key, false).record;
        if locks.is_on() {
            let next_name = match next {
                Some(record) => Name::key(table.record.id, record.key(), &engine.hasher),
                None => Name::end(table.record.id),
            };
            if let Some(gap) = self.fresh_gap.take_if(|gap| *gap != next_name) {
                locks.release(gap);
            }
            match locks.owner.held_mode(next_name).map(Mode::gap_part) {
                Some(GapPart::S | GapPart::X)
                    if !engine.faults().misbehaves(&injected_fault::HALF_UNLOCKED) =>
                {
                    done!(locks.lock(name, KEY_AND_GAP));
                }
                Some(_) => {}
                None => *self.fresh_gap = Some(next_name),
            }
            done!(locks.lock_at(next_name, next.map(Record::anchor), INTENTION));
        }
        let mut record = NewRecord::new(key, value)?;
        if self
            .worker
            .failpoints()
            .misbehaves(&injected_fault::BORN_FREE)
        {
            record = record.with_free_anchor();
        }
        let (address, bytes) = record.extent();
        self.worker.failpoints().pass(&failpoint::INSERTING);
        match table.rows.insert(guard, record, Next::from(next)) {
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
