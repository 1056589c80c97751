//! Transactions that software stands in for, so that everything above a latch can be tried with it elided on any
//! machine.
//!
//! As in `model`, nothing here can undo what a body did: whoever is inside a transaction is alone there until its end,
//! and what aborts has aborted at its beginning. Here each latch has transactions of its own, so that bodies may pass
//! other latches; and who comes while somebody is inside does not wait but has met a conflict, so that a try never
//! waits, and bodies may try the latch that they are inside of. Of those that would commit, one in four aborts
//! nevertheless, for one reason after the other.
//!
//! What is behind the latch is seen by one thread at a time. So this shows that the way in and out is right, with
//! every policy and whatever is built on it, and nothing of what threads do beside each other in real transactions.

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
    /// Why this one aborts that could commit, if it does: all causes, with hope and without, one after the other.
    fn injected_abort(&self) -> Option<Abort> {
        // Relaxed: plain counting; who gets which does not matter.
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
