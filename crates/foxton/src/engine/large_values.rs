//! Large values of paged tables: their tree, their numbers, and those that may have to be freed.
//!
//! The protocol is described where the values are
//! ([`foxton_store::paged::values`]), and with those that write and free them
//! (`txn/paged/large`, `txn/paged/free_values`).
//!
//! # Invariants
//!
//! * I1  No number is used twice while the database is open, and none that a durable page has is
//!   used again. Numbers begin where the log ended at opening, and each takes more than one byte of
//!   log. So the next opening begins behind them.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use foxton_log::Lsn;
use foxton_store::paged::btree::{PagedTree, ScanDirection, ScanRange, TableDirectory, TreeError};
use foxton_store::paged::page::LeafRows;
use foxton_store::paged::values::{VALUES, mark_key, marked_value};
use foxton_sync::shim::{self, AtomicU64, Mutex, Ordering};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

/// Site: numbers of large values, and those to be freed.
pub(crate) static LARGE_VALUES: Site =
    Site::new(Component::Transaction, Pattern::Unbounded, "large values");

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct LargeValues {
    /// The tree, once there was a large value.
    pub(crate) tree: OnceLock<Arc<PagedTree>>,
    next: AtomicU64,
    marked: Mutex<MarkedValues>,
    /// Held while values are freed, so that a check of all pages finds them at rest.
    pub(crate) freeing: Mutex<()>,
}

/// Values with marks, of which no open transaction knows.
#[derive(Debug, Default)]
struct MarkedValues {
    numbers: VecDeque<u64>,
    /// True if the background thread looks at them.
    is_scheduled: bool,
}

impl LargeValues {
    /// `end` is the end of the log.
    pub(crate) fn new(end: Lsn) -> LargeValues {
        LargeValues {
            tree: OnceLock::new(),
            next: AtomicU64::new(end.bytes() + 1),
            marked: Mutex::default(),
            freeing: Mutex::default(),
        }
    }

    /// Opens the tree, if there is one, and finds the marks that were left. Waits for pages.
    ///
    /// # Errors
    /// If a page cannot be read or is damaged.
    pub(crate) fn open(
        &self,
        directory: &TableDirectory,
        worker: &Worker,
    ) -> Result<(), TreeError> {
        let Some(tree) = directory.open(worker, VALUES)? else {
            return Ok(());
        };
        let (mut rows, end) = (LeafRows::default(), mark_key(u64::MAX));
        let mut numbers = VecDeque::new();
        loop {
            let last = numbers.back().map(|number| mark_key(*number));
            let range = ScanRange {
                direction: ScanDirection::Forward,
                from: last.as_ref().map(|key| &key[..]),
                is_excluded: last.is_some(),
                end: Some(&end),
                most: usize::MAX,
            };
            let mut visit = tree.visit(worker);
            visit.run(|visit| visit.scan(range, &mut rows))?;
            let found = (0..rows.len()).map_while(|row| marked_value(rows.key(row)));
            let before = numbers.len();
            numbers.extend(found);
            if numbers.len() < before + rows.len() || rows.is_empty() {
                break;
            }
        }
        // Site: "large values", at opening.
        shim::lock(&self.marked).numbers = numbers;
        let opened = self.tree.set(Arc::new(tree));
        opened.expect("it is opened once");
        Ok(())
    }

    /// Returns a number for a new value (I1).
    pub(crate) fn next_number(&self) -> u64 {
        // Site: "large values", passed by the caller. Relaxed: a number of its own is all.
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds values that a transaction has marked, which has released its locks. Returns true if the
    /// caller has to schedule [their examination](crate::txn).
    pub(crate) fn add_marked(&self, numbers: impl IntoIterator<Item = u64>) -> bool {
        // Site: "large values", passed by those that store and mark.
        let mut marked = shim::lock(&self.marked);
        marked.numbers.extend(numbers);
        let is_due = !marked.numbers.is_empty() && !marked.is_scheduled;
        marked.is_scheduled |= is_due;
        is_due
    }

    /// Takes the next marked value. `None`: there is none, and nothing is scheduled any more.
    pub(crate) fn take_marked(&self) -> Option<u64> {
        // Site: "large values": the background thread.
        let mut marked = shim::lock(&self.marked);
        let number = marked.numbers.pop_front();
        marked.is_scheduled &= number.is_some();
        number
    }

    /// Number of values that the background thread has still to examine.
    pub(crate) fn marked_count(&self) -> usize {
        // Site: "large values": a thread that shrinks the page file.
        shim::lock(&self.marked).numbers.len()
    }

    /// Puts a value behind the others, to be taken again.
    pub(crate) fn put_back(&self, number: u64) {
        // Site: "large values": the background thread.
        shim::lock(&self.marked).numbers.push_back(number);
    }
}
