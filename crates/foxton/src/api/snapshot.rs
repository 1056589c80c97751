//! Snapshots: handles that read at one position of the log.

use std::fmt;
use std::mem;
use std::ops::RangeBounds;
use std::sync::Arc;

use foxton_lock::request::OwnerLabel as Label;
use foxton_log::Lsn;
use foxton_sync::shim::{self, AtomicU64, Mutex, Ordering};
use foxton_sync::site::{Component, Pattern, Site};

use crate::api::database::Database;
use crate::api::operation::{self, Attempt, Operation, Prepare};
use crate::api::range::{IndexRange, Range};
use crate::api::range_scan::RangeScan;
use crate::engine::commit_lsn_waits::CommitLsnWaits;
use crate::engine::idle_snapshot::IdleSnapshot;
use crate::error::Result;
use crate::txn::bound::BoundTxn;
use crate::txn::handle::{GiveBack, TxnGuard};
use crate::txn::snapshot_view::SnapshotView;
use crate::types::active_snapshot::ActiveSnapshot;
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
/// [`Options::version_warning`](crate::Options::version_warning) is called before.
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
    own: Mutex<OwnContext>,
    view: SnapshotView,
    /// The newest commits that reads depend on: of all, and of those that wait to be durable.
    any: AtomicU64,
    sync: AtomicU64,
    /// With an idle timeout.
    idle: Option<Arc<IdleSnapshot>>,
    db: Database,
}

/// The context in whose place a snapshot is registered.
struct OwnContext {
    state: ContextState,
    /// A label that the context is to have.
    label: Option<Label>,
}

enum ContextState {
    /// No read uses it.
    Here(Box<BoundTxn>),
    /// A read uses it, or had it and was forgotten.
    Reading,
    /// The snapshot has ended.
    Released,
}

impl OwnContext {
    /// Takes the context for a read.
    fn take(&mut self) -> Option<Box<BoundTxn>> {
        match mem::replace(&mut self.state, ContextState::Reading) {
            ContextState::Here(bound) => Some(bound),
            other => {
                self.state = other;
                None
            }
        }
    }

    fn put(&mut self, mut bound: Box<BoundTxn>) {
        if let Some(label) = self.label.take() {
            bound.ctx.owner.set_label(label);
        }
        self.state = ContextState::Here(bound);
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("lsn", &self.shared.view.lsn)
            .finish_non_exhaustive()
    }
}

impl SharedSnapshot {
    /// Returns a context to read with, of a thread or of a task: that of the snapshot, or another
    /// if a read uses it.
    fn attach(&self, is_of_task: bool) -> Result<TxnGuard<'_>> {
        self.db.share().engine().check_process()?;
        // Site: "snapshot handle".
        let own = shim::try_lock(&self.own).and_then(|mut own| own.take());
        let mut bound = match own {
            Some(bound) => bound,
            None => self.db.acquire()?,
        };
        if let Some(idle) = &self.idle {
            idle.begin_read();
        }
        bound.txn.isolation = Isolation::Snapshot;
        bound.txn.view = Some(self.view);
        bound.ctx.budget.set_of_task(is_of_task);
        Ok(TxnGuard::lent(bound, self))
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
            mem::forget(shim::try_lock(&self.own).and_then(|mut own| own.take()));
            return None;
        }
        let state = {
            // Site: "snapshot handle".
            let mut own = shim::lock(&self.own);
            mem::replace(&mut own.state, ContextState::Released)
        };
        if let ContextState::Released = state {
            return None;
        }
        if let Some(idle) = &self.idle {
            idle.end();
        }
        self.db
            .share()
            .engine()
            .snapshots
            .deregister(self.view.place);
        match state {
            ContextState::Here(mut bound) => {
                bound.txn.view = None;
                Some(bound)
            }
            // No context uses the place again: the forgotten read has the one that it is of.
            ContextState::Reading | ContextState::Released => None,
        }
    }

    /// Ends the snapshot, and returns a context that is to wait for what was read.
    fn end(&self) -> Result<Box<BoundTxn>> {
        self.db.share().engine().check_process()?;
        let bound = match self.release() {
            Some(bound) => bound,
            None => self.db.acquire()?,
        };
        let stamps = [&self.any, &self.sync].map(|stamp| stamp.load(Ordering::Relaxed));
        bound.txn.reads.set_stamps(stamps);
        Ok(bound)
    }
}

impl GiveBack for SharedSnapshot {
    fn give_back(&self, bound: Box<BoundTxn>) {
        self.gather(&bound);
        if let Some(idle) = &self.idle {
            idle.end_read(bound.ctx.engine.workers.clock().now());
        }
        let is_own = bound.ctx.place() == Some(self.view.place);
        match is_own {
            true => {
                bound.ctx.worker.account().passed(&SNAPSHOT);
                shim::lock(&self.own).put(bound);
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

/// Versions kept for snapshots, and counts: see [`Database::version_stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
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
        let snapshot = self.begin_snapshot()?;
        if at == SnapshotAt::Durable {
            self.sync()?;
        }
        Ok(snapshot)
    }

    /// Begins a snapshot at the newest commit, and waits for nothing.
    pub(super) fn begin_snapshot(&self) -> Result<Snapshot> {
        let mut bound = self.acquire()?;
        let mut view = match bound.register(false) {
            Ok(view) => view,
            Err(error) => {
                BoundTxn::recycle(bound);
                return Err(error);
            }
        };
        view.is_own = false;
        let engine = self.share().engine();
        let idle = engine.options.idle_timeout.map(|_| {
            bound.ctx.worker.account().passed(&SNAPSHOT);
            let idle = Arc::new(IdleSnapshot::new(engine, (view.lsn, view.place)));
            engine.idle.insert(&idle);
            idle
        });
        let state = ContextState::Here(bound);
        Ok(Snapshot {
            shared: Arc::new(SharedSnapshot {
                own: Mutex::new(OwnContext { state, label: None }),
                view,
                any: AtomicU64::new(0),
                sync: AtomicU64::new(0),
                idle,
                db: self.clone(),
            }),
        })
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
    /// at [`Isolation::Snapshot`]. Those that were ended are not among them.
    ///
    /// ```
    /// # use foxton::{Database, Options};
    /// let db = Database::in_memory(Options::default())?;
    /// let snapshot = db.snapshot()?;
    /// snapshot.set_label("monthly report");
    /// let active = db.snapshots();
    /// assert_eq!((active[0].lsn, &*active[0].label), (snapshot.lsn(), "monthly report"));
    /// # Ok::<(), foxton::Error>(())
    /// ```
    pub fn snapshots(&self) -> Vec<ActiveSnapshot> {
        let engine = self.share().engine();
        if engine.is_inherited() {
            return Vec::new();
        }
        engine.snapshots.active_list()
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
    /// Calls `read` with a context that reads at the snapshot.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&mut BoundTxn) -> Result<T>) -> Result<T> {
        read(&mut *self.attach(false)?)
    }

    /// Returns a context that reads at the snapshot, of a thread or of a task.
    pub(super) fn attach(&self, is_of_task: bool) -> Result<TxnGuard<'_>> {
        self.shared.attach(is_of_task)
    }

    fn run<P, T>(&self, operation: Operation<impl Prepare<P>, impl Attempt<P, T>>) -> Result<T> {
        self.read(|bound| {
            let (prepared, mut attempt) = ((operation.prepare)(bound)?, operation.attempt);
            bound.block_on(operation.wait, |bound| attempt(bound, &prepared))
        })
    }

    /// Names the snapshot for people: [`Database::snapshots`] shows it by this name. If another
    /// thread reads at it just then, it has the name afterwards.
    pub fn set_label(&self, label: impl Into<Label>) {
        if self.shared.db.share().engine().is_inherited() {
            return;
        }
        // Site: "snapshot handle".
        let mut own = shim::lock(&self.shared.own);
        match &mut own.state {
            ContextState::Here(bound) => bound.ctx.owner.set_label(label),
            _ => own.label = Some(label.into()),
        }
    }

    /// Returns its position in the log: it reads the commits that end there or before.
    pub fn lsn(&self) -> Lsn {
        self.shared.view.lsn
    }

    /// Returns the value of `key`, or `None` if the key is absent.
    ///
    /// # Errors
    /// `key_too_long`, `undecodable`, `table_types`; `snapshot_ended` if it kept too much memory;
    /// `ended_idle` if nobody has read at it for [`idle_timeout`](crate::Options::idle_timeout).
    /// `younger_than_snapshot` for a table that was converted since. A storage error, if a page of
    /// a paged table cannot be read.
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
    /// As for [`get`](Self::get); `index_younger_than_snapshot` for an index that was made since.
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
        let guard = self.attach(false)?;
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
        let guard = self.attach(false)?;
        Ok(IndexRange(RangeScan::index(Ok(guard), index, range)))
    }

    /// Ends the snapshot, if no clone of it is left, and waits until what was read is as durable as
    /// [`Options::durability`](crate::Options::durability) says. Mostly it does not wait. Dropping
    /// the handle ends it without waiting.
    ///
    /// # Errors
    /// A storage error, if the log has failed: a commit that was read may be lost.
    pub fn end(self) -> Result<()> {
        let Some(mut bound) = self.into_ended()? else {
            return Ok(());
        };
        let ended = bound.commit();
        BoundTxn::recycle(bound);
        ended
    }

    /// Ends the snapshot, if no clone of it is left. Returns what waits for what was read.
    pub(super) fn into_ended(self) -> Result<Option<Box<BoundTxn>>> {
        match Arc::into_inner(self.shared) {
            None => Ok(None),
            Some(shared) => shared.end().map(Some),
        }
    }
}
