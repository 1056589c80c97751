//! Undo of changes of paged tables: flags and values, where the row is.
//!
//! It always finds its space. A row keeps the space of its longest value, and only a purge removes
//! a row. The purge needs the lock that the transaction holds. So undo splits no page and
//! allocates none. It may have to wait for the page of the row. Each undone change logs one
//! compensation, so that a restart does not undo it again.

use foxton_store::paged::page_log::{PageEntry, RowUndo};

use super::access::PageAccess;
use crate::engine::page_store::tree_number;
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
        let cached = &tables[undo.table];
        let mut access = PageAccess::of_table(engine.pages(), cached, worker, page_wait);
        let PagedUndo { before, position } = &changes.paged[undo.paged as usize - 1];
        let undone = RowUndo {
            table: tree_number(&cached.table),
            key: changes.key(undo),
            before: before.as_row(),
        };
        let (pages, transaction) = (access.pages, &mut self.txn.page_transaction);
        let mut failed = None;
        let mut log = |entry: &PageEntry<'_>| {
            let logged = pages.log_undo(worker, transaction, *position, entry);
            logged.map_err(|error| failed = Some(error)).ok()
        };
        done!(access.attempt(|visit| visit.undo(&undone, &mut log)));
        match failed {
            Some(error) => Err(engine.write_failed(error)),
            None => Ok(AttemptResult::Done(())),
        }
    }
}
