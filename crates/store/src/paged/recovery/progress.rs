//! How far restart has come.

use std::fmt;
use std::sync::Arc;

use foxton_sync::shim::{AtomicU64, Ordering::Relaxed};

/// A caller hears of every so many bytes, and of the end.
const STEP: u64 = 1 << 20;

/// What restart does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RestartPhase {
    /// It finds out what was under way: bytes of log read, of what the files have room for.
    Analysis,
    /// It makes changes again that pages do not have: bytes of log read.
    Redo,
    /// It takes back what was not committed: bytes of log that were set aside for it.
    Undo,
}

/// How far restart has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestartProgress {
    /// What it does.
    pub phase: RestartPhase,
    /// Bytes done in this phase.
    pub done: u64,
    /// Bytes to be done in this phase.
    pub total: u64,
}

/// A function that hears how far restart has come.
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

    /// So many bytes more are done.
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

    /// Everything is done.
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
