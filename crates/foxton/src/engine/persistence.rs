//! Persistence: what becomes of the changes that transactions commit.
//!
//! A database that is opened to be written keeps them in a log and in checkpoints. One that is
//! opened to be read has no changes, so it has neither: it was restored from the files, and keeps
//! the device only because the device holds the directory's shared lock.
//!
//! # Invariants
//!
//! * I1  Only a database with a log writes to its device. So a database that was opened to be read
//!   changes no byte there.
//! * I2  A transaction of a database without a log has no redo, because every write is refused. So
//!   its commit waits for nothing.

use std::sync::Arc;

use foxton_log::device::Device;
use foxton_log::format::superblock::Superblock;
use foxton_log::{Log, Lsn};
use foxton_sync::shim::{self, Mutex};
use foxton_sync::worker::Worker;

use super::large_transactions::LargeTransactions;
use crate::checkpoint::{Checkpoint, CheckpointControl, CheckpointError};
use crate::redo::record;
use crate::status::LogHolder;

/// See the [module](self).
#[derive(Debug)]
pub(crate) enum Persistence {
    /// Changes go to the log, and from there to checkpoints.
    Logged(Logged),
    /// There are no changes.
    ReadOnly(ReadOnly),
}

/// The log and the checkpoints of a database that can be written.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) log: Log,
    /// Shared with the checkpoint thread.
    pub(crate) checkpoints: Arc<CheckpointControl>,
    /// Transactions that keep the log from being removed.
    pub(crate) large: LargeTransactions,
    pub(crate) files: DatabaseFiles,
    /// First parts of transactions that were rolled back and for whose last record there was no
    /// space. Until they have one, checkpoints keep the log from the first of them on.
    abandoned: Mutex<Vec<Lsn>>,
}

impl Logged {
    pub(crate) fn new(
        log: Log,
        checkpoints: Arc<CheckpointControl>,
        files: DatabaseFiles,
    ) -> Logged {
        Logged {
            log,
            checkpoints,
            large: LargeTransactions::default(),
            files,
            abandoned: Mutex::new(Vec::new()),
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
        self.large.oldest(self.log.written())
    }
}

impl Persistence {
    /// Returns the log and the checkpoints, if there are any.
    #[inline]
    pub(crate) fn logged(&self) -> Option<&Logged> {
        match self {
            Persistence::Logged(logged) => Some(logged),
            Persistence::ReadOnly(_) => None,
        }
    }

    /// Returns the files.
    pub(crate) fn files(&self) -> &DatabaseFiles {
        match self {
            Persistence::Logged(logged) => &logged.files,
            Persistence::ReadOnly(read_only) => &read_only.files,
        }
    }

    /// Returns the position behind all commits.
    pub(crate) fn end(&self, worker: &Worker) -> Lsn {
        match self {
            Persistence::Logged(logged) => logged.log.end(worker),
            Persistence::ReadOnly(read_only) => read_only.end,
        }
    }
}
