//! A transaction bound to the context of a worker: what handles, sessions and the pool pass on.
//!
//! Both halves lie in one box. A function that needs one half is a method of that half; one that
//! needs both borrows them side by side, with `let BoundTxn { ctx, txn, .. } = self`.

use std::sync::Arc;

use foxton_sync::process::ProcessStamp;

use super::context::WorkerContext;
use super::txn::{Phase, Txn};
use crate::engine::context_pool::PoolCell;
use crate::engine::open_handle::OpenHandle;
use crate::engine::slot::BoxSlot;
use crate::error::{Conflict, Result, check_process};
use crate::types::codec::{Key, Value};
use crate::types::table::Table;

/// See the [module](self).
pub(crate) struct BoundTxn {
    pub(crate) ctx: WorkerContext,
    pub(crate) txn: Txn,
    /// The process that opened the database; a copy, because every operation reads it.
    pub(crate) process: ProcessStamp,
    /// Its cell in the pool.
    pub(super) cell: PoolCell<BoundTxn>,
    /// Holds it between operations; there with an idle timeout.
    pub(super) idle_slot: Option<Arc<BoxSlot<BoundTxn>>>,
    /// Holds it between transactions, while it belongs to a session.
    pub(super) session_slot: Option<Arc<BoxSlot<BoundTxn>>>,
    /// Its share in the open database. The background thread finishes a commit without one. It is
    /// dropped last, as `open_handle` requires (I1).
    pub(super) open: Option<Arc<OpenHandle>>,
}

impl BoundTxn {
    pub(super) fn new(open: &Arc<OpenHandle>, cell: PoolCell<BoundTxn>) -> BoundTxn {
        let engine = Arc::clone(open.engine());
        let (txn, process) = (Txn::new(&engine.options), engine.process);
        let idle_slot = engine
            .options
            .idle_timeout
            .map(|_| Arc::new(BoxSlot::new()));
        BoundTxn {
            ctx: WorkerContext::new(engine),
            txn,
            process,
            cell,
            idle_slot,
            session_slot: None,
            open: Some(open.clone()),
        }
    }

    /// Makes it keep the database open, before it is given to a program.
    #[inline]
    pub(crate) fn keep_open(&mut self, open: &Arc<OpenHandle>) {
        if self.open.is_none() {
            self.open = Some(open.clone());
        }
    }

    /// Refuses every operation in a forked child.
    #[inline(always)]
    pub(crate) fn check_process(&self) -> Result<()> {
        check_process(&self.process)
    }

    /// Refuses every operation once something has ended the transaction.
    #[inline]
    pub(crate) fn check_active(&mut self) -> Result<()> {
        match self.txn.phase {
            Phase::Active => Ok(()),
            _ => self.check_phase(),
        }
    }

    #[cold]
    fn check_phase(&mut self) -> Result<()> {
        let refused = match self.txn.phase {
            Phase::Active => return Ok(()),
            Phase::Watched if !self.txn.is_cancelled() => return Ok(()),
            Phase::Watched => {
                self.end_as_cancelled();
                Conflict::CANCELLED
            }
            Phase::Cancelled => Conflict::CANCELLED,
            Phase::Idle => Conflict::IDLE,
            // A transaction that commits gets no operations.
            Phase::Ended | Phase::Released => {
                let ended_by = self.txn.ended_by.as_ref();
                ended_by.map_or(Conflict::ENDED, Conflict::ended)
            }
        };
        Err(refused.into())
    }

    /// Returns the index of `table` among the cached tables, after checking its types, or
    /// [`ABSENT`](super::context::ABSENT). Every operation on a table begins here.
    #[inline]
    pub(crate) fn open_table<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
    ) -> Result<usize> {
        self.check_active()?;
        self.forget_large();
        self.ctx.cached_table(table)
    }
}
