//! Undo of changes of paged tables: flags and values, where the row is.
//!
//! It always finds its space. A row keeps the space of its longest value, and only a purge removes
//! a row. The purge needs the lock that the transaction holds. So undo splits no page and
//! allocates none. It may have to wait for the page of the row.

use foxton_store::paged::page::RowFlags;

use super::access::PageAccess;
use crate::error::Result;
use crate::txn::attempt::{AttemptResult, done};
use crate::txn::bound::BoundTxn;
use crate::txn::changes::PagedUndo;
use crate::txn::context::WorkerContext;

impl BoundTxn {
    /// Undoes a change of a paged table. Returns false if it waits for a page. After a failure of
    /// the pages it does nothing: no transaction commits that could see the change.
    pub(in crate::txn) fn undo_paged(&mut self, index: usize) -> bool {
        if self
            .ctx
            .engine
            .pages()
            .is_none_or(|pages| pages.has_failed())
        {
            return true;
        }
        match self.try_undo_paged(index) {
            Ok(AttemptResult::Done(())) => true,
            Ok(AttemptResult::Wait | AttemptResult::Pause) => false,
            Err(error) => {
                self.fail_undo(&error);
                true
            }
        }
    }

    fn try_undo_paged(&mut self, index: usize) -> Result<AttemptResult<()>> {
        let changes = &self.txn.changes;
        let undo = &changes.undo[index];
        let WorkerContext {
            engine,
            worker,
            tables,
            page_wait,
            ..
        } = &mut self.ctx;
        let table = &tables[undo.table];
        let mut access = PageAccess::of_table(engine.pages(), table, worker, page_wait);
        let key = changes.key(undo);
        let (flags, old) = match &changes.paged[undo.paged as usize - 1] {
            PagedUndo::Insert => (Some(RowFlags::GHOST), None),
            PagedUndo::Delete => (Some(RowFlags::NONE), None),
            PagedUndo::Update(old) => (None, Some(old)),
            // A ghost first, so that no transaction without locks sees the value of a ghost.
            PagedUndo::Revive(old) => (Some(RowFlags::GHOST), Some(old)),
        };
        if let Some(flags) = flags {
            done!(access.attempt(|visit| visit.set_flags(key, flags)));
        }
        if let Some(old) = old {
            done!(access.attempt(|visit| visit.update(key, old)));
        }
        Ok(AttemptResult::Done(()))
    }
}
