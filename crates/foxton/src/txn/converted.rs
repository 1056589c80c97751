//! Tables and indexes that were converted while an operation waited for them, or before a worker
//! used them again.
//!
//! A worker caches the tables that it has used. An operation locks its table and then reads whether
//! the table still has its rows (`catalog::conversions`, I3). If its twin has them, the attempt
//! ends and the lock is released. The cache gets the twin in the table's place, and the operation
//! is attempted again. The same holds for an index, whose entries were made anew.
//!
//! A table that was dropped meanwhile ends the transaction, which may be run again: an operation is
//! prepared for an absent table or for one that exists. The next transaction of the worker forgets
//! the tables that the worker has used, so it never meets one that was dropped before it began.
//!
//! A transaction that has locked a table keeps it from being converted. So one that has changes or
//! undo of a table never finds that the table was converted.

use std::cell::Cell;
use std::sync::Arc;

use foxton_lock::manager::LockManager;
use foxton_lock::name::Name;

use super::bound::BoundTxn;
use super::context::WorkerContext;
use super::index_read::table_of;
use crate::catalog::{Catalog, OpenIndex, OpenTable};
use crate::error::{ComponentMismatch, Conflict, Request, Result};

impl BoundTxn {
    /// Replaces cached tables whose twins have the rows by these.
    ///
    /// # Errors
    /// `table_component`, if the program has declared such a table as what it no longer is.
    #[cold]
    pub(super) fn find_converted(&mut self) -> Result<()> {
        for index in 0..self.ctx.tables.len() {
            self.ctx.replace_converted(index)?;
        }
        Ok(())
    }

    /// Replaces a cached index that was dropped by the index of the same declaration, if there is
    /// one. Returns true if there is.
    #[cold]
    pub(super) fn reopen_index(&mut self, by: usize) -> bool {
        let old = self.ctx.index_lookups[by].index.clone();
        if !old.is_dropped() {
            return false;
        }
        let catalog = &self.ctx.engine.catalog;
        let Ok(open) = catalog.open_index(&self.ctx.worker, &old.record) else {
            return false;
        };
        let table = table_of(&old.entries);
        if table.is_former() {
            self.ctx.release_table(old.entries.record.id);
            self.ctx.release_table(table.record.id);
        }
        let places = self.ctx.index_places(&open);
        let cached = self.ctx.index_lookups.get_mut(by);
        (cached.index, cached.places) = (open, places);
        // Its row is in the other component.
        self.txn.scan.entry.is_set = false;
        true
    }
}

impl WorkerContext {
    fn replace_converted(&mut self, index: usize) -> Result<()> {
        let cached = &self.tables[index];
        if !cached.is_former() {
            return Ok(());
        }
        let id = cached.table.record.id;
        self.release_table(id);
        let cached = &self.tables[index];
        let name = &cached.table.record.name;
        let found = Catalog::find(&self.engine.catalog, name);
        let is_other = |new: &Arc<OpenTable>| {
            let catalog = &self.engine.catalog;
            catalog.origin(new) != catalog.origin(&cached.table)
        };
        // The next transaction looks for it anew, and so for one that was made since.
        let Some(new) = found.filter(|new| !is_other(new)) else {
            return Err(Conflict::TABLE_DROPPED.into());
        };
        let stored = new.record.component;
        if let Some(used) = cached.component.filter(|used| *used != stored) {
            return Err(Request::TableComponent(Box::new(ComponentMismatch {
                table: name.clone(),
                stored,
                used,
            }))
            .into());
        }
        self.ghosts.retain(|(table, _)| *table != index);
        self.paged_ghosts.retain(|ghost| ghost.table != index);
        self.hint = Default::default();
        let cached = self.tables.get_mut(index);
        cached.table = new;
        cached.indexes = None;
        cached.leaf = Cell::default();
        Ok(())
    }

    /// Releases a table or an index that the transaction has locked and cannot use. So a conversion
    /// back does not wait for the end of the transaction, which may wait for that conversion.
    fn release_table(&mut self, id: u32) {
        let WorkerContext {
            engine,
            worker,
            owner,
            ..
        } = self;
        let name = Name::table(id);
        if owner.held_mode(name).is_some() {
            engine.locks.release(worker, owner, name);
        }
    }

    /// Returns the places of the entries of a paged index, and of its table, among the cached
    /// tables; `None` for an index in memory.
    pub(super) fn index_places(&mut self, open: &OpenIndex) -> Option<[usize; 2]> {
        open.entries.is_paged().then(|| {
            let tables = [&open.entries, table_of(&open.entries)];
            tables.map(|table| self.cached_entries(table.clone()))
        })
    }
}
