//! Methods of both kinds of transactions, written once.
//!
//! [`Transaction`] blocks its thread while an operation waits for a lock; [`AsyncTransaction`]
//! yields its task. The macro [`operations`] makes the two methods of each operation below from one
//! description of it: `operation::get` and the like prepare the operation and say what an attempt
//! does. The macro [`both`] repeats methods that never wait for a lock.

use foxton_lock::request::OwnerLabel;
use foxton_log::Lsn;

use crate::api::async_transaction::AsyncTransaction;
use crate::api::operation::{self, perform, prepare};
use crate::api::transaction::Transaction;
use crate::engine::cancel_token::CancelToken;
use crate::error::Result;
use crate::options::Durability;
use crate::txn::write::Write;
use crate::types::codec::{Key, Value};
use crate::types::index::Index;
use crate::types::isolation::Isolation;
use crate::types::lock_options::{Lock, LockOptions, LockWait, TableLock};
use crate::types::savepoint::Savepoint;
use crate::types::table::Table;

/// Makes methods of operations, for threads and for tasks.
///
/// All types in angle brackets may be unsized. `; lock: L` stands for an argument `lock: impl
/// Into<LockOptions>`, whose type a future has to name.
macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        pub fn $name:ident $(<$($G:ident: $Bound:path),+>)?
            ($($arg:ident: $Arg:ty),+ $(; $lock:ident: $L:ident)?) -> $Output:ty
        { $operation:expr }
    )+) => {
        impl Transaction {$(
            $(#[$doc])*
            pub fn $name $(<$($G: $Bound + ?Sized),+>)? (
                &mut self,
                $($arg: $Arg,)+
                $($lock: impl Into<LockOptions>)?
            ) -> Result<$Output> {
                self.run($operation)
            }
        )+}

        impl AsyncTransaction {$(
            #[doc = concat!("As [`Transaction::", stringify!($name), "`]; yields the task instead of")]
            /// blocking the thread.
            ///
            /// # Errors
            /// As there.
            pub fn $name<'a, $($($G: $Bound + ?Sized,)+)? $($L: Into<LockOptions>)?>(
                &'a mut self,
                $($arg: $Arg,)+
                $($lock: $L)?
            ) -> impl Future<Output = Result<$Output>> + Send + use<'a, $($($G,)+)? $($L)?> {
                let operation = $operation;
                let prepared = prepare(self.attach(), operation.prepare);
                perform(prepared, operation.wait, operation.attempt)
            }
        )+}
    };
}

operations! {
    /// Returns the value of `key`, or `None` if the key is absent.
    ///
    /// # Errors
    /// A conflict, if the lock was not granted. A request error, if the key is too long, the table
    /// has other types, or the bytes that are stored are no `V`.
    pub fn get<K: Key, V: Value>(table: &Table<K, V>, key: &K) -> Option<V::Owned> {
        operation::get(table, key, Lock::Shared.into())
    }

    /// Returns the value of `key`, which the transaction will probably write next. Only one
    /// transaction at a time gets the lock for that; others can still read the key with
    /// [`get`](Self::get).
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_for_update<K: Key, V: Value>(table: &Table<K, V>, key: &K) -> Option<V::Owned> {
        operation::get(table, key, Lock::Update.into())
    }

    /// Returns the value of `key`, locked with `lock`. With [`Lock::skip_locked`], a key that
    /// another transaction has locked counts as absent.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_locked<K: Key, V: Value>(table: &Table<K, V>, key: &K; lock: L) -> Option<V::Owned> {
        operation::get(table, key, lock.into())
    }

    /// Returns the row that has `key` in `index`: its own key and its value. If several rows have
    /// it, in an index that is not unique, returns the one with the lowest key.
    ///
    /// ```
    /// use foxton::{Database, Index, Options, Table};
    /// const USERS: Table<u64, str> = Table::new("users");
    /// const BY_NAME: Index<str, u64, str> =
    ///     Index::unique("by_name", &USERS, |_, name, keys| keys.add(name));
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
    /// As for [`get`](Self::get); a request error, if the index is not declared, or with other
    /// types.
    pub fn get_by<I: Key, K: Key, V: Value>(
        index: &Index<I, K, V>, key: &I
    ) -> Option<(K::Owned, V::Owned)> {
        operation::get_by(index, key, Lock::Shared.into())
    }

    /// As [`get_by`](Self::get_by), for a row that the transaction will probably write next: see
    /// [`get_for_update`](Self::get_for_update).
    ///
    /// # Errors
    /// As for [`get_by`](Self::get_by).
    pub fn get_by_for_update<I: Key, K: Key, V: Value>(
        index: &Index<I, K, V>, key: &I
    ) -> Option<(K::Owned, V::Owned)> {
        operation::get_by(index, key, Lock::Update.into())
    }

    /// As [`get_by`](Self::get_by), locked with `lock`: see [`get_locked`](Self::get_locked).
    ///
    /// # Errors
    /// As for [`get_by`](Self::get_by).
    pub fn get_by_locked<I: Key, K: Key, V: Value>(
        index: &Index<I, K, V>, key: &I; lock: L
    ) -> Option<(K::Owned, V::Owned)> {
        operation::get_by(index, key, lock.into())
    }

    /// Sets the value of `key`, whether or not the key is there.
    ///
    /// An update logs only the bytes that differ if both values have at most 64 KiB and little
    /// differs. A longer value is logged whole, so split it into several rows if parts of it change
    /// often.
    ///
    /// # Errors
    /// A conflict, if the lock was not granted. A request error, if the key or the value is too
    /// long or the table has other types. A storage error, if the log has failed.
    pub fn put<K: Key, V: Value>(table: &Table<K, V>, key: &K, value: &V) -> () {
        operation::write(Write::Put, table, key, Some(value), drop)
    }

    /// Sets the value of `key` if the key is absent.
    ///
    /// # Errors
    /// `key_exists` if the key is there, else as for [`put`](Self::put).
    pub fn insert<K: Key, V: Value>(table: &Table<K, V>, key: &K, value: &V) -> () {
        operation::write(Write::Insert, table, key, Some(value), drop)
    }

    /// Removes `key`; returns true if it was there.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn delete<K: Key, V: Value>(table: &Table<K, V>, key: &K) -> bool {
        operation::write(Write::Delete, table, key, None, |existed| existed)
    }

    /// Locks all of `table` until the transaction ends, and returns true if it is locked: false
    /// only with [`LockWait::Skip`].
    ///
    /// Reads and writes lock what they need. This method is for a transaction that will touch most
    /// of a table, or has to keep others out.
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
    /// A conflict, if the lock was not granted; a request error, if the table has other types.
    pub fn lock_table<K: Key, V: Value>(
        table: &Table<K, V>, lock: TableLock, wait: LockWait
    ) -> bool {
        operation::lock_table(table, lock, wait)
    }

    /// Locks `number`, whose meaning only the program knows, until the transaction ends, and
    /// returns true if it is locked: false only with [`Lock::skip_locked`].
    ///
    /// Such a lock protects nothing in the database. It waits like any other lock and takes part in
    /// deadlocks, which are found and end one of the transactions.
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
    /// A conflict, if the lock was not granted.
    pub fn lock_advisory(number: u64; lock: L) -> bool {
        operation::lock_advisory(number, lock.into())
    }
}

/// Repeats methods that never wait for a lock.
macro_rules! both {
    ($($method:tt)+) => {
        impl Transaction { $($method)+ }
        impl AsyncTransaction { $($method)+ }
    };
}

both! {
    /// Takes a savepoint, for [`rollback_to`](Self::rollback_to). Never waits.
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
        self.attach()?.savepoint()
    }

    /// Removes `savepoint` and all later ones, and keeps the changes made since. No savepoint needs
    /// to be released: all end with the transaction. Never waits.
    ///
    /// # Errors
    /// `no_such_savepoint`, as for [`rollback_to`](Self::rollback_to); a conflict, if one has ended
    /// the transaction.
    pub fn release_savepoint(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.attach()?.release_savepoint(savepoint)
    }

    /// Names the transaction for people: conflicts, [`Database::locks`](crate::Database::locks) and
    /// reports of deadlocks show the name.
    pub fn set_label(&mut self, label: impl Into<OwnerLabel>) {
        if let Ok(mut guard) = self.attach() {
            guard.ctx.owner.set_label(label);
        }
    }

    /// Lets `cancel_token` end this transaction, instead of the token before. If the token is
    /// cancelled already, the next operation ends the transaction.
    pub fn set_cancel_token(&mut self, cancel_token: &CancelToken) {
        if let Ok(mut guard) = self.attach() {
            guard.txn.set_cancel_token(cancel_token);
        }
    }

    /// Sets how durable the commit of this transaction is, instead of
    /// [`Options::durability`](crate::Options::durability).
    pub fn set_durability(&mut self, durability: Durability) {
        if let Ok(mut guard) = self.attach() {
            guard.txn.durability = durability;
        }
    }

    /// Sets how far later reads of this transaction are isolated from others, instead of
    /// [`Options::isolation`](crate::Options::isolation). Earlier reads keep their locks.
    ///
    /// # Errors
    /// `level_too_late`, if it changes to or from [`Isolation::Snapshot`] after a read. The level
    /// is as before then. `ended_idle`, if the idle timeout has ended the transaction.
    pub fn set_isolation(&mut self, isolation: Isolation) -> Result<()> {
        self.attach()?.set_isolation(isolation)
    }

    /// Returns the position at which the transaction reads, if it has read at
    /// [`Isolation::Snapshot`]: its plain reads return what was committed there or before.
    pub fn snapshot_lsn(&mut self) -> Option<Lsn> {
        self.attach().ok()?.txn.view.map(|view| view.lsn)
    }
}
