//! Many keys read at once, by threads and by tasks.

use crate::api::async_transaction::AsyncTransaction;
use crate::api::transaction::Transaction;
use crate::error::Result;
use crate::txn::handle::{ATTACHED, TxnGuard};
use crate::types::codec::{Key, Value};
use crate::types::lock_options::{Lock, LockOptions};
use crate::types::table::Table;

impl Transaction {
    /// The values of `keys`, each or `None`, in their order. What one [`get`](Self::get) after the other returns, and locks, in that
    /// order; but rows that lie apart in memory are fetched side by side, which is the most of what reading one costs
    /// where the table does not fit the processor's caches.
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
    /// As for [`get`](Self::get). What was locked until then stays locked. A key that is too long is refused before any is locked.
    pub fn get_many<'k, K: Key + ?Sized + 'k, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
    ) -> Result<Vec<Option<V::Owned>>> {
        self.get_many_locked(table, keys, Lock::Shared)
    }

    /// The values of `keys`, locked as asked. With [`Lock::skip_locked`], a key that somebody has locked counts as absent.
    ///
    /// # Errors
    /// As for [`get_many`](Self::get_many).
    pub fn get_many_locked<'k, K: Key + ?Sized + 'k, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
        lock: impl Into<LockOptions>,
    ) -> Result<Vec<Option<V::Owned>>> {
        let mut values = Vec::new();
        let take = |_, bytes: Option<&[u8]>| values.push(bytes.map(V::decode).transpose());
        self.get_many_bytes(table, keys, lock.into(), take)?;
        Ok(values.into_iter().collect::<std::result::Result<_, _>>()?)
    }

    /// Gives the bytes of the values of `keys` to `read`, without copying them, in their order: the place of the key, from 0 on, and its
    /// value's bytes, or `None`. Nothing else of the database should be waited for inside.
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const PAGES: Table<u64, [u8]> = Table::new("pages");
    /// # let db = Database::in_memory(Options::default())?;
    /// # let mut tx = db.begin()?;
    /// tx.put(&PAGES, &7, &[1, 2, 3])?;
    /// let mut lengths = [0; 2];
    /// tx.get_many_with(&PAGES, &[6, 7], |place, bytes| lengths[place] = bytes.map_or(0, |bytes| bytes.len()))?;
    /// assert_eq!(lengths, [0, 3]);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`get_many`](Self::get_many); `read` was called for the keys before.
    pub fn get_many_with<'k, K: Key + ?Sized + 'k, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.get_many_bytes(table, keys, Lock::Shared.into(), read)
    }

    fn get_many_bytes<'k, K: Key + ?Sized + 'k, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
        lock: LockOptions,
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let state = &mut *self.up()?;
        let (table, keys) = state.prepare_get_many(table, keys)?;
        let mut next = 0;
        state.block_on(lock.wait, |state| {
            state.get_many_step(table, lock, &keys, &mut next, &mut read)
        })
    }
}

impl AsyncTransaction {
    /// As [`Transaction::get_many`](crate::Transaction::get_many).
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

    /// As [`Transaction::get_many_locked`](crate::Transaction::get_many_locked).
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
        let lock = lock.into();
        let (up, prepared) =
            TxnGuard::prepared(self.up(), |state| state.prepare_get_many(table, keys));
        async move {
            let (table, keys) = prepared?;
            let (mut next, mut values) = (0, Vec::new());
            let mut take = |_, bytes: Option<&[u8]>| values.push(bytes.map(<[u8]>::to_vec));
            up.expect(ATTACHED)
                .yield_on(lock.wait, |state| {
                    state.get_many_step(table, lock, &keys, &mut next, &mut take)
                })
                .await?;
            let decoded = values
                .into_iter()
                .map(|bytes| bytes.map(|bytes| V::decode(&bytes)).transpose());
            Ok(decoded.collect::<std::result::Result<_, _>>()?)
        }
    }
}
