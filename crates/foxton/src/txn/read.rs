//! Reading one key.
//!
//! The lock on a key's name protects the key whether or not it is there: to appear, it must be
//! locked exclusively under the same name. So a read that finds nothing needs no lock on the gap
//! around the key, and two transactions that miss neighbouring keys do not meet.

use foxton_lock::name::Name;

use super::state::{Locker, State};
use super::step::Step;
use crate::codec::{Key, Value};
use crate::error::Result;
use crate::lock::{LockOptions, LockWait};
use crate::table::Table;

impl State {
    /// Gives the value of `self.key` to `read`, if the key is there.
    #[inline]
    pub(crate) fn get_step<R>(
        &mut self,
        table: usize,
        options: LockOptions,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Result<Step<Option<R>>> {
        let State {
            engine,
            worker,
            owner,
            tables,
            key,
            seen,
            ..
        } = self;
        let table = &*tables[table].table;
        let mut locker = Locker::new(engine, worker, owner, table, options.wait);
        let id = table.record.id;
        let mode = options.lock.key_mode();
        let mut ask = |name, mode| match locker.ask(name, mode) {
            Err(error) if options.wait == LockWait::Skip && error.is_busy() => Ok(None),
            asked => asked.map(Some),
        };
        for (name, mode) in [
            (Name::table(id), mode.parent_mode()),
            (Name::key(id, key, &engine.hasher), mode),
        ] {
            match ask(name, mode)? {
                Some(Step::Done(())) => {}
                Some(Step::Wait) => return Ok(Step::Wait),
                None => return Ok(Step::Done(None)),
            }
        }
        let guard = worker.pin();
        let Some(record) = table.rows.get(&guard, key) else {
            return Ok(Step::Done(None));
        };
        seen.note(record);
        let value = record.value();
        Ok(Step::Done(
            value.and_then(|value| Some(read.take()?(value))),
        ))
    }

    /// Checks and encodes what a read needs. Returns the table's index.
    pub(crate) fn prepare_get<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<usize> {
        let table = self.meet(table)?;
        self.set_key(key)?;
        Ok(table)
    }
}
