//! What an owner keeps: from one transaction to the next, and since when.
//!
//! Each lock has an order, in which it was acquired; a savepoint is an order, too. An order is used once, also
//! for a lock that is given back soon, so a session that locks and unlocks for long enough would come to
//! the end of them. Half of them used up, what is held is numbered anew before more is asked for: all of it
//! where a session says what it keeps, for that voids all savepoints; else what was acquired since the
//! latest savepoint. Who then still has none left holds that many locks, and is refused
//! ([`RefusalReason::Full`](crate::request::Reason::Full)).

use super::{EscalationState, LockSavepoint, Owner};
use crate::owner::{lock_list::LAST_ORDER, remembered::RememberedLocks};

/// From one transaction to the next.
impl Owner {
    /// Begins the next transaction of an owner that keeps what it had acquired before `kept`: of age zero,
    /// without defeats, and with the id and the label that it has, by which others know it as the holder of
    /// that.
    ///
    /// For locks that outlive transactions. The owner is one in the wait-for graph whatever it waits for,
    /// so a circle is found that goes through what it keeps and through what the transaction asks for.
    ///
    /// # Panics
    ///
    /// If something acquired since is held (`release_since` comes first), or something is awaited.
    pub fn begin_keeping(&mut self, kept: LockSavepoint) {
        self.assert_idle();
        let since = kept.order();
        let is_before = |list: &RememberedLocks| {
            let last = list.len().checked_sub(1);
            last.is_none_or(|last| self.notes.order_of(last) < since)
        };
        assert!(
            self.remembered().is_none_or(is_before),
            "begin with locks held: release_since comes first"
        );
        // Orders begin again where they were: they would end some day.
        let acquired = u64::from(self.held.rewind(since)) + u64::from(self.notes.count_anew());
        self.count_acquired(acquired);
        if self.held.is_timed() {
            self.count_ended_holds();
        }
        self.notes.keep(since, self.list.len());
        self.rest();
        self.defeats = 0;
        self.escalated = EscalationState::none(self.id, self.registry.limits());
        self.registry.begin(&self.record, self.id);
    }

    /// Keeps what is held now from one transaction to the next, until it is given back by name, or all
    /// is: a transaction ends with `release_since` the moment returned, and the next begins with
    /// [`begin_keeping`](Self::begin_keeping) it. Earlier savepoints are void.
    ///
    /// # Panics
    ///
    /// If something is awaited.
    pub fn keep(&mut self) -> LockSavepoint {
        self.assert_idle();
        if self.held.is_worn() {
            self.number_anew(LockSavepoint::START);
        }
        let kept = self.savepoint();
        self.notes.keep(kept.order(), self.list.len());
        self.rest();
        kept
    }

    /// Notes that no transaction runs, if this one has come to nothing: it awaits nothing, and holds nothing
    /// but what is kept.
    pub(crate) fn rest(&self) {
        let record = self.record();
        // Another's record, if it stands in for another.
        if record.active_since() == u64::MAX || self.stands_in {
            return;
        }
        if self.pending.is_none() && self.held.greatest_order() < self.notes.kept().max(1) {
            record.run_no_more();
        }
    }
}

/// Since when.
impl Owner {
    /// This moment, for `release_since`.
    pub fn savepoint(&self) -> LockSavepoint {
        let order = self.held.next_order();
        self.notes.save(order, self.list.len());
        LockSavepoint(order)
    }

    /// Whether something more can be acquired, as far as its order goes. Before whatever may take one.
    #[inline(always)]
    pub(crate) fn has_room(&mut self) -> bool {
        !self.held.is_worn() || self.make_room()
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self) -> bool {
        self.number_anew(LockSavepoint(self.notes.saved()));
        !self.held.is_worn()
    }

    /// Gives new orders to what was acquired since then: savepoints before are as good as they were.
    fn number_anew(&mut self, since: LockSavepoint) {
        self.notes.date_anew(since.order());
        let brought = self.held.renumber(since.order());
        self.count_acquired(brought.into());
        self.look_anew();
    }

    /// Counts what was acquired so far where that is so much that it would be too much some day, and all of it
    /// may have been given back.
    #[inline]
    pub(crate) fn count_in_time(&mut self) {
        if self.notes.acquired() >= LAST_ORDER {
            let acquired = self.notes.count_anew();
            self.count_acquired(acquired.into());
        }
    }
}
