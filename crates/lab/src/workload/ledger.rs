//! What committed transactions have changed, row by row, as their clients know it.
//!
//! Each client notes how much it added to which row when a transaction has been acknowledged. Afterwards
//! every row must be what was loaded and what was added: a row that is not has lost an update, or has one
//! of a transaction that did not commit. Notes take memory for each row that was changed, and a little
//! time, so that workloads keep them on request.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// The notes of all clients that have ended.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<HashMap<u64, i64>>>);

impl Ledger {
    /// The notes of one client more.
    pub fn notes(&self) -> Notes {
        Notes {
            all: self.clone(),
            own: HashMap::new(),
        }
    }

    /// What was added to `row`.
    pub fn of(&self, row: u64) -> i64 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&row).copied().unwrap_or(0)
    }
}

/// The notes of one client. When they are dropped, the ledger has them.
#[derive(Debug)]
pub struct Notes {
    all: Ledger,
    own: HashMap<u64, i64>,
}

impl Notes {
    /// So much was added to `row`, by a transaction that has been acknowledged.
    pub fn add(&mut self, row: u64, change: i64) {
        *self.own.entry(row).or_default() += change;
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (row, change) in self.own.drain() {
            *all.entry(row).or_default() += change;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notes_of_all_clients_add_up() {
        let ledger = Ledger::default();
        let (mut one, mut other) = (ledger.notes(), ledger.notes());
        one.add(7, 5);
        one.add(7, -2);
        other.add(7, 10);
        other.add(8, 1);
        assert_eq!(ledger.of(7), 0);
        drop((one, other));
        assert_eq!((ledger.of(7), ledger.of(8), ledger.of(9)), (13, 1, 0));
    }
}
