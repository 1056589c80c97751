//! Ranges of a table and of an index, for threads and for tasks.
//!
//! The macros [`range_methods`] and [`rows`] have the methods that several of them share.

use std::fmt;
use std::ops::ControlFlow;

use crate::api::range_scan::{
    IndexSource, RangeScan, RowSource, TableSource, decoding, range_methods, rows,
};
use crate::error::Result;
use crate::types::codec::{Key, Value};
use crate::types::lock_options::LockOptions;

/// A range of keys of a table that is not read yet: say how to read it, then read.
///
/// *How:* [`reversed`](Self::reversed), [`limit`](Self::limit), [`locked`](Self::locked). *Read:*
/// [`for_each`](Self::for_each) and its relatives (fastest; the `bytes` ones copy nothing),
/// [`collect`](Self::collect), [`first`](Self::first), [`count`](Self::count), or a `for` loop.
///
/// Until the transaction ends, no other transaction changes or removes a row that was read, or adds
/// one between them. Rows that a limit or a break left unread are not locked.
///
/// ```
/// use foxton::{Database, Lock, Options, Table};
///
/// const JOBS: Table<(u8, u64), str> = Table::new("jobs");
///
/// let db = Database::in_memory(Options::default())?;
/// db.run(|tx| {
///     tx.put(&JOBS, &(2, 1), "water the plants")?;
///     tx.put(&JOBS, &(1, 2), "put out the fire")
/// })?;
///
/// // Two workers, each with the first job that no other worker has.
/// let mut workers = [db.begin()?, db.begin()?];
/// let jobs = workers.each_mut().map(|worker| {
///     worker.range(&JOBS, ..).locked(Lock::Exclusive.skip_locked()).first()
/// });
/// let [first, second] = jobs.map(|job| job.unwrap().unwrap().1);
/// assert_eq!((&*first, &*second), ("put out the fire", "water the plants"));
///
/// // One row after the other, from above.
/// let mut tx = workers.into_iter().next().unwrap();
/// for row in tx.range(&JOBS, ..(2, 0)).reversed() {
///     let ((priority, _number), _job) = row?;
///     assert_eq!(priority, 1);
/// }
/// # Ok::<(), foxton::Error>(())
/// ```
#[must_use = "a range reads nothing until it is asked to"]
pub struct Range<'t, K: ?Sized, V: ?Sized>(pub(super) RangeScan<'t, TableSource<K, V>>);

range_methods! {
    Range<K: Key, V: Value> of (K::Owned, V::Owned): (key: K::Owned, value: V::Owned),
    pub try_for_each, read
}

impl<K: Key + ?Sized, V: Value + ?Sized> Range<'_, K, V> {
    /// Calls `take` with the bytes of each key and value, without copying them. Nothing else of the
    /// database should be waited for inside.
    ///
    /// # Errors
    /// As for [`for_each`](Self::for_each).
    #[inline]
    pub fn for_each_bytes(self, mut take: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.try_for_each_bytes(move |key, value| {
            take(key, value);
            ControlFlow::Continue(())
        })
    }

    /// Calls `take` with the bytes of each key and value until `take` breaks.
    ///
    /// # Errors
    /// As for [`for_each`](Self::for_each).
    #[inline]
    pub fn try_for_each_bytes(
        self,
        mut take: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.0.read(move |_, row| take(row.key, row.value))
    }
}

/// The rows of a [`Range`], one by one. Ends after the first error.
pub struct Rows<'t, K: ?Sized, V: ?Sized>(Option<RangeScan<'t, TableSource<K, V>>>);

rows!(Rows of Range<K: Key, V: Value>, (K::Owned, V::Owned));

/// A [`Range`](crate::Range) that a task reads.
#[must_use = "a range reads nothing until it is asked to"]
pub struct AsyncRange<'t, K: ?Sized, V: ?Sized>(pub(super) RangeScan<'t, TableSource<K, V>>);

range_methods! {
    AsyncRange<K: Key, V: Value> of (K::Owned, V::Owned): (key: K::Owned, value: V::Owned),
    try_for_each, read_async async await
}

impl<K: Key + ?Sized, V: Value + ?Sized> AsyncRange<'_, K, V> {
    /// Calls `take` with the bytes of each key and value until `take` breaks.
    ///
    /// # Errors
    /// As for [`for_each`](Self::for_each).
    pub async fn try_for_each_bytes(
        self,
        mut take: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.0
            .read_async(move |_, row| take(row.key, row.value))
            .await
    }
}

/// A row found by an index: its key there, its own key, its value.
pub type IndexRow<I, K, V> = (<I as Key>::Owned, <K as Key>::Owned, <V as Value>::Owned);

/// The rows whose keys in an index lie in a range, not read yet: say how to read them, then read.
/// Each comes as its key in the index, its own key, and its value, ordered by the first and then by
/// the second.
///
/// *How:* [`reversed`](Self::reversed), [`limit`](Self::limit), [`locked`](Self::locked). *Read:*
/// [`for_each`](Self::for_each), [`try_for_each`](Self::try_for_each), [`collect`](Self::collect),
/// [`first`](Self::first), [`count`](Self::count), or a `for` loop.
///
/// Until the transaction ends, no other transaction changes a row that was read, or brings another
/// row into the part of the index that was read, as for a [`Range`](crate::Range).
///
/// ```
/// use foxton::{Database, Index, Options, Table};
///
/// // Priority, description
/// const JOBS: Table<u64, (u8, String)> = Table::new("jobs");
/// const BY_PRIORITY: Index<u8, u64, (u8, String)> =
///     Index::new("jobs_by_priority", &JOBS, |_, (priority, _), keys| keys.add(priority));
///
/// let db = Database::in_memory(Options::default())?;
/// db.create_index(&BY_PRIORITY)?;
/// let mut tx = db.begin()?;
/// tx.put(&JOBS, &1, &(2, "water the plants".into()))?;
/// tx.put(&JOBS, &2, &(1, "put out the fire".into()))?;
/// for row in tx.range_by(&BY_PRIORITY, ..=1) {
///     let (priority, job, (_, what)) = row?;
///     assert_eq!((priority, job, &*what), (1, 2, "put out the fire"));
/// }
/// # Ok::<(), foxton::Error>(())
/// ```
#[must_use = "a range reads nothing until it is asked to"]
pub struct IndexRange<'t, I: ?Sized, K: ?Sized, V: ?Sized>(
    pub(super) RangeScan<'t, IndexSource<I, K, V>>,
);

range_methods! {
    IndexRange<I: Key, K: Key, V: Value> of IndexRow<I, K, V>:
        (index_key: I::Owned, key: K::Owned, value: V::Owned),
    pub try_for_each, read
}

/// The rows of an [`IndexRange`], one by one. Ends after the first error.
pub struct IndexRows<'t, I: ?Sized, K: ?Sized, V: ?Sized>(
    Option<RangeScan<'t, IndexSource<I, K, V>>>,
);

rows!(IndexRows of IndexRange<I: Key, K: Key, V: Value>, IndexRow<I, K, V>);

/// An [`IndexRange`](crate::IndexRange) that a task reads.
#[must_use = "a range reads nothing until it is asked to"]
pub struct AsyncIndexRange<'t, I: ?Sized, K: ?Sized, V: ?Sized>(
    pub(super) RangeScan<'t, IndexSource<I, K, V>>,
);

range_methods! {
    AsyncIndexRange<I: Key, K: Key, V: Value> of IndexRow<I, K, V>:
        (index_key: I::Owned, key: K::Owned, value: V::Owned),
    pub try_for_each, read_async async await
}
