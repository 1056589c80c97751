//! Operations on keys and names, each described once for threads and tasks.
//!
//! A description has three parts: how long the operation waits for a lock, how it is prepared, and
//! what one attempt does. The drivers are `Transaction::run`, which blocks the thread between
//! attempts, and [`perform`], which yields the task.

use std::mem;
use std::ops::{Bound, ControlFlow};

use crate::error::Result;
use crate::txn::attempt::{AttemptResult, done};
use crate::txn::bound::BoundTxn;
use crate::txn::explicit_lock::{self, LockRequest};
use crate::txn::handle::TxnGuard;
use crate::txn::index_read::EncodedRow;
use crate::txn::read::KeyList;
use crate::txn::work_budget::BYTES_PER_UNIT;
use crate::txn::write::Write;
use crate::types::codec::{Key, Undecodable, Value};
use crate::types::index::Index;
use crate::types::lock_options::{LockOptions, LockWait, TableLock};
use crate::types::table::Table;

/// A row: its key and its value.
type Row<K, V> = (<K as Key>::Owned, <V as Value>::Owned);

/// An operation that is described and not begun.
///
/// The driver prepares it once, which checks and encodes the arguments. Then it makes the attempt,
/// with what was prepared, until the attempt is done. An attempt goes as far as the locks allow and
/// never blocks. It borrows no argument, so a future that drives it borrows the transaction alone.
pub(crate) struct Operation<P, A> {
    /// How long the operation waits for a lock.
    pub(crate) wait: LockWait,
    pub(crate) prepare: P,
    pub(crate) attempt: A,
}

pub(crate) trait Prepare<P>: FnOnce(&mut BoundTxn) -> Result<P> {}

impl<P, F: FnOnce(&mut BoundTxn) -> Result<P>> Prepare<P> for F {}

pub(crate) trait Attempt<P, T>:
    FnMut(&mut BoundTxn, &P) -> Result<AttemptResult<T>>
{
}

impl<P, T, F: FnMut(&mut BoundTxn, &P) -> Result<AttemptResult<T>>> Attempt<P, T> for F {}

/// A transaction that is attached, and what was prepared with it, or why it was not.
pub(crate) type Prepared<'t, P> = Result<(TxnGuard<'t>, Result<P>)>;

/// Prepares an operation with a transaction that is attached, and keeps it attached.
#[inline(always)]
pub(crate) fn prepare<'t, P>(
    guard: Result<TxnGuard<'t>>,
    prepare: impl Prepare<P>,
) -> Prepared<'t, P> {
    let mut guard = guard?;
    let prepared = prepare(&mut guard);
    Ok((guard, prepared))
}

/// Returns what was prepared for a task. If a refusal has ended the transaction, the task rolls it
/// back first.
pub(crate) async fn unless_refused<'t, P>(prepared: Prepared<'t, P>) -> Result<(TxnGuard<'t>, P)> {
    let (mut guard, prepared) = prepared?;
    match prepared {
        Ok(prepared) => Ok((guard, prepared)),
        Err(refused) => {
            guard.settle().await?;
            Err(refused)
        }
    }
}

/// Drives a prepared operation; yields the task between attempts.
pub(crate) async fn perform<P, T>(
    prepared: Prepared<'_, P>,
    wait: LockWait,
    mut attempt: impl Attempt<P, T>,
) -> Result<T> {
    let (mut guard, prepared) = unless_refused(prepared).await?;
    guard
        .yield_on(wait, |bound| attempt(bound, &prepared))
        .await
}

/// Reads the bytes of the value of `key`, if the key is there.
#[inline(always)]
pub(crate) fn get_with<K: Key + ?Sized, V: Value + ?Sized, T, F: FnOnce(&[u8]) -> T>(
    table: &Table<K, V>,
    key: &K,
    lock: LockOptions,
    read: F,
) -> Operation<impl Prepare<usize>, impl Attempt<usize, Option<T>> + use<K, V, T, F>> {
    let mut read = Some(read);
    Operation {
        wait: lock.wait,
        prepare: |bound: &mut BoundTxn| bound.prepare_get(table, key),
        attempt: move |bound: &mut BoundTxn, &table: &usize| {
            let mut bytes = 0;
            let mut read = Some(|value: &[u8]| {
                bytes = value.len();
                read.take().map(|read| read(value))
            });
            let value = done!(bound.get_step(table, lock, &mut read));
            if bytes > BYTES_PER_UNIT {
                bound.ctx.budget.charge_bytes(bytes);
            }
            Ok(AttemptResult::Done(value.flatten()))
        },
    }
}

/// Reads the value of `key`, if the key is there.
#[inline(always)]
pub(crate) fn get<K: Key + ?Sized, V: Value + ?Sized>(
    table: &Table<K, V>,
    key: &K,
    lock: LockOptions,
) -> Operation<impl Prepare<usize>, impl Attempt<usize, Option<V::Owned>> + use<K, V>> {
    Operation {
        wait: lock.wait,
        prepare: |bound: &mut BoundTxn| bound.prepare_get(table, key),
        attempt: move |bound: &mut BoundTxn, &table: &usize| {
            let mut bytes = 0;
            let mut read = Some(|value: &[u8]| {
                bytes = value.len();
                V::decode(value)
            });
            let value = done!(bound.get_step(table, lock, &mut read));
            if bytes > BYTES_PER_UNIT {
                bound.ctx.budget.charge_bytes(bytes);
            }
            Ok(AttemptResult::Done(value.transpose()?))
        },
    }
}

/// Reads the values of `keys`; `take` adds each, with the index of its key, to the result.
pub(crate) fn get_many<'k, K: Key + ?Sized + 'k, V: Value + ?Sized, I, T: Default, F>(
    table: &Table<K, V>,
    keys: I,
    lock: LockOptions,
    mut take: F,
) -> Operation<
    impl Prepare<(usize, KeyList)>,
    impl Attempt<(usize, KeyList), T> + use<'k, K, V, I, T, F>,
>
where
    I: IntoIterator<Item = &'k K>,
    F: FnMut(&mut T, usize, Option<&[u8]>),
{
    let (mut next, mut values) = (0, T::default());
    Operation {
        wait: lock.wait,
        prepare: |bound: &mut BoundTxn| bound.prepare_get_many(table, keys),
        attempt: move |bound: &mut BoundTxn, (table, keys): &(usize, KeyList)| {
            let mut take = |index, value: Option<&[u8]>| take(&mut values, index, value);
            done!(bound.get_many_step(*table, lock, keys, &mut next, &mut take));
            Ok(AttemptResult::Done(mem::take(&mut values)))
        },
    }
}

/// Reads the first row that has `key` in `index`.
pub(crate) fn get_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
    index: &Index<I, K, V>,
    key: &I,
    lock: LockOptions,
) -> Operation<impl Prepare<usize>, impl Attempt<usize, Option<Row<K, V>>> + use<I, K, V>> {
    let is_unique = index.is_unique();
    let prepare = move |bound: &mut BoundTxn| {
        if is_unique {
            return bound.prepare_get_by(index, key);
        }
        let by = bound.prepare_range_by(index, &(Bound::Included(key), Bound::Included(key)))?;
        bound.txn.scan.lock = lock;
        bound.txn.scan.remaining.set(1);
        Ok(by)
    };
    let attempt = move |bound: &mut BoundTxn, &by: &usize| {
        let decode = |found: EncodedRow<'_>| Ok((K::decode(found.key)?, V::decode(found.value)?));
        let mut row: Option<Result<_, Undecodable>> = None;
        if is_unique {
            row = done!(bound.get_by_step(by, lock, &mut { decode }));
        } else {
            let mut take = |found: EncodedRow<'_>| {
                row = Some(decode(found));
                ControlFlow::Break(())
            };
            done!(bound.scan_by_step(by, &mut take));
        }
        Ok(AttemptResult::Done(row.transpose()?))
    };
    let wait = lock.wait;
    Operation {
        wait,
        prepare,
        attempt,
    }
}

/// Writes `value`, or nothing, under `key`; `answer` makes the result from whether the key had a
/// value.
#[inline(always)]
pub(crate) fn write<K: Key + ?Sized, V: Value + ?Sized, T, F: Fn(bool) -> T>(
    write: Write,
    table: &Table<K, V>,
    key: &K,
    value: Option<&V>,
    answer: F,
) -> Operation<impl Prepare<usize>, impl Attempt<usize, T> + use<K, V, T, F>> {
    Operation {
        wait: LockWait::Default,
        prepare: move |bound: &mut BoundTxn| bound.prepare_write(table, key, value),
        attempt: move |bound: &mut BoundTxn, &table: &usize| {
            let existed = done!(bound.write_step(table, write));
            bound.after_write()?;
            Ok(AttemptResult::Done(answer(existed)))
        },
    }
}

/// Locks a table; returns false if another transaction has the lock and it is to be skipped.
pub(crate) fn lock_table<K: Key + ?Sized, V: Value + ?Sized>(
    table: &Table<K, V>,
    lock: TableLock,
    wait: LockWait,
) -> Operation<impl Prepare<usize>, impl Attempt<usize, bool> + use<K, V>> {
    Operation {
        wait,
        prepare: |bound: &mut BoundTxn| bound.open_table(table),
        attempt: move |bound: &mut BoundTxn, &table: &usize| {
            bound.lock_table_step(table, lock, wait)
        },
    }
}

/// Locks a number; returns false if another transaction has the lock and it is to be skipped.
pub(crate) fn lock_advisory(
    number: u64,
    lock: LockOptions,
) -> Operation<impl Prepare<LockRequest>, impl Attempt<LockRequest, bool>> {
    Operation {
        wait: lock.wait,
        prepare: move |_: &mut BoundTxn| Ok(explicit_lock::advisory(number, lock)),
        attempt: |bound: &mut BoundTxn, &request: &LockRequest| bound.lock_step(request),
    }
}
