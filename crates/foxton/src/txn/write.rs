//! Writing one key.
//!
//! # Protocol
//!
//! X on the key's name, whether it is there or not. If its record is in the index, with a value or
//! as a ghost, the value is swapped in place: whoever read over the key locked its name. If not, a
//! record comes into the gap before the next key `n`:
//!
//! 1. insert intention on the gap named `n`. Who has read over that gap holds it shared, so we wait
//!    for them; other inserts go on beside us.
//! 2. the insert itself, which the index refuses if `n` is not the next key any more. Then the gap
//!    was the wrong one, and we begin again.
//! 3. the gap is given back, unless it was ours before. Whoever reads over it from now on finds the
//!    new key, locked by us.
//!
//! # Races
//!
//! * *Own gap.* We read over the gap `(p, n)` and now put `k` into it. The lock named `n` protects
//!   `(k, n)` from then on, and nothing protects `(p, k)`. So when we hold the gap of `n` shared,
//!   `k` is locked X with its gap shared, before it is in the index.
//! * *The next key goes.* `n` is a ghost that somebody removes between our look and our insert: the
//!   index refuses (it compares records, not keys). Removing also takes the gap of `n` exclusively,
//!   so a reader's lock on it is never lost.
//! * *The key itself is a ghost of ours:* the record is still there and takes the new value. *Of
//!   somebody else:* we wait for X, and then it is there, or it is gone and we insert.
//! * *The gap's lock is left over.* We wait for `n`, and when we get it `n` is no longer next: what
//!   was locked for nothing is given back before the next is asked for, so that nobody waits for a
//!   gap that we do not use.

use foxton_lock::manager::LockManager;
use foxton_lock::mode::{GapPart, KeyPart, Mode};
use foxton_lock::name::Name;
use foxton_store::memory::VALUE;

use super::attempt::{AttemptResult, done};
use super::insert::Inserter;
use super::state::{State, TableLocks};
use crate::error::{Request, Result};
use crate::types::codec::{Key, Value};
use crate::types::lock_options::LockWait;
use crate::types::table::Table;

/// What to do with the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// Let it have the value.
    Put,
    /// Let it have the value; refuse if it has one.
    Insert,
    /// Let it have none.
    Delete,
}

/// A key that is written, and nothing beside it.
pub(super) const KEY: Mode = Mode::key(KeyPart::X, GapPart::None);

impl State {
    /// Writes `self.value`, or nothing, under `self.key`. Says whether the key had a value.
    pub(crate) fn write_step(&mut self, index: usize, write: Write) -> Result<AttemptResult<bool>> {
        let State {
            engine,
            worker,
            owner,
            tables,
            key,
            value,
            changes,
            fresh_gap,
            filling,
            dependencies,
            ..
        } = self;
        let table = &*tables[index].table;
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
        let located = table.rows.locate(&guard, key);
        done!(locks.lock(name, engine.options.planted().writes(KEY)));
        let mut located = Some(located);
        let new = (write != Write::Delete).then_some(&value[..]);
        let patches = engine.patches();
        loop {
            let record = match located.take() {
                Some(located) => located.record(&table.rows, &guard, key),
                None => table.rows.get(&guard, key),
            };
            if let Some(record) = record {
                let existed = !record.is_ghost();
                // Being told that it is there, or not, is a read.
                dependencies.note(record);
                match write {
                    Write::Insert if existed => return Err(Request::KeyExists.into()),
                    Write::Delete if !existed => return Ok(AttemptResult::Done(false)),
                    _ => {}
                }
                // It stays for as long as the hazard, whoever owns it.
                let mut hazard = guard.hazard();
                let before = record.value(&mut hazard);
                worker.account().passed(&VALUE);
                let kept_since = changes.kept_since(&guard);
                let old = match new {
                    Some(new) => record.put(new, &guard, kept_since)?,
                    None => record.swap(None, &guard),
                };
                changes.note(index, (id, key), (before, new), old, patches);
                return Ok(AttemptResult::Done(existed));
            }
            if write == Write::Delete {
                return Ok(AttemptResult::Done(false));
            }
            let mut inserter = Inserter {
                engine,
                worker,
                fresh_gap,
                filling,
            };
            if done!(inserter.insert(&mut locks, &guard, table, name, (key, new))) {
                changes.note(index, (id, key), (None, new), None, patches);
                return Ok(AttemptResult::Done(false));
            }
        }
    }

    /// Gives back the gap that an insert locked for itself alone, at its end.
    pub(crate) fn release_fresh_gap(&mut self) {
        if let Some(gap) = self.fresh_gap.take() {
            self.engine
                .locks
                .release(&self.worker, &mut self.owner, gap);
        }
    }
}

impl State {
    /// Checks and encodes what a write needs. Returns the table's index.
    pub(crate) fn prepare_write<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
        value: Option<&V>,
    ) -> Result<usize> {
        let table = self.open_table(table)?;
        self.set_key(key)?;
        if let Some(value) = value {
            self.set_value(value)?;
        }
        Ok(table)
    }

    /// What follows a write, however it was waited for.
    pub(crate) fn after_write(&mut self) -> Result<()> {
        self.release_fresh_gap();
        self.spill()
    }
}
