//! Databases: open, begin a transaction, sync, checkpoint.

use std::fmt;
use std::fs;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use foxton_lock::any::{self, AnyManager};
use foxton_lock::name::KeyHasher;
use foxton_log::device::Device;
use foxton_log::device::file::{FileDevice, LOCK_FILE};
use foxton_log::format::superblock::{self, Superblock, SuperblockError};
use foxton_log::{LogOptions, LogWait, Lsn};
use foxton_store::paged::recovery::Analysis;
use foxton_sync::counter::WorkerCounters;
use foxton_sync::process::ProcessStamp;
use foxton_sync::shim::{AtomicBool, Mutex};
use foxton_sync::worker::Workers;

use crate::api::async_transaction::AsyncTransaction;
use crate::api::index_build;
use crate::api::transaction::Transaction;
use crate::catalog::Catalog;
use crate::catalog::conversions::CONVERSIONS;
use crate::checkpoint::needed_log::NeededLog;
use crate::checkpoint::{
    Checkpoint, CheckpointBuilder, CheckpointControl, CheckpointError, CheckpointStats,
};
use crate::engine::Engine;
use crate::engine::background::BackgroundThread;
use crate::engine::checkpoint_thread::CheckpointThread;
use crate::engine::context_pool::ContextPool;
use crate::engine::early_release::EarlyRelease;
use crate::engine::free_memory::FreedBytes;
use crate::engine::idle_timeout::{IdleRegistry, IdleTimeoutThread};
use crate::engine::open_handle::OpenHandle;
use crate::engine::own_thread;
use crate::engine::page_store::{self, PageStore};
use crate::engine::persistence::{CommitPositions, DatabaseFiles, Logged, Persistence, ReadOnly};
use crate::engine::snapshots::Snapshots;
use crate::error::{Error, Request, Result, Storage};
use crate::observe::server::{self, Server};
use crate::observe::wait_dump::Dumper;
use crate::options::{Observe, Options};
use crate::recovery::open_error::{
    device_error, no_database, no_superblock, not_created, not_locked, not_opened, not_read,
};
use crate::recovery::restart::{self, RecoveryReport, RestartError};
use crate::redo::record::RedoForm;
use crate::txn::bound::BoundTxn;
use crate::txn::former_rows;
use crate::txn::wait::yield_once;
use crate::types::isolation::Isolation;
use crate::types::limits::RESTORE_FILE;

/// An open database. A handle is cheap to clone; all clones are handles of one database.
///
/// # Closing
///
/// The directory is in use while a handle, a session, a transaction or a future of one exists. When
/// the last of them is dropped, the database closes: it finishes commits whose future was dropped,
/// syncs all commits that are not durable yet, and records in the log that it was closed. The drop
/// returns when all that is done. From then on the directory can be opened again, here or in
/// another process. So the last drop may take as long as a sync of the device, also in a task.
/// [`close`](Database::close) does the same, and returns the error if closing fails.
///
/// A waker may own the last handle. If it drops the handle on a thread of the database, another
/// thread closes the database, and the program cannot wait for that.
///
/// # Forking
///
/// A child made by `fork` cannot use a database that its parent opened. Every call that returns a
/// result returns `forked_child`; inspection finds nothing. Dropping what was inherited does
/// nothing, so parent and files are undisturbed. A child can open other databases, and give
/// them new cancel tokens. If it outlives a killed parent, the directory stays in use until
/// the child has ended too.
///
/// ```
/// use foxton::{Database, Table};
///
/// const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
///
/// # let path = std::env::temp_dir().join(format!("foxton-doc-{}", std::process::id()));
/// # fn main_(path: &std::path::Path) -> foxton::Result<()> {
/// let db = Database::open(path)?; // cheap to clone, Send + Sync
/// db.run(|tx| {
///     // again on deadlock, with backoff
///     let from = tx.get_for_update(&ACCOUNTS, &1)?.unwrap_or(0);
///     let to = tx.get_for_update(&ACCOUNTS, &2)?.unwrap_or(0);
///     tx.put(&ACCOUNTS, &1, &(from - 100))?;
///     tx.put(&ACCOUNTS, &2, &(to + 100))?;
///     Ok(())
/// })?;
/// # Ok(()) }
/// # main_(&path)?;
/// # std::fs::remove_dir_all(&path).unwrap();
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Clone)]
pub struct Database {
    inner: Arc<DatabaseInner>,
}

/// A database, shared by its handles.
struct DatabaseInner {
    pool: ContextPool<BoundTxn>,
    recovered: RecoveryReport,
    services: ServiceThreads,
    /// Its share in the open database, the last of its fields.
    open: Option<Arc<OpenHandle>>,
}

/// A database before it is open: its tables, and what becomes of their changes.
struct RestoredDatabase {
    persistence: Persistence,
    redo_form: RedoForm,
    catalog: Catalog,
    page_store: PageStore,
    workers: Workers,
    recovered: RecoveryReport,
}

/// Threads of an open database: observation, dumps of waits, checkpoints, idle timeout.
///
/// They work as long as there is a handle, and none of them keeps the database open.
#[derive(Default)]
struct ServiceThreads {
    _server: Option<Server>,
    _dumper: Option<Dumper>,
    _checkpoint: Option<CheckpointThread>,
    _idle_timeout: Option<IdleTimeoutThread>,
}

impl DatabaseInner {
    #[inline]
    fn open(&self) -> &Arc<OpenHandle> {
        self.open.as_ref().expect("taken only when it closes")
    }

    /// Ends what serves the handles, and returns their share. Returns `None` if this thread must
    /// not wait for that: then another thread does both.
    fn leave(&mut self) -> Option<Arc<OpenHandle>> {
        let open = self.open.take()?;
        let services = mem::take(&mut self.services);
        let pool = mem::replace(&mut self.pool, ContextPool::closed());
        if open.engine().is_inherited() {
            mem::forget((services, pool, open)); // I3 of `open_handle`
            return None;
        }
        let leave = move || {
            drop(services);
            // The boxes in the pool have shares, too.
            pool.close();
            open
        };
        if own_thread::is_current() {
            own_thread::close_elsewhere(|| drop(leave()));
            return None;
        }
        Some(leave())
    }
}

impl Drop for DatabaseInner {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("options", self.options())
            .field("log", &self.engine().log())
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Opens the database in the directory `path`, with default options. If the directory is empty
    /// or absent, makes a new database; its parent must exist.
    ///
    /// # Errors
    /// A storage error that names the obstacle: see [`Storage`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Database::open_with(path, Options::default())
    }

    /// As [`open`](Self::open), with `options`. With [`Options::read_only`] it makes no database
    /// and changes none.
    ///
    /// # Errors
    /// As for [`open`](Self::open); a request error if an option is out of its range.
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Database> {
        let path = path.as_ref();
        options.check()?;
        let device = match options.read_only {
            true => FileDevice::open(path).map_err(|error| not_read(path, error))?,
            false => {
                check_directory(path)?;
                FileDevice::create(path).map_err(|error| not_created(path, error))?
            }
        };
        Database::open_on_at(Arc::new(device), path, Some(path), options)
    }

    /// Makes a new database in memory: nothing of it remains when it is closed.
    ///
    /// It has rows and nothing else, no log and no checkpoints. So every
    /// [`Durability`](crate::Durability) is the same, [`sync`](Self::sync) and
    /// [`checkpoint`](Self::checkpoint) do nothing, and there is nothing to back up. A database
    /// that is [opened on](Self::open_on) a [`MemoryDevice`](crate::device::MemoryDevice) has all
    /// of that, in memory.
    ///
    /// # Errors
    /// A request error if an option is out of its range.
    pub fn in_memory(options: Options) -> Result<Database> {
        options.check()?;
        if options.read_only {
            return Err(Request::Option(
                "read_only needs a database that exists, and one in memory is new",
            )
            .into());
        }
        check_observe(None, &options)?;
        let workers = options.workers();
        let restored = RestoredDatabase {
            persistence: Persistence::InMemory(CommitPositions::default()),
            redo_form: RedoForm::Nothing,
            catalog: Catalog::new(workers.domain().clone(), options.resident_memory),
            page_store: PageStore::default(),
            workers,
            recovered: RecoveryReport::in_memory(),
        };
        Database::start(restored, Path::new("in memory"), None, options)
    }

    /// Opens the database on a device of the caller's own, such as one that fails on purpose.
    ///
    /// # Errors
    /// As for [`open_with`](Self::open_with).
    pub fn open_on(device: Arc<dyn Device>, options: Options) -> Result<Database> {
        options.check()?;
        Database::open_on_at(device, Path::new("the device"), None, options)
    }

    fn open_on_at(
        device: Arc<dyn Device>,
        path: &Path,
        directory: Option<&Path>,
        options: Options,
    ) -> Result<Database> {
        check_observe(directory, &options)?;
        let files = lock_files(device, path, &options)?;
        let redo_form = match files.superblock.incompat & superblock::PATCHES {
            0 => RedoForm::Values,
            _ => RedoForm::Patches,
        };
        let workers = options.workers();
        let catalog = Catalog::new(workers.domain().clone(), options.resident_memory);
        let mut analysis = page_store::begin_analysis(&files, path)?;
        let restored = restore(files, &options, &catalog, &workers, analysis.as_mut());
        let (persistence, recovered) = restored.map_err(|refused| match refused {
            RestartError::Log(error) => not_opened(path, error),
            RestartError::Checkpoint(error) => error.into_error(path),
        })?;
        let page_store =
            PageStore::open(&persistence, &catalog, analysis, &options, &workers, path)?;
        let restored = RestoredDatabase {
            persistence,
            redo_form,
            catalog,
            page_store,
            workers,
            recovered,
        };
        Database::start(restored, path, directory, options)
    }

    /// Starts a database whose tables are restored.
    fn start(
        restored: RestoredDatabase,
        path: &Path,
        directory: Option<&Path>,
        options: Options,
    ) -> Result<Database> {
        let RestoredDatabase {
            persistence,
            redo_form,
            catalog,
            page_store,
            workers,
            recovered,
        } = restored;
        let locks = Arc::new(AnyManager::new(&lock_options(&options)));
        let snapshots = Snapshots::new(
            options.snapshots,
            options.snapshot_linger,
            workers.failpoints().clone(),
        );
        let engine = Engine {
            snapshots,
            background: BackgroundThread::new(locks.clone(), workers.clone()),
            locks,
            persistence,
            redo_form,
            hasher: KeyHasher::new(RandomState::new().hash_one(0)),
            workers,
            catalog,
            page_store,
            counters: WorkerCounters::new(),
            open: Mutex::new(false),
            failed: AtomicBool::new(false),
            early: EarlyRelease::default(),
            admission: options.admission.open(),
            freed: FreedBytes::default(),
            idle: IdleRegistry::default(),
            process: ProcessStamp::new(),
            options,
            location: path.display().to_string(),
            opened: Instant::now(),
        };
        let engine = Arc::new(engine);
        let worker = engine.workers.worker();
        let recalled = engine.catalog.recall_conversions(&worker);
        recalled.map_err(|what| Storage::Damaged {
            place: format!("table {}", CONVERSIONS.name()),
            what,
        })?;
        index_build::recall(&engine)?;
        former_rows::free_in_background(&engine, &worker);
        drop(worker);
        let inner = DatabaseInner {
            services: ServiceThreads::start(&engine, directory)?,
            pool: ContextPool::new(|bound: &BoundTxn| bound.ctx.worker.is_late()),
            recovered,
            open: Some(Arc::new(OpenHandle::new(engine))),
        };
        let db = Database {
            inner: Arc::new(inner),
        };
        for declared in &db.options().indexes.0 {
            let mut tx = db.begin_busy()?;
            index_build::create(&mut tx, declared, db.options().progress.as_ref())?;
            tx.commit()?;
        }
        Ok(db)
    }

    /// Closes the database, if this is its last handle: what dropping the handle does, with a
    /// result. When it returns `Ok`, every commit is durable and the directory is free. Blocks the
    /// thread, at most as long as the device needs for a sync, or for the end of a step of a
    /// checkpoint.
    ///
    /// It takes nothing away from other parts of the program. If they still have a clone, a
    /// session, a transaction or a future of one, this handle is dropped and the database stays
    /// open for them.
    ///
    /// ```
    /// use foxton::{Database, Table};
    ///
    /// const HITS: Table<str, u64> = Table::new("hits");
    ///
    /// # let path = std::env::temp_dir().join(format!("foxton-close-{}", std::process::id()));
    /// # fn main_(path: &std::path::Path) -> foxton::Result<()> {
    /// let db = Database::open(path)?;
    /// db.run(|tx| tx.put(&HITS, "/", &1))?;
    /// let tx = db.begin()?;
    /// assert_eq!(db.close().unwrap_err().code(), "still_open");
    /// drop(tx); // the last: it closes
    ///
    /// let db = Database::open(path)?;
    /// db.close()?;
    /// # Ok(()) }
    /// # main_(&path)?;
    /// # std::fs::remove_dir_all(&path).unwrap();
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// `still_open`, if the program has other handles. A storage error, if the log has failed, now
    /// or before: all commits that an earlier call has answered for as durable are safe, and
    /// opening the database again shows which others are there.
    pub fn close(self) -> Result<()> {
        self.engine().check_process()?;
        let still_open = || Error::from(Request::StillOpen);
        let mut inner = Arc::into_inner(self.inner).ok_or_else(still_open)?;
        let open = inner.leave().and_then(Arc::into_inner);
        open.ok_or_else(still_open)?.close()
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// A storage error if the log has failed; a request error if locking is off and another
    /// transaction is open.
    #[inline]
    pub fn begin(&self) -> Result<Transaction> {
        let mut bound = self.acquire()?;
        bound.ctx.take_slot();
        Ok(Transaction::new(bound))
    }

    /// Begins a transaction whose operations are futures. Beginning itself never waits; the first
    /// operation waits for [admission](crate::Options::admission).
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub fn begin_async(&self) -> Result<AsyncTransaction> {
        let mut bound = self.acquire()?;
        bound.ctx.needs_slot = bound.ctx.engine.admission.is_some();
        Ok(AsyncTransaction::new(bound))
    }

    /// Waits until every earlier commit is durable, whatever its [`Durability`](crate::Durability):
    /// from then on no power cut takes it away.
    ///
    /// A program that commits *buffered* or *none* gets from it a point up to which all is safe,
    /// before it acknowledges a message or closes the database. It costs one sync of the log,
    /// shared with other threads that wait for one, or nothing if all is durable.
    ///
    /// ```
    /// use foxton::{Database, Durability, Options, Table};
    ///
    /// const READINGS: Table<u64, f64> = Table::new("readings");
    ///
    /// # let path = std::env::temp_dir().join(format!("foxton-sync-{}", std::process::id()));
    /// # fn main_(path: &std::path::Path) -> foxton::Result<()> {
    /// let mut options = Options::default();
    /// options.durability = Durability::None;
    /// let db = Database::open_with(path, options)?;
    /// for minute in 0..60 {
    ///     db.run(|tx| tx.put(&READINGS, &minute, &21.5))?;
    /// }
    /// db.sync()?; // the whole hour is safe, or we hear of it
    /// # Ok(()) }
    /// # main_(&path)?;
    /// # std::fs::remove_dir_all(&path).unwrap();
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// A storage error, if the log has failed, now or before. It is final: after a failed sync the
    /// database does not know how much of the log is durable, so it takes no more commits, and
    /// every further call returns the same error. All commits that an earlier call has answered for
    /// are safe. Opening the database again shows which others are there.
    pub fn sync(&self) -> Result<()> {
        let engine = self.engine();
        engine.check_process()?;
        let Some(log) = engine.log() else {
            return Ok(());
        };
        let worker = engine.workers.worker();
        let synced = log.wait_durable(&worker, log.end(&worker));
        synced
            .and_then(|()| log.check())
            .map_err(|error| engine.log_failed(error))
    }

    /// As [`sync`](Self::sync), for tasks: yields while the device works, and once in any case.
    ///
    /// # Errors
    /// As for [`sync`](Self::sync).
    pub async fn sync_async(&self) -> Result<()> {
        let engine = self.engine();
        engine.check_process()?;
        yield_once().await;
        engine.check_process()?;
        let Some(log) = engine.log() else {
            return Ok(());
        };
        let worker = engine.workers.worker();
        let end = log.end(&worker);
        let mut pending = LogWait::default();
        let synced = poll_fn(move |context| log.poll_durable(&worker, &mut pending, end, context));
        synced
            .await
            .and_then(|()| log.check())
            .map_err(|error| engine.log_failed(error))
    }

    /// Makes a checkpoint of everything that is committed now, and removes the log before it, so
    /// the next restart is as short as it can be.
    ///
    /// Other threads do not wait for it, unless they meanwhile write more than
    /// [`Options::checkpoint_log_bytes`] of log. The database also makes checkpoints itself, as
    /// that option says.
    ///
    /// ```
    /// use foxton::{Database, Options, Table, device::MemoryDevice};
    /// const USERS: Table<str, u32> = Table::new("users");
    /// let device = std::sync::Arc::new(MemoryDevice::new());
    /// let db = Database::open_on(device, Options::default())?;
    /// db.run(|tx| tx.put(&USERS, "ada", &1815))?;
    /// let made = db.checkpoint()?;
    /// assert_eq!(made.layers, 1);
    /// assert_eq!(db.checkpoints().made, 1);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// A request error if the database was opened to be read.
    /// A storage error if the device fails or the log is damaged. Then the checkpoint before is
    /// still valid. If the device failed while the database was switching to the new checkpoint, or
    /// the log could not be synced, the database takes no more commits.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        let engine = self.engine();
        engine.check_process()?;
        engine.check_writable()?;
        let Some(logged) = engine.logged() else {
            return Ok(Checkpoint::default());
        };
        let made = engine.make_checkpoint(logged, &engine.workers.worker());
        made.map_err(|error| match error {
            CheckpointError::Failed(error) => engine.log_failed(error),
            // The database goes on.
            other => other.into_error(Path::new(&engine.location)).in_passing(),
        })
    }

    /// Returns counts of the checkpoints since the database was opened, and the progress of the one
    /// that is being made.
    pub fn checkpoints(&self) -> CheckpointStats {
        let engine = self.engine();
        if engine.is_inherited() {
            return CheckpointStats::default();
        }
        let logged = engine.logged();
        logged.map_or_else(CheckpointStats::default, |logged| CheckpointStats {
            log_holder: logged.log_holder(),
            ..logged.checkpoints.stats()
        })
    }

    /// Returns a summary of the log that opening the database replayed.
    pub fn recovered(&self) -> &RecoveryReport {
        &self.inner.recovered
    }

    /// Returns the options that the database was opened with.
    pub fn options(&self) -> &Options {
        &self.engine().options
    }

    /// Returns the requests of tests for the [failpoints](crate::testing::failpoint) of this
    /// database.
    #[cfg(feature = "hooks")]
    pub fn failpoints(&self) -> &foxton_sync::failpoint::Failpoints {
        self.engine().workers.failpoints()
    }

    /// Returns the clock of intervals and of the waits of tasks. Waits of threads use real time.
    #[cfg(feature = "hooks")]
    pub fn clock(&self) -> &foxton_sync::clock::Clock {
        self.engine().workers.clock()
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Engine {
        self.inner.open().engine()
    }

    /// Returns the share of this handle in the open database.
    pub(crate) fn share(&self) -> &Arc<OpenHandle> {
        self.inner.open()
    }

    /// Begins a transaction of the database itself, which is never idle.
    pub(crate) fn begin_busy(&self) -> Result<Transaction> {
        let mut bound = self.acquire()?;
        if bound.txn.isolation == Isolation::Snapshot {
            // It must see what it changes, whatever the program's transactions read.
            bound.txn.isolation = Isolation::Serializable;
        }
        Ok(Transaction::busy(bound))
    }

    /// Acquires a box for a transaction or a session.
    #[inline]
    pub(crate) fn acquire(&self) -> Result<Box<BoundTxn>> {
        BoundTxn::acquire(self.inner.open(), &self.inner.pool)
    }
}

impl ServiceThreads {
    fn start(engine: &Arc<Engine>, directory: Option<&Path>) -> Result<ServiceThreads> {
        let mut threads = ServiceThreads::default();
        let at = match &engine.options.observe {
            Observe::Off => None,
            Observe::InDirectory => Some(None),
            Observe::At(path) => Some(Some(path.as_path())),
        };
        if let Some(at) = at {
            threads.observe(engine, directory, at)?;
        }
        if let Some(bound) = engine.options.dump_waits_after {
            let dumper = Dumper::start(engine, bound).map_err(|source| {
                let doing = "open what dumps of waits go to".to_owned();
                Storage::Io { doing, source }
            })?;
            threads._dumper = Some(dumper);
        }
        if let Some(timeout) = engine.options.idle_timeout {
            let thread =
                IdleTimeoutThread::start(engine, timeout).map_err(|source| Storage::Io {
                    doing: "start the thread that ends idle transactions".to_owned(),
                    source,
                })?;
            threads._idle_timeout = Some(thread);
        }
        if engine.options.checkpoint_log_bytes < u64::MAX
            && let Some(logged) = engine.logged()
        {
            let thread = CheckpointThread::start(engine, logged).map_err(|source| Storage::Io {
                doing: "start the thread that makes checkpoints".to_owned(),
                source,
            })?;
            threads._checkpoint = Some(thread);
        }
        Ok(threads)
    }

    fn observe(
        &mut self,
        engine: &Arc<Engine>,
        directory: Option<&Path>,
        at: Option<&Path>,
    ) -> Result<()> {
        let started = server::bind(directory, at).and_then(|bound| Server::start(engine, bound));
        let server = started.map_err(|source| Storage::Io {
            doing: "make the socket by which the database is observed".to_owned(),
            source,
        })?;
        self._server = Some(server);
        Ok(())
    }
}

/// Refuses a socket in the directory of a database that has none.
fn check_observe(directory: Option<&Path>, options: &Options) -> Result<()> {
    if directory.is_none() && options.observe == Observe::InDirectory {
        return Err(Request::Option(
            "observe = Beside needs a directory, and this database has none: use At",
        )
        .into());
    }
    Ok(())
}

/// Locks the directory, alone or among readers, and reads its superblock.
fn lock_files(device: Arc<dyn Device>, path: &Path, options: &Options) -> Result<DatabaseFiles> {
    let locked = match options.read_only {
        true => device.lock_shared(),
        false => device.lock(),
    };
    locked.map_err(|error| not_locked(path, error))?;
    let superblock = match options.read_only {
        true => Superblock::read(&*device).map_err(|error| no_superblock(&*device, path, error)),
        false => read_or_create(&*device, path),
    }?;
    Ok(DatabaseFiles { device, superblock })
}

/// Restores the tables from the files, into an empty catalog.
fn restore(
    files: DatabaseFiles,
    options: &Options,
    catalog: &Catalog,
    workers: &Workers,
    analysis: Option<&mut Analysis>,
) -> Result<(Persistence, RecoveryReport), RestartError> {
    let identity = files.superblock.identity;
    if options.read_only {
        let device = &*files.device;
        let recovered = restart::read(device, &identity, options, catalog, workers, analysis)?;
        let end = recovered.log_end;
        return Ok((Persistence::ReadOnly(ReadOnly { end, files }), recovered));
    }
    let log_options = log_options(options, workers);
    let anchor = analysis.as_ref().and_then(|analysis| analysis.anchor());
    let pages_from = anchor.map_or(Lsn::MAX, |anchor| anchor.needed_from);
    let pages_from = Arc::new(NeededLog::new(pages_from));
    let (log, manifest, recovered) = restart::restart(
        &files.device,
        identity,
        options,
        log_options,
        catalog,
        workers,
        analysis,
    )?;
    let builder = CheckpointBuilder::new(
        files.device.clone(),
        identity,
        manifest,
        recovered.log_end,
        pages_from.clone(),
    );
    let (every, rate) = (options.checkpoint_log_bytes, options.checkpoint_rate);
    let checkpoints = Arc::new(CheckpointControl::new(builder, every, rate));
    let most = options.max_kept_log_bytes;
    let logged = Logged::new(log, checkpoints, files, pages_from, most);
    Ok((Persistence::Logged(logged), recovered))
}

fn lock_options(options: &Options) -> any::Options {
    let mut lock_options = any::Options::default();
    lock_options.kind = options.lock_manager;
    lock_options.inherit = options.lock_inheritance;
    lock_options.latch = options.latch;
    lock_options.bucket_count = options.lock_buckets.next_power_of_two();
    lock_options.escalation = options.lock_escalation;
    lock_options.owner_bytes = options.transaction_lock_bytes;
    lock_options.total_bytes = options.lock_bytes;
    lock_options.victim = options.victim;
    lock_options.own_threads = options.lock_threads;
    lock_options
}

fn log_options(options: &Options, workers: &Workers) -> LogOptions {
    let mut log_options = LogOptions::default();
    log_options.segment_bytes = options.log_segment_bytes;
    log_options.buffer_bytes = options.log_buffer_bytes;
    log_options.buffer = options.log_buffer;
    log_options.sync_interval = options.sync_interval;
    log_options.workers = Some(workers.clone());
    log_options
}

/// Refuses a directory that holds other things, before anything in it is touched.
fn check_directory(path: &Path) -> Result<()> {
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == NotADirectory && path.symlink_metadata().is_ok() => {
            let found = "it is a file, and a database is a directory".to_owned();
            return Err(no_database(path, found));
        }
        // The error comes from making the directory, where the reason is known.
        Err(error)
            if [InvalidFilename, InvalidInput, NotADirectory, NotFound].contains(&error.kind()) =>
        {
            return Ok(());
        }
        entries => entries.map_err(|error| device_error(path, "read", error))?,
    };
    let mut others = Vec::new();
    for entry in entries {
        let name = entry
            .map_err(|error| device_error(path, "read", error))?
            .file_name();
        // If another process is restoring a database there, it holds the directory's lock, which is
        // requested first.
        if name == superblock::FILE || name == RESTORE_FILE {
            return Ok(());
        }
        // Files that a creation leaves behind if it is cut short.
        if name != LOCK_FILE && name != superblock::UNFINISHED {
            others.push(name);
        }
    }
    others.sort();
    match others.first() {
        _ if others
            .iter()
            .any(|name| name == crate::types::limits::BACKUP_FILE) =>
        {
            let found = "it is a backup, of which `foxton restore` makes a database".to_owned();
            Err(no_database(path, found))
        }
        None => Ok(()),
        Some(first) => {
            let found = format!(
                "it holds {} and no file {}",
                first.display(),
                superblock::FILE
            );
            Err(no_database(path, found))
        }
    }
}

fn read_or_create(device: &dyn Device, path: &Path) -> Result<Superblock> {
    match Superblock::read(device) {
        Err(SuperblockError::Missing) => {}
        read => return read.map_err(|error| no_superblock(device, path, error)),
    }
    let names = device
        .list()
        .map_err(|error| device_error(path, "list", error))?;
    if names.iter().any(|name| name == RESTORE_FILE) {
        let path = path.into();
        return Err(Storage::NotRestored { path }.into());
    }
    if let Some(other) = names.iter().find(|&name| name != superblock::UNFINISHED) {
        let found = format!("it holds {other} and no file {}", superblock::FILE);
        return Err(no_database(path, found));
    }
    // Two halves from the operating system's randomness; unique is all it must be.
    let identity = (
        RandomState::new().hash_one(1),
        RandomState::new().hash_one(2),
    );
    let identity = u128::from(identity.0) << 64 | u128::from(identity.1);
    let mut superblock = Superblock::new(identity.to_be_bytes());
    superblock.incompat = superblock::PATCHES;
    superblock
        .create(device)
        .map_err(|error| no_superblock(device, path, error))?;
    Ok(superblock)
}
