//! Orders of acquisition: savepoints, and locks retained from one transaction to the next.
//!
//! Each lock has an order, in which it was acquired, and a savepoint is an order, too. Each order
//! is used once, even for a lock that is soon released, so a session that locks and unlocks for
//! long enough would run out of orders. When half of them are used up, the held locks are
//! renumbered before the next request. If a session states which locks it retains, all are
//! renumbered, because that voids all savepoints. Otherwise only locks acquired since the latest
//! savepoint are renumbered. An owner that still has no free order holds that many locks, and is
//! refused ([`RefusalReason::Full`](crate::request::RefusalReason::Full)).

use super::{EscalationState, LockSavepoint, Owner};
use crate::owner::{lock_list::LAST_ORDER, remembered::RememberedLocks};

/// Locks retained from one transaction to the next.
impl Owner {
    /// Begins the next transaction of an owner that retains all locks acquired before `retained`.
    /// The transaction has age zero and no defeats. It keeps the id and the label, by which others
    /// know the holder of those locks.
    ///
    /// For locks that outlive transactions. The owner is one node of the wait-for graph for
    /// whatever it waits. So a cycle is found that goes through a retained lock and a request of
    /// the transaction.
    ///
    /// # Panics
    ///
    /// If a later acquisition is held (call `release_since` first), or a wait is in progress.
    pub fn begin_retaining(&mut self, retained: LockSavepoint) {
        self.assert_idle();
        let since = retained.order();
        let is_before = |list: &RememberedLocks| {
            let last = list.len().checked_sub(1);
            last.is_none_or(|last| self.lookup.order_of(last) < since)
        };
        assert!(
            self.remembered().is_none_or(is_before),
            "begin with locks held: release_since comes first"
        );
        // Orders start again at the savepoint, because they would run out otherwise.
        let acquired =
            u64::from(self.locks.rewind(since)) + u64::from(self.lookup.take_acquired_count());
        self.count_acquired(acquired);
        if self.locks.is_timed() {
            self.count_ended_holds();
        }
        self.lookup.retain(since, self.list.len());
        self.mark_idle();
        self.defeats = 0;
        self.escalated = EscalationState::none(self.id, self.owners.limits());
        self.owners.begin(&self.record, self.id);
    }

    /// Retains the locks held now, from one transaction to the next, until they are released by
    /// name or all are released. A transaction ends with `release_since` the returned savepoint,
    /// and the next one starts with [`begin_retaining`](Self::begin_retaining) it. Earlier
    /// savepoints are void.
    ///
    /// # Panics
    ///
    /// If a wait is in progress.
    pub fn retain(&mut self) -> LockSavepoint {
        self.assert_idle();
        if self.locks.is_out_of_orders() {
            self.renumber(LockSavepoint::START);
        }
        let retained = self.savepoint();
        self.lookup.retain(retained.order(), self.list.len());
        self.mark_idle();
        retained
    }

    /// Records that no transaction runs, if this one waits for nothing, and holds nothing but
    /// retained locks.
    pub(crate) fn mark_idle(&self) {
        let record = self.record();
        // A proxy has the record of another owner.
        if record.active_since() == u64::MAX || self.is_proxy {
            return;
        }
        if self.pending.is_none() && self.locks.greatest_order() < self.lookup.retained().max(1) {
            record.mark_idle();
        }
    }
}

/// Orders and savepoints.
impl Owner {
    /// Returns this moment, for `release_since`.
    pub fn savepoint(&self) -> LockSavepoint {
        let order = self.locks.next_order();
        self.lookup.set_savepoint(order, self.list.len());
        LockSavepoint(order)
    }

    /// True if there is a free order for another acquisition. Called before every request that may
    /// take one.
    #[inline(always)]
    pub(crate) fn has_free_order(&mut self) -> bool {
        !self.locks.is_out_of_orders() || self.free_orders()
    }

    #[cold]
    #[inline(never)]
    fn free_orders(&mut self) -> bool {
        self.renumber(LockSavepoint(self.lookup.savepoint_order()));
        !self.locks.is_out_of_orders()
    }

    /// Renumbers the locks acquired since then; earlier savepoints stay valid.
    fn renumber(&mut self, since: LockSavepoint) {
        self.lookup.reset_orders(since.order());
        let brought = self.locks.renumber(since.order());
        self.count_acquired(brought.into());
        self.restart_limit_checks();
    }

    /// Moves the count of acquisitions to the shared counters before it could overflow, because all
    /// of them may have been released.
    #[inline]
    pub(crate) fn count_before_overflow(&mut self) {
        if self.lookup.acquired() >= LAST_ORDER {
            let acquired = self.lookup.take_acquired_count();
            self.count_acquired(acquired.into());
        }
    }
}
