//! Bulk load of a tree that no other transaction uses: rows in the order of their keys.
//!
//! A [load](foxton_store::paged::btree::BulkLoad) is of no transaction and is not undone. Callers
//! know what becomes of a tree whose load was not finished.

use foxton_store::paged::btree::BulkLoad;
use foxton_store::paged::page::RowFlags;

use super::access::PageAccess;
use crate::error::{Request, Result};
use crate::txn::attempt::{AttemptResult, done};
use crate::txn::bound::BoundTxn;
use crate::txn::context::WorkerContext;

impl BoundTxn {
    /// Begins to load a table, given by its place among the cached ones. `None`: it has rows.
    pub(crate) fn begin_load_step(
        &mut self,
        place: usize,
    ) -> Result<AttemptResult<Option<BulkLoad>>> {
        done!(self.open_tree(place));
        self.access_alone(place).attempt(|visit| visit.begin_load())
    }

    /// Stores the full leaves of a load.
    pub(crate) fn load_step(
        &mut self,
        place: usize,
        load: &mut BulkLoad,
    ) -> Result<AttemptResult<()>> {
        let mut access = self.access_alone(place);
        while load.is_due() {
            done!(access.attempt(|visit| visit.append_leaf(load)));
        }
        Ok(AttemptResult::Done(()))
    }

    /// Stores all rows that were added to a load. Others may come.
    pub(crate) fn store_load_step(
        &mut self,
        place: usize,
        load: &mut BulkLoad,
    ) -> Result<AttemptResult<()>> {
        // One visit, because the next attempt continues with the pages that this one waits for.
        let mut access = self.access_alone(place);
        access.attempt(|visit| visit.store_last_leaf(load))
    }

    /// Adds the row of the current operation to a load, after its parts if it is a large one. The
    /// load is not due.
    pub(crate) fn add_to_load_step(
        &mut self,
        place: usize,
        load: &mut BulkLoad,
    ) -> Result<AttemptResult<()>> {
        let pages = self.ctx.engine.pages().expect("a paged table has them");
        let size = pages.pool().page_size();
        let (bytes, most) = (self.ctx.key.len(), size.max_key_bytes());
        if bytes > most {
            return Err(Request::RowTooLong { bytes, most }.into());
        }
        let (value, flags) = match bytes + self.ctx.value.len() <= size.max_row_bytes() {
            true => (std::mem::take(&mut self.ctx.value), RowFlags::NONE),
            false => {
                done!(self.store_large(place));
                let large = self.ctx.large.as_ref();
                let new = large.and_then(|large| large.new.as_ref());
                let new = new.expect("it was just stored");
                (new.value.encode().to_vec(), RowFlags::OVERFLOW)
            }
        };
        load.push(&self.ctx.key, value, flags);
        Ok(AttemptResult::Done(()))
    }

    /// Inserts an entry into an index that no other transaction can find yet. Returns the value of
    /// the entry that is in its place already, if there is one.
    pub(crate) fn add_entry_step(
        &mut self,
        place: usize,
        (key, value): (&[u8], &[u8]),
    ) -> Result<AttemptResult<Option<Vec<u8>>>> {
        let mut access = self.access_alone(place);
        if done!(access.attempt(|visit| visit.add_row(key, value))) {
            return Ok(AttemptResult::Done(None));
        }
        let mut there = Vec::new();
        done!(access.attempt(|visit| visit.get(key, &mut there)));
        Ok(AttemptResult::Done(Some(there)))
    }

    fn access_alone(&mut self, place: usize) -> PageAccess<'_> {
        let WorkerContext {
            engine,
            worker,
            tables,
            page_wait,
            ..
        } = &mut self.ctx;
        PageAccess::of_table(engine.pages(), &tables[place], worker, page_wait)
    }
}
