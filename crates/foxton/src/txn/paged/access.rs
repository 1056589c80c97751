//! Access to one tree in one attempt, and the waits between attempts.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use foxton_store::paged::btree::{PagedTree, ScanToken, TreeAttempt, TreeError, TreeVisit};
use foxton_store::paged::pool::PageHint;
use foxton_store::paged::recovery::{PageTransaction, UndoPosition};
use foxton_store::paged::row_versions::VersionRecorder;
use foxton_sync::worker::Worker;

use crate::catalog::table_store::TableStore;
use crate::engine::page_store::{OpenPages, tree_number};
use crate::engine::page_waits::{PageNeed, PageSupply, Waited};
use crate::error::{Result, Storage};
use crate::txn::attempt::{AttemptResult, done};
use crate::txn::bound::BoundTxn;
use crate::txn::context::{CachedTable, WorkerContext};
use crate::txn::page_wait::PageWait;
use crate::txn::paged::free_values::examine_marked;

/// Why a paged table has a tree.
const OPENED: &str = "the operation has opened the tree";
/// Why a database with a paged table has a page store.
const MADE: &str = "a paged table is made after the page store";

/// A tree, as one attempt uses it.
pub(super) struct PageAccess<'a> {
    pub(super) pages: &'a OpenPages,
    tree: &'a Arc<PagedTree>,
    worker: &'a Worker,
    wait: &'a Cell<Option<PageWait>>,
    /// The leaf where this worker has been.
    leaf: &'a Cell<Option<PageHint>>,
    visit: Option<TreeVisit<'a>>,
    /// The transaction that logs changes of rows, until a visit has it.
    transaction: Option<&'a mut PageTransaction>,
    /// Keeps the states that changes of rows replace. A visit takes it.
    recorder: Option<VersionRecorder<'a>>,
}

impl<'a> PageAccess<'a> {
    /// Begins to use `tree`, with the pages for which the last attempt has waited.
    #[inline(always)]
    pub(super) fn new(
        pages: &'a OpenPages,
        tree: &'a Arc<PagedTree>,
        worker: &'a Worker,
        (wait, leaf): (&'a Cell<Option<PageWait>>, &'a Cell<Option<PageHint>>),
    ) -> PageAccess<'a> {
        let visit = match wait.take() {
            Some(PageWait::Done(visit)) if visit.is_of(tree) => Some(visit.attach(tree, worker)),
            _ => None,
        };
        PageAccess {
            pages,
            tree,
            worker,
            wait,
            leaf,
            visit,
            transaction: None,
            recorder: None,
        }
    }

    /// Makes changes of rows changes of `transaction`, which logs them, if there is a log. The
    /// `recorder` keeps the states that they replace; without locking there is none.
    #[inline]
    pub(super) fn log_to(
        mut self,
        transaction: &'a mut PageTransaction,
        recorder: Option<VersionRecorder<'a>>,
    ) -> PageAccess<'a> {
        self.transaction = self.pages.recovery().is_some().then_some(transaction);
        self.recorder = recorder;
        if let Some(visit) = &mut self.visit {
            attach(visit, &mut self.transaction, &mut self.recorder);
        }
        self
    }

    /// Begins to use the tree of a table, which was opened.
    #[inline(always)]
    pub(super) fn of_table(
        pages: Option<&'a OpenPages>,
        cached: &'a CachedTable,
        worker: &'a Worker,
        wait: &'a mut Option<PageWait>,
    ) -> PageAccess<'a> {
        PageAccess::of_one(pages, cached, worker, Cell::from_mut(wait))
    }

    /// As [`of_table`](Self::of_table), of one of two tables that an attempt uses. The access that
    /// is made first takes the pages for which the last attempt has waited, if they are its
    /// table's.
    #[inline(always)]
    pub(super) fn of_one(
        pages: Option<&'a OpenPages>,
        cached: &'a CachedTable,
        worker: &'a Worker,
        wait: &'a Cell<Option<PageWait>>,
    ) -> PageAccess<'a> {
        let tree = match &cached.table.store {
            TableStore::Paged(rows) => rows.tree.get(),
            TableStore::Resident(_) => None,
        };
        let (pages, tree) = (pages.expect(MADE), tree.expect(OPENED));
        PageAccess::new(pages, tree, worker, (wait, &cached.leaf))
    }

    /// Makes an attempt of a visit. If it lacks something, so does the caller's attempt.
    pub(super) fn attempt<T>(
        &mut self,
        attempt: impl FnOnce(&mut TreeVisit<'a>) -> Result<TreeAttempt<T>, TreeError>,
    ) -> Result<AttemptResult<T>> {
        let visit = self.visit.get_or_insert_with(|| {
            let visit = self.tree.visit(self.worker);
            visit.beginning_at(self.leaf.get())
        });
        attach(visit, &mut self.transaction, &mut self.recorder);
        match attempt(visit) {
            Ok(TreeAttempt::Done(result)) => {
                self.leaf.set(visit.leaf());
                self.pages.pool().count_lookup(self.worker);
                Ok(AttemptResult::Done(result))
            }
            Ok(TreeAttempt::Wait) => {
                self.detach();
                Ok(AttemptResult::Wait)
            }
            // The caller looks for the table or the index anew.
            Err(TreeError::Dropped { .. }) => {
                self.visit = None;
                Ok(AttemptResult::Pause)
            }
            Err(error) => {
                self.visit = None;
                Err(self.pages.failed(&error))
            }
        }
    }

    /// Keeps the visit for a wait.
    #[cold]
    fn detach(&mut self) {
        let visit = self.visit.take().map(|visit| visit.detach(self.tree));
        let wait = visit.map(PageNeed::Pages).map(PageWait::needed);
        self.wait.set(wait);
    }

    /// Returns the position in the log of a change that was just made; `None` without a log.
    pub(super) fn last_change(&self) -> Option<UndoPosition> {
        self.visit.as_ref().and_then(TreeVisit::last_change)
    }

    /// Returns the leaves that the last attempt has read.
    pub(super) fn token(&self) -> ScanToken {
        let visit = self.visit.as_ref();
        visit.map_or_else(ScanToken::default, |visit| visit.token().clone())
    }

    /// True if, just now, no key has come or gone where the read of `token` went. False means
    /// nothing.
    pub(super) fn is_unchanged(&self, token: &ScanToken) -> bool {
        self.tree.is_unchanged(token)
    }
}

/// Gives a visit what changes of rows are made with.
#[inline]
fn attach<'a>(
    visit: &mut TreeVisit<'a>,
    transaction: &mut Option<&'a mut PageTransaction>,
    recorder: &mut Option<VersionRecorder<'a>>,
) {
    if let Some(transaction) = transaction.take() {
        visit.log_to(transaction);
    }
    if let Some(recorder) = recorder.take() {
        visit.record_versions(recorder);
    }
}

impl BoundTxn {
    /// Opens the tree of a paged table, or makes it. Every operation on the table begins here.
    #[inline]
    pub(super) fn open_tree(&mut self, index: usize) -> Result<AttemptResult<()>> {
        self.txn.uses_pages = true;
        match &self.ctx.tables[index].table.store {
            TableStore::Paged(rows) if rows.tree.get().is_none() => self.make_tree(index),
            _ => Ok(AttemptResult::Done(())),
        }
    }

    #[cold]
    fn make_tree(&mut self, index: usize) -> Result<AttemptResult<()>> {
        let WorkerContext {
            engine,
            worker,
            tables,
            page_wait,
            ..
        } = &mut self.ctx;
        let table = &tables[index].table;
        if tables[index].is_former() {
            return Ok(AttemptResult::Pause);
        }
        let pages = engine.pages().expect(MADE);
        let TableStore::Paged(rows) = &table.store else {
            return Ok(AttemptResult::Done(()));
        };
        let (directory, number) = (&pages.directory, tree_number(table));
        let (wait, leaf) = (Cell::from_mut(page_wait), Cell::default());
        let mut access = PageAccess::new(pages, directory.tree(), worker, (wait, &leaf));
        let found = done!(access.attempt(|visit| directory.attempt_open(visit, number)));
        let tree = match found {
            Some(tree) => tree,
            // The tree of an index is made before the index.
            None if pages.is_read_only() || table.of.is_some() => {
                let place = "rows".to_owned();
                let what = format!("\"{}\" is not in the directory of trees", table.record.name);
                return Err(Storage::Damaged { place, what }.into());
            }
            None => {
                done!(access.attempt(|visit| directory.attempt_create(visit, number)))
            }
        };
        // If another thread was faster, its tree is the same.
        let _ = rows.tree.set(Arc::new(tree));
        // Marks may be left from before the database was opened.
        examine_marked(engine, worker, Vec::new());
        Ok(AttemptResult::Done(()))
    }

    /// Refuses a transaction that has used pages, after a failure of the pages.
    pub(in crate::txn) fn check_pages(&self) -> Result<()> {
        let pages = self.ctx.engine.pages().filter(|_| self.txn.uses_pages);
        pages.map_or(Ok(()), OpenPages::check)
    }

    /// Waits for what the last attempt needed; the thread sleeps.
    pub(in crate::txn) fn sleep_for_pages(&mut self) -> Result<()> {
        let Some(PageWait::Needed(need)) = self.ctx.page_wait.take() else {
            return Ok(());
        };
        self.ctx.block();
        let waited = need.wait(&self.ctx.worker);
        self.ctx.unblock();
        self.waited_for_pages(waited)
    }

    /// Waits for what the last attempt needed; the task yields. If the future is dropped, the next
    /// operation forgets the wait.
    pub(in crate::txn) async fn yield_for_pages(&mut self) -> Result<()> {
        match (self.ctx.page_wait.take(), self.ctx.engine.pages()) {
            (Some(PageWait::Needed(need)), Some(pages)) => {
                let submitted = pages.waits.submit(&self.ctx.worker, *need);
                self.ctx.page_wait = Some(PageWait::Submitted(submitted));
                self.ctx.block();
                poll_fn(|context| self.poll_pages(context)).await
            }
            _ => Ok(()),
        }
    }

    fn poll_pages(&mut self, context: &Context<'_>) -> Poll<Result<()>> {
        self.check_process()?;
        let Some(PageWait::Submitted(wait)) = &self.ctx.page_wait else {
            return Poll::Ready(Ok(()));
        };
        let waited = ready!(wait.poll(context));
        self.ctx.page_wait = None;
        self.ctx.unblock();
        Poll::Ready(waited.map_or(Ok(()), |waited| self.waited_for_pages(waited)))
    }

    fn waited_for_pages(&mut self, waited: Waited) -> Result<()> {
        match waited {
            Ok(PageSupply::Pages(visit)) => {
                self.ctx.page_wait = Some(PageWait::Done(Box::new(visit)));
                Ok(())
            }
            Ok(PageSupply::Undo(cursor, batch)) => {
                let tables = &self.ctx.tables;
                let table_of = |number| {
                    let is_it = |cached: &CachedTable| tree_number(&cached.table) == number;
                    tables.iter().position(is_it)
                };
                let paged = &mut self.txn.changes.paged;
                match paged.add_older(cursor, &batch, table_of) {
                    true => Ok(()),
                    false => {
                        let place = "log".to_owned();
                        let what = "undo of a change of a row".to_owned();
                        Err(Storage::Damaged { place, what }.into())
                    }
                }
            }
            Err(error) => {
                let pages = self.ctx.engine.pages().expect(MADE);
                Err(pages.wait_failed(error))
            }
        }
    }

    /// Waits for what undo needs, if it does; the thread sleeps. If that cannot be had, no
    /// transaction that has used pages commits any more, and the undo goes on without them.
    pub(in crate::txn) fn sleep_for_undo(&mut self) {
        if let Err(error) = self.sleep_for_pages() {
            self.fail_undo(&error);
        }
    }

    /// As [`sleep_for_undo`](Self::sleep_for_undo), for a task, which yields in any case.
    pub(in crate::txn) async fn yield_for_undo(&mut self) {
        if self.ctx.page_wait.is_none() {
            return self.pause().await;
        }
        if let Err(error) = self.yield_for_pages().await {
            self.fail_undo(&error);
        }
    }

    /// Ends the records of changes of pages, once all of them are undone. After a failure they have
    /// no end: restart undoes what is left.
    pub(in crate::txn) fn end_page_transaction(&mut self) {
        let transaction = &mut self.txn.page_transaction;
        if let Some((begin, _)) = transaction.range() {
            let transaction = std::mem::take(transaction);
            if let Some(pages) = self.ctx.engine.pages() {
                pages.end_undone(&self.ctx.worker, transaction);
            }
            self.ctx.page_writer.clear();
            if let Some(logged) = self.ctx.engine.logged() {
                logged.end_page_writer(begin);
            }
        }
    }

    /// Records that a change cannot be undone.
    #[cold]
    pub(super) fn fail_undo(&self, error: &dyn std::fmt::Display) {
        if let Some(pages) = self.ctx.engine.pages() {
            pages.fail(&format_args!("a change could not be undone: {error}"));
        }
    }
}
