//! Explicit locks: whole tables ([`absent_table`](super::absent_table), because the table may be
//! absent), and numbers that only the program gives a meaning.
//!
//! Both are names like any other, in the same lock manager, wait-for graph and list of locks. Once
//! a transaction has locked a table, it requests no key that this lock covers (`Owner::covers`).

use foxton_lock::mode::Mode;
use foxton_lock::name::Name;

use super::attempt::AttemptResult;
use super::bound::BoundTxn;
use super::context::WorkerContext;
use super::table_locks;
use crate::error::Result;
use crate::options::Locking;
use crate::types::lock_options::{LockOptions, LockWait};

/// An explicit lock of a number: its name and mode, and how long to wait for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockRequest {
    name: Name,
    mode: Mode,
    /// The number that the program locks.
    number: u64,
    pub(crate) wait: LockWait,
}

impl LockRequest {
    /// Number that the program locks.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl BoundTxn {
    /// Requests an explicit lock. Returns false if another owner has it and it is to be skipped.
    pub(crate) fn lock_step(&mut self, request: LockRequest) -> Result<AttemptResult<bool>> {
        let WorkerContext {
            engine,
            worker,
            owner,
            ..
        } = &mut self.ctx;
        if engine.options.locking != Locking::On {
            return Ok(AttemptResult::Done(true));
        }
        let request = (request.name, request.mode, request.wait);
        table_locks::lock_explicit(engine, worker, owner, request)
    }
}

/// Returns the request that locks `number`.
pub(crate) fn advisory(number: u64, lock: LockOptions) -> LockRequest {
    LockRequest {
        name: Name::advisory(number),
        mode: lock.lock.advisory_mode(),
        number,
        wait: lock.wait,
    }
}
