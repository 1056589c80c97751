//! Writing one row of a table with indexes.
//!
//! Entries follow from rows: a write locks the row, reads the index keys off what is there and off what
//! is to be there, and changes the entries that differ. Entries are records like rows, in tables whose
//! numbers are their own, so they are locked, undone, left as ghosts and removed by the same code.
//!
//! # Protocol
//!
//! 1. The table's and the row's locks, as for any write. From here on nobody else changes the row, nor
//!    any entry that leads to it.
//! 2. The plan: which entries go, and which come. It is made once; if there is anything wrong with the
//!    request, nothing has happened.
//! 3. For each entry X on its name, whether it comes or goes. If one of a unique index is there already,
//!    the write is refused. One that comes and has no record is put into its gap, with its value: nobody
//!    else can read it, for we hold its name.
//! 4. The row itself, if it has no record, is put into its gap.
//! 5. Everything else, without waiting and without failing: values are swapped, and all is noted.
//!
//! Steps 1 to 4 may wait, and are begun again where they were left. If the write is refused or dropped
//! there, the entries that it put in become ghosts, under their locks: the statement leaves nothing that
//! could be read, and the transaction goes on.
//!
//! # The order of locks
//!
//! Row before entry, for writers here and for readers in [`index_read`](super::index_read): a writer of a row and a reader
//! who comes to it by an index meet at the row's lock, with nothing in hand that the other wants. The
//! entries of one row are locked in the order of the indexes' declarations, those that go before those that
//! come, each in their order. Writers of *different* rows may still wait for each other in a ring, as they
//! may at rows; who waits is known to the one graph of waits, and one of them is ended.

use std::sync::Arc;

use foxton_lock::name::Name;
use foxton_store::memory::{Record, VALUE};

use super::attempt::{AttemptResult, done};
use super::changes::GhostIf;
use super::index_plan::{CachedIndexes, Entry, EntryChange};
use super::insert::Inserter;
use super::state::{CachedTable, State, TableLocks};
use super::write::{KEY, Write};
use crate::catalog::OpenTable;
use crate::error::{IndexError, KeyTaken, Request, Result};
use crate::testing::injected_fault::Fault;
use crate::types::lock_options::LockWait;

impl State {
    /// As [`write_step`](Self::write_step), which has locked the table.
    #[cold]
    pub(super) fn write_indexed_step(
        &mut self,
        at: usize,
        write: Write,
    ) -> Result<AttemptResult<bool>> {
        if !self.statement.is_planned {
            let cached_indexes = self.load_indexes(at)?;
            let existed = done!(self.plan(at, cached_indexes, write));
            if !self.statement.is_planned {
                return Ok(AttemptResult::Done(existed));
            }
        }
        done!(self.lock_entries(at));
        let is_new = done!(self.insert_row(at));
        self.make_changes(at, write, is_new)?;
        Ok(AttemptResult::Done(self.statement.existed))
    }

    /// Looks which indexes are kept with a table that is locked. Returns their place among those tended.
    fn load_indexes(&mut self, at: usize) -> Result<usize> {
        let kept = &self.tables[at].table.kept;
        let changes = kept.changes();
        let known = self
            .cached_indexes
            .iter()
            .position(|cached_indexes| cached_indexes.table == at);
        let place = match known {
            Some(place) if self.cached_indexes[place].changes == changes => place,
            _ => {
                let set = kept.set(&self.worker);
                let entries = set.open.iter().map(|index| index.entries.clone());
                let places = entries.map(|entries| self.place_of(entries)).collect();
                let cached_indexes = CachedIndexes {
                    table: at,
                    changes,
                    set,
                    places,
                };
                let place = known.unwrap_or(self.cached_indexes.len());
                match self.cached_indexes.get_mut(place) {
                    Some(old) => *old = cached_indexes,
                    None => self.cached_indexes.push(cached_indexes),
                }
                place
            }
        };
        match self.cached_indexes[place].set.undeclared.first() {
            None => Ok(place),
            Some(index) => Err(IndexError::Undeclared {
                index: index.clone(),
                table: self.tables[at].table.record.name.clone(),
            }
            .into()),
        }
    }

    /// The place of an index's entries among the tables met.
    pub(super) fn place_of(&mut self, entries: Arc<OpenTable>) -> usize {
        let is_it = |met: &CachedTable| Arc::ptr_eq(&met.table, &entries);
        self.tables.iter().position(is_it).unwrap_or_else(|| {
            self.tables.push(CachedTable::entries(entries));
            self.tables.len() - 1
        })
    }

    /// Locks the row and plans the write. Unless it is planned then, it is done: nothing is to be
    /// changed. Says whether the key had a value.
    fn plan(
        &mut self,
        at: usize,
        cached_indexes: usize,
        write: Write,
    ) -> Result<AttemptResult<bool>> {
        let State {
            engine,
            worker,
            owner,
            tables,
            key,
            value,
            dependencies,
            cached_indexes: all,
            statement,
            ..
        } = self;
        let (table, place, cached_indexes) =
            (&*tables[at].table, cached_indexes, &all[cached_indexes]);
        let mut locks = TableLocks::new(engine, worker, owner, table, LockWait::Default);
        done!(locks.lock(Name::key(table.record.id, key, &engine.hasher), KEY));
        let guard = worker.pin();
        let record = table.rows.get(&guard, key);
        // Being told that it is there, or not, is a read.
        record.inspect(|record| dependencies.note(record));
        let mut hazard = guard.hazard();
        let old = record.and_then(|record| record.value(&mut hazard));
        match write {
            Write::Insert if old.is_some() => return Err(Request::KeyExists.into()),
            Write::Delete if old.is_none() => return Ok(AttemptResult::Done(false)),
            _ => {}
        }
        let new = (write != Write::Delete).then_some(&value[..]);
        statement.clear();
        statement.cached_indexes = place;
        let indexes = cached_indexes.places.iter().copied().enumerate();
        for (place, index) in indexes.zip(&cached_indexes.set.open) {
            statement.plan(place, index, key, old, new)?;
        }
        statement.existed = old.is_some();
        statement.is_planned = true;
        Ok(AttemptResult::Done(statement.existed))
    }

    /// Locks all entries that come or go, and puts in those that have no record.
    fn lock_entries(&mut self, at: usize) -> Result<AttemptResult<()>> {
        let State {
            engine,
            worker,
            owner,
            tables,
            key: primary,
            fresh_gap,
            filling,
            dependencies,
            cached_indexes,
            statement,
            ..
        } = self;
        let set = &cached_indexes[statement.cached_indexes].set;
        for number in 0..statement.entries.len() {
            let entry = &statement.entries[number];
            let is_covered = entry.change == EntryChange::Remove
                && engine.options.planted().is(Fault::OldEntryUnlocked);
            if entry.change == EntryChange::Added || is_covered {
                continue;
            }
            let table = &*tables[entry.place].table;
            let (id, key) = (table.record.id, statement.key(entry));
            let mut locks = TableLocks::new(engine, worker, owner, table, LockWait::Default);
            let name = Name::key(id, key, &engine.hasher);
            done!(locks.lock_table_name(Name::table(id), KEY.parent_mode()));
            done!(locks.lock(name, KEY));
            if entry.change == EntryChange::Remove {
                continue;
            }
            let index = &set.open[entry.index];
            let mut value = std::mem::take(&mut statement.value);
            value.clear();
            index
                .kind
                .write_value(entry.index_bytes, primary, &mut value);
            statement.value = value;
            let (entry, value) = (&statement.entries[number], &statement.value);
            let key = statement.key(entry);
            let guard = worker.pin();
            let mut inserter = Inserter {
                engine,
                worker,
                fresh_gap,
                filling,
            };
            let is_new = loop {
                if let Some(record) = table.rows.get(&guard, key) {
                    dependencies.note(record);
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
                if done!(inserter.insert(&mut locks, &guard, table, name, (key, Some(value)))) {
                    break true;
                }
            };
            if let Some(gap) = fresh_gap.take() {
                locks.release(gap);
            }
            if is_new {
                statement.entries[number].change = EntryChange::Added;
            }
        }
        Ok(AttemptResult::Done(()))
    }

    /// Puts in the row, with its value, if it has no record. Says whether it did.
    fn insert_row(&mut self, at: usize) -> Result<AttemptResult<bool>> {
        let State {
            engine,
            worker,
            owner,
            tables,
            key,
            value,
            fresh_gap,
            filling,
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
            filling,
        };
        loop {
            if table.rows.get(&guard, key).is_some() {
                return Ok(AttemptResult::Done(false));
            }
            // A row that is deleted has a record, so this is one that gets a value.
            if done!(inserter.insert(&mut locks, &guard, table, name, (key, Some(value)))) {
                return Ok(AttemptResult::Done(true));
            }
        }
    }

    /// Everything that needs no lock any more. All of it is noted, to be undone with the transaction.
    fn make_changes(&mut self, at: usize, write: Write, row_is_new: bool) -> Result<()> {
        let State {
            engine,
            worker,
            tables,
            key,
            value,
            changes,
            cached_indexes,
            statement,
            ..
        } = self;
        let guard = worker.pin();
        let new = (write != Write::Delete).then_some(&value[..]);
        let table = &*tables[at].table;
        let (mut before, mut old) = (None, None);
        let mut hazard = guard.hazard();
        if !row_is_new {
            // Only who holds the key exclusively removes its record, and we do.
            let record = table.rows.get(&guard, key).expect("it was there");
            // It stays for as long as the hazard, whoever owns it.
            before = record.value(&mut hazard);
            worker.account().passed(&VALUE);
            let kept_since = changes.kept_since(&guard);
            old = match new {
                Some(new) => record.put(new, &guard, kept_since)?,
                None => record.swap(None, &guard),
            };
        }
        let id = table.record.id;
        changes.note(at, (id, key), (before, new), old, engine.patches());
        let set = &cached_indexes[statement.cached_indexes].set;
        for entry in &statement.entries {
            let rows = &tables[entry.place].table.rows;
            let entry_key = statement.key(entry);
            let record = || {
                worker.account().passed(&VALUE);
                rows.get(&guard, entry_key)
            };
            let (old, ghost_if) = match entry.change {
                EntryChange::Added => (None, GhostIf::RolledBack),
                EntryChange::Remove => {
                    let old = record().and_then(|record| record.swap(None, &guard));
                    (old, GhostIf::Committed)
                }
                EntryChange::Add => {
                    let mut bytes = Vec::new();
                    let kind = set.open[entry.index].kind;
                    kind.write_value(entry.index_bytes, key, &mut bytes);
                    let kept_since = changes.kept_since(&guard);
                    let put = |record: &Record| record.put(&bytes, &guard, kept_since);
                    let old =
                        record().and_then(|record| put(record).expect("no longer than a key"));
                    (old, GhostIf::RolledBack)
                }
            };
            changes.note_unlogged(entry.place, entry_key, old, ghost_if);
        }
        statement.end();
        Ok(())
    }

    /// Takes back what a write to a table with indexes has put in and will not finish. Its locks are
    /// still held.
    #[inline]
    pub(super) fn abandon_index_plan(&mut self) {
        if self.statement.is_planned {
            self.take_entries_back();
        }
    }

    #[cold]
    fn take_entries_back(&mut self) {
        let State {
            worker,
            tables,
            changes,
            statement,
            ..
        } = self;
        let guard = worker.pin();
        let added = |entry: &&Entry| entry.change == EntryChange::Added;
        for entry in statement.entries.iter().filter(added) {
            let key = statement.key(entry);
            let record = tables[entry.place].table.rows.get(&guard, key);
            worker.account().passed(&VALUE);
            if let Some(value) = record.and_then(|record| record.swap(None, &guard)) {
                value.retire(guard.participant());
            }
            changes.left.insert((entry.place, key.into()));
        }
        statement.end();
    }
}
