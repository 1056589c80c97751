//! Method by which snapshots are taken.

/// Method by which snapshots are taken: by position in the log, or as read views for comparison.
///
/// ```
/// use foxton::{Database, Options, SnapshotMethod};
///
/// let mut options = Options::default();
/// options.snapshots = SnapshotMethod::ReadViews;
/// let db = Database::in_memory(options)?;
/// db.snapshot()?.end()?;
/// assert_eq!("read-views".parse(), Ok(SnapshotMethod::ReadViews));
/// # Ok::<(), foxton::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SnapshotMethod {
    /// A snapshot is a position in the log. Its begin and its end share nothing that is written,
    /// and it keeps one version of a row.
    #[default]
    Lsn,
    /// The baseline of measurements. A snapshot is a copy of the list of open transactions, taken
    /// under one mutex, and the oldest one keeps every version since.
    ReadViews,
}

foxton_sync::named_enum! {
    SnapshotMethod, "method of snapshots":
    Lsn = "lsn",
    ReadViews = "read-views",
}
