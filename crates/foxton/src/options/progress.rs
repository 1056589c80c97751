//! How far opening a database has come.

use std::fmt;
use std::sync::Arc;

use foxton_sync::shim::{AtomicU64, Ordering};

/// A caller hears of every so many bytes, and of the end.
const STEP: u64 = 1 << 20;
/// Of every so many rows.
const ROWS_STEP: u64 = 1 << 14;

/// What opening a database does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OpenPhase {
    /// It loads the rows of the checkpoint.
    #[default]
    Checkpoint,
    /// It reads the log behind the checkpoint. How long the log is, is known only at its end: the
    /// total is what its files have room for.
    Log,
    /// It fills a secondary index from the rows of its table. Rows are counted, and the total is about
    /// how many there are.
    Index,
}

/// How far opening a database has come. See [`Options::progress`](crate::Options::progress).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OpenProgress {
    /// What it does.
    pub phase: OpenPhase,
    /// Bytes read in this phase; rows, for an index.
    pub done: u64,
    /// Bytes to be read in this phase; rows, for an index.
    pub total: u64,
}

/// A function that hears how far opening a database has come, or filling an index.
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
    /// Calls `function` about once a mebibyte, or once every few thousand rows of an index, from
    /// whichever thread has read it.
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

    /// So much more has been read.
    pub(crate) fn advance(&self, more: u64) {
        if self.call.is_none() || more == 0 {
            return;
        }
        let before = self.done.fetch_add(more, Ordering::Relaxed);
        let done = before + more;
        let step = match self.phase {
            OpenPhase::Index => ROWS_STEP,
            OpenPhase::Checkpoint | OpenPhase::Log => STEP,
        };
        if before / step != done / step {
            self.tell(done);
        }
    }

    /// Everything has been read.
    pub(crate) fn end(&self) {
        self.tell(self.total);
    }

    fn tell(&self, done: u64) {
        if let Some(call) = self.call {
            let (phase, total) = (self.phase, self.total);
            let done = done.min(total);
            (call.0)(OpenProgress { phase, done, total });
        }
    }
}
