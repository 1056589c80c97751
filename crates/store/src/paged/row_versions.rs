//! Versions of rows of paged tables: what changes have replaced, for readers at snapshots.
//!
//! A page has the newest state of a row, committed or not. The states that it replaced are here, in
//! memory, by tree and key. So a page has no versions, and nothing here survives a restart.
//!
//! # State
//!
//! A hash table of *entries*. An entry is of one row:
//!
//! ```text
//!   begin of the state that the page has     a reference to its writer, or a commit LSN
//!   replaced states, newest first            each: its begin, and flags and value, or no row
//! ```
//!
//! A row without an entry is older, on its page, than every snapshot that is registered or will be.
//! A writer has a list of the entries whose newest state is its own ([`OwnedVersions`]).
//!
//! # Use
//!
//! * A *change* adds the state that it replaces, under the latch of the leaf, before the page has
//!   the new one. The transaction holds the lock of the row. Its further changes of the row add
//!   nothing, because no reader needs a state in between.
//! * A *commit* puts its commit LSN in the place of its references. If no snapshot can need what it
//!   replaced, it removes its entries instead.
//! * A *rollback* first undoes its changes of pages, then counts itself, and then takes its states
//!   back.
//! * A *reader* reads the page, and then looks for an entry. It takes the page's state, if that is
//!   visible or there is no entry; otherwise the newest replaced state that is visible.
//!
//! # Invariants
//!
//! * I1  A reader that has read a state of a page finds the entry of the writer of that state,
//!   unless the writer has ended.
//! * I2  An entry is removed only if its page has a state that began below every registered
//!   snapshot, and below each one that will be registered.
//! * I3  While the newest state is a running writer's, the one that it has replaced stays.
//!
//! # Why a reader gives one answer
//!
//! Let the reader be at S, and let its page read have given state `p`.
//!
//! * *The writer of `p` has committed at or below S, or is the reader.* A later change, if there is
//!   one, is above S or is not committed. Its entry says so, and has `p` behind it. Without it the
//!   page's state is taken, which is `p`.
//! * *The writer of `p` has not committed, or above S.* By I1 and I2 there is an entry that has
//!   what `p` replaced, and the reader takes that.
//! * *The writer of `p` rolls back between the two looks.* The entry may be as before it, and the
//!   page's state would be taken, which is not `p` any more. So the reader compares the number of
//!   rollbacks from before its page read with that from after its look, and begins again.
//!
//! # Orderings
//!
//! * O1  the number of entries of a bucket (Release, under its latch) to a reader (Acquire), which
//!   takes no latch if there are none. A reader that finds none after the page read has seen the
//!   latest removal: the page's latch has ordered the insertion before its read.
//! * O2  undo of the pages, then the count of the rollback (Release), to the first load of that
//!   count (Acquire), then the page read. The second load comes after the look, which the latch of
//!   the bucket, or O1, orders behind the count.

use std::fmt;
use std::mem;
use std::sync::OnceLock;

use foxton_log::Lsn;
use foxton_sync::cache_line::CachePadded;
use foxton_sync::shim::{self, AtomicU32, AtomicU64, Mutex, Ordering};
use foxton_sync::site::{Component, Pattern, Site};

use super::page::RowFlags;
use crate::memory::{Begin, CommitSlots, Visibility};

mod entry;

use entry::{Chain, ReplacedRow, VersionEntry, committed, find, find_mut, unlink};

pub use entry::VersionedKey;

/// Entries of rows. The table knows no worker, so its callers count it.
pub static ROW_VERSIONS: Site =
    Site::new(Component::Transaction, Pattern::Unbounded, "row versions");

/// Few under the model checker, which counts each word.
const BUCKETS: usize = if cfg!(loom) { 2 } else { 1 << 16 };
/// Trees share so many counts of rollbacks.
const COUNTS: usize = if cfg!(loom) { 1 } else { 64 };
/// Removed entries that a writer keeps for its next changes.
const SPARE: usize = 64;
/// Rows of a large transaction above which its list is freed.
const KEPT_ROWS: usize = 4096;
/// Bytes that a replaced state takes beside its value.
const STATE_BYTES: usize = 64;

/// See the [module](self).
///
/// ```
/// use foxton_log::Lsn;
/// use foxton_store::memory::{Begin, CommitSlots, Promise};
/// use foxton_store::paged::page::RowFlags;
/// use foxton_store::paged::row_versions::{OwnedVersions, RowVersions, VersionLookup};
/// use foxton_store::paged::row_versions::VersionedKey;
///
/// let (versions, slots) = (RowVersions::new(), CommitSlots::new());
/// let (writer, mut owned) = (slots.acquire(), OwnedVersions::default());
/// let (own, row) = (slots.begin(&writer), VersionedKey::new(7, b"fox"));
/// let before = Some((RowFlags::NONE, b"red".to_vec()));
/// versions.replace(&mut owned, &row, before, (own, 0));
/// // Now the page gets another value.
///
/// let mut value = Vec::new();
/// let found = versions.read(&row, &slots, None, Lsn::new(50), &mut value);
/// assert!(matches!(found, VersionLookup::Older(..)) && value == b"red");
/// let stamp = Begin::at(Lsn::new(60), Promise::Written);
/// versions.commit(&mut owned, own, Some(stamp), |_, _, _| {});
/// let found = versions.read(&row, &slots, None, Lsn::new(60), &mut value);
/// assert_eq!(found, VersionLookup::Newest(Some(stamp)));
/// ```
pub struct RowVersions {
    /// Made with the first change.
    buckets: OnceLock<Box<[VersionBucket]>>,
    /// Numbers of rollbacks, by tree.
    rollbacks: [CachePadded<AtomicU64>; COUNTS],
    /// Descriptors of large values that rows had in states that are gone.
    large: Mutex<Vec<Box<[u8]>>>,
    large_count: AtomicU64,
}

/// The entries of the rows with one hash.
#[derive(Default)]
struct VersionBucket {
    count: AtomicU32,
    first: Mutex<Chain>,
}

impl Drop for VersionBucket {
    fn drop(&mut self) {
        // One after the other: a list may be longer than the stack.
        let mut next = shim::get_mut(&mut self.first).take();
        while let Some(mut entry) = next {
            next = entry.next.take();
        }
    }
}

/// The entries whose newest state a transaction has written.
#[derive(Default)]
pub struct OwnedVersions {
    rows: Vec<OwnedEntry>,
    #[expect(
        clippy::vec_box,
        reason = "a box goes into a list and back, and is not copied"
    )]
    spare: Vec<Box<VersionEntry>>,
}

/// An entry of a transaction. It stays at its address while the transaction is open.
struct OwnedEntry {
    bucket: u32,
    table: u32,
    tree: u64,
    address: usize,
}

/// Records, for one transaction, what its changes of the rows of one tree replace.
pub struct VersionRecorder<'t> {
    /// All versions.
    pub versions: &'t RowVersions,
    /// Those of the transaction.
    pub owned: &'t mut OwnedVersions,
    /// Begin of the states that it writes.
    pub own: Begin,
    /// Number of the table, as the transaction counts its tables.
    pub table: usize,
}

/// Result of a reader's look for a row whose page it has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionLookup {
    /// The page has it, unless there was a rollback meanwhile. `None`: it is older than all
    /// snapshots.
    Newest(Option<Begin>),
    /// It was replaced; the value was copied.
    Older(RowFlags, Begin),
    /// There was no such row.
    Absent(Begin),
    /// Its writer is about to learn its commit LSN; the reader waits ([`CommitSlots::poll`]).
    Unresolved(Begin),
}

impl fmt::Debug for RowVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowVersions").finish_non_exhaustive()
    }
}

impl fmt::Debug for OwnedVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedVersions")
            .field("rows", &self.rows.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for VersionRecorder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionRecorder")
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

impl OwnedVersions {
    /// True if the transaction has replaced nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Keeps an entry that has left its bucket for a later change.
    fn recycle(&mut self, mut entry: Box<VersionEntry>) {
        if self.spare.len() < SPARE {
            entry.older.clear();
            entry.key.clear();
            self.spare.push(entry);
        }
    }

    fn put_back(&mut self, mut rows: Vec<OwnedEntry>) {
        rows.clear();
        rows.shrink_to(KEPT_ROWS);
        self.rows = rows;
    }
}

#[cfg_attr(loom, allow(dead_code, reason = "trees are not modelled"))]
impl VersionRecorder<'_> {
    /// Adds the state that a change replaces.
    pub(super) fn replace(
        &mut self,
        (tree, key): (u64, &[u8]),
        before: Option<(RowFlags, Vec<u8>)>,
    ) {
        let row = VersionedKey::new(tree, key);
        let writer = (self.own, self.table);
        self.versions.replace(self.owned, &row, before, writer);
    }
}

impl Default for RowVersions {
    fn default() -> Self {
        Self::new()
    }
}

impl VersionBucket {
    /// Changes the number of entries, under the latch.
    fn add(&self, change: i32) {
        // Relaxed: the latch orders it with other changes.
        let count = self.count.load(Ordering::Relaxed);
        self.count
            .store(count.wrapping_add_signed(change), Ordering::Release); // O1
    }
}

impl RowVersions {
    /// Returns a table without versions.
    pub fn new() -> RowVersions {
        RowVersions {
            buckets: OnceLock::new(),
            rollbacks: [(); COUNTS].map(|()| CachePadded::new(AtomicU64::new(0))),
            large: Mutex::default(),
            large_count: AtomicU64::new(0),
        }
    }

    fn make_buckets(&self) -> &[VersionBucket] {
        self.buckets.get_or_init(|| {
            let buckets = (0..BUCKETS).map(|_| VersionBucket::default());
            buckets.collect()
        })
    }

    /// Returns the bucket of a row, if it has entries.
    #[inline]
    fn bucket(&self, row: &VersionedKey<'_>) -> Option<&VersionBucket> {
        let bucket = &self.buckets.get()?[row.hash as usize % BUCKETS];
        (bucket.count.load(Ordering::Acquire) > 0).then_some(bucket) // O1
    }

    /// Adds the state that a change replaces, before the page has the new one. `writer` is the
    /// begin of the new state, and the number of the table as the transaction counts them. The
    /// transaction holds the row locked exclusively.
    pub fn replace(
        &self,
        owned: &mut OwnedVersions,
        row: &VersionedKey<'_>,
        before: Option<(RowFlags, Vec<u8>)>,
        (own, table): (Begin, usize),
    ) {
        let buckets = self.make_buckets();
        let number = row.hash as usize % BUCKETS;
        let bucket = &buckets[number];
        // Site: "row versions".
        let mut first = shim::lock(&bucket.first);
        let address = match find_mut(&mut first, |entry| entry.is_of(row)) {
            Some(entry) if entry.head == own => return,
            Some(entry) => {
                let begin = mem::replace(&mut entry.head, own);
                entry.older.push(ReplacedRow { begin, row: before });
                entry.address()
            }
            None => {
                let mut entry = owned.spare.pop().unwrap_or_else(VersionEntry::vacant);
                (entry.hash, entry.tree, entry.head) = (row.hash, row.tree, own);
                entry.key.extend_from_slice(row.key);
                let begin = Begin::ALWAYS;
                entry.older.push(ReplacedRow { begin, row: before });
                entry.next = first.take();
                let address = entry.address();
                *first = Some(entry);
                bucket.add(1);
                address
            }
        };
        drop(first);
        owned.rows.push(OwnedEntry {
            bucket: number as u32,
            table: table as u32,
            tree: row.tree,
            address,
        });
    }

    /// Ends the states that a transaction has written, which has its commit LSN and still its
    /// locks. With `stamp` they began there, and what they replaced stays; `left` gets the number
    /// of the table and the key of each row, and the begin and the bytes of what it replaced.
    /// Without, no snapshot is below the commit, and the entries go.
    pub fn commit(
        &self,
        owned: &mut OwnedVersions,
        own: Begin,
        stamp: Option<Begin>,
        mut left: impl FnMut(usize, &[u8], (Lsn, usize)),
    ) {
        let Some(buckets) = self.buckets.get() else {
            return;
        };
        let rows = mem::take(&mut owned.rows);
        for row in &rows {
            let bucket = &buckets[row.bucket as usize];
            let is_it = |entry: &VersionEntry| entry.address() == row.address && entry.head == own;
            // Site: "row versions".
            let mut first = shim::lock(&bucket.first);
            if let Some(stamp) = stamp {
                let Some(entry) = find_mut(&mut first, is_it) else {
                    continue;
                };
                entry.head = stamp;
                if let Some(old) = entry.older.last() {
                    let bytes = old.row.as_ref().map_or(0, |(_, value)| value.len());
                    let version = (committed(old.begin), bytes + STATE_BYTES);
                    left(row.table as usize, &entry.key, version);
                }
            } else if let Some(entry) = unlink(&mut first, is_it) {
                bucket.add(-1);
                drop(first);
                // The writer itself examines what it has replaced.
                let (_, older) = entry.older.split_last().unzip();
                self.release_large(older.unwrap_or_default());
                owned.recycle(entry);
            }
        }
        owned.put_back(rows);
    }

    /// Keeps the descriptors of large values for [`take_large`](Self::take_large).
    fn release_large(&self, gone: &[ReplacedRow]) {
        for large in gone.iter().filter_map(ReplacedRow::large) {
            // Site: "row versions".
            shim::lock(&self.large).push(large.into());
            // Relaxed: a hint. Site: "row versions".
            self.large_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the descriptors of large values that rows had in states that are gone.
    pub fn take_large(&self) -> Vec<Box<[u8]>> {
        // Relaxed: a hint; what it misses is taken next time.
        if self.large_count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        self.large_count.store(0, Ordering::Relaxed);
        // Site: "row versions".
        mem::take(&mut *shim::lock(&self.large))
    }

    /// Takes the states of a transaction back, whose changes of pages are undone.
    pub fn roll_back(&self, owned: &mut OwnedVersions, own: Begin) {
        let Some(buckets) = self.buckets.get() else {
            return;
        };
        let rows = mem::take(&mut owned.rows);
        let mut counted = None;
        for row in &rows {
            if counted.replace(row.tree) != Some(row.tree) {
                // Site: "row versions".
                self.count_of(row.tree).fetch_add(1, Ordering::Release); // O2
            }
        }
        for row in &rows {
            let bucket = &buckets[row.bucket as usize];
            let is_it = |entry: &VersionEntry| entry.address() == row.address && entry.head == own;
            // Site: "row versions".
            let mut first = shim::lock(&bucket.first);
            let Some(entry) = find_mut(&mut first, is_it) else {
                continue;
            };
            if let Some(old) = entry.older.pop() {
                entry.head = old.begin;
            }
            if entry.older.is_empty()
                && let Some(entry) = unlink(&mut first, |entry| entry.address() == row.address)
            {
                bucket.add(-1);
                drop(first);
                owned.recycle(entry);
            }
        }
        owned.put_back(rows);
    }

    /// Forgets the entries of a transaction whose changes cannot be undone. They stay, so readers
    /// find what it has replaced.
    pub fn abandon(&self, owned: &mut OwnedVersions) {
        owned.put_back(Vec::new());
    }

    fn count_of(&self, tree: u64) -> &AtomicU64 {
        &self.rollbacks[tree as usize % COUNTS]
    }

    /// Returns the number of rollbacks that have changed the tree. A reader loads it before it
    /// reads the page.
    #[inline]
    pub fn rollbacks(&self, tree: u64) -> u64 {
        self.count_of(tree).load(Ordering::Acquire) // O2
    }

    /// Looks for the state of a row that a reader at `snapshot` sees, to whom that of `own` is
    /// visible, too. It has read the page before. Copies the value of a replaced state to `value`.
    pub fn read(
        &self,
        row: &VersionedKey<'_>,
        slots: &CommitSlots,
        own: Option<Begin>,
        snapshot: Lsn,
        value: &mut Vec<u8>,
    ) -> VersionLookup {
        let Some(bucket) = self.bucket(row) else {
            return VersionLookup::Newest(None);
        };
        // Site: "row versions".
        let first = shim::lock(&bucket.first);
        let Some(entry) = find(&first, row) else {
            return VersionLookup::Newest(None);
        };
        if own == Some(entry.head) {
            return VersionLookup::Newest(Some(Begin::ALWAYS));
        }
        match slots.visibility(entry.head, snapshot) {
            Visibility::Visible(begin) => return VersionLookup::Newest(Some(begin)),
            Visibility::Unresolved => return VersionLookup::Unresolved(entry.head),
            // A writer ends after its entries, unless its changes could not be undone.
            Visibility::Invisible | Visibility::Ended => {}
        }
        for old in entry.older.iter().rev() {
            if let Visibility::Visible(begin) = slots.visibility(old.begin, snapshot) {
                return match &old.row {
                    None => VersionLookup::Absent(begin),
                    Some((flags, bytes)) => {
                        value.clear();
                        value.extend_from_slice(bytes);
                        VersionLookup::Older(*flags, begin)
                    }
                };
            }
        }
        VersionLookup::Absent(Begin::ALWAYS)
    }

    /// Returns where the newest committed state of a row began, if a snapshot may be below it. The
    /// caller holds the row locked.
    pub fn newest_commit(&self, row: &VersionedKey<'_>) -> Option<Lsn> {
        // Site: "row versions".
        let first = shim::lock(&self.bucket(row)?.first);
        let entry = find(&first, row)?;
        let newest = entry.head.committed();
        let newest = newest.or_else(|| entry.older.last()?.begin.committed());
        newest.map(|(lsn, _)| lsn)
    }

    /// Calls `visit` with the begin and the end of each replaced state that had a row.
    pub fn visit_rows(&self, row: &VersionedKey<'_>, mut visit: impl FnMut(Lsn, Lsn)) {
        let Some(bucket) = self.bucket(row) else {
            return;
        };
        // Site: "row versions".
        let first = shim::lock(&bucket.first);
        if let Some(entry) = find(&first, row) {
            entry.visit(|old, end| {
                if let (Some(_), Some((end, _))) = (&old.row, end.committed()) {
                    visit(committed(old.begin), end);
                }
            });
        }
    }

    /// True if a replaced state of the row, which had a row, is there.
    pub fn has_rows(&self, row: &VersionedKey<'_>) -> bool {
        let mut has_one = false;
        self.visit_rows(row, |_, _| has_one = true);
        has_one
    }

    /// True if a replaced state of the row has a value outside its leaf for which `is_it` is true.
    pub fn has_large(&self, row: &VersionedKey<'_>, is_it: impl Fn(&[u8]) -> bool) -> bool {
        let Some(bucket) = self.bucket(row) else {
            return false;
        };
        // Site: "row versions".
        let first = shim::lock(&bucket.first);
        find(&first, row).is_some_and(|entry| {
            let large = entry.older.iter().filter_map(ReplacedRow::large);
            large.into_iter().any(is_it)
        })
    }

    /// Removes the replaced states whose interval of validity, from its begin up to its end, is not
    /// `needed`. Returns their number.
    pub fn prune(&self, row: &VersionedKey<'_>, needed: &impl Fn(Lsn, Lsn) -> bool) -> usize {
        let Some(bucket) = self.bucket(row) else {
            return 0;
        };
        // Site: "row versions".
        let mut first = shim::lock(&bucket.first);
        let Some(entry) = find_mut(&mut first, |entry| entry.is_of(row)) else {
            return 0;
        };
        let (mut pruned, mut end) = (0, entry.head);
        for at in (0..entry.older.len()).rev() {
            let old = &entry.older[at];
            let begin = old.begin;
            match end.committed() {
                Some((end, _)) if !needed(committed(begin), end) => {
                    let old = entry.older.remove(at);
                    self.release_large(&[old]);
                    pruned += 1;
                }
                _ => end = begin,
            }
        }
        if entry.older.is_empty() && entry.head.committed().is_some() {
            // I2: all that was before its newest state is not needed.
            let removed = unlink(&mut first, |entry| entry.is_of(row));
            bucket.add(-1);
            drop(first);
            drop(removed);
        }
        pruned
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod models;
