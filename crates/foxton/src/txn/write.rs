//! Writes of one key.
//!
//! # Protocol
//!
//! X on the name of the key, whether it is there or not. If its record is in the index, with a
//! value or as a ghost, the value is swapped in place: a transaction that has read over the key
//! holds its name. If there is no record, one is inserted into the gap before the next key `n`:
//!
//! 1. Insert intention on the gap named `n`. A transaction that has read over the gap holds it
//!    shared, so we wait for it; other inserts do not wait for us.
//! 2. The insert itself. The index refuses it if `n` is not the next key any more. Then the gap was
//!    the wrong one, and we begin again.
//! 3. The gap is released, unless we held it before. A transaction that reads over the gap from now
//!    on finds the new key, locked by us.
//!
//! # Races
//!
//! * *Own gap.* We have read over the gap `(p, n)` and now insert `k` into it. From then on the
//!   lock named `n` protects `(k, n)`, and nothing protects `(p, k)`. So if we hold the gap of `n`
//!   shared, `k` is locked X with its gap shared before it is in the index.
//! * *The next key goes.* `n` is a ghost that another transaction removes between our search and
//!   our insert. The index refuses the insert, because it compares records and not keys. A removal
//!   also takes the gap of `n` exclusively, so the lock of a reader on it is never lost.
//! * *The key itself is a ghost of ours.* The record is still there and gets the new value. *If it
//!   is a ghost of another transaction*, we wait for X. Then it is there, or it is gone and we
//!   insert.
//! * *The lock on the gap is left over.* We wait for `n`, and when it is granted `n` is no longer
//!   the next key. The useless lock is released before the next one is requested, so that no
//!   transaction waits for a gap that we do not use.

use foxton_lock::manager::LockManager;
use foxton_lock::mode::{GapPart, KeyPart, Mode};
use foxton_lock::name::Name;
use foxton_store::memory::VALUE;

use super::attempt::{AttemptResult, done};
use super::bound::BoundTxn;
use super::context::WorkerContext;
use super::insert::Inserter;
use super::table_locks::TableLocks;
use super::txn::{OperationLocks, Txn};
use crate::catalog::resident_memory::counted_bytes;
use crate::catalog::table_store::TableStore;
use crate::error::{Request, Result};
use crate::testing::injected_fault;
use crate::types::codec::{Key, Value};
use crate::types::lock_options::LockWait;
use crate::types::table::Table;

/// Kinds of write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// Gives the key a value.
    Put,
    /// Gives the key a value; refused if it has one.
    Insert,
    /// Removes the value.
    Delete,
}

/// The mode of a written key, without its gap.
pub(super) const KEY: Mode = Mode::key(KeyPart::X, GapPart::None);

impl BoundTxn {
    /// Writes the encoded value, or none, under the encoded key. Returns true if the key had a
    /// value.
    pub(crate) fn write_step(&mut self, index: usize, write: Write) -> Result<AttemptResult<bool>> {
        let index = match index < self.ctx.tables.len() {
            true => index,
            false => match done!(self.absent_to_write(write == Write::Delete)) {
                Some(index) => index,
                None => return Ok(AttemptResult::Done(false)),
            },
        };
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    key,
                    value,
                    hint,
                    region,
                    counted,
                    commit_slot,
                    ..
                },
            txn:
                Txn {
                    changes,
                    reads,
                    view,
                    operation_locks: OperationLocks { fresh_gap, .. },
                    ..
                },
            ..
        } = self;
        let table = &*tables[index].table;
        let TableStore::Resident(rows) = &table.store else {
            return self.write_paged_step(index, write);
        };
        let id = table.record.id;
        let mut locks = TableLocks::new(engine, worker, owner, table, LockWait::Default);
        let name = Name::key(id, key, &engine.hasher);
        done!(locks.lock_table_name(Name::table(id), KEY.parent_mode()));
        if !table.kept.is_nothing() {
            return self.write_indexed_step(index, write);
        }
        // As in `get_step`.
        locks.prefetch(name);
        let guard = worker.pin();
        let located = rows.locate_again(&guard, key, hint);
        let mode = injected_fault::write_mode(engine.faults(), KEY);
        let (request, places) = ((name, &key[..], mode), (rows, &guard));
        let mut locked = Some(done!(locks.lock_located(None, request, located, places)));
        let new = (write != Write::Delete).then_some(&value[..]);
        let redo = engine.redo_form;
        loop {
            let record = match locked.take() {
                Some(record) => record,
                None => rows.get(&guard, key),
            };
            let row = (&key[..], record);
            BoundTxn::refuse_overwritten(*view, engine, &guard, table, row)?;
            if let Some(record) = record {
                let existed = !record.is_ghost();
                // The result says whether the key had a value, so this is a read.
                reads.record(record);
                match write {
                    Write::Insert if existed => return Err(Request::KeyExists.into()),
                    Write::Delete if !existed => return Ok(AttemptResult::Done(false)),
                    _ => {}
                }
                // The hazard protects the value, whichever transaction retires it.
                let mut hazard = guard.hazard();
                let before = record.value(&mut hazard);
                let own = *counted + changes.counted;
                engine.catalog.resident.check(&table.record.name, own, || {
                    counted_bytes(key, new) - counted_bytes(key, before)
                })?;
                worker.account().passed(&VALUE);
                let kept_since = changes.kept_since(&guard);
                let old = record.replace(new, &guard, kept_since, commit_slot.writer())?;
                changes.record(index, (id, key), (before, new), old, redo);
                return Ok(AttemptResult::Done(existed));
            }
            if write == Write::Delete {
                return Ok(AttemptResult::Done(false));
            }
            let own = *counted + changes.counted;
            let growth = || counted_bytes(key, new);
            engine
                .catalog
                .resident
                .check(&table.record.name, own, growth)?;
            let mut inserter = Inserter {
                engine,
                worker,
                fresh_gap,
                region,
                begin: commit_slot.begin_write(),
            };
            if done!(inserter.insert(&mut locks, &guard, (id, rows), name, (key, new))) {
                changes.record(index, (id, key), (None, new), None, redo);
                return Ok(AttemptResult::Done(false));
            }
        }
    }

    /// Releases the gap that an insert locked only for itself, at its end.
    pub(crate) fn release_fresh_gap(&mut self) {
        if let Some(gap) = self.txn.operation_locks.fresh_gap.take() {
            self.ctx
                .engine
                .locks
                .release(&self.ctx.worker, &mut self.ctx.owner, gap);
        }
    }
}

impl BoundTxn {
    /// Checks and encodes what a write needs. Returns the table's index.
    #[inline(always)]
    pub(crate) fn prepare_write<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
        value: Option<&V>,
    ) -> Result<usize> {
        self.ctx.engine.check_writable()?;
        let table = self.open_table(table)?;
        self.ctx.set_key(key)?;
        if let Some(value) = value {
            self.ctx.set_value(value)?;
        }
        Ok(table)
    }

    /// Finishes a write: releases its fresh gap, and spills redo.
    pub(crate) fn after_write(&mut self) -> Result<()> {
        self.release_fresh_gap();
        self.spill()
    }
}
