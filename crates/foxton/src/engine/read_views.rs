//! Read views: snapshots as a list of open transactions, the baseline of measurements.
//!
//! [`SnapshotMethod::ReadViews`](crate::SnapshotMethod::ReadViews) selects them instead of
//! positions in the log. Version chains, deleted rows and collecting are the same.
//!
//! # Mechanism
//!
//! One mutex protects the *transaction system*: the next number, the list of open transactions, and
//! the open views.
//!
//! * A transaction takes a number at its first write, and enters the list. It leaves the list at
//!   its end, and its versions then have that number as their begin timestamp.
//! * A view that opens takes a number, too, and copies the list: numbers below *low* have ended,
//!   those from *high* on come later, and those in the list are open.
//!
//! # Invariants
//!
//! * V1  A transaction is in the list from before its first version is in a record until all its
//!   versions are stamped or undone. It still holds its locks then.
//! * V2  A version is visible if it is stamped with a number that the view sees, or was there
//!   before the first number.
//!
//! # Why a reader gives one answer
//!
//! If the view sees a number, its transaction left the list before the view was opened, and its
//! versions were stamped before that (V1, the mutex). Any other number stays invisible: stamped or
//! not, its version is skipped. Of two transactions that write one row, the second one takes its
//! lock after the first one has left the list. So a view that sees the second one sees the first.
//! Numbers need not decrease along a chain.
//!
//! # Purge
//!
//! A replaced version is needed until the oldest view sees the number that replaced it. Then all
//! later views see it, too. A version between two views is kept although neither needs it.

use std::collections::BTreeMap;
use std::sync::Arc;

use foxton_log::Lsn;
use foxton_store::memory::{Begin, CommitSlots, Visibility};
use foxton_sync::cache_line::CachePadded;
use foxton_sync::shim::{self, Mutex};
use foxton_sync::site::{Component, Pattern, Site};

/// The mutex of the transaction system.
pub(crate) static TRANSACTION_SYSTEM: Site = Site::new(
    Component::Transaction,
    Pattern::Unbounded,
    "transaction system",
);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct ReadViews(CachePadded<Mutex<TransactionSystem>>);

#[derive(Debug)]
struct TransactionSystem {
    next: u64,
    /// Numbers of open transactions, ascending.
    active: Vec<u64>,
    /// Open views by number, so the oldest one is the first.
    open: BTreeMap<u64, Arc<ReadView>>,
}

/// A snapshot: see the [module](self).
#[derive(Debug)]
pub(crate) struct ReadView {
    pub(crate) number: u64,
    low: u64,
    high: u64,
    active: Vec<u64>,
}

impl Default for TransactionSystem {
    fn default() -> Self {
        TransactionSystem {
            // 0 is the begin of versions that were there before.
            next: 1,
            active: Vec::new(),
            open: BTreeMap::new(),
        }
    }
}

impl TransactionSystem {
    fn view(&self) -> ReadView {
        ReadView {
            number: self.next,
            low: self.active.first().copied().unwrap_or(self.next),
            high: self.next,
            active: self.active.clone(),
        }
    }

    fn enter(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.active.push(number);
        number
    }

    fn leave(&mut self, number: u64) {
        if let Ok(at) = self.active.binary_search(&number) {
            self.active.remove(at);
        }
    }
}

impl ReadViews {
    /// Opens a view.
    pub(crate) fn open(&self) -> Arc<ReadView> {
        // Site: "transaction system".
        let mut system = shim::lock(&self.0);
        let view = Arc::new(system.view());
        system.enter();
        system.open.insert(view.number, view.clone());
        view
    }

    /// Closes a view, if it is open.
    pub(crate) fn close(&self, number: u64) {
        // Site: "transaction system".
        let mut system = shim::lock(&self.0);
        system.leave(number);
        let closed = system.open.remove(&number);
        drop(system);
        drop(closed); // Its list is freed without the mutex.
    }

    /// Enters a transaction that is about to write into the list. Returns its number.
    pub(crate) fn begin_update(&self) -> u64 {
        // Site: "transaction system".
        shim::lock(&self.0).enter()
    }

    /// Removes a transaction from the list whose versions are stamped or undone.
    pub(crate) fn end_update(&self, number: u64) {
        // Site: "transaction system".
        shim::lock(&self.0).leave(number);
    }

    /// Returns the oldest view, or one that would be opened now.
    pub(crate) fn oldest(&self) -> Arc<ReadView> {
        // Site: "transaction system".
        let system = shim::lock(&self.0);
        let oldest = system.open.first_key_value();
        oldest.map_or_else(|| Arc::new(system.view()), |(_, view)| view.clone())
    }

    /// Returns the numbers of the open views, ascending.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        // Site: "transaction system".
        shim::lock(&self.0).open.keys().copied().collect()
    }
}

impl ReadView {
    /// True if the transaction with this number ended before the view was opened. `Lsn` because
    /// numbers have the place of commit LSNs.
    pub(crate) fn sees(&self, number: Lsn) -> bool {
        let number = number.bytes();
        number < self.low || number < self.high && self.active.binary_search(&number).is_err()
    }

    /// Returns what the view makes of a version (V2).
    pub(crate) fn visibility(&self, slots: &CommitSlots, begin: Begin) -> Visibility {
        if begin == Begin::ALWAYS {
            return Visibility::Visible(begin);
        }
        match begin.committed() {
            Some((number, _)) if self.sees(number) => Visibility::Visible(begin),
            Some(_) => Visibility::Invisible,
            // It is stamped by now, or undone.
            None if slots.has_ended(begin) => Visibility::Ended,
            None => Visibility::Invisible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_sees_what_ended_before_it_and_nothing_else() {
        let views = ReadViews::default();
        let [first, second, third] = [(); 3].map(|()| views.begin_update());
        views.end_update(second);
        let view = views.open();
        let later = views.begin_update();
        for number in [first, third, later] {
            views.end_update(number);
        }
        let sees = [0, first, second, third, later].map(|number| view.sees(Lsn::new(number)));
        assert_eq!(sees, [true, false, true, false, false]);
        // A later view sees all of them, and the first one as an open transaction.
        let other = views.open();
        assert!(
            [first, later]
                .iter()
                .all(|&number| other.sees(Lsn::new(number)))
        );
        assert!(!other.sees(Lsn::new(view.number)));
        assert_eq!(views.numbers(), [view.number, other.number]);
        assert_eq!(views.oldest().number, view.number);
        views.close(view.number);
        views.close(view.number);
        assert_eq!(views.oldest().number, other.number);
        views.close(other.number);
        assert!(views.oldest().sees(Lsn::new(other.number)) && views.numbers().is_empty());
    }
}
