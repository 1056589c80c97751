//! Progress of opening a database.

use std::fmt;
use std::sync::Arc;

use foxton_sync::shim::{AtomicU64, Ordering};

/// Bytes between two calls of the callback; it is also called at the end.
const STEP: u64 = 1 << 20;
/// Rows between two calls of the callback.
const ROWS_STEP: u64 = 1 << 14;

/// Phase of opening a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OpenPhase {
    /// Loading the rows of the checkpoint.
    #[default]
    Checkpoint,
    /// Reading the log behind the checkpoint. The length of the log is known only at its end, so
    /// the total is the space in its files.
    Log,
    /// Filling a secondary index from the rows of its table. The unit is rows, and the total is
    /// approximate.
    Index,
    /// Copying the rows of a table that is [converted](crate::Database::convert). The unit is rows,
    /// and the total is approximate; 0 for a paged table, whose rows are not counted.
    Convert,
}

/// Progress of opening a database. See [`Options::progress`](crate::Options::progress).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OpenProgress {
    /// The current phase.
    pub phase: OpenPhase,
    /// Bytes read in this phase; rows, for an index.
    pub done: u64,
    /// Bytes to be read in this phase; rows, for an index.
    pub total: u64,
}

/// A callback for the progress of opening a database, or of filling an index.
///
/// ```
/// use foxton::{Database, Options, progress::ProgressCall};
///
/// let mut options = Options::default();
/// options.progress = Some(ProgressCall::new(|progress| {
///     eprintln!("{:?}: {} of {} bytes", progress.phase, progress.done, progress.total);
/// }));
/// let db = Database::in_memory(options)?;
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Clone)]
pub struct ProgressCall(Arc<dyn Fn(OpenProgress) + Send + Sync>);

impl ProgressCall {
    /// Calls `function` about once per mebibyte, or once every few thousand rows of an index, on
    /// whichever thread has read them.
    pub fn new(function: impl Fn(OpenProgress) + Send + Sync + 'static) -> ProgressCall {
        ProgressCall(Arc::new(function))
    }
}

impl fmt::Debug for ProgressCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgressCall")
    }
}

/// Counts the bytes, or rows, of one phase.
#[derive(Debug)]
pub(crate) struct ProgressMeter<'c> {
    call: Option<&'c ProgressCall>,
    phase: OpenPhase,
    total: u64,
    done: AtomicU64,
}

impl<'c> ProgressMeter<'c> {
    pub(crate) fn new(
        call: Option<&'c ProgressCall>,
        phase: OpenPhase,
        total: u64,
    ) -> ProgressMeter<'c> {
        let meter = ProgressMeter {
            call,
            phase,
            total,
            done: AtomicU64::new(0),
        };
        meter.tell(0);
        meter
    }

    /// Adds `more` bytes or rows.
    pub(crate) fn advance(&self, more: u64) {
        if self.call.is_none() || more == 0 {
            return;
        }
        let before = self.done.fetch_add(more, Ordering::Relaxed);
        let done = before + more;
        let step = match self.phase {
            OpenPhase::Index | OpenPhase::Convert => ROWS_STEP,
            OpenPhase::Checkpoint | OpenPhase::Log => STEP,
        };
        if before / step != done / step {
            self.tell(done);
        }
    }

    /// Reports the end of the phase.
    pub(crate) fn end(&self) {
        self.tell(self.total.max(self.done.load(Ordering::Relaxed)));
    }

    fn tell(&self, done: u64) {
        if let Some(call) = self.call {
            // Rows of paged tables are not counted before.
            let total = if self.total == 0 { done } else { self.total };
            let phase = self.phase;
            let done = done.min(total);
            (call.0)(OpenProgress { phase, done, total });
        }
    }
}
