//! Locking what is named by hand: whole tables, and numbers that mean something to the program alone.
//!
//! Both are names like any other: the same managers, one wait-for graph, one list of what is held. Under
//! a table that is held so that it covers them, keys are not asked for any more
//! (`Owner::covers`).

use foxton_lock::manager::LockManager;
use foxton_lock::mode::Mode;
use foxton_lock::name::{Class, Name};
use foxton_lock::request::Reply;

use super::attempt::AttemptResult;
use super::state::State;
use crate::error::{Conflict, Result};
use crate::options::Locking;
use crate::types::codec::{Key, Value};
use crate::types::lock_options::{LockOptions, LockWait, TableLock};
use crate::types::table::Table;

/// A name, how to hold it, and how long to wait for that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockRequest {
    name: Name,
    mode: Mode,
    /// What the program calls it; 0 for a table.
    number: u64,
    pub(crate) wait: LockWait,
}

impl LockRequest {
    /// The number, if it is one that is wanted.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl State {
    /// What locking `table` means.
    pub(crate) fn prepare_lock_table<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        lock: TableLock,
        wait: LockWait,
    ) -> Result<LockRequest> {
        let index = self.open_table(table)?;
        Ok(LockRequest {
            name: Name::table(self.tables[index].table.record.id),
            mode: lock.mode(),
            number: 0,
            wait,
        })
    }

    /// Asks for what is wanted. `false`: somebody has it, and it was to be passed over.
    pub(crate) fn lock_step(&mut self, request: LockRequest) -> Result<AttemptResult<bool>> {
        let State {
            engine,
            worker,
            owner,
            ..
        } = self;
        if engine.options.locking != Locking::On {
            return Ok(AttemptResult::Done(true));
        }
        let LockRequest {
            name, mode, wait, ..
        } = request;
        match engine
            .locks
            .request(worker, owner, name, mode, wait.patience())
        {
            Reply::Granted | Reply::Held => {
                if name.class() == Class::Table && mode.covers(Mode::S) {
                    owner.record_table_lock();
                }
                Ok(AttemptResult::Done(true))
            }
            Reply::Waiting => Ok(AttemptResult::Wait),
            Reply::Skipped => Ok(AttemptResult::Done(false)),
            Reply::Refused(refusal) => {
                let refused = Conflict::refused(*refusal, |table| engine.catalog.name_of(table));
                let error = crate::Error::from(refused);
                match wait == LockWait::Skip && error.is_busy() {
                    true => Ok(AttemptResult::Done(false)),
                    false => Err(error),
                }
            }
        }
    }
}

/// What locking `number` means.
pub(crate) fn advisory(number: u64, lock: LockOptions) -> LockRequest {
    LockRequest {
        name: Name::advisory(number),
        mode: lock.lock.advisory_mode(),
        number,
        wait: lock.wait,
    }
}
