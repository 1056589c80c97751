//! Taking everything back.
//!
//! Old values go back in the opposite order, under the locks that still protect them. A key that
//! was not there before becomes a ghost, and the ghost is removed if nobody else holds its gap.

use foxton_lock::manager::LockManager;

use super::changes::GhostIf;
use super::state::State;
use crate::engine::Count;
use crate::options::Locking;
use crate::planted::Fault;
use crate::point;
use crate::redo;

impl State {
    /// Undoes every change and gives back every lock.
    pub(crate) fn undo_all(&mut self) {
        self.withdraw();
        if let Some(first) = self.changes.first_part {
            // Only to let restart forget the parts early; without it, it forgets them at the end.
            let first = first.bytes().to_le_bytes();
            let _ = self
                .engine
                .log
                .insert(&self.worker, redo::ABANDONED, &[&first]);
        }
        if !self.changes.is_empty() {
            self.worker.hooks().pass(&point::ROLLBACK);
            if self.engine.options.planted().is(Fault::UnlockBeforeUndo) {
                self.release_all();
            }
            self.put_back();
            self.remove_ghosts(GhostIf::RolledBack);
        }
        self.changes.clear();
        self.release_all();
        self.count(Count::Rollbacks);
    }

    fn put_back(&mut self) {
        let State {
            engine,
            worker,
            tables,
            changes,
            ..
        } = self;
        let planted = engine.options.planted();
        let guard = worker.pin();
        let count = changes.undo.len();
        for index in (0..count).rev() {
            let index = match planted.is(Fault::UndoInOrder) {
                true => count - 1 - index,
                false => index,
            };
            if planted.is(Fault::UndoForgotten) && index == 0 {
                continue;
            }
            let old = changes.undo[index].old.take();
            let undo = &changes.undo[index];
            let rows = &tables[undo.table].table.rows;
            // It is there: only who holds the key exclusively removes its record, and we do.
            let Some(record) = rows.get(&guard, changes.key(undo)) else {
                continue;
            };
            if let Some(new) = record.swap(old) {
                new.retire(&guard);
            }
        }
    }

    pub(crate) fn release_all(&mut self) {
        if self.engine.options.locking == Locking::On {
            self.engine.locks.release_all(&self.worker, &mut self.owner);
        }
    }
}
