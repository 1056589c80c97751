//! The thread that makes checkpoints.
//!
//! It sleeps until a commit finds that enough log has come since the last one. It keeps the engine
//! alive only while it makes one, and gives up in the middle when the database is closed: what it has
//! written by then is in nobody's way.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::checkpoint::{CheckpointControl, CheckpointError};
use crate::engine::Engine;

/// A running thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    checkpoints: Arc<CheckpointControl>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Makes checkpoints of `engine` when they are due.
    pub(crate) fn start(engine: &Arc<Engine>) -> io::Result<Checkpointer> {
        let checkpoints = engine.checkpoints.clone();
        // There may be enough log already.
        let (worker, end) = (engine.workers.background_worker(), engine.log.durable());
        checkpoints.ask(&worker, end);
        let (shared, engine) = (checkpoints.clone(), Arc::downgrade(engine));
        let thread = thread::Builder::new()
            .name("foxton-checkpoint".into())
            .spawn(move || {
                while checkpoints.await_due() {
                    let Some(engine) = engine.upgrade() else {
                        return;
                    };
                    let worker = engine.workers.background_worker();
                    // Whoever asks hears of what went wrong from `Database::checkpoints`; a log that
                    // has failed is everybody's business.
                    if let Err(CheckpointError::Failed(error)) =
                        checkpoints.make_due(&engine.log, &worker)
                    {
                        let _ = engine.log_failed(error);
                    }
                }
            })?;
        Ok(Checkpointer {
            checkpoints: shared,
            thread: Some(thread),
        })
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.checkpoints.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
