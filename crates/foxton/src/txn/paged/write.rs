//! Writes of one key of a paged table.
//!
//! # Protocol
//!
//! That of [`write`](crate::txn::write): X on the name of the key, and then the row where it is. If
//! there is no row, one is inserted before the next key `n`. That takes an insert intention on the
//! gap named `n`. The tree refuses the insert if `n` is not the next key any more. It compares
//! under the latch of the leaf, wherever `n` is stored.
//!
//! # Races
//!
//! * *The attempt is repeated* after each wait for a lock or a page, from its beginning. It finds
//!   its locks granted and reads the row again. Its own change is the last step that can wait.
//! * *The key is a ghost of another transaction.* Then X waits for it. Afterwards the ghost is
//!   there, or a purge has removed it and we insert.

use foxton_lock::name::Name;
use foxton_store::paged::btree::{InsertReply, NextKey, UpdateReply};
use foxton_store::paged::page::RowFlags;
use foxton_store::paged::page_log::{RowBefore, RowUndo};
use foxton_store::paged::recovery::UndoPosition;
use foxton_store::paged::values::LargeValue;

use super::access::PageAccess;
use super::overwritten::refuse_overwritten;
use crate::engine::page_store::tree_number;
use crate::error::{Request, Result};
use crate::testing::{failpoint, injected_fault};
use crate::txn::attempt::{AttemptResult, done};
use crate::txn::bound::BoundTxn;
use crate::txn::context::WorkerContext;
use crate::txn::insert::lock_gap;
use crate::txn::table_locks::TableLocks;
use crate::txn::txn::{OperationLocks, Txn};
use crate::txn::write::{KEY, Write};
use crate::types::lock_options::LockWait;

/// Result of an attempt to write a row.
enum RowWrite {
    /// It is written. True if the key had a value.
    Done(bool),
    /// The large value that the row has is to be marked first.
    Mark,
    /// The new value, which is large, is to be stored first.
    Store,
}

impl BoundTxn {
    /// As [`write_step`](Self::write_step), of a paged table.
    pub(in crate::txn) fn write_paged_step(
        &mut self,
        index: usize,
        write: Write,
    ) -> Result<AttemptResult<bool>> {
        done!(self.open_tree(index));
        if let Some(logged) = self.ctx.engine.logged() {
            logged.check_kept_log()?;
        }
        let written = self.try_write_paged(index, write);
        if self.txn.changes.paged.is_long() {
            self.forget_undo();
        }
        self.note_log();
        written
    }

    fn try_write_paged(&mut self, index: usize, write: Write) -> Result<AttemptResult<bool>> {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    ..
                },
            ..
        } = self;
        let table = &*tables[index].table;
        let mut locks = TableLocks::new(engine, worker, owner, table, LockWait::Default);
        done!(locks.lock_table_name(Name::table(table.record.id), KEY.parent_mode()));
        match table.kept.is_nothing() {
            true => self.write_whole_row(index, write),
            false => self.write_indexed_paged_step(index, write),
        }
    }

    /// Writes a row of a table that is locked and open, and large values that it has and gets.
    #[inline]
    pub(super) fn write_whole_row(
        &mut self,
        index: usize,
        write: Write,
    ) -> Result<AttemptResult<bool>> {
        loop {
            done!(self.write_large(index, write == Write::Delete));
            match done!(self.write_paged_row(index, write)) {
                RowWrite::Done(existed) => return Ok(AttemptResult::Done(existed)),
                RowWrite::Mark => {}
                RowWrite::Store => done!(self.store_large(index)),
            }
        }
    }

    /// Writes the row, unless a large value comes first.
    fn write_paged_row(&mut self, index: usize, write: Write) -> Result<AttemptResult<RowWrite>> {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    key,
                    value: new,
                    page_wait,
                    page_value,
                    large,
                    commit_slot,
                    ..
                },
            txn:
                Txn {
                    changes,
                    row_versions,
                    view,
                    page_transaction,
                    reads,
                    operation_locks: OperationLocks { fresh_gap, .. },
                    ..
                },
            ..
        } = self;
        let cached = &tables[index];
        let table = &*cached.table;
        let id = table.record.id;
        let access = PageAccess::of_table(engine.pages(), cached, worker, page_wait);
        let recorder = commit_slot.recorder(row_versions, index);
        let mut access = access.log_to(page_transaction, recorder);
        let mut locks = TableLocks::new(engine, worker, owner, table, LockWait::Default);
        let name = Name::key(id, key, &engine.hasher);
        let mut record = |before: RowBefore<'_>, position: Option<UndoPosition>| {
            let table = tree_number(table);
            changes
                .paged
                .record(index, &RowUndo { table, key, before }, position);
        };
        done!(locks.lock(name, injected_fault::write_mode(engine.faults(), KEY)));
        refuse_overwritten(*view, engine, table, key)?;
        let size = access.pages.pool().page_size();
        let is_stored = large.as_ref().is_some_and(|large| large.new.is_some());
        let is_short = |new: &[u8]| key.len() + new.len() <= size.max_row_bytes();
        loop {
            let found = match write {
                // Most often there is such a row, and one search is enough.
                Write::Put if !is_stored && is_short(new) => {
                    let updated =
                        access.attempt(|visit| visit.update_flagged(key, new, RowFlags::NONE));
                    match done!(updated) {
                        UpdateReply::Updated(old) => {
                            reads.record_paged(&access.pages.stamps, &name);
                            record(RowBefore::Value(&old), access.last_change());
                            return Ok(AttemptResult::Done(RowWrite::Done(true)));
                        }
                        UpdateReply::Other(found) => found,
                    }
                }
                _ => done!(access.attempt(|visit| visit.flags(key))),
            };
            // The result says whether the key had a value, so this is a read.
            reads.record_paged(&access.pages.stamps, &name);
            let is_there = found.is_some_and(|flags| !flags.has(RowFlags::GHOST));
            if is_there
                && write != Write::Insert
                && found.is_some_and(|flags| flags.has(RowFlags::OVERFLOW))
            {
                let _ = done!(access.attempt(|visit| visit.get(key, page_value)));
                let number = LargeValue::decode(page_value).map(|value| value.number);
                let before = &mut large.get_or_insert_default().before;
                if let Some(number) = number
                    && *before != Some((number, true))
                {
                    *before = Some((number, false));
                    return Ok(AttemptResult::Done(RowWrite::Mark));
                }
            }
            let stored = large.as_ref().and_then(|large| large.new.as_ref());
            let encoded = stored.map(|new| new.value.encode());
            let (new, flags) = match &encoded {
                Some(encoded) => (&encoded[..], RowFlags::OVERFLOW),
                None => (&new[..], RowFlags::NONE),
            };
            let is_too_long =
                write != Write::Delete && key.len() <= size.max_key_bytes() && !is_short(new);
            match (write, found) {
                (Write::Insert, _) if is_there => return Err(Request::KeyExists.into()),
                (Write::Delete, _) if !is_there => {
                    return Ok(AttemptResult::Done(RowWrite::Done(false)));
                }
                (Write::Delete, before) => {
                    let ghost = before.unwrap_or_default().with(RowFlags::GHOST);
                    let before = done!(access.attempt(|visit| visit.set_flags(key, ghost)));
                    record(
                        RowBefore::Flags(before.unwrap_or_default()),
                        access.last_change(),
                    );
                    return Ok(AttemptResult::Done(RowWrite::Done(true)));
                }
                _ if is_too_long => return Ok(AttemptResult::Done(RowWrite::Store)),
                (_, Some(before)) if before == flags => {
                    let old = done!(access.attempt(|visit| visit.update(key, new)));
                    let before = RowBefore::Value(old.as_deref().unwrap_or_default());
                    record(before, access.last_change());
                    return Ok(AttemptResult::Done(RowWrite::Done(true)));
                }
                // A ghost, or one of both values is large.
                (_, Some(_)) => {
                    let before = done!(access.attempt(|visit| visit.rewrite(key, new, flags)));
                    let (flags, old) = before.unwrap_or_default();
                    record(RowBefore::Row(flags, &old), access.last_change());
                    return Ok(AttemptResult::Done(RowWrite::Done(is_there)));
                }
                (_, None) => {}
            }
            let next = done!(access.attempt(|visit| visit.successor(key, false)));
            if locks.is_on() {
                let gap = match &next {
                    Some(next) => Name::key(id, next, &engine.hasher),
                    None => Name::end(id),
                };
                done!(lock_gap(engine, &mut locks, fresh_gap, name, (gap, None)));
            }
            worker.failpoints().pass(&failpoint::INSERTING);
            let next = next.as_deref().map_or(NextKey::End, NextKey::Key);
            let row = (new, flags);
            let reply = access.attempt(|visit| visit.insert_flagged(key, row, new.len(), next));
            if done!(reply) == InsertReply::Inserted {
                record(RowBefore::Absent, access.last_change());
                return Ok(AttemptResult::Done(RowWrite::Done(false)));
            }
        }
    }
}
