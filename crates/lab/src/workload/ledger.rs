//! Changes of committed transactions, row by row, as their clients record them.
//!
//! When a transaction has been acknowledged, its client records how much it added to which row.
//! Afterwards every row must have its loaded value plus these. A row that differs has lost an
//! update, or has one of a transaction that did not commit.
//!
//! Recording must not distort the measurement. A record is sixteen bytes at the end of a list that
//! belongs to one client. Once in a thousand records the list is added to the sums of all clients,
//! one word for each row. If another client is adding at that moment, the list grows further, so
//! that clients hardly ever wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Records after which a client tries to add them to the sums.
const SOME: usize = 1_024;
/// Records after which it waits until it can.
const MANY: usize = 16 * SOME;

/// Sums of the additions to each row, without those that running clients have not added yet.
#[derive(Debug, Clone)]
pub struct Ledger(Arc<Mutex<Vec<i64>>>);

impl Ledger {
    /// Bytes for each row.
    pub const ROW_BYTES: u64 = 8;

    /// A ledger of `rows` rows without additions.
    pub fn new(rows: usize) -> Ledger {
        // Zeroed by the system, so that unused rows take no memory.
        Ledger(Arc::new(Mutex::new(vec![0; rows])))
    }

    /// The records of one more client.
    pub fn notes(&self) -> Notes {
        Notes {
            all: self.clone(),
            own: Vec::with_capacity(SOME),
        }
    }

    /// The sum of additions to `row`.
    ///
    /// # Panics
    ///
    /// If the ledger has no such row.
    pub fn of(&self, row: u64) -> i64 {
        self.sums()[row as usize]
    }

    fn sums(&self) -> MutexGuard<'_, Vec<i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The records of one client. Dropping them adds them to the ledger.
#[derive(Debug)]
pub struct Notes {
    all: Ledger,
    own: Vec<(u64, i64)>,
}

impl Notes {
    /// Records an addition to `row` by an acknowledged transaction.
    #[inline]
    pub fn add(&mut self, row: u64, change: i64) {
        self.own.push((row, change));
        if self.own.len().is_multiple_of(SOME) {
            self.hand_in();
        }
    }

    #[cold]
    fn hand_in(&mut self) {
        let sums = match self.own.len() < MANY {
            true => self.all.0.try_lock().ok(),
            false => Some(self.all.sums()),
        };
        if let Some(mut sums) = sums {
            add(&mut sums, &mut self.own);
        }
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        add(&mut self.all.sums(), &mut self.own);
    }
}

fn add(sums: &mut [i64], own: &mut Vec<(u64, i64)>) {
    for (row, change) in own.drain(..) {
        sums[row as usize] += change;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notes_of_all_clients_add_up() {
        let ledger = Ledger::new(10);
        let (mut one, mut other) = (ledger.notes(), ledger.notes());
        one.add(7, 5);
        one.add(7, -2);
        other.add(7, 10);
        other.add(8, 1);
        assert_eq!(ledger.of(7), 0);
        drop((one, other));
        assert_eq!((ledger.of(7), ledger.of(8), ledger.of(9)), (13, 1, 0));
    }

    #[test]
    fn a_client_adds_its_notes_while_it_runs_and_waits_for_nobody_unless_they_are_many() {
        let ledger = Ledger::new(2);
        let mut notes = ledger.notes();
        (1..SOME).for_each(|_| notes.add(0, 1));
        assert_eq!(ledger.of(0), 0);
        notes.add(0, 1);
        assert_eq!((ledger.of(0), notes.own.len()), (SOME as i64, 0));
        let somebody = ledger.sums();
        (1..MANY).for_each(|_| notes.add(1, 1));
        assert_eq!(notes.own.len(), MANY - 1);
        drop(somebody);
        notes.add(1, 1);
        assert_eq!((ledger.of(1), notes.own.len()), (MANY as i64, 0));
    }
}
