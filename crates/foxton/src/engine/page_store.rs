//! Page store: the page file of a database, its buffer pool, and what pages need of the engine.
//!
//! A database without paged tables has none of it. The first paged table makes the page file, and
//! opening a database with paged tables opens it. Changes of pages are in the database's log, and a
//! restart redoes and undoes them ([`foxton_store::paged::recovery`]). A database in memory has no
//! log, and one that is opened to be read changes no page.
//!
//! # Invariants
//!
//! * I1  The page file, the superblock's feature and the first checkpoint of pages are durable
//!   before the record of the first paged table is in the log. A page file without a paged table is
//!   left over, and has nothing that was committed.
//! * I2  The log is kept from the position on that the last checkpoint of pages needs
//!   ([`needed_log`](crate::checkpoint::needed_log)).
//! * I3  After a failure no transaction that has used a paged table commits: a change may not have
//!   been undone, or cannot be written. The failure is recorded before the locks are released, so a
//!   transaction that sees such a change finds it at its commit. Its records get no end, so a
//!   restart completes the undo.

use std::io;
use std::mem;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use foxton_log::device::Device;
use foxton_log::device::memory::MemoryDevice;
use foxton_log::format::superblock::{self, Superblock};
use foxton_log::{LogError, Lsn, OpenError};
use foxton_store::TooLong;
use foxton_store::paged::btree::{PagedTree, TableDirectory, TreeError};
use foxton_store::paged::owner::PageOwner;
use foxton_store::paged::page::PageSize;
use foxton_store::paged::page_log::{
    LogSpace, LoggedChange, LoggedRow, PageEntry, PageRecord, RecoveryLog, Unlogged,
    log_compensation,
};
use foxton_store::paged::pool::{BufferPool, DirtyBound, DirtyWait, PoolError, PoolThreads};
use foxton_store::paged::recovery::error::AnchorError;
use foxton_store::paged::recovery::restart::restart;
use foxton_store::paged::recovery::{
    ANCHOR_FILE, Analysis, CheckpointSummary, PageCheckpointer, PageTransaction, Recovery,
    RecoveryError, RestartOptions, RestartResult, UndoCursor, UndoPosition, WriteError,
};
use foxton_store::paged::space::{DoublewriteBuffer, PageFile, PageFileError, format_file};
use foxton_sync::shim::{self, Mutex};
use foxton_sync::worker::{Worker, Workers};

use super::early_release::StampTable;
use super::large_values::LargeValues;
use super::page_waits::{PageNeed, PageWaitThreads};
use super::persistence::{DatabaseFiles, Logged, Persistence};
use crate::catalog::table_store::TableStore;
use crate::catalog::{Catalog, OpenTable};
use crate::checkpoint::CheckpointError;
use crate::checkpoint::needed_log::NeededLog;
use crate::error::{Conflict, Error, Request, Result, Storage};
use crate::options::{Options, page_count};

/// Name of the page file.
pub(crate) const FILE: &str = "rows";
/// Name of the doublewrite buffer.
pub(crate) const DOUBLEWRITE_FILE: &str = "rows-double";

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct PageStore {
    open: OnceLock<OpenPages>,
    /// Bytes of memory that were set before there were pages.
    creation: Mutex<Option<usize>>,
}

/// The page store of a database with paged tables.
#[derive(Debug)]
pub(crate) struct OpenPages {
    pub(crate) directory: TableDirectory,
    pub(crate) stamps: StampTable,
    pub(crate) waits: PageWaitThreads,
    pub(crate) values: LargeValues,
    /// Held while the page file is shrunk.
    pub(crate) shrinking: Mutex<()>,
    pool: Arc<BufferPool>,
    /// None if the database was opened to be read.
    threads: Mutex<Option<PoolThreads>>,
    /// None if changes are not logged.
    logging: Option<PageLogging>,
    is_read_only: bool,
    /// The first failure after which nothing commits (I3).
    failure: OnceLock<String>,
}

/// Logged pages: their recovery, their owner and their checkpoints.
#[derive(Debug)]
struct PageLogging {
    recovery: Arc<Recovery>,
    owner: PageOwner,
    checkpoints: Mutex<PageCheckpoints>,
    /// Transactions that are undone and whose end is not logged yet.
    unended: Mutex<Vec<PageTransaction>>,
    pages_from: Arc<NeededLog>,
}

#[derive(Debug)]
struct PageCheckpoints {
    checkpointer: PageCheckpointer,
    /// While the log ends here, a restart has nothing to redo or undo.
    clean_at: Option<Lsn>,
}

impl PageCheckpoints {
    /// Records a checkpoint that was made.
    fn record(&mut self, made: &CheckpointSummary, pages_from: &NeededLog) {
        let is_clean = made.transactions == 0 && made.pages == 0;
        self.clean_at = is_clean.then_some(made.anchor.durable);
        pages_from.set(made.anchor.needed_from);
    }
}

/// Number of a table among the trees, of which number 0 is the directory.
pub(crate) fn tree_number(table: &OpenTable) -> u64 {
    table.tree_number()
}

impl PageStore {
    /// Returns the page store, if the database has paged tables.
    #[inline]
    pub(crate) fn get(&self) -> Option<&OpenPages> {
        self.open.get()
    }

    /// Opens the page file of a database whose tables are restored. `analysis` was shown its log.
    ///
    /// # Errors
    /// `not_closed`, if pages lack changes and the database is opened to be read. `damaged`, if a
    /// file of the pages is missing or damaged.
    pub(crate) fn open(
        persistence: &Persistence,
        catalog: &Catalog,
        analysis: Option<Analysis>,
        options: &Options,
        workers: &Workers,
        path: &Path,
    ) -> Result<PageStore> {
        let store = PageStore::default();
        let Some(files) = persistence.files() else {
            return Ok(store);
        };
        let device = &*files.device;
        let device_failed = |doing: &str, source| {
            let doing = format!("{doing} {}", path.join(FILE).display());
            Error::from(Storage::from_io(path, doing, source))
        };
        if !catalog.has_paged_tables() {
            if let Some(logged) = persistence.logged() {
                let removed = remove_left_over(device);
                removed.map_err(|error| device_failed("remove", error))?;
                logged.pages_from.set(Lsn::MAX);
            }
            return Ok(store);
        }
        let identity = files.superblock.identity;
        let Some(analysis) = analysis else {
            let place = path.join(ANCHOR_FILE).display().to_string();
            let what =
                "the file, which locates the last checkpoint of pages, is missing".to_owned();
            return Err(Storage::Damaged { place, what }.into());
        };
        if persistence.logged().is_none() && !analysis.is_clean() {
            let file = path.join(FILE);
            return Err(Storage::NotClosed { file }.into());
        }
        let file = open_file(device, options, identity);
        let file = file.map_err(|error| file_error(&error, path))?;
        let pages = match persistence.logged() {
            None => {
                let worker = workers.worker();
                OpenPages::unlogged(file, persistence.end(&worker), options, workers)
            }
            // They may be visible and not durable, and a page that is read counts as clean.
            Some(logged) => (file.write_header_again().map_err(MakeError::from))
                .and_then(|()| OpenPages::logged(logged, file, analysis, options, workers, path)),
        };
        let opened = store
            .open
            .set(pages.map_err(|error| error.into_error(path))?);
        opened.expect("a new store is not open");
        Ok(store)
    }

    /// Makes the page file, unless there is one (I1).
    pub(crate) fn make(
        &self,
        persistence: &Persistence,
        options: &Options,
        workers: &Workers,
        path: &Path,
    ) -> Result<()> {
        if self.open.get().is_some() {
            return Ok(());
        }
        // Site: "page waits": once for a database.
        let memory = shim::lock(&self.creation);
        if self.open.get().is_some() {
            return Ok(());
        }
        let pages = match persistence.logged() {
            None => {
                let file = new_file(&MemoryDevice::new(), options.page_size(), [0; 16]);
                file.and_then(|file| OpenPages::unlogged(file, Lsn::ZERO, options, workers))
            }
            Some(logged) => make_files(logged, options, workers, path),
        };
        let pages = pages.map_err(|error| error.into_error(path).in_passing())?;
        if let Some(bytes) = *memory {
            pages.set_memory(&workers.worker(), bytes)?;
        }
        let opened = self.open.set(pages);
        opened.expect("the mutex lets one thread open it");
        Ok(())
    }

    /// Changes the memory of pages, or of those that will be made.
    ///
    /// # Errors
    /// A request error, if it is too little or too much.
    pub(crate) fn set_memory(
        &self,
        worker: &Worker,
        options: &Options,
        bytes: usize,
    ) -> Result<()> {
        if bytes > options.max_page_memory.unwrap_or(options.page_memory) {
            return Err(Request::Option(
                "the memory for pages cannot be more than max_page_memory, for which address \
                 space is reserved; open the database with a larger one",
            )
            .into());
        }
        // Site: "page waits": seldom.
        let mut memory = shim::lock(&self.creation);
        if let Some(pages) = self.open.get() {
            return pages.set_memory(worker, bytes);
        }
        let (_, maximum) = options.page_counts(options.page_size())?;
        page_count(bytes, maximum, options.page_size())?;
        *memory = Some(bytes);
        Ok(())
    }
}

/// Begins the restart of pages of the database in `files`, if it has checkpoints of pages.
pub(crate) fn begin_analysis(files: &DatabaseFiles, path: &Path) -> Result<Option<Analysis>> {
    let superblock = &files.superblock;
    if superblock.incompat & superblock::PAGES == 0 {
        return Ok(None);
    }
    let analysis = Analysis::begin(&*files.device, &superblock.identity, None);
    let analysis = analysis.map_err(|error| recovery_error(error, path))?;
    Ok(Some(analysis).filter(|analysis| analysis.anchor().is_some()))
}

fn make_files(
    logged: &Logged,
    options: &Options,
    workers: &Workers,
    path: &Path,
) -> Result<OpenPages, MakeError> {
    let (device, identity) = (&logged.files.device, logged.files.superblock.identity);
    // One that was cut short, just now.
    remove_left_over(&**device)?;
    let mut file = new_file(&**device, options.page_size(), identity)?;
    if !options.cached_pages {
        file.make_direct(&**device, FILE)?;
    }
    // Read again, because this program may have changed it.
    let mut superblock = Superblock::read(&**device).map_err(io::Error::other)?;
    if superblock.incompat & superblock::PAGES == 0 {
        superblock.incompat |= superblock::PAGES;
        superblock.replace(&**device).map_err(io::Error::other)?;
    }
    let worker = workers.worker();
    logged.pages_from.set(logged.log.end(&worker)); // I2: before the mark.
    let analysis = Analysis::begin_new(logged.log.end(&worker));
    OpenPages::logged(logged, file, analysis, options, workers, path)
}

/// Opens the page file.
fn open_file(
    device: &dyn Device,
    options: &Options,
    identity: [u8; 16],
) -> Result<PageFile, PageFileError> {
    let mut file = PageFile::open(device, FILE, identity)?;
    if !options.cached_pages {
        file.make_direct(device, FILE)?;
    }
    Ok(file)
}

fn new_file(
    device: &dyn Device,
    size: PageSize,
    identity: [u8; 16],
) -> Result<PageFile, MakeError> {
    let file = PageFile::create(device, FILE, size, identity)?;
    format_file(&file)?;
    Ok(file)
}

/// Removes the files of pages of a database without paged tables.
fn remove_left_over(device: &dyn Device) -> io::Result<()> {
    let names = device.list()?;
    let left: Vec<_> = [ANCHOR_FILE, DOUBLEWRITE_FILE, FILE]
        .into_iter()
        .filter(|file| names.iter().any(|name| name == file))
        .collect();
    for file in &left {
        device.remove(file)?;
    }
    match left.is_empty() {
        true => Ok(()),
        false => device.sync_dir(),
    }
}

/// The page store could not be made.
enum MakeError {
    File(PageFileError),
    Io(io::Error),
    Request(Error),
}

impl From<PageFileError> for MakeError {
    fn from(error: PageFileError) -> MakeError {
        MakeError::File(error)
    }
}

impl From<io::Error> for MakeError {
    fn from(error: io::Error) -> MakeError {
        MakeError::Io(error)
    }
}

impl MakeError {
    fn into_error(self, path: &Path) -> Error {
        match self {
            MakeError::File(error) => file_error(&error, path),
            MakeError::Io(error) => {
                let doing = format!("make {}", path.join(FILE).display());
                Storage::from_io(path, doing, error).into()
            }
            MakeError::Request(error) => error,
        }
    }
}

/// Returns the error of a restart of pages.
fn recovery_error(error: RecoveryError<TreeError>, path: &Path) -> Error {
    match error {
        RecoveryError::Log(error)
        | RecoveryError::Pages(TreeError::Log(error) | TreeError::Pool(PoolError::Log(error))) => {
            error.into()
        }
        RecoveryError::Pages(TreeError::Pool(
            PoolError::Read(error) | PoolError::Write(error) | PoolError::NoPages(error),
        )) => file_error(&error, path),
        RecoveryError::Anchor(AnchorError::Device { operation, source }) => {
            let doing = format!("{operation} {}", path.join(ANCHOR_FILE).display());
            Storage::from_io(path, doing, source).into()
        }
        RecoveryError::Anchor(AnchorError::Newer(version)) => {
            let found = format!("file {ANCHOR_FILE} has format {version}");
            Storage::FutureFormat { found }.into()
        }
        RecoveryError::Read(error) => match *error {
            OpenError::Device(failure) => {
                let doing = format!("{} {}", failure.operation, failure.file);
                Storage::from_io(path, doing, failure.source).into()
            }
            other => Storage::Damaged {
                place: path.display().to_string(),
                what: other.to_string(),
            }
            .into(),
        },
        other => Storage::Damaged {
            place: path.join(FILE).display().to_string(),
            what: other.to_string(),
        }
        .into(),
    }
}

/// Returns the error of a page file.
fn file_error(error: &PageFileError, path: &Path) -> Error {
    let file = path.join(FILE).display().to_string();
    match error {
        PageFileError::Device { call, page, error } => {
            let doing = format!("{call} {file}, page {page}");
            Storage::from_io(path, doing, same_io_error(error)).into()
        }
        PageFileError::Double { call, error } => {
            let doing = format!("{call} {}", path.join(DOUBLEWRITE_FILE).display());
            Storage::from_io(path, doing, same_io_error(error)).into()
        }
        PageFileError::Header { field: "identity" } => {
            let file = path.join(FILE);
            Storage::Foreign { file }.into()
        }
        PageFileError::Header { field: "version" } => {
            let found = format!("{file} has another format");
            Storage::FutureFormat { found }.into()
        }
        PageFileError::WriteFailed { first } => file_error(first, path),
        other => Storage::Damaged {
            place: file,
            what: other.to_string(),
        }
        .into(),
    }
}

/// Returns an error that says the same.
pub(crate) fn same_io_error(error: &io::Error) -> io::Error {
    let again = || io::Error::new(error.kind(), error.to_string());
    error
        .raw_os_error()
        .map_or_else(again, io::Error::from_raw_os_error)
}

impl OpenPages {
    /// Returns the buffer pool.
    pub(crate) fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// Changes the memory of the pool.
    fn set_memory(&self, worker: &Worker, bytes: usize) -> Result<()> {
        let pool = &self.pool;
        let frames = page_count(bytes, pool.frame_maximum(), pool.page_size())?;
        pool.set_frames(worker, frames);
        Ok(())
    }

    /// Returns the length of the page file in bytes.
    pub(crate) fn file_bytes(&self) -> Result<u64> {
        let bytes = self.pool.file().length();
        bytes.map_err(|error| file_error(&error, Path::new("")).in_passing())
    }

    /// Opens pages whose changes are not logged: in memory, or opened to be read.
    fn unlogged(
        file: PageFile,
        end: Lsn,
        options: &Options,
        workers: &Workers,
    ) -> Result<OpenPages, MakeError> {
        let counts = options.page_counts(file.size());
        let (frames, maximum) = counts.map_err(MakeError::Request)?;
        let log = Arc::new(Unlogged::new(end));
        let pool = Arc::new(BufferPool::with_maximum(file, frames, maximum, log)?);
        OpenPages::start(pool, None, options, workers)
    }

    /// Restarts pages whose changes are logged, and makes the first checkpoint if there is none.
    fn logged(
        logged: &Logged,
        file: PageFile,
        analysis: Analysis,
        options: &Options,
        workers: &Workers,
        path: &Path,
    ) -> Result<OpenPages, MakeError> {
        let counts = options.page_counts(file.size());
        let (frames, maximum) = counts.map_err(MakeError::Request)?;
        let (device, identity) = (&logged.files.device, logged.files.superblock.identity);
        let worker = workers.worker();
        let is_redone = |page, lsn| analysis.redoes(page, lsn);
        let end = analysis.log_end();
        let doublewrite =
            DoublewriteBuffer::open(&**device, DOUBLEWRITE_FILE, &file, end, &is_redone);
        let (mut doublewrite, _) = doublewrite?;
        if !options.cached_pages {
            doublewrite.make_direct(&**device, DOUBLEWRITE_FILE)?;
        }
        let mut restart_options = RestartOptions::default();
        restart_options.threads = options.threads_for_restart();
        let anchor = analysis.anchor().copied();
        let clean_at = anchor
            .filter(|_| analysis.is_clean())
            .map(|anchor| anchor.durable);
        let recovery = Arc::new(Recovery::new(
            device.clone(),
            identity,
            logged.log.clone(),
            &worker,
            &analysis,
            &restart_options,
        ));
        let log = Arc::new(RecoveryLog::new(recovery.clone()));
        let pool = BufferPool::with_maximum(file, frames, maximum, log)?;
        let pool = pool.with_doublewrite(doublewrite).with_log_end(end);
        pool.limit_batches(options.page_batch);
        let pool = Arc::new(pool);
        let owner = PageOwner::new(pool.clone(), Arc::new(workers.clone()));
        let failed = |error| MakeError::Request(recovery_error(error, path));
        let restarted = restart(
            recovery.clone(),
            &worker,
            analysis,
            &owner,
            &restart_options,
        );
        let RestartResult {
            checkpointer,
            summary,
            ..
        } = restarted.map_err(failed)?;
        let reloaded = pool.reload_space(&worker);
        reloaded.map_err(|error| failed(RecoveryError::Pages(error.into())))?;
        let pages_from = logged.pages_from.clone();
        let mut checkpoints = PageCheckpoints {
            checkpointer,
            clean_at,
        };
        match summary.checkpoint {
            Some(made) => checkpoints.record(&made, &pages_from),
            None if anchor.is_some() => {}
            None => {
                let made = checkpoints
                    .checkpointer
                    .checkpoint(&recovery, &worker, &owner);
                checkpoints.record(&made.map_err(failed)?, &pages_from);
            }
        }
        let logging = PageLogging {
            recovery,
            owner,
            checkpoints: Mutex::new(checkpoints),
            unended: Mutex::new(Vec::new()),
            pages_from,
        };
        OpenPages::start(pool, Some(logging), options, workers)
    }

    fn start(
        pool: Arc<BufferPool>,
        logging: Option<PageLogging>,
        options: &Options,
        workers: &Workers,
    ) -> Result<OpenPages, MakeError> {
        // Without them threads evict for themselves, and nothing is written.
        let threads = match options.read_only {
            true => None,
            false => Some(PoolThreads::start(
                pool.clone(),
                &Arc::new(workers.clone()),
            )?),
        };
        let worker = workers.worker();
        let pages = OpenPages {
            directory: TableDirectory::new(pool.clone()),
            values: LargeValues::new(pool.log().end(&worker)),
            stamps: StampTable::new(),
            waits: PageWaitThreads::new(workers.clone()),
            shrinking: Mutex::default(),
            pool,
            threads: Mutex::new(threads),
            logging,
            is_read_only: options.read_only,
            failure: OnceLock::new(),
        };
        let opened = pages.values.open(&pages.directory, &worker);
        opened.map_err(|error| MakeError::Request(pages.failed(&error)))?;
        Ok(pages)
    }

    /// Returns the recovery of pages, which logs their changes; `None` if they are not logged.
    #[inline]
    pub(crate) fn recovery(&self) -> Option<&Recovery> {
        self.logging.as_ref().map(|logging| &*logging.recovery)
    }

    /// Logs the change of `entry`, which undoes that at `undone`, before it is made.
    pub(crate) fn log_undo(
        &self,
        worker: &Worker,
        transaction: &mut PageTransaction,
        undone: Option<UndoPosition>,
        entry: &PageEntry<'_>,
    ) -> Result<LoggedChange, WriteError> {
        if let (Some(recovery), Some(undone)) = (self.recovery(), undone) {
            return Ok(log_compensation(
                recovery,
                worker,
                transaction,
                undone,
                entry,
            )?);
        }
        let log = self.pool.log();
        let space = LogSpace::reserve(log, worker, 0);
        let space = space.expect("without a log there is space");
        let transaction = None;
        log.insert(
            worker,
            space,
            PageRecord::Row(LoggedRow { entry, transaction }),
        )
    }

    /// Returns a read of undo at `cursor`; `None` if changes are not logged.
    pub(crate) fn undo_read(&self, cursor: UndoCursor, bytes: usize) -> Option<PageNeed> {
        let recovery = self.logging.as_ref()?.recovery.clone();
        Some(PageNeed::Undo(recovery, cursor, bytes))
    }

    /// Converts the error of a wait, and records it if it is final.
    #[cold]
    pub(crate) fn wait_failed(&self, error: RecoveryError<TreeError>) -> Error {
        match error {
            RecoveryError::Pages(error) => self.failed(&error),
            error => recovery_error(error, Path::new("log")),
        }
    }

    /// Ends the records of a transaction that is undone. If the log has no space for that now, a
    /// checkpoint tries it again; until then the log is kept from its first record on.
    pub(crate) fn end_undone(&self, worker: &Worker, mut transaction: PageTransaction) {
        let Some(logging) = self.logging.as_ref().filter(|_| !self.has_failed()) else {
            return; // I3
        };
        if logging
            .recovery
            .end_undone(worker, &mut transaction)
            .is_err()
        {
            // Site: "checkpoint due": the device is full, or the log has failed.
            shim::lock(&logging.unended).push(transaction);
        }
    }

    /// Writes the pages that are dirty now, and makes a checkpoint of pages.
    pub(crate) fn checkpoint(&self, worker: &Worker) -> Result<(), CheckpointError> {
        let Some(logging) = &self.logging else {
            return Ok(());
        };
        // Site: "checkpoint due": one checkpoint at a time.
        let mut checkpoints = shim::lock(&logging.checkpoints);
        // Site: "checkpoint due".
        let unended = mem::take(&mut *shim::lock(&logging.unended));
        for transaction in unended {
            self.end_undone(worker, transaction);
        }
        let PageLogging {
            recovery,
            owner,
            pages_from,
            ..
        } = logging;
        let log = recovery.log();
        if checkpoints.clean_at == Some(log.end(worker)) {
            return Ok(());
        }
        let cleaned = self.pool.clean_all(worker);
        let cleaned = cleaned.map_err(|error| RecoveryError::Pages(error.into()));
        let made = cleaned.and_then(|()| {
            let checkpointer = &mut checkpoints.checkpointer;
            checkpointer.checkpoint(recovery, worker, owner)
        });
        match made {
            Ok(made) => {
                checkpoints.record(&made, pages_from);
                Ok(())
            }
            Err(RecoveryError::Log(error)) => Err(CheckpointError::Failed(error)),
            Err(error) => {
                if let RecoveryError::Pages(error) = &error {
                    let _ = self.failed(error);
                }
                Err(CheckpointError::Pages(error.to_string()))
            }
        }
    }

    /// Begins to wait until fewer pages are dirty, if a commit that changed pages has to. The
    /// caller holds nothing.
    pub(crate) fn stall_commit(&self, worker: &Worker) -> Option<DirtyWait> {
        self.pool.wait_for_clean(worker, DirtyBound::Commit)
    }

    /// True if the database was opened to be read.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Refuses a commit after a failure (I3).
    pub(crate) fn check(&self) -> Result<()> {
        match self.failure.get() {
            None => Ok(()),
            Some(why) => Err(Storage::Poisoned { why: why.clone() }.into()),
        }
    }

    /// True after a failure.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Records a failure after which nothing commits (I3).
    pub(crate) fn fail(&self, why: &dyn std::fmt::Display) {
        // The first one counts.
        let _ = self.failure.set(why.to_string());
    }

    /// Converts an error of an operation on a tree, and records it if it is final.
    #[cold]
    pub(crate) fn failed(&self, error: &TreeError) -> Error {
        let size = self.pool.page_size();
        match error {
            TreeError::TooLong(TooLong::Key { bytes }) => Request::RowTooLong {
                bytes: *bytes,
                most: size.max_key_bytes(),
            }
            .into(),
            TreeError::TooLong(TooLong::Value { bytes }) => {
                let most = size.max_row_bytes();
                let bytes = *bytes;
                Request::RowTooLong { bytes, most }.into()
            }
            TreeError::RowTooLong { bytes, most } => {
                let (bytes, most) = (*bytes, *most);
                Request::RowTooLong { bytes, most }.into()
            }
            TreeError::Pool(PoolError::NoPages(error)) => {
                let doing = error.to_string();
                Storage::PageRoom { doing }.into()
            }
            TreeError::Pool(PoolError::Read(error) | PoolError::NotCut(error)) => {
                file_error(error, Path::new("")).in_passing()
            }
            // A full device refuses this change, and no undo.
            TreeError::Log(error @ LogError::NotInserted(_)) => error.clone().into(),
            TreeError::NoLogSpace(error) => Storage::no_log_space(error).into(),
            TreeError::Pool(PoolError::Log(log)) | TreeError::Log(log) => {
                self.fail(error);
                log.clone().into()
            }
            TreeError::Pool(PoolError::Damaged(_)) | TreeError::Damaged(_) => Storage::Damaged {
                place: FILE.to_owned(),
                what: error.to_string(),
            }
            .into(),
            // Another thread has dropped the table.
            TreeError::Dropped { .. } => Conflict::TABLE_DROPPED.into(),
            other => {
                self.fail(other);
                let why = other.to_string();
                Storage::Poisoned { why }.into()
            }
        }
    }

    /// Writes all pages and syncs them. Called when the database closes, before the log is closed.
    /// Threads of the pool end.
    pub(super) fn close(&self, worker: &Worker, catalog: &Catalog) -> Result<()> {
        self.waits.stop();
        let closed = self.write_all(worker, catalog);
        // Site: "page waits": once, when the database closes.
        let threads = shim::lock(&self.threads).take();
        drop(threads);
        closed
    }

    fn write_all(&self, worker: &Worker, catalog: &Catalog) -> Result<()> {
        if self.logging.is_none() {
            return Ok(());
        }
        self.check()?;
        for table in catalog.tables() {
            if let TableStore::Paged(rows) = &table.store
                && rows.tree.get().is_none()
                && !table.is_former()
            {
                self.make_tree(worker, &table)?;
            }
        }
        while self.pool.dirty_count() > 0 {
            let cleaned = self.pool.clean_all(worker);
            cleaned.map_err(|error| self.failed(&TreeError::Pool(error)))?;
        }
        // Without one, the next opening has more to do.
        let made = self.checkpoint(worker);
        made.map_err(|error| error.into_error(Path::new("")))
    }

    /// Makes the tree of a table that no operation has used, so that the database can be opened to
    /// be read.
    fn make_tree(&self, worker: &Worker, table: &OpenTable) -> Result<()> {
        let number = tree_number(table);
        let failed = |error| self.failed(&error);
        if self
            .directory
            .open(worker, number)
            .map_err(failed)?
            .is_none()
        {
            self.directory.create(worker, number).map_err(failed)?;
        }
        Ok(())
    }

    /// Panics if an invariant of the pool or of a tree is broken, or if a page is in no place or in
    /// two. Only while nothing uses them.
    pub(crate) fn verify(&self, worker: &Worker) {
        let check = |tree: &PagedTree| match tree.verify(worker) {
            Ok(summary) => summary,
            Err(error) => panic!("{tree:?}: {error}"),
        };
        let mut pages = check(self.directory.tree()).pages;
        let trees = self.directory.trees(worker);
        let trees = trees.unwrap_or_else(|error| panic!("directory: {error}"));
        let tables = trees.len() as u64;
        for tree in trees {
            for page in check(&tree).pages {
                assert!(pages.insert(page), "page {page} is in two trees");
            }
        }
        // Header, maps, the partition page of each table, and the pages of trees.
        let (file, mapped) = (self.pool.file(), self.pool.page_size().mapped_pages());
        let count = || {
            let end = file.header().end;
            let expected = 1 + end.div_ceil(mapped) + tables + pages.len() as u64;
            (end - self.pool.space().free_count(), expected)
        };
        // The file may grow meanwhile.
        let is_right = || (0..1_000).any(|_| count().0 == count().1);
        assert!(is_right(), "used and expected pages: {:?}", count());
    }
}
