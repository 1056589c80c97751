//! Engine: what all transactions of one database share.
//!
//! Locks, log, tables, options. A transaction that begins or ends writes nothing here: there is no
//! list of transactions and no counter of them. An [`OpenHandle`](open_handle::OpenHandle) keeps
//! the database open. Each worker context has one from its creation on, so a transaction that
//! begins does not touch the reference count.

/// Threads of the database itself.
pub(crate) mod own_thread;

/// A place for one box: pool cell, session slot, idle slot.
pub(crate) mod slot;

/// Pool of the boxes that transactions work with.
pub(crate) mod context_pool;

/// Background thread: timers, async wake-ups, commits whose future was dropped.
pub(crate) mod background;

/// Free memory, returned to the system in the background.
pub(crate) mod free_memory;

/// Cancel tokens.
pub(crate) mod cancel_token;

/// Cancel signals: a signal handler cancels a token.
pub(crate) mod cancel_signal;

/// Early lock release: reads of rows that are not durable yet.
pub(crate) mod early_release;

/// Waits of readers at snapshots for commit LSNs.
pub(crate) mod commit_lsn_waits;

/// Read views: the baseline of snapshots.
pub(crate) mod read_views;

/// Replaced versions that commits leave to be collected.
pub(crate) mod left_versions;

/// Snapshots, and the versions that are kept for them.
pub(crate) mod snapshots;

/// Memory that snapshots keep: shown, and limited.
mod snapshot_limit;

/// Share in an open database; the last one closes it.
pub(crate) mod open_handle;

/// Registry of large transactions.
pub(crate) mod large_transactions;

/// Registry of transactions that have changed pages.
pub(crate) mod page_writers;

/// Persistence: what becomes of the changes that transactions commit.
pub(crate) mod persistence;

/// Threads that wait for pages.
pub(crate) mod page_waits;

/// Large values of paged tables.
pub(crate) mod large_values;

/// Page store: page file and buffer pool.
pub(crate) mod page_store;

/// Checkpoint thread.
pub(crate) mod checkpoint_thread;

/// Idle timeout: registry of idle slots, and thread.
pub(crate) mod idle_timeout;

/// Snapshots at which nobody reads.
pub(crate) mod idle_snapshot;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use foxton_lock::any::AnyManager;
use foxton_lock::name::KeyHasher;
use foxton_log::{Log, LogError};
use foxton_store::paged::recovery::WriteError;
use foxton_sync::admission::AdmissionControl;
use foxton_sync::counter::WorkerCounters;
use foxton_sync::failpoint::Failpoints;
use foxton_sync::process::ProcessStamp;
use foxton_sync::shim::{AtomicBool, Mutex, Ordering};
use foxton_sync::worker::{Worker, Workers};

use crate::catalog::Catalog;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::engine::background::BackgroundThread;
use crate::engine::early_release::EarlyRelease;
use crate::engine::free_memory::FreedBytes;
use crate::engine::idle_timeout::IdleRegistry;
use crate::engine::page_store::{OpenPages, PageStore};
use crate::engine::persistence::{Logged, Persistence};
use crate::engine::snapshots::Snapshots;
use crate::error::{Error, Request, Result, Storage, check_process};
use crate::options::Options;
use crate::redo::record::RedoForm;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) options: Options,
    /// Path of the database, or "memory", for people.
    pub(crate) location: String,
    pub(crate) opened: Instant,
    pub(crate) locks: Arc<AnyManager>,
    pub(crate) background: BackgroundThread,
    pub(crate) persistence: Persistence,
    /// Content of the redo. A database created before patches existed has none, so that the program
    /// that created it can still read it.
    pub(crate) redo_form: RedoForm,
    pub(crate) hasher: KeyHasher,
    pub(crate) workers: Workers,
    pub(crate) catalog: Catalog,
    pub(crate) page_store: PageStore,
    pub(crate) counters: WorkerCounters<{ Counter::ALL.len() }>,
    /// True while a transaction is open; used only with locking off.
    pub(crate) open: Mutex<bool>,
    /// True once the log has failed. Written once, so reading it costs nothing.
    pub(crate) failed: AtomicBool,
    pub(crate) early: EarlyRelease,
    pub(crate) snapshots: Snapshots,
    /// Admission slots, if their number is limited.
    pub(crate) admission: Option<AdmissionControl>,
    /// Bytes that rows have shrunk by.
    pub(crate) freed: FreedBytes,
    /// Idle slots; empty without an idle timeout.
    pub(crate) idle: IdleRegistry,
    /// The process that opened it.
    pub(crate) process: ProcessStamp,
}

impl Engine {
    /// Returns the failpoints of this database, where tests arm injected faults.
    #[inline(always)]
    pub(crate) fn faults(&self) -> &Failpoints {
        self.workers.failpoints()
    }

    /// Refuses every call of a forked child. It comes first, because threads of the parent may have
    /// left anything locked.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        check_process(&self.process)
    }

    /// True in a forked child, where nothing of the engine may be used or freed.
    #[inline]
    pub(crate) fn is_inherited(&self) -> bool {
        self.process.is_inherited()
    }

    /// Refuses new transactions once the log has failed, and in a forked child.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.check_process()?;
        // Relaxed: it leads to no memory. A transaction that reads it late is refused at its
        // commit.
        if self.failed.load(Ordering::Relaxed)
            && let Some(log) = self.log()
        {
            return log.check().map_err(Error::from);
        }
        Ok(())
    }

    /// Returns the log, unless the database is in memory or was opened to be read.
    #[inline]
    pub(crate) fn log(&self) -> Option<&Log> {
        self.logged().map(|logged| &*logged.log)
    }

    /// Returns the log and the checkpoints, unless the database is in memory or was opened to be
    /// read.
    #[inline]
    pub(crate) fn logged(&self) -> Option<&Logged> {
        self.persistence.logged()
    }

    /// Returns the page store, if the database has paged tables.
    #[inline]
    pub(crate) fn pages(&self) -> Option<&OpenPages> {
        self.page_store.get()
    }

    /// Makes the page store, before the first paged table.
    pub(crate) fn make_pages(&self) -> Result<()> {
        let path = Path::new(&self.location);
        self.page_store
            .make(&self.persistence, &self.options, &self.workers, path)
    }

    /// Refuses to change a database that was opened to be read.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.persistence {
            Persistence::ReadOnly(_) => Err(Request::OpenedReadOnly.into()),
            Persistence::Logged(_) | Persistence::InMemory(_) => Ok(()),
        }
    }

    /// Converts an error of the log, and records it if the log accepts nothing more.
    #[cold]
    pub(crate) fn log_failed(&self, error: LogError) -> Error {
        if matches!(error, LogError::Failed(_) | LogError::Closed) {
            // Relaxed: see `check`.
            self.failed.store(true, Ordering::Relaxed);
        }
        error.into()
    }
}

impl Engine {
    /// Converts an error of a change of pages or of its commit, and records it if the log accepts
    /// nothing more.
    #[cold]
    pub(crate) fn write_failed(&self, error: WriteError) -> Error {
        match error {
            WriteError::Log(error) => self.log_failed(error),
            WriteError::NoLogSpace(error) => Storage::no_log_space(&error).into(),
            other => Storage::Poisoned {
                why: other.to_string(),
            }
            .into(),
        }
    }

    /// Makes a checkpoint of pages, if there are any, and then of everything committed now. Tables
    /// in memory get theirs even if pages fail.
    pub(crate) fn make_checkpoint(
        &self,
        logged: &Logged,
        worker: &Worker,
    ) -> Result<Checkpoint, CheckpointError> {
        let pages = self.checkpoint_pages(worker);
        let made = logged.make_checkpoint(worker)?;
        pages.map(|()| made)
    }

    /// Makes the checkpoint that is due.
    pub(crate) fn make_due_checkpoint(
        &self,
        logged: &Logged,
        worker: &Worker,
    ) -> Result<(), CheckpointError> {
        let pages = self.checkpoint_pages(worker);
        logged.make_due_checkpoint(worker)?;
        pages
    }

    fn checkpoint_pages(&self, worker: &Worker) -> Result<(), CheckpointError> {
        let pages = self.pages();
        pages.map_or(Ok(()), |pages| pages.checkpoint(worker))
    }
}

/// Counters of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Counter {
    Commits,
    ReadOnlyCommits,
    Rollbacks,
    Deadlocks,
    Reruns,
    GhostsPurged,
    GhostsLeft,
    IdleEnded,
    Cancelled,
}

impl Counter {
    pub(crate) const ALL: [Counter; 9] = [
        Counter::Commits,
        Counter::ReadOnlyCommits,
        Counter::Rollbacks,
        Counter::Deadlocks,
        Counter::Reruns,
        Counter::GhostsPurged,
        Counter::GhostsLeft,
        Counter::IdleEnded,
        Counter::Cancelled,
    ];
}
