//! Writes of one row of a table with indexes.
//!
//! Entries follow from rows: a write locks the row, extracts the index keys from the old and the
//! new value, and changes the entries that differ. Entries are records like rows, in tables with
//! numbers of their own. So the same code locks, undoes and removes them.
//!
//! # Protocol
//!
//! 1. The locks of the table and the row, as for any write. From here on no other transaction
//!    changes the row, nor any entry that names it.
//! 2. The plan: which entries are inserted and removed. It is made once. If it refuses the request,
//!    nothing has changed yet.
//! 3. For each entry X on its name. If a unique index already has an entry that is to be inserted,
//!    the write is refused. An entry without a record is inserted into its gap, with its value: no
//!    other transaction can read it, because we hold its name.
//! 4. The row itself, if it has no record, is inserted into its gap.
//! 5. All other changes, which neither wait nor fail: values are swapped, and all changes are
//!    recorded.
//!
//! Steps 1 to 4 may wait, and continue where they stopped. If the write is refused or dropped
//! there, the entries that it inserted become ghosts, under their locks. The write then leaves
//! nothing that could be read, and the transaction continues.
//!
//! # The order of locks
//!
//! Row before entry, for writers here and for readers in [`index_read`](super::index_read). So a
//! writer of a row and a reader by an index first conflict at the lock of the row, when neither
//! holds a lock that the other wants. The entries of one row are locked in the order in which its
//! indexes are declared, removed ones before inserted ones, each in key order. Writers of
//! *different* rows may still wait for each other in a cycle, as they may at rows. The wait-for
//! graph has all these waits, and one of the transactions is ended.

use foxton_lock::name::Name;
use foxton_store::memory::{Record, VALUE};

use super::attempt::{AttemptResult, done};
use super::bound::BoundTxn;
use super::changes::GhostIf;
use super::context::WorkerContext;
use super::index_plan::{CachedIndexes, Entry, EntryChange};
use super::insert::Inserter;
use super::table_locks::TableLocks;
use super::txn::{OperationLocks, Txn};
use super::write::{KEY, Write};
use crate::catalog::resident_memory::counted_bytes;
use crate::error::{IndexError, KeyTaken, Request, Result};
use crate::testing::injected_fault;
use crate::types::lock_options::LockWait;

impl BoundTxn {
    /// As [`write_step`](Self::write_step), which has locked the table.
    #[cold]
    pub(super) fn write_indexed_step(
        &mut self,
        at: usize,
        write: Write,
    ) -> Result<AttemptResult<bool>> {
        if self.ctx.tables[at].is_former() {
            return Ok(AttemptResult::Pause);
        }
        if !self.txn.index_plan.is_planned {
            let place = self.ctx.load_indexes(at)?;
            let existed = done!(self.plan(at, place, write));
            if !self.txn.index_plan.is_planned {
                return Ok(AttemptResult::Done(existed));
            }
        }
        done!(self.lock_entries(at));
        let is_new = done!(self.insert_row(at));
        self.make_changes(at, write, is_new)?;
        Ok(AttemptResult::Done(self.txn.index_plan.existed))
    }

    /// Locks the row and plans the write. If there is no plan afterwards, nothing has to be
    /// changed. Returns true if the key had a value.
    fn plan(&mut self, at: usize, place: usize, write: Write) -> Result<AttemptResult<bool>> {
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
                    indexes,
                    counted,
                    ..
                },
            txn:
                Txn {
                    reads,
                    index_plan,
                    changes,
                    view,
                    ..
                },
            ..
        } = self;
        let (table, cached) = (&*tables[at].table, &indexes[place]);
        let mut locks = TableLocks::new(engine, worker, owner, table, LockWait::Default);
        let guard = worker.pin();
        let name = Name::key(table.record.id, key, &engine.hasher);
        let located = table.resident().locate_again(&guard, key, hint);
        let places = (table.resident(), &guard);
        let record = done!(locks.lock_located(None, (name, key, KEY), located, places));
        BoundTxn::refuse_overwritten(*view, engine, &guard, table, (&key[..], record))?;
        // The result says whether the key had a value, so this is a read.
        record.inspect(|record| reads.record(record));
        let mut hazard = guard.hazard();
        let old = record.and_then(|record| record.value(&mut hazard));
        match write {
            Write::Insert if old.is_some() => return Err(Request::KeyExists.into()),
            Write::Delete if old.is_none() => return Ok(AttemptResult::Done(false)),
            _ => {}
        }
        let new = (write != Write::Delete).then_some(&value[..]);
        index_plan.clear();
        index_plan.indexes = place;
        let places = cached.places.iter().copied().enumerate();
        for (place, index) in places.zip(&cached.set.open) {
            index_plan.plan(place, index, key, old, new)?;
        }
        let own = *counted + changes.counted;
        engine.catalog.resident.check(&table.record.name, own, || {
            let row = counted_bytes(key, new) - counted_bytes(key, old);
            row + index_plan.counted_growth()
        })?;
        index_plan.existed = old.is_some();
        index_plan.is_planned = true;
        Ok(AttemptResult::Done(index_plan.existed))
    }

    /// Locks all entries of the plan, and inserts those that have no record.
    fn lock_entries(&mut self, at: usize) -> Result<AttemptResult<()>> {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    key: primary,
                    region,
                    indexes,
                    commit_slot,
                    ..
                },
            txn:
                Txn {
                    reads,
                    index_plan,
                    operation_locks: OperationLocks { fresh_gap, .. },
                    ..
                },
            ..
        } = self;
        let set = &indexes[index_plan.indexes].set;
        let faults = engine.faults();
        for number in 0..index_plan.entries.len() {
            let entry = &index_plan.entries[number];
            let is_covered = entry.change == EntryChange::Remove
                && faults.misbehaves(&injected_fault::OLD_ENTRY_UNLOCKED);
            if entry.change == EntryChange::Added || is_covered {
                continue;
            }
            let table = &*tables[entry.place].table;
            let (id, key) = (table.record.id, index_plan.key(entry));
            let mut locks = TableLocks::new(engine, worker, owner, table, LockWait::Default);
            let name = Name::key(id, key, &engine.hasher);
            done!(locks.lock_table_name(Name::table(id), KEY.parent_mode()));
            done!(locks.lock_key(None, (name, key, KEY), (table.resident(), &worker.pin())));
            if entry.change == EntryChange::Remove {
                continue;
            }
            let index = &set.open[entry.index];
            let mut value = std::mem::take(&mut index_plan.value);
            value.clear();
            index
                .kind
                .write_value(entry.index_bytes, primary, &mut value);
            index_plan.value = value;
            let (entry, value) = (&index_plan.entries[number], &index_plan.value);
            let key = index_plan.key(entry);
            let guard = worker.pin();
            let mut inserter = Inserter {
                engine,
                worker,
                fresh_gap,
                region,
                begin: commit_slot.begin_write(),
            };
            let is_new = loop {
                if let Some(record) = table.resident().get(&guard, key) {
                    reads.record(record);
                    let mut hazard = guard.hazard();
                    let Some(taken) = record.value(&mut hazard) else {
                        break false;
                    };
                    let (index_key, row) = index.kind.read(key, taken);
                    return Err(IndexError::KeyTaken(KeyTaken {
                        index: index.record.name.clone(),
                        table: tables[at].table.record.name.clone(),
                        key: index_key.to_vec(),
                        row: row.to_vec(),
                        refused: primary.clone(),
                    })
                    .into());
                }
                if done!(inserter.insert(
                    &mut locks,
                    &guard,
                    (table.record.id, table.resident()),
                    name,
                    (key, Some(value))
                )) {
                    break true;
                }
            };
            if let Some(gap) = fresh_gap.take() {
                locks.release(gap);
            }
            if is_new {
                index_plan.entries[number].change = EntryChange::Added;
            }
        }
        Ok(AttemptResult::Done(()))
    }

    /// Inserts the row, with its value, if it has no record. Returns true if it did.
    fn insert_row(&mut self, at: usize) -> Result<AttemptResult<bool>> {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    owner,
                    tables,
                    key,
                    value,
                    region,
                    commit_slot,
                    ..
                },
            txn:
                Txn {
                    operation_locks: OperationLocks { fresh_gap, .. },
                    ..
                },
            ..
        } = self;
        let table = &*tables[at].table;
        let mut locks = TableLocks::new(engine, worker, owner, table, LockWait::Default);
        let name = Name::key(table.record.id, key, &engine.hasher);
        let guard = worker.pin();
        let mut inserter = Inserter {
            engine,
            worker,
            fresh_gap,
            region,
            begin: commit_slot.begin_write(),
        };
        loop {
            if table.resident().get(&guard, key).is_some() {
                return Ok(AttemptResult::Done(false));
            }
            // A row to be deleted has a record, so this row gets a value.
            if done!(inserter.insert(
                &mut locks,
                &guard,
                (table.record.id, table.resident()),
                name,
                (key, Some(value))
            )) {
                return Ok(AttemptResult::Done(true));
            }
        }
    }

    /// Makes all changes that need no further lock, and records them for undo.
    fn make_changes(&mut self, at: usize, write: Write, row_is_new: bool) -> Result<()> {
        let BoundTxn {
            ctx:
                WorkerContext {
                    engine,
                    worker,
                    tables,
                    key,
                    value,
                    indexes,
                    budget,
                    commit_slot,
                    ..
                },
            txn:
                Txn {
                    changes,
                    index_plan,
                    ..
                },
            ..
        } = self;
        budget.charge(index_plan.entries.len());
        let guard = worker.pin();
        let new = (write != Write::Delete).then_some(&value[..]);
        let table = &*tables[at].table;
        let (mut before, mut old) = (None, None);
        let mut hazard = guard.hazard();
        if !row_is_new {
            // Only the owner of the exclusive lock removes a record, and we are that owner.
            let record = table.resident().get(&guard, key).expect("it was there");
            // The hazard protects the value, whichever transaction retires it.
            before = record.value(&mut hazard);
            worker.account().passed(&VALUE);
            let kept_since = changes.kept_since(&guard);
            old = record.replace(new, &guard, kept_since, commit_slot.writer())?;
        }
        let id = table.record.id;
        changes.record(at, (id, key), (before, new), old, engine.redo_form);
        let set = &indexes[index_plan.indexes].set;
        for entry in &index_plan.entries {
            let rows = tables[entry.place].table.resident();
            let entry_key = index_plan.key(entry);
            let record = || {
                worker.account().passed(&VALUE);
                rows.get(&guard, entry_key)
            };
            let (old, ghost_if) = match entry.change {
                EntryChange::Added => (None, GhostIf::RolledBack),
                EntryChange::Remove => {
                    let kept_since = changes.kept_since(&guard);
                    let old = record().and_then(|record| {
                        let removed =
                            record.replace(None, &guard, kept_since, commit_slot.writer());
                        removed.expect("a deletion has no length")
                    });
                    (old, GhostIf::Committed)
                }
                EntryChange::Add => {
                    let mut bytes = Vec::new();
                    let kind = set.open[entry.index].kind;
                    kind.write_value(entry.index_bytes, key, &mut bytes);
                    let kept_since = changes.kept_since(&guard);
                    let put = |record: &Record| {
                        record.replace(Some(&bytes), &guard, kept_since, commit_slot.writer())
                    };
                    let old =
                        record().and_then(|record| put(record).expect("no longer than a key"));
                    (old, GhostIf::RolledBack)
                }
            };
            changes.record_unlogged(entry.place, entry_key, old, ghost_if);
        }
        index_plan.end();
        Ok(())
    }

    /// Takes back the entries that an unfinished write has inserted, while its locks are still
    /// held.
    #[inline]
    pub(super) fn abandon_index_plan(&mut self) {
        if self.txn.index_plan.is_planned {
            self.take_entries_back();
        }
    }

    #[cold]
    fn take_entries_back(&mut self) {
        if let Some(mark) = self.txn.index_plan.mark {
            self.txn.index_plan.end();
            return self.undo_operation(mark);
        }
        let BoundTxn {
            ctx: WorkerContext { worker, tables, .. },
            txn:
                Txn {
                    changes,
                    index_plan,
                    ..
                },
            ..
        } = self;
        let guard = worker.pin();
        let added = |entry: &&Entry| entry.change == EntryChange::Added;
        for entry in index_plan.entries.iter().filter(added) {
            let key = index_plan.key(entry);
            let record = tables[entry.place].table.resident().get(&guard, key);
            worker.account().passed(&VALUE);
            if let Some(value) = record.and_then(|record| record.swap(None, &guard)) {
                value.retire(guard.participant());
            }
            changes.left.insert((entry.place, key.into()));
        }
        index_plan.end();
    }
}

impl WorkerContext {
    /// Reads from the catalog which indexes a locked table has. Returns their place in `indexes`.
    pub(super) fn load_indexes(&mut self, at: usize) -> Result<usize> {
        let place = self.cached_indexes(at);
        self.check_declared(at, place)?;
        if self.indexes[place].set.unmaintained.is_empty() {
            return Ok(place);
        }
        self.make_indexes_stale(at)?;
        Ok(self.cached_indexes(at))
    }

    fn cached_indexes(&mut self, at: usize) -> usize {
        let kept = &self.tables[at].table.kept;
        let changes = kept.changes();
        let known = self.tables[at].indexes;
        match known {
            Some(place) if self.indexes[place].changes == changes => place,
            _ => {
                let set = kept.set(&self.worker);
                let entries = set.open.iter().map(|index| index.entries.clone());
                let places = entries
                    .map(|entries| self.cached_entries(entries))
                    .collect();
                let cached = CachedIndexes {
                    changes,
                    set,
                    places,
                };
                let place = known.unwrap_or(self.indexes.len());
                self.tables.get_mut(at).indexes = Some(place);
                match self.indexes.get_mut(place) {
                    Some(old) => *old = cached,
                    None => self.indexes.push(cached),
                }
                place
            }
        }
    }

    /// Refuses a write that would break a unique index.
    fn check_declared(&self, at: usize, place: usize) -> Result<()> {
        match self.indexes[place].set.undeclared.first() {
            None => Ok(()),
            Some(index) => Err(IndexError::Undeclared {
                index: index.clone(),
                table: self.tables[at].table.record.name.clone(),
            }
            .into()),
        }
    }
}
