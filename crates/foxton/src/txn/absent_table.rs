//! Absent tables: reads of a table that does not exist, and the write that makes it.
//!
//! A read of an absent table finds nothing and makes nothing. It locks the *name* of the table
//! instead, so that the transaction that makes the table comes after it, as an insert into a range
//! comes after the reads of the range. The names of tables are keys of a table of their own, which
//! has a number ([`TABLE_NAMES`]) and no rows.
//!
//! # Protocol
//!
//! * *A reader* locks the name and its gap: S, or what its operation asks for, with gap S. Then it
//!   looks for the table again, because the request may have waited for a transaction that made it.
//!   At isolation levels that hold no locks it only looks.
//! * *A maker* requests an insert intention on the gap, so it waits for readers of other
//!   transactions and not for other makers. Then it makes the table. If it had not read the name,
//!   it releases the intention at once: transactions that come later find the table.
//!
//! # Invariants
//!
//! * I1  While a transaction holds a name and its gap S, only that transaction makes the table.
//! * I2  A transaction that makes a table which it has read as absent holds the whole table before
//!   any other transaction can find it: S, or X if it held the name more strongly. So the table
//!   protects from then on what the name protected before. The request never waits, because no
//!   other transaction knows the table's number.
//! * I3  An index of a cached table is less than the number of cached tables, and
//!   [`ABSENT`](super::context::ABSENT) is not. So an operation on a table that exists tests for
//!   this with the check of bounds alone.

use std::sync::Arc;

use foxton_lock::manager::LockManager;
use foxton_lock::mode::{GapPart, KeyPart, Mode};
use foxton_lock::name::Name;
use foxton_lock::request::Outcome;

use super::attempt::{AttemptResult, done};
use super::bound::BoundTxn;
use super::context::{PREPARED, WorkerContext};
use super::table_locks::lock_explicit;
use crate::catalog::{NamedTable, OpenTable};
use crate::error::{Conflict, Result};
use crate::options::Locking;
use crate::redo::record::{self, TableRecord};
use crate::types::component::TableComponent;
use crate::types::isolation::LockDuration;
use crate::types::limits::TABLE_NAMES;
use crate::types::lock_options::{Lock, LockOptions, LockWait, TableLock};
const INTENTION: Mode = Mode::key(KeyPart::None, GapPart::InsertIntention);

/// Result of a request for the name of an absent table.
enum Found {
    /// The table exists by now.
    Table(usize),
    /// It is absent, and stays so as far as the operation needs.
    Absent,
    /// The name is locked, and the operation skips what is locked.
    Skipped,
}

impl BoundTxn {
    /// Returns the index of a table that was absent when a read was prepared; `None` if it is
    /// absent still.
    #[cold]
    #[inline(never)]
    pub(super) fn absent_to_read(
        &mut self,
        lock: LockOptions,
    ) -> Result<AttemptResult<Option<usize>>> {
        let found = match self.txn.isolation.hold(lock) {
            LockDuration::Range | LockDuration::Key => done!(self.read_name(lock)),
            LockDuration::Short | LockDuration::None => self.find_absent()?,
        };
        Ok(AttemptResult::Done(match found {
            Found::Table(index) => Some(index),
            Found::Absent | Found::Skipped => None,
        }))
    }

    /// Returns the index of a table that is written to; `None` if it is absent and need not be
    /// made.
    #[cold]
    #[inline(never)]
    pub(super) fn absent_to_write(
        &mut self,
        is_delete: bool,
    ) -> Result<AttemptResult<Option<usize>>> {
        let found = match is_delete {
            // It reads that there is no such key. Locks of writes stay to the end at every level.
            true => done!(self.read_name(Lock::Shared.into())),
            false => done!(self.make_absent(LockWait::Default)),
        };
        Ok(AttemptResult::Done(match found {
            Found::Table(index) => Some(index),
            Found::Absent | Found::Skipped => None,
        }))
    }

    /// Locks a whole table that may be absent. Returns false if it is to be skipped.
    pub(crate) fn lock_table_step(
        &mut self,
        index: usize,
        lock: TableLock,
        wait: LockWait,
    ) -> Result<AttemptResult<bool>> {
        let index = match lock {
            _ if index < self.ctx.tables.len() => index,
            TableLock::IntentShared | TableLock::Shared => {
                let lock = Lock::Shared.into();
                match done!(self.read_name(LockOptions { wait, ..lock })) {
                    Found::Table(index) => index,
                    found => return Ok(AttemptResult::Done(matches!(found, Found::Absent))),
                }
            }
            _ => match done!(self.make_absent(wait)) {
                Found::Table(index) => index,
                _ => return Ok(AttemptResult::Done(false)),
            },
        };
        let name = Name::table(self.ctx.tables[index].table.record.id);
        let had = done!(self.lock_name(name, lock.mode(), wait));
        match had && self.ctx.tables[index].table.is_former() {
            true => Ok(AttemptResult::Pause),
            false => Ok(AttemptResult::Done(had)),
        }
    }

    fn find_absent(&mut self) -> Result<Found> {
        let found = self.ctx.open_absent()?;
        Ok(found.map_or(Found::Absent, Found::Table))
    }

    /// Locks the name of the absent table for a reader.
    fn read_name(&mut self, lock: LockOptions) -> Result<AttemptResult<Found>> {
        if let Found::Table(index) = self.find_absent()? {
            return Ok(AttemptResult::Done(Found::Table(index)));
        }
        let name = self.ctx.absent_name();
        match done!(self.lock_key(name, lock.lock.range_mode(), lock.wait)) {
            true => Ok(AttemptResult::Done(self.find_absent()?)), // I1
            false => Ok(AttemptResult::Done(Found::Skipped)),
        }
    }

    /// Makes the absent table, unless it exists by now.
    fn make_absent(&mut self, wait: LockWait) -> Result<AttemptResult<Found>> {
        if let Found::Table(index) = self.find_absent()? {
            return Ok(AttemptResult::Done(Found::Table(index)));
        }
        let absent = self.ctx.absent.expect(PREPARED);
        if done!(self.make_table_step(absent.named(), wait)).is_none() {
            return Ok(AttemptResult::Done(Found::Skipped));
        }
        Ok(AttemptResult::Done(self.find_absent()?))
    }

    /// Returns the table of `named`; makes it if it is absent. Returns `None` if its name is
    /// locked and to be skipped.
    pub(crate) fn make_table_step(
        &mut self,
        named: NamedTable<'_>,
        wait: LockWait,
    ) -> Result<AttemptResult<Option<Arc<OpenTable>>>> {
        let (engine, name) = (self.ctx.engine.clone(), named.name);
        let catalog = &engine.catalog;
        if let Some(table) = catalog.look_up(&self.ctx.worker, named)? {
            return Ok(AttemptResult::Done(Some(table)));
        }
        let of_name = Name::key(TABLE_NAMES, name.as_bytes(), &engine.hasher);
        if !done!(self.lock_key(of_name, INTENTION, wait)) {
            return Ok(AttemptResult::Done(None));
        }
        let WorkerContext { worker, owner, .. } = &mut self.ctx;
        let whole = match owner
            .held_mode(of_name)
            .map_or(KeyPart::None, Mode::key_part)
        {
            _ if engine.options.locking == Locking::Off => None,
            // Escalated: the names as a whole.
            KeyPart::None => {
                let names = owner.held_mode(Name::table(TABLE_NAMES));
                let names = names.filter(|mode| mode.covers(Mode::S));
                names.map(|mode| {
                    if mode.covers(Mode::X) {
                        Mode::X
                    } else {
                        Mode::S
                    }
                })
            }
            KeyPart::S => Some(Mode::S),
            _ => Some(Mode::X),
        };
        let component = named.component.unwrap_or(engine.options.component);
        if component == TableComponent::Paged {
            engine.make_pages()?;
        }
        let table = catalog.make(worker, named, component, |record: &TableRecord| {
            if let Some(mode) = whole {
                // I2
                let of_table = Name::table(record.id);
                let locked = engine.locks.try_lock(worker, owner, of_table, mode);
                if let Outcome::Refused(refusal) = locked {
                    return Err(Conflict::refused(*refusal, |_| name.to_owned()).into());
                }
                owner.record_table_lock();
            }
            let Some(log) = engine.log() else {
                return Ok(()); // Nothing is kept.
            };
            let logged = log.insert(worker, record::TABLE, &[&record.encode()]);
            logged.map(drop).map_err(|error| engine.log_failed(error))
        })?;
        if whole.is_none() && engine.options.locking == Locking::On {
            engine.locks.release(worker, owner, of_name);
        }
        Ok(AttemptResult::Done(Some(table)))
    }

    /// Locks the name of a table, with the intention above it. Returns false if it is to be
    /// skipped.
    fn lock_key(&mut self, name: Name, mode: Mode, wait: LockWait) -> Result<AttemptResult<bool>> {
        let names = Name::table(TABLE_NAMES);
        if !done!(self.lock_name(names, mode.parent_mode(), wait)) {
            return Ok(AttemptResult::Done(false));
        }
        let owner = &self.ctx.owner;
        if owner.has_escalated() && owner.covers(name, mode) {
            return Ok(AttemptResult::Done(true));
        }
        self.lock_name(name, mode, wait)
    }

    fn lock_name(&mut self, name: Name, mode: Mode, wait: LockWait) -> Result<AttemptResult<bool>> {
        let WorkerContext {
            engine,
            worker,
            owner,
            ..
        } = &mut self.ctx;
        match engine.options.locking {
            Locking::On => lock_explicit(engine, worker, owner, (name, mode, wait)),
            _ => Ok(AttemptResult::Done(true)),
        }
    }
}
