//! Page store: the page file of a database, its buffer pool, and what pages need of the engine.
//!
//! A database without paged tables has none of it. The first paged table makes the page file, and
//! opening a database with paged tables opens it. Changes of pages are not logged yet: closing
//! writes all pages and then the [mark](super::closed_mark) that says so. A database whose mark is
//! missing is refused.
//!
//! # Invariants
//!
//! * I1  The page file and the superblock's feature are durable before the record of the first
//!   paged table is in the log. A page file without a paged table is left over, and has nothing
//!   that was committed.
//! * I2  The mark is gone before a page is changed or written.
//! * I3  After a failure no transaction that has used a paged table commits: a change may not have
//!   been undone, or cannot be written. The failure is recorded before the locks are released, so a
//!   transaction that sees such a change finds it at its commit.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use foxton_log::Failure;
use foxton_log::device::Device;
use foxton_log::device::memory::MemoryDevice;
use foxton_log::format::superblock::{self, Superblock};
use foxton_log::{LogError, Lsn};
use foxton_store::TooLong;
use foxton_store::paged::btree::{PagedTree, TableDirectory, TreeError};
use foxton_store::paged::page::PageSize;
use foxton_store::paged::page_log::{LogSpace, LoggedChange, PageLog, PageRecord, Unlogged};
use foxton_store::paged::pool::{BufferPool, PoolError, PoolThreads};
use foxton_store::paged::recovery::WriteError;
use foxton_store::paged::space::{PageFile, PageFileError, format_file};
use foxton_sync::shim::{self, Mutex};
use foxton_sync::worker::{Worker, Workers};

use super::closed_mark::{self, ClosedMark};
use super::early_release::StampTable;
use super::page_waits::PageWaitThreads;
use super::persistence::DatabaseFiles;
use crate::catalog::table_store::TableStore;
use crate::catalog::{Catalog, OpenTable};
use crate::error::{Error, Request, Result, Storage};
use crate::options::Options;

/// Name of the page file.
const FILE: &str = "rows";

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct PageStore {
    open: OnceLock<OpenPages>,
    creation: Mutex<()>,
}

/// The page store of a database with paged tables.
#[derive(Debug)]
pub(crate) struct OpenPages {
    pub(crate) directory: TableDirectory,
    pub(crate) stamps: StampTable,
    pub(crate) waits: PageWaitThreads,
    pool: Arc<BufferPool>,
    /// None if the database was opened to be read.
    threads: Mutex<Option<PoolThreads>>,
    /// None if the database is in memory.
    mark: Option<Arc<ClosedMark>>,
    is_read_only: bool,
    /// The first failure after which nothing commits (I3).
    failure: OnceLock<String>,
}

/// Positions of changes, and the mark that goes before the first page is written (I2).
#[derive(Debug)]
struct MarkedLog {
    positions: Unlogged,
    mark: Option<Arc<ClosedMark>>,
}

impl PageLog for MarkedLog {
    fn wait_durable(&self, _: &Worker, _: Lsn) -> Result<(), LogError> {
        let Some(mark) = &self.mark else {
            return Ok(());
        };
        mark.remove().map_err(|source| {
            let failure = Failure {
                operation: "remove",
                file: closed_mark::FILE.to_owned(),
                source,
            };
            LogError::Failed(Arc::new(failure))
        })
    }

    fn end(&self, worker: &Worker) -> Lsn {
        self.positions.end(worker)
    }

    fn try_take_space(&self, worker: &Worker, bytes: u64) -> bool {
        self.positions.try_take_space(worker, bytes)
    }

    fn give_back_space(&self, bytes: u64) {
        self.positions.give_back_space(bytes);
    }

    fn wait_for_space(&self, worker: &Worker, bytes: u64) -> Result<(), LogError> {
        self.positions.wait_for_space(worker, bytes)
    }

    fn insert(
        &self,
        worker: &Worker,
        space: LogSpace<'_>,
        record: PageRecord<'_>,
    ) -> Result<LoggedChange, WriteError> {
        self.positions.insert(worker, space, record)
    }
}

/// Number of a table among the trees, of which number 0 is the directory.
pub(crate) fn tree_number(table: &OpenTable) -> u64 {
    u64::from(table.record.id) + 1
}

impl PageStore {
    /// Returns the page store, if the database has paged tables.
    #[inline]
    pub(crate) fn get(&self) -> Option<&OpenPages> {
        self.open.get()
    }

    /// Opens the page file of the database in `files`, whose tables are restored.
    ///
    /// # Errors
    /// `not_closed`, if the database has paged tables and was not closed.
    pub(crate) fn open(
        files: &DatabaseFiles,
        catalog: &Catalog,
        options: &Options,
        workers: &Workers,
        path: &Path,
    ) -> Result<PageStore> {
        let store = PageStore::default();
        let (device, identity) = (&files.device, files.superblock.identity);
        let device_failed = |doing: &str, source| {
            let doing = format!("{doing} {}", path.join(FILE).display());
            Error::from(Storage::from_io(path, doing, source))
        };
        if !catalog.has_paged_tables() {
            if !options.read_only {
                let removed = remove_left_over(&**device);
                removed.map_err(|error| device_failed("remove", error))?;
            }
            return Ok(store);
        }
        let mark = ClosedMark::read(&**device, &identity);
        let Some(end) = mark.map_err(|error| device_failed("read the mark of", error))? else {
            let file = path.join(FILE);
            return Err(Storage::NotClosed { file }.into());
        };
        let file = PageFile::open(&**device, FILE, identity);
        let file = file.map_err(|error| file_error(&error, path))?;
        let mark = Arc::new(ClosedMark::new(device.clone(), identity, true));
        let pages = OpenPages::new(file, end, Some(mark), options, workers)
            .map_err(|error| error.into_error(path))?;
        let opened = store.open.set(pages);
        opened.expect("a new store is not open");
        Ok(store)
    }

    /// Makes the page file, unless there is one (I1). `files` is `None` for a database in memory.
    pub(crate) fn make(
        &self,
        files: Option<&DatabaseFiles>,
        options: &Options,
        workers: &Workers,
        path: &Path,
    ) -> Result<()> {
        if self.open.get().is_some() {
            return Ok(());
        }
        // Site: "page waits": once for a database.
        let _one = shim::lock(&self.creation);
        if self.open.get().is_some() {
            return Ok(());
        }
        let pages = match files {
            None => {
                let file = new_file(&MemoryDevice::new(), options.page_size(), [0; 16]);
                file.and_then(|file| OpenPages::new(file, Lsn::ZERO, None, options, workers))
            }
            Some(files) => make_files(files, options, workers),
        };
        let pages = pages.map_err(|error| error.into_error(path).in_passing())?;
        let opened = self.open.set(pages);
        opened.expect("the mutex lets one thread open it");
        Ok(())
    }
}

fn make_files(
    files: &DatabaseFiles,
    options: &Options,
    workers: &Workers,
) -> Result<OpenPages, MakeError> {
    let (device, identity) = (&files.device, files.superblock.identity);
    // One that was cut short, just now.
    remove_left_over(&**device)?;
    let file = new_file(&**device, options.page_size(), identity)?;
    // Read again, because this program may have changed it.
    let mut superblock = Superblock::read(&**device).map_err(io::Error::other)?;
    if superblock.incompat & superblock::PAGES == 0 {
        superblock.incompat |= superblock::PAGES;
        superblock.replace(&**device).map_err(io::Error::other)?;
    }
    let mark = Arc::new(ClosedMark::new(device.clone(), identity, false));
    OpenPages::new(file, Lsn::ZERO, Some(mark), options, workers)
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

/// Removes a page file of a database without paged tables.
fn remove_left_over(device: &dyn Device) -> io::Result<()> {
    let names = device.list()?;
    let left: Vec<_> = [closed_mark::FILE, FILE]
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

/// Returns the error of a page file.
fn file_error(error: &PageFileError, path: &Path) -> Error {
    let file = path.join(FILE).display().to_string();
    match error {
        PageFileError::Device { call, page, error } => {
            let doing = format!("{call} {file}, page {page}");
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
fn same_io_error(error: &io::Error) -> io::Error {
    let again = || io::Error::new(error.kind(), error.to_string());
    error
        .raw_os_error()
        .map_or_else(again, io::Error::from_raw_os_error)
}

impl OpenPages {
    fn new(
        file: PageFile,
        end: Lsn,
        mark: Option<Arc<ClosedMark>>,
        options: &Options,
        workers: &Workers,
    ) -> Result<OpenPages, MakeError> {
        let frames = options
            .page_count(file.size())
            .map_err(MakeError::Request)?;
        let log = Arc::new(MarkedLog {
            positions: Unlogged::new(end),
            mark: mark.clone(),
        });
        let pool = Arc::new(BufferPool::new(file, frames, log)?);
        // Without them threads evict for themselves, and nothing is written.
        let threads = match options.read_only {
            true => None,
            false => Some(PoolThreads::start(
                pool.clone(),
                &Arc::new(workers.clone()),
            )?),
        };
        Ok(OpenPages {
            directory: TableDirectory::new(pool.clone()),
            stamps: StampTable::new(),
            waits: PageWaitThreads::new(workers.clone()),
            pool,
            threads: Mutex::new(threads),
            mark,
            is_read_only: options.read_only,
            failure: OnceLock::new(),
        })
    }

    /// Prepares for the first change of a page (I2). Waits for the device then.
    #[inline]
    pub(crate) fn begin_changes(&self) -> Result<()> {
        let Some(mark) = &self.mark else {
            return Ok(());
        };
        mark.remove().map_err(|source| {
            let doing = format!("remove {}", closed_mark::FILE);
            Storage::NotDone { doing, source }.into()
        })
    }

    /// True if pages may be changed without waiting for the device: the mark is gone (I2).
    pub(crate) fn has_begun_changes(&self) -> bool {
        self.mark.as_ref().is_none_or(|mark| !mark.is_there())
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
            TreeError::Pool(PoolError::Read(error)) => {
                file_error(error, Path::new("")).in_passing()
            }
            TreeError::Pool(PoolError::Damaged(_)) | TreeError::Damaged(_) => Storage::Damaged {
                place: FILE.to_owned(),
                what: error.to_string(),
            }
            .into(),
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
        if self.is_read_only || self.mark.is_none() {
            return Ok(());
        }
        self.check()?;
        for table in catalog.tables() {
            if let TableStore::Paged(rows) = &table.store
                && rows.tree.get().is_none()
            {
                self.make_tree(worker, &table)?;
            }
        }
        while self.pool.dirty_count() > 0 {
            let cleaned = self.pool.clean_all(worker);
            cleaned.map_err(|error| self.failed(&TreeError::Pool(error)))?;
        }
        Ok(())
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
            self.begin_changes()?;
            self.directory.create(worker, number).map_err(failed)?;
        }
        Ok(())
    }

    /// Writes the mark, once the log is closed.
    pub(super) fn mark_closed(&self, worker: &Worker) -> Result<()> {
        let Some(mark) = self.mark.as_ref().filter(|_| !self.is_read_only) else {
            return Ok(());
        };
        let written = mark.write(self.pool.log().end(worker));
        written.map_err(|source| {
            let doing = format!("write {}", closed_mark::FILE);
            Storage::from_io(Path::new(closed_mark::FILE), doing, source).into()
        })
    }

    /// Panics if an invariant of the pool or of a tree is broken. Only while nothing uses them.
    pub(crate) fn verify(&self, worker: &Worker, catalog: &Catalog) {
        let check = |tree: &PagedTree| match tree.verify(worker) {
            Ok(_) => {}
            Err(error) => panic!("{tree:?}: {error}"),
        };
        check(self.directory.tree());
        for table in catalog.tables() {
            if let TableStore::Paged(rows) = &table.store {
                rows.tree.get().into_iter().for_each(|tree| check(tree));
            }
        }
    }
}
