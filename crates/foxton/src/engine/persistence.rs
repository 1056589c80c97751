//! Persistence: what becomes of the changes that transactions commit.
//!
//! A database that is opened to be written keeps them in a log and in checkpoints. One in memory
//! keeps them in its tables and nowhere else. One that is opened to be read has no changes: it was
//! restored from the files, and keeps the device only because the device holds the directory's
//! shared lock.
//!
//! # Invariants
//!
//! * I1  Only a database with a log writes to its device. So a database that was opened to be read
//!   changes no byte there.
//! * I2  A transaction of a database without a log has no redo: writes are refused, or leave none
//!   ([`RedoForm`](crate::redo::record::RedoForm)). So its commit waits for nothing.
//!
//! # Orderings
//!
//! A commit in memory takes its position while it holds all its locks. The locks order it after
//! every commit that it has seen, and before every one that sees it.
//!
//! * O1  taking a position in memory (Release) to the load of the front (Acquire): a reader at a
//!   snapshot finds what a commit has recorded before it asked for its position.

use std::sync::Arc;

use foxton_log::device::Device;
use foxton_log::format::superblock::Superblock;
use foxton_log::{Log, Lsn};
use foxton_sync::cache_line::CachePadded;
use foxton_sync::shim::{self, AtomicU64, Mutex, Ordering};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use super::large_transactions::LargeTransactions;
use super::page_writers::PageWriters;
use crate::checkpoint::needed_log::NeededLog;
use crate::checkpoint::{Checkpoint, CheckpointControl, CheckpointError};
use crate::error::{Result, Storage};
use crate::redo::record;
use crate::status::{LogHolder, called};

/// See the [module](self).
#[derive(Debug)]
pub(crate) enum Persistence {
    /// Changes go to the log, and from there to checkpoints.
    Logged(Logged),
    /// Changes stay in the tables.
    InMemory(CommitPositions),
    /// There are no changes.
    ReadOnly(ReadOnly),
}

/// Positions of the commits of a database in memory: their numbers, of those that ask for one.
#[derive(Debug, Default)]
pub(crate) struct CommitPositions(CachePadded<AtomicU64>);

/// Commits in memory that ask for their position.
static POSITIONS: Site = Site::new(
    Component::Transaction,
    Pattern::Unbounded,
    "commit positions",
);

/// The log and the checkpoints of a database that can be written.
#[derive(Debug)]
pub(crate) struct Logged {
    /// Shared with the recovery of pages.
    pub(crate) log: Arc<Log>,
    /// Shared with the checkpoint thread.
    pub(crate) checkpoints: Arc<CheckpointControl>,
    /// Transactions that keep the log from being removed: large ones, and those that have changed
    /// pages.
    pub(crate) large: LargeTransactions,
    pub(crate) page_writers: PageWriters,
    pub(crate) kept_log: KeptLogLimit,
    pub(crate) files: DatabaseFiles,
    /// First parts of transactions that were rolled back and for whose last record there was no
    /// space. Until they have one, checkpoints keep the log from the first of them on.
    abandoned: Mutex<Vec<Lsn>>,
    /// Shared with the checkpoint builder.
    pub(crate) pages_from: Arc<NeededLog>,
}

impl Logged {
    pub(crate) fn new(
        log: Log,
        checkpoints: Arc<CheckpointControl>,
        files: DatabaseFiles,
        pages_from: Arc<NeededLog>,
        max_kept_log_bytes: Option<u64>,
    ) -> Logged {
        Logged {
            log: Arc::new(log),
            checkpoints,
            large: LargeTransactions::default(),
            page_writers: PageWriters::default(),
            kept_log: KeptLogLimit::new(max_kept_log_bytes),
            files,
            abandoned: Mutex::new(Vec::new()),
            pages_from,
        }
    }

    /// Logs that the parts from `first` on are of a transaction that was rolled back.
    pub(crate) fn abandon(&self, worker: &Worker, first: Lsn) {
        let parts = first.bytes().to_le_bytes();
        if self
            .log
            .insert(worker, record::ABANDONED, &[&parts])
            .is_err()
        {
            shim::lock(&self.abandoned).push(first);
        }
    }

    /// Logs what [`abandon`](Self::abandon) found no space for.
    fn abandon_again(&self, worker: &Worker) {
        let abandoned = std::mem::take(&mut *shim::lock(&self.abandoned));
        for first in abandoned {
            self.abandon(worker, first);
        }
    }

    /// Makes a checkpoint of everything committed now.
    pub(crate) fn make_checkpoint(&self, worker: &Worker) -> Result<Checkpoint, CheckpointError> {
        self.abandon_again(worker);
        self.checkpoints.make(&self.log, worker)
    }

    /// Makes the checkpoint that is due.
    pub(crate) fn make_due_checkpoint(&self, worker: &Worker) -> Result<(), CheckpointError> {
        self.abandon_again(worker);
        self.checkpoints.make_due(&self.log, worker)
    }
}

/// The state of a database that was opened to be read.
#[derive(Debug)]
pub(crate) struct ReadOnly {
    /// LSN at which the log ends.
    pub(crate) end: Lsn,
    pub(crate) files: DatabaseFiles,
}

/// The files of a database. The device holds the directory's lock as long as it exists.
#[derive(Debug)]
pub(crate) struct DatabaseFiles {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) superblock: Superblock,
}

impl Logged {
    /// Returns the open transaction that keeps the most log from being removed.
    pub(crate) fn log_holder(&self) -> Option<LogHolder> {
        let end = self.log.written();
        let holders = [self.large.oldest(end), self.page_writers.oldest(end)];
        let holders = holders.into_iter().flatten();
        holders.min_by_key(|holder| holder.first_lsn)
    }

    /// Refuses a change while open transactions keep more log than they may.
    ///
    /// # Errors
    /// `log_room`. Nothing was done.
    #[inline]
    pub(crate) fn check_kept_log(&self) -> Result<()> {
        match self.kept_log.admits(self.log.written()) {
            true => Ok(()),
            false => self.check_kept_log_again(),
        }
    }

    #[cold]
    fn check_kept_log_again(&self) -> Result<()> {
        let end = self.log.written();
        let holder = self.log_holder();
        let begin = holder
            .as_ref()
            .map_or(end.bytes(), |holder| holder.first_lsn);
        match (self.kept_log.renew(Lsn::new(begin), end), holder) {
            (false, Some(holder)) => Err(Storage::LogRoom {
                holder: called(&holder.owner, &holder.label).to_string(),
                bytes: holder.log_bytes,
                most: self.kept_log.most,
            }
            .into()),
            _ => Ok(()),
        }
    }

    /// Requests a checkpoint after a transaction that has kept the log from `begin` on, if it was
    /// so much that a checkpoint was made meanwhile, and could not remove it.
    pub(crate) fn end_page_writer(&self, begin: Lsn) {
        self.checkpoints.ask_after(self.log.written().since(begin));
    }
}

/// Limit of the log that open transactions may keep.
///
/// It is a position: the log may grow to there before the transactions are looked at again. The
/// transactions that begin meanwhile begin behind where they were looked at. So the position never
/// is beyond the limit, but for a transaction that was about to log its first record.
///
/// # Orderings
///
/// None: a number that leads to no memory, and each thread may find a new one.
#[derive(Debug)]
pub(crate) struct KeptLogLimit {
    most: u64,
    until: AtomicU64,
}

impl KeptLogLimit {
    fn new(most: Option<u64>) -> KeptLogLimit {
        KeptLogLimit {
            most: most.unwrap_or(u64::MAX),
            until: AtomicU64::new(most.map_or(u64::MAX, |_| 0)),
        }
    }

    #[inline]
    fn admits(&self, end: Lsn) -> bool {
        end.bytes() < self.until.load(Ordering::Relaxed)
    }

    /// Sets the limit for transactions of which the oldest begins at `begin`. Returns true if the
    /// log, which ends at `end`, is below it.
    fn renew(&self, begin: Lsn, end: Lsn) -> bool {
        let until = begin.plus(self.most).bytes();
        self.until.store(until, Ordering::Relaxed);
        end.bytes() < until
    }
}

impl Persistence {
    /// Returns the log and the checkpoints, if there are any.
    #[inline]
    pub(crate) fn logged(&self) -> Option<&Logged> {
        match self {
            Persistence::Logged(logged) => Some(logged),
            Persistence::InMemory(_) | Persistence::ReadOnly(_) => None,
        }
    }

    /// Returns the files, if there are any.
    pub(crate) fn files(&self) -> Option<&DatabaseFiles> {
        match self {
            Persistence::Logged(logged) => Some(&logged.files),
            Persistence::ReadOnly(read_only) => Some(&read_only.files),
            Persistence::InMemory(_) => None,
        }
    }

    /// Returns the position of a transaction among all commits. It holds all its locks, and is
    /// about to commit. If it has redo, its record replaces the position.
    pub(crate) fn commit_position(&self, worker: &Worker, is_changed: bool) -> Lsn {
        match self {
            Persistence::InMemory(CommitPositions(last)) if is_changed => {
                worker.account().passed(&POSITIONS);
                Lsn::new(last.fetch_add(1, Ordering::AcqRel) + 1) // O1
            }
            _ => self.end(worker),
        }
    }

    /// Returns the position of a snapshot that begins now: behind all commits that have ended.
    #[inline]
    pub(crate) fn front(&self) -> Lsn {
        match self {
            Persistence::Logged(logged) => logged.log.front(),
            Persistence::ReadOnly(read_only) => read_only.end,
            Persistence::InMemory(CommitPositions(last)) => {
                Lsn::new(last.load(Ordering::Acquire)) // O1
            }
        }
    }

    /// Returns the position behind all commits.
    pub(crate) fn end(&self, worker: &Worker) -> Lsn {
        match self {
            Persistence::Logged(logged) => logged.log.end(worker),
            Persistence::ReadOnly(read_only) => read_only.end,
            Persistence::InMemory(CommitPositions(last)) => {
                worker.account().passed(&POSITIONS);
                Lsn::new(last.load(Ordering::Relaxed)) // Relaxed: the locks order it.
            }
        }
    }
}
