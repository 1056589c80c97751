//! Tables: ordered maps from keys to records.

use super::cursor::RecordCursor;
use super::index::descend::{self, Target};
use super::index::insert::{self, InsertRefused, Next};
use super::index::remove::{self, RemoveRefused};
use super::index::walk::{self, Direction, Token, WalkPosition};
use super::node::{IndexNode, Pinned, TreeRoot};
use super::record::{NewRecord, Record, RecordPointer};
use super::record_hint::RecordHint;
use super::search_key::SearchKey;
use super::verify;
use foxton_sync::backoff::Backoff;
use foxton_sync::epoch::{Domain, Guard};
use foxton_sync::latch::{Version, VersionLatch};
use std::fmt;
use std::ops::Bound;

/// Slots of a node. Measured with `cargo bench -p foxton-store`: with 128, gets and inserts at
/// random take a third longer; with 32, gets are as fast and long scans, crossing more leaves, take
/// a third longer.
pub const NODE_SLOTS: usize = 64;

/// Nodes read on each level to estimate their number.
const SAMPLE: usize = 256;

/// An ordered map from keys to records, for many threads at once.
///
/// Readers write no shared memory. References are borrowed from the table and from the guard that
/// pins its epoch domain; a guard of another domain causes a panic.
///
/// The table knows nothing of locks, and keeps its own structure whole whatever its callers do. It
/// gives a caller what is needed to lock keys and gaps safely. Every way to a record yields a
/// [`Token`] that later tells whether a key came between, and inserting and removing check the
/// record behind the position under the latch. The argument is in `index/walk.rs`.
///
/// ```
/// use foxton_store::memory::{NewRecord, Next, RecordTable, ValueBlock};
/// use foxton_sync::worker::Workers;
///
/// let workers = Workers::new();
/// let table = RecordTable::new(workers.domain());
/// let worker = workers.worker();
/// let guard = worker.pin();
///
/// let place = table.successor(&guard, b"boat", true);
/// assert!(place.record.is_none());
/// let record = NewRecord::new(b"boat", Some(b"narrow"))?;
/// let record = table.insert(&guard, record, place.record.into()).expect("no concurrent writer");
/// assert!(!table.unchanged(&place.token));
///
/// let undo = record.swap(Some(ValueBlock::new(b"wide")?), &guard);
/// assert_eq!(record.value(&mut guard.hazard()), Some(&b"wide"[..]));
/// record.swap(undo, &guard).expect("a value").retire(guard.participant());
/// assert_eq!(record.value(&mut guard.hazard()), Some(&b"narrow"[..]));
///
/// drop(record.swap(None, &guard)); // A ghost. The first value is the record's own memory.
/// table.remove(&guard, record, Next::End)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A record cannot outlive the guard:
///
/// ```compile_fail,E0505
/// # use foxton_store::memory::RecordTable;
/// # let workers = foxton_sync::worker::Workers::new();
/// # let table = RecordTable::new(workers.domain());
/// # let worker = workers.worker();
/// let guard = worker.pin();
/// let record = table.get(&guard, b"key");
/// drop(guard);
/// record.map(|record| record.key().len());
/// ```
///
/// nor the table:
///
/// ```compile_fail,E0505
/// # use foxton_store::memory::RecordTable;
/// # let workers = foxton_sync::worker::Workers::new();
/// # let table = RecordTable::new(workers.domain());
/// # let worker = workers.worker();
/// # let guard = worker.pin();
/// let record = table.get(&guard, b"key");
/// drop(table);
/// record.map(|record| record.key().len());
/// ```
///
/// The parameter is the number of slots of a node, for tests and measurements; leave it alone.
pub struct RecordTable<const N: usize = NODE_SLOTS> {
    root: TreeRoot<N>,
}

/// The position of a key's record, before the caller may look at it.
#[derive(Debug)]
pub struct Located<'g> {
    pointer: Option<RecordPointer<'g>>,
    /// The leaf that was searched.
    leaf: Option<(&'g VersionLatch, Version)>,
}

impl<'g> Located<'g> {
    /// Fetches the value's memory, after waiting for the record's. For a caller that has found
    /// several records and reads none yet.
    #[inline]
    pub fn fetch_value(&self) {
        if let Some(pointer) = self.pointer {
            pointer.prefetch_value();
        }
    }

    /// Returns the record that was found, which may have been removed since.
    #[inline]
    pub fn found(&self) -> Option<&'g Record> {
        self.pointer.map(RecordPointer::record)
    }

    /// Returns the record of `key`, which may be a ghost, as [`RecordTable::get`] finds it now. The
    /// key and the table are those of the search. For a caller that holds a lock on the key by now,
    /// so that no other inserts or removes it: the search is repeated only if its result is
    /// outdated.
    #[inline]
    pub fn record<const N: usize>(
        self,
        table: &'g RecordTable<N>,
        guard: &'g Guard<'_>,
        key: &[u8],
    ) -> Option<&'g Record> {
        match self.pointer.map(RecordPointer::record) {
            Some(record) if record.is_linked() => Some(record),
            None if self.is_unchanged() => None,
            _ => table.get(guard, key),
        }
    }

    /// True if the leaf that was searched is as it was.
    fn is_unchanged(&self) -> bool {
        self.leaf
            .is_some_and(|(leaf, version)| leaf.unchanged_since(version))
    }
}

impl<const N: usize> fmt::Debug for RecordTable<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordTable")
            .field("slots", &N)
            .finish_non_exhaustive()
    }
}

impl RecordTable {
    /// Returns an empty table, whose memory is reclaimed in `domain`.
    pub fn new(domain: &Domain) -> Self {
        Self::with_slots(domain)
    }
}

impl<const N: usize> RecordTable<N> {
    /// As [`RecordTable::new`], with nodes of `N` slots, at least 4.
    pub fn with_slots(domain: &Domain) -> Self {
        Self {
            root: TreeRoot::new(domain),
        }
    }

    /// Returns the record of `key`, which may be a ghost.
    #[inline]
    pub fn get<'g>(&'g self, guard: &'g Guard<'_>, key: &[u8]) -> Option<&'g Record> {
        let located = self.locate(guard, key);
        located.pointer.map(|pointer| pointer.record())
    }

    /// Returns the position of the record of `key`, or where it would be. Its memory is fetched and
    /// not touched, so that a caller that has other work first, such as locking the key, does not
    /// wait for it. [`Located::record`] reads the result.
    ///
    /// ```
    /// use foxton_store::memory::{NewRecord, Next, RecordTable};
    /// use foxton_sync::worker::Workers;
    ///
    /// let workers = Workers::new();
    /// let table = RecordTable::new(workers.domain());
    /// let worker = workers.worker();
    /// let guard = worker.pin();
    ///
    /// let located = table.locate(&guard, b"boat");
    /// // Meanwhile another thread inserts it; then it is locked, and stays as it is.
    /// let record = NewRecord::new(b"boat", Some(b"narrow"))?;
    /// table.insert(&guard, record, Next::Any).expect("a new key");
    /// let record = located.record(&table, &guard, b"boat").expect("it is there now");
    /// assert_eq!(record.value(&mut guard.hazard()), Some(&b"narrow"[..]));
    /// # Ok::<(), foxton_store::TooLong>(())
    /// ```
    #[inline]
    pub fn locate<'g>(&'g self, guard: &'g Guard<'_>, key: &[u8]) -> Located<'g> {
        let tree = self.root.pin(guard);
        let search_key = SearchKey::new(key);
        let mut backoff = Backoff::new();
        loop {
            let (leaf, version) = descend::find_leaf(tree, Target::Key(search_key));
            let position = leaf.position(&search_key);
            let pointer = if position.found {
                leaf.pointer(position.index)
            } else {
                None
            };
            if leaf.latch().unchanged_since(version) {
                if let Some(pointer) = pointer {
                    pointer.prefetch();
                }
                return Located {
                    pointer,
                    leaf: Some((leaf.latch(), version)),
                };
            }
            backoff.snooze();
        }
    }

    /// As [`locate`](Self::locate), without a search if the record is the one that `hint` has. The
    /// hint then has the record that is returned.
    ///
    /// ```
    /// use foxton_store::memory::{NewRecord, Next, RecordHint, RecordTable};
    /// use foxton_sync::worker::Workers;
    ///
    /// let workers = Workers::new();
    /// let table = RecordTable::new(workers.domain());
    /// let worker = workers.worker();
    /// let record = NewRecord::new(b"boat", Some(b"narrow"))?;
    /// table.insert(&worker.pin(), record, Next::Any).expect("a new key");
    ///
    /// let mut hint = RecordHint::default();
    /// for _ in 0..2 {
    ///     let guard = worker.pin();
    ///     let located = table.locate_again(&guard, b"boat", &mut hint);
    ///     assert_eq!(located.found().expect("it is there").key(), b"boat");
    /// }
    /// # Ok::<(), foxton_store::TooLong>(())
    /// ```
    #[inline]
    pub fn locate_again<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        key: &[u8],
        hint: &mut RecordHint,
    ) -> Located<'g> {
        let table = self.root.pin(guard).id();
        if let Some(pointer) = hint.recall(table, guard, key) {
            return Located {
                pointer: Some(pointer),
                leaf: None,
            };
        }
        let located = self.locate(guard, key);
        if let Some(pointer) = located.pointer {
            hint.set(table, guard, pointer);
        }
        located
    }

    /// Returns the first record whose key is `key` or above, or only above if not `inclusive`.
    #[inline]
    pub fn successor<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        key: &[u8],
        inclusive: bool,
    ) -> WalkPosition<'g> {
        walk::successor(self.root.pin(guard), &SearchKey::new(key), inclusive)
    }

    /// Returns a cursor that ascends from `start`.
    #[inline]
    pub fn forward<'g, 'k>(
        &'g self,
        guard: &'g Guard<'_>,
        start: Bound<&'k [u8]>,
    ) -> RecordCursor<'g, 'k, N> {
        RecordCursor::new(self.root.pin(guard), Direction::Forward, start)
    }

    /// Returns a cursor that descends from `start`.
    #[inline]
    pub fn backward<'g, 'k>(
        &'g self,
        guard: &'g Guard<'_>,
        start: Bound<&'k [u8]>,
    ) -> RecordCursor<'g, 'k, N> {
        RecordCursor::new(self.root.pin(guard), Direction::Backward, start)
    }

    /// True if, just now, no key is between the record of the [`WalkPosition`] that `token` came
    /// with and the start of its search: neither inserted nor removed since.
    ///
    /// `false` means nothing: a leaf changed, perhaps elsewhere in it, or is changing.
    #[inline]
    pub fn unchanged(&self, token: &Token<'_>) -> bool {
        token.is_unchanged()
    }

    /// Inserts `record`, if its key is not in the table and the record behind it is `next`.
    ///
    /// That is checked under the latch of the leaf, so that a caller that locked the gap before
    /// `next` can be sure that the key goes into that gap.
    ///
    /// # Errors
    ///
    /// [`InsertRefused`] returns the record.
    pub fn insert<'g>(
        &'g self,
        guard: &'g Guard<'_>,
        record: NewRecord,
        next: Next<'_>,
    ) -> Result<&'g Record, InsertRefused<'g>> {
        insert::insert(self.root.pin(guard), record, next)
    }

    /// Removes a ghost, if the record behind it is `next`. Its memory is freed once no thread can
    /// look at it any more.
    ///
    /// Meant for a caller that holds exclusive locks on its key and on the gaps on both sides.
    ///
    /// # Errors
    ///
    /// If it is not in this table, has a value, or the record after it is another.
    pub fn remove(
        &self,
        guard: &Guard<'_>,
        record: &Record,
        next: Next<'_>,
    ) -> Result<(), RemoveRefused> {
        remove::remove(self.root.pin(guard), record, next)
    }

    /// About the number of records, ghosts included: exact for small tables that no thread changes,
    /// from a sample of the nodes for others. Costs microseconds.
    pub fn len_estimate(&self, guard: &Guard<'_>) -> u64 {
        let tree = self.root.pin(guard);
        let mut nodes = vec![tree.root()];
        let mut share = 1.0;
        while nodes.first().is_some_and(|node| node.level() > 0) {
            let below: Vec<&IndexNode<N>> = nodes.iter().flat_map(|node| node.children()).collect();
            let step = below.len().div_ceil(SAMPLE).max(1);
            nodes = below.iter().copied().step_by(step).collect();
            share *= nodes.len() as f64 / below.len().max(1) as f64;
        }
        let seen: usize = nodes.iter().map(|leaf| leaf.count()).sum();
        (seen as f64 / share) as u64
    }

    /// Panics if an invariant of the table is broken. Slow, and only while no thread changes the
    /// table; for tests and simulation. Returns the number of records, ghosts included.
    pub fn verify(&self, guard: &Guard<'_>) -> usize {
        let tree: Pinned<'_, N> = self.root.pin(guard);
        verify::verify(tree)
    }
}

#[cfg(test)]
mod tests {
    use foxton_sync::worker::{Worker, Workers};

    use super::*;

    const KEYS: [&[u8]; 2] = [b"boat", b"canal"];

    fn table_with_keys(worker: &Worker) -> RecordTable {
        let table = RecordTable::new(worker.workers().domain());
        for key in KEYS {
            let record = NewRecord::new(key, None).expect("a short key");
            let guard = worker.pin();
            table.insert(&guard, record, Next::Any).expect("a new key");
        }
        table
    }

    /// Locates `key`, and returns whether that took a search.
    fn searches(table: &RecordTable, worker: &Worker, key: &[u8], hint: &mut RecordHint) -> bool {
        let guard = worker.pin();
        let located = table.locate_again(&guard, key, hint);
        assert_eq!(located.found().expect("it is there").key(), key);
        located.leaf.is_some()
    }

    #[test]
    fn a_record_is_searched_for_once_in_an_epoch() {
        let worker = Workers::new().worker();
        let table = table_with_keys(&worker);
        let mut hint = RecordHint::default();
        assert!(searches(&table, &worker, KEYS[0], &mut hint));
        assert!(!searches(&table, &worker, KEYS[0], &mut hint));
        worker.participant().advance();
        assert!(searches(&table, &worker, KEYS[0], &mut hint));
        assert!(!searches(&table, &worker, KEYS[0], &mut hint));
    }

    #[test]
    fn a_hint_is_for_one_key_of_one_table() {
        let worker = Workers::new().worker();
        let (table, other) = (table_with_keys(&worker), table_with_keys(&worker));
        let mut hint = RecordHint::default();
        assert!(searches(&table, &worker, KEYS[0], &mut hint));
        assert!(searches(&table, &worker, KEYS[1], &mut hint));
        assert!(searches(&other, &worker, KEYS[1], &mut hint));
        assert!(!searches(&other, &worker, KEYS[1], &mut hint));
        drop(other);
        // Perhaps in the memory of the table that was dropped.
        let new = table_with_keys(&worker);
        assert!(searches(&new, &worker, KEYS[1], &mut hint));
    }

    #[test]
    fn a_record_that_was_removed_is_not_returned() {
        let worker = Workers::new().worker();
        let table = table_with_keys(&worker);
        let mut hint = RecordHint::default();
        assert!(searches(&table, &worker, KEYS[1], &mut hint));
        let guard = worker.pin();
        let former = table.get(&guard, KEYS[1]).expect("it is there");
        table.remove(&guard, former, Next::End).expect("a ghost");
        let located = table.locate_again(&guard, KEYS[1], &mut hint);
        assert!(located.record(&table, &guard, KEYS[1]).is_none());
        let record = NewRecord::new(KEYS[1], None).expect("a short key");
        let new = table.insert(&guard, record, Next::End).expect("a new key");
        let located = table.locate_again(&guard, KEYS[1], &mut hint);
        let found = located.record(&table, &guard, KEYS[1]);
        assert!(found.is_some_and(|found| std::ptr::eq(found, new)));
    }
}
