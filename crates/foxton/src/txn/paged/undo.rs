//! Undo of changes of paged tables: flags and values, where the row is.
//!
//! It always finds its space. A row keeps the space of its longest value, and only a purge removes
//! a row. The purge needs the lock that the transaction holds. So undo splits no page and
//! allocates none. It may have to wait for the page of the row, or for undo that is in the log
//! only ([`paged_changes`](crate::txn::paged_changes)). Each undone change logs one compensation,
//! so that a restart does not undo it again.

use foxton_store::paged::page_log::PageEntry;

use super::access::PageAccess;
use crate::error::{Result, Storage};
use crate::txn::attempt::{AttemptResult, done};
use crate::txn::bound::BoundTxn;
use crate::txn::context::WorkerContext;
use crate::txn::ghosts::list_paged_ghost;
use crate::txn::page_wait::PageWait;
use crate::txn::paged_changes::{BATCH_BYTES, NextUndo, is_delete, leaves_ghost};
use crate::txn::txn::Txn;

impl BoundTxn {
    /// Undoes the last change of a paged table, if there are more than `down_to`. Returns false if
    /// it waits for a page or for the log. After a failure of the pages it undoes nothing: no
    /// transaction commits that could see the changes.
    pub(in crate::txn) fn undo_paged(&mut self, down_to: usize, in_order: bool) -> bool {
        let pages = self.ctx.engine.pages();
        if pages.is_none_or(|pages| pages.has_failed()) {
            self.txn.changes.paged.give_up(down_to);
            return true;
        }
        match self.try_undo_paged(down_to, in_order) {
            Ok(AttemptResult::Done(())) => {
                self.note_log();
                true
            }
            Ok(AttemptResult::Wait | AttemptResult::Pause) => false,
            Err(error) => {
                self.fail_undo(&error);
                true
            }
        }
    }

    fn try_undo_paged(&mut self, down_to: usize, in_order: bool) -> Result<AttemptResult<()>> {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    tables,
                    page_wait,
                    paged_ghosts,
                    ..
                },
            txn:
                Txn {
                    changes,
                    page_transaction,
                    ..
                },
            ..
        } = self;
        let (at, table, undo, position) = match changes.paged.next_undo(down_to, in_order) {
            None => return Ok(AttemptResult::Done(())),
            Some(NextUndo::Recent {
                at,
                table,
                undo,
                position,
            }) => (at, table, undo, position),
            Some(NextUndo::InLog(cursor)) => {
                let read = engine
                    .pages()
                    .and_then(|pages| pages.undo_read(cursor, BATCH_BYTES));
                *page_wait = read.map(PageWait::needed);
                return Ok(AttemptResult::Wait);
            }
            Some(NextUndo::Missing) => {
                let place = "log".to_owned();
                let what = "a change of the transaction is missing".to_owned();
                return Err(Storage::Damaged { place, what }.into());
            }
        };
        let mut access = PageAccess::of_table(engine.pages(), &tables[table], worker, page_wait);
        let pages = access.pages;
        let mut failed = None;
        let mut log = |entry: &PageEntry<'_>| {
            let logged = pages.log_undo(worker, page_transaction, position, entry);
            logged.map_err(|error| failed = Some(error)).ok()
        };
        done!(access.attempt(|visit| visit.undo(&undo, &mut log)));
        if let Some(error) = failed {
            return Err(engine.write_failed(error));
        }
        if leaves_ghost(undo.before) {
            list_paged_ghost(paged_ghosts, table, undo.key);
        }
        changes.paged.undone(at);
        Ok(AttemptResult::Done(()))
    }

    /// Records that the transaction has changed pages, if it has. Requests the checkpoint that is
    /// due, if the transaction's log has made it due.
    #[inline]
    pub(super) fn note_log(&mut self) {
        let WorkerContext {
            engine,
            worker,
            owner,
            page_writer,
            ..
        } = &mut self.ctx;
        let Txn {
            page_transaction,
            credit,
            ..
        } = &mut self.txn;
        if let (Some((begin, end)), Some(logged)) = (page_transaction.range(), engine.logged()) {
            page_writer.set(worker, &logged.page_writers, owner, begin);
            logged.checkpoints.note_open(worker, credit, end);
        }
    }

    /// Forgets the oldest undo in memory, which the log has too. Ghosts that its changes have left
    /// are listed for a purge.
    #[cold]
    pub(super) fn forget_undo(&mut self) {
        let BoundTxn {
            ctx: WorkerContext { paged_ghosts, .. },
            txn:
                Txn {
                    changes,
                    page_transaction,
                    ..
                },
            ..
        } = self;
        changes.paged.forget(page_transaction, |table, undo| {
            if is_delete(undo.before) {
                list_paged_ghost(paged_ghosts, table, undo.key);
            }
        });
    }
}
