//! Which records there are: those loaded, and those inserted since, by number.
//!
//! An insert takes the next number, and reports when it has committed. A record may be read once
//! its insert and those of all lower numbers have committed. So a reader that draws a number below
//! `known` finds the record, whatever the order in which inserts end.
//!
//! Clients share it as they do in the benchmark's own program: one read-modify-write for each
//! insert.
//!
//! # Orderings
//!
//! O1: `committed` stores `known` (Release) after the transactions of all lower numbers have ended;
//! a reader that loads it (Acquire) begins to read after that.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use foxton_sync::{
    cache_line::CachePadded,
    shim::{AtomicU64, Ordering},
};

/// The numbers of the records of one database.
#[derive(Debug)]
pub struct Sequence {
    next: CachePadded<AtomicU64>,
    known: CachePadded<AtomicU64>,
    /// Committed, but some lower number is not.
    early: Mutex<BTreeSet<u64>>,
}

impl Sequence {
    /// Records 0 to `loaded - 1` are there.
    pub fn new(loaded: u64) -> Sequence {
        Sequence {
            next: CachePadded::new(AtomicU64::new(loaded)),
            known: CachePadded::new(AtomicU64::new(loaded)),
            early: Mutex::default(),
        }
    }

    /// A number for a record to be inserted.
    pub fn take(&self) -> u64 {
        // Relaxed: all that matters is that no two get the same.
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Record `number`, taken before, is committed.
    pub fn committed(&self, number: u64) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        early.insert(number);
        // Relaxed: it changes only under this mutex.
        let mut known = self.known.load(Ordering::Relaxed);
        while early.remove(&known) {
            known += 1;
        }
        self.known.store(known, Ordering::Release); // O1
    }

    /// All records below this number are there.
    pub fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire) // O1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_known_once_all_before_it_are() {
        let sequence = Sequence::new(5);
        let taken: Vec<u64> = (0..3).map(|_| sequence.take()).collect();
        assert_eq!((taken, sequence.known()), (vec![5, 6, 7], 5));
        for (committed, known) in [(6, 5), (5, 7), (7, 8)] {
            sequence.committed(committed);
            assert_eq!(sequence.known(), known);
        }
    }
}
