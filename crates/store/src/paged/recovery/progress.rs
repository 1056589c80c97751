//! Progress of a restart.

use std::fmt;
use std::sync::Arc;

use foxton_sync::shim::{AtomicU64, Ordering::Relaxed};

/// A caller is notified after so many bytes, and at the end.
const STEP: u64 = 1 << 20;

/// Phase of a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RestartPhase {
    /// Analysis finds the active transactions: bytes of log read, out of the space in the files.
    Analysis,
    /// Redo makes changes that pages do not have: bytes of log read.
    Redo,
    /// Undo removes uncommitted changes: bytes of log that were reserved for it.
    Undo,
}

/// Progress of a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestartProgress {
    /// The present phase.
    pub phase: RestartPhase,
    /// Bytes done in this phase.
    pub done: u64,
    /// Total bytes of this phase.
    pub total: u64,
}

/// A function that is notified of progress.
#[derive(Clone)]
pub struct RestartCallback(Arc<dyn Fn(RestartProgress) + Send + Sync>);

impl RestartCallback {
    /// Calls `function` about once a mebibyte, and at the beginning and the end of each phase.
    pub fn new(function: impl Fn(RestartProgress) + Send + Sync + 'static) -> RestartCallback {
        RestartCallback(Arc::new(function))
    }
}

impl fmt::Debug for RestartCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RestartCallback")
    }
}

/// Counts the bytes of one phase.
#[derive(Debug)]
pub(super) struct PhaseMeter {
    call: Option<RestartCallback>,
    phase: RestartPhase,
    total: u64,
    done: AtomicU64,
}

impl PhaseMeter {
    pub(super) fn new(
        call: Option<&RestartCallback>,
        phase: RestartPhase,
        total: u64,
    ) -> PhaseMeter {
        let meter = PhaseMeter {
            call: call.cloned(),
            phase,
            total,
            done: AtomicU64::new(0),
        };
        meter.report(0);
        meter
    }

    /// Adds `bytes` that are done.
    pub(super) fn advance(&self, bytes: u64) {
        if self.call.is_none() {
            return;
        }
        // Relaxed: a count.
        let before = self.done.fetch_add(bytes, Relaxed);
        if before / STEP != (before + bytes) / STEP {
            self.report(before + bytes);
        }
    }

    /// Reports that everything is done.
    pub(super) fn end(&self) {
        self.report(self.total);
    }

    fn report(&self, done: u64) {
        let Some(call) = &self.call else {
            return;
        };
        (call.0)(RestartProgress {
            phase: self.phase,
            done: done.min(self.total),
            total: self.total,
        });
    }
}
