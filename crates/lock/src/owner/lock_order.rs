//! What an owner keeps: from one transaction to the next, and since when.
//!
//! Each lock has an order, in which it was acquired; a savepoint is an order, too. An order is used
//! once, also for a lock that is given back soon, so a session that locks and unlocks for long
//! enough would come to the end of them. Half of them used up, what is held is numbered anew before
//! more is asked for: all of it where a session says what it keeps, for that voids all savepoints;
//! else what was acquired since the latest savepoint. Who then still has none left holds that many
//! locks, and is refused ([`RefusalReason::Full`](crate::request::RefusalReason::Full)).

use super::{EscalationState, LockSavepoint, Owner};
use crate::owner::{lock_list::LAST_ORDER, remembered::RememberedLocks};

/// From one transaction to the next.
impl Owner {
    /// Begins the next transaction of an owner that keeps what it had acquired before `retained`:
    /// of age zero, without defeats, and with the id and the label that it has, by which others
    /// know it as the holder of that.
    ///
    /// For locks that outlive transactions. The owner is one in the wait-for graph whatever it
    /// waits for, so a circle is found that goes through what it keeps and through what the
    /// transaction asks for.
    ///
    /// # Panics
    ///
    /// If something acquired since is held (`release_since` comes first), or something is awaited.
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
        // Orders begin again where they were: they would end some day.
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

    /// Keeps what is held now from one transaction to the next, until it is given back by name, or
    /// all is: a transaction ends with `release_since` the moment returned, and the next begins
    /// with [`begin_retaining`](Self::begin_retaining) it. Earlier savepoints are void.
    ///
    /// # Panics
    ///
    /// If something is awaited.
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

    /// Notes that no transaction runs, if this one has come to nothing: it awaits nothing, and
    /// holds nothing but what is kept.
    pub(crate) fn mark_idle(&self) {
        let record = self.record();
        // Another's record, if it stands in for another.
        if record.active_since() == u64::MAX || self.is_proxy {
            return;
        }
        if self.pending.is_none() && self.locks.greatest_order() < self.lookup.retained().max(1) {
            record.mark_idle();
        }
    }
}

/// Since when.
impl Owner {
    /// This moment, for `release_since`.
    pub fn savepoint(&self) -> LockSavepoint {
        let order = self.locks.next_order();
        self.lookup.set_savepoint(order, self.list.len());
        LockSavepoint(order)
    }

    /// Whether something more can be acquired, as far as its order goes. Before whatever may take
    /// one.
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

    /// Gives new orders to what was acquired since then: savepoints before are as good as they
    /// were.
    fn renumber(&mut self, since: LockSavepoint) {
        self.lookup.reset_orders(since.order());
        let brought = self.locks.renumber(since.order());
        self.count_acquired(brought.into());
        self.restart_limit_checks();
    }

    /// Counts what was acquired so far where that is so much that it would be too much some day,
    /// and all of it may have been given back.
    #[inline]
    pub(crate) fn count_before_overflow(&mut self) {
        if self.lookup.acquired() >= LAST_ORDER {
            let acquired = self.lookup.take_acquired_count();
            self.count_acquired(acquired.into());
        }
    }
}
