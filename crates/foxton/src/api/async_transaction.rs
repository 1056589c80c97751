//! Transactions of tasks: the same operations as futures.
//!
//! Every future here is `Send` and may be dropped at any time. A dropped operation leaves its
//! queue, and a forgotten one does when the transaction is used again or ends; what it had locked
//! before stays locked until the transaction ends, as if it had been locked for nothing. A dropped
//! `commit` is either a rollback or a commit, and the keeper sees a commit to its end.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{ControlFlow, RangeBounds};

use foxton_lock::request::OwnerLabel as Label;
use foxton_log::Lsn;

use crate::api::range::{decode, how_to_read, take_decoded};
use crate::engine::cancel_token::{CancelToken, is_not_cancelled};
use crate::error::Result;
use crate::options::Durability;
use crate::txn::bound::BoundTxn;
use crate::txn::commit;
use crate::txn::explicit_lock;
use crate::txn::handle::{ATTACHED, TxnGuard, TxnHandle};
use crate::txn::write::Write;
use crate::types::codec::{Key, Value};
use crate::types::isolation::Isolation;
use crate::types::lock_options::{Lock, LockOptions, LockWait, TableLock};
use crate::types::savepoint::Savepoint;
use crate::types::table::Table;

/// A transaction whose operations are futures: where a [`Transaction`](crate::Transaction) would
/// put the thread to sleep, this one yields the task.
///
/// Made by [`Database::begin_async`](crate::Database::begin_async). It needs no particular runtime
/// and is not tied to a thread.
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
    pub(crate) fn new(state: Box<BoundTxn>) -> AsyncTransaction {
        let handle = TxnHandle::new(state);
        AsyncTransaction { handle }
    }

    /// Takes up what it works with.
    pub(crate) fn up(&mut self) -> Result<TxnGuard<'_>> {
        let mut up = self.handle.attach()?;
        // The operation before may have been forgotten while it waited.
        up.withdraw();
        Ok(up)
    }

    /// As [`Transaction::get`](crate::Transaction::get).
    ///
    /// # Errors
    /// As there.
    pub fn get<'a, K: Key + ?Sized, V: Value + ?Sized>(
        &'a mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> impl Future<Output = Result<Option<V::Owned>>> + Send + use<'a, K, V> {
        self.get_as(table, key, Lock::Shared.into())
    }

    /// As [`Transaction::get_for_update`](crate::Transaction::get_for_update).
    ///
    /// # Errors
    /// As there.
    pub fn get_for_update<'a, K: Key + ?Sized, V: Value + ?Sized>(
        &'a mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> impl Future<Output = Result<Option<V::Owned>>> + Send + use<'a, K, V> {
        self.get_as(table, key, Lock::Update.into())
    }

    /// As [`Transaction::get_locked`](crate::Transaction::get_locked).
    ///
    /// # Errors
    /// As there.
    pub fn get_locked<'a, K: Key + ?Sized, V: Value + ?Sized, L: Into<LockOptions>>(
        &'a mut self,
        table: &Table<K, V>,
        key: &K,
        lock: L,
    ) -> impl Future<Output = Result<Option<V::Owned>>> + Send + use<'a, K, V, L> {
        self.get_as(table, key, lock.into())
    }

    fn get_as<'a, K: Key + ?Sized, V: Value + ?Sized>(
        &'a mut self,
        table: &Table<K, V>,
        key: &K,
        lock: LockOptions,
    ) -> impl Future<Output = Result<Option<V::Owned>>> + Send + use<'a, K, V> {
        let (up, table) = TxnGuard::prepared(self.up(), |state| state.prepare_get(table, key));
        async move {
            let (table, mut bytes) = (table?, None);
            let mut read = Some(|found: &[u8]| bytes = Some(found.to_vec()));
            up.expect(ATTACHED)
                .yield_on(lock.wait, |state| state.get_step(table, lock, &mut read))
                .await?;
            Ok(bytes.map(|bytes| V::decode(&bytes)).transpose()?)
        }
    }

    /// As [`Transaction::put`](crate::Transaction::put).
    ///
    /// # Errors
    /// As there.
    pub fn put<'a, K: Key + ?Sized, V: Value + ?Sized>(
        &'a mut self,
        table: &Table<K, V>,
        key: &K,
        value: &V,
    ) -> impl Future<Output = Result<()>> + Send + use<'a, K, V> {
        let write = self.write(table, key, Some(value), Write::Put);
        async { write.await.map(|_| ()) }
    }

    /// As [`Transaction::insert`](crate::Transaction::insert).
    ///
    /// # Errors
    /// As there.
    pub fn insert<'a, K: Key + ?Sized, V: Value + ?Sized>(
        &'a mut self,
        table: &Table<K, V>,
        key: &K,
        value: &V,
    ) -> impl Future<Output = Result<()>> + Send + use<'a, K, V> {
        let write = self.write(table, key, Some(value), Write::Insert);
        async { write.await.map(|_| ()) }
    }

    /// As [`Transaction::delete`](crate::Transaction::delete).
    ///
    /// # Errors
    /// As there.
    pub fn delete<'a, K: Key + ?Sized, V: Value + ?Sized>(
        &'a mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> impl Future<Output = Result<bool>> + Send + use<'a, K, V> {
        self.write(table, key, None, Write::Delete)
    }

    fn write<'a, K: Key + ?Sized, V: Value + ?Sized>(
        &'a mut self,
        table: &Table<K, V>,
        key: &K,
        value: Option<&V>,
        write: Write,
    ) -> impl Future<Output = Result<bool>> + Send + use<'a, K, V> {
        let (up, table) =
            TxnGuard::prepared(self.up(), |state| state.prepare_write(table, key, value));
        async move {
            let (table, mut state) = (table?, up.expect(ATTACHED));
            let attempt = |state: &mut BoundTxn| state.write_step(table, write);
            let existed = state.yield_on(LockWait::Default, attempt).await?;
            state.after_write()?;
            Ok(existed)
        }
    }

    /// As [`Transaction::range`](crate::Transaction::range).
    pub fn range<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        range: impl RangeBounds<K>,
    ) -> AsyncRange<'_, K, V> {
        let (up, table) = TxnGuard::prepared(self.up(), |state| state.prepare_range(table, &range));
        AsyncRange {
            up,
            table,
            types: PhantomData,
        }
    }

    /// As [`Transaction::lock_table`](crate::Transaction::lock_table).
    ///
    /// # Errors
    /// As there.
    pub fn lock_table<'a, K: Key + ?Sized, V: Value + ?Sized>(
        &'a mut self,
        table: &Table<K, V>,
        lock: TableLock,
        wait: LockWait,
    ) -> impl Future<Output = Result<bool>> + Send + use<'a, K, V> {
        let (up, request) = TxnGuard::prepared(self.up(), |state| {
            state.prepare_lock_table(table, lock, wait)
        });
        async move {
            let (request, mut state) = (request?, up.expect(ATTACHED));
            state.yield_on(wait, |state| state.lock_step(request)).await
        }
    }

    /// As [`Transaction::lock_advisory`](crate::Transaction::lock_advisory).
    ///
    /// # Errors
    /// As there.
    pub fn lock_advisory<'a, L: Into<LockOptions>>(
        &'a mut self,
        number: u64,
        lock: L,
    ) -> impl Future<Output = Result<bool>> + Send + use<'a, L> {
        let request = explicit_lock::advisory(number, lock.into());
        let up = self.up();
        async move {
            up?.yield_on(request.wait, |state| state.lock_step(request))
                .await
        }
    }

    /// As [`Transaction::savepoint`](crate::Transaction::savepoint); never waits.
    ///
    /// # Errors
    /// As there.
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        self.up()?.savepoint()
    }

    /// As [`Transaction::rollback_to`](crate::Transaction::rollback_to); waits for nothing but room in the
    /// log.
    ///
    /// # Errors
    /// As there.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.up()?.roll_back_to(savepoint)
    }

    /// As [`Transaction::release_savepoint`](crate::Transaction::release_savepoint); never waits.
    ///
    /// # Errors
    /// As there.
    pub fn release_savepoint(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.up()?.release_savepoint(savepoint)
    }

    /// As [`Transaction::set_label`](crate::Transaction::set_label).
    pub fn set_label(&mut self, label: impl Into<Label>) {
        if let Ok(mut up) = self.up() {
            up.ctx.owner.set_label(label);
        }
    }

    /// As [`Transaction::set_cancel_token`](crate::Transaction::set_canceller).
    pub fn set_cancel_token(&mut self, cancel_token: &CancelToken) {
        if let Ok(mut up) = self.up() {
            up.txn.set_cancel_token(cancel_token);
        }
    }

    /// As [`Transaction::set_durability`](crate::Transaction::set_durability).
    pub fn set_durability(&mut self, durability: Durability) {
        if let Ok(mut up) = self.up() {
            up.txn.durability = durability;
        }
    }

    /// As [`Transaction::set_isolation`](crate::Transaction::set_isolation).
    pub fn set_isolation(&mut self, isolation: Isolation) {
        if let Ok(mut up) = self.up() {
            up.txn.isolation = isolation;
        }
    }

    /// As [`Transaction::commit`](crate::Transaction::commit). If the future is dropped, the
    /// transaction is committed if its changes had reached the log, and rolled back if not.
    ///
    /// # Errors
    /// As there.
    pub async fn commit(self) -> Result<()> {
        let mut state = self.handle.into_bound()?;
        state.withdraw();
        commit::commit(state).await.map(drop)
    }

    /// As [`Transaction::commit_at`](crate::Transaction::commit_at), and dropped like [`commit`](Self::commit).
    ///
    /// # Errors
    /// As there.
    pub async fn commit_at(self) -> Result<Lsn> {
        let mut state = self.handle.into_bound()?;
        state.withdraw();
        state.fix_commit_lsn();
        commit::commit(state).await
    }

    /// Undoes everything and gives every lock back. Dropping the transaction does the same.
    pub fn rollback(self) {
        drop(self);
    }
}

/// As [`Range`](crate::Range), read by a task.
#[must_use = "a range reads nothing until it is asked to"]
pub struct AsyncRange<'t, K: ?Sized, V: ?Sized> {
    up: Option<TxnGuard<'t>>,
    table: Result<usize>,
    types: PhantomData<fn() -> (*const K, *const V)>,
}

impl<K: ?Sized, V: ?Sized> fmt::Debug for AsyncRange<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncRange")
            .field("scan", &self.up.as_ref().map(|up| &up.txn.scan))
            .finish_non_exhaustive()
    }
}

impl<'t, K: Key + ?Sized, V: Value + ?Sized> AsyncRange<'t, K, V> {
    how_to_read!();

    /// As [`Range::try_for_each_bytes`](crate::Range::try_for_each_bytes).
    ///
    /// # Errors
    /// As there.
    pub async fn try_for_each_bytes(
        self,
        mut take: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let AsyncRange { up, table, .. } = self;
        let (table, mut state) = (table?, up.expect(ATTACHED));
        let (wait, cancel_token) = (state.txn.scan.lock.wait, state.txn.cancel_token.clone());
        let mut take = |key: &[u8], value: &[u8]| match is_not_cancelled(&cancel_token) {
            true => take(key, value),
            false => ControlFlow::Break(()),
        };
        state
            .yield_on(wait, |state| state.scan_step(table, &mut take))
            .await?;
        state.check_active()
    }

    /// As [`Range::for_each`](crate::Range::for_each).
    ///
    /// # Errors
    /// As there.
    pub async fn for_each(self, mut take: impl FnMut(K::Owned, V::Owned)) -> Result<()> {
        let mut failure = None;
        self.try_for_each_bytes(|key, value| {
            let row = decode::<K, V>(key, value);
            take_decoded(row, &mut failure, |(key, value)| {
                take(key, value);
                ControlFlow::Continue(())
            })
        })
        .await?;
        failure.map_or(Ok(()), |undecodable| Err(undecodable.into()))
    }

    /// As [`Range::collect`](crate::Range::collect).
    ///
    /// # Errors
    /// As there.
    pub async fn collect(self) -> Result<Vec<(K::Owned, V::Owned)>> {
        let mut rows = Vec::new();
        self.for_each(|key, value| rows.push((key, value))).await?;
        Ok(rows)
    }

    /// As [`Range::first`](crate::Range::first).
    ///
    /// # Errors
    /// As there.
    pub async fn first(self) -> Result<Option<(K::Owned, V::Owned)>> {
        let mut first = None;
        let found = self.limit(1);
        found
            .for_each(|key, value| first = Some((key, value)))
            .await?;
        Ok(first)
    }

    /// As [`Range::count`](crate::Range::count).
    ///
    /// # Errors
    /// As there.
    pub async fn count(self) -> Result<u64> {
        let mut count = 0;
        self.try_for_each_bytes(|_, _| {
            count += 1;
            ControlFlow::Continue(())
        })
        .await?;
        Ok(count)
    }
}
