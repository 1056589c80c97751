//! Undo of changes, one by one: in a rollback, and in a rollback to a savepoint.

use foxton_store::memory::VALUE;

use super::bound::BoundTxn;
use super::changes::ChangeCounts;
use super::context::WorkerContext;
use super::txn::Txn;
use crate::error::Result;
use crate::redo::record::{Effect, RowChange};
use crate::testing::injected_fault;

impl BoundTxn {
    /// Undoes at most `left` of the changes from `from` on that are not undone yet, and takes their
    /// number from `left`. With `log`, also writes the values put back to the log, in parts. Undoes
    /// them even if the log fails. Stops early at a change of a page that is not there; the context
    /// then has the wait for it.
    pub(super) fn undo_since(
        &mut self,
        from: ChangeCounts,
        log: bool,
        left: &mut usize,
    ) -> Result<()> {
        let faults = self.ctx.engine.faults();
        let in_order = faults.misbehaves(&injected_fault::UNDO_IN_ORDER);
        let is_forgotten = faults.misbehaves(&injected_fault::UNDO_FORGOTTEN);
        let keeps_entries = faults.misbehaves(&injected_fault::ENTRY_KEPT);
        while *left > 0 && self.txn.changes.paged.count() > from.paged {
            let count = self.txn.changes.paged.count();
            if is_forgotten && count == 1 {
                self.txn.changes.paged.give_up(0);
            } else if keeps_entries && from.paged > 0 && self.undoes_entry() {
                self.txn.changes.paged.give_up(count - 1);
            } else if !self.undo_paged(from.paged, in_order) {
                // It waits for pages, and the caller waits with it.
                return Ok(());
            }
            *left -= 1;
        }
        let (start, end) = (self.txn.changes.undone, self.txn.changes.undo.len());
        let (first, mut logged) = (from.resident, Ok(()));
        for nth in start..(end - first).min(start.saturating_add(*left)) {
            let index = match in_order {
                true => first + nth,
                false => end - 1 - nth,
            };
            let change = &self.txn.changes.undo[index];
            let is_entry = keeps_entries && self.ctx.tables[change.table].table.of.is_some();
            let is_skipped = is_forgotten && index == 0 || is_entry && first > 0;
            self.txn.changes.undone = nth + 1;
            *left -= 1;
            if is_skipped {
                continue;
            }
            self.undo_one(index, log);
            if log && logged.is_ok() {
                logged = self.spill();
            }
        }
        logged
    }

    /// True if the last change of pages is that of an index entry, as far as memory has it.
    #[cold]
    fn undoes_entry(&self) -> bool {
        let last = self.txn.changes.paged.recent().last();
        last.is_some_and(|(table, _)| self.ctx.tables[table].table.of.is_some())
    }

    fn undo_one(&mut self, index: usize, log: bool) {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    tables,
                    ..
                },
            txn: Txn { changes, .. },
            ..
        } = self;
        let guard = worker.pin();
        let old = changes.undo[index].old.take();
        let undo = &changes.undo[index];
        let table = &tables[undo.table].table;
        let rows = table.resident();
        let key = changes.key(undo);
        // It is there: only the owner of the exclusive lock removes a record, and we are that
        // owner.
        let Some(record) = rows.get(&guard, key) else {
            return;
        };
        // With an injected fault its own record may be gone, and this may be the record of another.
        let misbehaves = engine.faults().misbehaves_anywhere();
        if misbehaves && old.as_ref().is_some_and(|old| !record.may_take(old)) {
            return;
        }
        worker.account().passed(&VALUE);
        if let Some(new) = record.swap(old, &guard) {
            new.retire(guard.participant());
        }
        if log && undo.is_logged {
            let mut hazard = guard.hazard();
            let effect = record.value(&mut hazard);
            let effect = effect.map_or(Effect::Delete, Effect::Put);
            let key = key.to_vec();
            let table = table.record.id;
            let key = &key[..];
            RowChange { table, key, effect }.encode(&mut changes.redo);
        }
    }
}
