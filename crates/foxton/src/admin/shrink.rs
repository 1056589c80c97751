//! Shrinking of the page file of an open database.
//!
//! # Steps
//!
//! 1. *Free.* Deleted rows and large values that no transaction needs any more give their space
//!    away. Those that are locked stay.
//! 2. *Fill.* Leaves take rows from their right neighbours until they are full.
//! 3. *Move.* The last pages of the file move to its beginning
//!    ([`foxton_store::paged::shrink`]).
//! 4. *Cut.* A checkpoint of pages makes sure that no restart needs a page behind the new end. Then
//!    the end moves, and the file is cut.
//!
//! Transactions go on meanwhile. If they need the pages that shrinking holds back, they get them,
//! and the steps 3 and 4 are tried again with a later end.
//!
//! # Backups
//!
//! A backup copies the page file up to the logical end that it has read, and needs the log from the
//! checkpoint before. So the file is cut only under the exclusive lock on `REMOVAL_LOCK`, under
//! which files are removed: while a backup with pages is made, shrinking waits before step 4.

use std::ops::ControlFlow;
use std::path::Path;
use std::thread;
use std::time::Duration;

use foxton_log::device::{FileLock, FileLockMode};
use foxton_store::paged::btree::{PagedTree, TreeError};
use foxton_store::paged::shrink::{FileShrink, ShrinkStep};
use foxton_sync::shim;
use foxton_sync::worker::Worker;

use crate::api::database::Database;
use crate::checkpoint::REMOVAL_LOCK;
use crate::engine::Engine;
use crate::engine::page_store::OpenPages;
use crate::error::{Error, Result, Storage};
use crate::txn::{former_rows, sweep_leaf};

/// Pause before a page is tried again that another thread is about to use, or before a backup is
/// looked for again.
const PAUSE: Duration = Duration::from_millis(1);
/// Attempts to move one page, and to cut the file.
const ATTEMPTS: u32 = 500;
/// Number of times that pages are moved, with a later end each time.
const ROUNDS: u32 = 5;

/// Step of shrinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShrinkPhase {
    /// Deleted rows and large values give their space away.
    Free,
    /// Leaves are filled.
    Fill,
    /// Pages are moved.
    Move,
    /// The file is cut, after a checkpoint and once no backup is being made.
    Cut,
}

/// Progress of shrinking. The unit is pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShrinkProgress {
    /// The current step.
    pub phase: ShrinkPhase,
    /// Pages that this step has looked at.
    pub done: u64,
    /// Pages that this step will look at, approximately.
    pub total: u64,
}

/// Result of shrinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShrinkSummary {
    /// Bytes of the page file before; 0 if the database has no paged tables.
    pub bytes_before: u64,
    /// Bytes of the page file now.
    pub bytes_after: u64,
    /// Number of pages that were moved.
    pub pages_moved: u64,
    /// False if it was stopped, or other threads used the space as fast as it was made.
    pub is_complete: bool,
}

/// Reason why a step ended early.
enum ShrinkStop {
    /// The caller has asked for it.
    Asked,
    Failed(Error),
}

impl From<Error> for ShrinkStop {
    fn from(error: Error) -> ShrinkStop {
        ShrinkStop::Failed(error)
    }
}

impl Database {
    /// Makes the file of the paged tables as short as its rows allow, and gives the rest back to
    /// the file system. Other threads go on reading and writing meanwhile.
    ///
    /// Rows that are deleted leave free pages, which later rows use. So the file does not shrink by
    /// itself, and needs to only if the space is needed elsewhere. Afterwards leaves are full, and
    /// rows at random places make the file grow again.
    ///
    /// ```
    /// use foxton::{Database, Options, Table};
    /// const EVENTS: Table<u64, [u8]> = Table::new("events").paged();
    ///
    /// let db = Database::in_memory(Options::default())?;
    /// for day in 0..100 {
    ///     db.run(|tx| (0..100).try_for_each(|at| tx.put(&EVENTS, &(day * 100 + at), &[7; 500])))?;
    /// }
    /// db.run(|tx| (0..9_000).try_for_each(|event| tx.delete(&EVENTS, &event).map(drop)))?;
    /// let shrunk = db.shrink()?;
    /// assert!(shrunk.bytes_after * 2 < shrunk.bytes_before);
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// A request error if the database was opened to be read. A storage error if a page is damaged,
    /// the device or the log fails, or the file system cannot lock files. No row is lost then, and
    /// `shrink` can be called again: the pages that were moved stay where they are.
    pub fn shrink(&self) -> Result<ShrinkSummary> {
        self.shrink_with(|_| ControlFlow::Continue(()))
    }

    /// As [`shrink`](Self::shrink). `progress` is called between the small steps of the work, and
    /// may stop it: the pages that were moved stay where they are.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// # let db = foxton::Database::in_memory(foxton::Options::default())?;
    /// let shrunk = db.shrink_with(|progress| {
    ///     eprintln!("{:?}: {} of {} pages", progress.phase, progress.done, progress.total);
    ///     ControlFlow::Continue(())
    /// })?;
    /// # Ok::<(), foxton::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`shrink`](Self::shrink).
    pub fn shrink_with(
        &self,
        mut progress: impl FnMut(ShrinkProgress) -> ControlFlow<()>,
    ) -> Result<ShrinkSummary> {
        let engine = self.engine();
        engine.check()?;
        engine.check_writable()?;
        let Some(pages) = engine.pages() else {
            let is_complete = true;
            return Ok(ShrinkSummary {
                is_complete,
                ..ShrinkSummary::default()
            });
        };
        pages.check()?;
        let engine = self.share().engine().clone();
        let worker = engine.workers.worker();
        for table in engine.catalog.former_tables() {
            // Rows of a table that is locked stay.
            former_rows::free_all(&engine, &worker, &table, false)?;
        }
        // Site: "page waits": one thread at a time shrinks the file.
        let _one = shim::lock(&pages.shrinking);
        let mut work = ShrinkWork {
            engine: &engine,
            pages,
            worker: &worker,
            progress: &mut progress,
            summary: ShrinkSummary {
                bytes_before: pages.file_bytes()?,
                ..ShrinkSummary::default()
            },
        };
        match work.run() {
            Ok(is_complete) => work.summary.is_complete = is_complete,
            Err(ShrinkStop::Asked) => {}
            Err(ShrinkStop::Failed(error)) => return Err(error),
        }
        work.summary.bytes_after = pages.file_bytes()?;
        Ok(work.summary)
    }
}

/// Shrinking, as far as it is.
struct ShrinkWork<'a> {
    engine: &'a Engine,
    pages: &'a OpenPages,
    worker: &'a Worker,
    progress: &'a mut dyn FnMut(ShrinkProgress) -> ControlFlow<()>,
    summary: ShrinkSummary,
}

impl ShrinkWork<'_> {
    /// Returns true if the file is as short as can be.
    fn run(&mut self) -> Result<bool, ShrinkStop> {
        let trees = self.pages.directory.trees(self.worker);
        let trees = trees.map_err(|error| self.failed(&error))?;
        self.free(&trees)?;
        self.fill(self.pages.directory.tree())?;
        for tree in &trees {
            self.fill(tree)?;
        }
        let mut slack = 0;
        for _ in 0..ROUNDS {
            let mut shrink = FileShrink::begin(&self.pages.directory, slack);
            let moved = self.move_pages(&mut shrink);
            self.summary.pages_moved += shrink.moved();
            if moved? && self.cut(&shrink)? {
                return Ok(true);
            }
            // Others have used pages meanwhile, and may use as many again.
            slack = 2 * slack + shrink.moved() / 4 + 16;
        }
        Ok(false)
    }

    fn failed(&self, error: &TreeError) -> ShrinkStop {
        self.pages.failed(error).into()
    }

    fn tell(&mut self, phase: ShrinkPhase, done: u64, total: u64) -> Result<(), ShrinkStop> {
        let total = total.max(done);
        match (self.progress)(ShrinkProgress { phase, done, total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ShrinkStop::Asked),
        }
    }

    fn used_pages(&self) -> u64 {
        let pool = self.pages.pool();
        pool.file().header().end - pool.space().free_count()
    }

    fn free(&mut self, trees: &[PagedTree]) -> Result<(), ShrinkStop> {
        let (mut done, total) = (0, self.used_pages());
        // The background thread frees large values. Those that it cannot free for now are in use.
        let mut left = usize::MAX;
        while let now @ 1.. = self.pages.values.marked_count()
            && now < left
        {
            left = now;
            for _ in 0..ATTEMPTS {
                self.tell(ShrinkPhase::Free, done, total)?;
                thread::sleep(PAUSE);
                if self.pages.values.marked_count() < now {
                    break;
                }
            }
        }
        for tree in trees {
            let mut last: Option<Vec<u8>> = None;
            loop {
                self.tell(ShrinkPhase::Free, done, total)?;
                let swept = sweep_leaf(self.engine, self.worker, tree, last.as_deref());
                last = swept.map_err(|error| self.failed(&error))?;
                if last.is_none() {
                    break;
                }
                done += 1;
            }
        }
        Ok(())
    }

    /// Fills the pages of a tree, leaves first.
    fn fill(&mut self, tree: &PagedTree) -> Result<(), ShrinkStop> {
        let (mut done, total) = (0, self.used_pages());
        let mut visit = tree.visit(self.worker);
        for level in 0..=u8::MAX {
            let (mut key, mut count) = (Vec::new(), 0);
            loop {
                self.tell(ShrinkPhase::Fill, done, total)?;
                let filled = visit.run(|visit| visit.compact(&key, level));
                let filled = filled.map_err(|error| self.failed(&error))?;
                match (filled.has_changed, filled.next) {
                    (true, _) => {}
                    (false, Some(next)) => (key, count) = (next.to_vec(), count + 1),
                    (false, None) => break,
                }
                done += 1;
            }
            if count == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Moves pages. Returns false if others need the pages that are held back.
    fn move_pages(&mut self, shrink: &mut FileShrink<'_>) -> Result<bool, ShrinkStop> {
        let mut busy = 0;
        let total = shrink.remaining();
        loop {
            let step = shrink.step(self.worker);
            match step.map_err(|error| self.failed(&error))? {
                ShrinkStep::Done => return Ok(!shrink.is_lifted()),
                ShrinkStep::Moved => busy = 0,
                ShrinkStep::Busy if busy < ATTEMPTS => {
                    busy += 1;
                    thread::sleep(PAUSE);
                }
                ShrinkStep::Busy => drop(shrink.stop()),
            }
            let done = total.saturating_sub(shrink.remaining());
            self.tell(ShrinkPhase::Move, done, total)?;
        }
    }

    /// Cuts the file, once no restart and no backup needs what is behind. Returns false if others
    /// need the pages that are held back.
    fn cut(&mut self, shrink: &FileShrink<'_>) -> Result<bool, ShrinkStop> {
        for _ in 0..ATTEMPTS {
            self.tell(ShrinkPhase::Cut, 0, 1)?;
            self.checkpoint(shrink)?;
            let lock = self.lock_removal()?;
            let cut = shrink.finish(self.worker);
            drop(lock);
            let cut = cut.map_err(|error| self.failed(&error))?;
            if cut || shrink.is_lifted() {
                return Ok(cut);
            }
            thread::sleep(PAUSE);
        }
        Ok(false)
    }

    /// Makes a checkpoint of pages, if changes are logged, once all pages behind the new end are
    /// clean. So a restart that begins there changes none of them: they are free, and stay as they
    /// are.
    fn checkpoint(&mut self, shrink: &FileShrink<'_>) -> Result<(), ShrinkStop> {
        while !shrink.is_clean() {
            let cleaned = self.pages.pool().clean_all(self.worker);
            cleaned.map_err(|error| self.failed(&TreeError::Pool(error)))?;
            self.tell(ShrinkPhase::Cut, 0, 1)?;
        }
        let made = self.pages.checkpoint(self.worker);
        let location = Path::new(&self.engine.location);
        Ok(made.map_err(|error| error.into_error(location).in_passing())?)
    }

    /// Waits until no backup needs the file as it is. Returns the lock that keeps one from
    /// beginning; `None` for a database in memory.
    fn lock_removal(&mut self) -> Result<Option<FileLock>, ShrinkStop> {
        let Some(logged) = self.engine.logged() else {
            return Ok(None);
        };
        loop {
            let device = &logged.files.device;
            match device.try_lock_file(REMOVAL_LOCK, FileLockMode::Exclusive) {
                Ok(None) => {
                    self.tell(ShrinkPhase::Cut, 0, 1)?;
                    thread::sleep(PAUSE);
                }
                Ok(lock) => return Ok(lock),
                Err(source) => {
                    // A backup that is being made would be worthless, and would not notice.
                    let doing = format!("lock {REMOVAL_LOCK}, to keep a backup from beginning");
                    return Err(Error::from(Storage::NotDone { doing, source }).into());
                }
            }
        }
    }
}
