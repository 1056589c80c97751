//! Writes of one row of a paged table with indexes.
//!
//! The entries are rows of paged trees, so their changes are logged, undone and purged like those
//! of rows. The protocol is that of [`index_write`](crate::txn::index_write):
//!
//! 1. The table and the row are locked, and the changes are planned from the old and the new value.
//! 2. Each entry is locked. A new one is inserted, unless it has a ghost.
//! 3. The row is written.
//! 4. The other entries are changed: removed ones become ghosts, and ghosts get their values.
//!
//! # Waits
//!
//! Each step uses one tree at a time. The plan and how far it was carried out are kept between the
//! attempts. So an attempt continues with the tree whose pages the last one has waited for, and
//! repeats no change.
//!
//! # Refused writes
//!
//! A write may fail between its changes: a key is taken, a lock is refused, a page cannot be read,
//! a task drops it. Then the changes since its first one are undone, under their locks, as by a
//! rollback to a savepoint.
//!
//! # Large values
//!
//! Entries come from whole values. So a large value that the row has is read before the write is
//! planned.

use foxton_lock::name::Name;
use foxton_store::paged::btree::{InsertReply, NextKey};
use foxton_store::paged::page::RowFlags;
use foxton_store::paged::page_log::{RowBefore, RowUndo};

use super::access::PageAccess;
use super::overwritten::refuse_overwritten;
use crate::catalog::OpenTable;
use crate::engine::page_store::tree_number;
use crate::error::{IndexError, KeyTaken, Request, Result};
use crate::testing::injected_fault;
use crate::txn::attempt::{AttemptResult, done};
use crate::txn::bound::BoundTxn;
use crate::txn::context::WorkerContext;
use crate::txn::index_plan::{EntryChange, PlanProgress};
use crate::txn::insert::lock_gap;
use crate::txn::table_locks::TableLocks;
use crate::txn::txn::{OperationLocks, Txn};
use crate::txn::write::{KEY, Write};
use crate::types::lock_options::LockWait;

/// True if a key with these flags has a value.
pub(super) fn is_there(flags: Option<RowFlags>) -> bool {
    flags.is_some_and(|flags| !flags.has(RowFlags::GHOST))
}

/// Returns the undo of a change of an entry.
fn undo_of<'u>(table: &OpenTable, key: &'u [u8], before: RowBefore<'u>) -> RowUndo<'u> {
    let table = tree_number(table);
    RowUndo { table, key, before }
}

impl BoundTxn {
    /// As [`write_paged_step`](Self::write_paged_step), which has locked the table.
    #[cold]
    pub(super) fn write_indexed_paged_step(
        &mut self,
        at: usize,
        write: Write,
    ) -> Result<AttemptResult<bool>> {
        if self.ctx.tables[at].is_former() {
            return Ok(AttemptResult::Pause);
        }
        if !self.txn.index_plan.is_planned {
            done!(self.read_large());
            let place = self.ctx.load_indexes(at)?;
            let existed = done!(self.plan_paged(at, place, write));
            if !self.txn.index_plan.is_planned {
                return Ok(AttemptResult::Done(existed));
            }
        }
        loop {
            let count = self.txn.index_plan.entries.len();
            let next = match self.txn.index_plan.progress {
                PlanProgress::Lock(number) if number < count => {
                    done!(self.lock_paged_entry(at, number));
                    PlanProgress::Lock(number + 1)
                }
                PlanProgress::Lock(_) => PlanProgress::Row,
                PlanProgress::Row => {
                    done!(self.write_whole_row(at, write));
                    PlanProgress::Change(0)
                }
                PlanProgress::Change(number) if number < count => {
                    done!(self.change_paged_entry(number));
                    PlanProgress::Change(number + 1)
                }
                PlanProgress::Change(_) => break,
            };
            self.txn.index_plan.progress = next;
        }
        let existed = self.txn.index_plan.existed;
        self.ctx.budget.charge(self.txn.index_plan.entries.len());
        self.txn.index_plan.end();
        Ok(AttemptResult::Done(existed))
    }

    /// Locks the row and plans the write. If there is no plan afterwards, nothing has to be
    /// changed. Returns true if the key had a value.
    fn plan_paged(&mut self, at: usize, place: usize, write: Write) -> Result<AttemptResult<bool>> {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    key,
                    value,
                    indexes,
                    page_wait,
                    page_value,
                    large,
                    ..
                },
            txn:
                Txn {
                    changes,
                    view,
                    reads,
                    index_plan,
                    ..
                },
            ..
        } = self;
        let cached = &tables[at];
        let mut locks = TableLocks::new(engine, worker, owner, &cached.table, LockWait::Default);
        let name = Name::key(cached.table.record.id, key, &engine.hasher);
        done!(locks.lock(name, injected_fault::write_mode(engine.faults(), KEY)));
        refuse_overwritten(*view, engine, &cached.table, key)?;
        let mut access = PageAccess::of_table(engine.pages(), cached, worker, page_wait);
        let found = done!(access.attempt(|visit| visit.get(key, page_value)));
        reads.record_paged(&access.pages.stamps, &name);
        let is_large = is_there(found) && found.is_some_and(|flags| flags.has(RowFlags::OVERFLOW));
        let old = match is_large {
            false => is_there(found).then_some(&page_value[..]),
            true => match large.get_or_insert_default().bytes_of(page_value)? {
                Some(bytes) => Some(bytes),
                // The lock stays until the value is there. The next attempt reads it first.
                None => return Ok(AttemptResult::Pause),
            },
        };
        match write {
            Write::Insert if old.is_some() => return Err(Request::KeyExists.into()),
            Write::Delete if old.is_none() => return Ok(AttemptResult::Done(false)),
            _ => {}
        }
        let new = (write != Write::Delete).then_some(&value[..]);
        index_plan.clear();
        index_plan.indexes = place;
        let open = &indexes[place];
        let places = open.places.iter().copied().enumerate();
        for (place, index) in places.zip(&open.set.open) {
            index_plan.plan(place, index, key, old, new)?;
        }
        index_plan.existed = old.is_some();
        index_plan.mark = Some(changes.mark());
        index_plan.is_planned = true;
        *large = None;
        Ok(AttemptResult::Done(index_plan.existed))
    }

    /// Locks an entry of the plan, and inserts a new one unless it has a ghost.
    fn lock_paged_entry(&mut self, at: usize, number: usize) -> Result<AttemptResult<()>> {
        done!(self.open_tree(self.txn.index_plan.entries[number].place));
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    key: primary,
                    indexes,
                    page_wait,
                    commit_slot,
                    page_value: found,
                    ..
                },
            txn:
                Txn {
                    changes,
                    page_transaction,
                    row_versions,
                    reads,
                    index_plan,
                    operation_locks: OperationLocks { fresh_gap, .. },
                    ..
                },
            ..
        } = self;
        let faults = engine.faults();
        let index = {
            let entry = &index_plan.entries[number];
            let index = &indexes[index_plan.indexes].set.open[entry.index];
            let (bytes, mut value) = (entry.index_bytes, std::mem::take(&mut index_plan.value));
            value.clear();
            index.kind.write_value(bytes, primary, &mut value);
            index_plan.value = value;
            index
        };
        let entry = &index_plan.entries[number];
        let (cached, key) = (&tables[entry.place], index_plan.key(entry));
        let id = cached.table.record.id;
        let is_removed = entry.change == EntryChange::Remove;
        let is_unlocked = is_removed && faults.misbehaves(&injected_fault::OLD_ENTRY_UNLOCKED)
            || !is_removed && faults.misbehaves(&injected_fault::NEW_ENTRY_UNLOCKED);
        let name = Name::key(id, key, &engine.hasher);
        let mut locks = TableLocks::new(engine, worker, owner, &cached.table, LockWait::Default);
        if !is_unlocked {
            done!(locks.lock_table_name(Name::table(id), KEY.parent_mode()));
            done!(locks.lock(name, KEY));
        }
        if is_removed {
            return Ok(AttemptResult::Done(()));
        }
        let access = PageAccess::of_table(engine.pages(), cached, worker, page_wait);
        let recorder = commit_slot.recorder(row_versions, entry.place);
        let mut access = access.log_to(page_transaction, recorder);
        let is_new = loop {
            let flags = done!(access.attempt(|visit| visit.get(key, found)));
            reads.record_paged(&access.pages.stamps, &name);
            if is_there(flags) {
                let (index_key, row) = index.kind.read(key, found);
                return Err(IndexError::KeyTaken(KeyTaken {
                    index: index.record.name.clone(),
                    table: tables[at].table.record.name.clone(),
                    key: index_key.to_vec(),
                    row: row.to_vec(),
                    refused: primary.clone(),
                })
                .into());
            }
            if flags.is_some() {
                break false;
            }
            let next = done!(access.attempt(|visit| visit.successor(key, false)));
            if locks.is_on() {
                let gap = match &next {
                    Some(next) => Name::key(id, next, &engine.hasher),
                    None => Name::end(id),
                };
                done!(lock_gap(engine, &mut locks, fresh_gap, name, (gap, None)));
            }
            let next = next.as_deref().map_or(NextKey::End, NextKey::Key);
            let value = &index_plan.value;
            let reply = access.attempt(|visit| visit.insert(key, value, value.len(), next));
            if done!(reply) == InsertReply::Inserted {
                let undo = undo_of(&cached.table, key, RowBefore::Absent);
                changes
                    .paged
                    .record(entry.place, &undo, access.last_change());
                break true;
            }
        };
        if let Some(gap) = fresh_gap.take() {
            locks.release(gap);
        }
        if is_new {
            index_plan.entries[number].change = EntryChange::Added;
        }
        Ok(AttemptResult::Done(()))
    }

    /// Makes the change of an entry that was locked and has a row in its tree. Repeated after a
    /// wait, it may set a value again, which is right to undo in reverse order.
    fn change_paged_entry(&mut self, number: usize) -> Result<AttemptResult<()>> {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    tables,
                    key: primary,
                    indexes,
                    page_wait,
                    commit_slot,
                    ..
                },
            txn:
                Txn {
                    changes,
                    page_transaction,
                    row_versions,
                    index_plan,
                    ..
                },
            ..
        } = self;
        let entry = &index_plan.entries[number];
        let (place, key) = (entry.place, index_plan.key(entry));
        let access = PageAccess::of_table(engine.pages(), &tables[place], worker, page_wait);
        let recorder = commit_slot.recorder(row_versions, place);
        let mut access = access.log_to(page_transaction, recorder);
        let table = &tables[place].table;
        let flags = match entry.change {
            EntryChange::Added => return Ok(AttemptResult::Done(())),
            EntryChange::Remove => RowFlags::GHOST,
            EntryChange::Add => {
                let mut value = Vec::new();
                let kind = indexes[index_plan.indexes].set.open[entry.index].kind;
                kind.write_value(entry.index_bytes, primary, &mut value);
                if let Some(old) = done!(access.attempt(|visit| visit.update(key, &value))) {
                    let undo = undo_of(table, key, RowBefore::Value(&old));
                    changes.paged.record(place, &undo, access.last_change());
                }
                RowFlags::NONE
            }
        };
        if let Some(before) = done!(access.attempt(|visit| visit.set_flags(key, flags))) {
            let undo = undo_of(table, key, RowBefore::Flags(before));
            changes.paged.record(place, &undo, access.last_change());
        }
        Ok(AttemptResult::Done(()))
    }
}
