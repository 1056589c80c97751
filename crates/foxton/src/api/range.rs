//! Ranges of keys, read by threads.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{ControlFlow, RangeBounds};

use crate::engine::cancel_token::is_not_cancelled;
use crate::error::Result;
use crate::txn::handle::{ATTACHED, TxnGuard};
use crate::types::codec::{Key, Undecodable, Value};
use crate::types::table::Table;

/// How a range of any kind is read: that is kept in the scan of its transaction.
macro_rules! how_to_read {
    () => {
        /// From the last key to the first.
        pub fn reversed(mut self) -> Self {
            if let Some(up) = &mut self.up {
                up.txn.scan.reversed = !up.txn.scan.reversed;
            }
            self
        }

        /// At most `count` rows.
        pub fn limit(self, count: u64) -> Self {
            if let Some(up) = &self.up {
                up.txn.scan.remaining.set(count);
            }
            self
        }

        /// Locks what is read in this way instead of shared.
        pub fn locked(mut self, lock: impl Into<$crate::types::lock_options::LockOptions>) -> Self {
            if let Some(up) = &mut self.up {
                up.txn.scan.lock = lock.into();
            }
            self
        }
    };
}

pub(crate) use how_to_read;

/// The keys of a table that lie in a range, not read yet: say how, then read.
///
/// *How:* [`reversed`](Self::reversed), [`limit`](Self::limit), [`locked`](Self::locked).
/// *Read:* [`for_each`](Self::for_each) and its relatives (fastest; the `bytes` ones copy nothing),
/// [`collect`](Self::collect), [`first`](Self::first), [`count`](Self::count), or a `for` loop.
///
/// What is read stays as it is until the transaction ends: nobody else changes it, removes any of it
/// or adds to it. What a limit or a break left unread is not held.
///
/// ```
/// use foxton::{Database, Lock, Options, Table};
///
/// const JOBS: Table<(u8, u64), str> = Table::new("jobs");
///
/// let db = Database::in_memory(Options::default())?;
/// db.run(|tx| {
///     tx.put(&JOBS, &(2, 1), "water the plants")?;
///     tx.put(&JOBS, &(1, 2), "put out the fire")
/// })?;
///
/// // Two workers, each with the first job that nobody else has.
/// let mut workers = [db.begin()?, db.begin()?];
/// let jobs = workers.each_mut().map(|worker| {
///     worker.range(&JOBS, ..).locked(Lock::Exclusive.skip_locked()).first()
/// });
/// let [first, second] = jobs.map(|job| job.unwrap().unwrap().1);
/// assert_eq!((&*first, &*second), ("put out the fire", "water the plants"));
///
/// // One row after the other, from above.
/// let mut tx = workers.into_iter().next().unwrap();
/// for row in tx.range(&JOBS, ..(2, 0)).reversed() {
///     let ((priority, _number), _job) = row?;
///     assert_eq!(priority, 1);
/// }
/// # Ok::<(), foxton::Error>(())
/// ```
#[must_use = "a range reads nothing until it is asked to"]
pub struct Range<'t, K: ?Sized, V: ?Sized> {
    up: Option<TxnGuard<'t>>,
    table: Result<usize>,
    types: PhantomData<fn() -> (*const K, *const V)>,
}

impl<K: ?Sized, V: ?Sized> fmt::Debug for Range<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range")
            .field("scan", &self.up.as_ref().map(|up| &up.txn.scan))
            .finish_non_exhaustive()
    }
}

impl<'t, K: Key + ?Sized, V: Value + ?Sized> Range<'t, K, V> {
    pub(crate) fn new(
        up: Result<TxnGuard<'t>>,
        table: &Table<K, V>,
        range: impl RangeBounds<K>,
    ) -> Range<'t, K, V> {
        let (up, table) = TxnGuard::prepared(up, |state| state.prepare_range(table, &range));
        Range {
            up,
            table,
            types: PhantomData,
        }
    }

    how_to_read!();

    /// Calls `take` with each key and value.
    ///
    /// # Errors
    /// A conflict, if a lock was not to be had: `take` may have been called for what came before it.
    /// A request error, if a bound is too long, the table has other types, or what is stored is no
    /// `K` or `V`.
    pub fn for_each(self, mut take: impl FnMut(K::Owned, V::Owned)) -> Result<()> {
        self.try_for_each(|key, value| {
            take(key, value);
            ControlFlow::Continue(())
        })
    }

    /// Calls `take` with each key and value until it says to break.
    ///
    /// # Errors
    /// As for [`for_each`](Self::for_each).
    pub fn try_for_each(
        self,
        mut take: impl FnMut(K::Owned, V::Owned) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut failure = None;
        self.try_for_each_bytes(|key, value| {
            let row = decode::<K, V>(key, value);
            take_decoded(row, &mut failure, |(key, value)| take(key, value))
        })?;
        failure.map_or(Ok(()), |undecodable| Err(undecodable.into()))
    }

    /// Calls `take` with the bytes of each key and value, without copying them. Nothing else of the
    /// database should be waited for inside.
    ///
    /// # Errors
    /// As for [`for_each`](Self::for_each).
    #[inline]
    pub fn for_each_bytes(self, mut take: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.try_for_each_bytes(|key, value| {
            take(key, value);
            ControlFlow::Continue(())
        })
    }

    /// Calls `take` with the bytes of each key and value until it says to break.
    ///
    /// # Errors
    /// As for [`for_each`](Self::for_each).
    #[inline]
    pub fn try_for_each_bytes(
        self,
        mut take: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let Range { up, table, .. } = self;
        let table = table?;
        match up.expect(ATTACHED) {
            TxnGuard::Kept(state) if state.txn.cancel_token.is_none() => {
                let wait = state.txn.scan.lock.wait;
                state.block_on(wait, |state| state.scan_step(table, &mut take))
            }
            up => read_up(up, table, &mut take),
        }
    }

    /// Everything in the range, in order.
    ///
    /// # Errors
    /// As for [`for_each`](Self::for_each).
    pub fn collect(self) -> Result<Vec<(K::Owned, V::Owned)>> {
        let mut rows = Vec::new();
        self.for_each(|key, value| rows.push((key, value)))?;
        Ok(rows)
    }

    /// The first key in the range (the last, if reversed) and its value.
    ///
    /// # Errors
    /// As for [`for_each`](Self::for_each).
    pub fn first(self) -> Result<Option<(K::Owned, V::Owned)>> {
        let mut first = None;
        self.limit(1)
            .for_each(|key, value| first = Some((key, value)))?;
        Ok(first)
    }

    /// How many keys there are, up to the limit.
    ///
    /// # Errors
    /// As for [`for_each`](Self::for_each).
    pub fn count(self) -> Result<u64> {
        let mut count = 0;
        self.for_each_bytes(|_, _| count += 1)?;
        Ok(count)
    }
}

impl<'t, K: Key + ?Sized, V: Value + ?Sized> IntoIterator for Range<'t, K, V> {
    type Item = Result<(K::Owned, V::Owned)>;
    type IntoIter = Rows<'t, K, V>;

    fn into_iter(self) -> Rows<'t, K, V> {
        Rows(Some(self))
    }
}

/// The rows of a [`Range`], one by one. Ends after the first error.
pub struct Rows<'t, K: ?Sized, V: ?Sized>(Option<Range<'t, K, V>>);

impl<K: ?Sized, V: ?Sized> fmt::Debug for Rows<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rows").field(&self.0).finish()
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> Rows<'_, K, V> {
    fn advance(&mut self) -> Result<Option<(K::Owned, V::Owned)>> {
        let Some(range) = &mut self.0 else {
            return Ok(None);
        };
        let table = match &range.table {
            Ok(table) => *table,
            Err(_) => {
                let range = self.0.take().expect("looked at above");
                return range.table.map(|_| None);
            }
        };
        let state = range.up.as_deref_mut().expect(ATTACHED);
        if state.txn.scan.is_finished() {
            return Ok(None);
        }
        let mut row = None;
        let wait = state.txn.scan.lock.wait;
        state.block_on(wait, |state| {
            state.scan_step(table, &mut |key, value| {
                row = Some(decode::<K, V>(key, value));
                ControlFlow::Break(())
            })
        })?;
        Ok(row.transpose()?)
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> Iterator for Rows<'_, K, V> {
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.advance();
        if row.is_err() {
            self.0 = None;
        }
        row.transpose()
    }
}

/// What is given the bytes of each key and value.
type Take<'t> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 't;

/// Apart, so that where nothing is ever laid down, and nobody may cancel, nothing is to be done for that.
#[cold]
#[inline(never)]
fn read_up(mut up: TxnGuard<'_>, table: usize, take: &mut Take<'_>) -> Result<()> {
    let state = &mut *up;
    let (wait, cancel_token) = (state.txn.scan.lock.wait, state.txn.cancel_token.clone());
    let mut take = |key: &[u8], value: &[u8]| match is_not_cancelled(&cancel_token) {
        true => take(key, value),
        false => ControlFlow::Break(()),
    };
    state.block_on(wait, |state| state.scan_step(table, &mut take))?;
    state.check_active()
}

pub(crate) fn decode<K: Key + ?Sized, V: Value + ?Sized>(
    key: &[u8],
    value: &[u8],
) -> Result<(K::Owned, V::Owned), Undecodable> {
    Ok((K::decode(key)?, V::decode(value)?))
}

/// Gives a row to `take`, or breaks and notes why there is none.
pub(crate) fn take_decoded<R>(
    row: Result<R, Undecodable>,
    failure: &mut Option<Undecodable>,
    take: impl FnOnce(R) -> ControlFlow<()>,
) -> ControlFlow<()> {
    match row {
        Ok(row) => take(row),
        Err(undecodable) => {
            *failure = Some(undecodable);
            ControlFlow::Break(())
        }
    }
}
