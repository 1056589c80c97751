//! The position at which a transaction, or a handle of a snapshot, reads.

use foxton_log::Lsn;

/// A position at which a transaction reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SnapshotView {
    pub(crate) lsn: Lsn,
    /// Where the snapshot is registered.
    pub(crate) place: u32,
    /// True if the transaction has registered it, and ends it.
    pub(crate) is_own: bool,
}
