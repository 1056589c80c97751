//! Scans behind ranges of all kinds: of a table or an index, for threads and tasks.
//!
//! How far a scan has read is part of the transaction. A range keeps the transaction attached, says
//! how to read, and drives the scan from attempt to attempt. The types of ranges are in
//! [`range`](crate::api::range).

use std::fmt;
use std::marker::PhantomData;
use std::ops::{ControlFlow, RangeBounds};

use crate::api::operation::{Prepared, prepare, unless_refused};
use crate::engine::cancel_token::{CancelToken, is_not_cancelled};
use crate::error::Result;
use crate::txn::attempt::AttemptResult;
use crate::txn::bound::BoundTxn;
use crate::txn::handle::TxnGuard;
use crate::txn::index_read::EncodedRow;
use crate::txn::scan_state::{STEPS_PER_PIN, ScanState};
use crate::txn::work_budget::{BYTES_PER_UNIT, UNITS};
use crate::types::codec::{Key, Undecodable, Value};
use crate::types::index::Index;
use crate::types::index_entry::EntryKind;
use crate::types::lock_options::LockOptions;
use crate::types::table::Table;

/// Function that gets the bytes of each row; without an index the key in the index is empty.
pub(crate) trait TakeRow: FnMut(EncodedRow<'_>) -> ControlFlow<()> {}

impl<F: FnMut(EncodedRow<'_>) -> ControlFlow<()>> TakeRow for F {}

/// The rows that a scan reads, with their types.
pub(crate) trait RowSource {
    type Row;

    /// True if counting rows takes their keys alone.
    const COUNTS_KEYS: bool = false;

    /// Calls `take` with each row, from where the scan is, until it breaks or the range ends.
    fn attempt(&self, bound: &mut BoundTxn, take: impl TakeRow) -> Result<AttemptResult<()>>;

    fn decode(&self, row: EncodedRow<'_>) -> Result<Self::Row, Undecodable>;

    /// Checks a row that is only counted.
    fn check(&self, row: EncodedRow<'_>) -> Result<(), Undecodable> {
        self.decode(row).map(drop)
    }
}

/// Rows of a table. To be counted they need not be decoded.
pub(crate) struct TableSource<K: ?Sized, V: ?Sized> {
    table: usize,
    types: PhantomData<fn() -> (*const K, *const V)>,
}

impl<K: Key + ?Sized, V: Value + ?Sized> RowSource for TableSource<K, V> {
    type Row = (K::Owned, V::Owned);
    const COUNTS_KEYS: bool = true;

    #[inline]
    fn attempt(&self, bound: &mut BoundTxn, take: impl TakeRow) -> Result<AttemptResult<()>> {
        bound.scan_step(self.table, &mut without_index(take))
    }

    #[inline]
    fn decode(&self, row: EncodedRow<'_>) -> Result<Self::Row, Undecodable> {
        Ok((K::decode(row.key)?, V::decode(row.value)?))
    }

    #[inline]
    fn check(&self, _row: EncodedRow<'_>) -> Result<(), Undecodable> {
        Ok(())
    }
}

/// A function of its own, so that its result, and with it the scan, does not depend on the types of
/// rows.
#[inline(always)]
fn without_index(mut take: impl TakeRow) -> impl FnMut(&[u8], &[u8]) -> ControlFlow<()> {
    let index_key = &[];
    move |key, value| {
        take(EncodedRow {
            index_key,
            key,
            value,
        })
    }
}

/// Types of an index, of which no value is stored.
type IndexTypes<I, K, V> = PhantomData<(fn() -> *const I, fn() -> *const K, fn() -> *const V)>;

/// Rows found by an index.
pub(crate) struct IndexSource<I: ?Sized, K: ?Sized, V: ?Sized> {
    by: usize,
    kind: EntryKind,
    types: IndexTypes<I, K, V>,
}

impl<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized> RowSource for IndexSource<I, K, V> {
    type Row = (I::Owned, K::Owned, V::Owned);

    fn attempt(&self, bound: &mut BoundTxn, mut take: impl TakeRow) -> Result<AttemptResult<()>> {
        bound.scan_by_step(self.by, &mut take)
    }

    fn decode(&self, row: EncodedRow<'_>) -> Result<Self::Row, Undecodable> {
        let mut index_key = row.index_key;
        let index_key = match self.kind {
            EntryKind::Unique => I::decode(index_key)?,
            EntryKind::Shared => I::decode_part(&mut index_key)?,
        };
        Ok((index_key, K::decode(row.key)?, V::decode(row.value)?))
    }
}

/// A transaction that is attached and prepared to scan, or the reason why it is not.
pub(crate) struct RangeScan<'t, S>(Prepared<'t, S>);

impl<S> fmt::Debug for RangeScan<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scan = self.0.as_ref().ok().map(|(guard, _)| &guard.txn.scan);
        f.debug_tuple("RangeScan").field(&scan).finish()
    }
}

impl<'t, K: Key + ?Sized, V: Value + ?Sized> RangeScan<'t, TableSource<K, V>> {
    pub(crate) fn table(
        guard: Result<TxnGuard<'t>>,
        table: &Table<K, V>,
        range: impl RangeBounds<K>,
    ) -> Self {
        RangeScan(prepare(guard, |bound| {
            let table = bound.prepare_range(table, &range)?;
            let types = PhantomData;
            Ok(TableSource { table, types })
        }))
    }
}

impl<'t, I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized> RangeScan<'t, IndexSource<I, K, V>> {
    pub(crate) fn index(
        guard: Result<TxnGuard<'t>>,
        index: &Index<I, K, V>,
        range: impl RangeBounds<I>,
    ) -> Self {
        RangeScan(prepare(guard, |bound| {
            let by = bound.prepare_range_by(index, &range)?;
            let (kind, types) = (bound.kind_of(by), PhantomData);
            Ok(IndexSource { by, kind, types })
        }))
    }
}

impl<S: RowSource> RangeScan<'_, S> {
    /// Changes how the scan reads.
    pub(crate) fn set(&mut self, change: impl FnOnce(&mut ScanState)) {
        if let Ok((guard, Ok(_))) = &mut self.0 {
            change(&mut guard.txn.scan);
        }
    }

    /// Makes the scan lock its rows so, unless it reads at the handle of a snapshot. The owner of
    /// such locks would not end with the scan.
    pub(crate) fn set_lock(&mut self, lock: LockOptions) {
        if let Ok((guard, Ok(_))) = &mut self.0
            && !guard.txn.is_view_lent()
        {
            guard.txn.scan.lock = lock;
        }
    }

    /// Makes the scan count rows.
    pub(crate) fn counting(mut self) -> Self {
        self.set(|scan| scan.is_of_keys = S::COUNTS_KEYS);
        self
    }

    /// Calls `take` with the bytes of each row; blocks the thread while it waits for a lock.
    #[inline]
    pub(crate) fn read(
        self,
        mut take: impl FnMut(&S, EncodedRow<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let (guard, source) = self.0?;
        guard.check_process()?;
        let source = &source?;
        let mut take = move |row: EncodedRow<'_>| take(source, row);
        match guard {
            TxnGuard::Kept(bound) if bound.txn.cancel_token.is_none() => {
                let wait = bound.txn.scan.lock.wait;
                bound.block_on(wait, |bound| source.attempt(bound, &mut take))
            }
            guard => read_detachable(guard, source, &mut take),
        }
    }

    /// As [`read`](Self::read); yields the task while it waits for a lock, and when it has read
    /// enough.
    pub(crate) async fn read_async(
        self,
        mut take: impl FnMut(&S, EncodedRow<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let (mut guard, source) = unless_refused(self.0).await?;
        let mut take = until_cancelled(guard.txn.cancel_token.clone(), |row| take(&source, row));
        let wait = guard.txn.scan.lock.wait;
        loop {
            let mut meter = RowMeter::default();
            let mut take = |row: EncodedRow<'_>| meter.take(row, &mut take);
            let scanned = guard.yield_on(wait, |bound| source.attempt(bound, &mut take));
            scanned.await?;
            guard.ctx.budget.charge(meter.units());
            if !meter.is_full {
                break;
            }
        }
        let checked = guard.check_active();
        guard.settle().await?;
        checked
    }

    /// Reads the next row; sets `scan` to `None` after an error.
    pub(crate) fn next(scan: &mut Option<Self>) -> Option<Result<S::Row>> {
        let row = match &mut scan.as_mut()?.0 {
            Ok((guard, Ok(source))) => read_one(guard, source),
            _ => return scan.take()?.0.and_then(|(_, source)| source).err().map(Err),
        };
        if row.is_err() {
            *scan = None;
        }
        row.transpose()
    }
}

/// Reads where a transaction is detached between operations, or may be cancelled. A function of its
/// own, so that other reads do nothing for that.
#[cold]
#[inline(never)]
fn read_detachable<S: RowSource>(
    mut guard: TxnGuard<'_>,
    source: &S,
    take: &mut dyn FnMut(EncodedRow<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let mut take = until_cancelled(guard.txn.cancel_token.clone(), take);
    let wait = guard.txn.scan.lock.wait;
    guard.block_on(wait, |bound| source.attempt(bound, &mut take))?;
    guard.check_active()
}

/// Counts the rows that a task reads at once, and their bytes.
#[derive(Default)]
struct RowMeter {
    rows: usize,
    bytes: usize,
    /// True if it has ended the attempt, before the next row.
    is_full: bool,
}

impl RowMeter {
    /// Passes a row on, and breaks after it if the task should yield.
    fn take(&mut self, row: EncodedRow<'_>, take: &mut impl TakeRow) -> ControlFlow<()> {
        self.rows += 1;
        self.bytes += row.key.len() + row.value.len();
        take(row)?;
        self.is_full = self.bytes >= UNITS * BYTES_PER_UNIT;
        match self.is_full {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Returns the work that no attempt has counted.
    fn units(&self) -> usize {
        self.rows % STEPS_PER_PIN as usize + self.bytes / BYTES_PER_UNIT
    }
}

/// Breaks before the first row after the transaction was cancelled.
fn until_cancelled(cancel_token: Option<CancelToken>, mut take: impl TakeRow) -> impl TakeRow {
    move |row: EncodedRow<'_>| match is_not_cancelled(&cancel_token) {
        true => take(row),
        false => ControlFlow::Break(()),
    }
}

fn read_one<S: RowSource>(bound: &mut BoundTxn, source: &S) -> Result<Option<S::Row>> {
    bound.check_process()?;
    if bound.txn.scan.is_finished() {
        return Ok(None);
    }
    let mut row = None;
    let mut take = |bytes: EncodedRow<'_>| {
        row = Some(source.decode(bytes));
        ControlFlow::Break(())
    };
    let wait = bound.txn.scan.lock.wait;
    bound.block_on(wait, |bound| source.attempt(bound, &mut take))?;
    Ok(row.transpose()?)
}

/// Decodes each row for `take`; breaks at one that cannot be decoded, and sets `failure`.
#[inline]
pub(crate) fn decoding<S, T>(
    decode: impl Fn(&S, EncodedRow<'_>) -> Result<T, Undecodable>,
    failure: &mut Result<(), Undecodable>,
    mut take: impl FnMut(T) -> ControlFlow<()>,
) -> impl FnMut(&S, EncodedRow<'_>) -> ControlFlow<()> {
    move |source, row| match decode(source, row) {
        Ok(row) => take(row),
        Err(undecodable) => {
            *failure = Err(undecodable);
            ControlFlow::Break(())
        }
    }
}

/// Implements the methods of a range, written once for all four. `$read` is [`RangeScan::read`] or
/// [`RangeScan::read_async`]; with `async await` behind it the methods are futures.
macro_rules! range_methods {
    (
        $Range:ident<$($G:ident: $Bound:path),+> of $Row:ty: ($($part:ident: $Part:ty),+),
        $vis:vis try_for_each, $read:ident $($async:ident $await:ident)?
    ) => {
        impl<$($G: ?Sized),+> fmt::Debug for $Range<'_, $($G),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($Range)).field(&self.0).finish()
            }
        }

        impl<$($G: $Bound + ?Sized),+> $Range<'_, $($G),+> {
            /// Reverses the order: from the last row to the first.
            pub fn reversed(mut self) -> Self {
                self.0.set(|scan| scan.reversed = !scan.reversed);
                self
            }

            /// Reads at most `count` rows.
            pub fn limit(mut self, count: u64) -> Self {
                self.0.set(|scan| scan.remaining.set(count));
                self
            }

            /// Locks the rows with `lock` instead of [`Lock::Shared`](crate::Lock::Shared). A range
            /// of a [`Snapshot`](crate::Snapshot) locks nothing, whatever `lock` is.
            pub fn locked(mut self, lock: impl Into<LockOptions>) -> Self {
                self.0.set_lock(lock.into());
                self
            }

            /// Calls `take` with each row.
            ///
            /// # Errors
            /// A conflict, if a lock was not granted; then `take` may have been called for rows
            /// before. A request error, if a bound is too long, the table has other types, the
            /// index is not declared, or bytes that are stored cannot be decoded.
            pub $($async)? fn for_each(self, mut take: impl FnMut($($Part),+)) -> Result<()> {
                self.try_for_each(move |$($part),+| {
                    take($($part),+);
                    ControlFlow::Continue(())
                })
                $(.$await)?
            }

            /// Calls `take` with each row until `take` breaks.
            ///
            /// # Errors
            /// As for [`for_each`](Self::for_each).
            $vis $($async)? fn try_for_each(
                self,
                mut take: impl FnMut($($Part),+) -> ControlFlow<()>,
            ) -> Result<()> {
                let mut failure = Ok(());
                let take = move |($($part),+): $Row| take($($part),+);
                self.0.$read(decoding(RowSource::decode, &mut failure, take))$(.$await)??;
                Ok(failure?)
            }

            /// Returns all rows, in order.
            ///
            /// # Errors
            /// As for [`for_each`](Self::for_each).
            pub $($async)? fn collect(self) -> Result<Vec<$Row>> {
                let mut rows = Vec::new();
                self.for_each(|$($part),+| rows.push(($($part),+)))$(.$await)??;
                Ok(rows)
            }

            /// Returns the first row; if reversed, the last.
            ///
            /// # Errors
            /// As for [`for_each`](Self::for_each).
            pub $($async)? fn first(self) -> Result<Option<$Row>> {
                let mut first = None;
                let found = self.limit(1);
                found.for_each(|$($part),+| first = Some(($($part),+)))$(.$await)??;
                Ok(first)
            }

            /// Returns the number of rows, up to the limit. In a table, their values are not read.
            ///
            /// # Errors
            /// As for [`for_each`](Self::for_each).
            pub $($async)? fn count(self) -> Result<u64> {
                let (mut count, mut failure) = (0, Ok(()));
                let take = |()| {
                    count += 1;
                    ControlFlow::Continue(())
                };
                let counting = self.0.counting();
                counting.$read(decoding(RowSource::check, &mut failure, take))$(.$await)??;
                Ok(failure.map(|()| count)?)
            }
        }
    };
}

/// Implements the iterator over the rows of a range that a thread reads.
macro_rules! rows {
    ($Rows:ident of $Range:ident<$($G:ident: $Bound:path),+>, $Row:ty) => {
        impl<$($G: ?Sized),+> fmt::Debug for $Rows<'_, $($G),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($Rows)).field(&self.0).finish()
            }
        }

        impl<'t, $($G: $Bound + ?Sized),+> IntoIterator for $Range<'t, $($G),+> {
            type Item = Result<$Row>;
            type IntoIter = $Rows<'t, $($G),+>;

            fn into_iter(self) -> Self::IntoIter {
                $Rows(Some(self.0))
            }
        }

        impl<$($G: $Bound + ?Sized),+> Iterator for $Rows<'_, $($G),+> {
            type Item = Result<$Row>;

            fn next(&mut self) -> Option<Self::Item> {
                RangeScan::next(&mut self.0)
            }
        }
    };
}

pub(crate) use {range_methods, rows};
