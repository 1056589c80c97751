//! Going back to a moment in a transaction.
//!
//! # What goes back
//!
//! * *Values.* What was changed since is undone, the latest first, under locks that stay.
//! * *Redo* is cut off where it was, as long as none of it has gone to the log. If a part has gone since,
//!   it is there for good; so further changes follow it, each giving a key the value that it had. Restart
//!   goes through the parts of a transaction in order, and comes to the same end.
//! * *Records* that came since stay as ghosts, which nobody else can see, for we hold their keys
//!   exclusively. They are removed at the end, however that is, and not before: the gap before such a key
//!   may be locked by its name alone, for what we read since.

use foxton_store::memory::{Record, VALUE};

use super::changes::GhostIf;
use super::marks::Mark;
use super::state::State;
use crate::error::{Request, Result};
use crate::redo::record::{Change, Effect};
use crate::testing::injected_fault::Fault;
use crate::types::savepoint::Savepoint;

impl State {
    /// Takes a savepoint.
    pub(crate) fn savepoint(&mut self) -> Result<Savepoint> {
        self.check_active()?;
        self.marks.taken += 1;
        let mark = Mark {
            number: self.marks.taken,
            changes: self.changes.undo.len(),
            redo: self.changes.redo.len(),
            parts: self.changes.parts,
        };
        self.marks.open.push(mark);
        Ok(Savepoint {
            number: mark.number,
            ..self.savepoint_zero()
        })
    }

    /// What all savepoints of this transaction have in common.
    fn savepoint_zero(&self) -> Savepoint {
        Savepoint {
            database: std::sync::Arc::as_ptr(&self.engine).addr(),
            owner: self.owner.id(),
            number: 0,
        }
    }

    /// The place of a savepoint among those that are open.
    fn find(&mut self, savepoint: &Savepoint) -> Result<usize> {
        self.check_active()?;
        let zero = self.savepoint_zero();
        let ours = (savepoint.database, savepoint.owner) == (zero.database, zero.owner);
        let open = &self.marks.open;
        let found = open.binary_search_by_key(&savepoint.number, |mark| mark.number);
        match found {
            Ok(at) if ours => Ok(at),
            _ => Err(Request::NoSuchSavepoint.into()),
        }
    }

    /// Forgets a savepoint and those after it; what was changed since stays.
    pub(crate) fn release_savepoint(&mut self, savepoint: &Savepoint) -> Result<()> {
        let at = self.find(savepoint)?;
        self.marks.open.truncate(at);
        Ok(())
    }

    /// Undoes what was changed since a savepoint, and forgets those after it.
    pub(crate) fn roll_back_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        let at = self.find(savepoint)?;
        self.marks.open.truncate(at + 1);
        let mark = self.marks.open[at];
        let redo_is_ours = mark.parts == self.changes.parts;
        if redo_is_ours {
            self.changes.redo.truncate(mark.redo);
        }
        let logged = self.put_back(mark.changes, !redo_is_ours);
        self.leave_ghosts(mark.changes);
        self.changes.forget_since(mark.changes);
        logged
    }

    /// Notes which keys the changes from `from` on, which are undone, have left without a value.
    fn leave_ghosts(&mut self, from: usize) {
        let State {
            worker,
            tables,
            changes,
            ..
        } = self;
        let guard = worker.pin();
        for undo in &changes.undo[from..] {
            if undo.ghost_if == GhostIf::RolledBack {
                let key = changes.key(undo);
                let record = tables[undo.table].table.rows.get(&guard, key);
                if record.is_some_and(Record::is_ghost) {
                    changes.left.insert((undo.table, key.into()));
                }
            }
        }
    }

    /// Undoes the changes from `from` on; with `log`, notes for the log that they were, in parts. All are
    /// undone, also if the log fails.
    pub(super) fn put_back(&mut self, from: usize, log: bool) -> Result<()> {
        let planted = self.engine.options.planted();
        let end = self.changes.undo.len();
        let mut logged = Ok(());
        for index in (from..end).rev() {
            let index = match planted.is(Fault::UndoInOrder) {
                true => from + end - 1 - index,
                false => index,
            };
            if planted.is(Fault::UndoForgotten) && index == 0 {
                continue;
            }
            if planted.is(Fault::EntryKept) && from > 0 && !self.changes.undo[index].is_logged {
                continue;
            }
            self.put_back_one(index, log);
            if log && logged.is_ok() {
                logged = self.spill();
            }
        }
        logged
    }

    fn put_back_one(&mut self, index: usize, log: bool) {
        let State {
            engine,
            worker,
            tables,
            changes,
            ..
        } = self;
        let guard = worker.pin();
        let old = changes.undo[index].old.take();
        let undo = &changes.undo[index];
        let table = &tables[undo.table].table;
        let key = changes.key(undo);
        // It is there: only who holds the key exclusively removes its record, and we do.
        let Some(record) = table.rows.get(&guard, key) else {
            return;
        };
        // Without the right locks its own record may be gone, and this one another's.
        let is_planted = engine.options.planted().is_any();
        if is_planted && old.as_ref().is_some_and(|old| !record.may_take(old)) {
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
            Change { table, key, effect }.encode(&mut changes.redo);
        }
    }
}
