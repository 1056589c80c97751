//! Savepoints: a transaction can undo its latest changes and go on.
//!
//! # What a rollback to a savepoint does
//!
//! * *Values.* Later changes are undone, the latest first, under locks that stay.
//! * *Redo* is truncated to its former length, as long as none of it is in the log. A part that is
//!   in the log stays there. In that case further changes follow it, each giving a key its former
//!   value. Restart applies the parts of a transaction in order, so it reaches the same result.
//! * *Records* inserted since then stay as ghosts, which no other transaction can read, because
//!   this one holds their keys exclusively. They are removed when the transaction ends, and not
//!   before: the name of such a key may be the only lock on the gap before it, which we have read
//!   since. Those of paged tables are listed for a purge at once, which comes after the end, too.

use std::ops::Range;

use foxton_store::memory::Record;

use super::bound::BoundTxn;
use super::changes::{ChangeCounts, GhostIf, SavepointMark};
use super::context::WorkerContext;
use super::txn::{PendingUndo, Txn};
use crate::error::{Request, Result};
use crate::types::savepoint::Savepoint;

impl BoundTxn {
    /// Takes a savepoint.
    pub(crate) fn savepoint(&mut self) -> Result<Savepoint> {
        self.check_active()?;
        self.settle_all();
        self.txn.changes.savepoints.taken += 1;
        let mark = self.txn.changes.mark();
        self.txn.changes.savepoints.open.push(mark);
        Ok(Savepoint {
            number: mark.number,
            ..self.savepoint_zero()
        })
    }

    /// Returns the part that all savepoints of this transaction have in common.
    fn savepoint_zero(&self) -> Savepoint {
        Savepoint {
            database: std::sync::Arc::as_ptr(&self.ctx.engine).addr(),
            owner: self.ctx.owner.id(),
            number: 0,
        }
    }

    /// Returns the index of a savepoint among those that are open.
    fn find(&mut self, savepoint: &Savepoint) -> Result<usize> {
        self.check_active()?;
        let zero = self.savepoint_zero();
        let ours = (savepoint.database, savepoint.owner) == (zero.database, zero.owner);
        let open = &self.txn.changes.savepoints.open;
        let found = open.binary_search_by_key(&savepoint.number, |mark| mark.number);
        match found {
            Ok(at) if ours => Ok(at),
            _ => Err(Request::NoSuchSavepoint.into()),
        }
    }

    /// Forgets a savepoint and those after it; later changes stay.
    pub(crate) fn release_savepoint(&mut self, savepoint: &Savepoint) -> Result<()> {
        let at = self.find(savepoint)?;
        self.settle_all();
        self.txn.changes.savepoints.open.truncate(at);
        Ok(())
    }

    /// Undoes all changes since a savepoint, and forgets the savepoints after it.
    pub(crate) fn roll_back_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        let (from, log) = self.begin_roll_back_to(savepoint)?;
        while !self.roll_back_to_some(from, log, usize::MAX)? {
            self.sleep_for_undo();
        }
        self.check_pages()
    }

    /// Completes the undo that is pending; the thread sleeps while pages are missing.
    fn settle_all(&mut self) {
        while !self.settle_some(usize::MAX) {
            self.sleep_for_undo();
        }
    }

    /// As [`roll_back_to`](Self::roll_back_to); the task yields in between. If the future is
    /// dropped, the next operation completes it.
    pub(crate) async fn roll_back_to_async(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.settle().await?;
        self.spend(1).await;
        match self.begin_roll_back_to(savepoint) {
            Ok((from, log)) => self.txn.pending = PendingUndo::Savepoint { from, log },
            Err(error) => {
                self.settle().await?;
                return Err(error);
            }
        }
        self.settle().await
    }

    /// Forgets the savepoints after `savepoint`. Returns the first change to be undone, and whether
    /// the values put back have to be logged.
    fn begin_roll_back_to(&mut self, savepoint: &Savepoint) -> Result<(ChangeCounts, bool)> {
        let at = self.find(savepoint)?;
        let changes = &mut self.txn.changes;
        changes.savepoints.open.truncate(at + 1);
        let mark = changes.savepoints.open[at];
        Ok(self.begin_roll_back_to_mark(mark))
    }

    /// Undoes all changes since `mark`, which the current operation has made. In a task that is
    /// pending afterwards.
    pub(super) fn undo_operation(&mut self, mark: SavepointMark) {
        if self.txn.changes.counts() != mark.changes {
            let (from, log) = self.begin_roll_back_to_mark(mark);
            self.txn.pending = PendingUndo::Savepoint { from, log };
            if !self.ctx.budget.is_of_task() {
                self.settle_all();
            }
        }
    }

    /// Returns the first change to be undone, and whether the values put back have to be logged.
    fn begin_roll_back_to_mark(&mut self, mark: SavepointMark) -> (ChangeCounts, bool) {
        let changes = &mut self.txn.changes;
        let redo_is_ours = mark.parts == changes.parts;
        if redo_is_ours {
            changes.redo.truncate(mark.redo);
        }
        changes.swept = mark.changes.resident;
        changes.counted = mark.counted;
        (mark.changes, !redo_is_ours)
    }

    /// Visits at most so many changes of a rollback to a savepoint; returns true at its end.
    pub(super) fn roll_back_to_some(
        &mut self,
        from: ChangeCounts,
        log: bool,
        most: usize,
    ) -> Result<bool> {
        let mut rest = most;
        let mut logged = self.undo_since(from, log, &mut rest);
        let count = self.txn.changes.undo.len();
        if logged.is_err() {
            // All of it is undone, even so.
            while !self.txn.changes.is_undone(from) {
                let again = self.undo_since(from, false, &mut { usize::MAX });
                logged = logged.and(again);
                self.sleep_for_undo();
            }
        }
        if !self.txn.changes.is_undone(from) {
            return logged.map(|()| false);
        }
        let swept = self.txn.changes.swept;
        let end = count.min(swept.saturating_add(if logged.is_err() { count } else { rest }));
        self.record_ghosts(swept..end);
        self.txn.changes.swept = end;
        if end == count {
            self.txn.changes.truncate(from.resident);
            self.txn.pending = PendingUndo::Nothing;
        }
        logged.map(|()| end == count)
    }

    /// Records the keys that some undone changes have left without a value.
    fn record_ghosts(&mut self, undone: Range<usize>) {
        let BoundTxn {
            ctx: WorkerContext { worker, tables, .. },
            txn: Txn { changes, .. },
            ..
        } = self;
        let guard = worker.pin();
        for undo in &changes.undo[undone] {
            if undo.ghost_if == GhostIf::RolledBack {
                let key = changes.key(undo);
                let rows = tables[undo.table].table.resident();
                if rows.get(&guard, key).is_some_and(Record::is_ghost) {
                    changes.left.insert((undo.table, key.into()));
                }
            }
        }
    }
}
