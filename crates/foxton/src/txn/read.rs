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
use crate::isolation::Hold;
use crate::lock::{LockOptions, LockWait};
use crate::planted::Fault;
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
            isolation,
            brief,
            changes,
            ..
        } = self;
        let index = table;
        let table = &*tables[index].table;
        let planted = engine.options.planted();
        let hold = planted.hold(isolation.hold(options), options.lock);
        let locker = Locker::new(engine, worker, owner, table, options.wait);
        let mut locker = locker.holding(hold);
        let id = table.record.id;
        let mode = options.lock.key_mode();
        let name = Name::key(id, key, &engine.hasher);
        // Found before it is locked: what it takes to lock it and to read it is fetched meanwhile.
        locker.expect(name);
        let guard = worker.pin();
        let located = table.rows.locate(&guard, key);
        let mut asked = locker.ask(Name::table(id), mode.parent_mode());
        if let Ok(Step::Done(())) = asked {
            asked = match hold {
                Hold::Briefly => locker.ask_briefly(brief, name, mode),
                _ => locker.ask(name, mode),
            };
        }
        match asked {
            Ok(Step::Done(())) => {}
            Ok(Step::Wait) => return Ok(Step::Wait),
            Err(error) if options.wait == LockWait::Skip && error.is_busy() => {
                return Ok(Step::Done(None));
            }
            Err(error) => return Err(error),
        }
        let mut hazard = guard.hazard();
        let found = located.record(&table.rows, &guard, key).and_then(|record| {
            seen.note(record);
            record.value(&mut hazard)
        });
        let own = || changes.first_old(index, key);
        let found = match planted.is(Fault::OwnMissed) {
            true => own().or(found),
            false => found,
        };
        if planted.is(Fault::MissUnlocked) && found.is_none() {
            locker.release_shared(name);
        }
        let found = found.and_then(|value| Some(read.take()?(value)));
        if hold == Hold::Briefly {
            locker.let_go(brief);
        }
        Ok(Step::Done(found))
    }

    /// Checks and encodes what a read needs. Returns the table's index.
    pub(crate) fn prepare_get<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<usize> {
        let table = self.meet(table)?;
        self.set_key(key)?;
        self.brief.forget();
        Ok(table)
    }
}
