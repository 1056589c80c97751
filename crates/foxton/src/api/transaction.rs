//! Transactions of threads.

use std::fmt;
use std::ops::RangeBounds;

use foxton_lock::request::OwnerLabel as Label;
use foxton_log::Lsn;

use crate::api::range::Range;
use crate::catalog::index_catalog::is_index_table;
use crate::engine::cancel_token::CancelToken;
use crate::error::{IndexError, Result};
use crate::options::Durability;
use crate::txn::bound::BoundTxn;
use crate::txn::explicit_lock;
use crate::txn::handle::{TxnGuard, TxnHandle};
use crate::txn::write::Write;
use crate::types::codec::{Key, TypeName, Value};
use crate::types::isolation::Isolation;
use crate::types::lock_options::{Lock, LockOptions, LockWait, TableLock};
use crate::types::savepoint::Savepoint;
use crate::types::table::Table;

/// A transaction: what it reads and writes happens at once, as if it were alone, or not at all.
///
/// Made by [`Database::begin`](crate::Database::begin). It owns what it needs, so it can be kept in
/// a struct and sent to another thread. Every operation may wait for locks that other transactions
/// hold; what is locked stays locked until the end. Dropped without [`commit`](Self::commit), it
/// rolls back. Forgotten (`mem::forget`), it keeps its locks until the database is closed or
/// [`Options::idle_timeout`](crate::Options::idle_timeout) ends it, and
/// [`Database::transactions`](crate::Database::transactions) shows it with its label.
///
/// After a conflict that ended it ([`ConflictReason::Deadlock`](crate::error::ConflictReason)) it
/// has been rolled back and refuses everything else. Other refusals leave it as it was.
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
/// It may move between threads, but not be shared by them:
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
    pub(crate) fn new(state: Box<BoundTxn>) -> Transaction {
        let handle = TxnHandle::new(state);
        Transaction { handle }
    }

    /// One of the database's own, which is never idle.
    pub(crate) fn busy(state: Box<BoundTxn>) -> Transaction {
        let handle = TxnHandle::never_idle(state);
        Transaction { handle }
    }

    /// Takes up what it works with.
    #[inline]
    pub(crate) fn up(&mut self) -> Result<TxnGuard<'_>> {
        self.handle.attach()
    }

    /// The value of `key`, or `None`.
    ///
    /// # Errors
    /// A conflict, if the lock was not to be had; a request error, if the key is too long, the table
    /// has other types, or the bytes stored are no `V`.
    pub fn get<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<Option<V::Owned>> {
        self.get_locked(table, key, Lock::Shared)
    }

    /// The value of `key`, which is probably to be written next: locked so that only one
    /// transaction at a time reads it this way.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_for_update<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<Option<V::Owned>> {
        self.get_locked(table, key, Lock::Update)
    }

    /// The value of `key`, locked as asked. With [`Lock::skip_locked`], a key that somebody has
    /// locked counts as absent.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_locked<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
        lock: impl Into<LockOptions>,
    ) -> Result<Option<V::Owned>> {
        let decoded = self.get_bytes(table, key, lock.into(), V::decode)?;
        Ok(decoded.transpose()?)
    }

    /// Gives the bytes of the value of `key` to `read`, without copying them, and returns what it
    /// returns; `None` if the key is absent. Nothing else of the database should be waited for
    /// inside.
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const PAGES: Table<u64, [u8]> = Table::new("pages");
    /// # let db = Database::in_memory(Options::default())?;
    /// # let mut tx = db.begin()?;
    /// tx.put(&PAGES, &7, &[1, 2, 3])?;
    /// let sum = tx.get_with(&PAGES, &7, |bytes| bytes.iter().map(|&b| u64::from(b)).sum::<u64>())?;
    /// assert_eq!(sum, Some(6));
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
        self.get_bytes(table, key, Lock::Shared.into(), read)
    }

    #[inline]
    fn get_bytes<K: Key + ?Sized, V: Value + ?Sized, R>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
        lock: LockOptions,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let state = &mut *self.up()?;
        let table = state.prepare_get(table, key)?;
        let mut read = Some(read);
        state.block_on(lock.wait, |state| state.get_step(table, lock, &mut read))
    }

    /// Lets `key` have `value`, whether or not it was there.
    ///
    /// # Errors
    /// A conflict, if the lock was not to be had; a request error, if the key or the value is too
    /// long or the table has other types; a storage error, if the log takes no more.
    pub fn put<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
        value: &V,
    ) -> Result<()> {
        self.write(table, key, Some(value), Write::Put).map(|_| ())
    }

    /// Lets `key` have `value` if it is not there.
    ///
    /// # Errors
    /// `key_exists` if it is there, else as for [`put`](Self::put).
    pub fn insert<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
        value: &V,
    ) -> Result<()> {
        self.write(table, key, Some(value), Write::Insert)
            .map(|_| ())
    }

    /// Removes `key`, and says whether it was there.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn delete<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<bool> {
        self.write(table, key, None, Write::Delete)
    }

    #[inline]
    fn write<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
        value: Option<&V>,
        write: Write,
    ) -> Result<bool> {
        let state = &mut *self.up()?;
        let table = state.prepare_write(table, key, value)?;
        let existed = state.block_on(LockWait::Default, |state| state.write_step(table, write))?;
        state.after_write()?;
        Ok(existed)
    }

    /// The keys of `table` that lie in `range`, in order, to be read in one of several ways: see
    /// [`Range`].
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
        Range::new(self.up(), table, range)
    }

    /// Sees to it that there is a table called `name`, for keys and values of types that only the
    /// program's input names. It stays, whatever becomes of the transaction; empty, it does no harm.
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
    /// A request error if there is one with other types, the name is too long, or the database keeps a table
    /// of this name for itself; a conflict, if one has ended the transaction; a storage error, if the log
    /// takes no more.
    pub fn make_table(
        &mut self,
        name: &str,
        key_type: &TypeName,
        value_type: &TypeName,
    ) -> Result<()> {
        let mut state = self.up()?;
        state.check_active()?;
        if is_index_table(name) {
            // With the right type of keys it would be made, with wrong values, and no index ever could be.
            return Err(IndexError::ReservedTable.into());
        }
        state.ctx.resolve(name, key_type, value_type).map(drop)
    }

    /// Locks all of `table`, until the transaction ends, and says whether it is locked: only with
    /// [`LockWait::Skip`] it may not be.
    ///
    /// Reads and writes lock what they need by themselves. This is for who is about to touch most of a
    /// table, and for who wants others to stay out.
    ///
    /// ```
    /// # use foxton::{Database, LockWait, Options, Table, TableLock};
    /// # const STOCK: Table<str, u32> = Table::new("stock");
    /// # let db = Database::in_memory(Options::default())?;
    /// let mut inventory = db.begin()?;
    /// inventory.lock_table(&STOCK, TableLock::Shared, LockWait::Default)?;
    /// let mut sale = db.begin()?;
    /// let refused = sale.lock_table(&STOCK, TableLock::IntentExclusive, LockWait::Refuse);
    /// assert_eq!(refused.unwrap_err().code(), "lock_busy");
    /// assert!(!sale.lock_table(&STOCK, TableLock::IntentExclusive, LockWait::Skip)?);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// A conflict, if the lock was not to be had; a request error, if the table has other types.
    pub fn lock_table<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        lock: TableLock,
        wait: LockWait,
    ) -> Result<bool> {
        let state = &mut *self.up()?;
        let request = state.prepare_lock_table(table, lock, wait)?;
        state.block_on(wait, |state| state.lock_step(request))
    }

    /// Locks `number`, which means something to the program alone, until the transaction ends, and says
    /// whether it is locked: only with [`Lock::skip_locked`] it may not be.
    ///
    /// Such a lock protects nothing in the database. It is waited for as any other and takes part in
    /// deadlocks, which are found and end somebody.
    ///
    /// ```
    /// # use foxton::{Database, Lock, Options};
    /// # let db = Database::in_memory(Options::default())?;
    /// const NIGHTLY_REPORT: u64 = 1;
    /// let [mut one, mut other] = [db.begin()?, db.begin()?];
    /// one.lock_advisory(NIGHTLY_REPORT, Lock::Exclusive)?;
    /// assert!(!other.lock_advisory(NIGHTLY_REPORT, Lock::Exclusive.skip_locked())?);
    /// one.commit()?;
    /// assert!(other.lock_advisory(NIGHTLY_REPORT, Lock::Exclusive.skip_locked())?);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// A conflict, if the lock was not to be had.
    pub fn lock_advisory(&mut self, number: u64, lock: impl Into<LockOptions>) -> Result<bool> {
        let request = explicit_lock::advisory(number, lock.into());
        self.up()?
            .block_on(request.wait, |state| state.lock_step(request))
    }

    /// This moment, to go back to with [`rollback_to`](Self::rollback_to).
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const STOCK: Table<str, u32> = Table::new("stock");
    /// # let db = Database::in_memory(Options::default())?;
    /// let mut tx = db.begin()?;
    /// tx.put(&STOCK, "apples", &12)?;
    /// let before_pears = tx.savepoint()?;
    /// tx.put(&STOCK, "pears", &3)?;
    /// tx.rollback_to(&before_pears)?;
    /// tx.commit()?;
    /// assert_eq!(db.run(|tx| tx.range(&STOCK, ..).count())?, 1);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// A conflict, if one has ended the transaction.
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        self.up()?.savepoint()
    }

    /// Undoes what was changed since `savepoint`, and gives no locks back. The savepoint can be gone back to
    /// again; those taken after it are gone.
    ///
    /// # Errors
    /// `no_such_savepoint`, if it is none of this transaction's or is gone; a conflict, if one has ended the
    /// transaction; a storage error, if the log takes no more.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.up()?.roll_back_to(savepoint)
    }

    /// Forgets `savepoint` and those taken after it. What was changed since stays. Nothing need be released:
    /// it ends with the transaction.
    ///
    /// # Errors
    /// `no_such_savepoint`, as for [`rollback_to`](Self::rollback_to); a conflict, if one has ended the
    /// transaction.
    pub fn release_savepoint(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.up()?.release_savepoint(savepoint)
    }

    /// Names the transaction for people: conflicts, [`Database::locks`](crate::Database::locks) and
    /// reports of deadlocks say the name.
    pub fn set_label(&mut self, label: impl Into<Label>) {
        if let Ok(mut up) = self.up() {
            up.ctx.owner.set_label(label);
        }
    }

    /// Has `cancel_token` end this transaction, instead of the one it was given before. Given one that was
    /// cancelled already, the transaction ends with the next thing that is asked of it.
    pub fn set_cancel_token(&mut self, cancel_token: &CancelToken) {
        if let Ok(mut up) = self.up() {
            up.txn.set_cancel_token(cancel_token);
        }
    }

    /// What the commit of this transaction waits for, instead of what the database's options say.
    pub fn set_durability(&mut self, durability: Durability) {
        if let Ok(mut up) = self.up() {
            up.txn.durability = durability;
        }
    }

    /// How far this transaction is kept apart from others in what it reads from now on, instead of what
    /// the database's options say. What was read before keeps its locks.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        if let Ok(mut up) = self.up() {
            up.txn.isolation = isolation;
        }
    }

    /// Makes everything happen, as durably as asked, and gives every lock back.
    ///
    /// # Errors
    /// A conflict, if one had ended the transaction; a storage error, if the log has failed. In that
    /// case the changes may or may not be there when the database is opened again.
    pub fn commit(self) -> Result<()> {
        let mut state = self.handle.into_bound()?;
        let committed = state.commit();
        BoundTxn::recycle(state);
        committed
    }

    /// As [`commit`](Self::commit), and says where the transaction stands in the order of all commits:
    /// where its record ends in the log, in bytes. No two transactions that changed something have the
    /// same place. One that only read has the place where the log ended, and comes after who has it, too.
    /// One after the other in this order, all transactions do and see the same.
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
        let mut state = self.handle.into_bound()?;
        let committed = state.commit_at();
        BoundTxn::recycle(state);
        committed
    }

    /// Undoes everything and gives every lock back. Dropping the transaction does the same.
    pub fn rollback(self) {
        drop(self);
    }
}
