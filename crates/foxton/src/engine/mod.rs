//! What all transactions of one database share.
//!
//! Locks, log, tables, options. Nothing here is written by a transaction that begins or ends: there
//! is no list of transactions and no counter of them. Whoever holds an `Arc<Engine>` keeps the
//! database open; the sets of a [`Rack`](crate::engine::context_pool::Rack) hold theirs as long as they live, so
//! that beginning a transaction does not touch the count.

/// Pool of worker contexts.
pub(crate) mod context_pool;

/// Background thread: timers, async wake-ups, commits whose future was dropped.
pub(crate) mod background;

/// Cancel tokens.
pub(crate) mod cancel_token;

/// Slot of an idle transaction.
pub(crate) mod idle_slot;

/// Registry of idle transactions.
pub(crate) mod idle_registry;

/// Early lock release: reads of rows that are not durable yet.
pub(crate) mod early_release;

/// Checkpoint thread.
pub(crate) mod checkpoint_thread;

/// Idle timeout thread.
pub(crate) mod idle_timeout;

/// Slot of the context of a session.
pub(crate) mod session_slot;

use std::sync::Arc;
use std::time::Instant;

use foxton_lock::any::AnyManager;
use foxton_lock::name::KeyHasher;
use foxton_log::device::Device;
use foxton_log::format::superblock::{self, Superblock};
use foxton_log::{Log, LogError};
use foxton_sync::admission::AdmissionControl;
use foxton_sync::counter::WorkerCounters;
use foxton_sync::shim::{AtomicBool, Mutex, Ordering};
use foxton_sync::worker::Workers;

use crate::catalog::Catalog;
use crate::checkpoint::CheckpointControl;
use crate::engine::background::BackgroundThread;
use crate::engine::early_release::EarlyRelease;
use crate::engine::idle_registry::Idlers;
use crate::error::{Error, Result};
use crate::options::Options;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) options: Options,
    /// Where the database is, for people.
    pub(crate) place: String,
    pub(crate) opened: Instant,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) superblock: Superblock,
    pub(crate) locks: Arc<AnyManager>,
    pub(crate) keeper: BackgroundThread,
    pub(crate) log: Log,
    /// Shared with the thread that makes them.
    pub(crate) checkpoints: Arc<CheckpointControl>,
    pub(crate) hasher: KeyHasher,
    pub(crate) workers: Workers,
    pub(crate) catalog: Catalog,
    pub(crate) counters: WorkerCounters<{ Counter::ALL.len() }>,
    /// Whether a transaction is open. Looked at only with locking off.
    pub(crate) open: Mutex<bool>,
    /// Whether the log has failed. Written once, so that reading it costs nothing.
    pub(crate) failed: AtomicBool,
    pub(crate) early: EarlyRelease,
    /// Seats for those at work, if there are not as many as there are clients.
    pub(crate) admission: Option<AdmissionControl>,
    /// Where transactions may be idle, if anybody is to know.
    pub(crate) idlers: Idlers,
}

impl Engine {
    /// Refuses new transactions once the log has failed.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        // Relaxed: leads to no memory; whoever sees it late hears of it at its commit.
        if self.failed.load(Ordering::Relaxed) {
            return self.log.check().map_err(Error::from);
        }
        Ok(())
    }

    /// Whether the log may tell of an update by what is different. Not in a database that was made before
    /// there was such a thing: the program that made it can read it still.
    #[inline]
    pub(crate) fn patches(&self) -> bool {
        self.superblock.incompat & superblock::PATCHES != 0
    }

    /// Notes that the log has failed.
    #[cold]
    pub(crate) fn log_failed(&self, error: LogError) -> Error {
        // Relaxed: see `check`.
        self.failed.store(true, Ordering::Relaxed);
        error.into()
    }
}

/// What transactions count.
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
