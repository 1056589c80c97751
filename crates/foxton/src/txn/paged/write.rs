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
//!   its locks granted and reads the row again. Its own change is the last step that can wait, but
//!   for a ghost that gets a value: first the value and then the flag, each with its own undo.
//!   Repeated in between, it sets the value again, and records undo again, which is right in
//!   reverse order.
//! * *The key is a ghost of another transaction.* Then X waits for it. Afterwards the ghost is
//!   there, or a purge has removed it and we insert.

use foxton_lock::name::Name;
use foxton_store::paged::btree::{InsertReply, NextKey};
use foxton_store::paged::page::RowFlags;
use foxton_store::paged::page_log::{RowBefore, RowUndo};
use foxton_store::paged::recovery::UndoPosition;

use super::access::PageAccess;
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

impl BoundTxn {
    /// As [`write_step`](Self::write_step), of a paged table.
    pub(in crate::txn) fn write_paged_step(
        &mut self,
        index: usize,
        write: Write,
    ) -> Result<AttemptResult<bool>> {
        done!(self.open_tree(index));
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
                    key,
                    value: new,
                    page_wait,
                    ..
                },
            txn:
                Txn {
                    changes,
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
        let mut access = access.log_to(page_transaction);
        let mut locks = TableLocks::new(engine, worker, owner, table, LockWait::Default);
        done!(locks.lock_table_name(Name::table(id), KEY.parent_mode()));
        let name = Name::key(id, key, &engine.hasher);
        let mut record = |before: RowBefore<'_>, position: Option<UndoPosition>| {
            let table = tree_number(table);
            changes
                .paged
                .record(index, &RowUndo { table, key, before }, position);
        };
        done!(locks.lock(name, injected_fault::write_mode(engine.faults(), KEY)));
        loop {
            let found = done!(access.attempt(|visit| visit.flags(key)));
            // The result says whether the key had a value, so this is a read.
            reads.record_paged(&access.pages.stamps, &name);
            let is_there = found.is_some_and(|flags| !flags.has(RowFlags::GHOST));
            match (write, found) {
                (Write::Insert, _) if is_there => return Err(Request::KeyExists.into()),
                (Write::Delete, _) if !is_there => return Ok(AttemptResult::Done(false)),
                (Write::Delete, _) => {
                    let ghost = RowFlags::GHOST;
                    let before = done!(access.attempt(|visit| visit.set_flags(key, ghost)));
                    record(
                        RowBefore::Flags(before.unwrap_or_default()),
                        access.last_change(),
                    );
                    return Ok(AttemptResult::Done(true));
                }
                (_, Some(_)) => {
                    let old = done!(access.attempt(|visit| visit.update(key, new)));
                    let before = RowBefore::Value(old.as_deref().unwrap_or_default());
                    record(before, access.last_change());
                    if !is_there {
                        let none = RowFlags::NONE;
                        let before = done!(access.attempt(|visit| visit.set_flags(key, none)));
                        record(
                            RowBefore::Flags(before.unwrap_or_default()),
                            access.last_change(),
                        );
                    }
                    return Ok(AttemptResult::Done(is_there));
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
            let reply = access.attempt(|visit| visit.insert(key, new, new.len(), next));
            if done!(reply) == InsertReply::Inserted {
                record(RowBefore::Absent, access.last_change());
                return Ok(AttemptResult::Done(false));
            }
        }
    }
}
