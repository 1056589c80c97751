//! Snapshots: handles that read at one position of the log.

use std::fmt;
use std::mem;
use std::ops::RangeBounds;
use std::sync::Arc;

use foxton_log::Lsn;
use foxton_sync::shim::{self, AtomicU64, Mutex, Ordering};
use foxton_sync::site::{Component, Pattern, Site};

use crate::api::database::Database;
use crate::api::operation::{self, Attempt, Operation, Prepare};
use crate::api::range::{IndexRange, Range};
use crate::api::range_scan::RangeScan;
use crate::engine::commit_lsn_waits::CommitLsnWaits;
use crate::error::Result;
use crate::txn::bound::BoundTxn;
use crate::txn::handle::{GiveBack, TxnGuard};
use crate::txn::snapshot_view::SnapshotView;
use crate::types::codec::{Key, Undecodable, Value};
use crate::types::index::Index;
use crate::types::isolation::Isolation;
use crate::types::lock_options::Lock;
use crate::types::table::Table;

/// Context of a snapshot: the threads that share the handle.
static SNAPSHOT: Site = Site::new(Component::Transaction, Pattern::Fixed, "snapshot handle");

/// A view of the database at one position among its commits.
///
/// It reads every commit that ended before it began, and no other. Its reads lock nothing, wait for
/// no transaction and hold up nobody; they only wait for the moment in which a commit takes its
/// place in the log. Together they are one serializable read-only transaction, as long as the
/// transactions that write are serializable. Clones share the snapshot, also between threads.
///
/// # Memory
///
/// While a snapshot exists, the database keeps for it one version, at most, of each row that was
/// changed since. [`Database::snapshots`] says how much that is. If all together keep more than
/// [`Options::version_bytes`](crate::Options::version_bytes), the one that keeps the most is ended:
/// its reads then get `snapshot_ended`.
///
/// ```
/// use foxton::{Database, Options, Table};
///
/// const STOCK: Table<str, u32> = Table::new("stock");
/// let db = Database::in_memory(Options::default())?;
/// db.run(|tx| tx.put(&STOCK, "apples", &3))?;
///
/// let snapshot = db.snapshot()?;
/// db.run(|tx| tx.put(&STOCK, "apples", &2))?; // waits for no reader
/// db.run(|tx| tx.put(&STOCK, "pears", &7))?;
/// assert_eq!(snapshot.get(&STOCK, "apples")?, Some(3));
/// assert_eq!(snapshot.range(&STOCK, ..)?.count()?, 1);
/// snapshot.end()?;
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    shared: Arc<SharedSnapshot>,
}

/// A snapshot, shared by its handles.
struct SharedSnapshot {
    /// The context in whose place it is registered, while no read uses it.
    bound: Mutex<Option<Box<BoundTxn>>>,
    view: SnapshotView,
    /// The newest commits that reads depend on: of all, and of those that wait to be durable.
    any: AtomicU64,
    sync: AtomicU64,
    db: Database,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("lsn", &self.shared.view.lsn)
            .finish_non_exhaustive()
    }
}

impl SharedSnapshot {
    /// Returns a context to read with: that of the snapshot, or another if a read uses it.
    fn take(&self) -> Result<Box<BoundTxn>> {
        self.db.share().engine().check_process()?;
        // Site: "snapshot handle".
        let own = shim::try_lock(&self.bound).and_then(|mut bound| bound.take());
        let mut bound = match own {
            Some(bound) => bound,
            None => self.db.acquire()?,
        };
        bound.txn.isolation = Isolation::Snapshot;
        bound.txn.view = Some(self.view);
        Ok(bound)
    }

    fn read<T>(&self, read: impl FnOnce(&mut BoundTxn) -> Result<T>) -> Result<T> {
        let mut guard = TxnGuard::lent(self.take()?, self);
        read(&mut guard)
    }

    /// Adds what the reads of `bound` depend on.
    fn gather(&self, bound: &BoundTxn) {
        let [any, sync] = bound.txn.reads.stamps();
        if any != 0 {
            // Relaxed: read by the end of the snapshot, which comes after all reads.
            // Site: "snapshot handle".
            self.any.fetch_max(any, Ordering::Relaxed);
            // Site: "snapshot handle".
            self.sync.fetch_max(sync, Ordering::Relaxed);
        }
    }

    /// Ends the snapshot, once; returns its context. A forked child only forgets it.
    fn release(&self) -> Option<Box<BoundTxn>> {
        if self.db.share().engine().is_inherited() {
            // Site: "snapshot handle".
            mem::forget(shim::try_lock(&self.bound).and_then(|mut bound| bound.take()));
            return None;
        }
        // Site: "snapshot handle".
        let mut bound = shim::lock(&self.bound).take()?;
        bound.ctx.engine.snapshots.deregister(self.view.place);
        bound.txn.view = None;
        Some(bound)
    }
}

impl GiveBack for SharedSnapshot {
    fn give_back(&self, bound: Box<BoundTxn>) {
        self.gather(&bound);
        let is_own = bound.ctx.place() == Some(self.view.place);
        match is_own {
            true => {
                bound.ctx.worker.account().passed(&SNAPSHOT);
                *shim::lock(&self.bound) = Some(bound);
            }
            false => BoundTxn::recycle(bound),
        }
    }
}

impl Drop for SharedSnapshot {
    fn drop(&mut self) {
        if let Some(bound) = self.release() {
            BoundTxn::recycle(bound);
        }
    }
}

/// Where a snapshot reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SnapshotAt {
    /// At the newest commit, however durable that is. The end of the snapshot waits until what was
    /// read is as durable as [`Options::durability`](crate::Options::durability) says.
    #[default]
    Latest,
    /// At the newest commit, after waiting until that is durable. No read returns what a crash can
    /// still undo.
    Durable,
}

/// An active snapshot: see [`Database::snapshots`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveSnapshot {
    /// Its position in the log; with [`SnapshotMethod::ReadViews`](crate::SnapshotMethod::ReadViews)
    /// its number.
    pub lsn: Lsn,
    /// Bytes of the versions that are kept for it, about.
    pub bytes: u64,
}

/// Versions kept for snapshots, and counts: see [`Database::version_stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VersionStats {
    /// Bytes of the versions that are kept, about.
    pub bytes: u64,
    /// Versions that were freed because no snapshot needed them.
    pub pruned: u64,
    /// Number of times that a snapshot was ended to free memory.
    pub ended: u64,
    /// Waits of reading threads for commits that were taking their place in the log.
    pub lsn_waits: CommitLsnWaits,
}

impl Database {
    /// Begins a snapshot at the newest commit.
    ///
    /// # Errors
    /// `snapshot_without_locks` if locking is off; a storage error if the log has failed.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.snapshot_at(SnapshotAt::Latest)
    }

    /// Begins a snapshot.
    ///
    /// # Errors
    /// As for [`snapshot`](Self::snapshot), and of the sync that [`SnapshotAt::Durable`] waits for.
    pub fn snapshot_at(&self, at: SnapshotAt) -> Result<Snapshot> {
        let mut bound = self.acquire()?;
        let mut view = match bound.register() {
            Ok(view) => view,
            Err(error) => {
                BoundTxn::recycle(bound);
                return Err(error);
            }
        };
        view.is_own = false;
        let snapshot = Snapshot {
            shared: Arc::new(SharedSnapshot {
                bound: Mutex::new(Some(bound)),
                view,
                any: AtomicU64::new(0),
                sync: AtomicU64::new(0),
                db: self.clone(),
            }),
        };
        if at == SnapshotAt::Durable {
            self.sync()?;
        }
        Ok(snapshot)
    }

    /// Calls `read` with a snapshot at the newest commit, and ends it.
    ///
    /// # Errors
    /// As for [`snapshot`](Self::snapshot) and [`Snapshot::end`], and those of `read`.
    ///
    /// ```
    /// # use foxton::{Database, Options, Table};
    /// # const STOCK: Table<str, u32> = Table::new("stock");
    /// # let db = Database::in_memory(Options::default())?;
    /// # db.run(|tx| tx.put(&STOCK, "apples", &3))?;
    /// let apples = db.view(|snapshot| snapshot.get(&STOCK, "apples"))?;
    /// assert_eq!(apples, Some(3));
    /// # Ok::<(), foxton::Error>(())
    /// ```
    pub fn view<T>(&self, read: impl FnOnce(&Snapshot) -> Result<T>) -> Result<T> {
        let snapshot = self.snapshot()?;
        let read = read(&snapshot)?;
        snapshot.end()?;
        Ok(read)
    }

    /// Returns the active snapshots, the oldest first: those of handles, and those of transactions
    /// at [`Isolation::Snapshot`].
    pub fn snapshots(&self) -> Vec<ActiveSnapshot> {
        let engine = self.share().engine();
        if engine.is_inherited() {
            return Vec::new();
        }
        let active = engine.snapshots.list().into_iter();
        active
            .map(|(_, lsn, bytes)| ActiveSnapshot { lsn, bytes })
            .collect()
    }

    /// Returns what is kept for snapshots.
    pub fn version_stats(&self) -> VersionStats {
        let snapshots = &self.share().engine().snapshots;
        // Relaxed: counted for people.
        VersionStats {
            bytes: snapshots.retained.load(Ordering::Relaxed),
            pruned: snapshots.pruned.load(Ordering::Relaxed),
            ended: snapshots.ended.load(Ordering::Relaxed),
            lsn_waits: snapshots.lsn_waits.read(),
        }
    }
}

impl Snapshot {
    fn run<P, T>(&self, operation: Operation<impl Prepare<P>, impl Attempt<P, T>>) -> Result<T> {
        self.shared.read(|bound| {
            let (prepared, mut attempt) = ((operation.prepare)(bound)?, operation.attempt);
            bound.block_on(operation.wait, |bound| attempt(bound, &prepared))
        })
    }

    /// Returns its position in the log: it reads the commits that end there or before.
    pub fn lsn(&self) -> Lsn {
        self.shared.view.lsn
    }

    /// Returns the value of `key`, or `None` if the key is absent.
    ///
    /// # Errors
    /// `key_too_long`, `undecodable`, `table_types`; `snapshot_ended` if it kept too much memory;
    /// `younger_than_snapshot` for a table that was converted since; `snapshot_of_pages` for a
    /// paged table.
    pub fn get<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<Option<V::Owned>> {
        self.run(operation::get(table, key, Lock::Shared.into()))
    }

    /// Calls `read` with the bytes of the value of `key`, without copying them.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_with<K: Key + ?Sized, V: Value + ?Sized, R>(
        &self,
        table: &Table<K, V>,
        key: &K,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.run(operation::get_with(table, key, Lock::Shared.into(), read))
    }

    /// Returns the values of `keys`, in their order.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_many<'k, K: Key + ?Sized + 'k, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
    ) -> Result<Vec<Option<V::Owned>>> {
        let take = |values: &mut Vec<_>, _, value: Option<&[u8]>| {
            values.push(value.map(V::decode).transpose());
        };
        let values = self.run(operation::get_many(table, keys, Lock::Shared.into(), take))?;
        Ok(values.into_iter().collect::<Result<_, Undecodable>>()?)
    }

    /// Returns the row that a unique index has under `key`.
    ///
    /// # Errors
    /// As for [`get`](Self::get); `younger_than_snapshot` for an index that was made since.
    pub fn get_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        index: &Index<I, K, V>,
        key: &I,
    ) -> Result<Option<(K::Owned, V::Owned)>> {
        self.run(operation::get_by(index, key, Lock::Shared.into()))
    }

    /// Returns the rows of `range`, in the order of their keys.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn range<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        range: impl RangeBounds<K>,
    ) -> Result<Range<'_, K, V>> {
        let bound = self.shared.take()?;
        let guard = TxnGuard::lent(bound, &*self.shared);
        Ok(Range(RangeScan::table(Ok(guard), table, range)))
    }

    /// Returns the rows whose index keys are in `range`, in the order of the index.
    ///
    /// # Errors
    /// As for [`get_by`](Self::get_by).
    pub fn range_by<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        index: &Index<I, K, V>,
        range: impl RangeBounds<I>,
    ) -> Result<IndexRange<'_, I, K, V>> {
        let bound = self.shared.take()?;
        let guard = TxnGuard::lent(bound, &*self.shared);
        Ok(IndexRange(RangeScan::index(Ok(guard), index, range)))
    }

    /// Ends the snapshot, if no clone of it is left, and waits until what was read is as durable as
    /// [`Options::durability`](crate::Options::durability) says. Mostly it does not wait. Dropping
    /// the handle ends it without waiting.
    ///
    /// # Errors
    /// A storage error, if the log has failed: a commit that was read may be lost.
    pub fn end(self) -> Result<()> {
        let Some(shared) = Arc::into_inner(self.shared) else {
            return Ok(());
        };
        shared.db.share().engine().check_process()?;
        let Some(mut bound) = shared.release() else {
            return Ok(());
        };
        let stamps = [&shared.any, &shared.sync].map(|stamp| stamp.load(Ordering::Relaxed));
        bound.txn.reads.set_stamps(stamps);
        let ended = bound.commit();
        BoundTxn::recycle(bound);
        ended
    }
}
