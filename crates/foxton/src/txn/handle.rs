//! Handle of a transaction, which owns its box between operations.
//!
//! Without [`Options::idle_timeout`](crate::Options::idle_timeout) the handle has the box from
//! begin to end. With it, each operation attaches the box and detaches it afterwards, into the
//! [idle slot](crate::engine::slot). Attaching fails if the idle timeout has ended the transaction.
//!
//! A forgotten operation leaves the box attached until the next operation. A range leaves it
//! attached as long as the program keeps the range. In both cases the transaction is not idle.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use foxton_lock::owner::OwnerId;
use foxton_sync::process::ProcessStamp;

use super::bound::BoundTxn;
use super::txn::Phase;
use crate::engine::Counter;
use crate::engine::idle_timeout::IdleEntry;
use crate::engine::slot::{BoxSlot, IDLE_SLOT};
use crate::error::{Conflict, Result, check_process};
use crate::testing::failpoint;

/// See the [module](self).
pub(crate) struct TxnHandle {
    /// Here from begin to end without an idle timeout, and never with one.
    bound: Option<Box<BoundTxn>>,
    /// `None` without an idle timeout.
    detachable: Option<Box<Detachable>>,
}

/// A box that each operation attaches and detaches.
pub(crate) struct Detachable {
    slot: Arc<BoxSlot<BoundTxn>>,
    /// Here while an operation uses it.
    attached: Option<Box<BoundTxn>>,
    process: ProcessStamp,
}

impl fmt::Debug for TxnHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Transaction");
        if let Some(bound) = &self.bound {
            shown
                .field("owner", &bound.ctx.owner.id())
                .field("locks", &bound.ctx.owner.lock_count())
                .field("changes", &bound.txn.changes.counts().total())
                .field("undo_bytes", &bound.txn.changes.paged.memory_bytes());
        }
        shown.finish_non_exhaustive()
    }
}

impl TxnHandle {
    /// The handle of a transaction that begins.
    #[inline(always)]
    pub(crate) fn new(bound: Box<BoundTxn>) -> TxnHandle {
        match bound.idle_slot {
            None => TxnHandle::never_idle(bound),
            Some(_) => TxnHandle::detachable(bound),
        }
    }

    #[cold]
    #[inline(never)]
    fn detachable(bound: Box<BoundTxn>) -> TxnHandle {
        let Some(slot) = bound.idle_slot.clone() else {
            return TxnHandle::never_idle(bound);
        };
        let process = bound.process;
        let mut detachable = Box::new(Detachable {
            slot,
            attached: Some(bound),
            process,
        });
        detachable.detach();
        TxnHandle {
            bound: None,
            detachable: Some(detachable),
        }
    }

    /// The handle of a transaction of the database itself, which is never idle.
    #[inline(always)]
    pub(crate) fn never_idle(bound: Box<BoundTxn>) -> TxnHandle {
        TxnHandle {
            bound: Some(bound),
            detachable: None,
        }
    }

    /// Attaches the box until the guard is dropped.
    ///
    /// # Errors
    /// `ended_idle`, if the idle timeout has ended the transaction.
    #[inline(always)]
    pub(crate) fn attach(&mut self) -> Result<TxnGuard<'_>> {
        match &mut self.bound {
            Some(bound) => {
                bound.check_process()?;
                Ok(TxnGuard::Kept(bound))
            }
            None => TxnHandle::attach_detached(&mut self.detachable),
        }
    }

    #[cold]
    #[inline(never)]
    fn attach_detached(detachable: &mut Option<Box<Detachable>>) -> Result<TxnGuard<'_>> {
        let detachable = detachable.as_mut().expect(DETACHABLE);
        check_process(&detachable.process)?;
        if detachable.attached.is_none() {
            let bound = detachable.slot.take().ok_or(Conflict::IDLE)?;
            bound.ctx.worker.account().passed(&IDLE_SLOT);
            detachable.attached = Some(bound);
        }
        Ok(TxnGuard::Attached(Attached(detachable)))
    }

    /// Takes the box for good.
    ///
    /// # Errors
    /// As for [`attach`](Self::attach); the idle timeout thread then recycles the box.
    #[inline(always)]
    pub(crate) fn into_bound(mut self) -> Result<Box<BoundTxn>> {
        match self.bound.take() {
            Some(bound) => {
                if let Err(forked) = bound.check_process() {
                    mem::forget(bound);
                    return Err(forked);
                }
                // Nothing is left to be dropped: without an idle timeout there is no `detachable`.
                mem::forget(self);
                Ok(bound)
            }
            None => self.leave(),
        }
    }

    #[cold]
    #[inline(never)]
    fn leave(mut self) -> Result<Box<BoundTxn>> {
        let detachable = self.detachable.as_mut().expect(DETACHABLE);
        check_process(&detachable.process)?;
        let left = detachable.leave();
        self.detachable = None;
        Ok(left.ok_or(Conflict::IDLE)?)
    }

    /// Rolls back, unless the transaction has ended. A forked child only forgets it.
    #[inline(never)]
    fn abandon(&mut self) {
        let mut detachable = self.detachable.take();
        let bound = self.bound.take();
        let process = match (&bound, &detachable) {
            (Some(bound), _) => bound.process,
            (None, Some(detachable)) => detachable.process,
            (None, None) => return,
        };
        if process.is_inherited() {
            mem::forget((bound, detachable));
            return;
        }
        if let Some(bound) = bound.or_else(|| detachable.as_mut()?.leave()) {
            BoundTxn::abandon(bound);
        }
    }
}

impl Detachable {
    fn leave(&mut self) -> Option<Box<BoundTxn>> {
        // Attached, if an operation was forgotten.
        let bound = self.attached.take().or_else(|| self.slot.leave())?;
        bound.ctx.worker.account().passed(&IDLE_SLOT);
        Some(bound)
    }

    #[cold]
    #[inline(never)]
    fn detach(&mut self) {
        let Some(bound) = self.attached.take() else {
            return;
        };
        if self.process.is_inherited() {
            mem::forget(bound);
            return;
        }
        bound.ctx.worker.account().passed(&IDLE_SLOT);
        let now = bound.ctx.engine.workers.clock().now();
        let refused = self.slot.put(bound, Some(now));
        assert!(
            refused.is_none(),
            "only its owner makes the thread close it"
        );
    }
}

const DETACHABLE: &str = "a handle without the box has its idle slot";
/// Why an operation that was prepared has the box.
const ATTACHED: &str = "attached, since it was prepared";

impl Drop for TxnHandle {
    #[inline(always)]
    fn drop(&mut self) {
        self.abandon();
    }
}

/// An attached box. It is detached when this is dropped, unless the handle keeps it to the end.
pub(crate) enum TxnGuard<'h> {
    Kept(&'h mut BoundTxn),
    Attached(Attached<'h>),
    Lent(Lent<'h>),
}

/// A box that goes back to what it belongs to when this is dropped.
pub(crate) struct Lent<'h> {
    bound: Option<Box<BoundTxn>>,
    owner: &'h (dyn GiveBack + Sync),
}

/// Owner of boxes that are lent for one operation.
pub(crate) trait GiveBack {
    /// Takes a box back.
    fn give_back(&self, bound: Box<BoundTxn>);
}

impl<'h> TxnGuard<'h> {
    /// Returns a guard that gives `bound` back to `owner`.
    pub(crate) fn lent(bound: Box<BoundTxn>, owner: &'h (dyn GiveBack + Sync)) -> TxnGuard<'h> {
        let bound = Some(bound);
        TxnGuard::Lent(Lent { bound, owner })
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(bound) = self.bound.take() {
            self.owner.give_back(bound);
        }
    }
}

/// A box that was taken from its idle slot, and returns to it when this is dropped.
pub(crate) struct Attached<'h>(&'h mut Detachable);

impl Drop for Attached<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.detach();
    }
}

impl Deref for TxnGuard<'_> {
    type Target = BoundTxn;

    #[inline(always)]
    fn deref(&self) -> &BoundTxn {
        match self {
            TxnGuard::Kept(bound) => bound,
            TxnGuard::Attached(taken) => taken.0.attached.as_deref().expect(ATTACHED),
            TxnGuard::Lent(lent) => lent.bound.as_deref().expect(ATTACHED),
        }
    }
}

impl DerefMut for TxnGuard<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut BoundTxn {
        match self {
            TxnGuard::Kept(bound) => bound,
            TxnGuard::Attached(taken) => taken.0.attached.as_deref_mut().expect(ATTACHED),
            TxnGuard::Lent(lent) => lent.bound.as_deref_mut().expect(ATTACHED),
        }
    }
}

impl IdleEntry for BoxSlot<BoundTxn> {
    fn end_if(&self, is_long: &dyn Fn(Instant) -> bool) -> Option<Instant> {
        let mut bound = match self.take_idle(is_long) {
            Ok(bound) => bound,
            Err(not_idle) => return not_idle.since(),
        };
        bound.ctx.worker.failpoints().pass(&failpoint::IDLE);
        bound.roll_back();
        bound.end_view();
        bound.ctx.free_slot();
        bound.txn.phase = Phase::Idle;
        bound.ctx.count(Counter::IdleEnded);
        if let Some(bound) = self.put_ended(bound) {
            BoundTxn::recycle(bound);
        }
        None
    }

    fn idle(&self) -> Option<(OwnerId, Instant)> {
        self.inspect(|bound, since| (bound.ctx.owner.id(), since))
    }
}
