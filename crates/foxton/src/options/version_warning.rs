//! Warnings about versions that snapshots keep.

use std::fmt;
use std::sync::Arc;

use crate::types::active_snapshot::ActiveSnapshot;

/// Versions that snapshots keep take much memory. See
/// [`Options::version_warning`](crate::Options::version_warning).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionWarning {
    /// Bytes of the versions that are kept, about.
    pub bytes: u64,
    /// [`Options::version_bytes`](crate::Options::version_bytes).
    pub limit: u64,
    /// The snapshot that keeps the most.
    pub snapshot: ActiveSnapshot,
    /// True if this snapshot is ended now; false for a first warning.
    pub is_ending: bool,
}

/// A callback for warnings about versions that snapshots keep.
///
/// ```
/// use foxton::{Database, Options, VersionCall};
///
/// let mut options = Options::default();
/// options.version_warning = Some(VersionCall::new(|warning| {
///     let snapshot = &warning.snapshot;
///     eprintln!("{} keeps {} bytes for {:?}", snapshot.label, snapshot.bytes, snapshot.age);
/// }));
/// let db = Database::in_memory(options)?;
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Clone)]
pub struct VersionCall(Arc<dyn Fn(&VersionWarning) + Send + Sync>);

impl VersionCall {
    /// Calls `function` on the background thread of the database, which goes on when it returns. So
    /// it must be short, and must not panic or use the database.
    pub fn new(function: impl Fn(&VersionWarning) + Send + Sync + 'static) -> VersionCall {
        VersionCall(Arc::new(function))
    }

    pub(crate) fn call(&self, warning: &VersionWarning) {
        (self.0)(warning);
    }
}

impl fmt::Debug for VersionCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VersionCall")
    }
}
