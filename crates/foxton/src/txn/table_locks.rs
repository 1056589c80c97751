//! Lock requests of transactions.
//!
//! A request never sleeps. It is granted, refused, or enqueued; an enqueued request makes its
//! attempt return [`AttemptResult::Wait`], and [`wait`](super::wait) sleeps or yields until the
//! lock manager answers it.
//!
//! # Which names are requested
//!
//! * With locking off, or if the isolation level takes no locks: none.
//! * Once the owner holds a whole table, by escalation or because the program locked it: those
//!   names that no table lock covers (`Owner::covers`).
//! * Otherwise: all.

use foxton_lock::any::AnyManager;
use foxton_lock::manager::LockManager;
use foxton_lock::mode::{KeyPart, Mode};
use foxton_lock::name::{Class, Name};
use foxton_lock::owner::{Owner, Scan};
use foxton_lock::request::{Refusal, Reply, WaitMode};
use foxton_store::memory::{Located, Record, RecordTable};
use foxton_sync::anchor::LockAnchor;
use foxton_sync::epoch::Guard;
use foxton_sync::worker::Worker;
use std::ptr;

use super::attempt::{AttemptResult, done};
use super::short_lock::ShortLock;
use crate::catalog::OpenTable;
use crate::engine::Engine;
use crate::error::{Conflict, Error, Result};
use crate::options::Locking;
use crate::testing::injected_fault;
use crate::types::isolation::LockDuration;
use crate::types::lock_options::LockWait;

/// Requests locks on one table, without waiting.
pub(crate) struct TableLocks<'a> {
    manager: &'a AnyManager,
    worker: &'a Worker,
    pub(crate) owner: &'a mut Owner,
    table: &'a OpenTable,
    patience: WaitMode,
    requested: Requested,
    scan: Scan,
}

/// Which names are requested.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Requested {
    All,
    /// Those that no lock on a whole table covers.
    Uncovered,
    None,
}

impl<'a> TableLocks<'a> {
    #[inline]
    pub(crate) fn new(
        engine: &'a Engine,
        worker: &'a Worker,
        owner: &'a mut Owner,
        table: &'a OpenTable,
        wait: LockWait,
    ) -> TableLocks<'a> {
        let requested = match engine.options.locking {
            Locking::On if owner.has_escalated() => Requested::Uncovered,
            Locking::On => Requested::All,
            _ => Requested::None,
        };
        TableLocks {
            manager: &engine.locks,
            worker,
            owner,
            table,
            patience: wait.patience(),
            requested,
            scan: Scan::new(),
        }
    }

    /// Requests no locks if they are to be held for no time.
    #[inline]
    pub(crate) fn with_duration(mut self, duration: LockDuration) -> TableLocks<'a> {
        if duration == LockDuration::None {
            self.requested = Requested::None;
        }
        self
    }

    /// True if any locks are requested.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.requested != Requested::None
    }

    /// True if `name` need not be requested.
    #[inline]
    fn is_covered(&self, name: Name, mode: Mode) -> bool {
        let faults = self.worker.failpoints();
        let held = || self.owner.held_mode(name);
        match self.requested {
            _ if injected_fault::skips_lock(faults, mode, held) => true,
            Requested::All => false,
            Requested::Uncovered => self.owner.covers(name, mode),
            Requested::None => true,
        }
    }

    /// Requests the table in `mode`. If the owner then holds the whole table, its keys are no
    /// longer requested.
    pub(crate) fn lock_table_name(&mut self, name: Name, mode: Mode) -> Result<AttemptResult<()>> {
        let result = self.lock(name, mode);
        if self.requested == Requested::All && self.owner.has_escalated() {
            self.requested = Requested::Uncovered;
        }
        result
    }

    /// Requests `name` in `mode`.
    #[inline]
    pub(crate) fn lock(&mut self, name: Name, mode: Mode) -> Result<AttemptResult<()>> {
        if self.is_covered(name, mode) {
            return Ok(AttemptResult::Done(()));
        }
        let reply = self
            .manager
            .request(self.worker, self.owner, name, mode, self.patience);
        self.attempt_result(reply)
    }

    /// Requests the key `name`, whose record has this anchor, if there is a record.
    #[inline]
    pub(crate) fn lock_at(
        &mut self,
        name: Name,
        anchor: Option<&LockAnchor>,
        mode: Mode,
    ) -> Result<AttemptResult<()>> {
        if self.is_covered(name, mode) {
            return Ok(AttemptResult::Done(()));
        }
        let (worker, patience) = (self.worker, self.patience);
        let reply = match anchor {
            Some(anchor) => {
                let target = (name, anchor);
                self.manager
                    .request_anchored(worker, self.owner, target, mode, patience)
            }
            None => self
                .manager
                .request(worker, self.owner, name, mode, patience),
        };
        self.attempt_result(reply)
    }

    /// Requests a key, and returns its record, which may be a ghost. `located` is where it was a
    /// moment ago. With a `short_lock`, as [`lock_short`](Self::lock_short).
    ///
    /// The record that is returned is the one with whose anchor the key was requested: while the
    /// lock was requested, the record may have come or gone.
    #[inline]
    pub(crate) fn lock_located<'g>(
        &mut self,
        short_lock: Option<&ShortLock>,
        (name, key, mode): (Name, &[u8], Mode),
        located: Located<'g>,
        (rows, guard): (&'g RecordTable, &'g Guard<'_>),
    ) -> Result<AttemptResult<Option<&'g Record>>> {
        let found = located.found();
        done!(self.lock_for(short_lock, name, found.map(Record::anchor), mode));
        let mut requested = found;
        let mut record = located.record(rows, guard, key);
        // A record that is gone leaves the lock where keys without a record have theirs.
        while let Some(new) = record
            && !requested.is_some_and(|former| ptr::eq(former, new))
        {
            done!(self.lock_for(short_lock, name, Some(new.anchor()), mode));
            requested = record;
            if !new.is_linked() {
                record = rows.get(guard, key);
            }
        }
        Ok(AttemptResult::Done(record))
    }

    /// As [`lock_located`](Self::lock_located), for a key that was not located.
    #[inline]
    pub(crate) fn lock_key<'g>(
        &mut self,
        short_lock: Option<&ShortLock>,
        (name, key, mode): (Name, &[u8], Mode),
        (rows, guard): (&'g RecordTable, &'g Guard<'_>),
    ) -> Result<AttemptResult<Option<&'g Record>>> {
        let located = rows.locate(guard, key);
        self.lock_located(short_lock, (name, key, mode), located, (rows, guard))
    }

    /// Prefetches the lock of `name`, which is requested soon.
    #[inline]
    pub(crate) fn prefetch(&self, name: Name) {
        if self.is_on() {
            self.manager.prefetch(name);
        }
    }

    /// Requests a key that is released once it has been read, unless it was held before.
    pub(crate) fn lock_short(
        &mut self,
        short_lock: &ShortLock,
        name: Name,
        anchor: Option<&LockAnchor>,
        mode: Mode,
    ) -> Result<AttemptResult<()>> {
        // Not in an attempt after a wait: then the attempt before it has the key.
        if self.owner.held_mode(name).is_none() {
            // After a wait an entry of an index may lead to another row than before it.
            self.release_short(short_lock);
            short_lock.record(name);
        }
        self.lock_at(name, anchor, mode)
    }

    /// Requests a key; with a `short_lock`, as [`lock_short`](Self::lock_short).
    #[inline]
    pub(crate) fn lock_for(
        &mut self,
        short_lock: Option<&ShortLock>,
        name: Name,
        anchor: Option<&LockAnchor>,
        mode: Mode,
    ) -> Result<AttemptResult<()>> {
        match short_lock {
            Some(short_lock) => self.lock_short(short_lock, name, anchor, mode),
            None => self.lock_at(name, anchor, mode),
        }
    }

    /// Releases the key recorded in `short_lock`.
    pub(crate) fn release_short(&mut self, short_lock: &ShortLock) {
        if let Some(name) = short_lock.take() {
            self.release(name);
        }
    }

    /// Requests a key that a scan has reached.
    #[inline]
    pub(crate) fn lock_in_scan(
        &mut self,
        name: Name,
        anchor: Option<&LockAnchor>,
        mode: Mode,
    ) -> Result<AttemptResult<()>> {
        if self.is_covered(name, mode) {
            return Ok(AttemptResult::Done(()));
        }
        let (worker, scan) = (self.worker, &mut self.scan);
        let (target, patience) = ((name, anchor), self.patience);
        let reply = self
            .manager
            .request_in_scan(worker, self.owner, scan, target, mode, patience);
        self.attempt_result(reply)
    }

    /// Requests all keys from `first` to `last`, and the gaps between. Returns false if they have
    /// to be requested one by one.
    #[inline]
    pub(crate) fn lock_range(&mut self, first: Name, last: Name) -> bool {
        !self.worker.failpoints().misbehaves_anywhere()
            && self
                .manager
                .lock_range(self.worker, self.owner, first, last)
    }

    #[inline]
    fn attempt_result(&self, reply: Reply) -> Result<AttemptResult<()>> {
        match reply {
            Reply::Granted | Reply::Held => Ok(AttemptResult::Done(())),
            Reply::Waiting => Ok(AttemptResult::Wait),
            Reply::Skipped => Err(Conflict::PASSED_OVER.into()),
            Reply::Refused(refusal) => Err(self.refused(*refusal)),
        }
    }

    #[cold]
    fn refused(&self, refusal: Refusal) -> Error {
        // A refusal without a wait has no cycle: its names are in this table, or in the table that
        // its entries lead to.
        Conflict::refused(refusal, |space| self.table.call(space)).into()
    }

    /// True if the injected fault is armed that skips the second look, after the lock was granted.
    #[inline(always)]
    pub(crate) fn looks_once(&self) -> bool {
        self.worker
            .failpoints()
            .misbehaves(&injected_fault::LOOKUP_NOT_REPEATED)
    }

    /// Releases `name` if its key is only locked shared.
    #[cold]
    pub(crate) fn release_shared(&mut self, name: Name) {
        let held = self.owner.held_mode(name);
        if held.is_some_and(|held| held.key_part() == KeyPart::S) {
            self.release(name);
        }
    }

    /// Releases `name`.
    pub(crate) fn release(&mut self, name: Name) {
        if self.is_on() {
            self.manager.release(self.worker, self.owner, name);
        }
    }
}

/// Requests a name that the program locks explicitly. Returns false if another owner has it and
/// the program skips locked names.
pub(super) fn lock_explicit(
    engine: &Engine,
    worker: &Worker,
    owner: &mut Owner,
    (name, mode, wait): (Name, Mode, LockWait),
) -> Result<AttemptResult<bool>> {
    let locks = &engine.locks;
    match locks.request(worker, owner, name, mode, wait.patience()) {
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
            let error = Error::from(refused);
            match wait == LockWait::Skip && error.is_busy() {
                true => Ok(AttemptResult::Done(false)),
                false => Err(error),
            }
        }
    }
}

/// Requests `name` in `mode` for the end of a transaction, without waiting. Returns true if the
/// owner holds it, or the whole table.
pub(super) fn request_now(
    engine: &Engine,
    worker: &Worker,
    owner: &mut Owner,
    (name, anchor, mode): (Name, Option<&LockAnchor>, Mode),
) -> bool {
    if owner.has_escalated() && owner.covers(name, mode) {
        return true;
    }
    let locks = &engine.locks;
    let reply = match anchor {
        Some(anchor) => {
            let target = (name, anchor);
            locks.request_anchored(worker, owner, target, mode, WaitMode::Refuse)
        }
        None => locks.request(worker, owner, name, mode, WaitMode::Refuse),
    };
    matches!(reply, Reply::Granted | Reply::Held)
}
