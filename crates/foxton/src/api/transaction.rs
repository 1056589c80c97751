//! Transactions of threads.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use foxton_log::Lsn;

use crate::api::operation::{self, Attempt, Operation, Prepare};
use crate::api::range::{IndexRange, Range};
use crate::api::range_scan::RangeScan;
use crate::catalog::NamedTable;
use crate::catalog::index_catalog::is_index_table;
use crate::error::{IndexError, Result};
use crate::txn::bound::BoundTxn;
use crate::txn::handle::{TxnGuard, TxnHandle};
use crate::types::codec::{Key, TypeName, Undecodable, Value};
use crate::types::component::TableComponent;
use crate::types::index::Index;
use crate::types::lock_options::{Lock, LockOptions, LockWait};
use crate::types::savepoint::Savepoint;
use crate::types::table::Table;

/// A transaction: its reads and writes happen at once, as if it were alone, or not at all.
///
/// Made by [`Database::begin`](crate::Database::begin). A transaction owns all it needs, so it can
/// be kept in a struct and sent to another thread. Every operation may wait for locks of other
/// transactions, and keeps its own locks until the transaction ends. If it is dropped without
/// [`commit`](Self::commit), it rolls back. If it is forgotten (`mem::forget`), it keeps its locks
/// until the database is closed or [`Options::idle_timeout`](crate::Options::idle_timeout) ends it;
/// [`Database::transactions`](crate::Database::transactions) shows it with its label.
///
/// A deadlock ([`ConflictReason::Deadlock`](crate::error::ConflictReason)) rolls the transaction
/// back, and from then on it refuses everything else. Other refusals leave it as it was.
///
/// ```
/// use foxton::{Database, Options, Table};
///
/// const STOCK: Table<str, u32> = Table::new("stock");
///
/// let db = Database::in_memory(Options::default())?;
/// let mut tx = db.begin()?;
/// tx.put(&STOCK, "apples", &12)?;
/// tx.put(&STOCK, "pears", &3)?;
/// tx.commit()?;
///
/// let mut tx = db.begin()?;
/// let apples = tx.get_for_update(&STOCK, "apples")?.unwrap_or(0);
/// tx.put(&STOCK, "apples", &(apples - 5))?;
/// drop(tx); // no commit: nothing happened
///
/// let mut tx = db.begin()?;
/// assert_eq!(tx.range(&STOCK, ..).collect()?, [("apples".into(), 12), ("pears".into(), 3)]);
/// # Ok::<(), foxton::Error>(())
/// ```
///
/// It may move between threads, but threads cannot share it:
///
/// ```
/// fn assert_send<T: Send + 'static>() {}
/// assert_send::<foxton::Transaction>();
/// ```
///
/// ```compile_fail,E0277
/// fn assert_sync<T: Sync>() {}
/// assert_sync::<foxton::Transaction>();
/// ```
pub struct Transaction {
    handle: TxnHandle,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

impl Transaction {
    pub(crate) fn new(bound: Box<BoundTxn>) -> Transaction {
        let handle = TxnHandle::new(bound);
        Transaction { handle }
    }

    /// Makes one of the database's own transactions, which are never idle.
    pub(crate) fn busy(bound: Box<BoundTxn>) -> Transaction {
        let handle = TxnHandle::never_idle(bound);
        Transaction { handle }
    }

    /// Attaches the transaction for one operation.
    #[inline]
    pub(crate) fn attach(&mut self) -> Result<TxnGuard<'_>> {
        self.handle.attach()
    }

    /// Runs an operation; blocks the thread while it waits for a lock.
    #[inline(always)]
    pub(super) fn run<P, T>(
        &mut self,
        operation: Operation<impl Prepare<P>, impl Attempt<P, T>>,
    ) -> Result<T> {
        let bound = &mut *self.attach()?;
        let (prepared, mut attempt) = ((operation.prepare)(bound)?, operation.attempt);
        bound.block_on(operation.wait, |bound| attempt(bound, &prepared))
    }

    /// Calls `read` with the bytes of the value of `key`, without copying them, and returns its
    /// result; `None` if the key is absent. `read` should not wait for anything else of the
    /// database.
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const PAGES: Table<u64, [u8]> = Table::new("pages");
    /// # let db = Database::in_memory(Options::default())?;
    /// # let mut tx = db.begin()?;
    /// tx.put(&PAGES, &7, &[1, 2, 3])?;
    /// let length = tx.get_with(&PAGES, &7, |bytes| bytes.len())?;
    /// assert_eq!(length, Some(3));
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_with<K: Key + ?Sized, V: Value + ?Sized, R>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.run(operation::get_with(table, key, Lock::Shared.into(), read))
    }

    /// Returns the values of `keys`, in their order; `None` for each that is absent. Results and
    /// locks are those of one [`get`](Self::get) after the other. But rows that lie apart in memory
    /// are fetched side by side: most of the cost of a read, if the table does not fit the caches.
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const STOCK: Table<u64, u32> = Table::new("stock");
    /// # let db = Database::in_memory(Options::default())?;
    /// # let mut tx = db.begin()?;
    /// tx.put(&STOCK, &1, &12)?;
    /// tx.put(&STOCK, &3, &30)?;
    /// assert_eq!(tx.get_many(&STOCK, &[3, 2, 1])?, [Some(30), None, Some(12)]);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`get`](Self::get). Keys that were locked before the error stay locked. If a key is
    /// too long, none is locked.
    pub fn get_many<'k, K: Key + ?Sized + 'k, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
    ) -> Result<Vec<Option<V::Owned>>> {
        self.get_many_locked(table, keys, Lock::Shared)
    }

    /// Returns the values of `keys`, locked with `lock`. With [`Lock::skip_locked`], a key that
    /// another transaction has locked counts as absent.
    ///
    /// # Errors
    /// As for [`get_many`](Self::get_many).
    pub fn get_many_locked<'k, K: Key + ?Sized + 'k, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
        lock: impl Into<LockOptions>,
    ) -> Result<Vec<Option<V::Owned>>> {
        let take = |values: &mut Vec<_>, _, bytes: Option<&[u8]>| {
            values.push(bytes.map(V::decode).transpose());
        };
        let values = self.run(operation::get_many(table, keys, lock.into(), take))?;
        Ok(values.into_iter().collect::<Result<_, Undecodable>>()?)
    }

    /// Calls `read` for each of `keys`, in order, with the index of the key in `keys`, from 0 on,
    /// and the bytes of its value, or `None`. The bytes are not copied. `read` should not wait for
    /// anything else of the database.
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const PAGES: Table<u64, [u8]> = Table::new("pages");
    /// # let db = Database::in_memory(Options::default())?;
    /// # let mut tx = db.begin()?;
    /// tx.put(&PAGES, &7, &[1, 2, 3])?;
    /// let mut sizes = [0; 2];
    /// tx.get_many_with(&PAGES, &[6, 7], |index, bytes| {
    ///     sizes[index] = bytes.map_or(0, <[u8]>::len);
    /// })?;
    /// assert_eq!(sizes, [0, 3]);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`get_many`](Self::get_many); then `read` was called for the keys before.
    pub fn get_many_with<'k, K: Key + ?Sized + 'k, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let take = |(): &mut (), index, bytes: Option<&[u8]>| read(index, bytes);
        self.run(operation::get_many(table, keys, Lock::Shared.into(), take))
    }

    /// Returns the keys of `table` in `range`, not read yet; [`Range`] has the ways to read them.
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const NUMBERS: Table<u64, u64> = Table::new("numbers");
    /// # let db = Database::in_memory(Options::default())?;
    /// # let mut tx = db.begin()?;
    /// for number in 0..10 {
    ///     tx.put(&NUMBERS, &number, &(number * number))?;
    /// }
    /// assert_eq!(tx.range(&NUMBERS, 3..5).collect()?, [(3, 9), (4, 16)]);
    /// assert_eq!(tx.range(&NUMBERS, ..).reversed().limit(1).collect()?, [(9, 81)]);
    /// let mut sum = 0;
    /// tx.range(&NUMBERS, 5..).for_each(|_, square| sum += square)?;
    /// assert_eq!(sum, 25 + 36 + 49 + 64 + 81);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    pub fn range<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        range: impl RangeBounds<K>,
    ) -> Range<'_, K, V> {
        Range(RangeScan::table(self.attach(), table, range))
    }

    /// Returns the rows whose keys in `index` lie in `range`, in the order of the index, not read
    /// yet; [`IndexRange`] has the ways to read them.
    ///
    /// ```
    /// use foxton::{Database, Index, Options, Table};
    /// const USERS: Table<u64, u32> = Table::new("ages");
    /// const BY_AGE: Index<u32, u64, u32> =
    ///     Index::new("by_age", &USERS, |_, age, keys| keys.add(age));
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
        IndexRange(RangeScan::index(self.attach(), index, range))
    }

    /// Returns all rows that have `key` in `index`, in the order of their own keys, not read yet.
    pub fn all_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        key: &I,
    ) -> IndexRange<'_, I, K, V> {
        self.range_by(index, (Bound::Included(key), Bound::Included(key)))
    }

    /// Makes a table called `name`, unless there is one, for types that only the program's input
    /// names. Waits for transactions that have read the table as absent. The table stays even if
    /// the transaction rolls back; an empty table does no harm.
    /// [`Encoded`](crate::types::codec::Encoded) reads and writes it.
    ///
    /// ```
    /// use foxton::codec::{Encoded, TypeName};
    /// # use foxton::{Database, Options, Table};
    /// # let db = Database::in_memory(Options::default())?;
    /// let mut tx = db.begin()?;
    /// tx.make_table("ages", &TypeName::new("str"), &TypeName::new("u32"))?;
    /// tx.put(&Table::new("ages"), &Encoded(b"ada".to_vec()), &Encoded(vec![36, 0, 0, 0]))?;
    /// assert_eq!(tx.get(&Table::<str, u32>::new("ages"), "ada")?, Some(36));
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// A request error, if there is one with other types, the name is too long, or the database
    /// reserves it. A conflict, if the lock was not granted. A storage error, if the log has
    /// failed.
    pub fn make_table(
        &mut self,
        name: &str,
        key_type: &TypeName,
        value_type: &TypeName,
    ) -> Result<()> {
        self.make_table_of(name, key_type, value_type, None)
    }

    /// As [`make_table`](Self::make_table), with its rows in this component whatever
    /// [`Options::component`](crate::Options::component) says.
    ///
    /// ```
    /// use foxton::{TableComponent, codec::TypeName};
    /// # use foxton::{Database, Options, Table};
    /// # let db = Database::in_memory(Options::default())?;
    /// let (keys, values) = (TypeName::new("str"), TypeName::new("u32"));
    /// let mut tx = db.begin()?;
    /// tx.make_table_in(TableComponent::Paged, "ages", &keys, &values)?;
    /// tx.put(&Table::<str, u32>::new("ages"), "ada", &36)?;
    /// assert!(db.stats().tables[0].component == TableComponent::Paged);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`make_table`](Self::make_table). A request error too, if there is such a table in the
    /// other component.
    pub fn make_table_in(
        &mut self,
        component: TableComponent,
        name: &str,
        key_type: &TypeName,
        value_type: &TypeName,
    ) -> Result<()> {
        self.make_table_of(name, key_type, value_type, Some(component))
    }

    fn make_table_of(
        &mut self,
        name: &str,
        key_type: &TypeName,
        value_type: &TypeName,
        component: Option<TableComponent>,
    ) -> Result<()> {
        let mut bound = self.attach()?;
        bound.check_active()?;
        bound.ctx.engine.check_writable()?;
        if is_index_table(name) {
            // With the right type of keys it would be made, with wrong values, and the database
            // could never have an index.
            return Err(IndexError::ReservedTable.into());
        }
        let named = NamedTable {
            name,
            key_type,
            value_type,
            component,
        };
        let wait = LockWait::Default;
        bound
            .block_on(wait, |bound| bound.make_table_step(named, wait))
            .map(drop)
    }

    /// Undoes all changes since `savepoint`, and releases no locks. The savepoint stays and can be
    /// used again; later savepoints are removed. Waits for nothing but space in the log.
    ///
    /// # Errors
    /// `no_such_savepoint`, if it is of another transaction or was removed. A conflict, if one has
    /// ended the transaction. A storage error, if the log has failed.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.attach()?.roll_back_to(savepoint)
    }

    /// Undoes all changes and releases every lock. Dropping the transaction does the same.
    pub fn rollback(self) {
        drop(self);
    }

    /// Commits: all changes happen, as durably as asked, and every lock is released.
    ///
    /// # Errors
    /// A conflict, if one had ended the transaction. A storage error, if the log has failed; then
    /// the changes may or may not be there when the database is opened again.
    pub fn commit(self) -> Result<()> {
        self.end(BoundTxn::commit)
    }

    /// As [`commit`](Self::commit), and returns the position of the transaction in the order of all
    /// commits: the end of its record in the log, in bytes.
    ///
    /// No two transactions that changed anything have the same position. A transaction that only
    /// read gets the end of the log, and comes after the transaction whose record ends there. Run
    /// one after the other in this order, all transactions do and read the same.
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const STOCK: Table<str, u32> = Table::new("stock");
    /// # let db = Database::in_memory(Options::default())?;
    /// let mut tx = db.begin()?;
    /// tx.put(&STOCK, "apples", &12)?;
    /// let wrote = tx.commit_at()?;
    ///
    /// let mut tx = db.begin()?;
    /// assert_eq!(tx.get(&STOCK, "apples")?, Some(12));
    /// assert!(tx.commit_at()? >= wrote);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`commit`](Self::commit).
    pub fn commit_at(self) -> Result<Lsn> {
        self.end(BoundTxn::commit_at)
    }

    #[inline(always)]
    fn end<T>(self, commit: impl FnOnce(&mut BoundTxn) -> Result<T>) -> Result<T> {
        let mut bound = self.handle.into_bound()?;
        let committed = commit(&mut bound);
        BoundTxn::recycle(bound);
        committed
    }
}
