//! Emulated transactions, so that everything above a latch can be tested with elision on any
//! machine.
//!
//! As in `model`, nothing here can undo a body. So a thread inside a transaction is alone there
//! until its end, and a transaction that aborts has aborted at its beginning. Each latch has
//! transactions of its own, so that bodies may pass other latches. A thread that comes while
//! another is inside does not wait but gets a conflict, so that a try never waits, and bodies may
//! try the latch that they are inside of. One in four of those that would commit aborts
//! nevertheless, for each cause in turn.
//!
//! One thread at a time sees the value behind the latch. So this shows that entering and leaving is
//! right, with every policy and everything built on it. It shows nothing of concurrent real
//! transactions.

use super::exclusion::Exclusion;
use crate::htm::backend::TransactionBackend;
use crate::htm::{Abort, Cause};
use crate::shim::{AtomicU32, Ordering};

/// The transactions of one latch: one at a time.
#[derive(Debug, Default)]
pub(crate) struct Emulated {
    inside: Exclusion,
    begun: AtomicU32,
}

impl Emulated {
    /// Returns an abort for every fourth transaction that could commit: all causes in turn, with
    /// and without a hint to retry.
    fn injected_abort(&self) -> Option<Abort> {
        // Relaxed: plain counting; it does not matter which thread gets which.
        let begun = self.begun.fetch_add(1, Ordering::Relaxed) as usize;
        if !begun.is_multiple_of(4) {
            return None;
        }
        let turn = begun / 4;
        let abort = Abort::because(Cause::ALL[turn / 2 % Cause::ALL.len()]);
        Some(match turn.is_multiple_of(2) {
            true => abort.that_may_succeed(),
            false => abort,
        })
    }
}

impl TransactionBackend for Emulated {
    fn begin(&self, free: impl FnOnce() -> bool) -> Result<(), Abort> {
        if let Some(abort) = self.injected_abort() {
            return Err(abort);
        }
        if !self.inside.try_enter() {
            return Err(Abort::because(Cause::Conflict).that_may_succeed());
        }
        // SAFETY: we have just entered.
        unsafe { self.inside.stay(free) }
    }

    unsafe fn end(&self) {
        // SAFETY: the caller has begun, which is to enter.
        unsafe { self.inside.leave() }
    }

    fn abort_enclosing(&self) {}

    fn exclusively<R>(&self, take: impl FnOnce() -> R) -> R {
        self.inside.with(take)
    }

    fn try_exclusively(&self, take: impl FnOnce() -> bool) -> bool {
        if !self.inside.try_enter() {
            return false;
        }
        let taken = take();
        // SAFETY: we have just entered.
        unsafe { self.inside.leave() };
        taken
    }
}
