//! Rows found by the keys of an index, one by one and in ranges, read by threads.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow, RangeBounds};

use crate::api::range::{decode, how_to_read, take_decoded};
use crate::api::transaction::Transaction;
use crate::engine::cancel_token::is_not_cancelled;
use crate::error::Result;
use crate::txn::handle::{ATTACHED, TxnGuard};
use crate::txn::index_read::EncodedRow;
use crate::types::codec::{Key, Undecodable, Value};
use crate::types::index::Index;
use crate::types::index_entry::EntryKind;
use crate::types::lock_options::{Lock, LockOptions};

/// A row as an index gives it: its key there, its own key, its value.
pub type IndexRow<I, K, V> = (<I as Key>::Owned, <K as Key>::Owned, <V as Value>::Owned);

/// Stands for the three types of an index, none of which is there.
pub(crate) type Types<I, K, V> =
    PhantomData<(fn() -> *const I, fn() -> *const K, fn() -> *const V)>;

/// The rows whose keys in an index lie in a range, not read yet: say how, then read. Each comes as its
/// key in the index, its own key, and its value, in the order of the first and then of the second.
///
/// *How:* [`reversed`](Self::reversed), [`limit`](Self::limit), [`locked`](Self::locked).
/// *Read:* [`for_each`](Self::for_each), [`try_for_each`](Self::try_for_each),
/// [`collect`](Self::collect), [`first`](Self::first), [`count`](Self::count), or a `for` loop.
///
/// What is read stays as it is until the transaction ends, as in a [`Range`](crate::Range): nobody
/// changes these rows, and no other row comes into the range of the index.
///
/// ```
/// use foxton::{Database, Index, Options, Table};
///
/// // Priority, what to do
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
pub struct IndexRange<'t, I: ?Sized, K: ?Sized, V: ?Sized> {
    up: Option<TxnGuard<'t>>,
    by: Result<usize>,
    types: Types<I, K, V>,
}

impl<I: ?Sized, K: ?Sized, V: ?Sized> fmt::Debug for IndexRange<'_, I, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexRange")
            .field("scan", &self.up.as_ref().map(|up| &up.txn.scan))
            .finish_non_exhaustive()
    }
}

impl<'t, I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized> IndexRange<'t, I, K, V> {
    pub(crate) fn new(
        up: Result<TxnGuard<'t>>,
        index: &Index<I, K, V>,
        range: impl RangeBounds<I>,
    ) -> IndexRange<'t, I, K, V> {
        let (up, by) = TxnGuard::prepared(up, |state| state.prepare_range_by(index, &range));
        IndexRange {
            up,
            by,
            types: PhantomData,
        }
    }

    how_to_read!();

    /// Calls `take` with each row.
    ///
    /// # Errors
    /// A conflict, if a lock was not to be had: `take` may have been called for what came before it.
    /// A request error, if a bound is too long, the index is not declared, or what is stored is no
    /// `I`, `K` or `V`.
    pub fn for_each(self, mut take: impl FnMut(I::Owned, K::Owned, V::Owned)) -> Result<()> {
        self.try_for_each(|index_key, key, value| {
            take(index_key, key, value);
            ControlFlow::Continue(())
        })
    }

    /// Calls `take` with each row until it says to break.
    ///
    /// # Errors
    /// As for [`for_each`](Self::for_each).
    pub fn try_for_each(
        mut self,
        mut take: impl FnMut(I::Owned, K::Owned, V::Owned) -> ControlFlow<()>,
    ) -> Result<()> {
        self.walk(|(index_key, key, value)| take(index_key, key, value))
    }

    /// Calls `take` with each row until it says to break, from where the range stands.
    fn walk(&mut self, mut take: impl FnMut(IndexRow<I, K, V>) -> ControlFlow<()>) -> Result<()> {
        let by = match &self.by {
            Ok(by) => *by,
            Err(_) => return std::mem::replace(&mut self.by, Ok(usize::MAX)).map(drop),
        };
        let state = self.up.as_deref_mut().expect(ATTACHED);
        let (wait, kind) = (state.txn.scan.lock.wait, state.kind_of(by));
        let cancel_token = state.txn.cancel_token.clone();
        let mut failure = None;
        let mut give = |found: EncodedRow<'_>| {
            if !is_not_cancelled(&cancel_token) {
                return ControlFlow::Break(());
            }
            let row = decode_found::<I, K, V>(kind, &found);
            take_decoded(row, &mut failure, &mut take)
        };
        state.block_on(wait, |state| state.scan_by_step(by, &mut give))?;
        state.check_active()?;
        failure.map_or(Ok(()), |undecodable| Err(undecodable.into()))
    }

    /// Everything in the range, in order.
    ///
    /// # Errors
    /// As for [`for_each`](Self::for_each).
    pub fn collect(mut self) -> Result<Vec<IndexRow<I, K, V>>> {
        let mut rows = Vec::new();
        self.walk(|row| {
            rows.push(row);
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    /// The first row in the range (the last, if reversed).
    ///
    /// # Errors
    /// As for [`for_each`](Self::for_each).
    pub fn first(self) -> Result<Option<IndexRow<I, K, V>>> {
        let mut first = None;
        self.limit(1).walk(|row| {
            first = Some(row);
            ControlFlow::Break(())
        })?;
        Ok(first)
    }

    /// How many rows there are, up to the limit.
    ///
    /// # Errors
    /// As for [`for_each`](Self::for_each).
    pub fn count(mut self) -> Result<u64> {
        let mut count = 0;
        self.walk(|_| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }
}

impl<'t, I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized> IntoIterator
    for IndexRange<'t, I, K, V>
{
    type Item = Result<IndexRow<I, K, V>>;
    type IntoIter = IndexRows<'t, I, K, V>;

    fn into_iter(self) -> IndexRows<'t, I, K, V> {
        IndexRows(Some(self))
    }
}

/// The rows of an [`IndexRange`], one by one. Ends after the first error.
pub struct IndexRows<'t, I: ?Sized, K: ?Sized, V: ?Sized>(Option<IndexRange<'t, I, K, V>>);

impl<I: ?Sized, K: ?Sized, V: ?Sized> fmt::Debug for IndexRows<'_, I, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IndexRows").field(&self.0).finish()
    }
}

impl<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized> Iterator for IndexRows<'_, I, K, V> {
    type Item = Result<IndexRow<I, K, V>>;

    fn next(&mut self) -> Option<Self::Item> {
        let range = self.0.as_mut()?;
        let is_finished = |up: &TxnGuard<'_>| up.txn.scan.is_finished();
        if range.by.is_ok() && range.up.as_ref().is_some_and(is_finished) {
            return None;
        }
        let mut row = None;
        let walked = range.walk(|found| {
            row = Some(found);
            ControlFlow::Break(())
        });
        if let Err(error) = walked {
            self.0 = None;
            return Some(Err(error));
        }
        row.map(Ok)
    }
}

impl Transaction {
    /// The row that has `key` in `index`: its key and its value. If the index is not unique and several
    /// have it, the one with the first key.
    ///
    /// ```
    /// use foxton::{Database, Index, Options, Table};
    /// const USERS: Table<u64, str> = Table::new("users");
    /// const BY_NAME: Index<str, u64, str> = Index::unique("by_name", &USERS, |_, name, keys| keys.add(name));
    /// let db = Database::in_memory(Options::default())?;
    /// db.create_index(&BY_NAME)?;
    /// let mut tx = db.begin()?;
    /// tx.put(&USERS, &7, "ada")?;
    /// assert_eq!(tx.get_by(&BY_NAME, "ada")?, Some((7, "ada".to_owned())));
    /// assert_eq!(tx.get_by(&BY_NAME, "bob")?, None);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`get`](Self::get); a request error, if the index is not declared, or not so.
    pub fn get_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        key: &I,
    ) -> Result<Option<(K::Owned, V::Owned)>> {
        self.get_by_locked(index, key, Lock::Shared)
    }

    /// As [`get_by`](Self::get_by), for a row that is probably to be written next: see
    /// [`get_for_update`](Self::get_for_update).
    ///
    /// # Errors
    /// As for [`get_by`](Self::get_by).
    pub fn get_by_for_update<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        key: &I,
    ) -> Result<Option<(K::Owned, V::Owned)>> {
        self.get_by_locked(index, key, Lock::Update)
    }

    /// As [`get_by`](Self::get_by), locked as asked; see [`get_locked`](Self::get_locked).
    ///
    /// # Errors
    /// As for [`get_by`](Self::get_by).
    pub fn get_by_locked<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        key: &I,
        lock: impl Into<LockOptions>,
    ) -> Result<Option<(K::Owned, V::Owned)>> {
        if !index.is_unique() {
            let first = self.all_by(index, key).locked(lock).first()?;
            return Ok(first.map(|(_, key, value)| (key, value)));
        }
        let (state, lock) = (&mut *self.up()?, lock.into());
        let by = state.prepare_get_by(index, key)?;
        let mut read = |found: EncodedRow<'_>| decode::<K, V>(found.key, found.value);
        let row = state.block_on(lock.wait, |state| state.get_by_step(by, lock, &mut read))?;
        Ok(row.transpose()?)
    }

    /// The rows whose keys in `index` lie in `range`, in the order of the index: see
    /// [`IndexRange`].
    ///
    /// ```
    /// use foxton::{Database, Index, Options, Table};
    /// const USERS: Table<u64, u32> = Table::new("ages");
    /// const BY_AGE: Index<u32, u64, u32> = Index::new("by_age", &USERS, |_, age, keys| keys.add(age));
    /// let db = Database::in_memory(Options::default())?;
    /// db.create_index(&BY_AGE)?;
    /// let mut tx = db.begin()?;
    /// for (user, age) in [(1, 36), (2, 85), (3, 41), (4, 36)] {
    ///     tx.put(&USERS, &user, &age)?;
    /// }
    /// // Age, user, and the row
    /// assert_eq!(tx.range_by(&BY_AGE, ..40).collect()?, [(36, 1, 36), (36, 4, 36)]);
    /// assert_eq!(tx.range_by(&BY_AGE, ..).reversed().first()?, Some((85, 2, 85)));
    /// # Ok::<(), foxton::Error>(())
    /// ```
    pub fn range_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        range: impl RangeBounds<I>,
    ) -> IndexRange<'_, I, K, V> {
        IndexRange::new(self.up(), index, range)
    }

    /// All rows that have `key` in `index`, in the order of their own keys.
    pub fn all_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        key: &I,
    ) -> IndexRange<'_, I, K, V> {
        self.range_by(index, (Bound::Included(key), Bound::Included(key)))
    }
}

/// What an index gave, as its types.
pub(crate) fn decode_found<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
    kind: EntryKind,
    found: &EncodedRow<'_>,
) -> Result<IndexRow<I, K, V>, Undecodable> {
    let mut index_key = found.index_key;
    let index_key = match kind {
        EntryKind::Unique => I::decode(index_key)?,
        EntryKind::Shared => I::decode_part(&mut index_key)?,
    };
    Ok((index_key, K::decode(found.key)?, V::decode(found.value)?))
}
