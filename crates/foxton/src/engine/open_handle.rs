//! Share in an open database; when the last one is dropped, the database closes.
//!
//! # State
//!
//! Each handle of a program has a share: the databases, sessions and transactions. A context has
//! its share also in the pool, which the databases own.
//!
//! A commit whose future was dropped has none. It has the engine until the background thread has
//! finished it, so the count of engines does not say whether a program has a handle.
//!
//! # Invariants
//!
//! * I1  A thread drops its share after everything else that it has of the engine.
//! * I2  A context without a share is with the background thread, in the pool, or in the slot of a
//!   session. It gets one before it is given to a program, from a database or session with a share.
//! * I3  A forked child closes nothing, and forgets what it inherited. It has none of the threads,
//!   shares the lock of the directory with its parent, and may find any mutex locked for ever.
//!
//! # Why nothing has the directory once the last share is dropped
//!
//! The thread that drops it finds the engine with the background thread alone (I1). No context can
//! get a share any more (I2). The thread waits for the background thread, which ends after its last
//! job, and then has the only reference. So it closes the log and drops the device itself.

use std::fmt;
use std::mem;
use std::sync::Arc;

use foxton_log::LogError;

use super::{Engine, own_thread};
use crate::error::{Error, Result};

/// See the [module](self).
pub(crate) struct OpenHandle {
    /// Taken when the database closes.
    engine: Option<Arc<Engine>>,
}

impl fmt::Debug for OpenHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenHandle").finish_non_exhaustive()
    }
}

impl OpenHandle {
    /// The first share of a database.
    pub(crate) fn new(engine: Arc<Engine>) -> OpenHandle {
        let engine = Some(engine);
        OpenHandle { engine }
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.engine.as_ref().expect("taken only when it closes")
    }

    /// Closes the database, whose last share this is. When it returns, nothing has the directory.
    pub(crate) fn close(mut self) -> Result<()> {
        if self.engine().is_inherited() {
            return Err(LogError::Forked.into());
        }
        self.engine.take().map_or(Ok(()), close)
    }
}

impl Drop for OpenHandle {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take() else {
            return;
        };
        if engine.is_inherited() {
            mem::forget(engine); // I3
            return;
        }
        if !own_thread::is_current() {
            // No caller is left to get the error.
            let _ = close(engine);
            return;
        }
        let mut elsewhere = CloseElsewhere(Some(engine));
        own_thread::close_elsewhere(move || {
            let _ = elsewhere.0.take().map(close);
        });
    }
}

/// An engine on its way to the thread that closes it.
struct CloseElsewhere(Option<Arc<Engine>>);

impl Drop for CloseElsewhere {
    fn drop(&mut self) {
        // There was no thread for it. Closing it here would wait for this thread, so it stays open
        // until the process ends.
        mem::forget(self.0.take());
    }
}

/// Ends the background thread, writes the pages, and closes the log.
fn close(engine: Arc<Engine>) -> Result<()> {
    engine.background.stop();
    let worker = engine.workers.background_worker();
    let pages = engine.pages();
    let written = pages.map_or(Ok(()), |pages| pages.close(&worker, &engine.catalog));
    let closed = engine.log().map_or(Ok(()), |log| log.close(&worker));
    let closed = written.and(closed.map_err(Error::from));
    drop(worker);
    drop(engine);
    closed
}
