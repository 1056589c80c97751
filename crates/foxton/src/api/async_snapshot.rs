//! Reads of tasks at snapshots.
//!
//! The futures are those of a transaction's operations. Each uses the context of the snapshot, or
//! another one while a read uses it. A dropped future gives its context back, and
//! the snapshot goes on. A forgotten one keeps its context, and the snapshot ends all the same.

use std::ops::RangeBounds;

use crate::api::database::Database;
use crate::api::operation::{self, perform, prepare};
use crate::api::range::{AsyncIndexRange, AsyncRange};
use crate::api::range_scan::RangeScan;
use crate::api::snapshot::{Snapshot, SnapshotAt};
use crate::error::Result;
use crate::txn::commit;
use crate::types::codec::{Key, Undecodable, Value};
use crate::types::index::Index;
use crate::types::lock_options::Lock;
use crate::types::table::Table;

impl Database {
    /// As [`snapshot_at`](Self::snapshot_at), for tasks: yields while the device works.
    ///
    /// # Errors
    /// As there.
    pub async fn snapshot_at_async(&self, at: SnapshotAt) -> Result<Snapshot> {
        let snapshot = self.begin_snapshot()?;
        if at == SnapshotAt::Durable {
            self.sync_async().await?;
        }
        Ok(snapshot)
    }

    /// Calls `read` with a snapshot at the newest commit, awaits it, and ends the snapshot. If
    /// `read` keeps a clone, the snapshot goes on with that.
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const STOCK: Table<str, u32> = Table::new("stock");
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # let db = Database::in_memory(Options::default())?;
    /// # db.run(|tx| tx.put(&STOCK, "apples", &3))?;
    /// # runtime.block_on(async {
    /// let apples = db
    ///     .view_async(|snapshot| async move { snapshot.get_async(&STOCK, "apples").await })
    ///     .await?;
    /// assert_eq!(apples, Some(3));
    /// # Ok::<(), foxton::Error>(())
    /// # })?;
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`view`](Self::view).
    pub async fn view_async<T, F>(&self, read: impl FnOnce(Snapshot) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let snapshot = self.begin_snapshot()?;
        let found = read(snapshot.clone()).await?;
        snapshot.end_async().await?;
        Ok(found)
    }
}

impl Snapshot {
    /// As [`get`](Self::get); yields the task instead of blocking the thread.
    ///
    /// # Errors
    /// As there.
    pub fn get_async<'a, K: Key + ?Sized, V: Value + ?Sized>(
        &'a self,
        table: &Table<K, V>,
        key: &K,
    ) -> impl Future<Output = Result<Option<V::Owned>>> + Send + use<'a, K, V> {
        let operation = operation::get(table, key, Lock::Shared.into());
        let prepared = prepare(self.attach(true), operation.prepare);
        perform(prepared, operation.wait, operation.attempt)
    }

    /// As [`get_many`](Self::get_many); yields the task instead of blocking the thread.
    ///
    /// # Errors
    /// As there.
    pub fn get_many_async<'a, 'k, K: Key + ?Sized + 'k, V: Value + ?Sized, I>(
        &'a self,
        table: &Table<K, V>,
        keys: I,
    ) -> impl Future<Output = Result<Vec<Option<V::Owned>>>> + Send + use<'a, 'k, K, V, I>
    where
        I: IntoIterator<Item = &'k K>,
    {
        // Values are decoded at the end: a future that waits must not hold any that are not `Send`.
        let copy = |values: &mut Vec<_>, _, bytes: Option<&[u8]>| {
            values.push(bytes.map(<[u8]>::to_vec));
        };
        let operation = operation::get_many(table, keys, Lock::Shared.into(), copy);
        let prepared = prepare(self.attach(true), operation.prepare);
        let values = perform(prepared, operation.wait, operation.attempt);
        async move {
            let values = values.await?.into_iter();
            let decode = |bytes: Option<Vec<u8>>| bytes.map(|bytes| V::decode(&bytes)).transpose();
            Ok(values.map(decode).collect::<Result<_, Undecodable>>()?)
        }
    }

    /// As [`get_by`](Self::get_by); yields the task instead of blocking the thread.
    ///
    /// # Errors
    /// As there.
    pub fn get_by_async<'a, I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &'a self,
        index: &Index<I, K, V>,
        key: &I,
    ) -> impl Future<Output = Result<Option<(K::Owned, V::Owned)>>> + Send + use<'a, I, K, V> {
        let operation = operation::get_by(index, key, Lock::Shared.into());
        let prepared = prepare(self.attach(true), operation.prepare);
        perform(prepared, operation.wait, operation.attempt)
    }

    /// As [`range`](Self::range), to be read by a task.
    pub fn range_async<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        range: impl RangeBounds<K>,
    ) -> AsyncRange<'_, K, V> {
        AsyncRange(RangeScan::table(self.attach(true), table, range))
    }

    /// As [`range_by`](Self::range_by), to be read by a task.
    pub fn range_by_async<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        index: &Index<I, K, V>,
        range: impl RangeBounds<I>,
    ) -> AsyncIndexRange<'_, I, K, V> {
        AsyncIndexRange(RangeScan::index(self.attach(true), index, range))
    }

    /// As [`end`](Self::end); yields the task while it waits. If the future is dropped, the
    /// snapshot has ended.
    ///
    /// # Errors
    /// As there.
    pub async fn end_async(self) -> Result<()> {
        let Some(mut bound) = self.into_ended()? else {
            return Ok(());
        };
        bound.ctx.budget.set_of_task(true);
        commit::commit(bound).await.map(drop)
    }
}
