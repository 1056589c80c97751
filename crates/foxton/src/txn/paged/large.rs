//! Large values: read in parts, and stored in parts before the row is written.
//!
//! # Protocol
//!
//! A transaction locks the *name of a value* exclusively before it marks it, and keeps that lock
//! until it ends. It marks a new value before it stores the first part, and the value of a row
//! before it replaces or deletes that. The row is written last. Parts and marks are not undone.
//! Once the lock is free again, the row says whether the value is [in use](super::free_values).
//!
//! A reader has the lock of the row, so the value stays in use while it reads the parts.
//!
//! # Attempts
//!
//! A value has more parts than an attempt may keep pages. So the context keeps what was read or
//! stored already, and the next attempt goes on there. It begins with the parts and not with the
//! row: an attempt keeps the pages of one tree, and so those of row and parts could evict each
//! other for ever.

use std::cell::Cell;
use std::sync::Arc;

use foxton_store::paged::btree::PagedTree;
use foxton_store::paged::values::{
    LargeValue, MarkedRow, VALUES, mark_key, max_part_bytes, part_key,
};

use super::access::PageAccess;
use crate::engine::large_values::LARGE_VALUES;
use crate::engine::page_store::tree_number;
use crate::error::Result;
use crate::txn::attempt::{AttemptResult, done};
use crate::txn::bound::BoundTxn;
use crate::txn::large_state::{LargeWrite, damaged, value_name};
use crate::txn::table_locks::TableLocks;
use crate::txn::work_budget::BYTES_PER_UNIT;
use crate::txn::write::KEY;
use crate::types::lock_options::LockWait;

impl BoundTxn {
    /// Forgets large values of an earlier operation.
    #[inline]
    pub(crate) fn forget_large(&mut self) {
        if self.ctx.large.is_some() {
            self.ctx.large = None;
        }
    }

    /// Reads what is left of the large value that the last attempt has found, if it has.
    pub(super) fn read_large(&mut self) -> Result<AttemptResult<()>> {
        let ctx = &mut self.ctx;
        let Some(read) = ctx.large.as_mut().and_then(|large| large.read.as_mut()) else {
            return Ok(AttemptResult::Done(()));
        };
        let pages = ctx.engine.pages().expect("a row has come from them");
        let Some(tree) = pages.values.tree.get() else {
            read.is_gone = true;
            return Ok(AttemptResult::Done(()));
        };
        let most = read.value.bytes as usize;
        while !read.is_complete() && !read.is_gone {
            if ctx.budget.is_spent() {
                return Ok(AttemptResult::Pause);
            }
            let leaf = (Cell::from_mut(&mut ctx.page_wait), &ctx.values_leaf);
            let mut access = PageAccess::new(pages, tree, &ctx.worker, leaf);
            let (key, part) = (part_key(read.value.number, read.parts), &mut ctx.page_value);
            let found = done!(access.attempt(|visit| visit.get(&key, part)));
            ctx.budget.charge(1 + part.len() / BYTES_PER_UNIT);
            read.is_gone = found.is_none() || part.is_empty();
            read.bytes.extend_from_slice(part);
            read.parts += 1;
        }
        let is_right = || LargeValue::new(read.value.number, &read.bytes) == read.value;
        if !read.is_gone && (read.bytes.len() != most || !is_right()) {
            return Err(damaged(read.value, "length or checksum is wrong").into());
        }
        Ok(AttemptResult::Done(()))
    }

    /// Goes on with what an attempt has begun: marks the value that the row has, or stores the new
    /// one. A delete may use the last pages that are free, because it leads to free pages.
    pub(super) fn write_large(
        &mut self,
        index: usize,
        is_delete: bool,
    ) -> Result<AttemptResult<()>> {
        let Some(large) = self.ctx.large.as_deref() else {
            return Ok(AttemptResult::Done(()));
        };
        let new_is_due = large.new.as_ref().is_some_and(|new| !new.is_stored);
        if let Some((number, false)) = large.before {
            let tree = done!(self.values_tree());
            done!(self.lock_value(index, number));
            done!(self.store_mark(&tree, index, (number, is_delete)));
            self.ctx.large.get_or_insert_default().before = Some((number, true));
        }
        match new_is_due {
            true => self.store_large(index),
            false => Ok(AttemptResult::Done(())),
        }
    }

    /// Stores the value of the current operation, which is too long for a leaf.
    pub(super) fn store_large(&mut self, index: usize) -> Result<AttemptResult<()>> {
        let ctx = &mut self.ctx;
        let pages = ctx.engine.pages().expect("a paged table has them");
        ctx.worker.account().passed(&LARGE_VALUES);
        // Before anything can wait: the next attempt goes on here.
        let new = &mut ctx.large.get_or_insert_default().new;
        let new = new.get_or_insert_with(|| LargeWrite {
            value: LargeValue::new(pages.values.next_number(), &ctx.value),
            is_marked: false,
            parts: 0,
            is_stored: false,
        });
        let (value, is_marked) = (new.value, new.is_marked);
        let tree = done!(self.values_tree());
        if !is_marked {
            done!(self.lock_value(index, value.number));
            done!(self.store_mark(&tree, index, (value.number, false)));
        }
        let ctx = &mut self.ctx;
        let pages = ctx.engine.pages().expect("a paged table has them");
        let new = ctx.large.as_mut().and_then(|large| large.new.as_mut());
        let new = new.expect("it was just there");
        new.is_marked = true;
        let most = max_part_bytes(pages.pool().page_size());
        let parts = ctx.value.chunks(most).skip(new.parts as usize);
        for part in parts {
            if ctx.budget.is_spent() {
                return Ok(AttemptResult::Pause);
            }
            let leaf = (Cell::from_mut(&mut ctx.page_wait), &ctx.values_leaf);
            let mut access = PageAccess::new(pages, &tree, &ctx.worker, leaf);
            let key = part_key(value.number, new.parts);
            done!(access.attempt(|visit| visit.store(&key, part)));
            ctx.budget.charge(1 + part.len() / BYTES_PER_UNIT);
            new.parts += 1;
        }
        new.is_stored = true;
        Ok(AttemptResult::Done(()))
    }

    /// Stores the mark of a value. The transaction has its lock.
    fn store_mark(
        &mut self,
        tree: &Arc<PagedTree>,
        index: usize,
        (number, is_delete): (u64, bool),
    ) -> Result<AttemptResult<()>> {
        // First, because the mark may be stored although the attempt fails.
        if self.txn.marked_values.last() != Some(&number) {
            self.txn.marked_values.push(number);
        }
        let ctx = &mut self.ctx;
        let pages = ctx.engine.pages().expect("a paged table has them");
        let row = MarkedRow {
            table: tree_number(&ctx.tables[index].table),
            key: &ctx.key,
        };
        let leaf = (Cell::from_mut(&mut ctx.page_wait), &ctx.values_leaf);
        let mut access = PageAccess::new(pages, tree, &ctx.worker, leaf);
        let (key, row) = (mark_key(number), row.encode());
        done!(access.attempt(|visit| {
            if is_delete {
                visit.serve_removal();
            }
            visit.store(&key, &row)
        }));
        Ok(AttemptResult::Done(()))
    }

    fn lock_value(&mut self, index: usize, number: u64) -> Result<AttemptResult<()>> {
        let ctx = &mut self.ctx;
        let table = &*ctx.tables[index].table;
        let name = value_name(table.record.id, number, &ctx.engine.hasher);
        let owner = &mut ctx.owner;
        let mut locks = TableLocks::new(&ctx.engine, &ctx.worker, owner, table, LockWait::Default);
        locks.lock(name, KEY)
    }

    /// Returns the tree of large values, which is made if there is none.
    fn values_tree(&mut self) -> Result<AttemptResult<Arc<PagedTree>>> {
        let ctx = &mut self.ctx;
        let pages = ctx.engine.pages().expect("a paged table has them");
        if let Some(tree) = pages.values.tree.get() {
            return Ok(AttemptResult::Done(tree.clone()));
        }
        let directory = &pages.directory;
        let leaf = (Cell::from_mut(&mut ctx.page_wait), &ctx.values_leaf);
        let mut access = PageAccess::new(pages, directory.tree(), &ctx.worker, leaf);
        let tree = done!(access.attempt(|visit| directory.attempt_create(visit, VALUES)));
        // If another thread was faster, its tree is the same.
        let tree = pages.values.tree.get_or_init(|| Arc::new(tree)).clone();
        ctx.values_leaf.set(None);
        Ok(AttemptResult::Done(tree))
    }
}
