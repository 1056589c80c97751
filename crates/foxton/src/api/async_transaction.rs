//! Transactions of tasks.
//!
//! Every future here is `Send` and may be dropped at any time. Locks that were granted before stay
//! until the transaction ends.
//!
//! * A dropped operation withdraws the request that waits. A forgotten one does so when the
//!   transaction is used again or ends.
//! * A dropped `commit` is either a rollback or a commit; the background thread completes a commit.
//! * A dropped rollback to a savepoint is completed by the next operation.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use foxton_log::Lsn;

use crate::api::operation::{self, perform, prepare};
use crate::api::range::{AsyncIndexRange, AsyncRange};
use crate::api::range_scan::RangeScan;
use crate::error::Result;
use crate::txn::bound::BoundTxn;
use crate::txn::commit;
use crate::txn::handle::{TxnGuard, TxnHandle};
use crate::txn::rollback;
use crate::types::codec::{Key, Undecodable, Value};
use crate::types::index::Index;
use crate::types::lock_options::{Lock, LockOptions};
use crate::types::savepoint::Savepoint;
use crate::types::table::Table;

/// A transaction whose operations are futures: where a [`Transaction`](crate::Transaction) blocks
/// the thread, this one yields the task.
///
/// Made by [`Database::begin_async`](crate::Database::begin_async). It needs no particular runtime
/// and is not tied to a thread.
///
/// *Yielding.* No operation holds its executor for longer than about a millisecond. Scans,
/// `get_many`, rollbacks and commits yield each time they have visited some hundred rows or copied
/// 2 MiB, and so does a long series of short operations. A single large value is copied at once,
/// and `get_many` encodes its keys and decodes its results at once. Dropping cannot yield: if a
/// transaction with more than 512 changes is dropped, a background thread undoes them and then
/// releases the locks, soon after. [`rollback`](Self::rollback) waits for that, and yields. A
/// transaction of a [`Session`](crate::Session), or without locking, is undone where it is dropped.
/// Methods of [`Database`](crate::Database) that are no futures, such as `checkpoint` and
/// `create_index`, block the thread: call them where a task may block.
///
/// ```
/// use foxton::{Database, Options, Table};
///
/// const VISITS: Table<str, u64> = Table::new("visits");
///
/// async fn visit(db: &Database, page: &str) -> foxton::Result<u64> {
///     let mut tx = db.begin_async()?;
///     let count = tx.get_for_update(&VISITS, page).await?.unwrap_or(0) + 1;
///     tx.put(&VISITS, page, &count).await?;
///     tx.commit().await?;
///     Ok(count)
/// }
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let db = Database::in_memory(Options::default())?;
/// assert_eq!(visit(&db, "/").await?, 1);
/// assert_eq!(visit(&db, "/").await?, 2);
/// # Ok::<(), foxton::Error>(())
/// # })?;
/// # Ok::<(), foxton::Error>(())
/// ```
pub struct AsyncTransaction {
    handle: TxnHandle,
}

impl fmt::Debug for AsyncTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncTransaction")
            .field(&self.handle)
            .finish()
    }
}

impl AsyncTransaction {
    pub(crate) fn new(mut bound: Box<BoundTxn>) -> AsyncTransaction {
        bound.ctx.budget.set_of_task(true);
        let handle = TxnHandle::new(bound);
        AsyncTransaction { handle }
    }

    /// Attaches the transaction for one operation.
    pub(crate) fn attach(&mut self) -> Result<TxnGuard<'_>> {
        let mut guard = self.handle.attach()?;
        // The operation before may have been forgotten while it waited.
        guard.withdraw();
        Ok(guard)
    }

    /// As [`Transaction::get_many`](crate::Transaction::get_many); yields the task instead of
    /// blocking the thread.
    ///
    /// # Errors
    /// As there.
    pub fn get_many<'a, 'k, K: Key + ?Sized + 'k, V: Value + ?Sized, I>(
        &'a mut self,
        table: &Table<K, V>,
        keys: I,
    ) -> impl Future<Output = Result<Vec<Option<V::Owned>>>> + Send + use<'a, 'k, K, V, I>
    where
        I: IntoIterator<Item = &'k K>,
    {
        self.get_many_locked(table, keys, Lock::Shared)
    }

    /// As [`Transaction::get_many_locked`](crate::Transaction::get_many_locked); yields the task
    /// instead of blocking the thread.
    ///
    /// # Errors
    /// As there.
    pub fn get_many_locked<'a, 'k, K: Key + ?Sized + 'k, V: Value + ?Sized, I, L>(
        &'a mut self,
        table: &Table<K, V>,
        keys: I,
        lock: L,
    ) -> impl Future<Output = Result<Vec<Option<V::Owned>>>> + Send + use<'a, 'k, K, V, I, L>
    where
        I: IntoIterator<Item = &'k K>,
        L: Into<LockOptions>,
    {
        // Values are decoded at the end: a future that waits must not hold any that are not `Send`.
        let copy = |values: &mut Vec<_>, _, bytes: Option<&[u8]>| {
            values.push(bytes.map(<[u8]>::to_vec));
        };
        let operation = operation::get_many(table, keys, lock.into(), copy);
        let prepared = prepare(self.attach(), operation.prepare);
        let values = perform(prepared, operation.wait, operation.attempt);
        async move {
            let values = values.await?.into_iter();
            let decode = |bytes: Option<Vec<u8>>| bytes.map(|bytes| V::decode(&bytes)).transpose();
            Ok(values.map(decode).collect::<Result<_, Undecodable>>()?)
        }
    }

    /// As [`Transaction::range`](crate::Transaction::range).
    pub fn range<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        range: impl RangeBounds<K>,
    ) -> AsyncRange<'_, K, V> {
        AsyncRange(RangeScan::table(self.attach(), table, range))
    }

    /// As [`Transaction::range_by`](crate::Transaction::range_by).
    pub fn range_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        range: impl RangeBounds<I>,
    ) -> AsyncIndexRange<'_, I, K, V> {
        AsyncIndexRange(RangeScan::index(self.attach(), index, range))
    }

    /// As [`Transaction::all_by`](crate::Transaction::all_by).
    pub fn all_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        key: &I,
    ) -> AsyncIndexRange<'_, I, K, V> {
        self.range_by(index, (Bound::Included(key), Bound::Included(key)))
    }

    /// As [`Transaction::rollback_to`](crate::Transaction::rollback_to). If the future is dropped,
    /// the next operation completes what it has begun.
    ///
    /// # Errors
    /// As there.
    pub async fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.attach()?.roll_back_to_async(savepoint).await
    }

    /// Undoes all changes and releases every lock. Dropping the transaction, or this future, does
    /// the same, but the locks of a large transaction may then be released a little later.
    pub async fn rollback(self) {
        if let Ok(mut bound) = self.handle.into_bound() {
            bound.withdraw();
            rollback::roll_back(bound).await;
        }
    }

    /// As [`Transaction::commit`](crate::Transaction::commit). If the future is dropped, the
    /// transaction commits if its changes have reached the log, and rolls back if not.
    ///
    /// # Errors
    /// As there.
    pub async fn commit(self) -> Result<()> {
        let mut bound = self.handle.into_bound()?;
        bound.withdraw();
        commit::commit(bound).await.map(drop)
    }

    /// As [`Transaction::commit_at`](crate::Transaction::commit_at). Dropped, the future does the
    /// same as that of [`commit`](Self::commit).
    ///
    /// # Errors
    /// As there.
    pub async fn commit_at(self) -> Result<Lsn> {
        let mut bound = self.handle.into_bound()?;
        bound.withdraw();
        bound.fix_commit_lsn();
        commit::commit(bound).await
    }
}
