//! Rows found by the keys of an index, one by one and in ranges, read by tasks.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow, RangeBounds};

use crate::api::async_transaction::AsyncTransaction;
use crate::api::index_range::{IndexRow, Types, decode_found};
use crate::api::range::{decode, how_to_read, take_decoded};
use crate::engine::cancel_token::is_not_cancelled;
use crate::error::Result;
use crate::txn::handle::{ATTACHED, TxnGuard};
use crate::txn::index_read::EncodedRow;
use crate::types::codec::{Key, Value};
use crate::types::index::Index;
use crate::types::lock_options::{Lock, LockOptions};

impl AsyncTransaction {
    /// As [`Transaction::get_by`](crate::Transaction::get_by).
    ///
    /// # Errors
    /// As there.
    pub fn get_by<'a, I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &'a mut self,
        index: &Index<I, K, V>,
        key: &I,
    ) -> impl Future<Output = Result<Option<(K::Owned, V::Owned)>>> + Send + use<'a, I, K, V> {
        self.get_by_as(index, key, Lock::Shared.into())
    }

    /// As [`Transaction::get_by_for_update`](crate::Transaction::get_by_for_update).
    ///
    /// # Errors
    /// As there.
    pub fn get_by_for_update<'a, I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &'a mut self,
        index: &Index<I, K, V>,
        key: &I,
    ) -> impl Future<Output = Result<Option<(K::Owned, V::Owned)>>> + Send + use<'a, I, K, V> {
        self.get_by_as(index, key, Lock::Update.into())
    }

    /// As [`Transaction::get_by_locked`](crate::Transaction::get_by_locked).
    ///
    /// # Errors
    /// As there.
    pub fn get_by_locked<'a, I, K, V, L>(
        &'a mut self,
        index: &Index<I, K, V>,
        key: &I,
        lock: L,
    ) -> impl Future<Output = Result<Option<(K::Owned, V::Owned)>>> + Send + use<'a, I, K, V, L>
    where
        I: Key + ?Sized,
        K: Key + ?Sized,
        V: Value + ?Sized,
        L: Into<LockOptions>,
    {
        self.get_by_as(index, key, lock.into())
    }

    fn get_by_as<'a, I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &'a mut self,
        index: &Index<I, K, V>,
        key: &I,
        lock: LockOptions,
    ) -> impl Future<Output = Result<Option<(K::Owned, V::Owned)>>> + Send + use<'a, I, K, V> {
        let is_unique = index.is_unique();
        let only = (Bound::Included(key), Bound::Included(key));
        let (up, by) = TxnGuard::prepared(self.up(), |state| match is_unique {
            true => state.prepare_get_by(index, key),
            false => state.prepare_range_by(index, &only),
        });
        async move {
            let (by, mut state, mut bytes) = (by?, up.expect(ATTACHED), None);
            let copy = |found: EncodedRow<'_>| (found.key.to_vec(), found.value.to_vec());
            if is_unique {
                bytes = state
                    .yield_on(lock.wait, |state| {
                        state.get_by_step(by, lock, &mut { copy })
                    })
                    .await?;
            } else {
                state.txn.scan.lock = lock;
                state.txn.scan.remaining.set(1);
                let mut take = |found: EncodedRow<'_>| {
                    bytes = Some(copy(found));
                    ControlFlow::Break(())
                };
                state
                    .yield_on(lock.wait, |state| state.scan_by_step(by, &mut take))
                    .await?;
            }
            let row = bytes.map(|(key, value)| decode::<K, V>(&key, &value));
            Ok(row.transpose()?)
        }
    }

    /// As [`Transaction::range_by`](crate::Transaction::range_by).
    pub fn range_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        range: impl RangeBounds<I>,
    ) -> AsyncIndexRange<'_, I, K, V> {
        let (up, by) = TxnGuard::prepared(self.up(), |state| state.prepare_range_by(index, &range));
        AsyncIndexRange {
            up,
            by,
            types: PhantomData,
        }
    }

    /// As [`Transaction::all_by`](crate::Transaction::all_by).
    pub fn all_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        index: &Index<I, K, V>,
        key: &I,
    ) -> AsyncIndexRange<'_, I, K, V> {
        self.range_by(index, (Bound::Included(key), Bound::Included(key)))
    }
}

/// As [`IndexRange`](crate::IndexRange), read by a task.
#[must_use = "a range reads nothing until it is asked to"]
pub struct AsyncIndexRange<'t, I: ?Sized, K: ?Sized, V: ?Sized> {
    up: Option<TxnGuard<'t>>,
    by: Result<usize>,
    types: Types<I, K, V>,
}

impl<I: ?Sized, K: ?Sized, V: ?Sized> fmt::Debug for AsyncIndexRange<'_, I, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncIndexRange")
            .field("scan", &self.up.as_ref().map(|up| &up.txn.scan))
            .finish_non_exhaustive()
    }
}

impl<'t, I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized> AsyncIndexRange<'t, I, K, V> {
    how_to_read!();

    /// As [`IndexRange::try_for_each`](crate::IndexRange::try_for_each).
    ///
    /// # Errors
    /// As there.
    pub async fn try_for_each(
        self,
        mut take: impl FnMut(I::Owned, K::Owned, V::Owned) -> ControlFlow<()>,
    ) -> Result<()> {
        let AsyncIndexRange { up, by, .. } = self;
        let (by, mut state) = (by?, up.expect(ATTACHED));
        let (wait, kind) = (state.txn.scan.lock.wait, state.kind_of(by));
        let cancel_token = state.txn.cancel_token.clone();
        let mut failure = None;
        let mut give = |found: EncodedRow<'_>| {
            if !is_not_cancelled(&cancel_token) {
                return ControlFlow::Break(());
            }
            let row = decode_found::<I, K, V>(kind, &found);
            take_decoded(row, &mut failure, |(index_key, key, value)| {
                take(index_key, key, value)
            })
        };
        state
            .yield_on(wait, |state| state.scan_by_step(by, &mut give))
            .await?;
        state.check_active()?;
        failure.map_or(Ok(()), |undecodable| Err(undecodable.into()))
    }

    /// As [`IndexRange::for_each`](crate::IndexRange::for_each).
    ///
    /// # Errors
    /// As there.
    pub async fn for_each(self, mut take: impl FnMut(I::Owned, K::Owned, V::Owned)) -> Result<()> {
        self.try_for_each(|index_key, key, value| {
            take(index_key, key, value);
            ControlFlow::Continue(())
        })
        .await
    }

    /// As [`IndexRange::collect`](crate::IndexRange::collect).
    ///
    /// # Errors
    /// As there.
    pub async fn collect(self) -> Result<Vec<IndexRow<I, K, V>>> {
        let mut rows = Vec::new();
        self.for_each(|index_key, key, value| rows.push((index_key, key, value)))
            .await?;
        Ok(rows)
    }

    /// As [`IndexRange::first`](crate::IndexRange::first).
    ///
    /// # Errors
    /// As there.
    pub async fn first(self) -> Result<Option<IndexRow<I, K, V>>> {
        let mut first = None;
        let found = self.limit(1);
        found
            .for_each(|index_key, key, value| first = Some((index_key, key, value)))
            .await?;
        Ok(first)
    }

    /// As [`IndexRange::count`](crate::IndexRange::count).
    ///
    /// # Errors
    /// As there.
    pub async fn count(self) -> Result<u64> {
        let mut count = 0;
        self.for_each(|_, _, _| count += 1).await?;
        Ok(count)
    }
}
