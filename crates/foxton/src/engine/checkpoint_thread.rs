//! Checkpoint thread.
//!
//! It sleeps until a commit finds that enough log was written since the last checkpoint. It keeps
//! the engine alive only while it makes a checkpoint. When the database is closed, it gives up: an
//! unfinished checkpoint does no harm.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::checkpoint::{CheckpointControl, CheckpointError};
use crate::engine::persistence::Logged;
use crate::engine::{Engine, own_thread};

/// The running thread; dropping this stops it.
#[derive(Debug)]
pub(crate) struct CheckpointThread {
    checkpoints: Arc<CheckpointControl>,
    thread: Option<JoinHandle<()>>,
}

impl CheckpointThread {
    /// Starts a thread that makes checkpoints of `engine`, which has a log, when they are due.
    pub(crate) fn start(engine: &Arc<Engine>, logged: &Logged) -> io::Result<CheckpointThread> {
        let checkpoints = logged.checkpoints.clone();
        // There may be enough log already.
        let (worker, end) = (engine.workers.background_worker(), logged.log.durable());
        checkpoints.ask(&worker, end);
        let (shared, engine) = (checkpoints.clone(), Arc::downgrade(engine));
        let thread = thread::Builder::new()
            .name("foxton-checkpoint".into())
            .spawn(move || {
                while checkpoints.await_due() {
                    let Some(engine) = engine.upgrade() else {
                        return;
                    };
                    let Some(logged) = engine.logged() else {
                        return;
                    };
                    let worker = engine.workers.background_worker();
                    // `Database::checkpoints` shows other errors; a failed log concerns every
                    // transaction.
                    let made = engine.make_due_checkpoint(logged, &worker);
                    if let Err(CheckpointError::Failed(error)) = made {
                        let _ = engine.log_failed(error);
                    }
                }
            })?;
        Ok(CheckpointThread {
            checkpoints: shared,
            thread: Some(thread),
        })
    }
}

impl Drop for CheckpointThread {
    fn drop(&mut self) {
        self.checkpoints.stop();
        if let Some(thread) = self.thread.take() {
            own_thread::join(thread);
        }
    }
}
